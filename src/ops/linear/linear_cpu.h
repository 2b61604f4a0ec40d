/* Linear layer, y = x W^T + bias, and its gradients. T tokens, K input features, N output features; all
 * tensors contiguous. Each call adds T*N*K to bk_tally_madds. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdbool.h>
#include <stdint.h>

/* Bytes of workspace (64-byte aligned) that is enough for each of the three calls. */
int64_t BK_R(bk_linear_workspace)(int64_t n_tokens, int64_t n_out, int64_t n_in);

/* y[T, N] = x[T, K] w[N, K]^T + bias[N]. bias may be NULL. */
void BK_R(bk_linear_fwd)(real *y, const real *x, const real *w, const real *bias, int64_t n_tokens,
                         int64_t n_out, int64_t n_in, bool deterministic, void *workspace);

/* dx[T, K] = dy[T, N] w[N, K], added to dx if beta is 1. */
void BK_R(bk_linear_dgrad)(real *dx, const real *dy, const real *w, int64_t n_tokens, int64_t n_out,
                           int64_t n_in, int beta, bool deterministic, void *workspace);

/* dw[N, K] = dy[T, N]^T x[T, K] and dbias[N] = sum over t of dy[t, :], each added if its beta is 1.
 * dbias may be NULL. */
void BK_R(bk_linear_wgrad)(real *dw, real *dbias, const real *dy, const real *x, int64_t n_tokens,
                           int64_t n_out, int64_t n_in, int beta_w, int beta_bias, bool deterministic,
                           void *workspace);
