/* The learned contraction: a small projection decides the weights, then an aggregation. The backward is that
 * of the aggregation followed by that of the projection. */
#include "ops/mhc/mhc_cpu.h"
#include "ops/mhc/mhc_map_cpu.h"
#include "ops/mhc/mhc_project_cpu.h"
#include "base/tally.h"

/* w, m and rho of one tile of tokens. */
static void weights_tile(real *w, real *m, real *rho, const real *x, const real *V, real scale,
                         const real *base, real eps, int tokens, int64_t n, int64_t K)
{
    BK_R(bk_mhc_project)(m, rho, x, V, tokens, n, K);
    for (int t = 0; t < tokens; t++) {
        rho[t] = 1 / SQRT(rho[t] / (real)K + eps);
        for (int64_t j = 0; j < n; j++) {
            m[t * n + j] *= rho[t];
            w[t * n + j] = sigmoid(m[t * n + j] * scale + base[j]) + eps;
        }
    }
}

void BK_R(bk_mhc_contract)(real *h, real *w, real *m, real *rho, const real *x, const real *V,
                           const real *scale, const real *base, real eps, int64_t T, int64_t n, int64_t C)
{
    const int64_t K = n * C, tiles = (T + PROJECT_TILE - 1) / PROJECT_TILE;
#pragma omp parallel for schedule(static) if (T * K > 1 << 14)
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t t = tile * PROJECT_TILE;
        const int tokens = T - t < PROJECT_TILE ? (int)(T - t) : PROJECT_TILE;
        weights_tile(w + t * n, m + t * n, rho + t, x + t * K, V, *scale, base, eps, tokens, n, K);
    }
    BK_R(bk_mhc_aggregate)(h, x, w, T, n, C);
    bk_tally_madds += bk_mhc_contract_madds(T, n, C);
}

/* The workspace cut into its parts. */
typedef struct {
    real *dp;      /* [T, n] gradient of the projection */
    real *c;       /* [T]    the norm's part of dx is c[t] x[t] */
    real *dw;      /* [T, n] gradient of w */
    real *partial; /* [chunks, n + 1] sums over a chunk: dbase, dscale */
} job;

static void chunk_bwd(const job *b, int64_t chunk, const real *w, const real *m, const real *rho, real scale,
                      real eps, int64_t T, int64_t n, int64_t K)
{
    const int64_t t0 = chunk * BK_MHC_TOKEN_CHUNK;
    const int64_t end = T - t0 < BK_MHC_TOKEN_CHUNK ? T : t0 + BK_MHC_TOKEN_CHUNK;
    real *partial = b->partial + chunk * (n + 1);
    memset(partial, 0, (size_t)(n + 1) * sizeof(real));
    for (int64_t t = t0; t < end; t++) {
        real norm = 0;
        for (int64_t j = t * n; j < (t + 1) * n; j++) {
            const real s = w[j] - eps, dz = b->dw[j] * s * (1 - s), dm = dz * scale;
            partial[j - t * n] += dz;
            partial[n] += dz * m[j];
            norm += dm * m[j];
            b->dp[j] = dm * rho[t];
        }
        b->c[t] = -rho[t] * rho[t] / (real)K * norm;
    }
}

static void reduce_partial(real *out, int beta, const real *partial, int64_t chunks, int64_t stride)
{
    real sum = 0;
    for (int64_t k = 0; k < chunks; k++) sum += partial[k * stride];
    *out = beta ? *out + sum : sum;
}

void BK_R(bk_mhc_contract_bwd)(real *dx, int beta_x, real *dV, real *dscale, real *dbase, int beta_w,
                               const real *dh, const real *x, const real *V, const real *scale, const real *w,
                               const real *m, const real *rho, real eps, int64_t T, int64_t n, int64_t C,
                               void *workspace)
{
    const int64_t K = n * C, chunks = bk_mhc_chunks(T);
    job b = {0};
    if (T > 0) {
        b.dp = workspace;
        b.c = b.dp + T * n;
        b.dw = b.c + T;
        b.partial = b.dw + T * n;
    }
    BK_R(bk_mhc_aggregate_bwd)(b.dw, dx, beta_x, dh, x, w, T, n, C);
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < chunks; chunk++) chunk_bwd(&b, chunk, w, m, rho, *scale, eps, T, n, K);

    for (int64_t j = 0; j < n; j++) reduce_partial(dbase + j, beta_w, b.partial + j, chunks, n + 1);
    reduce_partial(dscale, beta_w, b.partial + n, chunks, n + 1);
    BK_R(bk_mhc_project_bwd)(dx, 1, dV, beta_w, b.dp, b.c, x, V, T, n, K);
    bk_tally_madds += bk_mhc_contract_bwd_madds(T, n, C);
}
