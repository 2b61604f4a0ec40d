/* The writer of safetensors files: checks its arguments, lays out the data, writes a temporary file and
 * renames it. */
#include "data/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/size.h"
#include "base/str.h"
#include "data/safetensors_scan.h"

/* Bytes to which the next tensor's begin stays aligned if this one's is: 8, 4, 2 or 1. */
static int64_t keeps_aligned(const bk_st_tensor *t)
{
    const int64_t lowest_bit = t->bytes & -t->bytes;
    return lowest_bit == 0 || lowest_bit > 8 ? 8 : lowest_bit;
}

/* Falling alignment: no tensor disturbs that of one with larger elements. Then by name. */
static int by_alignment(const void *a, const void *b)
{
    const bk_st_tensor *const *x = a, *const *y = b;
    const int64_t ax = keeps_aligned(*x), ay = keeps_aligned(*y);
    if (ax != ay) return ax > ay ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

static int by_name(const void *a, const void *b)
{
    const bk_st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int by_key(const void *a, const void *b)
{
    const bk_st_pair *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static bool text_ok(const char *s)
{
    return s && bk_utf8_valid(s, (int64_t)strlen(s));
}

static bk_status check_tensor(const bk_st_tensor *t, bk_err *e)
{
    if (!text_ok(t->name) || strcmp(t->name, "__metadata__") == 0)
        return bk_err_set(e, BK_E_INPUT, "'%.200s' cannot be the name of a tensor", t->name ? t->name : "");
    if ((int)t->dtype < 0 || t->dtype >= BK_ST_N_DTYPES || t->rank < 0 || t->rank > BK_ST_MAX_RANK)
        return bk_err_set(e, BK_E_INPUT, "tensor '%.200s': dtype %d, rank %d; at most %d dims can be written",
                          t->name, (int)t->dtype, t->rank, BK_ST_MAX_RANK);
    int64_t bytes = bk_st_dtype_size(t->dtype);
    bool fits = true, empty = false;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0 || t->shape[i] > BK_ST_MAX_NUMBER)
            fits = false;
        else if (t->shape[i] == 0)
            empty = true;
        else
            fits = fits && bk_mul64(&bytes, bytes, t->shape[i]);
    }
    if (!fits || t->bytes != (empty ? 0 : bytes))
        return bk_err_set(e, BK_E_INPUT, "tensor '%.200s': %" PRId64 " bytes do not fit its shape", t->name,
                          t->bytes);
    if (!t->data && t->bytes > 0) return bk_err_set(e, BK_E_INPUT, "tensor '%.200s' has no data", t->name);
    return BK_OK;
}

/* Pointers to the arguments in the order of the file; names and keys distinct. */
static bk_status sort_args(const bk_st_tensor **tensors, const bk_st_pair **meta, const bk_st_tensor *in,
                           int64_t n_tensors, const bk_st_pair *meta_in, int64_t n_meta, bk_err *e)
{
    for (int64_t i = 0; i < n_tensors; i++) {
        const bk_status st = check_tensor(&in[i], e);
        if (st != BK_OK) return st;
        tensors[i] = &in[i];
    }
    for (int64_t i = 0; i < n_meta; i++) {
        if (!text_ok(meta_in[i].key) || !text_ok(meta_in[i].value))
            return bk_err_set(e, BK_E_INPUT, "metadata pair %" PRId64 " is not UTF-8 text", i);
        meta[i] = &meta_in[i];
    }
    qsort(tensors, (size_t)n_tensors, sizeof *tensors, by_name);
    qsort(meta, (size_t)n_meta, sizeof *meta, by_key);
    for (int64_t i = 1; i < n_tensors; i++) {
        if (strcmp(tensors[i - 1]->name, tensors[i]->name) == 0)
            return bk_err_set(e, BK_E_INPUT, "tensor '%.200s' is given twice", tensors[i]->name);
    }
    for (int64_t i = 1; i < n_meta; i++) {
        if (strcmp(meta[i - 1]->key, meta[i]->key) == 0)
            return bk_err_set(e, BK_E_INPUT, "metadata key '%.200s' is given twice", meta[i]->key);
    }
    qsort(tensors, (size_t)n_tensors, sizeof *tensors, by_alignment);
    return BK_OK;
}

/* The JSON header, padded so that the data begin at a multiple of 8. */
static bk_status make_header(bk_str *out, const bk_st_tensor *const *tensors, int64_t n_tensors,
                             const bk_st_pair *const *meta, int64_t n_meta, bk_err *e)
{
    int64_t begin = 0;
    bk_str_append_char(out, '{', 1);
    for (int64_t i = 0; i < n_meta; i++) {
        bk_str_append(out, i == 0 ? "\"__metadata__\":{" : ",");
        bk_str_append_json(out, meta[i]->key);
        bk_str_append_char(out, ':', 1);
        bk_str_append_json(out, meta[i]->value);
    }
    if (n_meta > 0) bk_str_append_char(out, '}', 1);
    for (int64_t i = 0; i < n_tensors; i++) {
        const bk_st_tensor *t = tensors[i];
        if (i > 0 || n_meta > 0) bk_str_append_char(out, ',', 1);
        bk_str_append_json(out, t->name);
        bk_str_appendf(out, ":{\"dtype\":\"%s\",\"shape\":[", bk_st_dtype_name(t->dtype));
        for (int d = 0; d < t->rank; d++) bk_str_appendf(out, "%s%" PRId64, d ? "," : "", t->shape[d]);
        int64_t end = 0;
        if (!bk_add64(&end, begin, t->bytes) || end > BK_ST_MAX_NUMBER)
            return bk_err_set(e, BK_E_INPUT, "the tensors have more than 2^53 bytes");
        bk_str_appendf(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
        begin = end;
    }
    bk_str_append_char(out, '}', 1);
    bk_str_append_char(out, ' ', (int64_t)(-out->len & 7));
    if (out->failed) return bk_err_set(e, BK_E_MEM, "no memory for the header");
    if ((int64_t)out->len > BK_ST_MAX_HEADER)
        return bk_err_set(e, BK_E_INPUT, "the header of %zu bytes is above the limit of %" PRId64, out->len,
                          BK_ST_MAX_HEADER);
    return BK_OK;
}

static bool write_contents(int fd, const bk_str *header, const bk_st_tensor *const *tensors,
                           int64_t n_tensors)
{
    const uint64_t n_header = header->len;
    if (!bk_files_write_all(fd, &n_header, sizeof n_header)) return false;
    if (!bk_files_write_all(fd, header->s, header->len)) return false;
    for (int64_t i = 0; i < n_tensors; i++) {
        if (!bk_files_write_all(fd, tensors[i]->data, (size_t)tensors[i]->bytes)) return false;
    }
    return fsync(fd) == 0;
}

/* Opens a new file next to `path`. Its name is distinct from those of other processes and threads, and from
 * what a crash left behind, because an existing file is never opened. */
static int open_temporary(bk_str *name, const char *path)
{
    int fd = -1;
    for (int attempt = 0; fd < 0 && attempt < 1000; attempt++) {
        bk_str_free(name);
        bk_str_appendf(name, "%s.tmp-%ld-%d", path, (long)getpid(), attempt);
        if (name->failed) {
            errno = ENOMEM;
            return -1;
        }
        fd = open(name->s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
    }
    return fd;
}

static bk_status write_file(const char *path, const bk_str *header, const bk_st_tensor *const *tensors,
                            int64_t n_tensors, bk_err *e)
{
    bk_str name = {0};
    bk_status st = BK_OK;
    const int fd = open_temporary(&name, path);
    if (fd < 0) {
        st = bk_err_set(e, BK_E_IO, "cannot create a file there: %s", strerror(errno));
        goto done;
    }
    bool ok = write_contents(fd, header, tensors, n_tensors);
    int reason = errno;
    if (close(fd) != 0 && ok) ok = false, reason = errno;
    if (ok && rename(name.s, path) != 0) ok = false, reason = errno;
    if (!ok) {
        unlink(name.s);
        st = bk_err_set(e, BK_E_IO, "cannot write: %s; what was there is unchanged", strerror(reason));
        goto done;
    }
    if (!bk_files_sync_parent(path)) /* makes the rename durable */
        st = bk_err_set(e, BK_E_IO, "written, but its folder cannot be synced: %s", strerror(errno));
done:
    bk_str_free(&name);
    return st;
}

bk_status bk_st_write(const char *path, const bk_st_tensor *tensors, int64_t n_tensors,
                      const bk_st_pair *meta, int64_t n_meta, bk_err *e)
{
    bk_status st = BK_OK;
    bk_str header = {0};
    const bk_st_tensor **sorted = calloc((size_t)n_tensors + 1, sizeof *sorted);
    const bk_st_pair **sorted_meta = calloc((size_t)n_meta + 1, sizeof *sorted_meta);
    if (!sorted || !sorted_meta) {
        st = bk_err_set(e, BK_E_MEM, "no memory for %" PRId64 " tensors", n_tensors);
        goto done;
    }
    BK_TRY(sort_args(sorted, sorted_meta, tensors, n_tensors, meta, n_meta, e));
    BK_TRY(make_header(&header, sorted, n_tensors, sorted_meta, n_meta, e));
    BK_TRY(write_file(path, &header, sorted, n_tensors, e));
done:
    if (st != BK_OK) bk_err_prefix(e, "%s: ", path);
    bk_str_free(&header);
    free(sorted);
    free(sorted_meta);
    return st;
}
