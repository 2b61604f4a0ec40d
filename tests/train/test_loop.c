#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/loop.h"

/* One small layer with two streams; every run reads the file "text" of its own folder. */
static const char *const tiny =
    "num_layers: 1\nhidden_size: 32\nnum_attention_heads: 2\nffn_hidden_size: 64\n"
    "seq_length: 16\nvocab_size: 257\nmake_vocab_size_divisible_by: 1\n"
    "position_embedding_type: rope\nnormalization: RMSNorm\nswiglu: true\n"
    "add_bias_linear: false\nuntie_embeddings_and_output_weights: true\n"
    "enable_mhc_connections: true\nmhc_num_residual_streams: 2\n"
    "deterministic: true\ndata_path: text\n";

enum { MAX_LINES = 512 };

/* What a run reported, and the options that come on top of `tiny`. */
typedef struct {
    bk_config c;
    bk_end_report end;
    int n_steps, n_evaluated;
    int64_t n_train_tokens, n_valid_tokens;
    bk_step_report step[MAX_LINES];
    int64_t evaluated_at[MAX_LINES];
    double valid_loss[MAX_LINES];
} record;

static int enter_new_folder(void **state)
{
    char *folder = strdup("/tmp/birkhoff-test-XXXXXX");
    *state = folder;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state)
{
    unlink("text");
    const int rc = chdir("/") + rmdir(*state);
    free(*state);
    return rc;
}

static void put_repeated(const char *part, int times, const char *mode)
{
    FILE *f = fopen("text", mode);
    assert_non_null(f);
    for (int i = 0; i < times; i++) assert_true(fputs(part, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static bk_status on_step(void *ctx, const bk_step_report *r, bk_err *e)
{
    (void)e;
    record *t = ctx;
    assert_true(t->n_steps < MAX_LINES);
    t->step[t->n_steps++] = *r;
    return BK_OK;
}

static bk_status on_evaluated(void *ctx, int64_t iteration, double loss, double seconds, bk_err *e)
{
    (void)seconds, (void)e;
    record *t = ctx;
    assert_true(t->n_evaluated < MAX_LINES);
    t->evaluated_at[t->n_evaluated] = iteration, t->valid_loss[t->n_evaluated++] = loss;
    return BK_OK;
}

/* Trains; `more` is YAML that must not repeat an option of `tiny`. */
static bk_status train(record *t, const char *more, bk_err *e)
{
    char yaml[2048];
    *t = (record){0};
    *e = (bk_err){0};
    snprintf(yaml, sizeof yaml, "%s%s", tiny, more);
    bk_config_init(&t->c);
    bk_status st = bk_config_read_yaml_memory(&t->c, yaml, strlen(yaml), "tiny", e);
    if (st == BK_OK) st = bk_config_resolve(&t->c, e);
    if (st != BK_OK) fail_msg("%s", e->msg);
    static bk_run run;
    const bk_train_log log = {.ctx = t, .step = on_step, .evaluated = on_evaluated};
    st = bk_run_open(&run, &t->c, e);
    t->n_train_tokens = run.data.n_train_tokens, t->n_valid_tokens = run.data.n_valid_tokens;
    if (st == BK_OK) st = bk_train(&t->end, &run, &log, e);
    bk_run_close(&run);
    bk_config_free(&t->c);
    return st;
}

static void must_train(record *t, const char *more)
{
    bk_err e;
    if (train(t, more, &e) != BK_OK) fail_msg("%s", e.msg);
}

static const char *const sentence = "the quick brown fox jumps over the lazy dog\n";
#define NO_DROPOUT "hidden_dropout: 0\nattention_dropout: 0\n"

/* 44 characters in a circle: all but the first few of a sample are certain. */
static void test_loop__learns_a_repeated_sentence(void **state)
{
    (void)state;
    static record t;
    put_repeated(sentence, 60, "w");
    must_train(&t, NO_DROPOUT "micro_batch_size: 8\nlr: 0.01\ntrain_iters: 120\neval_interval: 60\n"
                              "eval_iters: 1\n");
    assert_int_equal(t.n_steps, 120);
    /* Before the first update all 257 bytes are about as likely: ln 257 = 5.549. */
    assert_true(fabs(t.step[0].loss - log(257)) < 0.05);
    assert_true(t.step[119].loss < 0.3);
    assert_int_equal(t.n_evaluated, 2);
    assert_true(t.valid_loss[1] < 0.3 && t.valid_loss[1] < t.valid_loss[0]);
}

/* The noise costs something, and does not keep the model from learning. */
static void test_loop__learns_with_dropout(void **state)
{
    (void)state;
    static record t, without;
    put_repeated(sentence, 60, "w");
    const char *options = "micro_batch_size: 8\nlr: 0.01\ntrain_iters: 120\neval_iters: 0\n";
    char with[256], none[256];
    snprintf(with, sizeof with, "%shidden_dropout: 0.1\nattention_dropout: 0.1\n", options);
    snprintf(none, sizeof none, "%s%s", options, NO_DROPOUT);
    must_train(&t, with);
    must_train(&without, none);
    assert_true(t.step[119].loss < 0.1 && t.step[119].loss > without.step[119].loss);
    assert_true(fabs(t.step[0].loss - without.step[0].loss) > 1e-6); /* the noise is there from the start */
}

static void test_loop__the_same_seed_gives_the_same_bits(void **state)
{
    (void)state;
    static record a, b, c;
    const char *options = "micro_batch_size: 3\nglobal_batch_size: 6\nlr: 0.01\ntrain_iters: 12\n"
                          "eval_interval: 4\neval_iters: 2\n";
    char other[512];
    put_repeated(sentence, 60, "w");
    must_train(&a, options);
    must_train(&b, options);
    snprintf(other, sizeof other, "%sseed: 4321\n", options);
    must_train(&c, other);
    for (int i = 0; i < 12; i++) {
        assert_memory_equal(&a.step[i].loss, &b.step[i].loss, sizeof(double));
        assert_memory_equal(&a.step[i].grad_norm, &b.step[i].grad_norm, sizeof(double));
        assert_true(fabs(a.step[i].loss - c.step[i].loss) > 0);
    }
    assert_memory_equal(a.valid_loss, b.valid_loss, 3 * sizeof(double));
}

static void test_loop__reports_count_samples_and_rates(void **state)
{
    (void)state;
    static record t;
    put_repeated(sentence, 20, "w");
    must_train(&t, NO_DROPOUT "micro_batch_size: 2\nglobal_batch_size: 6\nlr: 0.01\nlr_warmup_iters: 2\n"
                              "lr_decay_style: constant\ntrain_iters: 4\neval_iters: 0\n");
    static const double rate[] = {0, 0.005, 0.01, 0.01};
    assert_int_equal(t.n_steps, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(t.step[i].iteration, i + 1);
        assert_int_equal(t.step[i].n_samples, 6 * (i + 1));
        assert_int_equal(t.step[i].n_tokens, 6 * 16);
        assert_true(fabs(t.step[i].learning_rate - rate[i]) < 1e-15);
        assert_true(t.step[i].seconds > 0 && t.step[i].madds > 0 && t.step[i].grad_norm > 0);
    }
    assert_int_equal(t.n_evaluated, 0);
}

static void expect_evaluations(const char *more, const int64_t *at, int n)
{
    static record t;
    must_train(&t, more);
    assert_int_equal(t.n_evaluated, n);
    for (int i = 0; i < n; i++) assert_int_equal(t.evaluated_at[i], at[i]);
}

static void test_loop__evaluates_at_intervals_and_at_the_end(void **state)
{
    (void)state;
    put_repeated(sentence, 60, "w");
    expect_evaluations("train_iters: 7\neval_interval: 3\neval_iters: 1\n", (const int64_t[]){3, 6, 7}, 3);
    expect_evaluations("train_iters: 6\neval_interval: 3\neval_iters: 1\n", (const int64_t[]){3, 6}, 2);
    expect_evaluations("train_iters: 2\neval_interval: 5\neval_iters: 1\n", (const int64_t[]){2}, 1);
    expect_evaluations("train_iters: 2\neval_interval: 1\neval_iters: 0\n", NULL, 0);
}

/* The first half of the text is one letter, the second another: neither half leaks into the other's loss. */
static void test_loop__evaluation_reads_the_part_held_out(void **state)
{
    (void)state;
    static record t;
    put_repeated("a", 400, "w");
    put_repeated("b", 400, "a");
    must_train(&t, NO_DROPOUT "split: '50,50,0'\nmicro_batch_size: 4\nlr: 0.01\ntrain_iters: 40\n"
                              "eval_iters: 2\n");
    assert_int_equal(t.n_train_tokens, 401); /* 801 tokens with the end mark; half of them, rounded */
    assert_int_equal(t.n_valid_tokens, 400);
    assert_true(t.step[39].loss < 0.1);
    assert_true(t.valid_loss[0] > 4);
}

static void test_loop__no_steps_is_a_run_too(void **state)
{
    (void)state;
    static record t;
    put_repeated(sentence, 20, "w");
    must_train(&t, "train_iters: 0\n");
    assert_int_equal(t.n_steps + t.n_evaluated, 0);
}

static void test_loop__trains_without_validation(void **state)
{
    (void)state;
    static const char *const splits[] = {"'1'", "'1,0,0'", "'9998,1,1'"};
    put_repeated(sentence, 20, "w");
    for (size_t k = 0; k < sizeof splits / sizeof *splits; k++) {
        static record t;
        char more[128];
        snprintf(more, sizeof more, "split: %s\ntrain_iters: 2\neval_interval: 1\n", splits[k]);
        must_train(&t, more);
        assert_int_equal(t.n_steps, 2);
        assert_int_equal(t.n_evaluated, 0);
        assert_int_equal(t.n_valid_tokens, 0);
    }
}

/* Batches below any block of a kernel, in training and in evaluation. */
static void test_loop__small_batches_and_short_samples(void **state)
{
    (void)state;
    put_repeated(sentence, 20, "w");
    for (int micro_batch = 1; micro_batch <= 3; micro_batch++) {
        static record t;
        char more[160];
        snprintf(more, sizeof more, "micro_batch_size: %d\ntrain_iters: 3\nlr: 0.01\neval_iters: 2\n",
                 micro_batch);
        must_train(&t, more);
        assert_int_equal(t.step[2].n_tokens, 16 * micro_batch);
        assert_true(t.step[2].loss < log(257) && isfinite(t.valid_loss[0]));
    }
}

/* Weights that grow a thousandfold in a step overflow after a few. */
static void test_loop__a_loss_that_is_not_finite_names_the_step(void **state)
{
    (void)state;
    static record t;
    bk_err e;
    char place[32];
    put_repeated(sentence, 20, "w");
    const bk_status st = train(&t, "lr: 1000\nweight_decay: 1\ntrain_iters: 100\neval_iters: 0\n", &e);
    assert_int_equal(st, BK_E_CHECK);
    assert_in_range(t.n_steps, 2, 50);
    snprintf(place, sizeof place, "step %d: ", t.n_steps + 1);
    if (strncmp(e.msg, place, strlen(place)) != 0 || !strstr(e.msg, "Lower lr or clip_grad"))
        fail_msg("after %d steps: %s", t.n_steps, e.msg);
    for (int i = 0; i < t.n_steps; i++) assert_true(isfinite(t.step[i].loss));
}

/* The update of a last step may break the model; only the evaluation after it can tell. */
static void test_loop__a_validation_loss_that_is_not_finite_is_an_error(void **state)
{
    (void)state;
    static record t;
    bk_err e;
    put_repeated(sentence, 60, "w");
    const bk_status st = train(&t,
                               "lr: 1e6\nweight_decay: 1e6\ntrain_iters: 10\neval_interval: 1\n"
                               "eval_iters: 1\nlr_decay_style: constant\n",
                               &e);
    assert_int_equal(st, BK_E_CHECK);
    assert_in_range(t.n_steps, 1, 9);
    assert_int_equal(t.n_evaluated, t.n_steps - 1);
    assert_non_null(strstr(e.msg, "validation loss"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_loop__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(learns_a_repeated_sentence),
        TEST(learns_with_dropout),
        TEST(the_same_seed_gives_the_same_bits),
        TEST(reports_count_samples_and_rates),
        TEST(evaluates_at_intervals_and_at_the_end),
        TEST(evaluation_reads_the_part_held_out),
        TEST(no_steps_is_a_run_too),
        TEST(trains_without_validation),
        TEST(small_batches_and_short_samples),
        TEST(a_loss_that_is_not_finite_names_the_step),
        TEST(a_validation_loss_that_is_not_finite_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
