/* Takes dead ops and values out of a graph and renumbers what is left. */
#include <stdlib.h>

#include "passes/passes.h"

static bool has_lasting_name(const bk_value *v)
{
    return v->kind != BK_ACTIVATION;
}

static void mark_used(bool *used, const bk_graph *g, const bool *dead_op)
{
    for (int64_t v = 0; v < g->n_values; v++)
        used[v] = has_lasting_name(&g->value[v]) && g->value[v].base == BK_NONE;
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        for (int k = 0; k < bk_n_operands(op) && !dead_op[o]; k++) {
            const bk_vid v = g->operand[op->first + k];
            if (v != BK_NONE) used[v] = used[bk_root(g, v)] = true;
        }
    }
    for (int64_t v = 0; v < g->n_values; v++)
        for (int d = 0; d < g->value[v].rank && used[v]; d++)
            if (g->value[v].dim[d].count) used[g->value[v].dim[d].count - 1] = true;
}

static bk_vid moved(const bk_vid *to, bk_vid v)
{
    return v == BK_NONE ? BK_NONE : to[v];
}

static void move_values(bk_graph *g, const bk_vid *to)
{
    for (int64_t v = 0; v < g->n_values; v++) {
        if (to[v] == BK_NONE) continue;
        bk_value x = g->value[v];
        x.base = moved(to, x.base), x.replay_of = moved(to, x.replay_of);
        for (int d = 0; d < x.rank; d++)
            if (x.dim[d].count) x.dim[d].count = 1 + to[x.dim[d].count - 1];
        g->value[to[v]] = x;
    }
    for (int64_t p = 0; p < g->n_params; p++) {
        g->param[p].value = to[g->param[p].value];
        g->param[p].grad = moved(to, g->param[p].grad);
    }
}

/* Operands are packed again in the order of the ops. */
static bk_status move_ops(bk_graph *g, const bool *dead_op, const bk_vid *to, bk_oid *op_to)
{
    bk_vid *operand = malloc((size_t)(g->n_operands ? g->n_operands : 1) * sizeof *operand);
    if (!operand) return BK_E_MEM;
    int64_t n = 0, n_operands = 0;
    for (int64_t o = 0; o < g->n_ops; o++) {
        op_to[o] = BK_NONE;
        if (dead_op[o]) continue;
        bk_op op = g->op[o];
        for (int k = 0; k < op.n_in + op.n_out + op.n_upd; k++)
            operand[n_operands + k] = moved(to, g->operand[op.first + k]);
        op.first = (int32_t)n_operands;
        n_operands += op.n_in + op.n_out + op.n_upd;
        op_to[o] = (bk_oid)n;
        g->op[n++] = op;
    }
    free(g->operand);
    g->operand = operand, g->cap_operands = g->n_operands ? g->n_operands : 1;
    g->n_ops = n, g->n_operands = n_operands;
    for (int64_t t = 0; t < g->n_terms; t++) {
        g->term[t].use = op_to[g->term[t].use];
        g->term[t].term = op_to[g->term[t].term];
    }
    return BK_OK;
}

bk_status bk_graph_compact(bk_graph *g, const bool *dead_op, bk_err *e)
{
    bool *used = malloc((size_t)g->n_values + 1);
    bk_vid *to = malloc((size_t)(g->n_values + 1) * sizeof *to);
    bk_oid *op_to = malloc((size_t)(g->n_ops + 1) * sizeof *op_to);
    bk_status st = used && to && op_to ? BK_OK : BK_E_MEM;
    if (st == BK_OK) {
        mark_used(used, g, dead_op);
        int64_t n = 0;
        for (int64_t v = 0; v < g->n_values; v++) to[v] = used[v] ? (bk_vid)n++ : BK_NONE;
        st = move_ops(g, dead_op, to, op_to);
        if (st == BK_OK) move_values(g, to), g->n_values = n;
        if (st == BK_OK) st = bk_graph_index_names(g, e);
    }
    free(used), free(to), free(op_to);
    return st == BK_OK ? st : bk_err_set(e, st, "graph: out of memory");
}
