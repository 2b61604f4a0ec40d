/* The router of a MoE layer: which experts a token uses and how much of each, the losses that keep the
 * experts busy, and the bias that does so without a loss (arXiv:2408.15664). */
#include <math.h>
#include <stdio.h>

#include "config/moe_options.h"
#include "model/parts.h"

static bk_vid logits_of(bk_builder *b, bk_vid x)
{
    const bk_linear_params p =
        bk_build_linear_params(b, "mlp.router", b->c->num_experts, b->c->hidden_size, b->c->init_method_std,
                               b->c->add_bias_linear, BK_CLASS_ROUTER);
    return bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(x, p.weight, p.bias), .name = "router.logits"});
}

/* A loss of each MoE layer, of which the mean over the layers is reported, and by measuring each. */
static void add_loss(bk_builder *b, const char *metric, bk_vid loss, double coeff)
{
    bk_build_loss(b, loss, coeff);
    const bk_vid share = bk_build_op1(b, &(bk_op_spec){BK_OP_scale, BK_IN(loss), .name = "router.loss.share",
                                                       .attr = {{.f = 1 / (double)b->n_moe_layers}}});
    bk_build_metric(b, BK_METRIC_MEAN, metric, share);
    if (!b->measure) return;
    char name[BK_NAME_LEN];
    snprintf(name, sizeof name, BK_PART_ROUTER "%s", metric);
    bk_build_layer_metric(b, BK_METRIC_MEAN, name, loss);
}

/* What the shares of the experts are compared over: counts of the micro-batch, of each sequence, or their
 * mean over the micro-batches of the step so far. */
static bk_vid counts_of(bk_builder *b, bk_balance_kind kind, bk_vid logits)
{
    const bk_vid counts =
        bk_build_op1(b, &(bk_op_spec){BK_OP_score_counts, BK_IN(logits), .name = "router.counts",
                                      .attr = {{b->c->moe_router_topk},
                                               {b->c->moe_router_score_function},
                                               {kind == BK_BALANCE_SEQUENCE}}});
    bk_build_choice(b, counts);
    if (kind != BK_BALANCE_GLOBAL) return counts;
    bk_vid sum =
        bk_build_state(b, b->values, "router.global_counts", BK_STEP, b->g->real, b->c->num_experts + 1);
    return bk_build_op1(b, &(bk_op_spec){BK_OP_running_mean, BK_IN(counts), .upd = &sum, .n_upd = 1,
                                         .name = "router.mean_counts"});
}

static void balance(bk_builder *b, bk_vid logits)
{
    static const char *const metric[BK_N_BALANCES] = {"load_balancing_loss", "seq_load_balancing_loss",
                                                      "global_load_balancing_loss"};
    bk_balance kind[BK_N_BALANCES];
    int n = 0;
    if (b->st == BK_OK) b->st = bk_config_balances(kind, &n, b->c, b->e);
    for (int k = 0; k < n; k++) {
        const bk_vid loss = bk_build_op1(
            b, &(bk_op_spec){BK_OP_aux_loss, BK_IN(logits, counts_of(b, kind[k].kind, logits)),
                             .name = "router.balance",
                             .attr = {{b->c->moe_router_topk}, {b->c->moe_router_score_function}}});
        add_loss(b, metric[kind[k].kind], loss, kind[k].coeff);
    }
    if (b->c->moe_z_loss_coeff > 0)
        add_loss(b, "z_loss",
                 bk_build_op1(b, &(bk_op_spec){BK_OP_z_loss, BK_IN(logits), .name = "router.z_loss"}),
                 b->c->moe_z_loss_coeff);
}

/* How often each expert was chosen in the step, before any expert dropped a token: reported, and what the
 * bias follows. */
static void count_choices(bk_builder *b, bk_vid bias, bk_vid index)
{
    const bk_vid chosen =
        bk_build_op1(b, &(bk_op_spec){BK_OP_expert_counts, BK_IN(index), .name = "router.chosen",
                                      .attr = {{b->c->num_experts}}});
    const bk_vid counts = bk_build_layer_metric(b, BK_METRIC_SUM, BK_PART_ROUTER BK_METRIC_TOKENS, chosen);
    if (bias == BK_NONE || b->st != BK_OK) return;
    for (int k = 0; k < b->io->n_biases; k++)
        if (b->io->biases[k].bias == bias) return; /* of a layer that several depths share */
    b->io->biases[b->io->n_biases++] = (bk_model_bias){bias, counts};
}

bk_routing bk_build_router(bk_builder *b, bk_vid x)
{
    const bk_config *c = b->c;
    const bk_vid logits = logits_of(b, x);
    bk_vid bias = BK_NONE, out[2];
    if (c->moe_router_enable_expert_bias)
        bias = bk_build_state(b, b->params, "mlp.router.expert_bias", BK_RUN, b->g->real, c->num_experts);
    const bool grouped = c->moe_router_num_groups != BK_UNSET_COUNT;
    bk_build_op(
        out, b,
        &(bk_op_spec){
            BK_OP_router, BK_IN(logits, bias), .name = "router.probs",
            .attr = {{c->moe_router_topk},
                     {c->moe_router_score_function},
                     {c->moe_router_pre_softmax},
                     {.f = isnan(c->moe_router_topk_scaling_factor) ? 1 : c->moe_router_topk_scaling_factor},
                     {grouped ? c->moe_router_num_groups : 0},
                     {grouped ? c->moe_router_group_topk : 0}}});
    if (b->train) {
        balance(b, logits);
        count_choices(b, bias, out[1]);
        bk_build_choice(b, out[1]);
    }
    return (bk_routing){out[0], out[1]};
}
