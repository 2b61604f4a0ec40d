/* The rules of swiglu and gelu. */
#include "ops/grad_bench.h"

static void swiglu(bench *b)
{
    const bk_vid h = ACT(b, "h", 3, 2, 10);
    bk_vid a;
    bench_wave(b, h, 0.1);
    expect_op(&a, b, .kind = BK_OP_swiglu, IN(h));
    assert_int_equal(b->g->value[a].dim[2].size, 5);
}

static void gelu_exact(bench *b)
{
    const bk_vid x = ACT(b, "x", 3, 2, 5);
    bk_vid y;
    bench_wave(b, x, 0.1);
    expect_op(&y, b, .kind = BK_OP_gelu, IN(x));
}

static void gelu_tanh(bench *b)
{
    const bk_vid x = ACT(b, "x", 3, 2, 5);
    bk_vid y;
    bench_wave(b, x, 0.1);
    expect_op(&y, b, .kind = BK_OP_gelu, IN(x), .attr = {{.i = 1}});
}

static void test_mlp__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    check_op(swiglu, 1, 1);
    check_op(gelu_exact, 1, 1);
    check_op(gelu_tanh, 1, 1);
    check_nothing_flows(swiglu);
    check_nothing_flows(gelu_exact);
}

/* silu(1) * 2 and gelu(1); the two forms of gelu differ in the fourth digit. */
static void test_mlp__known_values(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    bk_err e;
    const bk_vid h = ACT(&b, "h", 1, 1, 2), x = ACT(&b, "x", 1);
    bk_vid a, y, t;
    bench_put(&b, h, 0, 1), bench_put(&b, h, 1, 2), bench_put(&b, x, 0, 1);
    expect_op(&a, &b, .kind = BK_OP_swiglu, IN(h));
    expect_op(&y, &b, .kind = BK_OP_gelu, IN(x));
    expect_op(&t, &b, .kind = BK_OP_gelu, IN(x), .attr = {{.i = 1}});
    for (bk_oid o = 0; o < 3; o++) assert_int_equal(bench_run(&b, o, 0, &e), BK_OK);
    assert_true(fabs(bench_get(&b, a, 0) - 1.4621171572600098) < 1e-14);
    assert_true(fabs(bench_get(&b, y, 0) - 0.8413447460685429) < 1e-14);
    assert_true(fabs(bench_get(&b, t, 0) - 0.8411919906082768) < 1e-14);
    bench_close(&b);
}

static void test_mlp__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid odd = ACT(&b, "odd", 3, 2, 5), even = ACT(&b, "even", 3, 2, 4),
                 ids = INPUT(&b, "ids", BK_I32, 2, 4);
    expect_refused(&b, "even width", .kind = BK_OP_swiglu, IN(odd));
    expect_refused(&b, "floating", .kind = BK_OP_swiglu, IN(ids));
    expect_refused(&b, "twice as wide", .kind = BK_OP_swiglu_grad, IN(odd, even));
    expect_refused(&b, "floating", .kind = BK_OP_gelu, IN(ids));
    expect_refused(&b, "does not fit", .kind = BK_OP_gelu_grad, IN(odd, even));
    bench_close(&b);
}

/* The width may be split over ranks, a partial sum must be reduced first. */
static void test_mlp__spread(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    b.g->axis_size[BK_AXIS_TP] = 2;
    const bk_vid h = ACT(&b, "h", 3, 2, 4);
    bk_vid a;
    b.g->value[h].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 2};
    expect_op(&a, &b, .kind = BK_OP_swiglu, IN(h));
    assert_int_equal(b.g->value[a].spread[BK_AXIS_TP].kind, BK_SPLIT);
    assert_int_equal(b.g->value[a].spread[BK_AXIS_TP].dim, 2);
    b.g->value[h].spread[BK_AXIS_TP] = (bk_spread){BK_PARTIAL, 0};
    expect_refused(&b, "partial sum", .kind = BK_OP_swiglu, IN(h));
    expect_refused(&b, "partial sum", .kind = BK_OP_gelu, IN(h));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp__gradient_is_that_of_the_op),
        cmocka_unit_test(test_mlp__known_values),
        cmocka_unit_test(test_mlp__refuses_what_does_not_fit),
        cmocka_unit_test(test_mlp__spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
