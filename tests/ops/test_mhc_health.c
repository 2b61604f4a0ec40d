/* What mhc_health measures of mixing matrices and streams. */
#include "ops/grad_bench.h"
#include "ops/kernel_check.h"

#define BK_BOTH "ops/mhc/mhc_health_cpu.h"
#include "base/real_both.h"

/* All tokens have the matrix h [n, n] and streams x [n, C]. */
static void measure(double *worst, double *mean, int64_t T, int64_t n, int64_t C, const double *h,
                    const double *x)
{
    double *all_h = workspace(8 * T * n * n), *all_x = workspace(8 * T * n * C);
    double *work = workspace(8 * T * (4 + n));
    for (int64_t i = 0; i < T * n * n; i++) all_h[i] = h[i % (n * n)];
    for (int64_t i = 0; i < T * n * C; i++) all_x[i] = x[i % (n * C)];
    worst[0] = worst[1] = (double)NAN;
    for (int64_t k = 0; k < 2 + n; k++) mean[k] = (double)NAN;
    bk_mhc_health_f64(worst, mean, all_h, all_x, work, T, n, C);
    free(all_h), free(all_x), free(work);
}

static void expect(const double *got, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("figure %lld is %.17g, not %.17g", (long long)i, got[i], want[i]);
}

/* Rows are the sums over dst, which is the fastest: 3/4 and 1; columns 1/2 and 5/4. */
static void test_mhc_health__rows_and_columns_are_not_confused(void **state)
{
    (void)state;
    const double h[4] = {0.25, 0.5, 0.25, 0.75}, x[4] = {3, 4, 0, -2};
    double worst[2], mean[4];
    for (int64_t T = 1; T <= 4; T *= 2) {
        measure(worst, mean, T, 2, 2, h, x);
        expect(worst, (double[]){0.25, 0.5}, 2);
        /* h - I = -3/4 1/2 | 1/4 -1/4, h - 1/2 = -1/4 0 | -1/4 1/4. */
        expect(mean, (double[]){sqrt(0.9375), sqrt(0.1875), 5, 2}, 4);
    }
}

static void test_mhc_health__identity_and_uniform_are_sqrt_of_n_less_1_apart(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 4; n++) {
        double identity[16] = {0}, uniform[16], x[4 * 3], worst[2], mean[6];
        for (int64_t i = 0; i < n * n; i++) identity[i] = i % (n + 1) == 0, uniform[i] = 1 / (double)n;
        for (int64_t i = 0; i < n * 3; i++) x[i] = i % 3 == 1 ? (double)(i / 3) - 1 : 0;
        measure(worst, mean, 3, n, 3, identity, x);
        expect(worst, (double[]){0, 0}, 2);
        assert_true(mean[0] == 0 && fabs(mean[1] - sqrt((double)n - 1)) < 1e-15);
        expect(mean + 2, (double[]){1, 0, 1, 2}, n);
        measure(worst, mean, 3, n, 3, uniform, x);
        assert_true(worst[0] < 1e-15 && worst[1] < 1e-15);
        assert_true(mean[1] == 0 && fabs(mean[0] - sqrt((double)n - 1)) < 1e-15);
    }
}

/* The worst token counts, whichever it is; of distances and norms the mean does. */
static void test_mhc_health__worst_and_mean_over_tokens(void **state)
{
    (void)state;
    const double h[3] = {1, 1.5, 0.75}, x[6] = {3, 4, 0, 0, 0, -1};
    double worst[2], mean[3], work[15];
    bk_mhc_health_f64(worst, mean, h, x, work, 3, 1, 2);
    expect(worst, (double[]){0.5, 0.5}, 2);
    expect(mean, (double[]){0.25, 0.25, 2}, 3);
}

static void test_mhc_health__no_tokens(void **state)
{
    (void)state;
    double worst[2], mean[6];
    for (int64_t n = 1; n <= 4; n++) {
        measure(worst, mean, 0, n, 5, NULL, NULL);
        expect(worst, (double[]){0, 0}, 2);
        expect(mean, (double[6]){0}, 2 + n);
    }
}

/* What is no number is not passed over, wherever it stands among numbers. */
static void test_mhc_health__shows_a_nan(void **state)
{
    (void)state;
    for (int at = 0; at < 12; at++) {
        double h[12] = {1, 0, 0, 1, 0.25, 0, 0, 1, 1, 0, 0, 0.5}, x[6] = {0}, worst[2], mean[4], work[18];
        h[at] = (double)NAN;
        bk_mhc_health_f64(worst, mean, h, x, work, 3, 2, 1);
        assert_true(isnan(worst[0]) && isnan(worst[1]) && isnan(mean[0]) && isnan(mean[1]));
        assert_true(mean[2] == 0 && mean[3] == 0);
    }
    double h[8] = {1, 0, 0, 1, 1, 0, 0, 1}, x[4] = {0, 1, 0, (double)NAN}, worst[2], mean[4], work[12];
    bk_mhc_health_f64(worst, mean, h, x, work, 2, 2, 1);
    assert_true(worst[0] == 0 && mean[0] == 0 && mean[2] == 0 && isnan(mean[3]));
}

static void test_mhc_health__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    enum { T = 301, N = 4, C = 67 };
    double *h64 = random_f64(T * N * N, 1), *x64 = random_f64(T * N * C, 2);
    float *h = to_f32(h64, T * N * N), *x = to_f32(x64, T * N * C);
    double *work = workspace(8 * T * (4 + N));
    float first[2 + 2 + N], again[2 + 2 + N];
    WITH_THREADS({
        float *to = n_threads == 1 ? first : again;
        bk_mhc_health_f32(to, to + 2, h, x, work, T, N, C);
        assert_memory_equal(to, first, sizeof first);
    });
    assert_true(first[0] > 0.5F && first[2] > 1 && first[4] > 1);
    free(h64), free(x64), free(h), free(x), free(work);
}

static void build(bench *b)
{
    const bk_vid h_res = ACT(b, "h_res", 3, 2, 3, 3), x = ACT(b, "x", 3, 2, 3, 5);
    bk_vid out[2];
    bench_wave(b, h_res, 0.2), bench_wave(b, x, 0.1);
    expect_op(out, b, .kind = BK_OP_mhc_health, IN(h_res, x));
    assert_int_equal(bk_elements(&b->g->value[out[0]]), 2);
    assert_int_equal(bk_elements(&b->g->value[out[1]]), 5);
}

/* The op hands the kernel what it needs, in either precision, and costs no multiply-adds. */
static void test_mhc_health__as_an_op(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        bench b = bench_open(k ? BK_F64 : BK_F32);
        build(&b);
        bench_run_counted(&b, bench_last(&b), 0);
        const bk_vid *out = bk_outs(b.g, &b.g->op[0]);
        double row = 0, norm = 0;
        for (int t = 0; t < 6; t++) {
            double stream = 0;
            for (int src = 0; src < 3; src++) {
                double sum = -1;
                for (int dst = 0; dst < 3; dst++) sum += sin(1.7 * (9 * t + 3 * src + dst) + 0.2);
                row = fmax(row, fabs(sum));
            }
            for (int c = 0; c < 5; c++) stream += pow(sin(1.7 * (15 * t + 10 + c) + 0.1), 2);
            norm += sqrt(stream) / 6;
        }
        assert_true(fabs(bench_get(&b, out[0], 0) - row) < (k ? 1e-14 : 1e-6));
        assert_true(fabs(bench_get(&b, out[1], 4) - norm) < (k ? 1e-14 : 1e-6));
        bench_close(&b);
    }
}

static void test_mhc_health__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid x = ACT(&b, "x", 3, 2, 3, 5), wide = ACT(&b, "wide", 3, 2, 17, 5),
                 h_res = ACT(&b, "h_res", 3, 2, 3, 3), narrow = ACT(&b, "narrow", 3, 2, 3, 2),
                 whole = INPUT(&b, "whole", BK_I32, 3, 2, 3, 3);
    expect_refused(&b, "h_res [S, B, n, n]", .kind = BK_OP_mhc_health, IN(narrow, x));
    expect_refused(&b, "expected 1 to 16", .kind = BK_OP_mhc_health, IN(h_res, wide));
    expect_refused(&b, "whole", .kind = BK_OP_mhc_health, IN(whole, x));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mhc_health__rows_and_columns_are_not_confused),
        cmocka_unit_test(test_mhc_health__identity_and_uniform_are_sqrt_of_n_less_1_apart),
        cmocka_unit_test(test_mhc_health__worst_and_mean_over_tokens),
        cmocka_unit_test(test_mhc_health__no_tokens),
        cmocka_unit_test(test_mhc_health__shows_a_nan),
        cmocka_unit_test(test_mhc_health__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_mhc_health__as_an_op),
        cmocka_unit_test(test_mhc_health__refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
