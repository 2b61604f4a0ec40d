#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "config_helpers.h"

#define N_ARGS(args) ((int)(sizeof(args) / sizeof *(args)))

/* The arguments are refused, and the message holds the part. */
#define assert_flags_refused(part, ...)                                                                      \
    do {                                                                                                     \
        char *args_[] = {__VA_ARGS__};                                                                       \
        bk_flag own_[] = {{"config", true, NULL}, {"dump", false, NULL}};                                    \
        bk_config c_;                                                                                        \
        bk_err e_ = {0};                                                                                     \
        bk_config_init(&c_);                                                                                 \
        const bk_status st_ = bk_config_read_flags(&c_, own_, 2, N_ARGS(args_), args_, &e_);                 \
        bk_config_free(&c_);                                                                                 \
        if (!strstr(e_.msg, part)) fail_msg("\"%s\" is not in: %s", part, e_.msg);                           \
        assert_int_equal(st_, BK_E_INPUT);                                                                   \
    } while (0)

static void test_flags__every_form(void **state)
{
    (void)state;
    char *args[] = {"--num-layers",
                    "3",
                    "--lr=1e-3",
                    "--swiglu",
                    "--no-add-bias-linear",
                    "--min-lr",
                    "-0",
                    "--seed",
                    "5",
                    "--rotary-interleaved",
                    "false",
                    "--tied=false",
                    "--data-path",
                    "0.5",
                    "a b",
                    "0.5",
                    "c",
                    "--hidden_size",
                    "8",
                    "--seed",
                    "6",
                    "--no-bias-gelu-fusion"};
    bk_config c;
    bk_err e = {0};
    bk_config_init(&c);
    if (bk_config_read_flags(&c, NULL, 0, N_ARGS(args), args, &e) != BK_OK) fail_msg("%s", e.msg);
    assert_int_equal(c.num_layers, 3);
    assert_float_equal(c.lr, 1e-3, 0);
    assert_true(c.swiglu && c.untie_embeddings_and_output_weights);
    assert_false(c.add_bias_linear || c.rotary_interleaved || c.bias_gelu_fusion);
    assert_int_equal(c.seed, 6);
    assert_int_equal(c.hidden_size, 8);
    assert_int_equal(c.data_path.n, 4);
    assert_string_equal(c.data_path.items[1], "a b");
    assert_string_equal(c.origin[BK_OPT_lr].where, "--lr");
    bk_config_free(&c);
}

static void test_flags__the_callers_own(void **state)
{
    (void)state;
    char *args[] = {"--config", "my.yaml", "--num-layers", "3", "--dump"};
    bk_flag own[] = {{"config", true, NULL}, {"dump", false, NULL}, {"against", true, NULL}};
    bk_err e = {0};
    assert_int_equal(bk_config_read_flags(NULL, own, 3, N_ARGS(args), args, &e), BK_OK);
    assert_string_equal(own[0].value, "my.yaml");
    assert_string_equal(own[1].value, "");
    assert_null(own[2].value);
}

static void test_flags__come_before_the_file(void **state)
{
    (void)state;
    char *args[] = {"--num-layers", "5", "--tensor-model-parallel-size", "1"};
    const char *text = SMALL "tensor_model_parallel_size: 2\n";
    bk_config c;
    bk_err e = {0};
    bk_config_init(&c);
    assert_int_equal(bk_config_read_yaml_memory(&c, text, strlen(text), "t.yaml", &e), BK_OK);
    assert_int_equal(bk_config_read_flags(&c, NULL, 0, N_ARGS(args), args, &e), BK_OK);
    assert_int_equal(bk_config_resolve(&c, &e), BK_OK);
    assert_int_equal(c.num_layers, 5);
    assert_int_equal(c.hidden_size, 64);
    assert_string_equal(c.origin[BK_OPT_num_layers].where, "--num-layers");
    bk_config_free(&c);
}

static void test_flags__what_is_wrong_is_named(void **state)
{
    (void)state;
    assert_flags_refused("no option '--num-layer'; did you mean num_layers?", "--num-layer", "3");
    assert_flags_refused("no option '--confi'; did you mean config?", "--confi", "x");
    assert_flags_refused("--lr needs a value", "--lr");
    assert_flags_refused("--lr needs a value", "--lr", "--seed", "1");
    assert_flags_refused("--config needs a value", "--config", "--dump");
    assert_flags_refused("--dump takes no value", "--dump=yes");
    assert_flags_refused("'stray' is no option", "--swiglu", "stray");
    assert_flags_refused("'-h' is no option", "-h");
    assert_flags_refused("no option '--'", "--");
    assert_flags_refused("no option '--no-lr'", "--no-lr");
    assert_flags_refused("--lr: lr takes a number, not 'fast'", "--lr", "fast");
    assert_flags_refused("--lr: lr takes a number, not ''", "--lr=");
    assert_flags_refused("--num-residual-streams: mhc_num_residual_streams must be at least 1 and at most 16",
                         "--num-residual-streams=40");
    char longest[300];
    memset(longest, 'a', sizeof longest - 1), longest[sizeof longest - 1] = '\0', memcpy(longest, "--", 2);
    assert_flags_refused("no option '--aaa", longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags__every_form),
        cmocka_unit_test(test_flags__the_callers_own),
        cmocka_unit_test(test_flags__come_before_the_file),
        cmocka_unit_test(test_flags__what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
