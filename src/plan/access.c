#include "plan/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instances are numbered: values times micro-batches, then ops (scratch memory) times micro-batches. Values
 * and ops that are not of a micro-batch use the first of their numbers. */
int64_t bk_value_instance(const bk_accesses *a, bk_vid root, int32_t micro)
{
    return (int64_t)root * a->p->s->n_micro + (a->p->g->value[root].scope == BK_MICRO ? micro : 0);
}

static int64_t work_instance(const bk_accesses *a, bk_oid op, int32_t micro)
{
    return (a->p->g->n_values + (int64_t)op) * a->p->s->n_micro + (micro == BK_NONE ? 0 : micro);
}

static int64_t plain_order(const bk_accesses *a, bk_oid o, int32_t micro)
{
    const bk_graph *g = a->p->g;
    const int64_t phase = g->op[o].scope == BK_MICRO ? 1 + (int64_t)micro
                          : a->order.late[o]         ? 1 + (int64_t)a->p->s->n_micro
                                                     : 0;
    return phase * g->n_ops + o;
}

/* Calls for every operand of every op of every item; counts where `fill` is false, stores where it is true.
 */
static void visit(bk_accesses *a, int64_t *at, bool fill)
{
    const bk_graph *g = a->p->g;
    for (int64_t i = 0; i < a->p->s->n_items; i++) {
        const bk_item *it = &a->p->s->item[i];
        const bk_region *r = &g->region[it->region];
        for (int32_t k = 0; k < r->n_ops; k++) {
            const bk_oid o = g->region_op[r->first + k];
            const bk_op *op = &g->op[o];
            const int32_t n = bk_n_operands(op);
            for (int32_t j = 0; j <= n; j++) {
                const bk_vid v = j < n ? g->operand[op->first + j] : BK_NONE;
                if (j < n ? v == BK_NONE : a->p->work[o].space == BK_SPACE_NONE) continue;
                const int64_t inst =
                    j < n ? bk_value_instance(a, bk_root(g, v), it->micro) : work_instance(a, o, it->micro);
                const bk_role role = j == n                     ? BK_SCRATCH
                                     : j < op->n_in             ? BK_READ
                                     : j < op->n_in + op->n_out ? BK_WRITE
                                                                : BK_UPDATE;
                if (fill)
                    a->access[at[inst]] =
                        (bk_access){(int32_t)i, k, o, v, role, plain_order(a, o, it->micro)};
                at[inst]++;
            }
        }
    }
}

static int by_plain_order(const void *x, const void *y)
{
    const bk_access *a = x, *b = y;
    if (a->plain != b->plain) return a->plain < b->plain ? -1 : 1;
    return a->role < b->role ? -1 : a->role > b->role;
}

bk_status bk_accesses_init(bk_accesses *a, const bk_plan *p, const bk_happens *h, bk_err *e)
{
    *a = (bk_accesses){.p = p, .h = h};
    const bk_graph *g = p->g;
    a->n_instances = (g->n_values + g->n_ops) * p->s->n_micro;
    int64_t *at = calloc((size_t)a->n_instances + 1, sizeof *at);
    a->first = calloc((size_t)a->n_instances + 1, sizeof *a->first);
    bk_status st = at && a->first ? bk_plain_order_make(&a->order, g, NULL) : BK_E_MEM;
    if (st == BK_OK) {
        visit(a, at, false);
        for (int64_t i = 0; i < a->n_instances; i++) {
            a->first[i + 1] = a->first[i] + at[i];
            at[i] = a->first[i];
        }
        a->access = malloc((size_t)(a->first[a->n_instances] + 1) * sizeof *a->access);
        st = a->access ? BK_OK : BK_E_MEM;
    }
    if (st == BK_OK) {
        visit(a, at, true);
        for (int64_t i = 0; i < a->n_instances; i++)
            qsort(a->access + a->first[i], (size_t)(a->first[i + 1] - a->first[i]), sizeof *a->access,
                  by_plain_order);
    }
    free(at);
    return st == BK_OK ? st : bk_err_set(e, st, "checker: out of memory");
}

void bk_accesses_free(bk_accesses *a)
{
    bk_plain_order_free(&a->order);
    free(a->access), free(a->first);
    *a = (bk_accesses){0};
}

bk_place bk_instance_place(const bk_accesses *a, int64_t instance, int32_t *micro)
{
    const bk_access *x = &a->access[a->first[instance]];
    const bk_graph *g = a->p->g;
    const bk_place place = x->role == BK_SCRATCH ? a->p->work[x->op] : a->p->place[bk_root(g, x->v)];
    *micro = place.space == BK_SPACE_SLOT ? a->p->s->item[x->item].micro : BK_NONE;
    return place;
}

const char *bk_instance_name(char *buf, int64_t cap, const bk_accesses *a, int64_t instance)
{
    const bk_access *x = &a->access[a->first[instance]];
    const bk_graph *g = a->p->g;
    const int32_t micro = a->p->s->item[x->item].micro;
    char of[32] = "";
    if (micro != BK_NONE && (x->role == BK_SCRATCH || g->value[bk_root(g, x->v)].scope == BK_MICRO))
        snprintf(of, sizeof of, " of micro-batch %d", (int)micro);
    if (x->role == BK_SCRATCH)
        snprintf(buf, (size_t)cap, "the scratch memory of op %d (%s)%s", (int)x->op,
                 bk_ops[g->op[x->op].kind].name, of);
    else
        snprintf(buf, (size_t)cap, "%s%s", g->value[bk_root(g, x->v)].name, of);
    return buf;
}

const char *bk_access_name(char *buf, int64_t cap, const bk_accesses *a, const bk_access *x)
{
    char item[192];
    snprintf(buf, (size_t)cap, "%s in %s", bk_ops[a->p->g->op[x->op].kind].name,
             bk_item_name(item, sizeof item, a->p, x->item));
    return buf;
}
