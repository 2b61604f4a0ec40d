#include "train/small_run.h"

#include <math.h>
#include <omp.h>

#include "data/sampler.h"
#include "train/feeder.h"

/* A model with products large enough for several threads, and the programs of a run. */
static const char *const threaded =
    "hidden_size: 64\nffn_hidden_size: 96\nseq_length: 64\nmicro_batch_size: 4\n"
    "hidden_dropout: 0.1\nattention_dropout: 0.1\n";

static void *copy_state(small_run *r)
{
    const size_t bytes = (size_t)r->session.run.bytes;
    void *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, small_run_state(r), bytes);
}

static void run_program(small_run *r, int program)
{
    bk_err e = {0};
    must(bk_exec_run(r->session.exec, r->session.program[program].p, &r->host, &e), &e);
}

static void train_steps(small_run *r, int64_t n_steps)
{
    for (r->step = 1; r->step <= n_steps; r->step++) run_program(r, 0);
}

static void add_evaluation(small_run *r)
{
    bk_err e = {0};
    bk_program prog;
    const bk_program_options o = {.mode = BK_MODEL_EVALUATE, .real = BK_F32, .optimizer = true};
    must(bk_program_graph(&prog, &r->c, &r->layout, &o, &e), &e);
    bk_session_add(&r->session, &prog, 1);
}

/* One byte less than the plan needs is refused, and nothing is allocated. */
static void test_session__a_plan_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    char figure[32];
    small_run_graphs(&r, NULL, 2, BK_F32);
    const bk_target target = {.kind = BK_TARGET_CPU};
    must(bk_session_plan(&r.session, &target, &e), &e);
    const int64_t need = bk_session_bytes(&r.session);
    assert_true(need >= r.session.program[0].p->peak_bytes);
    assert_int_equal(bk_session_open(&r.session, need - 1, &e), BK_E_MEM);
    assert_null(r.session.exec);
    snprintf(figure, sizeof figure, "(%lld bytes)", (long long)need);
    const char *const parts[] = {figure, "memory_limit", "micro_batch_size", "seq_length", "num_layers"};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        if (!strstr(e.msg, parts[k])) fail_msg("'%s' is not in: %s", parts[k], e.msg);
    must(bk_session_open(&r.session, need, &e), &e);
    assert_non_null(r.session.exec);
    small_run_close(&r);
}

/* An embedding and an output layer of 2^34 numbers each: counts and bytes are exact, and nothing is tried. */
static void test_session__sizes_beyond_32_bits(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    small_run_graphs(&r, "hidden_size: 64\nvocab_size: 268435456\n", 1, BK_F32);
    const bk_target target = {.kind = BK_TARGET_CPU};
    must(bk_session_plan(&r.session, &target, &e), &e);
    const bk_graph *g = r.session.program[0].g;
    int64_t bytes = 0; /* values, two moments, each aligned to 64 */
    for (int64_t p = 0; p < g->n_params; p++) {
        int64_t n = 1;
        for (int d = 0; d < g->param[p].rank; d++) n *= g->param[p].shape[d];
        bytes += 3 * ((4 * n + 63) / 64 * 64);
    }
    assert_true(bytes > INT64_C(6) << 36);
    assert_int_equal(r.session.run.bytes, bytes);
    /* Beside them the gradients of both tables, and the logits. */
    assert_true(bk_session_bytes(&r.session) > bytes + (INT64_C(2) << 36) + (INT64_C(16) << 30));
    assert_int_equal(bk_session_open(&r.session, bk_session_bytes(&r.session) - 1, &e), BK_E_MEM);
    small_run_close(&r);
}

/* The arena holds the largest program, not the sum. */
static void test_session__programs_share_the_arena(void **state)
{
    (void)state;
    small_run alone, both;
    bk_err e = {0};
    const bk_target target = {.kind = BK_TARGET_CPU};
    small_run_graphs(&alone, NULL, 1, BK_F32);
    small_run_graphs(&both, NULL, 1, BK_F32);
    add_evaluation(&both);
    must(bk_session_plan(&alone.session, &target, &e), &e);
    must(bk_session_plan(&both.session, &target, &e), &e);
    assert_true(both.session.program[1].p->step_bytes > 0);
    assert_int_equal(bk_session_bytes(&alone.session), bk_session_bytes(&both.session));
    small_run_close(&alone), small_run_close(&both);
}

static void test_session__evaluation_changes_nothing_that_stays(void **state)
{
    (void)state;
    small_run r;
    small_run_graphs(&r, "hidden_dropout: 0.1\nattention_dropout: 0.1\n", 2, BK_F32);
    add_evaluation(&r);
    small_run_open(&r);
    train_steps(&r, 2); /* moments are no longer zero */
    void *before = copy_state(&r);
    const double train_loss = r.loss_sum;
    run_program(&r, 1);
    const double loss = r.loss_sum;
    assert_true(isfinite(loss) && loss > 0 && (loss < train_loss || loss > train_loss));
    assert_memory_equal(before, small_run_state(&r), (size_t)r.session.run.bytes);
    /* It has no dropout either: the same tokens give the same loss. */
    run_program(&r, 1);
    assert_memory_equal(&loss, &r.loss_sum, sizeof loss);
    free(before);
    small_run_close(&r);
}

static void test_session__an_evaluation_between_steps_does_not_show(void **state)
{
    (void)state;
    small_run plain, evaluated;
    small_run *const both[] = {&plain, &evaluated};
    for (int k = 0; k < 2; k++) {
        small_run_graphs(both[k], "hidden_dropout: 0.1\n", 2, BK_F32);
        add_evaluation(both[k]);
        small_run_open(both[k]);
        for (int64_t step = 1; step <= 3; step++) {
            both[k]->step = step;
            run_program(both[k], 0);
            if (k == 1) run_program(both[k], 1);
        }
    }
    assert_memory_equal(small_run_state(&plain), small_run_state(&evaluated),
                        (size_t)plain.session.run.bytes);
    small_run_close(&plain), small_run_close(&evaluated);
}

/* State after three steps with some threads; the caller frees. */
static void *state_with_threads(int64_t *bytes, double *loss, int n_threads, uint64_t seed)
{
    small_run r;
    const int threads_before = omp_get_max_threads();
    omp_set_num_threads(n_threads);
    small_run_graphs(&r, threaded, 2, BK_F32);
    small_run_open(&r);
    bk_session_init_params(&r.session, seed);
    train_steps(&r, 3);
    void *copy = copy_state(&r);
    *bytes = r.session.run.bytes, *loss = r.loss_sum;
    small_run_close(&r);
    omp_set_num_threads(threads_before);
    return copy;
}

static void test_session__bits_depend_on_the_seed_alone(void **state)
{
    (void)state;
    int64_t bytes, same_bytes;
    double loss, same_loss;
    void *first = state_with_threads(&bytes, &loss, 1, 1);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        void *again = state_with_threads(&same_bytes, &same_loss, n_threads, 1);
        assert_int_equal(bytes, same_bytes);
        if (memcmp(first, again, (size_t)bytes) != 0) fail_msg("%d threads give other bits", n_threads);
        assert_memory_equal(&loss, &same_loss, sizeof loss);
        free(again);
    }
    void *other = state_with_threads(&same_bytes, &same_loss, 1, 2);
    assert_true(memcmp(first, other, (size_t)bytes) != 0);
    free(first), free(other);
}

enum { BATCH = 12, SEQ = 8, STEPS = 3 };

/* Parameters and moments after some steps on 12 samples each, cut into micro-batches; the caller frees. The
 * plain step of AdamW divides by a root that may be tiny, which magnifies rounding: a large eps keeps it
 * smooth. */
static double *state_of_cut(int64_t *n, double *grad_norm, int64_t micro_batch, const char *more)
{
    char options[256];
    small_run r;
    bk_err e = {0};
    uint16_t text[BATCH * SEQ * STEPS + 1];
    for (int i = 0; i < BATCH * SEQ * STEPS + 1; i++) text[i] = (uint16_t)(bk_mix64((uint64_t)i + 5) % 32);
    snprintf(options, sizeof options, "adam_eps: 0.01\nclip_grad: 0.1\nmicro_batch_size: %d\n%s",
             (int)micro_batch, more);
    small_run_graphs(&r, options, BATCH / micro_batch, BK_F64);
    small_run_open(&r);
    bk_sampler sampler;
    const bk_tokens tokens = {text, 2, sizeof text / sizeof *text};
    must(bk_sampler_make(&sampler, tokens, BK_PART_TRAIN, &(bk_sampler_options){.seq_length = SEQ}, &e), &e);
    float mask[SEQ];
    bk_feed feed = {.source = bk_sampler_source(&sampler),
                    .micro_batch = micro_batch,
                    .seq = SEQ,
                    .n_micro = r.layout.n_micro,
                    .learning_rate = 0.05,
                    .mask = mask};
    const bk_host host = bk_feed_host(&feed);
    for (feed.step = 1; feed.step <= STEPS; feed.step++) {
        feed.first_sample = (feed.step - 1) * BATCH;
        must(bk_exec_run(r.session.exec, r.session.program[0].p, &host, &e), &e);
        assert_true(feed.n_tokens > BATCH * SEQ - 0.5 && feed.n_tokens < BATCH * SEQ + 0.5);
    }
    *grad_norm = feed.grad_norm;
    *n = r.session.run.bytes / (int64_t)sizeof(double);
    double *copy = copy_state(&r);
    small_run_close(&r);
    return copy;
}

/* In double, sums in another order differ by some hundred roundings of numbers below 4. Returns the norm of
 * the last gradient. */
static double expect_cuts_agree(const char *more)
{
    int64_t n, n_cut;
    double norm, norm_cut, most = 0;
    double *whole = state_of_cut(&n, &norm, BATCH, more);
    static const int64_t cuts[] = {6, 4, 1};
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
        double *cut = state_of_cut(&n_cut, &norm_cut, cuts[k], more);
        assert_int_equal(n, n_cut);
        for (int64_t i = 0; i < n; i++) {
            assert_true(fabs(whole[i] - cut[i]) < 1e-13);
            most = fmax(most, fabs(whole[i]));
        }
        assert_true(fabs(norm - norm_cut) < 1e-13 && norm > 0.1);
        free(cut);
    }
    assert_true(most > 0.1 && most < 4);
    free(whole);
    return norm;
}

static void test_session__micro_batches_are_one_batch(void **state)
{
    (void)state;
    expect_cuts_agree("");
}

/* Draws are keyed by the number of the sample in the run, so they fall on the same tokens. */
static void test_session__dropout_does_not_depend_on_the_cut(void **state)
{
    (void)state;
    const double without = expect_cuts_agree("");
    const double hidden = expect_cuts_agree("hidden_dropout: 0.2\n");
    const double attention = expect_cuts_agree("attention_dropout: 0.2\n");
    assert_true(fabs(hidden - without) > 1e-3 && fabs(attention - without) > 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session__a_plan_that_does_not_fit_is_refused),
        cmocka_unit_test(test_session__sizes_beyond_32_bits),
        cmocka_unit_test(test_session__programs_share_the_arena),
        cmocka_unit_test(test_session__evaluation_changes_nothing_that_stays),
        cmocka_unit_test(test_session__an_evaluation_between_steps_does_not_show),
        cmocka_unit_test(test_session__bits_depend_on_the_seed_alone),
        cmocka_unit_test(test_session__micro_batches_are_one_batch),
        cmocka_unit_test(test_session__dropout_does_not_depend_on_the_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
