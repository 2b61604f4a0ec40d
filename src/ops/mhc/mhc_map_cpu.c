/* Forward of the mapping: a tile of tokens is projected, gated and balanced while its streams are in cache.
 */
#include "ops/mhc/mhc_cpu.h"
#include "ops/mhc/mhc_map_cpu.h"
#include "ops/mhc/mhc_project_cpu.h"
#include "ops/mhc/mhc_sinkhorn_cpu.h"
#include "base/tally.h"

_Static_assert(PROJECT_TILE % LANES == 0, "a tile is whole groups of the Sinkhorn");

/* h_pre and h_post of one token, and its residual logits into lane `lane`. */
static void gate_token(real *h_pre, real *h_post, real *logits, int lane, const real *p, real q,
                       const gates *g)
{
    const int n = g->n;
    const real r = 1 / (q + RMS_EPS);
    for (int j = 0; j < n; j++) h_pre[j] = sigmoid(r * g->alpha_pre * p[j] + g->bias[j]) + PRE_EPS;
    p += n;
    for (int i = 0; i < n; i++) h_post[i] = 2 * sigmoid(r * g->alpha_post * p[i] + g->bias[n + i]);
    p += n;
    for (int e = 0; e < n * n; e++) logits[e * LANES + lane] = r * g->alpha_res * p[e] + g->bias[2 * n + e];
}

/* One tile; all pointers stand at its first token. */
static void map_tile(real *h_pre, real *h_post, real *h_res, real *p, real *q, const real *x, const real *W,
                     const gates *g, int tokens, int64_t K, int64_t iterations)
{
    const int n = g->n, N = n * n + 2 * n;
    BK_R(bk_mhc_project)(p, q, x, W, tokens, N, K);
    for (int t = 0; t < tokens; t++) q[t] = SQRT(q[t] / (real)K);
    for (int t0 = 0; t0 < tokens; t0 += LANES) {
        const int lanes = tokens - t0 < LANES ? tokens - t0 : LANES;
        real m[BK_MHC_MAX_STREAMS * BK_MHC_MAX_STREAMS * LANES];
        if (lanes < LANES) memset(m, 0, (size_t)(n * n * LANES) * sizeof(real)); /* idle lanes stay finite */
        for (int l = 0; l < lanes; l++) {
            const int t = t0 + l;
            gate_token(h_pre + t * n, h_post + t * n, m, l, p + t * N, q[t], g);
        }
        BK_R(bk_mhc_sinkhorn)(m, n, iterations);
        for (int l = 0; l < lanes; l++)
            for (int e = 0; e < n * n; e++) h_res[(t0 + l) * n * n + e] = m[e * LANES + l];
    }
}

void BK_R(bk_mhc_map)(real *h_pre, real *h_post, real *h_res, real *p, real *q, const real *x, const real *W,
                      const real *alpha_pre, const real *alpha_post, const real *alpha_res, const real *bias,
                      int64_t T, int64_t n, int64_t C, int64_t iterations)
{
    const gates g = {*alpha_pre, *alpha_post, *alpha_res, bias, (int)n};
    const int64_t K = n * C, N = bk_mhc_rows(n);
    const int64_t tiles = (T + PROJECT_TILE - 1) / PROJECT_TILE;
#pragma omp parallel for schedule(static) if (T * K > 1 << 12)
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t t = tile * PROJECT_TILE;
        const int tokens = T - t < PROJECT_TILE ? (int)(T - t) : PROJECT_TILE;
        map_tile(h_pre + t * n, h_post + t * n, h_res + t * n * n, p + t * N, q + t, x + t * K, W, &g, tokens,
                 K, iterations);
    }
    bk_tally_madds += bk_mhc_map_madds(T, n, C);
}
