/* linear_pair: two linear layers of one input as one product,
 *
 *   linear_pair(x [S,B,K], w1 [N,K], w2 [M,K]; y [S,B,N+M])      y = x [w1; w2]^T
 *
 * so that x is read once and the product is wide. The parameters stay two, with their names. Its gradient is
 * that of linear: linear_pair_dgrad(dy, w1, w2; dx) and, in a pass of its own, linear_pair_wgrad(dy, x; +=
 * dw1, dw2). */
#include "base/size.h"
#define BK_BOTH "ops/linear/linear_pair_cpu.h"
#include "base/real_both.h"
#include "ops/rules.h"

/* The weights are operands 1 and 2 of linear_pair and its dgrad, and their gradients 2 and 3 of the wgrad. */
static int weights_at(const bk_op *op)
{
    return op->kind == BK_OP_linear_pair_wgrad ? 2 : 1;
}

static bk_linear_pair_sizes op_sizes(const bk_graph *g, const bk_op *op)
{
    const bk_value *tokens = bk_in(g, op, 0), *w1 = bk_operand(g, op, weights_at(op)),
                   *w2 = bk_operand(g, op, weights_at(op) + 1);
    return (bk_linear_pair_sizes){.n_tokens = tokens->dim[0].size * tokens->dim[1].size,
                                  .n_first = w1->dim[0].size,
                                  .n_second = w2->dim[0].size,
                                  .n_in = w1->dim[1].size};
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_linear_pair_sizes size = op_sizes(g, op);
    out->madds = size.n_tokens * (size.n_first + size.n_second) * size.n_in;
    out->bytes = bk_cost_bytes(g, op);
}

static int64_t workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_linear_pair_sizes size = op_sizes(g, op);
    return BK_REAL_CALL(bk_rule_real(g, op) == BK_F64, bk_linear_pair_workspace, &size);
}

/* N + M. */
static bk_status both_rows(int64_t *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const int at = weights_at(op);
    if (bk_add64(out, bk_operand(g, op, at)->dim[0].size, bk_operand(g, op, at + 1)->dim[0].size))
        return BK_OK;
    return bk_err_set(e, BK_E_MEM, "the rows of both weights together overflow");
}

/* Requires that dy, operand 0, is as wide as the two weights are high. */
static bk_status need_both_widths(const bk_graph *g, const bk_op *op, bk_err *e)
{
    int64_t both;
    const bk_status st = both_rows(&both, g, op, e);
    if (st != BK_OK) return st;
    return bk_shape_need(g, op, 0, "gradient [S, B, N+M]", 3, (const int64_t[]){-1, -1, both}, e);
}

/* ---- linear_pair: inputs x, w1, w2 ---- */

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_op inputs = *op; /* the output's width is a sum */
    inputs.n_out = 0;
    int64_t width;
    bk_status st = bk_shape_pattern(NULL, g, &inputs, "sbk,nk,mk", e);
    if (st == BK_OK) st = both_rows(&width, g, op, e);
    if (st != BK_OK) return st;
    const bk_value *x = bk_in(g, op, 0);
    bk_shape_set(out, x->dtype, 3, (const bk_dim[]){x->dim[0], x->dim[1], bk_fixed(width)});
    return BK_OK;
}

/* Parts of the two weights' rows would not be a part of the rows of both. */
static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbk,Nk,Mk>sbE", e);
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]), x = op.in[0], *w = &op.in[1];
    bk_status st = BK_OK;
    if (dy == BK_NONE) return BK_OK;
    if (bk_grad_wanted(c, x)) {
        bk_vid dx;
        BK_TRY(bk_op1(&dx, c->g, e, BK_OP_linear_pair_dgrad, "linear_pair.dx", (.n_out = 1), dy, w[0], w[1]));
        BK_TRY(bk_grad_add(c, x, dx, e));
    }
    if (!bk_grad_wanted(c, w[0]) && !bk_grad_wanted(c, w[1])) return BK_OK;
    const bk_tag tag = c->g->tag;
    const bk_op_spec spec = {.kind = BK_OP_linear_pair_wgrad, .in = (const bk_vid[]){dy, x}, .n_in = 2};
    c->g->tag.pass = BK_PASS_WGRAD;
    st = bk_grad_op(NULL, c, &spec, w, 2, id, e);
    c->g->tag = tag;
done:
    return st;
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_linear_pair_sizes size = op_sizes(c->g, c->op);
    BK_REAL_CALL(bk_call_f64(c), bk_linear_pair_fwd, c->out[0].p, c->in[0].p, c->in[1].p, c->in[2].p, &size,
                 c->deterministic, c->work);
    return BK_OK;
}

const bk_op_rules bk_linear_pair_rules = {.shape = fwd_shape,
                                          .spread = fwd_spread,
                                          .cost = cost,
                                          .workspace = workspace,
                                          .grad = fwd_grad,
                                          .cpu = fwd_cpu};

/* ---- linear_pair_dgrad: inputs dy, w1, w2 ---- */

static bk_status dgrad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "sbd,nk,mk>sbk", e);
    return st == BK_OK ? need_both_widths(g, op, e) : st;
}

static bk_status dgrad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbD,Nk,Mk>sbk", e);
}

static bk_status dgrad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_linear_pair_sizes size = op_sizes(c->g, c->op);
    int beta;
    const bk_arg *dx = bk_call_out0(c, &beta);
    BK_REAL_CALL(bk_call_f64(c), bk_linear_pair_dgrad, dx->p, c->in[0].p, c->in[1].p, c->in[2].p, &size, beta,
                 c->deterministic, c->work);
    return BK_OK;
}

const bk_op_rules bk_linear_pair_dgrad_rules = {
    .shape = dgrad_shape, .spread = dgrad_spread, .cost = cost, .workspace = workspace, .cpu = dgrad_cpu};

/* ---- linear_pair_wgrad: inputs dy, x; updates dw1, dw2 ---- */

static bk_status wgrad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "sbd,sbk>+nk,mk", e);
    return st == BK_OK ? need_both_widths(g, op, e) : st;
}

static bk_status wgrad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbD,sbk>+Nk,Mk", e);
}

static bk_status wgrad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_linear_pair_sizes size = op_sizes(c->g, c->op);
    BK_REAL_CALL(bk_call_f64(c), bk_linear_pair_wgrad, c->upd[0].p, c->upd[1].p, c->in[0].p, c->in[1].p,
                 &size, bk_call_beta(c, 0), bk_call_beta(c, 1), c->deterministic, c->work);
    return BK_OK;
}

const bk_op_rules bk_linear_pair_wgrad_rules = {
    .shape = wgrad_shape, .spread = wgrad_spread, .cost = cost, .workspace = workspace, .cpu = wgrad_cpu};
