#include "ir/grad.h"

#include <stdio.h>

#include "base/vec.h"

bool bk_grad_wanted(const bk_grad_ctx *c, bk_vid v)
{
    return v != BK_NONE && v < c->n && c->want[v];
}

bk_vid bk_grad_of(const bk_grad_ctx *c, bk_vid v)
{
    return v != BK_NONE && v < c->n ? c->sum[v] : BK_NONE;
}

bk_status bk_grad_add(bk_grad_ctx *c, bk_vid v, bk_vid contribution, bk_err *e)
{
    if (!bk_grad_wanted(c, v) || contribution == BK_NONE) return BK_OK;
    bk_grad_list *l = &c->of[v];
    const int64_t n = c->g->n_values;
    bk_status st =
        bk_vec_grow(&c->n_added, &c->cap_counted, c->n_counted, n - c->n_counted, sizeof *c->n_added);
    if (st == BK_OK) c->n_counted = n;
    if (st == BK_OK) BK_VEC_PUSH(st, l->v, l->n, l->cap, contribution);
    if (st == BK_OK) c->n_added[contribution]++;
    return st == BK_OK ? st : bk_err_set(e, BK_E_MEM, "autodiff: out of memory");
}

int32_t bk_grad_n_added(const bk_grad_ctx *c, bk_vid v)
{
    return v < c->n_counted ? c->n_added[v] : 0;
}

bk_status bk_grad_accumulator(bk_vid *out, bk_grad_ctx *c, bk_vid v, bk_err *e)
{
    *out = BK_NONE;
    if (!bk_grad_wanted(c, v)) return BK_OK;
    bk_graph *g = c->g;
    const bk_pid pid = g->value[v].param;
    if (g->param[pid].grad == BK_NONE) {
        const bk_value *p = &g->value[v];
        bk_value acc = *p;
        /* Gradients are summed in fp32 whatever the parameter's dtype (double in checks). */
        acc.dtype = p->dtype == BK_F64 ? BK_F64 : BK_F32;
        acc.kind = BK_GRADIENT, acc.scope = BK_STEP;
        bk_status st = bk_value_add(&g->param[pid].grad, g, &acc, e);
        if (st != BK_OK) return st;
    }
    *out = g->param[pid].grad;
    return BK_OK;
}

bk_status bk_grad_term(bk_grad_ctx *c, bk_vid v, bk_oid use, bk_oid term, bk_err *e)
{
    bk_graph *g = c->g;
    bk_status st;
    BK_VEC_PUSH(st, g->term, g->n_terms, g->cap_terms, (bk_term){g->value[v].param, use, term});
    return st == BK_OK ? st : bk_err_set(e, BK_E_MEM, "autodiff: out of memory");
}
