#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "config/moe_options.h"
#include "config_helpers.h"

/* Without seq_length. */
#define LONG "num_layers: 2\nhidden_size: 16\nnum_attention_heads: 4\nvocab_size: 96\nnum_experts: 65536\n"
#define MOE  SMALL "num_experts: 8\n"

static void test_rules_moe__a_token_has_distinct_experts(void **state)
{
    (void)state;
    assert_refused(MOE "moe_router_topk: 9\n", "moe_router_topk 9 (t.yaml:7)", "num_experts 8 (t.yaml:6)",
                   "lower it");
    assert_refused(SMALL "num_experts: 1\n", "moe_router_topk 2", "num_experts 1");
    assert_refused(MOE "moe_router_topk: 1\n", "moe_router_topk 1", "set moe_router_pre_softmax");
    bk_config c;
    assert_accepted(&c, MOE "moe_router_topk: 8\n");
    bk_config_free(&c);
    assert_accepted(&c, MOE "moe_router_topk: 1\nmoe_router_pre_softmax: true\n");
    bk_config_free(&c);
    assert_accepted(&c, MOE "moe_router_topk: 1\nmoe_router_score_function: sigmoid\n");
    bk_config_free(&c);
}

static void test_rules_moe__a_bias_needs_independent_scores(void **state)
{
    (void)state;
    assert_refused(MOE "moe_router_enable_expert_bias: true\n",
                   "moe_router_enable_expert_bias true (t.yaml:7)", "moe_router_score_function softmax",
                   "sigmoid");
}

static void test_rules_moe__groups_divide(void **state)
{
    (void)state;
    assert_refused(MOE "moe_router_num_groups: 4\n", "moe_router_num_groups 4", "moe_router_group_topk");
    assert_refused(MOE "moe_router_group_topk: 2\n", "moe_router_group_topk 2", "moe_router_num_groups");
    assert_refused(MOE "moe_router_num_groups: 3\nmoe_router_group_topk: 2\n", "num_experts 8",
                   "moe_router_num_groups 3", "multiple");
    assert_refused(MOE "moe_router_num_groups: 4\nmoe_router_group_topk: 5\n", "moe_router_group_topk 5",
                   "moe_router_num_groups 4", "lower it");
    assert_refused(MOE "moe_router_num_groups: 4\nmoe_router_group_topk: 1\nmoe_router_topk: 3\n",
                   "moe_router_topk 3", "moe_router_group_topk 1", "2 experts");
    assert_refused(MOE "moe_router_num_groups: 4\nmoe_router_group_topk: 3\n", "moe_router_topk 2",
                   "moe_router_group_topk 3");
    bk_config c;
    assert_accepted(&c, MOE "moe_router_num_groups: 4\nmoe_router_group_topk: 2\nmoe_router_topk: 4\n");
    bk_config_free(&c);
}

static void test_rules_moe__padding_and_gates_need_what_they_act_on(void **state)
{
    (void)state;
    assert_refused(MOE "moe_pad_expert_input_to_capacity: true\n", "moe_pad_expert_input_to_capacity true",
                   "moe_expert_capacity_factor");
    assert_refused(MOE "moe_shared_expert_gate: true\n", "moe_shared_expert_gate true",
                   "moe_shared_expert_intermediate_size");
}

static void test_rules_moe__capacities_that_overflow(void **state)
{
    (void)state;
    assert_refused(LONG "seq_length: 16777216\nmicro_batch_size: 128\n", "moe_router_topk 2",
                   "lower one of them");
    assert_refused(LONG "moe_ffn_hidden_size: 16777216\nseq_length: 16777216\n", "seq_length 16777216",
                   "2^48");
    assert_refused(LONG "moe_router_topk: 1\nmoe_router_pre_softmax: true\nseq_length: "
                        "65536\nmoe_expert_capacity_factor: 1e6\n"
                        "moe_pad_expert_input_to_capacity: true\n",
                   "moe_expert_capacity_factor 1e+06", "2^31 rows");
}

static void test_rules_moe__ranks_share_experts(void **state)
{
    (void)state;
    assert_refused(MOE "expert_model_parallel_size: 3\n", "num_experts 8", "expert_model_parallel_size 3",
                   "multiple");
    assert_refused(MOE "expert_model_parallel_size: 16\n", "expert_model_parallel_size 16");
    assert_refused(SMALL "expert_model_parallel_size: 2\n", "expert_model_parallel_size 2",
                   "needs num_experts");
    assert_refused(LONG "expert_model_parallel_size: 4096\nseq_length: 1048576\n",
                   "expert_model_parallel_size 4096", "lower one of them");
}

/* Layers with experts as text, "101". */
static void assert_layers(const char *freq, const char *expected)
{
    char text[256];
    const int n = (int)strlen(expected);
    bool has[16];
    bk_config c;
    snprintf(text, sizeof text, MOE "num_layers: %d\nmoe_layer_freq: %s\n", n, freq);
    char *second = strstr(text, "num_layers: 2\n"); /* the number of layers is given once */
    memmove(second, second + strlen("num_layers: 2\n"), strlen(second + strlen("num_layers: 2\n")) + 1);
    assert_accepted(&c, text);
    bk_err e;
    assert_int_equal(bk_config_moe_layers(has, &c, &e), BK_OK);
    for (int i = 0; i < n; i++) assert_int_equal(has[i], expected[i] == '1');
    bk_config_free(&c);
}

static void test_rules_moe__layers_by_number_list_or_expression(void **state)
{
    (void)state;
    assert_layers("1", "1111");
    assert_layers("2", "10101");
    assert_layers("9", "100");
    assert_layers("[1, 0]", "10");
    assert_layers("[0]", "0");
    assert_layers("[1]", "1");
    assert_layers("([0]*1+[1]*3)", "0111");
    assert_layers("'[0]*2+[1]'", "001");
    assert_layers("'([0, 1] * 2 + [1]) * 2'", "0101101011");
    assert_layers("'[1]*0+[0]*2'", "00");
}

static void test_rules_moe__patterns_that_are_none(void **state)
{
    (void)state;
    assert_refused(MOE "moe_layer_freq: [1, 0, 1]\n", "moe_layer_freq", "(t.yaml:7)", "too many entries",
                   "num_layers 2 (t.yaml:1)");
    assert_refused(MOE "moe_layer_freq: ([1]*3)\n", "too many entries");
    assert_refused(MOE "moe_layer_freq: ([1]*999999999999999999999)\n", "too many entries");
    assert_refused(MOE "moe_layer_freq: ([1])\n", "too few entries");
    assert_refused(MOE "moe_layer_freq: 0\n", "too few entries");
    const char *const bad[] = {
        "-1",     "two",       "[0, 2]",   "([0]*)", "'([0]+[1]'",
        "'[0]+'", "'[0] [1]'", "'[0]*2)'", "1.5",    "'((((((((((((((((((((((((((((((((((((((((([0]'"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, MOE "moe_layer_freq: %s\n", bad[i]);
        assert_refused(text, "moe_layer_freq", "neither a number above 0 nor a pattern");
    }
}

static void test_rules_moe__balancing_losses_and_their_coefficients(void **state)
{
    (void)state;
    bk_config c;
    bk_balance b[BK_N_BALANCES];
    bk_err e;
    int n;
    assert_accepted(&c, MOE "moe_aux_loss_coeff: 0.01\n");
    assert_int_equal(bk_config_balances(b, &n, &c, &e), BK_OK);
    assert_int_equal(n, 1);
    assert_int_equal(b[0].kind, BK_BALANCE_MICRO_BATCH);
    assert_true(b[0].coeff == 0.01);
    bk_config_free(&c);
    assert_accepted(&c, MOE "moe_router_load_balancing_type: [global_aux_loss, aux_loss, seq_aux_loss]\n"
                            "moe_aux_loss_coeff: [0.5, 0, 1e-4]\n");
    assert_int_equal(bk_config_balances(b, &n, &c, &e), BK_OK);
    assert_int_equal(n, 2); /* a coefficient of 0 is the same as none */
    assert_int_equal(b[0].kind, BK_BALANCE_GLOBAL);
    assert_int_equal(b[1].kind, BK_BALANCE_SEQUENCE);
    assert_true(b[1].coeff == 1e-4);
    bk_config_free(&c);
    assert_accepted(&c, MOE "moe_router_load_balancing_type: none\nmoe_aux_loss_coeff: 0.1\n");
    assert_int_equal(bk_config_balances(b, &n, &c, &e), BK_OK);
    assert_int_equal(n, 0);
    bk_config_free(&c);
    assert_refused(MOE "moe_router_load_balancing_type: sinkhorn\n", "'sinkhorn' is not a balancing loss");
    assert_refused(MOE "moe_router_load_balancing_type: [aux_loss, aux_loss]\n", "'aux_loss' is repeated");
    assert_refused(MOE "moe_aux_loss_coeff: [0.1, 0.2]\n", "moe_aux_loss_coeff", "different lengths");
    assert_refused(MOE "moe_aux_loss_coeff: -1\n", "moe_aux_loss_coeff",
                   "'-1' is not a number of at least 0");
    assert_refused(MOE "moe_aux_loss_coeff: nan\n", "is not a number of at least 0");
}

static void test_rules_moe__capacity_is_rounded_up_and_within_the_tokens(void **state)
{
    (void)state;
    const struct {
        const char *factor;
        int64_t rows;
    } cases[] = {{"1.0", 6}, {"1.01", 7}, {"0.01", 1}, {"3", 18}, {"100", 24}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        bk_config c;
        snprintf(text, sizeof text, MOE "moe_expert_capacity_factor: %s\n", cases[i].factor);
        assert_accepted(&c, text);
        assert_int_equal(bk_config_expert_capacity(&c), cases[i].rows);
        bk_config_free(&c);
    }
}

static void test_rules_moe__values_out_of_range(void **state)
{
    (void)state;
    assert_refused(SMALL "num_experts: 65537\n", "num_experts must be at least 0 and at most 65536", "65537");
    assert_refused(MOE "moe_router_topk: 0\n", "moe_router_topk must be at least 1");
    assert_refused(MOE "moe_router_num_groups: 0\n", "moe_router_num_groups must be at least 1");
    assert_refused(MOE "moe_ffn_hidden_size: 0\n", "moe_ffn_hidden_size must be at least 1");
    assert_refused(MOE "moe_shared_expert_intermediate_size: -1\n", "must be at least 0");
    assert_refused(MOE "moe_z_loss_coeff: -0.1\n", "moe_z_loss_coeff must be at least 0");
    assert_refused(MOE "moe_router_bias_update_rate: -1\n", "moe_router_bias_update_rate must be at least 0");
    assert_refused(MOE "moe_expert_capacity_factor: 0\n", "moe_expert_capacity_factor must be above 0");
    assert_refused(MOE "moe_expert_capacity_factor: .nan\n", "moe_expert_capacity_factor", "number");
    assert_refused(MOE "moe_router_score_function: relu\n", "moe_router_score_function", "relu", "sigmoid");
}

/* Without experts nothing is said about them, so options that describe them may stand in a file. */
static void test_rules_moe__hold_where_there_are_experts(void **state)
{
    (void)state;
    bk_config c;
    assert_accepted(&c, SMALL "num_experts: 0\nmoe_router_topk: 9\nmoe_layer_freq: [1, 0, 1]\n");
    bk_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_moe__a_token_has_distinct_experts),
        cmocka_unit_test(test_rules_moe__a_bias_needs_independent_scores),
        cmocka_unit_test(test_rules_moe__groups_divide),
        cmocka_unit_test(test_rules_moe__padding_and_gates_need_what_they_act_on),
        cmocka_unit_test(test_rules_moe__ranks_share_experts),
        cmocka_unit_test(test_rules_moe__capacities_that_overflow),
        cmocka_unit_test(test_rules_moe__layers_by_number_list_or_expression),
        cmocka_unit_test(test_rules_moe__patterns_that_are_none),
        cmocka_unit_test(test_rules_moe__balancing_losses_and_their_coefficients),
        cmocka_unit_test(test_rules_moe__capacity_is_rounded_up_and_within_the_tokens),
        cmocka_unit_test(test_rules_moe__values_out_of_range),
        cmocka_unit_test(test_rules_moe__hold_where_there_are_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
