/* Rows of tokens in the order of their experts. T tokens choose k experts each: T * k pairs, numbered t * k +
 * slot. R rows, of which those of expert e stand at segments[e] .. segments[e + 1] - 1; segments has E + 1
 * elements. */
#ifndef BK_R
#include "base/real.h"
#endif
#include "ops/moe/route.h"

/* Bytes of workspace (64-byte aligned) for bk_route_rows. */
int64_t BK_R(bk_route_rows_workspace)(int64_t n_pairs, int64_t n_experts);

/* Gives every pair whose expert (index [T, k]) is in the room a row, in the order of expert, then token:
 * pair_of_row [R], -1 where a row is empty, and row_of_pair [T, k], -1 where a pair has none. An expert with
 * more than `capacity` tokens keeps the most probable (probs [T, k], of equal ones the first) or the first.
 * Rows beyond the room are left out; excess [1] is their number. */
void BK_R(bk_route_rows)(int32_t *pair_of_row, int32_t *row_of_pair, int64_t *segments, int64_t *excess,
                         const int32_t *index, const real *probs, int64_t n_tokens, int64_t topk,
                         bk_route_room room, void *workspace);

/* rows [R, C]: row r is token pair_of_row[r] / k of x [T, C], 0 where that is -1. Only the first n_rows. */
void BK_R(bk_permute)(real *rows, const real *x, const int32_t *pair_of_row, int64_t n_rows, int64_t topk,
                      int64_t width);

/* y [T, C]: the sum over slots, in their order, of the token's rows. A pair without a row gives nothing. */
void BK_R(bk_unpermute)(real *y, const real *rows, const int32_t *row_of_pair, int64_t n_tokens, int64_t topk,
                        int64_t width);
