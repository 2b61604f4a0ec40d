#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "layout/layout.h"

static void set(bk_config *c, const char *name, const char *value)
{
    bk_err e = {0};
    if (bk_config_set(c, name, value, "test", &e) != BK_OK) fail_msg("%s", e.msg);
}

/* A resolved configuration with the two batch sizes. */
static void config_of(bk_config *c, const char *micro, const char *global)
{
    bk_err e = {0};
    bk_config_init(c);
    set(c, "num_layers", "1"), set(c, "hidden_size", "8"), set(c, "num_attention_heads", "2");
    set(c, "seq_length", "16"), set(c, "vocab_size", "7");
    if (micro) set(c, "micro_batch_size", micro);
    if (global) set(c, "global_batch_size", global);
    if (bk_config_resolve(c, &e) != BK_OK) fail_msg("%s", e.msg);
}

static void test_layout__micro_batches_of_a_step(void **state)
{
    (void)state;
    const struct {
        const char *micro, *global;
        int64_t n_micro;
    } cases[] = {{"3", "12", 4}, {"4", "4", 1}, {"2", NULL, 1}, {NULL, "5", 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bk_config c;
        bk_layout l;
        bk_err e = {0};
        config_of(&c, cases[i].micro, cases[i].global);
        assert_int_equal(bk_layout_resolve(&l, &c, 1, &e), BK_OK);
        assert_int_equal(l.n_micro, cases[i].n_micro);
        assert_int_equal(l.micro_batch, c.micro_batch_size);
        assert_int_equal(l.global_batch, c.global_batch_size);
        assert_int_equal(l.seq, 16);
        assert_int_equal(l.n_ranks, 1);
        assert_int_equal(l.n_stages, 1);
        assert_int_equal(l.n_chunks, 1);
        for (int a = 0; a < BK_N_AXES; a++) assert_int_equal(l.axis_size[a], 1);
        bk_config_free(&c);
    }
}

/* The rules of the configuration refuse this too; the layout does not rely on them. */
static void test_layout__batch_that_does_not_divide(void **state)
{
    (void)state;
    bk_config c;
    bk_layout l;
    bk_err e = {0};
    config_of(&c, "4", "8");
    c.global_batch_size = 10;
    assert_int_equal(bk_layout_resolve(&l, &c, 1, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "global_batch_size 10"));
    assert_non_null(strstr(e.msg, "micro_batch_size 4"));
    bk_config_free(&c);
}

static void test_layout__one_rank_alone(void **state)
{
    (void)state;
    bk_config c;
    bk_layout l = {.seq = -1};
    bk_err e = {0};
    config_of(&c, "1", "4");
    assert_int_equal(bk_layout_resolve(&l, &c, 2, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "2 ranks"));
    assert_int_equal(l.seq, -1);
    bk_config_free(&c);
}

/* Rows of routed tokens with ranks that share 8 experts, of which a token uses 3. */
static void test_layout__shares_of_experts(void **state)
{
    (void)state;
    static const struct {
        const char *ranks, *headroom, *capacity, *pad;
        int64_t n_local, n_micro, sent, most, routed;
    } cases[] = {
        {"1", "2", NULL, "false", 8, 8, 96, 96, 96}, /* everything comes, whatever the headroom */
        {"2", "1", NULL, "false", 4, 4, 96, 192, 96},    {"4", "2", NULL, "false", 2, 2, 96, 256, 192},
        {"4", "1.01", NULL, "false", 2, 2, 96, 256, 97}, {"8", "3", NULL, "false", 1, 1, 96, 256, 256},
        {"4", "2", "0.5", "false", 2, 2, 48, 48, 48}, /* 6 rows of each expert and rank */
        {"4", "2", "2", "true", 2, 2, 192, 192, 192},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bk_config c;
        bk_layout l;
        bk_err e = {0};
        bk_config_init(&c);
        set(&c, "num_layers", "1"), set(&c, "hidden_size", "8"), set(&c, "num_attention_heads", "2");
        set(&c, "seq_length", "16"), set(&c, "vocab_size", "7"), set(&c, "num_experts", "8");
        set(&c, "moe_router_topk", "3"), set(&c, "micro_batch_size", "2"), set(&c, "global_batch_size", "16");
        set(&c, "expert_model_parallel_size", cases[i].ranks);
        set(&c, "moe_capacity_headroom", cases[i].headroom);
        if (cases[i].capacity) set(&c, "moe_expert_capacity_factor", cases[i].capacity);
        set(&c, "moe_pad_expert_input_to_capacity", cases[i].pad);
        if (bk_config_resolve(&c, &e) != BK_OK) fail_msg("%s", e.msg);
        if (bk_layout_resolve(&l, &c, bk_layout_ranks(&c), &e) != BK_OK) fail_msg("%s", e.msg);
        assert_int_equal(l.n_local_experts, cases[i].n_local);
        assert_int_equal(l.first_expert, 0);
        assert_int_equal(l.n_micro, cases[i].n_micro);
        assert_int_equal(l.sent_rows, cases[i].sent);
        assert_int_equal(l.most_rows, cases[i].most);
        assert_int_equal(l.routed_rows, cases[i].routed);
        assert_int_equal(l.axis_size[BK_AXIS_EP], l.n_ranks);
        assert_int_equal(l.axis_size[BK_AXIS_DP], l.n_ranks);
        assert_int_equal(bk_layout_generate(&c, 1).n_local_experts, 8);
        bk_config_free(&c);
    }
}

static void test_layout__ranks_need_samples(void **state)
{
    (void)state;
    bk_config c;
    bk_layout l;
    bk_err e = {0};
    bk_config_init(&c);
    set(&c, "num_layers", "1"), set(&c, "hidden_size", "8"), set(&c, "num_attention_heads", "2");
    set(&c, "seq_length", "16"), set(&c, "vocab_size", "7"), set(&c, "num_experts", "8");
    set(&c, "expert_model_parallel_size", "8"), set(&c, "global_batch_size", "4");
    if (bk_config_resolve(&c, &e) != BK_OK) fail_msg("%s", e.msg);
    assert_int_equal(bk_layout_resolve(&l, &c, 8, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "8 data-parallel ranks"));
    assert_int_equal(bk_layout_resolve(&l, &c, 1, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "expert_model_parallel_size 8"));
    bk_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout__micro_batches_of_a_step),
        cmocka_unit_test(test_layout__batch_that_does_not_divide),
        cmocka_unit_test(test_layout__one_rank_alone),
        cmocka_unit_test(test_layout__shares_of_experts),
        cmocka_unit_test(test_layout__ranks_need_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
