#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "config_helpers.h"

#define MLA SMALL "multi_latent_attention: true\n"

static void test_rules_mla__options_have_their_switch(void **state)
{
    (void)state;
    assert_refused(SMALL "qk_layernorm: true\n", "qk_layernorm true (t.yaml:6)",
                   "without multi_latent_attention", "not built");
    assert_refused(SMALL "q_lora_rank: 8\nmla_down_proj_fusion: true\n",
                   "mla_down_proj_fusion true (t.yaml:7)", "without multi_latent_attention");
    bk_config c;
    assert_accepted(&c, SMALL "kv_lora_rank: 8\nqk_head_dim: 16\n"); /* a Megatron file has them anyway */
    bk_config_free(&c);
}

static void test_rules_mla__every_head_has_its_key(void **state)
{
    (void)state;
    assert_refused(MLA "num_query_groups: 2\n", "num_query_groups 2 (t.yaml:7)",
                   "multi_latent_attention true (t.yaml:6)", "drop it");
    bk_config c;
    assert_accepted(&c, MLA "num_query_groups: 4\n");
    bk_config_free(&c);
}

static void test_rules_mla__fusion_needs_a_query_latent(void **state)
{
    (void)state;
    assert_refused(MLA "mla_down_proj_fusion: true\n", "mla_down_proj_fusion true (t.yaml:7)",
                   "needs q_lora_rank");
    bk_config c;
    assert_accepted(&c, MLA "mla_down_proj_fusion: true\nq_lora_rank: 8\n");
    bk_config_free(&c);
}

static void test_rules_mla__rotation_is_its_own(void **state)
{
    (void)state;
    assert_refused(MLA "rotary_interleaved: true\n", "rotary_interleaved true (t.yaml:7)",
                   "multi_latent_attention true");
    assert_refused(MLA "rotary_percent: 0.5\n", "rotary_percent 0.5 (t.yaml:7)", "qk_pos_emb_head_dim");
    assert_refused(MLA "qk_pos_emb_head_dim: 7\n", "qk_pos_emb_head_dim 7 (t.yaml:7)", "make it even");
}

static void test_rules_mla__yarn_is_sound(void **state)
{
    (void)state;
    assert_refused(MLA "beta_fast: 1\nbeta_slow: 2\n", "beta_fast 1 (t.yaml:7)", "beta_slow 2 (t.yaml:8)",
                   "exchange them");
    assert_refused(MLA "rotary_base: 1\n", "rotary_base 1 (t.yaml:7)", "rope_type yarn", "raise it");
    bk_config c;
    assert_accepted(&c, MLA "rope_type: rope\nrotary_base: 1\nbeta_fast: 1\nbeta_slow: 2\n");
    bk_config_free(&c);
    assert_accepted(&c, MLA "beta_fast: 2\nbeta_slow: 2\n");
    bk_config_free(&c);
}

static void test_rules_mla__tensors_fit(void **state)
{
    (void)state;
    assert_refused(MLA "micro_batch_size: 1048576\nqk_head_dim: 16777216\n", "num_attention_heads 4",
                   "qk_head_dim 16777216 (t.yaml:8)", "2^48 elements");
    assert_refused(MLA "kv_lora_rank: 16777216\nv_head_dim: 8388608\n", "v_head_dim 8388608",
                   "2^48 elements");
}

/* Heads need not fill the width, as nothing has it but the output projection. */
static void test_rules_mla__heads_have_widths_of_their_own(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, MLA "num_query_groups: 0\nqk_head_dim: 24\nqk_pos_emb_head_dim: 8\n");
    assert_int_equal(c.kv_channels, 32);
    bk_config_free(&c);
    assert_accepted(&c,
                    "num_layers: 2\nhidden_size: 16\nnum_attention_heads: 3\nseq_length: 8\nvocab_size: 96\n"
                    "multi_latent_attention: true\nposition_embedding_type: rope\n");
    assert_int_equal(c.kv_lora_rank, 32);
    assert_int_equal(c.q_lora_rank, BK_UNSET_COUNT);
    assert_int_equal(c.rope_type, BK_ROPE_YARN);
    bk_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_mla__options_have_their_switch),
        cmocka_unit_test(test_rules_mla__every_head_has_its_key),
        cmocka_unit_test(test_rules_mla__fusion_needs_a_query_latent),
        cmocka_unit_test(test_rules_mla__rotation_is_its_own),
        cmocka_unit_test(test_rules_mla__yarn_is_sound),
        cmocka_unit_test(test_rules_mla__tensors_fit),
        cmocka_unit_test(test_rules_mla__heads_have_widths_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
