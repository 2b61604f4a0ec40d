/* Rule 3: every use of a trainable parameter adds exactly one term for each micro-batch, the first update of
 * an accumulator assigns and no other does; then norm and optimizer, once each. */
#include <stdlib.h>

#include "plan/access.h"

static bk_status bad(bk_err *e, const char *name, const char *what)
{
    return bk_err_set(e, BK_E_CHECK, "rule 3: parameter %s: %s", name, what);
}

static bool updates_value(const bk_graph *g, const bk_op *op, bk_vid v)
{
    for (int32_t k = 0; k < op->n_upd; k++)
        if (bk_root(g, bk_upds(g, op)[k]) == v) return true;
    return false;
}

static bool reads_value(const bk_graph *g, const bk_op *op, bk_vid v)
{
    for (int32_t k = 0; k < op->n_in; k++)
        if (bk_ins(g, op)[k] != BK_NONE && bk_root(g, bk_ins(g, op)[k]) == v) return true;
    return false;
}

/* Uses and terms pair up, and nothing else touches the accumulator. */
static bk_status check_terms(const bk_graph *g, bk_pid p, bk_err *e)
{
    const bk_param *row = &g->param[p];
    int64_t n_terms = 0, n_updates = 0;
    for (int64_t t = 0; t < g->n_terms; t++) {
        if (g->term[t].param != p) continue;
        n_terms++;
        if (!updates_value(g, &g->op[g->term[t].term], row->grad))
            return bad(e, row->name, "a term does not reach its accumulator");
        for (int64_t k = 0; k < t; k++)
            if (g->term[k].param == p &&
                (g->term[k].term == g->term[t].term || g->term[k].use == g->term[t].use))
                return bad(e, row->name, "a use has two terms");
    }
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        n_updates += updates_value(g, op, row->grad);
        if (op->tag.pass != BK_PASS_FORWARD || !reads_value(g, op, row->value) ||
            !bk_ops[op->kind].rules->grad || !n_terms)
            continue;
        bool found = false;
        for (int64_t t = 0; t < g->n_terms; t++)
            found = found || (g->term[t].param == p && g->term[t].use == o);
        if (!found) return bad(e, row->name, "a use has no term");
    }
    return n_updates == n_terms
               ? BK_OK
               : bad(e, row->name, "its accumulator is updated by an op that is no term of it");
}

/* After the terms: one op takes the norm, one updates the parameter. */
static bk_status check_step(const bk_graph *g, bk_pid p, bk_err *e)
{
    const bk_param *row = &g->param[p];
    int64_t n_norm = 0, n_optimizer = 0;
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        const bool reads = reads_value(g, op, row->grad), updates = updates_value(g, op, row->value);
        if (updates && !reads)
            return bad(e, row->name, "it is updated by an op that does not read its gradient");
        n_optimizer += updates;
        n_norm += reads && !updates && bk_ops[op->kind].effect == BK_PURE;
    }
    if (n_optimizer != 1) return bad(e, row->name, "it is not updated exactly once a step");
    if (n_norm != 1) return bad(e, row->name, "its gradient does not enter the norm exactly once");
    return BK_OK;
}

/* Which updates must assign: the first of each accumulator, a value of scope step that no op writes. */
static bk_status check_assigns(const bk_accesses *a, bk_err *e)
{
    const bk_plan *p = a->p;
    const bk_graph *g = p->g;
    int64_t n_expected = 0;
    for (int64_t i = 0; i < a->n_instances; i++) {
        const bk_access *first = NULL;
        bool written = false;
        for (int64_t k = a->first[i]; k < a->first[i + 1]; k++) {
            const bk_access *x = &a->access[k];
            written = written || x->role == BK_WRITE;
            if (x->role == BK_UPDATE && !first) first = x;
        }
        if (!first || written || g->value[bk_root(g, first->v)].scope != BK_STEP) continue;
        n_expected++;
        const bk_op *op = &g->op[first->op];
        int32_t u = 0;
        while (bk_upds(g, op)[u] != first->v) u++;
        char name[192];
        if (!bk_plan_assigns(p, first->item, first->op, u))
            return bk_err_set(e, BK_E_CHECK, "rule 3: the first update of %s adds to what nobody wrote",
                              bk_instance_name(name, sizeof name, a, i));
    }
    if (p->n_assigns == n_expected) return BK_OK;
    return bk_err_set(e, BK_E_CHECK,
                      "rule 3: %lld updates assign instead of adding, but there are %lld accumulators",
                      (long long)p->n_assigns, (long long)n_expected);
}

/* A program may stop at the gradients (checks do); if it updates one parameter it must update all. */
static bool has_optimizer(const bk_graph *g)
{
    for (int64_t o = 0; o < g->n_ops; o++)
        for (int32_t k = 0; k < g->op[o].n_upd; k++)
            if (g->value[bk_root(g, bk_upds(g, &g->op[o])[k])].kind == BK_PARAM) return true;
    return false;
}

bk_status bk_check_gradients(const bk_accesses *a, bk_err *e)
{
    const bk_graph *g = a->p->g;
    const bool optimizer = has_optimizer(g);
    for (bk_pid p = 0; p < g->n_params; p++) {
        if (g->param[p].grad == BK_NONE) {
            if (optimizer) return bad(e, g->param[p].name, "it has no gradient");
            continue;
        }
        bk_status st = check_terms(g, p, e);
        if (st == BK_OK && optimizer) st = check_step(g, p, e);
        if (st != BK_OK) return st;
    }
    return check_assigns(a, e);
}
