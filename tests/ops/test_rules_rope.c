/* The rules of rope and its table. */
#include "ops/grad_bench.h"

static void tables(bk_vid cs[2], bench *b, int64_t seq, int64_t dims)
{
    bk_err e;
    expect_op(cs, b, .kind = BK_OP_rope_table, .attr = {{.i = seq}, {.i = dims}, {.f = 100}});
    assert_int_equal(bench_run(b, bench_last(b), 0, &e), BK_OK);
}

/* Heads of 6 dims, of which 4 turn; q is a part of a fused [S, B, G, (R + 1) * 6]. */
static void rope_on(bench *b, int64_t interleaved, bool inverse)
{
    bk_vid cs[2], y, q;
    bk_err e;
    tables(cs, b, 3, 4);
    const bk_vid base = ACT(b, "qk", 3, 2, 2, 18);
    bench_wave(b, base, 0.1);
    assert_int_equal(bk_view_add(&q, b->g, "q", base, 5, (const int64_t[]){3, 2, 2, 2, 6},
                                 (const int64_t[]){72, 36, 18, 6, 1}, 6, &e),
                     BK_OK);
    expect_op(&y, b, .kind = BK_OP_rope, IN(q, cs[0], cs[1]), .attr = {{.i = interleaved}, {.i = inverse}});
    assert_true(bk_is_dense(&b->g->value[y]));
}

static void rope_halves(bench *b)
{
    rope_on(b, 0, false);
}
static void rope_pairs_back(bench *b)
{
    rope_on(b, 1, true);
}
static void rope_deinterleave(bench *b)
{
    rope_on(b, 2, false);
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
    expect_refused(&b, "interleaved is 3", .kind = BK_OP_rope, IN(x, cs[0], cs[1]), .attr = {{.i = 3}});
    expect_refused(&b, "not contiguous", .kind = BK_OP_rope, IN(apart, cs[0], cs[1]));
    expect_refused(&b, "even number", .kind = BK_OP_rope_table, .attr = {{.i = 3}, {.i = 5}, {.f = 10}});
    expect_refused(&b, "positions", .kind = BK_OP_rope_table, .attr = {{.i = -1}, {.i = 4}, {.f = 10}});
    expect_refused(&b, "base is 0", .kind = BK_OP_rope_table, .attr = {{.i = 3}, {.i = 4}});
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
        cmocka_unit_test(test_rope__table_is_of_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
