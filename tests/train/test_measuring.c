/* The step that measures is the step that trains, to the bit, and what it tells of each layer is what the
 * parameters and the streams say. */
#include "train/step_run.h"

#define MHC                                                                                                  \
    "enable_mhc_connections: true\nmhc_num_residual_streams: 2\nmhc_init_gating_factor: 0.5\n"               \
    "mhc_sinkhorn_iterations: 1\n"
#define MOE                                                                                                  \
    "moe_aux_loss_coeff: 0.3\nmoe_z_loss_coeff: 0.1\nmoe_router_score_function: sigmoid\n"                   \
    "moe_router_enable_expert_bias: true\n"
#define MTP "mtp_num_layers: 2\n"
#define CUT "global_batch_size: 4\nmicro_batch_size: 1\n"

static void open_and_go(step_run *r, bk_model_mode mode, const char *options)
{
    step_open_mode(r, mode, options);
    r->learning_rate = 0.01;
    step_go(r);
}

/* The bits of the values of scope run, and of all that the step hands over. */
static void expect_same(const step_run *measured, const step_run *plain)
{
    const bk_program *p = &plain->s.program[0], *q = &measured->s.program[0];
    assert_int_equal(q->g->n_params, p->g->n_params);
    int n_run = 0;
    for (bk_vid v = 0; v < p->g->n_values; v++) {
        const bk_value *x = &p->g->value[v];
        if (x->scope != BK_RUN || x->base != BK_NONE) continue;
        const bk_vid w = bk_value_find(q->g, x->kind, x->name);
        assert_true(w != BK_NONE);
        assert_memory_equal(bk_exec_value(measured->s.exec, q->p, w), bk_exec_value(plain->s.exec, p->p, v),
                            (size_t)bk_value_bytes(x));
        n_run++;
    }
    assert_true(n_run >= 3 * p->g->n_params); /* each with two moments */
    for (int k = 0; k < plain->n_values; k++) {
        if (strcmp(plain->name[k], BK_PROBE_CHOICES) == 0) continue;
        const double *x = step_find(NULL, measured, plain->name[k]);
        assert_memory_equal(x, plain->data[k], (size_t)plain->n[k] * sizeof *x);
    }
}

static void test_measuring__does_not_change_a_bit_of_the_step(void **state)
{
    (void)state;
    static const char *const options[] = {
        CUT MHC "num_experts: 0\nhidden_dropout: 0.2\nattention_dropout: 0.1\n",
        CUT MOE,
        CUT MHC MOE MTP "mtp_use_repeated_layer: true\n",
        CUT MHC MOE "multi_latent_attention: true\nkv_lora_rank: 8\nqk_head_dim: 4\nqk_pos_emb_head_dim: 2\n"
                    "v_head_dim: 4\n",
    };
    for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
        static step_run plain, measured;
        open_and_go(&plain, BK_MODEL_TRAIN, options[k]);
        open_and_go(&measured, BK_MODEL_MEASURE, options[k]);
        assert_true(measured.n_values > plain.n_values);
        expect_same(&measured, &plain);
        step_close(&plain);
        step_close(&measured);
    }
}

/* ---- hyper-connections ----------------------------------------------------------------------------------
 */

static void set(step_run *r, const char *param, int64_t at, double x)
{
    step_value(r, BK_PARAM, param)[at] = x;
}

static void expect_near(double x, double want, double tolerance)
{
    if (!(fabs(x - want) <= tolerance)) fail_msg("%.17g is not %.17g", x, want);
}

#define HC0 "decoder.layers.0.self_attention_hyper_connection."
#define HC1 "decoder.layers.1.mlp_hyper_connection."

/* Mixing of the first connection that no token changes: logits 0, 0 of the first stream, 0, ln 3 of the
 * second, so that rows become 1/2 1/2 and 1/4 3/4, and columns are divided by 3/4 and 5/4 once: 2/3 2/5 and
 * 1/3 3/5. The streams before it are copies of the embedding. */
static void test_measuring__figures_of_a_mixing_that_is_known(void **state)
{
    (void)state;
    static step_run r;
    step_open_mode(&r, BK_MODEL_MEASURE, CUT MHC "num_experts: 0\n");
    set(&r, HC0 "alpha_res", 0, 0);
    set(&r, HC0 "bias", 7, log(3)); /* behind two for each of h_pre and h_post: src 1, dst 1 */
    step_go(&r);
    int64_t n_worst, n_mean;
    const double *worst = step_find(&n_worst, &r, "metric.max." HC0 "health.worst");
    const double *mean = step_find(&n_mean, &r, "metric." HC0 "health.mean");
    assert_true(n_worst == 2 && n_mean == 4);
    expect_near(worst[0], 1. / 15, 1e-5); /* 1e-6 stands beside the sums that divide */
    expect_near(worst[1], 0, 1e-5);
    expect_near(mean[0] / 4, sqrt(1. / 9 + 4. / 25 + 1. / 9 + 4. / 25), 1e-5);
    expect_near(mean[1] / 4, sqrt(1. / 36 + 1. / 100 + 1. / 36 + 1. / 100), 1e-5);
    const double *table = step_value(&r, BK_PARAM, "embedding.word_embeddings.weight");
    double norm = 0;
    for (int t = 0; t < 4 * STEP_SEQ; t++) {
        double sum = 0;
        for (int c = 0; c < 12; c++) {
            const double x = table[(int64_t)r.tokens[t] * 12 + c];
            sum += x * x;
        }
        norm += sqrt(sum) / (4 * STEP_SEQ);
    }
    for (int stream = 0; stream < 2; stream++) expect_near(mean[2 + stream] / 4, norm, 1e-12);
    step_close(&r);
}

/* Whatever the cut: the worst of the step, and the mean over its tokens. */
static void test_measuring__of_one_and_of_four_micro_batches(void **state)
{
    (void)state;
    static step_run whole, cut;
    open_and_go(&whole, BK_MODEL_MEASURE, MHC "num_experts: 0\nglobal_batch_size: 4\nmicro_batch_size: 4\n");
    open_and_go(&cut, BK_MODEL_MEASURE, CUT MHC "num_experts: 0\n");
    const double *worst = step_find(NULL, &whole, "metric.max." HC1 "health.worst");
    assert_true(worst[0] > 1e-3); /* columns come last */
    assert_memory_equal(step_find(NULL, &cut, "metric.max." HC1 "health.worst"), worst, 2 * sizeof *worst);
    const double *mean = step_find(NULL, &whole, "metric." HC1 "health.mean");
    const double *sums = step_find(NULL, &cut, "metric." HC1 "health.mean");
    assert_true(fabs(mean[2] - mean[3]) > 1e-3); /* the streams have parted */
    for (int k = 0; k < 4; k++) expect_near(sums[k] / 4, mean[k], 1e-12 * mean[k]);
    step_close(&whole);
    step_close(&cut);
}

/* ---- routers --------------------------------------------------------------------------------------------
 */

/* What training reports of a loss is the mean over the layers, each of which measuring tells. Depths that
 * share a layer are one there. */
static void test_measuring__losses_of_layers_make_the_loss_of_all(void **state)
{
    (void)state;
    static const char *const losses[] = {"load_balancing_loss", "z_loss"};
    static step_run r;
    open_and_go(&r, BK_MODEL_MEASURE, CUT MOE MTP "mtp_use_repeated_layer: true\n");
    for (int k = 0; k < 2; k++) {
        double of[3];
        char name[128];
        static const char *const layers[] = {"decoder.layers.0", "decoder.layers.1",
                                             "mtp.layers.0.transformer_layer"};
        for (int layer = 0; layer < 3; layer++) {
            snprintf(name, sizeof name, "metric.%s.mlp.router.%s", layers[layer], losses[k]);
            of[layer] = step_scalar(&r, name);
        }
        snprintf(name, sizeof name, "metric.%s", losses[k]);
        assert_true(of[0] != of[1] && of[1] != of[2]);
        expect_near((of[0] + of[1] + 2 * of[2]) / 4, step_scalar(&r, name), 1e-12);
    }
    step_close(&r);
}

static void test_measuring__kind_and_name_of_a_metric(void **state)
{
    (void)state;
    static const struct {
        const char *value, *name;
        bk_metric_kind kind;
    } cases[] = {{"metric.z_loss", "z_loss", BK_METRIC_MEAN},
                 {"metric.sum.n_tokens", "n_tokens", BK_METRIC_SUM},
                 {"metric.max.a.health.worst", "a.health.worst", BK_METRIC_MAX}};
    bk_metric_kind kind;
    for (int k = 0; k < 3; k++) {
        assert_string_equal(bk_metric_of(&kind, cases[k].value), cases[k].name);
        assert_int_equal(kind, cases[k].kind);
    }
    assert_null(bk_metric_of(&kind, "grad_norm"));
    assert_null(bk_metric_of(&kind, "metrical"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measuring__does_not_change_a_bit_of_the_step),
        cmocka_unit_test(test_measuring__figures_of_a_mixing_that_is_known),
        cmocka_unit_test(test_measuring__of_one_and_of_four_micro_batches),
        cmocka_unit_test(test_measuring__losses_of_layers_make_the_loss_of_all),
        cmocka_unit_test(test_measuring__kind_and_name_of_a_metric),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
