#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/markov.h"
#include "data/ngram.h"

/* Three symbols, counted by hand. Training 0 1 0 1 2: labels 1 0 1 2, pairs 01 10 01 12. */
static void test_ngram__a_case_by_hand(void **state)
{
    (void)state;
    const int32_t t[] = {0, 1, 0, 1, 2, /* held out */ 0, 1, 1};
    bk_ngram_report r;
    assert_int_equal(
        bk_ngram_loss(&r, (bk_tokens){t, 4, 8}, (bk_token_range){0, 5}, (bk_token_range){5, 8}, 3, NULL),
        BK_OK);
    assert_int_equal(r.n_train, 4);
    assert_int_equal(r.n_held_out, 2);
    const double p1 = 2.1 / 4.3, p11 = 0.1 / 2.3, p01 = 2.1 / 2.3;
    assert_true(fabs(r.unigram + log(p1)) < 1e-15);
    assert_true(fabs(r.bigram + (log(p01) + log(p11)) / 2) < 1e-15);
}

/* The same numbers by plain tables, for more tokens than the first size of the hash table. */
static void test_ngram__counts_of_many_pairs(void **state)
{
    (void)state;
    enum { V = 300, N = 60000, TRAIN = 50000 };
    static double one[V], two[V][V], before[V];
    uint16_t *t = malloc(N * sizeof *t);
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        const uint32_t high = x >> 16;
        t[i] = (uint16_t)(high % V * (high % 7) / 6); /* uneven */
    }
    for (int i = 1; i < TRAIN; i++) one[t[i]]++, two[t[i - 1]][t[i]]++, before[t[i - 1]]++;
    double unigram = 0, bigram = 0;
    for (int i = TRAIN + 1; i < N; i++) {
        unigram -= log((one[t[i]] + 0.1) / (TRAIN - 1 + 0.1 * V));
        bigram -= log((two[t[i - 1]][t[i]] + 0.1) / (before[t[i - 1]] + 0.1 * V));
    }
    bk_ngram_report r;
    assert_int_equal(bk_ngram_loss(&r, (bk_tokens){t, 2, N}, (bk_token_range){0, TRAIN},
                                   (bk_token_range){TRAIN, N}, V, NULL),
                     BK_OK);
    /* The sums have the same terms up to rounding: 1e4 terms of 5 with 1e-16 each. */
    assert_true(fabs(r.unigram - unigram / (N - TRAIN - 1)) < 1e-11);
    assert_true(fabs(r.bigram - bigram / (N - TRAIN - 1)) < 1e-11);
    free(t);
}

/* On an order-1 chain the bigram model approaches the entropy, the unigram model the one below. */
static void test_ngram__reaches_the_entropies_of_a_chain(void **state)
{
    (void)state;
    enum { N = 1 << 19 };
    const bk_markov_options o = {.order = 1, .n_symbols = 16, .seed = 3, .sharpness = BK_MARKOV_SHARPNESS};
    bk_markov m;
    assert_int_equal(bk_markov_make(&m, &o, NULL), BK_OK);
    uint16_t *t = malloc(N * sizeof *t);
    bk_markov_draw(t, &m, N);
    const bk_tokens tokens = {t, 2, N};
    bk_ngram_report r;
    assert_int_equal(
        bk_ngram_loss(&r, tokens, (bk_token_range){0, N / 2}, (bk_token_range){N / 2, N}, 16, NULL), BK_OK);
    /* 2^18 held-out tokens with a deviation of 1.2 nats: 0.0023; four of them. */
    assert_true(fabs(r.bigram - m.entropy) < 0.01);
    assert_true(fabs(r.unigram - m.lower_entropy) < 0.01);
    assert_true(r.unigram - r.bigram > 0.3);
    free(t);
    bk_markov_free(&m);
}

/* Through sources: an epoch of samples in order holds every label once, so only the tail is missing. */
static void test_ngram__sources_give_what_ranges_give(void **state)
{
    (void)state;
    enum { S = 8, N = 8 * 100 + 1, V = 50 };
    int32_t t[2 * N];
    for (int i = 0; i < 2 * N; i++) t[i] = (int32_t)((uint32_t)i * 2654435761u >> 20) % V;
    const bk_sampler_options o = {.seq_length = S, .split = "1,1", .shuffle = true, .seed = 4};
    bk_sampler train, valid;
    const bk_tokens tokens = {t, 4, 2 * N};
    assert_int_equal(bk_sampler_make(&train, tokens, BK_PART_TRAIN, &o, NULL), BK_OK);
    assert_int_equal(bk_sampler_make(&valid, tokens, BK_PART_VALID, &o, NULL), BK_OK);
    const bk_source a = bk_sampler_source(&train), b = bk_sampler_source(&valid);
    bk_ngram_report by_source, by_range;
    assert_int_equal(bk_ngram_source_loss(&by_source, &a, train.n_samples, &b, valid.n_samples, S, V, NULL),
                     BK_OK);
    assert_int_equal(bk_ngram_loss(&by_range, tokens, train.range, valid.range, V, NULL), BK_OK);
    assert_int_equal(by_source.n_train, N - 1);
    assert_int_equal(by_range.n_train, N - 1);
    /* Counts are the same; the losses are summed in another order. */
    assert_true(fabs(by_source.unigram - by_range.unigram) < 1e-13);
    assert_true(fabs(by_source.bigram - by_range.bigram) < 1e-13);
}

static void test_ngram__masked_labels_do_not_count(void **state)
{
    (void)state;
    enum { S = 4 };
    const int32_t t[] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
    const bk_sampler_options o = {.seq_length = S, .mask_eod = true, .eod = 2};
    bk_sampler s;
    assert_int_equal(bk_sampler_make(&s, (bk_tokens){t, 4, 9}, BK_PART_TRAIN, &o, NULL), BK_OK);
    const bk_source source = bk_sampler_source(&s);
    bk_ngram_report r;
    assert_int_equal(bk_ngram_source_loss(&r, &source, 2, &source, 2, S, 3, NULL), BK_OK);
    assert_int_equal(r.n_train, 6); /* of 8: not those after the two ends */
    assert_true(fabs(r.bigram + log(3.1 / 3.3)) < 1e-15);
}

static void test_ngram__bad_ranges_and_tokens_are_errors(void **state)
{
    (void)state;
    const int32_t t[] = {0, 1, 2, 3, 4, 5};
    const bk_tokens tokens = {t, 4, 6};
    const bk_token_range good = {0, 3}, bad[] = {{0, 1}, {3, 3}, {-1, 3}, {4, 7}, {5, 2}};
    bk_ngram_report r;
    bk_err e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(bk_ngram_loss(&r, tokens, bad[i], good, 6, &e), BK_E_INPUT);
        assert_int_equal(bk_ngram_loss(&r, tokens, good, bad[i], 6, &e), BK_E_INPUT);
    }
    assert_int_equal(bk_ngram_loss(&r, tokens, good, (bk_token_range){3, 6}, 5, &e), BK_E_INPUT);
    assert_string_equal(e.msg, "tokens 4 and 5 are not both in the vocabulary of 5");
    assert_int_equal(bk_ngram_loss(&r, tokens, good, good, 0, &e), BK_E_INPUT);
    assert_int_equal(bk_ngram_loss(&r, tokens, good, good, INT64_MAX, &e), BK_E_INPUT);
}

#define TEST(name) cmocka_unit_test(test_ngram__##name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_case_by_hand),
        TEST(counts_of_many_pairs),
        TEST(reaches_the_entropies_of_a_chain),
        TEST(sources_give_what_ranges_give),
        TEST(masked_labels_do_not_count),
        TEST(bad_ranges_and_tokens_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
