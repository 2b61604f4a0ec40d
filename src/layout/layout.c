#include "layout/layout.h"

#include <assert.h>
#include <inttypes.h>

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

/* One rank holds all experts, so what comes is known before: k rows of each of the T tokens, of which an
 * expert keeps no more than its capacity. */
static void place_experts(bk_layout *l, const bk_config *c, int64_t capacity)
{
    if (c->num_experts == 0) return;
    const int64_t rows =
        l->seq * l->micro_batch * c->moe_router_topk; /* fits, as all below: config_rules_moe.c */
    const int64_t kept = capacity * c->num_experts;
    const bool kept_alone = capacity > 0 && (kept < rows || c->moe_pad_expert_input_to_capacity);
    l->n_local_experts = c->num_experts;
    l->expert_capacity = capacity;
    l->routed_rows = l->most_rows = kept_alone ? kept : rows;
}

bk_status bk_layout_resolve(bk_layout *out, const bk_config *c, int32_t n_ranks, bk_err *e)
{
    assert(c->seq_length > 0 && c->micro_batch_size > 0 && c->global_batch_size > 0);
    if (n_ranks != 1)
        return bk_err_set(e, BK_E_INPUT,
                          "the program was started on %" PRId32
                          " ranks, and runs on one alone; start it without mpirun or srun",
                          n_ranks);
    bk_layout l = {.n_stages = 1,
                   .n_chunks = 1,
                   .n_ranks = n_ranks,
                   .seq = c->seq_length,
                   .micro_batch = c->micro_batch_size,
                   .global_batch = c->global_batch_size};
    for (int a = 0; a < BK_N_AXES; a++) l.axis_size[a] = 1;
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
