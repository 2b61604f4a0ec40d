/* A run that was stopped and went on equals one that was not: bits, samples, lines, evaluations. */
#include "train/loop_run.h"

#include <dirent.h>

/* 30 samples of 16 bytes: a step of 4 or 6 comes to a second epoch soon. */
static int enter(void **state)
{
    const int rc = enter_new_folder(state);
    FILE *f = fopen("text", "w");
    assert_non_null(f);
    for (int i = 0; i < 40; i++) fprintf(f, "the line %02d\n", i);
    assert_int_equal(fclose(f), 0);
    return rc;
}

/* Dropout is on, as by default. */
#define TEXT "data_path: text\nmicro_batch_size: 2\n"

static void configure(loop_run *t, const char *options, const char *save, const char *load)
{
    char more[1024];
    int n = snprintf(more, sizeof more, "%s", options);
    if (save) n += snprintf(more + n, sizeof more - (size_t)n, "save: %s\n", save);
    if (load) n += snprintf(more + n, sizeof more - (size_t)n, "load: %s\n", load);
    assert_in_range(n, 0, sizeof more - 1);
    loop_config(t, more);
}

/* Trains to the end, or until `stop_at`; 0: to the end. The run is closed again; the record stays. */
static void train(loop_run *t, const char *options, const char *save, const char *load, int64_t stop_at)
{
    configure(t, options, save, load);
    t->stop_at = stop_at;
    loop_must_train(t);
    if (stop_at) assert_int_equal(t->end.end, BK_END_STOPPED);
    loop_close(t);
}

static void assert_same_checkpoint(const char *folder, const char *other, int64_t iteration)
{
    static char a[1 << 20], b[1 << 20];
    char path[256];
    snprintf(path, sizeof path, "%s/iter_%07lld/model.safetensors", folder, (long long)iteration);
    const size_t n = slurp(a, sizeof a, path);
    snprintf(path, sizeof path, "%s/iter_%07lld/model.safetensors", other, (long long)iteration);
    assert_int_equal(slurp(b, sizeof b, path), n);
    if (memcmp(a, b, n) != 0) fail_msg("%s and %s differ at step %lld", folder, other, (long long)iteration);
}

#define SAME_BITS(a, b) assert_memory_equal(&(a), &(b), sizeof(a))

/* All but the time. */
static void assert_same_step(const bk_step_report *a, const bk_step_report *b)
{
    assert_int_equal(a->iteration, b->iteration);
    assert_int_equal(a->n_samples, b->n_samples);
    SAME_BITS(a->loss, b->loss);
    SAME_BITS(a->grad_norm, b->grad_norm);
    SAME_BITS(a->learning_rate, b->learning_rate);
    SAME_BITS(a->next_learning_rate, b->next_learning_rate);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->madds, b->madds);
    assert_int_equal(a->skipped, b->skipped);
    assert_int_equal(a->line, b->line);
    assert_int_equal(a->line_steps, b->line_steps);
    SAME_BITS(a->line_loss, b->line_loss);
}

/* The rest of a run from step `from` on reported what the whole one did. */
static void assert_same_reports(const loop_run *whole, const loop_run *rest, int64_t from)
{
    assert_int_equal(rest->n_steps, whole->n_steps - from);
    for (int64_t i = 0; i < rest->n_steps; i++) assert_same_step(&whole->step[from + i], &rest->step[i]);
    int64_t k = 0;
    while (k < whole->n_evaluations && whole->evaluated_at[k] <= from) k++;
    assert_int_equal(rest->n_evaluations, whole->n_evaluations - k);
    for (int64_t i = 0; i < rest->n_evaluations; i++) {
        assert_int_equal(rest->evaluated_at[i], whole->evaluated_at[k + i]);
        SAME_BITS(rest->valid_loss[i], whole->valid_loss[k + i]);
    }
}

/* A run of `steps`, and one that is stopped after each of the steps `stop`, then resumed. */
static void expect_same(const char *options, int64_t steps, const int64_t *stop, int n_stops)
{
    static loop_run whole, part;
    char folder[32], with_steps[1024];
    snprintf(with_steps, sizeof with_steps, "%strain_iters: %lld\n", options, (long long)steps);
    train(&whole, with_steps, "whole", NULL, 0);
    for (int k = 0; k < n_stops; k++) {
        snprintf(folder, sizeof folder, "stopped_%lld", (long long)stop[k]);
        train(&part, with_steps, folder, NULL, stop[k]);
        assert_int_equal(part.n_steps, stop[k]);
        train(&part, with_steps, folder, folder, 0);
        assert_same_reports(&whole, &part, stop[k]);
        assert_same_checkpoint("whole", folder, steps);
    }
}

/* Three micro-batches a step, five steps an epoch of 27 training samples or less, dropout. */
static void test_resume__same_bits(void **state)
{
    (void)state;
    expect_same(TEXT "global_batch_size: 6\neval_interval: 4\neval_iters: 2\nsplit: 90,10\n", 12,
                (const int64_t[]){1, 3, 4, 5, 8, 11}, 6);
}

static void test_resume__same_bits_of_other_models_and_data(void **state)
{
    (void)state;
    static const char *const options[] = {
        TEXT "enable_mhc_connections: false\n",
        TEXT "hidden_dropout: 0\nattention_dropout: 0\nmhc_num_residual_streams: 4\nnum_layers: 2\n",
        TEXT "untie_embeddings_and_output_weights: false\n",
        TEXT
        "num_experts: 4\nmoe_ffn_hidden_size: 16\nnum_layers: 2\nmtp_num_layers: 1\nglobal_batch_size: 4\n"
        "moe_router_score_function: sigmoid\nmoe_router_enable_expert_bias: true\n"
        "moe_router_load_balancing_type: global_aux_loss\nmoe_aux_loss_coeff: 0.01\neval_iters: 1\n",
        "mock_data: true\nmicro_batch_size: 2\neval_iters: 1\n",
        "data_path: markov:1:8\nmicro_batch_size: 3\neval_iters: 1\n",
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        char folder[16];
        snprintf(folder, sizeof folder, "model_%zu", k);
        assert_int_equal(mkdir(folder, 0777), 0);
        assert_int_equal(chdir(folder), 0);
        assert_int_equal(symlink("../text", "text"), 0);
        expect_same(options[k], 5, (const int64_t[]){2}, 1);
        assert_int_equal(chdir(".."), 0);
    }
}

/* Stopped after every single step. */
static void test_resume__many_stops(void **state)
{
    (void)state;
    static loop_run whole, part;
    const char *options = TEXT "global_batch_size: 4\ntrain_iters: 9\nlog_interval: 4\n";
    train(&whole, options, "whole", NULL, 0);
    for (int64_t i = 1; i <= 9; i++) {
        train(&part, options, "broken", i > 1 ? "broken" : NULL, i < 9 ? i : 0);
        assert_int_equal(part.n_steps, 1);
        assert_same_step(&whole.step[i - 1], &part.step[0]);
    }
    assert_same_checkpoint("whole", "broken", 9);
}

/* Samples of a run on 10 samples, of which the k-th begins with the letter 'A' + k. */
static void train_letters(loop_run *t, bool shuffle, const char *load, int64_t stop_at)
{
    bk_err e = {0};
    configure(t,
              "data_path: letters\nseq_length: 8\nsplit: 1\nmicro_batch_size: 1\nglobal_batch_size: 2\n"
              "train_iters: 20\n",
              stop_at ? "ck" : NULL, load);
    t->stop_at = stop_at;
    ok(loop_open(t, &e), &e);
    assert_int_equal(t->run.data.sampler[BK_PART_TRAIN].n_samples, 10);
    t->run.data.sampler[BK_PART_TRAIN].options.shuffle = shuffle;
    ok(bk_train(&t->end, &t->run, &t->log, &e), &e);
    loop_close(t);
}

/* Stopped in the second epoch, at its position 4. */
static void expect_same_samples(bool shuffle)
{
    static loop_run whole, first, rest;
    train_letters(&whole, shuffle, NULL, 0);
    train_letters(&first, shuffle, NULL, 7);
    train_letters(&rest, shuffle, "ck", 0);
    assert_int_equal(whole.n_samples, 40);
    assert_int_equal(first.n_samples, 14);
    assert_int_equal(rest.n_samples, 26);
    assert_memory_equal(first.sample, whole.sample, 14 * sizeof *whole.sample);
    assert_memory_equal(rest.sample, whole.sample + 14, 26 * sizeof *whole.sample);
    for (int epoch = 0; epoch < 4; epoch++) { /* each sample once an epoch */
        unsigned seen = 0;
        for (int i = 0; i < 10; i++) seen |= 1U << (whole.sample[10 * epoch + i] - 'A');
        assert_int_equal(seen, 1023);
    }
    const bool in_order = whole.sample[0] == 'A' && whole.sample[1] == 'B' && whole.sample[2] == 'C';
    assert_int_equal(in_order, !shuffle);
}

static void test_resume__the_samples_go_on(void **state)
{
    (void)state;
    char letters[81] = "";
    for (int i = 0; i < 80; i++) letters[i] = (char)('A' + i / 8);
    put("letters", letters);
    expect_same_samples(true);
    assert_int_equal(rename("ck", "ck_shuffled"), 0);
    expect_same_samples(false);
}

/* The lines of a resumed run, one after the other with those before the stop, are those of the unbroken run.
 */
static void expect_same_lines(int interval, int64_t stop_at)
{
    static loop_run whole, part[2];
    char options[256], folder[32];
    double sum = 0;
    int64_t n = 0, n_lines = 0;
    snprintf(options, sizeof options, TEXT "train_iters: 10\nlog_interval: %d\n", interval);
    snprintf(folder, sizeof folder, "ck_%d_%d", interval, (int)stop_at);
    train(&whole, options, NULL, NULL, 0);
    train(&part[0], options, folder, NULL, stop_at);
    train(&part[1], options, folder, folder, 0);
    for (int64_t i = 0; i < 10; i++) {
        const bk_step_report *r = i < stop_at ? &part[0].step[i] : &part[1].step[i - stop_at];
        assert_same_step(&whole.step[i], r);
        sum += whole.step[i].loss, n++;
        assert_int_equal(r->line, i == 0 || i == 9 || (i + 1) % interval == 0);
        if (!r->line) continue;
        const double mean = sum / (double)n;
        SAME_BITS(r->line_loss, mean);
        assert_int_equal(r->line_steps, n);
        sum = 0, n = 0, n_lines++;
    }
    assert_int_equal(n_lines, interval == 1 ? 10 : 5); /* 1, 3, 6, 9, 10 */
}

static void test_resume__the_lines_go_on(void **state)
{
    (void)state;
    for (int64_t stop_at = 5; stop_at <= 7; stop_at++) {
        expect_same_lines(1, stop_at);
        expect_same_lines(3, stop_at);
    }
}

static void test_resume__evaluates_where_the_unbroken_run_does(void **state)
{
    (void)state;
    static loop_run t;
    const char *options = TEXT "train_iters: 10\neval_interval: 3\neval_iters: 1\nsplit: 90,10\n";
    train(&t, options, "ck", NULL, 5);
    assert_int_equal(t.n_evaluations, 1); /* at 3; not at the stop */
    assert_int_equal(t.evaluated_at[0], 3);
    train(&t, options, "ck", "ck", 0);
    static const int64_t at[] = {6, 9, 10};
    assert_int_equal(t.n_evaluations, 3);
    assert_memory_equal(t.evaluated_at, at, sizeof at);
}

/* Stopped in the warm-up, on the way down and at the bottom. */
static void test_resume__the_learning_rate_goes_on(void **state)
{
    (void)state;
    static const char *const styles[] = {
        "lr_decay_style: cosine\n", "lr_decay_style: linear\nlr_warmup_init: 0.001\n",
        "lr_decay_style: constant\n", "lr_decay_style: WSD\nlr_wsd_decay_iters: 3\n"};
    static loop_run whole, part;
    for (size_t k = 0; k < sizeof styles / sizeof *styles; k++) {
        char options[512], folder[32];
        snprintf(options, sizeof options,
                 TEXT "train_iters: 10\nlr_decay_iters: 8\nlr_warmup_iters: 3\nmin_lr: 0.0001\n%s",
                 styles[k]);
        train(&whole, options, NULL, NULL, 0);
        for (int64_t stop_at = 2; stop_at < 10; stop_at += 3) {
            snprintf(folder, sizeof folder, "ck_%zu_%d", k, (int)stop_at);
            train(&part, options, folder, NULL, stop_at);
            train(&part, options, folder, folder, 0);
            for (int64_t i = 0; i < part.n_steps; i++)
                SAME_BITS(part.step[i].learning_rate, whole.step[stop_at + i].learning_rate);
            SAME_BITS(whole.step[stop_at - 1].next_learning_rate, part.step[0].learning_rate);
        }
    }
}

static void test_resume__shows_which_options_differ(void **state)
{
    (void)state;
    static loop_run t;
    bk_err e = {0};
    train(&t, TEXT "train_iters: 4\n", "ck", NULL, 2);
    configure(&t, TEXT "train_iters: 4\n", NULL, "ck");
    ok(loop_open(&t, &e), &e);
    assert_int_equal(t.run.config_diff.len, 0);
    loop_close(&t);
    configure(&t, TEXT "train_iters: 4\nlr: 0.003\nclip_grad: 0.5\n", NULL, "ck");
    loop_must_train(&t);
    const char *diff = bk_str_text(&t.run.config_diff);
    if (!strstr(diff, "lr 0.01 -> 0.003\n") || !strstr(diff, "clip_grad 1 -> 0.5\n") ||
        strchr(strchr(diff, '\n') + 1, '\n')[1] != '\0')
        fail_msg("options that differ: %s", diff);
    loop_close(&t);
}

static void expect_refused(const char *options, const char *save, const char *load, const char *part,
                           const char *another)
{
    static loop_run t;
    bk_err e = {0};
    configure(&t, options, save, load);
    assert_int_equal(loop_open(&t, &e), BK_E_INPUT);
    expect_message(&e, part, another);
    loop_close(&t);
}

/* The position in the data is counted in samples: another batch would repeat or leave out some. */
static void test_resume__another_batch_is_refused(void **state)
{
    (void)state;
    static loop_run t;
    train(&t, TEXT "train_iters: 4\nglobal_batch_size: 4\n", "ck", NULL, 2);
    expect_refused(TEXT "train_iters: 4\nglobal_batch_size: 2\n", NULL, "ck",
                   "ck/iter_0000002: 2 steps consumed 8 samples, which is not global_batch_size 2 a step",
                   "give the batch that it was trained with");
    expect_refused(TEXT "train_iters: 4\nglobal_batch_size: 4\n", NULL, "nowhere", "nowhere",
                   "no checkpoint can be loaded");
    expect_refused(TEXT "train_iters: 4\nglobal_batch_size: 4\nhidden_size: 64\n", NULL, "ck",
                   "ck/iter_0000002 is a checkpoint of another model", "is F32 [32], not F32 [64]");
}

/* The same batch in other micro-batches: the same position, and the same losses but for rounding, since
 * nothing that is saved depends on how a step was cut. */
static void test_resume__in_other_micro_batches(void **state)
{
    (void)state;
    static loop_run whole, part;
    static const char *const cut[] = {"1", "2", "4"};
    char options[256];
    const char *common = "data_path: text\nglobal_batch_size: 4\ntrain_iters: 6\n";
    snprintf(options, sizeof options, "%smicro_batch_size: 4\n", common);
    train(&whole, options, NULL, NULL, 0);
    train(&part, options, "ck", NULL, 3);
    for (int k = 0; k < 3; k++) {
        snprintf(options, sizeof options, "%smicro_batch_size: %s\n", common, cut[k]);
        train(&part, options, NULL, "ck", 0);
        assert_int_equal(part.n_steps, 3);
        assert_true(fabs(part.step[0].loss / whole.step[3].loss - 1) < 1e-6);
        assert_true(fabs(part.step[0].grad_norm / whole.step[3].grad_norm - 1) < 1e-5);
        SAME_BITS(part.step[0].learning_rate, whole.step[3].learning_rate);
    }
}

static void test_resume__from_a_step_that_is_named(void **state)
{
    (void)state;
    static loop_run whole, part;
    const char *options = TEXT "train_iters: 8\nsave_interval: 3\n";
    char named[256];
    train(&whole, options, "whole", NULL, 0);
    snprintf(named, sizeof named, "%sckpt_step: 3\n", options);
    train(&part, named, "other", "whole", 0);
    assert_same_reports(&whole, &part, 3);
    assert_same_checkpoint("whole", "other", 6);
    assert_same_checkpoint("whole", "other", 8);
    /* Into the same folder it would overwrite those after it. */
    expect_refused(named, "whole", "whole", "it has the checkpoint iter_0000008", "begins after iteration 3");
    expect_refused(TEXT "train_iters: 8\nckpt_step: 4\n", NULL, "whole", "iter_0000004",
                   "there is no such checkpoint");
}

static void test_resume__after_the_last_step_does_nothing(void **state)
{
    (void)state;
    static loop_run t;
    const char *options = TEXT "train_iters: 3\neval_interval: 1\neval_iters: 1\nsplit: 90,10\n";
    train(&t, options, "ck", NULL, 0);
    train(&t, options, "ck", "ck", 0);
    assert_int_equal(t.n_steps + t.n_evaluations + t.n_saved, 0);
    assert_int_equal(t.end.end, BK_END_DONE);
    assert_int_equal(t.end.iteration, 3);
    assert_true(t.end.saved); /* it is in that folder */
    /* Nothing is in this one, and nothing claims so. */
    train(&t, options, "other", "ck", 0);
    assert_int_equal(t.n_steps + t.n_saved, 0);
    assert_false(t.end.saved);
    /* More steps than before: the run goes on. */
    train(&t, TEXT "train_iters: 5\n", "ck", "ck", 0);
    assert_int_equal(t.n_steps, 2);
    assert_int_equal(t.step[0].iteration, 4);
}

static int count_checkpoints(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *f = readdir(d); f; f = readdir(d)) n += strncmp(f->d_name, "iter_", 5) == 0;
    closedir(d);
    return n;
}

static void test_resume__keeps_the_newest(void **state)
{
    (void)state;
    static loop_run t;
    static const int64_t first[] = {2, 4, 5}, second[] = {6, 8, 9};
    const char *options = TEXT "train_iters: 9\nsave_interval: 2\nsave_keep: 2\n";
    train(&t, options, "ck", NULL, 5);
    assert_int_equal(t.n_saved, 3);
    assert_memory_equal(t.saved_at, first, sizeof first);
    assert_int_equal(count_checkpoints("ck"), 2);
    train(&t, options, "ck", "ck", 0);
    assert_int_equal(t.n_saved, 3);
    assert_memory_equal(t.saved_at, second, sizeof second);
    assert_int_equal(count_checkpoints("ck"), 2);
    assert_int_equal(access("ck/iter_0000008", F_OK) + access("ck/iter_0000009", F_OK), 0);
}

/* Moments and, beside them, parameters: each element of those that belong to row p of the table holds the
 * number p and which of the three it is. `check`: whether they do. */
static void mark(const bk_run *r, bool check)
{
    const bk_program *prog = &r->session.program[BK_RUN_TRAIN];
    int64_t n_marked = 0;
    for (bk_vid v = 0; v < prog->g->n_values; v++) {
        const bk_value *x = &prog->g->value[v];
        if (x->scope != BK_RUN || x->base != BK_NONE || x->param == BK_NONE) continue;
        const float number = (float)x->param + (x->kind == BK_PARAM                        ? 0.0F
                                                : strncmp(x->name, "exp_avg_sq.", 11) == 0 ? 0.5F
                                                                                           : 0.25F);
        float *at = bk_exec_value(r->session.exec, prog->p, v);
        n_marked++;
        for (int64_t i = 0; i < bk_elements(x); i++)
            if (!check)
                at[i] = number;
            else if (at[i] < number || at[i] > number)
                fail_msg("%s[%lld] is %g, not %g", x->name, (long long)i, (double)at[i], (double)number);
    }
    assert_int_equal(n_marked, 3 * prog->g->n_params);
}

/* Two streams and tied sizes, so that many parameters have as many elements as another. */
static void test_resume__moments_belong_to_their_parameter(void **state)
{
    (void)state;
    static loop_run t;
    bk_err e = {0};
    const char *options = TEXT "num_layers: 3\nffn_hidden_size: 32\ntrain_iters: 9\n";
    configure(&t, options, "ck", NULL);
    ok(loop_open(&t, &e), &e);
    mark(&t.run, false);
    const bk_checkpoint_state at = {.iteration = 4, .consumed_samples = 8};
    ok(bk_checkpoint_save(t.run.save, &t.run.session, &at, &t.c, &e), &e);
    loop_close(&t);
    configure(&t, options, NULL, "ck");
    ok(loop_open(&t, &e), &e);
    assert_int_equal(t.run.state.iteration, 4);
    mark(&t.run, true);
    loop_close(&t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_resume__##name, enter, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(same_bits),
        TEST(same_bits_of_other_models_and_data),
        TEST(many_stops),
        TEST(the_samples_go_on),
        TEST(the_lines_go_on),
        TEST(evaluates_where_the_unbroken_run_does),
        TEST(the_learning_rate_goes_on),
        TEST(shows_which_options_differ),
        TEST(another_batch_is_refused),
        TEST(in_other_micro_batches),
        TEST(from_a_step_that_is_named),
        TEST(after_the_last_step_does_nothing),
        TEST(keeps_the_newest),
        TEST(moments_belong_to_their_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
