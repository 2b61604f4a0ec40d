/* Two linear layers of one input as one product: y = x [w1; w2]^T, and its gradients. T tokens, K input
 * features, N and M output features; all tensors contiguous. Each call adds T*(N+M)*K to bk_tally_madds. */
#ifndef BK_R
#include "base/real.h"
#endif
#include <stdbool.h>
#include <stdint.h>

#ifndef BK_LINEAR_PAIR_CPU_SIZES
#define BK_LINEAR_PAIR_CPU_SIZES
typedef struct {
    int64_t n_tokens, n_first, n_second, n_in; /* T, N, M, K */
} bk_linear_pair_sizes;
#endif

/* Bytes of workspace (64-byte aligned) that is enough for each of the three calls. */
int64_t BK_R(bk_linear_pair_workspace)(const bk_linear_pair_sizes *size);

/* y[T, N+M] = x[T, K] [w1[N, K]; w2[M, K]]^T: the same bits as two products. */
void BK_R(bk_linear_pair_fwd)(real *y, const real *x, const real *w1, const real *w2,
                              const bk_linear_pair_sizes *size, bool deterministic, void *workspace);

/* dx[T, K] = dy[T, N+M] [w1; w2], added to dx if beta is 1. */
void BK_R(bk_linear_pair_dgrad)(real *dx, const real *dy, const real *w1, const real *w2,
                                const bk_linear_pair_sizes *size, int beta, bool deterministic,
                                void *workspace);

/* dw1[N, K] = dy[:, :N]^T x and dw2[M, K] = dy[:, N:]^T x, each added if its beta is 1: the same bits as two
 * products. */
void BK_R(bk_linear_pair_wgrad)(real *dw1, real *dw2, const real *dy, const real *x,
                                const bk_linear_pair_sizes *size, int beta1, int beta2, bool deterministic,
                                void *workspace);
