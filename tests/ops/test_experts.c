/* The ops on rows of experts. */
#include "ops/grad_bench.h"

#include <stdio.h>

#include "base/philox.h"
#define BK_BOTH "ops/moe/route_cpu.h"
#include "base/real_both.h"

enum { S = 3, B = 2, K = 2, E = 4, C = 5, F = 3, PAIRS = S * B * K };

/* Experts of each pair; expert 2 has none, and expert 1 is not the same in both slots. */
static const int32_t spread_out[PAIRS] = {0, 1, 1, 3, 0, 3, 0, 1, 1, 3, 0, 3};

typedef struct {
    bk_vid at[4]; /* outputs of route_rows */
    bk_vid probs;
} rows;

enum { PAIR_OF_ROW, ROW_OF_PAIR, SEGMENTS, EXCESS };

static rows route(bench *b, const int32_t *index, int64_t n_rows, int64_t capacity, bool pad)
{
    rows r;
    bk_err e;
    const bk_vid i = INPUT(b, "index", BK_I32, S, B, K);
    r.probs = INPUT(b, "probs", b->g->real, S, B, K);
    memcpy(bench_data(b, i), index, PAIRS * sizeof *index);
    for (int k = 0; k < PAIRS; k++) bench_put(b, r.probs, k, 0.3 + 0.05 * k);
    expect_op(r.at, b, .kind = BK_OP_route_rows, IN(i, r.probs),
              .attr = {{0}, {E}, {n_rows}, {capacity}, {pad}, {0}});
    if (bench_run(b, bench_last(b), 0, &e) != BK_OK) fail_msg("%s", e.msg);
    return r;
}

static void permuted(bench *b, const int32_t *index, int64_t capacity)
{
    const rows r = route(b, index, capacity ? capacity * E : PAIRS, capacity, capacity > 0);
    const bk_vid x = ACT(b, "x", S, B, C);
    bk_vid y;
    bench_wave(b, x, 0.2);
    expect_op(&y, b, .kind = BK_OP_permute, IN(x, r.at[0], r.at[1], r.at[2]));
    assert_int_equal(b->g->value[y].dim[0].count, 1 + r.at[SEGMENTS]);
}
static void permute_all(bench *b)
{
    permuted(b, spread_out, 0);
}
static void permute_padded(bench *b)
{
    permuted(b, spread_out, 3);
}

static void unpermute(bench *b)
{
    const rows r = route(b, spread_out, PAIRS, 0, false);
    const bk_vid x = ACT(b, "x", PAIRS, C);
    bk_vid y;
    bench_wave(b, x, 0.2);
    expect_op(&y, b, .kind = BK_OP_unpermute, IN(x, r.at[0], r.at[1], r.at[2]));
}

static void permute_probs(bench *b)
{
    const rows r = route(b, spread_out, PAIRS, 0, false);
    bk_vid y;
    expect_op(&y, b, .kind = BK_OP_permute_probs, IN(r.probs, r.at[0], r.at[1], r.at[2]));
}

static void grouped_linear(bench *b)
{
    const rows r = route(b, spread_out, PAIRS, 0, false);
    const bk_vid x = ACT(b, "x", PAIRS, C);
    bk_vid w[E], y;
    bench_wave(b, x, 0.2);
    for (int k = 0; k < E; k++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", k);
        w[k] = PARAM(b, name, F, C), bench_wave(b, w[k], 0.7 + k);
    }
    expect_op(&y, b, .kind = BK_OP_grouped_linear, IN(x, r.at[SEGMENTS], w[0], w[1], w[2], w[3]));
}

static void grouped_bias_of(bench *b, bool with_probs)
{
    const rows r = route(b, spread_out, PAIRS, 0, false);
    const bk_vid x = ACT(b, "x", PAIRS, C), p = ACT(b, "p", PAIRS);
    bk_vid w[E], y;
    bench_wave(b, x, 0.2), bench_wave(b, p, 0.9);
    for (int k = 0; k < E; k++) {
        char name[16];
        snprintf(name, sizeof name, "b%d", k);
        w[k] = PARAM(b, name, C), bench_wave(b, w[k], 0.7 + k);
    }
    expect_op(&y, b, .kind = BK_OP_grouped_bias,
              IN(x, r.at[SEGMENTS], with_probs ? p : BK_NONE, w[0], w[1], w[2], w[3]));
}
static void grouped_bias(bench *b)
{
    grouped_bias_of(b, true);
}
static void grouped_bias_plain(bench *b)
{
    grouped_bias_of(b, false);
}

static void expert_act(bench *b, bool swiglu, bool tanh_form)
{
    const rows r = route(b, spread_out, PAIRS, 0, false);
    const bk_vid h = ACT(b, "h", PAIRS, swiglu ? 2 * F : F), p = ACT(b, "p", PAIRS);
    bk_vid y;
    bench_wave(b, h, 0.2), bench_wave(b, p, 0.9);
    expect_op(&y, b, .kind = BK_OP_expert_act, IN(h, p, r.at[SEGMENTS]), .attr = {{swiglu}, {tanh_form}});
}
static void act_swiglu(bench *b)
{
    expert_act(b, true, false);
}
static void act_gelu(bench *b)
{
    expert_act(b, false, false);
}
static void act_gelu_tanh(bench *b)
{
    expert_act(b, false, true);
}

static void sigmoid_gate(bench *b)
{
    const bk_vid y = ACT(b, "y", S, B, C), z = ACT(b, "z", S, B, 1);
    bk_vid out;
    bench_wave(b, y, 0.2), bench_wave(b, z, 0.9);
    expect_op(&out, b, .kind = BK_OP_sigmoid_gate, IN(y, z));
}

static void test_experts__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    check_op(permute_all, 1, 1);
    check_op(permute_padded, 1, 1);
    check_op(unpermute, 1, 1);
    check_op(permute_probs, 1, 1);
    check_op(act_swiglu, 1, 3);
    check_op(act_gelu, 1, 3);
    check_op(act_gelu_tanh, 1, 3);
    check_op(sigmoid_gate, 1, 3);
    check_op(grouped_linear, 1, 1 | 1 << 2 | 1 << 3 | 1 << 5); /* not expert 2, which has no rows */
    check_op(grouped_bias_plain, 1, 1 | 1 << 3 | 1 << 4 | 1 << 6);
    check_op(grouped_bias, 1, 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6);
    check_nothing_flows(grouped_linear);
    check_nothing_flows(act_swiglu);
}

/* Zeros although the accumulators held something else, and they stay zero when more is added. */
static void test_experts__an_idle_expert_has_a_gradient_of_exactly_zero(void **state)
{
    (void)state;
    grad_bench t = grad_open(grouped_linear, BK_F32, 1, false);
    const bk_vid d = grad_of_input(&t, 4);
    bk_err e;
    bench_wave(&t.b, d, 1);
    for (unsigned assign = ~0u;; assign = 0) {
        for (bk_oid o = t.use + 1; o < t.b.g->n_ops; o++)
            assert_int_equal(bench_run(&t.b, o, assign, &e), BK_OK);
        for (int i = 0; i < F * C; i++) assert_true(bench_get(&t.b, d, i) == 0);
        if (!assign) break;
    }
    grad_close(&t);
}

/* The same by looking at every pair for every row. */
static void route_slowly(int32_t *pair_of_row, int64_t *segments, int64_t *excess, const int32_t *index,
                         const double *probs, int n_tokens, int k, bk_route_room room)
{
    int64_t row = 0;
    for (int64_t r = 0; r < room.rows; r++) pair_of_row[r] = -1;
    for (int64_t e = 0; e < room.local; e++) {
        const int64_t begin = row;
        segments[e] = row < room.rows ? row : room.rows;
        for (int p = 0; p < n_tokens * k; p++) {
            if (index[p] != room.first + e) continue;
            int before = 0; /* pairs of this expert that go first when some are dropped */
            for (int q = 0; q < n_tokens * k; q++)
                before += index[q] == index[p] &&
                          (room.by_position || probs[q] == probs[p] ? q < p : probs[q] > probs[p]);
            if (room.capacity > 0 && before >= room.capacity) continue;
            if (row < room.rows) pair_of_row[row] = p;
            row++;
        }
        if (room.pad) row = begin + room.capacity;
    }
    segments[room.local] = row < room.rows ? row : room.rows;
    *excess = row > room.rows ? row - room.rows : 0;
}

static void test_experts__rows_are_those_of_the_plain_rule(void **state)
{
    (void)state;
    enum { T = 23, TOPK = 3, EXPERTS = 7, MOST = 200 };
    int n_excess = 0, n_dropped = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        int32_t index[T * TOPK], pair_of_row[MOST], slow_pairs[MOST], row_of_pair[T * TOPK];
        int64_t segments[EXPERTS + 1], slow_segments[EXPERTS + 1], excess, slow_excess;
        double probs[T * TOPK];
        const int n_tokens = seed % 10 < 2 ? (int)(seed % 10) : T;
        bk_route_room room = {.first = (int64_t)(seed % 3), .local = EXPERTS - (int64_t)(seed % 3) * 2};
        room.capacity = seed % 4 == 0 ? 0 : 1 + (int64_t)(bk_mix64(seed) % 9);
        room.pad = seed % 4 == 1, room.by_position = seed % 5 == 0;
        room.rows = room.pad ? room.capacity * room.local : (int64_t)(bk_mix64(seed + 1000) % 60);
        for (int p = 0; p < T * TOPK; p++) {
            const uint64_t draw = bk_mix64(seed * 1000 + (uint64_t)p + 7);
            index[p] = seed % 7 == 3 ? 2 : (int32_t)(draw % EXPERTS);
            probs[p] = (double)(draw / 64 % 6); /* many are equal */
        }
        void *work = aligned_alloc(64, 4096);
        assert_true(bk_route_rows_workspace_f64(T * TOPK, EXPERTS) <= 4096);
        bk_route_rows_f64(pair_of_row, row_of_pair, segments, &excess, index, probs, n_tokens, TOPK, room,
                          work);
        route_slowly(slow_pairs, slow_segments, &slow_excess, index, probs, n_tokens, TOPK, room);
        assert_memory_equal(pair_of_row, slow_pairs, (size_t)room.rows * sizeof *pair_of_row);
        assert_memory_equal(segments, slow_segments, (size_t)(room.local + 1) * sizeof *segments);
        assert_int_equal(excess, slow_excess);
        for (int p = 0; p < n_tokens * TOPK; p++) {
            if (row_of_pair[p] >= 0) assert_int_equal(pair_of_row[row_of_pair[p]], p);
            for (int64_t r = 0; r < room.rows && row_of_pair[p] < 0; r++)
                assert_int_not_equal(pair_of_row[r], p);
            n_dropped += row_of_pair[p] < 0;
        }
        n_excess += excess > 0;
        free(work);
    }
    assert_true(n_excess > 20 && n_dropped > 1000);
}

/* Rows behind the counted ones hold NaN, which must not be seen. */
static void test_experts__nothing_behind_the_last_row_is_read(void **state)
{
    (void)state;
    bench b = bench_open(BK_F64);
    int32_t index[PAIRS];
    bk_err e;
    for (int p = 0; p < PAIRS; p++) index[p] = p < 4 ? 0 : E; /* others are held elsewhere: 4 rows */
    const rows r = route(&b, index, PAIRS, 0, false);
    const bk_vid x = ACT(&b, "x", PAIRS, C), p = ACT(&b, "p", PAIRS);
    bk_vid w[E], y, a, sum;
    bench_wave(&b, x, 0.2), bench_wave(&b, p, 0.5);
    for (int i = 4; i < PAIRS; i++) bench_put(&b, p, i, (double)NAN);
    for (int i = 4 * C; i < PAIRS * C; i++) bench_put(&b, x, i, (double)NAN);
    for (int k = 0; k < E; k++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", k);
        w[k] = PARAM(&b, name, C, C), bench_wave(&b, w[k], k);
    }
    expect_op(&y, &b, .kind = BK_OP_grouped_linear, IN(x, r.at[SEGMENTS], w[0], w[1], w[2], w[3]));
    expect_op(&a, &b, .kind = BK_OP_expert_act, IN(y, p, r.at[SEGMENTS]));
    expect_op(&sum, &b, .kind = BK_OP_unpermute, IN(a, r.at[0], r.at[1], r.at[2]));
    for (bk_oid o = 1; o < b.g->n_ops; o++) assert_int_equal(bench_run(&b, o, 0, &e), BK_OK);
    for (int i = 0; i < S * B * C; i++) assert_true(isfinite(bench_get(&b, sum, i)));
    for (int i = 2 * C; i < S * B * C; i++)
        assert_true(bench_get(&b, sum, i) == 0); /* tokens routed to nobody */
    assert_true(bench_get(&b, sum, 0) != 0);
    bench_close(&b);
}

static void test_experts__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    const bk_vid index = INPUT(&b, "index", BK_I32, S, B, K), probs = ACT(&b, "probs", S, B, K + 1);
    const bk_vid x = ACT(&b, "x", PAIRS, C), segments = INPUT(&b, "segments", BK_I64, 3),
                 w = PARAM(&b, "w", F, C);
    const bk_vid odd = ACT(&b, "odd", PAIRS, 5), p = ACT(&b, "p", PAIRS);
    expect_refused(&b, "expected one at least", .kind = BK_OP_route_rows, IN(index));
    expect_refused(&b, "2^31", .kind = BK_OP_route_rows, IN(index), .attr = {{0}, {E}, {-1}});
    expect_refused(&b, "padding needs", .kind = BK_OP_route_rows, IN(index, probs),
                   .attr = {{0}, {E}, {PAIRS}, {2}, {1}, {1}});
    expect_refused(&b, "without probs", .kind = BK_OP_route_rows, IN(index), .attr = {{0}, {E}, {8}, {2}});
    expect_refused(&b, "probs [S, B, k]", .kind = BK_OP_route_rows, IN(index, probs),
                   .attr = {{0}, {E}, {8}, {2}});
    expect_refused(&b, "one more than there are weights", .kind = BK_OP_grouped_linear, IN(x, segments, w));
    expect_refused(&b, "halve", .kind = BK_OP_expert_act, IN(odd, p, segments), .attr = {{1}});
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts__gradient_is_that_of_the_op),
        cmocka_unit_test(test_experts__an_idle_expert_has_a_gradient_of_exactly_zero),
        cmocka_unit_test(test_experts__rows_are_those_of_the_plain_rule),
        cmocka_unit_test(test_experts__nothing_behind_the_last_row_is_read),
        cmocka_unit_test(test_experts__refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
