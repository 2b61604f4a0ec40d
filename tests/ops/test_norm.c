#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/kernel_check.h"
#define BK_BOTH "ops/norm/norm_cpu.h"
#include "base/real_both.h"

enum { T = 7, C = 19 };

/* One problem of either norm; loss = weights . y. */
typedef struct {
    bool layer;
    double *x, *gamma, *beta, *weights, y[T * C], mean[T], rstd[T];
    double shift;
} problem;

static const double eps = 1e-2; /* large enough that a misplaced eps shows */

static double loss(void *context)
{
    problem *p = context;
    if (p->layer)
        bk_layernorm_fwd_f64(p->y, p->mean, p->rstd, p->x, p->gamma, p->beta, T, C, eps, p->shift);
    else
        bk_rmsnorm_fwd_f64(p->y, p->rstd, p->x, p->gamma, T, C, eps, p->shift);
    return dot(p->y, p->weights, T * C);
}

static void backward(const problem *p, double *dx, double *dgamma, double *dbeta, int beta)
{
    void *ws = workspace(bk_norm_bwd_workspace_f64(T, C));
    if (p->layer)
        bk_layernorm_bwd_f64(dx, dgamma, dbeta, p->weights, p->x, p->gamma, p->mean, p->rstd, T, C, p->shift,
                             beta, beta, ws);
    else
        bk_rmsnorm_bwd_f64(dx, dgamma, p->weights, p->x, p->gamma, p->rstd, T, C, p->shift, beta, beta, ws);
    free(ws);
}

static problem make(bool layer)
{
    problem p = {.layer = layer,
                 .x = random_f64(T * C, 1),
                 .gamma = random_f64(C, 2),
                 .beta = random_f64(C, 3),
                 .weights = random_f64(T * C, 4),
                 .shift = 1};
    for (int i = 0; i < T * C; i++) p.x[i] += 0.5;
    return p;
}

static void drop_problem(problem *p)
{
    free(p->x), free(p->gamma), free(p->beta), free(p->weights);
}

static void test_norm__forward_is_the_formula(void **state)
{
    (void)state;
    for (int layer = 0; layer < 2; layer++) {
        problem p = make(layer);
        loss(&p);
        for (int t = 0; t < T; t++) {
            const double *x = p.x + t * C;
            double mean = 0, var = 0, want[C];
            for (int c = 0; c < C && layer; c++) mean += x[c] / C;
            for (int c = 0; c < C; c++) var += (x[c] - mean) * (x[c] - mean) / C;
            for (int c = 0; c < C; c++)
                want[c] = (x[c] - mean) / sqrt(var + eps) * (p.gamma[c] + 1) + (layer ? p.beta[c] : 0);
            check_near(p.y + t * C, want, C, 1e-14);
            if (layer) check_near(p.mean + t, &mean, 1, 1e-15);
            const double rstd = 1 / sqrt(var + eps);
            check_near(p.rstd + t, &rstd, 1, 1e-15);
        }
        drop_problem(&p);
    }
}

static void test_norm__gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    for (int layer = 0; layer < 2; layer++) {
        problem p = make(layer);
        double dx[T * C], dgamma[C], dbeta[C];
        loss(&p), backward(&p, dx, dgamma, dbeta, 0);
        check_gradient(loss, &p, p.x, dx, T * C, 1), check_gradient(loss, &p, p.gamma, dgamma, C, 1);
        if (layer) check_gradient(loss, &p, p.beta, dbeta, C, 1);
        double dx2[T * C], dgamma2[C], dbeta2[C];
        memcpy(dx2, dx, sizeof dx), memcpy(dgamma2, dgamma, sizeof dgamma),
            memcpy(dbeta2, dbeta, sizeof dbeta);
        backward(&p, dx2, dgamma2, dbeta2, 1);
        for (int i = 0; i < T * C; i++) dx[i] *= 2;
        for (int i = 0; i < C; i++) dgamma[i] *= 2, dbeta[i] *= 2;
        check_near(dx2, dx, T * C, 1e-15), check_near(dgamma2, dgamma, C, 1e-15);
        if (layer) check_near(dbeta2, dbeta, C, 1e-15);
        drop_problem(&p);
    }
}

static void test_norm__without_gain(void **state)
{
    (void)state;
    problem p = make(false);
    double *gamma = p.gamma, dx[T * C], unit[C], y[T * C];
    for (int c = 0; c < C; c++) unit[c] = 0;
    p.gamma = unit, loss(&p), memcpy(y, p.y, sizeof y); /* gain 0 + shift 1 */
    p.gamma = NULL, loss(&p), check_near(p.y, y, T * C, 1e-15);
    backward(&p, dx, NULL, NULL, 0), check_gradient(loss, &p, p.x, dx, T * C, 1);
    p.gamma = gamma, drop_problem(&p);
}

static void test_norm__dx_may_lie_on_dy(void **state)
{
    (void)state;
    for (int layer = 0; layer < 2; layer++) {
        problem p = make(layer);
        double dx[T * C], dgamma[C], dbeta[C], dgamma2[C], dbeta2[C];
        loss(&p), backward(&p, dx, dgamma, dbeta, 0), backward(&p, p.weights, dgamma2, dbeta2, 0);
        assert_memory_equal(p.weights, dx, sizeof dx), assert_memory_equal(dgamma, dgamma2, sizeof dgamma);
        drop_problem(&p);
    }
}

/* Rows with a mean a thousand times their spread: a float sum of squares would lose the variance. */
static void test_norm__float_statistics_are_accurate(void **state)
{
    (void)state;
    enum { W = 4099 };
    double *x = random_f64(W, 1), *gamma = random_f64(W, 2), y[W], mean, rstd;
    for (int i = 0; i < W; i++) x[i] = 1000 + x[i];
    round_to_f32(x, W), round_to_f32(gamma, W);
    float *x32 = to_f32(x, W), *gamma32 = to_f32(gamma, W), y32[W], mean32, rstd32;
    bk_layernorm_fwd_f64(y, &mean, &rstd, x, gamma, NULL, 1, W, 1e-5, 0);
    bk_layernorm_fwd_f32(y32, &mean32, &rstd32, x32, gamma32, NULL, 1, W, 1e-5, 0);
    assert_true(fabs((double)rstd32 / rstd - 1) < 1.2e-7 && fabs((double)mean32 / mean - 1) < 6e-8);
    check_near_f32(y32, y, W, 1e-4); /* the mean is rounded to 3e-5, a spread of 0.6 divides it */
    bk_rmsnorm_fwd_f64(y, &rstd, x, gamma, 1, W, 1e-5, 0);
    bk_rmsnorm_fwd_f32(y32, &rstd32, x32, gamma32, 1, W, 1e-5, 0);
    assert_true(fabs((double)rstd32 / rstd - 1) < 6e-8);
    check_near_f32(y32, y, W, 3e-7);
    free(x), free(gamma), free(x32), free(gamma32);
}

static void test_norm__float_gradients_are_close_to_double(void **state)
{
    (void)state;
    enum { N = 201, W = 67 };
    double *x = random_f64(N * W, 1), *dy = random_f64(N * W, 2), *gamma = random_f64(W, 3),
           *dx = random_f64(N * W, 4);
    round_to_f32(x, N * W), round_to_f32(dy, N * W), round_to_f32(gamma, W);
    float *x32 = to_f32(x, N * W), *dy32 = to_f32(dy, N * W), *gamma32 = to_f32(gamma, W),
          *dx32 = to_f32(x, N * W);
    double y[N * W], mean[N], rstd[N], dgamma[W], dbeta[W];
    float y32[N * W], mean32[N], rstd32[N], dgamma32[W], dbeta32[W];
    void *ws = workspace(bk_norm_bwd_workspace_f64(N, W));
    bk_layernorm_fwd_f64(y, mean, rstd, x, gamma, NULL, N, W, 1e-5, 0);
    bk_layernorm_fwd_f32(y32, mean32, rstd32, x32, gamma32, NULL, N, W, 1e-5, 0);
    bk_layernorm_bwd_f64(dx, dgamma, dbeta, dy, x, gamma, mean, rstd, N, W, 0, 0, 0, ws);
    bk_layernorm_bwd_f32(dx32, dgamma32, dbeta32, dy32, x32, gamma32, mean32, rstd32, N, W, 0, 0, 0, ws);
    check_near_f32(dx32, dx, N * W, 1e-6), check_near_f32(dgamma32, dgamma, W, 4e-6);
    check_near_f32(dbeta32, dbeta, W, 2e-6);
    free(x), free(dy), free(gamma), free(dx), free(x32), free(dy32), free(gamma32), free(dx32), free(ws);
}

static void test_norm__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    enum { N = 517, W = 70 };
    double *x = random_f64(N * W, 1), *dy = random_f64(N * W, 2), *gamma = random_f64(W, 3);
    double *dx = random_f64(N * W, 4), *dx1 = random_f64(N * W, 4), *y = random_f64(N * W, 5);
    double mean[N], rstd[N], dgamma[W], dbeta[W], dgamma1[W], dbeta1[W];
    void *ws = workspace(bk_norm_bwd_workspace_f64(N, W));
    bk_layernorm_fwd_f64(y, mean, rstd, x, gamma, NULL, N, W, 1e-5, 0);
    omp_set_num_threads(1);
    bk_layernorm_bwd_f64(dx1, dgamma1, dbeta1, dy, x, gamma, mean, rstd, N, W, 0, 0, 0, ws);
    WITH_THREADS({
        bk_layernorm_bwd_f64(dx, dgamma, dbeta, dy, x, gamma, mean, rstd, N, W, 0, 0, 0, ws);
        assert_memory_equal(dx, dx1, sizeof *dx * N * W), assert_memory_equal(dgamma, dgamma1, sizeof dgamma);
        assert_memory_equal(dbeta, dbeta1, sizeof dbeta);
    });
    free(x), free(dy), free(gamma), free(dx), free(dx1), free(y), free(ws);
}

static void test_norm__no_tokens(void **state)
{
    (void)state;
    double gamma[3] = {1, 2, 3}, dgamma[3] = {4, 5, 6}, dbeta[3] = {7, 8, 9};
    const double kept[3] = {4, 5, 6}, zeros[3] = {0};
    bk_rmsnorm_fwd_f64(NULL, NULL, NULL, gamma, 0, 3, eps, 0);
    bk_rmsnorm_bwd_f64(NULL, dgamma, NULL, NULL, gamma, NULL, 0, 3, 0, 0, 1, NULL);
    assert_memory_equal(dgamma, kept, sizeof kept);
    bk_layernorm_bwd_f64(NULL, dgamma, dbeta, NULL, NULL, gamma, NULL, NULL, 0, 3, 0, 0, 0, NULL);
    assert_memory_equal(dgamma, zeros, sizeof zeros), assert_memory_equal(dbeta, zeros, sizeof zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm__forward_is_the_formula),
        cmocka_unit_test(test_norm__gradients_agree_with_finite_differences),
        cmocka_unit_test(test_norm__without_gain),
        cmocka_unit_test(test_norm__dx_may_lie_on_dy),
        cmocka_unit_test(test_norm__float_statistics_are_accurate),
        cmocka_unit_test(test_norm__float_gradients_are_close_to_double),
        cmocka_unit_test(test_norm__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_norm__no_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
