/* Mixture of experts in the graph: which layers have it, and what they are made of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "model_fixture.h"

/* Without num_layers. */
#define SMALL                                                                                                \
    "hidden_size: 8\nnum_attention_heads: 4\nffn_hidden_size: 16\nseq_length: 5\nmicro_batch_size: 3\n"      \
    "vocab_size: 11\nmake_vocab_size_divisible_by: 1\nnormalization: RMSNorm\nadd_bias_linear: false\n"      \
    "position_embedding_type: rope\nswiglu: true\nuntie_embeddings_and_output_weights: true\n"               \
    "hidden_dropout: 0\nattention_dropout: 0\nnum_experts: 4\n"
#define HYPER "enable_mhc_connections: true\nmhc_num_residual_streams: 3\n"

/* What stands before the experts is in the attention's node, what follows them in one of its own; the dense
 * layer ends the model, with the contraction. */
static void test_moe__ops_and_nodes_before_a_dense_layer(void **state)
{
    (void)state;
    model_outlined(
        SMALL, HYPER "num_layers: 2\nmoe_layer_freq: [1, 0]\nmoe_aux_loss_coeff: 0.1\n", BK_MODEL_TRAIN,
        "decoder.pre_process forward: feed embedding rope_table mhc_expand\n"
        "decoder.0.attn forward: mhc_map mhc_aggregate rmsnorm linear rope rope attention linear mhc_post "
        "mhc_map mhc_aggregate rmsnorm linear router score_counts aux_loss scale acc expert_counts acc "
        "route_rows permute permute_probs\n"
        "decoder.0.mlp forward: grouped_linear expert_act grouped_linear unpermute\n"
        "decoder.0.mhc_post forward: mhc_post\n"
        "decoder.1.attn forward: mhc_map mhc_aggregate rmsnorm linear rope rope attention linear mhc_post\n"
        "decoder.1.mlp forward: mhc_map mhc_aggregate rmsnorm linear swiglu linear mhc_post mhc_contract "
        "rmsnorm\n"
        "decoder.post_process forward: feed feed feed linear cross_entropy masked_mean acc acc scale\n"
        "decoder.step step: fetch fetch fetch fetch");
}

/* An evaluation counts nothing and has no loss but the main one. */
static void test_moe__ops_and_nodes_of_an_evaluation(void **state)
{
    (void)state;
    model_outlined(
        SMALL,
        "num_layers: 1\nmoe_aux_loss_coeff: 0.1\nmoe_z_loss_coeff: 0.1\nmoe_router_score_function: sigmoid\n"
        "moe_router_enable_expert_bias: true\n"
        "moe_shared_expert_intermediate_size: 6\nmoe_shared_expert_gate: true\n",
        BK_MODEL_EVALUATE,
        "decoder.pre_process forward: feed embedding rope_table\n"
        "decoder.0.attn forward: rmsnorm linear rope rope attention linear residual_add rmsnorm linear "
        "swiglu linear linear sigmoid_gate linear router route_rows permute permute_probs\n"
        "decoder.0.mlp forward: grouped_linear expert_act grouped_linear unpermute add_n residual_add "
        "rmsnorm\n"
        "decoder.post_process forward: feed feed linear cross_entropy masked_mean acc acc\n"
        "decoder.step step: fetch fetch");
}

/* Tokens travel in nodes of their own where ranks share the experts. */
static void test_moe__nodes_of_several_ranks(void **state)
{
    (void)state;
    model_outlined(
        SMALL,
        "num_layers: 1\nexpert_model_parallel_size: 2\nmoe_aux_loss_coeff: 0\n"
        "moe_capacity_headroom: 1\nmoe_shared_expert_intermediate_size: 6\nglobal_batch_size: 12\n",
        BK_MODEL_TRAIN,
        "decoder.pre_process forward: feed embedding rope_table\n"
        "decoder.0.attn forward: rmsnorm linear rope rope attention linear residual_add rmsnorm linear "
        "swiglu linear linear router expert_counts acc route_rows permute permute_probs\n"
        "decoder.0.moe_dispatch forward: moe_exchange moe_dispatch moe_dispatch\n"
        "decoder.0.mlp forward: acc_max grouped_linear expert_act grouped_linear\n"
        "decoder.0.moe_combine forward: moe_combine unpermute add_n residual_add rmsnorm\n"
        "decoder.post_process forward: feed feed feed linear cross_entropy masked_mean acc acc\n"
        "decoder.step step: fetch fetch fetch fetch");
}

static bool has(const model_fixture *f, const char *pattern, int layer, const char *param)
{
    char name[128];
    snprintf(name, sizeof name, pattern, layer, param);
    return model_param(f->g, name) != NULL;
}

/* A layer has experts or a dense part, as `kinds` says with 1 and 0; those of multi-token prediction are like
 * the last. */
static void assert_kinds(const char *freq, const char *kinds, bool hyper)
{
    const int n = (int)strlen(kinds);
    model_fixture f;
    char more[512];
    snprintf(more, sizeof more,
             "%snum_layers: %d\nmtp_num_layers: 2\nmoe_layer_freq: %s\n"
             "moe_aux_loss_coeff: 0.5\nmoe_router_score_function: sigmoid\n"
             "moe_router_enable_expert_bias: true\n",
             hyper ? HYPER : "", n, freq);
    model_build_text(&f, SMALL, more, BK_MODEL_TRAIN);
    int n_moe = 0;
    for (int i = 0; i < n + 2; i++) {
        const bool moe = kinds[i < n ? i : n - 1] == '1';
        const char *const pattern =
            i < n ? "decoder.layers.%d.mlp.%s" : "mtp.layers.%d.transformer_layer.mlp.%s";
        const int layer = i < n ? i : i - n;
        assert_int_equal(has(&f, pattern, layer, "router.weight"), moe);
        assert_int_equal(has(&f, pattern, layer, "experts.local_experts.3.linear_fc2.weight"), moe);
        assert_int_equal(has(&f, pattern, layer, "linear_fc1.weight"), !moe);
        n_moe += moe;
    }
    assert_int_equal(f.io.n_biases, n_moe);
    assert_int_equal(f.io.n_choices, 3 * n_moe); /* experts, rows, counts */
    assert_int_equal(f.io.n_losses, 3 + n_moe);
    /* The boundary is in the node that ends the last layer, of whatever kind that is (case C14). */
    const bk_op *end = NULL, *before = NULL;
    for (int64_t i = 0; i < f.g->n_ops; i++)
        for (int k = 0; k < f.g->op[i].n_out; k++) {
            if (bk_outs(f.g, &f.g->op[i])[k] == f.io.hidden) end = &f.g->op[i];
            if (bk_outs(f.g, &f.g->op[i])[k] == f.io.layer_out[n - 1]) before = &f.g->op[i];
        }
    assert_non_null(end);
    assert_non_null(before);
    assert_memory_equal(&end->tag, &before->tag, sizeof end->tag);
    assert_int_equal(end->tag.layer, n - 1);
    assert_int_equal(f.g->value[f.io.hidden].rank, 3);
    model_free(&f);
}

static void test_moe__kinds_of_layers(void **state)
{
    (void)state;
    for (int hyper = 0; hyper < 2; hyper++) {
        assert_kinds("1", "11", hyper);
        assert_kinds("2", "101", hyper);
        assert_kinds("2", "1010", hyper);
        assert_kinds("[0, 1]", "01", hyper);
        assert_kinds("[1, 0]", "10", hyper);
        assert_kinds("[0, 0]", "00", hyper);
        assert_kinds("'([1]+[0]*1+[1])'", "101", hyper);
        assert_kinds("([0]*1+[1]*3)", "0111", hyper);
    }
}

/* Depths that share a layer share its bias, which is updated once. */
static void test_moe__a_repeated_layer_has_one_bias(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, SMALL,
                     "num_layers: 1\nmtp_num_layers: 3\nmtp_use_repeated_layer: true\n"
                     "moe_router_score_function: sigmoid\nmoe_router_enable_expert_bias: true\n",
                     BK_MODEL_TRAIN);
    assert_int_equal(f.io.n_biases, 2);
    assert_int_not_equal(f.io.biases[0].bias, f.io.biases[1].bias);
    assert_int_not_equal(f.io.biases[0].counts, f.io.biases[1].counts);
    assert_int_equal(f.io.n_choices, 2 * 4);
    model_free(&f);
}

/* More losses than there is room for: one sentence, and no graph. */
static void test_moe__too_many_losses(void **state)
{
    (void)state;
    bk_config c;
    bk_layout l;
    bk_graph *g;
    bk_model_io io;
    bk_err e = {0};
    bk_config_init(&c);
    static const char text[] = SMALL "num_layers: 600\nmoe_aux_loss_coeff: 0.1\nmoe_z_loss_coeff: 0.1\n";
    assert_int_equal(bk_config_read_yaml_memory(&c, text, strlen(text), "small", &e), BK_OK);
    assert_int_equal(bk_config_resolve(&c, &e), BK_OK);
    assert_int_equal(bk_layout_resolve(&l, &c, 1, &e), BK_OK);
    assert_int_equal(bk_graph_new(&g, BK_F32, &e), BK_OK);
    assert_int_equal(bk_model_build(&io, g, &c, &l, BK_MODEL_TRAIN, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "more than 1024 losses"));
    bk_graph_free(g);
    bk_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe__ops_and_nodes_before_a_dense_layer),
        cmocka_unit_test(test_moe__ops_and_nodes_of_an_evaluation),
        cmocka_unit_test(test_moe__nodes_of_several_ranks),
        cmocka_unit_test(test_moe__kinds_of_layers),
        cmocka_unit_test(test_moe__a_repeated_layer_has_one_bias),
        cmocka_unit_test(test_moe__too_many_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
