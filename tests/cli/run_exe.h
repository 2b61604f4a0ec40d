/* Runs the executable in a folder of its own and collects what it prints. */
#ifndef RUN_EXE_H
#define RUN_EXE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temp_folder.h"

enum { EXE_MAX_ARGS = 32, EXE_MAX_SECONDS = 60 };

typedef struct {
    int rc;                     /* exit status; 128 + signal */
    char out[65536], err[8192]; /* cut at the buffers */
} exe_result;

static inline void put_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

static inline void slurp(char *out, size_t size, const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    out[fread(out, 1, size - 1, f)] = '\0';
    fclose(f);
}

/* In the child. Threads sleep while they wait: tests run beside each other. */
static inline void become_exe(const char *const *args, const char *stdout_path)
{
    const char *argv[EXE_MAX_ARGS + 2] = {BK_EXE};
    for (int i = 0; args[i] && i < EXE_MAX_ARGS; i++) argv[i + 1] = args[i];
    const int out = open(stdout_path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int err = open(".stderr", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) _exit(126);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    alarm(EXE_MAX_SECONDS);
    execv(BK_EXE, (char *const *)(uintptr_t)argv);
    _exit(127);
}

static inline void run_exe_to(exe_result *r, const char *stdout_path, const char *const *args)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) become_exe(args, stdout_path);
    assert_int_equal(waitpid(child, &status, 0), child);
    r->rc = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    slurp(r->err, sizeof r->err, ".stderr");
}

static inline void run_exe(exe_result *r, const char *const *args)
{
    run_exe_to(r, ".stdout", args);
    slurp(r->out, sizeof r->out, ".stdout");
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline void expect_contains(const char *text, const char *const *parts)
{
    for (; *parts; parts++)
        if (!strstr(text, *parts)) fail_msg("'%s' is not in: %s", *parts, text);
}

/* The run fails with this exit code, prints nothing but one line of error, and the line has these parts. */
static inline void expect_refusal(int rc, const char *const *args, const char *const *parts)
{
    exe_result r;
    run_exe(&r, args);
    if (r.rc != rc) fail_msg("exit code %d, not %d: %s%s", r.rc, rc, r.out, r.err);
    assert_string_equal(r.out, "");
    const char *end = strchr(r.err, '\n');
    if (strncmp(r.err, "birkhoff: ", 10) != 0 || !end || end[1] != '\0')
        fail_msg("not one line of error: %s", r.err);
    expect_contains(r.err, parts);
}

#endif
