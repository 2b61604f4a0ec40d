/* Word and position embedding. Activations are [S, B, C], token ids [B, S] and in 0 .. V-1. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>

/* y[s, b, :] = w[tokens[b, s], :], w [V, C]. Returns -1, or the index in `tokens` of the first id outside
 * 0 .. V-1; y is then not written. */
int64_t BK_R(bk_embed_word_fwd)(real *y, const real *w, const int32_t *tokens, int64_t n_positions,
                                int64_t n_samples, int64_t width, int64_t n_vocab);

/* dw[V, C] = (beta 1: dw +) the sum of dy[s, b, :] over the tokens of each id, in the order of s, then b.
 * Returns as the forward does; dw is not written on a bad id. */
int64_t BK_R(bk_embed_word_bwd)(real *dw, const real *dy, const int32_t *tokens, int64_t n_positions,
                                int64_t n_samples, int64_t width, int64_t n_vocab, int beta);

/* y[s, b, :] = x[s, b, :] + p[s, :], p [at least S, C]. y may be x. */
void BK_R(bk_embed_position_fwd)(real *y, const real *x, const real *p, int64_t n_positions,
                                 int64_t n_samples, int64_t width);

/* dp[s, :] = sum over b of dy[s, b, :], added to if beta is 1; rows from S to n_rows are zeroed (beta 0) or
 * left (beta 1). */
void BK_R(bk_embed_position_bwd)(real *dp, const real *dy, int64_t n_positions, int64_t n_samples,
                                 int64_t width, int64_t n_rows, int beta);
