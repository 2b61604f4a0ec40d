/* For the tests of checkpoints: a folder of the test's own, runs that save into it, files as bytes. */
#ifndef CHECKPOINT_FIXTURE_H
#define CHECKPOINT_FIXTURE_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "small_run.h"
#include "data/safetensors.h"
#include "train/checkpoint.h"

/* One layer, no mHC: files of a few kilobytes. */
static const char *const smallest = "num_layers: 1\nhidden_size: 4\nffn_hidden_size: 8\n"
                                    "enable_mhc_connections: false\nnum_attention_heads: 1\n";

static inline void remove_tree(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *f = readdir(d); f; f = readdir(d)) {
        char inner[4096];
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0) continue;
        assert_in_range(snprintf(inner, sizeof inner, "%s/%s", path, f->d_name), 1, sizeof inner - 1);
        if (unlink(inner) != 0) remove_tree(inner);
    }
    closedir(d);
    rmdir(path);
}

/* The test runs in a folder of its own; checkpoints go to "ck" in it. */
static inline int enter_new_folder(void **state)
{
    char *folder = strdup("/tmp/birkhoff-test-XXXXXX");
    *state = folder;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static inline int leave_folder(void **state)
{
    const int rc = chdir("/");
    remove_tree(*state);
    free(*state);
    return rc;
}

static inline void open_run(small_run *r, const char *more)
{
    small_run_graphs(r, more, 1, BK_F32);
    small_run_open(r);
}

static inline void train_to(small_run *r, int64_t iteration)
{
    bk_err e = {0};
    for (; r->step <= iteration; r->step++)
        must(bk_exec_run(r->session.exec, r->session.program[0].p, &r->host, &e), &e);
}

static inline bk_checkpoint_state state_at(int64_t iteration)
{
    return (bk_checkpoint_state){iteration, iteration * 2, 1, iteration % 3, 0.1 * (double)iteration};
}

static inline bk_status save_in(bk_checkpoint_dir *d, small_run *r, int64_t iteration, bk_err *e)
{
    const bk_checkpoint_state at = state_at(iteration);
    return bk_checkpoint_save(d, &r->session, &at, &r->c, e);
}

/* Opens "ck" for a run that begins one step before, saves, closes. */
static inline bk_status save_alone(small_run *r, int64_t iteration, bk_err *e)
{
    bk_checkpoint_dir *d = NULL;
    bk_status st = bk_checkpoint_dir_open(&d, "ck", iteration - 1, &r->c, e);
    if (st == BK_OK) st = save_in(d, r, iteration, e);
    bk_checkpoint_dir_close(d);
    return st;
}

static inline void must_save(small_run *r, int64_t iteration)
{
    bk_err e = {0};
    must(save_alone(r, iteration, &e), &e);
}

/* The iteration that opens as the newest, and is whole. */
static inline int64_t newest(void)
{
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    const int64_t iteration = bk_checkpoint_get_state(k).iteration;
    bk_checkpoint_close(k);
    return iteration;
}

static inline bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static inline char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("no file %s", path);
    char *bytes = malloc(1 << 20);
    *n = fread(bytes, 1, (1 << 20) - 1, f);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

static inline void write_file(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Entries of a folder whose name begins so. */
static inline int count_entries(const char *path, const char *begin)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d))
        n += strncmp(f->d_name, begin, strlen(begin)) == 0;
    if (d) closedir(d);
    return n;
}

static inline void assert_says(const bk_err *e, const char *part)
{
    if (!strstr(e->msg, part)) fail_msg("\"%s\" is not in: %s", part, e->msg);
}

/* The newest checkpoint is refused, and the message has the part. */
static inline void assert_not_opened(const char *part)
{
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    assert_int_not_equal(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), BK_OK);
    assert_null(k);
    assert_says(&e, part);
}

#endif
