#include "layout/layout.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "base/size.h"
#include "config/moe_options.h"

/* Micro-batches of a step on one rank. */
static bk_status divide_batch(bk_layout *l, const bk_config *c, bk_err *e)
{
    int64_t per_round; /* samples that all ranks take in one micro-batch */
    if (!bk_mul64(&per_round, l->micro_batch, l->axis_size[BK_AXIS_DP]) || l->global_batch % per_round != 0) {
        char global[BK_CITE_LEN], micro[BK_CITE_LEN];
        return bk_err_set(e, BK_E_INPUT,
                          "%s is not a multiple of %s times %" PRId32
                          " data-parallel ranks; change one of the batch sizes",
                          bk_config_cite(global, c, BK_OPT_global_batch_size),
                          bk_config_cite(micro, c, BK_OPT_micro_batch_size), l->axis_size[BK_AXIS_DP]);
    }
    l->n_micro = l->global_batch / per_round;
    return BK_OK;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool pads(const bk_layout *l, const bk_config *c)
{
    return l->expert_capacity > 0 && c->moe_pad_expert_input_to_capacity;
}

int64_t bk_layout_room(const bk_layout *l, const bk_config *c, double headroom)
{
    const double room = ceil(headroom * (double)l->sent_rows);
    const bool known = l->axis_size[BK_AXIS_EP] == 1 || pads(l, c);
    return known || room >= (double)l->most_rows ? l->most_rows : (int64_t)room;
}

/* Each of the T tokens of a rank makes k rows, of which an expert keeps no more than its capacity. Where one
 * rank holds all experts, these are what comes; of several ranks' tokens all could choose the experts of one
 * rank, each token min(k, local experts) of them. */
static void place_experts(bk_layout *l, const bk_config *c, int64_t capacity)
{
    if (c->num_experts == 0) return;
    const int64_t ranks = l->axis_size[BK_AXIS_EP], tokens = l->seq * l->micro_batch;
    const int64_t pairs = tokens * c->moe_router_topk; /* fits, as all below: config_rules_moe.c */
    l->n_local_experts = c->num_experts / ranks;
    l->first_expert = l->ep_rank * l->n_local_experts;
    l->expert_capacity = capacity;
    l->sent_rows = pairs;
    l->most_rows = ranks * tokens * least(c->moe_router_topk, l->n_local_experts);
    if (capacity > 0) {
        const int64_t kept = capacity * c->num_experts;
        l->sent_rows = pads(l, c) ? kept : least(pairs, kept);
        l->most_rows = pads(l, c) ? kept : least(l->most_rows, kept);
    }
    l->routed_rows = bk_layout_room(l, c, c->moe_capacity_headroom);
}

int32_t bk_layout_ranks(const bk_config *c)
{
    return (int32_t)c->expert_model_parallel_size; /* at most the experts */
}

bk_status bk_layout_resolve(bk_layout *out, const bk_config *c, int32_t n_ranks, bk_err *e)
{
    assert(c->seq_length > 0 && c->micro_batch_size > 0 && c->global_batch_size > 0);
    char ranks[BK_CITE_LEN];
    if (n_ranks != bk_layout_ranks(c))
        return bk_err_set(e, BK_E_INPUT,
                          "the program was started on %" PRId32 " ranks, and %s asks for %" PRId32
                          "; it runs on one alone, birkhoff plan shows what more would need",
                          n_ranks, bk_config_cite(ranks, c, BK_OPT_expert_model_parallel_size),
                          bk_layout_ranks(c));
    bk_layout l = {.n_stages = 1,
                   .n_chunks = 1,
                   .n_ranks = n_ranks,
                   .seq = c->seq_length,
                   .micro_batch = c->micro_batch_size,
                   .global_batch = c->global_batch_size};
    for (int a = 0; a < BK_N_AXES; a++) l.axis_size[a] = 1;
    l.axis_size[BK_AXIS_EP] = l.axis_size[BK_AXIS_DP] = n_ranks;
    place_experts(&l, c, bk_config_expert_capacity(c));
    const bk_status st = divide_batch(&l, c, e);
    if (st == BK_OK) *out = l;
    return st;
}

bk_layout bk_layout_generate(const bk_config *c, int64_t n_tokens)
{
    bk_layout l = {.n_stages = 1,
                   .n_chunks = 1,
                   .n_ranks = 1,
                   .seq = n_tokens,
                   .micro_batch = 1,
                   .global_batch = 1,
                   .n_micro = 1};
    for (int a = 0; a < BK_N_AXES; a++) l.axis_size[a] = 1;
    place_experts(&l, c, 0);
    return l;
}
