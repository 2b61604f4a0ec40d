#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/kernel_check.h"
#define BK_BOTH "ops/elementwise/elementwise_cpu.h"
#include "base/real_both.h"

enum { S = 13, B = 3, C = 131, N = S * B * C, LONG = 50001 };
static const int64_t samples[B] = {4, INT64_C(7) << 32, 9};
static const bk_rng_key key = {{11, 12}};

static double factor(double p, int t, int c)
{
    uint32_t words[4];
    bk_rng_block(words, key, (uint64_t)samples[t % B], (uint32_t)(t / B), (uint32_t)c / 4);
    return words[c % 4] >= bk_dropout_threshold(p) ? 1 / (1 - p) : 0;
}

static void test_elementwise__sums_and_copies(void **state)
{
    (void)state;
    double *a = random_f64(LONG, 1), *b = random_f64(LONG, 2), *c = random_f64(LONG, 3),
           *y = random_f64(LONG, 4);
    const double *in[3] = {a, b, c};
    bk_add_n_f64(y, in, 3, LONG);
    for (int i = 0; i < LONG; i++) assert_true(y[i] == a[i] + b[i] + c[i]);
    memcpy(y, c, sizeof *c * LONG), in[2] = y, bk_add_n_f64(y, in, 3, LONG); /* out is the last input */
    for (int i = 0; i < LONG; i++) assert_true(y[i] == a[i] + b[i] + c[i]);
    bk_copy_f64(y, a, LONG), assert_memory_equal(y, a, sizeof *a * LONG);
    bk_acc_f64(y, b, LONG, 1);
    for (int i = 0; i < LONG; i++) assert_true(y[i] == a[i] + b[i]);
    bk_acc_f64(y, b, LONG, 0), assert_memory_equal(y, b, sizeof *b * LONG);
    bk_fill_f64(y, LONG, 0.25);
    for (int i = 0; i < LONG; i++) assert_true(y[i] == 0.25);
    bk_scale_f64(y, a, LONG, 3, 0);
    for (int i = 0; i < LONG; i++) assert_true(y[i] == 3 * a[i]);
    bk_fill_f64(y, LONG, 1), bk_scale_f64(y, a, LONG, 2, 1);
    for (int i = 0; i < LONG; i++)
        assert_true(y[i] == 1 + 2 * a[i]); /* 2 a is exact, so fused or not is equal */
    bk_add_n_f64(NULL, in, 3, 0), bk_fill_f64(NULL, 0, 1), bk_copy_f64(NULL, NULL, 0);
    free(a), free(b), free(c), free(y);
}

static void test_elementwise__dropout_draws_by_sample_position_and_element(void **state)
{
    (void)state;
    double *x = random_f64(N, 1), y[N], first[N];
    float *x32 = to_f32(x, N), y32[N];
    int kept = 0;
    bk_dropout_fwd_f64(first, x, key, samples, S, B, C, 0.3),
        bk_dropout_fwd_f32(y32, x32, key, samples, S, B, C, 0.3);
    for (int i = 0; i < N; i++) {
        const double f = factor(0.3, i / C, i % C);
        assert_true(first[i] == x[i] * f && fabs((double)y32[i] - first[i]) <= 2e-7);
        kept += f > 0;
    }
    assert_true(kept > N * 0.65 &&
                kept < N * 0.75); /* 0.7 N with a deviation of 33: seven of them each way */
    WITH_THREADS({
        bk_dropout_fwd_f64(y, x, key, samples, S, B, C, 0.3), assert_memory_equal(y, first, sizeof y);
        bk_dropout_bwd_f64(y, x, key, samples, S, B, C, 0.3, 0), assert_memory_equal(y, first, sizeof y);
    });
    bk_dropout_bwd_f64(y, x, key, samples, S, B, C, 0.3, 1);
    for (int i = 0; i < N; i++) assert_true(y[i] == 2 * first[i]);
    bk_dropout_fwd_f64(y, x, key, NULL, S, B, C, 0), assert_memory_equal(y, x, sizeof y);
    memcpy(y, x, sizeof y), bk_dropout_fwd_f64(y, y, key, samples, S, B, C, 0.3);
    assert_memory_equal(y, first, sizeof y);
    bk_dropout_fwd_f64(NULL, NULL, key, samples, 0, B, C, 0.3);
    free(x), free(x32);
}

static void test_elementwise__residual_add(void **state)
{
    (void)state;
    double *res = random_f64(N, 1), *y = random_f64(N, 2), *bias = random_f64(C, 3), out[N];
    for (int mode = 0; mode < 4; mode++) {
        const double p = mode & 1 ? 0.2 : 0, *b = mode & 2 ? bias : NULL;
        bk_residual_add_fwd_f64(out, res, y, b, key, samples, S, B, C, p);
        for (int i = 0; i < N; i++) {
            const double want = res[i] + (y[i] + (b ? b[i % C] : 0)) * (p > 0 ? factor(p, i / C, i % C) : 1);
            assert_true(fabs(out[i] - want) < 2e-15); /* up to 4, rounded three times */
        }
        bk_residual_add_fwd_f64(y, res, y, b, key, samples, S, B, C, p),
            assert_memory_equal(y, out, sizeof out);
    }
    free(res), free(y), free(bias);
}

typedef struct {
    double *res, *y, *bias, *g, p, out[N];
} problem;

static double weighted(void *context)
{
    problem *x = context;
    bk_residual_add_fwd_f64(x->out, x->res, x->y, x->bias, key, samples, S, B, C, x->p);
    return dot(x->out, x->g, N);
}

static void test_elementwise__residual_gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    problem x = {
        .res = random_f64(N, 1), .y = random_f64(N, 2), .bias = random_f64(C, 3), .g = random_f64(N, 4)};
    for (int dropped = 0; dropped < 2; dropped++) {
        double dy[N], dbias[C], twice[N], twice_bias[C];
        x.p = 0.2 * dropped;
        bk_residual_add_bwd_f64(dy, dbias, x.g, key, samples, S, B, C, x.p, 0, 0);
        check_gradient(weighted, &x, x.y, dy, N, 7), check_gradient(weighted, &x, x.bias, dbias, C, 1);
        memcpy(twice, dy, sizeof dy), memcpy(twice_bias, dbias, sizeof dbias);
        bk_residual_add_bwd_f64(twice, twice_bias, x.g, key, samples, S, B, C, x.p, 1, 1);
        for (int i = 0; i < N; i++) twice[i] /= 2;
        for (int i = 0; i < C; i++) twice_bias[i] /= 2;
        check_near(twice, dy, N, 1e-15), check_near(twice_bias, dbias, C, 1e-15);
        double again[C];
        WITH_THREADS({ /* and with dy on g, or absent */
                       memcpy(twice, x.g, sizeof twice);
                       bk_residual_add_bwd_f64(twice, again, twice, key, samples, S, B, C, x.p, 0, 0);
                       assert_memory_equal(twice, dy, sizeof dy),
                           assert_memory_equal(again, dbias, sizeof dbias);
                       bk_residual_add_bwd_f64(NULL, again, x.g, key, samples, S, B, C, x.p, 0, 0);
                       assert_memory_equal(again, dbias, sizeof dbias);
        });
    }
    free(x.res), free(x.y), free(x.bias), free(x.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise__sums_and_copies),
        cmocka_unit_test(test_elementwise__dropout_draws_by_sample_position_and_element),
        cmocka_unit_test(test_elementwise__residual_add),
        cmocka_unit_test(test_elementwise__residual_gradients_agree_with_finite_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
