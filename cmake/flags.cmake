# Compiler flags: bk_flags for everything, bk_kernel_flags for the *_cpu.c files on top of it. A flag that a
# compiler may lack is asked for first, so that no compiler sees one that it would warn about.
include(CheckCCompilerFlag)
check_c_compiler_flag(-mprefer-vector-width=512 BK_HAVE_PREFER_VECTOR_WIDTH)
check_c_compiler_flag(-march=native BK_HAVE_MARCH_NATIVE)
check_c_compiler_flag(-mcpu=native BK_HAVE_MCPU_NATIVE)

add_library(bk_flags INTERFACE)
target_include_directories(bk_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_definitions(bk_flags INTERFACE _GNU_SOURCE)
target_compile_options(bk_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wdouble-promotion
    -fno-math-errno $<$<BOOL:${BK_WERROR}>:-Werror>
    $<$<C_COMPILER_ID:Clang,AppleClang>:-Wno-unknown-warning-option>)
if(BK_NATIVE AND BK_HAVE_MARCH_NATIVE)
    target_compile_options(bk_flags INTERFACE -march=native)
elseif(BK_NATIVE AND BK_HAVE_MCPU_NATIVE)
    target_compile_options(bk_flags INTERFACE -mcpu=native) # how compilers for Arm spell it
endif()
if(BK_FUZZ)
    target_compile_options(bk_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(BK_SANITIZE)
    target_compile_definitions(bk_flags INTERFACE BK_SANITIZED) # gcc and clang each have other words for it
    target_compile_options(bk_flags INTERFACE -fsanitize=${BK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(bk_flags INTERFACE -fsanitize=${BK_SANITIZE})
endif()

add_library(bk_kernel_flags INTERFACE)
target_link_libraries(bk_kernel_flags INTERFACE OpenMP::OpenMP_C PkgConfig::CBLAS)
# -fno-trapping-math: lets selects become vector blends; no result changes.
target_compile_options(bk_kernel_flags INTERFACE -fno-trapping-math -ffp-contract=fast
    $<$<BOOL:${BK_HAVE_PREFER_VECTOR_WIDTH}>:-mprefer-vector-width=512>)
