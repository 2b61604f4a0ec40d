/* Every access of a plan, listed by what is accessed: the checker's view of the program. Built from the
 * graph, the schedule and the addresses alone. */
#ifndef BK_PLAN_ACCESS_H
#define BK_PLAN_ACCESS_H

#include "plan/happens.h"

typedef enum { BK_READ, BK_WRITE, BK_UPDATE, BK_SCRATCH } bk_role;

typedef struct {
    int32_t item;
    bk_oid op;
    bk_vid v; /* the operand itself: a view, or the value */
    bk_role role;
} bk_access;

/* An instance: a value (not a view) of scope run or step, a value of one micro-batch, or an op's scratch
 * memory. Its accesses are access[first[i]] .. access[first[i + 1] - 1], in plain order. */
typedef struct {
    const bk_plan *p;
    const bk_happens *h;
    bk_access *access;
    int64_t *first;
    int64_t n_instances;
    int64_t *of_value, *of_work; /* for each value, each op: the first of its instances, BK_NONE: none */
} bk_accesses;

/* The items that run each op must be there once (check_complete.c); h is used by the rules alone. */
bk_status bk_accesses_init(bk_accesses *a, const bk_plan *p, const bk_happens *h, bk_err *e);
void bk_accesses_free(bk_accesses *a);

/* True if access x is done before y begins. An item runs its ops in the order of their ids. */
static inline bool bk_access_before(const bk_happens *h, const bk_access *x, const bk_access *y)
{
    return x->item == y->item ? x->op < y->op : bk_happens_before(h, x->item, y->item);
}

/* The instance of a value (not a view) that an item of a micro-batch sees. */
int64_t bk_value_instance(const bk_accesses *a, bk_vid root, int32_t micro);
/* Place, bytes and micro-batch of an instance (one with accesses). */
bk_place bk_instance_place(const bk_accesses *a, int64_t instance, int32_t *micro);
/* Its name for messages, into buf. */
const char *bk_instance_name(char *buf, int64_t cap, const bk_accesses *a, int64_t instance);
/* "rmsnorm in item 12 (...)" into buf. */
const char *bk_access_name(char *buf, int64_t cap, const bk_accesses *a, const bk_access *x);

/* The rules, each in its own file. */
bk_status bk_check_complete(const bk_plan *p, bk_err *e);      /* check_complete.c */
bk_status bk_check_order(const bk_accesses *a, bk_err *e);     /* check_order.c, rule 1 */
bk_status bk_check_memory(const bk_accesses *a, bk_err *e);    /* check_memory.c, rule 2 */
bk_status bk_check_gradients(const bk_accesses *a, bk_err *e); /* check_gradients.c, rule 3 */
bk_status bk_check_replay(const bk_accesses *a, bk_err *e);    /* check_replay.c, rule 5 */
bk_status bk_check_spread(const bk_plan *p, bk_err *e);        /* check_spread.c, rule 6 */

#endif
