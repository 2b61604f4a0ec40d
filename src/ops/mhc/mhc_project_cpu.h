/* The projection of flattened streams by few rows, p = x W^T, and its gradients: the core of the mapping (N =
 * n*n + 2n rows) and of the learned contraction (n rows). Internal to the mHC kernels. */
#include "ops/mhc/mhc_vec.h"

enum { PROJECT_TILE = 16 }; /* tokens that share one read of W */

/* p[t,o] = sum_k W[o,k] x[t,k],   square_sum[t] = sum_k x[t,k]^2,   for `tokens` <= PROJECT_TILE tokens.
 * Serial; x is read from memory once. A token's bits do not depend on its place in the tile. */
void BK_R(bk_mhc_project)(real *p, real *square_sum, const real *x, const real *W, int tokens, int64_t N,
                          int64_t K);

/* dW[o,k] = beta_w*dW[o,k] + sum_t dp[t,o] x[t,k]
 * dx[t,k] = beta_x*dx[t,k] + sum_o W[o,k] dp[t,o] + c[t] x[t,k]
 * Parallel over blocks of k, so each sum over tokens has one owner and one order. */
void BK_R(bk_mhc_project_bwd)(real *dx, int beta_x, real *dW, int beta_w, const real *dp, const real *c,
                              const real *x, const real *W, int64_t T, int64_t N, int64_t K);
