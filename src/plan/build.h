/* The planner's working state, shared by its files in this order: lifetimes, offsets, waits, peak. */
#ifndef BK_PLAN_BUILD_H
#define BK_PLAN_BUILD_H

#include "plan/plan.h"

/* Positions at which a value is accessed, in the timeline of its scope.
 *   micro: the ops of one micro-batch of one chunk, in issue order
 *   step:  prologue ops, then one position for all micro-batches, then epilogue ops */
typedef struct {
    int64_t first, last; /* -1, -1: never accessed */
} bk_life;

/* Bytes that move as one: a value, or a chain of values of which each takes the bytes of the one before, or
 * an op's scratch memory. */
typedef struct {
    bk_life life;
    int64_t bytes, offset;
    bk_space space;
    int16_t chunk;
} bk_block;

typedef struct {
    bk_plan *p;
    const bk_graph *g;
    const bk_schedule *s;
    int64_t *pos;      /* for each op: its position in its timeline, -1 if not scheduled */
    int16_t *chunk_of; /* for each op of scope micro: its chunk */
    int64_t micro_pos; /* the position of all micro-batches in the step timeline */
    bk_life *life;     /* for each value (views: BK_NONE life; their base has it) */
    int32_t *block_of; /* for each value: its block, or BK_NONE */
    int32_t *work_of;  /* for each op: the block of its scratch memory, or BK_NONE */
    bk_block *block;
    int64_t n_blocks, cap_blocks;
} bk_build;

bk_status bk_build_lifetimes(bk_build *b, bk_err *e); /* fills pos, life, blocks */
/* Fills the places, chunks and slots of the plan. */
bk_status bk_build_offsets(bk_build *b, const bk_run_layout *run, bk_err *e);
bk_status bk_build_waits(bk_build *b, bk_err *e); /* fills the plan's waits */
bk_status bk_build_peak(bk_build *b, bk_err *e);  /* fills the plan's peak and what is alive at it */

/* The input whose bytes output 0 of an op (or the row's output) may take, or BK_NONE; *out gets that output.
 */
bk_vid bk_alias_source(bk_vid *out, const bk_graph *g, const bk_op *op);

#endif
