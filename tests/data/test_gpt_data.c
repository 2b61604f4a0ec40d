#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/gpt_data.h"
#include "data/indexed.h"
#include "temp_folder.h"

enum { S = 4 };

/* n sequences of 9 tokens, all of them `token`. */
static void write_set(const char *prefix, int n, int32_t token)
{
    int32_t tokens[900];
    int64_t lengths[100];
    for (int i = 0; i < n; i++) lengths[i] = 9;
    for (int i = 0; i < 9 * n; i++) tokens[i] = token;
    const bk_indexed_content c = {
        .dtype = BK_INDEXED_U16, .tokens = tokens, .lengths = lengths, .n_sequences = n};
    assert_int_equal(bk_indexed_write(prefix, &c, NULL), BK_OK);
}

static const bk_gpt_options options = {.seq_length = S, .seed = 1, .vocab_size = 100, .eod = 99};

static bk_gpt_data *open_good(const char *const *words, int n_words, const char *split,
                              const int64_t wanted[BK_N_PARTS])
{
    bk_gpt_data *d = NULL;
    bk_err e = {0};
    if (bk_gpt_data_open(&d, words, n_words, split, wanted, &options, &e) != BK_OK) fail_msg("%s", e.msg);
    return d;
}

/* How many of the first n samples hold each token. */
static void count_samples(int64_t count[100], const bk_source *source, int64_t n)
{
    memset(count, 0, 100 * sizeof *count);
    for (int64_t i = 0; i < n; i++) {
        int32_t row[S];
        assert_int_equal(bk_source_get(row, NULL, NULL, source, i, NULL), BK_OK);
        count[row[0]]++;
    }
}

static void test_gpt_data__one_path_is_one_data_set(void **state)
{
    (void)state;
    write_set("a", 10, 7);
    const char *const words[] = {"a"};
    bk_gpt_data *d = open_good(words, 1, "8,2", (int64_t[]){100, 3, 0});
    assert_int_equal(bk_gpt_data_n_tokens(d), 90);
    assert_int_equal(bk_gpt_data_n_documents(d), 10);
    const bk_source train = bk_gpt_data_source(d, BK_PART_TRAIN),
                    valid = bk_gpt_data_source(d, BK_PART_VALID);
    assert_int_equal(train.n_samples, (6 * 72 - 1) / S); /* 401 tokens are wanted, 72 are an epoch */
    assert_int_equal(valid.n_samples, (18 - 1) / S);
    assert_null(bk_gpt_data_source(d, BK_PART_TEST).ctx);
    int64_t count[100];
    count_samples(count, &train, train.n_samples);
    assert_int_equal(count[7], train.n_samples);
    bk_gpt_data_close(d);
}

static void test_gpt_data__weights_mix_several(void **state)
{
    (void)state;
    write_set("a", 10, 7), write_set("b", 50, 8);
    const char *const words[] = {"3", "a", "1", "b"};
    bk_gpt_data *d = open_good(words, 4, "1,1", (int64_t[]){400, 8, 0});
    const bk_source train = bk_gpt_data_source(d, BK_PART_TRAIN),
                    valid = bk_gpt_data_source(d, BK_PART_VALID);
    assert_int_equal(bk_gpt_data_n_tokens(d), 540);
    assert_int_equal(train.n_samples, 400);
    int64_t count[100];
    count_samples(count, &train, 400);
    assert_int_equal(count[7], 300);
    assert_int_equal(count[8], 100);
    count_samples(count, &valid, 8);
    assert_int_equal(count[7], 6);
    bk_gpt_data_close(d);
}

static void test_gpt_data__without_weights_sizes_decide(void **state)
{
    (void)state;
    write_set("a", 10, 7), write_set("b", 50, 8);
    const char *const words[] = {"a", "b"};
    int64_t count[100];
    /* 22 and 112 samples an epoch. */
    bk_gpt_data *d = open_good(words, 2, "1", (int64_t[]){134, 0, 0});
    bk_source train = bk_gpt_data_source(d, BK_PART_TRAIN);
    assert_int_equal(train.n_samples, 134);
    count_samples(count, &train, 134);
    assert_int_equal(count[7], 22);
    assert_int_equal(count[8], 112);
    bk_gpt_data_close(d);
    d = open_good(words, 2, "1", (int64_t[]){1340, 0, 0}); /* ten epochs */
    train = bk_gpt_data_source(d, BK_PART_TRAIN);
    assert_in_range(train.n_samples, 1340, 1342);
    count_samples(count, &train, 1340);
    assert_in_range(count[7], 219, 221);
    bk_gpt_data_close(d);
}

static void test_gpt_data__no_path_is_mock_data(void **state)
{
    (void)state;
    bk_gpt_options o = options;
    o.seq_length = 1024;
    bk_gpt_data *d = NULL;
    assert_int_equal(bk_gpt_data_open(&d, NULL, 0, "1", (int64_t[]){5, 5, 5}, &o, NULL), BK_OK);
    assert_int_equal(bk_gpt_data_n_tokens(d), 204637097);
    assert_int_equal(bk_gpt_data_n_documents(d), 100000);
    int64_t n = 0;
    for (int part = 0; part < BK_N_PARTS; part++) {
        const bk_source source = bk_gpt_data_source(d, (bk_part)part);
        assert_in_range(source.n_samples, 66000, 67200); /* a third of the tokens, whatever the split */
        n += source.n_samples;
    }
    assert_in_range(n, 204637097 / 1024 - 3, 204637097 / 1024);
    bk_gpt_data_close(d);
}

static void test_gpt_data__errors_name_the_path(void **state)
{
    (void)state;
    write_set("a", 10, 7), write_set("b", 1, 8);
    const struct {
        const char *words[4];
        int n;
        const char *split;
        bk_status status;
        const char *message;
    } bad[] = {
        {{"a", "none"}, 2, "1", BK_E_IO, "none.idx: cannot open"},
        {{"1", "a", "1", "b"}, 4, "9,1", BK_E_INPUT, "b: no validation data: it has 0 of 1 sequences"},
        {{"a", "b"}, 2, "9,1", BK_E_INPUT, "b: no validation data"},
        {{"a"}, 1, "9998,1,1", BK_E_INPUT, "a: no validation data"},
        {{"a"}, 1, "x", BK_E_INPUT, "split 'x'"},
        {{"1", "a", "b", "a"}, 4, "1", BK_E_INPUT, "data_path: 1 of 2 paths have a weight"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bk_gpt_data *d = NULL;
        bk_err e = {0};
        const bk_status st =
            bk_gpt_data_open(&d, bad[i].words, bad[i].n, bad[i].split, (int64_t[]){10, 10, 0}, &options, &e);
        if (st != bad[i].status || !strstr(e.msg, bad[i].message))
            fail_msg("status %d, '%s', expected '%s'", (int)st, e.msg, bad[i].message);
        assert_null(d);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_gpt_data__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_path_is_one_data_set), TEST(weights_mix_several),  TEST(without_weights_sizes_decide),
        TEST(no_path_is_mock_data),     TEST(errors_name_the_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
