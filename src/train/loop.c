#include "train/loop.h"

#include <math.h>
#include <string.h>

#include "base/machine.h"
#include "train/lr.h"

static void aim(bk_run *r, int64_t iteration, bool measure)
{
    bk_feed *f = &r->feed;
    f->metrics = measure ? &f->measured : &f->trained;
    f->source = r->data.train;
    f->n_micro = r->layout.n_micro;
    f->first_sample = (iteration - 1) * r->layout.global_batch;
    f->learning_rate = bk_learning_rate(r->c, f->first_sample);
    f->step = iteration - r->state.skipped_steps; /* AdamW counts the steps that it took */
}

/* Runs the step again, which changed nothing, to see where it stops being finite. */
static bk_status not_finite(bk_run *r, int64_t iteration, double loss, bk_err *e)
{
    char where[256];
    const double value = isfinite(loss) ? r->feed.grad_norm : loss;
    const bk_host host = bk_feed_host(&r->feed);
    const bk_status st =
        bk_exec_watch(where, sizeof where, r->session.exec, r->session.program[BK_RUN_TRAIN].p, &host, e);
    if (st != BK_OK) return st;
    return bk_err_set(e, BK_E_CHECK,
                      "step %lld: the %s is %g, first in %s; the parameters are those before this step. "
                      "Lower lr or clip_grad, or set nan_policy to skip",
                      (long long)iteration, isfinite(loss) ? "gradient norm" : "loss",
                      isnan(value) ? fabs(value) : value, /* a NaN's sign means nothing */
                      where[0] ? where : "no single value");
}

static bool line_is_due(const bk_config *c, int64_t iteration)
{
    return iteration == 1 || iteration == c->train_iters || iteration % c->log_interval == 0;
}

static bool measurement_is_due(const bk_run *r, int64_t iteration)
{
    return bk_run_measures(r->c) && iteration % r->c->log_health_interval == 0;
}

/* Where tokens find no room at their experts nothing of the run changes, and the same is done again with more
 * room for them. */
static bk_status run_program(bk_run *r, int program, int64_t iteration, const bk_train_log *log, bk_err *e)
{
    bk_feed *f = &r->feed;
    const bk_host host = bk_feed_host(f);
    for (;;) {
        f->routed_excess = 0;
        bk_status st = bk_exec_run(r->session.exec, r->session.program[program].p, &host, e);
        if (st != BK_OK || f->routed_excess == 0) return st;
        bk_room_values v = {.iteration = iteration,
                            .n_rows = r->layout.routed_rows + f->routed_excess,
                            .room_before = r->layout.routed_rows};
        st = bk_run_make_room(r, f->routed_excess, e);
        v.room = r->layout.routed_rows;
        if (st == BK_OK && log->made_room) st = log->made_room(log->ctx, &v, e);
        if (st != BK_OK) return bk_err_prefix(e, "step %lld: ", (long long)iteration);
    }
}

static bk_status train_step(bk_step_report *out, bk_run *r, int64_t iteration, const bk_train_log *log,
                            bk_err *e)
{
    const double start = bk_now();
    bk_feed *f = &r->feed;
    const bool measure = measurement_is_due(r, iteration);
    aim(r, iteration, measure);
    const bk_status st =
        run_program(r, measure ? r->session.n_programs - 1 : BK_RUN_TRAIN, iteration, log, e);
    if (st != BK_OK) return st;
    const double loss = f->loss_sum / fmax(f->n_tokens, 1);
    const bool finite = isfinite(loss) && isfinite(f->grad_norm);
    if (!finite && r->c->nan_policy == BK_NAN_STOP) return not_finite(r, iteration, loss, e);
    bk_checkpoint_state *s = &r->state;
    s->iteration = iteration, s->consumed_samples = iteration * r->layout.global_batch;
    s->skipped_steps += !finite;
    if (finite) s->line_steps++, s->line_loss_sum += loss;
    *out =
        (bk_step_report){.iteration = iteration,
                         .n_samples = s->consumed_samples,
                         .loss = loss,
                         .grad_norm = f->grad_norm,
                         .learning_rate = f->learning_rate,
                         .next_learning_rate = bk_learning_rate(r->c, s->consumed_samples),
                         .n_tokens = (int64_t)f->n_tokens,
                         .madds = bk_exec_get_stats(r->session.exec).madds,
                         .skipped = !finite,
                         .line = line_is_due(r->c, iteration),
                         .line_loss = s->line_steps ? s->line_loss_sum / (double)s->line_steps : (double)NAN,
                         .line_steps = s->line_steps,
                         .measured = measure,
                         .metrics = f->metrics,
                         .seconds = bk_now() - start};
    if (out->line) s->line_steps = 0, s->line_loss_sum = 0;
    return BK_OK;
}

/* The same samples at every evaluation: the first of the validation part. */
static bk_status evaluate(bk_run *r, const bk_train_log *log, bk_err *e)
{
    const double start = bk_now();
    bk_feed *f = &r->feed;
    double sum = 0, n = 0;
    f->source = r->data.valid, f->n_micro = 1;
    for (int64_t k = 0; k < r->c->eval_iters; k++) {
        f->first_sample = k * f->micro_batch;
        const bk_status st = run_program(r, BK_RUN_EVALUATE, r->state.iteration, log, e);
        if (st != BK_OK) return st;
        sum += f->loss_sum, n += f->n_tokens;
    }
    const double loss = sum / fmax(n, 1);
    if (!isfinite(loss))
        return bk_err_set(e, BK_E_CHECK,
                          "step %lld: the validation loss after it is %g; lower lr or clip_grad",
                          (long long)r->state.iteration, loss);
    return log->evaluated ? log->evaluated(log->ctx, r->state.iteration, loss, bk_now() - start, e) : BK_OK;
}

static bk_status save(bk_run *r, const bk_train_log *log, bk_err *e)
{
    const double start = bk_now();
    const bk_status st = bk_checkpoint_save(r->save, &r->session, &r->state, r->c, e);
    if (st != BK_OK || !log->saved) return st;
    return log->saved(log->ctx, r->state.iteration, bk_now() - start, e);
}

/* Whether the run ends after this step, and why. */
static bool ends(bk_end *why, const bk_run *r, const bk_train_log *log, double start)
{
    const double minutes = r->c->exit_duration_in_mins;
    *why = BK_END_DONE;
    if (r->state.iteration >= r->c->train_iters) return true;
    if (log->stop && log->stop(log->ctx)) return *why = BK_END_STOPPED, true;
    if (minutes > 0 && bk_now() - start >= 60 * minutes) return *why = BK_END_TIME, true;
    return false;
}

bk_status bk_train(bk_end_report *out, bk_run *r, const bk_train_log *log, bk_err *e)
{
    const double start = bk_now();
    const bk_config *c = r->c;
    bk_end why = BK_END_DONE;
    /* Before the first step there is in the folder what was loaded, if it was loaded from there. */
    bool saved = r->save && r->state.iteration > 0 && strcmp(c->load, c->save) == 0;
    bk_status st = BK_OK;
    for (bool end = r->state.iteration >= c->train_iters; !end;) {
        bk_step_report report;
        BK_TRY(train_step(&report, r, r->state.iteration + 1, log, e));
        const int64_t i = r->state.iteration;
        if (log->step) BK_TRY(log->step(log->ctx, &report, e));
        end = ends(&why, r, log, start);
        if (r->data.valid.ctx && (i % c->eval_interval == 0 || (end && why == BK_END_DONE)))
            BK_TRY(evaluate(r, log, e));
        saved = r->save && (end || (c->save_interval != BK_UNSET_COUNT && i % c->save_interval == 0));
        if (saved) BK_TRY(save(r, log, e));
    }
    *out = (bk_end_report){
        .end = why, .iteration = r->state.iteration, .n_skipped = r->state.skipped_steps, .saved = saved};
done:
    return st;
}
