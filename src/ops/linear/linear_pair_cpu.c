/* The stacked weights [w1; w2] are put together in front of the product's own workspace: a copy of (N+M)*K
 * elements beside T*(N+M)*K multiply-adds. */
#include "ops/linear/linear_pair_cpu.h"

#include <string.h>

#include "base/size.h"
#include "ops/linear/gemm_cpu.h"

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t stacked_bytes(const bk_linear_pair_sizes *size)
{
    return bk_align_up((size->n_first + size->n_second) * size->n_in * (int64_t)sizeof(real), 64);
}

int64_t BK_R(bk_linear_pair_workspace)(const bk_linear_pair_sizes *size)
{
    const int64_t T = size->n_tokens, K = size->n_in, both = size->n_first + size->n_second;
    const int64_t fwd = BK_R(bk_gemm_workspace)(T, both, K), dgrad = BK_R(bk_gemm_workspace)(T, K, both);
    return stacked_bytes(size) + max64(max64(fwd, dgrad), BK_R(bk_gemm_workspace)(both, K, T));
}

/* Puts [w1; w2] into the workspace, and gives what is left of it. */
static void *stack(real **w, const real *w1, const real *w2, const bk_linear_pair_sizes *size,
                   void *workspace)
{
    const int64_t first = size->n_first * size->n_in, second = size->n_second * size->n_in;
    *w = workspace;
    if (first > 0) memcpy(*w, w1, (size_t)first * sizeof **w);
    if (second > 0) memcpy(*w + first, w2, (size_t)second * sizeof **w);
    return (char *)workspace + stacked_bytes(size);
}

void BK_R(bk_linear_pair_fwd)(real *y, const real *x, const real *w1, const real *w2,
                              const bk_linear_pair_sizes *size, bool deterministic, void *workspace)
{
    const int64_t T = size->n_tokens, K = size->n_in, both = size->n_first + size->n_second;
    real *w;
    void *rest = stack(&w, w1, w2, size, workspace);
    BK_R(bk_gemm)(y, x, w, T, both, K, false, true, K, K, both, 0, deterministic, rest);
}

void BK_R(bk_linear_pair_dgrad)(real *dx, const real *dy, const real *w1, const real *w2,
                                const bk_linear_pair_sizes *size, int beta, bool deterministic,
                                void *workspace)
{
    const int64_t T = size->n_tokens, K = size->n_in, both = size->n_first + size->n_second;
    real *w;
    void *rest = stack(&w, w1, w2, size, workspace);
    BK_R(bk_gemm)(dx, dy, w, T, K, both, false, false, both, K, K, beta, deterministic, rest);
}

void BK_R(bk_linear_pair_wgrad)(real *dw1, real *dw2, const real *dy, const real *x,
                                const bk_linear_pair_sizes *size, int beta1, int beta2, bool deterministic,
                                void *workspace)
{
    const int64_t T = size->n_tokens, K = size->n_in, N = size->n_first, M = size->n_second;
    void *rest = (char *)workspace + stacked_bytes(size);
    BK_R(bk_gemm)(dw1, dy, x, N, K, T, true, false, N + M, K, K, beta1, deterministic, rest);
    BK_R(bk_gemm)(dw2, T > 0 ? dy + N : dy, x, M, K, T, true, false, N + M, K, K, beta2, deterministic, rest);
}
