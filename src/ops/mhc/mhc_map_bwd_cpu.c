/* Backward of the mapping, in two passes. The first works on coefficients alone: it walks the gates and the
 * Sinkhorn back and leaves the gradient of the projection, the norm term, and partial sums of the small
 * parameters' gradients for each chunk of tokens. The second is one pass over the streams for dx and dW. */
#include "ops/mhc/mhc_cpu.h"
#include "ops/mhc/mhc_map_cpu.h"
#include "ops/mhc/mhc_project_cpu.h"
#include "ops/mhc/mhc_sinkhorn_cpu.h"
#include "base/tally.h"

_Static_assert(BK_MHC_TOKEN_CHUNK % LANES == 0, "a chunk is whole groups of the Sinkhorn");

/* Per-token arrays of the call, and the workspace cut into its parts. */
typedef struct {
    const real *dh_pre, *dh_post, *dh_res, *p, *q;
    gates g;
    int64_t T, N, K, iterations;
    real *dp;      /* [T, N] gradient of p */
    real *c;       /* [T]    the norm's part of dx is c[t] x[t] */
    real *partial; /* [chunks, N + 3] sums over a chunk: dbias, dalpha_pre, dalpha_post, dalpha_res */
    real *scratch; /* [slots, sinkhorn scratch] */
} job;

/* Residual logits of the token, and the incoming gradient of h_res, into lane `lane`. */
static void load_lane(real *logits, real *grad, int lane, const job *w, int64_t t)
{
    const int n = w->g.n;
    const real *p = w->p + t * w->N + 2 * n, *dh = w->dh_res + t * n * n;
    const real r = 1 / (w->q[t] + RMS_EPS);
    for (int e = 0; e < n * n; e++) {
        logits[e * LANES + lane] = r * w->g.alpha_res * p[e] + w->g.bias[2 * n + e];
        grad[e * LANES + lane] = dh[e];
    }
}

/* dz [N] of one token: gates by their own formulas, the residual part out of lane `lane`. */
static void token_dz(real *dz, const real *grad, int lane, const job *w, int64_t t)
{
    const int n = w->g.n;
    const real *p = w->p + t * w->N, *bias = w->g.bias;
    const real r = 1 / (w->q[t] + RMS_EPS);
    for (int j = 0; j < n; j++) {
        const real s = sigmoid(r * w->g.alpha_pre * p[j] + bias[j]);
        dz[j] = w->dh_pre[t * n + j] * s * (1 - s);
    }
    for (int i = n; i < 2 * n; i++) {
        const real s = sigmoid(r * w->g.alpha_post * p[i] + bias[i]);
        dz[i] = w->dh_post[t * n + i - n] * 2 * s * (1 - s);
    }
    for (int e = 0; e < n * n; e++) dz[2 * n + e] = grad[e * LANES + lane];
}

/* From dz of one token: dp, the norm term, and the token's terms added to the chunk's partial sums. */
static void token_out(const job *w, real *partial, const real *dz, int64_t t)
{
    const int64_t n = w->g.n, N = w->N, first[4] = {0, n, 2 * n, N};
    const real *p = w->p + t * N, q = w->q[t], r = 1 / (q + RMS_EPS);
    const real alpha[3] = {w->g.alpha_pre, w->g.alpha_post, w->g.alpha_res};
    real all = 0; /* sum of dz A p */
    for (int range = 0; range < 3; range++) {
        real sum = 0;
        for (int64_t o = first[range]; o < first[range + 1]; o++) {
            w->dp[t * N + o] = dz[o] * alpha[range] * r;
            partial[o] += dz[o];
            sum += dz[o] * p[o];
        }
        partial[N + range] += sum * r;
        all += sum * alpha[range];
    }
    /* The norm has no derivative at 0; its term is dropped there. */
    w->c[t] = q > 0 ? -r * r * all / ((real)w->K * q) : q;
}

static void chunk_bwd(const job *w, int64_t chunk, real *scratch)
{
    const int n = w->g.n;
    const int64_t t0 = chunk * BK_MHC_TOKEN_CHUNK;
    const int64_t end = w->T - t0 < BK_MHC_TOKEN_CHUNK ? w->T : t0 + BK_MHC_TOKEN_CHUNK;
    real *partial = w->partial + chunk * (w->N + 3);
    memset(partial, 0, (size_t)(w->N + 3) * sizeof(real));
    for (int64_t t = t0; t < end; t += LANES) {
        const int lanes = end - t < LANES ? (int)(end - t) : LANES;
        real logits[BK_MHC_MAX_STREAMS * BK_MHC_MAX_STREAMS * LANES];
        real grad[BK_MHC_MAX_STREAMS * BK_MHC_MAX_STREAMS * LANES];
        if (lanes < LANES) { /* idle lanes stay finite */
            memset(logits, 0, (size_t)(n * n * LANES) * sizeof(real));
            memset(grad, 0, (size_t)(n * n * LANES) * sizeof(real));
        }
        for (int l = 0; l < lanes; l++) load_lane(logits, grad, l, w, t + l);
        BK_R(bk_mhc_sinkhorn_bwd)(grad, logits, n, w->iterations, scratch);
        for (int l = 0; l < lanes; l++) {
            real dz[BK_MHC_MAX_ROWS];
            token_dz(dz, grad, l, w, t + l);
            token_out(w, partial, dz, t + l);
        }
    }
}

/* *out = beta * *out + sum over chunks of one column of the partial sums. */
static void reduce_partial(real *out, int beta, const job *w, int64_t column)
{
    const int64_t chunks = bk_mhc_chunks(w->T);
    real sum = 0;
    for (int64_t k = 0; k < chunks; k++) sum += w->partial[k * (w->N + 3) + column];
    *out = beta ? *out + sum : sum;
}

void BK_R(bk_mhc_map_bwd)(real *dx, int beta_x, real *dW, real *dalpha_pre, real *dalpha_post,
                          real *dalpha_res, real *dbias, int beta_w, const real *dh_pre, const real *dh_post,
                          const real *dh_res, const real *x, const real *W, const real *alpha_pre,
                          const real *alpha_post, const real *alpha_res, const real *bias, const real *p,
                          const real *q, int64_t T, int64_t n, int64_t C, int64_t iterations, void *workspace)
{
    const int64_t N = bk_mhc_rows(n), K = n * C, slots = bk_mhc_slots(T), chunks = bk_mhc_chunks(T);
    const int64_t slot_size = bk_mhc_sinkhorn_scratch(n, iterations, sizeof(real));
    job w = {.dh_pre = dh_pre, .dh_post = dh_post, .dh_res = dh_res, .p = p, .q = q};
    w.g = (gates){*alpha_pre, *alpha_post, *alpha_res, bias, (int)n};
    w.T = T, w.N = N, w.K = K, w.iterations = iterations;
    if (T > 0) {
        w.dp = workspace;
        w.c = w.dp + T * N;
        w.partial = w.c + T;
        w.scratch = w.partial + chunks * (N + 3);
    }
#pragma omp parallel for schedule(static)
    for (int64_t slot = 0; slot < slots; slot++)
        for (int64_t chunk = slot; chunk < chunks; chunk += slots)
            chunk_bwd(&w, chunk, w.scratch + slot * slot_size);

    for (int64_t o = 0; o < N; o++) reduce_partial(dbias + o, beta_w, &w, o);
    reduce_partial(dalpha_pre, beta_w, &w, N);
    reduce_partial(dalpha_post, beta_w, &w, N + 1);
    reduce_partial(dalpha_res, beta_w, &w, N + 2);
    BK_R(bk_mhc_project_bwd)(dx, beta_x, dW, beta_w, w.dp, w.c, x, W, T, N, K);
    bk_tally_madds += bk_mhc_map_bwd_madds(T, n, C);
}
