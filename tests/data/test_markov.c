#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/markov.h"

static bk_markov make(int order, int64_t V, uint64_t seed, double sharpness)
{
    const bk_markov_options o = {.order = order, .n_symbols = V, .seed = seed, .sharpness = sharpness};
    bk_markov m;
    bk_err e = {0};
    if (bk_markov_make(&m, &o, &e) != BK_OK) fail_msg("%s", e.msg);
    return m;
}

/* What the training test of the order-2 source needs, for any seed: attention must be worth half a nat. */
static void test_markov__the_second_token_back_is_worth_half_a_nat(void **state)
{
    (void)state;
    double least = (double)INFINITY;
    for (uint64_t seed = 0; seed < 200; seed++) {
        bk_markov m = make(2, 16, seed, BK_MARKOV_SHARPNESS);
        const double gain = m.lower_entropy - m.entropy;
        assert_true(m.entropy > 1 && m.entropy < m.lower_entropy && m.lower_entropy < log(16));
        least = gain < least ? gain : least;
        bk_markov_free(&m);
    }
    if (!(least > 0.75)) fail_msg("the least gain is %.3f nats", least);
}

static void test_markov__rows_are_distributions_and_the_stationary_one_stays(void **state)
{
    (void)state;
    for (int order = 1; order <= 2; order++) {
        enum { V = 7 };
        bk_markov m = make(order, V, 3, 20);
        const int64_t n = m.n_contexts;
        assert_int_equal(n, order == 1 ? V : V * V);
        double next[V * V] = {0}, total = 0;
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int c = 0; c < V; c++) {
                assert_true(m.p[i * V + c] > 0);
                sum += m.p[i * V + c];
                /* (a, b) then c leads to (b, c). */
                next[order == 1 ? c : i % V * V + c] += m.stationary[i] * m.p[i * V + c];
            }
            assert_true(fabs(sum - 1) < 1e-14); /* V roundings */
            total += m.stationary[i];
        }
        assert_true(fabs(total - 1) < 1e-13);
        for (int64_t i = 0; i < n; i++) assert_true(fabs(next[i] - m.stationary[i]) < 1e-14);
        bk_markov_free(&m);
    }
}

/* A chain of two symbols solved by hand: with p = P(1|0) and q = P(0|1) the stationary distribution is
 * (q, p) / (p + q). */
static void test_markov__two_symbols_by_hand(void **state)
{
    (void)state;
    bk_markov m = make(1, 2, 11, 5);
    const double p = m.p[1], q = m.p[2], s0 = q / (p + q), s1 = p / (p + q);
    const double hp = -p * log(p) - (1 - p) * log(1 - p), hq = -q * log(q) - (1 - q) * log(1 - q);
    assert_true(fabs(m.stationary[0] - s0) < 1e-14);
    assert_true(fabs(m.entropy - (s0 * hp + s1 * hq)) < 1e-14);
    assert_true(fabs(m.lower_entropy - (-s0 * log(s0) - s1 * log(s1))) < 1e-14);
    bk_markov_free(&m);
}

static void test_markov__without_sharpness_all_is_flat(void **state)
{
    (void)state;
    bk_markov m = make(2, 16, 1, 0);
    assert_true(fabs(m.entropy - log(16)) < 1e-13 && fabs(m.lower_entropy - log(16)) < 1e-13);
    bk_markov_free(&m);
}

/* Of 2^20 tokens, the mean of -log p is the entropy, and the counts of pairs give the lower one. The standard
 * deviation of -log p is about 1.2 nats, so that of the mean about 0.0012: four of them are allowed. */
static void test_markov__drawn_tokens_have_the_entropies(void **state)
{
    (void)state;
    enum { V = 16, N = 1 << 20 };
    bk_markov m = make(2, V, 5, BK_MARKOV_SHARPNESS);
    uint16_t *t = malloc(N * sizeof *t);
    double sum = 0, lower = 0, pairs[V][V] = {{0}}, firsts[V] = {0};
    bk_markov_draw(t, &m, N);
    for (int i = 0; i < N; i++) assert_true(t[i] < V);
    for (int i = 2; i < N; i++) sum -= log(m.p[(t[i - 2] * V + t[i - 1]) * V + t[i]]);
    for (int i = 1; i < N; i++) pairs[t[i - 1]][t[i]]++, firsts[t[i - 1]]++;
    for (int a = 0; a < V; a++)
        for (int b = 0; b < V; b++)
            if (pairs[a][b] > 0) lower -= pairs[a][b] * log(pairs[a][b] / firsts[a]);
    assert_true(fabs(sum / (N - 2) - m.entropy) < 0.005);
    assert_true(fabs(lower / (N - 1) - m.lower_entropy) < 0.005);
    free(t);
    bk_markov_free(&m);
}

static void test_markov__a_shorter_run_begins_a_longer_one(void **state)
{
    (void)state;
    bk_markov m = make(2, 16, 1234, BK_MARKOV_SHARPNESS), other = make(2, 16, 1235, BK_MARKOV_SHARPNESS);
    uint16_t full[1000], again[1000], part[1000];
    bk_markov_draw(full, &m, 1000);
    bk_markov_draw(again, &m, 1000);
    assert_memory_equal(full, again, sizeof full);
    for (int n = 0; n < 12; n++) {
        memset(part, 255, sizeof part);
        bk_markov_draw(part, &m, n);
        assert_memory_equal(part, full, (size_t)n * sizeof *part);
        assert_int_equal(part[n], 65535);
    }
    bk_markov_draw(again, &other, 1000);
    assert_memory_not_equal(full, again, sizeof full);
    const uint16_t pinned[16] = {
        11, 12, 13, 11, 8, 8, 15, 8,
        8,  14, 5,  12, 3, 7, 2,  13}; /* of this implementation: files made from it stay what they are */
    assert_memory_equal(full, pinned, sizeof pinned);
    bk_markov_free(&m);
    bk_markov_free(&other);
}

static void test_markov__options_out_of_range_are_refused(void **state)
{
    (void)state;
    const bk_markov_options bad[] = {
        {.order = 0, .n_symbols = 16, .sharpness = 1},
        {.order = 3, .n_symbols = 16, .sharpness = 1},
        {.order = 1, .n_symbols = 1, .sharpness = 1},
        {.order = 1, .n_symbols = 4097, .sharpness = 1},
        {.order = 2, .n_symbols = 257, .sharpness = 1},
        {.order = 2, .n_symbols = INT64_MAX, .sharpness = 1},
        {.order = 2, .n_symbols = 16, .sharpness = -1},
        {.order = 2, .n_symbols = 16, .sharpness = (double)NAN},
        {.order = 2, .n_symbols = 16, .sharpness = 65},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bk_markov m = {0};
        bk_err e = {0};
        assert_int_equal(bk_markov_make(&m, &bad[i], &e), BK_E_INPUT);
        assert_non_null(strstr(e.msg, "expected"));
        assert_null(m.p);
    }
}

#define TEST(name) cmocka_unit_test(test_markov__##name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_second_token_back_is_worth_half_a_nat),
        TEST(rows_are_distributions_and_the_stationary_one_stays),
        TEST(two_symbols_by_hand),
        TEST(without_sharpness_all_is_flat),
        TEST(drawn_tokens_have_the_entropies),
        TEST(a_shorter_run_begins_a_longer_one),
        TEST(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
