/* Rule 6: every value has a legal spread, and every gradient reaches the optimizer spread as its parameter.
 * The rules of the ops say what is legal; here they are asked again, whatever the graph says. */

#include <stdlib.h>

#include "plan/access.h"

static bool same_spread(bk_spread a, bk_spread b)
{
    return a.kind == b.kind && (a.kind != BK_SPLIT || a.dim == b.dim);
}

static bk_status check_op(const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    bk_spread *is = calloc((size_t)(op->n_out + op->n_upd) + 1, sizeof *is);
    if (!is) return bk_err_set(e, BK_E_MEM, "checker: out of memory");
    bk_status st = bk_ops[op->kind].rules->spread(is, g, op, axis, e);
    for (int32_t r = 0; r < op->n_out + op->n_upd && st == BK_OK; r++) {
        const bk_value *v = &g->value[g->operand[op->first + op->n_in + r]];
        if (!same_spread(is[r], v->spread[axis]))
            st = bk_err_set(e, BK_E_CHECK, "%s is not spread over %s as %s makes it", v->name,
                            bk_axis_names[axis], bk_ops[op->kind].name);
    }
    free(is);
    return st == BK_OK ? st : bk_err_prefix(e, "rule 6: ");
}

bk_status bk_check_spread(const bk_plan *p, bk_err *e)
{
    const bk_graph *g = p->g;
    for (int axis = 0; axis < BK_N_AXES; axis++) {
        if (g->axis_size[axis] < 2) {
            for (int64_t v = 0; v < g->n_values; v++)
                if (g->value[v].spread[axis].kind != BK_SAME)
                    return bk_err_set(e, BK_E_CHECK, "rule 6: %s is spread over %s, which has one rank",
                                      g->value[v].name, bk_axis_names[axis]);
            continue;
        }
        for (int64_t o = 0; o < g->n_ops; o++) {
            const bk_status st = check_op(g, &g->op[o], (bk_axis)axis, e);
            if (st != BK_OK) return st;
        }
        for (bk_pid r = 0; r < g->n_params; r++) {
            const bk_param *row = &g->param[r];
            if (row->grad != BK_NONE && !same_spread(g->value[row->grad].spread[axis], row->spread[axis]))
                return bk_err_set(e, BK_E_CHECK,
                                  "rule 6: the gradient of %s is not spread over %s as the parameter: a "
                                  "reduction is missing",
                                  row->name, bk_axis_names[axis]);
        }
    }
    return BK_OK;
}
