/* residual_add: out = res + drop(y + bias). Inputs res, y [S, B, C], bias [C] or absent, samples i64 [B] or
 * absent where p is 0. The gradient of res is that of out itself, that of y its dropout. */
#include "ops/rules.h"

#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

enum { P, SEED, SITE };
enum { RES, Y, BIAS, SAMPLES };

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const double p = bk_attr_f(op, P);
    if (!(p >= 0 && p < 1)) return bk_err_set(e, BK_E_INPUT, "dropout probability %g is not in [0, 1)", p);
    if (p > 0 && !bk_in(g, op, SAMPLES))
        return bk_err_set(e, BK_E_INPUT, "dropout needs the sample numbers as input %d", SAMPLES);
    return bk_shape_pattern(out, g, op, "sbc,sbc,c,b:l>sbc", e);
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    const bool draws = bk_attr_f(op, P) > 0;
    return bk_spread_pattern(out, g, op, axis, draws ? "SbC,SbC,C,b>SbC" : "sbc,sbc,c,b>sbc", e);
}

static bk_status grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dout = bk_grad_of(c, op.out[0]);
    bk_status st = BK_OK;
    if (dout == BK_NONE) return BK_OK;
    BK_TRY(bk_grad_add(c, op.in[RES], dout, e));
    const bool wants_bias = bk_grad_wanted(c, op.in[BIAS]);
    if (!wants_bias && !bk_grad_wanted(c, op.in[Y])) return BK_OK;
    bk_vid dy = dout;
    if (bk_attr_f(&op.op, P) > 0)
        BK_TRY(bk_op1(&dy, c->g, e, BK_OP_dropout, "residual_add.dy",
                      (.attr = {[P] = op.op.attr[P], [SEED] = op.op.attr[SEED], [SITE] = op.op.attr[SITE]}),
                      dout, op.in[SAMPLES]));
    BK_TRY(bk_grad_add(c, op.in[Y], dy, e));
    if (wants_bias) {
        const bk_op_spec spec = {.kind = BK_OP_bias_grad, .in = &dy, .n_in = 1};
        BK_TRY(bk_grad_op(NULL, c, &spec, &op.in[BIAS], 1, id, e));
    }
done:
    return st;
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *x = &c->in[RES];
    BK_REAL_CALL(bk_call_f64(c), bk_residual_add_fwd, c->out[0].p, x->p, c->in[Y].p, bk_call_in(c, BIAS),
                 bk_op_dropout_key(c->op, P), bk_call_in(c, SAMPLES), bk_arg_dim(x, 0), bk_arg_dim(x, 1),
                 bk_arg_dim(x, 2), bk_attr_f(c->op, P));
    return BK_OK;
}

const bk_op_rules bk_residual_add_rules = {.shape = shape, .spread = spread, .grad = grad, .cpu = cpu};
