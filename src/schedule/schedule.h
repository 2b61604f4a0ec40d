/* The schedule of a rank: one list of items in issue order. An item is one region of one micro-batch on one
 * lane; the order of a lane is its part of the list. Orders between lanes are the plan's business. */
#ifndef BK_SCHEDULE_SCHEDULE_H
#define BK_SCHEDULE_SCHEDULE_H

#include "base/str.h"
#include "ir/graph.h"

typedef struct {
    bk_rid region;
    int32_t micro; /* micro-batch, or BK_NONE for a region of scope step */
    uint8_t lane;  /* bk_lane: the region's */
    int16_t chunk; /* the region's */
} bk_item;

typedef struct {
    bk_item *item;
    int64_t n_items, cap_items;
    int32_t n_micro; /* micro-batches of a step */
} bk_schedule;

/* The schedule of one stage without pipeline: prologue of the step, then forward and backward of each
 * micro-batch in turn, then the epilogue. Regions must have been made (passes/partition). The caller frees.
 */
bk_status bk_schedule_plain(bk_schedule **out, const bk_graph *g, int32_t n_micro, bk_err *e);
void bk_schedule_free(bk_schedule *s); /* NULL is fine */

/* One line an item. */
void bk_schedule_print(bk_str *out, const bk_schedule *s, const bk_graph *g);

#endif
