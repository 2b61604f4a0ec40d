/* Tall-skinny products with both operands read from cache as often as needed and the streams from memory
 * once.
 *
 * Forward: a tile of tokens by a block of K stays in the first-level cache while the rows of W pass, ROWS at
 * a time; TOKENS x ROWS vector sums live in registers. Backward: a strip of STRIP vectors of K by a chunk of
 * tokens is read once for both gradients. */
#include "ops/mhc/mhc_project_cpu.h"

enum { TOKENS = 4, ROWS = 6, BLOCK = 512, STRIP = 4 };

/* p[t*N + o] += sum over len channels of w[o] x[t], for nt tokens and no rows. */
INLINE void dots(int nt, int no, real *p, const real *x, const real *w, int64_t N, int64_t K, int64_t len)
{
    vec sum[TOKENS][ROWS];
    for (int t = 0; t < nt; t++)
        for (int o = 0; o < no; o++) sum[t][o] = (vec){0};
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vec v[TOKENS];                                                                                       \
        for (int t = 0; t < nt; t++) vec_load(&v[t], x + t * K + (c), count);                                \
        for (int o = 0; o < no; o++) {                                                                       \
            vec row;                                                                                         \
            vec_load(&row, w + o * K + (c), count);                                                          \
            for (int t = 0; t < nt; t++) sum[t][o] += v[t] * row;                                            \
        }                                                                                                    \
    } while (0)
    BK_MHC_CHANNELS(len, BODY);
#undef BODY
    for (int t = 0; t < nt; t++)
        for (int o = 0; o < no; o++) p[t * N + o] += vec_sum(&sum[t][o]);
}

static void dots_rows(int nt, real *p, const real *x, const real *w, int64_t N, int64_t K, int64_t len)
{
    int64_t o = 0;
    if (nt == TOKENS) {
        for (; o + ROWS <= N; o += ROWS) dots(TOKENS, ROWS, p + o, x, w + o * K, N, K, len);
        for (; o < N; o++) dots(TOKENS, 1, p + o, x, w + o * K, N, K, len);
    } else {
        for (; o + ROWS <= N; o += ROWS) dots(1, ROWS, p + o, x, w + o * K, N, K, len);
        for (; o < N; o++) dots(1, 1, p + o, x, w + o * K, N, K, len);
    }
}

static real squares(const real *x, int64_t len)
{
    vec sum = {0};
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vec v;                                                                                               \
        vec_load(&v, x + (c), count);                                                                        \
        sum += v * v;                                                                                        \
    } while (0)
    BK_MHC_CHANNELS(len, BODY);
#undef BODY
    return vec_sum(&sum);
}

void BK_R(bk_mhc_project)(real *p, real *square_sum, const real *x, const real *W, int tokens, int64_t N,
                          int64_t K)
{
    for (int64_t e = 0; e < tokens * N; e++) p[e] = 0;
    for (int t = 0; t < tokens; t++) square_sum[t] = 0;
    for (int64_t k = 0; k < K; k += BLOCK) {
        const int64_t len = K - k < BLOCK ? K - k : BLOCK;
        for (int t = 0; t < tokens; t++) square_sum[t] += squares(x + t * K + k, len);
        int t = 0;
        for (; t + TOKENS <= tokens; t += TOKENS)
            dots_rows(TOKENS, p + t * N, x + t * K + k, W + k, N, K, len);
        for (; t < tokens; t++) dots_rows(1, p + t * N, x + t * K + k, W + k, N, K, len);
    }
}

/* dW[0..no) of one strip (nv vectors, the last with `count` lanes) over the tokens of one chunk. */
INLINE void strip_dw(int no, int nv, int count, real *dw, int beta, const real *dp, const real *x, int tokens,
                     int64_t N, int64_t K)
{
    vec sum[ROWS][STRIP];
    for (int o = 0; o < no; o++)
        for (int v = 0; v < nv; v++) sum[o][v] = (vec){0};
    for (int t = 0; t < tokens; t++) {
        vec a[STRIP];
        for (int v = 0; v < nv; v++) vec_load(&a[v], x + t * K + v * LANES, count);
        for (int o = 0; o < no; o++)
            for (int v = 0; v < nv; v++) sum[o][v] += dp[t * N + o] * a[v];
    }
    for (int o = 0; o < no; o++)
        for (int v = 0; v < nv; v++) vec_update(dw + o * K + v * LANES, &sum[o][v], beta, count);
}

/* dx of one strip for nt tokens. */
INLINE void strip_dx(int nt, int nv, int count, real *dx, int beta, const real *dp, const real *c,
                     const real *x, const real *w, int64_t N, int64_t K)
{
    vec sum[TOKENS][STRIP];
    for (int t = 0; t < nt; t++)
        for (int v = 0; v < nv; v++) {
            vec a;
            vec_load(&a, x + t * K + v * LANES, count);
            sum[t][v] = c[t] * a;
        }
    for (int64_t o = 0; o < N; o++)
        for (int v = 0; v < nv; v++) {
            vec a;
            vec_load(&a, w + o * K + v * LANES, count);
            for (int t = 0; t < nt; t++) sum[t][v] += dp[t * N + o] * a;
        }
    for (int t = 0; t < nt; t++)
        for (int v = 0; v < nv; v++) vec_update(dx + t * K + v * LANES, &sum[t][v], beta, count);
}

/* Both gradients of one strip; pointers stand at its first channel. */
INLINE void strip_bwd(int nv, int count, real *dx, int beta_x, real *dw, int beta_w, const real *dp,
                      const real *c, const real *x, const real *w, int64_t T, int64_t N, int64_t K)
{
    for (int64_t t0 = 0; t0 < T; t0 += BK_MHC_TOKEN_CHUNK) {
        const int tokens = T - t0 < BK_MHC_TOKEN_CHUNK ? (int)(T - t0) : BK_MHC_TOKEN_CHUNK;
        const int beta = beta_w || t0 > 0;
        const real *xs = x + t0 * K, *dps = dp + t0 * N;
        int64_t o = 0;
        for (; o + ROWS <= N; o += ROWS)
            strip_dw(ROWS, nv, count, dw + o * K, beta, dps + o, xs, tokens, N, K);
        for (; o < N; o++) strip_dw(1, nv, count, dw + o * K, beta, dps + o, xs, tokens, N, K);
        int t = 0;
        for (; t + TOKENS <= tokens; t += TOKENS)
            strip_dx(TOKENS, nv, count, dx + (t0 + t) * K, beta_x, dps + t * N, c + t0 + t, xs + t * K, w, N,
                     K);
        for (; t < tokens; t++)
            strip_dx(1, nv, count, dx + (t0 + t) * K, beta_x, dps + t * N, c + t0 + t, xs + t * K, w, N, K);
    }
}

void BK_R(bk_mhc_project_bwd)(real *dx, int beta_x, real *dW, int beta_w, const real *dp, const real *c,
                              const real *x, const real *W, int64_t T, int64_t N, int64_t K)
{
    if (T == 0 && !beta_w) memset(dW, 0, (size_t)(N * K) * sizeof(real));
    if (T == 0) return;
    const int64_t width = STRIP * LANES, strips = (K + width - 1) / width;
#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < strips; s++) {
        int64_t k = s * width;
        const int64_t end = k + width < K ? k + width : K;
        if (end - k == width) {
            strip_bwd(STRIP, LANES, dx + k, beta_x, dW + k, beta_w, dp, c, x + k, W + k, T, N, K);
            continue;
        }
        for (; k < end; k += LANES) {
            const int count = end - k < LANES ? (int)(end - k) : LANES;
            strip_bwd(1, count, dx + k, beta_x, dW + k, beta_w, dp, c, x + k, W + k, T, N, K);
        }
    }
}
