/* The configurations that come with the program: each is accepted, and has the size that its comment says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model_fixture.h"

static void build(model_fixture *f, const char *path)
{
    bk_err e = {0};
    *f = (model_fixture){0};
    bk_config_init(&f->c);
    if (bk_config_read_yaml(&f->c, path, &e) != BK_OK) fail_msg("%s", e.msg);
    model_build_read(f, BK_MODEL_TRAIN);
}

static void test_configs__tiny(void **state)
{
    (void)state;
    model_fixture f;
    build(&f, BK_SOURCE_DIR "/configs/tiny.yaml");
    /* Of every layer: the latent projections and their norms, the output, two norms, two hyper-connections.
     */
    const int64_t attention = 128 * 64 + 64 * 4 * 48 + 128 * 48 + 32 * 4 * 64 + 64 + 32 + 128 * 128;
    const int64_t both = attention + 2 * 128 + 2 * (24 * 512 + 24 + 3);
    const int64_t dense = 3 * 128 * 320, sparse = 8 * 128 + 9 * 3 * 128 * 96;
    const int64_t end =
        4 * 512 + 4 + 1 + 128; /* contraction and norm, of the decoder and of the further depth */
    assert_int_equal(model_param_elements(f.g),
                     2 * 257 * 128 + 4 * both + dense + 3 * sparse + 2 * end + 2 * 128 * 128 + 2 * 128);
    assert_int_equal(f.io.samples, BK_NONE);
    assert_int_equal(f.l.n_micro, 1);
    model_free(&f);
}

static void test_configs__gpt2_124m(void **state)
{
    (void)state;
    model_fixture f;
    build(&f, BK_SOURCE_DIR "/configs/gpt2_124m.yaml");
    assert_int_equal(model_param_elements(f.g), 124439808 + 47 * 768);
    assert_int_equal(f.l.n_micro, 128);
    model_free(&f);
}

static void test_configs__moe_dense_ends(void **state)
{
    (void)state;
    model_fixture f;
    build(&f, BK_SOURCE_DIR "/configs/moe_dense_ends.yaml");
    /* As tiny.yaml, with four layers whose feed-forward is a router, eight experts and one for every token.
     */
    const int64_t both = 4 * 128 * 128 + 2 * 128 + 2 * (24 * 512 + 24 + 3);
    const int64_t dense = 3 * 128 * 320, sparse = 8 * 128 + 9 * 3 * 128 * 128;
    assert_int_equal(model_param_elements(f.g),
                     2 * 257 * 128 + 6 * both + 2 * dense + 4 * sparse + 4 * 512 + 4 + 1 + 128);
    model_free(&f);
}

/* One of 64 ranks: four experts of each layer, and a stage of multi-token prediction. */
static void test_configs__deepseek_v3_mhc(void **state)
{
    (void)state;
    model_fixture f;
    build(&f, BK_SOURCE_DIR "/configs/deepseek_v3_mhc.yaml");
    assert_int_equal(f.l.n_local_experts, 4);
    assert_int_equal(f.l.n_micro, 64);
    assert_int_equal(f.io.n_biases, 59);
    assert_null(model_param(f.g, "decoder.layers.2.mlp.router.weight"));
    assert_non_null(model_param(f.g, "decoder.layers.3.mlp.experts.local_experts.3.linear_fc1.weight"));
    assert_null(model_param(f.g, "decoder.layers.3.mlp.experts.local_experts.4.linear_fc1.weight"));
    assert_non_null(model_param(f.g, "mtp.layers.0.transformer_layer.mlp.router.weight"));
    model_free(&f);
}

static void test_configs__gpt2_124m_mhc(void **state)
{
    (void)state;
    model_fixture f;
    build(&f, BK_SOURCE_DIR "/configs/gpt2_124m_mhc.yaml");
    /* The published 124,439,808, 47 rows of padding, and the hyper-connections. */
    assert_int_equal(model_param_elements(f.g),
                     124439808 + 47 * 768 + 24 * (24 * 3072 + 24 + 3) + 4 * 3072 + 4 + 1);
    assert_int_equal(f.c.activation, BK_ACT_GELU_TANH);
    assert_int_equal(f.l.n_micro, 128);
    model_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configs__tiny),
        cmocka_unit_test(test_configs__gpt2_124m),
        cmocka_unit_test(test_configs__gpt2_124m_mhc),
        cmocka_unit_test(test_configs__moe_dense_ends),
        cmocka_unit_test(test_configs__deepseek_v3_mhc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
