/* Executors run a plan: they contain no scheduling decisions.
 *
 *   bk_exec_run        CPU: each lane that has items is a thread, kernels use OpenMP on the compute lane
 *   bk_exec_interleave one thread, any runnable item next, chosen by a seed; freed bytes are filled with NaN
 *
 * The arena is allocated once, by bk_exec_open, for all plans of a process. */
#ifndef BK_EXEC_EXEC_H
#define BK_EXEC_EXEC_H

#include "plan/plan.h"

typedef struct bk_exec bk_exec;

typedef struct {
    int64_t run_bytes;  /* of the shared layout */
    int64_t step_bytes; /* the most that a plan needs */
    bool measure;       /* record high_water (bk_exec_stats) */
} bk_exec_options;

typedef struct {
    int64_t high_water_bytes; /* end of the highest byte handed to a kernel, from the start of the arena */
    int64_t live_bytes;       /* interleaver: most bytes that were alive at once */
    int64_t madds;            /* multiply-adds counted at the GEMM and attention calls of the last run */
} bk_exec_stats;

/* Allocates the arena, zeroed. BK_E_MEM if the system refuses. */
bk_status bk_exec_open(bk_exec **out, const bk_exec_options *options, bk_err *e);
void bk_exec_close(bk_exec *x); /* NULL is fine */

/* Address of a value of scope run (parameters, moments). Borrowed. */
void *bk_exec_value(const bk_exec *x, const bk_plan *p, bk_vid v);

/* One step. On an error the step's results are undefined, and values of scope run too if the optimizer had
 * begun. */
bk_status bk_exec_run(bk_exec *x, const bk_plan *p, const bk_host *host, bk_err *e);

/* One step in an order chosen by the seed among all that the plan allows. A plan under which nothing can run
 * is a deadlock: BK_E_CHECK with who waits for whom. */
bk_status bk_exec_interleave(bk_exec *x, const bk_plan *p, const bk_host *host, uint64_t seed, bk_err *e);

bk_exec_stats bk_exec_get_stats(const bk_exec *x);

#endif
