/* A run that measures at an interval is the run that does not, to the bit, and what it measures depends on
 * neither stops nor the cut of its steps. */
#include "train/loop_run.h"

enum { MAX_MEASURED = 16, MAX_LAYERS = 4, MAX_STREAMS = 2 };

/* Nothing is written here: that a file is asked for is why the run measures. */
#define MEASURED "log_jsonl: metrics.jsonl\n"
#define DATA     "mock_data: true\nglobal_batch_size: 4\nlr_decay_style: constant\n"
#define MOE                                                                                                  \
    "num_layers: 2\nnum_experts: 4\nmoe_ffn_hidden_size: 16\nmoe_aux_loss_coeff: 0.1\n"                      \
    "moe_layer_freq: [0]*1+[1]*1\nmtp_num_layers: 1\n"

/* The figures of each step that measured, out of the table, which changes. */
typedef struct {
    loop_run t;
    int n;
    int64_t at[MAX_MEASURED];
    int64_t n_layers[MAX_MEASURED];
    bk_layer_health layer[MAX_MEASURED][MAX_LAYERS]; /* without the pointers in it */
    double norms[MAX_MEASURED][MAX_LAYERS][2][MAX_STREAMS];
} health_run;

static void keep_norms(double *out, bk_hc_health *x)
{
    assert_true(x->n_streams <= MAX_STREAMS);
    for (int64_t k = 0; k < x->n_streams; k++) out[k] = x->stream_norm[k];
    x->stream_norm = NULL;
}

static void keep_health(loop_run *t)
{
    health_run *r = t->ctx;
    const bk_step_report *s = &t->step[t->n_steps - 1];
    bk_health h;
    bk_err e = {0};
    if (!s->measured) return;
    assert_true(r->n < MAX_MEASURED);
    ok(bk_health_read(&h, s->metrics, &e), &e);
    assert_true(h.n <= MAX_LAYERS);
    r->at[r->n] = s->iteration, r->n_layers[r->n] = h.n;
    for (int64_t k = 0; k < h.n; k++) {
        bk_layer_health *x = &r->layer[r->n][k];
        *x = h.row[k];
        for (int i = 0; i < x->experts.n_losses; i++) x->experts.loss[i].name = NULL;
        keep_norms(r->norms[r->n][k][0], &x->attention);
        keep_norms(r->norms[r->n][k][1], &x->mlp);
    }
    r->n++;
    bk_health_free(&h);
}

static void train(health_run *r, const char *options, int64_t stop_at)
{
    memset(r, 0, sizeof *r);
    loop_config(&r->t, options);
    r->t.after_step = keep_health, r->t.ctx = r, r->t.stop_at = stop_at;
    loop_must_train(&r->t);
}

static void expect_same_figures(const health_run *a, int from_a, const health_run *b, int from_b, int n)
{
    for (int k = 0; k < n; k++) {
        assert_int_equal(a->at[from_a + k], b->at[from_b + k]);
        assert_int_equal(a->n_layers[from_a + k], b->n_layers[from_b + k]);
        assert_memory_equal(a->layer[from_a + k], b->layer[from_b + k], sizeof a->layer[0]);
        assert_memory_equal(a->norms[from_a + k], b->norms[from_b + k], sizeof a->norms[0]);
    }
}

static void test_health_steps__leave_every_bit_of_the_run(void **state)
{
    (void)state;
    static const char *const models[] = {"", MOE "micro_batch_size: 2\n",
                                         MOE "enable_mhc_connections: false\nmicro_batch_size: 1\n"};
    for (int k = 0; k < 3; k++) {
        static health_run plain, measured;
        char options[1024];
        snprintf(options, sizeof options, DATA "train_iters: 5\n%s%s", models[k],
                 MEASURED "log_health_interval: 0\n");
        train(&plain, options, 0);
        snprintf(options, sizeof options, DATA "train_iters: 5\n%s%s", models[k],
                 MEASURED "log_health_interval: 2\n");
        train(&measured, options, 0);
        assert_int_equal(plain.n, 0);
        assert_int_equal(measured.n, 2);
        assert_true(measured.at[0] == 2 && measured.at[1] == 4);
        for (int i = 0; i < 5; i++) {
            const bk_step_report *a = &plain.t.step[i], *b = &measured.t.step[i];
            assert_memory_equal(&a->loss, &b->loss, sizeof a->loss);
            assert_memory_equal(&a->grad_norm, &b->grad_norm, sizeof a->grad_norm);
            assert_int_equal(a->madds, b->madds);
        }
        loop_same_state(&measured.t, &plain.t);
        loop_close(&plain.t);
        loop_close(&measured.t);
    }
}

/* Layers in their order, each with the parts that it has. */
static void test_health_steps__tell_of_what_a_layer_has(void **state)
{
    (void)state;
    static health_run r;
    train(&r, DATA MEASURED MOE "train_iters: 2\nlog_health_interval: 2\n", 0);
    static const char *const names[] = {"decoder.layers.0", "decoder.layers.1",
                                        "mtp.layers.0.transformer_layer"};
    assert_int_equal(r.n_layers[0], 3);
    for (int k = 0; k < 3; k++) {
        const bk_layer_health *x = &r.layer[0][k];
        assert_string_equal(x->name, names[k]);
        assert_int_equal(x->experts.n, k == 0 ? 0 : 4);
        assert_int_equal(x->experts.tokens, k == 0 ? 0 : 4 * 16 * 2);
        assert_int_equal(x->experts.n_losses, k == 0 ? 0 : 1);
        assert_true(x->attention.n_streams == 2 && x->mlp.n_streams == 2);
        assert_true(x->mlp.row_error < 1e-4 && x->mlp.column_error < 1e-4); /* 20 iterations */
        for (int i = 0; i < 2; i++) assert_true(r.norms[0][k][i][0] > 0 && r.norms[0][k][i][1] > 0);
    }
    loop_close(&r.t);
}

static bool measures(const char *options)
{
    loop_run t;
    loop_config(&t, options);
    const bool yes = bk_run_measures(&t.c);
    loop_close(&t);
    return yes;
}

/* Neither streams nor experts, no interval, or nobody who asks. */
static void test_health_steps__only_where_there_is_something_to_tell(void **state)
{
    (void)state;
    assert_true(measures(MEASURED));
    assert_true(measures("tensorboard_dir: board\n"));
    assert_true(measures(MEASURED "enable_mhc_connections: false\nnum_experts: 4\n"));
    assert_false(measures(MEASURED "enable_mhc_connections: false\n"));
    assert_false(measures(MEASURED "log_health_interval: 0\n"));
    assert_false(measures(""));
}

/* Stopped in the middle of an interval, and at the step that measures. */
static void test_health_steps__are_the_same_after_a_stop(void **state)
{
    (void)state;
    static health_run whole, first, second;
#define RUN DATA MEASURED MOE "train_iters: 7\nlog_health_interval: 3\n"
    train(&whole, RUN, 0);
    for (int64_t stop = 2; stop <= 3; stop++) {
        char options[1024];
        snprintf(options, sizeof options, RUN "save: ck%d\n", (int)stop);
        train(&first, options, stop);
        snprintf(options, sizeof options, RUN "load: ck%d\n", (int)stop);
        train(&second, options, 0);
        assert_int_equal(whole.n, 2);
        assert_int_equal(first.n, stop / 3);
        assert_int_equal(second.n, 2 - first.n);
        expect_same_figures(&whole, 0, &first, 0, first.n);
        expect_same_figures(&whole, first.n, &second, 0, second.n);
        loop_close(&first.t);
        loop_close(&second.t);
    }
    loop_close(&whole.t);
}

static void expect_near(double x, double want)
{
    if (!(fabs(x - want) <= 1e-4 * fabs(want))) fail_msg("%.9g is not %.9g", x, want);
}

/* One micro-batch or four: the same counts, and the means and maxima of the same tokens. */
static void test_health_steps__do_not_depend_on_the_cut(void **state)
{
    (void)state;
    static health_run whole, cut;
#define ONE DATA MEASURED MOE "train_iters: 1\nlog_health_interval: 1\nmhc_sinkhorn_iterations: 1\n"
    train(&whole, ONE "micro_batch_size: 4\n", 0);
    train(&cut, ONE "micro_batch_size: 1\n", 0);
    for (int k = 0; k < 3; k++) {
        const bk_layer_health *a = &whole.layer[0][k], *b = &cut.layer[0][k];
        assert_true(a->experts.least == b->experts.least && a->experts.most == b->experts.most);
        assert_true(a->experts.dead == b->experts.dead && a->experts.tokens == b->experts.tokens);
        expect_near(b->attention.row_error, a->attention.row_error);
        expect_near(b->mlp.from_uniform, a->mlp.from_uniform);
        expect_near(b->mlp.from_identity, a->mlp.from_identity);
        for (int i = 0; i < 2; i++) expect_near(cut.norms[0][k][1][i], whole.norms[0][k][1][i]);
    }
    assert_true(whole.layer[0][1].mlp.row_error > 1e-5);
    loop_close(&whole.t);
    loop_close(&cut.t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_health_steps__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(leave_every_bit_of_the_run),
        TEST(tell_of_what_a_layer_has),
        TEST(only_where_there_is_something_to_tell),
        TEST(are_the_same_after_a_stop),
        TEST(do_not_depend_on_the_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
