/* A Markov chain of order 1 or 2 with a known entropy: data of which it is known how well they can be
 * predicted, and how well without looking further back.
 *
 *     p(c | context) = exp(sharpness * u) / sum,   u uniform in (0, 1), drawn from Philox per (context, c)
 *
 * Rows of different contexts are independent. So the order-2 chain's rows, averaged over the token before
 * last, are nearly flat, while each is not: at 16 symbols and BK_MARKOV_SHARPNESS, predicting from the last
 * token alone costs about 0.9 nats more than predicting from two. Every probability is positive, hence the
 * chain has one stationary distribution.
 *
 * A token depends on those before it, so as many as are wanted are drawn into memory, and a bk_sampler makes
 * samples of them. */
#ifndef BK_DATA_MARKOV_H
#define BK_DATA_MARKOV_H

#include <stdint.h>

#include "base/err.h"

#define BK_MARKOV_SHARPNESS 8.0

typedef struct {
    int order;         /* 1 or 2 */
    int64_t n_symbols; /* V >= 2; V^(order + 1) at most 2^24 */
    uint64_t seed;     /* of tables and tokens */
    double sharpness;  /* in [0, 64]; 0: all tokens equally likely */
} bk_markov_options;

typedef struct {
    bk_markov_options options;
    int64_t n_contexts; /* V^order */
    /* A context is the last tokens as digits in base V, the latest in the lowest. */
    double *p;            /* [n_contexts, V] */
    double *stationary;   /* [n_contexts] */
    double entropy;       /* nats per token, of the chain: no predictor has a lower expected loss */
    double lower_entropy; /* of the best predictor that sees order - 1 tokens */
} bk_markov;

/* `*out` is written on success only and is the caller's: bk_markov_free. Errors: BK_E_INPUT options out of
 * range; BK_E_CHECK the stationary distribution is not reached in 10,000 steps; BK_E_MEM. */
bk_status bk_markov_make(bk_markov *out, const bk_markov_options *options, bk_err *e);

void bk_markov_free(bk_markov *m); /* of zeros: fine */

/* The first n tokens, drawn from the stationary chain. Token t comes from Philox at counter t and the tokens
 * before it, so a shorter run is the beginning of a longer one. */
void bk_markov_draw(uint16_t *tokens, const bk_markov *m, int64_t n);

#endif
