/* Megatron's indexed data sets: two little-endian files with a common prefix.
 *
 *     prefix.bin   the tokens of all sequences, back to back
 *     prefix.idx   at 0         9 bytes  "MMIDIDX", two zeros
 *                     9         u64      version, 1
 *                     17        u8       code of the tokens' type (bk_indexed_dtype)
 *                     18        u64      S, sequences
 *                     26        u64      Q, entries of the document index: documents + 1
 *                     34        i32[S]   tokens in each sequence
 *                     34 + 4S   i64[S]   where each begins in prefix.bin, in bytes
 *                     34 + 12S  i64[Q]   sequences before each document; the last entry is S
 *
 * The 64-bit arrays are not aligned. The reader trusts nothing: when it returns BK_OK, the sequences lie in
 * the .bin one after the other, without hole, overlap or rest, and the documents cover the sequences. Files
 * with the modes of multimodal data behind these arrays are refused. */
#ifndef BK_DATA_INDEXED_H
#define BK_DATA_INDEXED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/sequences.h"

/* The codes of the file. 6 and 7 are floating-point numbers, which are no tokens. */
typedef enum {
    BK_INDEXED_U8 = 1,
    BK_INDEXED_I8 = 2,
    BK_INDEXED_I16 = 3,
    BK_INDEXED_I32 = 4,
    BK_INDEXED_I64 = 5,
    BK_INDEXED_U16 = 8
} bk_indexed_dtype;

typedef struct bk_indexed bk_indexed;

/* Whether prefix.idx exists: how a path of an indexed data set is told from one of text. */
bool bk_indexed_exists(const char *prefix);

/* Maps both files and checks the index, in time proportional to it; the tokens are checked as they are read.
 * The files must not shrink while `*out` lives. Errors: BK_E_IO a file cannot be read; BK_E_INPUT the .idx is
 * no index, or not that of the .bin: file, what was found, what was expected; BK_E_MEM. */
bk_status bk_indexed_open(bk_indexed **out, const char *prefix, bk_err *e);

/* The same for bytes in memory, of any alignment, which are borrowed until bk_indexed_free. `prefix` stands
 * in messages. */
bk_status bk_indexed_from_memory(bk_indexed **out, const void *idx, int64_t idx_bytes, const void *bin,
                                 int64_t bin_bytes, const char *prefix, bk_err *e);

void bk_indexed_free(bk_indexed *x); /* NULL is fine */

bk_indexed_dtype bk_indexed_get_dtype(const bk_indexed *x);
int64_t bk_indexed_n_tokens(const bk_indexed *x);
int64_t bk_indexed_n_sequences(const bk_indexed *x);
int64_t bk_indexed_n_documents(const bk_indexed *x);
int64_t bk_indexed_length(const bk_indexed *x, int64_t sequence);
/* The first sequence of a document, 0 <= document <= n_documents: the last gives n_sequences. */
int64_t bk_indexed_document(const bk_indexed *x, int64_t document);

/* Tokens [offset, offset + n) of a sequence as int32. Errors: BK_E_INPUT the tokens asked for are not in the
 * sequence, or one is not in [0, vocab_size): file, sequence, position, token. */
bk_status bk_indexed_read(int32_t *out, const bk_indexed *x, int64_t sequence, int64_t offset, int64_t n,
                          int64_t vocab_size, bk_err *e);

bk_sequences bk_indexed_sequences(const bk_indexed *x);

/* What a .bin and its .idx are to hold. */
typedef struct {
    bk_indexed_dtype dtype;
    const int32_t *tokens;  /* of all sequences, back to back */
    const int64_t *lengths; /* [n_sequences]; each fits int32 */
    int64_t n_sequences;
    const int64_t *documents; /* [n_documents + 1], 0 first, n_sequences last; NULL: each sequence is one */
    int64_t n_documents;      /* not read if documents is NULL */
} bk_indexed_content;

/* Writes prefix.bin, then prefix.idx; a pair that was there is replaced. On failure neither file remains.
 * Errors: BK_E_INPUT bad arguments, a token that does not fit the dtype; BK_E_IO. */
bk_status bk_indexed_write(const char *prefix, const bk_indexed_content *content, bk_err *e);

/* Bytes of a token; 0 for what is no code of an integer. */
int bk_indexed_dtype_size(int code);

#endif
