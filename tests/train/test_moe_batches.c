/* What a router counts and what balances it, of the same samples cut into 1, 2 or 4 micro-batches. */
#include "step_run.h"

#define BATCHES "global_batch_size: 4\nmicro_batch_size: "
#define BIASED  "moe_router_score_function: sigmoid\nmoe_router_enable_expert_bias: true\n"
#define MTP     "mtp_num_layers: 1\n"

static const char *const routers[] = {"decoder.layers.0.mlp.router", "decoder.layers.1.mlp.router",
                                      "mtp.layers.0.transformer_layer.mlp.router"};
enum { N_ROUTERS = 3, E = 6, TOPK = 2, TOKENS = 4 * STEP_SEQ };

static void run_with(step_run *r, const char *micro_batch, const char *more)
{
    char text[1024];
    snprintf(text, sizeof text, BATCHES "%s\n%s", micro_batch, more);
    step_open(r, text);
    step_go(r);
}

static double *counts_of(const step_run *r, int router)
{
    char name[128];
    int64_t n;
    snprintf(name, sizeof name, "metric.sum.%s.tokens_per_expert", routers[router]);
    double *x = step_find(&n, r, name);
    assert_int_equal(n, E);
    return x;
}

static double *bias_of(step_run *r, int router)
{
    char name[128];
    snprintf(name, sizeof name, "%s.expert_bias", routers[router]);
    return step_value(r, BK_STATE, name);
}

static void assert_near(double x, double want, double tolerance)
{
    if (!(fabs(x - want) <= tolerance * fabs(want))) fail_msg("%.17g is not %.17g", x, want);
}

/* The mean over the micro-batches, as it is reported. */
static double mean_of(const step_run *r, const char *name)
{
    return step_scalar(r, name) / (double)r->l.n_micro;
}

/* Two steps, so that the second chooses by the bias that the first left. */
static void test_moe_batches__counts_and_bias_are_those_of_the_step(void **state)
{
    (void)state;
    static const char *const micro[] = {"4", "2", "1"};
    step_run whole;
    run_with(&whole, micro[0], BIASED MTP "moe_router_bias_update_rate: 0.05\n");
    step_go(&whole);
    for (int k = 1; k < 3; k++) {
        step_run cut;
        run_with(&cut, micro[k], BIASED MTP "moe_router_bias_update_rate: 0.05\n");
        step_go(&cut);
        for (int layer = 0; layer < N_ROUTERS; layer++) {
            assert_memory_equal(counts_of(&cut, layer), counts_of(&whole, layer), E * sizeof(double));
            assert_memory_equal(bias_of(&cut, layer), bias_of(&whole, layer), E * sizeof(double));
        }
        step_close(&cut);
    }
    for (int layer = 0; layer < N_ROUTERS; layer++) {
        double sum = 0, moved = 0;
        for (int e = 0; e < E; e++)
            sum += counts_of(&whole, layer)[e], moved += fabs(bias_of(&whole, layer)[e]);
        assert_true(sum == TOKENS * TOPK);
        assert_true(moved > 0.05);
    }
    step_close(&whole);
}

/* bias += rate * sign(mean - count), once a step; the choice before it is by the scores. */
static void test_moe_batches__bias_moves_once_a_step(void **state)
{
    (void)state;
    step_run r;
    run_with(&r, "1", BIASED MTP "moe_router_bias_update_rate: 0.05\n");
    for (int layer = 0; layer < N_ROUTERS; layer++)
        for (int e = 0; e < E; e++) {
            const double below = (double)TOKENS * TOPK / E - counts_of(&r, layer)[e];
            assert_true(bias_of(&r, layer)[e] == 0.05 * ((below > 0) - (below < 0)));
        }
    step_close(&r);
}

/* Means over tokens, and over sequences. */
static void test_moe_batches__z_and_sequence_losses_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    static const char options[] = MTP "moe_z_loss_coeff: 0.3\nmoe_router_load_balancing_type: seq_aux_loss\n"
                                      "moe_aux_loss_coeff: 0.7\n";
    static const char *const micro[] = {"2", "1"};
    step_run whole;
    run_with(&whole, "4", options);
    for (int k = 0; k < 2; k++) {
        step_run cut;
        run_with(&cut, micro[k], options);
        assert_near(mean_of(&cut, "metric.z_loss"), mean_of(&whole, "metric.z_loss"), 1e-13);
        assert_near(mean_of(&cut, "metric.seq_load_balancing_loss"),
                    mean_of(&whole, "metric.seq_load_balancing_loss"), 1e-13);
        assert_near(step_objective(&cut), step_objective(&whole), 1e-13);
        step_same_gradients(&cut, &whole, "router", 1e-10);
        step_close(&cut);
    }
    step_close(&whole);
}

/* The loss of a micro-batch compares the experts over that micro-batch: with one sequence in each, it is the
 * loss of the sequences. */
static void test_moe_batches__loss_of_one_sequence_each_is_that_of_sequences(void **state)
{
    (void)state;
    step_run by_batch, by_sequence;
    run_with(&by_batch, "1", "moe_aux_loss_coeff: 0.7\n");
    run_with(&by_sequence, "4", "moe_router_load_balancing_type: seq_aux_loss\nmoe_aux_loss_coeff: 0.7\n");
    assert_near(mean_of(&by_batch, "metric.load_balancing_loss"),
                mean_of(&by_sequence, "metric.seq_load_balancing_loss"), 1e-13);
    step_same_gradients(&by_batch, &by_sequence, "router", 1e-10);
    step_close(&by_batch);
    step_close(&by_sequence);
}

/* The global loss compares a micro-batch with the counts of the step so far: with one micro-batch, it is the
 * loss of the micro-batch. */
static void test_moe_batches__global_loss_of_one_batch_is_that_of_the_batch(void **state)
{
    (void)state;
    step_run global, by_batch;
    run_with(&global, "4", "moe_router_load_balancing_type: global_aux_loss\nmoe_aux_loss_coeff: 0.7\n");
    run_with(&by_batch, "4", "moe_aux_loss_coeff: 0.7\n");
    assert_near(mean_of(&global, "metric.global_load_balancing_loss"),
                mean_of(&by_batch, "metric.load_balancing_loss"), 1e-13);
    step_same_gradients(&global, &by_batch, "router", 1e-10);
    step_close(&global);
    step_close(&by_batch);
}

static void run_repeated(step_run *r, const char *kind, int n_micro, int micro_batch, const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "global_batch_size: %d\nmicro_batch_size: %d\nmoe_router_load_balancing_type: %s\n"
             "moe_aux_loss_coeff: 1\n%s",
             n_micro * micro_batch, micro_batch, kind, more);
    step_open(r, text);
    step_repeat_sample(r, 0);
}

static const char *const kinds[] = {"aux_loss", "seq_aux_loss", "global_aux_loss"};
static const char *const metrics[] = {"metric.load_balancing_loss", "metric.seq_load_balancing_loss",
                                      "metric.global_load_balancing_loss"};

/* Where the micro-batches do not differ, no cut makes a difference to any of the losses (case C44). */
static void test_moe_batches__no_loss_depends_on_the_cut_of_equal_samples(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        step_run whole;
        run_repeated(&whole, kinds[k], 1, 4, "");
        step_go(&whole);
        for (int micro_batch = 2; micro_batch > 0; micro_batch--) {
            step_run cut;
            run_repeated(&cut, kinds[k], 4 / micro_batch, micro_batch, "");
            step_go(&cut);
            assert_near(mean_of(&cut, metrics[k]), mean_of(&whole, metrics[k]), 1e-13);
            step_same_gradients(&cut, &whole, "router", 1e-10);
            step_close(&cut);
        }
        step_close(&whole);
    }
}

/* Of the losses only the balancing one is left, the mask being 0: its gradient reaches the router, and is the
 * same for 1, 4 and 16 equal micro-batches (case C46). */
static void test_moe_batches__balance_reaches_the_router_as_often_as_the_main_loss(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        step_run one;
        run_repeated(&one, kinds[k], 1, 1, "");
        memset(one.mask, 0, sizeof one.mask);
        step_go(&one);
        double norm2 = 0;
        const double *grad = step_find(NULL, &one, "decoder.layers.1.mlp.router.weight");
        for (int i = 0; i < E * 12; i++) norm2 += grad[i] * grad[i];
        assert_true(sqrt(norm2) > 1e-3);
        assert_true(step_objective(&one) > 0.5); /* 1 for each of two layers where all is balanced */
        for (int n = 4; n <= 16; n *= 4) {
            step_run more;
            run_repeated(&more, kinds[k], n, 1, "");
            memset(more.mask, 0, sizeof more.mask);
            step_go(&more);
            step_same_gradients(&more, &one, "router", 1e-12);
            step_close(&more);
        }
        step_close(&one);
    }
}

/* Tokens and experts are both 8, so that a mask in the place of a map would fit: what is masked in the loss
 * counts as much as everything else for the router. */
static void test_moe_batches__the_loss_mask_is_none_of_the_routers_business(void **state)
{
    (void)state;
    static const char options[] =
        "num_experts: 8\nmicro_batch_size: 1\n" BIASED "moe_aux_loss_coeff: 0.5\nmoe_z_loss_coeff: 0.1\n";
    step_run all, masked;
    step_open(&all, options);
    step_go(&all);
    step_open(&masked, options);
    for (int s = 5; s < 8; s++) masked.mask[s] = 0;
    step_go(&masked);
    assert_true(step_scalar(&masked, "metric.sum.n_tokens") == 5);
    for (int layer = 0; layer < 2; layer++) {
        const char *const of = layer ? "metric.sum.decoder.layers.1.mlp.router.tokens_per_expert"
                                     : "metric.sum.decoder.layers.0.mlp.router.tokens_per_expert";
        const double *x = step_find(NULL, &masked, of);
        double sum = 0;
        for (int e = 0; e < 8; e++) sum += x[e];
        assert_true(sum == 8 * TOPK);
        assert_memory_equal(x, step_find(NULL, &all, of), 8 * sizeof *x);
    }
    assert_true(step_scalar(&masked, "metric.load_balancing_loss") ==
                step_scalar(&all, "metric.load_balancing_loss"));
    assert_true(step_scalar(&masked, "metric.z_loss") == step_scalar(&all, "metric.z_loss"));
    assert_true(step_scalar(&masked, "metric.sum.loss_sum") != step_scalar(&all, "metric.sum.loss_sum"));
    step_close(&all);
    step_close(&masked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_batches__counts_and_bias_are_those_of_the_step),
        cmocka_unit_test(test_moe_batches__bias_moves_once_a_step),
        cmocka_unit_test(test_moe_batches__z_and_sequence_losses_do_not_depend_on_the_cut),
        cmocka_unit_test(test_moe_batches__loss_of_one_sequence_each_is_that_of_sequences),
        cmocka_unit_test(test_moe_batches__global_loss_of_one_batch_is_that_of_the_batch),
        cmocka_unit_test(test_moe_batches__no_loss_depends_on_the_cut_of_equal_samples),
        cmocka_unit_test(test_moe_batches__balance_reaches_the_router_as_often_as_the_main_loss),
        cmocka_unit_test(test_moe_batches__the_loss_mask_is_none_of_the_routers_business),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
