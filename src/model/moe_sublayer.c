/* The feed-forward sublayer with experts (Fedus, Zoph, Shazeer, arXiv:2101.03961; shared experts:
 * DeepSeekMoE, arXiv:2401.06066):
 *
 *     y[t] = shared(x[t]) + sum over the k experts e of t:  fc2_e(p[t, e] act(fc1_e(x[t])))
 *
 * The rows of tokens are put in the order of their experts, so that each expert has one matrix product. Where
 * several ranks share the experts, rows travel to them and back; these two ways are nodes of their own, which
 * one rank does not have. */
#include <inttypes.h>
#include <stdio.h>

#include "model/parts.h"

/* Rows of tokens in the order of their experts, and how they came there. */
typedef struct {
    bk_vid rows;        /* [R, C] */
    bk_vid probs;       /* [R] */
    bk_vid pair_of_row; /* [R]; which rows there are: segments */
    bk_vid row_of_pair; /* [S, B, k] */
    bk_vid segments;    /* [experts + 1] */
    bk_vid excess;      /* [1]: rows that found no room */
} routed;

/* What the experts of this rank get. */
typedef struct {
    bk_vid rows, probs, segments;
    bk_vid sent, counts; /* how they came from several ranks, otherwise BK_NONE */
    bk_vid excess;
} received;

/* What finds no room makes the step void, if there can be such. */
static void note_excess(bk_builder *b, bk_vid excess)
{
    if (b->l->routed_rows == b->l->most_rows) return;
    b->io->excess = bk_build_metric(b, BK_METRIC_MAX, "routed_excess", excess);
}

static bool one_rank(const bk_builder *b)
{
    return b->l->axis_size[BK_AXIS_EP] == 1;
}

static routed permute(bk_builder *b, bk_vid x, bk_routing r)
{
    const bk_layout *l = b->l;
    const bool pad = l->expert_capacity > 0 && b->c->moe_pad_expert_input_to_capacity;
    const bool by_position = b->c->moe_token_drop_policy == BK_DROP_POSITION;
    bk_vid at[4];
    bk_build_op(at, b,
                &(bk_op_spec){BK_OP_route_rows, BK_IN(r.index, l->expert_capacity > 0 ? r.probs : BK_NONE),
                              .name = "moe.rows",
                              .attr = {{one_rank(b) ? l->first_expert : 0},
                                       {one_rank(b) ? l->n_local_experts : b->c->num_experts},
                                       {one_rank(b) ? l->routed_rows : l->sent_rows},
                                       {l->expert_capacity},
                                       {pad},
                                       {by_position}}});
    bk_build_choice(b, at[1]);
    routed y = {.pair_of_row = at[0], .row_of_pair = at[1], .segments = at[2], .excess = at[3]};
    y.rows =
        bk_build_op1(b, &(bk_op_spec){BK_OP_permute, BK_IN(x, at[0], at[1], at[2]), .name = "moe.permuted"});
    y.probs = bk_build_op1(
        b, &(bk_op_spec){BK_OP_permute_probs, BK_IN(r.probs, at[0], at[1], at[2]), .name = "moe.row_probs"});
    return y;
}

/* To the ranks of the experts. */
static received dispatch(bk_builder *b, const routed *r)
{
    if (one_rank(b)) return (received){r->rows, r->probs, r->segments, BK_NONE, BK_NONE, r->excess};
    const bk_attr room = {b->l->routed_rows};
    bk_vid at[3];
    bk_build_at(b, b->g->tag.layer, BK_NODE_MOE_DISPATCH);
    bk_build_op(at, b,
                &(bk_op_spec){BK_OP_moe_exchange, BK_IN(r->segments), .name = "moe.counts",
                              .attr = {{b->l->axis_size[BK_AXIS_EP]}, {b->l->ep_rank}, room}});
    received y = {.segments = at[1], .sent = r->segments, .counts = at[0], .excess = at[2]};
    y.rows = bk_build_op1(b, &(bk_op_spec){BK_OP_moe_dispatch, BK_IN(r->rows, y.sent, y.counts, y.segments),
                                           .name = "moe.received", .attr = {room}});
    y.probs = bk_build_op1(b, &(bk_op_spec){BK_OP_moe_dispatch, BK_IN(r->probs, y.sent, y.counts, y.segments),
                                            .name = "moe.received_probs", .attr = {room}});
    return y;
}

/* And back. */
static bk_vid combine(bk_builder *b, bk_vid rows, const received *r)
{
    if (one_rank(b)) return rows;
    bk_build_at(b, b->g->tag.layer, BK_NODE_MOE_COMBINE);
    return bk_build_op1(b, &(bk_op_spec){BK_OP_moe_combine, BK_IN(rows, r->sent, r->counts, r->segments),
                                         .name = "moe.returned", .attr = {{b->l->sent_rows}}});
}

static bk_vid expert_param(bk_builder *b, int64_t expert, const char *name, const char *alias,
                           const bk_param *like)
{
    char full[BK_NAME_LEN], second[BK_NAME_LEN];
    bk_param p = *like;
    snprintf(full, sizeof full, "mlp.experts.local_experts.%" PRId64 ".%s", expert, name);
    snprintf(second, sizeof second, "mlp.experts.%s%" PRId64, alias, expert);
    p.name = full, p.alias = second, p.class_ = BK_CLASS_EXPERTS;
    return bk_build_param(b, &p);
}

/* One parameter of each expert, after the operands that are there already. */
static void expert_params(bk_vid *in, bk_builder *b, const char *fc, bool bias, const bk_param *like)
{
    char name[32], alias[32];
    snprintf(name, sizeof name, "%s.%s", fc, bias ? "bias" : "weight");
    snprintf(alias, sizeof alias, "%s.%s", fc, bias ? "bias" : "weight");
    for (int64_t e = 0; e < b->l->n_local_experts; e++)
        in[e] = expert_param(b, b->l->first_expert + e, name, alias, like);
}

/* A linear layer of each expert on its rows: x [R, n_in] to [R, n_out]. Its bias is multiplied by `probs` if
 * that is there. */
static bk_vid experts_linear(bk_builder *b, const char *fc, bk_vid x, bk_vid segments, bk_vid probs,
                             int64_t n_out, int64_t n_in, double std)
{
    const int64_t n = b->l->n_local_experts;
    char name[BK_NAME_LEN];
    bk_vid *in = bk_arena_alloc(&b->g->arena, n + 3, sizeof *in);
    if (!in && b->st == BK_OK) b->st = bk_err_set(b->e, BK_E_MEM, "out of memory for experts");
    if (b->st != BK_OK) return BK_NONE;
    in[0] = x, in[1] = segments;
    expert_params(in + 2, b, fc, false,
                  &(bk_param){.rank = 2, .shape = {n_out, n_in}, .init = BK_INIT_NORMAL, .init_arg = std});
    snprintf(name, sizeof name, "moe.%s", fc);
    bk_vid y =
        bk_build_op1(b, &(bk_op_spec){BK_OP_grouped_linear, .in = in, .n_in = (int)n + 2, .name = name});
    if (!b->c->add_bias_linear) return y;
    in[0] = y, in[2] = probs;
    expert_params(in + 3, b, fc, true, &(bk_param){.rank = 1, .shape = {n_out}, .init = BK_INIT_ZERO});
    snprintf(name, sizeof name, "moe.%s.biased", fc);
    return bk_build_op1(b, &(bk_op_spec){BK_OP_grouped_bias, .in = in, .n_in = (int)n + 3, .name = name});
}

static bk_vid experts(bk_builder *b, const received *r)
{
    const int64_t C = b->c->hidden_size, f = b->c->moe_ffn_hidden_size;
    const bk_vid h = experts_linear(b, "linear_fc1", r->rows, r->segments, BK_NONE, bk_build_fc1_width(b, f),
                                    C, b->c->init_method_std);
    const bk_vid a = bk_build_op1(
        b,
        &(bk_op_spec){BK_OP_expert_act, BK_IN(h, r->probs, r->segments), .name = "moe.act",
                      .attr = {{b->c->activation == BK_ACT_SWIGLU}, {b->c->activation == BK_ACT_GELU_TANH}}});
    return experts_linear(b, "linear_fc2", a, r->segments, r->probs, C, f, bk_build_output_std(b));
}

/* The expert of every token, or BK_NONE. */
static bk_vid shared_expert(bk_builder *b, bk_vid x)
{
    const int64_t inner = b->c->moe_shared_expert_intermediate_size;
    if (inner == 0) return BK_NONE;
    const bk_vid y = bk_build_feed_forward(b, "mlp.shared_experts", x, inner, false).y;
    if (!b->c->moe_shared_expert_gate) return y;
    const bk_vid gate = bk_build_param(b, &(bk_param){.name = "mlp.shared_experts.gate_weight",
                                                      .rank = 2,
                                                      .shape = {1, b->c->hidden_size},
                                                      .class_ = BK_CLASS_MLP,
                                                      .init = BK_INIT_NORMAL,
                                                      .init_arg = b->c->init_method_std});
    const bk_vid z =
        bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(x, gate), .name = "mlp.shared_experts.gate"});
    return bk_build_op1(b,
                        &(bk_op_spec){BK_OP_sigmoid_gate, BK_IN(y, z), .name = "mlp.shared_experts.gated"});
}

bk_branch bk_build_moe(bk_builder *b, bk_vid x)
{
    const bk_vid shared = shared_expert(b, x);
    const bk_routing routing = bk_build_router(b, x);
    const routed r = permute(b, x, routing);
    const received here = dispatch(b, &r);
    bk_build_at(b, b->g->tag.layer, BK_NODE_MLP);
    note_excess(b, here.excess);
    const bk_vid rows = combine(b, experts(b, &here), &here);
    const bk_vid y =
        bk_build_op1(b, &(bk_op_spec){BK_OP_unpermute, BK_IN(rows, r.pair_of_row, r.row_of_pair, r.segments),
                                      .name = "moe.combined"});
    if (shared == BK_NONE) return (bk_branch){y, BK_NONE};
    return (bk_branch){bk_build_op1(b, &(bk_op_spec){BK_OP_add_n, BK_IN(y, shared), .name = "mlp.sum"}),
                       BK_NONE};
}
