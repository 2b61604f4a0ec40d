#include "op_bench.h"

static bench open_ranks(int tp, int dp)
{
    bench b = bench_open(BK_F32);
    b.g->axis_size[BK_AXIS_TP] = tp;
    b.g->axis_size[BK_AXIS_DP] = dp;
    return b;
}

static bk_vid split(bench *b, bk_vid v, bk_axis axis, int dim)
{
    b->g->value[v].spread[axis] = (bk_spread){BK_SPLIT, (int8_t)dim};
    return v;
}

static bk_vid partial(bench *b, bk_vid v, bk_axis axis)
{
    b->g->value[v].spread[axis] = (bk_spread){BK_PARTIAL, 0};
    return v;
}

static void expect_spread(const bench *b, bk_vid v, bk_axis axis, bk_spread_kind kind, int dim)
{
    assert_int_equal(b->g->value[v].spread[axis].kind, kind);
    assert_int_equal(b->g->value[v].spread[axis].dim, dim);
}

static void test_rules_spread__linear_by_columns_and_rows(void **state)
{
    (void)state;
    bench b = open_ranks(2, 2);
    bk_err e;
    const bk_vid x = split(&b, ACT(&b, "x", 3, 2, 4), BK_AXIS_DP, 1);
    const bk_vid w = split(&b, PARAM(&b, "w", 5, 4), BK_AXIS_TP, 0);
    const bk_vid bias = split(&b, PARAM(&b, "bias", 5), BK_AXIS_TP, 0);
    const bk_vid w2 = split(&b, PARAM(&b, "w2", 6, 5), BK_AXIS_TP, 1), bias2 = PARAM(&b, "bias2", 6);
    bk_vid y, z;
    assert_int_equal(bench_op(&y, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(x, w, bias)}, &e), BK_OK);
    expect_spread(&b, y, BK_AXIS_TP, BK_SPLIT, 2);
    expect_spread(&b, y, BK_AXIS_DP, BK_SPLIT, 1);
    assert_int_equal(bench_op(&z, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(y, w2)}, &e), BK_OK);
    expect_spread(&b, z, BK_AXIS_TP, BK_PARTIAL, 0);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(y, w2, bias2)}, &e),
                     BK_E_CHECK);
    expect_message(&e, "bias2");
    bench_close(&b);
}

static void test_rules_spread__pieces_must_meet_pieces(void **state)
{
    (void)state;
    bench b = open_ranks(2, 1);
    bk_err e;
    const bk_vid x = split(&b, ACT(&b, "x", 3, 2, 4), BK_AXIS_TP, 2), w = PARAM(&b, "w", 5, 4);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(x, w)}, &e), BK_E_CHECK);
    expect_message(&e, "input 1 w [5, 4] is whole");
    split(&b, w, BK_AXIS_TP, 0);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(x, w)}, &e), BK_E_CHECK);
    expect_message(&e, "different dims");
    bench_close(&b);
}

static void test_rules_spread__weight_gradients_are_partial_over_tokens(void **state)
{
    (void)state;
    bench b = open_ranks(2, 2);
    bk_err e;
    const bk_vid x = split(&b, split(&b, ACT(&b, "x", 3, 2, 4), BK_AXIS_DP, 1), BK_AXIS_TP, 2);
    const bk_vid dy = split(&b, ACT(&b, "dy", 3, 2, 5), BK_AXIS_DP, 1);
    const bk_vid dw = GRADIENT(&b, "dw", 5, 4), db = GRADIENT(&b, "db", 5), w = PARAM(&b, "w", 5, 4);
    const bk_op_spec wgrad = {.kind = BK_OP_linear_wgrad, IN(dy, x), UPD(dw, db)};
    assert_int_equal(bench_op(NULL, &b, &wgrad, &e), BK_OK);
    expect_spread(&b, dw, BK_AXIS_DP, BK_PARTIAL, 0);
    expect_spread(&b, db, BK_AXIS_DP, BK_PARTIAL, 0);
    expect_spread(&b, dw, BK_AXIS_TP, BK_SPLIT, 1);
    expect_spread(&b, db, BK_AXIS_TP, BK_SAME, 0); /* it does not see x */
    split(&b, dy, BK_AXIS_TP, 2), split(&b, w, BK_AXIS_TP, 0);
    bk_vid dx;
    assert_int_equal(bench_op(&dx, &b, &(bk_op_spec){.kind = BK_OP_linear_dgrad, IN(dy, w)}, &e), BK_OK);
    expect_spread(&b, dx, BK_AXIS_TP, BK_PARTIAL, 0);
    expect_spread(&b, dx, BK_AXIS_DP, BK_SPLIT, 1);
    bench_close(&b);
}

static void test_rules_spread__partial_sums_add_and_go_no_further(void **state)
{
    (void)state;
    bench b = open_ranks(1, 2);
    bk_err e;
    const bk_vid x = partial(&b, ACT(&b, "x", 3, 2, 4), BK_AXIS_DP), whole = ACT(&b, "whole", 3, 2, 4);
    const bk_vid labels = INPUT(&b, "labels", BK_I32, 2, 3), w = PARAM(&b, "w", 5, 4);
    bk_vid sum;
    assert_int_equal(bench_op(&sum, &b, &(bk_op_spec){.kind = BK_OP_add_n, IN(x, x)}, &e), BK_OK);
    expect_spread(&b, sum, BK_AXIS_DP, BK_PARTIAL, 0);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_add_n, IN(x, whole)}, &e), BK_E_CHECK);
    expect_message(&e, "is a partial sum over dp, but input 1 whole");
    assert_int_equal(
        bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_cross_entropy, IN(x, labels), .n_out = 2}, &e),
        BK_E_CHECK);
    expect_message(&e, "needs a reduction");
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(x, w)}, &e), BK_E_CHECK);
    expect_message(&e, "needs a reduction");
    bench_close(&b);
}

static void test_rules_spread__an_op_may_need_all_of_a_dim(void **state)
{
    (void)state;
    bench b = open_ranks(1, 2);
    bk_err e;
    const bk_vid x = split(&b, ACT(&b, "x", 3, 2, 4), BK_AXIS_DP, 0),
                 samples = INPUT(&b, "samples", BK_I64, 2);
    const bk_op_spec draws = {.kind = BK_OP_dropout, IN(x, samples), .attr = {{.f = 0.5}}};
    const bk_op_spec none = {.kind = BK_OP_dropout, IN(x, samples), .attr = {{.f = 0}}};
    assert_int_equal(bench_op(NULL, &b, &draws, &e), BK_E_CHECK);
    expect_message(&e, "split along dim 0 over dp, and the op needs all of it");
    assert_int_equal(bench_op(NULL, &b, &none, &e), BK_OK);
    const bk_vid logits = split(&b, ACT(&b, "logits", 3, 2, 4), BK_AXIS_DP, 2),
                 labels = INPUT(&b, "l", BK_I32, 2, 3);
    const bk_op_spec loss = {.kind = BK_OP_cross_entropy, IN(logits, labels), .n_out = 2};
    assert_int_equal(bench_op(NULL, &b, &loss, &e), BK_E_CHECK);
    bench_close(&b);
}

static void test_rules_spread__mean_over_pieces(void **state)
{
    (void)state;
    bench b = open_ranks(1, 2);
    bk_err e;
    const bk_vid x = split(&b, ACT(&b, "x", 2, 3), BK_AXIS_DP, 0),
                 mask = split(&b, ACT(&b, "m", 2, 3), BK_AXIS_DP, 0);
    const bk_vid seed = ACT(&b, "seed", 1);
    bk_vid out[3], dx;
    assert_int_equal(bench_op(out, &b, &(bk_op_spec){.kind = BK_OP_masked_mean, IN(x, mask), .n_out = 3}, &e),
                     BK_OK);
    for (int k = 0; k < 3; k++) expect_spread(&b, out[k], BK_AXIS_DP, BK_PARTIAL, 0);
    const bk_op_spec back = {.kind = BK_OP_masked_mean_grad, IN(seed, mask, out[2])};
    assert_int_equal(bench_op(&dx, &b, &back, &e), BK_OK);
    expect_spread(&b, dx, BK_AXIS_DP, BK_SPLIT, 0);
    bench_close(&b);
}

static void test_rules_spread__optimizer_step_names_the_parameter(void **state)
{
    (void)state;
    bench b = open_ranks(2, 2);
    bk_err e;
    const bk_vid p = PARAM(&b, "decoder.w", 5, 4), m = GRADIENT(&b, "m", 5, 4), v = GRADIENT(&b, "v", 5, 4);
    const bk_vid g = partial(&b, GRADIENT(&b, "dw", 5, 4), BK_AXIS_DP);
    const bk_vid lr = INPUT(&b, "lr", BK_F64, 1), step = INPUT(&b, "step", BK_I64, 1);
    const bk_vid coef = INPUT(&b, "coef", BK_F64, 1), apply = INPUT(&b, "apply", BK_I32, 1);
    const bk_op_spec adamw = {.kind = BK_OP_adamw, IN(g, lr, step, coef, apply), UPD(p, m, v)};
    assert_int_equal(bench_op(NULL, &b, &adamw, &e), BK_E_CHECK);
    expect_message(&e, "parameter decoder.w: input 0 dw [5, 4] is a partial sum over dp");
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_grad_norm, IN(g)}, &e), BK_E_CHECK);
    expect_message(&e, "input 0 dw");
    b.g->value[g].spread[BK_AXIS_DP].kind = BK_SAME;
    assert_int_equal(bench_op(NULL, &b, &adamw, &e), BK_OK);
    split(&b, p, BK_AXIS_TP, 0), split(&b, g, BK_AXIS_TP, 0), split(&b, m, BK_AXIS_TP, 0);
    assert_int_equal(bench_op(NULL, &b, &adamw, &e), BK_E_CHECK);
    expect_message(&e, "parameter decoder.w: update 2 v [5, 4] is the same on all ranks over tp");
    split(&b, v, BK_AXIS_TP, 0);
    assert_int_equal(bench_op(NULL, &b, &adamw, &e), BK_OK);
    expect_spread(&b, p, BK_AXIS_TP, BK_SPLIT, 0);
    bench_close(&b);
}

static void test_rules_spread__addend_is_spread_as_the_output(void **state)
{
    (void)state;
    bench b = open_ranks(2, 1);
    bk_err e;
    const bk_vid dy = split(&b, ACT(&b, "dy", 3, 2, 5), BK_AXIS_TP, 2), sum = ACT(&b, "sum", 3, 2, 4);
    const bk_vid w = split(&b, PARAM(&b, "w", 5, 4), BK_AXIS_TP, 0);
    bk_vid dx;
    assert_int_equal(bench_op(&dx, &b, &(bk_op_spec){.kind = BK_OP_linear_dgrad, IN(dy, w)}, &e), BK_OK);
    const bk_oid id = bench_last(&b);
    b.g->op[id].folded = true;
    assert_int_equal(bk_op_set_operands(b.g, id, LIST(dy, w, sum), 3, &dx, 1, NULL, 0, &e), BK_OK);
    bk_spread out[1];
    const bk_op *op = &b.g->op[id];
    assert_int_equal(bk_ops[op->kind].rules->spread(out, b.g, op, BK_AXIS_TP, &e), BK_E_CHECK);
    expect_message(&e, "the addend, input 2 sum");
    partial(&b, sum, BK_AXIS_TP);
    assert_int_equal(bk_ops[op->kind].rules->spread(out, b.g, op, BK_AXIS_TP, &e), BK_OK);
    assert_int_equal(out[0].kind, BK_PARTIAL);
    bench_close(&b);
}

static void test_rules_spread__an_axis_of_one_rank_splits_nothing(void **state)
{
    (void)state;
    bench b = open_ranks(1, 1);
    bk_err e;
    const bk_vid x = split(&b, ACT(&b, "x", 3, 2, 4), BK_AXIS_TP, 0);
    bk_vid y;
    assert_int_equal(bench_op(&y, &b, &(bk_op_spec){.kind = BK_OP_copy, IN(x)}, &e), BK_OK);
    expect_spread(&b, y, BK_AXIS_TP, BK_SAME, 0);
    bk_spread out[1];
    assert_int_equal(bk_copy_rules.spread(out, b.g, &b.g->op[bench_last(&b)], BK_AXIS_TP, &e), BK_OK);
    assert_int_equal(out[0].kind, BK_SAME);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_spread__linear_by_columns_and_rows),
        cmocka_unit_test(test_rules_spread__pieces_must_meet_pieces),
        cmocka_unit_test(test_rules_spread__weight_gradients_are_partial_over_tokens),
        cmocka_unit_test(test_rules_spread__partial_sums_add_and_go_no_further),
        cmocka_unit_test(test_rules_spread__an_op_may_need_all_of_a_dim),
        cmocka_unit_test(test_rules_spread__mean_over_pieces),
        cmocka_unit_test(test_rules_spread__optimizer_step_names_the_parameter),
        cmocka_unit_test(test_rules_spread__addend_is_spread_as_the_output),
        cmocka_unit_test(test_rules_spread__an_axis_of_one_rank_splits_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
