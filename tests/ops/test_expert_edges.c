/* The ops of mixture of experts without a token, with one, and with all tokens at one expert. */
#include "ops/grad_bench.h"

#include <stdio.h>

enum { K = 2, E = 3, C = 5, F = 3 };

/* Tokens [S, 1] of the op under test, and which experts they go to: 0 and `second`. */
static int64_t S;
static int32_t second;

typedef struct {
    bk_vid at[4]; /* pair_of_row, row_of_pair, segments, excess */
    bk_vid probs;
} rows;

static rows route(bench *b)
{
    rows r;
    bk_err e;
    const bk_vid index = INPUT(b, "index", BK_I32, S, 1, K);
    r.probs = ACT(b, "probs", S, 1, K);
    for (int64_t p = 0; p < S * K; p++) ((int32_t *)bench_data(b, index))[p] = p % K ? second : 0;
    bench_wave(b, r.probs, 0.4);
    expect_op(r.at, b, .kind = BK_OP_route_rows, IN(index, r.probs), .attr = {{0}, {E}, {S * K}});
    if (bench_run(b, bench_last(b), 0, &e) != BK_OK) fail_msg("%s", e.msg);
    const int64_t *segments = bench_data(b, r.at[2]);
    for (int e2 = 0; e2 <= E; e2++) assert_int_equal(segments[e2], e2 == 0 ? 0 : e2 <= second ? S : S * K);
    assert_int_equal(*(int64_t *)bench_data(b, r.at[3]), 0);
    return r;
}

static void router_by(bench *b, int score, bool pre)
{
    const bk_vid logits = ACT(b, "logits", S, 1, E);
    bk_vid out[2];
    bench_wave(b, logits, 0.1);
    expect_op(out, b, .kind = BK_OP_router, IN(logits), .attr = {{K}, {score}, {pre}, {.f = 1.5}});
}
static void router_softmax(bench *b)
{
    router_by(b, 0, false);
}
static void router_pre(bench *b)
{
    router_by(b, 0, true);
}
static void router_sigmoid(bench *b)
{
    router_by(b, 1, false);
}

static void aux_loss(bench *b)
{
    const bk_vid logits = ACT(b, "logits", S, 1, E), counts = ACT(b, "counts", 1, E);
    bk_vid loss;
    bench_wave(b, logits, 0.1);
    bench_put(b, counts, 0, (double)S), bench_put(b, counts, 2, (double)S);
    expect_op(&loss, b, .kind = BK_OP_aux_loss, IN(logits, counts), .attr = {{K}});
}
static void z_loss(bench *b)
{
    const bk_vid logits = ACT(b, "logits", S, 1, E);
    bk_vid loss;
    bench_wave(b, logits, 0.1);
    expect_op(&loss, b, .kind = BK_OP_z_loss, IN(logits));
}

static void permute(bench *b)
{
    const rows r = route(b);
    const bk_vid x = ACT(b, "x", S, 1, C);
    bk_vid y;
    bench_wave(b, x, 0.2);
    expect_op(&y, b, .kind = BK_OP_permute, IN(x, r.at[0], r.at[1], r.at[2]));
}
static void permute_probs(bench *b)
{
    const rows r = route(b);
    bk_vid y;
    expect_op(&y, b, .kind = BK_OP_permute_probs, IN(r.probs, r.at[0], r.at[1], r.at[2]));
}
static void unpermute(bench *b)
{
    const rows r = route(b);
    const bk_vid x = ACT(b, "x", S * K, C);
    bk_vid y;
    bench_wave(b, x, 0.2);
    expect_op(&y, b, .kind = BK_OP_unpermute, IN(x, r.at[0], r.at[1], r.at[2]));
}

static void params(bk_vid w[E], bench *b, int rank)
{
    for (int k = 0; k < E; k++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", k);
        w[k] = rank == 2 ? PARAM(b, name, F, C) : PARAM(b, name, C);
        bench_wave(b, w[k], 0.7 + k);
    }
}
static void grouped_linear(bench *b)
{
    const rows r = route(b);
    const bk_vid x = ACT(b, "x", S * K, C);
    bk_vid w[E], y;
    bench_wave(b, x, 0.2);
    params(w, b, 2);
    expect_op(&y, b, .kind = BK_OP_grouped_linear, IN(x, r.at[2], w[0], w[1], w[2]));
}
static void grouped_bias(bench *b)
{
    const rows r = route(b);
    const bk_vid x = ACT(b, "x", S * K, C), p = ACT(b, "p", S * K);
    bk_vid w[E], y;
    bench_wave(b, x, 0.2), bench_wave(b, p, 0.9);
    params(w, b, 1);
    expect_op(&y, b, .kind = BK_OP_grouped_bias, IN(x, r.at[2], p, w[0], w[1], w[2]));
}
static void expert_act(bench *b)
{
    const rows r = route(b);
    const bk_vid h = ACT(b, "h", S * K, 2 * F), p = ACT(b, "p", S * K);
    bk_vid y;
    bench_wave(b, h, 0.2), bench_wave(b, p, 0.9);
    expect_op(&y, b, .kind = BK_OP_expert_act, IN(h, p, r.at[2]), .attr = {{1}});
}
static void sigmoid_gate(bench *b)
{
    const bk_vid y = ACT(b, "y", S, 1, C), z = ACT(b, "z", S, 1, 1);
    bk_vid out;
    bench_wave(b, y, 0.2), bench_wave(b, z, 0.9);
    expect_op(&out, b, .kind = BK_OP_sigmoid_gate, IN(y, z));
}

/* Each with its inputs that have a gradient; of the parameters, those of expert 0 and of expert 2. */
static const struct {
    build_fn build;
    unsigned inputs;
} ops[] = {{router_softmax, 1},
           {router_pre, 1},
           {router_sigmoid, 1},
           {aux_loss, 1},
           {z_loss, 1},
           {permute, 1},
           {permute_probs, 1},
           {unpermute, 1},
           {grouped_linear, 1 | 1 << 2 | 1 << 4},
           {grouped_bias, 1 | 1 << 2 | 1 << 3 | 1 << 5},
           {expert_act, 1 | 1 << 1},
           {sigmoid_gate, 1 | 1 << 1}};

static void test_expert_edges__gradients_with_one_token(void **state)
{
    (void)state;
    S = 1, second = 2;
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) check_op(ops[k].build, 1, ops[k].inputs);
}

/* Both slots of all tokens go to expert 0, and the others have no row. */
static void test_expert_edges__gradients_with_all_tokens_at_one_expert(void **state)
{
    (void)state;
    S = 5, second = 0;
    check_op(permute, 1, 1);
    check_op(unpermute, 1, 1);
    check_op(permute_probs, 1, 1);
    check_op(grouped_linear, 1, 1 | 1 << 2);
    check_op(grouped_bias, 1, 1 | 1 << 2 | 1 << 3);
    check_op(expert_act, 1, 1 | 1 << 1);
}

/* Runs all ops of a bench again, whose accumulators held NaN: they are 0 then, and stay 0 when nothing is
 * added. */
static void expect_zero_accumulators(grad_bench *t)
{
    bk_err e;
    int n_params = 0;
    const bk_op op = t->b.g->op[t->use];
    for (unsigned assign = ~0u;; assign = 0) {
        for (int k = 0; k < op.n_in; k++) {
            const bk_vid d = grad_of_input(t, k);
            const bk_vid v = bk_ins(t->b.g, &op)[k];
            if (d == BK_NONE || t->b.g->value[v].kind != BK_PARAM) continue;
            n_params++;
            for (int64_t i = 0; i < bk_elements(&t->b.g->value[d]) && assign; i++)
                bench_put(&t->b, d, i, (double)NAN);
        }
        for (bk_oid o = t->use; o < t->b.g->n_ops; o++)
            if (bench_run(&t->b, o, assign, &e) != BK_OK) fail_msg("%s", e.msg);
        for (int k = 0; k < op.n_in; k++) {
            const bk_vid d = grad_of_input(t, k), v = bk_ins(t->b.g, &op)[k];
            if (d == BK_NONE || t->b.g->value[v].kind != BK_PARAM) continue;
            for (int64_t i = 0; i < bk_elements(&t->b.g->value[d]); i++)
                assert_true(bench_get(&t->b, d, i) == 0);
        }
        if (!assign) break;
    }
    assert_int_equal(n_params, op.n_in >= E + 2 ? 2 * E : 0);
}

static void test_expert_edges__no_token_gives_exact_zeros(void **state)
{
    (void)state;
    S = 0, second = 2;
    for (int wide = 0; wide < 2; wide++)
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
            grad_bench t = grad_open(ops[k].build, wide ? BK_F64 : BK_F32, 1, false);
            expect_zero_accumulators(&t);
            grad_close(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expert_edges__gradients_with_one_token),
        cmocka_unit_test(test_expert_edges__gradients_with_all_tokens_at_one_expert),
        cmocka_unit_test(test_expert_edges__no_token_gives_exact_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
