/* router: probs, index [S, B, k] of logits [S, B, E] and, if there is one, expert_bias [E]: the experts of
 * each token in ascending order. router_grad: dlogits of dprobs, logits, index. The experts are not split:
 * each token is compared with all of them. A scaling of 0 means 1. */
#include <string.h>
#include "ops/moe/route_rules.h"

#define BK_BOTH "ops/moe/router_cpu.h"
#include "base/real_both.h"

/* For each logit: score, comparison; exponential, product. */
enum { FORWARD_FLOPS = 8, BACKWARD_FLOPS = 4 };

static bk_route route_of(const bk_op *op, int64_t experts)
{
    const double scaling = bk_attr_f(op, 3);
    return (bk_route){.experts = experts,
                      .topk = bk_attr_i(op, 0),
                      .score = (int)bk_attr_i(op, 1),
                      .pre_softmax = bk_attr_i(op, 2) != 0,
                      .scaling = scaling == 0 ? 1 : scaling,
                      .groups = bk_attr_i(op, 4),
                      .group_topk = bk_attr_i(op, 5)};
}

static bk_status need_groups(const bk_op *op, int64_t E, bk_err *e)
{
    const int64_t k = bk_attr_i(op, 0), G = bk_attr_i(op, 4), kept = bk_attr_i(op, 5);
    if (G == 0 && kept == 0) return BK_OK;
    if (G < 1 || E % G)
        return bk_err_set(e, BK_E_INPUT, "%" PRId64 " experts do not form %" PRId64 " equal groups", E, G);
    if (kept < 1 || kept > G)
        return bk_err_set(e, BK_E_INPUT, "cannot keep %" PRId64 " of %" PRId64 " groups of experts", kept, G);
    if (k < kept)
        return bk_err_set(e, BK_E_INPUT,
                          "topk %" PRId64 " is less than the %" PRId64
                          " groups that are kept; each needs at least one expert to be scored by",
                          k, kept);
    if (k > E / G * kept)
        return bk_err_set(e, BK_E_INPUT,
                          "topk %" PRId64 " is more than the %" PRId64 " experts of the %" PRId64
                          " groups that are kept",
                          k, E / G * kept, kept);
    return BK_OK;
}

static bk_status need_attributes(const bk_op *op, int64_t E, bk_err *e)
{
    const bk_status st = bk_route_need(bk_attr_i(op, 0), E, bk_attr_i(op, 1), e);
    return st == BK_OK ? need_groups(op, E, e) : st;
}

static bk_status router_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *logits = bk_in(g, op, 0);
    char text[BK_OPERAND_TEXT];
    bk_status st = bk_route_logits(g, op, 0, e);
    if (st != BK_OK) return st;
    const int64_t E = logits->dim[2].size;
    st = need_attributes(op, E, e);
    if (st == BK_OK && op->n_in > 1 && bk_operand(g, op, 1)) {
        if (bk_attr_i(op, 1) == BK_SCORE_SOFTMAX)
            return bk_err_set(e, BK_E_INPUT, "%s: an expert bias needs score sigmoid or sqrtsoftplus",
                              bk_operand_text(text, g, op, 1));
        st = bk_shape_need(g, op, 1, "expert bias [E]", 1, &E, e);
        if (st == BK_OK) st = bk_shape_need_dtype(g, op, 1, logits->dtype, e);
    }
    if (st != BK_OK) return st;
    const bk_dim dim[3] = {logits->dim[0], logits->dim[1], bk_fixed(bk_attr_i(op, 0))};
    bk_shape_set(&out[0], logits->dtype, 3, dim);
    bk_shape_set(&out[1], BK_I32, 3, dim);
    return BK_OK;
}

static bk_status router_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbE,E>sbK,sbK", e);
}

static void router_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = FORWARD_FLOPS * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

/* The scores of each token's groups. */
static int64_t router_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *logits = bk_in(g, op, 0);
    return logits->dim[0].size * logits->dim[1].size * bk_attr_i(op, 4) * bk_dtype_bytes(logits->dtype);
}

static bk_status router_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dprobs = bk_grad_of(c, op.out[0]), logits = op.in[0];
    if (dprobs == BK_NONE || !bk_grad_wanted(c, logits)) return BK_OK;
    const bk_vid in[] = {dprobs, logits, op.out[1]};
    bk_op_spec spec = {.kind = BK_OP_router_grad, .in = in, .n_in = 3, .n_out = 1, .name = "router.dlogits"};
    memcpy(spec.attr, op.op.attr, sizeof spec.attr);
    bk_vid dlogits;
    const bk_status st = bk_op_add(&dlogits, c->g, &spec, e);
    return st == BK_OK ? bk_grad_add(c, logits, dlogits, e) : st;
}

static bk_status router_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *logits = &c->in[0];
    BK_REAL_CALL(bk_call_f64(c), bk_router_fwd, c->out[0].p, c->out[1].p, logits->p, bk_call_in(c, 1),
                 c->work, bk_arg_tokens(logits), route_of(c->op, bk_arg_dim(logits, 2)));
    return BK_OK;
}

const bk_op_rules bk_router_rules = {.shape = router_shape,
                                     .spread = router_spread,
                                     .cost = router_cost,
                                     .workspace = router_workspace,
                                     .grad = router_grad,
                                     .cpu = router_cpu};

static bk_status router_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_shape_pattern(out, g, op, "sbk,sbe,sbk:i>sbe", e);
    if (st == BK_OK) st = need_attributes(op, bk_in(g, op, 1)->dim[2].size, e);
    const int64_t dim[3] = {-1, -1, bk_attr_i(op, 0)};
    return st == BK_OK ? bk_shape_need(g, op, 2, "index [S, B, topk]", 3, dim, e) : st;
}

static bk_status router_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                    bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbK,sbE,sbK>sbE", e);
}

static void router_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = BACKWARD_FLOPS * bk_elements(bk_in(g, op, 1));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status router_grad_cpu(bk_call *c, bk_err *e)
{
    const bk_arg *logits = &c->in[1], *index = &c->in[2];
    int beta;
    const bk_arg *to = bk_call_out0(c, &beta);
    const int64_t E = bk_arg_dim(logits, 2), k = bk_attr_i(c->op, 0);
    const int64_t bad = BK_REAL_CALL(bk_call_f64(c), bk_router_bwd, to->p, c->in[0].p, logits->p, index->p,
                                     bk_arg_tokens(logits), route_of(c->op, E), beta);
    return bad < 0 ? BK_OK : bk_route_no_expert(index->p, bad, k, E, e);
}

const bk_op_rules bk_router_grad_rules = {.shape = router_grad_shape,
                                          .spread = router_grad_spread,
                                          .cost = router_grad_cost,
                                          .cpu = router_grad_cpu};
