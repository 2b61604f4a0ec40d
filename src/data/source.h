/* Where a run's samples come from: text, Megatron's data sets, mock data, a Markov chain. The loop sees this
 * alone. A source is a view: whatever made it owns what it reads. */
#ifndef BK_DATA_SOURCE_H
#define BK_DATA_SOURCE_H

#include <stdint.h>

#include "base/err.h"

typedef struct {
    const void *ctx; /* NULL: there is no such source */
    /* Samples [0, n_samples) can be asked for; INT64_MAX: any number, the data then repeat. */
    int64_t n_samples;
    /* The sample with this number: a pure function, to be called from several threads at once.
     *   tokens, labels  [seq_length]  labels[t] is the token after tokens[t]
     *   mask            [seq_length]  1 where the label counts, else 0
     * Any of the three may be NULL. Errors: BK_E_INPUT a token is outside the vocabulary, or the number is
     * not below n_samples. */
    bk_status (*get)(int32_t *tokens, int32_t *labels, float *mask, const void *ctx, int64_t sample_number,
                     bk_err *e);
} bk_source;

static inline bk_status bk_source_get(int32_t *tokens, int32_t *labels, float *mask, const bk_source *s,
                                      int64_t sample_number, bk_err *e)
{
    return s->get(tokens, labels, mask, s->ctx, sample_number, e);
}

#endif
