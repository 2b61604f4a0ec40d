/* The executors: they agree bit for bit, use exactly the memory that the plan says, and count exactly its
 * products. */
#include "train/small_run.h"

#include <omp.h>

/* The state after `steps` steps; the caller frees. */
static unsigned char *state_after(small_run *r, int64_t steps, bool interleaved, uint64_t seed)
{
    bk_err e = {0};
    const bk_plan *p = r->session.program[0].p;
    bk_session_init_params(&r->session, 1);
    const bk_graph *g = r->session.program[0].g;
    for (int64_t v = 0; v < g->n_values; v++) /* moments begin at zero */
        if (g->value[v].kind == BK_STATE && g->value[v].scope == BK_RUN)
            memset(bk_exec_value(r->session.exec, p, (bk_vid)v), 0, (size_t)bk_value_bytes(&g->value[v]));
    for (r->step = 1; r->step <= steps; r->step++)
        must(interleaved ? bk_exec_interleave(r->session.exec, p, &r->host, seed + (uint64_t)r->step, &e)
                         : bk_exec_run(r->session.exec, p, &r->host, &e),
             &e);
    unsigned char *copy = malloc((size_t)p->run_bytes);
    memcpy(copy, small_run_state(r), (size_t)p->run_bytes);
    return copy;
}

static void compare_executors(const char *more, int64_t n_micro)
{
    small_run r;
    small_run_graphs(&r, more, n_micro, BK_F32);
    small_run_open(&r);
    const size_t bytes = (size_t)r.session.program[0].p->run_bytes;
    unsigned char *plain = state_after(&r, 3, false, 0);
    const double norm = r.grad_norm;
    assert_true(norm > 0);
    for (uint64_t seed = 0; seed < 5; seed++) {
        unsigned char *other = state_after(&r, 3, true, 100 * seed);
        assert_memory_equal(plain, other, bytes);
        assert_true(r.grad_norm == norm);
        free(other);
    }
    free(plain);
    small_run_close(&r);
}

static void test_exec__interleaver_gives_the_bits_of_the_lanes(void **state)
{
    (void)state;
    compare_executors("", 3);
    compare_executors("hidden_dropout: 0.2\nattention_dropout: 0.1\n", 2);
    compare_executors("enable_mhc_connections: false\nadd_bias_linear: true\n", 1);
}

static void test_exec__bits_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    small_run r;
    small_run_graphs(&r, "hidden_dropout: 0.1\n", 2, BK_F32);
    small_run_open(&r);
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    unsigned char *one = state_after(&r, 3, false, 0);
    for (int n = 2; n <= 3; n++) {
        omp_set_num_threads(n);
        unsigned char *many = state_after(&r, 3, false, 0);
        assert_memory_equal(one, many, (size_t)r.session.program[0].p->run_bytes);
        free(many);
    }
    omp_set_num_threads(before);
    free(one);
    small_run_close(&r);
}

static void check_predictions(const char *more, int64_t n_micro)
{
    small_run r;
    small_run_graphs(&r, more, n_micro, BK_F32);
    small_run_open(&r);
    bk_err e = {0};
    const bk_plan *p = r.session.program[0].p;
    must(bk_exec_run(r.session.exec, p, &r.host, &e), &e);
    const bk_exec_stats stats = bk_exec_get_stats(r.session.exec);
    assert_int_equal(stats.high_water_bytes, bk_plan_bytes(p));
    assert_int_equal(stats.madds, p->cost.madds);
    assert_true(stats.madds > 0 && p->peak_bytes <= bk_plan_bytes(p));
    small_run_close(&r);
}

static void test_exec__memory_and_products_are_exactly_the_plans(void **state)
{
    (void)state;
    check_predictions("", 1);
    check_predictions("", 4);
    check_predictions("seq_length: 150\nmax_position_embeddings: 150\n", 1); /* several blocks of attention */
    check_predictions("enable_mhc_connections: false\nnum_query_groups: 1\n", 2);
    check_predictions(
        "mhc_num_residual_streams: 1\nadd_bias_linear: true\nuntie_embeddings_and_output_weights: false\n",
        2);
    check_predictions("mhc_num_residual_streams: 16\nnormalization: LayerNorm\nswiglu: false\n", 1);
}

/* An op that fails stops the step on every lane; its message comes out, and the next step is none the worse.
 */
typedef struct {
    small_run *r;
    bool bad;
} saboteur;

static bk_status bad_feed(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    const saboteur *s = ctx;
    const bk_status st = small_feed(s->r, v, micro, dst, e);
    if (s->bad && micro == 1 && strcmp(v->name, "tokens") == 0) ((int32_t *)dst)[3] = 32;
    return st;
}

static bk_status bad_fetch(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    return small_fetch(((saboteur *)ctx)->r, v, micro, src, e);
}

static void test_exec__an_error_stops_all_lanes_and_the_next_run_works(void **state)
{
    (void)state;
    small_run r;
    small_run_graphs(&r, "", 3, BK_F32);
    small_run_open(&r);
    saboteur s = {&r, true};
    const bk_host host = {&s, bad_feed, bad_fetch};
    bk_err e = {0};
    const bk_plan *p = r.session.program[0].p;
    assert_int_equal(bk_exec_run(r.session.exec, p, &host, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "32"));
    e = (bk_err){0};
    assert_int_equal(bk_exec_interleave(r.session.exec, p, &host, 1, &e), BK_E_INPUT);
    s.bad = false;
    must(bk_exec_run(r.session.exec, p, &host, &e), &e);
    assert_true(r.grad_norm > 0);
    small_run_close(&r);
}

static void test_exec__a_plan_larger_than_the_arena_is_refused(void **state)
{
    (void)state;
    small_run r;
    small_run_graphs(&r, "", 1, BK_F32);
    small_run_open(&r);
    bk_err e = {0};
    const bk_plan *p = r.session.program[0].p;
    bk_exec *x;
    must(bk_exec_open(&x, p->run_bytes, p->step_bytes - 1, &e), &e);
    assert_int_equal(bk_exec_run(x, p, &r.host, &e), BK_E_CHECK);
    bk_exec_close(x);
    small_run_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exec__interleaver_gives_the_bits_of_the_lanes),
        cmocka_unit_test(test_exec__bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(test_exec__memory_and_products_are_exactly_the_plans),
        cmocka_unit_test(test_exec__an_error_stops_all_lanes_and_the_next_run_works),
        cmocka_unit_test(test_exec__a_plan_larger_than_the_arena_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
