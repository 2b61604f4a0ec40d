/* What the ops on rows of experts share: how many rows there are. */
#ifndef BK_OPS_MOE_SEGMENTS_H
#define BK_OPS_MOE_SEGMENTS_H

#include <inttypes.h>
#include "ops/rules.h"

/* Dim 0 of an output is counted by the last element of the segments, input k. */
static inline void bk_count_rows(bk_value *out, const bk_graph *g, const bk_op *op, int k)
{
    out->dim[0].count = 1 + bk_ins(g, op)[k];
}

/* Rows that are there. */
static inline int64_t bk_rows_of(const bk_arg *segments)
{
    return ((const int64_t *)segments->p)[bk_elements(segments->v) - 1];
}

/* First row of expert e; e may be the number of experts. */
static inline int64_t bk_row_of(const bk_arg *segments, int64_t e)
{
    return ((const int64_t *)segments->p)[e];
}

#endif
