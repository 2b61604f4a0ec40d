/* Reverse-mode differentiation as a pass: one walk over the forward ops from the last to the first.
 *
 * The gradient of a value is finished when the walk reaches the op that wrote it, since all of its uses come
 * later in plain order. Views have contributions of their own; they join when their base is finished. */
#include <stdio.h>
#include <stdlib.h>

#include "base/vec.h"
#include "ir/grad.h"
#include "passes/passes.h"

/* What the backward does with a value so far. */
typedef struct {
    bool read, written; /* written: by an op that can write through strides */
} value_use;

typedef struct {
    bk_grad_ctx c;
    bool *want;
    bk_vid *view_next; /* for each value: the next view of the same base, or BK_NONE */
    bk_vid *view_head; /* for each base: its first view */
    value_use *use;    /* for each value, up to the ops before n_seen */
    int64_t n_uses, cap_uses, n_seen;
} walk;

static bk_status out_of_memory(bk_err *e)
{
    return bk_err_set(e, BK_E_MEM, "autodiff: out of memory");
}

/* A value wants gradient if it is a trainable parameter or is computed from one by differentiable ops. */
static void find_wanted(walk *w)
{
    const bk_graph *g = w->c.g;
    for (int32_t v = 0; v < w->c.n; v++)
        w->want[v] = g->value[v].kind == BK_PARAM && bk_dtype_is_float(g->value[v].dtype);
    for (int64_t o = 0; o < g->n_ops; o++) {
        const bk_op *op = &g->op[o];
        if (!bk_ops[op->kind].rules->grad) continue;
        bool any = false;
        for (int k = 0; k < op->n_in; k++) {
            const bk_vid v = bk_ins(g, op)[k];
            any = any || (v != BK_NONE && w->want[bk_root(g, v)]);
        }
        for (int k = 0; k < op->n_out && any; k++) {
            const bk_vid v = bk_outs(g, op)[k];
            w->want[bk_root(g, v)] = bk_dtype_is_float(g->value[v].dtype);
        }
    }
    for (int32_t v = 0; v < w->c.n; v++) w->want[v] = w->want[bk_root(g, v)];
}

static bk_status walk_init(walk *w, bk_graph *g, bk_err *e)
{
    const size_t n = (size_t)g->n_values;
    *w = (walk){.c = {.g = g, .n = (int32_t)n}};
    w->c.of = calloc(n, sizeof *w->c.of);
    w->c.sum = malloc(n * sizeof *w->c.sum);
    w->want = calloc(n, sizeof *w->want);
    w->view_next = malloc(n * sizeof *w->view_next);
    w->view_head = malloc(n * sizeof *w->view_head);
    if (!w->c.of || !w->c.sum || !w->want || !w->view_next || !w->view_head) return out_of_memory(e);
    w->c.want = w->want;
    for (size_t v = 0; v < n; v++) w->c.sum[v] = w->view_head[v] = w->view_next[v] = BK_NONE;
    for (int32_t v = (int32_t)n - 1; v >= 0; v--) {
        const bk_vid base = g->value[v].base;
        if (base != BK_NONE) w->view_next[v] = w->view_head[base], w->view_head[base] = v;
    }
    find_wanted(w);
    return BK_OK;
}

static void walk_free(walk *w)
{
    for (int32_t v = 0; v < w->c.n && w->c.of; v++) free(w->c.of[v].v);
    free(w->c.of), free(w->c.sum), free(w->want), free(w->view_next), free(w->view_head);
    free(w->c.n_added), free(w->use);
}

/* The sum of the contributions to one value: BK_NONE, the only one, or an add_n. */
static bk_status sum_contributions(bk_vid *out, walk *w, bk_vid v, bk_err *e)
{
    const bk_grad_list *l = &w->c.of[v];
    *out = l->n ? l->v[0] : BK_NONE;
    if (l->n < 2) return BK_OK;
    char name[256];
    snprintf(name, sizeof name, "d(%s)", w->c.g->value[v].name);
    return bk_op_add(out, w->c.g,
                     &(bk_op_spec){.kind = BK_OP_add_n, .in = l->v, .n_in = (int)l->n, .name = name}, e);
}

/* A view as a repeated run: elements [offset, offset + run) of every period of the base. */
typedef struct {
    int64_t offset, run, period;
} tile;

static bool view_tile(tile *out, const bk_value *view, const bk_value *base)
{
    int64_t run = 1, count = 1;
    int d = view->rank - 1;
    for (; d >= 0 && (view->dim[d].size == 1 || view->stride[d] == run); d--) run *= view->dim[d].size;
    int64_t period = 0;
    for (; d >= 0; d--) { /* the outer dims must step through the base without gaps */
        if (view->dim[d].size == 1) continue;
        if (!period) period = view->stride[d];
        if (view->stride[d] != period * count) return false;
        count *= view->dim[d].size;
    }
    if (!period) period = bk_elements(base);
    *out = (tile){view->offset, run, period};
    return view->offset + run <= period && period * count == bk_elements(base);
}

/* True if the views of `base` that have gradients cover each of its elements exactly once. */
static bool views_tile(const walk *w, bk_vid base, const bk_vid *view, int n)
{
    const bk_graph *g = w->c.g;
    int64_t at = 0, period = 0;
    for (int found = 0; found < n;) { /* follow the runs in order of their offsets */
        bool next = false;
        for (int k = 0; k < n && !next; k++) {
            tile t;
            if (!view_tile(&t, &g->value[view[k]], &g->value[base])) return false;
            if (t.offset != at || t.run == 0 || (period && t.period != period)) continue;
            at += t.run, period = t.period, next = true, found++;
        }
        if (!next) return false;
    }
    return at == period;
}

/* Looks at the ops that were appended since the last time. */
static bk_status see_new_ops(walk *w, bk_err *e)
{
    const bk_graph *g = w->c.g;
    if (bk_vec_grow(&w->use, &w->cap_uses, w->n_uses, g->n_values - w->n_uses, sizeof *w->use) != BK_OK)
        return out_of_memory(e);
    w->n_uses = g->n_values;
    for (; w->n_seen < g->n_ops; w->n_seen++) {
        const bk_op *op = &g->op[w->n_seen];
        for (int k = 0; k < op->n_in; k++)
            if (bk_ins(g, op)[k] != BK_NONE) w->use[bk_ins(g, op)[k]].read = true;
        for (int k = 0; k < op->n_out && bk_ops[op->kind].strided; k++)
            w->use[bk_outs(g, op)[k]].written = true;
    }
    return BK_OK;
}

/* True if `sum` was written for this gradient alone, by an op that can write through strides: it can become a
 * view. Gradients that pass through an op belong to several values, of which some may be finished later. */
static bool may_become_view(const walk *w, bk_vid sum)
{
    return sum >= w->c.n && w->c.g->value[sum].base == BK_NONE && bk_grad_n_added(&w->c, sum) == 1 &&
           w->use[sum].written && !w->use[sum].read;
}

/* The gradient of `v` as a value of its own. Where micro-batches read a value of scope step, each of them has
 * its gradient. */
static bk_status gradient_base(bk_vid *out, bk_graph *g, bk_vid v, bk_vid direct, const bk_vid *sum, int n,
                               bk_err *e)
{
    bk_value proto = g->value[v];
    char name[256];
    snprintf(name, sizeof name, "d(%s)", g->value[v].name);
    proto.name = name, proto.kind = BK_ACTIVATION;
    for (int k = 0; k < n; k++)
        if (g->value[sum[k]].scope > proto.scope) proto.scope = g->value[sum[k]].scope;
    if (direct != BK_NONE && g->value[direct].scope > proto.scope) proto.scope = g->value[direct].scope;
    bool mixed = direct != BK_NONE && g->value[direct].scope < proto.scope;
    for (int k = 0; k < n; k++) mixed = mixed || g->value[sum[k]].scope < proto.scope;
    if (mixed) /* an op of the step cannot write a micro-batch's value */
        return bk_err_set(e, BK_E_CHECK,
                          "autodiff: a part of %s gets its gradient once a step, but the whole in each "
                          "micro-batch; seed the part with a value of scope micro",
                          g->value[v].name);
    return bk_value_add(out, g, &proto, e);
}

static bk_status view_like(bk_vid *out, bk_graph *g, bk_vid view, bk_vid base, bk_err *e)
{
    const bk_value v = g->value[view];
    int64_t dim[BK_MAX_DIMS], stride[BK_MAX_DIMS];
    for (int d = 0; d < v.rank; d++) dim[d] = v.dim[d].size, stride[d] = v.stride[d];
    char name[256];
    snprintf(name, sizeof name, "d(%s)", v.name);
    return bk_view_add(out, g, name, base, v.rank, dim, stride, v.offset, e);
}

/* The views tile the base: their gradients are written into it where they are computed. */
static bk_status join_tiles(bk_vid *out, walk *w, bk_vid v, const bk_vid *view, const bk_vid *sum, int n,
                            bk_err *e)
{
    bk_graph *g = w->c.g;
    bk_status st = gradient_base(out, g, v, BK_NONE, sum, n, e);
    if (st == BK_OK) st = see_new_ops(w, e);
    for (int k = 0; k < n && st == BK_OK; k++) {
        if (may_become_view(w, sum[k])) {
            bk_value *s = &g->value[sum[k]];
            const bk_value *like = &g->value[view[k]];
            s->base = *out, s->offset = like->offset;
            for (int d = 0; d < s->rank; d++) s->stride[d] = like->stride[d];
            continue;
        }
        bk_vid into;
        st = view_like(&into, g, view[k], *out, e);
        if (st == BK_OK)
            st = bk_op_add(NULL, g,
                           &(bk_op_spec){.kind = BK_OP_copy, .in = &sum[k], .n_in = 1, .into = into + 1}, e);
    }
    return st;
}

/* The general case: the base's own gradient (or zero), and each view's added to its part. */
static bk_status join_added(bk_vid *out, walk *w, bk_vid v, bk_vid direct, const bk_vid *view,
                            const bk_vid *sum, int n, bk_err *e)
{
    bk_graph *g = w->c.g;
    bk_status st = gradient_base(out, g, v, direct, sum, n, e);
    if (st != BK_OK) return st;
    if (direct != BK_NONE)
        st = bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_copy, .in = &direct, .n_in = 1, .into = *out + 1},
                       e);
    else
        st = bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_fill, .into = *out + 1}, e);
    for (int k = 0; k < n && st == BK_OK; k++) {
        bk_vid into;
        st = view_like(&into, g, view[k], *out, e);
        if (st == BK_OK)
            st = bk_op_add(
                NULL, g, &(bk_op_spec){.kind = BK_OP_acc, .in = &sum[k], .n_in = 1, .upd = &into, .n_upd = 1},
                e);
    }
    return st;
}

/* Finishes the gradient of a value: own contributions and those of its views. */
static bk_status finish(walk *w, bk_vid v, bk_err *e)
{
    bk_vid direct;
    bk_status st = sum_contributions(&direct, w, v, e);
    int n = 0, n_views = 0;
    for (bk_vid k = w->view_head[v]; k != BK_NONE; k = w->view_next[k]) n_views++;
    if (st != BK_OK || n_views == 0) return w->c.sum[v] = direct, st;
    bk_vid *view = malloc(2 * (size_t)n_views * sizeof *view);
    if (!view) return out_of_memory(e);
    bk_vid *sum = view + n_views;
    for (bk_vid k = w->view_head[v]; k != BK_NONE && st == BK_OK; k = w->view_next[k]) {
        st = sum_contributions(&sum[n], w, k, e);
        if (sum[n] != BK_NONE) view[n++] = k;
    }
    if (st == BK_OK) {
        if (n == 0)
            w->c.sum[v] = direct;
        else if (direct == BK_NONE && views_tile(w, v, view, n))
            st = join_tiles(&w->c.sum[v], w, v, view, sum, n, e);
        else
            st = join_added(&w->c.sum[v], w, v, direct, view, sum, n, e);
    }
    free(view);
    return st;
}

/* An op whose rule passes gradients through (a copy, a sum) hands a parameter its gradient as it would an
 * activation: the term of this use is added to the accumulator here. */
static bk_status add_terms(walk *w, bk_oid use, bk_err *e)
{
    bk_graph *g = w->c.g;
    const bk_op op = g->op[use];
    bk_status st = BK_OK;
    for (int k = 0; k < op.n_in && st == BK_OK; k++) {
        const bk_vid v = bk_ins(g, &op)[k];
        if (v == BK_NONE || g->value[v].kind != BK_PARAM || w->c.of[v].n == 0) continue;
        bk_vid sum, acc;
        BK_TRY(sum_contributions(&sum, w, v, e));
        w->c.of[v].n = 0;
        BK_TRY(bk_grad_accumulator(&acc, &w->c, bk_root(g, v), e));
        if (g->value[v].base != BK_NONE) BK_TRY(view_like(&acc, g, v, acc, e));
        BK_TRY(bk_op_add(
            NULL, g, &(bk_op_spec){.kind = BK_OP_acc, .in = &sum, .n_in = 1, .upd = &acc, .n_upd = 1}, e));
        st = bk_grad_term(&w->c, v, use, (bk_oid)(g->n_ops - 1), e);
    }
done:
    return st;
}

/* A value that is put together from parts has no writer at which its gradient could be finished. */
static bk_status check_writes(const walk *w, const bk_op *op, bk_err *e)
{
    const bk_graph *g = w->c.g;
    for (int k = 0; k < op->n_out; k++) {
        const bk_value *v = &g->value[bk_outs(g, op)[k]];
        if (v->base != BK_NONE && w->want[bk_outs(g, op)[k]])
            return bk_err_set(e, BK_E_CHECK,
                              "autodiff: %s writes %s, a part of %s; only whole values can be differentiated",
                              bk_ops[op->kind].name, v->name, g->value[v->base].name);
    }
    return BK_OK;
}

bk_status bk_pass_autodiff(bk_graph *g, const bk_seed *seed, int n_seeds, bk_err *e)
{
    walk w;
    const int64_t n_forward = g->n_ops;
    bk_status st = walk_init(&w, g, e);
    for (int k = 0; k < n_seeds && st == BK_OK; k++) {
        if (!bk_grad_wanted(&w.c, seed[k].of))
            st = bk_err_set(e, BK_E_CHECK, "autodiff: %s depends on no parameter", g->value[seed[k].of].name);
        else
            st = bk_grad_add(&w.c, seed[k].of, seed[k].seed, e);
    }
    for (int64_t o = n_forward - 1; o >= 0 && st == BK_OK; o--) {
        const bk_op op = g->op[o];
        g->tag = op.tag;
        g->tag.pass = BK_PASS_BACKWARD;
        bool any = false;
        st = check_writes(&w, &op, e);
        for (int k = 0; k < op.n_out && st == BK_OK; k++) {
            const bk_vid v = bk_outs(g, &op)[k];
            if (!w.want[v]) continue;
            st = finish(&w, v, e);
            any = any || w.c.sum[v] != BK_NONE;
        }
        if (st == BK_OK && any) st = bk_ops[op.kind].rules->grad(&w.c, (bk_oid)o, e);
        if (st == BK_OK && any) st = add_terms(&w, (bk_oid)o, e);
    }
    walk_free(&w);
    return st;
}
