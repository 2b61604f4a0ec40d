/* The scores of a router and their slopes. The softmax has no score of one logit: its order is that of the
 * logits, so the logit stands for it. */
#ifndef BK_OPS_MOE_SCORE_CPU_H
#define BK_OPS_MOE_SCORE_CPU_H

#include "base/realmath.h"
#include "ops/moe/score.h"

/* In a sum of scores that divides, so that scores which are all 0 give 0. */
#define BK_SCORE_TINY 1e-20

/* ln(1 + exp(x)), without overflow for large x and without cancellation for small ones. */
BK_INLINE real bk_softplus(real x)
{
    const real e = bk_exp(x < 0 ? x : -x);
#ifdef BK_REAL_F64
    return (x > 0 ? x : 0) + log1p(e);
#else
    return (x > 0 ? x : 0) + log1pf(e);
#endif
}

/* sigmoid(x), sqrt(softplus(x)), or x itself for the softmax. */
BK_INLINE real bk_score(int score, real x)
{
    return score == BK_SCORE_SIGMOID        ? bk_logistic(x)
           : score == BK_SCORE_SQRTSOFTPLUS ? bk_sqrt(bk_softplus(x))
                                            : x;
}

/* The derivative of sigmoid or sqrt(softplus). The latter is exp(x/2) where x is so small that exp(x) is 0,
 * and its slope is 0 to the last bit there. */
BK_INLINE real bk_score_slope(int score, real x)
{
    real rest;
    const real s = bk_logistic_pair(&rest, x);
    if (score == BK_SCORE_SIGMOID) return s * rest;
    const real root = bk_sqrt(bk_softplus(x));
    return root == 0 ? 0 : s / (2 * root);
}

#endif
