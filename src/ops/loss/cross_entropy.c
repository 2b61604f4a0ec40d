/* cross_entropy: loss, lse [B, S] of logits [S, B, V] and labels i32 [B, S]. cross_entropy_grad: dlogits of
 * dloss, logits, lse, labels. The vocabulary is not split: the log-sum needs all of it. */
#include "ops/rules.h"

#include <inttypes.h>

#define BK_BOTH "ops/loss/loss_cpu.h"
#include "base/real_both.h"

enum { FLOPS_OF_LOGIT = 4 }; /* maximum, subtract, exponential, sum or product */

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "sbv,bs:i>bs,bs", e);
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbV,bs>bs,bs", e);
}

static void fwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = FLOPS_OF_LOGIT * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dloss = bk_grad_of(c, op.out[0]), logits = op.in[0], labels = op.in[1];
    if (bk_grad_of(c, op.out[1]) != BK_NONE)
        return bk_err_set(e, BK_E_CHECK, "cross_entropy: no gradient flows through the log-sum (output 1)");
    if (dloss == BK_NONE || !bk_grad_wanted(c, logits)) return BK_OK;
    bk_vid dlogits;
    const bk_status st = bk_op1(&dlogits, c->g, e, BK_OP_cross_entropy_grad, "cross_entropy.dlogits",
                                (.n_out = 1), dloss, logits, op.out[1], labels);
    return st == BK_OK ? bk_grad_add(c, logits, dlogits, e) : st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    const bk_arg *logits = &c->in[0], *labels = &c->in[1];
    const int64_t S = bk_arg_dim(logits, 0), V = bk_arg_dim(logits, 2);
    const int64_t bad = BK_REAL_CALL(bk_call_f64(c), bk_cross_entropy_fwd, c->out[0].p, c->out[1].p,
                                     logits->p, labels->p, S, bk_arg_dim(logits, 1), V);
    if (bad < 0) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "label %" PRId32 " at position %" PRId64 " of sequence %" PRId64
                      " is not in the vocabulary of %" PRId64
                      "; the data and the model need the same tokenizer",
                      ((const int32_t *)labels->p)[bad], bad % S, bad / S, V);
}

const bk_op_rules bk_cross_entropy_rules = {
    .shape = fwd_shape, .spread = fwd_spread, .cost = fwd_cost, .grad = fwd_grad, .cpu = fwd_cpu};

static bk_status bwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "bs,sbv,bs,bs:i>sbv", e);
}

static bk_status bwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "bs,sbV,bs,bs>sbV", e);
}

static void bwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = FLOPS_OF_LOGIT * bk_elements(bk_in(g, op, 1));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status bwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *logits = &c->in[1];
    BK_REAL_CALL(bk_call_f64(c), bk_cross_entropy_bwd, c->out[0].p, logits->p, c->in[2].p, c->in[3].p,
                 c->in[0].p, bk_arg_dim(logits, 0), bk_arg_dim(logits, 1), bk_arg_dim(logits, 2), 0);
    return BK_OK;
}

const bk_op_rules bk_cross_entropy_grad_rules = {
    .shape = bwd_shape, .spread = bwd_spread, .cost = bwd_cost, .cpu = bwd_cpu};
