/* dropout: y = drop(x). Inputs x [S, B, C], samples i64 [B]. The draws are keyed (base/philox.h), so the
 * gradient is the same op on dy. Not split along positions or width: an element's draw depends on both. */
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

enum { P, SEED, SITE };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const double p = bk_attr_f(op, P);
    if (!(p >= 0 && p < 1)) return bk_err_set(e, BK_E_INPUT, "dropout probability %g is not in [0, 1)", p);
    return bk_shape_pattern(out, g, op, "sbc,b:l>sbc", e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, bk_attr_f(op, P) > 0 ? "SbC,b>SbC" : "sbc,b>sbc", e);
}

static bk_status grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    if (dy == BK_NONE || !bk_grad_wanted(c, op.in[0])) return BK_OK;
    bk_vid dx;
    const bk_op_spec spec = {
        .kind = BK_OP_dropout,
        .in = (const bk_vid[]){dy, op.in[1]},
        .n_in = 2,
        .name = "dropout.dx",
        .attr = {[P] = op.op.attr[P], [SEED] = op.op.attr[SEED], [SITE] = op.op.attr[SITE]},
    };
    const bk_status st = bk_op_add(&dx, c->g, &spec, e);
    return st == BK_OK ? bk_grad_add(c, op.in[0], dx, e) : st;
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *x = &c->in[0];
    BK_REAL_CALL(bk_call_f64(c), bk_dropout_fwd, c->out[0].p, x->p, bk_op_dropout_key(c->op, P), c->in[1].p,
                 bk_arg_dim(x, 0), bk_arg_dim(x, 1), bk_arg_dim(x, 2), bk_attr_f(c->op, P));
    return BK_OK;
}

const bk_op_rules bk_dropout_rules = {.shape = shape, .spread = spread, .grad = grad, .cpu = cpu};
