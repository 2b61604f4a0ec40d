#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "ir/verify.h"
#include "model_fixture.h"
#include "passes/passes.h"

#define SMALL                                                                                                \
    "num_layers: 2\nhidden_size: 8\nnum_attention_heads: 4\nkv_channels: 6\nffn_hidden_size: 16\n"           \
    "seq_length: 5\nmicro_batch_size: 3\nvocab_size: 11\nmake_vocab_size_divisible_by: 4\n"                  \
    "normalization: RMSNorm\nposition_embedding_type: rope\nadd_bias_linear: false\nswiglu: true\n"          \
    "untie_embeddings_and_output_weights: true\nhidden_dropout: 0\nattention_dropout: 0\n"
#define HYPER "enable_mhc_connections: true\nmhc_num_residual_streams: 3\n"
#define GPT2_LIKE                                                                                            \
    "num_layers: 2\nhidden_size: 8\nnum_attention_heads: 2\nseq_length: 5\nmax_position_embeddings: 7\n"     \
    "vocab_size: 11\nmicro_batch_size: 2\nhidden_dropout: 0.25\nattention_dropout: 0.125\n"

static void test_model__ops_and_nodes_with_mhc(void **state)
{
    (void)state;
    model_outlined(
        SMALL, HYPER, BK_MODEL_TRAIN,
        "decoder.pre_process forward: feed embedding rope_table mhc_expand\n"
        "decoder.0.attn forward: mhc_map mhc_aggregate rmsnorm linear rope rope attention linear mhc_post\n"
        "decoder.0.mlp forward: mhc_map mhc_aggregate rmsnorm linear swiglu linear mhc_post\n"
        "decoder.1.attn forward: mhc_map mhc_aggregate rmsnorm linear rope rope attention linear mhc_post\n"
        "decoder.1.mlp forward: mhc_map mhc_aggregate rmsnorm linear swiglu linear mhc_post mhc_contract "
        "rmsnorm\n"
        "decoder.post_process forward: feed feed feed linear cross_entropy masked_mean acc acc\n"
        "decoder.step step: fetch fetch");
}

static void test_model__ops_and_nodes_without_mhc(void **state)
{
    (void)state;
    model_outlined(SMALL, "", BK_MODEL_EVALUATE,
                   "decoder.pre_process forward: feed embedding rope_table\n"
                   "decoder.0.attn forward: rmsnorm linear rope rope attention linear residual_add\n"
                   "decoder.0.mlp forward: rmsnorm linear swiglu linear residual_add\n"
                   "decoder.1.attn forward: rmsnorm linear rope rope attention linear residual_add\n"
                   "decoder.1.mlp forward: rmsnorm linear swiglu linear residual_add rmsnorm\n"
                   "decoder.post_process forward: feed feed linear cross_entropy masked_mean acc acc\n"
                   "decoder.step step: fetch fetch");
}

static void test_model__ops_and_nodes_of_gpt2(void **state)
{
    (void)state;
    model_outlined(GPT2_LIKE, "num_layers: 1\n", BK_MODEL_TRAIN,
                   "decoder.pre_process forward: feed feed embedding add_pos dropout\n"
                   "decoder.0.attn forward: layernorm linear attention linear residual_add\n"
                   "decoder.0.mlp forward: layernorm linear gelu linear residual_add layernorm\n"
                   "decoder.post_process forward: feed feed feed linear cross_entropy masked_mean acc acc\n"
                   "decoder.step step: fetch fetch");
}

/* p and site of an op that may drop out; false for the other kinds. */
static bool dropout_of(double *p, int64_t *site, const bk_op *op)
{
    const int at = bk_attr_index((bk_op_kind)op->kind, "p", NULL);
    if (at == BK_NONE) return false;
    *p = bk_attr_f(op, at), *site = bk_attr_i(op, bk_attr_index((bk_op_kind)op->kind, "site", NULL));
    return true;
}

static void test_model__dropout_in_training(void **state)
{
    (void)state;
    for (int hyper = 0; hyper < 2; hyper++) {
        model_fixture f;
        model_build_text(&f, GPT2_LIKE, hyper ? HYPER : "", BK_MODEL_TRAIN);
        assert_int_not_equal(f.io.samples, BK_NONE);
        int n[4] = {0};
        for (int64_t i = 0; i < f.g->n_ops; i++) {
            const bk_op *op = &f.g->op[i];
            double p;
            int64_t site;
            if (!dropout_of(&p, &site, op)) continue;
            n[site]++;
            assert_float_equal(p, site == BK_SITE_ATTENTION_PROBS ? 0.125 : 0.25, 0);
            assert_int_equal(op->attr[bk_attr_index((bk_op_kind)op->kind, "seed", NULL)].i, 1234);
            assert_int_equal(bk_ins(f.g, op)[op->n_in - 1], f.io.samples);
        }
        assert_int_equal(n[BK_SITE_EMBEDDING], 1);
        for (int s = BK_SITE_ATTENTION_PROBS; s <= BK_SITE_MLP_OUT; s++) assert_int_equal(n[s], 2);
        model_free(&f);
    }
}

static void test_model__nothing_dropped_in_evaluation(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, GPT2_LIKE, "", BK_MODEL_EVALUATE);
    assert_int_equal(f.io.samples, BK_NONE);
    assert_int_equal(f.io.loss_seed, BK_NONE);
    assert_int_equal(bk_value_find(f.g, BK_INPUT, "samples"), BK_NONE);
    int n_with_p = 0;
    for (int64_t i = 0; i < f.g->n_ops; i++) {
        double p;
        int64_t site;
        assert_int_not_equal(f.g->op[i].kind, BK_OP_dropout);
        if (!dropout_of(&p, &site, &f.g->op[i])) continue;
        assert_float_equal(p, 0, 0);
        n_with_p++;
    }
    assert_int_equal(n_with_p, 6);
    model_free(&f);
}

static void test_model__no_samples_without_dropout(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, SMALL, "", BK_MODEL_TRAIN);
    assert_int_equal(f.io.samples, BK_NONE);
    model_free(&f);
    /* Attention alone drops out. */
    model_build_text(&f, SMALL, "attention_dropout: 0.1\n", BK_MODEL_TRAIN);
    assert_int_not_equal(f.io.samples, BK_NONE);
    model_free(&f);
}

static void assert_dims(const bk_graph *g, bk_vid v, int rank, const int64_t *dim)
{
    assert_int_equal(g->value[v].rank, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(g->value[v].dim[d].size, dim[d]);
}

static void test_model__values_for_others(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, SMALL, HYPER, BK_MODEL_TRAIN);
    const bk_graph *g = f.g;
    const bk_model_io *io = &f.io;
    assert_int_equal(io->tokens, bk_value_find(g, BK_INPUT, "tokens"));
    assert_int_equal(io->labels, bk_value_find(g, BK_INPUT, "labels"));
    assert_int_equal(io->loss_mask, bk_value_find(g, BK_INPUT, "loss_mask"));
    assert_int_equal(io->loss_seed, bk_value_find(g, BK_INPUT, "loss_seed"));
    assert_int_equal(io->loss_sum, bk_value_find(g, BK_STATE, "metric.sum.loss_sum"));
    assert_int_equal(io->n_tokens, bk_value_find(g, BK_STATE, "metric.sum.n_tokens"));
    assert_dims(g, io->tokens, 2, (const int64_t[]){3, 5});
    assert_dims(g, io->token_loss, 2, (const int64_t[]){3, 5});
    assert_dims(g, io->loss, 1, (const int64_t[]){1});
    assert_dims(g, io->logits, 3, (const int64_t[]){5, 3, 12}); /* 11 tokens, padded to a multiple of 4 */
    assert_dims(g, io->hidden, 3, (const int64_t[]){5, 3, 8});
    assert_int_equal(io->n_layers, 2);
    for (int i = 0; i < 2; i++) assert_dims(g, io->layer_out[i], 4, (const int64_t[]){5, 3, 3, 8});
    assert_string_equal(g->value[io->layer_out[1]].name, "decoder.1.mlp.out");
    assert_int_equal(g->value[io->tokens].scope, BK_MICRO);
    assert_int_equal(g->value[io->loss].scope, BK_MICRO);
    assert_int_equal(g->value[io->loss_seed].scope, BK_STEP);
    assert_int_equal(g->value[io->loss_sum].scope, BK_STEP);
    assert_int_equal(g->value[io->loss_sum].param, BK_NONE);
    model_free(&f);
}

static int64_t find_op(const bk_graph *g, bk_op_kind kind, int64_t from)
{
    while (from < g->n_ops && g->op[from].kind != kind) from++;
    return from;
}

/* 4 query heads in 2 groups of 6 dims: rows of 48, groups of 24 (q q k v). */
static void test_model__queries_keys_values_are_views(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, SMALL, "num_query_groups: 2\nposition_embedding_type: none\n", BK_MODEL_TRAIN);
    const bk_graph *g = f.g;
    const bk_op *attention = &g->op[find_op(g, BK_OP_attention, 0)];
    const bk_vid *in = bk_ins(g, attention);
    const int64_t q_dims[] = {5, 3, 2, 2, 6}, q_strides[] = {144, 48, 24, 6, 1};
    const int64_t kv_dims[] = {5, 3, 2, 6}, kv_strides[] = {144, 48, 24, 1};
    assert_dims(g, in[0], 5, q_dims);
    assert_dims(g, in[1], 4, kv_dims);
    assert_dims(g, in[2], 4, kv_dims);
    for (int d = 0; d < 5; d++) assert_int_equal(g->value[in[0]].stride[d], q_strides[d]);
    for (int k = 1; k < 3; k++)
        for (int d = 0; d < 4; d++) assert_int_equal(g->value[in[k]].stride[d], kv_strides[d]);
    assert_int_equal(g->value[in[0]].offset, 0);
    assert_int_equal(g->value[in[1]].offset, 12);
    assert_int_equal(g->value[in[2]].offset, 18);
    for (int k = 0; k < 3; k++)
        assert_string_equal(g->value[g->value[in[k]].base].name, "decoder.0.attn.qkv");
    assert_float_equal(bk_attr_f(attention, 0), 1 / sqrtf(6), 1e-7);
    model_free(&f);
}

static void test_model__rope_table_is_made_once_a_step(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, SMALL, "rotary_percent: 0.67\nrotary_base: 500\nrotary_interleaved: true\n",
                     BK_MODEL_TRAIN);
    const bk_graph *g = f.g;
    const int64_t at = find_op(g, BK_OP_rope_table, 0);
    const bk_op *table = &g->op[at];
    assert_int_equal(table->scope, BK_STEP);
    assert_dims(g, bk_outs(g, table)[0], 2, (const int64_t[]){5, 2}); /* floor(6 * 0.67) = 4 dims, in pairs */
    assert_float_equal(bk_attr_f(table, 2), 500, 0);
    assert_int_equal(find_op(g, BK_OP_rope_table, at + 1), g->n_ops);
    assert_int_equal(bk_attr_i(&g->op[find_op(g, BK_OP_rope, 0)], 0), 1);
    model_free(&f);
}

static void test_model__tied_output_uses_the_embedding(void **state)
{
    (void)state;
    model_fixture f;
    model_build_text(&f, GPT2_LIKE, "", BK_MODEL_TRAIN);
    const bk_param *words = model_param(f.g, "embedding.word_embeddings.weight");
    assert_non_null(words);
    assert_null(model_param(f.g, "output_layer.weight"));
    assert_int_equal(words->shape[0], 128);
    int n_uses = 0;
    for (int64_t i = 0; i < f.g->n_ops; i++)
        for (int k = 0; k < f.g->op[i].n_in; k++) n_uses += bk_ins(f.g, &f.g->op[i])[k] == words->value;
    assert_int_equal(n_uses, 2);
    model_free(&f);
}

/* The biases of the two projections that end a sublayer are added on the residual path, all others by their
 * linear. */
static void test_model__where_biases_are_added(void **state)
{
    (void)state;
    for (int hyper = 0; hyper < 2; hyper++) {
        model_fixture f;
        model_build_text(&f, GPT2_LIKE, hyper ? HYPER : "", BK_MODEL_EVALUATE);
        const bk_graph *g = f.g;
        for (int64_t i = 0; i < g->n_ops; i++) {
            const bk_op *op = &g->op[i];
            if (op->kind == BK_OP_linear) {
                const char *name = g->value[bk_outs(g, op)[0]].name;
                const bool has_bias = strstr(name, "qkv") || strstr(name, "fc1");
                assert_int_equal(op->n_in, has_bias ? 3 : 2);
            } else if (op->kind == BK_OP_residual_add || op->kind == BK_OP_mhc_post) {
                const bk_value *bias = &g->value[bk_ins(g, op)[op->n_in - 1]];
                assert_non_null(strstr(bias->name, op->tag.node == BK_NODE_ATTN ? "linear_proj.bias"
                                                                                : "linear_fc2.bias"));
            }
        }
        model_free(&f);
    }
}

/* One term for each use: all parameters have one, a tied embedding two. */
static void test_model__gradient_reaches_every_parameter(void **state)
{
    (void)state;
    static const char *const configs[] = {SMALL, SMALL HYPER, GPT2_LIKE, GPT2_LIKE HYPER};
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
        model_fixture f;
        bk_err e = {0};
        model_build_text(&f, configs[k], "", BK_MODEL_TRAIN);
        const bk_seed seed = {f.io.loss, f.io.loss_seed};
        if (bk_pass_autodiff(f.g, &seed, 1, &e) != BK_OK || bk_graph_verify(f.g, &e) != BK_OK)
            fail_msg("%s", e.msg);
        for (int64_t i = 0; i < f.g->n_params; i++) assert_int_not_equal(f.g->param[i].grad, BK_NONE);
        assert_int_equal(f.g->n_terms, f.g->n_params + (f.c.untie_embeddings_and_output_weights ? 0 : 1));
        model_free(&f);
    }
}

static void test_model__probes_fetch_in_each_micro_batch(void **state)
{
    (void)state;
    model_fixture f;
    bk_err e = {0};
    bk_vid v;
    model_build_text(&f, SMALL, "", BK_MODEL_TRAIN);
    assert_int_equal(bk_model_probe(&v, f.g, &f.io, "act.layer1", &e), BK_OK);
    assert_int_equal(v, f.io.layer_out[1]);
    const bk_op *op = &f.g->op[f.g->n_ops - 1];
    assert_int_equal(op->kind, BK_OP_fetch);
    assert_int_equal(op->scope, BK_MICRO);
    assert_int_equal(bk_ins(f.g, op)[0], v);
    assert_int_equal(bk_model_probe(&v, f.g, &f.io, "out.token_loss", &e), BK_OK);
    assert_int_equal(v, f.io.token_loss);
    const int64_t n_ops = f.g->n_ops;
    static const char *const unknown[] = {
        "act.layer2", "act.layer-1", "act.layer", "act.layer1x", "act.layer18446744073709551616", "loss"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(bk_model_probe(&v, f.g, &f.io, unknown[i], &e), BK_E_INPUT);
        assert_non_null(strstr(e.msg, "act.layer0 to act.layer1"));
    }
    assert_int_equal(f.g->n_ops, n_ops);
    model_free(&f);
}

static void test_model__too_many_layers(void **state)
{
    (void)state;
    bk_config c;
    bk_layout l;
    bk_graph *g;
    bk_model_io io;
    bk_err e = {0};
    bk_config_init(&c);
    static const char text[] = SMALL;
    assert_int_equal(bk_config_read_yaml_memory(&c, text, strlen(text), "small", &e), BK_OK);
    assert_int_equal(bk_config_set(&c, "num_layers", "32768", NULL, &e), BK_OK);
    assert_int_equal(bk_config_resolve(&c, &e), BK_OK);
    assert_int_equal(bk_layout_resolve(&l, &c, 1, &e), BK_OK);
    assert_int_equal(bk_graph_new(&g, BK_F32, &e), BK_OK);
    assert_int_equal(bk_model_build(&io, g, &c, &l, BK_MODEL_TRAIN, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "num_layers 32768"));
    bk_graph_free(g);
    bk_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model__ops_and_nodes_with_mhc),
        cmocka_unit_test(test_model__ops_and_nodes_without_mhc),
        cmocka_unit_test(test_model__ops_and_nodes_of_gpt2),
        cmocka_unit_test(test_model__dropout_in_training),
        cmocka_unit_test(test_model__nothing_dropped_in_evaluation),
        cmocka_unit_test(test_model__no_samples_without_dropout),
        cmocka_unit_test(test_model__values_for_others),
        cmocka_unit_test(test_model__queries_keys_values_are_views),
        cmocka_unit_test(test_model__rope_table_is_made_once_a_step),
        cmocka_unit_test(test_model__tied_output_uses_the_embedding),
        cmocka_unit_test(test_model__where_biases_are_added),
        cmocka_unit_test(test_model__gradient_reaches_every_parameter),
        cmocka_unit_test(test_model__probes_fetch_in_each_micro_batch),
        cmocka_unit_test(test_model__too_many_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
