/* Executors run a plan: they contain no scheduling decisions.
 *
 *   bk_exec_run        CPU: each lane that has items is a thread, kernels use OpenMP on the compute lane
 *   bk_exec_interleave one thread, any runnable item next, chosen by a seed; freed bytes are filled with NaN
 *
 * The arena is allocated once, by bk_exec_open, for all plans of a process. What a plan needs beside it is
 * allocated when the plan first runs; later steps allocate nothing. */
#ifndef BK_EXEC_EXEC_H
#define BK_EXEC_EXEC_H

#include "plan/plan.h"

typedef struct bk_exec bk_exec;

typedef struct {
    int64_t high_water_bytes; /* end of the highest byte handed to a kernel, from the start of the arena */
    int64_t madds;            /* multiply-adds counted at the matrix products of the last run */
} bk_exec_stats;

/* Allocates the arena, zeroed: the run part and the largest step part of the plans to come. BK_E_MEM if
 * refused. */
bk_status bk_exec_open(bk_exec **out, int64_t run_bytes, int64_t step_bytes, bk_err *e);
void bk_exec_close(bk_exec *x); /* NULL is fine */

/* Forgets all plans that have run, which may then be freed, and makes the step part of the arena at least
 * step_bytes long. Values of scope run keep their bits; their addresses change. BK_E_MEM leaves the arena as
 * it was. */
bk_status bk_exec_renew(bk_exec *x, int64_t step_bytes, bk_err *e);

/* Address of a value of scope run (parameters, moments). Borrowed. */
void *bk_exec_value(bk_exec *x, const bk_plan *p, bk_vid v);

/* One step of a plan, which must outlive the executor. On an error the step's results are undefined, those of
 * scope run included if the optimizer had begun. `host` may be NULL for programs without feeds and fetches.
 */
bk_status bk_exec_run(bk_exec *x, const bk_plan *p, const bk_host *host, bk_err *e);

/* One step in an order chosen by the seed among all that the plan allows. A plan under which nothing can run
 * is a deadlock: BK_E_CHECK with who waits for whom. */
bk_status bk_exec_interleave(bk_exec *x, const bk_plan *p, const bk_host *host, uint64_t seed, bk_err *e);

/* One step on this thread, looking at all that is written: `where` names the first value that is not finite,
 * and the op that wrote it; "" if there is none. */
bk_status bk_exec_watch(char *where, int64_t cap, bk_exec *x, const bk_plan *p, const bk_host *host,
                        bk_err *e);

/* Of all runs since open (high water), and of the last run (multiply-adds). */
bk_exec_stats bk_exec_get_stats(const bk_exec *x);

#endif
