/* For tests of files that a run appends to: a folder of their own, a disk that is full. */
#ifndef LOG_CHECK_H
#define LOG_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "temp_folder.h"

/* Files may have `bytes` bytes, as on a disk that is then full; 0: as many as before. */
static inline void limit_files(size_t bytes)
{
    struct rlimit r;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes ? bytes : r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static inline void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The file's bytes and a NUL; returns their number, which must fit. */
static inline size_t slurp(char *out, size_t size, const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(out, 1, size, f);
    assert_in_range(n, 0, size - 1);
    out[n] = '\0';
    fclose(f);
    return n;
}

static inline void ok(bk_status st, const bk_err *e)
{
    if (st != BK_OK) fail_msg("%s", e->msg);
}

static inline void expect_message(const bk_err *e, const char *part, const char *another)
{
    if (!strstr(e->msg, part) || !strstr(e->msg, another))
        fail_msg("'%s' and '%s' are not both in: %s", part, another, e->msg);
}

#endif
