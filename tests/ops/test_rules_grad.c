/* Gradient rules through the autodiff pass: a small model with every differentiable op of sums, embedding,
 * linear and loss, in double, against central differences of its own forward. */
#include "op_bench.h"

#include <math.h>

#include "passes/passes.h"

enum { S = 3, B = 2, C = 4, V = 7, N_PARAMS = 5 };

typedef struct {
    bench b;
    bk_vid
        param[N_PARAMS]; /* word table (also the output layer), positions, w, linear's bias, residual bias */
    bk_vid mean, seed;
    int64_t n_forward;
} model;

#define OP(m, out, ...)                                                                                      \
    do {                                                                                                     \
        bk_err op_err;                                                                                       \
        if (bench_op((out), &(m)->b, &(bk_op_spec){__VA_ARGS__}, &op_err) != BK_OK)                          \
            fail_msg("%s", op_err.msg);                                                                      \
    } while (0)

#define DRAWS(prob, where) .attr = {{.f = (prob)}, {.i = 11}, {.i = (where)}}

static model build(bool frozen_w)
{
    model m = {.b = bench_open(BK_F64)};
    bench *b = &m.b;
    m.b.g->tag = (bk_tag){BK_MODULE_DECODER, BK_NODE_ATTN, BK_PASS_FORWARD, 2};
    const bk_vid tokens = INPUT(b, "tokens", BK_I32, B, S), labels = INPUT(b, "labels", BK_I32, B, S);
    const bk_vid samples = INPUT(b, "samples", BK_I64, B), mask = INPUT(b, "mask", BK_F64, B, S);
    m.seed = INPUT(b, "seed", BK_F64, 1);
    m.param[0] = PARAM(b, "word", V, C), m.param[1] = PARAM(b, "position", S + 1, C);
    m.param[2] = frozen_w ? INPUT(b, "w", BK_F64, C, C) : PARAM(b, "w", C, C);
    m.param[3] = PARAM(b, "linear_bias", C), m.param[4] = PARAM(b, "residual_bias", C);
    bk_vid e, x, d, y, r, k, s, logits, ce[2], mean[3];
    OP(&m, &e, .kind = BK_OP_embedding, IN(m.param[0], tokens));
    OP(&m, &x, .kind = BK_OP_add_pos, IN(e, m.param[1]));
    OP(&m, &d, .kind = BK_OP_dropout, IN(x, samples), DRAWS(0.25, 1));
    OP(&m, &y, .kind = BK_OP_linear, IN(d, m.param[2], m.param[3]));
    OP(&m, &r, .kind = BK_OP_residual_add, IN(d, y, m.param[4], samples), DRAWS(0.4, 2));
    OP(&m, &k, .kind = BK_OP_copy, IN(r));
    OP(&m, &s, .kind = BK_OP_add_n, IN(r, k, r));
    OP(&m, &logits, .kind = BK_OP_linear, IN(s, m.param[0]));
    OP(&m, ce, .kind = BK_OP_cross_entropy, IN(logits, labels), .n_out = 2);
    OP(&m, mean, .kind = BK_OP_masked_mean, IN(ce[0], mask), .n_out = 3);
    m.mean = mean[0], m.n_forward = b->g->n_ops;
    return m;
}

static void fill_inputs(model *m)
{
    static const int32_t token[B * S] = {1, 4, 1, 6, 0, 4}, label[B * S] = {4, 1, 2, 0, 4, 5};
    static const double mask[B * S] = {1, 1, 0, 1, 1, 1};
    bench *b = &m->b;
    memcpy(bench_data(b, bk_value_find(b->g, BK_INPUT, "tokens")), token, sizeof token);
    memcpy(bench_data(b, bk_value_find(b->g, BK_INPUT, "labels")), label, sizeof label);
    memcpy(bench_data(b, bk_value_find(b->g, BK_INPUT, "mask")), mask, sizeof mask);
    memcpy(bench_data(b, bk_value_find(b->g, BK_INPUT, "samples")), (int64_t[B]){70, 71},
           2 * sizeof(int64_t));
    bench_put(b, m->seed, 0, 1.5);
    for (int p = 0; p < N_PARAMS; p++)
        for (int64_t i = 0; i < bk_elements(&b->g->value[m->param[p]]); i++)
            bench_put(b, m->param[p], i, sin(1.0 + 3.7 * (double)i + 0.6 * p));
}

/* Runs ops in order; the first update of each accumulator writes. */
static void run(model *m, int64_t n_ops)
{
    bool written[BENCH_VALUES] = {false};
    bk_err e;
    for (bk_oid o = 0; o < n_ops; o++) {
        const bk_op *op = &m->b.g->op[o];
        unsigned assign = 0;
        for (int k = 0; k < op->n_upd; k++) {
            const bk_vid v = bk_upds(m->b.g, op)[k];
            if (!written[v]) assign |= 1u << k;
            written[v] = true;
        }
        if (bench_run(&m->b, o, assign, &e) != BK_OK) fail_msg("%s", e.msg);
    }
}

static void backward(model *m)
{
    bk_err e;
    if (bk_pass_autodiff(m->b.g, &(bk_seed){m->mean, m->seed}, 1, &e) != BK_OK) fail_msg("%s", e.msg);
}

static bk_vid gradient(const model *m, int p)
{
    return m->b.g->param[m->b.g->value[m->param[p]].param].grad;
}

static int count_ops(const bk_graph *g, bk_op_kind kind)
{
    int n = 0;
    for (int64_t o = 0; o < g->n_ops; o++) n += g->op[o].kind == kind;
    return n;
}

/* The loss with element i of parameter p at x. */
static double loss_at(model *m, int p, int64_t i, double x)
{
    bench_put(&m->b, m->param[p], i, x);
    run(m, m->n_forward);
    return bench_get(&m->b, m->mean, 0);
}

static void test_rules_grad__agree_with_central_differences(void **state)
{
    (void)state;
    model m = build(false);
    backward(&m);
    fill_inputs(&m);
    run(&m, m.b.g->n_ops);
    /* Differences over four points: their error is h^4/30 times a fifth derivative, here up to some 1e4, and
     * 1e-16/h of rounding. */
    const double h = 5e-4, tol = 2e-10;
    for (int p = 0; p < N_PARAMS; p++)
        for (int64_t i = 0; i < bk_elements(&m.b.g->value[m.param[p]]); i++) {
            const double x = bench_get(&m.b, m.param[p], i), found = bench_get(&m.b, gradient(&m, p), i);
            const double near = loss_at(&m, p, i, x + h) - loss_at(&m, p, i, x - h);
            const double far = loss_at(&m, p, i, x + 2 * h) - loss_at(&m, p, i, x - 2 * h);
            const double want = 1.5 * (8 * near - far) / (12 * h);
            bench_put(&m.b, m.param[p], i, x);
            if (fabs(want - found) > tol)
                fail_msg("param %d [%d]: %.12g, want %.12g", p, (int)i, found, want);
        }
    bench_close(&m.b);
}

static void test_rules_grad__tags_and_terms(void **state)
{
    (void)state;
    model m = build(false);
    backward(&m);
    const bk_graph *g = m.b.g;
    int n_wgrad = 0;
    for (int64_t o = m.n_forward; o < g->n_ops; o++) {
        const bool wgrad = g->op[o].kind == BK_OP_linear_wgrad;
        assert_int_equal(g->op[o].tag.pass, wgrad ? BK_PASS_WGRAD : BK_PASS_BACKWARD);
        assert_int_equal(g->op[o].tag.layer, 2);
        n_wgrad += wgrad;
    }
    assert_int_equal(n_wgrad, 2);
    assert_int_equal(g->n_terms, 6); /* the word table has two uses */
    for (int64_t t = 0; t < g->n_terms; t++) {
        const bk_op *use = &g->op[g->term[t].use], *term = &g->op[g->term[t].term];
        bool reads = false, updates = false;
        for (int k = 0; k < use->n_in; k++) reads |= bk_ins(g, use)[k] == g->param[g->term[t].param].value;
        for (int k = 0; k < term->n_upd; k++)
            updates |= bk_upds(g, term)[k] == g->param[g->term[t].param].grad;
        assert_true(g->term[t].use < m.n_forward && g->term[t].term >= m.n_forward);
        assert_true(reads && updates);
    }
    bench_close(&m.b);
}

static void test_rules_grad__frozen_weight_leaves_the_bias(void **state)
{
    (void)state;
    model m = build(true), full = build(false);
    backward(&m), backward(&full);
    assert_int_equal(count_ops(m.b.g, BK_OP_linear_wgrad), 1);
    assert_int_equal(count_ops(m.b.g, BK_OP_bias_grad), 2);
    fill_inputs(&m), fill_inputs(&full);
    run(&m, m.b.g->n_ops), run(&full, full.b.g->n_ops);
    for (int p = 0; p < N_PARAMS; p++) {
        if (p == 2) continue;
        for (int64_t i = 0; i < bk_elements(&m.b.g->value[m.param[p]]); i++)
            assert_true(
                fabs(bench_get(&m.b, gradient(&m, p), i) - bench_get(&full.b, gradient(&full, p), i)) <
                1e-14); /* the bias may be summed in another order */
    }
    bench_close(&m.b), bench_close(&full.b);
}

static void test_rules_grad__an_addend_gives_the_same_sum(void **state)
{
    (void)state;
    bk_err e;
    model plain = build(false), folded = build(false);
    backward(&plain), backward(&folded);
    assert_int_equal(bk_pass_accumulate(folded.b.g, &e), BK_OK);
    int n = 0;
    for (int64_t o = 0; o < folded.b.g->n_ops; o++) n += folded.b.g->op[o].folded;
    assert_int_equal(n, 1); /* the data gradient of the first linear, added to the residual's */
    fill_inputs(&plain), fill_inputs(&folded);
    run(&plain, plain.b.g->n_ops), run(&folded, folded.b.g->n_ops);
    for (int p = 0; p < N_PARAMS; p++)
        for (int64_t i = 0; i < bk_elements(&plain.b.g->value[plain.param[p]]); i++)
            assert_true(fabs(bench_get(&plain.b, gradient(&plain, p), i) -
                             bench_get(&folded.b, gradient(&folded, p), i)) < 1e-14);
    bench_close(&plain.b), bench_close(&folded.b);
}

static void test_rules_grad__no_gradient_through_metrics(void **state)
{
    (void)state;
    bk_err e;
    model m = build(false);
    const bk_op *mean = &m.b.g->op[m.n_forward - 1];
    const bk_vid sum = bk_outs(m.b.g, mean)[1];
    assert_int_equal(bk_pass_autodiff(m.b.g, &(bk_seed){sum, m.seed}, 1, &e), BK_E_CHECK);
    expect_message(&e, "masked_mean");
    bench_close(&m.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_grad__agree_with_central_differences),
        cmocka_unit_test(test_rules_grad__tags_and_terms),
        cmocka_unit_test(test_rules_grad__frozen_weight_leaves_the_bias),
        cmocka_unit_test(test_rules_grad__an_addend_gives_the_same_sum),
        cmocka_unit_test(test_rules_grad__no_gradient_through_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
