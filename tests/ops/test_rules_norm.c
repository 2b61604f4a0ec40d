/* The rules of rmsnorm and layernorm. */
#include "ops/grad_bench.h"

static void rmsnorm(bench *b)
{
    const bk_vid x = ACT(b, "x", 3, 2, 8), gamma = PARAM(b, "gamma", 8);
    bk_vid y[2];
    bench_wave(b, x, 0.1), bench_wave(b, gamma, 0.7);
    expect_op(y, b, .kind = BK_OP_rmsnorm, IN(x, gamma), .attr = {{.f = 1e-5}});
}

/* A norm of each stream. */
static void rmsnorm_streams(bench *b)
{
    const bk_vid x = ACT(b, "x", 3, 1, 2, 5), gamma = PARAM(b, "gamma", 5);
    bk_vid y[2];
    bench_wave(b, x, 0.4), bench_wave(b, gamma, 0.2);
    expect_op(y, b, .kind = BK_OP_rmsnorm, IN(x, gamma), .attr = {{.f = 1e-5}});
    assert_int_equal(b->g->value[y[1]].rank, 3);
}

static void layernorm(bench *b)
{
    const bk_vid x = ACT(b, "x", 3, 2, 8), gamma = PARAM(b, "gamma", 8), beta = PARAM(b, "beta", 8);
    bk_vid y[3];
    bench_wave(b, x, 0.1), bench_wave(b, gamma, 0.7), bench_wave(b, beta, 0.9);
    expect_op(y, b, .kind = BK_OP_layernorm, IN(x, gamma, beta), .attr = {{.f = 1e-5}});
}

static void test_norm__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    check_op(rmsnorm, 1, 3);
    check_op(rmsnorm_streams, 1, 3);
    check_op(layernorm, 1, 7);
    check_nothing_flows(rmsnorm);
    check_nothing_flows(layernorm);
}

/* Two parameters of one op, one at its first term of the step and one not. */
static void test_norm__updates_assign_each_for_itself(void **state)
{
    (void)state;
    grad_bench t = grad_open(layernorm, BK_F64, 1, false);
    const bk_vid dgamma = grad_of_input(&t, 1), dbeta = grad_of_input(&t, 2);
    double gamma_once[8], beta_once[8];
    for (int i = 0; i < 8; i++)
        gamma_once[i] = bench_get(&t.b, dgamma, i), beta_once[i] = bench_get(&t.b, dbeta, i);
    bench_run_counted(&t.b, t.use + 1, 1); /* writes dgamma, adds to dbeta */
    for (int i = 0; i < 8; i++) {
        assert_true(bench_get(&t.b, dgamma, i) == gamma_once[i]);
        /* The six terms are added to the old sum one after the other: a few roundings. */
        assert_true(fabs(bench_get(&t.b, dbeta, i) - 2 * beta_once[i]) < 1e-14);
    }
    grad_close(&t);
}

static void test_norm__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid x = ACT(&b, "x", 3, 2, 8), row = ACT(&b, "row", 8), g8 = PARAM(&b, "g8", 8),
                 g4 = PARAM(&b, "g4", 4);
    expect_refused(&b, "dim 0 must be 8", .kind = BK_OP_rmsnorm, IN(x, g4));
    expect_refused(&b, "at least 2", .kind = BK_OP_rmsnorm, IN(row, g8));
    expect_refused(&b, "dim 0 must be 8", .kind = BK_OP_layernorm, IN(x, g8, g4));
    expect_refused(&b, "at least 2", .kind = BK_OP_layernorm_grad, IN(row, row, g8, row, row));
    bench_close(&b);
}

/* Tokens may be split, the width not; gradients of parameters are then partial sums. */
static void test_norm__spread(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    b.g->axis_size[BK_AXIS_TP] = 2;
    const bk_vid x = ACT(&b, "x", 3, 2, 8), g8 = PARAM(&b, "g8", 8), acc = GRADIENT(&b, "acc", 8);
    bk_vid y[2], dx;
    b.g->value[x].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0};
    expect_op(y, &b, .kind = BK_OP_rmsnorm, IN(x, g8));
    assert_int_equal(b.g->value[y[0]].spread[BK_AXIS_TP].kind, BK_SPLIT);
    assert_int_equal(b.g->value[y[1]].spread[BK_AXIS_TP].kind, BK_SPLIT);
    expect_op(&dx, &b, .kind = BK_OP_rmsnorm_grad, IN(y[0], x, g8, y[1]), UPD(acc));
    assert_int_equal(b.g->value[dx].spread[BK_AXIS_TP].kind, BK_SPLIT);
    assert_int_equal(b.g->value[acc].spread[BK_AXIS_TP].kind, BK_PARTIAL);
    b.g->value[x].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 2};
    expect_refused(&b, "needs all of it", .kind = BK_OP_rmsnorm, IN(x, g8));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm__gradient_is_that_of_the_op),
        cmocka_unit_test(test_norm__updates_assign_each_for_itself),
        cmocka_unit_test(test_norm__refuses_what_does_not_fit),
        cmocka_unit_test(test_norm__spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
