/* aux_loss: loss [1] of logits [S, B, E] and counts [Q, E], large where the experts that are counted often
 * are also probable; Q is B for each sequence by itself, or 1. aux_loss_grad: dlogits of dloss [1], logits,
 * counts; through the counts flows nothing. Where tokens are split over ranks, the counts are those of all of
 * them and the loss is a partial sum. */
#include <string.h>
#include "ops/moe/route_rules.h"

#define BK_BOTH "ops/moe/balance_cpu.h"
#include "base/real_both.h"

enum { TOPK, SCORE };
enum { FORWARD_FLOPS = 18, BACKWARD_FLOPS = 30 }; /* for each logit */

static bk_route route_of(const bk_call *c, const bk_arg *logits)
{
    return (bk_route){.experts = bk_arg_dim(logits, 2),
                      .topk = bk_attr_i(c->op, TOPK),
                      .score = (int)bk_attr_i(c->op, SCORE)};
}

/* What both need of logits, input k, and counts, the input behind it. */
static bk_status need_inputs(const bk_graph *g, const bk_op *op, int k, bk_err *e)
{
    const bk_status st = bk_route_logits(g, op, k, e);
    if (st != BK_OK) return st;
    const int64_t B = bk_in(g, op, k)->dim[1].size, Q = bk_in(g, op, k + 1)->dim[0].size;
    char text[BK_OPERAND_TEXT];
    if (Q != 1 && Q != B)
        return bk_err_set(e, BK_E_INPUT,
                          "%s: expected one row of counts or one for each of the %" PRId64 " samples",
                          bk_operand_text(text, g, op, k + 1), B);
    return bk_route_need(bk_attr_i(op, TOPK), bk_in(g, op, k)->dim[2].size, bk_attr_i(op, SCORE), e);
}

/* Whether the rows of the counts, input k, go with the samples. */
static bool rows_are_samples(const bk_graph *g, const bk_op *op, int k, bk_axis axis)
{
    const bk_value *counts = bk_in(g, op, k);
    const bk_spread s = counts->spread[axis];
    return counts->dim[0].size != 1 || (s.kind == BK_SPLIT && s.dim == 0);
}

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "sbE,QE>1", e);
    return st == BK_OK ? need_inputs(g, op, 0, e) : st;
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, rows_are_samples(g, op, 1, axis) ? "sbE,bE>1" : "sbE,QE>1", e);
}

static void fwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = FORWARD_FLOPS * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

/* A term of each token, a factor of each row of the counts. */
static int64_t fwd_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *logits = bk_in(g, op, 0);
    const int64_t tokens = logits->dim[0].size * logits->dim[1].size;
    return (tokens + bk_in(g, op, 1)->dim[0].size) * (int64_t)sizeof(double);
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dloss = bk_grad_of(c, op.out[0]), logits = op.in[0];
    if (dloss == BK_NONE || !bk_grad_wanted(c, logits)) return BK_OK;
    const bk_vid in[] = {dloss, logits, op.in[1]};
    bk_op_spec spec = {
        .kind = BK_OP_aux_loss_grad, .in = in, .n_in = 3, .n_out = 1, .name = "aux_loss.dlogits"};
    memcpy(spec.attr, op.op.attr, sizeof spec.attr);
    bk_vid dlogits;
    const bk_status st = bk_op_add(&dlogits, c->g, &spec, e);
    return st == BK_OK ? bk_grad_add(c, logits, dlogits, e) : st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *logits = &c->in[0], *counts = &c->in[1];
    BK_REAL_CALL(bk_call_f64(c), bk_aux_loss_fwd, c->out[0].p, logits->p, counts->p, c->work,
                 bk_arg_tokens(logits), bk_arg_dim(counts, 0), route_of(c, logits));
    return BK_OK;
}

const bk_op_rules bk_aux_loss_rules = {.shape = fwd_shape,
                                       .spread = fwd_spread,
                                       .cost = fwd_cost,
                                       .workspace = fwd_workspace,
                                       .grad = fwd_grad,
                                       .cpu = fwd_cpu};

static bk_status bwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "1,sbE,QE>sbE", e);
    return st == BK_OK ? need_inputs(g, op, 1, e) : st;
}

static bk_status bwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis,
                             rows_are_samples(g, op, 2, axis) ? "1,sbE,bE>sbE" : "1,sbE,QE>sbE", e);
}

static void bwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = BACKWARD_FLOPS * bk_elements(bk_in(g, op, 1));
    out->bytes = bk_cost_bytes(g, op);
}

static int64_t bwd_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    return bk_in(g, op, 2)->dim[0].size * (int64_t)sizeof(double);
}

static bk_status bwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *logits = &c->in[1], *counts = &c->in[2];
    int beta;
    const bk_arg *to = bk_call_out0(c, &beta);
    BK_REAL_CALL(bk_call_f64(c), bk_aux_loss_bwd, to->p, c->in[0].p, logits->p, counts->p, c->work,
                 bk_arg_tokens(logits), bk_arg_dim(counts, 0), route_of(c, logits), beta);
    return BK_OK;
}

const bk_op_rules bk_aux_loss_grad_rules = {
    .shape = bwd_shape, .spread = bwd_spread, .cost = bwd_cost, .workspace = bwd_workspace, .cpu = bwd_cpu};
