/* expert_counts: counts [E] of index [S, B, k], how many tokens chose each expert. score_counts: counts [Q,
 * E] of logits [S, B, E], how many tokens have the expert among their topk largest scores, without bias and
 * groups; of equal scores the lowest expert. Q is B with per_sequence, else 1. */
#include "ops/moe/route_rules.h"

#define BK_BOTH "ops/moe/router_cpu.h"
#include "base/real_both.h"
#define BK_BOTH "ops/moe/balance_cpu.h"
#include "base/real_both.h"

enum { EXPERTS };                   /* of expert_counts */
enum { TOPK, SCORE, PER_SEQUENCE }; /* of score_counts */
enum { SCORE_FLOPS = 8 };

static bk_status index_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const int64_t experts = bk_attr_i(op, EXPERTS), any[3] = {-1, -1, -1};
    bk_status st = bk_shape_need(g, op, 0, "index [S, B, k]", 3, any, e);
    if (st == BK_OK) st = bk_shape_need_dtype(g, op, 0, BK_I32, e);
    if (st == BK_OK) st = bk_route_need(bk_in(g, op, 0)->dim[2].size, experts, BK_SCORE_SOFTMAX, e);
    const bk_dim dim = bk_fixed(experts);
    if (st == BK_OK) bk_shape_set(out, g->real, 1, &dim);
    return st;
}

static bk_status index_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbK>E", e);
}

static void index_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status index_cpu(bk_call *c, bk_err *e)
{
    const bk_arg *index = &c->in[0];
    const int64_t k = bk_arg_dim(index, 2), E = bk_attr_i(c->op, EXPERTS);
    const int64_t bad =
        BK_REAL_CALL(bk_call_f64(c), bk_count_experts, c->out[0].p, index->p, bk_arg_tokens(index), k, 1, E);
    return bad < 0 ? BK_OK : bk_route_no_expert(index->p, bad, k, E, e);
}

const bk_op_rules bk_expert_counts_rules = {
    .shape = index_shape, .spread = index_spread, .cost = index_cost, .cpu = index_cpu};

static bk_status score_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_route_logits(g, op, 0, e);
    if (st != BK_OK) return st;
    const bk_value *logits = bk_in(g, op, 0);
    st = bk_route_need(bk_attr_i(op, TOPK), logits->dim[2].size, bk_attr_i(op, SCORE), e);
    const bk_dim dim[2] = {bk_attr_i(op, PER_SEQUENCE) ? logits->dim[1] : bk_fixed(1), logits->dim[2]};
    if (st == BK_OK) bk_shape_set(out, logits->dtype, 2, dim);
    return st;
}

static bk_status score_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, bk_attr_i(op, PER_SEQUENCE) ? "sbE>bE" : "sbE>1E", e);
}

static void score_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = SCORE_FLOPS * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static int64_t n_choices(const bk_graph *g, const bk_op *op)
{
    const bk_value *logits = bk_in(g, op, 0);
    return logits->dim[0].size * logits->dim[1].size * bk_attr_i(op, TOPK);
}

/* Probabilities and experts of each token. */
static int64_t score_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    return n_choices(g, op) * (bk_dtype_bytes(bk_in(g, op, 0)->dtype) + (int64_t)sizeof(int32_t));
}

static bk_status score_cpu(bk_call *c, bk_err *e)
{
    const bk_arg *logits = &c->in[0];
    const int64_t E = bk_arg_dim(logits, 2), k = bk_attr_i(c->op, TOPK), n = bk_arg_tokens(logits);
    const bk_route r = {.experts = E, .topk = k, .score = (int)bk_attr_i(c->op, SCORE), .scaling = 1};
    const bool f64 = bk_call_f64(c);
    int32_t *index = (int32_t *)((char *)c->work + n_choices(c->g, c->op) * bk_dtype_bytes(logits->v->dtype));
    BK_REAL_CALL(f64, bk_router_fwd, c->work, index, logits->p, (void *)0, (void *)0, n, r);
    const int64_t bad =
        BK_REAL_CALL(f64, bk_count_experts, c->out[0].p, index, n, k, bk_arg_dim(&c->out[0], 0), E);
    return bad < 0 ? BK_OK : bk_route_no_expert(index, bad, k, E, e);
}

const bk_op_rules bk_score_counts_rules = {.shape = score_shape,
                                           .spread = score_spread,
                                           .cost = score_cost,
                                           .workspace = score_workspace,
                                           .cpu = score_cpu};
