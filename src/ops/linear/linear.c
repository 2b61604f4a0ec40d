/* linear: y [S, B, N] = x [S, B, K] w [N, K]^T + bias [N], bias absent or not. Its gradient is two ops:
 * linear_dgrad (dx = dy w) in the backward pass and linear_wgrad (dw += dy^T x, dbias += the sum of dy) in a
 * pass of its own, so that a schedule can delay it. */
#include "ops/rules.h"

#define BK_BOTH "ops/linear/linear_cpu.h"
#include "base/real_both.h"

static int64_t n_tokens(const bk_value *v)
{
    return v->dim[0].size * v->dim[1].size;
}

/* All three ops have one product of T x N x K and one bound for its scratch memory. */
static void product_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_value *x, int64_t n_out)
{
    out->madds = n_tokens(x) * n_out * x->dim[2].size;
    out->bytes = bk_cost_bytes(g, op);
}

static int64_t product_workspace(bool f64, int64_t T, int64_t N, int64_t K)
{
    return BK_REAL_CALL(f64, bk_linear_workspace, T, N, K);
}

/* ---- linear: inputs x, w, bias ---- */

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "sbk,nk,n>sbn", e);
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    const bk_status st = bk_spread_pattern(out, g, op, axis, "sbk,nk,n>sbn", e);
    if (st != BK_OK || out[0].kind != BK_PARTIAL || !bk_in(g, op, 2)) return st;
    return bk_err_set(
        e, BK_E_CHECK,
        "the product is a partial sum over %s, so each rank would add the bias %s; add it after the "
        "reduction",
        bk_axis_names[axis], bk_in(g, op, 2)->name);
}

static void fwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *x = bk_in(g, op, 0);
    const int64_t N = bk_in(g, op, 1)->dim[0].size;
    product_cost(out, g, op, x, N);
    out->flops = bk_in(g, op, 2) ? n_tokens(x) * N : 0;
}

static int64_t fwd_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *x = bk_in(g, op, 0), *w = bk_in(g, op, 1);
    return product_workspace(x->dtype == BK_F64, n_tokens(x), w->dim[0].size, w->dim[1].size);
}

/* The weight gradient op, or where the weight is frozen that of the bias alone. */
static bk_status param_grads(bk_grad_ctx *c, bk_vid dy, const bk_op_ids *op, bk_oid use, bk_err *e)
{
    const bk_vid x = op->in[0], w = op->in[1], bias = op->in[2];
    const bk_vid params[] = {w, bias};
    if (bk_grad_wanted(c, w)) {
        const bk_op_spec spec = {.kind = BK_OP_linear_wgrad, .in = (const bk_vid[]){dy, x}, .n_in = 2};
        return bk_grad_op(NULL, c, &spec, params, 2, use, e);
    }
    if (bk_grad_wanted(c, bias)) {
        const bk_op_spec spec = {.kind = BK_OP_bias_grad, .in = &dy, .n_in = 1};
        return bk_grad_op(NULL, c, &spec, &bias, 1, use, e);
    }
    return BK_OK;
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    bk_status st = BK_OK;
    if (dy == BK_NONE) return BK_OK;
    if (bk_grad_wanted(c, op.in[0])) {
        bk_vid dx;
        BK_TRY(bk_op1(&dx, c->g, e, BK_OP_linear_dgrad, "linear.dx", (.n_out = 1), dy, op.in[1]));
        BK_TRY(bk_grad_add(c, op.in[0], dx, e));
    }
    const bk_tag tag = c->g->tag;
    c->g->tag.pass = BK_PASS_WGRAD;
    st = param_grads(c, dy, &op, id, e);
    c->g->tag = tag;
done:
    return st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *x = &c->in[0], *w = &c->in[1];
    BK_REAL_CALL(bk_call_f64(c), bk_linear_fwd, c->out[0].p, x->p, w->p, bk_call_in(c, 2), bk_arg_tokens(x),
                 bk_arg_dim(w, 0), bk_arg_dim(w, 1), c->deterministic, c->work);
    return BK_OK;
}

const bk_op_rules bk_linear_rules = {.shape = fwd_shape,
                                     .spread = fwd_spread,
                                     .cost = fwd_cost,
                                     .workspace = fwd_workspace,
                                     .grad = fwd_grad,
                                     .cpu = fwd_cpu};

/* ---- linear_dgrad: inputs dy, w ---- */

static bk_status dgrad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "sbn,nk>sbk", e);
}

static bk_status dgrad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbn,nk>sbk", e);
}

static void dgrad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    product_cost(out, g, op, bk_in(g, op, 0), bk_in(g, op, 1)->dim[1].size);
}

static int64_t dgrad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *dy = bk_in(g, op, 0), *w = bk_in(g, op, 1);
    return product_workspace(dy->dtype == BK_F64, n_tokens(dy), w->dim[0].size, w->dim[1].size);
}

static bk_status dgrad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *dy = &c->in[0], *w = &c->in[1];
    int beta;
    const bk_arg *dx = bk_call_out0(c, &beta);
    BK_REAL_CALL(bk_call_f64(c), bk_linear_dgrad, dx->p, dy->p, w->p, bk_arg_tokens(dy), bk_arg_dim(w, 0),
                 bk_arg_dim(w, 1), beta, c->deterministic, c->work);
    return BK_OK;
}

const bk_op_rules bk_linear_dgrad_rules = {.shape = dgrad_shape,
                                           .spread = dgrad_spread,
                                           .cost = dgrad_cost,
                                           .workspace = dgrad_workspace,
                                           .cpu = dgrad_cpu};

/* ---- linear_wgrad: inputs dy, x; updates dw and maybe dbias ---- */

static bk_status wgrad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "sbn,sbk>+nk,n", e);
}

static bk_status wgrad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    const bk_status st = bk_spread_pattern(out, g, op, axis, "sbn,sbk>+nk,n", e);
    if (st != BK_OK) return st;
    /* Where x is split along k, the bias gradient, which does not see x, is whole on each rank. */
    if (op->n_upd == 2 && out[0].kind == BK_SPLIT && out[0].dim == 1) out[1] = (bk_spread){.kind = BK_SAME};
    return BK_OK;
}

static void wgrad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *dy = bk_in(g, op, 0);
    product_cost(out, g, op, bk_in(g, op, 1), dy->dim[2].size);
    out->flops = op->n_upd == 2 ? bk_elements(dy) : 0;
}

static int64_t wgrad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *dy = bk_in(g, op, 0), *x = bk_in(g, op, 1);
    return product_workspace(dy->dtype == BK_F64, n_tokens(dy), dy->dim[2].size, x->dim[2].size);
}

static bk_status wgrad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *dy = &c->in[0], *x = &c->in[1];
    const bool has_bias = c->op->n_upd == 2;
    BK_REAL_CALL(bk_call_f64(c), bk_linear_wgrad, c->upd[0].p, has_bias ? c->upd[1].p : NULL, dy->p, x->p,
                 bk_arg_tokens(dy), bk_arg_dim(dy, 2), bk_arg_dim(x, 2), bk_call_beta(c, 0),
                 has_bias ? bk_call_beta(c, 1) : 0, c->deterministic, c->work);
    return BK_OK;
}

const bk_op_rules bk_linear_wgrad_rules = {.shape = wgrad_shape,
                                           .spread = wgrad_spread,
                                           .cost = wgrad_cost,
                                           .workspace = wgrad_workspace,
                                           .cpu = wgrad_cpu};
