/* For tests of the loop: a run of a tiny model on data of the test's own, and all that it reported. */
#ifndef LOOP_RUN_H
#define LOOP_RUN_H

#include <math.h>
#include <string.h>

#include "log_check.h"
#include "train/loop.h"

enum { LOOP_MAX_STEPS = 1024, LOOP_MAX_EVALUATIONS = 64, LOOP_MAX_SAMPLES = 4096 };

/* One small layer with two streams. Every option may be set again on top. */
static const char *const loop_yaml =
    "num_layers: 1\nhidden_size: 32\nnum_attention_heads: 2\nffn_hidden_size: 64\n"
    "seq_length: 16\nvocab_size: 257\nmake_vocab_size_divisible_by: 1\n"
    "position_embedding_type: rope\nnormalization: RMSNorm\nswiglu: true\n"
    "add_bias_linear: false\nuntie_embeddings_and_output_weights: true\n"
    "enable_mhc_connections: true\nmhc_num_residual_streams: 2\n"
    "lr: 0.01\neval_iters: 0\n";

typedef struct loop_run loop_run;

struct loop_run {
    bk_config c;
    bk_run run;
    bk_train_log log;
    bk_end_report end;
    /* What the test wants; all may be left out. */
    int64_t stop_at;                 /* the step after which the run is told to stop */
    void (*after_step)(loop_run *t); /* sees run.state and the parameters */
    void *ctx;                       /* of after_step */
    int64_t bad_sample;              /* its loss mask is NaN; LOOP_NONE */
    const bk_layout *layout;         /* NULL: the run's own */
    int64_t shift_from, shift_by;    /* samples from the first on are those so many later */
    /* What the run reported. */
    int64_t n_steps, n_evaluations, n_saved, n_samples, n_rooms;
    bk_room_values room[LOOP_MAX_EVALUATIONS];
    bk_step_report step[LOOP_MAX_STEPS];
    int64_t evaluated_at[LOOP_MAX_EVALUATIONS], saved_at[LOOP_MAX_STEPS];
    double valid_loss[LOOP_MAX_EVALUATIONS];
    int32_t sample[LOOP_MAX_SAMPLES]; /* first token of each training sample, in the order of reading */
    bk_source inner;                  /* the run's own source of training samples */
    loop_run *self;
};

enum { LOOP_NONE = -1 };

static inline bk_status loop_on_step(void *ctx, const bk_step_report *r, bk_err *e)
{
    (void)e;
    loop_run *t = ctx;
    assert_true(t->n_steps < LOOP_MAX_STEPS);
    t->step[t->n_steps++] = *r;
    if (t->after_step) t->after_step(t);
    return BK_OK;
}

static inline bk_status loop_on_evaluated(void *ctx, int64_t iteration, double loss, double seconds,
                                          bk_err *e)
{
    (void)seconds, (void)e;
    loop_run *t = ctx;
    assert_true(t->n_evaluations < LOOP_MAX_EVALUATIONS);
    t->evaluated_at[t->n_evaluations] = iteration, t->valid_loss[t->n_evaluations++] = loss;
    return BK_OK;
}

static inline bk_status loop_on_saved(void *ctx, int64_t iteration, double seconds, bk_err *e)
{
    (void)seconds, (void)e;
    loop_run *t = ctx;
    t->saved_at[t->n_saved++] = iteration;
    return BK_OK;
}

static inline bk_status loop_on_made_room(void *ctx, const bk_room_values *v, bk_err *e)
{
    (void)e;
    loop_run *t = ctx;
    assert_true(t->n_rooms < LOOP_MAX_EVALUATIONS);
    t->room[t->n_rooms++] = *v;
    return BK_OK;
}

static inline bool loop_stop(void *ctx)
{
    const loop_run *t = ctx;
    return t->run.state.iteration == t->stop_at;
}

/* The training samples as the model gets them, written down on the way. */
static inline bk_status loop_read_sample(int32_t *tokens, int32_t *labels, float *mask, const void *ctx,
                                         int64_t number, bk_err *e)
{
    loop_run *t = *(loop_run *const *)ctx;
    const int64_t at = t->shift_by && number >= t->shift_from ? number + t->shift_by : number;
    const bk_status st = bk_source_get(tokens, labels, mask, &t->inner, at, e);
    if (st == BK_OK && tokens && t->n_samples < LOOP_MAX_SAMPLES) t->sample[t->n_samples++] = tokens[0];
    if (st == BK_OK && mask && number == t->bad_sample) mask[0] = NAN;
    return st;
}

/* A run of nothing yet; `more`: lines of YAML on top of loop_yaml. */
static inline void loop_config(loop_run *t, const char *more)
{
    bk_err e = {0};
    *t = (loop_run){.bad_sample = LOOP_NONE};
    bk_config_init(&t->c);
    ok(bk_config_read_yaml_memory(&t->c, loop_yaml, strlen(loop_yaml), "loop", &e), &e);
    while (*more) {
        char name[128], value[512];
        assert_int_equal(sscanf(more, "%127[^:]: %511[^\n]", name, value), 2);
        ok(bk_config_set(&t->c, name, value, "test", &e), &e);
        more += strcspn(more, "\n") + 1;
    }
    ok(bk_config_resolve(&t->c, &e), &e);
    t->log = (bk_train_log){.ctx = t,
                            .step = loop_on_step,
                            .evaluated = loop_on_evaluated,
                            .saved = loop_on_saved,
                            .made_room = loop_on_made_room,
                            .stop = loop_stop};
}

/* Opens; the caller closes in any case. */
static inline bk_status loop_open(loop_run *t, bk_err *e)
{
    const bk_status st =
        t->layout ? bk_run_open_layout(&t->run, &t->c, t->layout, e) : bk_run_open(&t->run, &t->c, e);
    if (st != BK_OK) return st;
    t->inner = t->run.data.train;
    t->self = t;
    t->run.data.train =
        (bk_source){.ctx = &t->self, .n_samples = t->inner.n_samples, .get = loop_read_sample};
    return BK_OK;
}

static inline void loop_close(loop_run *t)
{
    bk_run_close(&t->run);
    bk_config_free(&t->c);
}

/* The bits of all values of scope run are the same: parameters, moments, biases of experts. */
static inline void loop_same_state(const loop_run *a, const loop_run *b)
{
    const bk_session *x = &a->run.session, *y = &b->run.session;
    const bk_program *p = &x->program[BK_RUN_TRAIN], *other = &y->program[BK_RUN_TRAIN];
    int64_t n = 0;
    for (bk_vid v = 0; v < p->g->n_values; v++) {
        const bk_value *u = &p->g->value[v];
        if (u->scope != BK_RUN || u->base != BK_NONE) continue;
        const bk_vid w = bk_value_find(other->g, u->kind, u->name);
        assert_true(w != BK_NONE);
        assert_memory_equal(bk_exec_value(x->exec, p->p, v), bk_exec_value(y->exec, other->p, w),
                            (size_t)bk_value_bytes(u));
        n++;
    }
    assert_true(n >= 3 * p->g->n_params); /* each with two moments */
}

static inline void loop_must_train(loop_run *t)
{
    bk_err e = {0};
    ok(loop_open(t, &e), &e);
    ok(bk_train(&t->end, &t->run, &t->log, &e), &e);
}

#endif
