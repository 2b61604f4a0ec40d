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
typedef int64_t bk_real_bits;
#define BK_EXP_MIN   (-746.0) /* exp is 0 below */
#define BK_EXP_MAX   710.0    /* and infinite above */
#define BK_ROUNDER   0x1.8p52 /* adding it rounds to an integer, which is then in the low bits */
#define BK_EXP_BIAS  1023
#define BK_EXP_SHIFT 52
#define BK_LN2_HI    0x1.62e42feep-1 /* 33 bits: its product with an exponent is exact */
#define BK_LN2_LO    0x1.a39ef35793c76p-33
#else
typedef int32_t bk_real_bits;
#define BK_EXP_MIN   (-104.0f)
#define BK_EXP_MAX   89.0f
#define BK_ROUNDER   0x1.8p23f
#define BK_EXP_BIAS  127
#define BK_EXP_SHIFT 23
#define BK_LN2_HI    0x1.62ep-1f /* 13 bits */
#define BK_LN2_LO    0x1.0bfbe8p-15f
#endif

/* 2^n for an n that gives a normal number. */
static inline real bk_exp2_int(bk_real_bits n)
{
    const bk_real_bits bits = (n + BK_EXP_BIAS) * ((bk_real_bits)1 << BK_EXP_SHIFT);
    real x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline real bk_exp(real x)
{
    /* The comparisons are false for a NaN, which so passes through. */
    x = x < BK_EXP_MIN ? BK_EXP_MIN : x;
    x = x > BK_EXP_MAX ? BK_EXP_MAX : x;
    const real rounded = x * (real)1.4426950408889634 + BK_ROUNDER, n = rounded - BK_ROUNDER;
    bk_real_bits bits, zero;
    const real rounder = BK_ROUNDER;
    memcpy(&bits, &rounded, sizeof bits), memcpy(&zero, &rounder, sizeof zero);
    const bk_real_bits in = (bk_real_bits)((uint64_t)bits - (uint64_t)zero);
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
    const bk_real_bits half = in >> 1;
    return p * bk_exp2_int(half) * bk_exp2_int(in - half);
}

/* 1 / (1 + exp(-x)), and in `rest` one minus it, without cancellation in either. */
static inline real bk_logistic_pair(real *rest, real x)
{
    const real e = bk_exp(x < 0 ? x : -x), large = 1 / (1 + e), small = e * large;
    *rest = x < 0 ? large : small;
    return x < 0 ? small : large;
}

static inline real bk_logistic(real x)
{
    real rest;
    return bk_logistic_pair(&rest, x);
}

/* The distribution function of the normal distribution, good to a few ulp of itself in the lower tail too. */
static inline real bk_normal_cdf(real x)
{
#ifdef BK_REAL_F64
    return 0.5 * erfc(-0.70710678118654752 * x);
#else
    /* cdf(-t) = exp(-t^2/2) * f(z) / (1 + t), z = (t - 4) / (t + 4). Beyond 15 sigma it is 0. */
    const float abs_x = x < 0 ? -x : x, t = abs_x > 15 ? 15.0f : abs_x;
    const float z = (t - 4) / (t + 4);
    float f = -7.34134056496e-5f;
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
    /* t^2 to more than a float: its head has 12 bits, so that head^2 is exact. */
    uint32_t head_bits;
    memcpy(&head_bits, &t, sizeof head_bits), head_bits &= 0xfffff000u;
    float head;
    memcpy(&head, &head_bits, sizeof head);
    const float tail = t - head;
    const float tail_sq = tail * (t + head);
    const float lower = bk_exp(-0.5f * (head * head)) * bk_exp(-0.5f * tail_sq) * f / (1 + t);
    const float result = x < 0 ? lower : 1 - lower;
    return x != x ? x : result;
#endif
}

#endif
