#include "ops/mlp/mlp_cpu.h"

#include "base/realmath.h"

#define CHUNK 4096 /* elements that a thread takes at a time */

void BK_R(bk_swiglu_fwd)(real *a, const real *h, int64_t n_tokens, int64_t f)
{
#pragma omp parallel for schedule(static) if (n_tokens * f > CHUNK)
    for (int64_t t = 0; t < n_tokens; t++) {
        const real *gate = h + t * 2 * f, *up = gate + f;
        real *to = a + t * f;
        BK_SIMD
        for (int64_t c = 0; c < f; c++) to[c] = gate[c] * bk_logistic(gate[c]) * up[c];
    }
}

/* silu'(x) = s + x s (1 - s), s = logistic(x). beta is a constant at each call, so that the loop has no
 * branch. */
__attribute__((always_inline)) static inline void swiglu_row_bwd(real *dh, const real *da, const real *h,
                                                                 int64_t f, const int beta)
{
    BK_SIMD
    for (int64_t c = 0; c < f; c++) {
        real rest;
        const real gate = h[c], up = h[f + c], s = bk_logistic_pair(&rest, gate), silu = gate * s;
        const real dgate = da[c] * up * (s + silu * rest), dup = da[c] * silu;
        dh[c] = beta ? dh[c] + dgate : dgate;
        dh[f + c] = beta ? dh[f + c] + dup : dup;
    }
}

void BK_R(bk_swiglu_bwd)(real *dh, const real *da, const real *h, int64_t n_tokens, int64_t f, int beta)
{
#pragma omp parallel for schedule(static) if (n_tokens * f > CHUNK)
    for (int64_t t = 0; t < n_tokens; t++) {
        if (beta)
            swiglu_row_bwd(dh + t * 2 * f, da + t * f, h + t * 2 * f, f, 1);
        else
            swiglu_row_bwd(dh + t * 2 * f, da + t * f, h + t * 2 * f, f, 0);
    }
}

#define GELU_A ((real)0.79788456080286535588) /* sqrt(2/pi) */
#define GELU_B ((real)0.044715)
#define PDF_0  ((real)0.39894228040143267794) /* 1/sqrt(2 pi) */

/* 0.5 (1 + tanh(u)) is logistic(2u), which has no cancellation for large negative u. */
BK_INLINE real gelu_tanh(real x)
{
    return x * bk_logistic(2 * GELU_A * (x + GELU_B * x * x * x));
}

BK_INLINE real gelu_tanh_slope(real x)
{
    /* Held where the slope is 0 or 1 to the last bit, lest x^2 = infinity meet rest = 0. */
    const real t = x > 40 ? 40 : x < -40 ? -40 : x;
    real rest;
    const real s = bk_logistic_pair(&rest, 2 * GELU_A * (t + GELU_B * t * t * t));
    return s + t * s * rest * (2 * GELU_A) * (1 + 3 * GELU_B * t * t);
}

BK_INLINE real gelu_erf(real x)
{
    return x * bk_normal_cdf(x);
}

BK_INLINE real gelu_erf_slope(real x)
{
    return bk_normal_cdf(x) + x * PDF_0 * bk_exp(-(x * x) / 2);
}

/* A loop over n elements in chunks; `statement` is about element i. */
#define FOR_ELEMENTS(statement)                                                                              \
    _Pragma("omp parallel for schedule(static) if (n > CHUNK)") for (int64_t i0 = 0; i0 < n; i0 += CHUNK)    \
    {                                                                                                        \
        const int64_t end = i0 + CHUNK < n ? i0 + CHUNK : n;                                                 \
        BK_SIMD for (int64_t i = i0; i < end; i++) statement;                                                \
    }

void BK_R(bk_gelu_fwd)(real *y, const real *x, int64_t n, bool tanh_form)
{
    if (tanh_form)
        FOR_ELEMENTS(y[i] = gelu_tanh(x[i]))
    else
        FOR_ELEMENTS(y[i] = gelu_erf(x[i]))
}

void BK_R(bk_gelu_bwd)(real *dx, const real *dy, const real *x, int64_t n, bool tanh_form, int beta)
{
    if (tanh_form && beta)
        FOR_ELEMENTS(dx[i] += dy[i] * gelu_tanh_slope(x[i]))
    else if (tanh_form)
        FOR_ELEMENTS(dx[i] = dy[i] * gelu_tanh_slope(x[i]))
    else if (beta)
        FOR_ELEMENTS(dx[i] += dy[i] * gelu_erf_slope(x[i]))
    else
        FOR_ELEMENTS(dx[i] = dy[i] * gelu_erf_slope(x[i]))
}
