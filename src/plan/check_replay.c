/* Rule 5: a replay (an op of pass recompute) reads kept values only, has no effects, and what it saves is
 * named (its outputs say which dropped value they compute again) and really free in between. */
#include "plan/access.h"

/* The instance's last access, and whether all of them come before x. */
static bool all_before(const bk_accesses *a, int64_t instance, const bk_access *x)
{
    for (int64_t k = a->first[instance]; k < a->first[instance + 1]; k++)
        if (!bk_access_before(a->h, &a->access[k], x)) return false;
    return true;
}

static bk_status check_inputs(const bk_graph *g, const bk_op *op, bk_err *e)
{
    for (int32_t k = 0; k < op->n_in; k++) {
        const bk_vid v = bk_ins(g, op)[k] == BK_NONE ? BK_NONE : bk_root(g, bk_ins(g, op)[k]);
        for (int64_t u = 0; u < g->n_values && v != BK_NONE; u++)
            if (g->value[u].replay_of == v)
                return bk_err_set(e, BK_E_CHECK,
                                  "rule 5: the replay %s reads %s, which is dropped; %s replaces it",
                                  bk_ops[op->kind].name, g->value[v].name, g->value[u].name);
    }
    return BK_OK;
}

/* Every use of the dropped value is over before its replay begins: in between its bytes are free. */
static bk_status check_dropped(const bk_accesses *a, bk_vid replay, bk_err *e)
{
    const bk_graph *g = a->p->g;
    const int32_t n = a->p->s->n_micro;
    for (int32_t m = 0; m < n; m++) {
        const int64_t copy = bk_value_instance(a, replay, m);
        const int64_t dropped = bk_value_instance(a, bk_root(g, g->value[replay].replay_of), m);
        if (a->first[copy] == a->first[copy + 1]) continue;
        if (!all_before(a, dropped, &a->access[a->first[copy]])) {
            char name[192];
            return bk_err_set(
                e, BK_E_CHECK,
                "rule 5: %s is dropped and computed again, but still used after its replay begins",
                bk_instance_name(name, sizeof name, a, dropped));
        }
    }
    return BK_OK;
}

bk_status bk_check_replay(const bk_accesses *a, bk_err *e)
{
    const bk_graph *g = a->p->g;
    bk_status st = BK_OK;
    for (int64_t o = 0; o < g->n_ops && st == BK_OK; o++) {
        const bk_op *op = &g->op[o];
        if (op->tag.pass != BK_PASS_RECOMPUTE) continue;
        if (bk_ops[op->kind].effect != BK_PURE)
            return bk_err_set(e, BK_E_CHECK, "rule 5: the replay %s has an effect, which would happen twice",
                              bk_ops[op->kind].name);
        st = check_inputs(g, op, e);
        for (int32_t k = 0; k < op->n_out && st == BK_OK; k++) {
            const bk_vid v = bk_root(g, bk_outs(g, op)[k]);
            if (g->value[v].replay_of == BK_NONE)
                return bk_err_set(e, BK_E_CHECK,
                                  "rule 5: the replay %s does not say which value %s computes again",
                                  bk_ops[op->kind].name, g->value[v].name);
            st = check_dropped(a, v, e);
        }
    }
    return st;
}
