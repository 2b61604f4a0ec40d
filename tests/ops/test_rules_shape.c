#include "op_bench.h"

#include <math.h>

/* S 3, B 2, K 4, N 5 throughout: no two alike, so that a swapped dim shows. */

static void expect_dims(const bench *b, bk_vid v, bk_dtype dtype, int rank, const int64_t *dim)
{
    const bk_value *x = &b->g->value[v];
    assert_int_equal(x->dtype, dtype);
    assert_int_equal(x->rank, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(x->dim[d].size, dim[d]);
}

static void test_rules_shape__outputs_from_letters(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    const bk_vid w = PARAM(&b, "w", 5, 4), x = ACT(&b, "x", 3, 2, 4),
                 tokens = INPUT(&b, "tokens", BK_I32, 2, 3);
    bk_vid y, emb, ce[2];
    assert_int_equal(bench_op(&y, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(x, w)}, &e), BK_OK);
    expect_dims(&b, y, BK_F32, DIMS(3, 2, 5));
    assert_int_equal(bench_op(&emb, &b, &(bk_op_spec){.kind = BK_OP_embedding, IN(w, tokens)}, &e), BK_OK);
    expect_dims(&b, emb, BK_F32, DIMS(3, 2, 4));
    assert_int_equal(
        bench_op(ce, &b, &(bk_op_spec){.kind = BK_OP_cross_entropy, IN(y, tokens), .n_out = 2}, &e), BK_OK);
    expect_dims(&b, ce[0], BK_F32, DIMS(2, 3));
    expect_dims(&b, ce[1], BK_F32, DIMS(2, 3));
    bench_close(&b);
}

static void test_rules_shape__message_names_op_and_operand(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    const bk_vid w = PARAM(&b, "mlp.weight", 5, 3), x = ACT(&b, "hidden", 3, 2, 4);
    const int64_t n_ops = b.g->n_ops;
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(x, w)}, &e), BK_E_INPUT);
    expect_message(&e, "linear");
    expect_message(&e, "input 1 mlp.weight [5, 3]: dim 1 must be 4 to fit input 0 hidden [3, 2, 4]");
    const bk_vid flat = ACT(&b, "flat", 6, 3);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_linear, IN(flat, w)}, &e), BK_E_INPUT);
    expect_message(&e, "input 0 flat [6, 3] has 2 dims, expected 3");
    assert_int_equal(b.g->n_ops, n_ops);
    bench_close(&b);
}

static void test_rules_shape__dtypes_must_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    const bk_vid w = PARAM(&b, "w", 5, 4), wrong = INPUT(&b, "tokens", BK_I64, 2, 3);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_embedding, IN(w, wrong)}, &e),
                     BK_E_INPUT);
    expect_message(&e, "tokens [2, 3] is i64, expected i32");
    const bk_vid x = ACT(&b, "x", 3, 2, 4), wide = INPUT(&b, "wide", BK_F64, 3, 2, 4);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_add_n, IN(x, wide)}, &e), BK_E_INPUT);
    expect_message(&e, "input 1 wide");
    bench_close(&b);
}

static void test_rules_shape__sums_need_equal_dims(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    const bk_vid x = ACT(&b, "x", 3, 2, 4), y = ACT(&b, "y", 2, 3, 4);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_add_n, IN(x, x, y)}, &e), BK_E_INPUT);
    expect_message(&e, "input 2 y [2, 3, 4]");
    expect_message(&e, "[3, 2, 4]");
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_add_n, IN(x, x, BK_NONE)}, &e),
                     BK_E_INPUT);
    expect_message(&e, "input 2 is absent");
    bench_close(&b);
}

static void test_rules_shape__accumulators_say_how_many_rows(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    const bk_vid dy = ACT(&b, "dy", 3, 2, 4), tokens = INPUT(&b, "tokens", BK_I32, 2, 3);
    const bk_vid dw = GRADIENT(&b, "dw", 7, 4), narrow = GRADIENT(&b, "narrow", 7, 3);
    const bk_op_spec good = {.kind = BK_OP_embedding_grad, IN(dy, tokens), UPD(dw)};
    const bk_op_spec bad = {.kind = BK_OP_embedding_grad, IN(dy, tokens), UPD(narrow)};
    assert_int_equal(bench_op(NULL, &b, &good, &e), BK_OK);
    assert_int_equal(bench_op(NULL, &b, &bad, &e), BK_E_INPUT);
    expect_message(&e, "update 0 narrow [7, 3]: dim 1 must be 4");
    bench_close(&b);
}

static void test_rules_shape__sequence_longer_than_the_position_table(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    const bk_vid x = ACT(&b, "x", 3, 2, 4), table = PARAM(&b, "positions", 2, 4),
                 longer = PARAM(&b, "p", 9, 4);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_add_pos, IN(x, table)}, &e), BK_E_INPUT);
    expect_message(&e, "sequences of 3 tokens, but positions has 2");
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_add_pos, IN(x, longer)}, &e), BK_OK);
    bench_close(&b);
}

static void test_rules_shape__dropout_needs_a_probability_and_samples(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    const bk_vid x = ACT(&b, "x", 3, 2, 4), samples = INPUT(&b, "samples", BK_I64, 2);
    const bk_op_spec one = {.kind = BK_OP_dropout, IN(x, samples), .attr = {{.f = 1.0}}};
    const bk_op_spec nan = {.kind = BK_OP_dropout, IN(x, samples), .attr = {{.f = (double)NAN}}};
    const bk_op_spec blind = {.kind = BK_OP_residual_add, IN(x, x), .attr = {{.f = 0.1}}};
    const bk_op_spec plain = {.kind = BK_OP_residual_add, IN(x, x), .attr = {{.f = 0}}};
    assert_int_equal(bench_op(NULL, &b, &one, &e), BK_E_INPUT);
    assert_int_equal(bench_op(NULL, &b, &nan, &e), BK_E_INPUT);
    assert_int_equal(bench_op(NULL, &b, &blind, &e), BK_E_INPUT);
    expect_message(&e, "sample numbers");
    assert_int_equal(bench_op(NULL, &b, &plain, &e), BK_OK);
    bench_close(&b);
}

static void test_rules_shape__feed_and_fill_need_a_value(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_feed}, &e), BK_E_INPUT);
    assert_int_equal(bench_op(NULL, &b, &(bk_op_spec){.kind = BK_OP_fill}, &e), BK_E_INPUT);
    const bk_vid v = INPUT(&b, "labels", BK_I32, 2, 3);
    bk_vid out;
    assert_int_equal(bench_op(&out, &b, &(bk_op_spec){.kind = BK_OP_feed, .into = v + 1}, &e), BK_OK);
    assert_int_equal(out, v);
    bench_close(&b);
}

static void test_rules_shape__optimizer_scalars(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_err e;
    const bk_vid g = GRADIENT(&b, "g", 5, 4), p = PARAM(&b, "p", 5, 4), m = GRADIENT(&b, "m", 5, 4);
    const bk_vid lr = INPUT(&b, "lr", BK_F64, 1), step = INPUT(&b, "step", BK_I64, 1);
    bk_vid norm, scale[2];
    assert_int_equal(bench_op(&norm, &b, &(bk_op_spec){.kind = BK_OP_grad_norm, IN(g, g)}, &e), BK_OK);
    expect_dims(&b, norm, BK_F64, DIMS(1));
    assert_int_equal(bench_op(scale, &b, &(bk_op_spec){.kind = BK_OP_clip_scale, IN(norm), .n_out = 2}, &e),
                     BK_OK);
    expect_dims(&b, scale[0], BK_F64, DIMS(1));
    expect_dims(&b, scale[1], BK_I32, DIMS(1));
    const bk_op_spec good = {.kind = BK_OP_adamw, IN(g, lr, step, scale[0], scale[1]), UPD(p, m, m)};
    const bk_op_spec swapped = {.kind = BK_OP_adamw, IN(g, step, lr, scale[0], scale[1]), UPD(p, m, m)};
    assert_int_equal(bench_op(NULL, &b, &good, &e), BK_OK);
    assert_int_equal(bench_op(NULL, &b, &swapped, &e), BK_E_INPUT);
    expect_message(&e, "step [1] is i64, expected f64");
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_shape__outputs_from_letters),
        cmocka_unit_test(test_rules_shape__message_names_op_and_operand),
        cmocka_unit_test(test_rules_shape__dtypes_must_fit),
        cmocka_unit_test(test_rules_shape__sums_need_equal_dims),
        cmocka_unit_test(test_rules_shape__accumulators_say_how_many_rows),
        cmocka_unit_test(test_rules_shape__sequence_longer_than_the_position_table),
        cmocka_unit_test(test_rules_shape__dropout_needs_a_probability_and_samples),
        cmocka_unit_test(test_rules_shape__feed_and_fill_need_a_value),
        cmocka_unit_test(test_rules_shape__optimizer_scalars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
