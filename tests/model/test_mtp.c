/* Multi-token prediction in the graph. Whole runs are in train/test_mtp_losses.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "model_fixture.h"

#define SMALL                                                                                                \
    "num_layers: 1\nhidden_size: 8\nnum_attention_heads: 4\nffn_hidden_size: 16\nseq_length: 5\n"            \
    "micro_batch_size: 3\nvocab_size: 11\nmake_vocab_size_divisible_by: 1\nnormalization: RMSNorm\n"         \
    "position_embedding_type: rope\nadd_bias_linear: false\nswiglu: true\n"                                  \
    "untie_embeddings_and_output_weights: true\nhidden_dropout: 0\nattention_dropout: 0\n"
#define HYPER "enable_mhc_connections: true\nmhc_num_residual_streams: 3\n"

static void test_mtp__ops_and_nodes(void **state)
{
    (void)state;
    model_outlined(
        SMALL, "mtp_num_layers: 1\n", BK_MODEL_TRAIN,
        "decoder.pre_process forward: feed embedding rope_table\n"
        "decoder.0.attn forward: rmsnorm linear rope rope attention linear residual_add\n"
        "decoder.0.mlp forward: rmsnorm linear swiglu linear residual_add rmsnorm\n"
        "decoder.post_process forward: feed feed feed linear cross_entropy masked_mean acc acc\n"
        "mtp.0.attn forward: shift embedding rmsnorm rmsnorm concat linear rmsnorm linear rope rope "
        "attention linear residual_add\n"
        "mtp.0.mlp forward: rmsnorm linear swiglu linear residual_add\n"
        "mtp.0.mtp_post_process forward: rmsnorm\n"
        "mtp.0.post_process forward: shift shift linear cross_entropy masked_mean acc\n"
        "decoder.post_process forward: scale\n"
        "decoder.step step: fetch fetch fetch");
}

/* The streams come in before they are contracted, and each gets the projection of the embedding. */
static void test_mtp__ops_and_nodes_with_mhc(void **state)
{
    (void)state;
    model_outlined(
        SMALL, HYPER "mtp_num_layers: 1\n", BK_MODEL_TRAIN,
        "decoder.pre_process forward: feed embedding rope_table mhc_expand\n"
        "decoder.0.attn forward: mhc_map mhc_aggregate rmsnorm linear rope rope attention linear mhc_post\n"
        "decoder.0.mlp forward: mhc_map mhc_aggregate rmsnorm linear swiglu linear mhc_post mhc_contract "
        "rmsnorm\n"
        "decoder.post_process forward: feed feed feed linear cross_entropy masked_mean acc acc\n"
        "mtp.0.attn forward: shift embedding rmsnorm rmsnorm linear mhc_expand linear add_n mhc_map "
        "mhc_aggregate rmsnorm linear rope rope attention linear mhc_post\n"
        "mtp.0.mlp forward: mhc_map mhc_aggregate rmsnorm linear swiglu linear mhc_post\n"
        "mtp.0.mtp_post_process forward: mhc_contract rmsnorm\n"
        "mtp.0.post_process forward: shift shift linear cross_entropy masked_mean acc\n"
        "decoder.post_process forward: scale\n"
        "decoder.step step: fetch fetch fetch");
}

/* Without training there is none of it, neither ops nor parameters. */
static void test_mtp__exists_in_training_alone(void **state)
{
    (void)state;
    static const bk_model_mode modes[] = {BK_MODEL_EVALUATE, BK_MODEL_GENERATE};
    for (int k = 0; k < 2; k++) {
        model_fixture plain, f;
        bk_str text = {0}, other = {0};
        model_build_text(&plain, SMALL, HYPER, modes[k]);
        model_build_text(&f, SMALL, HYPER "mtp_num_layers: 2\n", modes[k]);
        model_outline(&text, f.g), model_outline(&other, plain.g);
        assert_string_equal(bk_str_text(&text), bk_str_text(&other));
        assert_int_equal(f.g->n_params, plain.g->n_params);
        bk_str_free(&text), bk_str_free(&other);
        model_free(&plain), model_free(&f);
    }
}

/* Tokens, labels and mask of depth k are the inputs moved by k, and not those of the depth before moved on.
 */
static void test_mtp__inputs_are_moved_by_the_depth(void **state)
{
    (void)state;
    enum { D = 3 };
    model_fixture f;
    model_build_text(&f, SMALL, "mtp_num_layers: 3\n", BK_MODEL_TRAIN);
    const bk_vid inputs[] = {f.io.tokens, f.io.labels, f.io.loss_mask};
    int n[D][3] = {{0}};
    for (int64_t i = 0; i < f.g->n_ops; i++) {
        const bk_op *op = &f.g->op[i];
        if (op->kind != BK_OP_shift) continue;
        const int64_t by = bk_attr_i(op, 0);
        assert_in_range(by, 1, D);
        assert_int_equal(op->tag.module, BK_MODULE_MTP);
        assert_int_equal(op->tag.layer, by - 1);
        for (int k = 0; k < 3; k++) n[by - 1][k] += bk_ins(f.g, op)[0] == inputs[k];
    }
    for (int d = 0; d < D; d++)
        for (int k = 0; k < 3; k++) assert_int_equal(n[d][k], 1);
    model_free(&f);
}

/* The weight is dealt among the depths, which share one seed; the embedding's table and the output layer are
 * the model's. */
static void test_mtp__losses(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, SMALL, "mtp_num_layers: 2\nmtp_loss_scaling_factor: 0.6\n", BK_MODEL_TRAIN);
    assert_int_equal(f.io.n_losses, 3);
    assert_float_equal(f.io.losses[0].coeff, 1, 0);
    assert_int_equal(f.io.losses[0].of, f.io.loss);
    assert_int_equal(f.io.losses[0].seed, f.io.loss_seed);
    for (int k = 1; k < 3; k++) assert_float_equal(f.io.losses[k].coeff, 0.3, 1e-15);
    assert_int_equal(f.io.losses[1].seed, f.io.losses[2].seed);
    assert_int_not_equal(f.io.losses[1].of, f.io.losses[2].of);
    int n_table = 0, n_output = 0;
    for (int64_t i = 0; i < f.g->n_ops; i++)
        for (int k = 0; k < f.g->op[i].n_in; k++) {
            const bk_vid v = bk_ins(f.g, &f.g->op[i])[k];
            n_table += v == model_param(f.g, "embedding.word_embeddings.weight")->value;
            n_output += v == model_param(f.g, "output_layer.weight")->value;
        }
    assert_int_equal(n_table, 3);
    assert_int_equal(n_output, 3);
    model_free(&f);
}

/* Every depth has a layer, or all the same. */
static void test_mtp__parameters(void **state)
{
    (void)state;
    static const char *const plain[] = {"enorm.weight", "hnorm.weight", "eh_proj.weight",
                                        "transformer_layer.self_attention.linear_qkv.weight",
                                        "final_layernorm.weight"};
    static const char *const hyper[] = {"enorm.weight",
                                        "hnorm.weight",
                                        "e_proj.weight",
                                        "h_proj.weight",
                                        "transformer_layer.mlp_hyper_connection.alpha_res",
                                        "hc_head_fn",
                                        "final_layernorm.weight"};
    for (int mhc = 0; mhc < 2; mhc++)
        for (int repeated = 0; repeated < 2; repeated++) {
            model_fixture f, none;
            const char *const *names = mhc ? hyper : plain;
            char more[256];
            snprintf(more, sizeof more, "%smtp_num_layers: 2\nmtp_use_repeated_layer: %s\n", mhc ? HYPER : "",
                     repeated ? "true" : "false");
            model_build_text(&f, SMALL, more, BK_MODEL_TRAIN);
            model_build_text(&none, SMALL, mhc ? HYPER : "", BK_MODEL_TRAIN);
            const int n_own = (int)(f.g->n_params - none.g->n_params);
            for (int k = 0; k < (mhc ? 7 : 5); k++)
                for (int layer = 0; layer < 2; layer++) {
                    char name[128];
                    snprintf(name, sizeof name, "mtp.layers.%d.%s", layer, names[k]);
                    assert_int_equal(model_param(f.g, name) != NULL, layer == 0 || !repeated);
                }
            /* Of a layer: two norms, four matrices, and with mHC two times five; around it three norms, a
             * projection, and with mHC another and the three of the contraction. */
            const int of_layer = mhc ? 6 + 10 + 3 + 2 + 3 : 6 + 3 + 1;
            assert_int_equal(n_own, repeated ? of_layer : 2 * of_layer);
            model_free(&f), model_free(&none);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mtp__ops_and_nodes),
        cmocka_unit_test(test_mtp__ops_and_nodes_with_mhc),
        cmocka_unit_test(test_mtp__exists_in_training_alone),
        cmocka_unit_test(test_mtp__inputs_are_moved_by_the_depth),
        cmocka_unit_test(test_mtp__losses),
        cmocka_unit_test(test_mtp__parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
