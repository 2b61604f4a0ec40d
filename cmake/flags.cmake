# Compiler flags: bk_flags for everything, bk_kernel_flags for the *_cpu.c files on top of it.
add_library(bk_flags INTERFACE)
target_include_directories(bk_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_definitions(bk_flags INTERFACE _GNU_SOURCE)
target_compile_options(bk_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wdouble-promotion
    -Wno-unknown-warning-option -fno-math-errno)
if(BK_NATIVE)
    target_compile_options(bk_flags INTERFACE -march=native)
endif()
if(BK_FUZZ)
    target_compile_options(bk_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(BK_SANITIZE)
    target_compile_options(bk_flags INTERFACE -fsanitize=${BK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(bk_flags INTERFACE -fsanitize=${BK_SANITIZE})
endif()

add_library(bk_kernel_flags INTERFACE)
target_link_libraries(bk_kernel_flags INTERFACE OpenMP::OpenMP_C PkgConfig::CBLAS)
# -fno-trapping-math: lets selects become vector blends; no result changes.
target_compile_options(bk_kernel_flags INTERFACE -fno-trapping-math -ffp-contract=fast
    $<$<C_COMPILER_ID:GNU>:-mprefer-vector-width=512>)
