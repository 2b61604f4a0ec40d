/* mhc_expand(h [S,B,C]; x [S,B,n,C]): n streams of one activation. mhc_expand_grad(dx; dh). */
#define BK_BOTH "ops/mhc/mhc_cpu.h"
#include "base/real_both.h"
#include "ops/adapters.h"
#include "ops/mhc/mhc_rules.h"

enum { STREAMS };

static bk_status expand_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_op inputs = *op; /* the streams of the output are not a dim of the input */
    inputs.n_out = 0;
    const bk_status st = bk_shape_pattern(NULL, g, &inputs, "SBC", e);
    if (st != BK_OK) return st;
    const bk_value *h = bk_in(g, op, 0);
    const int64_t n = bk_attr_i(op, STREAMS);
    if (n < 1 || n > BK_MHC_MAX_STREAMS)
        return bk_err_set(e, BK_E_INPUT, "streams is %lld, expected 1 to %d (mhc_num_residual_streams)",
                          (long long)n, BK_MHC_MAX_STREAMS);
    bk_shape_set(out, h->dtype, 4, (const bk_dim[]){h->dim[0], h->dim[1], bk_fixed(n), h->dim[2]});
    return BK_OK;
}

static bk_status expand_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbc>sbNc", e);
}

static bk_status expand_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid h = op.in[0], dx = bk_grad_of(ctx, op.out[0]);
    if (dx == BK_NONE) return BK_OK;
    bk_vid dh;
    const bk_status st = bk_op1(&dh, ctx->g, e, BK_OP_mhc_expand_grad, "mhc_expand.dh", (), dx);
    return st == BK_OK ? bk_grad_add(ctx, h, dh, e) : st;
}

static bk_status expand_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_mhc_dims d = bk_mhc_dims_of(c->out[0].v);
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_expand, c->out[0].p, c->in[0].p, d.T, d.n, d.C);
    return BK_OK;
}

static bk_status expand_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_mhc_need_streams(g, op, 0, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, "SBNC>SBC", e) : st;
}

static bk_status expand_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                    bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbNc>sbc", e);
}

static void expand_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status expand_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_mhc_dims d = bk_mhc_dims_of(c->in[0].v);
    int beta;
    void *dh = bk_call_out0(c, &beta)->p;
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_expand_bwd, dh, c->in[0].p, beta, d.T, d.n, d.C);
    return BK_OK;
}

const bk_op_rules bk_mhc_expand_rules = {
    .shape = expand_shape, .spread = expand_spread, .grad = expand_grad, .cpu = expand_cpu};

const bk_op_rules bk_mhc_expand_grad_rules = {.shape = expand_grad_shape,
                                              .spread = expand_grad_spread,
                                              .cost = expand_grad_cost,
                                              .cpu = expand_grad_cpu};
