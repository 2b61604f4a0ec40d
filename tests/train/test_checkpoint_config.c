/* The configuration in a checkpoint: it comes back as it was, and differences are told. */
#include "checkpoint_fixture.h"

#include "train/manifest.h"

/* Saves a run of the configuration and opens the checkpoint. */
static bk_checkpoint *save_config(small_run *r, const char *more)
{
    bk_err e = {0};
    bk_checkpoint *k = NULL;
    open_run(r, more);
    must_save(r, 1);
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    return k;
}

/* Spellings that exclude one another, derived values, lists, reals that are long in decimal. */
static void test_checkpoint_config__comes_back(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "lr: 0.01\n",
        "swiglu: none\ngated_linear_unit: true\nactivation_func: silu\n",
        "swiglu: none\nactivation: gelu_tanh\n", /* the default where gelu would be derived */
        "swiglu: none\nadd_bias_linear: true\n",
        "lr: 0.0123456789012345\nlr_warmup_fraction: 0.1\nlr_decay_style: WSD\nlr_wsd_decay_iters: 3\n",
        "padded_vocab_size: 50\nnum_query_groups: 1\nadam_eps: 1e-30\nseed: 9223372036854775807\n",
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        small_run r;
        bk_err e = {0};
        bk_str diff = {0}, a = {0}, b = {0};
        bk_config c;
        bk_checkpoint *k = save_config(&r, configs[i]);
        must(bk_checkpoint_config(&c, k, &e), &e);
        bk_checkpoint_config_diff(&diff, k, &c);
        assert_string_equal(bk_str_text(&diff), "");
        bk_checkpoint_config_diff(&diff, k, &r.c);
        assert_string_equal(bk_str_text(&diff), "");
        for (int id = 0; id < BK_N_OPTIONS; id++) {
            bk_config_value(&a, &r.c, (bk_option_id)id);
            bk_config_value(&b, &c, (bk_option_id)id);
        }
        assert_string_equal(bk_str_text(&a), bk_str_text(&b));
        bk_str_free(&a), bk_str_free(&b);
        bk_config_free(&c);
        bk_checkpoint_close(k);
        small_run_close(&r);
        remove_tree("ck");
    }
}

/* Items keep their borders; quotes, backslashes, control characters and UTF-8 are themselves. */
static void test_checkpoint_config__lists_and_odd_texts(void **state)
{
    (void)state;
    static const char *const paths[] = {"a b", "c\"\\d", "tab\there\n", "caf\xc3\xa9", "[x, y]"};
    small_run r;
    bk_err e = {0};
    bk_config c;
    bk_checkpoint *k = NULL;
    open_run(&r, smallest);
    must(bk_config_set_list(&r.c, "data_path", paths, 5, "test", &e), &e);
    must_save(&r, 1);
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    must(bk_checkpoint_config(&c, k, &e), &e);
    assert_int_equal(c.data_path.n, 5);
    for (int i = 0; i < 5; i++) assert_string_equal(c.data_path.items[i], paths[i]);
    bk_config_free(&c);
    bk_checkpoint_close(k);
    small_run_close(&r);
}

static void test_checkpoint_config__diff_names_old_and_new(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    bk_str diff = {0};
    bk_checkpoint *k = save_config(&r, "lr: 0.01\nload: elsewhere\n");
    static const char *const changes[][2] = {{"lr", "0.003"},         {"swiglu", "false"}, {"save", "here"},
                                             {"load", "there"},       {"ckpt_step", "3"},  {"data_path", "x"},
                                             {"memory_limit", "8GiB"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        must(bk_config_set(&r.c, changes[i][0], changes[i][1], "test", &e), &e);
    must(bk_config_resolve(&r.c, &e), &e);
    bk_checkpoint_config_diff(&diff, k, &r.c);
    assert_string_equal(bk_str_text(&diff), "activation swiglu -> gelu\nswiglu true -> false\n"
                                            "lr 0.01 -> 0.003\ndata_path unset -> x\n"
                                            "memory_limit unset -> 8589934592\n");
    bk_str_free(&diff);
    bk_checkpoint_close(k);
    small_run_close(&r);
}

/* What another version saved: an option that is unknown here is told; one that is missing there is not set.
 */
static void test_checkpoint_config__of_another_version(void **state)
{
    (void)state;
    static const char path[] = "ck/iter_0000001/manifest.json";
    small_run r;
    bk_err e = {0};
    bk_config c;
    bk_str diff = {0}, text = {0};
    size_t n;
    bk_checkpoint_close(save_config(&r, "lr: 0.01\n"));
    char *m = read_file(path, &n);
    char *lr = strstr(m, "\"lr\": \"0.01\""), *seal = strstr(m, "  \"checksum\"");
    assert_non_null(lr);
    memcpy(lr, "\"lR\": \"0.01\"", 12);
    bk_str_append_n(&text, m, (size_t)(seal - m));
    bk_manifest_seal(&text);
    write_file(path, text.s, text.len);
    bk_checkpoint *k = NULL;
    must(bk_checkpoint_open(&k, "ck", BK_UNSET_COUNT, &e), &e);
    bk_checkpoint_config_diff(&diff, k, &r.c);
    assert_string_equal(bk_str_text(&diff), "lR 0.01 -> no option of this version\nlr not saved -> 0.01\n");
    assert_int_equal(bk_checkpoint_config(&c, k, &e), BK_E_INPUT);
    assert_says(&e, "ck/iter_0000001: there is no option 'lR'");
    bk_config_free(&c);
    bk_checkpoint_close(k);
    bk_str_free(&diff);
    bk_str_free(&text);
    free(m);
    small_run_close(&r);
}

int main(void)
{
#define IN_A_FOLDER(t) cmocka_unit_test_setup_teardown(t, enter_new_folder, leave_folder)
    const struct CMUnitTest tests[] = {
        IN_A_FOLDER(test_checkpoint_config__comes_back),
        IN_A_FOLDER(test_checkpoint_config__lists_and_odd_texts),
        IN_A_FOLDER(test_checkpoint_config__diff_names_old_and_new),
        IN_A_FOLDER(test_checkpoint_config__of_another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
