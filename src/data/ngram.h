/* What a unigram and a bigram model make of the data: the losses that a trained model is compared with.
 *
 *     p(b)     = (n(b) + a) / (N + a V)             n(b)     labels b among the N of training
 *     p(b | a) = (n(a, b) + a) / (n(a) + a V)       n(a, b)  labels b after the token a,   a = BK_NGRAM_ADD
 *
 * Losses are means over held-out labels, in nats per token. */
#ifndef BK_DATA_NGRAM_H
#define BK_DATA_NGRAM_H

#include <stdint.h>

#include "base/err.h"
#include "data/sampler.h"
#include "data/source.h"

#define BK_NGRAM_ADD 0.1

typedef struct {
    double unigram, bigram;      /* nats per token */
    int64_t n_train, n_held_out; /* labels */
} bk_ngram_report;

/* Labels are the tokens but the first of each range. Errors: BK_E_INPUT a range has less than two tokens or
 * is not in the array, a token is outside [0, vocab_size); BK_E_MEM. */
bk_status bk_ngram_loss(bk_ngram_report *out, bk_tokens tokens, bk_token_range train, bk_token_range held_out,
                        int64_t vocab_size, bk_err *e);

/* The same for samples [0, n) of two sources; labels whose mask is 0 do not count. Errors: also those of the
 * sources. */
bk_status bk_ngram_source_loss(bk_ngram_report *out, const bk_source *train, int64_t n_train_samples,
                               const bk_source *held_out, int64_t n_held_out_samples, int64_t seq_length,
                               int64_t vocab_size, bk_err *e);

#endif
