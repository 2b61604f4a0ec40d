/* Happens-before of a plan: what follows from the lanes' orders and the waits, and from nothing else. */
#ifndef BK_PLAN_HAPPENS_H
#define BK_PLAN_HAPPENS_H

#include "plan/plan.h"

typedef struct {
    const bk_plan *p;
    int32_t *seq;                 /* for each item: its number on its lane */
    int32_t (*clock)[BK_N_LANES]; /* for each item: of each lane, how many items are done when it starts */
    int32_t *order;               /* items in an order that respects all of it */
    int32_t *rank;                /* for each item: its place in `order` */
} bk_happens;

/* BK_E_CHECK where items wait for each other in a circle; names two of them. */
bk_status bk_happens_init(bk_happens *h, const bk_plan *p, bk_err *e);
void bk_happens_free(bk_happens *h);

/* True if item a is done before item b starts. */
static inline bool bk_happens_before(const bk_happens *h, int32_t a, int32_t b)
{
    return h->clock[b][h->p->s->item[a].lane] > h->seq[a];
}

/* "item 12 (decoder.3.attn forward, micro-batch 1)" into buf. */
const char *bk_item_name(char *buf, int64_t cap, const bk_plan *p, int32_t item);

#endif
