/* Rule 1: every read happens after the write it names; the updates of a value are in the plain order, and a
 * reader is before the first or after the last of them. */
#include "plan/access.h"

typedef struct {
    const bk_accesses *a;
    int64_t instance, n;
    const bk_access *x; /* its accesses in plain order */
    bk_err *e;
} scene;

static bk_status violation(const scene *s, const bk_access *first, const bk_access *then, const char *what)
{
    char name[192], x[256], y[256];
    return bk_err_set(s->e, BK_E_CHECK, "rule 1: %s: %s (%s) must be done before %s begins",
                      bk_instance_name(name, sizeof name, s->a, s->instance),
                      bk_access_name(x, sizeof x, s->a, first), what,
                      bk_access_name(y, sizeof y, s->a, then));
}

/* Writers come before everything else, and no two write the whole value. */
static bk_status check_writers(const scene *s, int64_t *n_writers)
{
    const bk_graph *g = s->a->p->g;
    *n_writers = 0;
    for (int64_t k = 0; k < s->n; k++) {
        if (s->x[k].role != BK_WRITE) continue;
        ++*n_writers;
        for (int64_t j = 0; j < s->n; j++) {
            char name[192];
            const bool both_write = s->x[j].role == BK_WRITE && j != k;
            if (both_write && (g->value[s->x[k].v].base == BK_NONE || g->value[s->x[j].v].base == BK_NONE))
                return bk_err_set(s->e, BK_E_CHECK, "rule 1: %s is written twice",
                                  bk_instance_name(name, sizeof name, s->a, s->instance));
            if (s->x[j].role != BK_WRITE && !bk_access_before(s->a->h, &s->x[k], &s->x[j]))
                return violation(s, &s->x[k], &s->x[j], "it writes");
        }
    }
    return BK_OK;
}

static bool same_op(const bk_access *x, const bk_access *y)
{
    return x->item == y->item && x->op == y->op;
}

/* Updates follow each other; a reader stands before the first or after the last, on the side that plain order
 * says. An op may read what it updates: the reads of an op stand before its updates. */
static bk_status check_updates(const scene *s)
{
    const bk_access *first = NULL, *last = NULL;
    for (int64_t k = 0; k < s->n; k++) {
        if (s->x[k].role != BK_UPDATE) continue;
        if (last && !bk_access_before(s->a->h, last, &s->x[k]))
            return violation(s, last, &s->x[k], "it updates first");
        if (!first) first = &s->x[k];
        last = &s->x[k];
    }
    for (const bk_access *r = s->x; r < s->x + s->n && first; r++) {
        char name[192], reader[256];
        if (r->role != BK_READ) continue;
        if (r > first && r < last && !same_op(r, last))
            return bk_err_set(s->e, BK_E_CHECK, "rule 1: %s reads %s between its updates",
                              bk_access_name(reader, sizeof reader, s->a, r),
                              bk_instance_name(name, sizeof name, s->a, s->instance));
        if (r < first && !same_op(r, first) && !bk_access_before(s->a->h, r, first))
            return violation(s, r, first, "it reads the value before the update");
        if (r > last && !bk_access_before(s->a->h, last, r)) return violation(s, last, r, "it updates");
    }
    return BK_OK;
}

static bk_status check_instance(const scene *s)
{
    int64_t n_writers;
    bk_status st = check_writers(s, &n_writers);
    if (st != BK_OK || s->x[0].role == BK_SCRATCH) return st;
    const bk_graph *g = s->a->p->g;
    const bk_value *v = &g->value[bk_root(g, s->x[0].v)];
    if (n_writers == 0 && v->scope != BK_RUN && s->x[0].role == BK_READ) {
        char name[192];
        return bk_err_set(s->e, BK_E_CHECK, "rule 1: %s is read and never written",
                          bk_instance_name(name, sizeof name, s->a, s->instance));
    }
    return check_updates(s);
}

bk_status bk_check_order(const bk_accesses *a, bk_err *e)
{
    for (int64_t i = 0; i < a->n_instances; i++) {
        const scene s = {a, i, a->first[i + 1] - a->first[i], a->access + a->first[i], e};
        const bk_status st = s.n ? check_instance(&s) : BK_OK;
        if (st != BK_OK) return st;
    }
    return BK_OK;
}
