/* Two linear layers as one product: kernels against two products, and the rules. */
#include "ops/grad_bench.h"

#include "ops/kernel_check.h"

#define BK_BOTH "ops/linear/linear_cpu.h"
#include "base/real_both.h"
#define BK_BOTH "ops/linear/linear_pair_cpu.h"
#include "base/real_both.h"

enum { T = 301, N = 19, M = 34, K = 45, W = N + M };
static const bk_linear_pair_sizes size = {.n_tokens = T, .n_first = N, .n_second = M, .n_in = K};

/* Columns first .. first + n - 1 of rows `width` long. */
static double *columns(const double *x, int64_t width, int64_t first, int64_t n)
{
    double *out = malloc(sizeof(double) * (size_t)(T * n));
    assert_non_null(out);
    for (int64_t t = 0; t < T; t++) memcpy(out + t * n, x + t * width + first, sizeof *out * (size_t)n);
    return out;
}

/* Elements depend on their own row and column alone, so forward and weight gradients have the bits of two
 * products; the data gradient is one sum instead of two. */
static void test_linear_pair__is_two_products(void **state)
{
    (void)state;
    double *x = random_f64(T * K, 1), *w1 = random_f64(N * K, 2), *w2 = random_f64(M * K, 3),
           *dy = random_f64(T * W, 4), *y = random_f64(T * W, 5), *dx = random_f64(T * K, 6),
           *dw1 = random_f64(N * K, 7), *dw2 = random_f64(M * K, 8);
    double y1[T * N], y2[T * M], want_dx[T * K], want1[N * K], want2[M * K], dx1[T * K];
    double *dy1 = columns(dy, W, 0, N), *dy2 = columns(dy, W, N, M);
    void *ws = workspace(bk_linear_workspace_f64(T, W, K)),
         *work = workspace(bk_linear_pair_workspace_f64(&size));
    bk_linear_fwd_f64(y1, x, w1, NULL, T, N, K, true, ws),
        bk_linear_fwd_f64(y2, x, w2, NULL, T, M, K, true, ws);
    bk_linear_dgrad_f64(want_dx, dy1, w1, T, N, K, 0, true, ws);
    bk_linear_dgrad_f64(want_dx, dy2, w2, T, M, K, 1, true, ws);
    bk_linear_wgrad_f64(want1, NULL, dy1, x, T, N, K, 0, 0, true, ws);
    bk_linear_wgrad_f64(want2, NULL, dy2, x, T, M, K, 0, 0, true, ws);
    WITH_THREADS({
        bk_linear_pair_fwd_f64(y, x, w1, w2, &size, true, work);
        double *left = columns(y, W, 0, N), *right = columns(y, W, N, M);
        assert_memory_equal(left, y1, sizeof y1), assert_memory_equal(right, y2, sizeof y2);
        bk_linear_pair_dgrad_f64(dx, dy, w1, w2, &size, 0, true, work);
        check_near(dx, want_dx, T * K, 1e-14);
        if (n_threads == 1) memcpy(dx1, dx, sizeof dx1);
        assert_memory_equal(dx, dx1, sizeof dx1);
        bk_linear_pair_wgrad_f64(dw1, dw2, dy, x, &size, 0, 0, true, work);
        assert_memory_equal(dw1, want1, sizeof want1), assert_memory_equal(dw2, want2, sizeof want2);
        free(left), free(right);
    });
    /* The library's product, and betas that differ. */
    bk_linear_pair_dgrad_f64(dx, dy, w1, w2, &size, 1, false, work);
    bk_linear_pair_wgrad_f64(dw1, dw2, dy, x, &size, 1, 0, false, work);
    for (int i = 0; i < T * K; i++) dx[i] /= 2;
    for (int i = 0; i < N * K; i++) dw1[i] /= 2;
    check_near(dx, want_dx, T * K, 1e-14);
    check_near(dw1, want1, N * K, 1e-14), check_near(dw2, want2, M * K, 1e-14);
    free(x), free(w1), free(w2), free(dy), free(y), free(dx), free(dw1), free(dw2);
    free(dy1), free(dy2), free(ws), free(work);
}

static void test_linear_pair__no_tokens(void **state)
{
    (void)state;
    const bk_linear_pair_sizes none = {.n_tokens = 0, .n_first = 1, .n_second = 2, .n_in = 2};
    const double w1[2] = {1, 2}, w2[4] = {3, 4, 5, 6}, zeros[2] = {0}, kept[4] = {9, 9, 9, 9};
    double dw1[2] = {9, 9}, dw2[4] = {9, 9, 9, 9};
    void *work = workspace(bk_linear_pair_workspace_f64(&none));
    const int64_t before = bk_tally_madds;
    bk_linear_pair_fwd_f64(NULL, NULL, w1, w2, &none, true, work);
    bk_linear_pair_dgrad_f64(NULL, NULL, w1, w2, &none, 0, true, work);
    bk_linear_pair_wgrad_f64(dw1, dw2, NULL, NULL, &none, 0, 1, true, work);
    assert_memory_equal(dw1, zeros, sizeof dw1), assert_memory_equal(dw2, kept, sizeof dw2);
    assert_int_equal(bk_tally_madds, before);
    free(work);
}

static void pair_of(bench *b, int64_t S)
{
    bk_vid y;
    const bk_vid x = ACT(b, "x", S, 1, 5), w1 = PARAM(b, "w1", 3, 5), w2 = PARAM(b, "w2", 4, 5);
    bench_wave(b, x, 0.1), bench_wave(b, w1, 0.5), bench_wave(b, w2, 0.9);
    expect_op(&y, b, .kind = BK_OP_linear_pair, IN(x, w1, w2));
    assert_int_equal(b->g->value[y].dim[2].size, 7);
}

static void several_tokens(bench *b)
{
    pair_of(b, 7);
}
static void one_token(bench *b)
{
    pair_of(b, 1);
}

static void test_linear_pair__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    check_op(several_tokens, 1, 7);
    check_op(one_token, 1, 7);
    check_nothing_flows(several_tokens);
    grad_bench t = grad_open(several_tokens, BK_F64, 1, false);
    assert_int_equal(t.b.g->op[bench_last(&t.b)].tag.pass, BK_PASS_WGRAD);
    assert_int_equal(t.b.g->n_terms, 2);
    grad_close(&t);
}

static void test_linear_pair__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid x = ACT(&b, "x", 3, 2, 5), w1 = PARAM(&b, "w1", 3, 5), w2 = PARAM(&b, "w2", 4, 5),
                 narrow = PARAM(&b, "narrow", 4, 4), flat = ACT(&b, "flat", 6, 5),
                 dy = ACT(&b, "dy", 3, 2, 7), thin = ACT(&b, "thin", 3, 2, 6),
                 short_dy = ACT(&b, "short_dy", 2, 2, 7), dw1 = GRADIENT(&b, "dw1", 3, 5),
                 dw2 = GRADIENT(&b, "dw2", 4, 5);
    expect_refused(&b, "narrow", .kind = BK_OP_linear_pair, IN(x, w1, narrow));
    expect_refused(&b, "has 2 dims, expected 3", .kind = BK_OP_linear_pair, IN(flat, w1, w2));
    expect_refused(&b, "gradient [S, B, N+M]", .kind = BK_OP_linear_pair_dgrad, IN(thin, w1, w2));
    expect_refused(&b, "gradient [S, B, N+M]", .kind = BK_OP_linear_pair_wgrad, IN(thin, x), UPD(dw1, dw2));
    expect_refused(&b, "dim 0 must be", .kind = BK_OP_linear_pair_wgrad, IN(short_dy, x), UPD(dw1, dw2));
    bk_vid dx;
    expect_op(&dx, &b, .kind = BK_OP_linear_pair_dgrad, IN(dy, w1, w2));
    bench_close(&b);
}

/* A rank's rows of both weights would not be neighbours in the output. */
static void test_linear_pair__spread(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid y;
    const bk_vid x = ACT(&b, "x", 4, 2, 6), w1 = PARAM(&b, "w1", 4, 6), w2 = PARAM(&b, "w2", 2, 6);
    b.g->axis_size[BK_AXIS_TP] = 2;
    b.g->value[x].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0};
    expect_op(&y, &b, .kind = BK_OP_linear_pair, IN(x, w1, w2));
    assert_int_equal(b.g->value[y].spread[BK_AXIS_TP].kind, BK_SPLIT);
    assert_int_equal(b.g->value[y].spread[BK_AXIS_TP].dim, 0);
    b.g->value[x].spread[BK_AXIS_TP] = (bk_spread){BK_SAME, 0};
    b.g->value[w1].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0};
    b.g->value[w2].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0};
    expect_refused(&b, "needs all of it", .kind = BK_OP_linear_pair, IN(x, w1, w2));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear_pair__is_two_products),
        cmocka_unit_test(test_linear_pair__no_tokens),
        cmocka_unit_test(test_linear_pair__gradient_is_that_of_the_op),
        cmocka_unit_test(test_linear_pair__refuses_what_does_not_fit),
        cmocka_unit_test(test_linear_pair__spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
