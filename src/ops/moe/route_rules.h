/* What the rules of the router and of its losses share. */
#ifndef BK_OPS_MOE_ROUTE_RULES_H
#define BK_OPS_MOE_ROUTE_RULES_H

#include <inttypes.h>
#include "ops/moe/score.h"
#include "ops/rules.h"

/* BK_E_INPUT unless `topk` of `experts` can be chosen and `score` is one of BK_SCORE_... */
static inline bk_status bk_route_need(int64_t topk, int64_t experts, int64_t score, bk_err *e)
{
    if (topk < 1 || topk > experts)
        return bk_err_set(e, BK_E_INPUT, "cannot choose topk %" PRId64 " of %" PRId64 " experts", topk,
                          experts);
    if (score < 0 || score >= BK_N_SCORES)
        return bk_err_set(e, BK_E_INPUT, "score %" PRId64 " is none of 0 softmax, 1 sigmoid, 2 sqrtsoftplus",
                          score);
    return BK_OK;
}

#endif
