/* layernorm(x [.., C], gamma [C], beta [C]; y [.., C], mean [..], rstd [..]) and its gradient. */
#define BK_BOTH "ops/norm/norm_cpu.h"
#include "base/real_both.h"
#include "ops/adapters.h"
#include "ops/norm/norm_rules.h"

enum { EPS };

static const char *const forward[] = {[2] = "tC,C,C>tC,t,t",
                                      [3] = "sbC,C,C>sbC,sb,sb",
                                      [4] = "sbnC,C,C>sbnC,sbn,sbn",
                                      [5] = "sbgrC,C,C>sbgrC,sbgr,sbgr"};
static const char *const backward[] = {[2] = "tC,tC,C,t,t>tC+C,C",
                                       [3] = "sbC,sbC,C,sb,sb>sbC+C,C",
                                       [4] = "sbnC,sbnC,C,sbn,sbn>sbnC+C,C",
                                       [5] = "sbgrC,sbgrC,C,sbgr,sbgr>sbgrC+C,C"};

static bk_status layernorm_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_norm_rank(g, op, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, forward[bk_in(g, op, 0)->rank], e) : st;
}

static bk_status layernorm_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, forward[bk_in(g, op, 0)->rank], e);
}

static bk_status layernorm_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid x = op.in[0], gamma = op.in[1], beta = op.in[2], mean = op.out[1], rstd = op.out[2];
    const bk_vid dy = bk_grad_of(ctx, op.out[0]);
    if (dy == BK_NONE) return BK_OK;
    const bk_op_spec spec = {.kind = BK_OP_layernorm_grad,
                             .in = (const bk_vid[]){dy, x, gamma, mean, rstd},
                             .n_in = 5,
                             .name = "layernorm.dx"};
    bk_vid dx;
    const bk_status st = bk_grad_op(&dx, ctx, &spec, (const bk_vid[]){gamma, beta}, 2, id, e);
    return st == BK_OK ? bk_grad_add(ctx, x, dx, e) : st;
}

static bk_status layernorm_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_layernorm_fwd, c->out[0].p, c->out[1].p, c->out[2].p, c->in[0].p,
                 c->in[1].p, c->in[2].p, bk_elements(c->out[1].v), bk_arg_dim(&c->in[0], -1),
                 bk_attr_f(c->op, EPS), 0.0);
    return BK_OK;
}

static bk_status layernorm_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_norm_rank(g, op, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, backward[bk_in(g, op, 0)->rank], e) : st;
}

static bk_status layernorm_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                       bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, backward[bk_in(g, op, 0)->rank], e);
}

static bk_status layernorm_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    int beta;
    void *dx = bk_call_out0(c, &beta)->p;
    BK_REAL_CALL(bk_call_f64(c), bk_layernorm_bwd, dx, bk_call_upd(c, 0), bk_call_upd(c, 1), c->in[0].p,
                 c->in[1].p, c->in[2].p, c->in[3].p, c->in[4].p, bk_elements(c->in[4].v),
                 bk_arg_dim(&c->in[0], -1), 0.0, beta, bk_call_shared_beta(c), c->work);
    return BK_OK;
}

const bk_op_rules bk_layernorm_rules = {.shape = layernorm_shape,
                                        .spread = layernorm_spread,
                                        .cost = bk_norm_cost,
                                        .grad = layernorm_grad,
                                        .cpu = layernorm_cpu};

const bk_op_rules bk_layernorm_grad_rules = {.shape = layernorm_grad_shape,
                                             .spread = layernorm_grad_spread,
                                             .cost = bk_norm_grad_cost,
                                             .workspace = bk_norm_grad_workspace,
                                             .cpu = layernorm_grad_cpu};
