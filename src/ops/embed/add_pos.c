/* add_pos: y [S, B, C] = x + table[first + s], table [at least S, C]; first is the value of the input
 * `position` (i64 [1]), 0 where it is absent. add_pos_grad: dtable[s] += the sum over b of dy. */
#include "ops/rules.h"

#include <inttypes.h>

#define BK_BOTH "ops/embed/embed_cpu.h"
#include "base/real_both.h"

static bk_status enough_rows(const bk_value *table, const bk_value *x, bk_err *e)
{
    if (table->dim[0].size >= x->dim[0].size) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "sequences of %" PRId64 " tokens, but %s has %" PRId64
                      " positions; shorten the sequence or raise max_position_embeddings",
                      x->dim[0].size, table->name, table->dim[0].size);
}

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "sbc,pc,1:l>sbc", e);
    return st == BK_OK ? enough_rows(bk_in(g, op, 1), bk_in(g, op, 0), e) : st;
}

/* Row s of the table belongs to position s of the whole sequence, so positions are not split here. */
static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Sbc,Pc,1:l>Sbc", e);
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    if (op.in[2] != BK_NONE)
        return bk_err_set(e, BK_E_INPUT, "add_pos: only sequences that begin at position 0 are trained on");
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    if (dy == BK_NONE) return BK_OK;
    const bk_status st = bk_grad_add(c, op.in[0], dy, e);
    if (st != BK_OK || !bk_grad_wanted(c, op.in[1])) return st;
    const bk_op_spec spec = {.kind = BK_OP_add_pos_grad, .in = &dy, .n_in = 1};
    return bk_grad_op(NULL, c, &spec, &op.in[1], 1, id, e);
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    const bk_arg *x = &c->in[0], *table = &c->in[1];
    int64_t first;
    const bk_status st = bk_call_position(&first, c, 2, bk_arg_dim(x, 0), bk_arg_dim(table, 0),
                                          "rows of the position table", e);
    if (st != BK_OK) return st;
    const char *row = (const char *)table->p + first * bk_arg_dim(table, 1) * bk_dtype_bytes(table->v->dtype);
    BK_REAL_CALL(bk_call_f64(c), bk_embed_position_fwd, c->out[0].p, x->p, (const void *)row,
                 bk_arg_dim(x, 0), bk_arg_dim(x, 1), bk_arg_dim(x, 2));
    return BK_OK;
}

const bk_op_rules bk_add_pos_rules = {
    .shape = fwd_shape, .spread = fwd_spread, .grad = fwd_grad, .cpu = fwd_cpu};

/* The number of rows is the accumulator's. */
static bk_status bwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_status st = bk_shape_pattern(out, g, op, "sbc>+pc", e);
    return st == BK_OK ? enough_rows(&g->value[bk_upds(g, op)[0]], bk_in(g, op, 0), e) : st;
}

static bk_status bwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Sbc>+Pc", e);
}

static bk_status bwd_cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *dy = &c->in[0];
    BK_REAL_CALL(bk_call_f64(c), bk_embed_position_bwd, c->upd[0].p, dy->p, bk_arg_dim(dy, 0),
                 bk_arg_dim(dy, 1), bk_arg_dim(dy, 2), bk_arg_dim(&c->upd[0], 0), bk_call_beta(c, 0));
    return BK_OK;
}

const bk_op_rules bk_add_pos_grad_rules = {.shape = bwd_shape, .spread = bwd_spread, .cpu = bwd_cpu};
