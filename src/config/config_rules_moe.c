/* Rules of mixture of experts: what may not be combined, and the sentence that says so. */
#include <inttypes.h>
#include <math.h>

#include "base/size.h"
#include "config/moe_options.h"
#include "config/option.h"

#define CITE(c, name) bk_config_cite((char[BK_CITE_LEN]){0}, (c), BK_OPT_##name)

static bk_status choice_is_possible(const bk_config *c, bk_err *e)
{
    if (c->moe_router_topk > c->num_experts)
        return bk_err_set(e, BK_E_INPUT, "%s is above %s; a token cannot use an expert twice, so lower it",
                          CITE(c, moe_router_topk), CITE(c, num_experts));
    if (c->moe_router_topk == 1 && c->moe_router_score_function == BK_SCORE_SOFTMAX &&
        !c->moe_router_pre_softmax)
        return bk_err_set(
            e, BK_E_INPUT,
            "%s with a softmax over the chosen experts alone gives every token probability 1; set "
            "moe_router_pre_softmax",
            CITE(c, moe_router_topk));
    if (c->moe_router_enable_expert_bias && c->moe_router_score_function == BK_SCORE_SOFTMAX)
        return bk_err_set(e, BK_E_INPUT,
                          "%s needs scores that do not depend on each other, and %s; set it to "
                          "sigmoid or drop the bias",
                          CITE(c, moe_router_enable_expert_bias), CITE(c, moe_router_score_function));
    return BK_OK;
}

static bk_status groups_fit(const bk_config *c, bk_err *e)
{
    const int64_t groups = c->moe_router_num_groups, kept = c->moe_router_group_topk;
    if (groups == BK_UNSET_COUNT && kept == BK_UNSET_COUNT) return BK_OK;
    if (groups == BK_UNSET_COUNT || kept == BK_UNSET_COUNT)
        return bk_err_set(e, BK_E_INPUT, "%s needs %s beside it; set both or neither",
                          kept == BK_UNSET_COUNT ? CITE(c, moe_router_num_groups)
                                                 : CITE(c, moe_router_group_topk),
                          kept == BK_UNSET_COUNT ? "moe_router_group_topk" : "moe_router_num_groups");
    if (c->num_experts % groups != 0)
        return bk_err_set(e, BK_E_INPUT, "%s is not a multiple of %s; every group needs as many experts",
                          CITE(c, num_experts), CITE(c, moe_router_num_groups));
    if (kept > groups)
        return bk_err_set(e, BK_E_INPUT, "%s is above %s; lower it", CITE(c, moe_router_group_topk),
                          CITE(c, moe_router_num_groups));
    if (c->moe_router_topk < kept || c->moe_router_topk > kept * (c->num_experts / groups))
        return bk_err_set(e, BK_E_INPUT,
                          "%s does not suit %s: the groups that a token keeps have %" PRId64
                          " experts, and it uses at least one of each on average; change one of them",
                          CITE(c, moe_router_topk), CITE(c, moe_router_group_topk),
                          kept * (c->num_experts / groups));
    return BK_OK;
}

static bk_status options_have_their_switch(const bk_config *c, bk_err *e)
{
    if (c->moe_pad_expert_input_to_capacity && isnan(c->moe_expert_capacity_factor))
        return bk_err_set(e, BK_E_INPUT, "%s pads to nothing without moe_expert_capacity_factor; set it",
                          CITE(c, moe_pad_expert_input_to_capacity));
    if (c->moe_shared_expert_gate && c->moe_shared_expert_intermediate_size == 0)
        return bk_err_set(e, BK_E_INPUT,
                          "%s gates nothing without moe_shared_expert_intermediate_size; set it",
                          CITE(c, moe_shared_expert_gate));
    return BK_OK;
}

static bk_status lists_are_sound(const bk_config *c, bk_err *e)
{
    bk_arena arena = {0};
    bk_balance balance[BK_N_BALANCES];
    int n;
    bool *has_experts = bk_arena_alloc(&arena, c->num_layers, sizeof *has_experts);
    bk_status st = has_experts ? bk_config_moe_layers(has_experts, c, e)
                               : bk_err_set(e, BK_E_MEM, "config: out of memory");
    if (st == BK_OK) st = bk_config_balances(balance, &n, c, e);
    bk_arena_free(&arena);
    return st;
}

static bk_status ranks_share_experts(const bk_config *c, bk_err *e)
{
    if (c->expert_model_parallel_size == 1) return BK_OK;
    if (c->num_experts == 0)
        return bk_err_set(e, BK_E_INPUT, "%s needs num_experts; a model without experts has none to share",
                          CITE(c, expert_model_parallel_size));
    if (c->num_experts % c->expert_model_parallel_size != 0)
        return bk_err_set(e, BK_E_INPUT, "%s is not a multiple of %s; every rank holds as many experts",
                          CITE(c, num_experts), CITE(c, expert_model_parallel_size));
    return BK_OK;
}

/* The pairs of token and expert are numbered with 31 bits, and the tensors of the experts have at most 2^48
 * elements, as all others. */
static bk_status capacities_fit(const bk_config *c, bk_err *e)
{
    int64_t tokens, pairs, all, widest = c->hidden_size, elements;
    if (2 * c->moe_ffn_hidden_size > widest) widest = 2 * c->moe_ffn_hidden_size;
    if (2 * c->moe_shared_expert_intermediate_size > widest)
        widest = 2 * c->moe_shared_expert_intermediate_size;
    const bool ok = bk_mul64(&tokens, c->seq_length, c->micro_batch_size) &&
                    bk_mul64(&pairs, tokens, c->moe_router_topk) && pairs <= INT32_MAX &&
                    bk_mul64(&all, pairs, c->expert_model_parallel_size) && all <= INT32_MAX &&
                    bk_mul64(&elements, tokens, c->num_experts) && elements <= INT64_C(1) << 48 &&
                    bk_mul64(&elements, all, widest) && elements <= INT64_C(1) << 48;
    if (!ok)
        return bk_err_set(
            e, BK_E_INPUT,
            "%s, %s, %s and %s give more routed tokens than can be numbered, or tensors of more than "
            "2^48 elements; lower one of them",
            CITE(c, seq_length), CITE(c, micro_batch_size), CITE(c, moe_router_topk),
            CITE(c, expert_model_parallel_size));
    /* An expert gets no more than all tokens, so a padded buffer has at most that for each expert. */
    if (!c->moe_pad_expert_input_to_capacity) return BK_OK;
    if (bk_mul64(&elements, bk_config_expert_capacity(c), c->num_experts) && elements <= INT32_MAX &&
        bk_mul64(&elements, elements, widest) && elements <= INT64_C(1) << 48)
        return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s gives the experts more than 2^31 rows or 2^48 elements; lower it",
                      CITE(c, moe_expert_capacity_factor));
}

bk_status bk_config_check_moe(const bk_config *c, bk_err *e)
{
    bk_status st = BK_OK;
    BK_TRY(ranks_share_experts(c, e));
    if (c->num_experts == 0) return BK_OK;
    BK_TRY(choice_is_possible(c, e));
    BK_TRY(groups_fit(c, e));
    BK_TRY(options_have_their_switch(c, e));
    BK_TRY(lists_are_sound(c, e));
    BK_TRY(capacities_fit(c, e));
done:
    return st;
}
