#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/kernel_check.h"
#define BK_BOTH "ops/mlp/mlp_cpu.h"
#include "base/real_both.h"

enum { T = 5, F = 11, N = 301 };

typedef struct {
    double *x, *weights, y[N];
    int form; /* 0 swiglu, 1 gelu erf, 2 gelu tanh */
} problem;

static double loss(void *context)
{
    problem *p = context;
    if (p->form == 0) {
        bk_swiglu_fwd_f64(p->y, p->x, T, F);
        return dot(p->y, p->weights, T * F);
    }
    bk_gelu_fwd_f64(p->y, p->x, N, p->form == 2);
    return dot(p->y, p->weights, N);
}

static void backward(const problem *p, double *dx, const double *dy, int beta)
{
    if (p->form == 0)
        bk_swiglu_bwd_f64(dx, dy, p->x, T, F, beta);
    else
        bk_gelu_bwd_f64(dx, dy, p->x, N, p->form == 2, beta);
}

static void test_mlp__forward_is_the_formula(void **state)
{
    (void)state;
    double *x = random_f64(N, 1), y[N], want[N];
    for (int i = 0; i < N; i++) x[i] *= 6;
    bk_swiglu_fwd_f64(y, x, T, F);
    for (int i = 0; i < T * F; i++) {
        const double gate = x[i / F * 2 * F + i % F], up = x[i / F * 2 * F + F + i % F];
        want[i] = gate / (1 + exp(-gate)) * up;
    }
    check_near(y, want, T * F, 1e-15);
    bk_gelu_fwd_f64(y, x, N, false);
    for (int i = 0; i < N; i++) want[i] = 0.5 * x[i] * (1 + erf(x[i] / sqrt(2)));
    check_near(y, want, N, 1e-15);
    bk_gelu_fwd_f64(y, x, N, true);
    for (int i = 0; i < N; i++)
        want[i] = 0.5 * x[i] * (1 + tanh(sqrt(2 / acos(-1)) * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
    check_near(y, want, N, 1e-15);
    free(x);
}

static void test_mlp__gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    for (int form = 0; form < 3; form++) {
        problem p = {.x = random_f64(N, 1), .weights = random_f64(N, 2), .form = form};
        const int n = form ? N : 2 * T * F;
        for (int i = 0; i < N; i++) p.x[i] *= 4;
        double dx[N], twice[N];
        backward(&p, dx, p.weights, 0), memcpy(twice, dx, sizeof dx), backward(&p, twice, p.weights, 1);
        check_gradient(loss, &p, p.x, dx, n, 1);
        for (int i = 0; i < n; i++) twice[i] /= 2;
        check_near(twice, dx, n, 1e-15);
        free(p.x), free(p.weights);
    }
}

/* Values and slopes of the float kernels over the whole range: relative to the result itself, down into the
 * tail where gelu is 1e-38 (erf form) and nothing may cancel. */
static void test_mlp__float_is_accurate_in_the_tails(void **state)
{
    (void)state;
    enum { M = 4001 };
    static float x[2 * M], y[M], slope[2 * M], ones[M];
    static double xd[2 * M], yd[M], sloped[2 * M], onesd[M];
    for (int i = 0; i < M; i++) {
        x[i] = (float)(-12 + 24.0 * i / (M - 1)), xd[i] = (double)x[i];
        ones[i] = 1, onesd[i] = 1;
    }
    for (int form = 0; form < 2; form++) {
        bk_gelu_fwd_f32(y, x, M, form), bk_gelu_fwd_f64(yd, xd, M, form);
        bk_gelu_bwd_f32(slope, ones, x, M, form, 0), bk_gelu_bwd_f64(sloped, onesd, xd, M, form, 0);
        for (int i = 0; i < M; i++) {
            /* The tanh form's exponent, up to 150, is itself rounded: relative 1e-5 there. */
            const double tol = form && xd[i] < -1 ? 2e-5 : 6e-7;
            assert_true(fabs((double)y[i] - yd[i]) <= tol * fabs(yd[i]) + 1e-37);
            assert_true(fabs((double)slope[i] - sloped[i]) <=
                        (xd[i] < -1 ? 4e-5 : 1e-6) * fabs(sloped[i]) + 3e-7);
        }
    }
    for (int i = 0; i < M; i++) x[M + i] = x[i], xd[M + i] = xd[i]; /* one row, up = gate */
    bk_swiglu_fwd_f32(y, x, 1, M), bk_swiglu_fwd_f64(yd, xd, 1, M);
    bk_swiglu_bwd_f32(slope, ones, x, 1, M, 0), bk_swiglu_bwd_f64(sloped, onesd, xd, 1, M, 0);
    for (int i = 0; i < M; i++) {
        assert_true(fabs((double)y[i] - yd[i]) <= 5e-7 * fabs(yd[i]));
        assert_true(fabs((double)slope[i] - sloped[i]) <= 1e-6 * (1 + fabs(sloped[i])));
        assert_true(fabs((double)slope[M + i] - sloped[M + i]) <= 5e-7 * fabs(sloped[M + i]));
    }
}

static void test_mlp__extreme_inputs(void **state)
{
    (void)state;
    const float x[3] = {-1000, 1000, NAN}, huge[2] = {-1e30f, 1e30f}, one[2] = {1, 1};
    float y[4];
    for (int form = 0; form < 2; form++) {
        bk_gelu_fwd_f32(y, x, 2, form);
        assert_true(y[0] == 0 && y[1] == 1000);
        bk_gelu_fwd_f32(y, x + 2, 1, form);
        assert_true(isnan(y[0]));
        bk_gelu_bwd_f32(y, one, huge, 2, form, 0);
        assert_true(y[0] == 0 && y[1] == 1);
    }
    const float h[4] = {-1000, 1000, 2, 3};
    bk_swiglu_fwd_f32(y, h, 1, 2);
    assert_true(y[0] == 0 && y[1] == 3000);
}

static void test_mlp__in_place_and_any_number_of_threads(void **state)
{
    (void)state;
    enum { BT = 301, BF = 33 };
    double *h = random_f64(BT * 2 * BF, 1), *da = random_f64(BT * BF, 2), *dh = random_f64(BT * 2 * BF, 3);
    double *first = random_f64(BT * 2 * BF, 4), *into = random_f64(BT * 2 * BF, 5);
    bk_swiglu_bwd_f64(first, da, h, BT, BF, 0);
    WITH_THREADS({
        bk_swiglu_bwd_f64(dh, da, h, BT, BF, 0);
        assert_memory_equal(dh, first, sizeof *dh * BT * 2 * BF);
        memcpy(into, h, sizeof *h * BT * 2 * BF), bk_swiglu_bwd_f64(into, da, into, BT, BF, 0);
        assert_memory_equal(into, first, sizeof *dh * BT * 2 * BF);
    });
    bk_gelu_bwd_f64(first, da, h, BT * BF, false, 0);
    WITH_THREADS({
        memcpy(into, da, sizeof *da * BT * BF), bk_gelu_bwd_f64(into, into, h, BT * BF, false, 0);
        assert_memory_equal(into, first, sizeof *dh * BT * BF);
    });
    bk_swiglu_fwd_f64(NULL, NULL, 0, BF), bk_gelu_fwd_f64(NULL, NULL, 0, true);
    free(h), free(da), free(dh), free(first), free(into);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp__forward_is_the_formula),
        cmocka_unit_test(test_mlp__gradients_agree_with_finite_differences),
        cmocka_unit_test(test_mlp__float_is_accurate_in_the_tails),
        cmocka_unit_test(test_mlp__extreme_inputs),
        cmocka_unit_test(test_mlp__in_place_and_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
