#include "ops/loss/loss_cpu.h"

#include "base/lanes.h"
#include "base/realmath.h"

/* sum exp(x - max): exp in the kernel's type, the sum in double. */
static double sum_exp(const real *x, real max, int64_t n)
{
    double acc[BK_LANES] = {0};
    int64_t i = 0;
    for (; i + BK_LANES <= n; i += BK_LANES) {
        real e[BK_LANES];
        for (int l = 0; l < BK_LANES; l++) e[l] = bk_exp(x[i + l] - max);
        for (int l = 0; l < BK_LANES; l++) acc[l] += (double)e[l];
    }
    for (int l = 0; i < n; i++, l++) acc[l] += (double)bk_exp(x[i] - max);
    return bk_lanes_fold(acc);
}

int64_t BK_R(bk_cross_entropy_fwd)(real *loss, real *lse, const real *logits, const int32_t *labels,
                                   int64_t n_positions, int64_t n_samples, int64_t n_vocab)
{
    const int64_t n_tokens = n_positions * n_samples;
    for (int64_t i = 0; i < n_tokens; i++)
        if (labels[i] < 0 || labels[i] >= n_vocab) return i;
#pragma omp parallel for schedule(static) if (n_tokens * n_vocab > 1 << 12)
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t at = t % n_samples * n_positions + t / n_samples; /* [B, S] */
        const real *row = logits + t * n_vocab, max = bk_lanes_max(row, n_vocab);
        const double log_sum = log(sum_exp(row, max, n_vocab));
        lse[at] = (real)((double)max + log_sum);
        loss[at] = (real)(log_sum - ((double)row[labels[at]] - (double)max));
    }
    return -1;
}

void BK_R(bk_cross_entropy_bwd)(real *dlogits, const real *logits, const real *lse, const int32_t *labels,
                                const real *dloss, int64_t n_positions, int64_t n_samples, int64_t n_vocab,
                                int beta)
{
    const int64_t n_tokens = n_positions * n_samples;
#pragma omp parallel for schedule(static) if (n_tokens * n_vocab > 1 << 12)
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t at = t % n_samples * n_positions + t / n_samples;
        const real *row = logits + t * n_vocab, row_lse = lse[at], seed = dloss[at];
        real *to = dlogits + t * n_vocab;
        if (beta) {
            BK_SIMD
            for (int64_t v = 0; v < n_vocab; v++) to[v] += bk_exp(row[v] - row_lse) * seed;
        } else {
            BK_SIMD
            for (int64_t v = 0; v < n_vocab; v++) to[v] = bk_exp(row[v] - row_lse) * seed;
        }
        to[labels[at]] -= seed;
    }
}

void BK_R(bk_masked_mean_fwd)(real *mean, real *sum, real *n, const real *x, const real *mask, int64_t count)
{
    double total, weight;
    BK_LANES_SUM(total, i, count, (double)x[i] * (double)mask[i]);
    BK_LANES_SUM(weight, i, count, (double)mask[i]);
    *sum = (real)total, *n = (real)weight;
    *mean = (real)(total / (weight > 1 ? weight : 1));
}

void BK_R(bk_masked_mean_bwd)(real *dx, const real *mask, const real *n, const real *dmean, int64_t count,
                              int beta)
{
    const real each = *dmean / (*n > 1 ? *n : 1);
    for (int64_t i = 0; i < count; i++) dx[i] = beta ? dx[i] + mask[i] * each : mask[i] * each;
}
