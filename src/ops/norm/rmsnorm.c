/* rmsnorm(x [.., C], gamma [C]; y [.., C], rstd [..]) and its gradient. */
#define BK_BOTH "ops/norm/norm_cpu.h"
#include "base/real_both.h"
#include "ops/adapters.h"
#include "ops/norm/norm_rules.h"

enum { EPS };

static const char *const forward[] = {
    [2] = "tC,C>tC,t", [3] = "sbC,C>sbC,sb", [4] = "sbnC,C>sbnC,sbn", [5] = "sbgrC,C>sbgrC,sbgr"};
static const char *const backward[] = {[2] = "tC,tC,C,t>tC+C",
                                       [3] = "sbC,sbC,C,sb>sbC+C",
                                       [4] = "sbnC,sbnC,C,sbn>sbnC+C",
                                       [5] = "sbgrC,sbgrC,C,sbgr>sbgrC+C"};

static bk_status rmsnorm_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_norm_rank(g, op, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, forward[bk_in(g, op, 0)->rank], e) : st;
}

static bk_status rmsnorm_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, forward[bk_in(g, op, 0)->rank], e);
}

static bk_status rmsnorm_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid x = op.in[0], gamma = op.in[1], rstd = op.out[1];
    const bk_vid dy = bk_grad_of(ctx, op.out[0]);
    if (dy == BK_NONE) return BK_OK;
    const bk_op_spec spec = {.kind = BK_OP_rmsnorm_grad,
                             .in = (const bk_vid[]){dy, x, gamma, rstd},
                             .n_in = 4,
                             .name = "rmsnorm.dx"};
    bk_vid dx;
    const bk_status st = bk_grad_op(&dx, ctx, &spec, &gamma, 1, id, e);
    return st == BK_OK ? bk_grad_add(ctx, x, dx, e) : st;
}

static bk_status rmsnorm_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_rmsnorm_fwd, c->out[0].p, c->out[1].p, c->in[0].p, c->in[1].p,
                 bk_elements(c->out[1].v), bk_arg_dim(&c->in[0], -1), bk_attr_f(c->op, EPS), 0.0);
    return BK_OK;
}

static bk_status rmsnorm_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_norm_rank(g, op, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, backward[bk_in(g, op, 0)->rank], e) : st;
}

static bk_status rmsnorm_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                     bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, backward[bk_in(g, op, 0)->rank], e);
}

static bk_status rmsnorm_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    int beta;
    void *dx = bk_call_out0(c, &beta)->p;
    BK_REAL_CALL(bk_call_f64(c), bk_rmsnorm_bwd, dx, bk_call_upd(c, 0), c->in[0].p, c->in[1].p, c->in[2].p,
                 c->in[3].p, bk_elements(c->in[3].v), bk_arg_dim(&c->in[0], -1), 0.0, beta,
                 bk_call_shared_beta(c), c->work);
    return BK_OK;
}

const bk_op_rules bk_rmsnorm_rules = {.shape = rmsnorm_shape,
                                      .spread = rmsnorm_spread,
                                      .cost = bk_norm_cost,
                                      .grad = rmsnorm_grad,
                                      .cpu = rmsnorm_cpu};

const bk_op_rules bk_rmsnorm_grad_rules = {.shape = rmsnorm_grad_shape,
                                           .spread = rmsnorm_grad_spread,
                                           .cost = bk_norm_grad_cost,
                                           .workspace = bk_norm_grad_workspace,
                                           .cpu = rmsnorm_grad_cpu};
