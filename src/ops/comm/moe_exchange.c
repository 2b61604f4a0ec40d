/* Rows of tokens between the ranks of an expert-parallel group: rank q of P holds the experts q L .. q L + L
 * - 1 of E = P L.
 *
 * moe_exchange   from segments [E + 1] of the rows that this rank sends, in the order of the experts, counts
 *                [P, E] of what every rank sends, received [L + 1], the segments of the rows that come, and
 *                excess [1], how many of them find no room
 * moe_dispatch   rows [Rs, C] or [Rs] to the ranks of their experts: [R, C] or [R], in the order of expert,
 *                then sending rank, then token
 * moe_combine    the way back
 *
 * Dispatch and combine are each other's gradient. All ranks know all counts, so all cut off the same rows
 * where there is no room: what comes back for those is zero. (Megatron-LM's all-to-all dispatcher; its order
 * of ranks inside an expert is the same.) */
#include <inttypes.h>
#include <string.h>

#include "ops/moe/segments.h"

enum { RANKS, RANK, ROOM };            /* attributes of moe_exchange */
enum { ROWS, SENT, COUNTS, RECEIVED }; /* inputs of the other two */
enum { TO_ROWS };                      /* their attribute */

static const char no_split[] = "rows are numbered through all tokens of a rank";

static bk_status need_rows(int64_t rows, bk_err *e)
{
    if (rows >= 0 && rows <= INT32_MAX) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "room for %" PRId64 " rows: expected 0 to 2^31 - 1", rows);
}

/* Segments [experts + 1] i64 at input k. */
static bk_status need_segments(const bk_graph *g, const bk_op *op, int k, int64_t experts, bk_err *e)
{
    const int64_t dim[] = {experts < 0 ? -1 : experts + 1};
    const bk_status st = bk_shape_need(g, op, k, "segments [experts + 1]", 1, dim, e);
    return st == BK_OK ? bk_shape_need_dtype(g, op, k, BK_I64, e) : st;
}

/* The CPU has rows and counts of its own rank alone. */
static bk_status need_one_rank(int64_t ranks, bk_err *e)
{
    if (ranks == 1) return BK_OK;
    return bk_err_set(
        e, BK_E_INPUT,
        "tokens go to the experts of %" PRId64
        " ranks, and nothing here carries them between ranks; plan such a layout, and run it with "
        "expert_model_parallel_size 1",
        ranks);
}

/* ---- moe_exchange ------------------------------------------------------------------------------------- */

static bk_status exchange_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const int64_t ranks = bk_attr_i(op, RANKS), rank = bk_attr_i(op, RANK);
    bk_status st = need_segments(g, op, 0, -1, e);
    if (st == BK_OK) st = need_rows(bk_attr_i(op, ROOM), e);
    if (st != BK_OK) return st;
    const int64_t experts = bk_in(g, op, 0)->dim[0].size - 1;
    if (ranks < 1 || rank < 0 || rank >= ranks || experts < ranks || experts % ranks != 0)
        return bk_err_set(e, BK_E_INPUT,
                          "rank %" PRId64 " of %" PRId64 " with %" PRId64
                          " experts: every rank needs as many experts, and one at least",
                          rank, ranks, experts);
    bk_shape_set(&out[0], BK_I64, 2, (const bk_dim[]){bk_fixed(ranks), bk_fixed(experts)});
    bk_shape_set(&out[1], BK_I64, 1, (const bk_dim[]){bk_fixed(experts / ranks + 1)});
    bk_shape_set(&out[2], BK_I64, 1, (const bk_dim[]){bk_fixed(1)});
    return BK_OK;
}

static bk_status spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_same_only(out, g, op, axis, no_split, e);
}

/* A rank sends what it has to each of the others. */
static int64_t sent_bytes(const bk_value *v, int64_t ranks)
{
    return bk_value_bytes(v) / ranks * (ranks - 1);
}

static void exchange_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = bk_elements(bk_in(g, op, 0));
    out->bytes = bk_cost_bytes(g, op);
    out->msg_bytes = (bk_attr_i(op, RANKS) - 1) * (bk_value_bytes(bk_in(g, op, 0)) - 8);
}

static bk_status exchange_cpu(bk_call *c, bk_err *e)
{
    const int64_t *sent = c->in[0].p;
    int64_t *counts = c->out[0].p, *received = c->out[1].p, *excess = c->out[2].p;
    const int64_t experts = bk_arg_dim(&c->in[0], 0) - 1, room = bk_attr_i(c->op, ROOM);
    const bk_status st = need_one_rank(bk_attr_i(c->op, RANKS), e);
    if (st != BK_OK) return st;
    for (int64_t x = 0; x < experts; x++) counts[x] = sent[x + 1] - sent[x];
    for (int64_t x = 0; x <= experts; x++) received[x] = sent[x] < room ? sent[x] : room;
    *excess = sent[experts] - received[experts];
    return BK_OK;
}

const bk_op_rules bk_moe_exchange_rules = {
    .shape = exchange_shape, .spread = spread, .cost = exchange_cost, .cpu = exchange_cpu};

/* ---- moe_dispatch, moe_combine ------------------------------------------------------------------------ */

static bool is_dispatch(const bk_op *op)
{
    return op->kind == BK_OP_moe_dispatch;
}

static bk_status move_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    const bk_value *rows = bk_in(g, op, ROWS);
    char text[BK_OPERAND_TEXT];
    if (!bk_dtype_is_float(rows->dtype) || rows->rank < 1 || rows->rank > 2)
        return bk_err_set(e, BK_E_INPUT, "%s: expected floating-point rows [R, C] or [R]",
                          bk_operand_text(text, g, op, ROWS));
    bk_status st = bk_shape_need(g, op, COUNTS, "counts [ranks, experts]", 2, (const int64_t[]){-1, -1}, e);
    if (st == BK_OK) st = bk_shape_need_dtype(g, op, COUNTS, BK_I64, e);
    if (st != BK_OK) return st;
    const int64_t ranks = bk_in(g, op, COUNTS)->dim[0].size, experts = bk_in(g, op, COUNTS)->dim[1].size;
    if (ranks < 1 || experts % ranks != 0)
        return bk_err_set(e, BK_E_INPUT, "%s: expected as many experts for each rank",
                          bk_operand_text(text, g, op, COUNTS));
    st = need_segments(g, op, SENT, experts, e);
    if (st == BK_OK) st = need_segments(g, op, RECEIVED, experts / ranks, e);
    if (st == BK_OK) st = need_rows(bk_attr_i(op, TO_ROWS), e);
    if (st != BK_OK) return st;
    bk_shape_like(out, rows);
    out->dim[0] = bk_fixed(bk_attr_i(op, TO_ROWS));
    bk_count_rows(out, g, op, is_dispatch(op) ? RECEIVED : SENT);
    return BK_OK;
}

/* What travels is what this rank's tokens make, whichever way. */
static void move_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    out->flops = bk_elements(bk_in(g, op, ROWS));
    out->bytes = bk_cost_bytes(g, op);
    out->msg_bytes = sent_bytes(is_dispatch(op) ? bk_in(g, op, ROWS) : &g->value[bk_outs(g, op)[0]],
                                bk_in(g, op, COUNTS)->dim[0].size);
}

static bk_status move_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    if (dy == BK_NONE || !bk_grad_wanted(c, op.in[ROWS])) return BK_OK;
    const bk_vid in[] = {dy, op.in[SENT], op.in[COUNTS], op.in[RECEIVED]};
    bk_vid dx;
    const bk_status st =
        bk_op_add(&dx, c->g,
                  &(bk_op_spec){.kind = is_dispatch(&op.op) ? BK_OP_moe_combine : BK_OP_moe_dispatch,
                                .in = in,
                                .n_in = 4,
                                .n_out = 1,
                                .name = "moe.dx",
                                .attr = {{c->g->value[op.in[ROWS]].dim[0].size}}},
                  e);
    return st == BK_OK ? bk_grad_add(c, op.in[ROWS], dx, e) : st;
}

/* The rows that both sides have, then zeros as far as rows are counted. */
static bk_status move_cpu(bk_call *c, bk_err *e)
{
    const bk_status st = need_one_rank(bk_arg_dim(&c->in[COUNTS], 0), e);
    if (st != BK_OK) return st;
    const bk_arg *to = &c->out[0];
    const int64_t sent = bk_rows_of(&c->in[SENT]), received = bk_rows_of(&c->in[RECEIVED]);
    const int64_t n_to = is_dispatch(c->op) ? received : sent, n = sent < received ? sent : received;
    const size_t row = (size_t)((to->v->rank == 2 ? bk_arg_dim(to, 1) : 1) * bk_dtype_bytes(to->v->dtype));
    if (n > 0) memcpy(to->p, c->in[ROWS].p, (size_t)n * row);
    if (n_to > n) memset((char *)to->p + (size_t)n * row, 0, (size_t)(n_to - n) * row);
    return BK_OK;
}

const bk_op_rules bk_moe_dispatch_rules = {
    .shape = move_shape, .spread = spread, .cost = move_cost, .grad = move_grad, .cpu = move_cpu};
const bk_op_rules bk_moe_combine_rules = {
    .shape = move_shape, .spread = spread, .cost = move_cost, .grad = move_grad, .cpu = move_cpu};
