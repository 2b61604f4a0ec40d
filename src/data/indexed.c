/* The reader of indexed data sets. Everything about the index is checked once, before bk_indexed_open
 * returns; reads check the tokens. The writer is indexed_write.c. */
#include "data/indexed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "base/str.h"
#include "data/indexed_format.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error                                                                                                       \
    "indexed data are little-endian and used as they lie in the file: big-endian machines are not supported"
#endif

typedef struct {
    const unsigned char *bytes;
    int64_t n;
    void *map; /* NULL for bytes in memory and for an empty file */
} file_view;

struct bk_indexed {
    char *prefix;
    file_view idx, bin;
    bk_indexed_dtype dtype;
    int64_t n_sequences, n_documents, n_tokens;
    const unsigned char *lengths, *pointers, *documents; /* in the .idx, not aligned */
};

int bk_indexed_dtype_size(int code)
{
    switch (code) {
    case BK_INDEXED_U8:
    case BK_INDEXED_I8:
        return 1;
    case BK_INDEXED_I16:
    case BK_INDEXED_U16:
        return 2;
    case BK_INDEXED_I32:
        return 4;
    case BK_INDEXED_I64:
        return 8;
    default:
        return 0;
    }
}

static int64_t i32_at(const unsigned char *array, int64_t i)
{
    int32_t v;
    memcpy(&v, array + i * (int64_t)sizeof v, sizeof v);
    return v;
}

static int64_t i64_at(const unsigned char *array, int64_t i)
{
    int64_t v;
    memcpy(&v, array + i * (int64_t)sizeof v, sizeof v);
    return v;
}

/* Sets BK_E_INPUT with the name of the .idx in front. */
#define FAULT(x, e, ...)                                                                                     \
    (bk_err_set(e, BK_E_INPUT, __VA_ARGS__), bk_err_prefix(e, "%s.idx: ", (x)->prefix), BK_E_INPUT)

/* Header and sizes; sets where the arrays are. */
static bk_status read_header(bk_indexed *x, bk_err *e)
{
    const file_view *idx = &x->idx;
    uint64_t version, n_sequences, n_entries;
    if (idx->n < BK_INDEXED_HEADER)
        return FAULT(x, e, "%" PRId64 " bytes are too few, the header alone has %d", idx->n,
                     BK_INDEXED_HEADER);
    if (memcmp(idx->bytes, BK_INDEXED_MAGIC, BK_INDEXED_MAGIC_BYTES) != 0)
        return FAULT(x, e, "it does not begin with MMIDIDX: this is no index of a Megatron data set");
    memcpy(&version, idx->bytes + BK_INDEXED_AT_VERSION, sizeof version);
    if (version != 1) return FAULT(x, e, "version %" PRIu64 ", expected 1", version);
    const int code = idx->bytes[BK_INDEXED_AT_DTYPE], size = bk_indexed_dtype_size(code);
    if (code == 6 || code == 7)
        return FAULT(x, e, "code %d: the .bin holds floating-point numbers, expected integers", code);
    if (size == 0) return FAULT(x, e, "unknown code %d of the tokens' type, expected 1 to 5 or 8", code);
    x->dtype = (bk_indexed_dtype)code;

    memcpy(&n_sequences, idx->bytes + BK_INDEXED_AT_SEQUENCES, sizeof n_sequences);
    memcpy(&n_entries, idx->bytes + BK_INDEXED_AT_ENTRIES, sizeof n_entries);
    /* A number above the file's size is wrong, and the products below cannot overflow once it is not. */
    const uint64_t room = (uint64_t)(idx->n - BK_INDEXED_HEADER);
    if (n_sequences > room / 12 || n_entries > room / 8 || 12 * n_sequences + 8 * n_entries > room)
        return FAULT(x, e,
                     "%" PRIu64 " sequences and %" PRIu64 " document entries do not fit its %" PRId64
                     " bytes; the file is cut short or damaged",
                     n_sequences, n_entries, idx->n);
    const uint64_t rest = room - 12 * n_sequences - 8 * n_entries;
    if (rest != 0 && rest == n_sequences)
        return FAULT(x, e, "it holds the modes of multimodal data; only text can be trained on");
    if (rest != 0)
        return FAULT(x, e,
                     "%" PRIu64 " bytes follow what %" PRIu64 " sequences and %" PRIu64
                     " document entries need, expected none",
                     rest, n_sequences, n_entries);
    if (n_entries == 0) return FAULT(x, e, "no document entry, expected at least the first, 0");
    x->n_sequences = (int64_t)n_sequences;
    x->n_documents = (int64_t)n_entries - 1;
    x->lengths = idx->bytes + BK_INDEXED_HEADER;
    x->pointers = x->lengths + 4 * x->n_sequences;
    x->documents = x->pointers + 8 * x->n_sequences;
    return BK_OK;
}

/* The sequences cover the .bin, in order. */
static bk_status check_sequences(bk_indexed *x, bk_err *e)
{
    const int64_t size = bk_indexed_dtype_size((int)x->dtype);
    int64_t at = 0; /* byte of the .bin */
    for (int64_t i = 0; i < x->n_sequences; i++) {
        const int64_t length = i32_at(x->lengths, i), pointer = i64_at(x->pointers, i);
        if (length < 0)
            return FAULT(x, e, "sequence %" PRId64 " has %" PRId64 " tokens, expected 0 or more", i, length);
        if (pointer != at)
            return FAULT(x, e,
                         "sequence %" PRId64 " begins at byte %" PRId64 " of the .bin, expected %" PRId64
                         ", where the one before ends",
                         i, pointer, at);
        /* length * size is below 2^34, and at is at most the file's size. */
        if (length * size > x->bin.n - at)
            return FAULT(x, e,
                         "sequence %" PRId64 " of %" PRId64 " tokens of %" PRId64
                         " bytes begins at byte %" PRId64 ", but %s.bin has %" PRId64
                         " bytes; they do not belong together, or the .bin is cut short",
                         i, length, size, pointer, x->prefix, x->bin.n);
        at += length * size;
    }
    if (at != x->bin.n)
        return FAULT(x, e,
                     "its sequences end at byte %" PRId64 ", but %s.bin has %" PRId64
                     " bytes; they do not belong together",
                     at, x->prefix, x->bin.n);
    x->n_tokens = at / size;
    return BK_OK;
}

static bk_status check_documents(const bk_indexed *x, bk_err *e)
{
    int64_t before = 0;
    if (i64_at(x->documents, 0) != 0)
        return FAULT(x, e, "the first document begins at sequence %" PRId64 ", expected 0",
                     i64_at(x->documents, 0));
    for (int64_t i = 1; i <= x->n_documents; i++) {
        const int64_t end = i64_at(x->documents, i);
        if (end < before || end > x->n_sequences)
            return FAULT(x, e,
                         "document %" PRId64 " ends before sequence %" PRId64 ", expected %" PRId64
                         " to %" PRId64,
                         i - 1, end, before, x->n_sequences);
        before = end;
    }
    if (before != x->n_sequences)
        return FAULT(x, e, "its %" PRId64 " documents hold %" PRId64 " sequences, expected all %" PRId64,
                     x->n_documents, before, x->n_sequences);
    return BK_OK;
}

/* Takes over the views, on failure as well. */
static bk_status make(bk_indexed **out, file_view idx, file_view bin, const char *prefix, bk_err *e)
{
    bk_status st = BK_OK;
    bk_indexed *x = calloc(1, sizeof *x);
    if (!x) {
        if (idx.map) munmap(idx.map, (size_t)idx.n);
        if (bin.map) munmap(bin.map, (size_t)bin.n);
        return bk_err_set(e, BK_E_MEM, "%s.idx: out of memory", prefix);
    }
    x->idx = idx, x->bin = bin;
    x->prefix = strdup(prefix);
    if (!x->prefix) {
        st = bk_err_set(e, BK_E_MEM, "%s.idx: out of memory", prefix);
        goto done;
    }
    BK_TRY(read_header(x, e));
    BK_TRY(check_sequences(x, e));
    BK_TRY(check_documents(x, e));
    *out = x, x = NULL;
done:
    bk_indexed_free(x);
    return st;
}

bk_status bk_indexed_from_memory(bk_indexed **out, const void *idx, int64_t idx_bytes, const void *bin,
                                 int64_t bin_bytes, const char *prefix, bk_err *e)
{
    return make(out, (file_view){.bytes = idx, .n = idx_bytes}, (file_view){.bytes = bin, .n = bin_bytes},
                prefix, e);
}

static bk_status map_file(file_view *out, const char *prefix, const char *suffix, bk_err *e)
{
    bk_status st = BK_OK;
    struct stat info = {0};
    void *map = NULL;
    bk_str path = {0};
    int fd = -1;
    bk_str_appendf(&path, "%s%s", prefix, suffix);
    if (path.failed) {
        st = bk_err_set(e, BK_E_MEM, "%s%s: out of memory", prefix, suffix);
        goto done;
    }
    /* O_NONBLOCK: opening a pipe by mistake must not wait for its writer. */
    fd = open(path.s, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        st = bk_err_set(e, BK_E_IO, "%s: cannot open: %s", path.s, strerror(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = bk_err_set(e, BK_E_INPUT, "%s: not a regular file", path.s);
        goto done;
    }
    if (info.st_size > 0) map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        st = bk_err_set(e, BK_E_IO, "%s: cannot map: %s", path.s, strerror(errno));
        goto done;
    }
    *out = (file_view){.bytes = map, .n = info.st_size, .map = map};
done:
    if (fd >= 0) close(fd);
    bk_str_free(&path);
    return st;
}

bk_status bk_indexed_open(bk_indexed **out, const char *prefix, bk_err *e)
{
    file_view idx = {0}, bin = {0};
    bk_status st = map_file(&idx, prefix, ".idx", e);
    if (st != BK_OK) return st;
    st = map_file(&bin, prefix, ".bin", e);
    if (st == BK_OK) return make(out, idx, bin, prefix, e);
    if (idx.map) munmap(idx.map, (size_t)idx.n);
    return st;
}

bool bk_indexed_exists(const char *prefix)
{
    bk_str path = {0};
    bk_str_appendf(&path, "%s.idx", prefix);
    const bool exists = !path.failed && access(path.s, F_OK) == 0;
    bk_str_free(&path);
    return exists;
}

void bk_indexed_free(bk_indexed *x)
{
    if (!x) return;
    if (x->idx.map) munmap(x->idx.map, (size_t)x->idx.n);
    if (x->bin.map) munmap(x->bin.map, (size_t)x->bin.n);
    free(x->prefix);
    free(x);
}

bk_indexed_dtype bk_indexed_get_dtype(const bk_indexed *x)
{
    return x->dtype;
}

int64_t bk_indexed_n_tokens(const bk_indexed *x)
{
    return x->n_tokens;
}

int64_t bk_indexed_n_sequences(const bk_indexed *x)
{
    return x->n_sequences;
}

int64_t bk_indexed_n_documents(const bk_indexed *x)
{
    return x->n_documents;
}

int64_t bk_indexed_length(const bk_indexed *x, int64_t sequence)
{
    return i32_at(x->lengths, sequence);
}

int64_t bk_indexed_document(const bk_indexed *x, int64_t document)
{
    return i64_at(x->documents, document);
}

static int64_t token_at(const unsigned char *bytes, bk_indexed_dtype dtype, int64_t i)
{
    switch (dtype) {
    case BK_INDEXED_U8:
        return bytes[i];
    case BK_INDEXED_I8:
        return (int8_t)bytes[i];
    case BK_INDEXED_I16: {
        int16_t v;
        memcpy(&v, bytes + 2 * i, sizeof v);
        return v;
    }
    case BK_INDEXED_U16: {
        uint16_t v;
        memcpy(&v, bytes + 2 * i, sizeof v);
        return v;
    }
    case BK_INDEXED_I32:
        return i32_at(bytes, i);
    case BK_INDEXED_I64:
        return i64_at(bytes, i);
    }
    return -1;
}

bk_status bk_indexed_read(int32_t *out, const bk_indexed *x, int64_t sequence, int64_t offset, int64_t n,
                          int64_t vocab_size, bk_err *e)
{
    if (sequence < 0 || sequence >= x->n_sequences)
        return bk_err_set(e, BK_E_INPUT, "%s.bin: sequence %" PRId64 " of %" PRId64 " is asked for",
                          x->prefix, sequence, x->n_sequences);
    const int64_t length = bk_indexed_length(x, sequence);
    if (offset < 0 || n < 0 || offset > length || n > length - offset)
        return bk_err_set(e, BK_E_INPUT,
                          "%s.bin: %" PRId64 " tokens from position %" PRId64 " of sequence %" PRId64
                          " are asked for, which has %" PRId64,
                          x->prefix, n, offset, sequence, length);
    if (n == 0) return BK_OK;
    const int64_t limit = vocab_size < INT64_C(1) << 31 ? vocab_size : INT64_C(1) << 31;
    const unsigned char *bytes =
        x->bin.bytes + i64_at(x->pointers, sequence) + offset * bk_indexed_dtype_size((int)x->dtype);
    for (int64_t i = 0; i < n; i++) {
        const int64_t token = token_at(bytes, x->dtype, i);
        if (token < 0 || token >= limit)
            return bk_err_set(e, BK_E_INPUT,
                              "%s.bin: sequence %" PRId64 ", position %" PRId64 ": token %" PRId64
                              " is not in the vocabulary of %" PRId64
                              "; was another tokenizer used, or is vocab_size too small?",
                              x->prefix, sequence, offset + i, token, limit);
        out[i] = (int32_t)token;
    }
    return BK_OK;
}

static int64_t view_length(const void *ctx, int64_t sequence)
{
    return bk_indexed_length(ctx, sequence);
}

static bk_status view_read(int32_t *out, const void *ctx, int64_t sequence, int64_t offset, int64_t n,
                           int64_t vocab_size, bk_err *e)
{
    return bk_indexed_read(out, ctx, sequence, offset, n, vocab_size, e);
}

bk_sequences bk_indexed_sequences(const bk_indexed *x)
{
    return (bk_sequences){
        .ctx = x, .name = x->prefix, .n_sequences = x->n_sequences, .length = view_length, .read = view_read};
}
