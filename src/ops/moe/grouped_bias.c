/* grouped_bias: y [R, N] = x + p [R] bias_e [N], each row with the bias of its expert e; p is 1 where there
 * are no probabilities. Inputs x, segments, probs or none, the biases. grouped_bias_grad: dprobs [R] of dy,
 * segments, the biases; grouped_bias_wgrad: dbias_e of dy, segments, probs or none. dx is dy. */
#define BK_BOTH "ops/moe/experts_cpu.h"
#include "base/real_both.h"
#include "ops/moe/segments.h"

#include <stdlib.h>
#include <string.h>

enum { X, SEGMENTS, PROBS, BIASES };

/* The kernels see the rows of one expert at a time. */
static void *from_row(const bk_arg *a, int64_t row)
{
    if (!a->p) return NULL; /* no probabilities */
    const int64_t width = a->v->rank == 2 ? bk_arg_dim(a, 1) : 1;
    return (char *)a->p + row * width * bk_dtype_bytes(a->v->dtype);
}

static bk_status need_experts(const bk_graph *g, const bk_op *op, int64_t n, bk_err *e)
{
    return bk_shape_need(g, op, SEGMENTS, "segments, one more than there are biases,", 1,
                         (const int64_t[]){n + 1}, e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = 2 * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    for (int k = BIASES; k < op->n_in; k++)
        if (!bk_in(g, op, k))
            return bk_err_set(e, BK_E_INPUT, "input %d is absent: every expert has a bias", k);
    bk_status st = bk_shape_pattern(out, g, op, "rn,G:l,r,n*>rn", e);
    if (st == BK_OK) st = need_experts(g, op, op->n_in - BIASES, e);
    if (st == BK_OK) bk_count_rows(out, g, op, SEGMENTS);
    return st;
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Rn,G:l,R,n*>Rn", e);
}

static bk_status probs_grad(bk_grad_ctx *c, bk_oid id, bk_vid dy, bk_vid probs, bk_err *e)
{
    const bk_op op = c->g->op[id];
    bk_vid dprobs, *in = malloc((size_t)op.n_in * sizeof *in);
    if (!in) return bk_err_set(e, BK_E_MEM, "autodiff: out of memory");
    memcpy(in + 2, bk_ins(c->g, &op) + BIASES, (size_t)(op.n_in - BIASES) * sizeof *in);
    in[0] = dy, in[1] = bk_ins(c->g, &op)[SEGMENTS];
    const bk_op_spec spec = {
        .kind = BK_OP_grouped_bias_grad, .in = in, .n_in = op.n_in - 1, .n_out = 1, .name = "moe.dprobs"};
    bk_status st = bk_op_add(&dprobs, c->g, &spec, e);
    if (st == BK_OK) st = bk_grad_add(c, probs, dprobs, e);
    free(in);
    return st;
}

static bk_status bias_grads(bk_grad_ctx *c, bk_oid id, bk_vid dy, bk_vid probs, bk_err *e)
{
    const bk_op op = c->g->op[id];
    const int n = op.n_in - BIASES;
    const bk_vid in[] = {dy, bk_ins(c->g, &op)[SEGMENTS], probs};
    bk_vid *bias = malloc((size_t)n * sizeof *bias);
    if (!bias) return bk_err_set(e, BK_E_MEM, "autodiff: out of memory");
    memcpy(bias, bk_ins(c->g, &op) + BIASES, (size_t)n * sizeof *bias);
    const bk_op_spec spec = {.kind = BK_OP_grouped_bias_wgrad, .in = in, .n_in = probs == BK_NONE ? 2 : 3};
    const bk_status st = bk_grad_wanted(c, bias[0]) ? bk_grad_op(NULL, c, &spec, bias, n, id, e) : BK_OK;
    free(bias);
    return st;
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_vid x = bk_ins(c->g, &c->g->op[id])[X], probs = bk_ins(c->g, &c->g->op[id])[PROBS];
    const bk_vid dy = bk_grad_of(c, bk_outs(c->g, &c->g->op[id])[0]);
    if (dy == BK_NONE) return BK_OK;
    bk_status st = bk_grad_wanted(c, x) ? bk_grad_add(c, x, dy, e) : BK_OK;
    if (st == BK_OK && probs != BK_NONE && bk_grad_wanted(c, probs)) st = probs_grad(c, id, dy, probs, e);
    const bk_tag tag = c->g->tag;
    c->g->tag.pass = BK_PASS_WGRAD;
    if (st == BK_OK) st = bias_grads(c, id, dy, probs, e);
    c->g->tag = tag;
    return st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *x = &c->in[X], *s = &c->in[SEGMENTS];
    for (int k = BIASES; k < c->op->n_in; k++) {
        const int64_t row = bk_row_of(s, k - BIASES), n = bk_row_of(s, k - BIASES + 1) - row;
        BK_REAL_CALL(bk_call_f64(c), bk_rows_bias_fwd, from_row(&c->out[0], row), from_row(x, row),
                     from_row(&c->in[PROBS], row), c->in[k].p, n, bk_arg_dim(x, 1));
    }
    return BK_OK;
}

const bk_op_rules bk_grouped_bias_rules = {
    .shape = fwd_shape, .spread = fwd_spread, .cost = cost, .grad = fwd_grad, .cpu = fwd_cpu};

/* ---- dprobs: inputs dy, segments, biases ---- */

static bk_status grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_shape_pattern(out, g, op, "rn,G:l,n*>r", e);
    if (st == BK_OK) st = need_experts(g, op, op->n_in - 2, e);
    if (st == BK_OK) bk_count_rows(out, g, op, SEGMENTS);
    return st;
}

static bk_status grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "RN,G:l,N*>R", e);
}

static bk_status grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *dy = &c->in[0], *s = &c->in[SEGMENTS];
    for (int k = 2; k < c->op->n_in; k++) {
        const int64_t row = bk_row_of(s, k - 2), n = bk_row_of(s, k - 1) - row;
        BK_REAL_CALL(bk_call_f64(c), bk_rows_bias_probs, from_row(&c->out[0], row), from_row(dy, row),
                     c->in[k].p, n, bk_arg_dim(dy, 1));
    }
    return BK_OK;
}

const bk_op_rules bk_grouped_bias_grad_rules = {
    .shape = grad_shape, .spread = grad_spread, .cost = cost, .cpu = grad_cpu};

/* ---- dbias: inputs dy, segments, probs or none ---- */

static bk_status wgrad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "rn,G:l,r>+n*", e);
    return st == BK_OK ? need_experts(g, op, op->n_upd, e) : st;
}

static bk_status wgrad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Rn,G:l,R>+n*", e);
}

static bk_status wgrad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *dy = &c->in[0], *s = &c->in[SEGMENTS];
    for (int k = 0; k < c->op->n_upd; k++) {
        const int64_t row = bk_row_of(s, k), n = bk_row_of(s, k + 1) - row;
        void *probs = c->op->n_in > PROBS ? from_row(&c->in[PROBS], row) : NULL;
        BK_REAL_CALL(bk_call_f64(c), bk_rows_bias_bwd, c->upd[k].p, from_row(dy, row), probs, n,
                     bk_arg_dim(dy, 1), bk_call_beta(c, k));
    }
    return BK_OK;
}

const bk_op_rules bk_grouped_bias_wgrad_rules = {
    .shape = wgrad_shape, .spread = wgrad_spread, .cost = cost, .cpu = wgrad_cpu};
