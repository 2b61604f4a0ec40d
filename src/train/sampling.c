#include "train/sampling.h"

#include <math.h>
#include <stdlib.h>

#include "base/philox.h"

bk_status bk_sampling_check(const bk_sampling *s, bk_err *e)
{
    if (!(s->temperature >= 0) || isinf(s->temperature))
        return bk_err_set(e, BK_E_INPUT, "temperature %g: give a number from 0 on (0: the most likely token)",
                          s->temperature);
    if (s->top_k < 0)
        return bk_err_set(e, BK_E_INPUT, "top-k %lld: give a number of tokens (0: all)", (long long)s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return bk_err_set(e, BK_E_INPUT, "top-p %g: give a share above 0 and up to 1 (1: all)", s->top_p);
    return BK_OK;
}

static int more_likely(const void *x, const void *y)
{
    const bk_candidate *a = x, *b = y;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

static int32_t most_likely(const double *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++)
        if (logits[k] > logits[best]) best = k;
    return (int32_t)best;
}

static double uniform(uint64_t seed, int64_t position)
{
    uint32_t word[4];
    const bk_rng_key key = bk_rng_key_make(seed, BK_RNG_SAMPLE, 0, 0);
    bk_rng_block(word, key, (uint64_t)position >> 32, (uint32_t)position, 0);
    return bk_rng_unit(word[0]);
}

/* How many of the first n candidates make up the share `top_p`; *sum gets their sum. */
static int64_t nucleus(double *sum, const bk_candidate *c, int64_t n, double top_p)
{
    double total = 0;
    for (int64_t k = 0; k < n; k++) total += c[k].logit;
    *sum = total;
    if (top_p >= 1) return n;
    *sum = 0;
    int64_t kept = 0;
    while (kept < n && (kept == 0 || *sum < top_p * total)) *sum += c[kept++].logit;
    return kept;
}

bk_status bk_sampling_draw(int32_t *out, const double *logits, int64_t n, const bk_sampling *s,
                           int64_t position, bk_candidate *scratch, bk_err *e)
{
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(logits[k]))
            return bk_err_set(e, BK_E_CHECK,
                              "the logit of token %lld at position %lld is %g; the parameters are damaged or "
                              "were never trained to a finite loss",
                              (long long)k, (long long)position, logits[k]);
    if (s->temperature == 0) return *out = most_likely(logits, n), BK_OK;
    for (int64_t k = 0; k < n; k++) scratch[k] = (bk_candidate){logits[k], (int32_t)k};
    qsort(scratch, (size_t)n, sizeof *scratch, more_likely);
    int64_t kept = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    const double max = scratch[0].logit;
    for (int64_t k = 0; k < kept; k++) scratch[k].logit = exp((scratch[k].logit - max) / s->temperature);
    double sum, so_far = 0;
    kept = nucleus(&sum, scratch, kept, s->top_p);
    const double at = uniform(s->seed, position) * sum;
    int64_t k = 0;
    while (k < kept - 1 && (so_far += scratch[k].logit) <= at) k++;
    *out = scratch[k].token;
    return BK_OK;
}
