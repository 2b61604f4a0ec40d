#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/gpt_dataset.h"
#include "data/mock.h"

static void test_mock__lengths_are_those_of_numpy(void **state)
{
    (void)state;
    bk_mock m;
    assert_int_equal(bk_mock_make(&m, 50256, NULL), BK_OK);
    const int64_t first[] = {3484, 2609, 2094, 1105, 1261, 168, 309, 68}, later[] = {706, 2258, 2074, 3294};
    for (int i = 0; i < 8; i++) assert_int_equal(m.lengths[i], first[i]);
    for (int i = 0; i < 4; i++) assert_int_equal(m.lengths[33333 + i], later[i]);
    assert_int_equal(m.lengths[99999], 769);
    int64_t sum = 0;
    for (int i = 0; i < 100000; i++) sum += m.lengths[i];
    assert_int_equal(sum, 204637097);
    bk_mock_free(&m);
}

static void test_mock__content_counts_up_to_the_end(void **state)
{
    (void)state;
    bk_mock m;
    assert_int_equal(bk_mock_make(&m, 99, NULL), BK_OK);
    const bk_sequences q = bk_mock_sequences(&m);
    int32_t t[168];
    assert_int_equal(q.length(q.ctx, 5), 168);
    assert_int_equal(q.read(t, q.ctx, 5, 0, 168, 100, NULL), BK_OK);
    for (int i = 0; i < 167; i++) assert_int_equal(t[i], (i + 1) % 100);
    assert_int_equal(t[167], 99);
    assert_int_equal(q.read(t, q.ctx, 5, 166, 2, 1000, NULL), BK_OK);
    assert_int_equal(t[0], 167), assert_int_equal(t[1], 99);
    assert_int_equal(q.read(t, q.ctx, 5, 0, 1, 99, NULL), BK_E_INPUT);
    bk_mock_free(&m);
}

/* The validation part of 1,1,1, ordered by NumPy. */
static void test_mock__samples_are_those_of_the_reference(void **state)
{
    (void)state;
    bk_mock m;
    bk_gpt_dataset ds;
    bk_sequence_range range[BK_N_PARTS];
    assert_int_equal(bk_mock_make(&m, 5000, NULL), BK_OK);
    const bk_sequences q = bk_mock_sequences(&m);
    assert_int_equal(bk_split_sequences(range, BK_MOCK_SPLIT, q.n_sequences, NULL), BK_OK);
    const bk_gpt_options options = {.seq_length = 1024, .n_samples = 100, .seed = 1234, .vocab_size = 5001};
    assert_int_equal(bk_gpt_dataset_make(&ds, &q, range[BK_PART_VALID], BK_PART_VALID, &options, NULL),
                     BK_OK);
    assert_int_equal(ds.n_samples, 66562);
    const int64_t documents[] = {64237, 44904, 36467, 65807, 60788},
                  shuffle[] = {61698, 31455, 22636, 37504, 56814};
    assert_memory_equal(ds.documents, documents, sizeof documents);
    assert_memory_equal(ds.shuffle, shuffle, sizeof shuffle);
    int64_t document, offset;
    bk_gpt_dataset_start(&document, &offset, &ds, 61698);
    assert_int_equal(document, 30867), assert_int_equal(offset, 1825);
    static int32_t tokens[1024], labels[1024];
    assert_int_equal(bk_gpt_dataset_get(tokens, labels, NULL, &ds, 0, NULL), BK_OK);
    assert_int_equal(ds.documents[30867], 56464);
    assert_int_equal(tokens[0], 1826); /* position 1825 counts from 1 */
    for (int t = 0; t < 1023; t++) assert_int_equal(labels[t], tokens[t + 1]);
    bk_gpt_dataset_free(&ds);
    bk_mock_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mock__lengths_are_those_of_numpy),
        cmocka_unit_test(test_mock__content_counts_up_to_the_end),
        cmocka_unit_test(test_mock__samples_are_those_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
