/* The rules of the mHC ops. */
#include "ops/grad_bench.h"

#include "passes/passes.h"

enum { S = 3, B = 2, N = 3, C = 5, K = N * C, ROWS = N * N + 2 * N };

static void expand(bench *b)
{
    const bk_vid h = ACT(b, "h", S, B, C);
    bk_vid x;
    bench_wave(b, h, 0.1);
    expect_op(&x, b, .kind = BK_OP_mhc_expand, IN(h), .attr = {{.i = N}});
}

/* Few iterations: after many, h_res hardly depends on some directions and its gradient is near 0. */
static void map(bench *b)
{
    const bk_vid x = ACT(b, "x", S, B, N, C), W = PARAM(b, "W", ROWS, K), pre = PARAM(b, "alpha_pre", 1),
                 post = PARAM(b, "alpha_post", 1), res = PARAM(b, "alpha_res", 1),
                 bias = PARAM(b, "bias", ROWS);
    bk_vid out[5];
    const bk_vid all[] = {x, W, pre, post, res, bias};
    for (int k = 0; k < 6; k++) bench_wave(b, all[k], 0.4 + 0.2 * k);
    expect_op(out, b, .kind = BK_OP_mhc_map, IN(x, W, pre, post, res, bias), .attr = {{.i = 3}});
}

static void aggregate(bench *b)
{
    const bk_vid x = ACT(b, "x", S, B, N, C), h_pre = ACT(b, "h_pre", S, B, N);
    bk_vid a;
    bench_wave(b, x, 0.1), bench_wave(b, h_pre, 0.3);
    expect_op(&a, b, .kind = BK_OP_mhc_aggregate, IN(x, h_pre));
}

typedef struct {
    bk_vid x, h_res, h_post, y, bias, samples;
} post_inputs;

static post_inputs post_values(bench *b)
{
    const post_inputs v = {.x = ACT(b, "x", S, B, N, C),
                           .h_res = ACT(b, "h_res", S, B, N, N),
                           .h_post = ACT(b, "h_post", S, B, N),
                           .y = ACT(b, "y", S, B, C),
                           .bias = PARAM(b, "bias", C),
                           .samples = INPUT(b, "samples", BK_I64, B)};
    bench_wave(b, v.x, 0.1), bench_wave(b, v.h_res, 0.2), bench_wave(b, v.h_post, 0.3);
    bench_wave(b, v.y, 0.4), bench_wave(b, v.bias, 0.5);
    for (int64_t i = 0; i < B; i++) ((int64_t *)bench_data(b, v.samples))[i] = 11 + i;
    return v;
}

static void post(bench *b)
{
    const post_inputs v = post_values(b);
    bk_vid out;
    expect_op(&out, b, .kind = BK_OP_mhc_post, IN(v.x, v.h_res, v.h_post, v.y));
}

static void post_bias(bench *b)
{
    const post_inputs v = post_values(b);
    bk_vid out;
    expect_op(&out, b, .kind = BK_OP_mhc_post, IN(v.x, v.h_res, v.h_post, v.y, v.bias));
}

static void post_dropout(bench *b)
{
    const post_inputs v = post_values(b);
    bk_vid out;
    b->g->tag.layer = 2;
    expect_op(&out, b, .kind = BK_OP_mhc_post, IN(v.x, v.h_res, v.h_post, v.y, BK_NONE, v.samples),
              .attr = {{.f = 0.4}, {.i = 7}, {.i = 1}});
}

static void post_bias_dropout(bench *b)
{
    const post_inputs v = post_values(b);
    bk_vid out;
    expect_op(&out, b, .kind = BK_OP_mhc_post, IN(v.x, v.h_res, v.h_post, v.y, v.bias, v.samples),
              .attr = {{.f = 0.4}, {.i = 7}, {.i = 1}});
}

static void contract(bench *b)
{
    const bk_vid x = ACT(b, "x", S, B, N, C), V = PARAM(b, "V", N, K), base = PARAM(b, "base", N),
                 scale = PARAM(b, "scale", 1);
    bk_vid out[4];
    bench_wave(b, x, 0.1), bench_wave(b, V, 0.3), bench_wave(b, base, 0.5), bench_put(b, scale, 0, 0.8);
    expect_op(out, b, .kind = BK_OP_mhc_contract, IN(x, V, base, scale), .attr = {{.f = 1e-5}});
}

static void test_mhc__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    check_op(expand, 1, 1);
    check_op(map, 7, 63);
    check_op(aggregate, 1, 3);
    check_op(post, 1, 15);
    check_op(post_bias, 1, 31);
    check_op(post_dropout, 1, 15);
    check_op(post_bias_dropout, 1, 31);
    check_op(contract, 1, 15);
}

static void test_mhc__nothing_flows(void **state)
{
    (void)state;
    check_nothing_flows(expand);
    check_nothing_flows(map);
    check_nothing_flows(aggregate);
    check_nothing_flows(post);
    check_nothing_flows(contract);
}

/* Of the three maps any may go unused: its gradient is then zeros, made once for the op. */
static void test_mhc__map_with_an_unused_output(void **state)
{
    (void)state;
    for (unsigned seeds = 1; seeds < 7; seeds++) {
        grad_bench t = grad_open(map, BK_F64, seeds, false);
        const int n_fill = 3 - __builtin_popcount(seeds);
        assert_int_equal(t.b.g->n_ops, t.use + 2 + n_fill);
        for (int k = 1; k <= n_fill; k++) {
            assert_int_equal(t.b.g->op[t.use + k].kind, BK_OP_fill);
            assert_int_equal(t.b.g->op[t.use + k].scope, BK_MICRO);
        }
        check_differences(&t, 0);
        check_differences(&t, 5);
        grad_close(&t);
    }
}

/* The last parameters of an op may be frozen alone: their gradients are dropped, the others stay the same. */
static void test_mhc__frozen_bias(void **state)
{
    (void)state;
    grad_bench whole = grad_open(map, BK_F64, 7, false);
    bench b = bench_open(BK_F64);
    map(&b);
    const bk_oid use = bench_last(&b);
    const bk_op op = b.g->op[use];
    bk_vid in[11], acc[4], dx;
    for (int k = 0; k < 3; k++) {
        in[k] = bench_value(&b, "dh", BK_ACTIVATION, BK_F64, b.g->value[bk_outs(b.g, &op)[k]].rank,
                            (const int64_t[]){S, B, N, N});
        bench_wave(&b, in[k], 0.3 + k);
    }
    for (int k = 0; k < 6; k++) in[3 + k] = bk_ins(b.g, &op)[k];
    in[9] = bk_outs(b.g, &op)[3], in[10] = bk_outs(b.g, &op)[4];
    acc[0] = GRADIENT(&b, "dW", ROWS, K);
    for (int k = 1; k < 4; k++) acc[k] = GRADIENT(&b, "dalpha", 1);
    expect_op(&dx, &b, .kind = BK_OP_mhc_map_grad, .in = in, .n_in = 11, .upd = acc, .n_upd = 4,
              .attr = {{.i = 3}});
    bench_run_counted(&b, use, 0);
    bench_run_counted(&b, use + 1, ~0u);
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < bk_elements(&b.g->value[acc[k]]); i++)
            assert_true(bench_get(&b, acc[k], i) == bench_get(&whole.b, grad_of_input(&whole, 1 + k), i));
    bench_close(&b);
    grad_close(&whole);
}

static void test_mhc__refuses_streams_that_do_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid h = ACT(&b, "h", S, B, C), x = ACT(&b, "x", S, B, N, C), x17 = ACT(&b, "x17", S, B, 17, C),
                 h_pre = ACT(&b, "h_pre", S, B, N), short_pre = ACT(&b, "short_pre", S, B, N - 1);
    expect_refused(&b, "streams is 0", .kind = BK_OP_mhc_expand, IN(h));
    expect_refused(&b, "streams is 17", .kind = BK_OP_mhc_expand, IN(h), .attr = {{.i = 17}});
    expect_refused(&b, "expected 3", .kind = BK_OP_mhc_expand, IN(x), .attr = {{.i = N}});
    expect_refused(&b, "streams [S, B, n, C]", .kind = BK_OP_mhc_expand_grad, IN(h));
    expect_refused(&b, "expected 1 to 16", .kind = BK_OP_mhc_expand_grad, IN(x17));
    expect_refused(&b, "expected 1 to 16", .kind = BK_OP_mhc_aggregate, IN(x17, h_pre));
    expect_refused(&b, "short_pre", .kind = BK_OP_mhc_aggregate, IN(x, short_pre));
    expect_refused(&b, "streams [S, B, n, C]", .kind = BK_OP_mhc_aggregate_grad, IN(h, h, h_pre));
    bench_close(&b);
}

static void test_mhc__refuses_parameters_that_do_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid x = ACT(&b, "x", S, B, N, C), W = PARAM(&b, "W", ROWS, K), a = PARAM(&b, "alpha", 1),
                 two = PARAM(&b, "two", 2), bias = PARAM(&b, "bias", ROWS),
                 narrow = PARAM(&b, "narrow", N, C), V = PARAM(&b, "V", N, K), base = PARAM(&b, "base", N);
    expect_refused(&b, "W [n*n + 2n, n*C]", .kind = BK_OP_mhc_map, IN(x, V, a, a, a, bias),
                   .attr = {{.i = 3}});
    expect_refused(&b, "dim 0 must be 1", .kind = BK_OP_mhc_map, IN(x, W, a, two, a, bias),
                   .attr = {{.i = 3}});
    expect_refused(&b, "dim 0 must be 15", .kind = BK_OP_mhc_map, IN(x, W, a, a, a, base),
                   .attr = {{.i = 3}});
    expect_refused(&b, "iterations is 0", .kind = BK_OP_mhc_map, IN(x, W, a, a, a, bias));
    expect_refused(&b, "V [n, n*C]", .kind = BK_OP_mhc_contract, IN(x, narrow, base, a));
    expect_refused(&b, "dim 0 must be 3", .kind = BK_OP_mhc_contract, IN(x, V, two, a));
    bench_close(&b);
}

static void test_mhc__refuses_a_post_that_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const post_inputs v = post_values(&b);
    const bk_vid wide = ACT(&b, "wide", S, B, C + 1), flat = ACT(&b, "flat", S, B, N, N + 1);
    expect_refused(&b, "wide", .kind = BK_OP_mhc_post, IN(v.x, v.h_res, v.h_post, wide));
    expect_refused(&b, "flat", .kind = BK_OP_mhc_post, IN(v.x, flat, v.h_post, v.y));
    expect_refused(&b, "sample numbers", .kind = BK_OP_mhc_post, IN(v.x, v.h_res, v.h_post, v.y),
                   .attr = {{.f = 0.5}});
    expect_refused(&b, "p is -0.5", .kind = BK_OP_mhc_post, IN(v.x, v.h_res, v.h_post, v.y),
                   .attr = {{.f = -0.5}});
    bench_close(&b);
}

/* Split tokens give partial sums for parameters; the map needs whole channels. */
static void test_mhc__spread(void **state)
{
    (void)state;
    bench storage = bench_open(BK_F32), *b = &storage;
    b->g->axis_size[BK_AXIS_TP] = 2;
    const bk_vid x = ACT(b, "x", S, B, N, C), W = PARAM(b, "W", ROWS, K), a = PARAM(b, "alpha", 1),
                 bias = PARAM(b, "bias", ROWS), acc = GRADIENT(b, "dW", ROWS, K);
    bk_vid h[5], dx;
    b->g->value[x].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0};
    expect_op(h, b, .kind = BK_OP_mhc_map, IN(x, W, a, a, a, bias), .attr = {{.i = 3}});
    for (int k = 0; k < 5; k++) assert_int_equal(b->g->value[h[k]].spread[BK_AXIS_TP].kind, BK_SPLIT);
    expect_op(&dx, b, .kind = BK_OP_mhc_map_grad, IN(h[0], h[1], h[2], x, W, a, a, a, bias, h[3], h[4]),
              UPD(acc), .attr = {{.i = 3}});
    assert_int_equal(b->g->value[dx].spread[BK_AXIS_TP].kind, BK_SPLIT);
    assert_int_equal(b->g->value[acc].spread[BK_AXIS_TP].kind, BK_PARTIAL);
    b->g->value[x].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 3};
    expect_refused(b, "needs all of it", .kind = BK_OP_mhc_map, IN(x, W, a, a, a, bias), .attr = {{.i = 3}});
    bench_close(b);
}

/* x_next of a sublayer whose work is a norm alone. */
static bk_vid sublayer(bench *b, bk_vid x)
{
    const bk_vid W = PARAM(b, "W", ROWS, K), pre = PARAM(b, "alpha_pre", 1),
                 post_ = PARAM(b, "alpha_post", 1), res = PARAM(b, "alpha_res", 1),
                 bias = PARAM(b, "bias", ROWS), gamma = PARAM(b, "gamma", C);
    bk_vid h[5], a, y[2], next;
    expect_op(h, b, .kind = BK_OP_mhc_map, IN(x, W, pre, post_, res, bias), .attr = {{.i = 3}});
    expect_op(&a, b, .kind = BK_OP_mhc_aggregate, IN(x, h[0]));
    expect_op(y, b, .kind = BK_OP_rmsnorm, IN(a, gamma), .attr = {{.f = 1e-5}});
    expect_op(&next, b, .kind = BK_OP_mhc_post, IN(x, h[2], h[1], y[0]));
    return next;
}

/* The sum over elements of <the contraction, seed> after all ops have run. */
static double loss_of_all(bench *b, bk_vid seed)
{
    bk_vid h = BK_NONE;
    for (bk_oid o = 0; o < b->g->n_ops; o++) {
        bench_run_counted(b, o, ~0u);
        if (b->g->op[o].kind == BK_OP_mhc_contract) h = bk_outs(b->g, &b->g->op[o])[0];
    }
    double loss = 0;
    for (int64_t i = 0; i < S * B * C; i++) loss += bench_get(b, h, i) * bench_get(b, seed, i);
    return loss;
}

/* x between two sublayers has three readers; the passes sum their gradients in place. */
static void test_mhc__sublayers_through_the_passes(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    bk_err e;
    const bk_vid h = INPUT(&b, "h", BK_F64, S, B, C), seed = INPUT(&b, "seed", BK_F64, S, B, C);
    bk_vid x, out[4];
    expect_op(&x, &b, .kind = BK_OP_mhc_expand, IN(h), .attr = {{.i = N}});
    x = sublayer(&b, sublayer(&b, x));
    const bk_vid V = PARAM(&b, "V", N, K), base = PARAM(&b, "base", N), scale = PARAM(&b, "scale", 1);
    expect_op(out, &b, .kind = BK_OP_mhc_contract, IN(x, V, base, scale), .attr = {{.f = 1e-5}});
    assert_int_equal(bk_pass_autodiff(b.g, &(bk_seed){out[0], seed}, 1, &e), BK_OK);
    assert_int_equal(bk_pass_accumulate(b.g, &e), BK_OK);
    int folded = 0;
    for (bk_oid o = 0; o < b.g->n_ops; o++) {
        folded += b.g->op[o].folded;
        assert_int_not_equal(b.g->op[o].kind, BK_OP_add_n);
    }
    assert_int_equal(folded, 2); /* of three terms, the second and the third */
    assert_int_equal(b.g->n_terms, 15);
    bench_wave(&b, bk_value_find(b.g, BK_INPUT, "h"), 0.1);
    const bk_vid seeded = bk_value_find(b.g, BK_INPUT, "seed");
    bench_wave(&b, seeded, 0.9);
    for (bk_pid p = 0; p < b.g->n_params; p++) bench_wave(&b, b.g->param[p].value, 0.4 + 0.2 * p);
    for (bk_pid p = 0; p < b.g->n_params; p++) {
        const bk_vid v = b.g->param[p].value;
        const int64_t last = bk_elements(&b.g->value[v]) - 1; /* one element of each parameter */
        const double was = bench_get(&b, v, last), step = 1e-5;
        bench_put(&b, v, last, was + step);
        const double up = loss_of_all(&b, seeded);
        bench_put(&b, v, last, was - step);
        const double down = loss_of_all(&b, seeded);
        bench_put(&b, v, last, was);
        loss_of_all(&b, seeded);
        /* Tolerance as in check_differences. */
        const double want = (up - down) / (2 * step), got = bench_get(&b, b.g->param[p].grad, last);
        if (!(fabs(got - want) <= 3e-8 * (1 + fabs(want))))
            fail_msg("parameter %d %s: gradient %.12g, difference %.12g", p, b.g->param[p].name, got, want);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mhc__gradient_is_that_of_the_op),
        cmocka_unit_test(test_mhc__nothing_flows),
        cmocka_unit_test(test_mhc__map_with_an_unused_output),
        cmocka_unit_test(test_mhc__frozen_bias),
        cmocka_unit_test(test_mhc__refuses_streams_that_do_not_fit),
        cmocka_unit_test(test_mhc__refuses_parameters_that_do_not_fit),
        cmocka_unit_test(test_mhc__refuses_a_post_that_does_not_fit),
        cmocka_unit_test(test_mhc__spread),
        cmocka_unit_test(test_mhc__sublayers_through_the_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
