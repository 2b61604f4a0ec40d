#include "ops/elementwise/elementwise_cpu.h"

#include <string.h>
#include "base/column_sum.h"
#include "base/philox_row.h"

#define CHUNK 4096 /* elements that a thread takes at a time */

/* A loop over n elements in chunks; `statement` is about element i. */
#define FOR_ELEMENTS(statement)                                                                              \
    _Pragma("omp parallel for schedule(static) if (n > 4 * CHUNK)") for (int64_t i0 = 0; i0 < n;             \
                                                                         i0 += CHUNK)                        \
    {                                                                                                        \
        const int64_t end = i0 + CHUNK < n ? i0 + CHUNK : n;                                                 \
        for (int64_t i = i0; i < end; i++) statement;                                                        \
    }

void BK_R(bk_fill)(real *out, int64_t n, double value)
{
    const real v = (real)value;
    FOR_ELEMENTS(out[i] = v)
}

void BK_R(bk_copy)(real *out, const real *x, int64_t n)
{
    FOR_ELEMENTS(out[i] = x[i])
}

void BK_R(bk_add_n)(real *out, const real *const *x, int64_t k, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > 4 * CHUNK)
    for (int64_t i0 = 0; i0 < n; i0 += CHUNK) {
        /* Through a buffer, because `out` may be one of the later inputs. */
        real acc[CHUNK];
        const int64_t len = i0 + CHUNK < n ? CHUNK : n - i0;
        memcpy(acc, x[0] + i0, (size_t)len * sizeof *acc);
        for (int64_t j = 1; j < k; j++)
            for (int64_t i = 0; i < len; i++) acc[i] += x[j][i0 + i];
        memcpy(out + i0, acc, (size_t)len * sizeof *acc);
    }
}

void BK_R(bk_acc)(real *out, const real *x, int64_t n, int beta)
{
    if (!beta)
        BK_R(bk_copy)(out, x, n);
    else
        FOR_ELEMENTS(out[i] += x[i])
}

void BK_R(bk_acc_max)(real *out, const real *x, int64_t n, int beta)
{
    if (!beta)
        BK_R(bk_copy)(out, x, n);
    else
        FOR_ELEMENTS(out[i] = x[i] <= out[i] || out[i] != out[i] ? out[i] : x[i])
}

void BK_R(bk_scale)(real *y, const real *x, int64_t n, double factor, int beta)
{
    const real k = (real)factor;
    if (beta)
        FOR_ELEMENTS(y[i] += x[i] * k)
    else
        FOR_ELEMENTS(y[i] = x[i] * k)
}

typedef struct {
    bk_rng_key key;
    const int64_t *samples;
    int64_t n_positions, n_samples, width;
    uint32_t threshold; /* 0: keep all */
    real scale;
} mask;

static mask mask_of(bk_rng_key key, const int64_t *samples, int64_t n_positions, int64_t n_samples,
                    int64_t width, double p)
{
    return (mask){key, samples, n_positions, n_samples, width, bk_dropout_threshold(p), (real)(1 / (1 - p))};
}

/* factor[i] = 0 or 1/(1 - p) of elements c0 .. c0 + BK_RNG_ROW - 1 of token t. */
static void mask_factors(real factor[BK_RNG_ROW], const mask *m, int64_t t, int64_t c0)
{
    uint32_t words[BK_RNG_ROW];
    bk_rng_row(words, m->key, (uint64_t)m->samples[t % m->n_samples], (uint32_t)(t / m->n_samples),
               (uint64_t)c0);
    for (int i = 0; i < BK_RNG_ROW; i++) factor[i] = words[i] >= m->threshold ? m->scale : 0;
}

/* out = (res +) mask * (x + bias), or added to out. res, bias may be NULL. */
static void masked(real *out, const real *res, const real *x, const real *bias, const mask *m, int beta)
{
    const int64_t n_tokens = m->n_positions * m->n_samples, width = m->width;
#pragma omp parallel for schedule(static) if (n_tokens * width > CHUNK)
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t c0 = 0; c0 < width; c0 += BK_RNG_ROW) {
            const int64_t len = width - c0 < BK_RNG_ROW ? width - c0 : BK_RNG_ROW, at = t * width + c0;
            real y[BK_RNG_ROW];
            for (int64_t i = 0; i < len; i++) y[i] = bias ? x[at + i] + bias[c0 + i] : x[at + i];
            if (m->threshold) {
                real factor[BK_RNG_ROW];
                mask_factors(factor, m, t, c0);
                for (int64_t i = 0; i < len; i++) y[i] *= factor[i];
            }
            if (res)
                for (int64_t i = 0; i < len; i++) y[i] = res[at + i] + y[i];
            for (int64_t i = 0; i < len; i++) out[at + i] = beta ? out[at + i] + y[i] : y[i];
        }
}

void BK_R(bk_dropout_fwd)(real *y, const real *x, bk_rng_key key, const int64_t *samples, int64_t n_positions,
                          int64_t n_samples, int64_t width, double p)
{
    const mask m = mask_of(key, samples, n_positions, n_samples, width, p);
    masked(y, NULL, x, NULL, &m, 0);
}

void BK_R(bk_dropout_bwd)(real *dx, const real *dy, bk_rng_key key, const int64_t *samples,
                          int64_t n_positions, int64_t n_samples, int64_t width, double p, int beta)
{
    const mask m = mask_of(key, samples, n_positions, n_samples, width, p);
    masked(dx, NULL, dy, NULL, &m, beta);
}

void BK_R(bk_residual_add_fwd)(real *out, const real *res, const real *y, const real *bias, bk_rng_key key,
                               const int64_t *samples, int64_t n_positions, int64_t n_samples, int64_t width,
                               double p)
{
    const mask m = mask_of(key, samples, n_positions, n_samples, width, p);
    masked(out, res, y, bias, &m, 0);
}

/* The sum over tokens of mask * g: as bk_column_sum, with the mask drawn again. */
static void masked_column_sum(real *out, const real *g, const mask *m, int beta)
{
    const int64_t n_tokens = m->n_positions * m->n_samples, width = m->width;
#pragma omp parallel for schedule(static) if (n_tokens * width > CHUNK)
    for (int64_t c0 = 0; c0 < width; c0 += BK_RNG_ROW) {
        const int64_t len = width - c0 < BK_RNG_ROW ? width - c0 : BK_RNG_ROW;
        double acc[BK_RNG_ROW] = {0};
        for (int64_t t = 0; t < n_tokens; t++) {
            real factor[BK_RNG_ROW];
            mask_factors(factor, m, t, c0);
            for (int64_t i = 0; i < len; i++) acc[i] += (double)(g[t * width + c0 + i] * factor[i]);
        }
        for (int64_t i = 0; i < len; i++) out[c0 + i] = (real)(beta ? (double)out[c0 + i] + acc[i] : acc[i]);
    }
}

void BK_R(bk_residual_add_bwd)(real *dy, real *dbias, const real *g, bk_rng_key key, const int64_t *samples,
                               int64_t n_positions, int64_t n_samples, int64_t width, double p, int beta_y,
                               int beta_bias)
{
    const mask m = mask_of(key, samples, n_positions, n_samples, width, p);
    /* dbias first: dy may lie on g. */
    if (dbias && m.threshold)
        masked_column_sum(dbias, g, &m, beta_bias);
    else if (dbias)
        bk_column_sum(dbias, g, n_positions * n_samples, width, beta_bias);
    if (dy) masked(dy, NULL, g, NULL, &m, beta_y);
}
