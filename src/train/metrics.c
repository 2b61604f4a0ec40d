#include "train/metrics.h"

#include "base/version.h"

static bk_status write_header(bk_metrics *m, const bk_config *c, int64_t first_iteration, bk_err *e)
{
    bk_run_values v = {
        .version = bk_version(), .commit = bk_version_commit(), .first_iteration = first_iteration};
    if (bk_config_hash(&v.config_hash, c) != BK_OK) return bk_err_set(e, BK_E_MEM, "metrics: out of memory");
    return bk_jsonl_run(&m->jsonl, &v, e);
}

bk_status bk_metrics_open(bk_metrics *m, const bk_config *c, int64_t first_iteration, bk_err *e)
{
    *m = (bk_metrics){0};
    bk_status st = BK_OK;
    if (*c->log_jsonl) {
        BK_TRY(bk_jsonl_open(&m->jsonl, c->log_jsonl, e));
        BK_TRY(write_header(m, c, first_iteration, e));
    }
    if (*c->tensorboard_dir)
        BK_TRY(bk_tensorboard_open(&m->tensorboard, c->tensorboard_dir, c->tensorboard_log_interval,
                                   first_iteration, e));
done:
    if (st != BK_OK) bk_metrics_close(m, NULL);
    return st;
}

bk_status bk_metrics_step(bk_metrics *m, const bk_step_values *v, bk_err *e)
{
    const bk_status st = m->jsonl.file.path ? bk_jsonl_step(&m->jsonl, v, e) : BK_OK;
    if (!m->tensorboard.file.path) return st;
    const bk_status st2 = bk_tensorboard_step(&m->tensorboard, v, st == BK_OK ? e : NULL);
    return st == BK_OK ? st2 : st;
}

bk_status bk_metrics_evaluation(bk_metrics *m, const bk_evaluation_values *v, bk_err *e)
{
    const bk_status st = m->jsonl.file.path ? bk_jsonl_evaluation(&m->jsonl, v, e) : BK_OK;
    if (!m->tensorboard.file.path) return st;
    const bk_status st2 = bk_tensorboard_evaluation(&m->tensorboard, v, st == BK_OK ? e : NULL);
    return st == BK_OK ? st2 : st;
}

bk_status bk_metrics_health(bk_metrics *m, const bk_health_values *v, bk_err *e)
{
    const bk_status st = m->jsonl.file.path ? bk_jsonl_health(&m->jsonl, v, e) : BK_OK;
    if (!m->tensorboard.file.path) return st;
    const bk_status st2 = bk_tensorboard_health(&m->tensorboard, v, st == BK_OK ? e : NULL);
    return st == BK_OK ? st2 : st;
}

bk_status bk_metrics_room(bk_metrics *m, const bk_room_values *v, bk_err *e)
{
    return m->jsonl.file.path ? bk_jsonl_room(&m->jsonl, v, e) : BK_OK;
}

bk_status bk_metrics_close(bk_metrics *m, bk_err *e)
{
    const bk_status st = bk_jsonl_close(&m->jsonl, e);
    const bk_status st2 = bk_tensorboard_close(&m->tensorboard, st == BK_OK ? e : NULL);
    return st == BK_OK ? st2 : st;
}
