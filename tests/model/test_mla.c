/* Multi-latent attention in the graph: ops, parameters, tables, scale. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "model_fixture.h"

#define SMALL                                                                                                \
    "num_layers: 1\nhidden_size: 9\nnum_attention_heads: 2\nffn_hidden_size: 16\nseq_length: 5\n"            \
    "micro_batch_size: 3\nvocab_size: 11\nmake_vocab_size_divisible_by: 1\nnormalization: RMSNorm\n"         \
    "position_embedding_type: rope\nadd_bias_linear: false\nswiglu: true\n"                                  \
    "untie_embeddings_and_output_weights: true\nhidden_dropout: 0\nattention_dropout: 0\n"                   \
    "multi_latent_attention: true\nkv_lora_rank: 6\nqk_head_dim: 5\nqk_pos_emb_head_dim: 4\nv_head_dim: 7\n"
#define LATENT "q_lora_rank: 8\nqk_layernorm: true\n"
#define HYPER  "enable_mhc_connections: true\nmhc_num_residual_streams: 3\n"

#define REST                                                                                                 \
    "decoder.0.mlp forward: rmsnorm linear swiglu linear residual_add rmsnorm\n"                             \
    "decoder.post_process forward: feed feed linear cross_entropy masked_mean acc acc\n"                     \
    "decoder.step step: fetch fetch"

static void test_mla__ops(void **state)
{
    (void)state;
    model_outlined(SMALL, "rope_type: rope\n", BK_MODEL_EVALUATE,
                   "decoder.pre_process forward: feed embedding rope_table\n"
                   "decoder.0.attn forward: rmsnorm linear linear rope copy linear rope mla_key attention "
                   "linear residual_add\n" REST);
    model_outlined(
        SMALL, LATENT, BK_MODEL_EVALUATE,
        "decoder.pre_process forward: feed embedding yarn_table\n"
        "decoder.0.attn forward: rmsnorm linear linear rmsnorm linear rope copy rmsnorm linear rope "
        "mla_key attention linear residual_add\n" REST);
    model_outlined(SMALL, LATENT "mla_down_proj_fusion: true\n", BK_MODEL_EVALUATE,
                   "decoder.pre_process forward: feed embedding yarn_table\n"
                   "decoder.0.attn forward: rmsnorm linear_pair copy rmsnorm linear rope copy rmsnorm linear "
                   "rope mla_key attention linear residual_add\n" REST);
}

/* Its own tables, beside positions that the model adds to the embedding. */
static void test_mla__turns_whatever_the_positions_of_the_model(void **state)
{
    (void)state;
    static const char *const types[] = {"learned_absolute", "none"};
    for (int k = 0; k < 2; k++) {
        char more[64];
        model_fixture f;
        snprintf(more, sizeof more, "position_embedding_type: %s\n", types[k]);
        model_build_text(&f, SMALL, more, BK_MODEL_TRAIN);
        assert_int_not_equal(f.io.rope_cos, BK_NONE);
        assert_int_equal(f.g->value[f.io.rope_cos].dim[1].size, 2);
        assert_int_equal(f.g->value[f.io.rope_cos].scope, BK_STEP);
        model_free(&f);
    }
}

static void expect_param(const bk_graph *g, const char *name, const char *alias, int64_t rows,
                         int64_t columns)
{
    char full[128], second[128];
    snprintf(full, sizeof full, "decoder.layers.0.%s", name);
    const bk_param *p = model_param(g, full);
    if (!p) fail_msg("no parameter %s", full);
    assert_int_equal(p->rank, columns ? 2 : 1);
    assert_int_equal(p->shape[0], rows);
    if (columns) assert_int_equal(p->shape[1], columns);
    if (!alias) return;
    snprintf(second, sizeof second, "decoder.layers.0.%s", alias);
    assert_string_equal(p->alias, second);
}

/* The same with one down projection and with two: a checkpoint of one is a checkpoint of the other. */
static void test_mla__parameters(void **state)
{
    (void)state;
    static const char *const more[] = {LATENT, LATENT "mla_down_proj_fusion: true\n",
                                       LATENT HYPER "mla_down_proj_fusion: true\n"};
    for (int k = 0; k < 3; k++) {
        model_fixture f;
        model_build_text(&f, SMALL, more[k], BK_MODEL_TRAIN);
        expect_param(f.g, "input_layernorm.weight", "self_attention.linear_qkv_down_proj.layer_norm_weight",
                     9, 0);
        expect_param(f.g, "self_attention.linear_q_down_proj.weight", NULL, 8, 9);
        expect_param(f.g, "self_attention.q_layernorm.weight",
                     "self_attention.linear_q_up_proj.layer_norm_weight", 8, 0);
        expect_param(f.g, "self_attention.linear_q_up_proj.weight", NULL, 2 * (5 + 4), 8);
        expect_param(f.g, "self_attention.linear_kv_down_proj.weight", NULL, 6 + 4, 9);
        expect_param(f.g, "self_attention.kv_layernorm.weight",
                     "self_attention.linear_kv_up_proj.layer_norm_weight", 6, 0);
        expect_param(f.g, "self_attention.linear_kv_up_proj.weight", NULL, 2 * (5 + 7), 6);
        expect_param(f.g, "self_attention.linear_proj.weight", NULL, 9, 2 * 7);
        if (k < 2) assert_int_equal(f.g->n_params, 8 + 6);
        model_free(&f);
    }
}

/* One projection of the queries; no norms of latents; a bias where the rows of a sublayer leave it, alone. */
static void test_mla__parameters_without_a_query_latent(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, SMALL, "add_bias_linear: true\n", BK_MODEL_TRAIN);
    expect_param(f.g, "self_attention.linear_q_proj.weight", NULL, 2 * (5 + 4), 9);
    expect_param(f.g, "self_attention.linear_proj.bias", NULL, 9, 0);
    static const char *const absent[] = {"linear_q_down_proj.weight", "linear_q_up_proj.weight",
                                         "q_layernorm.weight",        "kv_layernorm.weight",
                                         "linear_q_proj.bias",        "linear_kv_down_proj.bias",
                                         "linear_kv_up_proj.bias",    "linear_qkv.weight"};
    for (size_t k = 0; k < sizeof absent / sizeof *absent; k++) {
        char name[128];
        snprintf(name, sizeof name, "decoder.layers.0.self_attention.%s", absent[k]);
        assert_null(model_param(f.g, name));
    }
    const bk_param *down = model_param(f.g, "decoder.layers.0.self_attention.linear_kv_down_proj.weight"),
                   *out = model_param(f.g, "decoder.layers.0.self_attention.linear_proj.weight");
    assert_true(down->init_arg == 0.02 && fabs(out->init_arg - 0.02 / sqrt(2)) < 1e-17);
    assert_int_equal(down->class_, BK_CLASS_ATTENTION);
    model_free(&f);
}

static double attribute(const bk_graph *g, bk_op_kind kind, const char *name)
{
    for (int64_t o = 0; o < g->n_ops; o++)
        if (g->op[o].kind == kind) return bk_attr_f(&g->op[o], bk_attr_index(kind, name, NULL));
    fail_msg("no %s", bk_ops[kind].name);
    return 0;
}

/* g(S, m) = 0.1 m ln S + 1: squared in the scale, even of plain angles; a quotient in the tables. */
static void test_mla__concentrations(void **state)
{
    (void)state;
    static const char yarn[] = "rotary_scaling_factor: 4\nmscale: 2\nmscale_all_dim: 0.5\n";
    const double all = 0.05 * log(4) + 1, tables = (0.2 * log(4) + 1) / all;
    model_fixture f;
    model_build_text(&f, SMALL, yarn, BK_MODEL_TRAIN);
    assert_true(fabs(attribute(f.g, BK_OP_yarn_table, "concentration") - tables) < 1e-15);
    assert_true(fabs(attribute(f.g, BK_OP_attention, "scale") - all * all / 3) < 1e-15);
    model_free(&f);

    model_build_text(&f, SMALL, "rope_type: rope\nrotary_scaling_factor: 4\nmscale_all_dim: 0.5\n",
                     BK_MODEL_TRAIN);
    assert_true(fabs(attribute(f.g, BK_OP_attention, "scale") - all * all / 3) < 1e-15);
    model_free(&f);

    model_build_text(&f, SMALL, "", BK_MODEL_TRAIN); /* the factor is 1 */
    assert_true(attribute(f.g, BK_OP_yarn_table, "concentration") == 1);
    assert_true(fabs(attribute(f.g, BK_OP_attention, "scale") - 1 / 3.0) < 1e-16);
    model_free(&f);
}

/* Keys and values of all heads, rotated. */
static void test_mla__caches(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, SMALL, LATENT, BK_MODEL_GENERATE);
    const bk_vid k = bk_value_find(f.g, BK_STATE, "cache.k.layer0"),
                 v = bk_value_find(f.g, BK_STATE, "cache.v.layer0");
    assert_true(k != BK_NONE && v != BK_NONE);
    assert_int_equal(f.g->value[k].dim[2].size, 2);
    assert_int_equal(f.g->value[k].dim[3].size, 9);
    assert_int_equal(f.g->value[v].dim[3].size, 7);
    model_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mla__ops),
        cmocka_unit_test(test_mla__turns_whatever_the_positions_of_the_model),
        cmocka_unit_test(test_mla__parameters),
        cmocka_unit_test(test_mla__parameters_without_a_query_latent),
        cmocka_unit_test(test_mla__concentrations),
        cmocka_unit_test(test_mla__caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
