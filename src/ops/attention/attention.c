/* Causal grouped-query attention.
 *
 *   attention(q [S,B,G,R,d], k [S,B,G,d], v [S,B,G,dv], samples [B]; o [S,B,G*R*dv], lse [B,G*R,S])
 *   attention_grad(dout, q, k, v, o, lse, samples; dq, dk, dv)
 *
 * samples may be absent where p is 0. q, k, v and their gradients may be parts of a fused projection. */
#include <math.h>

#define BK_BOTH "ops/attention/attention_cpu.h"
#include "base/real_both.h"
#include "base/size.h"
#include "ops/adapters.h"

enum { SCALE, P, SEED, SITE };

/* Positions are needed whole: causal attention over a part of them needs the keys of the others. With dropout
 * the groups too, since a mask is keyed by the head's number among all. [1]: with dropout. */
static const char *const forward_spread[] = {"SbgRD,SbgD,SbgV,b:l>Sbg,bgS", "SbGRD,SbGD,SbGV,b:l>SbG,bGS"};
static const char *const backward_spread[] = {"Sbg,SbgRD,SbgD,SbgV,Sbg,bgS,b:l>SbgRD,SbgD,SbgV",
                                              "SbG,SbGRD,SbGD,SbGV,SbG,bGS,b:l>SbGRD,SbGD,SbGV"};

static bk_status check_attributes(const bk_graph *g, const bk_op *op, int samples, bk_err *e)
{
    const double p = bk_attr_f(op, P), scale = bk_attr_f(op, SCALE);
    if (!(p >= 0 && p < 1))
        return bk_err_set(e, BK_E_INPUT, "p is %g, expected a probability below 1 (attention_dropout)", p);
    if (!isfinite(scale)) return bk_err_set(e, BK_E_INPUT, "scale is %g, expected a number", scale);
    if (p > 0 && !bk_in(g, op, samples))
        return bk_err_set(e, BK_E_INPUT,
                          "dropout with p = %g needs the sample numbers [B] as input %d to key its masks", p,
                          samples);
    return BK_OK;
}

/* Head sizes within the kernel's tiles, and views that it can read. */
static bk_status check_heads(const bk_graph *g, const bk_op *op, int q, bk_err *e)
{
    for (int k = q; k < q + 3; k++) {
        const bk_value *v = bk_in(g, op, k);
        char text[BK_OPERAND_TEXT];
        const bk_status st = bk_heads_need(g, op, k, e);
        if (st != BK_OK) return st;
        if (v->dim[v->rank - 1].size > BK_ATTENTION_MAX_DIM)
            return bk_err_set(e, BK_E_INPUT, "%s: heads may have up to %d dims",
                              bk_operand_text(text, g, op, k), BK_ATTENTION_MAX_DIM);
    }
    return BK_OK;
}

/* heads = G*R and width = G*R*dv. */
static bk_status fused_dims(int64_t *heads, int64_t *width, const bk_value *q, const bk_value *v, bk_err *e)
{
    if (bk_mul64(heads, q->dim[2].size, q->dim[3].size) && bk_mul64(width, *heads, v->dim[3].size))
        return BK_OK;
    return bk_err_set(e, BK_E_MEM, "the width of the output overflows; use fewer or smaller heads");
}

static bk_status attention_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st;
    bk_op inputs = *op; /* the outputs have dims that are products of the inputs' */
    inputs.n_out = 0;
    int64_t heads = 0, width = 0;
    BK_TRY(bk_shape_pattern(NULL, g, &inputs, "SBGRD,SBGD,SBGV,B:l", e));
    BK_TRY(check_attributes(g, op, 3, e));
    BK_TRY(check_heads(g, op, 0, e));
    const bk_value *q = bk_in(g, op, 0), *v = bk_in(g, op, 2);
    BK_TRY(fused_dims(&heads, &width, q, v, e));
    bk_shape_set(&out[0], q->dtype, 3, (const bk_dim[]){q->dim[0], q->dim[1], bk_fixed(width)});
    bk_shape_set(&out[1], q->dtype, 3, (const bk_dim[]){q->dim[1], bk_fixed(heads), q->dim[0]});
done:
    return st;
}

static bk_status attention_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st;
    int64_t heads = 0, width = 0;
    BK_TRY(bk_shape_pattern(out, g, op, "SBO,SBGRD,SBGD,SBGV,SBO,BHS,B:l>SBGRD,SBGD,SBGV", e));
    BK_TRY(check_attributes(g, op, 6, e));
    BK_TRY(check_heads(g, op, 1, e));
    const bk_value *q = bk_in(g, op, 1), *v = bk_in(g, op, 3);
    BK_TRY(fused_dims(&heads, &width, q, v, e));
    BK_TRY(bk_shape_need(g, op, 4, "output [S, B, G*R*dv]", 3, (const int64_t[]){-1, -1, width}, e));
    BK_TRY(bk_shape_need(g, op, 5, "lse [B, G*R, S]", 3, (const int64_t[]){-1, heads, -1}, e));
done:
    return st;
}

static bk_status attention_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, forward_spread[bk_attr_f(op, P) > 0], e);
}

static bk_status attention_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                                       bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, backward_spread[bk_attr_f(op, P) > 0], e);
}

static int64_t pair_flops(const bk_value *q)
{
    const int64_t S = q->dim[0].size, heads = q->dim[1].size * q->dim[2].size * q->dim[3].size;
    return BK_ATTENTION_PAIR_FLOPS * heads * (S * (S + 1) / 2);
}

static void attention_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *q = bk_in(g, op, 0), *v = bk_in(g, op, 2);
    out->madds = bk_attention_fwd_madds_f32(q->dim[0].size, q->dim[1].size, q->dim[2].size * q->dim[3].size,
                                            q->dim[4].size, v->dim[3].size);
    out->flops = pair_flops(q);
    out->bytes = bk_cost_bytes(g, op);
}

static void attention_grad_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *q = bk_in(g, op, 1), *v = bk_in(g, op, 3);
    out->madds = bk_attention_bwd_madds_f32(q->dim[0].size, q->dim[1].size, q->dim[2].size * q->dim[3].size,
                                            q->dim[4].size, v->dim[3].size);
    out->flops = 2 * pair_flops(q);
    out->bytes = bk_cost_bytes(g, op);
}

static int64_t attention_grad_workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *q = bk_in(g, op, 1);
    return BK_REAL_CALL(q->dtype == BK_F64, bk_attention_bwd_workspace, q->dim[0].size, q->dim[1].size,
                        q->dim[2].size * q->dim[3].size, q->dim[4].size);
}

static bk_status attention_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid dout = bk_grad_of(ctx, op.out[0]);
    if (dout == BK_NONE) return BK_OK;
    const bk_vid *in = op.in;
    bk_op_spec spec = {.kind = BK_OP_attention_grad,
                       .in = (const bk_vid[]){dout, in[0], in[1], in[2], op.out[0], op.out[1], in[3]},
                       .n_in = in[3] == BK_NONE ? 6 : 7,
                       .name = "attention.d"};
    memcpy(spec.attr, op.op.attr, sizeof spec.attr);
    bk_vid d[3];
    bk_status st = bk_op_add(d, ctx->g, &spec, e);
    for (int k = 0; k < 3 && st == BK_OK; k++) st = bk_grad_add(ctx, in[k], d[k], e);
    return st;
}

static bk_attention_args kernel_args(const bk_call *c, int q, int samples)
{
    const bk_value *qv = c->in[q].v;
    return (bk_attention_args){
        .n_positions = qv->dim[0].size,
        .n_samples = qv->dim[1].size,
        .n_groups = qv->dim[2].size,
        .heads_per_group = qv->dim[3].size,
        .d = qv->dim[4].size,
        .dv = bk_arg_dim(&c->in[q + 2], 3),
        .scale = bk_attr_f(c->op, SCALE),
        .dropout = bk_attr_f(c->op, P),
        .key = bk_op_dropout_key(c->op, P),
        .samples = bk_call_in(c, samples),
    };
}

/* Heads of a fused [S, B, G*R*dv]. */
static bk_heads fused_heads(const bk_value *o, const bk_attention_args *a)
{
    return (bk_heads){.s = o->stride[0], .b = o->stride[1], .g = a->heads_per_group * a->dv, .r = a->dv};
}

static bk_status attention_cpu(bk_call *c, bk_err *e)
{
    const bk_status st = bk_heads_need_all(c->g, c->op, e);
    if (st != BK_OK) return st;
    const bk_attention_args a = kernel_args(c, 0, 3);
    const bk_arg *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->out[0];
    BK_REAL_CALL(bk_call_f64(c), bk_attention_fwd, o->p, fused_heads(o->v, &a), c->out[1].p, q->p,
                 bk_heads_of(q->v), k->p, bk_heads_of(k->v), v->p, bk_heads_of(v->v), &a);
    return BK_OK;
}

static bk_status attention_grad_cpu(bk_call *c, bk_err *e)
{
    const bk_status st = bk_heads_need_all(c->g, c->op, e);
    if (st != BK_OK) return st;
    const bk_attention_args a = kernel_args(c, 1, 6);
    const bk_arg *in = c->in, *out = c->out;
    BK_REAL_CALL(bk_call_f64(c), bk_attention_bwd, out[0].p, bk_heads_of(out[0].v), out[1].p,
                 bk_heads_of(out[1].v), out[2].p, bk_heads_of(out[2].v), in[0].p, fused_heads(in[0].v, &a),
                 in[1].p, bk_heads_of(in[1].v), in[2].p, bk_heads_of(in[2].v), in[3].p, bk_heads_of(in[3].v),
                 in[4].p, fused_heads(in[4].v, &a), in[5].p, &a, 0, 0, 0, c->work);
    return BK_OK;
}

const bk_op_rules bk_attention_rules = {.shape = attention_shape,
                                        .spread = attention_spread,
                                        .cost = attention_cost,
                                        .grad = attention_grad,
                                        .cpu = attention_cpu};

const bk_op_rules bk_attention_grad_rules = {.shape = attention_grad_shape,
                                             .spread = attention_grad_spread,
                                             .cost = attention_grad_cost,
                                             .workspace = attention_grad_workspace,
                                             .cpu = attention_grad_cpu};
