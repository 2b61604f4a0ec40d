/* The CPU executor: each lane that has items is a thread, the compute lane is the caller's.
 *
 * A lane walks its items. Before an item it waits until every item that the plan names is done: it spins for
 * a short while and then sleeps. Workers of other lanes are started when a plan first needs them and sleep
 * between runs. */
#include <sched.h>

#include "exec/exec_internal.h"

enum { SPINS = 2000 };

static bool is_done(const bk_exec *x, int32_t item)
{
    const int lane = x->now->p->s->item[item].lane;
    return atomic_load_explicit(&x->done[lane], memory_order_acquire) > x->now->seq[item];
}

static void announce(bk_exec *x, int lane)
{
    atomic_fetch_add(&x->done[lane], 1);
    if (atomic_load(&x->n_sleeping) == 0) return;
    pthread_mutex_lock(&x->lock);
    pthread_cond_broadcast(&x->moved);
    pthread_mutex_unlock(&x->lock);
}

static void fail(bk_exec *x, const bk_err *e)
{
    pthread_mutex_lock(&x->lock);
    if (!atomic_load(&x->failed)) x->first_error = *e;
    atomic_store(&x->failed, true);
    pthread_cond_broadcast(&x->moved);
    pthread_mutex_unlock(&x->lock);
}

/* Returns false when another lane has failed. */
static bool wait_for(bk_exec *x, int32_t item)
{
    for (int k = 0; k < SPINS; k++) {
        if (is_done(x, item)) return true;
        if (atomic_load(&x->failed)) return false;
        sched_yield();
    }
    pthread_mutex_lock(&x->lock);
    atomic_fetch_add(&x->n_sleeping, 1);
    while (!is_done(x, item) && !atomic_load(&x->failed)) pthread_cond_wait(&x->moved, &x->lock);
    atomic_fetch_sub(&x->n_sleeping, 1);
    pthread_mutex_unlock(&x->lock);
    return !atomic_load(&x->failed);
}

static void walk_lane(bk_exec *x, int lane, bk_runner *runner)
{
    const bk_ready *r = x->now;
    const bk_plan *p = r->p;
    for (int32_t n = 0; n < r->n_lane[lane]; n++) {
        const int32_t item = r->lane_item[lane][n];
        for (int64_t k = r->first_wait[item]; k < r->first_wait[item + 1]; k++)
            if (!wait_for(x, p->wait[k].before)) return;
        const int32_t n_ops = p->g->region[p->s->item[item].region].n_ops;
        for (int32_t k = 0; k < n_ops; k++) {
            bk_err e = {0};
            if (bk_run_op(x, runner, p, x->host, item, k, &e) != BK_OK) {
                fail(x, &e);
                return;
            }
        }
        announce(x, lane);
    }
}

static void *worker_main(void *arg)
{
    bk_worker *w = arg;
    bk_exec *x = w->x;
    int64_t seen = 0;
    pthread_mutex_lock(&x->lock);
    for (;;) {
        while (!x->closing && x->run_number == seen) pthread_cond_wait(&x->moved, &x->lock);
        if (x->closing) break;
        seen = x->run_number;
        if (x->now->n_lane[w->lane] == 0) continue;
        pthread_mutex_unlock(&x->lock);
        walk_lane(x, w->lane, &w->runner);
        pthread_mutex_lock(&x->lock);
        x->n_active--;
        pthread_cond_broadcast(&x->moved);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* Workers start before the run is announced, so none of them misses it. */
static bk_status start_workers(bk_exec *x, const bk_ready *r, bk_err *e)
{
    for (int l = 0; l < BK_N_LANES; l++) {
        if (l == BK_LANE_COMP || r->n_lane[l] == 0) continue;
        bk_worker *w = &x->worker[l];
        bk_status st = bk_runner_reserve(&w->runner, r->max_operands, e);
        if (st != BK_OK) return st;
        if (x->has_worker[l]) continue;
        w->x = x, w->lane = l;
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
            return bk_err_set(e, BK_E_MEM, "executor: the system refuses a thread for lane %s",
                              bk_lane_names[l]);
        x->has_worker[l] = true;
    }
    return bk_runner_reserve(&x->runner, r->max_operands, e);
}

bk_status bk_exec_run(bk_exec *x, const bk_plan *p, const bk_host *host, bk_err *e)
{
    bk_ready *r;
    bk_status st = bk_ready_get(&r, x, p, e);
    if (st == BK_OK) st = start_workers(x, r, e);
    if (st != BK_OK) return st;
    pthread_mutex_lock(&x->lock);
    x->now = r, x->host = host, x->madds = 0;
    x->failed = false;
    x->first_error = (bk_err){0};
    x->n_active = 0;
    for (int l = 0; l < BK_N_LANES; l++) {
        x->done[l] = 0;
        x->n_active += l != BK_LANE_COMP && r->n_lane[l] > 0;
    }
    x->run_number++;
    pthread_cond_broadcast(&x->moved);
    pthread_mutex_unlock(&x->lock);
    walk_lane(x, BK_LANE_COMP, &x->runner);
    pthread_mutex_lock(&x->lock);
    while (x->n_active > 0) pthread_cond_wait(&x->moved, &x->lock);
    pthread_mutex_unlock(&x->lock);
    if (!x->failed) return BK_OK;
    if (e) *e = x->first_error;
    return x->first_error.status;
}
