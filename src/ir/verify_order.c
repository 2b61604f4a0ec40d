/* What the verifier asks of the plain order: a value is written once, before everything that reads or updates
 * it, and nothing reads it between its updates.
 *
 * Times are places in the plain order. An op of scope micro runs once for each micro-batch: what it does to a
 * value that outlives the micro-batch it does all along the micro-batch part, so its time is that whole part.
 */
#include "ir/verify_parts.h"

#include <inttypes.h>
#include <stdlib.h>

#include "ir/overlap.h"

typedef struct {
    int32_t first, last;
} span;

typedef struct {
    bk_oid writer;      /* the op that writes the value, or BK_NONE */
    bk_oid updater;     /* its last updater, or BK_NONE */
    span written;       /* of the writer */
    span updated;       /* from the first to the last update */
    bk_vid next;        /* in a storage's list of values that are written or updated, or BK_NONE */
    bk_vid head;        /* of a storage: that list */
    int64_t n_elements; /* of a storage: elements that its writers write together */
} history;

typedef struct {
    const bk_verifier *v;
    const bk_graph *g;
    history *of; /* for each value */
} scan;

static span time_of(const scan *s, bk_oid op, bk_vid x)
{
    const bk_plain_order *o = &s->v->order;
    if (s->g->op[op].scope == BK_MICRO && s->g->value[x].scope != BK_MICRO)
        return (span){o->micro, o->epilogue - 1};
    return (span){o->pos[op], o->pos[op]};
}

/* ---- gathering ---------------------------------------------------------------------------------------- */

static void enlist(scan *s, bk_vid x)
{
    if (s->of[x].writer != BK_NONE || s->of[x].updater != BK_NONE) return;
    history *root = &s->of[bk_root(s->g, x)];
    s->of[x].next = root->head, root->head = x;
}

/* Notes that op writes x; x must not share elements with what is already written. */
static bk_status note_write(scan *s, bk_oid op, bk_vid x)
{
    char name[BK_VERIFY_NAME];
    history *root = &s->of[bk_root(s->g, x)];
    for (bk_vid w = root->head; w != BK_NONE; w = s->of[w].next)
        if (s->of[w].writer != BK_NONE && (w == x || bk_values_overlap(&s->g->value[w], &s->g->value[x])))
            return bk_verify_op_error(s->v, op, "writes %s, which op @%" PRId32 " writes too",
                                      bk_verify_name(name, s->g, x), s->of[w].writer);
    enlist(s, x);
    s->of[x].writer = op, s->of[x].written = time_of(s, op, x);
    root->n_elements += bk_elements(&s->g->value[x]); /* disjoint: no more than the storage has */
    return BK_OK;
}

static void note_update(scan *s, bk_oid op, bk_vid x)
{
    const span t = time_of(s, op, x);
    const bool first = s->of[x].updater == BK_NONE;
    enlist(s, x);
    span *all = &s->of[x].updated;
    if (first || t.first < all->first) all->first = t.first;
    if (first || t.last > all->last) all->last = t.last;
    s->of[x].updater = op;
}

static bk_status gather(scan *s)
{
    bk_status st = BK_OK;
    for (int64_t x = 0; x < s->g->n_values; x++)
        s->of[x] = (history){.writer = BK_NONE, .updater = BK_NONE, .next = BK_NONE, .head = BK_NONE};
    for (int32_t k = 0; k < s->v->order.n && st == BK_OK; k++) {
        const bk_oid id = s->v->order.op[k];
        const bk_op *op = &s->g->op[id];
        for (int32_t i = 0; i < op->n_out && st == BK_OK; i++) st = note_write(s, id, bk_outs(s->g, op)[i]);
        for (int32_t i = 0; i < op->n_upd && st == BK_OK; i++) note_update(s, id, bk_upds(s->g, op)[i]);
    }
    return st;
}

/* ---- reading and updating ------------------------------------------------------------------------------ */

/* All writers of x's storage come before time t of op. */
static bk_status check_writers(const scan *s, bk_oid op, bk_vid x, span t, const char *does)
{
    char name[BK_VERIFY_NAME];
    for (bk_vid w = s->of[bk_root(s->g, x)].head; w != BK_NONE; w = s->of[w].next) {
        const history *h = &s->of[w];
        if (h->writer == BK_NONE || (h->writer != op && h->written.last < t.first)) continue;
        return bk_verify_op_error(s->v, op, "%s %s before op @%" PRId32 " has written it", does,
                                  bk_verify_name(name, s->g, x), h->writer);
    }
    return BK_OK;
}

static bool same_elements(const bk_value *a, const bk_value *b)
{
    if (a->offset != b->offset || a->rank != b->rank) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dim[d].size != b->dim[d].size || a->stride[d] != b->stride[d]) return false;
    return true;
}

/* Is every element of x written by someone? By the writer of x, of its base, of an equal view, or by writers
 * of views that make up the base. */
static bool is_written(const scan *s, bk_vid x)
{
    const bk_vid root = bk_root(s->g, x);
    if (s->of[root].n_elements == bk_elements(&s->g->value[root])) return s->of[root].head != BK_NONE;
    for (bk_vid w = s->of[root].head; w != BK_NONE; w = s->of[w].next)
        if (s->of[w].writer != BK_NONE && (w == x || same_elements(&s->g->value[w], &s->g->value[x])))
            return true;
    return false;
}

static bool is_updated(const scan *s, bk_vid x)
{
    for (bk_vid w = s->of[bk_root(s->g, x)].head; w != BK_NONE; w = s->of[w].next)
        if (s->of[w].updater != BK_NONE) return true;
    return false;
}

static bk_status check_read(const scan *s, bk_oid op, bk_vid x)
{
    const span t = time_of(s, op, x);
    const bk_value *value = &s->g->value[x];
    char name[BK_VERIFY_NAME];
    bk_status st = check_writers(s, op, x, t, "reads");
    if (st != BK_OK) return st;
    const bool accumulator = value->kind == BK_GRADIENT || value->kind == BK_STATE;
    if (value->scope != BK_RUN && !is_written(s, x) && !(accumulator && is_updated(s, x)))
        return bk_verify_op_error(s->v, op, "reads %s, which no op writes", bk_verify_name(name, s->g, x));
    for (bk_vid w = s->of[bk_root(s->g, x)].head; w != BK_NONE; w = s->of[w].next) {
        const history *h = &s->of[w];
        if (h->updater == BK_NONE || t.first > h->updated.last) continue;
        if (w != x && !bk_values_overlap(&s->g->value[w], value)) continue;
        if (t.last >= h->updated.first)
            return bk_verify_op_error(s->v, op,
                                      "reads %s between its updates, the last of which is op @%" PRId32,
                                      bk_verify_name(name, s->g, x), h->updater);
        if (accumulator && value->scope != BK_RUN && !is_written(s, x))
            return bk_verify_op_error(s->v, op, "reads %s before its first update, which begins it",
                                      bk_verify_name(name, s->g, x));
    }
    return BK_OK;
}

static bk_status check_update(const scan *s, bk_oid op, bk_vid x)
{
    char name[BK_VERIFY_NAME];
    if (s->g->value[x].kind == BK_ACTIVATION && !is_written(s, x))
        return bk_verify_op_error(s->v, op, "updates %s, which no op writes", bk_verify_name(name, s->g, x));
    return check_writers(s, op, x, time_of(s, op, x), "updates");
}

static bool is_output(const bk_graph *g, const bk_op *op, bk_vid x)
{
    for (int32_t k = 0; k < op->n_out; k++)
        if (bk_outs(g, op)[k] == x) return true;
    return false;
}

/* An op reads its inputs, and the counts of all operands that it does not write itself. */
static bk_status check_op(const scan *s, bk_oid id)
{
    const bk_graph *g = s->g;
    const bk_op *op = &g->op[id];
    bk_status st = BK_OK;
    for (int32_t k = 0; k < bk_n_operands(op) && st == BK_OK; k++) {
        const bk_vid x = g->operand[op->first + k];
        if (x == BK_NONE) continue;
        if (k < op->n_in) st = check_read(s, id, x);
        if (k >= op->n_in + op->n_out) st = check_update(s, id, x);
        for (int d = 0; d < g->value[x].rank && st == BK_OK; d++) {
            const bk_vid count = g->value[x].dim[d].count - 1;
            if (count != BK_NONE && !is_output(g, op, count)) st = check_read(s, id, count);
        }
    }
    return st;
}

bk_status bk_verify_order(bk_verifier *v)
{
    scan s = {.v = v, .g = v->g, .of = malloc(((size_t)v->g->n_values + 1) * sizeof(history))};
    bk_status st =
        s.of ? bk_plain_order_make(&v->order, v->g, v->e) : bk_err_set(v->e, BK_E_MEM, "out of memory");
    if (st == BK_OK) st = gather(&s);
    for (int64_t id = 0; id < v->g->n_ops && st == BK_OK; id++) st = check_op(&s, (bk_oid)id);
    free(s.of);
    return st;
}
