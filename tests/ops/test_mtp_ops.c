/* The ops that multi-token prediction brings: scale, stop, concat, shift. Odd sizes, one token, none. */
#include "ops/grad_bench.h"

static int64_t S, B;

static void scale(bench *b)
{
    const bk_vid x = ACT(b, "x", S, B, 3);
    bk_vid y;
    bench_wave(b, x, 0.2);
    expect_op(&y, b, .kind = BK_OP_scale, IN(x), .attr = {{.f = -2.5}});
}

static void concat(bench *b)
{
    const bk_vid x = ACT(b, "x", S, B, 3), z = ACT(b, "z", S, B, 5);
    bk_vid y;
    bench_wave(b, x, 0.2), bench_wave(b, z, 0.9);
    expect_op(&y, b, .kind = BK_OP_concat, IN(x, z));
}

static void stop(bench *b)
{
    const bk_vid x = ACT(b, "x", S, B, 3);
    bk_vid y;
    bench_wave(b, x, 0.2);
    expect_op(&y, b, .kind = BK_OP_stop, IN(x));
}

static void test_mtp_ops__gradients(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {7, 1}, {1, 3}, {5, 3}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        S = sizes[k][0], B = sizes[k][1];
        check_op(scale, 1, 1);
        check_op(concat, 1, 3);
    }
    check_nothing_flows(scale);
    check_nothing_flows(concat);
}

static void test_mtp_ops__without_a_token(void **state)
{
    (void)state;
    const build_fn all[] = {scale, concat};
    for (int empty = 0; empty < 2; empty++)
        for (int k = 0; k < 2; k++) {
            S = empty ? 0 : 4, B = empty ? 3 : 0;
            grad_bench t = grad_open(all[k], BK_F64, 1, false);
            grad_close(&t);
        }
}

/* Values pass, gradients do not: there is no rule, and the pass that makes gradients ends there. */
static void test_mtp_ops__stop_lets_nothing_back(void **state)
{
    (void)state;
    assert_null(bk_ops[BK_OP_stop].rules->grad);
    for (S = 0; S < 6; S += 5) {
        bench b = bench_open(BK_F64);
        bk_err e;
        B = 3;
        stop(&b);
        assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_OK);
        const bk_op *op = &b.g->op[bench_last(&b)];
        for (int64_t i = 0; i < S * B * 3; i++)
            assert_true(bench_get(&b, bk_outs(b.g, op)[0], i) == bench_get(&b, bk_ins(b.g, op)[0], i));
        bench_close(&b);
    }
}

/* The first part comes first. */
static void test_mtp_ops__concat_puts_the_first_in_front(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    S = 2, B = 1;
    concat(&b);
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_OK);
    const bk_op *op = &b.g->op[bench_last(&b)];
    const bk_vid y = bk_outs(b.g, op)[0], x = bk_ins(b.g, op)[0], z = bk_ins(b.g, op)[1];
    assert_int_equal(b.g->value[y].dim[2].size, 8);
    for (int t = 0; t < 2; t++)
        for (int c = 0; c < 8; c++)
            assert_true(bench_get(&b, y, 8 * t + c) ==
                        (c < 3 ? bench_get(&b, x, 3 * t + c) : bench_get(&b, z, 5 * t + c - 3)));
    bench_close(&b);
}

/* Row b of [B, S] moved left by `by`, zeros from behind, whatever stood in the output. */
static void shift_by(bk_dtype dtype, int64_t n_samples, int64_t n_positions, int64_t by)
{
    bench b = bench_open(BK_F64);
    bk_vid y;
    bk_err e;
    const bk_vid x = INPUT(&b, "x", dtype, n_samples, n_positions);
    expect_op(&y, &b, .kind = BK_OP_shift, IN(x), .attr = {{.i = by}});
    int32_t *ints = bench_data(&b, x), *out = bench_data(&b, y);
    for (int64_t i = 0; i < n_samples * n_positions; i++) {
        if (dtype == BK_I32)
            ints[i] = (int32_t)(100 + i), out[i] = -1;
        else
            bench_put(&b, x, i, 100.5 + (double)i), bench_put(&b, y, i, (double)NAN);
    }
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_OK);
    for (int64_t r = 0; r < n_samples; r++)
        for (int64_t s = 0; s < n_positions; s++) {
            const int64_t at = r * n_positions + s;
            const bool inside = by < n_positions - s;
            if (dtype == BK_I32)
                assert_int_equal(out[at], inside ? 100 + at + by : 0);
            else
                assert_true(bench_get(&b, y, at) == (inside ? 100.5 + (double)(at + by) : 0));
        }
    bench_close(&b);
}

static void test_mtp_ops__shift_fills_with_zeros(void **state)
{
    (void)state;
    static const int64_t by[] = {0, 1, 2, 4, 5, 6, 1000, INT64_MAX};
    for (size_t k = 0; k < sizeof by / sizeof *by; k++) {
        shift_by(BK_I32, 3, 5, by[k]);
        shift_by(BK_F32, 3, 5, by[k]);
        shift_by(BK_F64, 1, 5, by[k]);
        shift_by(BK_I32, 2, 1, by[k]);
        shift_by(BK_F64, 0, 5, by[k]);
        shift_by(BK_F64, 3, 0, by[k]);
    }
}

static void test_mtp_ops__refuse_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid flat = INPUT(&b, "flat", BK_I32, 6), two = INPUT(&b, "two", BK_I32, 2, 3);
    const bk_vid x = ACT(&b, "x", 2, 3, 4), other = ACT(&b, "other", 3, 2, 4);
    expect_refused(&b, "flat", .kind = BK_OP_shift, IN(flat), .attr = {{.i = 1}});
    expect_refused(&b, "by is -1", .kind = BK_OP_shift, IN(two), .attr = {{.i = -1}});
    expect_refused(&b, "other", .kind = BK_OP_concat, IN(x, other));
    expect_refused(&b, "factor is inf", .kind = BK_OP_scale, IN(x), .attr = {{.f = (double)INFINITY}});
    expect_refused(&b, "factor is nan", .kind = BK_OP_scale, IN(x), .attr = {{.f = (double)NAN}});
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mtp_ops__gradients),
        cmocka_unit_test(test_mtp_ops__without_a_token),
        cmocka_unit_test(test_mtp_ops__stop_lets_nothing_back),
        cmocka_unit_test(test_mtp_ops__concat_puts_the_first_in_front),
        cmocka_unit_test(test_mtp_ops__shift_fills_with_zeros),
        cmocka_unit_test(test_mtp_ops__refuse_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
