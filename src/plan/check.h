/* The checker: proves that any execution that respects the lanes' orders and the waits of a plan gives the
 * results of the plain order (ir/graph.h).
 *
 *   complete  every op is in one region, every region runs once for each micro-batch or once a step
 *   rule 1    every read happens after the write it names; the updates of a value are in the plain order,
 *             and a reader is before the first or after the last of them
 *   rule 2    two values that share bytes are never alive at once, and everything stays inside the arena
 *   rule 3    every use of a trainable parameter adds exactly one term for each micro-batch, the first
 *             update of an accumulator assigns and no other does; then reduce, norm and optimizer, in that
 *             order
 *   rule 5    a replay reads kept values only, has no effects, and what it saves is free in between
 *   rule 6    every value has a legal spread, and every gradient reaches the optimizer spread as its
 *             parameter
 *
 * (Rule 4, messages between ranks, joins when there are messages.) It uses happens-before alone, never the
 * issue order: vector clocks over the lanes. It shares no code with the planner's decisions: it reads the
 * graph's meaning and the plan's addresses and waits. */
#ifndef BK_PLAN_CHECK_H
#define BK_PLAN_CHECK_H

#include "plan/plan.h"

/* BK_OK, or BK_E_CHECK with the first violation: rule, values, ops, items. */
bk_status bk_plan_check(const bk_plan *p, bk_err *e);

#endif
