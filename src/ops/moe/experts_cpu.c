#include "ops/moe/experts_cpu.h"

#include "base/lanes.h"
#include "base/realmath.h"
#include "ops/mlp/mlp_cpu.h"

#define FEW 16384 /* elements for which threads are not worth while */

static void activate(real *a, const real *h, int64_t n_rows, int64_t f, bk_expert_activation act)
{
    if (act.swiglu)
        BK_R(bk_swiglu_fwd)(a, h, n_rows, f);
    else
        BK_R(bk_gelu_fwd)(a, h, n_rows * f, act.tanh_form);
}

/* y[r] = p[r] x[r]; y may be x. */
static void scale_rows(real *y, const real *x, const real *probs, int64_t n_rows, int64_t width)
{
#pragma omp parallel for schedule(static) if (n_rows * width > FEW)
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < width; c++) y[r * width + c] = probs[r] * x[r * width + c];
}

static real dot(const real *a, const real *b, int64_t n)
{
    double sum = 0;
    BK_LANES_SUM(sum, i, n, (double)a[i] * (double)b[i]);
    return (real)sum;
}

void BK_R(bk_expert_act_fwd)(real *a, const real *h, const real *probs, int64_t n_rows, int64_t f,
                             bk_expert_activation act)
{
    activate(a, h, n_rows, f, act);
    scale_rows(a, a, probs, n_rows, f);
}

void BK_R(bk_expert_act_bwd)(real *dh, real *dprobs, const real *da, const real *h, const real *probs,
                             int64_t n_rows, int64_t f, bk_expert_activation act, real *scratch)
{
    activate(scratch, h, n_rows, f, act);
#pragma omp parallel for schedule(static) if (n_rows * f > FEW)
    for (int64_t r = 0; r < n_rows; r++) dprobs[r] = dot(da + r * f, scratch + r * f, f);
    scale_rows(scratch, da, probs, n_rows, f);
    if (act.swiglu)
        BK_R(bk_swiglu_bwd)(dh, scratch, h, n_rows, f, 0);
    else
        BK_R(bk_gelu_bwd)(dh, scratch, h, n_rows * f, act.tanh_form, 0);
}

void BK_R(bk_rows_bias_fwd)(real *y, const real *x, const real *probs, const real *bias, int64_t n_rows,
                            int64_t width)
{
#pragma omp parallel for schedule(static) if (n_rows * width > FEW)
    for (int64_t r = 0; r < n_rows; r++) {
        const real p = probs ? probs[r] : 1;
        for (int64_t c = 0; c < width; c++) y[r * width + c] = x[r * width + c] + p * bias[c];
    }
}

void BK_R(bk_rows_bias_bwd)(real *dbias, const real *dy, const real *probs, int64_t n_rows, int64_t width,
                            int beta)
{
#pragma omp parallel for schedule(static) if (n_rows * width > FEW)
    for (int64_t c = 0; c < width; c++) {
        double sum = beta ? (double)dbias[c] : 0;
        for (int64_t r = 0; r < n_rows; r++)
            sum += (probs ? (double)probs[r] : 1.0) * (double)dy[r * width + c];
        dbias[c] = (real)sum;
    }
}

void BK_R(bk_rows_bias_probs)(real *dprobs, const real *dy, const real *bias, int64_t n_rows, int64_t width)
{
#pragma omp parallel for schedule(static) if (n_rows * width > FEW)
    for (int64_t r = 0; r < n_rows; r++) dprobs[r] = dot(dy + r * width, bias, width);
}

void BK_R(bk_sigmoid_gate_fwd)(real *out, const real *y, const real *z, int64_t n_tokens, int64_t width)
{
#pragma omp parallel for schedule(static) if (n_tokens * width > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        const real s = bk_logistic(z[t]);
        for (int64_t c = 0; c < width; c++) out[t * width + c] = s * y[t * width + c];
    }
}

void BK_R(bk_sigmoid_gate_bwd)(real *dy, real *dz, const real *dout, const real *y, const real *z,
                               int64_t n_tokens, int64_t width)
{
#pragma omp parallel for schedule(static) if (n_tokens * width > FEW)
    for (int64_t t = 0; t < n_tokens; t++) {
        real rest;
        const real s = bk_logistic_pair(&rest, z[t]);
        dz[t] = dot(dout + t * width, y + t * width, width) * s * rest;
        for (int64_t c = 0; c < width; c++) dy[t * width + c] = s * dout[t * width + c];
    }
}
