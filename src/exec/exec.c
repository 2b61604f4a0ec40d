/* The arena, plans made ready, and running one op: the part that all executors share. */
#include "exec/exec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"
#include "base/tally.h"
#include "exec/exec_internal.h"

static bool arena_bytes(int64_t *out, int64_t run_bytes, int64_t step_bytes)
{
    return bk_add64(out, step_bytes, BK_ALIGN_BYTES) &&
           bk_add64(out, bk_align_up(run_bytes, BK_ALIGN_BYTES), *out);
}

static bk_status refused(int64_t bytes, int why, bk_err *e)
{
    return bk_err_set(e, BK_E_MEM, "executor: the system refuses an arena of %lld bytes: %s",
                      (long long)bytes, strerror(why));
}

bk_status bk_exec_open(bk_exec **out, int64_t run_bytes, int64_t step_bytes, bk_err *e)
{
    bk_exec *x = calloc(1, sizeof *x);
    int64_t bytes;
    if (!x || !arena_bytes(&bytes, run_bytes, step_bytes)) {
        free(x);
        return bk_err_set(e, BK_E_MEM, "executor: out of memory");
    }
    x->run_bytes = run_bytes, x->step_bytes = step_bytes, x->arena_bytes = bytes;
    /* Anonymous pages are zero and aligned, and touched only when used. */
    void *arena = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED) {
        const int why = errno;
        free(x);
        return refused(bytes, why, e);
    }
    /* Advice: with pages of 2 MiB, rows that lie far apart cost no page walks. */
    (void)madvise(arena, (size_t)bytes, MADV_HUGEPAGE);
    x->arena = arena;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->moved, NULL);
    *out = x;
    return BK_OK;
}

static void stop_workers(bk_exec *x)
{
    pthread_mutex_lock(&x->lock);
    x->closing = true;
    pthread_cond_broadcast(&x->moved);
    pthread_mutex_unlock(&x->lock);
    for (int l = 0; l < BK_N_LANES; l++) {
        if (!x->has_worker[l]) continue;
        pthread_join(x->worker[l].thread, NULL);
        bk_runner_free(&x->worker[l].runner);
    }
}

static void forget_plans(bk_exec *x)
{
    for (bk_ready *r = x->ready, *next; r; r = next) {
        next = r->next;
        for (int l = 0; l < BK_N_LANES; l++) free(r->lane_item[l]);
        free(r->seq), free(r->first_wait), free(r);
    }
    x->ready = NULL;
}

void bk_exec_close(bk_exec *x)
{
    if (!x) return;
    stop_workers(x);
    forget_plans(x);
    bk_runner_free(&x->runner);
    munmap(x->arena, (size_t)x->arena_bytes);
    pthread_cond_destroy(&x->moved);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

bk_status bk_exec_renew(bk_exec *x, int64_t step_bytes, bk_err *e)
{
    int64_t bytes;
    forget_plans(x);
    if (step_bytes <= x->step_bytes) return BK_OK;
    if (!arena_bytes(&bytes, x->run_bytes, step_bytes)) return refused(INT64_MAX, ENOMEM, e);
    void *arena = mremap(x->arena, (size_t)x->arena_bytes, (size_t)bytes, MREMAP_MAYMOVE);
    if (arena == MAP_FAILED) return refused(bytes, errno, e);
    (void)madvise(arena, (size_t)bytes, MADV_HUGEPAGE);
    x->arena = arena, x->step_bytes = step_bytes, x->arena_bytes = bytes;
    return BK_OK;
}

void *bk_exec_value(bk_exec *x, const bk_plan *p, bk_vid v)
{
    return x->arena + bk_plan_value_address(p, v, BK_NONE);
}

bk_exec_stats bk_exec_get_stats(const bk_exec *x)
{
    return (bk_exec_stats){.high_water_bytes = x->high_water, .madds = x->madds};
}

static bk_status fill_ready(bk_ready *r, const bk_plan *p)
{
    const bk_schedule *s = p->s;
    const size_t n = (size_t)s->n_items + 2;
    r->p = p;
    r->seq = calloc(n, sizeof *r->seq), r->first_wait = calloc(n, sizeof *r->first_wait);
    if (!r->seq || !r->first_wait) return BK_E_MEM;
    for (int l = 0; l < BK_N_LANES; l++)
        if (!(r->lane_item[l] = calloc(n, sizeof **r->lane_item))) return BK_E_MEM;
    for (int64_t i = 0; i < s->n_items; i++) {
        const int lane = s->item[i].lane;
        r->seq[i] = r->n_lane[lane];
        r->lane_item[lane][r->n_lane[lane]++] = (int32_t)i;
    }
    for (int64_t k = 0; k < p->n_waits; k++) r->first_wait[p->wait[k].after + 1]++;
    for (int64_t i = 0; i < s->n_items; i++) r->first_wait[i + 1] += r->first_wait[i];
    for (int64_t o = 0; o < p->g->n_ops; o++) {
        const bk_op *op = &p->g->op[o];
        if (bk_n_operands(op) > r->max_operands) r->max_operands = bk_n_operands(op);
    }
    return BK_OK;
}

bk_status bk_ready_get(bk_ready **out, bk_exec *x, const bk_plan *p, bk_err *e)
{
    for (bk_ready *r = x->ready; r; r = r->next)
        if (r->p == p) return *out = r, BK_OK;
    if (p->run_bytes > x->run_bytes || p->step_bytes > x->step_bytes)
        return bk_err_set(e, BK_E_CHECK, "executor: the plan needs a larger arena than was opened");
    bk_ready *r = calloc(1, sizeof *r);
    if (!r) return bk_err_set(e, BK_E_MEM, "executor: out of memory");
    r->next = x->ready, x->ready = r; /* bk_exec_close frees it */
    *out = r;
    return fill_ready(r, p) == BK_OK ? BK_OK : bk_err_set(e, BK_E_MEM, "executor: out of memory");
}

bk_status bk_runner_reserve(bk_runner *r, int32_t max_operands, bk_err *e)
{
    if (max_operands <= r->cap) return BK_OK;
    bk_runner_free(r);
    r->arg = calloc((size_t)max_operands, sizeof *r->arg);
    r->assign = calloc((size_t)max_operands, sizeof *r->assign);
    if (!r->arg || !r->assign) return bk_err_set(e, BK_E_MEM, "executor: out of memory");
    r->cap = max_operands;
    return BK_OK;
}

void bk_runner_free(bk_runner *r)
{
    free(r->arg), free(r->assign);
    *r = (bk_runner){0};
}

static void raise_high_water(bk_exec *x, int64_t end)
{
    int64_t seen = x->high_water;
    while (end > seen && !atomic_compare_exchange_weak(&x->high_water, &seen, end)) continue;
}

static bk_arg operand(bk_exec *x, const bk_plan *p, bk_vid v, int32_t micro)
{
    if (v == BK_NONE) return (bk_arg){NULL, NULL};
    const bk_value *value = &p->g->value[v];
    const bk_vid root = bk_root(p->g, v);
    const int64_t at = bk_plan_address(p, &p->place[root], micro);
    raise_high_water(x, at + p->place[root].bytes);
    return (bk_arg){x->arena + at + value->offset * bk_dtype_bytes(value->dtype), value};
}

bk_status bk_run_op(bk_exec *x, bk_runner *r, const bk_plan *p, const bk_host *host, int32_t item, int32_t k,
                    bk_err *e)
{
    const bk_graph *g = p->g;
    const bk_item *it = &p->s->item[item];
    const bk_oid o = g->region_op[g->region[it->region].first + k];
    const bk_op *op = &g->op[o];
    for (int32_t j = 0; j < bk_n_operands(op); j++)
        r->arg[j] = operand(x, p, g->operand[op->first + j], it->micro);
    for (int32_t u = 0; u < op->n_upd; u++) r->assign[u] = bk_plan_assigns(p, item, o, u);
    const bk_place *work = &p->work[o];
    const int64_t at = bk_plan_address(p, work, it->micro);
    if (work->space != BK_SPACE_NONE) raise_high_water(x, at + work->bytes);
    bk_call call = {.g = g,
                    .op = op,
                    .in = r->arg,
                    .out = r->arg + op->n_in,
                    .upd = r->arg + op->n_in + op->n_out,
                    .assign = r->assign,
                    .work = work->space == BK_SPACE_NONE ? NULL : x->arena + at,
                    .deterministic = p->target.deterministic,
                    .micro = it->micro,
                    .host = host};
    bk_tally_madds = 0;
    const bk_status st = bk_ops[op->kind].rules->cpu(&call, e);
    x->madds += bk_tally_madds;
    return st;
}
