/* Every op is in one region, and every region runs once for each micro-batch or once a step, on its lane. */
#include <stdlib.h>

#include "plan/access.h"

static bk_status ops_once(const bk_graph *g, int32_t *count, bk_err *e)
{
    for (int64_t k = 0; k < g->n_region_ops; k++) {
        const bk_oid o = g->region_op[k];
        if (o < 0 || o >= g->n_ops)
            return bk_err_set(e, BK_E_CHECK, "complete: a region names op %d, which does not exist", (int)o);
    }
    for (int64_t r = 0; r < g->n_regions; r++) {
        const bk_region *x = &g->region[r];
        for (int32_t k = 0; k < x->n_ops; k++) {
            const bk_oid o = g->region_op[x->first + k];
            count[o]++;
            if (k && g->region_op[x->first + k - 1] >= o)
                return bk_err_set(e, BK_E_CHECK, "complete: op %d (%s) of a region is not in plain order",
                                  (int)o, bk_ops[g->op[o].kind].name);
        }
    }
    for (int64_t o = 0; o < g->n_ops; o++) {
        char tag[96];
        if (count[o] != 1)
            return bk_err_set(e, BK_E_CHECK, "complete: op %lld (%s, %s) is in %d regions instead of one",
                              (long long)o, bk_ops[g->op[o].kind].name,
                              bk_tag_name(tag, sizeof tag, g->op[o].tag), (int)count[o]);
    }
    return BK_OK;
}

static bk_status scopes_fit(const bk_graph *g, bk_err *e)
{
    for (int64_t r = 0; r < g->n_regions; r++)
        for (int32_t k = 0; k < g->region[r].n_ops; k++) {
            const bk_oid o = g->region_op[g->region[r].first + k];
            if (g->op[o].scope != g->region[r].scope)
                return bk_err_set(e, BK_E_CHECK, "complete: op %d (%s) is of another scope than its region",
                                  (int)o, bk_ops[g->op[o].kind].name);
        }
    return BK_OK;
}

static bk_status items_once(const bk_plan *p, int32_t *count, bk_err *e)
{
    const bk_graph *g = p->g;
    const int32_t m = p->s->n_micro;
    char tag[96];
    for (int64_t i = 0; i < p->s->n_items; i++) {
        const bk_item *it = &p->s->item[i];
        if (it->region < 0 || it->region >= g->n_regions)
            return bk_err_set(e, BK_E_CHECK, "complete: item %lld names no region", (long long)i);
        const bk_region *r = &g->region[it->region];
        const bool micro = it->micro != BK_NONE;
        if (micro != (r->scope == BK_MICRO) || it->micro < BK_NONE || it->micro >= m || it->lane != r->lane ||
            it->chunk != r->chunk)
            return bk_err_set(e, BK_E_CHECK,
                              "complete: item %lld (%s) does not fit its region's scope, lane or chunk",
                              (long long)i, bk_tag_name(tag, sizeof tag, r->tag));
        count[(int64_t)it->region * m + (micro ? it->micro : 0)]++;
    }
    for (int64_t r = 0; r < g->n_regions; r++)
        for (int32_t k = 0; k < (g->region[r].scope == BK_MICRO ? m : 1); k++)
            if (count[r * m + k] != 1)
                return bk_err_set(
                    e, BK_E_CHECK, "complete: region %s runs %d times for micro-batch %d instead of once",
                    bk_tag_name(tag, sizeof tag, g->region[r].tag), (int)count[r * m + k], (int)k);
    return BK_OK;
}

bk_status bk_check_complete(const bk_plan *p, bk_err *e)
{
    const size_t n = (size_t)(p->g->n_regions * p->s->n_micro + p->g->n_ops) + 1;
    int32_t *count = calloc(2 * n, sizeof *count);
    if (!count) return bk_err_set(e, BK_E_MEM, "checker: out of memory");
    bk_status st = ops_once(p->g, count, e);
    if (st == BK_OK) st = scopes_fit(p->g, e);
    if (st == BK_OK) st = items_once(p, count + n, e);
    free(count);
    return st;
}
