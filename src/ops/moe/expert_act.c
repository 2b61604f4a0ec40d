/* expert_act: a [R, f] = p [R] act(h), h [R, 2f] with swiglu and [R, f] with gelu: the routing probability
 * multiplies the activation, before the second projection. expert_act_grad: dh and dprobs of da, h, probs. */
#define BK_BOTH "ops/moe/experts_cpu.h"
#include "base/real_both.h"
#include "ops/moe/segments.h"

#include <string.h>

enum { SWIGLU, TANH };
enum { FORWARD_FLOPS = 10, BACKWARD_FLOPS = 26 }; /* for each element of a */

static bk_expert_activation act_of(const bk_op *op)
{
    return (bk_expert_activation){.swiglu = bk_attr_i(op, SWIGLU) != 0,
                                  .tanh_form = bk_attr_i(op, TANH) != 0};
}

static int64_t width_of_h(const bk_op *op, int64_t f)
{
    return bk_attr_i(op, SWIGLU) ? 2 * f : f;
}

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "rh,r,G:l>rh", e);
    if (st != BK_OK) return st;
    const int64_t width = bk_in(g, op, 0)->dim[1].size;
    if (bk_attr_i(op, SWIGLU) && width % 2)
        return bk_err_set(e, BK_E_INPUT, "rows of %" PRId64 " elements do not halve into gate and value",
                          width);
    if (bk_attr_i(op, SWIGLU)) out->dim[1] = bk_fixed(width / 2);
    bk_count_rows(out, g, op, 2);
    return BK_OK;
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Rh,R,G:l>Rh", e);
}

static void fwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = FORWARD_FLOPS * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid da = bk_grad_of(c, op.out[0]);
    if (da == BK_NONE || !(bk_grad_wanted(c, op.in[0]) || bk_grad_wanted(c, op.in[1]))) return BK_OK;
    const bk_vid in[] = {da, op.in[0], op.in[1], op.in[2]};
    bk_op_spec spec = {
        .kind = BK_OP_expert_act_grad, .in = in, .n_in = 4, .n_out = 2, .name = "expert_act.grad"};
    memcpy(spec.attr, op.op.attr, sizeof spec.attr);
    bk_vid out[2];
    bk_status st = bk_op_add(out, c->g, &spec, e);
    if (st == BK_OK && bk_grad_wanted(c, op.in[0])) st = bk_grad_add(c, op.in[0], out[0], e);
    if (st == BK_OK && bk_grad_wanted(c, op.in[1])) st = bk_grad_add(c, op.in[1], out[1], e);
    return st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_expert_act_fwd, c->out[0].p, c->in[0].p, c->in[1].p,
                 bk_rows_of(&c->in[2]), bk_arg_dim(&c->out[0], 1), act_of(c->op));
    return BK_OK;
}

const bk_op_rules bk_expert_act_rules = {
    .shape = fwd_shape, .spread = fwd_spread, .cost = fwd_cost, .grad = fwd_grad, .cpu = fwd_cpu};

/* ---- inputs da, h, probs, segments ---- */

static bk_status grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_shape_pattern(out, g, op, "rf,rh,r,G:l>rh,r", e);
    const int64_t dim[2] = {-1, width_of_h(op, bk_in(g, op, 0)->dim[1].size)};
    if (st == BK_OK) st = bk_shape_need(g, op, 1, "h, as wide as the activation asks for,", 2, dim, e);
    for (int k = 0; k < 2 && st == BK_OK; k++) bk_count_rows(&out[k], g, op, 3);
    return st;
}

static bk_status grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "RF,RH,R,G:l>RH,R", e);
}

static void grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = BACKWARD_FLOPS * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static int64_t grad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    return bk_value_bytes(bk_in(g, op, 0));
}

static bk_status grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_expert_act_bwd, c->out[0].p, c->out[1].p, c->in[0].p, c->in[1].p,
                 c->in[2].p, bk_rows_of(&c->in[3]), bk_arg_dim(&c->in[0], 1), act_of(c->op), c->work);
    return BK_OK;
}

const bk_op_rules bk_expert_act_grad_rules = {.shape = grad_shape,
                                              .spread = grad_spread,
                                              .cost = grad_cost,
                                              .workspace = grad_workspace,
                                              .cpu = grad_cpu};
