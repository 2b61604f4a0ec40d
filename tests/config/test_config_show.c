#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "config/option.h"
#include "config_helpers.h"

static void test_config_show__dump_has_name_value_origin(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, SMALL "use_mcore_models: true\ntensor_model_parallel_size: 1\n");
    bk_str a = {0}, b = {0};
    bk_config_dump(&a, &c);
    bk_config_dump(&b, &c);
    assert_string_equal(bk_str_text(&a), bk_str_text(&b));
    const char *const lines[] = {
        "# model\nnum_layers                          2                   t.yaml:1\n",
        "\nkv_channels                         16                  hidden_size / num_attention_heads\n",
        "\nactivation                          gelu_tanh           from bias_gelu_fusion and",
        "\n# mHC\nenable_mhc_connections              false               default\n",
        "\nmemory_limit                        unset               default\n",
        "\n# not built\ntensor_model_parallel_size          1                   t.yaml:7\n",
        "\n# accepted, without effect\nuse_mcore_models                    true                t.yaml:6\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(bk_str_text(&a), lines[i])) fail_msg("%s is not in\n%s", lines[i], bk_str_text(&a));
    bk_str_free(&a);
    bk_str_free(&b);
    bk_config_free(&c);
}

static void test_config_show__help_has_every_option(void **state)
{
    (void)state;
    bk_str help = {0};
    bk_config_help(&help);
    const char *text = bk_str_text(&help);
    for (int i = 0; i < BK_N_OPTIONS; i++) {
        char flag[BK_OPTION_NAME_LEN];
        snprintf(flag, sizeof flag, "%s", bk_options[i].name);
        if (bk_option_has_field(&bk_options[i]))
            for (char *p = flag; *p; p++) *p = *p == '_' ? '-' : *p;
        if (!strstr(text, flag)) fail_msg("%s is not in the help", flag);
    }
    assert_non_null(strstr(text, "\nmHC:\n  --enable-mhc-connections\n"));
    assert_non_null(
        strstr(text, "--normalization LayerNorm|RMSNorm\n      kind of norm; default LayerNorm\n"));
    assert_non_null(strstr(text, "; default true; also disable_bias_linear (the opposite)\n"));
    assert_non_null(
        strstr(text, "residual streams; default 4; at least 1 and at most 16; also num_residual_streams\n"));
    bk_str_free(&help);
}

/* Every name and alias finds its own option: none is taken twice, none is lost in the "no_" rule. */
static void test_config_show__names_are_unique(void **state)
{
    (void)state;
    for (int i = 0; i < BK_N_OPTIONS; i++) {
        char words[512];
        snprintf(words, sizeof words, "%s %s", bk_options[i].name, bk_options[i].aliases);
        char *save = NULL;
        for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
            bk_option_id id;
            bool negated;
            assert_true(bk_option_find(&id, &negated, w + (*w == '!')));
            assert_string_equal(bk_options[id].name, bk_options[i].name);
            assert_int_equal(negated, *w == '!');
        }
    }
}

/* The hash is one of the numbers' causes, however they were spelled; where they are reported does not count.
 */
static void test_config_show__hash_of_what_decides_the_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool same;
    } cases[] = {{SMALL, true},
                 {SMALL "lr: 3.0e-4\nmicro_batch: 1\n", true},
                 {SMALL "log_interval: 3\nlog_jsonl: x\ntensorboard_dir: y\n", true},
                 {SMALL "lr: 3.1e-4\n", false},
                 {SMALL "seed: 1\n", false},
                 {SMALL "data_path: x\n", false},
                 {SMALL "enable_mhc_connections: true\n", false}};
    uint64_t first = 0;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        bk_config c;
        uint64_t hash;
        assert_accepted(&c, cases[k].text);
        assert_int_equal(bk_config_hash(&hash, &c), BK_OK);
        if (k == 0) first = hash;
        if ((hash == first) != cases[k].same) fail_msg("case %d", (int)k);
        bk_config_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_show__dump_has_name_value_origin),
        cmocka_unit_test(test_config_show__help_has_every_option),
        cmocka_unit_test(test_config_show__names_are_unique),
        cmocka_unit_test(test_config_show__hash_of_what_decides_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
