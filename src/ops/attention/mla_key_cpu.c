#include "ops/attention/mla_key_cpu.h"

static void copy_row(real *restrict to, const real *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

void BK_R(bk_mla_key)(real *key, bk_heads ks, const real *own, bk_heads ns, const real *shared, bk_heads ps,
                      int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t n, int64_t p)
{
    const int64_t n_tokens = n_positions * n_samples;
#pragma omp parallel for schedule(static) if (n_tokens * n_heads * (n + p) > 1 << 14)
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t s = t / n_samples, b = t % n_samples;
        const real *from = shared + bk_heads_at(ps, s, b, 0, 0);
        for (int64_t g = 0; g < n_heads; g++) {
            real *to = key + bk_heads_at(ks, s, b, g, 0);
            copy_row(to, own + bk_heads_at(ns, s, b, g, 0), n);
            copy_row(to + n, from, p);
        }
    }
}

void BK_R(bk_mla_key_bwd)(real *d_own, bk_heads ns, real *d_shared, bk_heads ps, const real *d_key,
                          bk_heads ks, int64_t n_positions, int64_t n_samples, int64_t n_heads, int64_t n,
                          int64_t p)
{
    const int64_t n_tokens = n_positions * n_samples;
#pragma omp parallel for schedule(static) if (n_tokens * n_heads * (n + p) > 1 << 14)
    for (int64_t t = 0; t < n_tokens; t++) {
        const int64_t s = t / n_samples, b = t % n_samples;
        real *sum = d_shared + bk_heads_at(ps, s, b, 0, 0);
        for (int64_t i = 0; i < p; i++) sum[i] = 0;
        for (int64_t g = 0; g < n_heads; g++) {
            const real *from = d_key + bk_heads_at(ks, s, b, g, 0);
            copy_row(d_own + bk_heads_at(ns, s, b, g, 0), from, n);
            for (int64_t i = 0; i < p; i++) sum[i] += from[n + i];
        }
    }
}
