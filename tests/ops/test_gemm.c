#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/tally.h"
#include "ops/kernel_check.h"
#define BK_BOTH "ops/linear/gemm_cpu.h"
#include "base/real_both.h"

static void naive(double *c, const double *a, const double *b, int64_t m, int64_t n, int64_t k, bool ta,
                  bool tb, int64_t lda, int64_t ldb, int64_t ldc, int beta)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double acc = beta ? c[i * ldc + j] : 0;
            for (int64_t x = 0; x < k; x++)
                acc += (ta ? a[x * lda + i] : a[i * lda + x]) * (tb ? b[j * ldb + x] : b[x * ldb + j]);
            c[i * ldc + j] = acc;
        }
}

/* One product in all modes, with rows further apart than they are long. Entries lie in (-1, 1): the error is
 * below the unit roundoff times the number of terms times the largest partial sum, which is a few units. */
static void check_product(int64_t m, int64_t n, int64_t k, bool ta, bool tb, int beta, bool det)
{
    const int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 1, ldc = n + 2;
    const int64_t na = (ta ? k : m) * lda, nb = (tb ? n : k) * ldb, nc = m * ldc;
    double *a = random_f64(na, 1), *b = random_f64(nb, 2), *c = random_f64(nc, 3), *want = random_f64(nc, 3);
    round_to_f32(a, na), round_to_f32(b, nb), round_to_f32(c, nc), round_to_f32(want, nc);
    float *a32 = to_f32(a, na), *b32 = to_f32(b, nb), *c32 = to_f32(c, nc);
    void *ws = workspace(bk_gemm_workspace_f64(m, n, k)), *ws32 = workspace(bk_gemm_workspace_f32(m, n, k));
    naive(want, a, b, m, n, k, ta, tb, lda, ldb, ldc, beta);
    bk_gemm_f64(c, a, b, m, n, k, ta, tb, lda, ldb, ldc, beta, det, ws);
    bk_gemm_f32(c32, a32, b32, m, n, k, ta, tb, lda, ldb, ldc, beta, det, ws32);
    const double terms = 2 + (double)k;
    check_near(c, want, nc, 1.2e-16 * terms), check_near_f32(c32, want, nc, 6e-8 * terms);
    free(a), free(b), free(c), free(want), free(a32), free(b32), free(c32), free(ws), free(ws32);
}

static void test_gemm__agrees_with_plain_loops(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},  {8, 32, 16},  {3, 5, 7},     {70, 67, 129},  {64, 1, 300},
                                       {1, 70, 3}, {9, 33, 257}, {65, 1061, 5}, {130, 17, 515}, {257, 31, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int mode = 0; mode < 16; mode++)
            check_product(sizes[i][0], sizes[i][1], sizes[i][2], mode & 1, mode & 2, (mode & 4) != 0,
                          mode & 8);
}

/* [1 2; 3 4; 5 6] times [1 0 2; 0 1 3]: exact, and different under every wrong transposition. */
static void test_gemm__orientation(void **state)
{
    (void)state;
    const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, 0, 1, 3}, want[] = {1, 2, 8, 3, 4, 18, 5, 6, 28};
    float c[9];
    void *ws = workspace(bk_gemm_workspace_f32(3, 3, 2));
    for (int det = 0; det < 2; det++) {
        bk_gemm_f32(c, a, b, 3, 3, 2, false, false, 2, 3, 3, 0, det, ws);
        assert_memory_equal(c, want, sizeof c);
    }
    free(ws);
}

static void test_gemm__empty_sizes(void **state)
{
    (void)state;
    double a[4] = {1, 2, 3, 4}, c[4] = {5, 6, 7, 8};
    const double kept[4] = {5, 6, 7, 8}, zeros[4] = {0};
    for (int det = 0; det < 2; det++) {
        const int64_t before = bk_tally_madds;
        memcpy(c, kept, sizeof c);
        bk_gemm_f64(c, a, a, 0, 2, 2, false, false, 2, 2, 2, 0, det, NULL);
        bk_gemm_f64(c, a, a, 2, 0, 2, false, false, 2, 2, 2, 0, det, NULL);
        bk_gemm_f64(c, a, a, 2, 2, 0, false, false, 2, 2, 2, 1, det, NULL);
        assert_memory_equal(c, kept, sizeof c);
        bk_gemm_f64(c, a, a, 2, 2, 0, false, false, 2, 2, 2, 0, det, NULL);
        assert_memory_equal(c, zeros, sizeof c);
        assert_int_equal(bk_tally_madds, before);
    }
}

enum { M = 150, N = 1100, K = 300 };

static void fill_f32(float *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)draw(seed, i);
}

/* Row i of the product, and column j, alone and among others; both sides cross every block size. */
static void test_gemm__deterministic_bits_depend_on_row_and_column_alone(void **state)
{
    (void)state;
    float *a = malloc(sizeof(float) * M * K), *b = malloc(sizeof(float) * N * K);
    float *c = malloc(sizeof(float) * M * N), row[N], column[M];
    assert_true(a && b && c);
    fill_f32(a, M * K, 1), fill_f32(b, N * K, 2);
    void *ws = workspace(bk_gemm_workspace_f32(M, N, K));
    bk_gemm_f32(c, a, b, M, N, K, false, true, K, K, N, 0, true, ws);
    for (int64_t i = 0; i < M; i += 7) {
        bk_gemm_f32(row, a + i * K, b, 1, N, K, false, true, K, K, N, 0, true, ws);
        assert_memory_equal(row, c + i * N, sizeof row);
    }
    for (int64_t j = 0; j < N; j += 31) {
        bk_gemm_f32(column, a, b + j * K, M, 1, K, false, true, K, K, 1, 0, true, ws);
        for (int64_t i = 0; i < M; i++) assert_memory_equal(column + i, c + i * N + j, sizeof *c);
    }
    free(a), free(b), free(c), free(ws);
}

static void test_gemm__deterministic_bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    double *a = random_f64(M * K, 1), *b = random_f64(N * K, 2), *c = random_f64(M * N, 3);
    double *first = random_f64(M * N, 3);
    void *ws = workspace(bk_gemm_workspace_f64(M, N, K));
    bk_gemm_f64(first, a, b, M, N, K, true, false, M, N, N, 0, true, ws);
    WITH_THREADS({
        bk_gemm_f64(c, a, b, M, N, K, true, false, M, N, N, 0, true, ws);
        assert_memory_equal(c, first, sizeof *c * M * N);
    });
    free(a), free(b), free(c), free(first), free(ws);
}

static void test_gemm__counts_its_multiply_adds(void **state)
{
    (void)state;
    float a[35], b[21], c[15];
    fill_f32(a, 35, 1), fill_f32(b, 21, 2);
    void *ws = workspace(bk_gemm_workspace_f32(5, 3, 7));
    for (int det = 0; det < 2; det++) {
        const int64_t before = bk_tally_madds;
        bk_gemm_f32(c, a, b, 5, 3, 7, false, false, 7, 3, 3, 0, det, ws);
        assert_int_equal(bk_tally_madds - before, 5 * 3 * 7);
    }
    free(ws);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm__agrees_with_plain_loops),
        cmocka_unit_test(test_gemm__orientation),
        cmocka_unit_test(test_gemm__empty_sizes),
        cmocka_unit_test(test_gemm__deterministic_bits_depend_on_row_and_column_alone),
        cmocka_unit_test(test_gemm__deterministic_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_gemm__counts_its_multiply_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
