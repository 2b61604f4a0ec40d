/* Loading: nothing of a checkpoint is used before all of it was checked. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/checkpoint_folder.h"
#include "train/checkpoint_options.h"
#include "train/checkpoint_tensors.h"

struct bk_checkpoint {
    bk_manifest m;
    bk_st *st;
    char path[BK_PATH_LEN];
};

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

static bool same_form(const bk_manifest_tensor *m, const bk_st_tensor *t)
{
    bool same = m->dtype == t->dtype && m->rank == t->rank;
    for (int d = 0; same && d < t->rank; d++) same = m->shape[d] == t->shape[d];
    return same;
}

/* The file has the tensors of the manifest, and their bytes. Both are sorted by name. */
static bk_status check_tensors(const bk_checkpoint *k, bk_err *e)
{
    int64_t i = 0;
    for (; i < k->m.n_tensors && i < bk_st_count(k->st); i++) {
        const bk_manifest_tensor *m = &k->m.tensor[i];
        const bk_st_tensor *t = bk_st_at(k->st, i);
        if (strcmp(m->name, t->name) != 0) break;
        if (!same_form(m, t))
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

/* Puts behind the message which checkpoint may be loaded instead: the newest whole one before `iteration`. */
static void name_another(const char *dir, int64_t iteration, bk_err *e)
{
    int64_t *list = NULL, n = 0, found = BK_NO_ITERATION;
    if (!e || bk_checkpoint_list(&list, &n, dir, NULL) != BK_OK) return;
    for (int64_t i = n - 1; i >= 0 && found == BK_NO_ITERATION; i--) {
        bk_checkpoint *k = NULL;
        if (list[i] >= iteration || open_one(&k, dir, list[i], NULL) != BK_OK) continue;
        found = list[i];
        bk_checkpoint_close(k);
    }
    free(list);
    char name[BK_ITER_LEN];
    const bk_err first = *e;
    if (found == BK_NO_ITERATION)
        bk_err_set(e, first.status, "%.800s; there is no whole checkpoint before it", first.msg);
    else
        bk_err_set(e, first.status,
                   "%.800s; the newest whole checkpoint before it is %s: load that with "
                   "--ckpt-step %" PRId64,
                   first.msg, bk_checkpoint_folder_name(name, found), found);
}

bk_status bk_checkpoint_open(bk_checkpoint **out, const char *dir, int64_t iteration, bk_err *e)
{
    struct stat info;
    bk_status st;
    if (stat(dir, &info) != 0)
        return bk_err_set(e, BK_E_INPUT, "%s: no checkpoint can be loaded: %s", dir, strerror(errno));
    const bool newest = iteration == BK_UNSET_COUNT;
    if (newest) {
        iteration = INT64_MAX;
        st = bk_checkpoint_tracked(&iteration, dir, e);
        if (st == BK_OK && iteration == BK_NO_ITERATION) {
            iteration = INT64_MAX;
            st = bk_err_set(e, BK_E_INPUT, "%s: no checkpoint can be loaded: it has no %s", dir,
                            BK_TRACKER_FILE);
        }
        if (st != BK_OK) goto done;
    }
    st = open_one(out, dir, iteration, e);
    if (st != BK_OK && newest) bk_err_prefix(e, "the newest checkpoint cannot be loaded: ");
done:
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
    return (bk_checkpoint_state){k->m.iteration, k->m.consumed_samples};
}

const char *bk_checkpoint_path(const bk_checkpoint *k)
{
    return k->path;
}

const char *bk_checkpoint_version(const bk_checkpoint *k)
{
    return k->m.birkhoff_version;
}

bk_status bk_checkpoint_config(bk_config *out, const bk_checkpoint *k, bk_err *e)
{
    return bk_checkpoint_options_apply(out, &k->m, k->path, e);
}

void bk_checkpoint_config_diff(bk_str *out, const bk_checkpoint *k, const bk_config *c)
{
    bk_checkpoint_options_diff(out, &k->m, c);
}

/* ---- Against a session ---- */

enum { MOST_NAMED = 3 };

static void append_form(bk_str *out, const bk_st_tensor *t)
{
    bk_str_appendf(out, "%s [", bk_st_dtype_name(t->dtype));
    for (int d = 0; d < t->rank; d++) bk_str_appendf(out, "%s%" PRId64, d ? ", " : "", t->shape[d]);
    bk_str_append(out, "]");
}

/* Names of the first few, a count of all. */
typedef struct {
    int64_t n;
    bk_str names;
} differing;

static void add_name(differing *d, const char *name)
{
    if (d->n < MOST_NAMED) bk_str_appendf(&d->names, "%s%.80s", d->n ? ", " : "", name);
    if (d->n++ == MOST_NAMED) bk_str_append(&d->names, ", ...");
}

static void add_forms(differing *d, const bk_st_tensor *theirs, const bk_st_tensor *ours)
{
    const bool named = d->n < MOST_NAMED;
    add_name(d, theirs->name);
    if (!named) return;
    bk_str_append(&d->names, " is ");
    append_form(&d->names, theirs);
    bk_str_append(&d->names, ", not ");
    append_form(&d->names, ours);
}

static bool same_shape(const bk_st_tensor *a, const bk_st_tensor *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++) same = a->shape[d] == b->shape[d];
    return same;
}

/* The session's tensors and those of the file, one for one. */
static bk_status is_of_this_model(const bk_checkpoint *k, const bk_checkpoint_tensors *t,
                                  bk_checkpoint_part part, bk_err *e)
{
    differing missing = {0}, extra = {0}, other = {0};
    int64_t i = 0, j = 0;
    const int64_t n = bk_st_count(k->st);
    while (i < t->n || j < n) {
        const bk_st_tensor *ours = i < t->n ? &t->tensor[i] : NULL,
                           *theirs = j < n ? bk_st_at(k->st, j) : NULL;
        if (theirs && !bk_checkpoint_is_in(part, theirs->name)) {
            j++;
            continue;
        }
        const int order = !ours ? 1 : !theirs ? -1 : strcmp(ours->name, theirs->name);
        if (order < 0) add_name(&missing, ours->name);
        if (order > 0) add_name(&extra, theirs->name);
        if (order == 0 && !same_shape(ours, theirs)) add_forms(&other, theirs, ours);
        i += order <= 0, j += order >= 0;
    }
    bk_str text = {0};
    if (missing.n) bk_str_appendf(&text, "; %" PRId64 " missing: %s", missing.n, bk_str_text(&missing.names));
    if (extra.n) bk_str_appendf(&text, "; %" PRId64 " too many: %s", extra.n, bk_str_text(&extra.names));
    if (other.n)
        bk_str_appendf(&text, "; %" PRId64 " of another form: %s", other.n, bk_str_text(&other.names));
    bk_status st = BK_OK;
    if (text.len)
        st = bk_err_set(e, BK_E_INPUT, "%.200s is a checkpoint of another model%s", k->path,
                        bk_str_text(&text));
    if (text.failed || (missing.n + extra.n + other.n && !text.len))
        st = bk_err_set(e, BK_E_MEM, "%s: out of memory", k->path);
    bk_str_free(&missing.names);
    bk_str_free(&extra.names);
    bk_str_free(&other.names);
    bk_str_free(&text);
    return st;
}

bk_status bk_checkpoint_load(const bk_checkpoint *k, const bk_session *s, bk_checkpoint_part part, bk_err *e)
{
    bk_checkpoint_tensors t = {0};
    bk_status st = BK_OK;
    BK_TRY(bk_checkpoint_tensors_of(&t, s, part, e));
    BK_TRY(is_of_this_model(k, &t, part, e));
    for (int64_t i = 0; i < t.n; i++)
        memcpy(t.data[i], bk_st_find(k->st, t.tensor[i].name)->data, (size_t)t.tensor[i].bytes);
done:
    bk_checkpoint_tensors_free(&t);
    return st;
}
