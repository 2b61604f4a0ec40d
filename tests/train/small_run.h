/* A small model ready to run: the fixture of the tests of plans, executors and programs. */
#ifndef SMALL_RUN_H
#define SMALL_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/philox.h"
#include "train/session.h"

/* Two layers with four streams; options in `more` (YAML lines) come on top. */
static const char *const small_yaml =
    "num_layers: 2\nhidden_size: 16\nnum_attention_heads: 2\nffn_hidden_size: 24\n"
    "seq_length: 8\nvocab_size: 32\nmake_vocab_size_divisible_by: 1\nmicro_batch_size: 2\n"
    "position_embedding_type: rope\nnormalization: RMSNorm\nswiglu: true\nadd_bias_linear: false\n"
    "untie_embeddings_and_output_weights: true\nhidden_dropout: 0\nattention_dropout: 0\n"
    "enable_mhc_connections: true\nmhc_num_residual_streams: 4\nmhc_init_gating_factor: 0.5\n"
    "lr: 0.01\nlr_decay_style: constant\ntrain_iters: 10\n";

typedef struct {
    bk_config c;
    bk_layout layout;
    bk_session session;
    /* The host: tokens from a fixed rule, and what was fetched, as bytes in the order of the names. */
    int64_t step;
    double learning_rate;
    bk_host host;
    double loss_sum, n_tokens, grad_norm;
    int64_t n_fetched;
} small_run;

static inline bk_status small_feed(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    const small_run *r = ctx;
    const int64_t n = bk_elements(v);
    (void)e;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t draw = bk_mix64((uint64_t)(r->step * 1000003 + micro * 10007 + i) + UINT64_C(77));
        if (strcmp(v->name, "tokens") == 0)
            ((int32_t *)dst)[i] = (int32_t)(draw % 32);
        else if (strcmp(v->name, "labels") == 0)
            ((int32_t *)dst)[i] = (int32_t)(draw / 64 % 32);
        else if (strcmp(v->name, "loss_mask") == 0 && v->dtype == BK_F64)
            ((double *)dst)[i] = i % 5 == 4 ? 0 : 1;
        else if (strcmp(v->name, "loss_mask") == 0)
            ((float *)dst)[i] = i % 5 == 4 ? 0 : 1;
        else if (strcmp(v->name, "samples") == 0)
            ((int64_t *)dst)[i] = (r->step * r->layout.n_micro + micro) * n + i;
        else if (strcmp(v->name, "loss_seed") == 0 && v->dtype == BK_F64)
            ((double *)dst)[i] = 1.0 / (double)r->layout.n_micro;
        else if (strcmp(v->name, "loss_seed") == 0)
            ((float *)dst)[i] = (float)(1.0 / (double)r->layout.n_micro);
        else if (strcmp(v->name, "learning_rate") == 0)
            ((double *)dst)[i] = r->learning_rate;
        else if (strcmp(v->name, "step") == 0)
            ((int64_t *)dst)[i] = r->step;
        else
            return bk_err_set(e, BK_E_CHECK, "nobody feeds %s", v->name);
    }
    return BK_OK;
}

static inline bk_status small_fetch(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    small_run *r = ctx;
    (void)micro, (void)e;
    const double x = v->dtype == BK_F64 ? *(const double *)src : (double)*(const float *)src;
    r->n_fetched++;
    if (strcmp(v->name, "metric.sum.loss_sum") == 0) r->loss_sum = x;
    if (strcmp(v->name, "metric.sum.n_tokens") == 0) r->n_tokens = x;
    if (strcmp(v->name, "grad_norm") == 0) r->grad_norm = x;
    return BK_OK;
}

static inline void must(bk_status st, const bk_err *e)
{
    if (st != BK_OK) fail_msg("%s", e->msg);
}

/* Reads the configuration and builds the graphs; the train program is the first of the session. */
static inline void small_run_graphs(small_run *r, const char *more, int64_t n_micro, bk_dtype real)
{
    bk_err e = {0};
    char yaml[4096];
    *r = (small_run){.step = 1, .learning_rate = 0.01};
    r->host = (bk_host){r, small_feed, small_fetch};
    snprintf(yaml, sizeof yaml, "%s", small_yaml);
    bk_config_init(&r->c);
    must(bk_config_read_yaml_memory(&r->c, yaml, strlen(yaml), "small", &e), &e);
    /* `more` may set an option again: each of its lines is a set of its own. */
    for (const char *line = more; line && *line;) {
        char name[128], value[128];
        assert_int_equal(sscanf(line, "%127[^:]: %127[^\n]", name, value), 2);
        must(bk_config_set(&r->c, name, value, "test", &e), &e);
        line = strchr(line, '\n');
        if (line) line++;
    }
    char batch[32];
    snprintf(batch, sizeof batch, "%lld", (long long)(r->c.micro_batch_size * n_micro));
    must(bk_config_set(&r->c, "global_batch_size", batch, "test", &e), &e);
    must(bk_config_resolve(&r->c, &e), &e);
    must(bk_layout_resolve(&r->layout, &r->c, 1, &e), &e);
    bk_program prog;
    const bk_program_options o = {.mode = BK_MODEL_TRAIN, .real = real, .optimizer = true};
    must(bk_program_graph(&prog, &r->c, &r->layout, &o, &e), &e);
    bk_session_add(&r->session, &prog, n_micro);
}

/* Plans, opens the executor and draws the parameters. */
static inline void small_run_open(small_run *r)
{
    bk_err e = {0};
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    must(bk_session_plan(&r->session, &target, &e), &e);
    must(bk_session_open(&r->session, BK_UNSET_COUNT, &e), &e);
    bk_session_init_params(&r->session, 1);
}

static inline void small_run_close(small_run *r)
{
    bk_session_close(&r->session);
    bk_config_free(&r->c);
}

/* All values of scope run, as bytes. */
static inline void *small_run_state(small_run *r)
{
    const bk_program *p = &r->session.program[0];
    return bk_exec_value(r->session.exec, p->p, p->g->param[0].value);
}

#endif
