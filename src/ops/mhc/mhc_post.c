/* The write back to the streams at the end of a sublayer.
 *
 *   mhc_post(x [S,B,n,C], h_res [S,B,n,n], h_post [S,B,n], y [S,B,C], bias [C], samples [B]; x_next)
 *   mhc_post_grad(g, x, h_res, h_post, y, bias, samples; dx, dh_res, dh_post, dy; dbias)
 *
 * bias may be absent, and samples where p is 0. */
#define BK_BOTH "ops/mhc/mhc_cpu.h"
#include "base/real_both.h"
#include "ops/adapters.h"
#include "ops/mhc/mhc_rules.h"

enum { P, SEED, SITE };

/* [1]: with dropout. A mask is keyed by position and by element among all channels, so these are whole then.
 */
static const char *const forward[] = {"sbNc,sbNN,sbN,sbc,c,b:l>sbNc", "SbNC,SbNN,SbN,SbC,C,b:l>SbNC"};
static const char *const backward[] = {"sbNc,sbNc,sbNN,sbN,sbc,c,b:l>sbNc,sbNN,sbN,sbc+c",
                                       "SbNC,SbNC,SbNN,SbN,SbC,C,b:l>SbNC,SbNN,SbN,SbC+C"};

static bk_status check_post(const bk_graph *g, const bk_op *op, int x, int samples, bk_err *e)
{
    const bk_status st = bk_mhc_need_streams(g, op, x, e);
    const double p = bk_attr_f(op, P);
    if (st != BK_OK) return st;
    if (!(p >= 0 && p < 1))
        return bk_err_set(e, BK_E_INPUT, "p is %g, expected a probability below 1 (hidden_dropout)", p);
    if (p > 0 && !bk_in(g, op, samples))
        return bk_err_set(e, BK_E_INPUT,
                          "dropout with p = %g needs the sample numbers [B] as input %d to key its masks", p,
                          samples);
    return BK_OK;
}

static bk_status post_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = check_post(g, op, 0, 5, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, forward[0], e) : st;
}

static bk_status post_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, forward[bk_attr_f(op, P) > 0], e);
}

static void post_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, 0));
    out->flops = d.T * d.n * d.C * (2 * d.n + 3);
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status post_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid *in = op.in, dout = bk_grad_of(ctx, op.out[0]);
    if (dout == BK_NONE) return BK_OK;
    bk_op_spec spec = {.kind = BK_OP_mhc_post_grad,
                       .in = (const bk_vid[]){dout, in[0], in[1], in[2], in[3], in[4], in[5]},
                       .n_in = 1 + op.op.n_in,
                       .name = "mhc_post.d"};
    memcpy(spec.attr, op.op.attr, sizeof spec.attr);
    bk_vid d[4];
    bk_status st = bk_grad_op(d, ctx, &spec, &in[4], 1, id, e);
    for (int k = 0; k < 4 && st == BK_OK; k++) st = bk_grad_add(ctx, in[k], d[k], e);
    return st;
}

/* The kernel's description of dropout; x and samples are the inputs of these numbers. */
static bk_mhc_dropout dropout_of(const bk_call *c, int x, int samples)
{
    const bk_rng_key key = bk_op_dropout_key(c->op, P);
    return (bk_mhc_dropout){.p = bk_attr_f(c->op, P),
                            .key = {key.k[0], key.k[1]},
                            .S = c->in[x].v->dim[0].size,
                            .B = c->in[x].v->dim[1].size,
                            .samples = bk_call_in(c, samples)};
}

static bk_status post_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_mhc_dims d = bk_mhc_dims_of(c->in[0].v);
    const bk_mhc_dropout drop = dropout_of(c, 0, 5);
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_post, c->out[0].p, c->in[0].p, c->in[1].p, c->in[2].p, c->in[3].p,
                 bk_call_in(c, 4), &drop, d.T, d.n, d.C);
    return BK_OK;
}

static bk_status post_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = check_post(g, op, 1, 6, e);
    return st == BK_OK ? bk_shape_pattern(out, g, op, backward[0], e) : st;
}

static bk_status post_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, backward[bk_attr_f(op, P) > 0], e);
}

static void post_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_mhc_dims d = bk_mhc_dims_of(bk_in(g, op, 1));
    out->flops = d.T * d.n * d.C * (4 * d.n + 6);
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status post_grad_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *in = c->in;
    const bk_mhc_dims d = bk_mhc_dims_of(in[1].v);
    const bk_mhc_dropout drop = dropout_of(c, 1, 6);
    int beta_x;
    void *dx = bk_call_out0(c, &beta_x)->p;
    BK_REAL_CALL(bk_call_f64(c), bk_mhc_post_bwd, dx, beta_x, c->out[1].p, c->out[2].p, c->out[3].p,
                 bk_call_upd(c, 0), bk_call_shared_beta(c), in[0].p, in[1].p, in[2].p, in[3].p, in[4].p,
                 bk_call_in(c, 5), &drop, d.T, d.n, d.C);
    return BK_OK;
}

const bk_op_rules bk_mhc_post_rules = {
    .shape = post_shape, .spread = post_spread, .cost = post_cost, .grad = post_grad, .cpu = post_cpu};

const bk_op_rules bk_mhc_post_grad_rules = {
    .shape = post_grad_shape, .spread = post_grad_spread, .cost = post_grad_cost, .cpu = post_grad_cpu};
