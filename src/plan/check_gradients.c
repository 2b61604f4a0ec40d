/* Rule 3: every use of a trainable parameter adds exactly one term for each micro-batch, the first update of
 * an accumulator assigns and no other does; then norm and optimizer, once each. */
#include <stdlib.h>
#include <string.h>

#include "plan/access.h"
#include "plan/build.h"

static bk_status bad(bk_err *e, const char *name, const char *what)
{
    return bk_err_set(e, BK_E_CHECK, "rule 3: parameter %s: %s", name, what);
}

/* An op that has a value, or views of it, among its inputs, and among its updates. */
typedef struct {
    bk_oid op;
    bool reads, updates;
} value_use;

/* For each value (not a view) the ops that have it among their operands, and for each parameter its terms. */
typedef struct {
    const bk_graph *g;
    int64_t *first_use; /* uses of v: use[first_use[v]] .. use[first_use[v + 1] - 1], by op */
    value_use *use;
    int64_t *first_term; /* likewise, indices into graph.term */
    int64_t *term;
} param_uses;

/* Counts uses where `list` is NULL, otherwise stores them. */
static void list_uses(int64_t *at, value_use *list, const bk_graph *g, bk_oid *last)
{
    for (int64_t v = 0; v < g->n_values; v++) last[v] = BK_NONE;
    for (int64_t o = 0; o < g->n_ops; o++)
        for (int32_t k = 0; k < bk_n_operands(&g->op[o]); k++) {
            const bk_op *op = &g->op[o];
            const bk_vid operand = g->operand[op->first + k];
            const bk_vid v = operand == BK_NONE ? BK_NONE : bk_root(g, operand);
            if (v == BK_NONE) continue;
            if (last[v] != o) {
                last[v] = (bk_oid)o;
                if (list) list[at[v]] = (value_use){.op = (bk_oid)o};
                at[v]++;
            }
            if (list && k < op->n_in) list[at[v] - 1].reads = true;
            if (list && k >= op->n_in + op->n_out) list[at[v] - 1].updates = true;
        }
}

/* How an op uses a value. */
static value_use use_by(const param_uses *x, bk_vid v, bk_oid op)
{
    int64_t lo = x->first_use[v], hi = x->first_use[v + 1];
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (x->use[mid].op == op) return x->use[mid];
        if (x->use[mid].op < op)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (value_use){.op = op};
}

/* Counts at [1 + k] become the first places at [k]. */
static void sum_up(int64_t *first, int64_t n)
{
    for (int64_t k = 0; k < n; k++) first[k + 1] += first[k];
}

/* After places were taken one by one, first[k] is the end of k: the start of k + 1. */
static void step_back(int64_t *first, int64_t n)
{
    memmove(first + 1, first, (size_t)n * sizeof *first);
    first[0] = 0;
}

static void uses_free(param_uses *x)
{
    free(x->first_use), free(x->use), free(x->first_term), free(x->term);
}

static bk_status uses_init(param_uses *x, const bk_graph *g, bk_err *e)
{
    bk_oid *last = malloc((size_t)(g->n_values + 1) * sizeof *last);
    *x = (param_uses){.g = g,
                      .first_use = calloc((size_t)g->n_values + 2, sizeof *x->first_use),
                      .use = malloc((size_t)(g->n_operands + 1) * sizeof *x->use),
                      .first_term = calloc((size_t)g->n_params + 2, sizeof *x->first_term),
                      .term = malloc((size_t)(g->n_terms + 1) * sizeof *x->term)};
    const bool ok = last && x->first_use && x->use && x->first_term && x->term;
    if (ok) {
        list_uses(x->first_use + 1, NULL, g, last);
        sum_up(x->first_use, g->n_values);
        list_uses(x->first_use, x->use, g, last);
        step_back(x->first_use, g->n_values);
        for (int64_t t = 0; t < g->n_terms; t++) x->first_term[g->term[t].param + 1]++;
        sum_up(x->first_term, g->n_params);
        for (int64_t t = 0; t < g->n_terms; t++) x->term[x->first_term[g->term[t].param]++] = t;
        step_back(x->first_term, g->n_params);
    }
    free(last);
    return ok ? BK_OK : bk_err_set(e, BK_E_MEM, "checker: out of memory");
}

/* Every term reaches the accumulator, and no use has two. */
static bk_status check_own_terms(const param_uses *x, bk_pid p, bk_err *e)
{
    const bk_graph *g = x->g;
    const bk_param *row = &g->param[p];
    for (int64_t k = x->first_term[p]; k < x->first_term[p + 1]; k++) {
        const bk_term *t = &g->term[x->term[k]];
        if (!use_by(x, row->grad, t->term).updates)
            return bad(e, row->name, "a term does not reach its accumulator");
        for (int64_t j = x->first_term[p]; j < k; j++)
            if (g->term[x->term[j]].term == t->term || g->term[x->term[j]].use == t->use)
                return bad(e, row->name, "a use has two terms");
    }
    return BK_OK;
}

static bool has_term(const param_uses *x, bk_pid p, bk_oid use)
{
    for (int64_t k = x->first_term[p]; k < x->first_term[p + 1]; k++)
        if (x->g->term[x->term[k]].use == use) return true;
    return false;
}

/* Uses and terms pair up, and nothing else touches the accumulator. */
static bk_status check_terms(const param_uses *x, bk_pid p, bk_err *e)
{
    const bk_graph *g = x->g;
    const bk_param *row = &g->param[p];
    const int64_t n_terms = x->first_term[p + 1] - x->first_term[p];
    int64_t n_updates = 0;
    const bk_status st = check_own_terms(x, p, e);
    if (st != BK_OK) return st;
    for (int64_t k = x->first_use[row->value]; k < x->first_use[row->value + 1] && n_terms; k++) {
        const bk_op *op = &g->op[x->use[k].op];
        if (op->tag.pass == BK_PASS_FORWARD && x->use[k].reads && bk_ops[op->kind].rules->grad &&
            !has_term(x, p, x->use[k].op))
            return bad(e, row->name, "a use has no term");
    }
    for (int64_t k = x->first_use[row->grad]; k < x->first_use[row->grad + 1]; k++)
        n_updates += x->use[k].updates;
    return n_updates == n_terms
               ? BK_OK
               : bad(e, row->name, "its accumulator is updated by an op that is no term of it");
}

/* After the terms: one op takes the norm, one updates the parameter. */
static bk_status check_step(const param_uses *x, bk_pid p, bk_err *e)
{
    const bk_graph *g = x->g;
    const bk_param *row = &g->param[p];
    int64_t n_norm = 0, n_optimizer = 0;
    for (int64_t k = x->first_use[row->value]; k < x->first_use[row->value + 1]; k++) {
        if (!x->use[k].updates) continue;
        if (!use_by(x, row->grad, x->use[k].op).reads)
            return bad(e, row->name, "it is updated by an op that does not read its gradient");
        n_optimizer++;
    }
    for (int64_t k = x->first_use[row->grad]; k < x->first_use[row->grad + 1]; k++) {
        const value_use *u = &x->use[k];
        n_norm +=
            u->reads && !use_by(x, row->value, u->op).updates && bk_ops[g->op[u->op].kind].effect == BK_PURE;
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
    param_uses x;
    bk_status st = uses_init(&x, g, e);
    for (bk_pid p = 0; p < g->n_params && st == BK_OK; p++) {
        if (g->param[p].grad == BK_NONE) {
            if (optimizer) st = bad(e, g->param[p].name, "it has no gradient");
            continue;
        }
        st = check_terms(&x, p, e);
        if (st == BK_OK && optimizer) st = check_step(&x, p, e);
    }
    uses_free(&x);
    return st == BK_OK ? check_assigns(a, e) : st;
}
