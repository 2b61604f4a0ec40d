/* Sequences of tokens, to be read in pieces: what a bk_gpt_dataset is built over. A view, like bk_source. */
#ifndef BK_DATA_SEQUENCES_H
#define BK_DATA_SEQUENCES_H

#include <stdint.h>

#include "base/err.h"

typedef struct {
    const void *ctx;
    const char *name; /* for messages: a path, or what the sequences are */
    int64_t n_sequences;
    /* Tokens in a sequence, 0 <= sequence < n_sequences. May be 0. */
    int64_t (*length)(const void *ctx, int64_t sequence);
    /* Tokens [offset, offset + n) of a sequence, inside its length; n may be 0. Every token written is in
     * [0, vocab_size); another one is BK_E_INPUT, with its place. */
    bk_status (*read)(int32_t *out, const void *ctx, int64_t sequence, int64_t offset, int64_t n,
                      int64_t vocab_size, bk_err *e);
} bk_sequences;

#endif
