#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "config_helpers.h"

/* One test a rule: the message names both options and where they were set. */

static void test_rules__required_options(void **state)
{
    (void)state;
    assert_refused("", "num_layers is not set");
    assert_refused("num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 24\n",
                   "vocab_size is not set");
    assert_refused("num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nvocab_size: 24\n",
                   "seq_length is not set");
    assert_refused("num_layers: 2\nnum_attention_heads: 4\nvocab_size: 24\n", "hidden_size is not set");
    assert_refused("num_layers: 2\nhidden_size: 4\n", "num_attention_heads is not set");
}

#define MODEL(hidden, heads)                                                                                 \
    "num_layers: 2\nhidden_size: " hidden "\n"                                                               \
    "num_attention_heads: " heads "\n"                                                                       \
    "seq_length: 24\nvocab_size: 96\n"

static void test_rules__heads_divide_the_width(void **state)
{
    (void)state;
    assert_refused(MODEL("100", "3"), "hidden_size 100 (t.yaml:2)", "num_attention_heads 3 (t.yaml:3)",
                   "set kv_channels");
    assert_refused(MODEL("2", "4"), "hidden_size 2", "num_attention_heads 4");
    bk_config c;
    assert_accepted(&c, MODEL("100", "3") "kv_channels: 32\n");
    bk_config_free(&c);
}

static void test_rules__groups_divide_the_heads(void **state)
{
    (void)state;
    assert_refused(SMALL "num_query_groups: 3\n", "num_attention_heads 4 (t.yaml:3)",
                   "num_query_groups 3 (t.yaml:6)", "same number of heads");
}

static void test_rules__activation_is_spelled_once(void **state)
{
    (void)state;
    assert_refused(SMALL "activation: gelu\nswiglu: true\n", "activation gelu (t.yaml:6)",
                   "swiglu true (t.yaml:7)", "drop one");
    assert_refused(SMALL "activation: gelu\ngated_linear_unit: true\n", "activation gelu",
                   "gated_linear_unit true");
    assert_refused(SMALL "activation: swiglu\nswiglu: false\n", "activation swiglu", "swiglu false");
    assert_refused(SMALL "swiglu: false\ngated_linear_unit: true\n", "swiglu false",
                   "gated_linear_unit true");
    assert_refused(SMALL "activation: gelu\nactivation_func: silu\n", "activation gelu",
                   "activation_func silu");
    assert_refused(SMALL "swiglu: true\nactivation_func: gelu\n", "swiglu true", "activation_func gelu");
    assert_refused(SMALL "gated_linear_unit: true\n", "gated_linear_unit true",
                   "activation_func gelu (default)", "not built");
    assert_refused(SMALL "activation_func: silu\n", "activation_func silu", "gated_linear_unit", "not built");
}

static void test_rules__qkv_bias_follows_the_biases(void **state)
{
    (void)state;
    assert_refused(SMALL "add_qkv_bias: false\n", "add_qkv_bias false (t.yaml:6)",
                   "add_bias_linear true (default)");
    bk_config c;
    assert_accepted(&c, SMALL "add_qkv_bias: true\nadd_bias_linear: false\n");
    assert_true(c.add_qkv_bias);
    bk_config_free(&c);
}

static void test_rules__rotated_dims_pair_up(void **state)
{
    (void)state;
    assert_refused(SMALL "position_embedding_type: rope\nkv_channels: 5\n", "kv_channels 5 (t.yaml:7)",
                   "rotary_percent 1 (default)", "rotate 5 dims", "even");
    assert_refused(SMALL "position_embedding_type: rope\nrotary_percent: 0.05\n", "rotate 0 dims");
    bk_config c;
    assert_accepted(&c, SMALL "position_embedding_type: rope\nkv_channels: 5\nrotary_percent: 0.8\n");
    bk_config_free(&c);
    assert_accepted(&c, SMALL "kv_channels: 5\n"); /* no rotation, no rule */
    bk_config_free(&c);
}

static void test_rules__positions_cover_the_samples(void **state)
{
    (void)state;
    assert_refused(SMALL "max_position_embeddings: 23\n", "max_position_embeddings 23 (t.yaml:6)",
                   "seq_length 24 (t.yaml:4)");
    bk_config c;
    assert_accepted(&c, SMALL "max_position_embeddings: 23\nposition_embedding_type: none\n");
    bk_config_free(&c);
}

static void test_rules__padding_covers_the_vocabulary(void **state)
{
    (void)state;
    assert_refused(SMALL "padded_vocab_size: 95\n", "padded_vocab_size 95 (t.yaml:6)",
                   "vocab_size 96 (t.yaml:5)");
    assert_refused("num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 24\n"
                   "vocab_size: 2147483647\n",
                   "vocab_size 2147483647", "make_vocab_size_divisible_by 128", "31 bits");
}

static void test_rules__tensors_fit(void **state)
{
    (void)state;
    assert_refused(SMALL "micro_batch_size: 16777216\nkv_channels: 16777216\n", "2^48 elements",
                   "seq_length 24 (t.yaml:4)", "micro_batch_size 16777216 (t.yaml:6)");
    assert_refused(MODEL("16777216", "1") "ffn_hidden_size: 16777216\n", "2^48 elements",
                   "hidden_size 16777216");
}

static void test_rules__mhc_excludes_an_fp32_residual(void **state)
{
    (void)state;
    assert_refused(SMALL "enable_mhc_connections: true\nfp32_residual_connection: true\n",
                   "enable_mhc_connections true (t.yaml:6)", "fp32_residual_connection true (t.yaml:7)",
                   "type of the activations");
    bk_config c;
    assert_accepted(&c, SMALL "fp32_residual_connection: true\n");
    bk_config_free(&c);
}

static void test_rules__micro_batches_fill_the_batch(void **state)
{
    (void)state;
    assert_refused(SMALL "micro_batch_size: 4\nglobal_batch_size: 6\n", "global_batch_size 6 (t.yaml:7)",
                   "micro_batch_size 4 (t.yaml:6)");
    assert_refused(SMALL "micro_batch_size: 4\nglobal_batch_size: 2\n", "global_batch_size 2",
                   "micro_batch_size 4");
}

static void test_rules__rates_are_ordered(void **state)
{
    (void)state;
    assert_refused(SMALL "lr: 1e-4\nmin_lr: 1e-3\n", "min_lr 0.001 (t.yaml:7)", "lr 0.0001 (t.yaml:6)",
                   "lower");
    assert_refused(SMALL "lr: 1e-4\nlr_warmup_init: 1e-3\n", "lr_warmup_init 0.001", "lr 0.0001");
}

static void test_rules__warmup_is_set_once_and_shorter_than_the_decay(void **state)
{
    (void)state;
    assert_refused(SMALL "lr_warmup_iters: 5\nlr_warmup_fraction: 0.1\n", "lr_warmup_iters 5 (t.yaml:6)",
                   "lr_warmup_fraction 0.1 (t.yaml:7)", "drop one");
    assert_refused(SMALL "lr_warmup_iters: 5\ntrain_iters: 5\n", "lr_warmup_iters 5",
                   "lr_decay_iters 5 (from train_iters)", "shorten");
    bk_config c;
    assert_accepted(&c, SMALL "lr_warmup_iters: 0\nlr_warmup_fraction: 0.1\n");
    bk_config_free(&c);
}

static void test_rules__wsd_has_a_tail(void **state)
{
    (void)state;
    assert_refused(SMALL "lr_decay_style: WSD\n", "lr_decay_style WSD (t.yaml:6)",
                   "needs lr_wsd_decay_iters");
    assert_refused(SMALL "lr_decay_style: WSD\nlr_wsd_decay_iters: 9\nlr_decay_iters: 8\n",
                   "lr_wsd_decay_iters 9 (t.yaml:7)", "lr_decay_iters 8 (t.yaml:8)");
}

static void test_rules__split_has_parts(void **state)
{
    (void)state;
    const char *const bad[] = {"a,b", "1,2,3,4", "0,0,0", "-1,2", "1,", "'1;2'", "1e308,1e308,1e308"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, SMALL "split: %s\n", bad[i]);
        assert_refused(text, "split ", "(t.yaml:6)", "969,30,1");
    }
    bk_config c;
    assert_accepted(&c, SMALL "split: 0.9,0.1\n");
    bk_config_free(&c);
}

static void test_rules__checkpoints_have_a_folder(void **state)
{
    (void)state;
    bk_config c;
    assert_refused(SMALL "save_interval: 10\n", "save_interval 10 (t.yaml:6)", "without save");
    assert_refused(SMALL "save_keep: 2\n", "save_keep 2 (t.yaml:6)", "without save");
    assert_refused(SMALL "save_keep: 2\nload: ck\n", "save_keep 2", "without save");
    assert_refused(SMALL "ckpt_step: 0\nsave: ck\n", "ckpt_step 0 (t.yaml:6)", "without load");
    assert_refused(SMALL "save: ck\nsave_interval: 0\n", "save_interval", "at least 1");
    assert_refused(SMALL "save: ck\nsave_keep: -1\n", "save_keep", "at least 0");
    assert_accepted(&c, SMALL "save: ck\nsave_interval: 10\nsave_keep: 2\nload: ck\nckpt_step: 3\n");
    bk_config_free(&c);
    assert_accepted(&c, SMALL "save: none\nload: none\n");
    assert_string_equal(c.save, "");
    bk_config_free(&c);
}

static void test_rules__a_width_too_small_to_derive_from(void **state)
{
    (void)state;
    assert_refused(MODEL("16", "1") "swiglu: true\n", "hidden_size 16", "set ffn_hidden_size");
}

/* Tokens that are moved on have no learned positions of their own. */
static void test_rules__further_tokens(void **state)
{
    (void)state;
    assert_refused(SMALL "mtp_num_layers: 1\nposition_embedding_type: learned_absolute\n",
                   "mtp_num_layers 1 (t.yaml:6)", "position_embedding_type learned_absolute (t.yaml:7)",
                   "use rope or none");
    assert_refused(SMALL "mtp_num_layers: -1\n", "mtp_num_layers must be at least 0");
    assert_refused(SMALL "mtp_num_layers: 513\n", "mtp_num_layers", "at most 512");
    assert_refused(SMALL "mtp_loss_scaling_factor: -0.1\n", "mtp_loss_scaling_factor must be at least 0");
    bk_config c;
    assert_accepted(&c, SMALL "mtp_num_layers: 0\nposition_embedding_type: learned_absolute\n");
    bk_config_free(&c);
    assert_accepted(&c, SMALL "mtp_num_layers: 512\nposition_embedding_type: none\n");
    bk_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules__required_options),
        cmocka_unit_test(test_rules__heads_divide_the_width),
        cmocka_unit_test(test_rules__groups_divide_the_heads),
        cmocka_unit_test(test_rules__activation_is_spelled_once),
        cmocka_unit_test(test_rules__qkv_bias_follows_the_biases),
        cmocka_unit_test(test_rules__rotated_dims_pair_up),
        cmocka_unit_test(test_rules__positions_cover_the_samples),
        cmocka_unit_test(test_rules__padding_covers_the_vocabulary),
        cmocka_unit_test(test_rules__tensors_fit),
        cmocka_unit_test(test_rules__mhc_excludes_an_fp32_residual),
        cmocka_unit_test(test_rules__micro_batches_fill_the_batch),
        cmocka_unit_test(test_rules__rates_are_ordered),
        cmocka_unit_test(test_rules__warmup_is_set_once_and_shorter_than_the_decay),
        cmocka_unit_test(test_rules__wsd_has_a_tail),
        cmocka_unit_test(test_rules__split_has_parts),
        cmocka_unit_test(test_rules__checkpoints_have_a_folder),
        cmocka_unit_test(test_rules__a_width_too_small_to_derive_from),
        cmocka_unit_test(test_rules__further_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
