#include "plan/access.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/plain_order.h"

int64_t bk_value_instance(const bk_accesses *a, bk_vid root, int32_t micro)
{
    return a->of_value[root] + (a->p->g->value[root].scope == BK_MICRO ? micro : 0);
}

/* Numbers the instances: of the values, then of the scratch memory of ops. */
static bk_status number_instances(bk_accesses *a)
{
    const bk_graph *g = a->p->g;
    const int64_t n_micro = a->p->s->n_micro;
    a->of_value = malloc((size_t)(g->n_values + 1) * sizeof *a->of_value);
    a->of_work = malloc((size_t)(g->n_ops + 1) * sizeof *a->of_work);
    if (!a->of_value || !a->of_work) return BK_E_MEM;
    for (int64_t v = 0; v < g->n_values; v++) {
        a->of_value[v] = g->value[v].base == BK_NONE ? a->n_instances : BK_NONE;
        if (g->value[v].base == BK_NONE) a->n_instances += g->value[v].scope == BK_MICRO ? n_micro : 1;
    }
    for (int64_t o = 0; o < g->n_ops; o++) {
        a->of_work[o] = a->p->work[o].space != BK_SPACE_NONE ? a->n_instances : BK_NONE;
        if (a->of_work[o] != BK_NONE) a->n_instances += g->op[o].scope == BK_MICRO ? n_micro : 1;
    }
    return BK_OK;
}

/* Where each op runs. */
typedef struct {
    bk_plain_order order;
    bk_rid *region; /* of each op */
    int32_t *item;  /* [region][micro-batch], 0 for a region of the step */
} runs;

static bk_status runs_init(runs *r, const bk_plan *p)
{
    const bk_graph *g = p->g;
    r->region = malloc((size_t)(g->n_ops + 1) * sizeof *r->region);
    r->item = malloc((size_t)(g->n_regions * p->s->n_micro + 1) * sizeof *r->item);
    if (!r->region || !r->item) return BK_E_MEM;
    for (bk_rid x = 0; x < g->n_regions; x++)
        for (int32_t k = 0; k < g->region[x].n_ops; k++) r->region[g->region_op[g->region[x].first + k]] = x;
    for (int64_t i = 0; i < p->s->n_items; i++) {
        const bk_item *it = &p->s->item[i];
        r->item[(int64_t)it->region * p->s->n_micro + (it->micro == BK_NONE ? 0 : it->micro)] = (int32_t)i;
    }
    return bk_plain_order_make(&r->order, g, NULL);
}

static void runs_free(runs *r)
{
    bk_plain_order_free(&r->order);
    free(r->region), free(r->item);
}

/* Calls for every operand of an op and for its scratch memory; counts where `fill` is false, stores where it
 * is true. */
static void visit_op(bk_accesses *a, int64_t *at, const runs *r, bk_oid o, int32_t micro, bool fill)
{
    const bk_graph *g = a->p->g;
    const bk_op *op = &g->op[o];
    const int32_t n = bk_n_operands(op), item = r->item[(int64_t)r->region[o] * a->p->s->n_micro + micro];
    for (int32_t j = 0; j <= n; j++) {
        const bk_vid v = j < n ? g->operand[op->first + j] : BK_NONE;
        if (j < n ? v == BK_NONE : a->of_work[o] == BK_NONE) continue;
        const int64_t inst = j < n ? bk_value_instance(a, bk_root(g, v), micro) : a->of_work[o] + micro;
        const bk_role role = j == n                     ? BK_SCRATCH
                             : j < op->n_in             ? BK_READ
                             : j < op->n_in + op->n_out ? BK_WRITE
                                                        : BK_UPDATE;
        if (fill) a->access[at[inst]] = (bk_access){item, o, v, role};
        at[inst]++;
    }
}

/* Every op in plain order. */
static void visit(bk_accesses *a, int64_t *at, const runs *r, bool fill)
{
    const bk_plain_order *x = &r->order;
    for (int32_t k = 0; k < x->micro; k++) visit_op(a, at, r, x->op[k], 0, fill);
    for (int32_t m = 0; m < a->p->s->n_micro; m++)
        for (int32_t k = x->micro; k < x->epilogue; k++) visit_op(a, at, r, x->op[k], m, fill);
    for (int32_t k = x->epilogue; k < x->n; k++) visit_op(a, at, r, x->op[k], 0, fill);
}

/* Counts, then stores. */
static bk_status list_accesses(bk_accesses *a, const runs *r)
{
    bk_status st = BK_OK;
    int64_t *at = calloc((size_t)a->n_instances + 1, sizeof *at);
    a->first = malloc((size_t)(a->n_instances + 1) * sizeof *a->first);
    if (!at || !a->first) {
        st = BK_E_MEM;
        goto done;
    }
    visit(a, at, r, false);
    a->first[0] = 0;
    for (int64_t i = 0; i < a->n_instances; i++) {
        a->first[i + 1] = a->first[i] + at[i];
        at[i] = a->first[i];
    }
    a->access = malloc((size_t)(a->first[a->n_instances] + 1) * sizeof *a->access);
    st = a->access ? BK_OK : BK_E_MEM;
    if (st == BK_OK) visit(a, at, r, true);
done:
    free(at);
    return st;
}

bk_status bk_accesses_init(bk_accesses *a, const bk_plan *p, const bk_happens *h, bk_err *e)
{
    *a = (bk_accesses){.p = p, .h = h};
    runs r = {0};
    bk_status st = number_instances(a);
    if (st == BK_OK) st = runs_init(&r, p);
    if (st == BK_OK) st = list_accesses(a, &r);
    runs_free(&r);
    return st == BK_OK ? st : bk_err_set(e, st, "checker: out of memory");
}

void bk_accesses_free(bk_accesses *a)
{
    free(a->access), free(a->first), free(a->of_value), free(a->of_work);
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
