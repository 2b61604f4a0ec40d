#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>
#include "ops/kernel_check.h"
#define BK_BOTH "ops/loss/loss_cpu.h"
#include "base/real_both.h"

enum { S = 5, B = 3, V = 37, N = B * S };

typedef struct {
    double *x, *weights, loss[N], lse[N];
    int32_t labels[N];
} problem;

static problem make(void)
{
    problem p = {.x = random_f64(S * B * V, 1), .weights = random_f64(N, 2)};
    for (int i = 0; i < S * B * V; i++) p.x[i] *= 5;
    for (int i = 0; i < N; i++) p.labels[i] = (int32_t)(bk_mix64((uint64_t)i) % V);
    return p;
}

static double total(void *context)
{
    problem *p = context;
    assert_int_equal(bk_cross_entropy_fwd_f64(p->loss, p->lse, p->x, p->labels, S, B, V), -1);
    return dot(p->loss, p->weights, N);
}

static void test_loss__cross_entropy_is_the_formula(void **state)
{
    (void)state;
    problem p = make();
    total(&p);
    for (int s = 0; s < S; s++)
        for (int b = 0; b < B; b++) {
            const double *row = p.x + (s * B + b) * V;
            double z = 0;
            for (int v = 0; v < V; v++) z += exp(row[v]);
            const double lse = log(z), loss = lse - row[p.labels[b * S + s]];
            check_near(p.lse + b * S + s, &lse, 1, 1e-15), check_near(p.loss + b * S + s, &loss, 1, 1e-15);
        }
    free(p.x), free(p.weights);
}

/* logits 0 1 2 3, label 3. A sum over the vocabulary taken twice would give 1.1333369. */
static void test_loss__worked_example(void **state)
{
    (void)state;
    const float logits[4] = {0, 1, 2, 3}, one = 1,
                want[4] = {0.0320586f, 0.0871443f, 0.2368828f, -0.3560857f};
    const int32_t label = 3;
    float loss, lse, grad[4];
    assert_int_equal(bk_cross_entropy_fwd_f32(&loss, &lse, logits, &label, 1, 1, 4), -1);
    bk_cross_entropy_bwd_f32(grad, logits, &lse, &label, &one, 1, 1, 4, 0);
    assert_true(fabsf(loss - 0.4401897f) < 1e-7f);
    for (int i = 0; i < 4; i++) assert_true(fabsf(grad[i] - want[i]) < 2e-7f);
}

static void test_loss__gradient_agrees_with_finite_differences(void **state)
{
    (void)state;
    problem p = make();
    double dx[S * B * V], twice[S * B * V];
    total(&p);
    bk_cross_entropy_bwd_f64(dx, p.x, p.lse, p.labels, p.weights, S, B, V, 0), memcpy(twice, dx, sizeof dx);
    bk_cross_entropy_bwd_f64(twice, p.x, p.lse, p.labels, p.weights, S, B, V, 1);
    check_gradient(total, &p, p.x, dx, S * B * V, 1);
    total(&p);
    for (int i = 0; i < S * B * V; i++) twice[i] /= 2;
    check_near(twice, dx, S * B * V, 1e-15);
    bk_cross_entropy_bwd_f64(p.x, p.x, p.lse, p.labels, p.weights, S, B, V, 0);
    assert_memory_equal(p.x, dx, sizeof dx);
    free(p.x), free(p.weights);
}

static void test_loss__float_survives_large_logits(void **state)
{
    (void)state;
    problem p = make();
    for (int i = 0; i < S * B * V; i++) p.x[i] = 300 + 20 * p.x[i];
    round_to_f32(p.x, S * B * V), total(&p);
    float *x32 = to_f32(p.x, S * B * V), loss32[N], lse32[N];
    assert_int_equal(bk_cross_entropy_fwd_f32(loss32, lse32, x32, p.labels, S, B, V), -1);
    check_near_f32(loss32, p.loss, N, 1.2e-7), check_near_f32(lse32, p.lse, N, 6e-8);
    free(x32), free(p.x), free(p.weights);
}

static void test_loss__names_the_first_bad_label(void **state)
{
    (void)state;
    problem p = make();
    p.labels[9] = -1, p.labels[11] = V;
    assert_int_equal(bk_cross_entropy_fwd_f64(p.loss, p.lse, p.x, p.labels, S, B, V), 9);
    p.labels[9] = 0;
    assert_int_equal(bk_cross_entropy_fwd_f64(p.loss, p.lse, p.x, p.labels, S, B, V), 11);
    assert_int_equal(bk_cross_entropy_fwd_f64(p.loss, p.lse, p.x, p.labels, 0, B, V), -1);
    free(p.x), free(p.weights);
}

static void test_loss__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    enum { BS = 33, BV = 1031 };
    double *x = random_f64(BS * BV, 1), loss[BS], first[BS], lse[BS];
    int32_t labels[BS];
    for (int i = 0; i < BS; i++) labels[i] = i * 31;
    bk_cross_entropy_fwd_f64(first, lse, x, labels, BS, 1, BV);
    WITH_THREADS({
        bk_cross_entropy_fwd_f64(loss, lse, x, labels, BS, 1, BV);
        assert_memory_equal(loss, first, sizeof loss);
    });
    free(x);
}

/* More than 2^31 logits: the last row has the loss that it has alone. The 8 GiB are one file of 64 rows,
 * mapped over and over, so they cost address space only. */
static void test_loss__more_logits_than_an_int_counts(void **state)
{
    (void)state;
#if defined BK_SANITIZED || !defined __OPTIMIZE__
    skip(); /* 2^31 exponentials take a minute there */
#else
    enum { ROW = 65536, FILE_ROWS = 64 };
    const int64_t n_rows = 32768 + FILE_ROWS, bytes = (int64_t)FILE_ROWS * ROW * (int64_t)sizeof(float);
    const int64_t copies = n_rows / FILE_ROWS;
    float *loss = malloc(sizeof *loss * (size_t)n_rows), *lse = malloc(sizeof *lse * (size_t)n_rows), alone,
          lse1;
    int32_t *labels = calloc((size_t)n_rows, sizeof *labels);
    assert_true(loss && lse && labels);
    const int file = memfd_create("logits", 0);
    assert_true(file >= 0 && ftruncate(file, bytes) == 0);
    char *space =
        mmap(NULL, (size_t)(bytes * copies), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(space != MAP_FAILED);
    for (int64_t i = 0; i < copies; i++)
        assert_true(mmap(space + i * bytes, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                         file, 0) != MAP_FAILED);
    float *x = (float *)(void *)space;
    for (int64_t i = 0; i < (int64_t)FILE_ROWS * ROW; i++) x[i] = (float)draw(1, i);
    labels[n_rows - 1] = 77;
    assert_int_equal(bk_cross_entropy_fwd_f32(loss, lse, x, labels, n_rows, 1, ROW), -1);
    assert_int_equal(
        bk_cross_entropy_fwd_f32(&alone, &lse1, x + (FILE_ROWS - 1) * ROW, labels + n_rows - 1, 1, 1, ROW),
        -1);
    assert_memory_equal(&alone, loss + n_rows - 1, sizeof alone);
    munmap(space, (size_t)(bytes * copies)), close(file), free(loss), free(lse), free(labels);
#endif
}

static double mean_of(void *context)
{
    problem *p = context;
    double mean, sum, n;
    bk_masked_mean_fwd_f64(&mean, &sum, &n, p->x, p->weights, 53);
    return 3 * mean;
}

static void test_loss__masked_mean(void **state)
{
    (void)state;
    enum { M = 53 };
    problem p = {.x = random_f64(M, 1), .weights = random_f64(M, 2)};
    double sum = 0, n = 0, got[3], dx[M], twice[M];
    const double seed = 3;
    for (int i = 0; i < M; i++) {
        p.weights[i] = p.weights[i] > 0;
        sum += p.x[i] * p.weights[i], n += p.weights[i];
    }
    const double want[3] = {sum / n, sum, n};
    bk_masked_mean_fwd_f64(got, got + 1, got + 2, p.x, p.weights, M);
    check_near(got, want, 3, 1e-15);
    bk_masked_mean_bwd_f64(dx, p.weights, got + 2, &seed, M, 0), memcpy(twice, dx, sizeof dx);
    check_gradient(mean_of, &p, p.x, dx, M, 1);
    bk_masked_mean_bwd_f64(twice, p.weights, got + 2, &seed, M, 1);
    for (int i = 0; i < M; i++) assert_true(twice[i] == 2 * dx[i]);
    float *x32 = to_f32(p.x, M), *mask32 = to_f32(p.weights, M), got32[3];
    bk_masked_mean_fwd_f32(got32, got32 + 1, got32 + 2, x32, mask32, M), check_near_f32(got32, want, 3, 2e-7);
    free(p.x), free(p.weights), free(x32), free(mask32);
}

/* Nothing unmasked: the mean is 0, not 0/0, and so are the gradients. */
static void test_loss__masked_mean_of_nothing(void **state)
{
    (void)state;
    const double x[3] = {1, 2, 3}, mask[3] = {0}, seed = 1, zeros[3] = {0};
    double mean, sum, n, dx[3];
    bk_masked_mean_fwd_f64(&mean, &sum, &n, x, mask, 3);
    bk_masked_mean_bwd_f64(dx, mask, &n, &seed, 3, 0);
    assert_true(mean == 0 && sum == 0 && n == 0);
    assert_memory_equal(dx, zeros, sizeof zeros);
    bk_masked_mean_fwd_f64(&mean, &sum, &n, NULL, NULL, 0);
    assert_true(mean == 0 && sum == 0 && n == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss__cross_entropy_is_the_formula),
        cmocka_unit_test(test_loss__worked_example),
        cmocka_unit_test(test_loss__gradient_agrees_with_finite_differences),
        cmocka_unit_test(test_loss__float_survives_large_logits),
        cmocka_unit_test(test_loss__names_the_first_bad_label),
        cmocka_unit_test(test_loss__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_loss__more_logits_than_an_int_counts),
        cmocka_unit_test(test_loss__masked_mean),
        cmocka_unit_test(test_loss__masked_mean_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
