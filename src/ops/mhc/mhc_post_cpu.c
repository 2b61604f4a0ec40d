/* Post: the streams are mixed by h_res^T and the sublayer's output is added to each. One pass over the
 * streams, a vector of channels of all n streams at a time. */
#include "ops/mhc/mhc_cpu.h"
#include "ops/mhc/mhc_vec.h"
#include "base/philox.h"

enum { SPAN = 256 }; /* channels whose masks are made at a time; multiple of LANES and of 4 */

/* The dropout factors of SPAN channels: 0 or 1/(1-p). The rows are padded by the block that a stream may
 * begin in. */
typedef struct {
    real factor[BK_MHC_MAX_STREAMS][SPAN + 8 + LANES];
    int shift[BK_MHC_MAX_STREAMS]; /* where the first channel stands in its row */
} masks;

static void draw_masks(masks *k, const bk_mhc_dropout *d, int64_t t, int64_t n, int64_t C, int64_t c,
                       int count)
{
    const bk_rng_key key = {{d->key[0], d->key[1]}};
    const int64_t s = t / d->B;
    const uint32_t position = (uint32_t)(d->positions ? d->positions[s] : s);
    const uint64_t sample = (uint64_t)d->samples[t % d->B];
    const uint32_t least = bk_dropout_threshold(d->p);
    const real scale = (real)(1 / (1 - d->p));
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = i * C + c;
        const int shift = (int)(e % 4), blocks = (shift + count + 3) / 4;
        k->shift[i] = shift;
        for (int b = 0; b < blocks; b++) {
            uint32_t word[4];
            bk_rng_block(word, key, sample, position, (uint32_t)(e / 4 + b));
            for (int w = 0; w < 4; w++) k->factor[i][4 * b + w] = word[w] >= least ? scale : 0;
        }
        /* Lanes past the last channel are multiplied too, by a number. */
        for (int past = 4 * blocks; past < shift + count + LANES; past++) k->factor[i][past] = 0;
    }
}

/* What a token of post reads besides the streams. */
typedef struct {
    const real *h_res, *h_post, *y, *bias;
} token;

/* u = y + bias of `count` channels from c. */
INLINE void load_u(vec *u, const token *k, int64_t c, int count)
{
    vec_load(u, k->y + c, count);
    if (k->bias) {
        vec d;
        vec_load(&d, k->bias + c, count);
        *u += d;
    }
}

/* Channels c..c+count of one token. keep: NULL without dropout; at: channels since the masks' first. */
INLINE void post_vec(int n, real *x_next, const real *x, const token *k, const masks *keep, int at, int64_t C,
                     int64_t c, int count)
{
    vec v[BK_MHC_MAX_STREAMS], u;
    load_u(&u, k, c, count);
    for (int j = 0; j < n; j++) vec_load(&v[j], x + j * C + c, count);
    for (int i = 0; i < n; i++) {
        vec sum = k->h_post[i] * u;
        if (keep) sum *= AT_CONST(keep->factor[i] + keep->shift[i] + at);
        for (int j = 0; j < n; j++) sum += k->h_res[j * n + i] * v[j];
        vec_store(x_next + i * C + c, &sum, count);
    }
}

/* drop: NULL without dropout. Spans bound the masks; the sums do not depend on them. */
INLINE void post_token(int n, real *x_next, const real *x, const token *k, const bk_mhc_dropout *drop,
                       int64_t t, int64_t C)
{
    masks keep;
    for (int64_t c0 = 0; c0 < C; c0 += SPAN) {
        const int span = C - c0 < SPAN ? (int)(C - c0) : SPAN;
        if (drop) draw_masks(&keep, drop, t, n, C, c0, span);
#define BODY(at, count) post_vec(n, x_next, x, k, drop ? &keep : NULL, (int)(at), C, c0 + (at), count)
        BK_MHC_CHANNELS(span, BODY);
#undef BODY
    }
}

void BK_R(bk_mhc_post)(real *x_next, const real *x, const real *h_res, const real *h_post, const real *y,
                       const real *bias, const bk_mhc_dropout *drop, int64_t T, int64_t n, int64_t C)
{
    if (drop && drop->p <= 0) drop = NULL;
#pragma omp parallel for schedule(static) if (T * n * C > 1 << 14)
    for (int64_t t = 0; t < T; t++) {
        const token k = {h_res + t * n * n, h_post + t * n, y + t * C, bias};
        BK_MHC_BY_N(n, post_token, x_next + t * n * C, x + t * n * C, &k, drop, t, C);
    }
}

/* The gradients of one token, and its sums over channels that are under way. */
typedef struct {
    real *dx, *dy;
    const real *g, *x;
    vec res[BK_MHC_MAX_STREAMS * BK_MHC_MAX_STREAMS], post[BK_MHC_MAX_STREAMS];
} token_grad;

INLINE void post_bwd_vec(int n, token_grad *d, int beta, const token *k, const masks *keep, int at, int64_t C,
                         int64_t c, int count)
{
    vec g[BK_MHC_MAX_STREAMS], u, dy = {0};
    load_u(&u, k, c, count);
    for (int i = 0; i < n; i++) vec_load(&g[i], d->g + i * C + c, count);
    for (int j = 0; j < n; j++) {
        vec v, dx = {0};
        vec_load(&v, d->x + j * C + c, count);
        for (int i = 0; i < n; i++) {
            d->res[j * n + i] += v * g[i];
            dx += k->h_res[j * n + i] * g[i];
        }
        vec_update(d->dx + j * C + c, &dx, beta, count);
    }
    for (int i = 0; i < n; i++) {
        if (keep) g[i] *= AT_CONST(keep->factor[i] + keep->shift[i] + at);
        d->post[i] += g[i] * u;
        dy += k->h_post[i] * g[i];
    }
    vec_store(d->dy + c, &dy, count);
}

INLINE void post_bwd_token(int n, real *dh_res, real *dh_post, token_grad *d, int beta, const token *k,
                           const bk_mhc_dropout *drop, int64_t t, int64_t C)
{
    masks keep;
    for (int e = 0; e < n * n; e++) d->res[e] = (vec){0};
    for (int i = 0; i < n; i++) d->post[i] = (vec){0};
    for (int64_t c0 = 0; c0 < C; c0 += SPAN) {
        const int span = C - c0 < SPAN ? (int)(C - c0) : SPAN;
        if (drop) draw_masks(&keep, drop, t, n, C, c0, span);
#define BODY(at, count) post_bwd_vec(n, d, beta, k, drop ? &keep : NULL, (int)(at), C, c0 + (at), count)
        BK_MHC_CHANNELS(span, BODY);
#undef BODY
    }
    for (int e = 0; e < n * n; e++) dh_res[e] = vec_sum(&d->res[e]);
    for (int i = 0; i < n; i++) dh_post[i] = vec_sum(&d->post[i]);
}

/* dbias[c] (+)= sum over tokens of dy, chunk by chunk; each channel has one owner. */
static void sum_tokens(real *dbias, int beta, const real *dy, int64_t T, int64_t C)
{
    if (T == 0 && !beta) memset(dbias, 0, (size_t)C * sizeof(real));
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < C; c += SPAN) {
        const int span = C - c < SPAN ? (int)(C - c) : SPAN;
        for (int64_t t0 = 0; t0 < T; t0 += BK_MHC_TOKEN_CHUNK) {
            const int64_t end = T - t0 < BK_MHC_TOKEN_CHUNK ? T : t0 + BK_MHC_TOKEN_CHUNK;
            real sum[SPAN] = {0};
            for (int64_t t = t0; t < end; t++)
                for (int i = 0; i < span; i++) sum[i] += dy[t * C + c + i];
            const int add = beta || t0 > 0;
            for (int i = 0; i < span; i++) dbias[c + i] = add ? dbias[c + i] + sum[i] : sum[i];
        }
    }
}

void BK_R(bk_mhc_post_bwd)(real *dx, int beta_x, real *dh_res, real *dh_post, real *dy, real *dbias,
                           int beta_bias, const real *g, const real *x, const real *h_res, const real *h_post,
                           const real *y, const real *bias, const bk_mhc_dropout *drop, int64_t T, int64_t n,
                           int64_t C)
{
    if (drop && drop->p <= 0) drop = NULL;
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < T; t++) {
        const token k = {h_res + t * n * n, h_post + t * n, y + t * C, bias};
        token_grad d;
        d.dx = dx + t * n * C, d.dy = dy + t * C, d.g = g + t * n * C, d.x = x + t * n * C;
        BK_MHC_BY_N(n, post_bwd_token, dh_res + t * n * n, dh_post + t * n, &d, beta_x, &k, drop, t, C);
    }
    if (dbias) sum_tokens(dbias, beta_bias, dy, T, C);
}
