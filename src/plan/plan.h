/* The plan: a schedule with addresses and waits. It is static: the same addresses and order in every step.
 *
 * Arena of a process:
 *
 *     | run                     | step                                                             |
 *     | values that live as     | of the program that is running                                   |
 *     | long as the run         | values of scope step | chunk 0: slot 0 | slot 1 | ... | chunk 1 ... |
 *
 * The run part is laid out once for all programs (bk_run_layout). Inside the step part, values of scope step
 * have an offset each, and each chunk has a block of `n_slots` equal slots; a micro-batch in flight takes a
 * slot, and a value of scope micro has one offset inside the slot. So offsets are found once for a chunk and
 * the plan's size is graph plus schedule. */
#ifndef BK_PLAN_PLAN_H
#define BK_PLAN_PLAN_H

#include "base/hash.h"
#include "base/str.h"
#include "ir/graph.h"
#include "schedule/schedule.h"

#define BK_ALIGN_BYTES 64 /* of every value */

typedef enum { BK_SPACE_NONE, BK_SPACE_RUN, BK_SPACE_STEP, BK_SPACE_SLOT } bk_space;

/* Where a value (not a view) or the scratch memory of an op stands. */
typedef struct {
    bk_space space;
    int16_t chunk;  /* of BK_SPACE_SLOT */
    int64_t offset; /* from the start of the space, or of the slot */
    int64_t bytes;
} bk_place;

typedef struct {
    int64_t base, slot_bytes; /* base: from the start of the step part; slots follow each other aligned */
    int32_t n_slots;
} bk_chunk_block;

/* Item `after` starts when item `before` is done. Only between different lanes. */
typedef struct {
    int32_t before, after;
} bk_wait;

/* Update number `upd` of op `op` in item `item` writes instead of adding: the first of its accumulator in the
 * step. */
typedef struct {
    int32_t item;
    bk_oid op;
    int32_t upd;
} bk_assign;

/* Offsets of the values of scope run, by name, shared by all programs of a process. */
typedef struct {
    bk_arena arena;
    struct {
        const char *name;
        bk_kind kind;
        bk_dtype dtype;
        int64_t offset, bytes;
    } * entry;
    int64_t n_entries, cap_entries;
    bk_map of_kind[BK_N_KINDS]; /* name to entry */
    int64_t bytes;
} bk_run_layout;

typedef struct {
    const bk_graph *g;    /* borrowed */
    const bk_schedule *s; /* borrowed */
    bk_target target;
    int32_t n_values, n_ops; /* of the graph */
    bk_place *place;         /* for each value; views have BK_SPACE_NONE and follow their base */
    bk_place *work;          /* for each op: scratch memory, BK_SPACE_NONE where it needs none */
    bk_chunk_block *chunk;
    int32_t n_chunks;
    int32_t *slot; /* [chunk][micro]: the slot that a micro-batch takes */
    bk_wait *wait; /* sorted by after, before */
    int64_t n_waits, cap_waits;
    bk_assign *assign; /* sorted by item, op, upd */
    int64_t n_assigns, cap_assigns;
    int64_t run_bytes, step_bytes;
    /* Most bytes alive at once (values and scratch memory), and the item during which they are. run_bytes +
     * step_bytes is at least this: the rest is holes. */
    int64_t peak_bytes;
    int32_t peak_item;
    bk_oid peak_op; /* the op of that item; BK_NONE in a plan without ops */
    bool *at_peak;  /* [n_values], then [n_ops]: holds bytes of the step part then. Of values that share bytes
                       in place one alone, so that run_bytes and the places so marked add up to peak_bytes,
                       but for the whole slots of other micro-batches in flight */
    bk_cost cost;   /* of one step */
} bk_plan;

/* Adds the values of scope run of a graph to the layout; a name that is already there must agree in size. */
bk_status bk_run_layout_add(bk_run_layout *r, const bk_graph *g, bk_err *e);
void bk_run_layout_free(bk_run_layout *r);

/* Makes the plan of a schedule. Keeps g and s, which must outlive it. */
bk_status bk_plan_build(bk_plan **out, const bk_graph *g, const bk_schedule *s, const bk_run_layout *run,
                        const bk_target *target, bk_err *e);
void bk_plan_free(bk_plan *p); /* NULL is fine */

/* Bytes of the whole arena. */
static inline int64_t bk_plan_bytes(const bk_plan *p)
{
    return p->run_bytes + p->step_bytes;
}

/* Byte offset in the arena of a place for one micro-batch (BK_NONE for items of the step). */
int64_t bk_plan_address(const bk_plan *p, const bk_place *place, int32_t micro);
/* The same for a value, views included. */
int64_t bk_plan_value_address(const bk_plan *p, bk_vid v, int32_t micro);
/* Whether an update writes instead of adding. */
bool bk_plan_assigns(const bk_plan *p, int32_t item, bk_oid op, int32_t upd);

/* What one run of an op costs on a target. */
void bk_op_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target);

/* Places, slots, waits and assigns, one a line. */
void bk_plan_print(bk_str *out, const bk_plan *p);

#endif
