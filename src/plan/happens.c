#include "plan/happens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *bk_item_name(char *buf, int64_t cap, const bk_plan *p, int32_t item)
{
    char tag[96];
    const bk_item *it = &p->s->item[item];
    bk_tag_name(tag, sizeof tag, p->g->region[it->region].tag);
    if (it->micro == BK_NONE)
        snprintf(buf, (size_t)cap, "item %d (%s)", (int)item, tag);
    else
        snprintf(buf, (size_t)cap, "item %d (%s, micro-batch %d)", (int)item, tag, (int)it->micro);
    return buf;
}

/* An item may start when its predecessor on the lane and the items that it waits for are done. */
static bool ready(const bk_happens *h, int32_t item, const int32_t n_done[BK_N_LANES],
                  const int64_t *first_wait)
{
    const bk_plan *p = h->p;
    if (h->seq[item] != n_done[p->s->item[item].lane]) return false;
    for (int64_t k = first_wait[item]; k < first_wait[item + 1]; k++) {
        const int32_t before = p->wait[k].before;
        if (h->seq[before] >= n_done[p->s->item[before].lane]) return false;
    }
    return true;
}

static void join_clock(bk_happens *h, int32_t item, int32_t before_on_lane, const int64_t *first_wait)
{
    const bk_plan *p = h->p;
    int32_t *c = h->clock[item];
    if (before_on_lane != BK_NONE) memcpy(c, h->clock[before_on_lane], sizeof h->clock[item]);
    c[p->s->item[item].lane] = h->seq[item];
    for (int64_t k = first_wait[item]; k < first_wait[item + 1]; k++) {
        const int32_t before = p->wait[k].before;
        for (int l = 0; l < BK_N_LANES; l++)
            if (h->clock[before][l] > c[l]) c[l] = h->clock[before][l];
        const int lane = p->s->item[before].lane;
        if (h->seq[before] + 1 > c[lane]) c[lane] = h->seq[before] + 1;
    }
}

static bk_status report_circle(const bk_happens *h, const int32_t n_done[BK_N_LANES], bk_err *e)
{
    const bk_plan *p = h->p;
    for (int64_t i = 0; i < p->s->n_items; i++) {
        if (h->seq[i] != n_done[p->s->item[i].lane]) continue;
        for (int64_t k = 0; k < p->n_waits; k++) {
            char a[160], b[160];
            const int32_t before = p->wait[k].before;
            if (p->wait[k].after == i && h->seq[before] >= n_done[p->s->item[before].lane])
                return bk_err_set(e, BK_E_CHECK, "deadlock: %s waits for %s, which can never start",
                                  bk_item_name(a, sizeof a, p, (int32_t)i),
                                  bk_item_name(b, sizeof b, p, before));
        }
    }
    return bk_err_set(e, BK_E_CHECK, "deadlock: no item can start");
}

static bk_status allocate(bk_happens *h, int64_t **first_wait, bk_err *e)
{
    const bk_plan *p = h->p;
    const size_t n = (size_t)p->s->n_items + 2;
    h->seq = calloc(n, sizeof *h->seq), h->clock = calloc(n, sizeof *h->clock);
    h->order = calloc(n, sizeof *h->order), h->rank = calloc(n, sizeof *h->rank);
    *first_wait = calloc(n, sizeof **first_wait);
    if (!h->seq || !h->clock || !h->order || !h->rank || !*first_wait)
        return bk_err_set(e, BK_E_MEM, "checker: out of memory");
    for (int64_t k = 0; k < p->n_waits; k++) {
        const bk_wait *w = &p->wait[k];
        if (w->before < 0 || w->after < 0 || w->before >= p->s->n_items || w->after >= p->s->n_items ||
            (k && p->wait[k - 1].after > w->after))
            return bk_err_set(e, BK_E_CHECK, "wait %lld of the plan names no item, or is out of order",
                              (long long)k);
        (*first_wait)[w->after + 1]++;
    }
    for (int64_t i = 0; i < p->s->n_items; i++) (*first_wait)[i + 1] += (*first_wait)[i];
    return BK_OK;
}

bk_status bk_happens_init(bk_happens *h, const bk_plan *p, bk_err *e)
{
    *h = (bk_happens){.p = p};
    int64_t *first_wait = NULL, n = 0;
    int32_t n_done[BK_N_LANES] = {0}, n_lane[BK_N_LANES] = {0}, last[BK_N_LANES];
    for (int l = 0; l < BK_N_LANES; l++) last[l] = BK_NONE;
    bk_status st = allocate(h, &first_wait, e);
    if (st != BK_OK) goto done;
    for (int64_t i = 0; i < p->s->n_items; i++) h->seq[i] = n_lane[p->s->item[i].lane]++;
    /* Each lane has one candidate, its next item; walk them round until nothing moves. */
    int64_t next[BK_N_LANES] = {0};
    for (bool moved = true; moved;) {
        moved = false;
        for (int l = 0; l < BK_N_LANES; l++) {
            for (;;) {
                while (next[l] < p->s->n_items && p->s->item[next[l]].lane != l) next[l]++;
                if (next[l] >= p->s->n_items || !ready(h, (int32_t)next[l], n_done, first_wait)) break;
                const int32_t item = (int32_t)next[l];
                join_clock(h, item, last[l], first_wait);
                h->rank[item] = (int32_t)n, h->order[n++] = item;
                last[l] = item, n_done[l]++, next[l]++, moved = true;
            }
        }
    }
    if (n < p->s->n_items) st = report_circle(h, n_done, e);
done:
    free(first_wait);
    return st;
}

void bk_happens_free(bk_happens *h)
{
    free(h->seq), free(h->clock), free(h->order), free(h->rank);
    *h = (bk_happens){0};
}
