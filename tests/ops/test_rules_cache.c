/* The rules of the ops that keep keys and values, and of those that take a position. */
#include "ops/grad_bench.h"

enum { M = 150, B = 2, G = 2, R = 2, D = 3, DV = 2, ROW = R * D + D + DV };

static void set_position(bench *b, bk_vid v, int64_t at)
{
    *(int64_t *)bench_data(b, v) = at;
}

static bk_vid state_of(bench *b, const char *name, int64_t rows, int64_t d)
{
    return bench_value(b, name, BK_STATE, b->g->real, DIMS(rows, B, G, d));
}

/* Views q, k, v of S positions, from `first` on, of a fused projection of M positions. */
static void fused_views(bk_vid qkv[3], bench *b, bk_vid base, int64_t first, int64_t S)
{
    bk_err e;
    const int64_t stride[] = {B * G * ROW, G * ROW, ROW, D, 1}, flat[] = {B * G * ROW, G * ROW, ROW, 1};
    const int64_t at = first * B * G * ROW;
    assert_int_equal(
        bk_view_add(&qkv[0], b->g, "q", base, 5, (const int64_t[]){S, B, G, R, D}, stride, at, &e), BK_OK);
    assert_int_equal(
        bk_view_add(&qkv[1], b->g, "k", base, 4, (const int64_t[]){S, B, G, D}, flat, at + R * D, &e), BK_OK);
    assert_int_equal(
        bk_view_add(&qkv[2], b->g, "v", base, 4, (const int64_t[]){S, B, G, DV}, flat, at + R * D + D, &e),
        BK_OK);
}

static void run_last(bench *b)
{
    bk_err e;
    if (bench_run(b, bench_last(b), 0, &e) != BK_OK) fail_msg("%s", e.msg);
}

/* One sequence, cut into steps of any lengths: each row of the output has the bits of attention over all of
 * it. Steps begin inside of blocks of 64 and reach over their ends. */
static void check_steps(bk_dtype real, const int64_t *step, int n_steps)
{
    bench b = bench_open(real);
    bk_vid x[3], whole[2], part;
    const bk_vid base = ACT(&b, "qkv", M, B, G, ROW), position = INPUT(&b, "position", BK_I64, 1);
    const bk_vid k = state_of(&b, "cache.k", M, D), v = state_of(&b, "cache.v", M, DV);
    bench_wave(&b, base, 0.1);
    for (int64_t i = 0; i < bk_elements(&b.g->value[k]); i++) bench_put(&b, k, i, (double)NAN);
    for (int64_t i = 0; i < bk_elements(&b.g->value[v]); i++) bench_put(&b, v, i, (double)NAN);
    fused_views(x, &b, base, 0, M);
    expect_op(whole, &b, .kind = BK_OP_attention, IN(x[0], x[1], x[2]), .attr = {{.f = 0.7}});
    run_last(&b);
    int64_t at = 0;
    for (int s = 0; s < n_steps; at += step[s++]) {
        set_position(&b, position, at);
        fused_views(x, &b, base, at, step[s]);
        expect_op(NULL, &b, .kind = BK_OP_cache_append, IN(x[1], position), UPD(k));
        run_last(&b);
        expect_op(NULL, &b, .kind = BK_OP_cache_append, IN(x[2], position), UPD(v));
        run_last(&b);
        expect_op(&part, &b, .kind = BK_OP_attention_cached, IN(x[0], k, v, position), .attr = {{.f = 0.7}});
        run_last(&b);
        const int64_t n = step[s] * B * G * R * DV;
        const size_t size = real == BK_F64 ? 8 : 4;
        assert_memory_equal((char *)bench_data(&b, whole[0]) + (size_t)(at * B * G * R * DV) * size,
                            bench_data(&b, part), (size_t)n * size);
    }
    assert_int_equal(at, M);
    bench_close(&b);
}

static void test_cache__steps_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    static const int64_t pieces[] = {1, 40, 70, 1, 1, 37}, whole[] = {M}, halves[] = {64, 64, 22};
    for (int real = 0; real < 2; real++) {
        const bk_dtype d = real ? BK_F64 : BK_F32;
        check_steps(d, pieces, 6), check_steps(d, whole, 1), check_steps(d, halves, 3);
    }
}

static void test_cache__append_leaves_the_other_rows(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid x = ACT(&b, "x", 2, B, G, D), position = INPUT(&b, "position", BK_I64, 1);
    const bk_vid cache = state_of(&b, "cache", 5, D);
    bench_ramp(&b, x, 2);
    for (int i = 0; i < 5 * B * G * D; i++) bench_put(&b, cache, i, 100 + i);
    expect_op(NULL, &b, .kind = BK_OP_cache_append, IN(x, position), UPD(cache));
    set_position(&b, position, 2);
    run_last(&b);
    for (int i = 0; i < 5 * B * G * D; i++) {
        const int row = i / (B * G * D);
        const double want = row == 2 || row == 3 ? bench_get(&b, x, i - 2 * B * G * D) : 100 + i;
        assert_true(bench_get(&b, cache, i) == want);
    }
    bench_close(&b);
}

/* Runs the last op at a position that it must refuse. */
static void expect_out_of_range(bench *b, bk_vid position, int64_t at, const char *says)
{
    bk_err e;
    set_position(b, position, at);
    assert_int_equal(bench_run(b, bench_last(b), 0, &e), BK_E_INPUT);
    expect_message(&e, says);
}

static void test_cache__a_position_out_of_range_is_an_error(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid out[2];
    const bk_vid q = ACT(&b, "q", 2, B, G, R, D), x = ACT(&b, "x", 2, B, G, D), h = ACT(&b, "h", 2, B, 7),
                 table = PARAM(&b, "table", 5, 7), position = INPUT(&b, "position", BK_I64, 1);
    const bk_vid k = state_of(&b, "k", 5, D), v = state_of(&b, "v", 5, DV);
    expect_op(NULL, &b, .kind = BK_OP_cache_append, IN(x, position), UPD(k));
    expect_out_of_range(&b, position, 4, "2 tokens at position 4 do not fit the 5 rows of the cache");
    expect_out_of_range(&b, position, -1, "position -1");
    expect_out_of_range(&b, position, INT64_MAX, "do not fit");
    expect_op(out, &b, .kind = BK_OP_attention_cached, IN(q, k, v, position), .attr = {{.f = 1}});
    expect_out_of_range(&b, position, 4, "2 tokens at position 4 do not fit the 5 rows of the cache");
    expect_out_of_range(&b, position, -1, "position -1");
    expect_op(out, &b, .kind = BK_OP_add_pos, IN(h, table, position));
    expect_out_of_range(&b, position, 4,
                        "2 tokens at position 4 do not fit the 5 rows of the position table");
    expect_out_of_range(&b, position, -1, "position -1");
    expect_op(out, &b, .kind = BK_OP_rope_table, IN(position), .attr = {{.i = 2}, {.i = 4}, {.f = 10}});
    expect_out_of_range(&b, position, -1, "position -1");
    bench_close(&b);
}

static void test_cache__positions_move_the_tables(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    bk_vid all[2], some[2], y, z;
    const bk_vid h = ACT(&b, "h", 2, B, 3), table = PARAM(&b, "table", 9, 3),
                 position = INPUT(&b, "position", BK_I64, 1);
    bench_wave(&b, h, 0.2), bench_wave(&b, table, 0.7);
    set_position(&b, position, 5);
    expect_op(all, &b, .kind = BK_OP_rope_table, .attr = {{.i = 9}, {.i = 4}, {.f = 10}});
    run_last(&b);
    expect_op(some, &b, .kind = BK_OP_rope_table, IN(position), .attr = {{.i = 2}, {.i = 4}, {.f = 10}});
    run_last(&b);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 4; i++)
            assert_true(bench_get(&b, some[t], i) == bench_get(&b, all[t], 5 * 2 + i));
    expect_op(&y, &b, .kind = BK_OP_add_pos, IN(h, table, position));
    run_last(&b);
    for (int i = 0; i < 2 * B * 3; i++) {
        const int row = 5 + i / (B * 3);
        assert_true(bench_get(&b, y, i) == bench_get(&b, h, i) + bench_get(&b, table, row * 3 + i % 3));
    }
    expect_op(&z, &b, .kind = BK_OP_add_pos, IN(h, table));
    run_last(&b);
    assert_true(bench_get(&b, z, 0) == bench_get(&b, h, 0) + bench_get(&b, table, 0));
    bench_close(&b);
}

static void test_cache__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid q = ACT(&b, "q", 2, B, G, R, D), x = ACT(&b, "x", 2, B, G, D),
                 wide = ACT(&b, "wide", 2, B, G, D + 1), position = INPUT(&b, "position", BK_I64, 1),
                 narrow = INPUT(&b, "narrow", BK_I32, 1), two = INPUT(&b, "two", BK_I64, 2),
                 h = ACT(&b, "h", 2, B, 7), table = PARAM(&b, "table", 5, 7);
    const bk_vid k = state_of(&b, "k", 5, D), v = state_of(&b, "v", 5, DV), v6 = state_of(&b, "v6", 6, DV),
                 small = state_of(&b, "small", 1, D), wide_q = ACT(&b, "wide_q", 2, B, G, R, 300),
                 wide_k = state_of(&b, "wide_k", 5, 300);
    expect_refused(&b, "k", .kind = BK_OP_cache_append, IN(wide, position), UPD(k));
    expect_refused(&b, "is i32", .kind = BK_OP_cache_append, IN(x, narrow), UPD(k));
    expect_refused(&b, "must be 1", .kind = BK_OP_cache_append, IN(x, two), UPD(k));
    expect_refused(&b, "fewer rows", .kind = BK_OP_cache_append, IN(x, position), UPD(small));
    expect_refused(&b, "v6", .kind = BK_OP_attention_cached, IN(q, k, v6, position));
    expect_refused(&b, "expected 5", .kind = BK_OP_attention_cached, IN(x, k, v, position));
    expect_refused(&b, "fewer rows", .kind = BK_OP_attention_cached, IN(q, small, small, position));
    expect_refused(&b, "up to 256 dims", .kind = BK_OP_attention_cached, IN(wide_q, wide_k, v, position));
    expect_refused(&b, "scale", .kind = BK_OP_attention_cached, IN(q, k, v, position),
                   .attr = {{.f = HUGE_VAL}});
    expect_refused(&b, "must be 1", .kind = BK_OP_add_pos, IN(h, table, two));
    expect_refused(&b, "a position [1]", .kind = BK_OP_rope_table, IN(two),
                   .attr = {{.i = 2}, {.i = 4}, {.f = 10}});
    expect_refused(&b, "is i32", .kind = BK_OP_rope_table, IN(narrow),
                   .attr = {{.i = 2}, {.i = 4}, {.f = 10}});
    bench_close(&b);
}

/* Groups may be split over ranks, positions not. */
static void test_cache__spread(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid out;
    const bk_vid q = ACT(&b, "q", 2, B, G, R, D), x = ACT(&b, "x", 2, B, G, D),
                 position = INPUT(&b, "position", BK_I64, 1);
    const bk_vid k = state_of(&b, "k", 5, D), v = state_of(&b, "v", 5, DV), all[] = {q, x, k, v};
    b.g->axis_size[BK_AXIS_TP] = 2;
    for (int i = 0; i < 4; i++) b.g->value[all[i]].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 2};
    expect_op(NULL, &b, .kind = BK_OP_cache_append, IN(x, position), UPD(k));
    expect_op(&out, &b, .kind = BK_OP_attention_cached, IN(q, k, v, position), .attr = {{.f = 1}});
    assert_int_equal(b.g->value[out].spread[BK_AXIS_TP].kind, BK_SPLIT);
    assert_int_equal(b.g->value[out].spread[BK_AXIS_TP].dim, 2);
    for (int i = 0; i < 4; i++) b.g->value[all[i]].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0};
    expect_refused(&b, "needs all of it", .kind = BK_OP_cache_append, IN(x, position), UPD(k));
    expect_refused(&b, "needs all of it", .kind = BK_OP_attention_cached, IN(q, k, v, position));
    bench_close(&b);
}

/* What a call counts is never more than its cost, which is that of a full cache. */
static void test_cache__cost_is_that_of_a_full_cache(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid out;
    bk_cost cost = {0};
    const bk_target target = {BK_TARGET_CPU, true};
    const bk_vid q = ACT(&b, "q", 1, B, G, R, D), position = INPUT(&b, "position", BK_I64, 1);
    const bk_vid k = state_of(&b, "k", M, D), v = state_of(&b, "v", M, DV);
    expect_op(&out, &b, .kind = BK_OP_attention_cached, IN(q, k, v, position), .attr = {{.f = 1}});
    bk_ops[BK_OP_attention_cached].rules->cost(&cost, b.g, &b.g->op[bench_last(&b)], &target);
    assert_int_equal(cost.madds, (int64_t)B * G * R * M * (D + DV));
    assert_true(cost.flops > 0 && cost.bytes > 0);
    int64_t before = bk_tally_madds;
    set_position(&b, position, M - 1);
    run_last(&b);
    assert_int_equal(bk_tally_madds - before, cost.madds);
    before = bk_tally_madds;
    set_position(&b, position, 0);
    run_last(&b);
    assert_int_equal(bk_tally_madds - before, cost.madds / M);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache__steps_have_the_bits_of_the_whole),
        cmocka_unit_test(test_cache__append_leaves_the_other_rows),
        cmocka_unit_test(test_cache__a_position_out_of_range_is_an_error),
        cmocka_unit_test(test_cache__positions_move_the_tables),
        cmocka_unit_test(test_cache__refuses_what_does_not_fit),
        cmocka_unit_test(test_cache__spread),
        cmocka_unit_test(test_cache__cost_is_that_of_a_full_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
