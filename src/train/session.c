#include "train/session.h"

#include <assert.h>

#include "base/machine.h"
#include "base/size.h"
#include "train/init.h"

void bk_session_add(bk_session *s, bk_program *prog, int64_t n_micro)
{
    assert(s->n_programs < BK_MAX_PROGRAMS);
    s->n_micro[s->n_programs] = n_micro;
    s->program[s->n_programs++] = *prog;
    *prog = (bk_program){0};
}

bk_status bk_session_plan(bk_session *s, const bk_target *target, bk_err *e)
{
    bk_status st = BK_OK;
    s->target = *target;
    for (int k = 0; k < s->n_programs && st == BK_OK; k++)
        st = bk_run_layout_add(&s->run, s->program[k].g, e);
    for (int k = 0; k < s->n_programs && st == BK_OK; k++)
        st = bk_program_plan(&s->program[k], &s->run, target, s->n_micro[k], e);
    return st;
}

static int64_t step_bytes(const bk_session *s)
{
    int64_t most = 0;
    for (int k = 0; k < s->n_programs; k++)
        if (s->program[k].p->step_bytes > most) most = s->program[k].p->step_bytes;
    return most;
}

int64_t bk_session_bytes(const bk_session *s)
{
    int64_t bytes;
    return bk_add64(&bytes, s->run.bytes, step_bytes(s)) ? bytes : INT64_MAX;
}

bk_status bk_session_fits(const bk_session *s, int64_t limit, bk_err *e)
{
    int64_t have = limit;
    /* What an open session holds it need not find. */
    if (limit == BK_UNSET_COUNT && !bk_add64(&have, bk_available_memory(), s->opened_bytes)) have = INT64_MAX;
    const int64_t need = bk_session_bytes(s);
    char a[BK_HUMAN_LEN], b[BK_HUMAN_LEN];
    if (need <= have) return BK_OK;
    return bk_err_set(e, BK_E_MEM,
                      "the plan needs %s (%lld bytes) of memory and %s %s; lower micro_batch_size, "
                      "seq_length or num_layers",
                      bk_human_bytes(a, need), (long long)need, bk_human_bytes(b, have),
                      limit == BK_UNSET_COUNT ? "are available" : "are allowed by memory_limit");
}

bk_status bk_session_open(bk_session *s, int64_t limit, bk_err *e)
{
    bk_status st = bk_session_fits(s, limit, e);
    if (st == BK_OK) st = bk_exec_open(&s->exec, s->run.bytes, step_bytes(s), e);
    if (st == BK_OK) s->opened_bytes = bk_session_bytes(s);
    return st;
}

bk_status bk_session_replace(bk_session *s, int k, bk_program *prog, int64_t limit, bk_err *e)
{
    const int64_t run_bytes = s->run.bytes;
    bk_program other = *prog;
    bk_status st = BK_OK;
    *prog = (bk_program){0};
    BK_TRY(bk_run_layout_add(&s->run, other.g, e));
    assert(s->run.bytes == run_bytes);
    BK_TRY(bk_program_plan(&other, &s->run, &s->target, s->n_micro[k], e));
    const bk_program before = s->program[k];
    s->program[k] = other, other = before;
    st = bk_session_fits(s, limit, e);
    if (st == BK_OK) st = bk_exec_renew(s->exec, step_bytes(s), e);
    if (st == BK_OK)
        s->opened_bytes = bk_session_bytes(s);
    else
        other = s->program[k], s->program[k] = before;
done:
    bk_program_free(&other);
    return st;
}

void bk_session_init_params(bk_session *s, uint64_t seed)
{
    const bk_program *prog = &s->program[0];
    for (bk_pid p = 0; p < prog->g->n_params; p++)
        bk_param_init(bk_exec_value(s->exec, prog->p, prog->g->param[p].value), prog->g, p, seed);
}

void bk_session_close(bk_session *s)
{
    bk_exec_close(s->exec);
    for (int k = 0; k < s->n_programs; k++) bk_program_free(&s->program[k]);
    bk_run_layout_free(&s->run);
    *s = (bk_session){0};
}
