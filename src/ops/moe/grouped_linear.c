/* grouped_linear: y [R, N] = x [R, K] w_e [N, K]^T, each row with the weight of its expert e: the rows of
 * expert e are segments[e] .. segments[e + 1] - 1. Its gradient is two ops, as that of linear:
 * grouped_linear_dgrad (dx = dy w_e) and grouped_linear_wgrad (dw_e += dy^T x over the rows of e, in a pass
 * of its own). An expert without rows gets an exact zero. One product for each expert; what stands behind the
 * last row is not read. */
#define BK_BOTH "ops/linear/linear_cpu.h"
#include "base/real_both.h"
#include "ops/moe/segments.h"

#include <stdlib.h>
#include <string.h>

enum { X, SEGMENTS, WEIGHTS }; /* inputs of grouped_linear and, with dy for x, of its dgrad */

/* Inputs dy, x, segments of wgrad. */
enum { WGRAD_SEGMENTS = 2 };

static bk_status need_experts(const bk_graph *g, const bk_op *op, int segments, int64_t n, bk_err *e)
{
    return bk_shape_need(g, op, segments, "segments, one more than there are weights,", 1,
                         (const int64_t[]){n + 1}, e);
}

/* All rows of the plan: what the balanced case costs. */
static void product_cost(bk_cost *out, const bk_graph *g, const bk_op *op, int64_t N, int64_t K)
{
    out->madds = bk_in(g, op, 0)->dim[0].size * N * K;
    out->bytes = bk_cost_bytes(g, op);
}

static int64_t product_workspace(const bk_graph *g, const bk_op *op, int64_t N, int64_t K)
{
    const bk_value *x = bk_in(g, op, 0);
    return BK_REAL_CALL(x->dtype == BK_F64, bk_linear_workspace, x->dim[0].size, N, K);
}

/* Row `row` of an operand [R, width]. */
static void *row_at(const bk_arg *a, int64_t row)
{
    return (char *)a->p + row * bk_arg_dim(a, 1) * bk_dtype_bytes(a->v->dtype);
}

/* ---- grouped_linear ---- */

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_shape_pattern(out, g, op, "rk,G:l,nk*>rn", e);
    if (st == BK_OK) st = need_experts(g, op, SEGMENTS, op->n_in - WEIGHTS, e);
    if (st == BK_OK) bk_count_rows(out, g, op, SEGMENTS);
    return st;
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Rk,G:l,nk*>Rn", e);
}

static void fwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *w = bk_in(g, op, WEIGHTS);
    product_cost(out, g, op, w->dim[0].size, w->dim[1].size);
}

static int64_t fwd_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *w = bk_in(g, op, WEIGHTS);
    return product_workspace(g, op, w->dim[0].size, w->dim[1].size);
}

/* dgrad takes the inputs of the op with dy for x. */
static bk_status input_grad(bk_grad_ctx *c, bk_oid id, bk_vid x, bk_vid dy, bk_err *e)
{
    const bk_op op = c->g->op[id];
    bk_vid dx, *in = malloc((size_t)op.n_in * sizeof *in);
    if (!in) return bk_err_set(e, BK_E_MEM, "autodiff: out of memory");
    memcpy(in, bk_ins(c->g, &op), (size_t)op.n_in * sizeof *in);
    in[X] = dy;
    const bk_op_spec spec = {
        .kind = BK_OP_grouped_linear_dgrad, .in = in, .n_in = op.n_in, .n_out = 1, .name = "moe.dx"};
    bk_status st = bk_op_add(&dx, c->g, &spec, e);
    if (st == BK_OK) st = bk_grad_add(c, x, dx, e);
    free(in);
    return st;
}

static bk_status weight_grads(bk_grad_ctx *c, bk_oid id, bk_vid x, bk_vid segments, bk_vid dy, bk_err *e)
{
    const int n = c->g->op[id].n_in - WEIGHTS;
    bk_vid *w = malloc((size_t)n * sizeof *w);
    if (!w) return bk_err_set(e, BK_E_MEM, "autodiff: out of memory");
    memcpy(w, bk_ins(c->g, &c->g->op[id]) + WEIGHTS, (size_t)n * sizeof *w);
    bk_status st = BK_OK;
    if (bk_grad_wanted(c, w[0])) {
        const bk_vid in[] = {dy, x, segments};
        const bk_op_spec spec = {.kind = BK_OP_grouped_linear_wgrad, .in = in, .n_in = 3};
        st = bk_grad_op(NULL, c, &spec, w, n, id, e);
    }
    free(w);
    return st;
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_vid *in = bk_ins(c->g, &c->g->op[id]);
    const bk_vid x = in[X], segments = in[SEGMENTS], dy = bk_grad_of(c, bk_outs(c->g, &c->g->op[id])[0]);
    if (dy == BK_NONE) return BK_OK;
    bk_status st = bk_grad_wanted(c, x) ? input_grad(c, id, x, dy, e) : BK_OK;
    const bk_tag tag = c->g->tag;
    c->g->tag.pass = BK_PASS_WGRAD;
    if (st == BK_OK) st = weight_grads(c, id, x, segments, dy, e);
    c->g->tag = tag;
    return st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *s = &c->in[SEGMENTS];
    for (int k = WEIGHTS; k < c->op->n_in; k++) {
        const bk_arg *w = &c->in[k];
        const int64_t row = bk_row_of(s, k - WEIGHTS), n = bk_row_of(s, k - WEIGHTS + 1) - row;
        if (n == 0) continue;
        BK_REAL_CALL(bk_call_f64(c), bk_linear_fwd, row_at(&c->out[0], row), row_at(&c->in[X], row), w->p,
                     NULL, n, bk_arg_dim(w, 0), bk_arg_dim(w, 1), c->deterministic, c->work);
    }
    return BK_OK;
}

const bk_op_rules bk_grouped_linear_rules = {.shape = fwd_shape,
                                             .spread = fwd_spread,
                                             .cost = fwd_cost,
                                             .workspace = fwd_workspace,
                                             .grad = fwd_grad,
                                             .cpu = fwd_cpu};

/* ---- grouped_linear_dgrad: inputs dy, segments, weights ---- */

static bk_status dgrad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_shape_pattern(out, g, op, "rn,G:l,nk*>rk", e);
    if (st == BK_OK) st = need_experts(g, op, SEGMENTS, op->n_in - WEIGHTS, e);
    if (st == BK_OK) bk_count_rows(out, g, op, SEGMENTS);
    return st;
}

static bk_status dgrad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Rn,G:l,nk*>Rk", e);
}

static bk_status dgrad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *s = &c->in[SEGMENTS];
    for (int k = WEIGHTS; k < c->op->n_in; k++) {
        const bk_arg *w = &c->in[k];
        const int64_t row = bk_row_of(s, k - WEIGHTS), n = bk_row_of(s, k - WEIGHTS + 1) - row;
        if (n == 0) continue;
        BK_REAL_CALL(bk_call_f64(c), bk_linear_dgrad, row_at(&c->out[0], row), row_at(&c->in[X], row), w->p,
                     n, bk_arg_dim(w, 0), bk_arg_dim(w, 1), 0, c->deterministic, c->work);
    }
    return BK_OK;
}

const bk_op_rules bk_grouped_linear_dgrad_rules = {.shape = dgrad_shape,
                                                   .spread = dgrad_spread,
                                                   .cost = fwd_cost,
                                                   .workspace = fwd_workspace,
                                                   .cpu = dgrad_cpu};

/* ---- grouped_linear_wgrad: inputs dy, x, segments; updates the gradients of the weights ---- */

static bk_status wgrad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "rn,rk,G:l>+nk*", e);
    return st == BK_OK ? need_experts(g, op, WGRAD_SEGMENTS, op->n_upd, e) : st;
}

static bk_status wgrad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Rn,Rk,G:l>+nk*", e);
}

static void wgrad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    product_cost(out, g, op, bk_in(g, op, 0)->dim[1].size, bk_in(g, op, 1)->dim[1].size);
}

static int64_t wgrad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    return product_workspace(g, op, bk_in(g, op, 0)->dim[1].size, bk_in(g, op, 1)->dim[1].size);
}

static bk_status wgrad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *dy = &c->in[0], *x = &c->in[1], *s = &c->in[WGRAD_SEGMENTS];
    for (int k = 0; k < c->op->n_upd; k++) {
        const int64_t row = bk_row_of(s, k), n = bk_row_of(s, k + 1) - row;
        if (n == 0) {
            if (c->assign[k]) memset(c->upd[k].p, 0, (size_t)bk_value_bytes(c->upd[k].v));
            continue;
        }
        BK_REAL_CALL(bk_call_f64(c), bk_linear_wgrad, c->upd[k].p, NULL, row_at(dy, row), row_at(x, row), n,
                     bk_arg_dim(dy, 1), bk_arg_dim(x, 1), bk_call_beta(c, k), 0, c->deterministic, c->work);
    }
    return BK_OK;
}

const bk_op_rules bk_grouped_linear_wgrad_rules = {.shape = wgrad_shape,
                                                   .spread = wgrad_spread,
                                                   .cost = wgrad_cost,
                                                   .workspace = wgrad_workspace,
                                                   .cpu = wgrad_cpu};
