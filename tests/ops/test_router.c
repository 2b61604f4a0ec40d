/* The router, the counts of its choices and the losses that balance it. */
#include "ops/grad_bench.h"
#include "ops/moe/score.h"

/* The scores of a token are further apart than a difference reaches, so the choice stays. */
static bk_vid logits_of(bench *b, int64_t S, int64_t B, int64_t E)
{
    const bk_vid v = ACT(b, "logits", S, B, E);
    bench_wave(b, v, 0.1);
    return v;
}

static void route(bench *b, int k, int score, bool pre, double scaling)
{
    bk_vid out[2];
    expect_op(out, b, .kind = BK_OP_router, IN(logits_of(b, 3, 2, 5)),
              .attr = {{.i = k}, {.i = score}, {.i = pre}, {.f = scaling}});
}

static void softmax_post(bench *b)
{
    route(b, 2, BK_SCORE_SOFTMAX, false, 0);
}
static void softmax_all(bench *b)
{
    route(b, 5, BK_SCORE_SOFTMAX, false, 0);
}
static void softmax_pre(bench *b)
{
    route(b, 2, BK_SCORE_SOFTMAX, true, 2.5);
}
static void softmax_pre_one(bench *b)
{
    route(b, 1, BK_SCORE_SOFTMAX, true, 0);
}
static void sigmoid(bench *b)
{
    route(b, 3, BK_SCORE_SIGMOID, false, 1.5);
}
static void sigmoid_one(bench *b)
{
    route(b, 1, BK_SCORE_SIGMOID, false, 0);
}
static void sqrtsoftplus(bench *b)
{
    route(b, 2, BK_SCORE_SQRTSOFTPLUS, false, 0);
}
static void sqrtsoftplus_all(bench *b)
{
    route(b, 5, BK_SCORE_SQRTSOFTPLUS, false, 0);
}

static void with_bias_and_groups(bench *b)
{
    const bk_vid logits = logits_of(b, 3, 2, 6), bias = ACT(b, "bias", 6);
    bk_vid out[2];
    bench_wave(b, bias, 0.7);
    expect_op(out, b, .kind = BK_OP_router, IN(logits, bias),
              .attr = {{.i = 2}, {.i = BK_SCORE_SIGMOID}, {0}, {.f = 1.25}, {.i = 3}, {.i = 2}});
}

static void test_router__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    const build_fn all[] = {softmax_post, softmax_all,  softmax_pre,      softmax_pre_one,     sigmoid,
                            sigmoid_one,  sqrtsoftplus, sqrtsoftplus_all, with_bias_and_groups};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_op(all[i], 1, 1);
    check_nothing_flows(softmax_post);
}

static int32_t *ints(bench *b, bk_vid v)
{
    return bench_data(b, v);
}

static void put_all(bench *b, bk_vid v, const double *x)
{
    for (int64_t i = 0; i < bk_elements(&b->g->value[v]); i++) bench_put(b, v, i, x[i]);
}

static void expect_all(bench *b, bk_vid v, const double *want, double tolerance)
{
    for (int64_t i = 0; i < bk_elements(&b->g->value[v]); i++)
        if (!(fabs(bench_get(b, v, i) - want[i]) <= tolerance))
            fail_msg("element %lld is %.17g, not %.17g", (long long)i, bench_get(b, v, i), want[i]);
}

static void run_last(bench *b, unsigned assign)
{
    bk_err e;
    if (bench_run(b, bench_last(b), assign, &e) != BK_OK) fail_msg("%s", e.msg);
}

static void expect_index(bench *b, bk_vid index, const int32_t *want)
{
    for (int64_t i = 0; i < bk_elements(&b->g->value[index]); i++)
        assert_int_equal(ints(b, index)[i], want[i]);
}

/* exp of the logits are 8, 1, 4, 2: experts 0 and 2 are chosen. */
static void test_router__known_probabilities(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    const bk_vid logits = ACT(&b, "logits", 1, 1, 4);
    const double x[] = {log(8), log(1), log(4), log(2)};
    bk_vid out[2];
    put_all(&b, logits, x);
    expect_op(out, &b, .kind = BK_OP_router, IN(logits), .attr = {{.i = 2}});
    run_last(&b, 0);
    expect_index(&b, out[1], (int32_t[]){0, 2});
    expect_all(&b, out[0], (double[]){8 / 12., 4 / 12.}, 1e-15);
    expect_op(out, &b, .kind = BK_OP_router, IN(logits), .attr = {{.i = 2}, {0}, {.i = 1}, {.f = 3}});
    run_last(&b, 0);
    expect_all(&b, out[0], (double[]){8 / 5., 4 / 5.}, 1e-15);
    expect_op(out, &b, .kind = BK_OP_router, IN(logits), .attr = {{.i = 2}, {.i = BK_SCORE_SIGMOID}});
    run_last(&b, 0);
    expect_all(&b, out[0], (double[]){(8 / 9.) / (8 / 9. + 4 / 5.), (4 / 5.) / (8 / 9. + 4 / 5.)}, 1e-15);
    expect_op(out, &b, .kind = BK_OP_router, IN(logits), .attr = {{.i = 1}, {.i = BK_SCORE_SQRTSOFTPLUS}});
    run_last(&b, 0);
    expect_all(&b, out[0], (double[]){sqrt(log(9))}, 1e-15);
    bench_close(&b);
}

static void test_router__of_equal_scores_the_lowest_expert(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid logits = ACT(&b, "logits", 2, 1, 5);
    bk_vid out[2], counts;
    put_all(&b, logits, (double[]){1, 1, 1, 1, 1, 0, 2, 1, 2, 1});
    expect_op(out, &b, .kind = BK_OP_router, IN(logits), .attr = {{.i = 3}});
    run_last(&b, 0);
    expect_index(&b, out[1], (int32_t[]){0, 1, 2, 1, 2, 3});
    expect_op(&counts, &b, .kind = BK_OP_score_counts, IN(logits), .attr = {{.i = 3}});
    run_last(&b, 0);
    expect_all(&b, counts, (double[]){1, 2, 2, 1, 0}, 0);
    bench_close(&b);
}

/* The bias chooses experts 0 and 1 although 2 and 3 have the larger scores, and does not enter the
 * probabilities. */
static void test_router__bias_chooses_only(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    const bk_vid logits = ACT(&b, "logits", 1, 1, 4), bias = ACT(&b, "bias", 4);
    bk_vid out[2];
    put_all(&b, logits, (double[]){0, 0, 3, 2});
    put_all(&b, bias, (double[]){2, 1, 0, 0});
    expect_op(out, &b, .kind = BK_OP_router, IN(logits, bias), .attr = {{.i = 2}, {.i = BK_SCORE_SIGMOID}});
    run_last(&b, 0);
    expect_index(&b, out[1], (int32_t[]){0, 1});
    expect_all(&b, out[0], (double[]){0.5, 0.5}, 1e-15);
    bench_close(&b);
}

/* Group 0 has the largest expert, group 1 the largest two; two of the kept group are chosen. */
static void test_router__groups(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    const bk_vid logits = ACT(&b, "logits", 1, 1, 6);
    bk_vid out[2];
    put_all(&b, logits, (double[]){5, 0, 0, 3, 1, 4});
    expect_op(out, &b, .kind = BK_OP_router, IN(logits),
              .attr = {{.i = 2}, {0}, {0}, {0}, {.i = 2}, {.i = 1}});
    run_last(&b, 0);
    expect_index(&b, out[1], (int32_t[]){3, 5});
    bench_close(&b);
}

static void test_router__counts(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    bk_err e;
    const bk_vid index = INPUT(&b, "index", BK_I32, 2, 2, 2), logits = ACT(&b, "logits", 2, 2, 3);
    const bk_vid none = ACT(&b, "none", 0, 2, 3);
    bk_vid counts, rows;
    memcpy(ints(&b, index), (int32_t[]){0, 1, 1, 3, 1, 3, 0, 3}, 8 * sizeof(int32_t));
    expect_op(&counts, &b, .kind = BK_OP_expert_counts, IN(index), .attr = {{.i = 5}});
    run_last(&b, 0);
    expect_all(&b, counts, (double[]){2, 3, 0, 3, 0}, 0);
    ints(&b, index)[5] = 5;
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_E_INPUT);
    expect_message(&e, "expert 5 of token 2");
    /* Tokens in order (s0 b0) (s0 b1) (s1 b0) (s1 b1). */
    put_all(&b, logits, (double[]){1, 0, 0, 0, 1, 0, 3, 2, 1, 0, 2, 3});
    expect_op(&rows, &b, .kind = BK_OP_score_counts, IN(logits), .attr = {{.i = 1}, {0}, {.i = 1}});
    run_last(&b, 0);
    assert_int_equal(b.g->value[rows].dim[0].size, 2);
    expect_all(&b, rows, (double[]){2, 0, 0, 0, 1, 1}, 0);
    expect_op(&rows, &b, .kind = BK_OP_score_counts, IN(none), .attr = {{.i = 1}});
    for (int i = 0; i < 3; i++) bench_put(&b, rows, i, 9);
    run_last(&b, 0);
    expect_all(&b, rows, (double[]){0, 0, 0}, 0);
    bench_close(&b);
}

/* Counts of 2 * 3 tokens with 2 experts each, uneven. */
static void aux(bench *b, int64_t rows, int score)
{
    const bk_vid logits = logits_of(b, 3, 2, 5), counts = ACT(b, "counts", rows, 5);
    bk_vid loss;
    put_all(b, counts, rows == 1 ? (double[]){6, 3, 2, 1, 0} : (double[]){3, 2, 1, 0, 0, 1, 0, 2, 0, 3});
    expect_op(&loss, b, .kind = BK_OP_aux_loss, IN(logits, counts), .attr = {{.i = 2}, {.i = score}});
}
static void aux_softmax(bench *b)
{
    aux(b, 1, BK_SCORE_SOFTMAX);
}
static void aux_softmax_rows(bench *b)
{
    aux(b, 2, BK_SCORE_SOFTMAX);
}
static void aux_sigmoid(bench *b)
{
    aux(b, 1, BK_SCORE_SIGMOID);
}
static void aux_sigmoid_rows(bench *b)
{
    aux(b, 2, BK_SCORE_SIGMOID);
}
static void aux_sqrtsoftplus(bench *b)
{
    aux(b, 2, BK_SCORE_SQRTSOFTPLUS);
}

static void z(bench *b)
{
    bk_vid loss;
    expect_op(&loss, b, .kind = BK_OP_z_loss, IN(logits_of(b, 3, 2, 5)));
}

static void test_router__gradients_of_the_losses(void **state)
{
    (void)state;
    const build_fn all[] = {aux_softmax,      aux_softmax_rows, aux_sigmoid,
                            aux_sigmoid_rows, aux_sqrtsoftplus, z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_op(all[i], 1, 1);
    check_nothing_flows(aux_softmax);
    check_nothing_flows(z);
}

/* The formula, a token at a time; token t is of sample t % 2. */
static void test_router__aux_loss_is_the_formula(void **state)
{
    (void)state;
    enum { S = 3, B = 2, E = 5, K = 2 };
    for (int64_t rows = 1; rows <= B; rows++) {
        bench b = bench_open(BK_F64);
        aux(&b, rows, BK_SCORE_SOFTMAX);
        run_last(&b, 0);
        const bk_op *op = &b.g->op[bench_last(&b)];
        const bk_vid logits = bk_ins(b.g, op)[0], counts = bk_ins(b.g, op)[1];
        const double n = S * B / (double)rows;
        double want = 0;
        for (int t = 0; t < S * B; t++) {
            double sum = 0;
            for (int e = 0; e < E; e++) sum += exp(bench_get(&b, logits, t * E + e));
            for (int e = 0; e < E; e++)
                want += E / (K * n * n) / (double)rows * bench_get(&b, counts, t % rows * E + e) *
                        exp(bench_get(&b, logits, t * E + e)) / sum;
        }
        assert_true(fabs(bench_get(&b, bk_outs(b.g, op)[0], 0) - want) < 1e-14);
        bench_close(&b);
    }
}

/* Equal probabilities give 1 for whatever counts; and ln^2 of the number of experts. */
static void test_router__losses_of_equal_logits_and_of_no_token(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    const bk_vid logits = ACT(&b, "logits", 2, 2, 4), none = ACT(&b, "none", 2, 0, 4),
                 counts = ACT(&b, "counts", 1, 4), zero = ACT(&b, "zero", 1, 4),
                 no_row = ACT(&b, "no_row", 0, 4);
    bk_vid loss;
    put_all(&b, counts, (double[]){4, 3, 1, 0});
    for (int score = 0; score < BK_N_SCORES; score++) {
        expect_op(&loss, &b, .kind = BK_OP_aux_loss, IN(logits, counts), .attr = {{.i = 2}, {.i = score}});
        run_last(&b, 0);
        assert_true(fabs(bench_get(&b, loss, 0) - 1) < 1e-14);
    }
    expect_op(&loss, &b, .kind = BK_OP_z_loss, IN(logits));
    run_last(&b, 0);
    assert_true(fabs(bench_get(&b, loss, 0) - log(4) * log(4)) < 1e-14);
    const bk_vid of[] = {zero, no_row};
    for (int i = 0; i < 2; i++) {
        expect_op(&loss, &b, .kind = BK_OP_aux_loss, IN(none, of[i]), .attr = {{.i = 2}});
        bench_put(&b, loss, 0, 7);
        run_last(&b, 0);
        assert_true(bench_get(&b, loss, 0) == 0);
    }
    expect_op(&loss, &b, .kind = BK_OP_z_loss, IN(none));
    bench_put(&b, loss, 0, 7);
    run_last(&b, 0);
    assert_true(bench_get(&b, loss, 0) == 0);
    bench_close(&b);
}

/* Three micro-batches of one step and the first of the next; the state begins as rubbish. */
static void test_router__running_mean(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    const bk_vid x = ACT(&b, "x", 1, 2), sums = GRADIENT(&b, "sums", 3);
    bk_vid mean;
    put_all(&b, sums, (double[]){(double)NAN, 5, 8});
    expect_op(&mean, &b, .kind = BK_OP_running_mean, IN(x), UPD(sums));
    const double in[4][2] = {{3, 4}, {5, 0}, {1, 2}, {7, 9}}, want[4][2] = {{3, 4}, {4, 2}, {3, 2}, {7, 9}};
    for (int m = 0; m < 4; m++) {
        put_all(&b, x, in[m]);
        run_last(&b, m % 3 == 0);
        expect_all(&b, mean, want[m], 0);
    }
    expect_all(&b, sums, (double[]){7, 9, 1}, 0);
    bench_close(&b);
}

static void test_router__bias_follows_the_counts(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    const bk_vid counts = ACT(&b, "counts", 4), apply = INPUT(&b, "apply", BK_I32, 1),
                 bias = GRADIENT(&b, "bias", 4);
    bk_vid none[1];
    put_all(&b, counts, (double[]){4, 3, 2, 3});
    put_all(&b, bias, (double[]){1, 1, -1, 0});
    expect_op(none, &b, .kind = BK_OP_expert_bias_update, IN(counts, apply), UPD(bias),
              .attr = {{.f = 0.25}});
    run_last(&b, 0);
    expect_all(&b, bias, (double[]){1, 1, -1, 0}, 0);
    ints(&b, apply)[0] = 1;
    run_last(&b, 0);
    expect_all(&b, bias, (double[]){0.75, 1, -0.75, 0}, 0);
    bench_close(&b);
}

static void test_router__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid logits = ACT(&b, "logits", 3, 2, 6), flat = ACT(&b, "flat", 6, 6),
                 three = ACT(&b, "three", 3, 6), index = INPUT(&b, "index", BK_I32, 3, 2, 4),
                 bias = ACT(&b, "bias", 6), apply = INPUT(&b, "apply", BK_I32, 1);
    expect_refused(&b, "[S, B, E]", .kind = BK_OP_router, IN(flat), .attr = {{.i = 1}});
    expect_refused(&b, "topk 7 of 6", .kind = BK_OP_router, IN(logits), .attr = {{.i = 7}});
    expect_refused(&b, "score 3", .kind = BK_OP_router, IN(logits), .attr = {{.i = 1}, {.i = 3}});
    expect_refused(&b, "needs score", .kind = BK_OP_router, IN(logits, bias), .attr = {{.i = 1}});
    expect_refused(&b, "equal groups", .kind = BK_OP_router, IN(logits),
                   .attr = {{.i = 2}, {0}, {0}, {0}, {.i = 4}, {.i = 1}});
    expect_refused(&b, "topk 4 of 3", .kind = BK_OP_expert_counts, IN(index), .attr = {{.i = 3}});
    expect_refused(&b, "topk 0", .kind = BK_OP_score_counts, IN(logits));
    expect_refused(&b, "one row of counts", .kind = BK_OP_aux_loss, IN(logits, three), .attr = {{.i = 1}});
    expect_refused(&b, "[S, B, E]", .kind = BK_OP_z_loss, IN(flat));
    expect_refused(&b, "sums", .kind = BK_OP_running_mean, IN(three), UPD(bias));
    expect_refused(&b, "has 2 dims", .kind = BK_OP_expert_bias_update, IN(bias, apply), UPD(flat));
    bench_close(&b);
}

/* Of split tokens, counts and losses are partial sums; the losses need the counts of all. */
static void test_router__spread(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    b.g->axis_size[BK_AXIS_DP] = 2;
    const bk_vid logits = ACT(&b, "logits", 3, 1, 6), counts = ACT(&b, "counts", 1, 6),
                 sums = ACT(&b, "sums", 7);
    bk_vid all, rows, loss;
    b.g->value[logits].spread[BK_AXIS_DP] = (bk_spread){BK_SPLIT, 1};
    expect_op(&all, &b, .kind = BK_OP_score_counts, IN(logits), .attr = {{.i = 1}});
    expect_op(&rows, &b, .kind = BK_OP_score_counts, IN(logits), .attr = {{.i = 1}, {0}, {.i = 1}});
    assert_int_equal(b.g->value[all].spread[BK_AXIS_DP].kind, BK_PARTIAL);
    assert_int_equal(b.g->value[rows].spread[BK_AXIS_DP].kind, BK_SPLIT);
    expect_refused(&b, "partial sum", .kind = BK_OP_aux_loss, IN(logits, all), .attr = {{.i = 1}});
    expect_refused(&b, "reduce it first", .kind = BK_OP_running_mean, IN(all), UPD(sums));
    expect_op(&loss, &b, .kind = BK_OP_aux_loss, IN(logits, rows), .attr = {{.i = 1}});
    assert_int_equal(b.g->value[loss].spread[BK_AXIS_DP].kind, BK_PARTIAL);
    expect_op(&loss, &b, .kind = BK_OP_aux_loss, IN(logits, counts), .attr = {{.i = 1}});
    assert_int_equal(b.g->value[loss].spread[BK_AXIS_DP].kind, BK_PARTIAL);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router__gradient_is_that_of_the_op),
        cmocka_unit_test(test_router__known_probabilities),
        cmocka_unit_test(test_router__of_equal_scores_the_lowest_expert),
        cmocka_unit_test(test_router__bias_chooses_only),
        cmocka_unit_test(test_router__groups),
        cmocka_unit_test(test_router__counts),
        cmocka_unit_test(test_router__gradients_of_the_losses),
        cmocka_unit_test(test_router__aux_loss_is_the_formula),
        cmocka_unit_test(test_router__losses_of_equal_logits_and_of_no_token),
        cmocka_unit_test(test_router__running_mean),
        cmocka_unit_test(test_router__bias_follows_the_counts),
        cmocka_unit_test(test_router__refuses_what_does_not_fit),
        cmocka_unit_test(test_router__spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
