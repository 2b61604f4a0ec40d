#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/kernel_check.h"
#define BK_BOTH "ops/optimizer/optimizer_cpu.h"
#include "base/real_both.h"

enum { N = 40001 };

static void test_optimizer__sum_of_squares(void **state)
{
    (void)state;
    enum { LONG = 16384 * 256 + 16385 }; /* passes from one round of partial sums to the next */
    double *g = random_f64(LONG, 1);
    float *g32 = to_f32(g, LONG);
    long double want = 0;
    for (int i = 0; i < LONG; i++) want += (long double)g32[i] * (long double)g32[i];
    const double first = bk_sumsq_f32(g32, LONG);
    assert_true(fabsl((long double)first / want - 1) < 1e-13L);
    WITH_THREADS(assert_true(bk_sumsq_f32(g32, LONG) == first));
    assert_true(bk_sumsq_f64(g, 0) == 0 && bk_sumsq_f64(g, 1) == g[0] * g[0]);
    free(g), free(g32);
}

static void test_optimizer__clip_coefficient(void **state)
{
    (void)state;
    assert_true(bk_clip_coef_f32(2, 1) == 1 / (2 + 1e-6));
    assert_true(bk_clip_coef_f32(1, 1) == 1 / (1 + 1e-6)); /* a norm at the limit is scaled too */
    assert_true(bk_clip_coef_f32(0.5, 1) == 1 && bk_clip_coef_f64(100, 0) == 1 &&
                bk_clip_coef_f64(0, 1) == 1);
}

static const double lr = 3e-3, b1 = 0.9, b2 = 0.95, eps = 1e-4, wd = 0.1, coef = 0.7;

static void test_optimizer__adamw_is_the_formula(void **state)
{
    (void)state;
    double *p = random_f64(N, 1), *g = random_f64(N, 2), *m = random_f64(N, 3), *v = random_f64(N, 4);
    double *wp = random_f64(N, 1), *wm = random_f64(N, 3), *wv = random_f64(N, 4);
    for (int i = 0; i < N; i++) m[i] = v[i] = wm[i] = wv[i] = 0;
    float *p32 = to_f32(p, N), *g32 = to_f32(g, N), *m32 = to_f32(m, N), *v32 = to_f32(v, N);
    for (int t = 1; t <= 3; t++) {
        for (int i = 0; i < N; i++) {
            const double x = coef * g[i];
            wm[i] = b1 * wm[i] + (1 - b1) * x, wv[i] = b2 * wv[i] + (1 - b2) * x * x;
            const double mhat = wm[i] / (1 - pow(b1, t)), vhat = wv[i] / (1 - pow(b2, t));
            wp[i] -= lr * (mhat / (sqrt(vhat) + eps) + wd * wp[i]);
        }
        bk_adamw_f64(p, m, v, g, N, lr, b1, b2, eps, wd, t, coef, true);
        bk_adamw_f32(p32, m32, v32, g32, N, lr, b1, b2, eps, wd, t, coef, true);
        check_near(p, wp, N, 1e-15), check_near(m, wm, N, 1e-15), check_near(v, wv, N, 1e-15);
        check_near_f32(p32, wp, N, 2e-7), check_near_f32(m32, wm, N, 2e-7), check_near_f32(v32, wv, N, 2e-7);
    }
    free(p), free(g), free(m), free(v), free(wp), free(wm), free(wv), free(p32), free(g32), free(m32),
        free(v32);
}

/* By hand: the first step moves by lr * sign(g) (eps 0), and decay by lr * wd * p, whatever the size of g. */
static void test_optimizer__first_step(void **state)
{
    (void)state;
    double p[2] = {1, -2}, m[2] = {0}, v[2] = {0};
    const double g[2] = {1e-3, -50}, want[2] = {1 - 0.1 * (1 + 0.5), -2 - 0.1 * (-1 - 1)};
    bk_adamw_f64(p, m, v, g, 2, 0.1, 0.9, 0.999, 0, 0.5, 1, 1, true);
    check_near(p, want, 2, 1e-13);
}

static void test_optimizer__skipped_step_changes_nothing(void **state)
{
    (void)state;
    double p = 1, m = 2, v = 3;
    const double g = (double)NAN;
    bk_adamw_f64(&p, &m, &v, &g, 1, lr, b1, b2, eps, wd, 1, coef, false);
    assert_true(p == 1 && m == 2 && v == 3);
}

static void test_optimizer__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    double *g = random_f64(N, 2), *p = random_f64(N, 1), *m = random_f64(N, 3), *v = random_f64(N, 4);
    double *first = random_f64(N, 1);
    for (int i = 0; i < N; i++) m[i] = v[i] = 0;
    bk_adamw_f64(first, m, v, g, N, lr, b1, b2, eps, wd, 1, coef, true);
    WITH_THREADS({
        for (int i = 0; i < N; i++) m[i] = v[i] = 0, p[i] = draw(1, i);
        bk_adamw_f64(p, m, v, g, N, lr, b1, b2, eps, wd, 1, coef, true);
        assert_memory_equal(p, first, sizeof *p * N);
    });
    free(g), free(p), free(m), free(v), free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizer__sum_of_squares),
        cmocka_unit_test(test_optimizer__clip_coefficient),
        cmocka_unit_test(test_optimizer__adamw_is_the_formula),
        cmocka_unit_test(test_optimizer__first_step),
        cmocka_unit_test(test_optimizer__skipped_step_changes_nothing),
        cmocka_unit_test(test_optimizer__bits_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
