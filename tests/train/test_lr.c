/* Expected rates were worked out by hand from the formulas: batches of 4 samples, a warm-up of 2 steps (8
 * samples), a decay over 10 steps (40 samples), between 8e-3 and 2e-3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "train/lr.h"

typedef const char *setting[2]; /* name, value */

typedef struct {
    int64_t n_samples;
    double rate;
} point;

static const char *const base = "num_layers: 1\nhidden_size: 8\nnum_attention_heads: 1\nseq_length: 8\n"
                                "vocab_size: 257\nglobal_batch_size: 4\nlr: 8e-3\nmin_lr: 2e-3\n"
                                "train_iters: 1000\nlr_decay_iters: 10\n";

/* A few roundings of numbers of one binade: 1e-14 relative leaves room for the library's cos and pow. */
static void expect_rates(setting *more, int n_more, const point *p, int n)
{
    bk_config c;
    bk_err e = {0};
    bk_config_init(&c);
    bk_status st = bk_config_read_yaml_memory(&c, base, strlen(base), "base", &e);
    for (int i = 0; i < n_more && st == BK_OK; i++) st = bk_config_set(&c, more[i][0], more[i][1], NULL, &e);
    if (st == BK_OK) st = bk_config_resolve(&c, &e);
    if (st != BK_OK) fail_msg("%s", e.msg);
    for (int i = 0; i < n; i++) {
        const double rate = bk_learning_rate(&c, p[i].n_samples), off = rate - p[i].rate;
        if (!(off <= 1e-14 * p[i].rate && -off <= 1e-14 * p[i].rate))
            fail_msg("after %lld samples: %.17g, not %.17g", (long long)p[i].n_samples, rate, p[i].rate);
    }
    bk_config_free(&c);
}

#define COUNT(type, ...) (sizeof((type[]){__VA_ARGS__}) / sizeof(type))
#define MORE(...)        (setting[]){__VA_ARGS__}, COUNT(setting, __VA_ARGS__)
#define RATES(...)       (const point[]){__VA_ARGS__}, COUNT(point, __VA_ARGS__)

static void test_lr__warm_up_counts_samples_and_begins_at_its_start(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_warmup_iters", "2"}, {"lr_decay_style", "constant"}),
                 RATES({0, 0.0}, {1, 1e-3}, {4, 4e-3}, {8, 8e-3}, {9, 8e-3}));
    expect_rates(MORE({"lr_warmup_iters", "2"}, {"lr_warmup_init", "2e-3"}, {"lr_decay_style", "linear"}),
                 RATES({0, 2e-3}, {4, 5e-3}, {8, 8e-3}));
}

/* 0.15 of 40 samples are 6, not a whole number of steps. */
static void test_lr__warm_up_may_be_a_fraction(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_warmup_fraction", "0.15"}, {"lr_decay_style", "linear"}),
                 RATES({0, 0.0}, {4, 8e-3 * 4 / 6}, {6, 8e-3}, {8, 7.647058823529412e-3}, {40, 2e-3}));
}

static void test_lr__a_fraction_of_zero_is_the_same_as_none(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_warmup_fraction", "0"}, {"lr_warmup_iters", "2"}), RATES({0, 0.0}, {4, 4e-3}));
    expect_rates(MORE({"lr_warmup_fraction", "0"}), RATES({0, 8e-3}, {20, 5e-3}));
}

static void test_lr__constant_never_falls(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_decay_style", "constant"}), RATES({0, 8e-3}, {40, 8e-3}, {4000, 8e-3}));
}

static void test_lr__linear(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_warmup_iters", "2"}, {"lr_decay_style", "linear"}),
                 RATES({16, 6.5e-3}, {24, 5e-3}, {39, 2.1875e-3}, {40, 2e-3}, {41, 2e-3}, {4000, 2e-3}));
}

static void test_lr__cosine(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_warmup_iters", "2"}, {"lr_decay_style", "cosine"}),
                 RATES({8, 8e-3}, {16, 7.1213203435596424e-3}, {24, 5e-3}, {32, 2.8786796564403576e-3},
                       {40, 2e-3}, {44, 2e-3}));
}

/* The tail of 4 steps begins at sample 24; 28 and 32 are a quarter and a half of it. */
static void test_lr__wsd_tails(void **state)
{
    (void)state;
#define TAIL(style, quarter, half)                                                                           \
    expect_rates(MORE({"lr_warmup_iters", "2"}, {"lr_decay_style", "WSD"}, {"lr_wsd_decay_iters", "4"},      \
                      {"lr_wsd_decay_style", style}),                                                        \
                 RATES({4, 4e-3}, {9, 8e-3}, {24, 8e-3}, {28, quarter}, {32, half}, {40, 2e-3}, {44, 2e-3}))
    TAIL("linear", 6.5e-3, 5e-3);
    TAIL("cosine", 7.1213203435596424e-3, 5e-3);
    TAIL("exponential", 6.090756983044574e-3, 4.4852813742385702e-3);
    TAIL("minus_sqrt", 5e-3, 3.7573593128807152e-3);
}

/* A tail as long as the decay: the warm-up is above it while it lasts, then the curve is what it would be
 * without. */
static void test_lr__wsd_tail_under_the_warm_up(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_warmup_iters", "2"}, {"lr_decay_style", "WSD"}, {"lr_wsd_decay_iters", "10"},
                      {"lr_wsd_decay_style", "linear"}),
                 RATES({8, 8e-3}, {20, 5e-3}, {40, 2e-3}));
}

static void test_lr__decay_iters_follow_train_iters(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_decay_iters", "none"}, {"train_iters", "20"}, {"lr_decay_style", "linear"}),
                 RATES({0, 8e-3}, {40, 5e-3}, {80, 2e-3}));
}

/* Counts beyond 2^31 and 2^53 are no trouble. */
static void test_lr__large_counts(void **state)
{
    (void)state;
    expect_rates(MORE({"lr_decay_iters", "1000000000000"}, {"train_iters", "1000000000000"}),
                 RATES({2000000000000, 5e-3}, {4000000000000, 2e-3}, {INT64_MAX, 2e-3}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lr__warm_up_counts_samples_and_begins_at_its_start),
        cmocka_unit_test(test_lr__warm_up_may_be_a_fraction),
        cmocka_unit_test(test_lr__a_fraction_of_zero_is_the_same_as_none),
        cmocka_unit_test(test_lr__constant_never_falls),
        cmocka_unit_test(test_lr__linear),
        cmocka_unit_test(test_lr__cosine),
        cmocka_unit_test(test_lr__wsd_tails),
        cmocka_unit_test(test_lr__wsd_tail_under_the_warm_up),
        cmocka_unit_test(test_lr__decay_iters_follow_train_iters),
        cmocka_unit_test(test_lr__large_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
