/* gelu(x; y) and gelu_grad(dy, x; dx), elementwise; attribute tanh picks the tanh form. */
#define BK_BOTH "ops/mlp/mlp_cpu.h"
#include "base/real_both.h"
#include "ops/rules.h"

enum { TANH };
enum { FORWARD_FLOPS = 12, BACKWARD_FLOPS = 20 }; /* for each element; erf or tanh count a few */

static bk_status gelu_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *x = bk_in(g, op, 0);
    char text[BK_OPERAND_TEXT];
    if (!bk_dtype_is_float(x->dtype))
        return bk_err_set(e, BK_E_INPUT, "%s is %s, expected floating point", bk_operand_text(text, g, op, 0),
                          bk_dtype_names[x->dtype]);
    return bk_shape_elementwise(out, g, op, op->n_in, e);
}

static bk_status gelu_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_elementwise(out, g, op, axis, op->n_in, false, e);
}

static void gelu_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = (op->kind == BK_OP_gelu ? FORWARD_FLOPS : BACKWARD_FLOPS) * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status gelu_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid x = op.in[0], dy = bk_grad_of(ctx, op.out[0]);
    if (dy == BK_NONE) return BK_OK;
    bk_vid dx;
    const bk_status st =
        bk_op1(&dx, ctx->g, e, BK_OP_gelu_grad, "gelu.dx", (.attr[TANH] = op.op.attr[TANH]), dy, x);
    return st == BK_OK ? bk_grad_add(ctx, x, dx, e) : st;
}

static bk_status gelu_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_gelu_fwd, c->out[0].p, c->in[0].p, bk_elements(c->in[0].v),
                 bk_attr_i(c->op, TANH) != 0);
    return BK_OK;
}

static bk_status gelu_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_gelu_bwd, c->out[0].p, c->in[0].p, c->in[1].p, bk_elements(c->in[0].v),
                 bk_attr_i(c->op, TANH) != 0, 0);
    return BK_OK;
}

const bk_op_rules bk_gelu_rules = {
    .shape = gelu_shape, .spread = gelu_spread, .cost = gelu_cost, .grad = gelu_grad, .cpu = gelu_cpu};

const bk_op_rules bk_gelu_grad_rules = {
    .shape = gelu_shape, .spread = gelu_spread, .cost = gelu_cost, .cpu = gelu_grad_cpu};
