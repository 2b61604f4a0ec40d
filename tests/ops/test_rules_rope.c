/* The rules of rope and its table. */
#include "ops/grad_bench.h"

#define BK_BOTH "ops/rope/rope_cpu.h"
#include "base/real_both.h"

static void tables(bk_vid cs[2], bench *b, int64_t seq, int64_t dims)
{
    bk_err e;
    expect_op(cs, b, .kind = BK_OP_rope_table, .attr = {{.i = seq}, {.i = dims}, {.f = 100}});
    assert_int_equal(bench_run(b, bench_last(b), 0, &e), BK_OK);
}

/* Heads of 6 dims, of which 4 turn; q is a part of a fused [S, B, G, (R + 1) * 6]. */
static void rope_on(bench *b, int64_t interleaved, bool inverse, int64_t first)
{
    bk_vid cs[2], y, q;
    bk_err e;
    tables(cs, b, 3, 4);
    const bk_vid base = ACT(b, "qk", 3, 2, 2, 18);
    bench_wave(b, base, 0.1);
    assert_int_equal(bk_view_add(&q, b->g, "q", base, 5, (const int64_t[]){3, 2, 2, 2, 6},
                                 (const int64_t[]){72, 36, 18, 6, 1}, 6, &e),
                     BK_OK);
    expect_op(&y, b, .kind = BK_OP_rope, IN(q, cs[0], cs[1]),
              .attr = {{.i = interleaved}, {.i = inverse}, {.i = first}});
    assert_true(bk_is_dense(&b->g->value[y]));
}

static void rope_halves(bench *b)
{
    rope_on(b, 0, false, 0);
}
static void rope_pairs_back(bench *b)
{
    rope_on(b, 1, true, 1);
}
static void rope_deinterleave(bench *b)
{
    rope_on(b, 2, false, 0);
}
/* As in multi-latent attention. */
static void rope_last_dims(bench *b)
{
    rope_on(b, 2, false, 2);
}
static void rope_one_head_a_group(bench *b)
{
    bk_vid cs[2], y;
    tables(cs, b, 3, 6);
    const bk_vid k = ACT(b, "k", 3, 2, 2, 6);
    bench_wave(b, k, 0.1);
    expect_op(&y, b, .kind = BK_OP_rope, IN(k, cs[0], cs[1]));
}

static void test_rope__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    check_op(rope_halves, 1, 1);
    check_op(rope_pairs_back, 1, 1);
    check_op(rope_deinterleave, 1, 1);
    check_op(rope_last_dims, 1, 1);
    check_op(rope_one_head_a_group, 1, 1);
    check_nothing_flows(rope_halves);
}

/* What autodiff does: the gradient becomes a part of the fused projection's. */
static void test_rope__writes_into_a_view(void **state)
{
    (void)state;
    grad_bench t = grad_open(rope_halves, BK_F64, 1, false);
    bk_graph *g = t.b.g;
    const bk_vid dx = grad_of_input(&t, 0), q = bk_ins(g, &g->op[t.use])[0];
    enum { N = 3 * 2 * 2 * 2 * 6, BASE = 3 * 2 * 2 * 18 };
    double dense[N];
    for (int i = 0; i < N; i++) dense[i] = bench_at(&t.b, dx, i);
    const bk_vid base = ACT(&t.b, "d(qk)", 3, 2, 2, 18);
    for (int i = 0; i < BASE; i++) bench_put(&t.b, base, i, 77);
    g->value[dx].base = base, g->value[dx].offset = g->value[q].offset;
    memcpy(g->value[dx].stride, g->value[q].stride, sizeof g->value[dx].stride);
    bench_run_counted(&t.b, t.use + 1, 0);
    int untouched = 0;
    for (int i = 0; i < N; i++) assert_true(bench_at(&t.b, dx, i) == dense[i]);
    for (int i = 0; i < BASE; i++) untouched += bench_get(&t.b, base, i) == 77;
    assert_int_equal(untouched, BASE - N);
    grad_close(&t);
}

/* Dim 0 of position 1 turns by one radian, and the way back gives x again. */
static void test_rope__turns(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    bk_vid cs[2], y, z;
    bk_err e;
    tables(cs, &b, 2, 2);
    const bk_vid x = ACT(&b, "x", 2, 1, 1, 2);
    bench_put(&b, x, 2, 1);
    expect_op(&y, &b, .kind = BK_OP_rope, IN(x, cs[0], cs[1]));
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_OK);
    expect_op(&z, &b, .kind = BK_OP_rope, IN(y, cs[0], cs[1]), .attr = {[1] = {.i = 1}});
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_OK);
    assert_true(fabs(bench_get(&b, y, 2) - cos(1)) < 1e-15 && fabs(bench_get(&b, y, 3) - sin(1)) < 1e-15);
    assert_true(fabs(bench_get(&b, z, 2) - 1) < 1e-15 && fabs(bench_get(&b, z, 3)) < 1e-15);
    bench_close(&b);
}

static void test_rope__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid cs[2], apart;
    bk_err e;
    tables(cs, &b, 3, 4);
    const bk_vid x = ACT(&b, "x", 3, 2, 1, 6), longer = ACT(&b, "longer", 4, 2, 1, 6),
                 small = ACT(&b, "small", 3, 2, 1, 2), flat = ACT(&b, "flat", 3, 2, 6);
    assert_int_equal(bk_view_add(&apart, b.g, "apart", x, 4, (const int64_t[]){3, 2, 1, 3},
                                 (const int64_t[]){12, 6, 6, 2}, 0, &e),
                     BK_OK);
    expect_refused(&b, "dims", .kind = BK_OP_rope, IN(flat, cs[0], cs[1]));
    expect_refused(&b, "dim 0 must be 4", .kind = BK_OP_rope, IN(longer, cs[0], cs[1]));
    expect_refused(&b, "more than it has", .kind = BK_OP_rope, IN(small, cs[0], cs[1]));
    expect_refused(&b, "4 dims of each head from dim 3 on", .kind = BK_OP_rope, IN(x, cs[0], cs[1]),
                   .attr = {[2] = {.i = 3}});
    expect_refused(&b, "first is -1", .kind = BK_OP_rope, IN(x, cs[0], cs[1]), .attr = {[2] = {.i = -1}});
    expect_refused(&b, "interleaved is 3", .kind = BK_OP_rope, IN(x, cs[0], cs[1]), .attr = {{.i = 3}});
    expect_refused(&b, "not contiguous", .kind = BK_OP_rope, IN(apart, cs[0], cs[1]));
    expect_refused(&b, "even number", .kind = BK_OP_rope_table, .attr = {{.i = 3}, {.i = 5}, {.f = 10}});
    expect_refused(&b, "positions", .kind = BK_OP_rope_table, .attr = {{.i = -1}, {.i = 4}, {.f = 10}});
    expect_refused(&b, "base is 0", .kind = BK_OP_rope_table, .attr = {{.i = 3}, {.i = 4}});
    bench_close(&b);
}

#define YARN(base, factor, original, fast, slow, concentration)                                              \
    .kind = BK_OP_yarn_table,                                                                                \
    .attr = {{.i = 3},          {.i = 4},      {.f = (base)}, {.f = (factor)},                               \
             {.i = (original)}, {.f = (fast)}, {.f = (slow)}, {.f = (concentration)}}

static void test_rope__yarn_refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    expect_refused(&b, "base is 1, expected a number above 1", YARN(1, 4, 16, 32, 1, 1));
    expect_refused(&b, "factor is 0", YARN(100, 0, 16, 32, 1, 1));
    expect_refused(&b, "factor is inf", YARN(100, HUGE_VAL, 16, 32, 1, 1));
    expect_refused(&b, "original is 0", YARN(100, 4, 0, 32, 1, 1));
    expect_refused(&b, "beta_fast is -1", YARN(100, 4, 16, -1, 1, 1));
    expect_refused(&b, "beta_slow is 0", YARN(100, 4, 16, 32, 0, 1));
    expect_refused(&b, "concentration is inf", YARN(100, 4, 16, 32, 1, HUGE_VAL));
    expect_refused(&b, "even number", .kind = BK_OP_yarn_table, .attr = {{.i = 3}, {.i = 5}, {.f = 10}});
    bench_close(&b);
}

/* The op hands its attributes on, each to its own place, and begins at the position that it is given. */
static void test_rope__yarn_table_is_that_of_the_kernel(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    bk_vid cs[2];
    bk_err e;
    double want[2][6];
    const bk_vid position = bench_value(&b, "position", BK_INPUT, BK_I64, DIMS(1));
    b.g->value[position].scope = BK_STEP;
    *(int64_t *)bench_data(&b, position) = 7;
    expect_op(cs, &b, IN(position), YARN(100, 4, 50, 3, 0.5, 1.5));
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_OK);
    bk_yarn_table_f64(
        want[0], want[1], 3, 7, 4, 100,
        &(bk_yarn){.factor = 4, .original = 50, .beta_fast = 3, .beta_slow = 0.5, .concentration = 1.5});
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 6; i++) assert_true(bench_get(&b, cs[k], i) == want[k][i]);
    assert_int_equal(b.g->value[cs[0]].scope, BK_STEP);
    bench_close(&b);
}

/* The table does not depend on a micro-batch, so it is made once a step. */
static void test_rope__table_is_of_the_step(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    bk_vid cs[2];
    tables(cs, &b, 3, 4);
    assert_int_equal(b.g->value[cs[0]].scope, BK_STEP);
    assert_int_equal(b.g->value[cs[1]].dtype, BK_F64);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope__gradient_is_that_of_the_op),
        cmocka_unit_test(test_rope__writes_into_a_view),
        cmocka_unit_test(test_rope__turns),
        cmocka_unit_test(test_rope__refuses_what_does_not_fit),
        cmocka_unit_test(test_rope__yarn_refuses_what_does_not_fit),
        cmocka_unit_test(test_rope__yarn_table_is_that_of_the_kernel),
        cmocka_unit_test(test_rope__table_is_of_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
