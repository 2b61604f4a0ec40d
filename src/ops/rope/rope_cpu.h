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

/* YaRN (Peng et al., arXiv:2309.00071): for sequences longer by `factor` than the `original` positions,
 * angles that make fewer than beta_slow turns within those are divided by the factor, angles that make more
 * than beta_fast are kept, and between the two lies a ramp over the pairs, as in Megatron:
 *
 *   theta_i = base^(-2i/d) * (1 - r_i + r_i / factor),  r_i = (i - low) / (high - low) within [0, 1]
 *   low     = floor of d ln(original / (2 pi beta_fast)) / (2 ln base), at least 0
 *   high    = ceil of the same with beta_slow, at most d - 1; low + 0.001 where both are one
 *
 * Both tables are multiplied by the concentration. */
#ifndef BK_ROPE_CPU_YARN
#define BK_ROPE_CPU_YARN
typedef struct {
    double factor, beta_fast, beta_slow, concentration;
    int64_t original;
} bk_yarn;
#endif

/* cos, sin [S, d/2] as bk_rope_table, of YaRN's angles. base is above 1. */
void BK_R(bk_yarn_table)(real *cos_table, real *sin_table, int64_t n_positions, int64_t first_position,
                         int64_t d, double base, const bk_yarn *yarn);

/* Rotates dims first..first+d-1 of each head of x into y; the others of its hd dims pass through.
 *   y, x  S positions, B samples, G groups of R heads of hd dims, at the strides ys and xs
 *   cos_table, sin_table [S, d/2]
 * inverse turns by the negative angles, which is also the backward (dx from dy). beta 1 adds the result to y,
 * beta 0 writes it. y may be x with the same strides (beta 0), but not with DEINTERLEAVE. */
void BK_R(bk_rope_apply)(real *y, bk_heads ys, const real *x, bk_heads xs, const real *cos_table,
                         const real *sin_table, int64_t n_positions, int64_t n_samples, int64_t n_groups,
                         int64_t heads_per_group, int64_t first, int64_t d, int64_t hd, bk_rope_layout layout,
                         bool inverse, int beta);
