/* masked_mean: mean, sum, n [1] of x [B, S] where mask [B, S] is set: sum of x * mask, n = sum of mask,
 * mean = sum / max(n, 1). masked_mean_grad: dx of dmean, mask, n.
 *
 * Over an axis that splits tokens, sum and n are partial sums, and so is mean in the sense of the loss: the
 * loss is the sum over the ranks of their means, each times the seed of its gradient (1 / ranks for an
 * average). That is why the gradient takes n as this rank has it, unreduced. */
#include "ops/rules.h"

#define BK_BOTH "ops/loss/loss_cpu.h"
#include "base/real_both.h"

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "bs,bs>1,1,1", e);
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "bs,bs>1,1,1", e);
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dmean = bk_grad_of(c, op.out[0]);
    if (bk_grad_of(c, op.out[1]) != BK_NONE || bk_grad_of(c, op.out[2]) != BK_NONE)
        return bk_err_set(e, BK_E_CHECK, "masked_mean: gradient flows through the mean (output 0) alone");
    if (dmean == BK_NONE || !bk_grad_wanted(c, op.in[0])) return BK_OK;
    bk_vid dx;
    const bk_status st = bk_op1(&dx, c->g, e, BK_OP_masked_mean_grad, "masked_mean.dx", (.n_out = 1), dmean,
                                op.in[1], op.out[2]);
    return st == BK_OK ? bk_grad_add(c, op.in[0], dx, e) : st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_masked_mean_fwd, c->out[0].p, c->out[1].p, c->out[2].p, c->in[0].p,
                 c->in[1].p, bk_elements(c->in[0].v));
    return BK_OK;
}

const bk_op_rules bk_masked_mean_rules = {
    .shape = fwd_shape, .spread = fwd_spread, .grad = fwd_grad, .cpu = fwd_cpu};

static bk_status bwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "1,bs,1>bs", e);
}

static bk_status bwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "1,bs,?1>bs", e);
}

static bk_status bwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_masked_mean_bwd, c->out[0].p, c->in[1].p, c->in[2].p, c->in[0].p,
                 bk_elements(c->out[0].v), 0);
    return BK_OK;
}

const bk_op_rules bk_masked_mean_grad_rules = {.shape = bwd_shape, .spread = bwd_spread, .cpu = bwd_cpu};
