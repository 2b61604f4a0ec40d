/* The reference vectors: files of an independent implementation in the folder BK_ORACLE_DIR, which may be
 * absent. Include it after cmocka's headers. */
#ifndef TESTS_ORACLE_H
#define TESTS_ORACLE_H

#include <stdio.h>
#include <unistd.h>

enum { ORACLE_PATH_LEN = 1024 };

/* The path of one of the files, in `path`, which is given back. Without the folder the test that asks is
 * skipped and says so; a file that the folder lacks is for the test to fail on. */
static inline const char *oracle_path(char path[ORACLE_PATH_LEN], const char *file)
{
    if (access(BK_ORACLE_DIR, R_OK) != 0) {
        print_message("SKIPPED: no reference vectors in %s; give their folder with -DBK_ORACLE_DIR=FOLDER\n",
                      BK_ORACLE_DIR);
        skip();
    }
    snprintf(path, ORACLE_PATH_LEN, "%s/%s", BK_ORACLE_DIR, file);
    return path;
}

#endif
