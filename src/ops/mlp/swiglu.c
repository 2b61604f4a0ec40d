/* swiglu(h [.., 2f]; a [.., f]) and its gradient: of each row the first f are the gate, the next f are what
 * it scales. */
#define BK_BOTH "ops/mlp/mlp_cpu.h"
#include "base/real_both.h"
#include "ops/rules.h"

enum { FORWARD_FLOPS = 8, BACKWARD_FLOPS = 14 }; /* for each element of a; an exponential counts a few */

static bk_status swiglu_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *h = bk_in(g, op, 0);
    char text[BK_OPERAND_TEXT];
    if (!bk_dtype_is_float(h->dtype) || h->rank < 1 || h->dim[h->rank - 1].size % 2)
        return bk_err_set(e, BK_E_INPUT, "%s: expected floating-point rows of even width, gate and value",
                          bk_operand_text(text, g, op, 0));
    bk_shape_like(out, h);
    out->dim[out->rank - 1] = bk_fixed(h->dim[h->rank - 1].size / 2);
    return BK_OK;
}

/* A rank that has a part of the width has the same part of gate and value, so a split width stays split. */
static bk_status swiglu_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_elementwise(out, g, op, axis, 1, false, e);
}

static void swiglu_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = FORWARD_FLOPS * (bk_elements(bk_in(g, op, 0)) / 2);
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status swiglu_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid h = op.in[0], da = bk_grad_of(ctx, op.out[0]);
    if (da == BK_NONE) return BK_OK;
    bk_vid dh;
    const bk_status st = bk_op1(&dh, ctx->g, e, BK_OP_swiglu_grad, "swiglu.dh", (), da, h);
    return st == BK_OK ? bk_grad_add(ctx, h, dh, e) : st;
}

static bk_status swiglu_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const int64_t f = bk_arg_dim(&c->out[0], -1);
    BK_REAL_CALL(bk_call_f64(c), bk_swiglu_fwd, c->out[0].p, c->in[0].p, f ? bk_elements(c->out[0].v) / f : 0,
                 f);
    return BK_OK;
}

static bk_status swiglu_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *da = bk_in(g, op, 0);
    int64_t dim[BK_MAX_DIMS] = {0};
    for (int d = 0; d < da->rank; d++) dim[d] = da->dim[d].size;
    if (da->rank > 0) dim[da->rank - 1] *= 2;
    bk_status st = bk_shape_need(g, op, 1, "h, twice as wide as the gradient,", da->rank, dim, e);
    if (st == BK_OK) st = bk_shape_need_dtype(g, op, 1, da->dtype, e);
    if (st == BK_OK) bk_shape_like(out, bk_in(g, op, 1));
    return st;
}

static bk_status swiglu_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                    bk_err *e)
{
    return bk_spread_elementwise(out, g, op, axis, 2, false, e);
}

static void swiglu_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = BACKWARD_FLOPS * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status swiglu_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const int64_t f = bk_arg_dim(&c->in[0], -1);
    BK_REAL_CALL(bk_call_f64(c), bk_swiglu_bwd, c->out[0].p, c->in[0].p, c->in[1].p,
                 f ? bk_elements(c->in[0].v) / f : 0, f, 0);
    return BK_OK;
}

const bk_op_rules bk_swiglu_rules = {.shape = swiglu_shape,
                                     .spread = swiglu_spread,
                                     .cost = swiglu_cost,
                                     .grad = swiglu_grad,
                                     .cpu = swiglu_cpu};

const bk_op_rules bk_swiglu_grad_rules = {.shape = swiglu_grad_shape,
                                          .spread = swiglu_grad_spread,
                                          .cost = swiglu_grad_cost,
                                          .cpu = swiglu_grad_cpu};
