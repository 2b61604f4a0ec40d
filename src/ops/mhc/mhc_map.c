/* The three maps of a sublayer from the streams.       N = n*n + 2n
 *
 *   mhc_map(x [S,B,n,C], W [N,n*C], alpha_pre, alpha_post, alpha_res [1], bias [N];
 *           h_pre, h_post [S,B,n], h_res [S,B,n,n], p [S,B,N], q [S,B])
 *   mhc_map_grad(dh_pre, dh_post, dh_res, x, W, alpha_pre, alpha_post, alpha_res, bias, p, q;
 *                dx; dW, dalpha_pre, dalpha_post, dalpha_res, dbias)
 *
 * p and q are kept for the gradient. */
#include <stdio.h>

#define BK_BOTH "ops/mhc/mhc_cpu.h"
#include "base/real_both.h"
#include "base/size.h"
#include "ops/adapters.h"
#include "ops/mhc/mhc_rules.h"

enum { ITERATIONS };
enum { FIRST_PARAM = 1, N_PARAMS = 5 }; /* W, the three alphas, bias */

static const char *const forward = "sbNC,MK,1,1,1,M>sbN,sbN,sbNN,sbM,sb";
static const char *const backward = "sbN,sbN,sbNN,sbNC,MK,1,1,1,M,sbM,sb>sbNC+MK,1,1,1,M";

/* What the pattern does not say; x and W are the inputs of these numbers. */
static bk_status check_map(const bk_graph *g, const bk_op *op, int x, int W, bk_err *e)
{
    const bk_status st = bk_mhc_need_streams(g, op, x, e);
    if (st != BK_OK) return st;
    if (bk_attr_i(op, ITERATIONS) < 1)
        return bk_err_set(e, BK_E_INPUT, "iterations is %lld, expected at least 1 (mhc_sinkhorn_iterations)",
                          (long long)bk_attr_i(op, ITERATIONS));
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, x));
    const int64_t want[2] = {bk_mhc_rows(d.n), d.n * d.C};
    return bk_shape_need(g, op, W, "W [n*n + 2n, n*C]", 2, want, e);
}

static bk_status map_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = check_map(g, op, 0, 1, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, forward, e) : st;
}

static bk_status map_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, forward, e);
}

/* One row or column step: a sum and a division for each entry. */
static int64_t sinkhorn_flops(const bk_mhc_dims *d, int64_t iterations)
{
    return d->T * 2 * iterations * 2 * d->n * d->n;
}

static void map_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, 0));
    out->madds = bk_mhc_map_madds(d.T, d.n, d.C);
    out->flops = 2 * d.T * d.n * d.C + sinkhorn_flops(&d, bk_attr_i(op, ITERATIONS));
    out->bytes = bk_cost_bytes(g, op);
}

static void map_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, 3));
    out->madds = bk_mhc_map_bwd_madds(d.T, d.n, d.C);
    /* The rounds once more, then back with a product, a sum, a difference and a division for each entry. */
    out->flops = 2 * d.T * d.n * d.C + 3 * sinkhorn_flops(&d, bk_attr_i(op, ITERATIONS));
    out->bytes = bk_cost_bytes(g, op);
}

/* The gradient of a map through which nothing flows: zeros of its shape. */
static bk_status zeros_like(bk_vid *out, bk_graph *g, bk_vid like, bk_err *e)
{
    bk_value zeros = g->value[like];
    char name[256];
    snprintf(name, sizeof name, "no gradient of %s", zeros.name);
    zeros.name = name, zeros.kind = BK_ACTIVATION;
    bk_vid v;
    const bk_status st = bk_value_add(&v, g, &zeros, e);
    if (st != BK_OK) return st;
    return bk_op_add(out, g, &(bk_op_spec){.kind = BK_OP_fill, .into = 1 + v}, e);
}

static bk_status map_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid *in = op.in, p = op.out[3], q = op.out[4];
    bk_vid dh[3], dx;
    bk_status st = BK_OK;
    for (int k = 0; k < 3; k++) dh[k] = bk_grad_of(ctx, op.out[k]);
    if (dh[0] == BK_NONE && dh[1] == BK_NONE && dh[2] == BK_NONE) return BK_OK;
    for (int k = 0; k < 3; k++)
        if (dh[k] == BK_NONE) BK_TRY(zeros_like(&dh[k], ctx->g, op.out[k], e));
    bk_op_spec spec = {
        .kind = BK_OP_mhc_map_grad,
        .in = (const bk_vid[]){dh[0], dh[1], dh[2], in[0], in[1], in[2], in[3], in[4], in[5], p, q},
        .n_in = 11,
        .name = "mhc_map.dx"};
    spec.attr[ITERATIONS] = op.op.attr[ITERATIONS];
    BK_TRY(bk_grad_op(&dx, ctx, &spec, in + FIRST_PARAM, N_PARAMS, id, e));
    BK_TRY(bk_grad_add(ctx, in[0], dx, e));
done:
    return st;
}

static bk_status map_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_mhc_dims d = bk_mhc_dims_of(c->in[0].v);
    const bk_arg *in = c->in, *out = c->out;
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_map, out[0].p, out[1].p, out[2].p, out[3].p, out[4].p, in[0].p,
                 in[1].p, in[2].p, in[3].p, in[4].p, in[5].p, d.T, d.n, d.C, bk_attr_i(c->op, ITERATIONS));
    return BK_OK;
}

static bk_status map_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = check_map(g, op, 3, 4, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, backward, e) : st;
}

static bk_status map_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, backward, e);
}

static int64_t kernel_workspace(const bk_mhc_dims *d, const bk_op *op, int64_t scalar_bytes)
{
    return bk_align_up(bk_mhc_map_bwd_workspace(d->T, d->n, bk_attr_i(op, ITERATIONS), scalar_bytes), 64);
}

/* Elements of the parameters, in the order of the updates. */
static void param_sizes(int64_t size[N_PARAMS], const bk_mhc_dims *d)
{
    const int64_t N = bk_mhc_rows(d->n), sizes[N_PARAMS] = {N * d->n * d->C, 1, 1, 1, N};
    memcpy(size, sizes, sizeof sizes);
}

static int64_t map_grad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *x = bk_in(g, op, 3);
    const bk_mhc_dims d = bk_mhc_dims_of(x);
    const int64_t scalar = bk_dtype_bytes(x->dtype);
    int64_t size[N_PARAMS];
    param_sizes(size, &d);
    return kernel_workspace(&d, op, scalar) + bk_dropped_bytes(op, size, N_PARAMS, scalar);
}

static bk_status map_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *in = c->in;
    const bk_mhc_dims d = bk_mhc_dims_of(in[3].v);
    const int64_t scalar = bk_dtype_bytes(in[3].v->dtype);
    int64_t size[N_PARAMS];
    void *dw[N_PARAMS];
    param_sizes(size, &d);
    const int beta_w = bk_call_param_grads(dw, c, size, N_PARAMS, scalar,
                                           (char *)c->work + kernel_workspace(&d, c->op, scalar));
    int beta_x;
    void *dx = bk_call_out0(c, &beta_x)->p;
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_map_bwd, dx, beta_x, dw[0], dw[1], dw[2], dw[3], dw[4], beta_w,
                 in[0].p, in[1].p, in[2].p, in[3].p, in[4].p, in[5].p, in[6].p, in[7].p, in[8].p, in[9].p,
                 in[10].p, d.T, d.n, d.C, bk_attr_i(c->op, ITERATIONS), c->work);
    return BK_OK;
}

const bk_op_rules bk_mhc_map_rules = {
    .shape = map_shape, .spread = map_spread, .cost = map_cost, .grad = map_grad, .cpu = map_cpu};

const bk_op_rules bk_mhc_map_grad_rules = {.shape = map_grad_shape,
                                           .spread = map_grad_spread,
                                           .cost = map_grad_cost,
                                           .workspace = map_grad_workspace,
                                           .cpu = map_grad_cpu};
