/* rope(x, cos, sin; y): x and y [S, B, G, R, d] or [S, B, G, d] (one head a group), either of them possibly a
 * part of a fused projection; cos, sin [S, dims/2]. Dims `first` .. `first` + dims - 1 of each head turn, the
 * others pass.
 *
 * Its gradient turns the other way, so the gradient op is rope with `inverse` flipped. */
#define BK_BOTH "ops/rope/rope_cpu.h"
#include "base/real_both.h"
#include "ops/adapters.h"

enum { INTERLEAVED, INVERSE, FIRST };

static const char *const pattern[] = {[4] = "sbgD,sP,sP>sbgD", [5] = "sbgrD,sP,sP>sbgrD"};

static bk_status rope_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *x = bk_in(g, op, 0), *table = bk_in(g, op, 1);
    char text[BK_OPERAND_TEXT];
    if (x->rank != 4 && x->rank != 5)
        return bk_err_set(e, BK_E_INPUT, "%s has %d dims, expected [S, B, G, R, d] or [S, B, G, d]",
                          bk_operand_text(text, g, op, 0), x->rank);
    bk_status st = bk_shape_pattern(out, g, op, pattern[x->rank], e);
    if (st == BK_OK) st = bk_heads_need(g, op, 0, e);
    if (st != BK_OK) return st;
    const int64_t layout = bk_attr_i(op, INTERLEAVED), turned = 2 * table->dim[1].size;
    if (layout < BK_ROPE_HALVES || layout > BK_ROPE_DEINTERLEAVE)
        return bk_err_set(e, BK_E_INPUT,
                          "interleaved is %lld, expected 0 (halves), 1 (pairs) or 2 (pairs to halves)",
                          (long long)layout);
    const int64_t first = bk_attr_i(op, FIRST), width = x->dim[x->rank - 1].size;
    if (first < 0)
        return bk_err_set(e, BK_E_INPUT, "first is %lld, expected the number of dims that pass before",
                          (long long)first);
    if (turned > width || first > width - turned)
        return bk_err_set(e, BK_E_INPUT,
                          "%s: the tables turn %lld dims of each head from dim %lld on, more than it has",
                          bk_operand_text(text, g, op, 0), (long long)turned, (long long)first);
    return BK_OK;
}

static bk_status rope_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, pattern[bk_in(g, op, 0)->rank], e);
}

static void rope_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = 3 * bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_status rope_grad(bk_grad_ctx *ctx, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(ctx, id);
    const bk_vid x = op.in[0], dy = bk_grad_of(ctx, op.out[0]);
    if (dy == BK_NONE) return BK_OK;
    bk_op_spec spec = {
        .kind = BK_OP_rope, .in = (const bk_vid[]){dy, op.in[1], op.in[2]}, .n_in = 3, .name = "rope.dx"};
    spec.attr[INTERLEAVED] = op.op.attr[INTERLEAVED];
    spec.attr[INVERSE].i = !bk_attr_i(&op.op, INVERSE);
    spec.attr[FIRST] = op.op.attr[FIRST];
    bk_vid dx;
    const bk_status st = bk_op_add(&dx, ctx->g, &spec, e);
    return st == BK_OK ? bk_grad_add(ctx, x, dx, e) : st;
}

static bk_status rope_cpu(bk_call *c, bk_err *e)
{
    const bk_status st = bk_heads_need_all(c->g, c->op, e);
    if (st != BK_OK) return st;
    const bk_value *x = c->in[0].v, *y = c->out[0].v;
    BK_REAL_CALL(bk_call_f64(c), bk_rope_apply, c->out[0].p, bk_heads_of(y), c->in[0].p, bk_heads_of(x),
                 c->in[1].p, c->in[2].p, x->dim[0].size, x->dim[1].size, x->dim[2].size,
                 x->rank == 5 ? x->dim[3].size : 1, bk_attr_i(c->op, FIRST), 2 * bk_arg_dim(&c->in[1], 1),
                 bk_arg_dim(&c->in[0], -1), (bk_rope_layout)bk_attr_i(c->op, INTERLEAVED),
                 bk_attr_i(c->op, INVERSE) != 0, 0);
    return BK_OK;
}

const bk_op_rules bk_rope_rules = {
    .shape = rope_shape, .spread = rope_spread, .cost = rope_cost, .grad = rope_grad, .cpu = rope_cpu};
