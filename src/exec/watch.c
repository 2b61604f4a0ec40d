/* Finds where a step stops being finite: one thread, the plan's issue order, a look at everything that is
 * written. */
#include <math.h>
#include <stdio.h>

#include "exec/exec_internal.h"

static bool finite_value(const bk_exec *x, const bk_plan *p, bk_vid v, int32_t micro)
{
    const bk_value *value = &p->g->value[v];
    if (value->dtype != BK_F32 && value->dtype != BK_F64) return true;
    const void *at = x->arena + bk_plan_address(p, &p->place[bk_root(p->g, v)], micro);
    /* A view's base is looked at whole only if it is dense; views of others are parts of what a later op
     * reads whole. */
    if (!bk_is_dense(value)) return true;
    const int64_t n = bk_elements(value);
    for (int64_t i = 0; i < n; i++) {
        const double e = value->dtype == BK_F64 ? ((const double *)at)[value->offset + i]
                                                : (double)((const float *)at)[value->offset + i];
        if (!isfinite(e)) return false;
    }
    return true;
}

static bool find_in_op(char *where, int64_t cap, const bk_exec *x, const bk_plan *p, bk_oid o, int32_t micro)
{
    const bk_op *op = &p->g->op[o];
    for (int32_t k = op->n_in; k < bk_n_operands(op); k++) {
        const bk_vid v = p->g->operand[op->first + k];
        char tag[96];
        if (finite_value(x, p, v, micro)) continue;
        snprintf(where, (size_t)cap, "%s, written by %s in %s", p->g->value[v].name, bk_ops[op->kind].name,
                 bk_tag_name(tag, sizeof tag, op->tag));
        return true;
    }
    return false;
}

bk_status bk_exec_watch(char *where, int64_t cap, bk_exec *x, const bk_plan *p, const bk_host *host,
                        bk_err *e)
{
    bk_ready *r;
    bk_status st = BK_OK;
    bool found = false;
    where[0] = '\0';
    BK_TRY(bk_ready_get(&r, x, p, e));
    BK_TRY(bk_runner_reserve(&x->runner, r->max_operands, e));
    for (int32_t i = 0; i < p->s->n_items; i++) {
        const bk_item *it = &p->s->item[i];
        const bk_region *region = &p->g->region[it->region];
        for (int32_t k = 0; k < region->n_ops; k++) {
            BK_TRY(bk_run_op(x, &x->runner, p, host, i, k, e));
            found = found || find_in_op(where, cap, x, p, p->g->region_op[region->first + k], it->micro);
        }
    }
done:
    return st;
}
