/* The CPU adapters: that each hands its operands, sizes and flags to the kernel in the right places. */
#include "op_bench.h"

#include <math.h>

#define OP(b, out, ...)                                                                                      \
    do {                                                                                                     \
        bk_err op_err;                                                                                       \
        if (bench_op((out), (b), &(bk_op_spec){__VA_ARGS__}, &op_err) != BK_OK) fail_msg("%s", op_err.msg);  \
    } while (0)

static void run_last(bench *b, unsigned assign)
{
    bk_err e;
    if (bench_run(b, bench_last(b), assign, &e) != BK_OK) fail_msg("%s", e.msg);
}

static void linear_in(bk_dtype real)
{
    enum { S = 3, B = 2, K = 4, N = 5, T = S * B };
    bench b = bench_open(real);
    const bk_vid x = ACT(&b, "x", S, B, K), w = PARAM(&b, "w", N, K), bias = PARAM(&b, "bias", N);
    const bk_vid dy = ACT(&b, "dy", S, B, N), dw = GRADIENT(&b, "dw", N, K), db = GRADIENT(&b, "db", N);
    bk_vid y, dx;
    bench_ramp(&b, x, 1), bench_ramp(&b, w, 2), bench_ramp(&b, bias, 5), bench_ramp(&b, dy, 3);
    OP(&b, &y, .kind = BK_OP_linear, IN(x, w, bias));
    run_last(&b, 0);
    for (int t = 0; t < T; t++)
        for (int n = 0; n < N; n++) {
            double want = bench_get(&b, bias, n);
            for (int k = 0; k < K; k++) want += bench_get(&b, x, t * K + k) * bench_get(&b, w, n * K + k);
            assert_true(bench_get(&b, y, t * N + n) == want);
        }
    OP(&b, &dx, .kind = BK_OP_linear_dgrad, IN(dy, w));
    run_last(&b, 0);
    for (int t = 0; t < T; t++)
        for (int k = 0; k < K; k++) {
            double want = 0;
            for (int n = 0; n < N; n++) want += bench_get(&b, dy, t * N + n) * bench_get(&b, w, n * K + k);
            assert_true(bench_get(&b, dx, t * K + k) == want);
        }
    OP(&b, NULL, .kind = BK_OP_linear_wgrad, IN(dy, x), UPD(dw, db));
    bench_ramp(&b, dw, 4), bench_ramp(&b, db, 6);
    const double dw0 = bench_get(&b, dw, 0);
    run_last(&b, 2); /* add to dw, write db */
    double want_w = dw0, want_b = 0;
    for (int t = 0; t < T; t++)
        want_w += bench_get(&b, dy, t * N) * bench_get(&b, x, t * K), want_b += bench_get(&b, dy, t * N);
    assert_true(bench_get(&b, dw, 0) == want_w && bench_get(&b, db, 0) == want_b);
    bench_close(&b);
}

static void test_rules_run__linear(void **state)
{
    (void)state;
    linear_in(BK_F32);
    linear_in(BK_F64);
}

static void test_rules_run__linear_counts_what_its_cost_says(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid x = ACT(&b, "x", 3, 2, 4), w = PARAM(&b, "w", 5, 4), dy = ACT(&b, "dy", 3, 2, 5);
    const bk_vid dw = GRADIENT(&b, "dw", 5, 4);
    const bk_target target = {BK_TARGET_CPU, true};
    bk_vid out;
    OP(&b, &out, .kind = BK_OP_linear, IN(x, w));
    OP(&b, &out, .kind = BK_OP_linear_dgrad, IN(dy, w));
    OP(&b, NULL, .kind = BK_OP_linear_wgrad, IN(dy, x), UPD(dw));
    for (bk_oid o = 0; o < 3; o++) {
        bk_err e;
        bk_cost cost = {0};
        const bk_op *op = &b.g->op[o];
        bk_ops[op->kind].rules->cost(&cost, b.g, op, &target);
        const int64_t before = bk_tally_madds;
        assert_int_equal(bench_run(&b, o, 1, &e), BK_OK);
        assert_int_equal(cost.madds, 3 * 2 * 4 * 5);
        assert_int_equal(bk_tally_madds - before, cost.madds);
        assert_int_equal(cost.bytes, 4 * (24 + 20 + 30));
    }
    bench_close(&b);
}

/* Values that stand far apart in the graph, each several times among the operands. */
static void test_rules_run__cost_counts_each_value_once(void **state)
{
    (void)state;
    enum { APART = 3000, MANY = 4 };
    bench b = bench_open(BK_F32);
    bk_vid in[3 * MANY], y;
    for (int k = 0; k < MANY; k++) {
        in[k] = in[2 * MANY - 1 - k] = in[2 * MANY + k] = ACT(&b, "x", 2, 5);
        for (int n = 0; n < APART; n++) ACT(&b, "between", 1);
    }
    OP(&b, &y, .kind = BK_OP_add_n, .in = in, .n_in = 3 * MANY);
    const bk_op *op = &b.g->op[bench_last(&b)];
    assert_int_equal(bk_cost_bytes(b.g, op), (MANY + 1) * 2 * 5 * 4);
    OP(&b, NULL, .kind = BK_OP_acc, IN(in[0]), UPD(in[3]));
    assert_int_equal(bk_cost_bytes(b.g, &b.g->op[bench_last(&b)]), 2 * 2 * 5 * 4);
    OP(&b, NULL, .kind = BK_OP_acc, IN(in[0]), UPD(in[0]));
    assert_int_equal(bk_cost_bytes(b.g, &b.g->op[bench_last(&b)]), 2 * 5 * 4);
    bench_close(&b);
}

static void test_rules_run__dgrad_with_an_addend(void **state)
{
    (void)state;
    bk_err e;
    bench b = bench_open(BK_F32);
    const bk_vid dy = ACT(&b, "dy", 3, 2, 5), w = PARAM(&b, "w", 5, 4), sum = ACT(&b, "sum", 3, 2, 4);
    bk_vid plain, dx;
    bench_ramp(&b, dy, 1), bench_ramp(&b, w, 2), bench_ramp(&b, sum, 3);
    OP(&b, &plain, .kind = BK_OP_linear_dgrad, IN(dy, w));
    run_last(&b, 0);
    OP(&b, &dx, .kind = BK_OP_linear_dgrad, IN(dy, w));
    const bk_oid id = bench_last(&b);
    b.g->op[id].folded = true;
    assert_int_equal(bk_op_set_operands(b.g, id, LIST(dy, w, sum), 3, &dx, 1, NULL, 0, &e), BK_OK);
    run_last(&b, 0);
    for (int i = 0; i < 24; i++)
        assert_true(bench_get(&b, dx, i) == bench_get(&b, plain, i) + bench_get(&b, sum, i));
    const bk_value *like = &b.g->value[dx];
    bk_value shape[1] = {0};
    assert_int_equal(bk_linear_dgrad_rules.shape(shape, b.g, &b.g->op[id], &e), BK_OK);
    assert_int_equal(shape[0].dim[2].size, like->dim[2].size);
    /* In place: the output stands on the addend. */
    assert_int_equal(bk_op_set_operands(b.g, id, LIST(dy, w, sum), 3, &sum, 1, NULL, 0, &e), BK_OK);
    run_last(&b, 0);
    for (int i = 0; i < 24; i++) assert_true(bench_get(&b, sum, i) == bench_get(&b, dx, i));
    bench_close(&b);
}

static void test_rules_run__add_n_of_many(void **state)
{
    (void)state;
    enum { MANY = 40, N = 6 };
    bench b = bench_open(BK_F64);
    bk_vid in[MANY], out;
    for (int k = 0; k < MANY; k++) {
        in[k] = ACT(&b, "x", N);
        for (int i = 0; i < N; i++) bench_put(&b, in[k], i, 1.0 / (1 + k + 7 * i));
    }
    for (int n = 2; n <= MANY; n++) { /* across the borders of the parts */
        OP(&b, &out, .kind = BK_OP_add_n, .in = in, .n_in = n);
        run_last(&b, 0);
        for (int i = 0; i < N; i++) {
            double want = bench_get(&b, in[0], i);
            for (int k = 1; k < n; k++) want += bench_get(&b, in[k], i);
            assert_true(bench_get(&b, out, i) == want); /* the same additions in the same order */
        }
    }
    bench_close(&b);
}

static void test_rules_run__copy_and_acc_of_views(void **state)
{
    (void)state;
    bk_err e;
    bench b = bench_open(BK_F32);
    const bk_vid x = ACT(&b, "x", 3, 2, 6), y = ACT(&b, "y", 2, 3, 4);
    bk_vid part, turned, dense, one;
    bench_ramp(&b, x, 1);
    /* The middle two columns of x, and those of y as [3, 2, 2] with its first dims exchanged. */
    assert_int_equal(bk_view_add(&part, b.g, "part", x, DIMS(3, 2, 2), (int64_t[]){12, 6, 1}, 2, &e), BK_OK);
    assert_int_equal(bk_view_add(&turned, b.g, "turned", y, DIMS(3, 2, 2), (int64_t[]){4, 12, 1}, 1, &e),
                     BK_OK);
    assert_int_equal(bk_view_add(&one, b.g, "one", x, DIMS(3, 2, 2), (int64_t[]){12, 6, 3}, 0, &e), BK_OK);
    OP(&b, &dense, .kind = BK_OP_copy, IN(part));
    run_last(&b, 0);
    OP(&b, NULL, .kind = BK_OP_copy, IN(part), .into = turned + 1);
    run_last(&b, 0);
    OP(&b, NULL, .kind = BK_OP_acc, IN(one), UPD(turned));
    run_last(&b, 0);
    int n_set = 0;
    for (int s = 0; s < 3; s++)
        for (int j = 0; j < 2; j++)
            for (int c = 0; c < 2; c++) {
                const double want = bench_get(&b, x, s * 12 + j * 6 + 2 + c);
                assert_true(bench_get(&b, dense, s * 4 + j * 2 + c) == want);
                assert_true(bench_get(&b, y, j * 12 + s * 4 + 1 + c) ==
                            want + bench_get(&b, x, s * 12 + j * 6 + 3 * c));
            }
    for (int i = 0; i < 24; i++) n_set += bench_get(&b, y, i) != 0 && (i % 4 == 0 || i % 4 == 3);
    assert_int_equal(n_set, 0); /* nothing beside the view */
    OP(&b, NULL, .kind = BK_OP_acc, IN(dense), UPD(turned));
    run_last(&b, 1); /* assigned */
    assert_true(bench_get(&b, y, 1) == bench_get(&b, dense, 0));
    const bk_vid flat = ACT(&b, "flat", 3, 2, 2);
    OP(&b, NULL, .kind = BK_OP_acc, IN(dense), UPD(flat));
    run_last(&b, 1), run_last(&b, 0);
    for (int i = 0; i < 12; i++) assert_true(bench_get(&b, flat, i) == 2 * bench_get(&b, dense, i));
    bench_close(&b);
}

static void test_rules_run__bad_tokens_and_labels_are_named(void **state)
{
    (void)state;
    bk_err e;
    bench b = bench_open(BK_F32);
    const bk_vid w = PARAM(&b, "w", 5, 4), ids = INPUT(&b, "ids", BK_I32, 2, 3),
                 logits = ACT(&b, "logits", 3, 2, 5);
    const bk_vid dy = ACT(&b, "dy", 3, 2, 4), dw = GRADIENT(&b, "dw", 5, 4);
    bk_vid out[2];
    int32_t *id = bench_data(&b, ids);
    id[4] = 5; /* sequence 1, position 1 */
    OP(&b, out, .kind = BK_OP_embedding, IN(w, ids));
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_E_INPUT);
    expect_message(&e, "token id 5 at position 1 of sequence 1 is not in the vocabulary of 5");
    OP(&b, NULL, .kind = BK_OP_embedding_grad, IN(dy, ids), UPD(dw));
    assert_int_equal(bench_run(&b, bench_last(&b), 1, &e), BK_E_INPUT);
    OP(&b, out, .kind = BK_OP_cross_entropy, IN(logits, ids), .n_out = 2);
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_E_INPUT);
    expect_message(&e, "label 5 at position 1 of sequence 1");
    id[4] = 4;
    run_last(&b, 0);
    for (int i = 0; i < 6; i++) assert_true(fabs(bench_get(&b, out[0], i) - log(5.0)) < 1e-6);
    bench_close(&b);
}

static void test_rules_run__dropout_draws_by_module_layer_and_site(void **state)
{
    (void)state;
    enum { N = 8 * 2 * 16 };
    bench b = bench_open(BK_F64);
    const bk_vid x = ACT(&b, "x", 8, 2, 16), samples = INPUT(&b, "samples", BK_I64, 2);
    memcpy(bench_data(&b, samples), (int64_t[]){3, 4}, 16);
    for (int i = 0; i < N; i++) bench_put(&b, x, i, 1);
    const bk_tag tags[] = {{BK_MODULE_DECODER, BK_NODE_ATTN, BK_PASS_FORWARD, 1},
                           {BK_MODULE_DECODER, BK_NODE_ATTN, BK_PASS_BACKWARD, 1},
                           {BK_MODULE_DECODER, BK_NODE_ATTN, BK_PASS_FORWARD, 2},
                           {BK_MODULE_MTP, BK_NODE_ATTN, BK_PASS_FORWARD, 1},
                           {BK_MODULE_DECODER, BK_NODE_ATTN, BK_PASS_FORWARD, 1}};
    bk_vid y[5];
    int kept = 0;
    for (int k = 0; k < 5; k++) {
        b.g->tag = tags[k];
        OP(&b, &y[k], .kind = BK_OP_dropout, IN(x, samples),
           .attr = {{.f = 0.5}, {.i = 9}, {.i = k == 4 ? 2 : 1}});
        run_last(&b, 0);
    }
    for (int i = 0; i < N; i++) {
        const double v = bench_get(&b, y[0], i);
        assert_true(v == 0 || v == 2);
        kept += v != 0;
    }
    assert_in_range(kept, N / 2 - 32, N / 2 + 32); /* four standard deviations */
    const size_t bytes = N * sizeof(double);
    assert_memory_equal(bench_data(&b, y[0]), bench_data(&b, y[1]), bytes); /* the backward draws the same */
    for (int k = 2; k < 5; k++) assert_memory_not_equal(bench_data(&b, y[0]), bench_data(&b, y[k]), bytes);
    bench_close(&b);
}

static void test_rules_run__residual_add_without_bias_and_samples(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid r = ACT(&b, "r", 3, 2, 4), y = ACT(&b, "y", 3, 2, 4), bias = PARAM(&b, "bias", 4);
    bk_vid out;
    bench_ramp(&b, r, 1), bench_ramp(&b, y, 2), bench_ramp(&b, bias, 3);
    OP(&b, &out, .kind = BK_OP_residual_add, IN(r, y));
    run_last(&b, 0);
    for (int i = 0; i < 24; i++)
        assert_true(bench_get(&b, out, i) == bench_get(&b, r, i) + bench_get(&b, y, i));
    OP(&b, &out, .kind = BK_OP_residual_add, IN(r, y, bias));
    run_last(&b, 0);
    for (int i = 0; i < 24; i++)
        assert_true(bench_get(&b, out, i) ==
                    bench_get(&b, r, i) + bench_get(&b, y, i) + bench_get(&b, bias, i % 4));
    bench_close(&b);
}

static void test_rules_run__fill_each_dtype(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid f = ACT(&b, "f", 3), d = INPUT(&b, "d", BK_F64, 3), i = INPUT(&b, "i", BK_I32, 3);
    const bk_vid l = INPUT(&b, "l", BK_I64, 3), all[] = {f, d, i, l};
    for (int k = 0; k < 4; k++) {
        OP(&b, NULL, .kind = BK_OP_fill, .into = all[k] + 1, .attr = {{.f = -3}});
        run_last(&b, 0);
    }
    for (int k = 0; k < 3; k++) {
        assert_true(bench_get(&b, f, k) == -3 && bench_get(&b, d, k) == -3);
        assert_int_equal(((int32_t *)bench_data(&b, i))[k], -3);
        assert_int_equal(((int64_t *)bench_data(&b, l))[k], -3);
    }
    assert_int_equal(((int32_t *)bench_data(&b, i))[3], 0);
    bench_close(&b);
}

static bk_status feed_three(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    (void)ctx, (void)micro, (void)e;
    assert_string_equal(v->name, "scalar");
    *(float *)dst = 3;
    return BK_OK;
}

static bk_status fetch_one(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    (void)v, (void)e;
    assert_int_equal(micro, 0);
    *(float *)ctx = *(const float *)src;
    return BK_OK;
}

static void test_rules_run__feed_and_fetch_speak_to_the_host(void **state)
{
    (void)state;
    bk_err e;
    bench b = bench_open(BK_F32);
    float got = 0;
    const bk_host host = {&got, feed_three, fetch_one};
    const bk_vid v = INPUT(&b, "scalar", BK_F32, 1);
    OP(&b, NULL, .kind = BK_OP_feed, .into = v + 1);
    assert_int_equal(bench_run(&b, bench_last(&b), 0, &e), BK_E_INPUT);
    expect_message(&e, "scalar");
    b.host = &host;
    run_last(&b, 0);
    OP(&b, NULL, .kind = BK_OP_fetch, IN(v));
    run_last(&b, 0);
    assert_true(got == 3);
    bench_close(&b);
}

static void test_rules_run__norm_and_clip(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid x = GRADIENT(&b, "x", 2), y = GRADIENT(&b, "y", 1);
    bk_vid norm, s[2];
    OP(&b, &norm, .kind = BK_OP_grad_norm, IN(x, y));
    const bk_oid norm_op = bench_last(&b);
    OP(&b, s, .kind = BK_OP_clip_scale, IN(norm), .n_out = 2, .attr = {{.f = 3.5}});
    /* 2, 3, 6 have norm 7; then a norm below the clip; then two that no step may follow. */
    const float values[][3] = {{2, 3, 6}, {0.5f, 0, 0}, {1, NAN, 1}, {1, 1, INFINITY}};
    const double coefs[] = {3.5 / (7 + 1e-6), 1};
    for (int k = 0; k < 4; k++) {
        bk_err e;
        for (int i = 0; i < 3; i++) bench_put(&b, i < 2 ? x : y, i % 2, (double)values[k][i]);
        assert_int_equal(bench_run(&b, norm_op, 0, &e), BK_OK);
        run_last(&b, 0);
        const int32_t apply = *(int32_t *)bench_data(&b, s[1]);
        assert_int_equal(apply, k < 2);
        if (k < 2) assert_true(bench_get(&b, s[0], 0) == coefs[k]);
        if (k == 0) assert_true(bench_get(&b, norm, 0) == 7);
    }
    bench_close(&b);
}

/* A step in which tokens found no room is not taken, whatever its norm. */
static void test_rules_run__clip_with_an_excess(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid norm = INPUT(&b, "norm", BK_F64, 1), excess = INPUT(&b, "excess", BK_I64, 1);
    bk_vid s[2];
    OP(&b, s, .kind = BK_OP_clip_scale, IN(norm, excess), .n_out = 2, .attr = {{.f = 3.5}});
    const double norms[] = {7, 7, 7, (double)NAN};
    const int64_t rows[] = {0, 1, INT64_C(1) << 40, 0};
    for (int k = 0; k < 4; k++) {
        bench_put(&b, norm, 0, norms[k]);
        *(int64_t *)bench_data(&b, excess) = rows[k];
        run_last(&b, 0);
        assert_int_equal(*(int32_t *)bench_data(&b, s[1]), k == 0);
    }
    bench_close(&b);
}

static void acc_max_of_reals(bk_dtype real)
{
    bench b = bench_open(real);
    const bk_vid x = ACT(&b, "x", 5), most = GRADIENT(&b, "most", 5);
    const double now[] = {1, -2, (double)NAN, 4, -0.5}, before[] = {0.5, -1, 3, (double)NAN, -3};
    const double want[] = {1, -1, (double)NAN, (double)NAN, -0.5};
    OP(&b, NULL, .kind = BK_OP_acc_max, IN(x), UPD(most));
    for (int i = 0; i < 5; i++) bench_put(&b, x, i, now[i]), bench_put(&b, most, i, before[i]);
    run_last(&b, 0);
    for (int i = 0; i < 5; i++) {
        const double y = bench_get(&b, most, i);
        assert_true(isnan(want[i]) ? isnan(y) : y == want[i]);
    }
    for (int i = 0; i < 5; i++) bench_put(&b, most, i, (double)NAN); /* never written */
    run_last(&b, 1);
    assert_memory_equal(bench_data(&b, most), bench_data(&b, x), (size_t)(5 * bk_dtype_bytes(real)));
    bench_close(&b);
}

static void test_rules_run__largest_of_micro_batches(void **state)
{
    (void)state;
    acc_max_of_reals(BK_F32);
    acc_max_of_reals(BK_F64);
    bench b = bench_open(BK_F32);
    const bk_vid x = INPUT(&b, "x", BK_I64, 3), most = bench_value(&b, "most", BK_GRADIENT, BK_I64, DIMS(3));
    int64_t *now = bench_data(&b, x), *kept = bench_data(&b, most);
    const int64_t values[] = {INT64_MIN, 7, INT64_MAX}, before[] = {INT64_MIN + 1, -7, 9};
    OP(&b, NULL, .kind = BK_OP_acc_max, IN(x), UPD(most));
    memcpy(now, values, sizeof values), memcpy(kept, before, sizeof before);
    run_last(&b, 0);
    assert_true(kept[0] == INT64_MIN + 1 && kept[1] == 7 && kept[2] == INT64_MAX);
    run_last(&b, 1);
    assert_memory_equal(kept, values, sizeof values);
    bench_close(&b);
}

static void test_rules_run__adamw_first_step_and_none(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    const bk_vid g = GRADIENT(&b, "g", 3), p = PARAM(&b, "p", 3), m = GRADIENT(&b, "m", 3),
                 v = GRADIENT(&b, "v", 3);
    const bk_vid lr = INPUT(&b, "lr", BK_F64, 1), step = INPUT(&b, "step", BK_I64, 1);
    const bk_vid coef = INPUT(&b, "coef", BK_F64, 1), apply = INPUT(&b, "apply", BK_I32, 1);
    const double b1 = 0.9, b2 = 0.95, eps = 1e-3, wd = 0.1;
    OP(&b, NULL, .kind = BK_OP_adamw, IN(g, lr, step, coef, apply), UPD(p, m, v),
       .attr = {{.f = b1}, {.f = b2}, {.f = eps}, {.f = wd}});
    for (int i = 0; i < 3; i++) bench_put(&b, g, i, i - 0.5), bench_put(&b, p, i, 2.0 - i);
    bench_put(&b, lr, 0, 0.25), bench_put(&b, coef, 0, 0.5);
    *(int64_t *)bench_data(&b, step) = 1;
    run_last(&b, 0); /* apply is 0 */
    for (int i = 0; i < 3; i++)
        assert_true(bench_get(&b, p, i) == 2.0 - i && bench_get(&b, m, i) == 0 && bench_get(&b, v, i) == 0);
    *(int32_t *)bench_data(&b, apply) = 1;
    run_last(&b, 0);
    for (int i = 0; i < 3; i++) { /* in the first step the corrected moments are g and g^2 */
        const double x = 0.5 * (i - 0.5), old = 2.0 - i;
        assert_true(fabs(bench_get(&b, m, i) - (1 - b1) * x) < 1e-15);
        assert_true(fabs(bench_get(&b, v, i) - (1 - b2) * x * x) < 1e-15);
        assert_true(fabs(bench_get(&b, p, i) - (old - 0.25 * (x / (fabs(x) + eps) + wd * old))) < 1e-14);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_run__linear),
        cmocka_unit_test(test_rules_run__linear_counts_what_its_cost_says),
        cmocka_unit_test(test_rules_run__cost_counts_each_value_once),
        cmocka_unit_test(test_rules_run__dgrad_with_an_addend),
        cmocka_unit_test(test_rules_run__add_n_of_many),
        cmocka_unit_test(test_rules_run__copy_and_acc_of_views),
        cmocka_unit_test(test_rules_run__bad_tokens_and_labels_are_named),
        cmocka_unit_test(test_rules_run__dropout_draws_by_module_layer_and_site),
        cmocka_unit_test(test_rules_run__residual_add_without_bias_and_samples),
        cmocka_unit_test(test_rules_run__fill_each_dtype),
        cmocka_unit_test(test_rules_run__feed_and_fetch_speak_to_the_host),
        cmocka_unit_test(test_rules_run__norm_and_clip),
        cmocka_unit_test(test_rules_run__clip_with_an_excess),
        cmocka_unit_test(test_rules_run__largest_of_micro_batches),
        cmocka_unit_test(test_rules_run__adamw_first_step_and_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
