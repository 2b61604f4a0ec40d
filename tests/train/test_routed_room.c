/* Tokens that find no room at their experts make a step void; it is done again with more room, and the run is
 * the one that had room from the start. */
#include "train/loop_run.h"

/* This rank holds two experts of four, as if another one held the rest. */
enum { TOKENS = 32, ROOM = 24, STEPS = 6, BIASED_AFTER = 3 };

static const char *const options =
    "mock_data: true\nmicro_batch_size: 2\nglobal_batch_size: 4\ntrain_iters: 6\nnum_layers: 2\n"
    "num_experts: 4\nmoe_router_topk: 1\nmoe_ffn_hidden_size: 16\nmoe_router_score_function: sigmoid\n"
    "moe_router_enable_expert_bias: true\nmoe_router_load_balancing_type: none\nlr_decay_style: constant\n";

static bk_layout layout_of(const bk_config *c, int64_t routed_rows)
{
    bk_layout l;
    bk_err e = {0};
    ok(bk_layout_resolve(&l, c, 1, &e), &e);
    assert_int_equal(l.most_rows, TOKENS);
    l.n_local_experts = 2, l.routed_rows = routed_rows;
    return l;
}

/* All tokens of the second layer go to the first expert from now on. */
static void bias_experts(loop_run *t)
{
    if (t->run.state.iteration != BIASED_AFTER) return;
    const bk_program *p = &t->run.session.program[BK_RUN_TRAIN];
    const bk_vid v = bk_value_find(p->g, BK_STATE, "decoder.layers.1.mlp.router.expert_bias");
    assert_true(v != BK_NONE);
    float *bias = bk_exec_value(t->run.session.exec, p->p, v);
    bias[0] = 10;
}

typedef struct {
    loop_run t;
    bk_layout l;
} room_run;

static bk_status train(room_run *r, const char *more, int64_t routed_rows, bk_err *e)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s", options, more);
    loop_config(&r->t, text);
    r->l = layout_of(&r->t.c, routed_rows);
    r->t.layout = &r->l, r->t.after_step = bias_experts;
    ok(loop_open(&r->t, e), e);
    return bk_train(&r->t.end, &r->t.run, &r->t.log, e);
}

static void expect_same_reports(const loop_run *a, const loop_run *b)
{
    assert_int_equal(a->n_steps, STEPS);
    assert_int_equal(b->n_steps, STEPS);
    for (int k = 0; k < STEPS; k++) {
        assert_memory_equal(&a->step[k].loss, &b->step[k].loss, sizeof a->step[k].loss);
        assert_memory_equal(&a->step[k].grad_norm, &b->step[k].grad_norm, sizeof a->step[k].grad_norm);
        assert_int_equal(a->step[k].n_samples, b->step[k].n_samples);
    }
    assert_int_equal(a->n_evaluations, b->n_evaluations);
    assert_memory_equal(a->valid_loss, b->valid_loss, sizeof a->valid_loss);
}

/* The step after the bias has all TOKENS rows where there is room for ROOM of them. */
static void expect_one_repeat(const char *more, int64_t iteration)
{
    static room_run narrow, wide;
    bk_err e = {0};
    ok(train(&narrow, more, ROOM, &e), &e);
    ok(train(&wide, more, TOKENS, &e), &e);
    assert_int_equal(wide.t.n_rooms, 0);
    assert_int_equal(narrow.t.n_rooms, 1);
    assert_int_equal(narrow.t.room[0].iteration, iteration);
    assert_int_equal(narrow.t.room[0].n_rows, TOKENS);
    assert_int_equal(narrow.t.room[0].room_before, ROOM);
    assert_int_equal(narrow.t.room[0].room, TOKENS);
    expect_same_reports(&narrow.t, &wide.t);
    loop_same_state(&narrow.t, &wide.t);
    loop_close(&narrow.t);
    loop_close(&wide.t);
}

static void test_routed_room__a_void_step_is_done_again_once(void **state)
{
    (void)state;
    expect_one_repeat("", BIASED_AFTER + 1);
}

static void test_routed_room__so_is_a_void_evaluation(void **state)
{
    (void)state;
    expect_one_repeat("eval_iters: 2\neval_interval: 3\n", BIASED_AFTER);
}

/* All steps measure, in a program of its own. */
static void test_routed_room__so_is_a_void_step_that_measures(void **state)
{
    (void)state;
    expect_one_repeat("log_jsonl: metrics.jsonl\nlog_health_interval: 1\n", BIASED_AFTER + 1);
}

/* Not the void step measures, but the one after it. */
static void test_routed_room__what_measures_gets_room_as_well(void **state)
{
    (void)state;
    expect_one_repeat("log_jsonl: metrics.jsonl\nlog_health_interval: 5\n", BIASED_AFTER + 1);
}

/* Room is made as it is needed, not for the worst that there can be. */
static void test_routed_room__grows_with_what_came(void **state)
{
    (void)state;
    static room_run r;
    bk_err e = {0};
    ok(train(&r, "", 1, &e), &e);
    assert_true(r.t.n_rooms >= 2);
    for (int64_t k = 0; k < r.t.n_rooms; k++) {
        const bk_room_values *v = &r.t.room[k];
        assert_true(v->room_before < v->n_rows && v->n_rows <= v->room && v->room <= TOKENS);
        assert_int_equal(v->room_before, k ? r.t.room[k - 1].room : 1);
    }
    assert_true(r.t.room[0].iteration == 1 && r.t.room[0].room < TOKENS);
    loop_close(&r.t);
}

/* The run ends with the parameters that it had before the step. */
static void test_routed_room__that_does_not_fit_ends_the_run(void **state)
{
    (void)state;
    static room_run narrow, before;
    bk_err e = {0};
    char limit[64];
    ok(train(&before, "train_iters: 3\n", ROOM, &e), &e);
    snprintf(limit, sizeof limit, "memory_limit: %lld\n", (long long)bk_session_bytes(&before.t.run.session));
    assert_int_equal(train(&narrow, limit, ROOM, &e), BK_E_MEM);
    const char *const parts[] = {"step 4: 32 rows of tokens came", "room for 24 (moe_capacity_headroom)",
                                 "allowed by memory_limit"};
    for (int k = 0; k < 3; k++)
        if (!strstr(e.msg, parts[k])) fail_msg("no \"%s\" in: %s", parts[k], e.msg);
    assert_int_equal(narrow.t.n_steps, BIASED_AFTER);
    loop_same_state(&narrow.t, &before.t);
    loop_close(&narrow.t);
    loop_close(&before.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routed_room__a_void_step_is_done_again_once),
        cmocka_unit_test(test_routed_room__so_is_a_void_evaluation),
        cmocka_unit_test(test_routed_room__so_is_a_void_step_that_measures),
        cmocka_unit_test(test_routed_room__what_measures_gets_room_as_well),
        cmocka_unit_test(test_routed_room__grows_with_what_came),
        cmocka_unit_test(test_routed_room__that_does_not_fit_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
