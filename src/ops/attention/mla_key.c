/* The keys of multi-latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1.3):
 *
 *   mla_key(own [S,B,G,n], shared [S,B,1,p]; key [S,B,G,n+p])      key = [own | shared, for each head]
 *   mla_key_grad(d_key; d_own, d_shared)                           dims: n
 *
 * Every operand may be a part of something larger. */
#include "base/size.h"
#define BK_BOTH "ops/attention/mla_key_cpu.h"
#include "base/real_both.h"
#include "ops/adapters.h"

enum { DIMS };

static bk_status key_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_op inputs = *op; /* the output's width is a sum */
    inputs.n_out = 0;
    int64_t width;
    bk_status st;
    BK_TRY(bk_shape_pattern(NULL, g, &inputs, "sbgn,sb1p", e));
    for (int k = 0; k < 2; k++) BK_TRY(bk_heads_need(g, op, k, e));
    const bk_value *own = bk_in(g, op, 0);
    if (!bk_add64(&width, own->dim[3].size, bk_in(g, op, 1)->dim[3].size))
        return bk_err_set(e, BK_E_MEM, "the width of a key overflows");
    bk_shape_set(out, own->dtype, 4,
                 (const bk_dim[]){own->dim[0], own->dim[1], own->dim[2], bk_fixed(width)});
done:
    return st;
}

/* Where heads are split, each rank broadcasts to its own. */
static bk_status key_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbgN,sb1P>sbgD", e);
}

static bk_status key_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    if (dy == BK_NONE) return BK_OK;
    const bk_op_spec spec = {.kind = BK_OP_mla_key_grad,
                             .in = &dy,
                             .n_in = 1,
                             .n_out = 2,
                             .name = "mla_key.d",
                             .attr = {{c->g->value[op.in[0]].dim[3].size}}};
    bk_vid d[2];
    bk_status st = bk_op_add(d, c->g, &spec, e);
    for (int k = 0; k < 2 && st == BK_OK; k++) st = bk_grad_add(c, op.in[k], d[k], e);
    return st;
}

static bk_status key_cpu(bk_call *c, bk_err *e)
{
    const bk_status st = bk_heads_need_all(c->g, c->op, e);
    if (st != BK_OK) return st;
    const bk_arg *key = &c->out[0], *own = &c->in[0], *shared = &c->in[1];
    BK_REAL_CALL(bk_call_f64(c), bk_mla_key, key->p, bk_heads_of(key->v), own->p, bk_heads_of(own->v),
                 shared->p, bk_heads_of(shared->v), bk_arg_dim(key, 0), bk_arg_dim(key, 1),
                 bk_arg_dim(key, 2), bk_arg_dim(own, 3), bk_arg_dim(shared, 3));
    return BK_OK;
}

const bk_op_rules bk_mla_key_rules = {
    .shape = key_shape, .spread = key_spread, .grad = key_grad, .cpu = key_cpu};

/* ---- mla_key_grad ------------------------------------------------------------------------------------- */

static bk_status key_grad_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_op inputs = *op; /* the widths of the outputs are not those of an input */
    inputs.n_out = 0;
    bk_status st;
    char text[BK_OPERAND_TEXT];
    BK_TRY(bk_shape_pattern(NULL, g, &inputs, "sbgd", e));
    BK_TRY(bk_heads_need(g, op, 0, e));
    const bk_value *d = bk_in(g, op, 0);
    const int64_t n = bk_attr_i(op, DIMS), width = d->dim[3].size;
    if (n < 0 || n > width)
        return bk_err_set(e, BK_E_INPUT, "%s: dims is %lld, expected how many of a key are the head's own",
                          bk_operand_text(text, g, op, 0), (long long)n);
    bk_shape_set(&out[0], d->dtype, 4, (const bk_dim[]){d->dim[0], d->dim[1], d->dim[2], bk_fixed(n)});
    bk_shape_set(&out[1], d->dtype, 4,
                 (const bk_dim[]){d->dim[0], d->dim[1], bk_fixed(1), bk_fixed(width - n)});
done:
    return st;
}

static bk_status key_grad_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbgD>sbgN,sb1P", e);
}

static bk_status key_grad_cpu(bk_call *c, bk_err *e)
{
    const bk_status st = bk_heads_need_all(c->g, c->op, e);
    if (st != BK_OK) return st;
    const bk_arg *d = &c->in[0], *own = &c->out[0], *shared = &c->out[1];
    BK_REAL_CALL(bk_call_f64(c), bk_mla_key_bwd, own->p, bk_heads_of(own->v), shared->p,
                 bk_heads_of(shared->v), d->p, bk_heads_of(d->v), bk_arg_dim(d, 0), bk_arg_dim(d, 1),
                 bk_arg_dim(d, 2), bk_arg_dim(own, 3), bk_arg_dim(shared, 3));
    return BK_OK;
}

const bk_op_rules bk_mla_key_grad_rules = {
    .shape = key_grad_shape, .spread = key_grad_spread, .cpu = key_grad_cpu};
