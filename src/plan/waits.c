/* The waits between lanes: one walk in issue order. An item waits for the last items of other lanes that
 * wrote what it reads, that read or wrote what it writes, and that used the bytes that it takes over; only
 * where that does not already follow from the waits before it. */
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "plan/build.h"
#include "plan/owners.h"

/* One value of one slot, or one op's scratch memory of one slot. */
typedef struct {
    int32_t micro;                               /* whose data it holds; -2: nobody's yet */
    int32_t read[BK_N_LANES], wrote[BK_N_LANES]; /* last item of each lane, BK_NONE */
} cell;

typedef struct {
    bk_build *b;
    cell *value;                  /* [slot][value] */
    cell *work;                   /* [slot][op] */
    bk_owners owners;             /* of the arena's step part, by cell */
    int32_t (*clock)[BK_N_LANES]; /* for each item: the last item of each lane known to be done, or BK_NONE */
    int32_t need[BK_N_LANES];     /* of the item at hand */
    int32_t item;
} walk;

static void require(walk *w, const int32_t done[BK_N_LANES])
{
    for (int l = 0; l < BK_N_LANES; l++)
        if (done[l] != w->item && done[l] > w->need[l]) w->need[l] = done[l];
}

static bk_status was_owned(void *ctx, int64_t former, int64_t taker)
{
    walk *w = ctx;
    (void)taker;
    require(w, w->value[former].read);
    require(w, w->value[former].wrote);
    return BK_OK;
}

static bk_status enter(walk *w, cell *c, const bk_place *place, int32_t micro)
{
    if (c->micro == micro) return BK_OK;
    bk_status st = BK_OK;
    if (place->space == BK_SPACE_STEP || place->space == BK_SPACE_SLOT) {
        const int64_t at = bk_plan_address(w->b->p, place, micro);
        st = bk_owners_take(&w->owners, at, at + place->bytes, c - w->value, was_owned, w);
    }
    /* What this cell held before ends here; its users are already required through the owners. */
    for (int l = 0; l < BK_N_LANES; l++) c->read[l] = c->wrote[l] = BK_NONE;
    c->micro = micro;
    return st;
}

static bk_status access_value(walk *w, bk_vid v, int32_t micro, int lane, bool write)
{
    const bk_graph *g = w->b->g;
    const bk_vid root = bk_root(g, v);
    const bk_place *place = &w->b->p->place[root];
    const int32_t slot =
        place->space == BK_SPACE_SLOT ? w->b->p->slot[place->chunk * w->b->s->n_micro + micro] : 0;
    cell *c = &w->value[slot * g->n_values + root];
    const bk_status st = enter(w, c, place, place->space == BK_SPACE_SLOT ? micro : BK_NONE);
    require(w, c->wrote);
    if (write) require(w, c->read);
    (write ? c->wrote : c->read)[lane] = w->item;
    return st;
}

static bk_status access_work(walk *w, bk_oid o, int32_t micro, int lane)
{
    const bk_place *place = &w->b->p->work[o];
    if (place->space == BK_SPACE_NONE) return BK_OK;
    const int32_t slot =
        place->space == BK_SPACE_SLOT ? w->b->p->slot[place->chunk * w->b->s->n_micro + micro] : 0;
    cell *c = &w->work[slot * w->b->g->n_ops + o];
    const bk_status st = enter(w, c, place, place->space == BK_SPACE_SLOT ? micro : BK_NONE);
    c->wrote[lane] = w->item;
    return st;
}

static bk_status access_item(walk *w)
{
    const bk_graph *g = w->b->g;
    const bk_item *it = &w->b->s->item[w->item];
    const bk_region *r = &g->region[it->region];
    bk_status st = BK_OK;
    for (int32_t k = 0; k < r->n_ops && st == BK_OK; k++) {
        const bk_oid o = g->region_op[r->first + k];
        const bk_op *op = &g->op[o];
        for (int32_t j = 0; j < bk_n_operands(op) && st == BK_OK; j++) {
            const bk_vid v = g->operand[op->first + j];
            if (v != BK_NONE) st = access_value(w, v, it->micro, it->lane, j >= op->n_in);
        }
        if (st == BK_OK) st = access_work(w, o, it->micro, it->lane);
    }
    return st;
}

/* Turns what the item needs into waits, and into its clock. */
static bk_status settle(walk *w, int32_t before_on_lane)
{
    int32_t *clock = w->clock[w->item];
    for (int l = 0; l < BK_N_LANES; l++)
        clock[l] = before_on_lane == BK_NONE ? BK_NONE : w->clock[before_on_lane][l];
    const int own = w->b->s->item[w->item].lane;
    for (int l = 0; l < BK_N_LANES; l++) {
        const int32_t before = w->need[l];
        if (l == own || before == BK_NONE || clock[l] >= before) continue;
        bk_plan *p = w->b->p;
        bk_status st;
        BK_VEC_PUSH(st, p->wait, p->n_waits, p->cap_waits, (bk_wait){before, w->item});
        if (st != BK_OK) return st;
        for (int j = 0; j < BK_N_LANES; j++)
            if (w->clock[before][j] > clock[j]) clock[j] = w->clock[before][j];
    }
    clock[own] = w->item;
    return BK_OK;
}

/* A wait that another one of the same item implies is not needed; settle may have met them in the wrong
 * order. */
static void drop_implied(walk *w)
{
    bk_plan *p = w->b->p;
    int64_t n = 0;
    for (int64_t first = 0, end; first < p->n_waits; first = end) {
        bk_wait group[BK_N_LANES];
        for (end = first; end < p->n_waits && p->wait[end].after == p->wait[first].after; end++) {
            int64_t k = end - first; /* sorted by `before` */
            for (; k > 0 && group[k - 1].before > p->wait[end].before; k--) group[k] = group[k - 1];
            group[k] = p->wait[end];
        }
        for (int64_t k = 0; k < end - first; k++) {
            bool implied = false;
            const int lane = w->b->s->item[group[k].before].lane;
            for (int64_t j = 0; j < end - first; j++)
                implied = implied || (j != k && w->clock[group[j].before][lane] >= group[k].before);
            if (!implied) p->wait[n++] = group[k];
        }
    }
    p->n_waits = n;
}

static bk_status walk_init(walk *w, bk_build *b)
{
    int32_t slots = 1;
    for (int32_t c = 0; c < b->p->n_chunks; c++)
        if (b->p->chunk[c].n_slots > slots) slots = b->p->chunk[c].n_slots;
    const int64_t n_values = slots * b->g->n_values, n = n_values + slots * b->g->n_ops;
    *w = (walk){.b = b,
                .value = malloc((size_t)(n + 1) * sizeof *w->value),
                .clock = malloc((size_t)(b->s->n_items + 1) * sizeof *w->clock)};
    if (!w->value || !w->clock) return BK_E_MEM;
    w->work = w->value + n_values;
    for (int64_t k = 0; k < n; k++) {
        w->value[k].micro = -2;
        for (int l = 0; l < BK_N_LANES; l++) w->value[k].read[l] = w->value[k].wrote[l] = BK_NONE;
    }
    return BK_OK;
}

bk_status bk_build_waits(bk_build *b, bk_err *e)
{
    walk w;
    int32_t last[BK_N_LANES];
    for (int l = 0; l < BK_N_LANES; l++) last[l] = BK_NONE;
    bk_status st = walk_init(&w, b);
    for (int64_t i = 0; i < b->s->n_items && st == BK_OK; i++) {
        w.item = (int32_t)i;
        for (int l = 0; l < BK_N_LANES; l++) w.need[l] = BK_NONE;
        st = access_item(&w);
        if (st == BK_OK) st = settle(&w, last[b->s->item[i].lane]);
        last[b->s->item[i].lane] = (int32_t)i;
    }
    if (st == BK_OK) drop_implied(&w);
    bk_owners_free(&w.owners);
    free(w.value), free(w.clock);
    return st == BK_OK ? st : bk_err_set(e, st, "plan: out of memory");
}
