/* The interleaver: one thread, any runnable item next, chosen by a seed. Bytes that nobody holds are NaN (all
 * bits set), so a plan that reads too late or frees too early shows in the results. */
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "exec/exec_internal.h"
#include "plan/access.h"
#include "plan/build.h"

typedef struct {
    bk_exec *x;
    const bk_ready *r;
    const bk_host *host;
    bk_accesses a; /* only who accesses what, to know when a value is over */
    int64_t *left; /* for each instance: accesses to come */
    int32_t n_done[BK_N_LANES];
} stage;

static bool can_run(const stage *s, int lane)
{
    const bk_ready *r = s->r;
    if (s->n_done[lane] >= r->n_lane[lane]) return false;
    const int32_t item = r->lane_item[lane][s->n_done[lane]];
    for (int64_t k = r->first_wait[item]; k < r->first_wait[item + 1]; k++) {
        const int32_t before = r->p->wait[k].before;
        if (r->seq[before] >= s->n_done[r->p->s->item[before].lane]) return false;
    }
    return true;
}

static void poison(stage *s, const bk_place *place, int32_t micro)
{
    if (place->space == BK_SPACE_STEP || place->space == BK_SPACE_SLOT)
        memset(s->x->arena + bk_plan_address(s->r->p, place, micro), 0xff, (size_t)place->bytes);
}

/* Counts an op's accesses down and fills what is over, except for bytes that the op handed to its output. */
static void release(stage *s, bk_oid o, int32_t micro)
{
    const bk_plan *p = s->r->p;
    const bk_op *op = &p->g->op[o];
    bk_vid heir = BK_NONE;
    const bk_vid source = bk_alias_source(&heir, p->g, op);
    for (int32_t k = 0; k < bk_n_operands(op); k++) {
        const bk_vid v = p->g->operand[op->first + k];
        if (v == BK_NONE) continue;
        const bk_vid root = bk_root(p->g, v);
        if (--s->left[bk_value_instance(&s->a, root, micro)] > 0) continue;
        const bool handed = root == source && p->place[root].space == p->place[heir].space &&
                            p->place[root].offset == p->place[heir].offset;
        if (!handed) poison(s, &p->place[root], micro);
    }
}

static bk_status run_item(stage *s, int32_t item, bk_err *e)
{
    const bk_plan *p = s->r->p;
    const bk_item *it = &p->s->item[item];
    const bk_region *region = &p->g->region[it->region];
    for (int32_t k = 0; k < region->n_ops; k++) {
        const bk_oid o = p->g->region_op[region->first + k];
        poison(s, &p->work[o], it->micro);
        const bk_status st = bk_run_op(s->x, &s->x->runner, p, s->host, item, k, e);
        if (st != BK_OK) return st;
        release(s, o, it->micro);
    }
    return BK_OK;
}

static bk_status deadlock(const stage *s, bk_err *e)
{
    const bk_ready *r = s->r;
    for (int l = 0; l < BK_N_LANES; l++) {
        if (s->n_done[l] >= r->n_lane[l]) continue;
        const int32_t item = r->lane_item[l][s->n_done[l]];
        for (int64_t k = r->first_wait[item]; k < r->first_wait[item + 1]; k++) {
            char x[192], y[192];
            const int32_t before = r->p->wait[k].before;
            if (r->seq[before] < s->n_done[r->p->s->item[before].lane]) continue;
            return bk_err_set(e, BK_E_CHECK, "deadlock: %s waits for %s, which can never start",
                              bk_item_name(x, sizeof x, r->p, item), bk_item_name(y, sizeof y, r->p, before));
        }
    }
    return bk_err_set(e, BK_E_CHECK, "deadlock: no item can start");
}

static bk_status run_all(stage *s, uint64_t seed, bk_err *e)
{
    uint64_t random = seed;
    for (int64_t n = 0; n < s->r->p->s->n_items; n++) {
        int lanes[BK_N_LANES], n_lanes = 0;
        for (int l = 0; l < BK_N_LANES; l++)
            if (can_run(s, l)) lanes[n_lanes++] = l;
        if (n_lanes == 0) return deadlock(s, e);
        random += UINT64_C(0x9e3779b97f4a7c15);
        const int lane = lanes[bk_mix64(random) % (uint64_t)n_lanes];
        const bk_status st = run_item(s, s->r->lane_item[lane][s->n_done[lane]], e);
        if (st != BK_OK) return st;
        s->n_done[lane]++;
    }
    return BK_OK;
}

bk_status bk_exec_interleave(bk_exec *x, const bk_plan *p, const bk_host *host, uint64_t seed, bk_err *e)
{
    bk_ready *r = NULL;
    stage s = {.x = x, .host = host};
    bk_status st = BK_OK;
    BK_TRY(bk_ready_get(&r, x, p, e));
    BK_TRY(bk_runner_reserve(&x->runner, r->max_operands, e));
    s.r = r;
    BK_TRY(bk_accesses_init(&s.a, p, NULL, e));
    s.left = malloc((size_t)(s.a.n_instances + 1) * sizeof *s.left);
    if (!s.left) {
        st = bk_err_set(e, BK_E_MEM, "executor: out of memory");
        goto done;
    }
    for (int64_t i = 0; i < s.a.n_instances; i++) s.left[i] = s.a.first[i + 1] - s.a.first[i];
    memset(x->arena + p->run_bytes, 0xff, (size_t)p->step_bytes);
    x->madds = 0;
    st = run_all(&s, seed, e);
done:
    free(s.left);
    bk_accesses_free(&s.a);
    return st;
}
