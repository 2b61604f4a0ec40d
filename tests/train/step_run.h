/* One step of a small model in double, with all that it hands over: gradients under the names of their
 * parameters, metrics, objective, choices. The learning rate is 0, so parameters stay; biases of experts
 * follow their counts. */
#ifndef STEP_RUN_H
#define STEP_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "base/philox.h"
#include "train/check_host.h"
#include "train/session.h"

/* Lively parameters: choices of experts differ from token to token. */
static const char *const step_yaml =
    "num_layers: 2\nhidden_size: 12\nnum_attention_heads: 2\nffn_hidden_size: 10\nseq_length: 8\n"
    "vocab_size: 16\nmake_vocab_size_divisible_by: 1\nposition_embedding_type: rope\n"
    "normalization: RMSNorm\nswiglu: true\nadd_bias_linear: false\n"
    "untie_embeddings_and_output_weights: true\nhidden_dropout: 0\nattention_dropout: 0\n"
    "init_method_std: 0.4\nnum_experts: 6\nmoe_router_topk: 2\nclip_grad: 0\n";

enum { STEP_SAMPLES = 16, STEP_SEQ = 8, STEP_TOKENS = STEP_SAMPLES * STEP_SEQ, STEP_MAX_VALUES = 512 };

typedef struct {
    bk_config c;
    bk_layout l;
    bk_session s;
    bk_check_host h;
    double tokens[STEP_TOKENS], labels[STEP_TOKENS], mask[STEP_TOKENS], samples[STEP_SAMPLES];
    double seed, learning_rate, step;
    const char *name[STEP_MAX_VALUES];
    double *data[STEP_MAX_VALUES]; /* of each micro-batch, or of the step */
    int64_t n[STEP_MAX_VALUES];    /* elements of one of them */
    int n_values;
} step_run;

static inline void step_must(bk_status st, const bk_err *e)
{
    if (st != BK_OK) fail_msg("%s", e->msg);
}

static inline void step_keep_all(step_run *r)
{
    const bk_graph *g = r->s.program[0].g;
    bk_err e = {0};
    r->h.g = g;
    for (int64_t o = 0; o < g->n_ops; o++) {
        if (g->op[o].kind != BK_OP_fetch) continue;
        const bk_vid v = bk_ins(g, &g->op[o])[0];
        const int k = r->n_values++;
        assert_true(k < STEP_MAX_VALUES);
        r->name[k] = g->value[v].name, r->n[k] = bk_elements(&g->value[v]);
        r->data[k] = calloc((size_t)(r->n[k] * r->l.n_micro), sizeof *r->data[k]);
        assert_non_null(r->data[k]);
        step_must(bk_check_host_tap(&r->h, v, r->data[k], &e), &e);
    }
}

/* Reads the configuration (`more`: lines of YAML that may set an option again) and plans. Tokens are random,
 * labels the tokens one place further on and 0 behind the last, the mask is 1. */
static inline void step_open_mode(step_run *r, bk_model_mode mode, const char *more)
{
    static const char *const probe[] = {BK_PROBE_OBJECTIVE, BK_PROBE_CHOICES};
    const bk_program_options o = {
        .mode = mode, .real = BK_F64, .optimizer = true, .fetch_grads = true, .probe = probe, .n_probes = 2};
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    bk_program prog = {0};
    bk_err e = {0};
    *r = (step_run){.step = 1};
    bk_config_init(&r->c);
    step_must(bk_config_read_yaml_memory(&r->c, step_yaml, strlen(step_yaml), "step", &e), &e);
    while (*more) {
        char name[128], value[256];
        assert_int_equal(sscanf(more, "%127[^:]: %255[^\n]", name, value), 2);
        step_must(bk_config_set(&r->c, name, value, "test", &e), &e);
        more += strcspn(more, "\n") + 1;
    }
    step_must(bk_config_resolve(&r->c, &e), &e);
    step_must(bk_layout_resolve(&r->l, &r->c, 1, &e), &e);
    assert_true(r->c.global_batch_size <= STEP_SAMPLES && r->c.seq_length <= STEP_SEQ);
    step_must(bk_program_graph(&prog, &r->c, &r->l, &o, &e), &e);
    bk_session_add(&r->s, &prog, r->l.n_micro);
    step_must(bk_session_plan(&r->s, &target, &e), &e);
    step_must(bk_session_open(&r->s, BK_UNSET_COUNT, &e), &e);
    bk_session_init_params(&r->s, 1);
    for (int64_t k = 0; k < STEP_TOKENS; k++) {
        r->tokens[k] = (double)(bk_mix64((uint64_t)k + 77) / 64 % (uint64_t)r->c.vocab_size);
        r->mask[k] = 1;
    }
    for (int64_t k = 0; k < STEP_TOKENS; k++) r->labels[k] = (k + 1) % r->c.seq_length ? r->tokens[k + 1] : 0;
    for (int64_t k = 0; k < STEP_SAMPLES; k++) r->samples[k] = (double)k;
    r->seed = 1 / (double)r->l.n_micro;
    bk_check_host_feed(&r->h, "tokens", r->tokens);
    bk_check_host_feed(&r->h, "labels", r->labels);
    bk_check_host_feed(&r->h, "loss_mask", r->mask);
    bk_check_host_feed(&r->h, "samples", r->samples);
    bk_check_host_feed(&r->h, "loss_seed", &r->seed);
    bk_check_host_feed(&r->h, "learning_rate", &r->learning_rate);
    bk_check_host_feed(&r->h, "step", &r->step);
    step_keep_all(r);
}

static inline void step_open(step_run *r, const char *more)
{
    step_open_mode(r, BK_MODEL_TRAIN, more);
}

/* Sample k becomes a copy of sample `of`, for all k. */
static inline void step_repeat_sample(step_run *r, int64_t of)
{
    const int64_t S = r->c.seq_length;
    for (int64_t k = 0; k < r->c.global_batch_size; k++)
        for (int64_t s = 0; s < S && k != of; s++) {
            r->tokens[k * S + s] = r->tokens[of * S + s];
            r->labels[k * S + s] = r->labels[of * S + s];
        }
}

static inline void step_go(step_run *r)
{
    const bk_host host = bk_check_host_of(&r->h);
    bk_err e = {0};
    step_must(bk_exec_run(r->s.exec, r->s.program[0].p, &host, &e), &e);
}

/* The same in an order drawn by `seed`, with NaN in every byte that is free. */
static inline void step_go_interleaved(step_run *r, uint64_t seed)
{
    const bk_host host = bk_check_host_of(&r->h);
    bk_err e = {0};
    step_must(bk_exec_interleave(r->s.exec, r->s.program[0].p, &host, seed, &e), &e);
}

/* What was handed over under a name; fails without it. */
static inline double *step_find(int64_t *n, const step_run *r, const char *name)
{
    if (n) *n = 0;
    for (int k = 0; k < r->n_values; k++) {
        if (strcmp(r->name[k], name) != 0) continue;
        if (n) *n = r->n[k];
        return r->data[k];
    }
    fail_msg("nothing is called %s", name);
    return NULL;
}

static inline double step_scalar(const step_run *r, const char *name)
{
    int64_t n;
    const double *x = step_find(&n, r, name);
    assert_int_equal(n, 1);
    return *x;
}

/* The objective of the step: the mean over its micro-batches. */
static inline double step_objective(const step_run *r)
{
    const bk_vid v = bk_check_probe(r->h.g, 0);
    const double *x = step_find(NULL, r, r->h.g->value[v].name);
    double sum = 0;
    for (int64_t m = 0; m < r->l.n_micro; m++) sum += x[m];
    return sum / (double)r->l.n_micro;
}

/* A parameter or another value of scope run. */
static inline double *step_value(step_run *r, bk_kind kind, const char *name)
{
    const bk_program *p = &r->s.program[0];
    const bk_vid v = bk_value_find(p->g, kind, name);
    if (v == BK_NONE) fail_msg("no value is called %s", name);
    return bk_exec_value(r->s.exec, p->p, v);
}

/* |a - b| <= tolerance |b| over all gradients together, and over each whose name has `part` in it. */
static inline void step_same_gradients(const step_run *a, const step_run *b, const char *part,
                                       double tolerance)
{
    const bk_graph *g = a->s.program[0].g;
    assert_int_equal(g->n_params, b->s.program[0].g->n_params);
    double diff2 = 0, size2 = 0;
    int n_named = 0;
    for (bk_pid p = 0; p < g->n_params; p++) {
        int64_t n;
        const double *x = step_find(&n, a, g->param[p].name), *y = step_find(NULL, b, g->param[p].name);
        double d2 = 0, s2 = 0;
        for (int64_t i = 0; i < n; i++) d2 += (x[i] - y[i]) * (x[i] - y[i]), s2 += y[i] * y[i];
        diff2 += d2, size2 += s2;
        if (!strstr(g->param[p].name, part)) continue;
        n_named++;
        if (!(s2 > 0 && sqrt(d2) <= tolerance * sqrt(s2)))
            fail_msg("%s: gradients of norm %g differ by %g", g->param[p].name, sqrt(s2), sqrt(d2));
    }
    assert_true(n_named > 0);
    if (!(sqrt(diff2) <= tolerance * sqrt(size2)))
        fail_msg("gradients of norm %g differ by %g", sqrt(size2), sqrt(diff2));
}

static inline void step_close(step_run *r)
{
    for (int k = 0; k < r->n_values; k++) free(r->data[k]);
    bk_check_host_free(&r->h);
    bk_session_close(&r->s);
    bk_config_free(&r->c);
}

#endif
