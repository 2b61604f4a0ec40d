/* Finite differences: configurations of every kind pass, and a wrong gradient of each parameter is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "config/moe_options.h"
#include "train/difference.h"

/* Each has 4 layers, to be shrunken, and sizes in proportion to those of a user. */
#define COMMON "num_layers: 4\nhidden_size: 64\nffn_hidden_size: 96\nseq_length: 32\nvocab_size: 100\n"
#define LLAMA_LIKE                                                                                           \
    COMMON "num_attention_heads: 8\nnum_query_groups: 2\nmake_vocab_size_divisible_by: 1\n"                  \
           "normalization: RMSNorm\nposition_embedding_type: rope\nadd_bias_linear: false\nswiglu: true\n"   \
           "untie_embeddings_and_output_weights: true\nhidden_dropout: 0\nattention_dropout: 0\n"
#define GPT_LIKE                                                                                             \
    COMMON                                                                                                   \
    "num_attention_heads: 4\nmax_position_embeddings: 64\nmicro_batch_size: 2\nglobal_batch_size: 8\n"       \
    "hidden_dropout: 0.2\nattention_dropout: 0.1\n"
#define MHC(n, iterations)                                                                                   \
    "enable_mhc_connections: true\nmhc_num_residual_streams: " #n "\nmhc_sinkhorn_iterations: " #iterations  \
    "\n"

#define MOE    "num_experts: 8\nmoe_ffn_hidden_size: 24\nmoe_aux_loss_coeff: 0.05\nmoe_z_loss_coeff: 0.02\n"
#define BIASED "moe_router_score_function: sigmoid\nmoe_router_enable_expert_bias: true\n"

/* Sharp YaRN, with a concentration of the tables and one in the scale. */
#define MLA                                                                                                  \
    COMMON "num_attention_heads: 8\nmulti_latent_attention: true\nq_lora_rank: 24\nkv_lora_rank: 16\n"       \
           "qk_head_dim: 8\nqk_pos_emb_head_dim: 8\nv_head_dim: 12\nmake_vocab_size_divisible_by: 1\n"       \
           "normalization: RMSNorm\nposition_embedding_type: rope\nadd_bias_linear: false\nswiglu: true\n"   \
           "hidden_dropout: 0\nattention_dropout: 0\nqk_layernorm: true\nrotary_scaling_factor: 4\n"         \
           "original_max_position_embeddings: 16\nmscale: 1.5\nmscale_all_dim: 0.5\n"

static void shrink(bk_config *c, const char *text)
{
    bk_err e = {0};
    bk_config_init(c);
    if (bk_config_read_yaml_memory(c, text, strlen(text), "text", &e) != BK_OK ||
        bk_config_resolve(c, &e) != BK_OK || bk_difference_shrink(c, &e) != BK_OK)
        fail_msg("%s", e.msg);
}

static void passes(const char *text)
{
    bk_config c;
    bk_err e = {0};
    bk_difference *d = NULL;
    bk_check_report report = {0};
    bk_str printed = {0};
    shrink(&c, text);
    if (bk_difference_open(&d, &c, &e) != BK_OK || bk_difference_compare(&report, d, &e) != BK_OK)
        fail_msg("%s", e.msg);
    bk_check_report_print(&printed, &report);
    if (report.n_failed > 0) fail_msg("%s", bk_str_text(&printed));
    assert_true(report.n_rows > 10);
    bk_str_free(&printed);
    bk_check_report_free(&report);
    bk_difference_close(d);
    bk_config_free(&c);
}

static void test_check_difference__without_mhc(void **state)
{
    (void)state;
    passes(LLAMA_LIKE);
    passes(GPT_LIKE);
}

static void test_check_difference__with_mhc(void **state)
{
    (void)state;
    passes(LLAMA_LIKE MHC(1, 20));
    passes(LLAMA_LIKE MHC(4, 20));
    passes(LLAMA_LIKE MHC(16, 3));
    passes(GPT_LIKE MHC(3, 1) "activation: gelu\n");
}

static void test_check_difference__odd_heads_and_rotations(void **state)
{
    (void)state;
    passes(LLAMA_LIKE MHC(2, 5) "kv_channels: 24\nrotary_percent: 0.5\nrotary_interleaved: true\n");
    passes(COMMON "num_attention_heads: 4\nnum_query_groups: 1\nposition_embedding_type: none\n"
                  "add_bias_linear: false\nadd_qkv_bias: true\nnormalization: RMSNorm\n");
}

/* With and without a query latent, norms, fusion, biases, dropout, experts, hyper-connections, MTP. */
static void test_check_difference__with_latents(void **state)
{
    (void)state;
    passes(MLA);
    passes(MLA "mla_down_proj_fusion: true\n");
    passes(MLA MHC(4, 5) MOE "mla_down_proj_fusion: true\nmtp_num_layers: 1\n");
    passes(COMMON
           "num_attention_heads: 4\nmulti_latent_attention: true\nrope_type: rope\nhidden_dropout: 0.2\n"
           "attention_dropout: 0.1\nmicro_batch_size: 2\nglobal_batch_size: 8\nqk_layernorm: true\n");
    passes(GPT_LIKE MHC(2, 5) "multi_latent_attention: true\nq_lora_rank: 4\nqk_head_dim: 2\nv_head_dim: 1\n"
                              "qk_pos_emb_head_dim: 2\nkv_lora_rank: 3\n");
}

/* Every way to score and choose, all of a token's experts and one, dropped tokens, layers of both kinds. */
static void test_check_difference__with_experts(void **state)
{
    (void)state;
    passes(LLAMA_LIKE MOE);
    passes(LLAMA_LIKE MHC(4, 5) MOE BIASED "moe_router_num_groups: 4\nmoe_router_group_topk: 2\n"
                                           "moe_router_topk: 4\nmoe_router_topk_scaling_factor: 2.5\n");
    passes(LLAMA_LIKE MOE "moe_router_topk: 1\nmoe_router_pre_softmax: true\nmoe_layer_freq: [1, 0, 1, 0]\n"
                          "moe_shared_expert_intermediate_size: 32\nmoe_shared_expert_gate: true\n");
    passes(GPT_LIKE MOE "moe_router_topk: 8\nmoe_router_score_function: sqrtsoftplus\n");
    passes(GPT_LIKE "num_experts: 8\nmoe_router_load_balancing_type: [global_aux_loss, seq_aux_loss]\n"
                    "moe_aux_loss_coeff: [0.05, 0.1]\nmoe_layer_freq: ([0]*2+[1]*2)\n");
}

static void test_check_difference__with_experts_that_drop_tokens(void **state)
{
    (void)state;
    passes(LLAMA_LIKE MOE "moe_expert_capacity_factor: 0.7\n");
    passes(LLAMA_LIKE MOE "moe_expert_capacity_factor: 0.7\nmoe_token_drop_policy: position\n");
    passes(LLAMA_LIKE MHC(2, 3) MOE
           "moe_expert_capacity_factor: 1\nmoe_pad_expert_input_to_capacity: true\n");
}

static void test_check_difference__with_further_tokens(void **state)
{
    (void)state;
    passes(LLAMA_LIKE MHC(4, 5) "mtp_num_layers: 2\n");
    passes(LLAMA_LIKE MOE "mtp_num_layers: 1\nmtp_loss_scaling_factor: 0.7\n");
    passes(LLAMA_LIKE MHC(2, 5) MOE BIASED "mtp_num_layers: 2\nmtp_use_repeated_layer: true\n");
    passes(LLAMA_LIKE MHC(2, 5) MOE "mtp_num_layers: 1\nmoe_layer_freq: [1, 1, 1, 0]\n");
}

/* Two experts of the last layer with the same row in the router are equal in every token. A step in the
 * router's weight sets them apart, so that another is chosen however short it is: no direction can be
 * compared, and the row says so and fails. No other parameter tells the two apart. */
static void test_check_difference__a_tie_of_experts_is_not_passed(void **state)
{
    (void)state;
    static const char router[] = "decoder.layers.1.mlp.router.weight";
    bk_config c;
    bk_err e = {0};
    bk_difference *d = NULL;
    bk_check_report report = {0};
    int64_t n;
    shrink(&c, LLAMA_LIKE MOE "moe_router_topk: 1\nmoe_router_pre_softmax: true\n");
    assert_int_equal(bk_difference_open(&d, &c, &e), BK_OK);
    double *w = bk_difference_param(&n, d, router);
    assert_non_null(w);
    assert_int_equal(n, 5 * c.hidden_size);
    for (int k = 1; k < 5; k++) memcpy(w + k * c.hidden_size, w, (size_t)c.hidden_size * sizeof *w);
    assert_int_equal(bk_difference_run(d, &e), BK_OK);
    assert_int_equal(bk_difference_compare(&report, d, &e), BK_OK);
    const bk_check_row *row = bk_check_report_find(&report, router);
    assert_false(row->ok);
    assert_non_null(strstr(row->note, "4 of 4 directions not compared"));
    assert_int_equal(report.n_failed, 1);
    bk_check_report_free(&report);
    bk_difference_close(d);
    bk_config_free(&c);
}

/* All gradients a thousandth too large: every row fails but those that are zero but for rounding. */
static void scaled_gradients_fail(const char *text, int n_below)
{
    bk_config c;
    bk_err e = {0};
    bk_difference *d = NULL;
    bk_check_report plain = {0}, altered = {0};
    int n_caught = 0;
    shrink(&c, text);
    assert_int_equal(bk_difference_open(&d, &c, &e), BK_OK);
    assert_int_equal(bk_difference_compare(&plain, d, &e), BK_OK);
    assert_int_equal(plain.n_failed, 0);
    for (int64_t k = 0; k < plain.n_rows; k++) {
        int64_t n;
        double *grad = bk_difference_gradient(&n, d, plain.row[k].name);
        assert_non_null(grad);
        for (int64_t i = 0; i < n; i++) grad[i] *= 1.001;
    }
    assert_int_equal(bk_difference_compare(&altered, d, &e), BK_OK);
    for (int64_t k = 0; k < altered.n_rows; k++) {
        n_caught += !altered.row[k].ok;
        if (altered.row[k].ok) {
            print_message("not caught: %s\n", altered.row[k].name);
            assert_true(plain.row[k].tolerance > 0.95e-3);
        }
    }
    print_message("%d gradients scaled by 1.001, %d caught\n", (int)altered.n_rows, n_caught);
    assert_int_equal(n_caught, altered.n_rows - n_below);
    bk_check_report_free(&plain);
    bk_check_report_free(&altered);
    bk_difference_close(d);
    bk_config_free(&c);
}

/* The streams of the first hyper-connection are equal, so its alpha_res has no effect. */
static void test_check_difference__scaled_gradients_fail(void **state)
{
    (void)state;
    scaled_gradients_fail(GPT_LIKE MHC(4, 20), 1);
    scaled_gradients_fail(LLAMA_LIKE "micro_batch_size: 2\nglobal_batch_size: 4\n" MOE BIASED, 0);
}

/* One element of a large gradient: the random directions see it. */
static void test_check_difference__one_wrong_element_fails(void **state)
{
    (void)state;
    static const char *const names[] = {"decoder.layers.1.mlp.linear_fc1.weight", "output_layer.weight",
                                        "decoder.layers.1.mlp_hyper_connection.mapping_proj.weight"};
    bk_config c;
    bk_err e = {0};
    bk_difference *d = NULL;
    bk_check_report report = {0};
    shrink(&c, LLAMA_LIKE MHC(4, 20));
    assert_int_equal(bk_difference_open(&d, &c, &e), BK_OK);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        int64_t n, largest = 0;
        double *grad = bk_difference_gradient(&n, d, names[k]);
        assert_non_null(grad);
        for (int64_t i = 0; i < n; i++)
            if (grad[i] > grad[largest]) largest = i;
        grad[largest] *= 1.01;
    }
    assert_int_equal(bk_difference_compare(&report, d, &e), BK_OK);
    assert_int_equal(report.n_failed, 3);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        assert_false(bk_check_report_find(&report, names[k])->ok);
    bk_check_report_free(&report);
    bk_difference_close(d);
    bk_config_free(&c);
}

static void test_check_difference__shrinking_keeps_every_kind(void **state)
{
    (void)state;
    bk_config c;
    bk_str text = {0};
    shrink(&c, LLAMA_LIKE MHC(16, 7) "kv_channels: 24\nrotary_percent: 0.25\npadded_vocab_size: 128\n");
    assert_int_equal(c.num_layers, 2);
    assert_int_equal(c.num_attention_heads, 4); /* 8 of 2 groups: 4 of 2 */
    assert_int_equal(c.num_query_groups, 2);
    assert_int_equal(c.kv_channels, 16); /* a quarter rotates: two pairs */
    assert_true(c.num_attention_heads * c.kv_channels != c.hidden_size);
    assert_true(c.padded_vocab_size > c.vocab_size);
    assert_int_equal(c.mhc_num_residual_streams, 16);
    assert_int_equal(c.mhc_sinkhorn_iterations, 7);
    bk_difference_describe(&text, &c);
    assert_non_null(strstr(bk_str_text(&text), "num_query_groups 2"));
    assert_non_null(strstr(bk_str_text(&text), "mhc_sinkhorn_iterations 7\n"));
    bk_str_free(&text);
    bk_config_free(&c);

    shrink(&c, GPT_LIKE);
    assert_int_equal(c.num_attention_heads, c.num_query_groups);
    assert_int_equal(c.num_attention_heads * c.kv_channels, c.hidden_size);
    assert_true(c.max_position_embeddings > c.seq_length);
    assert_int_equal(c.global_batch_size, 2 * c.micro_batch_size); /* gradients accumulate */
    assert_true(c.hidden_dropout > 0.19 && c.attention_dropout > 0.09);
    assert_true(c.padded_vocab_size > c.vocab_size);
    bk_config_free(&c);

    shrink(&c, LLAMA_LIKE MOE "moe_router_num_groups: 4\nmoe_router_group_topk: 2\nmoe_router_topk: 3\n"
                              "moe_layer_freq: [0, 1, 0, 0]\nmoe_shared_expert_intermediate_size: 8\n");
    assert_int_equal(c.num_experts, 6);
    assert_int_equal(c.moe_router_num_groups, 3);
    assert_int_equal(c.moe_router_group_topk, 2);
    assert_int_equal(c.moe_router_topk, 3);
    bool has_experts[2];
    bk_err e = {0};
    assert_int_equal(bk_config_moe_layers(has_experts, &c, &e), BK_OK);
    assert_true(has_experts[0] && !has_experts[1]); /* the last stays dense */
    bk_difference_describe(&text, &c);
    assert_non_null(strstr(bk_str_text(&text), "moe_layer_freq [1, 0]"));
    assert_non_null(strstr(bk_str_text(&text), "moe_shared_expert_intermediate_size 6"));
    bk_str_free(&text);
    bk_config_free(&c);

    shrink(&c, LLAMA_LIKE MOE "moe_router_topk: 8\nmoe_layer_freq: 2\n");
    assert_int_equal(c.moe_router_topk, c.num_experts);
    bk_config_free(&c);
}

/* What is small already stays as it is. */
static void test_check_difference__shrinking_keeps_latents(void **state)
{
    (void)state;
    bk_config c;
    bk_str text = {0};
    shrink(&c, MLA);
    assert_int_equal(c.num_query_groups, c.num_attention_heads);
    assert_true(c.q_lora_rank < 24 && c.kv_lora_rank < 16 && c.q_lora_rank != c.kv_lora_rank);
    assert_int_equal(c.qk_pos_emb_head_dim, 4);
    assert_true(c.v_head_dim != c.qk_head_dim && c.v_head_dim != c.qk_head_dim + c.qk_pos_emb_head_dim);
    bk_difference_describe(&text, &c);
    assert_non_null(strstr(bk_str_text(&text), "multi_latent_attention true"));
    assert_null(strstr(bk_str_text(&text), "kv_channels"));
    bk_str_free(&text);
    bk_config_free(&c);

    shrink(&c, COMMON "num_attention_heads: 4\nmulti_latent_attention: true\n");
    assert_int_equal(c.q_lora_rank, BK_UNSET_COUNT);
    bk_config_free(&c);
}

static void test_check_difference__shrinking_never_grows(void **state)
{
    (void)state;
    bk_config c;
    shrink(&c, "num_layers: 1\nhidden_size: 4\nffn_hidden_size: 5\nseq_length: 3\nvocab_size: 7\n"
               "num_attention_heads: 2\nposition_embedding_type: rope\nmake_vocab_size_divisible_by: 1\n");
    assert_int_equal(c.num_layers, 1);
    assert_int_equal(c.hidden_size, 4);
    assert_int_equal(c.kv_channels, 2);
    assert_int_equal(c.ffn_hidden_size, 5);
    assert_int_equal(c.seq_length, 3);
    assert_int_equal(c.vocab_size, 7);
    assert_int_equal(c.padded_vocab_size, 7);
    assert_int_equal(c.global_batch_size, 1);
    bk_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_difference__without_mhc),
        cmocka_unit_test(test_check_difference__with_mhc),
        cmocka_unit_test(test_check_difference__odd_heads_and_rotations),
        cmocka_unit_test(test_check_difference__with_latents),
        cmocka_unit_test(test_check_difference__with_experts),
        cmocka_unit_test(test_check_difference__with_experts_that_drop_tokens),
        cmocka_unit_test(test_check_difference__with_further_tokens),
        cmocka_unit_test(test_check_difference__a_tie_of_experts_is_not_passed),
        cmocka_unit_test(test_check_difference__scaled_gradients_fail),
        cmocka_unit_test(test_check_difference__one_wrong_element_fails),
        cmocka_unit_test(test_check_difference__shrinking_keeps_every_kind),
        cmocka_unit_test(test_check_difference__shrinking_keeps_latents),
        cmocka_unit_test(test_check_difference__shrinking_never_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
