# Writes OUTPUT, a header with the commit of SOURCE's git repository as BK_COMMIT; run at each build, and the file
# changes only when the commit does. "+dirty": tracked files differ from it. "unknown": SOURCE is not the top of a
# work tree (an unpacked archive, perhaps inside another repository), or there is no git.
set(commit unknown)
find_program(GIT git)
if(GIT)
    execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-toplevel
        OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    file(REAL_PATH ${SOURCE} source)
    if(top AND top STREQUAL source)
        execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=12 HEAD
            OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        execute_process(COMMAND ${GIT} -C ${SOURCE} --no-optional-locks status --porcelain --untracked-files=no
            OUTPUT_VARIABLE changes ERROR_QUIET)
        if(head)
            set(commit ${head})
        endif()
        if(head AND changes)
            string(APPEND commit "+dirty")
        endif()
    endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define BK_COMMIT \"${commit}\"\n")
