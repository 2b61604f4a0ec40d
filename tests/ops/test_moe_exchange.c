/* Rows of tokens on their way to the ranks of their experts and back: shapes for many ranks, values for one.
 */
#include "ops/grad_bench.h"

#include <stdio.h>

enum { E = 3, C = 5 };

/* Rows that are sent and that there is room for at the receiver. */
static int64_t n_sent, n_room;

typedef struct {
    bk_vid sent, at[3]; /* counts, received, excess */
} exchanged;

/* All rows but the first two are for expert 2. */
static exchanged exchange(bench *b)
{
    exchanged x = {.sent = INPUT(b, "segments", BK_I64, E + 1)};
    bk_err e;
    int64_t *segments = bench_data(b, x.sent);
    for (int k = 1; k <= E; k++) segments[k] = k == E ? n_sent : n_sent < 2 ? n_sent : 2;
    expect_op(x.at, b, .kind = BK_OP_moe_exchange, IN(x.sent), .attr = {{1}, {0}, {n_room}});
    if (bench_run(b, bench_last(b), 0, &e) != BK_OK) fail_msg("%s", e.msg);
    return x;
}

static bk_vid move(bench *b, bk_op_kind kind, bool one_number)
{
    const exchanged x = exchange(b);
    const bool out = kind == BK_OP_moe_dispatch;
    const int64_t n = out ? n_sent : n_room;
    const bk_vid rows = one_number ? ACT(b, "rows", n) : ACT(b, "rows", n, C);
    bk_vid y;
    bench_wave(b, rows, 0.2);
    expect_op(&y, b, .kind = kind, IN(rows, x.sent, x.at[0], x.at[1]), .attr = {{out ? n_room : n_sent}});
    assert_int_equal(b->g->value[y].dim[0].count, 1 + (out ? x.at[1] : x.sent));
    return y;
}
static void dispatch(bench *b)
{
    move(b, BK_OP_moe_dispatch, false);
}
static void dispatch_probs(bench *b)
{
    move(b, BK_OP_moe_dispatch, true);
}
static void combine(bench *b)
{
    move(b, BK_OP_moe_combine, false);
}

static void test_moe_exchange__gradients(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {7, 7}, {7, 9}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        n_sent = sizes[k][0], n_room = sizes[k][1];
        check_op(dispatch, 1, 1);
        check_op(dispatch_probs, 1, 1);
    }
    n_sent = n_room = 7;
    check_op(combine, 1, 1);
    check_nothing_flows(dispatch);
}

static void test_moe_exchange__no_rows(void **state)
{
    (void)state;
    n_sent = 0, n_room = 3;
    bench b = bench_open(BK_F32);
    bk_err e;
    const exchanged x = exchange(&b);
    for (int k = 0; k <= E; k++) assert_int_equal(((int64_t *)bench_data(&b, x.at[1]))[k], 0);
    bench_close(&b);
    b = bench_open(BK_F32);
    const bk_vid y = move(&b, BK_OP_moe_dispatch, false);
    bench_put(&b, y, 0, 77);
    if (bench_run(&b, bench_last(&b), 0, &e) != BK_OK) fail_msg("%s", e.msg);
    assert_true(bench_get(&b, y, 0) == 77); /* nothing was counted, nothing is written */
    bench_close(&b);
}

/* Rows beyond the room are cut off on the way there, and zeros come back for them. */
static void test_moe_exchange__rows_without_room(void **state)
{
    (void)state;
    n_sent = 7, n_room = 4;
    for (int back = 0; back < 2; back++) {
        bench b = bench_open(BK_F64);
        bk_err e;
        const bk_vid y = move(&b, back ? BK_OP_moe_combine : BK_OP_moe_dispatch, false);
        const bk_op *op = &b.g->op[bench_last(&b)];
        const bk_vid rows = bk_ins(b.g, op)[0], counts = bk_ins(b.g, op)[2], received = bk_ins(b.g, op)[3];
        static const int64_t count[E] = {2, 0, 5}, begin[E + 1] = {0, 2, 2, 4};
        for (int k = 0; k < E; k++) assert_int_equal(((int64_t *)bench_data(&b, counts))[k], count[k]);
        for (int k = 0; k <= E; k++) assert_int_equal(((int64_t *)bench_data(&b, received))[k], begin[k]);
        assert_int_equal(*(int64_t *)bench_data(&b, bk_outs(b.g, &b.g->op[0])[2]), 3);
        for (int64_t i = 0; i < bk_elements(&b.g->value[y]); i++) bench_put(&b, y, i, 77);
        if (bench_run(&b, bench_last(&b), 0, &e) != BK_OK) fail_msg("%s", e.msg);
        for (int64_t i = 0; i < n_sent * C && i < bk_elements(&b.g->value[y]); i++)
            assert_true(bench_get(&b, y, i) == (i < n_room * C ? bench_get(&b, rows, i) : 0));
        bench_close(&b);
    }
}

/* What 64 ranks' worth of rows looks like, and that nothing pretends to carry them. */
static void test_moe_exchange__many_ranks(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e = {0};
    const bk_target target = {BK_TARGET_CPU, true};
    bk_cost cost = {0};
    const bk_vid segments = INPUT(&b, "segments", BK_I64, 257), rows = ACT(&b, "rows", 640, C);
    bk_vid at[3], there, back;
    expect_op(at, &b, .kind = BK_OP_moe_exchange, IN(segments), .attr = {{64}, {3}, {1000}});
    assert_int_equal(b.g->value[at[0]].dim[0].size, 64);
    assert_int_equal(b.g->value[at[0]].dim[1].size, 256);
    assert_int_equal(b.g->value[at[1]].dim[0].size, 5);
    expect_op(&there, &b, .kind = BK_OP_moe_dispatch, IN(rows, segments, at[0], at[1]), .attr = {{1000}});
    assert_int_equal(b.g->value[there].dim[0].size, 1000);
    bk_ops[BK_OP_moe_dispatch].rules->cost(&cost, b.g, &b.g->op[bench_last(&b)], &target);
    assert_int_equal(cost.msg_bytes, 640 * C * 4 / 64 * 63);
    expect_op(&back, &b, .kind = BK_OP_moe_combine, IN(there, segments, at[0], at[1]), .attr = {{640}});
    assert_int_equal(b.g->value[back].dim[0].size, 640);
    cost = (bk_cost){0};
    bk_ops[BK_OP_moe_combine].rules->cost(&cost, b.g, &b.g->op[bench_last(&b)], &target);
    assert_int_equal(cost.msg_bytes, 640 * C * 4 / 64 * 63);
    for (bk_oid o = 0; o < b.g->n_ops; o++) {
        assert_int_equal(bench_run(&b, o, 0, &e), BK_E_INPUT);
        assert_non_null(strstr(e.msg, "64 ranks"));
    }
    bench_close(&b);
}

static void test_moe_exchange__what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid seg = INPUT(&b, "segments", BK_I64, 9), few = INPUT(&b, "few", BK_I64, 4);
    const bk_vid counts = INPUT(&b, "counts", BK_I64, 2, 8), narrow = INPUT(&b, "narrow", BK_I32, 9);
    const bk_vid here = INPUT(&b, "here", BK_I64, 5), rows = ACT(&b, "rows", 6, C);
    const bk_vid odd = INPUT(&b, "odd", BK_I64, 3, 8), empty = INPUT(&b, "empty", BK_I64, 0);
    expect_refused(&b, "rank 0 of 3 with 8 experts", .kind = BK_OP_moe_exchange, IN(seg),
                   .attr = {{3}, {0}, {6}});
    expect_refused(&b, "rank 2 of 2", .kind = BK_OP_moe_exchange, IN(seg), .attr = {{2}, {2}, {6}});
    expect_refused(&b, "rank -1 of 2", .kind = BK_OP_moe_exchange, IN(seg), .attr = {{2}, {-1}, {6}});
    expect_refused(&b, "rank 0 of 0", .kind = BK_OP_moe_exchange, IN(seg), .attr = {{0}, {0}, {6}});
    expect_refused(&b, "room for -1 rows", .kind = BK_OP_moe_exchange, IN(seg), .attr = {{2}, {0}, {-1}});
    expect_refused(&b, "-1 experts", .kind = BK_OP_moe_exchange, IN(empty), .attr = {{1}, {0}, {6}});
    expect_refused(&b, "i64", .kind = BK_OP_moe_exchange, IN(narrow), .attr = {{2}, {0}, {6}});
    expect_refused(&b, "segments [experts + 1]", .kind = BK_OP_moe_dispatch, IN(rows, few, counts, here),
                   .attr = {{6}});
    expect_refused(&b, "segments [experts + 1]", .kind = BK_OP_moe_dispatch, IN(rows, seg, counts, few),
                   .attr = {{6}});
    expect_refused(&b, "as many experts", .kind = BK_OP_moe_dispatch, IN(rows, seg, odd, here),
                   .attr = {{6}});
    expect_refused(&b, "2147483648 rows", .kind = BK_OP_moe_combine, IN(rows, seg, counts, here),
                   .attr = {{INT64_C(1) << 31}});
    expect_refused(&b, "floating-point rows", .kind = BK_OP_moe_combine, IN(seg, seg, counts, here),
                   .attr = {{6}});
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_exchange__gradients),
        cmocka_unit_test(test_moe_exchange__no_rows),
        cmocka_unit_test(test_moe_exchange__rows_without_room),
        cmocka_unit_test(test_moe_exchange__many_ranks),
        cmocka_unit_test(test_moe_exchange__what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
