/* scale: y = x * factor, of any shape. */
#include <math.h>

#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

enum { FACTOR };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    if (!isfinite(bk_attr_f(op, FACTOR)))
        return bk_err_set(e, BK_E_INPUT, "factor is %g, expected a number", bk_attr_f(op, FACTOR));
    return bk_shape_elementwise(out, g, op, 1, e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_elementwise(out, g, op, axis, 1, true, e);
}

static bk_status grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    if (dy == BK_NONE || !bk_grad_wanted(c, op.in[0])) return BK_OK;
    bk_vid dx;
    const bk_status st = bk_op1(&dx, c->g, e, BK_OP_scale, "scale.dx", (.attr = {op.op.attr[FACTOR]}), dy);
    return st == BK_OK ? bk_grad_add(c, op.in[0], dx, e) : st;
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_scale, c->out[0].p, c->in[0].p, bk_elements(c->in[0].v),
                 bk_attr_f(c->op, FACTOR), 0);
    return BK_OK;
}

const bk_op_rules bk_scale_rules = {.shape = shape, .spread = spread, .grad = grad, .cpu = cpu};
