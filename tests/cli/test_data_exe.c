/* Megatron's data sets, validation data and small batches through the executable: what is too little ends in
 * a message within seconds, what is just enough trains. */
#include "cli/run_exe.h"

#include <time.h>

#include "data/indexed.h"

static const char *const small =
    "num_layers: 1\nhidden_size: 16\nnum_attention_heads: 2\nffn_hidden_size: 32\n"
    "seq_length: 8\nvocab_size: 257\nmake_vocab_size_divisible_by: 1\n"
    "position_embedding_type: rope\nenable_mhc_connections: true\n"
    "mhc_num_residual_streams: 2\ntrain_iters: 4\nlr: 0.01\neval_iters: 2\n";

/* A data set of documents, of so many tokens each. */
static void put_set(const char *prefix, int64_t n_documents, int64_t tokens_each)
{
    int32_t tokens[1024];
    int64_t lengths[64];
    bk_err e = {0};
    assert_true(n_documents <= 64 && n_documents * tokens_each <= 1024);
    for (int64_t i = 0; i < n_documents * tokens_each; i++) tokens[i] = (int32_t)(i % 200);
    for (int64_t i = 0; i < n_documents; i++) lengths[i] = tokens_each;
    const bk_indexed_content c = {
        .dtype = BK_INDEXED_U16, .tokens = tokens, .lengths = lengths, .n_sequences = n_documents};
    if (bk_indexed_write(prefix, &c, &e) != BK_OK) fail_msg("%s", e.msg);
}

static int enter(void **state)
{
    const int rc = enter_new_folder(state);
    put("small.yaml", small);
    return rc;
}

#define TRAIN "train", "--config", "small.yaml"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void expect_refusal_soon(const char *const *args, const char *const *parts)
{
    const double start = seconds();
    expect_refusal(2, args, parts);
    assert_true(seconds() - start < 5);
}

static void expect_trained(const char *const *args, const char *const *parts)
{
    exe_result r;
    run_exe(&r, args);
    if (r.rc != 0) fail_msg("exit code %d: %s%s", r.rc, r.out, r.err);
    expect_contains(r.out, parts);
    assert_null(strstr(r.out, "nan"));
}

static void test_data_exe__trains_on_a_data_set(void **state)
{
    (void)state;
    put_set("ten", 10, 40);
    expect_trained(ARGS(TRAIN, "--data-path", "ten", "--split", "80,20"),
                   ARGS("data    ten: 10 documents, 400 tokens", "  validation\n", "\ndone    4 steps"));
    expect_trained(ARGS(TRAIN, "--data-path", "ten", "--split", "1,0,0"),
                   ARGS("400 tokens for training, no validation\n", "\ndone    4 steps"));
}

static void test_data_exe__a_part_without_documents(void **state)
{
    (void)state;
    put_set("ten", 10, 40);
    expect_refusal_soon(ARGS(TRAIN, "--data-path", "ten", "--split", "9998,1,1"),
                        ARGS("ten: no validation data", "0 of 10 sequences", "change the split"));
    expect_refusal_soon(ARGS(TRAIN, "--data-path", "ten", "--split", "0,1,0"), ARGS("ten: no training data"));
}

static void test_data_exe__sets_without_a_sample(void **state)
{
    (void)state;
    put_set("nothing", 0, 0);
    put_set("hollow", 10, 0);
    put_set("short", 2, 4); /* eight tokens, and a sample needs nine */
    put_set("enough", 1, 9);
    expect_refusal_soon(ARGS(TRAIN, "--data-path", "nothing"),
                        ARGS("nothing: no training data", "0 of 0 sequences"));
    expect_refusal_soon(ARGS(TRAIN, "--data-path", "hollow"), ARGS("hollow: no training data", "0 tokens"));
    expect_refusal_soon(
        ARGS(TRAIN, "--data-path", "short", "--split", "1", "--eval-iters", "0"),
        ARGS("short: no training data", "8 tokens", "one more than the sequence length of 8"));
    expect_trained(ARGS(TRAIN, "--data-path", "enough", "--split", "1", "--eval-iters", "0"),
                   ARGS("\ndone    4 steps"));
}

/* Text has no documents that a split could cut: a part that is too short for a sample is a run without it. */
static void test_data_exe__text_too_short_for_validation(void **state)
{
    (void)state;
    put("text", "ten documents or one, their validation part has less than one sample");
    expect_trained(ARGS(TRAIN, "--data-path", "text", "--split", "9998,1,1"),
                   ARGS(", no validation\n", "\ndone    4 steps"));
    expect_trained(ARGS(TRAIN, "--data-path", "text", "--split", "80,20"),
                   ARGS(" for validation\n", "  validation\n", "\ndone    4 steps"));
}

/* Fewer samples, and shorter ones, than any block of a kernel; a validation part of a single sample. */
static void test_data_exe__small_batches(void **state)
{
    (void)state;
    static const char *const sequences[] = {"1", "2", "8"}, *const batches[] = {"1", "2", "3"};
    put_set("ten", 10, 40);
    put("text", "as long as a validation part of one sample needs it, that is with a tenth of a hundred");
    for (int s = 0; s < 3; s++)
        for (int b = 0; b < 3; b++) {
            expect_trained(ARGS(TRAIN, "--data-path", "ten", "--split", "80,20", "--seq-length", sequences[s],
                                "--micro-batch-size", batches[b]),
                           ARGS("  validation\n", "\ndone    4 steps"));
            expect_trained(ARGS(TRAIN, "--data-path", "text", "--split", "88,12", "--seq-length",
                                sequences[s], "--micro-batch-size", batches[b]),
                           ARGS("  validation\n", "\ndone    4 steps"));
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_data_exe__##name, enter, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(trains_on_a_data_set),  TEST(a_part_without_documents),
        TEST(sets_without_a_sample), TEST(text_too_short_for_validation),
        TEST(small_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
