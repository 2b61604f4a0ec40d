#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/kernel_check.h"
#define BK_BOTH "ops/rope/rope_cpu.h"
#include "base/real_both.h"

enum { S = 155, B = 3, G = 2, R = 2, D = 6, HD = 9, SIZE = S * B * G * R * HD };
static const bk_rope_layout layouts[] = {BK_ROPE_HALVES, BK_ROPE_INTERLEAVED, BK_ROPE_DEINTERLEAVE};

typedef struct {
    double cos[S * D / 2], sin[S * D / 2];
    bk_heads at;
} setting;

static setting make(void)
{
    setting x = {.at = bk_heads_dense(B, G, R, HD)};
    bk_rope_table_f64(x.cos, x.sin, S, 11, D, 10000);
    return x;
}

static void apply(const setting *x, double *y, const double *from, bk_rope_layout layout, bool inverse,
                  int beta)
{
    bk_rope_apply_f64(y, x->at, from, x->at, x->cos, x->sin, S, B, G, R, 0, D, HD, layout, inverse, beta);
}

static void test_rope__table_holds_the_angles(void **state)
{
    (void)state;
    const setting x = make();
    float cos32[S * D / 2], sin32[S * D / 2];
    bk_rope_table_f32(cos32, sin32, S, 11, D, 10000);
    for (int s = 0; s < S; s++)
        for (int i = 0; i < D / 2; i++) {
            const double angle = (11 + s) / pow(10000, 2.0 * i / D), c = cos(angle), n = sin(angle);
            check_near(x.cos + s * D / 2 + i, &c, 1, 1e-14), check_near(x.sin + s * D / 2 + i, &n, 1, 1e-14);
            check_near_f32(cos32 + s * D / 2 + i, &c, 1, 6e-8),
                check_near_f32(sin32 + s * D / 2 + i, &n, 1, 6e-8);
        }
}

/* Each pair as a complex number, turned. */
static void test_rope__turns_each_pair(void **state)
{
    (void)state;
    const setting x = make();
    double *from = random_f64(SIZE, 1), y[SIZE], want[HD];
    for (int l = 0; l < 3; l++) {
        apply(&x, y, from, layouts[l], false, 0);
        for (int64_t head = 0; head < S * B * G * R; head++) {
            const double *in = from + head * HD;
            const int64_t s = head / (B * G * R);
            memcpy(want, in, sizeof want);
            for (int i = 0; i < D / 2; i++) {
                const double a = (11 + (double)s) / pow(10000, 2.0 * i / D);
                const int f0 = l == 0 ? i : 2 * i, f1 = l == 0 ? i + D / 2 : 2 * i + 1;
                const int t0 = l == 1 ? 2 * i : i, t1 = l == 1 ? 2 * i + 1 : i + D / 2;
                want[t0] = in[f0] * cos(a) - in[f1] * sin(a), want[t1] = in[f1] * cos(a) + in[f0] * sin(a);
            }
            check_near(y + head * HD, want, HD, 1e-14);
        }
    }
    free(from);
}

/* The last dims of each head, and the middle ones: as a head that begins there, whose neighbours pass. */
static void test_rope__dims_before_the_turned_ones_pass(void **state)
{
    (void)state;
    const setting x = make();
    double *from = random_f64(SIZE, 1), *dy = random_f64(SIZE, 2), y[SIZE], want[SIZE], dx[SIZE];
    for (int l = 0; l < 3; l++)
        for (int first = 1; first <= HD - D; first += 2) {
            memcpy(want, from, sizeof want);
            bk_rope_apply_f64(want + first, x.at, from + first, x.at, x.cos, x.sin, S, B, G, R, 0, D, D,
                              layouts[l], false, 0);
            WITH_THREADS({
                memset(y, 0, sizeof y);
                bk_rope_apply_f64(y, x.at, from, x.at, x.cos, x.sin, S, B, G, R, first, D, HD, layouts[l],
                                  false, 0);
                assert_memory_equal(y, want, sizeof y);
            });
            bk_rope_apply_f64(dx, x.at, dy, x.at, x.cos, x.sin, S, B, G, R, first, D, HD, layouts[l], true,
                              0);
            assert_true(fabs(dot(dy, y, SIZE) - dot(dx, from, SIZE)) < 1e-12);
        }
    free(from), free(dy);
}

/* d = 8, base 10000, 4096 positions, by hand. Turns are 4096 / (2 pi 10^i) of pairs 0 .. 3: 651.9, 65.2,
 * 6.5, 0.65. With beta_fast 300 and beta_slow 1 the ramp goes from pair 0 (at 0.337 pairs, down) to pair 3
 * (at 2.81, up). */
static void test_rope__yarn_slows_what_does_not_turn_often(void **state)
{
    (void)state;
    enum { N = 7, DIMS = 8 };
    const bk_yarn yarn = {
        .factor = 4, .beta_fast = 300, .beta_slow = 1, .concentration = 1.25, .original = 4096};
    const double theta[DIMS / 2] = {1, 0.1 * (2 / 3.0 + 1 / 12.0), 0.01 * (1 / 3.0 + 1 / 6.0), 0.001 / 4};
    double c[N * DIMS / 2], s[N * DIMS / 2], want_c[N * DIMS / 2], want_s[N * DIMS / 2];
    float c32[N * DIMS / 2], s32[N * DIMS / 2];
    for (int p = 0; p < N; p++)
        for (int i = 0; i < DIMS / 2; i++) {
            want_c[p * DIMS / 2 + i] = 1.25 * cos((100 + p) * theta[i]);
            want_s[p * DIMS / 2 + i] = 1.25 * sin((100 + p) * theta[i]);
        }
    bk_yarn_table_f64(c, s, N, 100, DIMS, 10000, &yarn);
    check_near(c, want_c, N * DIMS / 2, 1e-13), check_near(s, want_s, N * DIMS / 2, 1e-13);
    bk_yarn_table_f32(c32, s32, N, 100, DIMS, 10000, &yarn);
    check_near_f32(c32, want_c, N * DIMS / 2, 1e-7), check_near_f32(s32, want_s, N * DIMS / 2, 1e-7);
}

/* Factor 1 is the plain table; where both ends of the ramp fall on one pair the step is between it and the
 * next. */
static void test_rope__yarn_at_its_ends(void **state)
{
    (void)state;
    enum { N = 5, DIMS = 8 };
    bk_yarn yarn = {.factor = 1, .beta_fast = 32, .beta_slow = 1, .concentration = 1, .original = 4096};
    double c[N * DIMS / 2], s[N * DIMS / 2], plain_c[N * DIMS / 2], plain_s[N * DIMS / 2];
    bk_rope_table_f64(plain_c, plain_s, N, 3, DIMS, 10000);
    bk_yarn_table_f64(c, s, N, 3, DIMS, 10000, &yarn);
    check_near(c, plain_c, N * DIMS / 2, 1e-15), check_near(s, plain_s, N * DIMS / 2, 1e-15);

    yarn.factor = 10; /* one position: all ramps end below pair 0 */
    yarn.original = 1, yarn.beta_slow = 0.1, yarn.beta_fast = 0.15;
    bk_yarn_table_f64(c, s, N, 3, DIMS, 10000, &yarn);
    for (int p = 0; p < N; p++)
        for (int i = 0; i < DIMS / 2; i++) {
            const double angle = (3 + p) * pow(10, -i) / (i > 0 ? 10 : 1), want[] = {cos(angle), sin(angle)};
            check_near(&c[p * DIMS / 2 + i], &want[0], 1, 1e-14);
            check_near(&s[p * DIMS / 2 + i], &want[1], 1, 1e-14);
        }
    bk_yarn_table_f64(NULL, NULL, 0, 3, DIMS, 10000, &yarn);
}

/* The map is orthogonal: its inverse is its transpose, which is the backward. */
static void test_rope__inverse_undoes_and_is_the_backward(void **state)
{
    (void)state;
    const setting x = make();
    double *from = random_f64(SIZE, 1), *dy = random_f64(SIZE, 2), y[SIZE], back[SIZE], dx[SIZE];
    for (int l = 0; l < 3; l++) {
        apply(&x, y, from, layouts[l], false, 0), apply(&x, back, y, layouts[l], true, 0);
        check_near(back, from, SIZE, 1e-15);
        apply(&x, dx, dy, layouts[l], true, 0);
        assert_true(fabs(dot(dy, y, SIZE) - dot(dx, from, SIZE)) < 1e-12);
    }
    free(from), free(dy);
}

static void test_rope__in_place_and_beta(void **state)
{
    (void)state;
    const setting x = make();
    double *from = random_f64(SIZE, 1), *into = random_f64(SIZE, 1), y[SIZE], twice[SIZE];
    for (int l = 0; l < 3; l++) {
        apply(&x, y, from, layouts[l], false, 0), memcpy(twice, y, sizeof y);
        apply(&x, twice, from, layouts[l], false, 1);
        for (int i = 0; i < SIZE; i++) twice[i] /= 2;
        check_near(twice, y, SIZE, 1e-15);
        if (layouts[l] == BK_ROPE_DEINTERLEAVE) continue;
        memcpy(into, from, sizeof y), apply(&x, into, into, layouts[l], false, 0);
        assert_memory_equal(into, y, sizeof y);
    }
    free(from), free(into);
}

/* Query heads inside a fused [S, B, G, R + 2, HD], and what lies between them is not touched; any thread
 * count. */
static void test_rope__strided_heads_in_any_number_of_threads(void **state)
{
    (void)state;
    enum { GROUP = (R + 2) * HD, WIDE = S * B * G * GROUP };
    const setting x = make();
    const bk_heads at = {.s = B * G * GROUP, .b = G * GROUP, .g = GROUP, .r = HD};
    double *fused = random_f64(WIDE, 1), *from = random_f64(SIZE, 2), y[SIZE], kept[WIDE];
    for (int64_t t = 0; t < S * B * G; t++)
        memcpy(from + t * R * HD, fused + t * GROUP, sizeof *from * R * HD);
    apply(&x, y, from, BK_ROPE_HALVES, false, 0), memcpy(kept, fused, sizeof kept);
    WITH_THREADS({
        memcpy(fused, kept, sizeof kept);
        bk_rope_apply_f64(fused, at, fused, at, x.cos, x.sin, S, B, G, R, 0, D, HD, BK_ROPE_HALVES, false, 0);
        for (int64_t t = 0; t < S * B * G; t++) {
            assert_memory_equal(fused + t * GROUP, y + t * R * HD, sizeof *y * R * HD);
            assert_memory_equal(fused + t * GROUP + R * HD, kept + t * GROUP + R * HD, sizeof *y * 2 * HD);
        }
    });
    bk_rope_apply_f64(NULL, at, NULL, at, NULL, NULL, 0, B, G, R, 0, D, HD, BK_ROPE_HALVES, false, 0);
    free(fused), free(from);
}

static void test_rope__float_is_close_to_double(void **state)
{
    (void)state;
    const setting x = make();
    double *from = random_f64(SIZE, 1), y[SIZE];
    round_to_f32(from, SIZE);
    float *from32 = to_f32(from, SIZE), y32[SIZE], *c = to_f32(x.cos, S * D / 2),
          *n = to_f32(x.sin, S * D / 2);
    apply(&x, y, from, BK_ROPE_INTERLEAVED, false, 0);
    bk_rope_apply_f32(y32, x.at, from32, x.at, c, n, S, B, G, R, 0, D, HD, BK_ROPE_INTERLEAVED, false, 0);
    check_near_f32(y32, y, SIZE, 2e-7);
    free(from), free(from32), free(c), free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope__table_holds_the_angles),
        cmocka_unit_test(test_rope__turns_each_pair),
        cmocka_unit_test(test_rope__dims_before_the_turned_ones_pass),
        cmocka_unit_test(test_rope__yarn_slows_what_does_not_turn_often),
        cmocka_unit_test(test_rope__yarn_at_its_ends),
        cmocka_unit_test(test_rope__inverse_undoes_and_is_the_backward),
        cmocka_unit_test(test_rope__in_place_and_beta),
        cmocka_unit_test(test_rope__strided_heads_in_any_number_of_threads),
        cmocka_unit_test(test_rope__float_is_close_to_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
