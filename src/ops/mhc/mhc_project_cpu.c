/* Tall-skinny products with both operands read from cache as often as needed and the streams from memory
 * once.
 *
 * Rows of x and W lie K apart, often a multiple of the page, and would fight for the same few sets of the
 * first-level cache: a block is packed, padded with zeros, before it is used several times.
 *
 * Forward: a block of K of a tile of tokens is packed; the rows of W pass by it, a few at a time, with TOKENS
 * x rows vector sums in registers. Backward: a strip of K by a chunk of tokens is packed and used for both
 * gradients. */
#include "ops/mhc/mhc_project_cpu.h"

enum {
    TOKENS = 4,
    ROWS = 6,
    GROUP = 24, /* rows whose sums are kept while a tile passes: all of them for n = 4 */
    BLOCK = 512,
    STRIP = 4,             /* vectors */
    WIDTH = STRIP * LANES, /* scalars of a strip */
    CACHE_LINE = 64 / (int)sizeof(real),
    PANEL = 4 * WIDTH, /* what a thread takes at a time; no bits depend on it */
};
_Static_assert(PROJECT_TILE % TOKENS == 0 && BLOCK % LANES == 0 && BK_MHC_TOKEN_CHUNK % TOKENS == 0,
               "packed blocks are whole vectors and whole groups of tokens");

typedef struct {
    _Alignas(64) vec sum[PROJECT_TILE][GROUP]; /* a vector across two cache lines costs two accesses */
    _Alignas(64) real x[PROJECT_TILE][BLOCK];
} tile_block;

/* Copies `len` channels of each token, pads with zeros, and adds to the sums of squares unless that is NULL.
 */
static void pack_block(tile_block *b, real *square_sum, const real *x, int tokens, int64_t K, int64_t len)
{
    for (int t = 0; t < tokens; t++) {
        vec squares = {0};
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vec v;                                                                                               \
        vec_load(&v, x + t * K + (c), count);                                                                \
        AT(b->x[t] + (c)) = v;                                                                               \
        squares += v * v;                                                                                    \
    } while (0)
        BK_MHC_CHANNELS(len, BODY);
#undef BODY
        if (square_sum) square_sum[t] += vec_sum(&squares);
    }
}

/* sum[t][o] += products over one block of `no` rows from w and TOKENS tokens from `t0`. Summed apart first: a
 * sum over all of K in one register would round more. */
INLINE void dots(int no, tile_block *b, int t0, int o0, const real *w, int64_t K, int64_t len)
{
    vec sum[TOKENS][ROWS];
    for (int t = 0; t < TOKENS; t++)
        for (int o = 0; o < no; o++) sum[t][o] = (vec){0};
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vec v[TOKENS];                                                                                       \
        for (int t = 0; t < TOKENS; t++) v[t] = AT_CONST(b->x[t0 + t] + (c));                                \
        for (int o = 0; o < no; o++) {                                                                       \
            vec row;                                                                                         \
            vec_load(&row, w + o * K + (c), count);                                                          \
            for (int t = 0; t < TOKENS; t++) sum[t][o] += v[t] * row;                                        \
        }                                                                                                    \
    } while (0)
    BK_MHC_CHANNELS(len, BODY);
#undef BODY
    for (int t = 0; t < TOKENS; t++)
        for (int o = 0; o < no; o++) b->sum[t0 + t][o0 + o] += sum[t][o];
}

/* All rows of a group by all tokens of a packed block. */
static void dots_block(tile_block *b, const real *w, int rows, int tokens, int64_t K, int64_t len)
{
    int o = 0;
    for (; o + ROWS <= rows; o += ROWS)
        for (int t = 0; t < tokens; t += TOKENS) dots(ROWS, b, t, o, w + o * K, K, len);
    for (; o + 4 <= rows; o += 4)
        for (int t = 0; t < tokens; t += TOKENS) dots(4, b, t, o, w + o * K, K, len);
    for (; o < rows; o++)
        for (int t = 0; t < tokens; t += TOKENS) dots(1, b, t, o, w + o * K, K, len);
}

void BK_R(bk_mhc_project)(real *p, real *square_sum, const real *x, const real *W, int tokens, int64_t N,
                          int64_t K)
{
    tile_block b;
    for (int t = tokens; t % TOKENS != 0; t++) memset(b.x[t], 0, sizeof b.x[t]);
    for (int t = 0; t < tokens; t++) square_sum[t] = 0;
    for (int64_t o = 0; o < N; o += GROUP) {
        const int rows = N - o < GROUP ? (int)(N - o) : GROUP;
        memset(b.sum, 0, sizeof b.sum);
        for (int64_t k = 0; k < K; k += BLOCK) {
            const int64_t len = K - k < BLOCK ? K - k : BLOCK;
            pack_block(&b, o == 0 ? square_sum : NULL, x + k, tokens, K, len);
            dots_block(&b, W + o * K + k, rows, tokens, K, len);
        }
        for (int t = 0; t < tokens; t++)
            for (int r = 0; r < rows; r++) p[t * N + o + r] = vec_sum(&b.sum[t][r]);
    }
}

/* Rows of a strip, width <= WIDTH channels each, packed one after the other and padded with zeros. */
static void pack_strip(real *packed, const real *from, int64_t rows, int64_t K, int width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int v = 0; v < STRIP; v++) {
            vec a = {0};
            if (width >= (v + 1) * LANES)
                a = AT_CONST(from + r * K + v * LANES);
            else if (width > v * LANES)
                vec_load(&a, from + r * K + v * LANES, width - v * LANES);
            AT(packed + r * WIDTH + v * LANES) = a;
        }
}

INLINE void update_strip(real *out, const vec *sum, int beta, int width)
{
    for (int v = 0; v < STRIP; v++)
        if (width >= (v + 1) * LANES)
            vec_update(out + v * LANES, &sum[v], beta, LANES);
        else if (width > v * LANES)
            vec_update(out + v * LANES, &sum[v], beta, width - v * LANES);
}

/* dW of `no` rows of a strip over the tokens of a chunk; x is packed. */
INLINE void strip_dw(int no, real *dw, int beta, const real *dp, const real *x, int tokens, int64_t N,
                     int64_t K, int width)
{
    vec sum[ROWS][STRIP];
    for (int o = 0; o < no; o++)
        for (int v = 0; v < STRIP; v++) sum[o][v] = (vec){0};
    for (int t = 0; t < tokens; t++)
        for (int o = 0; o < no; o++)
            for (int v = 0; v < STRIP; v++) sum[o][v] += dp[t * N + o] * AT_CONST(x + t * WIDTH + v * LANES);
    for (int o = 0; o < no; o++) update_strip(dw + o * K, sum[o], beta, width);
}

/* dx of a strip for nt tokens; x and w are packed. */
INLINE void strip_dx(int nt, real *dx, int beta, const real *dp, const real *c, const real *x, const real *w,
                     int64_t N, int64_t K, int width)
{
    vec sum[TOKENS][STRIP];
    for (int t = 0; t < nt; t++)
        for (int v = 0; v < STRIP; v++) sum[t][v] = c[t] * AT_CONST(x + t * WIDTH + v * LANES);
    for (int64_t o = 0; o < N; o++)
        for (int v = 0; v < STRIP; v++) {
            const vec a = AT_CONST(w + o * WIDTH + v * LANES);
            for (int t = 0; t < nt; t++) sum[t][v] += dp[t * N + o] * a;
        }
    for (int t = 0; t < nt; t++) update_strip(dx + t * K, sum[t], beta, width);
}

/* The operands of the backward. */
typedef struct {
    real *dx, *dW;
    const real *dp, *c, *x, *W;
    int64_t N, K;
    int beta_x;
} back;

/* Both gradients of the strip at k for the tokens t0.. of one chunk. */
static void strip_bwd(const back *b, int beta_w, int64_t t0, int tokens, int64_t k, int width)
{
    const int64_t N = b->N, K = b->K;
    _Alignas(64) real x[BK_MHC_TOKEN_CHUNK * WIDTH], w[BK_MHC_MAX_ROWS * WIDTH];
    const real *dp = b->dp + t0 * N, *c = b->c + t0;
    real *dx = b->dx + t0 * K + k, *dw = b->dW + k;
    for (int t = 0; t < tokens; t++) { /* rows lie too far apart for the hardware to foresee */
        for (int e = 0; e < width; e += CACHE_LINE) __builtin_prefetch(dx + t * K + e, 1, 2);
        __builtin_prefetch(dx + t * K + width - 1, 1, 2);
    }
    pack_strip(x, b->x + t0 * K + k, tokens, K, width);
    pack_strip(w, b->W + k, N, K, width);
    int64_t o = 0;
    for (; o + ROWS <= N; o += ROWS) strip_dw(ROWS, dw + o * K, beta_w, dp + o, x, tokens, N, K, width);
    for (; o + 4 <= N; o += 4) strip_dw(4, dw + o * K, beta_w, dp + o, x, tokens, N, K, width);
    for (; o < N; o++) strip_dw(1, dw + o * K, beta_w, dp + o, x, tokens, N, K, width);
    int t = 0;
    for (; t + TOKENS <= tokens; t += TOKENS)
        strip_dx(TOKENS, dx + t * K, b->beta_x, dp + t * N, c + t, x + t * WIDTH, w, N, K, width);
    for (; t < tokens; t++)
        strip_dx(1, dx + t * K, b->beta_x, dp + t * N, c + t, x + t * WIDTH, w, N, K, width);
}

void BK_R(bk_mhc_project_bwd)(real *dx, int beta_x, real *dW, int beta_w, const real *dp, const real *c,
                              const real *x, const real *W, int64_t T, int64_t N, int64_t K)
{
    const back b = {dx, dW, dp, c, x, W, N, K, beta_x};
    if (T == 0 && !beta_w) memset(dW, 0, (size_t)(N * K) * sizeof(real));
    const int64_t panel = K < 4 * PANEL ? WIDTH : PANEL; /* narrow streams: something for every thread */
#pragma omp parallel for schedule(static)
    for (int64_t k0 = 0; k0 < K; k0 += panel)
        for (int64_t t0 = 0; t0 < T; t0 += BK_MHC_TOKEN_CHUNK) {
            const int tokens = T - t0 < BK_MHC_TOKEN_CHUNK ? (int)(T - t0) : BK_MHC_TOKEN_CHUNK;
            const int64_t end = K - k0 < panel ? K : k0 + panel;
            for (int64_t k = k0; k < end; k += WIDTH)
                strip_bwd(&b, beta_w || t0 > 0, t0, tokens, k, end - k < WIDTH ? (int)(end - k) : WIDTH);
        }
}
