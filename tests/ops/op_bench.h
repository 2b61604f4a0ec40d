/* A small graph with storage behind its values, for tests that build one op and look at it or run it. */
#ifndef BK_TESTS_OP_BENCH_H
#define BK_TESTS_OP_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/tally.h"
#include "ops/rules.h"

enum { BENCH_VALUES = 128 };

typedef struct {
    bk_graph *g;
    void *data[BENCH_VALUES]; /* of each value that is no view; made when first asked for, zero */
    const bk_host *host;
} bench;

static inline bench bench_open(bk_dtype real)
{
    bench b = {0};
    bk_err e;
    assert_int_equal(bk_graph_new(&b.g, real, &e), BK_OK);
    return b;
}

static inline void bench_close(bench *b)
{
    for (int v = 0; v < BENCH_VALUES; v++) free(b->data[v]);
    bk_graph_free(b->g);
}

static inline bk_vid bench_value(bench *b, const char *name, bk_kind kind, bk_dtype dtype, int rank,
                                 const int64_t *dim)
{
    bk_err e;
    bk_vid v;
    if (kind == BK_PARAM) {
        bk_param row = {.name = name, .dtype = dtype, .rank = rank};
        memcpy(row.shape, dim, (size_t)rank * sizeof *dim);
        assert_int_equal(bk_param_add(&v, b->g, &row, &e), BK_OK);
        return v;
    }
    bk_value proto = {.name = name, .dtype = dtype, .kind = kind, .scope = BK_MICRO, .rank = rank};
    for (int d = 0; d < rank; d++) proto.dim[d] = bk_fixed(dim[d]);
    assert_int_equal(bk_value_add(&v, b->g, &proto, &e), BK_OK);
    return v;
}

#define DIMS(...)                                                                                            \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                       \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

/* An activation of the graph's floating dtype, an integer input, a parameter. */
#define ACT(b, name, ...)       bench_value((b), (name), BK_ACTIVATION, (b)->g->real, DIMS(__VA_ARGS__))
#define INPUT(b, name, dt, ...) bench_value((b), (name), BK_INPUT, (dt), DIMS(__VA_ARGS__))
#define PARAM(b, name, ...)     bench_value((b), (name), BK_PARAM, (b)->g->real, DIMS(__VA_ARGS__))
#define GRADIENT(b, name, ...)  bench_value((b), (name), BK_GRADIENT, (b)->g->real, DIMS(__VA_ARGS__))

/* Storage of a value, or of the base of a view from the view's first element on. */
static inline void *bench_data(bench *b, bk_vid v)
{
    const bk_vid root = bk_root(b->g, v);
    const bk_value *base = &b->g->value[root];
    assert_true(root < BENCH_VALUES);
    if (!b->data[root]) b->data[root] = calloc((size_t)bk_elements(base) + 1, 8);
    return (char *)b->data[root] + b->g->value[v].offset * bk_dtype_bytes(base->dtype);
}

/* Reads or writes element i of a floating value. */
static inline double bench_get(bench *b, bk_vid v, int64_t i)
{
    void *p = bench_data(b, v);
    return b->g->value[v].dtype == BK_F64 ? ((double *)p)[i] : (double)((float *)p)[i];
}
static inline void bench_put(bench *b, bk_vid v, int64_t i, double x)
{
    void *p = bench_data(b, v);
    if (b->g->value[v].dtype == BK_F64)
        ((double *)p)[i] = x;
    else
        ((float *)p)[i] = (float)x;
}
/* Small integers, different in each place: sums of their products are exact in float. */
static inline void bench_ramp(bench *b, bk_vid v, int64_t first)
{
    const int64_t n = bk_elements(&b->g->value[v]);
    for (int64_t i = 0; i < n; i++) bench_put(b, v, i, (double)((first + 3 * i) % 7 - 3));
}

/* Appends an op; the ids of its outputs go to out. */
static inline bk_status bench_op(bk_vid *out, bench *b, const bk_op_spec *spec, bk_err *e)
{
    memset(e, 0, sizeof *e);
    return bk_op_add(out, b->g, spec, e);
}

#define LIST(...)                                                                                            \
    (const bk_vid[])                                                                                         \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }
#define COUNT(...) (int)(sizeof((const bk_vid[]){__VA_ARGS__}) / sizeof(bk_vid))
#define IN(...)    .in = LIST(__VA_ARGS__), .n_in = COUNT(__VA_ARGS__)
#define UPD(...)   .upd = LIST(__VA_ARGS__), .n_upd = COUNT(__VA_ARGS__)

static inline bk_arg bench_arg(bench *b, bk_vid v)
{
    return v == BK_NONE ? (bk_arg){0} : (bk_arg){bench_data(b, v), &b->g->value[v]};
}

/* Runs an op; assign: bit k is set where update k is to be written, the last bit for all from 31 on. */
static inline bk_status bench_run(bench *b, bk_oid id, unsigned assign, bk_err *e)
{
    const bk_op *op = &b->g->op[id];
    const bk_target target = {BK_TARGET_CPU, true};
    const bk_op_rules *rules = bk_ops[op->kind].rules;
    const int n = op->n_in + op->n_out + op->n_upd;
    bk_arg *arg = calloc((size_t)n + 1, sizeof *arg);
    bool *assigns = calloc((size_t)op->n_upd + 1, sizeof *assigns);
    for (int k = 0; k < n; k++) arg[k] = bench_arg(b, b->g->operand[op->first + k]);
    for (int k = 0; k < op->n_upd; k++) assigns[k] = assign >> (k < 31 ? k : 31) & 1;
    const int64_t work_bytes = rules->workspace ? rules->workspace(b->g, op, &target) : 0;
    void *work = aligned_alloc(64, (size_t)(work_bytes + 127) / 64 * 64);
    bk_call call = {.g = b->g,
                    .op = op,
                    .in = arg,
                    .out = arg + op->n_in,
                    .upd = arg + op->n_in + op->n_out,
                    .assign = assigns,
                    .work = work,
                    .deterministic = true,
                    .micro = 0,
                    .host = b->host};
    memset(e, 0, sizeof *e);
    const bk_status st = rules->cpu(&call, e);
    free(work), free(arg), free(assigns);
    return st;
}

/* The op that was appended last. */
static inline bk_oid bench_last(const bench *b)
{
    return (bk_oid)(b->g->n_ops - 1);
}

static inline void expect_message(const bk_err *e, const char *part)
{
    if (!strstr(e->msg, part)) fail_msg("message '%s' does not say '%s'", e->msg, part);
}

#endif
