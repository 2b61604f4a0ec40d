/* One activation of the streams, at the end of a block.
 *
 *   mhc_contract(x [S,B,n,C], V [n,n*C], base [n], scale [1]; h [S,B,C], w, m [S,B,n], rho [S,B])
 *   mhc_contract_grad(dh, x, V, scale, w, m, rho; dx; dV, dbase, dscale)
 *
 * w, m and rho are kept for the gradient. */
#define BK_BOTH "ops/mhc/mhc_cpu.h"
#include "base/real_both.h"
#include "base/size.h"
#include "ops/adapters.h"
#include "ops/mhc/mhc_rules.h"

enum { EPS };
enum { N_PARAMS = 3 }; /* V, base, scale */

static const char *const forward = "sbNC,NK,N,1>sbC,sbN,sbN,sb";
static const char *const backward = "sbC,sbNC,NK,1,sbN,sbN,sb>sbNC+NK,N,1";

static bk_status check_contract(const bk_graph *g, const bk_op *op, int x, bk_err *e)
{
    const bk_status st = bk_mhc_need_streams(g, op, x, e);
    if (st != BK_OK) return st;
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, x));
    return bk_shape_need(g, op, x + 1, "V [n, n*C]", 2, (const int64_t[]){d.n, d.n * d.C}, e);
}

static bk_status contract_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = check_contract(g, op, 0, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, forward, e) : st;
}

static bk_status contract_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, forward, e);
}

static void contract_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, 0));
    out->madds = bk_mhc_contract_madds(d.T, d.n, d.C);
    out->flops = 4 * d.T * d.n * d.C;
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status contract_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid *in = op.in, *out = op.out, dh = bk_grad_of(ctx, out[0]);
    if (dh == BK_NONE) return BK_OK;
    bk_op_spec spec = {.kind = BK_OP_mhc_contract_grad,
                       .in = (const bk_vid[]){dh, in[0], in[1], in[3], out[1], out[2], out[3]},
                       .n_in = 7,
                       .name = "mhc_contract.dx"};
    spec.attr[EPS] = op.op.attr[EPS];
    bk_vid dx;
    const bk_status st = bk_grad_op(&dx, ctx, &spec, in + 1, N_PARAMS, id, e);
    return st == BK_OK ? bk_grad_add(ctx, in[0], dx, e) : st;
}

static bk_status contract_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_mhc_dims d = bk_mhc_dims_of(c->in[0].v);
    const bk_arg *in = c->in, *out = c->out;
    const double eps = bk_attr_f(c->op, EPS);
    if (bk_call_f64(c)) /* eps is of the scalar type */
        bk_mhc_contract_f64(out[0].p, out[1].p, out[2].p, out[3].p, in[0].p, in[1].p, in[3].p, in[2].p, eps,
                            d.T, d.n, d.C);
    else
        bk_mhc_contract_f32(out[0].p, out[1].p, out[2].p, out[3].p, in[0].p, in[1].p, in[3].p, in[2].p,
                            (float)eps, d.T, d.n, d.C);
    return BK_OK;
}

static bk_status contract_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = check_contract(g, op, 1, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, backward, e) : st;
}

static bk_status contract_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                      bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, backward, e);
}

static void contract_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, 1));
    out->madds = bk_mhc_contract_bwd_madds(d.T, d.n, d.C);
    out->flops = 6 * d.T * d.n * d.C;
    out->bytes = bk_cost_bytes(g, op);
}

static int64_t kernel_workspace(const bk_mhc_dims *d, int64_t scalar_bytes)
{
    return bk_align_up(bk_mhc_contract_bwd_workspace(d->T, d->n, scalar_bytes), 64);
}

/* Elements of the parameters, in the order of the updates. */
static void param_sizes(int64_t size[N_PARAMS], const bk_mhc_dims *d)
{
    size[0] = d->n * d->n * d->C, size[1] = d->n, size[2] = 1;
}

static int64_t contract_grad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *x = bk_in(g, op, 1);
    const bk_mhc_dims d = bk_mhc_dims_of(x);
    const int64_t scalar = bk_dtype_bytes(x->dtype);
    int64_t size[N_PARAMS];
    param_sizes(size, &d);
    return kernel_workspace(&d, scalar) + bk_dropped_bytes(op, size, N_PARAMS, scalar);
}

static bk_status contract_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *in = c->in;
    const bk_mhc_dims d = bk_mhc_dims_of(in[1].v);
    const int64_t scalar = bk_dtype_bytes(in[1].v->dtype);
    const double eps = bk_attr_f(c->op, EPS);
    int64_t size[N_PARAMS];
    void *dw[N_PARAMS];
    param_sizes(size, &d);
    const int beta_w =
        bk_call_param_grads(dw, c, size, N_PARAMS, scalar, (char *)c->work + kernel_workspace(&d, scalar));
    int beta_x;
    void *dx = bk_call_out0(c, &beta_x)->p;
    if (bk_call_f64(c)) /* eps is of the scalar type */
        bk_mhc_contract_bwd_f64(dx, beta_x, dw[0], dw[2], dw[1], beta_w, in[0].p, in[1].p, in[2].p, in[3].p,
                                in[4].p, in[5].p, in[6].p, eps, d.T, d.n, d.C, c->work);
    else
        bk_mhc_contract_bwd_f32(dx, beta_x, dw[0], dw[2], dw[1], beta_w, in[0].p, in[1].p, in[2].p, in[3].p,
                                in[4].p, in[5].p, in[6].p, (float)eps, d.T, d.n, d.C, c->work);
    return BK_OK;
}

const bk_op_rules bk_mhc_contract_rules = {.shape = contract_shape,
                                           .spread = contract_spread,
                                           .cost = contract_cost,
                                           .grad = contract_grad,
                                           .cpu = contract_cpu};

const bk_op_rules bk_mhc_contract_grad_rules = {.shape = contract_grad_shape,
                                                .spread = contract_grad_spread,
                                                .cost = contract_grad_cost,
                                                .workspace = contract_grad_workspace,
                                                .cpu = contract_grad_cpu};
