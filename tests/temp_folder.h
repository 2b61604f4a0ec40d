/* A folder of its own for each test: setup and teardown of cmocka. The test runs inside it. */
#ifndef BK_TESTS_TEMP_FOLDER_H
#define BK_TESTS_TEMP_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline int enter_new_folder(void **state)
{
    char *folder = strdup("/tmp/birkhoff-test-XXXXXX");
    *state = folder;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static inline int remove_folder(void **state)
{
    const int rc = nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return rc + chdir("/");
}

#endif
