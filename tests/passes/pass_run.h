/* A hand-made graph, taken through the passes, planned, checked and run in double: the fixture of the tests
 * of passes. The host feeds every input by a fixed rule; what is minimised is the sum over seeds and
 * micro-batches of <of, seed>, which the host computes from what it fetches. */
#ifndef TESTS_PASS_RUN_H
#define TESTS_PASS_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/philox.h"
#include "exec/exec.h"
#include "ir/plain_order.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "plan/check.h"

enum { PR_SEEDS = 4, PR_PARAMS = 16 };

typedef struct {
    bk_graph *g;
    bk_seed seed[PR_SEEDS];
    int n_seeds;
    int32_t n_micro;
    bk_schedule *s;
    bk_run_layout run;
    bk_plan *p;
    bk_exec *x;
    bk_host host;
    /* What the host feeds and what it got in the last run. */
    double learning_rate, seed_scale;
    int64_t step;
    double loss, grad_norm;
    double *grad[PR_PARAMS]; /* of each parameter whose gradient was fetched */
    int64_t n_fetched;
} pass_run;

static inline void pr_must(bk_status st, const bk_err *e)
{
    if (st != BK_OK) fail_msg("%s", e->msg);
}

/* A number of order one that depends on all that it is given. */
static inline double pr_wave(const char *name, int64_t micro, int64_t i)
{
    return sin(1.7 * (double)i + 0.9 * (double)micro + (double)(bk_hash_str(name) % 1000));
}

static inline bk_status pr_feed(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    const pass_run *r = ctx;
    (void)e;
    for (int64_t i = 0; i < bk_elements(v); i++) {
        if (strcmp(v->name, "learning_rate") == 0)
            ((double *)dst)[i] = r->learning_rate;
        else if (strcmp(v->name, "step") == 0)
            ((int64_t *)dst)[i] = r->step;
        else if (v->dtype == BK_I32)
            ((int32_t *)dst)[i] = (int32_t)((i * 5 + micro * 3 + 1) % 4);
        else if (strncmp(v->name, "seed", 4) == 0)
            ((double *)dst)[i] = r->seed_scale * pr_wave(v->name, micro, i);
        else
            ((double *)dst)[i] = pr_wave(v->name, micro, i);
    }
    return BK_OK;
}

static inline bk_status pr_fetch(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    pass_run *r = ctx;
    const double *x = src;
    const int64_t n = bk_elements(v);
    (void)e;
    r->n_fetched++;
    if (v->kind == BK_GRADIENT) {
        r->grad[v->param] = realloc(r->grad[v->param], (size_t)n * sizeof *x);
        memcpy(r->grad[v->param], x, (size_t)n * sizeof *x);
    }
    if (strcmp(v->name, "grad_norm") == 0) r->grad_norm = *x;
    for (int k = 0; k < r->n_seeds && v->kind == BK_ACTIVATION; k++) {
        const bk_value *seed = &r->g->value[r->seed[k].seed];
        if (strcmp(v->name, r->g->value[r->seed[k].of].name) != 0) continue;
        for (int64_t i = 0; i < n; i++) r->loss += x[i] * r->seed_scale * pr_wave(seed->name, micro, i);
    }
    return BK_OK;
}

/* ---- building ------------------------------------------------------------------------------------------ */

static inline void pr_open(pass_run *r, int32_t n_micro)
{
    bk_err e;
    omp_set_num_threads(1); /* thousands of tiny ops: threads would only wait for each other */
    *r = (pass_run){.n_micro = n_micro, .learning_rate = 0.01, .step = 1, .seed_scale = 1};
    r->host = (bk_host){r, pr_feed, pr_fetch};
    pr_must(bk_graph_new(&r->g, BK_F64, &e), &e);
    r->g->tag.node = BK_NODE_MLP, r->g->tag.layer = 0;
}

#define PR_DIMS(...)                                                                                         \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                       \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }
#define PR_IN(...)                                                                                           \
    (const bk_vid[]){__VA_ARGS__}, (int)(sizeof((const bk_vid[]){__VA_ARGS__}) / sizeof(bk_vid))

static inline bk_vid pr_param(pass_run *r, const char *name, int rank, const int64_t *dim)
{
    bk_err e;
    bk_vid v;
    bk_param row = {.name = name, .rank = rank, .dtype = BK_F64, .decay = rank > 1};
    memcpy(row.shape, dim, (size_t)rank * sizeof *dim);
    pr_must(bk_param_add(&v, r->g, &row, &e), &e);
    assert_true(r->g->n_params <= PR_PARAMS);
    return v;
}

static inline bk_vid pr_input(pass_run *r, const char *name, bk_dtype dtype, int rank, const int64_t *dim)
{
    bk_err e;
    bk_vid v;
    bk_value proto = {.name = name, .dtype = dtype, .kind = BK_INPUT, .scope = BK_MICRO, .rank = rank};
    for (int d = 0; d < rank; d++) proto.dim[d].size = dim[d];
    pr_must(bk_value_add(&v, r->g, &proto, &e), &e);
    pr_must(bk_op_add(NULL, r->g, &(bk_op_spec){.kind = BK_OP_feed, .into = v + 1}, &e), &e);
    return v;
}

/* Output 0 of an op without attributes. */
static inline bk_vid pr_op(pass_run *r, bk_op_kind kind, const char *name, const bk_vid *in, int n_in)
{
    bk_err e;
    bk_vid out[8];
    const bk_op_spec spec = {.kind = kind, .in = in, .n_in = n_in, .name = name, .attr = {{0}}};
    pr_must(bk_op_add(out, r->g, &spec, &e), &e);
    return out[0];
}

static inline bk_vid pr_norm(pass_run *r, const char *name, bk_vid x, bk_vid gain)
{
    bk_err e;
    bk_vid out[2];
    pr_must(bk_op1(out, r->g, &e, BK_OP_rmsnorm, name, (.attr = {{.f = 1e-5}}), x, gain), &e);
    return out[0];
}

static inline bk_vid pr_view(pass_run *r, const char *name, bk_vid base, int rank, const int64_t *dim,
                             const int64_t *stride, int64_t offset)
{
    bk_err e;
    bk_vid v;
    pr_must(bk_view_add(&v, r->g, name, base, rank, dim, stride, offset, &e), &e);
    return v;
}

/* Gives a value an upstream gradient of its own. */
static inline void pr_seed(pass_run *r, bk_vid of)
{
    char name[32];
    int64_t dim[BK_MAX_DIMS];
    const bk_value v = r->g->value[of];
    for (int d = 0; d < v.rank; d++) dim[d] = v.dim[d].size;
    snprintf(name, sizeof name, "seed.%d", r->n_seeds);
    assert_true(r->n_seeds < PR_SEEDS);
    bool fetched = false;
    for (int k = 0; k < r->n_seeds; k++) fetched = fetched || r->seed[k].of == of;
    r->seed[r->n_seeds++] = (bk_seed){of, pr_input(r, name, BK_F64, v.rank, dim)};
    bk_err e;
    if (!fetched)
        pr_must(bk_op_add(NULL, r->g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &of, .n_in = 1}, &e), &e);
}

/* ---- passes, plan, run --------------------------------------------------------------------------------- */

static inline void pr_verify(const pass_run *r)
{
    bk_err e;
    pr_must(bk_graph_verify(r->g, &e), &e);
}

static inline void pr_autodiff(pass_run *r)
{
    bk_err e;
    pr_must(bk_pass_autodiff(r->g, r->seed, r->n_seeds, &e), &e);
    pr_verify(r);
}

static inline void pr_accumulate(pass_run *r)
{
    bk_err e;
    /* Ids change; seeds have names. */
    char of[PR_SEEDS][64], seed[PR_SEEDS][64];
    for (int k = 0; k < r->n_seeds; k++) {
        snprintf(of[k], sizeof of[k], "%s", r->g->value[r->seed[k].of].name);
        snprintf(seed[k], sizeof seed[k], "%s", r->g->value[r->seed[k].seed].name);
    }
    pr_must(bk_pass_accumulate(r->g, &e), &e);
    for (int k = 0; k < r->n_seeds; k++)
        for (bk_vid v = 0; v < r->g->n_values; v++) {
            if (strcmp(r->g->value[v].name, of[k]) == 0) r->seed[k].of = v;
            if (strcmp(r->g->value[v].name, seed[k]) == 0) r->seed[k].seed = v;
        }
    pr_verify(r);
}

static inline void pr_fetch_gradients(pass_run *r)
{
    bk_err e;
    r->g->tag = (bk_tag){BK_MODULE_DECODER, BK_NODE_STEP, BK_PASS_STEP, BK_NONE};
    for (int64_t p = 0; p < r->g->n_params; p++) {
        const bk_vid grad = r->g->param[p].grad;
        if (grad == BK_NONE) continue;
        pr_must(bk_op_add(NULL, r->g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &grad, .n_in = 1}, &e), &e);
    }
}

/* Regions, schedule, plan, checks, arena; parameters become waves. */
static inline void pr_plan(pass_run *r)
{
    bk_err e;
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    pr_must(bk_pass_partition(r->g, &e), &e);
    pr_verify(r);
    pr_must(bk_schedule_plain(&r->s, r->g, r->n_micro, &e), &e);
    pr_must(bk_run_layout_add(&r->run, r->g, &e), &e);
    pr_must(bk_plan_build(&r->p, r->g, r->s, &r->run, &target, &e), &e);
    pr_must(bk_plan_check(r->p, &e), &e);
    pr_must(bk_exec_open(&r->x, r->p->run_bytes, r->p->step_bytes, &e), &e);
    for (bk_pid p = 0; p < r->g->n_params; p++) {
        double *w = bk_exec_value(r->x, r->p, r->g->param[p].value);
        for (int64_t i = 0; i < bk_elements(&r->g->value[r->g->param[p].value]); i++)
            w[i] = pr_wave(r->g->param[p].name, 0, i);
    }
}

static inline void pr_run(pass_run *r)
{
    bk_err e;
    r->loss = 0, r->n_fetched = 0;
    pr_must(bk_exec_interleave(r->x, r->p, &r->host, 3, &e), &e);
}

/* From the forward ops to fetched gradients. */
static inline void pr_gradients(pass_run *r, bool accumulate)
{
    pr_autodiff(r);
    if (accumulate) pr_accumulate(r);
    pr_fetch_gradients(r);
    pr_plan(r);
    pr_run(r);
}

static inline void pr_close(pass_run *r)
{
    bk_exec_close(r->x);
    bk_plan_free(r->p);
    bk_schedule_free(r->s);
    bk_run_layout_free(&r->run);
    bk_graph_free(r->g);
    for (int p = 0; p < PR_PARAMS; p++) free(r->grad[p]);
}

static inline double *pr_weights(const pass_run *r, bk_pid p)
{
    return bk_exec_value(r->x, r->p, r->g->param[p].value);
}

static inline int64_t pr_n_weights(const pass_run *r, bk_pid p)
{
    return bk_elements(&r->g->value[r->g->param[p].value]);
}

/* Every element of every gradient against a central difference. With step h its error is h^2 times a third
 * derivative of order 10 and 1e-15 / h times a loss of order 100: both below 1e-8 here. */
static inline void pr_check_differences(pass_run *r)
{
    const double h = 1e-5, tolerance = 5e-8;
    double *got[PR_PARAMS] = {0};
    for (bk_pid p = 0; p < r->g->n_params; p++) {
        const size_t bytes = (size_t)pr_n_weights(r, p) * sizeof **got;
        got[p] = malloc(bytes);
        if (r->grad[p])
            memcpy(got[p], r->grad[p], bytes);
        else
            memset(got[p], 0, bytes);
    }
    double largest = 0;
    for (bk_pid p = 0; p < r->g->n_params; p++)
        for (int64_t i = 0; i < pr_n_weights(r, p); i++) {
            double *w = &pr_weights(r, p)[i];
            const double old = *w;
            *w = old + h, pr_run(r);
            const double up = r->loss;
            *w = old - h, pr_run(r);
            const double want = (up - r->loss) / (2 * h);
            *w = old;
            if (!(fabs(got[p][i] - want) <= tolerance * (1 + fabs(want))))
                fail_msg("%s[%lld]: gradient %.12g, difference %.12g", r->g->param[p].name, (long long)i,
                         got[p][i], want);
            largest = fmax(largest, fabs(want));
        }
    assert_true(largest > 1e-3); /* a test on zeros would show nothing */
    for (int p = 0; p < PR_PARAMS; p++) free(got[p]);
}

/* ---- looking at graphs --------------------------------------------------------------------------------- */

static inline int pr_count(const bk_graph *g, bk_op_kind kind)
{
    int n = 0;
    for (int64_t o = 0; o < g->n_ops; o++) n += g->op[o].kind == kind;
    return n;
}

static inline int pr_count_folded(const bk_graph *g)
{
    int n = 0;
    for (int64_t o = 0; o < g->n_ops; o++) n += g->op[o].folded;
    return n;
}

/* The k-th op of a kind. */
static inline bk_oid pr_find(const bk_graph *g, bk_op_kind kind, int k)
{
    for (int64_t o = 0; o < g->n_ops; o++)
        if (g->op[o].kind == kind && k-- == 0) return (bk_oid)o;
    fail_msg("there is no such %s", bk_ops[kind].name);
    return BK_NONE;
}

static inline bk_vid pr_out(const bk_graph *g, bk_oid o)
{
    return bk_outs(g, &g->op[o])[0];
}

/* A refusal with its words. */
static inline void pr_refused(bk_status st, const bk_err *e, bk_status want, const char *part)
{
    assert_int_equal(st, want);
    if (!strstr(e->msg, part)) fail_msg("'%s' has no '%s'", e->msg, part);
}

#endif
