/* Rotary position embedding (Su et al., "RoFormer", 2021). Pair i of d/2 turns by the angle p * base^(-2i/d)
 * at position p. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdbool.h>
#include <stdint.h>
#include "base/heads.h"

#ifndef BK_ROPE_CPU_LAYOUT
#define BK_ROPE_CPU_LAYOUT
typedef enum {
    BK_ROPE_HALVES,       /* pair i is (x[i], x[i + d/2]) */
    BK_ROPE_INTERLEAVED,  /* pair i is (x[2i], x[2i + 1]) */
    BK_ROPE_DEINTERLEAVE, /* read as INTERLEAVED, written as HALVES; the inverse reads HALVES, writes
                             INTERLEAVED */
} bk_rope_layout;
#endif

/* cos, sin [S, d/2]: of the angles at positions first_position .. first_position + S - 1, computed in double
 * and rounded once. d is even. */
void BK_R(bk_rope_table)(real *cos_table, real *sin_table, int64_t n_positions, int64_t first_position,
                         int64_t d, double base);

/* Rotates dims 0..d-1 of each head of x into y; dims d..hd-1 pass through.
 *   y, x  S positions, B samples, G groups of R heads of hd dims, at the strides ys and xs
 *   cos_table, sin_table [S, d/2]
 * inverse turns by the negative angles, which is also the backward (dx from dy). beta 1 adds the result to y,
 * beta 0 writes it. y may be x with the same strides (beta 0), but not with DEINTERLEAVE. */
void BK_R(bk_rope_apply)(real *y, bk_heads ys, const real *x, bk_heads xs, const real *cos_table,
                         const real *sin_table, int64_t n_positions, int64_t n_samples, int64_t n_groups,
                         int64_t heads_per_group, int64_t d, int64_t hd, bk_rope_layout layout, bool inverse,
                         int beta);
