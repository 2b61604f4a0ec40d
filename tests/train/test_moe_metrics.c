/* What a run with experts and further tokens reports, and that an evaluation in between changes none of it.
 */
#include "train/loop_run.h"

enum { STEPS = 4, E = 4, TOPK = 2, BATCH = 4, SEQ = 16, MAX_METRICS = 16, MAX_WIDTH = 8 };

static const char *const options =
    "mock_data: true\nglobal_batch_size: 4\ntrain_iters: 4\nnum_layers: 2\nnum_experts: 4\n"
    "moe_ffn_hidden_size: 16\nmoe_router_score_function: sigmoid\nmoe_router_enable_expert_bias: true\n"
    "moe_z_loss_coeff: 0.01\nmtp_num_layers: 1\nlr_decay_style: constant\n";

/* The rows of each step. */
typedef struct {
    loop_run t;
    int n_rows;
    char name[MAX_METRICS][96];
    double x[STEPS][MAX_METRICS][MAX_WIDTH];
} metric_run;

static void keep_metrics(loop_run *t)
{
    metric_run *r = t->ctx;
    const bk_metric_table *m = t->step[t->n_steps - 1].metrics;
    assert_true(m->n > 0 && m->n <= MAX_METRICS);
    r->n_rows = (int)m->n;
    for (int k = 0; k < r->n_rows; k++) {
        assert_in_range(m->row[k].n, 1, MAX_WIDTH);
        snprintf(r->name[k], sizeof r->name[k], "%s", m->row[k].name);
        memcpy(r->x[t->n_steps - 1][k], m->row[k].x, (size_t)m->row[k].n * sizeof(double));
    }
}

static void train(metric_run *r, const char *more)
{
    char text[1024];
    memset(r, 0, sizeof *r);
    snprintf(text, sizeof text, "%s%s", options, more);
    loop_config(&r->t, text);
    r->t.after_step = keep_metrics, r->t.ctx = r;
    loop_must_train(&r->t);
}

static const double *row(const metric_run *r, int step, const char *name)
{
    for (int k = 0; k < r->n_rows; k++)
        if (strcmp(r->name[k], name) == 0) return r->x[step][k];
    fail_msg("no metric is called %s", name);
    return NULL;
}

static const char *const counts[] = {"decoder.layers.0.mlp.router.tokens_per_expert",
                                     "decoder.layers.1.mlp.router.tokens_per_expert",
                                     "mtp.layers.0.transformer_layer.mlp.router.tokens_per_expert"};

/* An evaluation runs the same layers on other samples. */
static void test_moe_metrics__evaluation_neither_counts_nor_moves_a_bias(void **state)
{
    (void)state;
    static metric_run plain, evaluated;
    train(&plain, "micro_batch_size: 2\n");
    train(&evaluated, "micro_batch_size: 2\neval_interval: 1\neval_iters: 3\n");
    assert_int_equal(plain.t.n_evaluations, 0);
    assert_int_equal(evaluated.t.n_evaluations, STEPS);
    assert_int_equal(evaluated.n_rows, plain.n_rows);
    assert_memory_equal(evaluated.name, plain.name, sizeof plain.name);
    assert_memory_equal(evaluated.x, plain.x, sizeof plain.x);
    loop_same_state(&evaluated.t, &plain.t);
    loop_close(&plain.t);
    loop_close(&evaluated.t);
}

/* Counts are those of the step, losses means over its micro-batches. */
static void test_moe_metrics__of_one_and_of_four_micro_batches(void **state)
{
    (void)state;
    static metric_run whole, cut;
    train(&whole, "micro_batch_size: 4\n");
    train(&cut, "micro_batch_size: 1\n");
    for (int k = 0; k < 3; k++) {
        const double *x = row(&whole, 0, counts[k]), *y = row(&cut, 0, counts[k]);
        double sum = 0;
        for (int e = 0; e < E; e++) sum += x[e];
        assert_true(sum == BATCH * SEQ * TOPK);
        assert_memory_equal(y, x, E * sizeof *x);
    }
    static const char *const losses[] = {"z_loss", "mtp_1 loss"};
    for (int k = 0; k < 2; k++) {
        const double x = row(&whole, 0, losses[k])[0], y = row(&cut, 0, losses[k])[0];
        assert_true(x > 0.5 && fabs(x - y) <= 1e-5 * x);
    }
    loop_close(&whole.t);
    loop_close(&cut.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_metrics__evaluation_neither_counts_nor_moves_a_bias),
        cmocka_unit_test(test_moe_metrics__of_one_and_of_four_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
