#include "ir/plain_order.h"

#include <stdlib.h>
#include <string.h>

void bk_plain_order_free(bk_plain_order *o)
{
    if (!o) return;
    free(o->op), free(o->pos), free(o->late);
    *o = (bk_plain_order){0};
}

/* Storage of an operand, or BK_NONE where there is none. */
static bk_vid root_of(const bk_graph *g, bk_vid v)
{
    if (v < 0 || v >= g->n_values) return BK_NONE;
    const bk_vid base = g->value[v].base;
    return base >= 0 && base < g->n_values ? base : v;
}

static bool is_late_value(const bk_graph *g, const bool *late, bk_vid v)
{
    const bk_vid root = root_of(g, v);
    return root != BK_NONE && late[root];
}

/* Does the op read anything late, the counts of its inputs included? `late` has a flag for each storage. */
static bool reads_late(const bk_graph *g, const bool *late, const bk_op *op)
{
    for (int32_t k = 0; k < op->n_in; k++) {
        const bk_vid v = bk_ins(g, op)[k];
        if (root_of(g, v) == BK_NONE) continue;
        if (is_late_value(g, late, v)) return true;
        for (int d = 0; d < g->value[v].rank && d < BK_MAX_DIMS; d++)
            if (is_late_value(g, late, g->value[v].dim[d].count - 1)) return true;
    }
    return false;
}

static bool operands_inside(const bk_graph *g, const bk_op *op)
{
    return op->first >= 0 && op->n_in >= 0 && op->n_out >= 0 && op->n_upd >= 0 &&
           (int64_t)op->first + op->n_in + op->n_out + op->n_upd <= g->n_operands;
}

static void mark_written(bool *late_value, const bk_graph *g, const bk_op *op)
{
    for (int32_t k = 0; k < op->n_out + op->n_upd; k++) {
        const bk_vid root = root_of(g, bk_outs(g, op)[k]);
        if (root != BK_NONE) late_value[root] = true;
    }
}

static void find_late(bool *late, bool *late_value, const bk_graph *g)
{
    for (int64_t i = 0; i < g->n_ops; i++)
        if (g->op[i].scope == BK_MICRO && operands_inside(g, &g->op[i]))
            mark_written(late_value, g, &g->op[i]);
    for (int64_t i = 0; i < g->n_ops; i++) {
        const bk_op *op = &g->op[i];
        if (op->scope == BK_MICRO || !operands_inside(g, op)) continue;
        late[i] = reads_late(g, late_value, op);
        if (late[i]) mark_written(late_value, g, op);
    }
}

bk_status bk_plain_order_make(bk_plain_order *out, const bk_graph *g, bk_err *e)
{
    const size_t n = (size_t)g->n_ops;
    bk_plain_order o = {.n = (int32_t)g->n_ops};
    bool *late_value = calloc((size_t)g->n_values + 1, sizeof *late_value);
    o.op = calloc(n + 1, sizeof *o.op);
    o.pos = calloc(n + 1, sizeof *o.pos);
    o.late = calloc(n + 1, sizeof *o.late);
    if (!late_value || !o.op || !o.pos || !o.late) {
        free(late_value);
        bk_plain_order_free(&o);
        return bk_err_set(e, BK_E_MEM, "plain order: out of memory");
    }
    find_late(o.late, late_value, g);
    free(late_value);
    int32_t at = 0;
    for (int part = 0; part < 3; part++) {
        if (part == 1) o.micro = at;
        if (part == 2) o.epilogue = at;
        for (int32_t i = 0; i < o.n; i++)
            if (part == (g->op[i].scope == BK_MICRO ? 1 : o.late[i] ? 2 : 0)) o.op[at] = i, o.pos[i] = at++;
    }
    *out = o;
    return BK_OK;
}
