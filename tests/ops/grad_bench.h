/* Checks an op's rules against each other: the gradient rule against central differences of the op itself,
 * the addend of a folded op, frozen parameters, float against double, and predicted multiply-adds against the
 * counted ones. */
#ifndef BK_TESTS_GRAD_BENCH_H
#define BK_TESTS_GRAD_BENCH_H

#include "ops/op_bench.h"

#include <math.h>

/* Appends the op under test with inputs that are filled; it is the bench's last op. */
typedef void (*build_fn)(bench *b);

typedef struct {
    bench b;
    bk_grad_ctx c;
    bool *want;
    bk_oid use;     /* the op under test; its gradient ops follow */
    unsigned seeds; /* bit k: output k has an upstream gradient */
    bk_vid seed[8];
    int32_t n_forward; /* values before the gradient rule ran */
} grad_bench;

/* Values of order one, different everywhere, for the whole storage behind v. */
static inline void bench_wave(bench *b, bk_vid v, double phase)
{
    const bk_vid root = bk_root(b->g, v);
    const int64_t n = bk_elements(&b->g->value[root]);
    for (int64_t i = 0; i < n; i++) bench_put(b, root, i, sin(1.7 * (double)i + phase));
}

/* Place of element i of v behind its first, by its strides. */
static inline int64_t bench_place(const bench *b, bk_vid v, int64_t i)
{
    const bk_value *x = &b->g->value[v];
    int64_t place = 0;
    for (int d = x->rank - 1; d >= 0; d--) {
        place += i % x->dim[d].size * x->stride[d];
        i /= x->dim[d].size;
    }
    return place;
}

static inline double bench_at(bench *b, bk_vid v, int64_t i)
{
    return bench_get(b, v, bench_place(b, v, i));
}

/* Whether an input has no elements. */
static inline bool bench_reads_nothing(const bench *b, bk_oid id)
{
    const bk_op *op = &b->g->op[id];
    bool nothing = false;
    for (int k = 0; k < op->n_in; k++)
        nothing |= bk_ins(b->g, op)[k] != BK_NONE && bk_elements(bk_in(b->g, op, k)) == 0;
    return nothing;
}

/* Runs an op and holds its cost rule to what it did. */
static inline void bench_run_counted(bench *b, bk_oid id, unsigned assign)
{
    const bk_target target = {BK_TARGET_CPU, true};
    bk_cost cost = {0};
    bk_err e;
    const int64_t before = bk_tally_madds;
    if (bench_run(b, id, assign, &e) != BK_OK) fail_msg("%s", e.msg);
    if (bk_ops[b->g->op[id].kind].rules->cost) {
        bk_ops[b->g->op[id].kind].rules->cost(&cost, b->g, &b->g->op[id], &target);
        assert_int_equal(cost.bytes, bk_cost_bytes(b->g, &b->g->op[id]));
        assert_true(cost.flops > 0 || cost.madds > 0 || bench_reads_nothing(b, id));
    }
    assert_int_equal(cost.madds, bk_tally_madds - before);
}

/* Builds the op, applies its gradient rule and runs all. */
static inline grad_bench grad_open(build_fn build, bk_dtype real, unsigned seeds, bool frozen)
{
    grad_bench t = {.b = bench_open(real), .seeds = seeds};
    bench *b = &t.b;
    build(b);
    t.use = bench_last(b);
    t.n_forward = (int32_t)b->g->n_values;
    bk_grad_list *of = calloc(BENCH_VALUES, sizeof *of);
    bk_vid *sum = malloc(BENCH_VALUES * sizeof *sum);
    t.want = calloc(BENCH_VALUES, sizeof *t.want);
    for (int v = 0; v < BENCH_VALUES; v++) {
        sum[v] = BK_NONE;
        t.want[v] = v < t.n_forward && !(frozen && b->g->value[v].kind == BK_PARAM);
    }
    for (int k = 0; k < b->g->op[t.use].n_out; k++) {
        if (!(seeds >> k & 1)) continue;
        const bk_vid out = bk_outs(b->g, &b->g->op[t.use])[k];
        bk_value proto = b->g->value[out];
        bk_err e;
        proto.name = "upstream";
        assert_int_equal(bk_value_add(&t.seed[k], b->g, &proto, &e), BK_OK);
        bench_wave(b, t.seed[k], 0.3 + k);
        sum[out] = t.seed[k];
    }
    t.c = (bk_grad_ctx){.g = b->g, .of = of, .sum = sum, .want = t.want, .n = t.n_forward};
    bk_err e;
    if (bk_ops[b->g->op[t.use].kind].rules->grad(&t.c, t.use, &e) != BK_OK) fail_msg("%s", e.msg);
    for (bk_oid o = t.use; o < b->g->n_ops; o++) bench_run_counted(b, o, ~0u);
    return t;
}

static inline void grad_close(grad_bench *t)
{
    for (int v = 0; v < BENCH_VALUES; v++) free(t->c.of[v].v);
    free(t->c.of), free(t->c.sum), free(t->c.n_added), free(t->want);
    bench_close(&t->b);
}

/* The gradient that the rule gives to input k, or BK_NONE. */
static inline bk_vid grad_of_input(grad_bench *t, int k)
{
    const bk_graph *g = t->b.g;
    const bk_vid v = bk_ins(g, &g->op[t->use])[k];
    if (g->value[v].kind == BK_PARAM) return g->param[g->value[v].param].grad;
    assert_true(t->c.of[v].n <= 1);
    return t->c.of[v].n ? t->c.of[v].v[0] : BK_NONE;
}

/* The sum over seeded outputs of <output, upstream gradient>. */
static inline double grad_loss(grad_bench *t)
{
    bk_err e;
    double loss = 0;
    assert_int_equal(bench_run(&t->b, t->use, 0, &e), BK_OK);
    const bk_op *op = &t->b.g->op[t->use];
    for (int k = 0; k < op->n_out; k++) {
        if (!(t->seeds >> k & 1)) continue;
        const bk_vid out = bk_outs(t->b.g, op)[k];
        for (int64_t i = 0; i < bk_elements(&t->b.g->value[out]); i++)
            loss += bench_at(&t->b, out, i) * bench_at(&t->b, t->seed[k], i);
    }
    return loss;
}

/* Central differences with step h have an error of h^2 times a third derivative of order 10 and of 1e-15 / h
 * times a loss of order 10: both below 1e-8 here. */
static inline void check_differences(grad_bench *t, int k)
{
    const double h = 1e-5, tolerance = 3e-8;
    const bk_vid d = grad_of_input(t, k), v = bk_ins(t->b.g, &t->b.g->op[t->use])[k];
    if (d == BK_NONE) fail_msg("input %d has no gradient", k);
    double largest = 0;
    for (int64_t i = 0; i < bk_elements(&t->b.g->value[v]); i++) {
        const int64_t at = bench_place(&t->b, v, i);
        const double x = bench_get(&t->b, v, at);
        bench_put(&t->b, v, at, x + h);
        const double up = grad_loss(t);
        bench_put(&t->b, v, at, x - h);
        const double down = grad_loss(t);
        bench_put(&t->b, v, at, x);
        const double want = (up - down) / (2 * h), got = bench_at(&t->b, d, i);
        if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
            fail_msg("input %d element %lld: gradient %.12g, difference %.12g", k, (long long)i, got, want);
        largest = fmax(largest, fabs(want));
    }
    grad_loss(t);                /* what the op keeps for its gradient is that of x again */
    assert_true(largest > 1e-3); /* a test on zeros would show nothing */
}

/* Folded gradient ops give the addend plus what they gave; updates that are added to become twice as large.
 */
static inline void check_folded(grad_bench *t, bk_oid id)
{
    bench *b = &t->b;
    bk_graph *g = b->g;
    bk_op op = g->op[id];
    const bk_vid out = bk_outs(g, &op)[0];
    const int64_t n = bk_elements(&g->value[out]);
    const int in_max = bk_addend_place(&op);
    bk_vid in[16], res[16], addend;
    bk_value proto = g->value[out], shapes[16] = {0};
    bk_err e;
    proto.name = "addend";
    assert_int_equal(bk_value_add(&addend, g, &proto, &e), BK_OK);
    bench_wave(b, addend, 2.5);
    double *before = malloc((size_t)n * sizeof *before), update = 0;
    for (int64_t i = 0; i < n; i++) before[i] = bench_get(b, out, i);
    if (op.n_upd) update = bench_get(b, bk_upds(g, &op)[0], 0);
    for (int k = 0; k < in_max; k++) in[k] = k < op.n_in ? bk_ins(g, &op)[k] : BK_NONE;
    in[in_max] = addend;
    memcpy(res, bk_outs(g, &op), (size_t)(op.n_out + op.n_upd) * sizeof *res);
    g->op[id].folded = true;
    assert_int_equal(bk_op_set_operands(g, id, in, in_max + 1, res, op.n_out, res + op.n_out, op.n_upd, &e),
                     BK_OK);
    assert_int_equal(bk_ops[op.kind].rules->shape(shapes, g, &g->op[id], &e), BK_OK);
    for (int r = 0; r < op.n_out + op.n_upd; r++)
        assert_int_equal(bk_elements(&shapes[r]), bk_elements(&g->value[res[r]]));
    bench_run_counted(b, id, 0);
    for (int64_t i = 0; i < n; i++) /* one more rounding, in sums of order ten */
        assert_true(fabs(bench_get(b, out, i) - before[i] - bench_get(b, addend, i)) < 1e-13);
    if (op.n_upd) assert_true(fabs(bench_get(b, res[op.n_out], 0) - 2 * update) <= 1e-13 * fabs(update));
    free(before);
}

/* Compares a value of the float bench with the same of the double bench. The inputs are rounded to float, so
 * sums of a few dozen products of order one differ by some 1e-6. */
static inline void check_same(grad_bench *narrow, bk_vid v32, grad_bench *wide, bk_vid v64, double tolerance)
{
    const int64_t n = bk_elements(&wide->b.g->value[v64]);
    assert_int_equal(n, bk_elements(&narrow->b.g->value[v32]));
    for (int64_t i = 0; i < n; i++) {
        const double a = bench_at(&narrow->b, v32, i), b = bench_at(&wide->b, v64, i);
        if (!(fabs(a - b) <= tolerance * (1 + fabs(b))))
            fail_msg("%s element %lld: %.9g and %.9g", wide->b.g->value[v64].name, (long long)i, a, b);
    }
}

/* All of the above. inputs: bit k is set where input k must have a gradient. */
static inline void check_op(build_fn build, unsigned seeds, unsigned inputs)
{
    grad_bench wide = grad_open(build, BK_F64, seeds, false);
    grad_bench narrow = grad_open(build, BK_F32, seeds, false);
    grad_bench frozen = grad_open(build, BK_F64, seeds, true);
    const bk_op op = wide.b.g->op[wide.use];
    for (int k = 0; k < op.n_out; k++) {
        const bk_vid out = bk_outs(wide.b.g, &op)[k];
        check_same(&narrow, out, &wide, out, 2e-5);
    }
    for (bk_oid o = frozen.use; o < frozen.b.g->n_ops; o++) assert_int_equal(frozen.b.g->op[o].n_upd, 0);
    for (int k = 0; k < op.n_in; k++) {
        if (!(inputs >> k & 1)) continue;
        check_differences(&wide, k);
        check_same(&narrow, grad_of_input(&narrow, k), &wide, grad_of_input(&wide, k), 2e-5);
        if (wide.b.g->value[bk_ins(wide.b.g, &op)[k]].kind != BK_PARAM)
            check_same(&frozen, grad_of_input(&frozen, k), &wide, grad_of_input(&wide, k), 0);
        else
            assert_int_equal(grad_of_input(&frozen, k), BK_NONE);
    }
    assert_true(wide.b.g->n_ops > wide.use + 1);
    for (bk_oid o = wide.use + 1; o < wide.b.g->n_ops; o++)
        if (bk_ops[wide.b.g->op[o].kind].adds) check_folded(&wide, o);
    grad_close(&wide), grad_close(&narrow), grad_close(&frozen);
}

/* Without an upstream gradient a rule appends nothing. */
static inline void check_nothing_flows(build_fn build)
{
    grad_bench t = grad_open(build, BK_F64, 0, false);
    assert_int_equal(t.b.g->n_ops, t.use + 1);
    grad_close(&t);
}

/* The message of an op that must be refused. */
#define expect_refused(b, part, ...)                                                                         \
    do {                                                                                                     \
        bk_err e_;                                                                                           \
        bk_vid out_[8];                                                                                      \
        const int64_t ops_ = (b)->g->n_ops;                                                                  \
        const bk_op_spec spec_ = {__VA_ARGS__};                                                              \
        assert_int_not_equal(bench_op(out_, (b), &spec_, &e_), BK_OK);                                       \
        expect_message(&e_, (part));                                                                         \
        assert_int_equal((b)->g->n_ops, ops_);                                                               \
    } while (0)

/* Appends an op that must be accepted. */
#define expect_op(out, b, ...)                                                                               \
    do {                                                                                                     \
        bk_err e_;                                                                                           \
        const bk_op_spec spec_ = {__VA_ARGS__};                                                              \
        if (bench_op((out), (b), &spec_, &e_) != BK_OK) fail_msg("%s", e_.msg);                              \
    } while (0)

#endif
