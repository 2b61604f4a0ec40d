/* The reader of safetensors files. The tree that cJSON makes of the header is kept for its strings; all
 * checks are done once, before bk_st_open returns. The writer is safetensors_write.c. */
#include "data/safetensors.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/size.h"
#include "data/safetensors_scan.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error                                                                                                       \
    "safetensors data are little-endian and used as they lie in the file: big-endian machines are not supported"
#endif

struct bk_st {
    void *map; /* NULL for bytes in memory */
    size_t map_bytes;
    const char *label; /* while parsing */
    cJSON *header;
    const unsigned char *data;
    int64_t data_bytes;
    bk_st_tensor *tensors; /* sorted by name */
    int64_t n_tensors;
    bk_st_pair *meta; /* sorted by key */
    int64_t n_meta;
    bk_arena names; /* of tensors that were split */
};

static const struct {
    const char *name;
    int size;
} dtypes[BK_ST_N_DTYPES] = {
#define BK_ST_ROW(name, size) {#name, size},
    BK_ST_DTYPES(BK_ST_ROW)
#undef BK_ST_ROW
};

const char *bk_st_dtype_name(bk_st_dtype dtype)
{
    return dtypes[dtype].name;
}

int bk_st_dtype_size(bk_st_dtype dtype)
{
    return dtypes[dtype].size;
}

int64_t bk_st_n_elems(const bk_st_tensor *t)
{
    return t->bytes / dtypes[t->dtype].size;
}

/* Sets BK_E_INPUT with "label: tensor 'name': " in front; the name is cut so that the fact remains. */
#define FAULT(st, t, e, fmt, ...)                                                                            \
    bk_err_set(e, BK_E_INPUT, "%s: tensor '%.200s': " fmt, (st)->label, (t)->name, __VA_ARGS__)

static bk_status read_dtype(bk_st_tensor *t, const bk_st *st, const cJSON *v, bk_err *e)
{
    if (!cJSON_IsString(v)) return FAULT(st, t, e, "%s", "dtype is not a string");
    for (int i = 0; i < BK_ST_N_DTYPES; i++) {
        if (strcmp(v->valuestring, dtypes[i].name) == 0) {
            t->dtype = (bk_st_dtype)i;
            return BK_OK;
        }
    }
    return FAULT(st, t, e, "unknown dtype '%.40s'", v->valuestring);
}

/* The array's numbers, exact: the scan has made sure that they are integers in [0, 2^53]. */
static bk_status read_integers(int64_t *out, int *n, int most, const char *key, const bk_st *st,
                               const bk_st_tensor *t, const cJSON *v, bk_err *e)
{
    if (!cJSON_IsArray(v)) return FAULT(st, t, e, "%s is not an array", key);
    *n = 0;
    for (const cJSON *c = v->child; c; c = c->next) {
        if (!cJSON_IsNumber(c)) return FAULT(st, t, e, "%s holds something that is not a number", key);
        if (*n == most) return FAULT(st, t, e, "%s has more than %d entries", key, most);
        out[(*n)++] = (int64_t)c->valuedouble;
    }
    return BK_OK;
}

/* Bytes of the shape. The product skips dims of 0, so that an overflow is one whatever the order of dims. */
static bool shape_bytes(int64_t *out, const bk_st_tensor *t)
{
    int64_t product = dtypes[t->dtype].size;
    bool empty = false;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] == 0)
            empty = true;
        else if (!bk_mul64(&product, product, t->shape[i]))
            return false;
    }
    *out = empty ? 0 : product;
    return true;
}

static bk_status read_tensor(bk_st_tensor *t, const bk_st *st, const cJSON *entry, bk_err *e)
{
    enum { DTYPE, SHAPE, OFFSETS, N_KEYS };
    static const char *const keys[N_KEYS] = {"dtype", "shape", "data_offsets"};
    const cJSON *found[N_KEYS] = {NULL};
    *t = (bk_st_tensor){.name = entry->string};
    if (!cJSON_IsObject(entry)) return FAULT(st, t, e, "%s", "its entry is not an object");
    for (const cJSON *c = entry->child; c; c = c->next) {
        int k = 0;
        while (k < N_KEYS && strcmp(c->string, keys[k]) != 0) k++;
        if (k == N_KEYS) return FAULT(st, t, e, "unknown key '%.40s'", c->string);
        if (found[k]) return FAULT(st, t, e, "%s is given twice", keys[k]);
        found[k] = c;
    }
    for (int k = 0; k < N_KEYS; k++) {
        if (!found[k]) return FAULT(st, t, e, "%s is missing", keys[k]);
    }
    bk_status status = read_dtype(t, st, found[DTYPE], e);
    if (status != BK_OK) return status;
    status = read_integers(t->shape, &t->rank, BK_ST_MAX_RANK, keys[SHAPE], st, t, found[SHAPE], e);
    if (status != BK_OK) return status;
    int64_t at[2] = {0, 0};
    int n = 0;
    status = read_integers(at, &n, 2, keys[OFFSETS], st, t, found[OFFSETS], e);
    if (status != BK_OK) return status;

    int64_t bytes = 0;
    if (n != 2) return FAULT(st, t, e, "data_offsets has %d entries, expected 2", n);
    if (at[0] > at[1])
        return FAULT(st, t, e, "data_offsets begin at %" PRId64 " after their end %" PRId64, at[0], at[1]);
    if (at[1] > st->data_bytes)
        return FAULT(st, t, e, "data end at byte %" PRId64 " but the file holds %" PRId64 " bytes of data",
                     at[1], st->data_bytes);
    if (!shape_bytes(&bytes, t))
        return FAULT(st, t, e, "%s", "its shape has more bytes than 64 bits can count");
    if (bytes != at[1] - at[0])
        return FAULT(st, t, e, "its shape needs %" PRId64 " bytes, data_offsets give %" PRId64, bytes,
                     at[1] - at[0]);
    t->bytes = bytes;
    t->data = st->data + at[0];
    return BK_OK;
}

static int by_offset(const void *a, const void *b)
{
    const bk_st_tensor *x = a, *y = b;
    const unsigned char *xd = x->data, *yd = y->data;
    if (xd != yd) return xd < yd ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty tensors before the one that begins there */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const bk_st_tensor *)a)->name, ((const bk_st_tensor *)b)->name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const bk_st_pair *)a)->key, ((const bk_st_pair *)b)->key);
}

/* The tensors cover the data without overlap, hole or rest. Leaves them sorted by offset. */
static bk_status check_cover(bk_st *st, bk_err *e)
{
    int64_t end = 0;
    if (st->n_tensors > 1) qsort(st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, by_offset);
    for (int64_t i = 0; i < st->n_tensors; i++) {
        const bk_st_tensor *t = &st->tensors[i];
        const int64_t begin = (const unsigned char *)t->data - st->data;
        if (begin < end)
            return FAULT(st, t, e, "its data overlap those of tensor '%.200s'", st->tensors[i - 1].name);
        if (begin > end)
            return FAULT(st, t, e, "%" PRId64 " bytes in front of its data belong to no tensor", begin - end);
        end = begin + t->bytes;
    }
    if (end != st->data_bytes)
        return bk_err_set(e, BK_E_INPUT, "%s: the last %" PRId64 " bytes belong to no tensor", st->label,
                          st->data_bytes - end);
    return BK_OK;
}

static bk_status read_meta(bk_st *st, const cJSON *object, bk_err *e)
{
    if (st->meta) return bk_err_set(e, BK_E_INPUT, "%s: __metadata__ is given twice", st->label);
    if (!cJSON_IsObject(object))
        return bk_err_set(e, BK_E_INPUT, "%s: __metadata__ is not an object", st->label);
    int64_t n = 0;
    for (const cJSON *c = object->child; c; c = c->next) n++;
    st->meta = calloc((size_t)n + 1, sizeof *st->meta);
    if (!st->meta) return bk_err_set(e, BK_E_MEM, "%s: no memory for the metadata", st->label);
    for (const cJSON *c = object->child; c; c = c->next) {
        if (!cJSON_IsString(c))
            return bk_err_set(e, BK_E_INPUT, "%s: __metadata__: the value of '%.200s' is not a string",
                              st->label, c->string);
        st->meta[st->n_meta++] = (bk_st_pair){c->string, c->valuestring};
    }
    if (n > 1) qsort(st->meta, (size_t)n, sizeof *st->meta, by_key);
    for (int64_t i = 1; i < n; i++) {
        if (strcmp(st->meta[i - 1].key, st->meta[i].key) == 0)
            return bk_err_set(e, BK_E_INPUT, "%s: __metadata__: key '%.200s' is given twice", st->label,
                              st->meta[i].key);
    }
    return BK_OK;
}

static bk_status read_entries(bk_st *st, bk_err *e)
{
    int64_t n = 0;
    for (const cJSON *c = st->header->child; c; c = c->next) n++;
    st->tensors = calloc((size_t)n + 1, sizeof *st->tensors);
    if (!st->tensors) return bk_err_set(e, BK_E_MEM, "%s: no memory for %" PRId64 " tensors", st->label, n);
    for (const cJSON *c = st->header->child; c; c = c->next) {
        const bool is_meta = strcmp(c->string, "__metadata__") == 0;
        const bk_status status =
            is_meta ? read_meta(st, c, e) : read_tensor(&st->tensors[st->n_tensors++], st, c, e);
        if (status != BK_OK) return status;
    }
    if (st->n_tensors > 1) qsort(st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, by_name);
    for (int64_t i = 1; i < st->n_tensors; i++) {
        const bk_st_tensor *t = &st->tensors[i];
        if (strcmp(t[-1].name, t->name) == 0) return FAULT(st, t, e, "%s", "the name is given twice");
    }
    const bk_status status = check_cover(st, e);
    if (status == BK_OK && st->n_tensors > 1)
        qsort(st->tensors, (size_t)st->n_tensors, sizeof *st->tensors, by_name);
    return status;
}

static bk_status parse_json(bk_st *st, const char *text, int64_t n_bytes, bk_err *e)
{
    const bk_status status = bk_st_scan(text, n_bytes, st->label, e);
    if (status != BK_OK) return status;
    if (n_bytes == 0 || text[0] != '{') /* cJSON would skip white space and a byte order mark */
        return bk_err_set(e, BK_E_INPUT, "%s: the header is not a JSON object", st->label);
    const char *end = text;
    st->header = cJSON_ParseWithLengthOpts(text, (size_t)n_bytes, &end, 0);
    if (!st->header)
        return bk_err_set(e, BK_E_INPUT, "%s: the header is not JSON from byte %td on", st->label,
                          end - text);
    for (const char *p = end; p < text + n_bytes; p++) {
        if (*p != ' ')
            return bk_err_set(e, BK_E_INPUT, "%s: the header goes on after its JSON ends, at byte %td",
                              st->label, p - text);
    }
    return BK_OK;
}

static bk_status parse(bk_st *st, const unsigned char *bytes, int64_t n_bytes, bk_err *e)
{
    uint64_t n_header = 0;
    if (n_bytes < (int64_t)sizeof n_header)
        return bk_err_set(e, BK_E_INPUT, "%s: %" PRId64 " bytes are too short for a safetensors file",
                          st->label, n_bytes);
    memcpy(&n_header, bytes, sizeof n_header);
    const uint64_t left = (uint64_t)n_bytes - sizeof n_header;
    if (n_header > (uint64_t)BK_ST_MAX_HEADER)
        return bk_err_set(e, BK_E_INPUT,
                          "%s: a header of %" PRIu64 " bytes is above the limit of %" PRId64
                          "; this is not a safetensors file",
                          st->label, n_header, BK_ST_MAX_HEADER);
    if (n_header > left)
        return bk_err_set(e, BK_E_INPUT,
                          "%s: the header has %" PRIu64 " bytes, but only %" PRIu64
                          " follow; the file is cut short or no safetensors file",
                          st->label, n_header, left);
    bytes += sizeof n_header;
    st->data = bytes + n_header;
    st->data_bytes = (int64_t)(left - n_header);
    const bk_status status = parse_json(st, (const char *)bytes, (int64_t)n_header, e);
    return status == BK_OK ? read_entries(st, e) : status;
}

bk_status bk_st_from_memory(bk_st **out, const void *bytes, int64_t n_bytes, const char *label, bk_err *e)
{
    bk_st *r = calloc(1, sizeof *r);
    if (!r) return bk_err_set(e, BK_E_MEM, "%s: out of memory", label);
    r->label = label;
    const bk_status st = parse(r, bytes, n_bytes, e);
    r->label = NULL; /* the caller's; not needed past this point */
    if (st == BK_OK)
        *out = r;
    else
        bk_st_free(r);
    return st;
}

bk_status bk_st_open(bk_st **out, const char *path, bk_err *e)
{
    bk_status st = BK_OK;
    bk_st *r = NULL;
    void *map = MAP_FAILED;
    struct stat info = {0};
    /* O_NONBLOCK: opening a pipe by mistake must not wait for its writer. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        st = bk_err_set(e, BK_E_IO, "%s: cannot open: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = bk_err_set(e, BK_E_INPUT, "%s: not a regular file", path);
        goto done;
    }
    if (info.st_size < 8) {
        st = bk_err_set(e, BK_E_INPUT, "%s: %" PRId64 " bytes are too short for a safetensors file", path,
                        (int64_t)info.st_size);
        goto done;
    }
    map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        st = bk_err_set(e, BK_E_IO, "%s: cannot map: %s", path, strerror(errno));
        goto done;
    }
    BK_TRY(bk_st_from_memory(&r, map, info.st_size, path, e));
    r->map = map, r->map_bytes = (size_t)info.st_size;
    map = MAP_FAILED;
    *out = r;
done:
    if (map != MAP_FAILED) munmap(map, (size_t)info.st_size);
    if (fd >= 0) close(fd);
    return st;
}

void bk_st_free(bk_st *st)
{
    if (!st) return;
    cJSON_Delete(st->header);
    free(st->tensors);
    free(st->meta);
    bk_arena_free(&st->names);
    if (st->map) munmap(st->map, st->map_bytes);
    free(st);
}

int64_t bk_st_count(const bk_st *st)
{
    return st->n_tensors;
}

const bk_st_tensor *bk_st_at(const bk_st *st, int64_t idx)
{
    return &st->tensors[idx];
}

const bk_st_tensor *bk_st_find(const bk_st *st, const char *name)
{
    const bk_st_tensor key = {.name = name};
    return bsearch(&key, st->tensors, (size_t)st->n_tensors, sizeof key, by_name);
}

/* The two parts of t. */
static void cut_rows(bk_st_tensor part[2], const bk_st_tensor *t, int64_t rows)
{
    part[0] = part[1] = *t;
    part[0].shape[0] = rows, part[1].shape[0] = t->shape[0] - rows;
    part[0].bytes = t->shape[0] ? t->bytes / t->shape[0] * rows : 0;
    part[1].bytes = t->bytes - part[0].bytes;
    part[1].data = (const char *)t->data + part[0].bytes;
}

bk_status bk_st_split(bk_st *st, const char *name, int64_t rows, const char *first, const char *others,
                      bk_err *e)
{
    const char *const names[2] = {first, others};
    const bk_st_tensor *t = bk_st_find(st, name);
    bk_st_tensor part[2];
    if (!t || t->rank == 0 || rows < 0 || rows > t->shape[0])
        return bk_err_set(e, BK_E_INPUT, "tensor %.200s is not there, or has fewer than %" PRId64 " rows",
                          name, rows);
    const int64_t at = t - st->tensors;
    cut_rows(part, t, rows);
    for (int k = 0; k < 2; k++) {
        if (bk_st_find(st, names[k]) || strcmp(first, others) == 0)
            return bk_err_set(e, BK_E_INPUT,
                              "tensor %.200s is there beside %.200s, which holds it too; drop one", names[k],
                              name);
        part[k].name = bk_arena_strdup(&st->names, names[k]);
    }
    bk_st_tensor *grown = realloc(st->tensors, ((size_t)st->n_tensors + 1) * sizeof *grown);
    if (grown) st->tensors = grown;
    if (!grown || !part[0].name || !part[1].name)
        return bk_err_set(e, BK_E_MEM, "no memory for the parts of tensor %.200s", name);
    grown[at] = part[0], grown[st->n_tensors++] = part[1];
    qsort(grown, (size_t)st->n_tensors, sizeof *grown, by_name);
    return BK_OK;
}

int64_t bk_st_meta_count(const bk_st *st)
{
    return st->n_meta;
}

const bk_st_pair *bk_st_meta_at(const bk_st *st, int64_t idx)
{
    return &st->meta[idx];
}

const char *bk_st_meta(const bk_st *st, const char *key)
{
    const bk_st_pair wanted = {.key = key};
    const bk_st_pair *p =
        st->n_meta ? bsearch(&wanted, st->meta, (size_t)st->n_meta, sizeof wanted, by_key) : NULL;
    return p ? p->value : NULL;
}
