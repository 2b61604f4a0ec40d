/* The most bytes alive at once, and what they are. */
#include <stdlib.h>

#include "plan/build.h"

/* Bytes alive at each position of the two timelines (plan/build.h). */
typedef struct {
    int64_t *step, *slot;
    int64_t others; /* of micro-batches in flight beside the running one: each counts as its whole slot */
} alive;

static bk_status find_alive(alive *a, const bk_build *b, bk_err *e)
{
    const int64_t n = b->g->n_ops + 2;
    *a = (alive){.step = calloc((size_t)n + 1, sizeof *a->step),
                 .slot = calloc((size_t)n + 1, sizeof *a->slot)};
    if (!a->step || !a->slot) return bk_err_set(e, BK_E_MEM, "plan: out of memory");
    for (int32_t c = 0; c < b->p->n_chunks; c++)
        if (b->p->chunk[c].n_slots > 1) a->others += (b->p->chunk[c].n_slots - 1) * b->p->chunk[c].slot_bytes;
    for (int64_t k = 0; k < b->n_blocks; k++) {
        int64_t *at = b->block[k].space == BK_SPACE_SLOT ? a->slot : a->step;
        at[b->block[k].life.first] += b->block[k].bytes;
        at[b->block[k].life.last + 1] -= b->block[k].bytes;
    }
    for (int64_t k = 1; k < n; k++) a->step[k] += a->step[k - 1], a->slot[k] += a->slot[k - 1];
    return BK_OK;
}

static void find_peak(bk_build *b, const alive *a)
{
    bk_plan *p = b->p;
    p->peak_bytes = p->run_bytes, p->peak_item = 0, p->peak_op = BK_NONE;
    for (int64_t i = 0; i < b->s->n_items; i++) {
        const bk_item *it = &b->s->item[i];
        const bk_region *r = &b->g->region[it->region];
        for (int32_t k = 0; k < r->n_ops; k++) {
            const bk_oid o = b->g->region_op[r->first + k];
            const int64_t pos = b->pos[o];
            const int64_t live =
                p->run_bytes +
                (it->micro == BK_NONE ? a->step[pos] : a->step[b->micro_pos] + a->slot[pos] + a->others);
            if (live > p->peak_bytes || p->peak_op == BK_NONE)
                p->peak_bytes = live, p->peak_item = (int32_t)i, p->peak_op = o;
        }
    }
}

/* Whether a life covers the peak's position in its timeline. */
static bool covers_peak(const bk_build *b, bk_space space, bk_life life)
{
    const bool micro = b->s->item[b->p->peak_item].micro != BK_NONE;
    if (space == BK_SPACE_SLOT && !micro) return false;
    const int64_t pos = micro && space == BK_SPACE_STEP ? b->micro_pos : b->pos[b->p->peak_op];
    return life.first <= pos && pos <= life.last;
}

/* Of a block's values the one that began last holds its bytes. */
static bk_status mark_alive(bk_build *b, bk_err *e)
{
    bk_plan *p = b->p;
    bk_vid *holder = malloc((size_t)(b->n_blocks + 1) * sizeof *holder);
    p->at_peak = calloc((size_t)(b->g->n_values + b->g->n_ops) + 1, sizeof *p->at_peak);
    if (!holder || !p->at_peak) {
        free(holder);
        return bk_err_set(e, BK_E_MEM, "plan: out of memory");
    }
    for (int64_t k = 0; k < b->n_blocks; k++) holder[k] = BK_NONE;
    for (bk_vid v = 0; v < b->g->n_values && p->peak_op != BK_NONE; v++) {
        const int32_t k = b->block_of[v];
        if (k == BK_NONE || !covers_peak(b, b->block[k].space, b->life[v])) continue;
        if (holder[k] == BK_NONE || b->life[v].first > b->life[holder[k]].first) holder[k] = v;
    }
    for (int64_t k = 0; k < b->n_blocks; k++)
        if (holder[k] != BK_NONE) p->at_peak[holder[k]] = true;
    for (int64_t o = 0; o < b->g->n_ops && p->peak_op != BK_NONE; o++) {
        const int32_t k = b->work_of[o];
        p->at_peak[b->g->n_values + o] = k != BK_NONE && covers_peak(b, b->block[k].space, b->block[k].life);
    }
    free(holder);
    return BK_OK;
}

bk_status bk_build_peak(bk_build *b, bk_err *e)
{
    alive a;
    bk_status st = find_alive(&a, b, e);
    if (st == BK_OK) find_peak(b, &a), st = mark_alive(b, e);
    free(a.step), free(a.slot);
    return st;
}
