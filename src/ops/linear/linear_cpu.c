#include "ops/linear/linear_cpu.h"

#include "base/column_sum.h"
#include "ops/linear/gemm_cpu.h"

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t BK_R(bk_linear_workspace)(int64_t n_tokens, int64_t n_out, int64_t n_in)
{
    const int64_t fwd = BK_R(bk_gemm_workspace)(n_tokens, n_out, n_in);
    const int64_t dgrad = BK_R(bk_gemm_workspace)(n_tokens, n_in, n_out);
    return max64(max64(fwd, dgrad), BK_R(bk_gemm_workspace)(n_out, n_in, n_tokens));
}

void BK_R(bk_linear_fwd)(real *y, const real *x, const real *w, const real *bias, int64_t n_tokens,
                         int64_t n_out, int64_t n_in, bool deterministic, void *workspace)
{
    BK_R(bk_gemm)
    (y, x, w, n_tokens, n_out, n_in, false, true, n_in, n_in, n_out, 0, deterministic, workspace);
    if (!bias) return;
#pragma omp parallel for schedule(static) if (n_tokens * n_out > 1 << 14)
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t n = 0; n < n_out; n++) y[t * n_out + n] += bias[n];
}

void BK_R(bk_linear_dgrad)(real *dx, const real *dy, const real *w, int64_t n_tokens, int64_t n_out,
                           int64_t n_in, int beta, bool deterministic, void *workspace)
{
    BK_R(bk_gemm)
    (dx, dy, w, n_tokens, n_in, n_out, false, false, n_out, n_in, n_in, beta, deterministic, workspace);
}

void BK_R(bk_linear_wgrad)(real *dw, real *dbias, const real *dy, const real *x, int64_t n_tokens,
                           int64_t n_out, int64_t n_in, int beta_w, int beta_bias, bool deterministic,
                           void *workspace)
{
    BK_R(bk_gemm)
    (dw, dy, x, n_out, n_in, n_tokens, true, false, n_out, n_in, n_in, beta_w, deterministic, workspace);
    if (dbias) bk_column_sum(dbias, dy, n_tokens, n_out, beta_bias);
}
