/* Expand, aggregate and their gradients: one pass over the streams, a vector of channels of all n streams at
 * a time. Tokens are independent, so any split over threads gives the same bits. */
#include "ops/mhc/mhc_cpu.h"
#include "ops/mhc/mhc_vec.h"

void BK_R(bk_mhc_expand)(real *x, const real *h, int64_t T, int64_t n, int64_t C)
{
#pragma omp parallel for schedule(static) if (T * n * C > 1 << 14)
    for (int64_t t = 0; t < T; t++)
        for (int64_t j = 0; j < n; j++) memcpy(x + (t * n + j) * C, h + t * C, (size_t)C * sizeof(real));
}

INLINE void sum_streams(int n, real *dh, const real *dx, int beta, int64_t C)
{
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vec sum = {0};                                                                                       \
        for (int j = 0; j < n; j++) {                                                                        \
            vec d;                                                                                           \
            vec_load(&d, dx + j * C + (c), count);                                                           \
            sum += d;                                                                                        \
        }                                                                                                    \
        vec_update(dh + (c), &sum, beta, count);                                                             \
    } while (0)
    BK_MHC_CHANNELS(C, BODY);
#undef BODY
}

void BK_R(bk_mhc_expand_bwd)(real *dh, const real *dx, int beta, int64_t T, int64_t n, int64_t C)
{
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < T; t++) BK_MHC_BY_N(n, sum_streams, dh + t * C, dx + t * n * C, beta, C);
}

INLINE void aggregate(int n, real *a, const real *x, const real *h_pre, int64_t C)
{
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vec sum = {0};                                                                                       \
        for (int j = 0; j < n; j++) {                                                                        \
            vec v;                                                                                           \
            vec_load(&v, x + j * C + (c), count);                                                            \
            sum += h_pre[j] * v;                                                                             \
        }                                                                                                    \
        vec_store(a + (c), &sum, count);                                                                     \
    } while (0)
    BK_MHC_CHANNELS(C, BODY);
#undef BODY
}

void BK_R(bk_mhc_aggregate)(real *a, const real *x, const real *h_pre, int64_t T, int64_t n, int64_t C)
{
#pragma omp parallel for schedule(static) if (T * n * C > 1 << 14)
    for (int64_t t = 0; t < T; t++) BK_MHC_BY_N(n, aggregate, a + t * C, x + t * n * C, h_pre + t * n, C);
}

INLINE void aggregate_bwd(int n, real *dh_pre, real *dx, int beta, const real *da, const real *x,
                          const real *h_pre, int64_t C)
{
    vec dots[BK_MHC_MAX_STREAMS];
    for (int j = 0; j < n; j++) dots[j] = (vec){0};
#define BODY(c, count)                                                                                       \
    do {                                                                                                     \
        vec d;                                                                                               \
        vec_load(&d, da + (c), count);                                                                       \
        for (int j = 0; j < n; j++) {                                                                        \
            vec v;                                                                                           \
            vec_load(&v, x + j * C + (c), count);                                                            \
            dots[j] += d * v;                                                                                \
            v = h_pre[j] * d;                                                                                \
            vec_update(dx + j * C + (c), &v, beta, count);                                                   \
        }                                                                                                    \
    } while (0)
    BK_MHC_CHANNELS(C, BODY);
#undef BODY
    for (int j = 0; j < n; j++) dh_pre[j] = vec_sum(&dots[j]);
}

void BK_R(bk_mhc_aggregate_bwd)(real *dh_pre, real *dx, int beta, const real *da, const real *x,
                                const real *h_pre, int64_t T, int64_t n, int64_t C)
{
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < T; t++)
        BK_MHC_BY_N(n, aggregate_bwd, dh_pre + t * n, dx + t * n * C, beta, da + t * C, x + t * n * C,
                    h_pre + t * n, C);
}
