/* The table of parameters: names and shapes against reference files, counts, initial values, decay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/safetensors.h"
#include "model_fixture.h"
#include "oracle.h"

/* Every param.* of the file is a row of the same shape, and there are no other rows. */
static void assert_rows_of(const char *file)
{
    char name[64], path[ORACLE_PATH_LEN];
    bk_err e = {0};
    bk_st *st = NULL;
    model_fixture f;
    snprintf(name, sizeof name, "%s.safetensors", file);
    if (bk_st_open(&st, oracle_path(path, name), &e) != BK_OK) fail_msg("%s", e.msg);
    model_build_text(&f, bk_st_meta(st, "config"), "make_vocab_size_divisible_by: 1\n", BK_MODEL_TRAIN);
    int64_t n_rows = 0;
    for (int64_t i = 0; i < bk_st_count(st); i++) {
        const bk_st_tensor *t = bk_st_at(st, i);
        if (strncmp(t->name, "param.", 6) != 0) continue;
        const bk_param *row = model_param(f.g, t->name + 6);
        if (!row) fail_msg("%s: no row %s", file, t->name + 6);
        assert_int_equal(row->rank, t->rank);
        for (int d = 0; d < t->rank; d++) assert_int_equal(row->shape[d], t->shape[d]);
        n_rows++;
    }
    assert_int_equal(f.g->n_params, n_rows);
    assert_int_not_equal(n_rows, 0);
    for (int64_t i = 0; i < f.io.n_layers; i++) {
        snprintf(name, sizeof name, "act.layer%d", (int)i);
        const bk_st_tensor *t = bk_st_find(st, name);
        assert_non_null(t);
        assert_int_equal(bk_elements(&f.g->value[f.io.layer_out[i]]), bk_st_n_elems(t));
    }
    bk_st_free(st);
    model_free(&f);
}

static void test_params__names_and_shapes_of_the_reference(void **state)
{
    (void)state;
    assert_rows_of("dense_plain");
    assert_rows_of("dense_mhc4");
    assert_rows_of("dense_gqa_mhc4");
    assert_rows_of("dense_mhc2_ln_gelu_bias_tied");
    assert_rows_of("mla_dense_mhc4");
}

static const char gpt2[] = "num_layers: 12\nhidden_size: 768\nnum_attention_heads: 12\nseq_length: 1024\n"
                           "vocab_size: 50257\nmake_vocab_size_divisible_by: 1\n";

static void test_params__count_of_gpt2(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, gpt2, "", BK_MODEL_TRAIN);
    assert_int_equal(model_param_elements(f.g), 124439808); /* the published number */
    model_free(&f);

    /* Each of the 24 sublayers gets W [24, 3072], three alphas and a bias [24]; the model gets a contraction
     * of [4, 3072], [4] and [1]. */
    model_build_text(&f, gpt2, "enable_mhc_connections: true\n", BK_MODEL_TRAIN);
    assert_int_equal(model_param_elements(f.g), 124439808 + 24 * (24 * 3072 + 3 + 24) + 4 * 3072 + 4 + 1);
    model_free(&f);
}

static void test_params__classes_add_up(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, gpt2,
                     "enable_mhc_connections: true\nuntie_embeddings_and_output_weights: true\n"
                     "add_bias_linear: false\nposition_embedding_type: rope\nnormalization: RMSNorm\n",
                     BK_MODEL_TRAIN);
    int64_t n[BK_N_CLASSES] = {0};
    for (int64_t i = 0; i < f.g->n_params; i++)
        n[f.g->param[i].class_] += bk_elements(&f.g->value[f.g->param[i].value]);
    assert_int_equal(n[BK_CLASS_EMBEDDING], 50257 * 768);
    assert_int_equal(n[BK_CLASS_OUTPUT], 50257 * 768);
    assert_int_equal(n[BK_CLASS_ATTENTION], 12 * 4 * 768 * 768);
    assert_int_equal(n[BK_CLASS_MLP], 12 * 8 * 768 * 768);
    assert_int_equal(n[BK_CLASS_NORM], 25 * 768);
    assert_int_equal(n[BK_CLASS_MHC], 24 * (24 * 3072 + 27) + 4 * 3072 + 5);
    model_free(&f);
}

static void test_params__initial_values(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, gpt2,
                     "enable_mhc_connections: true\nuntie_embeddings_and_output_weights: true\n"
                     "init_method_std: 0.01\nembedding_init_method_std: 0.5\nmhc_init_gating_factor: 0.03\n",
                     BK_MODEL_TRAIN);
    const double narrow = 0.01 / sqrt(24);
    const struct {
        const char *name;
        bk_init_rule init;
        double arg;
    } rows[] = {
        {"embedding.word_embeddings.weight", BK_INIT_NORMAL, 0.5},
        {"embedding.position_embeddings.weight", BK_INIT_NORMAL, 0.5},
        {"output_layer.weight", BK_INIT_NORMAL, 0.01},
        {"decoder.layers.11.self_attention.linear_qkv.weight", BK_INIT_NORMAL, 0.01},
        {"decoder.layers.11.self_attention.linear_qkv.bias", BK_INIT_ZERO, 0},
        {"decoder.layers.11.self_attention.linear_proj.weight", BK_INIT_NORMAL, narrow},
        {"decoder.layers.11.self_attention.linear_proj.bias", BK_INIT_ZERO, 0},
        {"decoder.layers.0.mlp.linear_fc1.weight", BK_INIT_NORMAL, 0.01},
        {"decoder.layers.0.mlp.linear_fc2.weight", BK_INIT_NORMAL, narrow},
        {"decoder.layers.0.input_layernorm.weight", BK_INIT_ONE, 0},
        {"decoder.layers.0.pre_mlp_layernorm.bias", BK_INIT_ZERO, 0},
        {"decoder.final_layernorm.weight", BK_INIT_ONE, 0},
        {"decoder.layers.0.mlp_hyper_connection.mapping_proj.weight", BK_INIT_XAVIER, 0},
        {"decoder.layers.0.mlp_hyper_connection.alpha_pre", BK_INIT_CONST, 0.03},
        {"decoder.layers.0.mlp_hyper_connection.alpha_post", BK_INIT_CONST, 0.03},
        {"decoder.layers.0.mlp_hyper_connection.alpha_res", BK_INIT_CONST, 0.03},
        {"decoder.layers.0.mlp_hyper_connection.bias", BK_INIT_ZERO, 0},
        {"decoder.hc_head_fn", BK_INIT_XAVIER, 0},
        {"decoder.hc_head_base", BK_INIT_ZERO, 0},
        {"decoder.hc_head_scale", BK_INIT_ONE, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bk_param *p = model_param(f.g, rows[i].name);
        if (!p) fail_msg("no row %s", rows[i].name);
        assert_int_equal(p->init, rows[i].init);
        assert_true(fabs(p->init_arg - rows[i].arg) <= 1e-15);
    }
    model_free(&f);
}

static void test_params__decay_of_matrices_alone(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, gpt2, "enable_mhc_connections: true\n", BK_MODEL_TRAIN);
    for (int64_t i = 0; i < f.g->n_params; i++) {
        const bk_param *p = &f.g->param[i];
        const size_t n = strlen(p->name);
        const bool matrix =
            (n > 7 && strcmp(p->name + n - 7, ".weight") == 0 && !strstr(p->name, "layernorm")) ||
            strcmp(p->name, "decoder.hc_head_fn") == 0;
        assert_int_equal(p->decay, matrix);
    }
    model_free(&f);
}

static void test_params__second_spelling_of_fused_norms(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, gpt2, "", BK_MODEL_TRAIN);
    const char *const pairs[][2] = {
        {"decoder.layers.3.input_layernorm.weight",
         "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight"},
        {"decoder.layers.3.input_layernorm.bias",
         "decoder.layers.3.self_attention.linear_qkv.layer_norm_bias"},
        {"decoder.layers.3.pre_mlp_layernorm.weight", "decoder.layers.3.mlp.linear_fc1.layer_norm_weight"},
        {"decoder.layers.3.pre_mlp_layernorm.bias", "decoder.layers.3.mlp.linear_fc1.layer_norm_bias"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_string_equal(model_param(f.g, pairs[i][0])->alias, pairs[i][1]);
    assert_null(model_param(f.g, "decoder.final_layernorm.weight")->alias);
    model_free(&f);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void test_params__names_are_distinct(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, gpt2, "enable_mhc_connections: true\n", BK_MODEL_TRAIN);
    const char **names = malloc((size_t)(2 * f.g->n_params) * sizeof *names);
    assert_non_null(names);
    size_t n = 0;
    for (int64_t i = 0; i < f.g->n_params; i++) {
        names[n++] = f.g->param[i].name;
        if (f.g->param[i].alias) names[n++] = f.g->param[i].alias;
    }
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n; i++) assert_string_not_equal(names[i - 1], names[i]);
    free(names);
    model_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_params__names_and_shapes_of_the_reference),
        cmocka_unit_test(test_params__count_of_gpt2),
        cmocka_unit_test(test_params__classes_add_up),
        cmocka_unit_test(test_params__initial_values),
        cmocka_unit_test(test_params__decay_of_matrices_alone),
        cmocka_unit_test(test_params__second_spelling_of_fused_norms),
        cmocka_unit_test(test_params__names_are_distinct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
