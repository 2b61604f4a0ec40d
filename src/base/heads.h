/* How the heads of an activation lie in memory. An activation of S positions, B samples and G groups of R
 * heads need not be contiguous: it may be a part of a fused projection, whose rows hold, for each group, R
 * query heads, one key head and one value head. Element i of head (g, r) of token (s, b) stands at s * .s + b
 * * .b + g * .g + r * .r + i all in elements; i is contiguous. Head number h is g * R + r. */
#ifndef BK_BASE_HEADS_H
#define BK_BASE_HEADS_H

#include <stdint.h>

typedef struct {
    int64_t s, b, g, r;
} bk_heads;

/* The strides of a contiguous [S, B, G*R, hd]. */
static inline bk_heads bk_heads_dense(int64_t n_samples, int64_t n_groups, int64_t heads_per_group,
                                      int64_t hd)
{
    const int64_t group = heads_per_group * hd;
    return (bk_heads){.s = n_samples * n_groups * group, .b = n_groups * group, .g = group, .r = hd};
}

static inline int64_t bk_heads_at(bk_heads x, int64_t s, int64_t b, int64_t g, int64_t r)
{
    return s * x.s + b * x.b + g * x.g + r * x.r;
}

#endif
