/* Mixture of experts at its edges, as whole models: experts without tokens, one token, one expert, all of
 * them, nothing that has a loss, and any order and number of threads. */
#include "step_run.h"

#include <omp.h>

#define BIASED "moe_router_score_function: sigmoid\nmoe_router_enable_expert_bias: true\n"

enum { E = 6, C = 12, LAYERS = 2 };

static const char *expert_param(char buf[128], int layer, int expert, const char *which)
{
    snprintf(buf, 128, "decoder.layers.%d.mlp.experts.local_experts.%d.%s.weight", layer, expert, which);
    return buf;
}

/* Every token of every layer goes to experts first and first + 1, however the scores stand. */
static void send_all_to(step_run *r, int first)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[128];
        snprintf(name, sizeof name, "decoder.layers.%d.mlp.router.expert_bias", layer);
        double *bias = step_value(r, BK_STATE, name);
        for (int e = 0; e < E; e++) bias[e] = e == first || e == first + 1 ? 1e4 : 0;
    }
}

static const double *gradient(int64_t *n, const step_run *r, int layer, int expert, const char *which)
{
    char name[128];
    return step_find(n, r, expert_param(name, layer, expert, which));
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* Gradients of all experts but two are zeros, of those two are not. */
static void expect_idle(const step_run *r, int first)
{
    static const char *const which[] = {"linear_fc1", "linear_fc2"};
    for (int layer = 0; layer < LAYERS; layer++)
        for (int e = 0; e < E; e++)
            for (int k = 0; k < 2; k++) {
                int64_t n;
                const double *x = gradient(&n, r, layer, e, which[k]);
                const bool idle = e != first && e != first + 1;
                for (int64_t i = 0; i < n && idle; i++) assert_true(x[i] == 0);
                if (!idle) assert_true(norm_of(x, n) > 1e-6);
            }
}

static void expect_all_finite(const step_run *r)
{
    for (int k = 0; k < r->n_values; k++)
        for (int64_t i = 0; i < r->n[k] * r->l.n_micro; i++)
            if (!isfinite(r->data[k][i])) fail_msg("%s is not finite", r->name[k]);
}

/* All tokens to the first and to the last experts, with bytes that are free full of NaN (case C36): three
 * steps, idle experts exactly 0, and no bits other than those of the plain order. */
static void test_moe_edges__idle_experts_have_exact_zeros(void **state)
{
    (void)state;
    for (int first = 0; first <= E - 2; first += E - 2) {
        step_run poisoned, plain;
        step_open(&poisoned, "global_batch_size: 4\nmicro_batch_size: 2\n" BIASED);
        step_open(&plain, "global_batch_size: 4\nmicro_batch_size: 2\n" BIASED);
        send_all_to(&poisoned, first);
        send_all_to(&plain, first);
        for (uint64_t step = 0; step < 3; step++) {
            step_go_interleaved(&poisoned, 100 + step);
            step_go(&plain);
            expect_idle(&poisoned, first);
            expect_all_finite(&poisoned);
            const double *counts =
                step_find(NULL, &plain, "metric.sum.decoder.layers.1.mlp.router.tokens_per_expert");
            for (int e = 0; e < E; e++) assert_true(counts[e] == (e == first || e == first + 1 ? 32 : 0));
        }
        for (int k = 0; k < plain.n_values; k++)
            assert_memory_equal(poisoned.data[k], plain.data[k],
                                (size_t)(plain.n[k] * plain.l.n_micro) * sizeof(double));
        step_close(&poisoned);
        step_close(&plain);
    }
}

/* ... and the others do not matter: the model with those two experts alone is the same. */
static void test_moe_edges__experts_that_nobody_chose_might_not_be_there(void **state)
{
    (void)state;
    step_run six, two;
    step_open(&six, "micro_batch_size: 2\n" BIASED);
    step_open(&two, "micro_batch_size: 2\nnum_experts: 2\n" BIASED);
    send_all_to(&six, 0);
    step_go(&six);
    step_go(&two);
    assert_true(fabs(step_objective(&six) - step_objective(&two)) <= 1e-14 * step_objective(&two));
    const bk_graph *g = two.s.program[0].g;
    for (bk_pid p = 0; p < g->n_params; p++) {
        int64_t n, n_six;
        const double *x = step_find(&n, &two, g->param[p].name),
                     *y = step_find(&n_six, &six, g->param[p].name);
        for (int64_t i = 0; i < n; i++) assert_true(fabs(x[i] - y[i]) <= 1e-12 * (1 + fabs(x[i])));
        for (int64_t i = n; i < n_six; i++) assert_true(y[i] == 0); /* rows of the router */
    }
    step_close(&six);
    step_close(&two);
}

/* One token in all: its experts are two, of which each has one row. */
static void test_moe_edges__one_token(void **state)
{
    (void)state;
    static const char *const more[] = {
        "", "moe_expert_capacity_factor: 1\n",
        "moe_expert_capacity_factor: 1\nmoe_pad_expert_input_to_capacity: true\n"};
    for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
        char text[512];
        step_run r;
        snprintf(
            text, sizeof text,
            "seq_length: 1\nmicro_batch_size: 1\nmoe_aux_loss_coeff: 0.1\nmoe_z_loss_coeff: 0.1\n%s" BIASED,
            more[k]);
        step_open(&r, text);
        send_all_to(&r, 3);
        r.labels[0] = 5;
        step_go_interleaved(&r, 3);
        expect_idle(&r, 3);
        expect_all_finite(&r);
        step_close(&r);
    }
}

/* Parameters of a dense layer become those of an expert. */
static void copy_from_dense(step_run *moe, step_run *dense, int n_experts)
{
    static const char *const which[] = {"linear_fc1", "linear_fc2"};
    for (int layer = 0; layer < LAYERS; layer++)
        for (int k = 0; k < 2; k++) {
            char from[128], to[128];
            int64_t n;
            snprintf(from, sizeof from, "decoder.layers.%d.mlp.%s.weight", layer, which[k]);
            step_find(&n, dense, from);
            for (int e = 0; e < n_experts; e++)
                memcpy(step_value(moe, BK_PARAM, expert_param(to, layer, e, which[k])),
                       step_value(dense, BK_PARAM, from), (size_t)n * sizeof(double));
        }
}

/* Experts that are all alike, all of them chosen: probabilities add up to 1, so the layer is a dense one, and
 * the gradients of the experts add up to the dense one's. With one expert the two are the same altogether. */
static void test_moe_edges__all_experts_of_one_kind_are_a_dense_layer(void **state)
{
    (void)state;
    static const char *const which[] = {"linear_fc1", "linear_fc2"};
    step_run dense;
    step_open(&dense, "micro_batch_size: 3\nnum_experts: 0\n");
    step_go(&dense);
    for (int n_experts = 1; n_experts <= 5; n_experts += 4) {
        char text[256];
        step_run moe;
        snprintf(text, sizeof text,
                 "micro_batch_size: 3\nnum_experts: %d\nmoe_router_topk: %d\nmoe_router_pre_softmax: true\n",
                 n_experts, n_experts);
        step_open(&moe, text);
        copy_from_dense(&moe, &dense, n_experts);
        step_go_interleaved(&moe, 9);
        assert_true(fabs(step_objective(&moe) - step_objective(&dense)) <= 1e-13);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int k = 0; k < 2; k++) {
                char name[128];
                int64_t n;
                snprintf(name, sizeof name, "decoder.layers.%d.mlp.%s.weight", layer, which[k]);
                const double *want = step_find(&n, &dense, name);
                for (int64_t i = 0; i < n; i++) {
                    double sum = 0;
                    for (int e = 0; e < n_experts; e++) sum += gradient(NULL, &moe, layer, e, which[k])[i];
                    assert_true(fabs(sum - want[i]) <= 1e-13 * (1 + fabs(want[i])));
                }
            }
        step_close(&moe);
    }
    step_close(&dense);
}

/* Every expert keeps one token of each micro-batch and drops the rest, which then have their residual alone.
 */
static void test_moe_edges__experts_that_drop_nearly_all(void **state)
{
    (void)state;
    static const char *const more[] = {"", "moe_pad_expert_input_to_capacity: true\n",
                                       "moe_token_drop_policy: position\n"};
    for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
        char text[512];
        step_run r, again;
        snprintf(text, sizeof text, "micro_batch_size: 4\nmoe_expert_capacity_factor: 0.01\n%s" BIASED,
                 more[k]);
        step_open(&r, text);
        step_open(&again, text);
        send_all_to(&r, 0);
        send_all_to(&again, 0);
        step_go(&r);
        step_go_interleaved(&again, 17);
        expect_idle(&r, 0);
        expect_all_finite(&again);
        for (int i = 0; i < r.n_values; i++)
            assert_memory_equal(again.data[i], r.data[i], (size_t)(r.n[i] * r.l.n_micro) * sizeof(double));
        step_close(&r);
        step_close(&again);
    }
}

/* Without a token that counts, no loss and exact zeros everywhere; further tokens included. */
static void test_moe_edges__nothing_has_a_loss(void **state)
{
    (void)state;
    for (int hyper = 0; hyper < 2; hyper++) {
        step_run r;
        step_open(&r, hyper ? "micro_batch_size: 2\nmtp_num_layers: 2\nenable_mhc_connections: true\n"
                            : "micro_batch_size: 2\nmtp_num_layers: 2\n");
        memset(r.mask, 0, sizeof r.mask);
        step_go_interleaved(&r, 5);
        assert_true(step_objective(&r) == 0);
        assert_true(step_scalar(&r, "metric.mtp_1 loss") == 0);
        assert_true(step_scalar(&r, "grad_norm") == 0);
        const bk_graph *g = r.s.program[0].g;
        for (bk_pid p = 0; p < g->n_params; p++) {
            int64_t n;
            const double *x = step_find(&n, &r, g->param[p].name);
            for (int64_t i = 0; i < n; i++) assert_true(x[i] == 0);
        }
        step_close(&r);
    }
}

/* Large enough for the kernels to share their work among threads. */
static void test_moe_edges__same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    static const char options[] =
        "global_batch_size: 16\nmicro_batch_size: 16\nhidden_size: 64\nmoe_ffn_hidden_size: 40\n"
        "num_experts: 40\nmoe_router_topk: 8\nmoe_aux_loss_coeff: 0.1\nmoe_z_loss_coeff: 0.1\n"
        "moe_shared_expert_intermediate_size: 24\nmoe_shared_expert_gate: true\nmtp_num_layers: 1\n" BIASED;
    const int before = omp_get_max_threads();
    step_run one;
    omp_set_num_threads(1);
    step_open(&one, options);
    step_go(&one);
    for (int n_threads = 2; n_threads <= 3; n_threads++) {
        step_run more;
        omp_set_num_threads(n_threads);
        step_open(&more, options);
        step_go(&more);
        for (int k = 0; k < one.n_values; k++)
            assert_memory_equal(more.data[k], one.data[k],
                                (size_t)(one.n[k] * one.l.n_micro) * sizeof(double));
        step_close(&more);
    }
    step_close(&one);
    omp_set_num_threads(before);
}

/* A coefficient of 0 is the same as none (case C85): the same bits, and an exact zero where nothing flows. */
static void test_moe_edges__coefficients_of_zero(void **state)
{
    (void)state;
    step_run zero, unset;
    step_open(&zero, "micro_batch_size: 2\nmoe_aux_loss_coeff: 0\nmoe_z_loss_coeff: 0\n"
                     "moe_shared_expert_intermediate_size: 0\n");
    step_open(&unset, "micro_batch_size: 2\n");
    step_go(&zero);
    step_go(&unset);
    assert_int_equal(zero.n_values, unset.n_values);
    for (int k = 0; k < zero.n_values; k++) {
        assert_string_equal(zero.name[k], unset.name[k]);
        assert_memory_equal(zero.data[k], unset.data[k],
                            (size_t)(unset.n[k] * unset.l.n_micro) * sizeof(double));
    }
    step_close(&zero);
    step_close(&unset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_edges__idle_experts_have_exact_zeros),
        cmocka_unit_test(test_moe_edges__experts_that_nobody_chose_might_not_be_there),
        cmocka_unit_test(test_moe_edges__one_token),
        cmocka_unit_test(test_moe_edges__all_experts_of_one_kind_are_a_dense_layer),
        cmocka_unit_test(test_moe_edges__experts_that_drop_nearly_all),
        cmocka_unit_test(test_moe_edges__nothing_has_a_loss),
        cmocka_unit_test(test_moe_edges__same_bits_for_any_number_of_threads),
        cmocka_unit_test(test_moe_edges__coefficients_of_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
