/* The writer of indexed data sets. The .idx comes last, so what a crash leaves is no data set. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "base/str.h"
#include "data/indexed.h"
#include "data/indexed_format.h"

static bool fits(bk_indexed_dtype dtype, int32_t token)
{
    switch (dtype) {
    case BK_INDEXED_U8:
        return token >= 0 && token <= UINT8_MAX;
    case BK_INDEXED_I8:
        return token >= INT8_MIN && token <= INT8_MAX;
    case BK_INDEXED_I16:
        return token >= INT16_MIN && token <= INT16_MAX;
    case BK_INDEXED_U16:
        return token >= 0 && token <= UINT16_MAX;
    case BK_INDEXED_I32:
    case BK_INDEXED_I64:
        return true;
    }
    return false;
}

/* Lengths and documents are those of an index, and every token fits. */
static bk_status check_content(const bk_indexed_content *c, bk_err *e)
{
    const int64_t *documents = c->documents;
    int64_t n_tokens = 0;
    if (bk_indexed_dtype_size((int)c->dtype) == 0 || c->n_sequences < 0 || (documents && c->n_documents < 0))
        return bk_err_set(e, BK_E_INPUT,
                          "code %d, %" PRId64 " sequences, %" PRId64 " documents cannot be written",
                          (int)c->dtype, c->n_sequences, c->n_documents);
    for (int64_t i = 0; i < c->n_sequences; i++) {
        if (c->lengths[i] < 0 || c->lengths[i] > INT32_MAX)
            return bk_err_set(e, BK_E_INPUT,
                              "sequence %" PRId64 " has %" PRId64 " tokens, expected 0 to 2^31 - 1", i,
                              c->lengths[i]);
        for (int64_t t = 0; t < c->lengths[i]; t++) {
            const int32_t token = c->tokens[n_tokens + t];
            if (!fits(c->dtype, token))
                return bk_err_set(e, BK_E_INPUT,
                                  "sequence %" PRId64 ", position %" PRId64 ": token %" PRId32
                                  " does not fit a dtype of code %d",
                                  i, t, token, (int)c->dtype);
        }
        n_tokens += c->lengths[i];
    }
    for (int64_t i = 0; documents && i <= c->n_documents; i++) {
        const bool first = i == 0, last = i == c->n_documents;
        if ((first && documents[i] != 0) || (last && documents[i] != c->n_sequences) ||
            (!first && documents[i] < documents[i - 1]))
            return bk_err_set(e, BK_E_INPUT,
                              "document entry %" PRId64 " is %" PRId64
                              ", expected a rise from 0 to the %" PRId64 " sequences",
                              i, documents[i], c->n_sequences);
    }
    return BK_OK;
}

static bool put(FILE *f, const void *bytes, size_t n)
{
    return fwrite(bytes, 1, n, f) == n;
}

static bool put_i64(FILE *f, int64_t v)
{
    return put(f, &v, sizeof v);
}

/* The machine is little-endian (indexed.c makes sure), so the low bytes of a token come first. */
static bool put_bin(FILE *f, const bk_indexed_content *c)
{
    const size_t size = (size_t)bk_indexed_dtype_size((int)c->dtype);
    const int32_t *token = c->tokens;
    bool ok = true;
    for (int64_t i = 0; ok && i < c->n_sequences; i++) {
        for (int64_t t = 0; ok && t < c->lengths[i]; t++) {
            const int64_t wide = *token++;
            ok = put(f, &wide, size);
        }
    }
    return ok;
}

static bool put_idx(FILE *f, const bk_indexed_content *c)
{
    const int64_t n_documents = c->documents ? c->n_documents : c->n_sequences;
    const unsigned char code = (unsigned char)c->dtype;
    bool ok = put(f, BK_INDEXED_MAGIC, BK_INDEXED_MAGIC_BYTES) && put_i64(f, 1) && put(f, &code, 1) &&
              put_i64(f, c->n_sequences) && put_i64(f, n_documents + 1);
    for (int64_t i = 0; ok && i < c->n_sequences; i++) {
        const int32_t length = (int32_t)c->lengths[i];
        ok = put(f, &length, sizeof length);
    }
    int64_t at = 0;
    for (int64_t i = 0; ok && i < c->n_sequences; i++) {
        ok = put_i64(f, at);
        at += c->lengths[i] * bk_indexed_dtype_size((int)c->dtype);
    }
    for (int64_t i = 0; ok && i <= n_documents; i++) ok = put_i64(f, c->documents ? c->documents[i] : i);
    return ok;
}

static bk_status write_file(const char *path, bool (*contents)(FILE *, const bk_indexed_content *),
                            const bk_indexed_content *c, bk_err *e)
{
    FILE *f = fopen(path, "wbe");
    if (!f) return bk_err_set(e, BK_E_IO, "%s: cannot create: %s", path, strerror(errno));
    bool ok = contents(f, c) && fflush(f) == 0 && fsync(fileno(f)) == 0;
    int reason = errno;
    if (fclose(f) != 0 && ok) ok = false, reason = errno;
    if (ok) return BK_OK;
    return bk_err_set(e, BK_E_IO, "%s: cannot write: %s", path, strerror(reason));
}

bk_status bk_indexed_write(const char *prefix, const bk_indexed_content *content, bk_err *e)
{
    bk_str idx = {0}, bin = {0};
    bk_status st = check_content(content, e);
    if (st != BK_OK) return bk_err_prefix(e, "%s: ", prefix), st;
    bk_str_appendf(&idx, "%s.idx", prefix);
    bk_str_appendf(&bin, "%s.bin", prefix);
    if (idx.failed || bin.failed) {
        st = bk_err_set(e, BK_E_MEM, "%s: out of memory", prefix);
        goto done;
    }
    if (unlink(idx.s) != 0 && errno != ENOENT) {
        st = bk_err_set(e, BK_E_IO, "%s: cannot replace: %s", idx.s, strerror(errno));
        goto done;
    }
    st = write_file(bin.s, put_bin, content, e);
    if (st == BK_OK) st = write_file(idx.s, put_idx, content, e);
    if (st != BK_OK) unlink(bin.s), unlink(idx.s);
done:
    bk_str_free(&idx);
    bk_str_free(&bin);
    return st;
}
