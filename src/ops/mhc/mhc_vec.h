/* Vectors of `real` for the mHC kernels, in the vector extension of GCC and clang. `vec` is the natural
 * register; pointers of this type may be unaligned. Vectors go through pointers, never by value through a
 * call: without AVX-512 that would change the calling convention.
 *
 * Kernels are written once over a stream count n and inlined with constants for the counts in BK_MHC_BY_N, so
 * that the small loops over streams unroll and the sums stay in registers. */
#ifndef BK_OPS_MHC_VEC_H
#define BK_OPS_MHC_VEC_H

#include <stdint.h>
#include <string.h>

#include "base/real.h"
#include "ops/mhc/mhc_sizes.h"

#ifdef __AVX512F__
#define VEC_BYTES 64
#else
#define VEC_BYTES 32
#endif
_Static_assert(VEC_BYTES <= BK_MHC_LANE_BYTES, "the workspace is sized for BK_MHC_LANE_BYTES");

typedef real vec __attribute__((vector_size(VEC_BYTES), aligned(sizeof(real)), may_alias));

enum { LANES = VEC_BYTES / (int)sizeof(real) };

#define INLINE      static inline __attribute__((always_inline))
#define AT(p)       (*(vec *)(p))
#define AT_CONST(p) (*(const vec *)(p))

/* Reads or writes the first `count` lanes; the constant count LANES is one plain access. */
INLINE void vec_load(vec *v, const real *p, int count)
{
    if (count == LANES) {
        *v = AT_CONST(p);
        return;
    }
    real lanes[LANES] = {0};
    for (int l = 0; l < count; l++) lanes[l] = p[l];
    *v = AT_CONST(lanes);
}

INLINE void vec_store(real *p, const vec *v, int count)
{
    if (count == LANES) {
        AT(p) = *v;
        return;
    }
    real lanes[LANES];
    AT(lanes) = *v;
    for (int l = 0; l < count; l++) p[l] = lanes[l];
}

/* beta = 0 writes v, beta = 1 adds it. */
INLINE void vec_update(real *p, const vec *v, int beta, int count)
{
    vec old = *v;
    if (beta) {
        vec_load(&old, p, count);
        old += *v;
    }
    vec_store(p, &old, count);
}

/* Sum of the lanes, halves first: one order everywhere. */
INLINE real vec_sum(const vec *v)
{
    real lanes[LANES];
    AT(lanes) = *v;
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

/* for (c, count) over C channels: whole vectors, then one part of a vector. `body` is inlined for both. */
#define BK_MHC_CHANNELS(C, body)                                                                             \
    do {                                                                                                     \
        int64_t c = 0;                                                                                       \
        for (; c + LANES <= (C); c += LANES) body(c, LANES);                                                 \
        if (c < (C)) body(c, (int)((C)-c));                                                                  \
    } while (0)

/* Calls f(n, ...) with n a constant where it pays. */
#define BK_MHC_BY_N(n, f, ...)                                                                               \
    do {                                                                                                     \
        switch (n) {                                                                                         \
        case 1:                                                                                              \
            f(1, __VA_ARGS__);                                                                               \
            break;                                                                                           \
        case 2:                                                                                              \
            f(2, __VA_ARGS__);                                                                               \
            break;                                                                                           \
        case 4:                                                                                              \
            f(4, __VA_ARGS__);                                                                               \
            break;                                                                                           \
        case 8:                                                                                              \
            f(8, __VA_ARGS__);                                                                               \
            break;                                                                                           \
        default:                                                                                             \
            f((int)(n), __VA_ARGS__);                                                                        \
            break;                                                                                           \
        }                                                                                                    \
    } while (0)

#endif
