/* Sums and maxima in a fixed number of lanes, folded in a fixed order: the loops become vector code without
 * leave to reorder sums, and the bits depend on the data alone. Sums run in double. */
#ifndef BK_BASE_LANES_H
#define BK_BASE_LANES_H

#include <stdint.h>
#include "base/real.h"

#define BK_LANES 16

static inline double bk_lanes_fold(double acc[BK_LANES])
{
    for (int half = BK_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) acc[l] += acc[l + half];
    return acc[0];
}

/* BK_LANES_SUM(result, i, n, term): result = the sum of term, an expression in i, over i in 0 .. n-1. */
#define BK_LANES_SUM(result, i, n, term)                                                                     \
    do {                                                                                                     \
        double lanes_acc[BK_LANES] = {0};                                                                    \
        int64_t lanes_i = 0;                                                                                 \
        for (; lanes_i + BK_LANES <= (n); lanes_i += BK_LANES)                                               \
            for (int lanes_l = 0; lanes_l < BK_LANES; lanes_l++) {                                           \
                const int64_t i = lanes_i + lanes_l;                                                         \
                lanes_acc[lanes_l] += (term);                                                                \
            }                                                                                                \
        for (int lanes_l = 0; lanes_i < (n); lanes_i++, lanes_l++) {                                         \
            const int64_t i = lanes_i;                                                                       \
            lanes_acc[lanes_l] += (term);                                                                    \
        }                                                                                                    \
        (result) = bk_lanes_fold(lanes_acc);                                                                 \
    } while (0)

/* The largest of n >= 1 elements; NaNs are passed over. */
static inline real bk_lanes_max(const real *x, int64_t n)
{
    real acc[BK_LANES];
    for (int l = 0; l < BK_LANES; l++) acc[l] = x[0];
    int64_t i = 0;
    for (; i + BK_LANES <= n; i += BK_LANES)
        for (int l = 0; l < BK_LANES; l++) acc[l] = x[i + l] > acc[l] ? x[i + l] : acc[l];
    for (; i < n; i++) acc[0] = x[i] > acc[0] ? x[i] : acc[0];
    for (int l = 1; l < BK_LANES; l++) acc[0] = acc[l] > acc[0] ? acc[l] : acc[0];
    return acc[0];
}

#endif
