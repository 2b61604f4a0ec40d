/* mhc_aggregate(x [S,B,n,C], h_pre [S,B,n]; a [S,B,C]): the input of a sublayer, a mix of the streams.
 * mhc_aggregate_grad(da, x, h_pre; dx, dh_pre). */
#define BK_BOTH "ops/mhc/mhc_cpu.h"
#include "base/real_both.h"
#include "ops/adapters.h"
#include "ops/mhc/mhc_rules.h"

/* Channels may be split: each rank then has its part of the sum over them in dh_pre. */
static const char *const forward = "sbNc,sbN>sbc";
static const char *const backward = "sbc,sbNc,sbN>sbNc,sbN";

static bk_status aggregate_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_mhc_need_streams(g, op, 0, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, forward, e) : st;
}

static bk_status aggregate_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, forward, e);
}

static void aggregate_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = 2 * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status aggregate_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid x = op.in[0], h_pre = op.in[1], da = bk_grad_of(ctx, op.out[0]);
    if (da == BK_NONE) return BK_OK;
    bk_vid d[2];
    bk_status st = bk_op1(d, ctx->g, e, BK_OP_mhc_aggregate_grad, "mhc_aggregate.d", (), da, x, h_pre);
    if (st == BK_OK) st = bk_grad_add(ctx, x, d[0], e);
    return st == BK_OK ? bk_grad_add(ctx, h_pre, d[1], e) : st;
}

static bk_status aggregate_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_mhc_dims d = bk_mhc_dims_of(c->in[0].v);
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_aggregate, c->out[0].p, c->in[0].p, c->in[1].p, d.T, d.n, d.C);
    return BK_OK;
}

static bk_status aggregate_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_mhc_need_streams(g, op, 1, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, backward, e) : st;
}

static bk_status aggregate_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                       bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, backward, e);
}

static void aggregate_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = 4 * bk_elements(bk_in(g, op, 1));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status aggregate_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_mhc_dims d = bk_mhc_dims_of(c->in[1].v);
    int beta;
    void *dx = bk_call_out0(c, &beta)->p;
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_aggregate_bwd, c->out[1].p, dx, beta, c->in[0].p, c->in[1].p,
                 c->in[2].p, d.T, d.n, d.C);
    return BK_OK;
}

const bk_op_rules bk_mhc_aggregate_rules = {.shape = aggregate_shape,
                                            .spread = aggregate_spread,
                                            .cost = aggregate_cost,
                                            .grad = aggregate_grad,
                                            .cpu = aggregate_cpu};

const bk_op_rules bk_mhc_aggregate_grad_rules = {.shape = aggregate_grad_shape,
                                                 .spread = aggregate_grad_spread,
                                                 .cost = aggregate_grad_cost,
                                                 .cpu = aggregate_grad_cpu};
