/* CPU kernels of manifold-constrained hyper-connections (mHC, arXiv:2512.24880), forward and backward.
 *
 * Axes: T tokens, n streams (1..BK_MHC_MAX_STREAMS), C channels of a stream, K = n*C, N = n*n + 2n.
 *   x, x_next, dx, g   [T, n, C]  streams, channel fastest
 *   h_pre, h_post      [T, n]
 *   h_res              [T, n, n]  [t, src, dst], dst fastest; columns (sums over src) are 1 to 1e-6
 *   W                  [N, K]     rows 0..n-1 pre, n..2n-1 post, 2n + src*n + dst residual
 *   bias               [N]        as the rows of W
 *
 * Every function works on any T >= 0, uses the OpenMP threads of the caller's team size, allocates nothing
 * and gives the same bits whatever the number of threads. Outputs come first and must not overlap inputs.
 * `beta` is 0 (the output is written, its old content is not read) or 1 (the result is added to it). Sizes of
 * workspaces and counts of multiply-adds are in mhc_sizes.h; workspaces need the alignment of `real` only.
 * Arguments are not checked here: the public API (birkhoff/mhc.h) does that. The backward functions
 * differentiate exactly what the forward ones compute, the finite number of Sinkhorn rounds included. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdint.h>

#include "birkhoff/mhc.h"

/* x[t,j,c] = h[t,c].   h [T, C] */
void BK_R(bk_mhc_expand)(real *x, const real *h, int64_t T, int64_t n, int64_t C);

/* dh[t,c] = beta*dh[t,c] + sum_j dx[t,j,c].   dh [T, C] */
void BK_R(bk_mhc_expand_bwd)(real *dh, const real *dx, int beta, int64_t T, int64_t n, int64_t C);

/* The mapping: with A = alpha_pre | alpha_post | alpha_res by row range,
 *     p[t,o] = sum_k W[o,k] x[t,k]      q[t] = sqrt(sum_k x[t,k]^2 / K)      r = 1 / (q + 1e-6)
 *     z[o]   = r A[o] p[o] + bias[o]
 *     h_pre  = sigmoid(z) + 1e-6        h_post = 2 sigmoid(z)                h_res = Sinkhorn(z)
 * Sinkhorn, `iterations` >= 1: M = softmax over dst + 1e-6; columns: M /= sum over src + 1e-6; then
 * iterations-1 times rows, columns. (The paper starts from exp and has no epsilon.)
 *   p  [T, N]  and  q  [T]   are kept for the backward. */
void BK_R(bk_mhc_map)(real *h_pre, real *h_post, real *h_res, real *p, real *q, const real *x, const real *W,
                      const real *alpha_pre, const real *alpha_post, const real *alpha_res, const real *bias,
                      int64_t T, int64_t n, int64_t C, int64_t iterations);

/* Gradients of bk_mhc_map. dx (beta_x) may be the buffer that holds the gradients of the other readers of x;
 * dW [N, K], the three dalpha [1] and dbias [N] have one beta_w. The norm's derivative at a token of zeros is
 * taken as 0. T = 0 writes zeros to the parameter gradients (beta_w = 0) or leaves them (beta_w = 1).
 * workspace: bk_mhc_map_bwd_workspace(T, n, iterations, sizeof(real)) bytes. */
void BK_R(bk_mhc_map_bwd)(real *dx, int beta_x, real *dW, real *dalpha_pre, real *dalpha_post,
                          real *dalpha_res, real *dbias, int beta_w, const real *dh_pre, const real *dh_post,
                          const real *dh_res, const real *x, const real *W, const real *alpha_pre,
                          const real *alpha_post, const real *alpha_res, const real *bias, const real *p,
                          const real *q, int64_t T, int64_t n, int64_t C, int64_t iterations,
                          void *workspace);

/* a[t,c] = sum_j h_pre[t,j] x[t,j,c].   a [T, C] */
void BK_R(bk_mhc_aggregate)(real *a, const real *x, const real *h_pre, int64_t T, int64_t n, int64_t C);

/* dh_pre[t,j] = sum_c da[t,c] x[t,j,c];   dx[t,j,c] = beta*dx[t,j,c] + h_pre[t,j] da[t,c].   da [T, C] */
void BK_R(bk_mhc_aggregate_bwd)(real *dh_pre, real *dx, int beta, const real *da, const real *x,
                                const real *h_pre, int64_t T, int64_t n, int64_t C);

/* x_next[t,i,c] = sum_j h_res[t,j,i] x[t,j,c] + keep[t,i,c]/(1-p) h_post[t,i] (y[t,c] + bias[c])
 *   y     [T, C]  output of the sublayer
 *   bias  [C]     of the sublayer; NULL means 0
 *   drop          NULL or p = 0: keep/(1-p) is 1. Each stream has a mask of its own. */
void BK_R(bk_mhc_post)(real *x_next, const real *x, const real *h_res, const real *h_post, const real *y,
                       const real *bias, const bk_mhc_dropout *drop, int64_t T, int64_t n, int64_t C);

/* With g = dx_next, gd = keep/(1-p) g, u = y + bias:
 *     dx[t,j,c]     = beta_x*dx[t,j,c] + sum_i h_res[t,j,i] g[t,i,c]
 *     dh_res[t,j,i] = sum_c x[t,j,c] g[t,i,c]        dh_post[t,i] = sum_c gd[t,i,c] u[t,c]
 *     dy[t,c]       = sum_i h_post[t,i] gd[t,i,c]    dbias[c] = beta_bias*dbias[c] + sum_t dy[t,c]
 * dbias may be NULL (not wanted), whether or not bias is. */
void BK_R(bk_mhc_post_bwd)(real *dx, int beta_x, real *dh_res, real *dh_post, real *dy, real *dbias,
                           int beta_bias, const real *g, const real *x, const real *h_res, const real *h_post,
                           const real *y, const real *bias, const bk_mhc_dropout *drop, int64_t T, int64_t n,
                           int64_t C);

/* Learned contraction of the streams at the end of a block:
 *     rho = 1/sqrt(sum_k x[t,k]^2 / K + eps)   m[j] = rho sum_k V[j,k] x[t,k]
 *     w[j] = sigmoid(m[j] scale + base[j]) + eps      h[t,c] = sum_j w[j] x[t,j,c]
 *   h [T, C];  V [n, K];  scale [1];  base [n];  eps: the layer norm's epsilon, here in both places
 *   w [T, n], m [T, n], rho [T]   are kept for the backward. */
void BK_R(bk_mhc_contract)(real *h, real *w, real *m, real *rho, const real *x, const real *V,
                           const real *scale, const real *base, real eps, int64_t T, int64_t n, int64_t C);

/* Gradients of bk_mhc_contract; dh [T, C]. dV [n, K], dscale [1], dbase [n] share beta_w.
 * workspace: bk_mhc_contract_bwd_workspace(T, n, sizeof(real)) bytes. */
void BK_R(bk_mhc_contract_bwd)(real *dx, int beta_x, real *dV, real *dscale, real *dbase, int beta_w,
                               const real *dh, const real *x, const real *V, const real *scale, const real *w,
                               const real *m, const real *rho, real eps, int64_t T, int64_t n, int64_t C,
                               void *workspace);
