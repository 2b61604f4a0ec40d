#include "train/loop.h"

#include <math.h>
#include <stdlib.h>

#include "base/machine.h"
#include "data/sampler.h"
#include "data/text.h"
#include "train/feed.h"
#include "train/lr.h"
#include "train/session.h"

static const char *const default_path = BK_DEFAULT_DATA_PATH;
enum { DEFAULT_MAX_BYTES = 4 << 20 };

enum { TRAIN, EVALUATE };

typedef struct {
    const bk_config *c;
    bk_layout layout;
    bk_text text;
    bk_text_report text_report;
    bk_sampler train, valid;
    bool has_valid;
    bk_session session;
    bk_feed feed;
} run;

static bk_status load_data(run *r, bk_err *e)
{
    const bk_config *c = r->c;
    const bool given = c->data_path.n > 0;
    const bk_text_options options = {.suffix = given ? NULL : BK_DEFAULT_DATA_PATTERN,
                                     .max_bytes = given ? 0 : DEFAULT_MAX_BYTES,
                                     .seq_length = c->seq_length};
    bk_status st = bk_text_load(&r->text, given ? c->data_path.items : &default_path,
                                given ? (int)c->data_path.n : 1, &options, &r->text_report, e);
    if (st != BK_OK && !given) bk_err_prefix(e, "no data_path is given, and its default fails: ");
    if (st != BK_OK) return st;
    if (c->vocab_size < BK_TEXT_VOCAB)
        return bk_err_set(
            e, BK_E_INPUT,
            "vocab_size %lld is less than the %d tokens of text read as bytes; set vocab_size to %d",
            (long long)c->vocab_size, BK_TEXT_VOCAB, BK_TEXT_VOCAB);
    const bk_tokens tokens = {r->text.tokens, 2, r->text.n_tokens};
    const bk_sampler_options so = {
        .seq_length = c->seq_length, .split = c->split, .seed = (uint64_t)c->seed, .shuffle = true};
    BK_TRY(bk_sampler_make(&r->train, tokens, BK_PART_TRAIN, &so, e));
    bk_token_range part[BK_N_PARTS];
    BK_TRY(bk_split_parse(part, c->split, tokens.n_tokens, e));
    r->has_valid = c->eval_iters > 0 && bk_range_n_samples(part[BK_PART_VALID], c->seq_length) > 0;
    if (r->has_valid) BK_TRY(bk_sampler_make(&r->valid, tokens, BK_PART_VALID, &so, e));
done:
    return st;
}

static bk_status add_program(run *r, bk_model_mode mode, int64_t n_micro, bk_err *e)
{
    bk_program prog;
    const bk_program_options o = {.mode = mode, .real = BK_F32, .optimizer = true};
    const bk_status st = bk_program_graph(&prog, r->c, &r->layout, &o, e);
    if (st == BK_OK) bk_session_add(&r->session, &prog, n_micro);
    return st;
}

static bk_status open_session(run *r, bk_err *e)
{
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = r->c->deterministic};
    bk_status st = BK_OK;
    BK_TRY(bk_layout_resolve(&r->layout, r->c, 1, e));
    BK_TRY(add_program(r, BK_MODEL_TRAIN, r->layout.n_micro, e));
    if (r->has_valid) BK_TRY(add_program(r, BK_MODEL_EVALUATE, 1, e));
    BK_TRY(bk_session_plan(&r->session, &target, e));
    BK_TRY(bk_session_open(&r->session, r->c->memory_limit, e));
    bk_session_init_params(&r->session, (uint64_t)r->c->seed);
    r->feed = (bk_feed){.micro_batch = r->layout.micro_batch, .seq = r->layout.seq};
    r->feed.mask = malloc((size_t)r->layout.seq * sizeof *r->feed.mask);
    if (!r->feed.mask) st = bk_err_set(e, BK_E_MEM, "train: out of memory");
done:
    return st;
}

static bk_status train_step(bk_step_report *out, run *r, int64_t iteration, bk_err *e)
{
    const double start = bk_now();
    bk_feed *f = &r->feed;
    f->source = bk_sampler_source(&r->train);
    f->n_micro = r->layout.n_micro;
    f->first_sample = (iteration - 1) * r->layout.global_batch;
    f->learning_rate = bk_learning_rate(r->c, f->first_sample);
    f->step = iteration;
    const bk_host host = bk_feed_host(f);
    const bk_status st = bk_exec_run(r->session.exec, r->session.program[TRAIN].p, &host, e);
    if (st != BK_OK) return st;
    const double loss = f->loss_sum / fmax(f->n_tokens, 1);
    *out = (bk_step_report){.iteration = iteration,
                            .n_samples = iteration * r->layout.global_batch,
                            .loss = loss,
                            .grad_norm = f->grad_norm,
                            .learning_rate = f->learning_rate,
                            .n_tokens = (int64_t)f->n_tokens,
                            .madds = bk_exec_get_stats(r->session.exec).madds,
                            .seconds = bk_now() - start};
    if (isfinite(loss) && isfinite(f->grad_norm)) return BK_OK;
    return bk_err_set(
        e, BK_E_CHECK,
        "step %lld: the %s is %g; the parameters are those before this step. Lower lr or clip_grad",
        (long long)iteration, isfinite(loss) ? "gradient norm" : "loss",
        isfinite(loss) ? f->grad_norm : loss);
}

/* The same samples at every evaluation: the first of the validation part. */
static bk_status evaluate(double *loss, run *r, int64_t iteration, bk_err *e)
{
    bk_feed *f = &r->feed;
    double sum = 0, n = 0;
    f->source = bk_sampler_source(&r->valid), f->n_micro = 1;
    for (int64_t k = 0; k < r->c->eval_iters; k++) {
        f->first_sample = k * f->micro_batch;
        const bk_host host = bk_feed_host(f);
        const bk_status st = bk_exec_run(r->session.exec, r->session.program[EVALUATE].p, &host, e);
        if (st != BK_OK) return st;
        sum += f->loss_sum, n += f->n_tokens;
    }
    *loss = sum / fmax(n, 1);
    if (isfinite(*loss)) return BK_OK;
    return bk_err_set(e, BK_E_CHECK, "step %lld: the validation loss after it is %g; lower lr or clip_grad",
                      (long long)iteration, *loss);
}

static void report_begin(const run *r, const bk_train_log *log)
{
    const bk_program *prog = &r->session.program[TRAIN];
    int64_t n = 0;
    for (int64_t p = 0; p < prog->g->n_params; p++)
        n += bk_elements(&prog->g->value[prog->g->param[p].value]);
    const bk_run_report report = {.config = r->c,
                                  .plan = prog->p,
                                  .arena_bytes = bk_session_bytes(&r->session),
                                  .n_params = n,
                                  .n_train_tokens = r->train.range.end - r->train.range.begin,
                                  .n_valid_tokens =
                                      r->has_valid ? r->valid.range.end - r->valid.range.begin : 0,
                                  .text = &r->text_report};
    if (log->begin) log->begin(log->ctx, &report);
}

static bk_status train_all(run *r, const bk_train_log *log, bk_err *e)
{
    for (int64_t i = 1; i <= r->c->train_iters; i++) {
        bk_step_report report;
        bk_status st = train_step(&report, r, i, e);
        if (st != BK_OK) return st;
        if (log->step) log->step(log->ctx, &report);
        if (!r->has_valid || (i % r->c->eval_interval != 0 && i != r->c->train_iters)) continue;
        double loss;
        st = evaluate(&loss, r, i, e);
        if (st != BK_OK) return st;
        if (log->evaluated) log->evaluated(log->ctx, i, loss);
    }
    return BK_OK;
}

bk_status bk_train(const bk_config *c, const bk_train_log *log, bk_err *e)
{
    run r = {.c = c};
    bk_status st = BK_OK;
    BK_TRY(load_data(&r, e));
    BK_TRY(open_session(&r, e));
    report_begin(&r, log);
    BK_TRY(train_all(&r, log, e));
done:
    free(r.feed.mask);
    bk_session_close(&r.session);
    bk_text_free(&r.text);
    return st;
}
