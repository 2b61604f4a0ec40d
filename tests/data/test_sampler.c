#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "data/sampler.h"

/* Tokens 0, 1, 2, ... */
static uint16_t *count_up(int n)
{
    uint16_t *tokens = malloc((size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) tokens[i] = (uint16_t)i;
    return tokens;
}

static bk_sampler make(const uint16_t *tokens, int64_t n_tokens, bk_part part, bk_sampler_options options)
{
    bk_sampler s;
    bk_err e = {0};
    if (bk_sampler_make(&s, (bk_tokens){tokens, 2, n_tokens}, part, &options, &e) != BK_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void test_sampler__sample_borders(void **state)
{
    (void)state;
    uint16_t *data = count_up(101);
    const bk_sampler s = make(data, 101, BK_PART_TRAIN, (bk_sampler_options){.seq_length = 8});
    assert_int_equal(s.n_samples, 12);
    int32_t tokens[8], labels[8];
    float mask[8];
    int n_label[101] = {0};
    for (int i = 0; i < 12; i++) {
        bk_sampler_get(tokens, labels, mask, &s, i);
        for (int t = 0; t < 8; t++) {
            assert_int_equal(tokens[t], i * 8 + t);
            assert_int_equal(labels[t], i * 8 + t + 1);
            assert_true(mask[t] == 1.0f);
            n_label[labels[t]]++;
        }
    }
    for (int token = 0; token < 101; token++) assert_int_equal(n_label[token], token >= 1 && token <= 96);
    bk_sampler_get(tokens, labels, NULL, &s, 12 * 5 + 1); /* sample 1 of epoch 5 */
    assert_int_equal(tokens[0], 8);
    assert_int_equal(labels[7], 16);
    free(data);
}

/* The orders that an implementation apart from this one (in Python) gives: a run resumed by another version
 * must see the same samples. */
static void test_sampler__the_shuffled_order_is_pinned(void **state)
{
    (void)state;
    static const struct {
        bk_part part;
        int epoch, order[12];
    } pinned[] = {
        {BK_PART_TRAIN, 0, {11, 7, 1, 0, 4, 2, 6, 5, 9, 10, 8, 3}},
        {BK_PART_TRAIN, 1, {7, 9, 5, 4, 10, 8, 1, 0, 2, 11, 3, 6}},
        {BK_PART_VALID, 0, {5, 8, 2, 0, 11, 6, 7, 4, 10, 3, 9, 1}},
    };
    uint16_t *data = count_up(200);
    for (size_t k = 0; k < sizeof pinned / sizeof *pinned; k++) {
        const bk_sampler_options options = {.seq_length = 8, .split = "1,1", .seed = 1234, .shuffle = true};
        const bk_sampler s = make(data, 200, pinned[k].part, options);
        assert_int_equal(s.n_samples, 12);
        for (int i = 0; i < 12; i++)
            assert_int_equal(bk_sampler_index(&s, pinned[k].epoch * 12 + i), pinned[k].order[i]);
        int32_t tokens[8], labels[8];
        bk_sampler_get(tokens, labels, NULL, &s, pinned[k].epoch * 12);
        assert_int_equal(tokens[0], s.range.begin + 8 * pinned[k].order[0]);
    }
    const bk_sampler vast = {.options = {.seq_length = 1, .seed = 1234, .shuffle = true},
                             .n_samples = INT64_C(1000000000000)};
    assert_int_equal(bk_sampler_index(&vast, INT64_C(9000000000000000005)), INT64_C(918610155006));
    const bk_sampler late = {.options = vast.options, .n_samples = 1000};
    assert_int_equal(bk_sampler_index(&late, INT64_MAX), 281);
    free(data);
}

static void test_sampler__every_epoch_is_a_permutation(void **state)
{
    (void)state;
    enum { MOST = 300 };
    uint16_t *data = count_up(MOST + 1);
    for (int n = 1; n <= MOST; n += n < 40 ? 1 : 13) {
        const bk_sampler_options options = {.seq_length = 1, .seed = 7, .shuffle = true};
        const bk_sampler s = make(data, n + 1, BK_PART_TRAIN, options);
        int64_t before[MOST];
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int n_seen[MOST] = {0}, n_same = 0;
            for (int i = 0; i < n; i++) {
                const int64_t idx = bk_sampler_index(&s, epoch * n + i);
                assert_in_range(idx, 0, n - 1);
                n_seen[idx]++;
                n_same += epoch > 0 && before[i] == idx;
                before[i] = idx;
            }
            for (int i = 0; i < n; i++) assert_int_equal(n_seen[i], 1);
            /* one place in n agrees by chance; half of them would be an order that repeats */
            if (n >= 16) assert_true(n_same < n / 2);
        }
    }
    free(data);
}

/* How often sample j comes at place i in 24,000 epochs is binomial with mean 24000 / n and a standard
 * deviation below 80; 6 of these are passed once in 10^9, and the seed is fixed. */
static void test_sampler__every_place_is_as_likely(void **state)
{
    (void)state;
    uint16_t *data = count_up(13);
    for (int n = 2; n <= 12; n++) {
        const bk_sampler_options options = {.seq_length = 1, .seed = 3, .shuffle = true};
        const bk_sampler s = make(data, n + 1, BK_PART_TRAIN, options);
        const int n_epochs = 24000;
        int count[12][12] = {{0}};
        for (int64_t k = 0; k < (int64_t)n_epochs * n; k++) count[k % n][bk_sampler_index(&s, k)]++;
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) assert_true(abs(count[i][j] - n_epochs / n) < 6 * 80);
        }
    }
    free(data);
}

static void test_sampler__seeds_and_parts_differ(void **state)
{
    (void)state;
    uint16_t *data = count_up(201);
    bk_sampler_options options = {.seq_length = 1, .split = "1,1", .seed = 1, .shuffle = true};
    const bk_sampler a = make(data, 201, BK_PART_TRAIN, options), b = make(data, 201, BK_PART_VALID, options);
    options.seed = 2;
    const bk_sampler c = make(data, 201, BK_PART_TRAIN, options);
    int n_ab = 0, n_ac = 0;
    for (int64_t i = 0; i < 99; i++) {
        n_ab += bk_sampler_index(&a, i) == bk_sampler_index(&b, i);
        n_ac += bk_sampler_index(&a, i) == bk_sampler_index(&c, i);
    }
    assert_true(n_ab < 20 && n_ac < 20); /* 1 each by chance */
    free(data);
}

static void expect_split(const char *split, int64_t n, int64_t a, int64_t b)
{
    bk_token_range r[BK_N_PARTS];
    bk_err e = {0};
    if (bk_split_parse(r, split, n, &e) != BK_OK) fail_msg("split %s: %s", split, e.msg);
    assert_int_equal(r[0].begin, 0);
    assert_int_equal(r[0].end, a);
    assert_int_equal(r[1].begin, a);
    assert_int_equal(r[1].end, b);
    assert_int_equal(r[2].begin, b);
    assert_int_equal(r[2].end, n);
}

static void test_sampler__split_syntax(void **state)
{
    (void)state;
    expect_split("949,50,1", 1000, 949, 999);
    expect_split("949, 50, 1 ", 2000, 1898, 1998);
    expect_split("99,1", 1000, 990, 1000);
    expect_split("1", 1000, 1000, 1000);
    expect_split("0.8,.1,0.1", 1000, 800, 900);
    expect_split("0,0,5", 1000, 0, 0);
    expect_split("1,1,1", 10, 3, 7);
    expect_split("969,30,1", 0, 0, 0);
    expect_split("1,0", INT64_MAX, INT64_MAX, INT64_MAX);
    expect_split("1,1", INT64_MAX - 1, INT64_MAX / 2, INT64_MAX - 1);
    static const char *const bad[] = {"",
                                      ",",
                                      "a",
                                      "1,2,3,4",
                                      "-1",
                                      "1,,2",
                                      "1,2,",
                                      "nan",
                                      "inf",
                                      "1e3",
                                      "0x1",
                                      "1;2",
                                      "+1",
                                      "1 2",
                                      ".",
                                      "1.2.3",
                                      "0",
                                      "0,0,0.0",
                                      "1234567890123456"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bk_token_range r[BK_N_PARTS];
        bk_err e = {0};
        if (bk_split_parse(r, bad[i], 1000, &e) != BK_E_INPUT) fail_msg("split '%s' was accepted", bad[i]);
        assert_non_null(strstr(e.msg, "split '"));
    }
}

static void expect_no_data(int64_t n_tokens, bk_part part, bk_sampler_options options, const char *words)
{
    uint16_t *data = count_up(100);
    bk_sampler s;
    bk_err e = {0};
    assert_int_equal(bk_sampler_make(&s, (bk_tokens){data, 2, n_tokens}, part, &options, &e), BK_E_INPUT);
    if (!strstr(e.msg, words)) fail_msg("message '%s', expected '%s'", e.msg, words);
    free(data);
}

static void test_sampler__a_part_without_a_sample_is_an_error(void **state)
{
    (void)state;
    const bk_sampler_options tiny = {.seq_length = 8, .split = "9998,1,1", .shuffle = true};
    expect_no_data(100, BK_PART_VALID, tiny, "no validation data: split '9998,1,1' gives it 0 of 100 tokens");
    expect_no_data(100, BK_PART_TEST, tiny, "no test data");
    const bk_sampler_options plain = {.seq_length = 8};
    expect_no_data(0, BK_PART_TRAIN, plain, "no training data: split '1' gives it 0 of 0 tokens");
    expect_no_data(1, BK_PART_TRAIN, plain, "no training data");
    expect_no_data(8, BK_PART_TRAIN, plain, "needs one more than the sequence length of 8");
    expect_no_data(100, BK_PART_VALID, plain, "no validation data: split '1' gives it 0 of 100 tokens");
    expect_no_data(100, BK_PART_TRAIN, (bk_sampler_options){.seq_length = INT64_MAX}, "no training data");
    expect_no_data(100, BK_PART_TRAIN, (bk_sampler_options){.seq_length = 0}, "sequence length 0 must be");
    expect_no_data(-1, BK_PART_TRAIN, plain, "sampler: -1 tokens");
    uint16_t *data = count_up(9);
    assert_int_equal(make(data, 9, BK_PART_TRAIN, plain).n_samples, 1); /* the least that is enough */
    free(data);
}

static void test_sampler__sequences_of_one_token(void **state)
{
    (void)state;
    uint16_t *data = count_up(3);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        const bk_sampler_options options = {.seq_length = 1, .shuffle = shuffle};
        const bk_sampler s = make(data, 3, BK_PART_TRAIN, options);
        assert_int_equal(s.n_samples, 2);
        int sum = 0;
        for (int i = 0; i < 2; i++) {
            int32_t token, label;
            bk_sampler_get(&token, &label, NULL, &s, i);
            assert_int_equal(label, token + 1);
            sum += label;
        }
        assert_int_equal(sum, 1 + 2);
    }
    free(data);
}

static void test_sampler__parts_share_no_token(void **state)
{
    (void)state;
    uint16_t *data = count_up(1000);
    int n_uses[1000] = {0};
    for (int part = 0; part < BK_N_PARTS; part++) {
        const bk_sampler_options options = {.seq_length = 16, .split = "8,1,1", .shuffle = true};
        const bk_sampler s = make(data, 1000, (bk_part)part, options);
        int is_used[1000] = {0};
        for (int64_t i = 0; i < s.n_samples; i++) {
            int32_t tokens[16], labels[16];
            bk_sampler_get(tokens, labels, NULL, &s, i);
            for (int t = 0; t < 16; t++) is_used[tokens[t]] = is_used[labels[t]] = 1;
        }
        for (int i = 0; i < 1000; i++) n_uses[i] += is_used[i];
    }
    for (int i = 0; i < 1000; i++) assert_in_range(n_uses[i], 0, 1);
    free(data);
}

static void test_sampler__masks_the_end_of_documents(void **state)
{
    (void)state;
    static const int32_t data[9] = {5, 6, 256, 7, 256, 256, 8, 9, 256};
    static const float expected[8] = {1, 1, 0, 1, 0, 0, 1, 1};
    bk_sampler_options options = {.seq_length = 8, .mask_eod = true, .eod = 256};
    bk_sampler s;
    assert_int_equal(bk_sampler_make(&s, (bk_tokens){data, 4, 9}, BK_PART_TRAIN, &options, NULL), BK_OK);
    int32_t tokens[8], labels[8];
    float mask[8];
    bk_sampler_get(tokens, labels, mask, &s, 0);
    assert_memory_equal(tokens, data, sizeof tokens);
    assert_memory_equal(labels, data + 1, sizeof labels);
    assert_memory_equal(mask, expected, sizeof mask);
}

/* 2.4 GB of address space, of which two pages are touched: an index of 32 bits would miss the pattern. */
static void test_sampler__reads_beyond_two_gigabytes(void **state)
{
    (void)state;
    const int64_t n = INT64_C(1200000000), S = 1024, sample = INT64_C(1100000000) / 1024;
    const size_t bytes = (size_t)n * 2;
    uint16_t *data =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(data != MAP_FAILED);
    for (int64_t t = 0; t <= S; t++) data[sample * S + t] = (uint16_t)(t + 1);
    const bk_sampler s = make(data, n, BK_PART_TRAIN, (bk_sampler_options){.seq_length = S});
    assert_int_equal(s.n_samples, (n - 1) / S);
    int32_t tokens[1024], labels[1024];
    bk_sampler_get(tokens, labels, NULL, &s, sample);
    for (int t = 0; t < 1024; t++) {
        assert_int_equal(tokens[t], t + 1);
        assert_int_equal(labels[t], t + 2);
    }
    munmap(data, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampler__sample_borders),
        cmocka_unit_test(test_sampler__the_shuffled_order_is_pinned),
        cmocka_unit_test(test_sampler__every_epoch_is_a_permutation),
        cmocka_unit_test(test_sampler__every_place_is_as_likely),
        cmocka_unit_test(test_sampler__seeds_and_parts_differ),
        cmocka_unit_test(test_sampler__split_syntax),
        cmocka_unit_test(test_sampler__a_part_without_a_sample_is_an_error),
        cmocka_unit_test(test_sampler__sequences_of_one_token),
        cmocka_unit_test(test_sampler__parts_share_no_token),
        cmocka_unit_test(test_sampler__masks_the_end_of_documents),
        cmocka_unit_test(test_sampler__reads_beyond_two_gigabytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
