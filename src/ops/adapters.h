/* What the CPU adapters of several op families share: how heads stand in an operand that may be a view, and
 * one beta for kernels that have one flag for all their parameter gradients. */
#ifndef BK_OPS_ADAPTERS_H
#define BK_OPS_ADAPTERS_H

#include <string.h>

#include "base/heads.h"
#include "ops/rules.h"

/* The kernels that take bk_heads want the elements of a head side by side. */
static inline bool bk_heads_fit(const bk_value *v)
{
    return v->dim[v->rank - 1].size <= 1 || v->stride[v->rank - 1] == 1;
}

/* Strides of an operand [S, B, G, R, d] or [S, B, G, d]. */
static inline bk_heads bk_heads_of(const bk_value *v)
{
    return (bk_heads){
        .s = v->stride[0], .b = v->stride[1], .g = v->stride[2], .r = v->rank == 5 ? v->stride[3] : 0};
}

/* BK_E_CHECK unless the heads of operand k (inputs, outputs, updates in one list) fit the kernels. */
static inline bk_status bk_heads_need(const bk_graph *g, const bk_op *op, int k, bk_err *e)
{
    const bk_vid v = g->operand[op->first + k];
    char text[BK_OPERAND_TEXT];
    if (v == BK_NONE || bk_heads_fit(&g->value[v])) return BK_OK;
    return bk_err_set(
        e, BK_E_CHECK,
        "%s is a view whose last dim is not contiguous; lay heads out with the last dim fastest",
        bk_operand_text(text, g, op, k));
}

/* The same for all inputs, outputs and updates that exist. */
static inline bk_status bk_heads_need_all(const bk_graph *g, const bk_op *op, bk_err *e)
{
    bk_status st = BK_OK;
    for (int k = 0; k < bk_n_operands(op) && st == BK_OK; k++) st = bk_heads_need(g, op, k, e);
    return st;
}

/* One beta for all updates: 0 where all are to be written. Where they differ, which parameters shared by
 * several modules can bring about, those that are to be written become zero first, and all are added to. */
static inline int bk_call_shared_beta(const bk_call *c)
{
    const int n = c->op->n_upd;
    int n_assign = 0;
    for (int k = 0; k < n; k++) n_assign += c->assign[k] ? 1 : 0;
    if (n_assign == n) return 0;
    for (int k = 0; k < n; k++)
        if (c->assign[k]) memset(c->upd[k].p, 0, (size_t)bk_value_bytes(c->upd[k].v));
    return 1;
}

/* Update k, or NULL where the op has none. */
static inline void *bk_call_upd(const bk_call *c, int k)
{
    return k < c->op->n_upd ? c->upd[k].p : NULL;
}

/* For kernels that always write the gradients of their n parameters, of size[k] elements each: those of
 * frozen parameters, which have no update, go to scratch memory of so many bytes and are dropped. */
static inline int64_t bk_dropped_bytes(const bk_op *op, const int64_t *size, int n, int64_t scalar_bytes)
{
    int64_t bytes = 0;
    for (int k = 0; k < n; k++)
        if (k >= op->n_upd) bytes += size[k] * scalar_bytes;
    return bytes;
}

/* Where each of the n gradients goes, and their one beta. */
static inline int bk_call_param_grads(void **out, const bk_call *c, const int64_t *size, int n,
                                      int64_t scalar_bytes, void *dropped)
{
    char *at = dropped;
    const int64_t bytes = bk_dropped_bytes(c->op, size, n, scalar_bytes);
    if (bytes > 0) memset(dropped, 0, (size_t)bytes); /* it may be added to */
    for (int k = 0; k < n; k++) {
        out[k] = k < c->op->n_upd ? c->upd[k].p : at;
        if (k >= c->op->n_upd) at += size[k] * scalar_bytes;
    }
    return bk_call_shared_beta(c);
}

#endif
