/* Finite differences: configurations of every kind pass, and a wrong gradient of each parameter is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

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

/* All gradients a thousandth too large: every row fails but those of the two gradients that are zero or
 * nearly so, because all streams of the first hyper-connection are equal. */
static void test_check_difference__scaled_gradients_fail(void **state)
{
    (void)state;
    bk_config c;
    bk_err e = {0};
    bk_difference *d = NULL;
    bk_check_report plain = {0}, altered = {0};
    int n_caught = 0;
    shrink(&c, GPT_LIKE MHC(4, 20));
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
            assert_non_null(strstr(altered.row[k].name, "layers.0.self_attention_hyper_connection.alpha_"));
        }
    }
    print_message("%d gradients scaled by 1.001, %d caught\n", (int)altered.n_rows, n_caught);
    assert_true(n_caught >= altered.n_rows - 2);
    bk_check_report_free(&plain);
    bk_check_report_free(&altered);
    bk_difference_close(d);
    bk_config_free(&c);
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
}

/* What is small already stays as it is. */
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
        cmocka_unit_test(test_check_difference__scaled_gradients_fail),
        cmocka_unit_test(test_check_difference__one_wrong_element_fails),
        cmocka_unit_test(test_check_difference__shrinking_keeps_every_kind),
        cmocka_unit_test(test_check_difference__shrinking_never_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
