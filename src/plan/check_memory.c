/* Rule 2: two values that share bytes are never alive at once, and everything stays inside the arena.
 *
 * Instances take their bytes in the order of their first accesses; whoever held a byte before must be done
 * with it, whole, before the new owner begins. Ownership hands on, so this covers every pair. */
#include <stdlib.h>

#include "base/size.h"
#include "plan/access.h"
#include "plan/build.h"
#include "plan/owners.h"

typedef struct {
    const bk_accesses *a;
    bk_err *e;
} scene;

static int64_t workspace_of(const bk_plan *p, bk_oid o)
{
    const bk_op *op = &p->g->op[o];
    return bk_ops[op->kind].rules->workspace ? bk_ops[op->kind].rules->workspace(p->g, op, &p->target) : 0;
}

static bk_status check_place(const bk_accesses *a, int64_t instance, bk_err *e)
{
    int32_t micro;
    char name[192];
    const bk_place place = bk_instance_place(a, instance, &micro);
    const bk_plan *p = a->p;
    const bk_access *x = &a->access[a->first[instance]];
    const bk_value *v = x->role == BK_SCRATCH ? NULL : &p->g->value[bk_root(p->g, x->v)];
    static const bk_space of_scope[] = {
        [BK_RUN] = BK_SPACE_RUN, [BK_STEP] = BK_SPACE_STEP, [BK_MICRO] = BK_SPACE_SLOT};
    const bk_scope scope = v ? v->scope : p->g->op[x->op].scope;
    const int64_t need = v ? bk_value_bytes(v) : workspace_of(p, x->op);
    const int64_t room = scope == BK_RUN    ? p->run_bytes
                         : scope == BK_STEP ? p->step_bytes
                                            : p->chunk[place.chunk].slot_bytes;
    if (place.space != of_scope[scope] || place.bytes != need || place.offset < 0 ||
        place.offset % BK_ALIGN_BYTES != 0 || place.offset > room - need)
        return bk_err_set(e, BK_E_CHECK,
                          "rule 2: %s: place %lld + %lld bytes does not fit its part of %lld bytes",
                          bk_instance_name(name, sizeof name, a, instance), (long long)place.offset,
                          (long long)need, (long long)room);
    return BK_OK;
}

/* Scratch memory that the plan forgot is no instance: it is missed here. */
static bk_status check_workspaces(const bk_plan *p, bk_err *e)
{
    for (bk_oid o = 0; o < p->g->n_ops; o++)
        if (p->work[o].space == BK_SPACE_NONE && workspace_of(p, o) > 0)
            return bk_err_set(e, BK_E_CHECK, "rule 2: op %d (%s) has no place for its scratch memory", (int)o,
                              bk_ops[p->g->op[o].kind].name);
    return BK_OK;
}

static bool has_micro_batches(const bk_plan *p, int32_t chunk)
{
    for (int64_t r = 0; r < p->g->n_regions; r++)
        if (p->g->region[r].scope == BK_MICRO && p->g->region[r].chunk == chunk) return true;
    return false;
}

static bk_status check_slots(const bk_plan *p, bk_err *e)
{
    for (int32_t c = 0; c < p->n_chunks; c++) {
        const bk_chunk_block *b = &p->chunk[c];
        if (!has_micro_batches(p, c)) continue;
        const int64_t padded = bk_align_up(b->slot_bytes, BK_ALIGN_BYTES);
        if (b->base < 0 || b->n_slots < 1 ||
            b->base + (b->n_slots - 1) * padded + b->slot_bytes > p->step_bytes)
            return bk_err_set(e, BK_E_CHECK, "rule 2: the slots of chunk %d do not fit the arena", (int)c);
        for (int32_t m = 0; m < p->s->n_micro; m++)
            if (p->slot[c * p->s->n_micro + m] < 0 || p->slot[c * p->s->n_micro + m] >= b->n_slots)
                return bk_err_set(e, BK_E_CHECK, "rule 2: micro-batch %d has no slot in chunk %d", (int)m,
                                  (int)c);
    }
    return BK_OK;
}

/* The one case in which two values may meet: an op that computes its output in place of an input that it is
 * the last to read. */
static bool handed_over(const bk_accesses *a, int64_t from, int64_t to, const bk_access *last,
                        const bk_access *first)
{
    if (last->item != first->item || last->op != first->op || first->role != BK_WRITE) return false;
    int32_t m;
    const bk_place x = bk_instance_place(a, from, &m), y = bk_instance_place(a, to, &m);
    bk_vid heir = BK_NONE;
    const bk_vid source = bk_alias_source(&heir, a->p->g, &a->p->g->op[first->op]);
    return source == last->v && heir == first->v && last->role == BK_READ && x.offset == y.offset &&
           x.bytes == y.bytes;
}

/* Every access of `former` comes before every access of `taker`. On a lane, the last of the one and the first
 * of the other decide. */
static bk_status was_owned(void *ctx, int64_t former, int64_t taker)
{
    const scene *s = ctx;
    const bk_accesses *a = s->a;
    const bk_access *last[BK_N_LANES] = {NULL}, *first[BK_N_LANES] = {NULL};
    int32_t micro;
    if (bk_instance_place(a, taker, &micro).space == BK_SPACE_RUN) { /* alive from step to step */
        char n[192], m[192];
        return bk_err_set(s->e, BK_E_CHECK, "rule 2: %s and %s share bytes and both live as long as the run",
                          bk_instance_name(n, sizeof n, a, former), bk_instance_name(m, sizeof m, a, taker));
    }
    for (int64_t k = a->first[former]; k < a->first[former + 1]; k++) {
        const bk_access *x = &a->access[k], **l = &last[a->p->s->item[x->item].lane];
        if (!*l || bk_access_before(a->h, *l, x)) *l = x;
    }
    for (int64_t k = a->first[taker]; k < a->first[taker + 1]; k++) {
        const bk_access *x = &a->access[k], **f = &first[a->p->s->item[x->item].lane];
        if (!*f || bk_access_before(a->h, x, *f)) *f = x;
    }
    for (int l = 0; l < BK_N_LANES; l++)
        for (int j = 0; j < BK_N_LANES; j++) {
            char n[192], m[192], x[256], y[256];
            if (!last[l] || !first[j] || bk_access_before(a->h, last[l], first[j]) ||
                handed_over(a, former, taker, last[l], first[j]))
                continue;
            return bk_err_set(
                s->e, BK_E_CHECK, "rule 2: %s and %s share bytes, but %s may run after %s has begun",
                bk_instance_name(n, sizeof n, a, former), bk_instance_name(m, sizeof m, a, taker),
                bk_access_name(x, sizeof x, a, last[l]), bk_access_name(y, sizeof y, a, first[j]));
        }
    return BK_OK;
}

typedef struct {
    int64_t instance, rank;
} entry;

static int by_rank(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return a->instance < b->instance ? -1 : a->instance > b->instance;
}

/* Instances in the order of their first accesses; within one item, reads of an op come before its writes. */
static int64_t first_rank(const bk_accesses *a, int64_t instance)
{
    int64_t least = INT64_MAX;
    for (int64_t k = a->first[instance]; k < a->first[instance + 1]; k++) {
        const bk_access *x = &a->access[k];
        const int64_t rank = (a->h->rank[x->item] * a->p->g->n_ops + x->op) * 2 + (x->role != BK_READ);
        if (rank < least) least = rank;
    }
    return least;
}

bk_status bk_check_memory(const bk_accesses *a, bk_err *e)
{
    entry *order = malloc((size_t)(a->n_instances + 1) * sizeof *order);
    int64_t n = 0;
    bk_owners owners = {0};
    scene s = {a, e};
    bk_status st = order ? check_slots(a->p, e) : bk_err_set(e, BK_E_MEM, "checker: out of memory");
    if (st == BK_OK) st = check_workspaces(a->p, e);
    for (int64_t i = 0; i < a->n_instances && st == BK_OK; i++) {
        if (a->first[i] == a->first[i + 1]) continue;
        order[n++] = (entry){i, first_rank(a, i)};
        st = check_place(a, i, e);
    }
    if (st == BK_OK) qsort(order, (size_t)n, sizeof *order, by_rank);
    for (int64_t k = 0; k < n && st == BK_OK; k++) {
        int32_t micro;
        const bk_place place = bk_instance_place(a, order[k].instance, &micro);
        const int64_t at = bk_plan_address(a->p, &place, micro);
        st = bk_owners_take(&owners, at, at + place.bytes, order[k].instance, was_owned, &s);
        if (st == BK_E_MEM) bk_err_set(e, st, "checker: out of memory");
    }
    bk_owners_free(&owners);
    free(order);
    return st;
}
