/* Spread rules. */
#include "ops/rules.h"

#include <stdio.h>
#include <string.h>

#include "ops/pattern.h"

bool bk_spread_trivial(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis)
{
    for (int r = 0; r < op->n_out + op->n_upd; r++) out[r] = (bk_spread){.kind = BK_SAME};
    return g->axis_size[axis] <= 1;
}

static bool same_spread(bk_spread a, bk_spread b)
{
    return a.kind == b.kind && (a.kind != BK_SPLIT || a.dim == b.dim);
}

/* "a partial sum", "split along dim 1", "the same on all ranks" */
static const char *spread_text(char buf[40], bk_spread s)
{
    if (s.kind == BK_SPLIT)
        snprintf(buf, 40, "split along dim %d", s.dim);
    else
        snprintf(buf, 40, "%s", s.kind == BK_PARTIAL ? "a partial sum" : "the same on all ranks");
    return buf;
}

static bk_status needs_reduction(const bk_graph *g, const bk_op *op, int k, bk_axis axis, bk_err *e)
{
    char text[BK_OPERAND_TEXT];
    return bk_err_set(e, BK_E_CHECK, "%s is a partial sum over %s and needs a reduction first",
                      bk_operand_text(text, g, op, k), bk_axis_names[axis]);
}

/* The letter along which the inputs are split, 0 if none is. */
static bk_status split_letter(char *out, int *from, const bk_pattern *p, const bk_graph *g, const bk_op *op,
                              bk_axis axis, bk_err *e)
{
    char text[BK_OPERAND_TEXT], other[BK_OPERAND_TEXT];
    *out = 0;
    for (int k = 0; k < op->n_in; k++) {
        const bk_value *v = bk_operand(g, op, k);
        const bk_pattern_operand *o = bk_pattern_at(p, op, k);
        if (!v || k == bk_addend(op) || o->any_spread || v->spread[axis].kind == BK_SAME) continue;
        if (v->spread[axis].kind == BK_PARTIAL) return needs_reduction(g, op, k, axis, e);
        const char c = o->dim[v->spread[axis].dim];
        if (c < 'a' || c > 'z')
            return bk_err_set(e, BK_E_CHECK, "%s is split along dim %d over %s, and the op needs all of it",
                              bk_operand_text(text, g, op, k), v->spread[axis].dim, bk_axis_names[axis]);
        if (*out && *out != c)
            return bk_err_set(e, BK_E_CHECK, "%s and %s are split along different dims over %s",
                              bk_operand_text(other, g, op, *from), bk_operand_text(text, g, op, k),
                              bk_axis_names[axis]);
        if (!*out) *out = c, *from = k;
    }
    return BK_OK;
}

/* Requires of every input with the letter `split` that it is split too; `from` is one that is. */
static bk_status all_split(const bk_pattern *p, const bk_graph *g, const bk_op *op, bk_axis axis, char split,
                           int from, bk_err *e)
{
    for (int k = 0; k < op->n_in; k++) {
        const bk_value *v = bk_operand(g, op, k);
        const bk_pattern_operand *o = bk_pattern_at(p, op, k);
        if (!v || k == bk_addend(op) || o->any_spread || v->spread[axis].kind == BK_SPLIT) continue;
        if (!strchr(o->dim, split)) continue;
        char whole[BK_OPERAND_TEXT], piece[BK_OPERAND_TEXT];
        return bk_err_set(e, BK_E_CHECK, "%s is whole, but each rank of %s has a piece of %s",
                          bk_operand_text(whole, g, op, k), bk_axis_names[axis],
                          bk_operand_text(piece, g, op, from));
    }
    return BK_OK;
}

static bk_status check_addend(const bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                              bk_err *e)
{
    char text[BK_OPERAND_TEXT], is[40], be[40];
    const int k = bk_addend(op);
    if (k == BK_NONE || same_spread(g->value[bk_ins(g, op)[k]].spread[axis], out[0])) return BK_OK;
    return bk_err_set(e, BK_E_CHECK, "the addend, %s, is %s over %s, but what is added to it is %s",
                      bk_operand_text(text, g, op, k),
                      spread_text(is, g->value[bk_ins(g, op)[k]].spread[axis]), bk_axis_names[axis],
                      spread_text(be, out[0]));
}

bk_status bk_spread_pattern(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                            const char *text, bk_err *e)
{
    if (bk_spread_trivial(out, g, op, axis)) return BK_OK;
    const bk_pattern p = bk_pattern_parse(text);
    char split = 0;
    int from = 0;
    bk_status st = split_letter(&split, &from, &p, g, op, axis, e);
    if (st == BK_OK && split) st = all_split(&p, g, op, axis, split, from, e);
    for (int r = 0; r < op->n_out + op->n_upd && split; r++) {
        const bk_pattern_operand *o = bk_pattern_at(&p, op, op->n_in + r);
        const char *at = strchr(o->dim, split);
        if (at)
            out[r] = (bk_spread){.kind = BK_SPLIT, .dim = (int8_t)(at - o->dim)};
        else
            out[r] = (bk_spread){.kind = BK_PARTIAL};
    }
    return st == BK_OK ? check_addend(out, g, op, axis, e) : st;
}

bk_status bk_spread_elementwise(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, int n_in,
                                bool linear, bk_err *e)
{
    if (bk_spread_trivial(out, g, op, axis)) return BK_OK;
    const bk_spread first = bk_in(g, op, 0)->spread[axis];
    for (int k = 0; k < n_in && k < op->n_in; k++) {
        const bk_value *v = bk_operand(g, op, k);
        char a[BK_OPERAND_TEXT], b[BK_OPERAND_TEXT], sa[40], sb[40];
        if (!v) continue;
        if (v->spread[axis].kind == BK_PARTIAL && !linear) return needs_reduction(g, op, k, axis, e);
        if (same_spread(v->spread[axis], first)) continue;
        return bk_err_set(e, BK_E_CHECK, "%s is %s over %s, but %s is %s", bk_operand_text(a, g, op, 0),
                          spread_text(sa, first), bk_axis_names[axis], bk_operand_text(b, g, op, k),
                          spread_text(sb, v->spread[axis]));
    }
    for (int r = 0; r < op->n_out + op->n_upd; r++) out[r] = first;
    return BK_OK;
}

bk_status bk_spread_same_only(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis,
                              const char *why, bk_err *e)
{
    if (bk_spread_trivial(out, g, op, axis)) return BK_OK;
    for (int k = 0; k < op->n_in; k++) {
        const bk_value *v = bk_operand(g, op, k);
        char text[BK_OPERAND_TEXT], is[40];
        if (v && v->spread[axis].kind != BK_SAME)
            return bk_err_set(e, BK_E_CHECK, "%s is %s over %s: %s", bk_operand_text(text, g, op, k),
                              spread_text(is, v->spread[axis]), bk_axis_names[axis], why);
    }
    return BK_OK;
}

bk_status bk_spread_as_param(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, int n_like,
                             bk_err *e)
{
    if (bk_spread_trivial(out, g, op, axis)) return BK_OK;
    const bk_value *param = bk_operand(g, op, op->n_in + op->n_out);
    const bk_spread want = param->spread[axis];
    for (int k = 0; k < bk_n_operands(op); k++) {
        const bk_value *v = bk_operand(g, op, k);
        const bool alike = k < n_like || k >= op->n_in + op->n_out;
        const bk_spread must = alike ? want : (bk_spread){.kind = BK_SAME};
        if (!v || (k >= op->n_in && k < op->n_in + op->n_out)) continue;
        char text[BK_OPERAND_TEXT], is[40], be[40];
        if (!same_spread(v->spread[axis], must) || v->spread[axis].kind == BK_PARTIAL)
            return bk_err_set(e, BK_E_CHECK, "parameter %s: %s is %s over %s and should be %s", param->name,
                              bk_operand_text(text, g, op, k), spread_text(is, v->spread[axis]),
                              bk_axis_names[axis], spread_text(be, must));
    }
    for (int r = 0; r < op->n_out + op->n_upd; r++) out[r] = want;
    return BK_OK;
}
