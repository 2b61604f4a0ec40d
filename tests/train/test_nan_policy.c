/* What a run does about a loss that is not finite: stop and say where, or void the step. */
#include "train/loop_run.h"

/* 40 lines; samples of 16 bytes overlap them. */
static int enter(void **state)
{
    const int rc = enter_new_folder(state);
    FILE *f = fopen("text", "w");
    assert_non_null(f);
    for (int i = 0; i < 40; i++) fprintf(f, "line %d of a text\n", i);
    assert_int_equal(fclose(f), 0);
    return rc;
}

/* Without dropout, whose noise belongs to the number of a sample. */
#define TEXT  "data_path: text\nhidden_dropout: 0\nattention_dropout: 0\nmicro_batch_size: 2\n"
#define PLAIN TEXT "lr_decay_style: constant\n"

/* A parameter's values, by a part of its name. */
static float *parameter(bk_run *r, const char *part)
{
    const bk_program *p = &r->session.program[BK_RUN_TRAIN];
    for (bk_pid k = 0; k < p->g->n_params; k++)
        if (strstr(p->g->param[k].name, part))
            return bk_exec_value(r->session.exec, p->p, p->g->param[k].value);
    fail_msg("no parameter %s", part);
    return NULL;
}

static void poison_after_step_5(loop_run *t)
{
    if (t->run.state.iteration == 5) parameter(&t->run, "linear_fc2.weight")[7] = NAN;
}

static size_t checkpoint(char *out, size_t size, const char *folder, int64_t iteration)
{
    char path[256];
    snprintf(path, sizeof path, "%s/iter_%07lld/model.safetensors", folder, (long long)iteration);
    return slurp(out, size, path);
}

enum { CHECKPOINT_BYTES = 1 << 20 };

/* Bytes of two checkpoints, which are large for a stack. */
static char one[CHECKPOINT_BYTES], another[CHECKPOINT_BYTES];

/* The step after the poison fails, its message names step and value, and the newest checkpoint is that of a
 * run which never got so far, whole. */
static void test_nan_policy__stop_names_step_and_value(void **state)
{
    (void)state;
    static loop_run t, clean;
    bk_err e = {0};
    loop_config(&clean, PLAIN "train_iters: 4\nsave: clean\n");
    loop_must_train(&clean);
    loop_close(&clean);
    loop_config(&t, PLAIN "train_iters: 10\nsave: ck\nsave_interval: 2\n");
    t.after_step = poison_after_step_5;
    ok(loop_open(&t, &e), &e);
    assert_int_equal(bk_train(&t.end, &t.run, &t.log, &e), BK_E_CHECK);
    loop_close(&t);
    assert_int_equal(t.n_steps, 5);
    assert_int_equal(t.n_saved, 2);
    expect_message(&e, "step 6: the loss is nan, first in decoder.0.mlp.fc2, ", "written by linear");
    expect_message(&e, "the parameters are those before this step", "set nan_policy to skip");
    slurp(one, sizeof one, "ck/latest_checkpointed_iteration.txt");
    assert_int_equal(atoi(one), 4);
    const size_t n = checkpoint(one, sizeof one, "clean", 4);
    assert_int_equal(checkpoint(another, sizeof another, "ck", 4), n);
    assert_memory_equal(one, another, n);
    loop_config(&t, PLAIN "train_iters: 10\nsave: ck\nload: ck\n");
    loop_must_train(&t); /* what stopped it was not in the checkpoint */
    assert_int_equal(t.n_steps, 6);
    loop_close(&t);
}

/* All parameters and moments, one behind the other. */
static size_t copy_state(char *out, size_t size, const bk_run *r)
{
    const bk_program *p = &r->session.program[BK_RUN_TRAIN];
    size_t n = 0;
    for (bk_vid v = 0; v < p->g->n_values; v++) {
        const bk_value *x = &p->g->value[v];
        if (x->scope != BK_RUN || x->base != BK_NONE || (x->kind != BK_PARAM && x->kind != BK_STATE))
            continue;
        const size_t bytes = (size_t)bk_value_bytes(x);
        assert_true(n + bytes <= size);
        memcpy(out + n, bk_exec_value(r->session.exec, p->p, v), bytes), n += bytes;
    }
    return n;
}

/* The step count of AdamW stands still, and nothing of scope run differs in a bit. */
static void compare_around_step_6(loop_run *t)
{
    static size_t n;
    const int64_t i = t->run.state.iteration;
    assert_int_equal(t->run.feed.step, i <= 5 ? i : i - (i > 6));
    assert_int_equal(t->run.state.skipped_steps, i > 5);
    if (i == 5) n = copy_state(one, sizeof one, &t->run);
    if (i < 6) return;
    assert_int_equal(copy_state(another, sizeof another, &t->run), n);
    if (i == 6)
        assert_memory_equal(another, one, n);
    else
        assert_memory_not_equal(another, one, n);
}

/* Samples 10 and 11 are those of step 6. */
static void test_nan_policy__skip_changes_nothing(void **state)
{
    (void)state;
    static loop_run t;
    loop_config(&t, PLAIN "train_iters: 8\nnan_policy: skip\nlog_interval: 4\n");
    t.bad_sample = 11, t.after_step = compare_around_step_6;
    loop_must_train(&t);
    loop_close(&t);
    assert_int_equal(t.n_steps, 8);
    assert_int_equal(t.end.n_skipped, 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(t.step[i].skipped, i == 5);
        assert_int_equal(isfinite(t.step[i].loss), i != 5);
        assert_int_equal(t.step[i].n_samples, 2 * (i + 1)); /* its samples are consumed */
    }
    assert_int_equal(t.step[7].line_steps, 3);
    const double mean = (t.step[4].loss + t.step[6].loss + t.step[7].loss) / 3;
    assert_memory_equal(&t.step[7].line_loss, &mean, sizeof mean);
}

/* A parameter that is not finite is not made worse: once repaired, the run goes on. */
static void repair_after_step_7(loop_run *t)
{
    static float kept;
    float *w = parameter(&t->run, "linear_fc2.weight") + 7;
    if (t->run.state.iteration == 5) kept = *w, *w = NAN;
    if (t->run.state.iteration == 7) assert_true(isnan(*w)), *w = kept;
}

/* A run whose bad step was voided ends with the bits of one that never saw its samples. */
static void test_nan_policy__skip_leaves_no_trace(void **state)
{
    (void)state;
    static loop_run t;
    loop_config(&t, PLAIN "train_iters: 9\nsave: without\n");
    t.shift_from = 10, t.shift_by = 2;
    loop_must_train(&t);
    loop_close(&t);
    loop_config(&t, PLAIN "train_iters: 10\nsave: bad_data\nnan_policy: skip\n");
    t.bad_sample = 10;
    loop_must_train(&t);
    loop_close(&t);
    const size_t n = checkpoint(one, sizeof one, "without", 9);
    assert_int_equal(checkpoint(another, sizeof another, "bad_data", 10), n);
    assert_memory_equal(one, another, n);
    /* Two bad steps, from the parameters' side. */
    loop_config(&t, PLAIN "train_iters: 9\nsave: without_4\n");
    t.shift_from = 10, t.shift_by = 4;
    loop_must_train(&t);
    loop_close(&t);
    loop_config(&t, PLAIN "train_iters: 11\nsave: bad_weight\nnan_policy: skip\n");
    t.after_step = repair_after_step_7;
    loop_must_train(&t);
    assert_int_equal(t.end.n_skipped, 2);
    loop_close(&t);
    assert_int_equal(checkpoint(one, sizeof one, "without_4", 9), n);
    assert_int_equal(checkpoint(another, sizeof another, "bad_weight", 11), n);
    assert_memory_equal(one, another, n);
}

/* Every step since the last line was skipped: the line has no loss to show, and says so with a NaN. */
static void test_nan_policy__a_line_of_skipped_steps(void **state)
{
    (void)state;
    static loop_run t;
    loop_config(&t, PLAIN "train_iters: 3\nnan_policy: skip\nlog_interval: 1\n");
    t.bad_sample = 2;
    loop_must_train(&t);
    loop_close(&t);
    assert_true(t.step[1].line && isnan(t.step[1].line_loss));
    assert_int_equal(t.step[1].line_steps, 0);
    assert_memory_equal(&t.step[2].line_loss, &t.step[2].loss, sizeof(double));
}

/* Stopped after the skipped step 3 and resumed: the bits and the count of the unbroken run. */
static void test_nan_policy__the_count_survives_a_resume(void **state)
{
    (void)state;
    static loop_run t;
    static const char *const options = TEXT "train_iters: 9\nnan_policy: skip\nlog_interval: 5\n";
    char more[512];
    snprintf(more, sizeof more, "%ssave: whole\n", options);
    loop_config(&t, more);
    t.bad_sample = 5;
    loop_must_train(&t);
    const double line = t.step[4].line_loss;
    loop_close(&t);
    snprintf(more, sizeof more, "%ssave: broken\n", options);
    loop_config(&t, more);
    t.bad_sample = 5, t.stop_at = 4;
    loop_must_train(&t);
    assert_int_equal(t.end.n_skipped, 1);
    loop_close(&t);
    snprintf(more, sizeof more, "%ssave: broken\nload: broken\n", options);
    loop_config(&t, more);
    loop_must_train(&t);
    assert_int_equal(t.n_steps, 5);
    assert_int_equal(t.end.n_skipped, 1);
    assert_int_equal(t.run.feed.step, 8);
    assert_int_equal(t.step[0].line_steps, 3); /* 2, 4, 5 */
    assert_memory_equal(&t.step[0].line_loss, &line, sizeof line);
    loop_close(&t);
    const size_t n = checkpoint(one, sizeof one, "whole", 9);
    assert_int_equal(checkpoint(another, sizeof another, "broken", 9), n);
    assert_memory_equal(one, another, n);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_nan_policy__##name, enter, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(stop_names_step_and_value), TEST(skip_changes_nothing),        TEST(skip_leaves_no_trace),
        TEST(a_line_of_skipped_steps),   TEST(the_count_survives_a_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
