/* Plans of whole models: random configurations, several micro-batches in flight, costs, the printed form. */
#include "train/small_run.h"

#include <omp.h>

#include "plan/brute_plan.h"
#include "plan/check.h"

static const bk_plan *plan_of(const small_run *r)
{
    return r->session.program[0].p;
}

/* The run part after one step of a plan from the initial state; loss and norm go to r. */
static unsigned char *state_after(small_run *r, const bk_plan *p, const void *initial, int64_t seed)
{
    bk_err e = {0};
    bk_exec *x;
    unsigned char *state = malloc((size_t)p->run_bytes);
    must(bk_exec_open(&x, p->run_bytes, p->step_bytes, &e), &e);
    void *run = bk_exec_value(x, p, p->g->param[0].value);
    memcpy(run, initial, (size_t)p->run_bytes);
    r->loss_sum = r->grad_norm = -1;
    if (seed < 0)
        must(bk_exec_run(x, p, &r->host, &e), &e);
    else
        must(bk_exec_interleave(x, p, &r->host, (uint64_t)seed, &e), &e);
    memcpy(state, run, (size_t)p->run_bytes);
    const bk_exec_stats stats = bk_exec_get_stats(x);
    assert_int_equal(stats.high_water_bytes, bk_plan_bytes(p));
    assert_int_equal(stats.madds, p->cost.madds);
    bk_exec_close(x);
    return state;
}

/* ---- random configurations ----------------------------------------------------------------------------- */

static int64_t draw(uint64_t *rng, int64_t n)
{
    *rng += UINT64_C(0x9e3779b97f4a7c15);
    return (int64_t)(bk_mix64(*rng) % (uint64_t)n);
}

static const char *flag(uint64_t *rng)
{
    return draw(rng, 2) ? "true" : "false";
}

static void random_config(char *out, size_t cap, uint64_t seed)
{
    static const char *const positions[] = {"rope", "learned_absolute", "none"};
    static const char *const activations[] = {"swiglu: true", "activation: gelu\nswiglu: false",
                                              "activation: gelu_tanh\nswiglu: false"};
    uint64_t rng = seed;
    const int64_t streams = draw(&rng, 5), heads = draw(&rng, 2) ? 4 : 2, bias = draw(&rng, 2);
    int n =
        snprintf(out, cap, "num_layers: %d\nseq_length: %d\nmicro_batch_size: %d\nnum_attention_heads: %d\n",
                 (int)(1 + draw(&rng, 3)), (int)(3 + draw(&rng, 6)), (int)(1 + draw(&rng, 3)), (int)heads);
    n += snprintf(out + n, cap - (size_t)n, "num_query_groups: %d\n",
                  (int)(draw(&rng, 2) ? heads : heads / 2));
    n += snprintf(out + n, cap - (size_t)n, "enable_mhc_connections: %s\n", streams ? "true" : "false");
    if (streams) n += snprintf(out + n, cap - (size_t)n, "mhc_num_residual_streams: %d\n", (int)streams);
    n += snprintf(out + n, cap - (size_t)n, "normalization: %s\n", draw(&rng, 2) ? "RMSNorm" : "LayerNorm");
    n += snprintf(out + n, cap - (size_t)n, "%s\n", activations[draw(&rng, 3)]);
    n += snprintf(out + n, cap - (size_t)n, "add_bias_linear: %s\n", bias ? "true" : "false");
    if (!bias) n += snprintf(out + n, cap - (size_t)n, "add_qkv_bias: %s\n", flag(&rng));
    n += snprintf(out + n, cap - (size_t)n, "untie_embeddings_and_output_weights: %s\n", flag(&rng));
    n += snprintf(out + n, cap - (size_t)n, "position_embedding_type: %s\n", positions[draw(&rng, 3)]);
    n += snprintf(out + n, cap - (size_t)n, "hidden_dropout: %s\n", draw(&rng, 2) ? "0.1" : "0");
    n += snprintf(out + n, cap - (size_t)n, "attention_dropout: %s\n", draw(&rng, 2) ? "0.1" : "0");
    assert_true((size_t)n < cap);
}

/* The plan is legal for checker and brute force alike, and every order that it allows gives the same bits. */
static void check_config(uint64_t seed)
{
    char yaml[1024];
    small_run r;
    random_config(yaml, sizeof yaml, seed);
    small_run_graphs(&r, yaml, 1 + (int64_t)(seed % 4), BK_F32);
    small_run_open(&r); /* plans and checks */
    const bk_plan *p = plan_of(&r);
    brute_check_bytes(p);
    brute_check_waits(p);
    const size_t bytes = (size_t)p->run_bytes;
    unsigned char *initial = malloc(bytes);
    memcpy(initial, small_run_state(&r), bytes);
    unsigned char *want = state_after(&r, p, initial, -1);
    const double loss = r.loss_sum, norm = r.grad_norm;
    assert_true(loss > 0 && norm > 0);
    assert_true(memcmp(initial, want, bytes) != 0);
    for (int64_t order = 1; order <= 3; order++) {
        unsigned char *got = state_after(&r, p, initial, order);
        if (memcmp(got, want, bytes) != 0 || r.loss_sum != loss || r.grad_norm != norm)
            fail_msg("configuration %d, order %d: other bits\n%s", (int)seed, (int)order, yaml);
        free(got);
    }
    free(initial), free(want);
    small_run_close(&r);
}

static void test_plan__random_configurations(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) check_config(seed);
}

/* ---- several micro-batches in flight ------------------------------------------------------------------- */

/* Steps of a schedule: 'F' or 'B' and a micro-batch. The regions around stay where the plain schedule has
 * them. */
static bk_schedule *schedule_of(const bk_graph *g, const bk_schedule *plain, const char *steps)
{
    bk_schedule *s = calloc(1, sizeof *s);
    s->n_micro = plain->n_micro;
    s->item = malloc((size_t)plain->n_items * sizeof *s->item);
    int64_t i = 0;
    for (; plain->item[i].micro == BK_NONE; i++) s->item[s->n_items++] = plain->item[i];
    for (; *steps; steps += 2)
        for (int64_t k = i; k < plain->n_items && plain->item[k].micro != BK_NONE; k++) {
            const bool forward = g->region[plain->item[k].region].tag.pass == BK_PASS_FORWARD;
            if (plain->item[k].micro == steps[1] - '0' && forward == (steps[0] == 'F'))
                s->item[s->n_items++] = plain->item[k];
        }
    while (i < plain->n_items && plain->item[i].micro != BK_NONE) i++;
    for (; i < plain->n_items; i++) s->item[s->n_items++] = plain->item[i];
    assert_int_equal(s->n_items, plain->n_items);
    s->cap_items = s->n_items;
    return s;
}

static void check_in_flight(const char *more, int64_t n_micro, const char *steps, int32_t n_slots,
                            const int32_t *slot)
{
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    small_run r;
    bk_err e = {0};
    bk_plan *p;
    small_run_graphs(&r, more, n_micro, BK_F32);
    small_run_open(&r);
    const bk_plan *plain = plan_of(&r);
    assert_int_equal(plain->chunk[0].n_slots, 1);
    bk_schedule *s = schedule_of(plain->g, plain->s, steps);
    must(bk_plan_build(&p, plain->g, s, &r.session.run, &target, &e), &e);
    must(bk_plan_check(p, &e), &e);
    brute_check_bytes(p);
    brute_check_waits(p);
    assert_int_equal(p->chunk[0].n_slots, n_slots);
    for (int64_t m = 0; m < n_micro; m++) assert_int_equal(p->slot[m], slot[m]);
    assert_int_equal(p->chunk[0].slot_bytes, plain->chunk[0].slot_bytes);
    assert_true(p->step_bytes > plain->step_bytes);
    assert_true(p->peak_bytes > plain->peak_bytes && p->peak_bytes <= bk_plan_bytes(p));
    unsigned char *initial = malloc((size_t)p->run_bytes);
    memcpy(initial, small_run_state(&r), (size_t)p->run_bytes);
    unsigned char *want = state_after(&r, plain, initial, -1);
    const double loss = r.loss_sum;
    for (int64_t order = -1; order <= 3; order++) {
        unsigned char *got = state_after(&r, p, initial, order);
        assert_memory_equal(got, want, (size_t)p->run_bytes);
        assert_true(r.loss_sum == loss);
        free(got);
    }
    free(initial), free(want);
    bk_plan_free(p), bk_schedule_free(s);
    small_run_close(&r);
}

static void test_plan__two_micro_batches_in_flight(void **state)
{
    (void)state;
    static const int32_t slots[] = {0, 1};
    check_in_flight("", 2, "F0F1B0B1", 2, slots);
    check_in_flight("enable_mhc_connections: false\nadd_bias_linear: true\nhidden_dropout: 0.1\n"
                    "untie_embeddings_and_output_weights: false\nposition_embedding_type: learned_absolute\n",
                    2, "F0F1B0B1", 2, slots);
}

/* One forward, one backward: a slot is taken again when its micro-batch is done. */
static void test_plan__slots_are_used_again(void **state)
{
    (void)state;
    static const int32_t slots[] = {0, 1, 0, 1};
    check_in_flight("", 4, "F0F1B0F2B1F3B2B3", 2, slots);
}

/* Accumulators take their terms in the order of the micro-batches, whatever the schedule. */
static void test_plan__backwards_in_another_order_are_refused(void **state)
{
    (void)state;
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    small_run r;
    bk_err e = {0};
    bk_plan *p;
    small_run_graphs(&r, "", 2, BK_F32);
    small_run_open(&r);
    bk_schedule *s = schedule_of(plan_of(&r)->g, plan_of(&r)->s, "F0F1B1B0");
    must(bk_plan_build(&p, plan_of(&r)->g, s, &r.session.run, &target, &e), &e);
    assert_int_equal(bk_plan_check(p, &e), BK_E_CHECK);
    assert_non_null(strstr(e.msg, "rule 1: "));
    assert_non_null(strstr(e.msg, "it updates first"));
    bk_plan_free(p), bk_schedule_free(s);
    small_run_close(&r);
}

/* ---- what a plan says about itself --------------------------------------------------------------------- */

static void test_plan__every_accumulator_begins_once(void **state)
{
    (void)state;
    small_run r;
    small_run_graphs(&r, "", 3, BK_F32);
    small_run_open(&r);
    const bk_plan *p = plan_of(&r);
    const bk_graph *g = p->g;
    int64_t n = 0;
    for (bk_vid v = 0; v < g->n_values; v++) {
        if (g->value[v].scope != BK_STEP || g->value[v].base != BK_NONE) continue;
        if (g->value[v].kind != BK_GRADIENT && g->value[v].kind != BK_STATE) continue;
        int64_t begun = 0, updates = 0;
        for (int64_t i = 0; i < p->s->n_items; i++) {
            const bk_region *region = &g->region[p->s->item[i].region];
            for (int32_t k = 0; k < region->n_ops; k++) {
                const bk_oid o = g->region_op[region->first + k];
                for (int32_t u = 0; u < g->op[o].n_upd; u++) {
                    if (bk_upds(g, &g->op[o])[u] != v) continue;
                    const bool assigns = bk_plan_assigns(p, (int32_t)i, o, u);
                    assert_int_equal(assigns, updates == 0);
                    begun += assigns, updates++;
                }
            }
        }
        assert_int_equal(begun, 1);
        assert_int_equal(updates % 3, 0);
        n++;
    }
    assert_int_equal(n, p->n_assigns);
    assert_true(n > g->n_params); /* metrics too */
    small_run_close(&r);
}

static void test_plan__costs_grow_with_micro_batches(void **state)
{
    (void)state;
    bk_cost cost[2];
    for (int k = 0; k < 2; k++) {
        small_run r;
        small_run_graphs(&r, "", k ? 4 : 1, BK_F32);
        small_run_open(&r);
        cost[k] = plan_of(&r)->cost;
        small_run_close(&r);
    }
    assert_int_equal(cost[1].madds, 4 * cost[0].madds); /* all products are a micro-batch's */
    assert_true(cost[1].bytes > 2 * cost[0].bytes && cost[1].bytes < 4 * cost[0].bytes);
    assert_true(cost[1].flops > 2 * cost[0].flops && cost[1].flops < 4 * cost[0].flops);
    assert_int_equal(cost[1].msg_bytes, 0);
}

static void test_plan__prints_a_line_for_each_thing(void **state)
{
    (void)state;
    small_run r;
    small_run_graphs(&r, "", 2, BK_F32);
    small_run_open(&r);
    const bk_plan *p = plan_of(&r);
    bk_str text = {0};
    bk_plan_print(&text, p);
    int64_t n_lines = 0, n_want = 1 + p->n_chunks + 1 + p->n_waits + p->n_assigns;
    for (const char *c = text.s; *c; c++) n_lines += *c == '\n';
    for (int32_t v = 0; v < p->n_values; v++) n_want += p->place[v].space != BK_SPACE_NONE;
    for (int32_t o = 0; o < p->n_ops; o++) n_want += p->work[o].space != BK_SPACE_NONE;
    assert_int_equal(n_lines, n_want);
    char first[128];
    snprintf(first, sizeof first, "plan run %lld bytes, step %lld bytes, ", (long long)p->run_bytes,
             (long long)p->step_bytes);
    assert_int_equal(strncmp(text.s, first, strlen(first)), 0);
    bk_str_free(&text);
    small_run_close(&r);
}

int main(void)
{
    omp_set_num_threads(1); /* thousands of tiny ops: threads would only wait for each other */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__random_configurations),
        cmocka_unit_test(test_plan__two_micro_batches_in_flight),
        cmocka_unit_test(test_plan__slots_are_used_again),
        cmocka_unit_test(test_plan__backwards_in_another_order_are_refused),
        cmocka_unit_test(test_plan__every_accumulator_begins_once),
        cmocka_unit_test(test_plan__costs_grow_with_micro_batches),
        cmocka_unit_test(test_plan__prints_a_line_for_each_thing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
