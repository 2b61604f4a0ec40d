/* permute: rows [R, C] of tokens x [S, B, C] in the order of their experts; unpermute: the sum [S, B, C] of
 * each token's rows. Each is the gradient of the other. permute_probs and unpermute_probs do the same with
 * one number of each pair, [S, B, k] and [R]. Inputs after the first: pair_of_row, row_of_pair, segments
 * (route_rows). */
#define BK_BOTH "ops/moe/route_cpu.h"
#include "base/real_both.h"
#include "ops/moe/segments.h"

enum { SEGMENTS = 3 };

#define TO_ROWS    "SBc,R:i,SBK:i,G:l>Rc"
#define FROM_ROWS  "Rc,R:i,SBK:i,G:l>SBc"
#define PROBS_TO   "SBK,R:i,SBK:i,G:l>R"
#define PROBS_FROM "R,R:i,SBK:i,G:l>SBK"

static const char *pattern_of(const bk_op *op)
{
    return op->kind == BK_OP_permute         ? TO_ROWS
           : op->kind == BK_OP_unpermute     ? FROM_ROWS
           : op->kind == BK_OP_permute_probs ? PROBS_TO
                                             : PROBS_FROM;
}

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, pattern_of(op), e);
    if (st == BK_OK && (op->kind == BK_OP_permute || op->kind == BK_OP_permute_probs))
        bk_count_rows(out, g, op, SEGMENTS);
    return st;
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, pattern_of(op), e);
}

static void cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
}

static bk_op_kind gradient_of(const bk_op *op)
{
    return op->kind == BK_OP_permute         ? BK_OP_unpermute
           : op->kind == BK_OP_unpermute     ? BK_OP_permute
           : op->kind == BK_OP_permute_probs ? BK_OP_unpermute_probs
                                             : BK_OP_permute_probs;
}

static bk_status grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    if (dy == BK_NONE || !bk_grad_wanted(c, op.in[0])) return BK_OK;
    const bk_vid in[] = {dy, op.in[1], op.in[2], op.in[3]};
    bk_vid dx;
    const bk_status st = bk_op_add(
        &dx, c->g,
        &(bk_op_spec){.kind = gradient_of(&op.op), .in = in, .n_in = 4, .n_out = 1, .name = "moe.dx"}, e);
    return st == BK_OK ? bk_grad_add(c, op.in[0], dx, e) : st;
}

static bk_status permute_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_permute, c->out[0].p, c->in[0].p, c->in[1].p,
                 bk_rows_of(&c->in[SEGMENTS]), bk_arg_dim(&c->in[2], 2), bk_arg_dim(&c->in[0], 2));
    return BK_OK;
}

static bk_status unpermute_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_unpermute, c->out[0].p, c->in[0].p, c->in[2].p, bk_arg_tokens(&c->out[0]),
                 bk_arg_dim(&c->in[2], 2), bk_arg_dim(&c->out[0], 2));
    return BK_OK;
}

/* A pair is a token with one choice. */
static bk_status permute_probs_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_permute, c->out[0].p, c->in[0].p, c->in[1].p,
                 bk_rows_of(&c->in[SEGMENTS]), 1, 1);
    return BK_OK;
}

static bk_status unpermute_probs_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    BK_REAL_CALL(bk_call_f64(c), bk_unpermute, c->out[0].p, c->in[0].p, c->in[2].p, bk_elements(c->out[0].v),
                 1, 1);
    return BK_OK;
}

#define RULES(kind)                                                                                          \
    const bk_op_rules bk_##kind##_rules = {                                                                  \
        .shape = shape, .spread = spread, .cost = cost, .grad = grad, .cpu = kind##_cpu}

RULES(permute);
RULES(unpermute);
RULES(permute_probs);
RULES(unpermute_probs);
