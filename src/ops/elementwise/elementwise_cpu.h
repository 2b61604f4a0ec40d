/* Sums, copies and dropout. Activations are [S, B, C].
 *
 * Dropout keeps element c of token (s, b) where word c of position s of samples[b] (base/philox.h) is at
 * least bk_dropout_threshold(p), and scales what it keeps by 1/(1 - p). So forward and backward find the same
 * mask from key and samples alone. p = 0 is the identity; key and samples are not read then. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>
#include "base/philox.h"

void BK_R(bk_fill)(real *out, int64_t n, double value);

void BK_R(bk_copy)(real *out, const real *x, int64_t n);

/* out[i] = x[0][i] + x[1][i] + ... in that order; k >= 1 inputs. out may be any of the inputs. */
void BK_R(bk_add_n)(real *out, const real *const *x, int64_t k, int64_t n);

/* out = x (beta 0) or out += x (beta 1). */
void BK_R(bk_acc)(real *out, const real *x, int64_t n, int beta);

/* out = x (beta 0), or the larger of both (beta 1); a NaN is larger than any number. */
void BK_R(bk_acc_max)(real *out, const real *x, int64_t n, int beta);

/* y = x * factor, or y += x * factor with beta 1. y may be x. */
void BK_R(bk_scale)(real *y, const real *x, int64_t n, double factor, int beta);

/* y = drop(x). y may be x. */
void BK_R(bk_dropout_fwd)(real *y, const real *x, bk_rng_key key, const int64_t *samples, int64_t n_positions,
                          int64_t n_samples, int64_t width, double p);

/* dx = drop(dy), added to if beta is 1. dx may be dy (beta 0). */
void BK_R(bk_dropout_bwd)(real *dx, const real *dy, bk_rng_key key, const int64_t *samples,
                          int64_t n_positions, int64_t n_samples, int64_t width, double p, int beta);

/* out = res + drop(y + bias), bias [C] or NULL. out may be res or y. */
void BK_R(bk_residual_add_fwd)(real *out, const real *res, const real *y, const real *bias, bk_rng_key key,
                               const int64_t *samples, int64_t n_positions, int64_t n_samples, int64_t width,
                               double p);

/* The part of the backward that is not the identity (the gradient of res is g itself): dy [S, B, C] =
 * drop(g), added to if beta_y, and dbias [C] = the sum of drop(g) over tokens, added to if beta_bias. Either
 * may be NULL. dy may be g (beta 0). */
void BK_R(bk_residual_add_bwd)(real *dy, real *dbias, const real *g, bk_rng_key key, const int64_t *samples,
                               int64_t n_positions, int64_t n_samples, int64_t width, double p, int beta_y,
                               int beta_bias);
