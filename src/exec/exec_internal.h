/* What the executors share: the arena, plans made ready to run, and running one item. */
#ifndef BK_EXEC_INTERNAL_H
#define BK_EXEC_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "exec/exec.h"

/* A plan with its lanes spelt out, made when it first runs. */
typedef struct bk_ready {
    const bk_plan *p;
    int32_t *lane_item[BK_N_LANES]; /* the items of each lane, in order */
    int32_t n_lane[BK_N_LANES];
    int32_t *seq;        /* for each item: its number on its lane */
    int64_t *first_wait; /* for each item: its waits are wait[first_wait[i]] .. */
    int32_t max_operands;
    struct bk_ready *next;
} bk_ready;

/* Scratch of one thread that runs items. */
typedef struct {
    bk_arg *arg;
    bool *assign;
    int32_t cap;
} bk_runner;

typedef struct {
    struct bk_exec *x;
    int lane;
    pthread_t thread;
    bk_runner runner;
} bk_worker;

struct bk_exec {
    unsigned char *arena;
    int64_t run_bytes, step_bytes, arena_bytes;
    bk_ready *ready;
    _Atomic int64_t high_water;
    _Atomic int64_t madds;
    /* The run in progress. A lane's progress is the number of its items that are done. */
    const bk_ready *now;
    const bk_host *host;
    _Atomic int32_t done[BK_N_LANES];
    _Atomic bool failed;
    bk_err first_error;
    /* Lanes sleep on `moved` when spinning did not help, workers when there is no run. */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    _Atomic int32_t n_sleeping;
    int64_t run_number;
    int n_active; /* worker lanes that have not finished the run */
    bool closing;
    bk_worker worker[BK_N_LANES];
    bool has_worker[BK_N_LANES];
    bk_runner runner; /* of the thread that calls bk_exec_run */
};

bk_status bk_ready_get(bk_ready **out, bk_exec *x, const bk_plan *p, bk_err *e);
bk_status bk_runner_reserve(bk_runner *r, int32_t max_operands, bk_err *e);
void bk_runner_free(bk_runner *r);

/* Runs op k of an item's region. */
bk_status bk_run_op(bk_exec *x, bk_runner *r, const bk_plan *p, const bk_host *host, int32_t item, int32_t k,
                    bk_err *e);

#endif
