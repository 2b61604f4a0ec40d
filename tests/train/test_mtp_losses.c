/* The losses of multi-token prediction and what they do to gradients, as whole models. */
#include "step_run.h"

#define DENSE "num_experts: 0\n"

static const char *const depths[] = {"metric.mtp_1 loss", "metric.mtp_2 loss", "metric.mtp_3 loss"};

/* A gain of 0 leaves the bias of the final norm as hidden state of all positions, so that all have the same
 * logits. Depth 0 is the model. */
static void fix_hidden(step_run *r, int depth)
{
    char name[64], where[32] = "decoder";
    if (depth > 0) snprintf(where, sizeof where, "mtp.layers.%d", depth - 1);
    snprintf(name, sizeof name, "%s.final_layernorm.weight", where);
    double *gain = step_value(r, BK_PARAM, name);
    snprintf(name, sizeof name, "%s.final_layernorm.bias", where);
    double *bias = step_value(r, BK_PARAM, name);
    for (int64_t i = 0; i < r->c.hidden_size; i++) gain[i] = 0, bias[i] = sin(3.1 * (double)i + depth);
}

/* Cross entropy of that state with a label. */
static double fixed_loss(step_run *r, int depth, int label)
{
    const double *w = step_value(r, BK_PARAM, "output_layer.weight");
    double sum = 0, chosen = 0;
    for (int64_t v = 0; v < r->c.vocab_size; v++) {
        double logit = 0;
        for (int64_t i = 0; i < r->c.hidden_size; i++)
            logit += w[v * r->c.hidden_size + i] * sin(3.1 * (double)i + depth);
        sum += exp(logit);
        if (v == label) chosen = logit;
    }
    return log(sum) - chosen;
}

/* The mean of a depth over a micro-batch: of the positions that have a label `depth` further on inside their
 * own sample, and whose label counts. */
static double mean_loss(step_run *r, int depth, int64_t micro)
{
    const int64_t S = r->c.seq_length, B = r->c.micro_batch_size;
    double sum = 0, n = 0;
    for (int64_t b = micro * B; b < (micro + 1) * B; b++)
        for (int64_t s = 0; s + depth < S; s++) {
            const int64_t at = b * S + s + depth;
            sum += r->mask[at] * fixed_loss(r, depth, (int)r->labels[at]), n += r->mask[at];
        }
    return n > 0 ? sum / n : 0;
}

static void assert_near(double x, double want)
{
    if (!(fabs(x - want) <= 1e-13 * (1 + fabs(want)))) fail_msg("%.17g is not %.17g", x, want);
}

static void test_mtp_losses__are_means_over_their_own_positions(void **state)
{
    (void)state;
    enum { D = 3, MICRO = 2 };
    step_run r;
    step_open(&r, DENSE "normalization: LayerNorm\nmtp_num_layers: 3\nmtp_loss_scaling_factor: 0.6\n"
                        "micro_batch_size: 2\nglobal_batch_size: 4\n");
    for (int d = 0; d <= D; d++) fix_hidden(&r, d);
    for (int k = 0; k < STEP_TOKENS; k++) r.mask[k] = k % 5 == 1 || k % 7 == 3 ? 0 : 1;
    for (int k = 0; k < 8; k++) r.labels[8 + k] = k; /* the last label of a sample is another one's */
    step_go(&r);
    double objective = 0;
    for (int d = 0; d <= D; d++) {
        const double want = mean_loss(&r, d, 0) + mean_loss(&r, d, 1);
        if (d > 0) assert_near(step_scalar(&r, depths[d - 1]), want);
        objective += (d > 0 ? 0.6 / D : 1) * want / MICRO;
    }
    assert_near(step_objective(&r), objective);
    step_close(&r);
}

/* Eight positions, of which the first depth has seven (case C42): the mean is over seven, in the loss and in
 * its gradient. */
static void test_mtp_losses__gradient_is_that_of_the_mean(void **state)
{
    (void)state;
    enum { V = 16, C = 12 };
    step_run r;
    step_open(&r, DENSE "mtp_num_layers: 1\nmtp_loss_scaling_factor: 0.1\n");
    double *w = step_value(&r, BK_PARAM, "output_layer.weight"), direction[V * C], slope = 0;
    memset(w, 0, sizeof direction);
    step_go(&r);
    assert_true(fabs(step_scalar(&r, "metric.mtp_1 loss") - 2.7725887) < 1e-7);
    assert_true(fabs(step_objective(&r) - 3.0498476) < 1e-7);
    const double *grad = step_find(NULL, &r, "output_layer.weight");
    for (int i = 0; i < V * C; i++) direction[i] = sin(1.3 * i), slope += grad[i] * direction[i];
    double up, down;
    for (int i = 0; i < V * C; i++) w[i] = 1e-5 * direction[i];
    step_go(&r), up = step_objective(&r);
    for (int i = 0; i < V * C; i++) w[i] = -1e-5 * direction[i];
    step_go(&r), down = step_objective(&r);
    assert_true(fabs(slope) > 1e-2);
    assert_true(fabs((up - down) / 2e-5 - slope) < 1e-8);
    step_close(&r);
}

/* Gradients of all that has no part in multi-token prediction are the bits of `plain`'s; its own are zeros if
 * `zero`, and otherwise not all of them. */
static void expect_trunk_of(const step_run *r, const step_run *plain, bool zero)
{
    const bk_graph *g = r->s.program[0].g;
    int n_own = 0, n_trunk = 0;
    for (bk_pid p = 0; p < g->n_params; p++) {
        int64_t n;
        const char *name = g->param[p].name;
        const double *x = step_find(&n, r, name);
        if (strncmp(name, "mtp.", 4) != 0) {
            const double *y = step_find(NULL, plain, name);
            for (int64_t i = 0; i < n; i++) assert_true(x[i] == y[i]);
            n_trunk++;
            continue;
        }
        double size = 0;
        for (int64_t i = 0; i < n; i++) size += fabs(x[i]);
        assert_true(zero ? size == 0 : size > 0);
        n_own++;
    }
    assert_true(n_own > 0);
    assert_int_equal(n_trunk, plain->s.program[0].g->n_params);
    assert_true(step_scalar(r, "metric.sum.loss_sum") == step_scalar(plain, "metric.sum.loss_sum"));
}

#define MHC "enable_mhc_connections: true\nmhc_num_residual_streams: 2\nmhc_init_gating_factor: 0.5\n"
static const char *const kinds[] = {DENSE, DENSE MHC, DENSE "untie_embeddings_and_output_weights: false\n"};
enum { N_KINDS = 3 };

static void compare_with_plain(const char *more, bool zero)
{
    for (int k = 0; k < N_KINDS; k++) {
        char text[1024];
        step_run plain, r;
        snprintf(text, sizeof text, "%smicro_batch_size: 2\n%s%s", kinds[k], more,
                 strstr(more, "seq_length") ? "" : "seq_length: 8\n");
        step_open(&r, text);
        strcat(text, "mtp_num_layers: 0\n");
        step_open(&plain, text);
        step_go_interleaved(&r, 3);
        step_go(&plain);
        expect_trunk_of(&r, &plain, zero);
        if (!zero) assert_true(step_scalar(&r, "metric.mtp_1 loss") > 0.1);
        step_close(&plain);
        step_close(&r);
    }
}

/* A weight of 0 leaves the model alone; every parameter still has a gradient, of exact zeros (case C85). */
static void test_mtp_losses__weight_of_zero(void **state)
{
    (void)state;
    compare_with_plain("mtp_num_layers: 2\nmtp_loss_scaling_factor: 0\n", true);
}

/* Where no position has a label that far on there is nothing to learn. */
static void test_mtp_losses__sequences_that_are_too_short(void **state)
{
    (void)state;
    compare_with_plain("mtp_num_layers: 1\nseq_length: 1\n", true);
}

/* The first of two depths has one position of two, the second none. */
static void test_mtp_losses__depths_beyond_the_sequence(void **state)
{
    (void)state;
    step_run r;
    step_open(&r, DENSE "mtp_num_layers: 2\nseq_length: 2\nmicro_batch_size: 3\n");
    step_go_interleaved(&r, 1);
    assert_true(step_scalar(&r, depths[0]) > 0);
    assert_true(step_scalar(&r, depths[1]) == 0);
    int64_t n;
    const double *x = step_find(&n, &r, "mtp.layers.1.eh_proj.weight");
    for (int64_t i = 0; i < n; i++) assert_true(x[i] == 0);
    step_close(&r);
}

/* Detached heads learn, and nothing of the rest learns from them: not the table they share either. */
static void test_mtp_losses__detached_heads(void **state)
{
    (void)state;
    compare_with_plain("mtp_num_layers: 2\nmtp_detach_heads: true\n", false);
}

/* Heads that are not detached have the same gradients themselves, and the rest has others. */
static void test_mtp_losses__heads_that_are_not_detached(void **state)
{
    (void)state;
    step_run attached, detached;
    step_open(&attached, DENSE "mtp_num_layers: 2\n");
    step_open(&detached, DENSE "mtp_num_layers: 2\nmtp_detach_heads: true\n");
    step_go(&attached);
    step_go(&detached);
    const bk_graph *g = attached.s.program[0].g;
    for (bk_pid p = 0; p < g->n_params; p++) {
        int64_t n;
        const char *name = g->param[p].name;
        const double *x = step_find(&n, &attached, name), *y = step_find(NULL, &detached, name);
        double diff = 0;
        for (int64_t i = 0; i < n; i++) diff += fabs(x[i] - y[i]);
        if (strncmp(name, "mtp.", 4) == 0)
            assert_true(diff == 0);
        else
            assert_true(diff > 1e-6);
    }
    step_close(&attached);
    step_close(&detached);
}

/* No further token is what there is without the option (case C59). */
static void test_mtp_losses__zero_depths_are_none(void **state)
{
    (void)state;
    step_run zero, unset;
    step_open(&zero, DENSE "mtp_num_layers: 0\nmtp_loss_scaling_factor: 0.7\n");
    step_open(&unset, DENSE);
    step_go(&zero);
    step_go(&unset);
    assert_int_equal(zero.n_values, unset.n_values);
    for (int k = 0; k < zero.n_values; k++) {
        assert_string_equal(zero.name[k], unset.name[k]);
        assert_memory_equal(zero.data[k], unset.data[k], (size_t)unset.n[k] * sizeof(double));
    }
    step_close(&zero);
    step_close(&unset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mtp_losses__are_means_over_their_own_positions),
        cmocka_unit_test(test_mtp_losses__gradient_is_that_of_the_mean),
        cmocka_unit_test(test_mtp_losses__weight_of_zero),
        cmocka_unit_test(test_mtp_losses__sequences_that_are_too_short),
        cmocka_unit_test(test_mtp_losses__depths_beyond_the_sequence),
        cmocka_unit_test(test_mtp_losses__detached_heads),
        cmocka_unit_test(test_mtp_losses__heads_that_are_not_detached),
        cmocka_unit_test(test_mtp_losses__zero_depths_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
