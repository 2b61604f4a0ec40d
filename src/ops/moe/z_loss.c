/* z_loss: loss [1] of logits [S, B, E], the mean over tokens of the squared logarithm of the softmax's sum,
 * which keeps logits small. z_loss_grad: dlogits of dloss [1], logits. Where tokens are split over ranks, the
 * mean is that of this rank's tokens and a part of the loss as in masked_mean. */
#include "ops/moe/route_rules.h"

#define BK_BOTH "ops/moe/balance_cpu.h"
#include "base/real_both.h"

enum { FORWARD_FLOPS = 10, BACKWARD_FLOPS = 20 }; /* for each logit */

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_route_logits(g, op, 0, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, "sbE>1", e) : st;
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbE>1", e);
}

static void fwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = FORWARD_FLOPS * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

/* A term of each token. */
static int64_t fwd_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *logits = bk_in(g, op, 0);
    return logits->dim[0].size * logits->dim[1].size * (int64_t)sizeof(double);
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dloss = bk_grad_of(c, op.out[0]), logits = op.in[0];
    if (dloss == BK_NONE || !bk_grad_wanted(c, logits)) return BK_OK;
    bk_vid dlogits;
    const bk_status st = bk_op1(&dlogits, c->g, e, BK_OP_z_loss_grad, "z_loss.dlogits", (), dloss, logits);
    return st == BK_OK ? bk_grad_add(c, logits, dlogits, e) : st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *logits = &c->in[0];
    BK_REAL_CALL(bk_call_f64(c), bk_z_loss_fwd, c->out[0].p, logits->p, c->work, bk_arg_tokens(logits),
                 bk_arg_dim(logits, 2));
    return BK_OK;
}

const bk_op_rules bk_z_loss_rules = {.shape = fwd_shape,
                                     .spread = fwd_spread,
                                     .cost = fwd_cost,
                                     .workspace = fwd_workspace,
                                     .grad = fwd_grad,
                                     .cpu = fwd_cpu};

static bk_status bwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_route_logits(g, op, 1, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, "1,sbE>sbE", e) : st;
}

static bk_status bwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "1,sbE>sbE", e);
}

static void bwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = BACKWARD_FLOPS * bk_elements(bk_in(g, op, 1));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status bwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *logits = &c->in[1];
    int beta;
    const bk_arg *to = bk_call_out0(c, &beta);
    BK_REAL_CALL(bk_call_f64(c), bk_z_loss_bwd, to->p, c->in[0].p, logits->p, bk_arg_tokens(logits),
                 bk_arg_dim(logits, 2), beta);
    return BK_OK;
}

const bk_op_rules bk_z_loss_grad_rules = {
    .shape = bwd_shape, .spread = bwd_spread, .cost = bwd_cost, .cpu = bwd_cpu};
