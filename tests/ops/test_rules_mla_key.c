/* The key of multi-latent attention and its gradient: kernels and rules. */
#include "ops/grad_bench.h"

#include "ops/kernel_check.h"

#define BK_BOTH "ops/attention/mla_key_cpu.h"
#include "base/real_both.h"

enum { B = 3, G = 5, N = 3, P = 2, D = N + P, OWN_ROW = N + 4, SHARED_ROW = P + 3, TOKENS = 301 };

/* The head's own part lies in a projection [.., G, N + 4], the shared one in one of P + 3. */
static const bk_heads keys = {.s = B * G * D, .b = G * D, .g = D},
                      owns = {.s = B * G * OWN_ROW, .b = G * OWN_ROW, .g = OWN_ROW},
                      shareds = {.s = B * SHARED_ROW, .b = SHARED_ROW};

static void test_mla_key__each_head_has_its_own_part_and_the_shared_one(void **state)
{
    (void)state;
    enum { T = TOKENS * B };
    double *own = random_f64(T * G * OWN_ROW, 1), *shared = random_f64(T * SHARED_ROW, 2);
    double *key = malloc(sizeof(double[T * G * D])), *want = malloc(sizeof(double[T * G * D]));
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++)
            for (int i = 0; i < D; i++)
                want[(t * G + g) * D + i] =
                    i < N ? own[(t * G + g) * OWN_ROW + i] : shared[t * SHARED_ROW + i - N];
    WITH_THREADS({
        memset(key, 0, sizeof(double[T * G * D]));
        bk_mla_key_f64(key, keys, own, owns, shared, shareds, TOKENS, B, G, N, P);
        assert_memory_equal(key, want, sizeof(double[T * G * D]));
    });
    bk_mla_key_f64(NULL, keys, NULL, owns, NULL, shareds, 0, B, G, N, P);
    free(own), free(shared), free(key), free(want);
}

/* d_shared is the sum over the heads, in their order; nothing outside the two parts is written. */
static void test_mla_key__backward_sums_over_heads(void **state)
{
    (void)state;
    enum { T = TOKENS * B };
    double *d_key = random_f64(T * G * D, 3), *own = random_f64(T * G * OWN_ROW, 1),
           *shared = random_f64(T * SHARED_ROW, 2);
    double *want_own = random_f64(T * G * OWN_ROW, 1), *want_shared = random_f64(T * SHARED_ROW, 2);
    for (int t = 0; t < T; t++)
        for (int g = 0; g < G; g++)
            for (int i = 0; i < D; i++) {
                const double d = d_key[(t * G + g) * D + i];
                if (i < N)
                    want_own[(t * G + g) * OWN_ROW + i] = d;
                else if (g == 0)
                    want_shared[t * SHARED_ROW + i - N] = d;
                else
                    want_shared[t * SHARED_ROW + i - N] += d;
            }
    WITH_THREADS({
        bk_mla_key_bwd_f64(own, owns, shared, shareds, d_key, keys, TOKENS, B, G, N, P);
        assert_memory_equal(own, want_own, sizeof(double[T * G * OWN_ROW]));
        assert_memory_equal(shared, want_shared, sizeof(double[T * SHARED_ROW]));
    });
    bk_mla_key_bwd_f64(NULL, owns, NULL, shareds, NULL, keys, 0, B, G, N, P);
    free(d_key), free(own), free(shared), free(want_own), free(want_shared);
}

/* Both inputs are parts of projections, as in the model. */
static void key_of(bench *b, int64_t S, int64_t heads)
{
    bk_vid own, shared, y;
    bk_err e;
    const bk_vid up = ACT(b, "up", S, 2, heads * OWN_ROW), down = ACT(b, "down", S, 2, SHARED_ROW);
    bench_wave(b, up, 0.1), bench_wave(b, down, 0.7);
    const int64_t row = heads * OWN_ROW;
    assert_int_equal(bk_view_add(&own, b->g, "own", up, 4, (const int64_t[]){S, 2, heads, N},
                                 (const int64_t[]){2 * row, row, OWN_ROW, 1}, 0, &e),
                     BK_OK);
    assert_int_equal(bk_view_add(&shared, b->g, "shared", down, 4, (const int64_t[]){S, 2, 1, P},
                                 (const int64_t[]){2 * SHARED_ROW, SHARED_ROW, SHARED_ROW, 1}, 3, &e),
                     BK_OK);
    expect_op(&y, b, .kind = BK_OP_mla_key, IN(own, shared));
    assert_int_equal(b->g->value[y].dim[3].size, D);
    assert_true(bk_is_dense(&b->g->value[y]));
}

static void several_tokens(bench *b)
{
    key_of(b, 3, 5);
}
static void one_token_and_head(bench *b)
{
    key_of(b, 1, 1);
}
static void no_tokens(bench *b)
{
    key_of(b, 0, 3);
}

static void test_mla_key__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    check_op(several_tokens, 1, 3);
    check_op(one_token_and_head, 1, 3);
    check_nothing_flows(several_tokens);
    grad_bench t = grad_open(no_tokens, BK_F64, 1, false);
    assert_int_equal(bk_elements(&t.b.g->value[grad_of_input(&t, 1)]), 0);
    grad_close(&t);
}

static void test_mla_key__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid apart;
    bk_err e;
    const bk_vid own = ACT(&b, "own", 3, 2, 5, 4), shared = ACT(&b, "shared", 3, 2, 1, 2),
                 flat = ACT(&b, "flat", 3, 2, 2), two = ACT(&b, "two", 3, 2, 2, 2),
                 longer = ACT(&b, "longer", 4, 2, 1, 2), ints = INPUT(&b, "ints", BK_I32, 3, 2, 1, 2);
    assert_int_equal(bk_view_add(&apart, b.g, "apart", own, 4, (const int64_t[]){3, 2, 5, 2},
                                 (const int64_t[]){40, 20, 4, 2}, 0, &e),
                     BK_OK);
    expect_refused(&b, "has 3 dims, expected 4", .kind = BK_OP_mla_key, IN(own, flat));
    expect_refused(&b, "dim 2", .kind = BK_OP_mla_key, IN(own, two));
    expect_refused(&b, "dim 0 must be 3", .kind = BK_OP_mla_key, IN(own, longer));
    expect_refused(&b, "is i32", .kind = BK_OP_mla_key, IN(own, ints));
    expect_refused(&b, "not contiguous", .kind = BK_OP_mla_key, IN(apart, shared));
    expect_refused(&b, "dims is 5", .kind = BK_OP_mla_key_grad, IN(own), .n_out = 2, .attr = {{5}});
    expect_refused(&b, "dims is -1", .kind = BK_OP_mla_key_grad, IN(own), .n_out = 2, .attr = {{-1}});
    bench_close(&b);
}

/* Where heads are split over ranks, the gradient of the shared part is a sum over a rank's heads alone. */
static void test_mla_key__spread(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid y, d[2];
    const bk_vid own = ACT(&b, "own", 3, 2, 4, 4), shared = ACT(&b, "shared", 3, 2, 1, 2);
    b.g->axis_size[BK_AXIS_TP] = 2;
    b.g->value[own].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 2};
    expect_op(&y, &b, .kind = BK_OP_mla_key, IN(own, shared));
    assert_int_equal(b.g->value[y].spread[BK_AXIS_TP].kind, BK_SPLIT);
    assert_int_equal(b.g->value[y].spread[BK_AXIS_TP].dim, 2);
    expect_op(d, &b, .kind = BK_OP_mla_key_grad, IN(y), .n_out = 2, .attr = {{4}});
    assert_int_equal(b.g->value[d[0]].spread[BK_AXIS_TP].dim, 2);
    assert_int_equal(b.g->value[d[1]].spread[BK_AXIS_TP].kind, BK_PARTIAL);
    b.g->value[own].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 3};
    expect_refused(&b, "needs all of it", .kind = BK_OP_mla_key, IN(own, shared));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mla_key__each_head_has_its_own_part_and_the_shared_one),
        cmocka_unit_test(test_mla_key__backward_sums_over_heads),
        cmocka_unit_test(test_mla_key__gradient_is_that_of_the_op),
        cmocka_unit_test(test_mla_key__refuses_what_does_not_fit),
        cmocka_unit_test(test_mla_key__spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
