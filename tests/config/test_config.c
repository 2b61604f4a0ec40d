#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "config/config.h"
#include "config_helpers.h"
#include "oracle.h"

static void test_config__defaults_are_megatrons(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, SMALL);
    assert_int_equal(c.num_layers, 2);
    assert_int_equal(c.num_query_groups, 4);
    assert_int_equal(c.kv_channels, 16);
    assert_int_equal(c.ffn_hidden_size, 256);
    assert_int_equal(c.max_position_embeddings, 24);
    assert_int_equal(c.padded_vocab_size, 128);
    assert_int_equal(c.position_embedding_type, BK_POSITION_LEARNED);
    assert_int_equal(c.normalization, BK_NORM_LAYER);
    assert_int_equal(c.activation, BK_ACT_GELU_TANH);
    assert_true(c.add_bias_linear && c.add_qkv_bias && !c.untie_embeddings_and_output_weights);
    assert_float_equal(c.layernorm_epsilon, 1e-5, 0);
    assert_float_equal(c.hidden_dropout, 0.1, 0);
    assert_float_equal(c.attention_dropout, 0.1, 0);
    assert_float_equal(c.embedding_init_method_std, 0.02, 0);
    assert_float_equal(c.rotary_base, 10000, 0);
    assert_float_equal(c.adam_beta1, 0.9, 0);
    assert_float_equal(c.adam_beta2, 0.999, 0);
    assert_float_equal(c.adam_eps, 1e-8, 0);
    assert_float_equal(c.weight_decay, 0.01, 0);
    assert_float_equal(c.clip_grad, 1.0, 0);
    assert_int_equal(c.seed, 1234);
    assert_false(c.enable_mhc_connections);
    assert_int_equal(c.mhc_num_residual_streams, 4);
    assert_int_equal(c.mhc_sinkhorn_iterations, 20);
    assert_float_equal(c.mhc_init_gating_factor, 0.01, 0);
    assert_int_equal(c.global_batch_size, 1);
    assert_int_equal(c.lr_decay_iters, c.train_iters);
    assert_true(isnan(c.lr_warmup_fraction));
    assert_int_equal(c.memory_limit, BK_UNSET_COUNT);
    assert_int_equal(c.data_path.n, 0);
    bk_config_free(&c);
}

static void test_config__aliases_and_opposites(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, SMALL "enable_hyper_connections: true\nnum_residual_streams: 2\nnorm-epsilon: 1e-6\n"
                              "disable_bias_linear: true\ntied: false\nposition_embedding: rope\n"
                              "no_bias_gelu_fusion: true\nmicro_batch: 3\ndeterministic_mode: false\n");
    assert_true(c.enable_mhc_connections && !c.deterministic);
    assert_int_equal(c.mhc_num_residual_streams, 2);
    assert_float_equal(c.layernorm_epsilon, 1e-6, 0);
    assert_false(c.add_bias_linear);
    assert_false(c.add_qkv_bias);
    assert_true(c.untie_embeddings_and_output_weights);
    assert_int_equal(c.position_embedding_type, BK_POSITION_ROPE);
    assert_false(c.bias_gelu_fusion);
    assert_int_equal(c.micro_batch_size, 3);
    bk_config_free(&c);
}

static void test_config__activation_from_every_spelling(void **state)
{
    (void)state;
    const struct {
        const char *text;
        bk_activation activation;
    } cases[] = {
        {"", BK_ACT_GELU_TANH},
        {"swiglu: true\n", BK_ACT_SWIGLU},
        {"activation: swiglu\n", BK_ACT_SWIGLU},
        {"activation: gelu\n", BK_ACT_GELU},
        {"gated_linear_unit: true\nactivation_func: <function silu at 0x7f2832648e00>\n", BK_ACT_SWIGLU},
        {"gated_linear_unit: true\nactivation_func: silu\n", BK_ACT_SWIGLU},
        {"gated_linear_unit: false\nactivation_func: <built-in function gelu>\n", BK_ACT_GELU_TANH},
        {"activation_func: gelu\nbias_activation_fusion: false\n", BK_ACT_GELU},
        {"disable_bias_linear: true\n", BK_ACT_GELU}, /* nothing to fuse: the exact form */
        {"no_bias_gelu_fusion: true\n", BK_ACT_GELU},
        {"no_bias_gelu_fusion: true\nactivation: gelu_tanh\n", BK_ACT_GELU_TANH},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, SMALL "%s", cases[i].text);
        bk_config c;
        assert_accepted(&c, text);
        if (c.activation != cases[i].activation) fail_msg("%s gives %d", cases[i].text, (int)c.activation);
        bk_config_free(&c);
    }
}

static void test_config__swiglu_sets_the_width_of_the_mlp(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, "num_layers: 1\nhidden_size: 768\nnum_attention_heads: 12\nseq_length: 8\n"
                        "vocab_size: 50257\nswiglu: true\n");
    assert_int_equal(c.ffn_hidden_size, 2048); /* 8 * 768 / 3 = 2048 */
    assert_int_equal(c.padded_vocab_size, 50304);
    bk_config_free(&c);
    assert_accepted(&c, "num_layers: 1\nhidden_size: 100\nnum_attention_heads: 1\nseq_length: 8\n"
                        "vocab_size: 10\nswiglu: true\n");
    assert_int_equal(c.ffn_hidden_size, 256); /* 266.7, down to a multiple of 64 */
    bk_config_free(&c);
}

static void test_config__off_values_are_the_same_as_nothing(void **state)
{
    (void)state;
    bk_config plain, off;
    assert_accepted(&plain, SMALL);
    assert_accepted(&off,
                    SMALL "tensor_model_parallel_size: 1\npipeline_model_parallel_size: 1\n"
                          "mtp_num_layers: 0\nnum_experts: null\nmoe_z_loss_coeff: 0\nhidden_dropout: 0.1\n"
                          "moe_shared_expert_intermediate_size: 0\ncuda_graph_impl: none\n"
                          "params_dtype: torch.float32\npipeline_dtype: float32\nnum_query_groups: 0\n"
                          "bf16: false\nrecompute_granularity: ~\noptimizer: Adam\nwindow_size: []\n"
                          "expert_tensor_parallel_size:\ndecoupled_lr: 0.0\n");
    assert_memory_equal(&plain, &off,
                        offsetof(bk_config, data_path)); /* numbers alone up to the first pointer */
    assert_int_equal(plain.log_interval, off.log_interval);
    assert_int_equal(off.memory_limit, BK_UNSET_COUNT);
    bk_config_free(&plain);
    bk_config_free(&off);
}

static void test_config__what_is_not_built_says_so(void **state)
{
    (void)state;
    assert_refused(SMALL "tensor_model_parallel_size: 2\n", "tensor_model_parallel_size 2 (t.yaml:6)",
                   "tensor parallelism", "not built", "set it to 1");
    assert_refused(SMALL "bf16: true\n", "bf16 training", "not built");
    assert_refused(SMALL "params_dtype: torch.bfloat16\n", "not built");
    assert_refused(SMALL "recompute_granularity: selective\n", "recompute, which is not built");
    assert_refused(SMALL "use_fused_mhc: true\n", "not built");
    assert_refused(SMALL "cuda_graph_impl: local\n", "CUDA graph capture, which is not built");
    assert_refused(SMALL "mtp_num_layers: many\n", "t.yaml:6", "whole number", "'many'");
}

static void test_config__values_out_of_range_or_form(void **state)
{
    (void)state;
    assert_refused("mhc_sinkhorn_iterations: 0\n", "t.yaml:1: ", "mhc_sinkhorn_iterations", "at least 1",
                   "'0'");
    assert_refused("mhc_init_gating_factor: -0.5\n", "mhc_init_gating_factor", "at least 0", "'-0.5'");
    assert_refused("mhc_num_residual_streams: 0\n", "at least 1 and at most 16", "'0'");
    assert_refused("num_residual_streams: 17\n", "mhc_num_residual_streams", "at most 16", "'17'");
    assert_refused("hidden_dropout: 1.0\n", "at least 0 and below 1", "'1.0'");
    assert_refused("layernorm_epsilon: 0\n", "above 0");
    assert_refused("num_layers: two\n", "whole number", "'two'");
    assert_refused("num_layers: 1.5\n", "whole number", "'1.5'");
    assert_refused("num_layers: 99999999999999999999\n", "whole number");
    assert_refused("lr: nan\n", "takes a number", "'nan'");
    assert_refused("lr: 1e999\n", "takes a number");
    assert_refused("swiglu: maybe\n", "true or false", "'maybe'");
    assert_refused("normalization: BatchNorm\n", "LayerNorm or RMSNorm", "'BatchNorm'");
    assert_refused("position_embedding_type: yarn\n", "learned_absolute, rope or none", "'yarn'");
    assert_refused("lr_decay_style: cosin\n", "constant, linear, cosine or WSD");
    assert_refused("memory_limit: 5 apples\n", "number of bytes", "'5 apples'");
    assert_refused("memory_limit: 0\n", "at least 1");
    assert_refused("seed: [1, 2]\n", "one value, not a list of 2");
}

static void test_config__long_and_odd_values_are_cut_in_messages(void **state)
{
    (void)state;
    char value[3000];
    memset(value, 'x', sizeof value), value[sizeof value - 1] = '\0', value[0] = '\x01';
    bk_config c;
    bk_err e = {0};
    bk_config_init(&c);
    assert_int_equal(bk_config_set(&c, "seed", value, NULL, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "set by the program: seed takes a whole number, not '?xxx"));
    assert_non_null(strstr(e.msg, "xxx...'"));
    assert_true(strlen(e.msg) < 200);
    assert_int_equal(bk_config_set(&c, value, "1", NULL, &e), BK_E_INPUT);
    assert_true(strlen(e.msg) < 200);
    assert_int_equal(bk_config_set(&c, "", "1", NULL, &e), BK_E_INPUT);
    bk_config_free(&c);
}

static void test_config__origin_is_remembered(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, SMALL);
    char cite[BK_CITE_LEN];
    assert_string_equal(bk_config_cite(cite, &c, BK_OPT_hidden_size), "hidden_size 64 (t.yaml:2)");
    assert_string_equal(bk_config_cite(cite, &c, BK_OPT_clip_grad), "clip_grad 1 (default)");
    assert_string_equal(bk_config_cite(cite, &c, BK_OPT_kv_channels),
                        "kv_channels 16 (hidden_size / num_attention_heads)");
    bk_config_free(&c);
}

static void test_config__resolve_again_derives_again(void **state)
{
    (void)state;
    bk_config c;
    bk_err e = {0};
    assert_accepted(&c, SMALL);
    assert_int_equal(bk_config_set(&c, "hidden_size", "128", "--hidden-size", &e), BK_OK);
    assert_int_equal(bk_config_set(&c, "swiglu", "true", "--swiglu", &e), BK_OK);
    assert_int_equal(bk_config_resolve(&c, &e), BK_OK);
    assert_int_equal(c.kv_channels, 32);
    assert_int_equal(c.ffn_hidden_size, 320);
    assert_int_equal(bk_config_set(&c, "kv_channels", "8", NULL, &e), BK_OK);
    assert_int_equal(bk_config_resolve(&c, &e), BK_OK);
    assert_int_equal(c.kv_channels, 8);
    assert_int_equal(bk_config_set(&c, "kv_channels", "none", NULL, &e), BK_OK);
    assert_int_equal(bk_config_resolve(&c, &e), BK_OK);
    assert_int_equal(c.kv_channels, 32);
    bk_config_free(&c);
}

/* The dump of a resolved configuration, read back option by option, is the same configuration. */
static void test_config__every_value_reads_back(void **state)
{
    (void)state;
    bk_config c, d;
    bk_err e = {0};
    assert_accepted(&c, SMALL "rotary_base: 12345.678901234567\nadam_eps: 1e-15\nmemory_limit: 1.5G\n"
                              "lr_warmup_fraction: 0.01\nmhc_init_gating_factor: 0.1\nsplit: 1,2,3\n");
    bk_config_init(&d);
    for (int i = 0; i < BK_N_OPTIONS; i++) {
        bk_str value = {0}, again = {0};
        bk_config_value(&value, &c, (bk_option_id)i);
        const char *text = bk_str_text(&value);
        char *name = strdup(bk_config_cite((char[BK_CITE_LEN]){0}, &c, (bk_option_id)i));
        name[strcspn(name, " ")] = '\0';
        if (bk_config_set(&d, name, text, NULL, &e) != BK_OK) fail_msg("%s", e.msg);
        bk_config_value(&again, &d, (bk_option_id)i);
        assert_string_equal(bk_str_text(&again), text);
        free(name);
        bk_str_free(&value);
        bk_str_free(&again);
    }
    bk_config_free(&c);
    bk_config_free(&d);
}

/* The metadata of a reference file: the object in __metadata__.config. */
static char *oracle_config(const char *file)
{
    char path[ORACLE_PATH_LEN];
    FILE *f = fopen(oracle_path(path, file), "rb");
    assert_non_null(f);
    uint64_t n;
    assert_int_equal(fread(&n, sizeof n, 1, f), 1);
    char *header = calloc(1, (size_t)n + 1);
    assert_int_equal(fread(header, 1, (size_t)n, f), n);
    fclose(f);
    cJSON *json = cJSON_Parse(header);
    const cJSON *meta = cJSON_GetObjectItem(json, "__metadata__");
    const cJSON *config = cJSON_GetObjectItem(meta, "config");
    char *text = strdup(cJSON_GetStringValue(config));
    cJSON_Delete(json);
    free(header);
    return text;
}

static void test_config__reads_the_reference_files_metadata(void **state)
{
    (void)state;
    char *text = oracle_config("dense_mhc2_ln_gelu_bias_tied.safetensors");
    bk_config c;
    assert_accepted(&c, text);
    assert_int_equal(c.num_layers, 2);
    assert_int_equal(c.ffn_hidden_size, 128);
    assert_int_equal(c.activation, BK_ACT_GELU);
    assert_int_equal(c.mhc_num_residual_streams, 2);
    assert_int_equal(c.mhc_sinkhorn_iterations, 5);
    assert_int_equal(c.micro_batch_size, 2);
    assert_true(c.enable_mhc_connections && c.add_bias_linear && !c.untie_embeddings_and_output_weights);
    bk_config_free(&c);
    free(text);
    const char *const dense[] = {"dense_plain.safetensors", "dense_mhc4.safetensors",
                                 "dense_gqa_mhc4.safetensors"};
    for (int i = 0; i < 3; i++) {
        text = oracle_config(dense[i]);
        assert_accepted(&c, text);
        assert_int_equal(c.activation, BK_ACT_SWIGLU);
        assert_int_equal(c.position_embedding_type, BK_POSITION_ROPE);
        assert_int_equal(c.enable_mhc_connections, i > 0);
        assert_int_equal(c.num_query_groups, i == 2 ? 2 : 4);
        assert_true(c.untie_embeddings_and_output_weights);
        bk_config_free(&c);
        free(text);
    }
}

static void test_config__reference_files_of_unbuilt_features_are_known(void **state)
{
    (void)state;
    const char *const files[] = {"dsv4_hybrid_mhc4", "mla_dsa_moe_mhc4_denseloss", "mla_dsa_mhc4",
                                 "dsv4_hybrid_moe_mhc4_mtp1"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.safetensors", files[i]);
        char *text = oracle_config(name);
        assert_refused(text, "which is not built");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config__defaults_are_megatrons),
        cmocka_unit_test(test_config__aliases_and_opposites),
        cmocka_unit_test(test_config__activation_from_every_spelling),
        cmocka_unit_test(test_config__swiglu_sets_the_width_of_the_mlp),
        cmocka_unit_test(test_config__off_values_are_the_same_as_nothing),
        cmocka_unit_test(test_config__what_is_not_built_says_so),
        cmocka_unit_test(test_config__values_out_of_range_or_form),
        cmocka_unit_test(test_config__long_and_odd_values_are_cut_in_messages),
        cmocka_unit_test(test_config__origin_is_remembered),
        cmocka_unit_test(test_config__resolve_again_derives_again),
        cmocka_unit_test(test_config__every_value_reads_back),
        cmocka_unit_test(test_config__reads_the_reference_files_metadata),
        cmocka_unit_test(test_config__reference_files_of_unbuilt_features_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
