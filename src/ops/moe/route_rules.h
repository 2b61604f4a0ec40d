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

/* BK_E_INPUT unless input k is floating-point [S, B, E] with at least one expert. */
static inline bk_status bk_route_logits(const bk_graph *g, const bk_op *op, int k, bk_err *e)
{
    const bk_value *v = bk_in(g, op, k);
    char text[BK_OPERAND_TEXT];
    if (bk_dtype_is_float(v->dtype) && v->rank == 3 && v->dim[2].size > 0) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s: expected floating-point logits [S, B, E]",
                      bk_operand_text(text, g, op, k));
}

/* BK_E_INPUT: element `at` of index [T, topk] is no expert. */
static inline bk_status bk_route_no_expert(const int32_t *index, int64_t at, int64_t topk, int64_t experts,
                                           bk_err *e)
{
    return bk_err_set(e, BK_E_INPUT,
                      "expert %" PRId32 " of token %" PRId64 " is none of the %" PRId64 " experts", index[at],
                      at / topk, experts);
}

#endif
