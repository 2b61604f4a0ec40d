/* route_rows: from index [S, B, k] (and probs [S, B, k] where an expert drops the improbable) the place of
 * each pair of token and expert among R rows: pair_of_row [R] i32, row_of_pair [S, B, k] i32, segments [local
 * + 1] i64, and excess [1] i64, the rows that found no room. */
#define BK_BOTH "ops/moe/route_cpu.h"
#include "base/real_both.h"
#include "ops/moe/segments.h"

enum { FIRST, LOCAL, ROWS, CAPACITY, PAD, BY_POSITION };

static bk_route_room room_of(const bk_op *op)
{
    return (bk_route_room){.first = bk_attr_i(op, FIRST),
                           .local = bk_attr_i(op, LOCAL),
                           .rows = bk_attr_i(op, ROWS),
                           .capacity = bk_attr_i(op, CAPACITY),
                           .pad = bk_attr_i(op, PAD) != 0,
                           .by_position = bk_attr_i(op, BY_POSITION) != 0};
}

static bk_status need_room(const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_route_room room = room_of(op);
    if (room.first < 0 || room.local < 1 || room.local > INT32_MAX)
        return bk_err_set(e, BK_E_INPUT, "experts %" PRId64 " and %" PRId64 " more: expected one at least",
                          room.first, room.local);
    if (room.rows < 0 || room.rows > INT32_MAX || room.capacity < 0 || room.capacity > INT32_MAX)
        return bk_err_set(e, BK_E_INPUT,
                          "%" PRId64 " rows and a capacity of %" PRId64 ": expected 0 to 2^31 - 1", room.rows,
                          room.capacity);
    if (room.pad && (room.capacity < 1 || room.capacity * room.local != room.rows))
        return bk_err_set(e, BK_E_INPUT,
                          "%" PRId64 " rows are not %" PRId64 " for each of %" PRId64
                          " experts, which padding needs",
                          room.rows, room.capacity, room.local);
    if (room.capacity > 0 && !room.by_position && !(op->n_in > 1 && bk_in(g, op, 1)))
        return bk_err_set(e, BK_E_INPUT, "the improbable tokens cannot be dropped without probs");
    return BK_OK;
}

static bk_status shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = bk_shape_need(g, op, 0, "index [S, B, k]", 3, (const int64_t[]){-1, -1, -1}, e);
    if (st == BK_OK) st = bk_shape_need_dtype(g, op, 0, BK_I32, e);
    if (st == BK_OK) st = need_room(g, op, e);
    if (st != BK_OK) return st;
    const bk_value *index = bk_in(g, op, 0);
    const int64_t dim[3] = {index->dim[0].size, index->dim[1].size, index->dim[2].size};
    if (op->n_in > 1 && bk_in(g, op, 1)) st = bk_shape_need(g, op, 1, "probs [S, B, k]", 3, dim, e);
    if (st != BK_OK) return st;
    if (bk_elements(index) > INT32_MAX)
        return bk_err_set(e, BK_E_INPUT, "more than 2^31 - 1 pairs of token and expert");
    bk_shape_set(&out[0], BK_I32, 1, (const bk_dim[]){bk_fixed(bk_attr_i(op, ROWS))});
    bk_shape_like(&out[1], index);
    bk_shape_set(&out[2], BK_I64, 1, (const bk_dim[]){bk_fixed(bk_attr_i(op, LOCAL) + 1)});
    bk_shape_set(&out[3], BK_I64, 1, (const bk_dim[]){bk_fixed(1)});
    return BK_OK;
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_same_only(out, g, op, axis, "rows are numbered through all tokens", e);
}

static int64_t workspace(const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    return BK_REAL_CALL(bk_rule_real(g, op) == BK_F64, bk_route_rows_workspace, bk_elements(bk_in(g, op, 0)),
                        bk_attr_i(op, LOCAL));
}

static bk_status cpu(bk_call *c, bk_err *e)
{
    (void)e;
    const bk_arg *index = &c->in[0];
    BK_REAL_CALL(bk_call_f64(c), bk_route_rows, c->out[0].p, c->out[1].p, c->out[2].p, c->out[3].p, index->p,
                 bk_call_in(c, 1), bk_arg_tokens(index), bk_arg_dim(index, 2), room_of(c->op), c->work);
    return BK_OK;
}

const bk_op_rules bk_route_rows_rules = {
    .shape = shape, .spread = spread, .workspace = workspace, .cpu = cpu};
