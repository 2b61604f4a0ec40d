/* Opening: nothing of a checkpoint is used before all of it was checked. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/checkpoint_folder.h"
#include "train/checkpoint_options.h"

static bk_status read_manifest(bk_checkpoint *k, int64_t iteration, bk_err *e)
{
    char path[BK_PATH_LEN];
    bk_str text = {0};
    bk_status st = BK_OK;
    BK_TRY(bk_files_path(path, k->path, BK_MANIFEST_FILE, e));
    BK_TRY(bk_files_read(&text, path, BK_MANIFEST_MAX_BYTES, e));
    BK_TRY(bk_manifest_parse(&k->m, bk_str_text(&text), (int64_t)text.len, path, e));
    if (k->m.iteration != iteration)
        st = bk_err_set(e, BK_E_INPUT, "%s: it is of iteration %" PRId64 ", its folder is not", path,
                        k->m.iteration);
done:
    bk_str_free(&text);
    return st;
}

/* The file has the tensors of the manifest, and their bytes. Both are sorted by name. */
static bk_status check_tensors(const bk_checkpoint *k, bk_err *e)
{
    int64_t i = 0;
    for (; i < k->m.n_tensors && i < bk_st_count(k->st); i++) {
        const bk_manifest_tensor *m = &k->m.tensor[i];
        const bk_st_tensor *t = bk_st_at(k->st, i);
        if (strcmp(m->name, t->name) != 0) break;
        if (m->dtype != t->dtype || m->rank != t->rank ||
            memcmp(m->shape, t->shape, sizeof m->shape[0] * (size_t)t->rank) != 0)
            return bk_err_set(e, BK_E_INPUT,
                              "%s: tensor %.200s is not of the type and shape that the "
                              "manifest has; the file was altered",
                              k->path, t->name);
        if (m->checksum != bk_manifest_checksum(t->data, t->bytes))
            return bk_err_set(e, BK_E_INPUT,
                              "%s: the bytes of tensor %.200s do not have their checksum; "
                              "the file was altered",
                              k->path, t->name);
    }
    if (i == k->m.n_tensors && i == bk_st_count(k->st)) return BK_OK;
    const char *name = i < k->m.n_tensors ? k->m.tensor[i].name : bk_st_at(k->st, i)->name;
    return bk_err_set(e, BK_E_INPUT, "%s: manifest and file do not have the same tensors, from %.200s on",
                      k->path, name);
}

static bk_status read_tensors(bk_checkpoint *k, bk_err *e)
{
    char path[BK_PATH_LEN];
    struct stat info;
    bk_status st = BK_OK;
    BK_TRY(bk_files_path(path, k->path, BK_TENSOR_FILE, e));
    if (stat(path, &info) != 0)
        st = bk_err_set(e, BK_E_IO, "%s: cannot open: %s", path, strerror(errno));
    else if (info.st_size != k->m.file_bytes)
        st = bk_err_set(e, BK_E_INPUT, "%s: it has %lld bytes, the manifest says %lld: %s", path,
                        (long long)info.st_size, (long long)k->m.file_bytes,
                        info.st_size < k->m.file_bytes ? "cut short" : "altered");
    if (st != BK_OK) goto done;
    BK_TRY(bk_st_open(&k->st, path, e));
    BK_TRY(check_tensors(k, e));
done:
    return st;
}

/* Opens one iteration, which is whole or is refused. */
static bk_status open_one(bk_checkpoint **out, const char *dir, int64_t iteration, bk_err *e)
{
    char name[BK_ITER_LEN];
    struct stat info;
    bk_status st = BK_OK;
    bk_checkpoint *k = calloc(1, sizeof *k);
    if (!k) return bk_err_set(e, BK_E_MEM, "%s: out of memory", dir);
    BK_TRY(bk_files_path(k->path, dir, bk_checkpoint_folder_name(name, iteration), e));
    if (stat(k->path, &info) != 0) {
        st = bk_err_set(e, BK_E_INPUT, "%s: there is no such checkpoint: %s", k->path, strerror(errno));
        goto done;
    }
    BK_TRY(read_manifest(k, iteration, e));
    BK_TRY(read_tensors(k, e));
    *out = k, k = NULL;
done:
    bk_checkpoint_close(k);
    return st;
}

/* The newest whole checkpoint before `iteration`; BK_NO_ITERATION if there is none. */
static int64_t find_whole(const char *dir, int64_t iteration)
{
    int64_t *list = NULL, n = 0, found = BK_NO_ITERATION;
    if (bk_checkpoint_list(&list, &n, dir, NULL) != BK_OK) return BK_NO_ITERATION;
    for (int64_t i = n - 1; i >= 0 && found == BK_NO_ITERATION; i--) {
        bk_checkpoint *k = NULL;
        if (list[i] >= iteration || open_one(&k, dir, list[i], NULL) != BK_OK) continue;
        found = list[i];
        bk_checkpoint_close(k);
    }
    free(list);
    return found;
}

/* Puts behind the message which checkpoint may be loaded instead. */
static void name_another(const char *dir, int64_t iteration, bk_err *e)
{
    if (!e) return;
    const char *const where = iteration == INT64_MAX ? "there" : "before it";
    const int64_t found = find_whole(dir, iteration);
    const bk_err first = *e;
    char name[BK_ITER_LEN];
    if (found == BK_NO_ITERATION)
        bk_err_set(e, first.status, "%.800s; no whole checkpoint is %s", first.msg, where);
    else
        bk_err_set(e, first.status,
                   "%.800s; the newest whole checkpoint %s is %s: load that with --ckpt-step %" PRId64,
                   first.msg, where, bk_checkpoint_folder_name(name, found), found);
}

static bk_status find_newest(int64_t *out, const char *dir, bk_err *e)
{
    const bk_status st = bk_checkpoint_tracked(out, dir, e);
    if (st != BK_OK || *out != BK_NO_ITERATION) return st;
    return bk_err_set(e, BK_E_INPUT, "%s: no checkpoint can be loaded: it has no %s", dir, BK_TRACKER_FILE);
}

bk_status bk_checkpoint_open(bk_checkpoint **out, const char *dir, int64_t iteration, bk_err *e)
{
    struct stat info;
    const bool newest = iteration == BK_UNSET_COUNT;
    bk_status st = BK_OK;
    if (stat(dir, &info) != 0)
        return bk_err_set(e, BK_E_INPUT, "%s: no checkpoint can be loaded: %s", dir, strerror(errno));
    if (newest) st = find_newest(&iteration, dir, e);
    if (st != BK_OK) {
        name_another(dir, INT64_MAX, e);
        return st;
    }
    st = open_one(out, dir, iteration, e);
    if (st != BK_OK && newest) bk_err_prefix(e, "the newest checkpoint cannot be loaded: ");
    if (st != BK_OK && st != BK_E_MEM) name_another(dir, iteration, e);
    return st;
}

void bk_checkpoint_close(bk_checkpoint *k)
{
    if (!k) return;
    bk_manifest_free(&k->m);
    bk_st_free(k->st);
    free(k);
}

bk_checkpoint_state bk_checkpoint_get_state(const bk_checkpoint *k)
{
    return (bk_checkpoint_state){k->m.iteration, k->m.consumed_samples, k->m.skipped_steps, k->m.line_steps,
                                 k->m.line_loss_sum};
}

const char *bk_checkpoint_path(const bk_checkpoint *k)
{
    return k->path;
}

bk_status bk_checkpoint_config(bk_config *out, const bk_checkpoint *k, bk_err *e)
{
    return bk_checkpoint_options_apply(out, &k->m, k->path, e);
}

void bk_checkpoint_config_diff(bk_str *out, const bk_checkpoint *k, const bk_config *c)
{
    bk_checkpoint_options_diff(out, &k->m, c);
}
