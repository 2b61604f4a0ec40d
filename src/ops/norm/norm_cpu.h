/* RMSNorm and LayerNorm over the last dim of x[T, C], forward and backward.
 *
 *   RMSNorm    y = x * rstd * gain,            rstd = 1 / sqrt(mean(x^2) + eps)
 *   LayerNorm  y = (x - mean) * rstd * gain + beta,  rstd = 1 / sqrt(var + eps), var biased
 *
 * gain = gamma + gamma_shift: gamma_shift is 1 where the stored parameter is gamma - 1 (zero-centred), else
 * 0. gamma NULL means a gain of 1, and there is no dgamma then. Sums run in double. A row's result depends on
 * that row alone. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>

/* Bytes of workspace (64-byte aligned) of either backward. */
int64_t BK_R(bk_norm_bwd_workspace)(int64_t n_tokens, int64_t width);

/* y [T, C], rstd [T]; x [T, C], gamma [C] or NULL. y may be x. */
void BK_R(bk_rmsnorm_fwd)(real *y, real *rstd, const real *x, const real *gamma, int64_t n_tokens,
                          int64_t width, double eps, double gamma_shift);

/* dx [T, C] (added to if beta_x), dgamma [C] (added to if beta_w; NULL if not wanted); dy, x [T, C], gamma
 * [C] or NULL, rstd [T]. dx may be dy. */
void BK_R(bk_rmsnorm_bwd)(real *dx, real *dgamma, const real *dy, const real *x, const real *gamma,
                          const real *rstd, int64_t n_tokens, int64_t width, double gamma_shift, int beta_x,
                          int beta_w, void *workspace);

/* y [T, C], mean [T], rstd [T]; x [T, C], gamma [C] or NULL, beta [C] or NULL. y may be x. */
void BK_R(bk_layernorm_fwd)(real *y, real *mean, real *rstd, const real *x, const real *gamma,
                            const real *beta, int64_t n_tokens, int64_t width, double eps,
                            double gamma_shift);

/* As bk_rmsnorm_bwd; dbeta [C] follows beta_w as dgamma does and may be NULL as well. */
void BK_R(bk_layernorm_bwd)(real *dx, real *dgamma, real *dbeta, const real *dy, const real *x,
                            const real *gamma, const real *mean, const real *rstd, int64_t n_tokens,
                            int64_t width, double gamma_shift, int beta_x, int beta_w, void *workspace);
