#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/tally.h"
#include "ops/kernel_check.h"
#define BK_BOTH "ops/linear/linear_cpu.h"
#include "base/real_both.h"

enum { T = 37, N = 19, K = 23 };

static void test_linear__forward_and_gradients_are_the_plain_sums(void **state)
{
    (void)state;
    double *x = random_f64(T * K, 1), *w = random_f64(N * K, 2), *bias = random_f64(N, 3);
    double *dy = random_f64(T * N, 4);
    double y[T * N], dx[T * K] = {0}, dw[N * K] = {0}, db[N] = {0};
    for (int t = 0; t < T; t++)
        for (int n = 0; n < N; n++) {
            y[t * N + n] = bias[n] + dot(x + t * K, w + n * K, K), db[n] += dy[t * N + n];
            for (int k = 0; k < K; k++) {
                dx[t * K + k] += dy[t * N + n] * w[n * K + k];
                dw[n * K + k] += dy[t * N + n] * x[t * K + k];
            }
        }
    void *ws = workspace(bk_linear_workspace_f64(T, N, K));
    double gy[T * N], gx[T * K], gw[N * K], gb[N];
    for (int det = 0; det < 2; det++)
        for (int beta = 0; beta < 2; beta++) { /* the second round adds the same again */
            bk_linear_fwd_f64(gy, x, w, bias, T, N, K, det, ws), check_near(gy, y, T * N, 1e-14);
            bk_linear_dgrad_f64(gx, dy, w, T, N, K, beta, det, ws);
            bk_linear_wgrad_f64(gw, gb, dy, x, T, N, K, beta, beta, det, ws);
            for (int i = 0; i < T * K; i++) gx[i] /= 1 + beta;
            for (int i = 0; i < N * K; i++) gw[i] /= 1 + beta;
            for (int i = 0; i < N; i++) gb[i] /= 1 + beta;
            check_near(gx, dx, T * K, 1e-14), check_near(gw, dw, N * K, 1e-14), check_near(gb, db, N, 1e-14);
        }
    free(x), free(w), free(bias), free(dy), free(ws);
}

static void test_linear__float_is_close_to_double(void **state)
{
    (void)state;
    double *x = random_f64(T * K, 1), *w = random_f64(N * K, 2), *b = random_f64(N, 3);
    round_to_f32(x, T * K), round_to_f32(w, N * K), round_to_f32(b, N);
    float *x32 = to_f32(x, T * K), *w32 = to_f32(w, N * K), *b32 = to_f32(b, N), y32[T * N], db32[N];
    double y[T * N], db[N], dw[N * K];
    float dw32[N * K];
    void *ws = workspace(bk_linear_workspace_f64(T, N, K));
    bk_linear_fwd_f64(y, x, w, b, T, N, K, true, ws),
        bk_linear_fwd_f32(y32, x32, w32, b32, T, N, K, true, ws);
    check_near_f32(y32, y, T * N, 1e-6);
    for (int i = 0; i < T * N; i++) y[i] = (double)y32[i];
    bk_linear_wgrad_f64(dw, db, y, x, T, N, K, 0, 0, true, ws);
    bk_linear_wgrad_f32(dw32, db32, y32, x32, T, N, K, 0, 0, true, ws);
    check_near_f32(dw32, dw, N * K, 2e-6), check_near_f32(db32, db, N, 1.2e-7); /* dbias is rounded once */
    free(x), free(w), free(b), free(x32), free(w32), free(b32), free(ws);
}

static void test_linear__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    enum { BT = 301, BN = 67, BK = 91 };
    double *dy = random_f64(BT * BN, 1), *x = random_f64(BT * BK, 2), *w = random_f64(BN * BK, 3);
    double *y = random_f64(BT * BN, 9), *y1 = random_f64(BT * BN, 9), *dw = random_f64(BN * BK, 9);
    double *dw1 = random_f64(BN * BK, 9), db[BN], db1[BN];
    void *ws = workspace(bk_linear_workspace_f64(BT, BN, BK));
    bk_linear_fwd_f64(y1, x, w, w, BT, BN, BK, true, ws);
    bk_linear_wgrad_f64(dw1, db1, dy, x, BT, BN, BK, 0, 0, true, ws);
    WITH_THREADS({
        bk_linear_fwd_f64(y, x, w, w, BT, BN, BK, true, ws);
        bk_linear_wgrad_f64(dw, db, dy, x, BT, BN, BK, 0, 0, true, ws);
        assert_memory_equal(y, y1, sizeof *y * BT * BN), assert_memory_equal(dw, dw1, sizeof *dw * BN * BK);
        assert_memory_equal(db, db1, sizeof db);
    });
    free(dy), free(x), free(w), free(y), free(y1), free(dw), free(dw1), free(ws);
}

static void test_linear__no_tokens(void **state)
{
    (void)state;
    double w[6] = {1, 2, 3, 4, 5, 6}, dw[6] = {9, 9, 9, 9, 9, 9}, db[2] = {9, 9};
    const double zeros[6] = {0}, kept[2] = {9, 9};
    const int64_t before = bk_tally_madds;
    bk_linear_fwd_f64(NULL, NULL, w, w, 0, 2, 3, true, NULL);
    bk_linear_dgrad_f64(NULL, NULL, w, 0, 2, 3, 0, true, NULL);
    bk_linear_wgrad_f64(dw, db, NULL, NULL, 0, 2, 3, 0, 1, true, NULL);
    assert_memory_equal(dw, zeros, sizeof dw), assert_memory_equal(db, kept, sizeof db);
    bk_linear_wgrad_f64(dw, db, NULL, NULL, 0, 2, 3, 1, 0, false, NULL);
    assert_memory_equal(dw, zeros, sizeof dw), assert_memory_equal(db, zeros, sizeof db);
    assert_int_equal(bk_tally_madds, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear__forward_and_gradients_are_the_plain_sums),
        cmocka_unit_test(test_linear__float_is_close_to_double),
        cmocka_unit_test(test_linear__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_linear__no_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
