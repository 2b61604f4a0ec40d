/* sigmoid_gate: y [S, B, C] times the sigmoid of z [S, B, 1]; sigmoid_gate_grad: dy and dz of dout, y, z. */
#define BK_BOTH "ops/moe/experts_cpu.h"
#include "base/real_both.h"
#include "ops/rules.h"

enum { FORWARD_FLOPS = 1, BACKWARD_FLOPS = 3 };

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "sbc,sb1>sbc", e);
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbc,sb1>sbc", e);
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
    const bk_vid dout = bk_grad_of(c, op.out[0]);
    if (dout == BK_NONE || !(bk_grad_wanted(c, op.in[0]) || bk_grad_wanted(c, op.in[1]))) return BK_OK;
    const bk_vid in[] = {dout, op.in[0], op.in[1]};
    bk_vid out[2];
    const bk_op_spec spec = {
        .kind = BK_OP_sigmoid_gate_grad, .in = in, .n_in = 3, .n_out = 2, .name = "gate.grad"};
    bk_status st = bk_op_add(out, c->g, &spec, e);
    if (st == BK_OK && bk_grad_wanted(c, op.in[0])) st = bk_grad_add(c, op.in[0], out[0], e);
    if (st == BK_OK && bk_grad_wanted(c, op.in[1])) st = bk_grad_add(c, op.in[1], out[1], e);
    return st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_sigmoid_gate_fwd, c->out[0].p, c->in[0].p, c->in[1].p,
                 bk_arg_tokens(&c->in[0]), bk_arg_dim(&c->in[0], 2));
    return BK_OK;
}

const bk_op_rules bk_sigmoid_gate_rules = {
    .shape = fwd_shape, .spread = fwd_spread, .cost = fwd_cost, .grad = fwd_grad, .cpu = fwd_cpu};

static bk_status grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "sbc,sbc,sb1>sbc,sb1", e);
}

/* dz is a sum over the width. */
static bk_status grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbC,sbC,sb1>sbC,sb1", e);
}

static void grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = BACKWARD_FLOPS * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_sigmoid_gate_bwd, c->out[0].p, c->out[1].p, c->in[0].p, c->in[1].p,
                 c->in[2].p, bk_arg_tokens(&c->in[0]), bk_arg_dim(&c->in[0], 2));
    return BK_OK;
}

const bk_op_rules bk_sigmoid_gate_grad_rules = {
    .shape = grad_shape, .spread = grad_spread, .cost = grad_cost, .cpu = grad_cpu};
