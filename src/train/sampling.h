/* From logits to the next token. */
#ifndef BK_TRAIN_SAMPLING_H
#define BK_TRAIN_SAMPLING_H

#include <stdint.h>

#include "base/err.h"

typedef struct {
    double temperature; /* logits are divided by it; 0: always the most likely token */
    int64_t top_k;      /* only the k most likely tokens; 0: all */
    double top_p;       /* of these only the fewest that together have at least this share of the probability
                           (Holtzman et al., "The curious case of neural text degeneration", 2019); 1: all */
    uint64_t seed;
} bk_sampling;

/* BK_E_INPUT, with what is allowed, unless temperature >= 0, top_k >= 0 and 0 < top_p <= 1. */
bk_status bk_sampling_check(const bk_sampling *s, bk_err *e);

/* A token with its logit; scratch of a draw. */
typedef struct {
    double logit; /* later its probability, up to a common factor */
    int32_t token;
} bk_candidate;

/* Draws the token at `position` of a sequence from logits[n], n > 0; `scratch` has n entries. The draw is
 * keyed by seed and position alone; of equal logits the lower token counts as the more likely. BK_E_CHECK
 * where a logit is NaN or infinite. */
bk_status bk_sampling_draw(int32_t *out, const double *logits, int64_t n, const bk_sampling *s,
                           int64_t position, bk_candidate *scratch, bk_err *e);

#endif
