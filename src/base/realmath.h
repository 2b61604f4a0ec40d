/* exp, the logistic function and the normal distribution for kernels: without branches or tables, so that a
 * loop over them becomes vector code. Errors: exp below 2 ulp where the result is normal; the others a few
 * ulp. The polynomials are Chebyshev interpolants, fitted for this file. */
#ifndef BK_BASE_REALMATH_H
#define BK_BASE_REALMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include "base/real.h"

#ifdef BK_REAL_F64
typedef uint64_t bk_real_bits;
typedef int64_t bk_real_int;
#define BK_EXP_MIN   (-746.0) /* exp is 0 below */
#define BK_EXP_MAX   710.0    /* and infinite above */
#define BK_ROUNDER   0x1.8p52 /* adding it rounds to an integer, which is then in the low bits */
#define BK_EXP_BIAS  1023
#define BK_EXP_SHIFT 52
#define BK_LN2_HI    0x1.62e42feep-1 /* 33 bits: its product with an exponent is exact */
#define BK_LN2_LO    0x1.a39ef35793c76p-33
#define BK_CDF_MAX   39.0
#define BK_HEAD_MASK UINT64_C(0xfffffffff8000000)
#else
typedef uint32_t bk_real_bits;
typedef int32_t bk_real_int;
#define BK_EXP_MIN   (-104.0f)
#define BK_EXP_MAX   89.0f
#define BK_ROUNDER   0x1.8p23f
#define BK_EXP_BIAS  127
#define BK_EXP_SHIFT 23
#define BK_LN2_HI    0x1.62ep-1f /* 13 bits */
#define BK_LN2_LO    0x1.0bfbe8p-15f
#define BK_CDF_MAX   15.0f
#define BK_HEAD_MASK UINT32_C(0xfffff000)
#endif

/* In front of a loop whose iterations are independent even where output and input are one array. GCC alone is
 * told: clang warns of each such loop that it leaves scalar, as it does without optimisation. */
#ifdef __clang__
#define BK_SIMD
#else
#define BK_SIMD _Pragma("omp simd")
#endif

/* A call would keep a loop from becoming vector code. */
#define BK_INLINE __attribute__((always_inline)) static inline

/* 2^n for an n that gives a normal number; something for any other n. */
BK_INLINE real bk_exp2_int(bk_real_int n)
{
    const bk_real_bits bits = ((bk_real_bits)n + BK_EXP_BIAS) << BK_EXP_SHIFT;
    real x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

BK_INLINE real bk_exp(real x)
{
    /* The comparisons are false for a NaN, which so passes through. */
    x = x < BK_EXP_MIN ? BK_EXP_MIN : x;
    x = x > BK_EXP_MAX ? BK_EXP_MAX : x;
    const real rounded = x * (real)1.4426950408889634 + BK_ROUNDER, n = rounded - BK_ROUNDER;
    bk_real_bits bits, zero;
    const real rounder = BK_ROUNDER;
    memcpy(&bits, &rounded, sizeof bits), memcpy(&zero, &rounder, sizeof zero);
    const bk_real_int in = (bk_real_int)(bits - zero); /* n as an integer */
    const real r = (x - n * BK_LN2_HI) - n * BK_LN2_LO;
#ifdef BK_REAL_F64
    real p = 2.09147553258932022e-9;
    p = p * r + 2.51053127296221018e-8;
    p = p * r + 2.75572734787185805e-7;
    p = p * r + 2.75572551700008874e-6;
    p = p * r + 2.48015873256774619e-5;
    p = p * r + 1.98412698750022788e-4;
    p = p * r + 1.38888888888837112e-3;
    p = p * r + 8.33333333332608312e-3;
    p = p * r + 4.16666666666666698e-2;
    p = p * r + 1.6666666666666671e-1;
    p = p * r + 0.5;
#else
    real p = 1.98910804639988e-4f;
    p = p * r + 1.39337307157921e-3f;
    p = p * r + 8.33331084464787e-3f;
    p = p * r + 4.16664641974057e-2f;
    p = p * r + 1.66666666817042e-1f;
    p = p * r + 5.00000001353872e-1f;
#endif
    p = p * (r * r) + r + 1;
    /* In two steps, because 2^n itself may be out of range at both ends. */
    const bk_real_int half = in >> 1;
    return p * bk_exp2_int(half) * bk_exp2_int((bk_real_int)((bk_real_bits)in - (bk_real_bits)half));
}

BK_INLINE real bk_sqrt(real x)
{
#ifdef BK_REAL_F64
    return sqrt(x);
#else
    return sqrtf(x);
#endif
}

/* 1 / (1 + exp(-x)), and in `rest` one minus it, without cancellation in either. */
BK_INLINE real bk_logistic_pair(real *rest, real x)
{
    const real e = bk_exp(x < 0 ? x : -x), large = 1 / (1 + e), small = e * large;
    *rest = x < 0 ? large : small;
    return x < 0 ? small : large;
}

BK_INLINE real bk_logistic(real x)
{
    real rest;
    return bk_logistic_pair(&rest, x);
}

/* The distribution function of the normal distribution, to a few units in the last place of the result, in
 * the lower tail too: for t >= 0 cdf(-t) = exp(-t^2/2) * f(z) / (1 + t),   z = (t - 4) / (t + 4) */
BK_INLINE real bk_normal_cdf(real x)
{
    /* Beyond BK_CDF_MAX the tail is 0. */
    const real abs_x = x < 0 ? -x : x, t = abs_x > BK_CDF_MAX ? BK_CDF_MAX : abs_x;
    const real z = (t - 4) / (t + 4);
#ifdef BK_REAL_F64
    real f = -7.916719925880278e-10;
    f = f * z + -1.5506980833004738e-09;
    f = f * z + 6.249113664698089e-09;
    f = f * z + 1.7674889651836897e-08;
    f = f * z + -1.9913251999238056e-08;
    f = f * z + -1.110328886877407e-07;
    f = f * z + 1.4676600593283318e-09;
    f = f * z + 5.520151010249323e-07;
    f = f * z + 4.0448526036329704e-07;
    f = f * z + -2.6129103224764573e-06;
    f = f * z + -3.4321997119225085e-06;
    f = f * z + 1.3626869656340193e-05;
    f = f * z + 2.125004946489111e-05;
    f = f * z + -8.785318378131222e-05;
    f = f * z + -9.443025388719951e-05;
    f = f * z + 0.0006948971046100352;
    f = f * z + -0.0002856230979733444;
    f = f * z + -0.005002378591050549;
    f = f * z + 0.017936097479672987;
    f = f * z + -0.03219783742808545;
    f = f * z + 0.02860036405355088;
    f = f * z + 0.013999634724425405;
    f = f * z + -0.0967034773265258;
    f = f * z + 0.47205320650984467;
#else
    real f = -7.34134056496e-5f;
    f = f * z + -6.44840699777e-5f;
    f = f * z + 6.91795832112e-4f;
    f = f * z + -3.01115312551e-4f;
    f = f * z + -5.00300005662e-3f;
    f = f * z + 1.79396290139e-2f;
    f = f * z + -3.21976257289e-2f;
    f = f * z + 2.86000262263e-2f;
    f = f * z + 1.39996235543e-2f;
    f = f * z + -9.67034689972e-2f;
    f = f * z + 4.72053206539e-1f;
#endif
    /* t^2 to more than a real: its head has half the bits, so that head^2 is exact. */
    bk_real_bits head_bits;
    memcpy(&head_bits, &t, sizeof head_bits), head_bits &= BK_HEAD_MASK;
    real head;
    memcpy(&head, &head_bits, sizeof head);
    const real tail_sq = (t - head) * (t + head);
    const real lower = bk_exp((real)-0.5 * (head * head)) * bk_exp((real)-0.5 * tail_sq) * f / (1 + t);
    const real result = x < 0 ? lower : 1 - lower;
    return x != x ? x : result;
}

#endif
