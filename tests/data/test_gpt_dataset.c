#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/gpt_dataset.h"

enum { S = 4 };

/* Sequences in memory: the token at position p of sequence i is 100 i + p. */
typedef struct {
    int64_t length[16];
} fake;

static int64_t fake_length(const void *ctx, int64_t sequence)
{
    return ((const fake *)ctx)->length[sequence];
}

static bk_status fake_read(int32_t *out, const void *ctx, int64_t sequence, int64_t offset, int64_t n,
                           int64_t vocab_size, bk_err *e)
{
    assert_true(offset >= 0 && n >= 0 && offset + n <= fake_length(ctx, sequence));
    for (int64_t i = 0; i < n; i++) {
        out[i] = (int32_t)(100 * sequence + offset + i);
        if (out[i] >= vocab_size) return bk_err_set(e, BK_E_INPUT, "sequence %d is outside", (int)sequence);
    }
    return BK_OK;
}

static bk_sequences view(const fake *f, int64_t n)
{
    return (bk_sequences){
        .ctx = f, .name = "fake", .n_sequences = n, .length = fake_length, .read = fake_read};
}

static const fake eight = {{7, 1, 12, 3, 5, 9, 2, 6}};

static bk_gpt_dataset make(const fake *f, bk_sequence_range range, bk_gpt_options options)
{
    const bk_sequences sequences = view(f, range.end);
    bk_gpt_dataset ds;
    bk_err e = {0};
    if (options.seq_length == 0) options.seq_length = S;
    if (options.vocab_size == 0) options.vocab_size = 2000;
    if (bk_gpt_dataset_make(&ds, &sequences, range, BK_PART_TRAIN, &options, &e) != BK_OK)
        fail_msg("%s", e.msg);
    return ds;
}

/* NumPy's RandomState(1234) and a walk through the documents, token by token, gave these: 0 for one epoch; 8,
 * whose second epoch is shuffled apart; 13, whose second epoch is needed to more than 80 %; 17, with two
 * epochs together and one apart. */
typedef struct {
    int64_t wanted, n_epochs, n_apart;
    int64_t documents[18], n_documents;
    int64_t starts[24][2];
    int64_t shuffle[23], n_samples;
} expected_order;

static const expected_order orders[] = {
    {0,
     1,
     7,
     {3, 2, 6, 1, 5, 4},
     6,
     {{0, 0}, {1, 1}, {1, 5}, {1, 9}, {2, 1}, {4, 2}, {4, 6}, {5, 1}},
     {5, 0, 3, 4, 2, 6, 1},
     7},
    {8,
     2,
     7,
     {3, 2, 6, 1, 5, 4, 1, 5, 4, 3, 6, 2},
     12,
     {{0, 0},
      {1, 1},
      {1, 5},
      {1, 9},
      {2, 1},
      {4, 2},
      {4, 6},
      {5, 1},
      {6, 0},
      {7, 3},
      {7, 7},
      {8, 2},
      {9, 1},
      {11, 0},
      {11, 4},
      {11, 8}},
     {1, 0, 3, 2, 5, 4, 6, 10, 12, 9, 8, 13, 11, 14, 7},
     15},
    {13,
     2,
     15,
     {2, 3, 6, 3, 4, 5, 2, 1, 5, 6, 1, 4},
     12,
     {{0, 0},
      {0, 4},
      {0, 8},
      {1, 0},
      {2, 1},
      {4, 0},
      {4, 4},
      {5, 3},
      {5, 7},
      {6, 2},
      {6, 6},
      {6, 10},
      {8, 1},
      {8, 5},
      {9, 0},
      {11, 1}},
     {7, 11, 2, 3, 1, 9, 5, 4, 0, 8, 6, 10, 13, 12, 14},
     15},
    {17,
     3,
     15,
     {2, 3, 6, 3, 4, 5, 2, 1, 5, 6, 1, 4, 2, 1, 4, 3, 6, 5},
     18,
     {{0, 0},  {0, 4},  {0, 8},  {1, 0},  {2, 1},  {4, 0},  {4, 4},  {5, 3},
      {5, 7},  {6, 2},  {6, 6},  {6, 10}, {8, 1},  {8, 5},  {9, 0},  {11, 1},
      {12, 0}, {12, 4}, {12, 8}, {13, 0}, {14, 3}, {15, 2}, {17, 1}, {17, 5}},
     {7, 4, 1, 11, 3, 10, 2, 14, 6, 9, 13, 5, 12, 0, 8, 19, 22, 16, 15, 20, 18, 17, 21},
     23},
};

static void test_gpt_dataset__orders_are_those_of_the_reference(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
        const expected_order *x = &orders[k];
        bk_gpt_dataset ds =
            make(&eight, (bk_sequence_range){1, 7}, (bk_gpt_options){.n_samples = x->wanted, .seed = 1234});
        assert_int_equal(ds.n_epochs, x->n_epochs);
        assert_int_equal(ds.n_apart, x->n_apart);
        assert_int_equal(ds.n_documents, x->n_documents);
        assert_int_equal(ds.n_samples, x->n_samples);
        assert_memory_equal(ds.documents, x->documents, (size_t)x->n_documents * 8);
        assert_memory_equal(ds.shuffle, x->shuffle, (size_t)x->n_samples * 8);
        for (int64_t i = 0; i <= x->n_samples; i++) {
            int64_t document, offset;
            bk_gpt_dataset_start(&document, &offset, &ds, i);
            assert_int_equal(document, x->starts[i][0]);
            assert_int_equal(offset, x->starts[i][1]);
        }
        bk_gpt_dataset_free(&ds);
    }
}

/* Every sample's tokens are read off the documents laid out one after the other. */
static void test_gpt_dataset__samples_cross_documents(void **state)
{
    (void)state;
    bk_gpt_dataset ds = make(&eight, (bk_sequence_range){0, 8}, (bk_gpt_options){.n_samples = 25, .seed = 5});
    int32_t stream[256], tokens[S], labels[S];
    float mask[S];
    int n = 0;
    for (int64_t d = 0; d < ds.n_documents; d++)
        for (int64_t p = 0; p < eight.length[ds.documents[d]]; p++)
            stream[n++] = (int32_t)(100 * ds.documents[d] + p);
    assert_int_equal(n, 45 * ds.n_epochs);
    for (int64_t i = 0; i < ds.n_samples; i++) {
        const int32_t *at = stream + S * ds.shuffle[i];
        assert_int_equal(bk_gpt_dataset_get(tokens, labels, mask, &ds, i, NULL), BK_OK);
        assert_memory_equal(tokens, at, sizeof tokens);
        assert_memory_equal(labels, at + 1, sizeof labels);
        for (int t = 0; t < S; t++) assert_true(mask[t] == 1.0f);
        /* One at a time gives the same. */
        int32_t again[S];
        assert_int_equal(bk_gpt_dataset_get(again, NULL, NULL, &ds, i, NULL), BK_OK);
        assert_memory_equal(again, at, sizeof again);
        assert_int_equal(bk_gpt_dataset_get(NULL, again, NULL, &ds, i, NULL), BK_OK);
        assert_memory_equal(again, at + 1, sizeof again);
    }
    bk_gpt_dataset_free(&ds);
}

static void test_gpt_dataset__sequences_without_tokens_are_passed_over(void **state)
{
    (void)state;
    static const fake gaps = {{0, 0, 3, 0, 5, 1, 0, 0}};
    bk_gpt_dataset ds = make(&gaps, (bk_sequence_range){0, 8}, (bk_gpt_options){.n_samples = 40, .seed = 9});
    int32_t tokens[S], labels[S];
    int n_label[1000] = {0};
    for (int64_t i = 0; i < ds.n_samples; i++) {
        assert_int_equal(bk_gpt_dataset_get(tokens, labels, NULL, &ds, i, NULL), BK_OK);
        for (int t = 0; t < S; t++) n_label[labels[t]]++;
    }
    /* Every token of an epoch is a label as often as there are epochs; the first of the stream and a tail
     * shorter than a sample are not. */
    const int64_t n_labels = S * ds.n_samples, n_tokens = 9 * ds.n_epochs;
    int64_t sum = 0;
    for (int k = 0; k < 1000; k++) sum += n_label[k];
    assert_int_equal(sum, n_labels);
    assert_in_range(n_tokens - n_labels, 1, S);
    assert_in_range(n_label[500], ds.n_epochs - S, ds.n_epochs);
    bk_gpt_dataset_free(&ds);
}

static void test_gpt_dataset__end_of_document_is_masked_as_input(void **state)
{
    (void)state;
    static const fake one = {{1301}};
    const bk_gpt_options options = {.seq_length = 1300, .mask_eod = true, .eod = 600};
    bk_gpt_dataset ds = make(&one, (bk_sequence_range){0, 1}, options);
    static float mask[1300]; /* longer than the buffer it is read through */
    assert_int_equal(bk_gpt_dataset_get(NULL, NULL, mask, &ds, 0, NULL), BK_OK);
    for (int t = 0; t < 1300; t++) assert_true(mask[t] == (t == 600 ? 0.0f : 1.0f));
    bk_gpt_dataset_free(&ds);
}

static void test_gpt_dataset__errors_of_reading_come_through(void **state)
{
    (void)state;
    bk_gpt_dataset ds =
        make(&eight, (bk_sequence_range){2, 4}, (bk_gpt_options){.vocab_size = 300, .seed = 1});
    const bk_source source = bk_gpt_dataset_source(&ds);
    int32_t row[S];
    float mask[S];
    int n_bad = 0;
    assert_int_equal(source.n_samples, 3);
    for (int64_t i = 0; i < 3; i++) n_bad += bk_source_get(NULL, row, NULL, &source, i, NULL) == BK_E_INPUT;
    assert_int_equal(n_bad, 1); /* tokens 300 to 302 are in one sample, whichever sequence comes first */
    bk_err e = {0};
    assert_int_equal(bk_source_get(row, row, mask, &source, 3, &e), BK_E_INPUT);
    assert_string_equal(e.msg, "fake: sample 3 is asked for, but the data were ordered for 3");
    assert_int_equal(bk_source_get(row, row, mask, &source, -1, &e), BK_E_INPUT);
    bk_gpt_dataset_free(&ds);
}

/* Python: round(float) of running sums of the normalised weights. */
static void test_gpt_dataset__splits_round_half_to_even(void **state)
{
    (void)state;
    const struct {
        const char *split;
        int64_t n, border[4];
    } splits[] = {
        {"949,50,1", 1000, {0, 949, 999, 1000}},
        {"969,30,1", 50, {0, 48, 50, 50}},
        {"8,1,1", 25, {0, 20, 22, 25}},
        {"99,1", 10, {0, 10, 10, 10}},
        {"1,1,1", 100000, {0, 33333, 66667, 100000}},
        {"0.5,0.5", 5, {0, 2, 5, 5}},
        {"0.5,0.5", 7, {0, 4, 7, 7}},
        {"9998,1,1", 10, {0, 10, 10, 10}},
        {"1", 3, {0, 3, 3, 3}},
        {"1,1", 0, {0, 0, 0, 0}},
    };
    for (size_t k = 0; k < sizeof splits / sizeof *splits; k++) {
        bk_sequence_range range[BK_N_PARTS];
        assert_int_equal(bk_split_sequences(range, splits[k].split, splits[k].n, NULL), BK_OK);
        for (int i = 0; i < BK_N_PARTS; i++) {
            assert_int_equal(range[i].begin, splits[k].border[i]);
            assert_int_equal(range[i].end, splits[k].border[i + 1]);
        }
    }
    bk_sequence_range range[BK_N_PARTS];
    assert_int_equal(bk_split_sequences(range, "0,0", 10, NULL), BK_E_INPUT);
    assert_int_equal(bk_split_sequences(range, "", 10, NULL), BK_E_INPUT);
}

static void test_gpt_dataset__samples_that_a_run_asks_for(void **state)
{
    (void)state;
    int64_t n[BK_N_PARTS];
    assert_int_equal(bk_gpt_n_samples(n, 100, 30, 5, 16, NULL), BK_OK);
    assert_int_equal(n[BK_PART_TRAIN], 1600);
    assert_int_equal(n[BK_PART_VALID], 4 * 5 * 16);
    assert_int_equal(n[BK_PART_TEST], 80);
    assert_int_equal(bk_gpt_n_samples(n, INT64_MAX / 2, 1, 1, 1, NULL), BK_OK);
    assert_int_equal(bk_gpt_n_samples(n, INT64_MAX / 2, 1, 3, 1, NULL), BK_E_INPUT);
    assert_int_equal(bk_gpt_n_samples(n, INT64_MAX / 2, 1, 0, 3, NULL), BK_E_INPUT);
}

static void expect_refusal(const fake *f, int64_t n, const char *split, bk_part part, bk_gpt_options options,
                           bk_status status, const char *words)
{
    const bk_sequences sequences = view(f, n);
    const time_t start = time(NULL);
    bk_sequence_range range[BK_N_PARTS];
    bk_gpt_dataset ds = {0};
    bk_err e = {0};
    if (options.vocab_size == 0) options.vocab_size = 2000;
    assert_int_equal(bk_split_sequences(range, split, n, NULL), BK_OK);
    const bk_status st = bk_gpt_dataset_make(&ds, &sequences, range[part], part, &options, &e);
    if (st != status || !strstr(e.msg, words))
        fail_msg("status %d, '%s', expected '%s'", (int)st, e.msg, words);
    assert_null(ds.documents);
    assert_true(difftime(time(NULL), start) < 5);
}

/* However many samples are wanted of data that hold none, or next to none. */
static void test_gpt_dataset__too_little_data_end_in_a_message(void **state)
{
    (void)state;
    static const fake ten = {{9, 9, 9, 9, 9, 9, 9, 9, 9, 9}}, hollow = {{0}}, small = {{2, 0, 2}},
                      enough = {{5}};
    const int64_t wanted[] = {0, 1, 1000000, INT64_C(1) << 50};
    for (int k = 0; k < 4; k++) {
        const bk_gpt_options o = {.seq_length = S, .n_samples = wanted[k]};
        expect_refusal(
            &ten, 10, "9998,1,1", BK_PART_VALID, o, BK_E_INPUT,
            "fake: no validation data: it has 0 of 10 sequences, with 0 tokens, and one sample needs one "
            "more than the sequence length of 4; change the split");
        expect_refusal(&ten, 10, "9998,1,1", BK_PART_TEST, o, BK_E_INPUT, "no test data");
        expect_refusal(&ten, 0, "1", BK_PART_TRAIN, o, BK_E_INPUT,
                       "no training data: it has 0 of 0 sequences");
        expect_refusal(&hollow, 10, "1", BK_PART_TRAIN, o, BK_E_INPUT,
                       "it has 10 of 10 sequences, with 0 tokens");
        expect_refusal(&small, 3, "1", BK_PART_TRAIN, o, BK_E_INPUT, "with 4 tokens");
    }
    /* One sample an epoch: 2^50 samples need 4 2^50 / 5 epochs of 8 bytes each, more than any machine has. */
    expect_refusal(&enough, 1, "1", BK_PART_TRAIN,
                   (bk_gpt_options){.seq_length = S, .n_samples = INT64_C(1) << 50}, BK_E_MEM,
                   "fake: no memory to order 900719925474100 documents (900719925474100 epochs)");
    expect_refusal(&enough, 1, "1", BK_PART_TRAIN, (bk_gpt_options){.seq_length = S, .n_samples = INT64_MAX},
                   BK_E_INPUT, "more than 64 bits can count");
    bk_gpt_dataset ds = make(&enough, (bk_sequence_range){0, 1}, (bk_gpt_options){.n_samples = 1000});
    assert_int_equal(ds.n_epochs, 801); /* 4 * 1000 + 1 tokens */
    bk_gpt_dataset_free(&ds);
}

static void test_gpt_dataset__options_out_of_range_are_refused(void **state)
{
    (void)state;
    const struct {
        bk_gpt_options options;
        const char *words;
    } bad[] = {
        {{.seq_length = 0}, "sequence length 0"},
        {{.seq_length = INT64_MAX}, "sequence length 9223372036854775807"},
        {{.seq_length = S, .n_samples = -1}, "-1 samples"},
        {{.seq_length = S, .vocab_size = -1}, "a vocabulary of -1"},
        {{.seq_length = S, .seed = -1}, "seed -1 cannot order the data"},
        {{.seq_length = S, .seed = INT64_C(1) << 32}, "seed 4294967296 cannot order the data"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refusal(&eight, 8, "1", BK_PART_TRAIN, bad[i].options, BK_E_INPUT, bad[i].words);
}

#define TEST(name) cmocka_unit_test(test_gpt_dataset__##name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(orders_are_those_of_the_reference),
        TEST(samples_cross_documents),
        TEST(sequences_without_tokens_are_passed_over),
        TEST(end_of_document_is_masked_as_input),
        TEST(errors_of_reading_come_through),
        TEST(splits_round_half_to_even),
        TEST(samples_that_a_run_asks_for),
        TEST(too_little_data_end_in_a_message),
        TEST(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
