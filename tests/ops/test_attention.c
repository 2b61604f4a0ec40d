#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/tally.h"
#include "ops/kernel_check.h"
#define BK_BOTH "ops/attention/attention_cpu.h"
#include "base/real_both.h"

/* One problem: q, k, v, o, their gradients, in double. In the fused layout q, k and v are parts of one buffer
 * [S, B, G, (R + 2) d] and so are their gradients. */
typedef struct {
    bk_attention_args a;
    int64_t nq, nk, nv, no, nl; /* elements of each buffer */
    double *q, *k, *v, *o, *lse, *dout, *dq, *dk, *dv;
    bk_heads qs, ks, vs, os;
    int64_t samples[4];
} problem;

static problem make(int64_t S, int64_t B, int64_t G, int64_t R, int64_t d, int64_t dv, double dropout)
{
    problem p = {.a = {.n_positions = S,
                       .n_samples = B,
                       .n_groups = G,
                       .heads_per_group = R,
                       .d = d,
                       .dv = dv,
                       .scale = 1.7 / sqrt((double)d),
                       .dropout = dropout,
                       .key = bk_rng_key_make(7, BK_RNG_DROPOUT, 1, 2)},
                 .nq = S * B * G * R * d,
                 .nk = S * B * G * d,
                 .nv = S * B * G * dv,
                 .no = S * B * G * R * dv,
                 .nl = S * B * G * R,
                 .qs = bk_heads_dense(B, G, R, d),
                 .ks = bk_heads_dense(B, G, 1, d),
                 .vs = bk_heads_dense(B, G, 1, dv),
                 .os = bk_heads_dense(B, G, R, dv),
                 .samples = {5, INT64_C(1) << 33, 3, 17}};
    p.q = random_f64(p.nq, 1), p.k = random_f64(p.nk, 2), p.v = random_f64(p.nv, 3),
    p.o = random_f64(p.no, 4);
    p.dout = random_f64(p.no, 5), p.lse = random_f64(p.nl, 6);
    p.dq = random_f64(p.nq, 7), p.dk = random_f64(p.nk, 8), p.dv = random_f64(p.nv, 9);
    round_to_f32(p.q, p.nq), round_to_f32(p.k, p.nk), round_to_f32(p.v, p.nv), round_to_f32(p.dout, p.no);
    return p;
}

static void drop_problem(problem *p)
{
    free(p->q), free(p->k), free(p->v), free(p->o), free(p->dout), free(p->lse);
    free(p->dq), free(p->dk), free(p->dv);
}

static void forward(problem *p)
{
    p->a.samples = p->samples;
    bk_attention_fwd_f64(p->o, p->os, p->lse, p->q, p->qs, p->k, p->ks, p->v, p->vs, &p->a);
}

static void backward(problem *p, int beta)
{
    const bk_attention_args *a = &p->a;
    p->a.samples = p->samples;
    void *ws = workspace(
        bk_attention_bwd_workspace_f64(a->n_positions, a->n_samples, a->n_groups * a->heads_per_group, a->d));
    bk_attention_bwd_f64(p->dq, p->qs, p->dk, p->ks, p->dv, p->vs, p->dout, p->os, p->q, p->qs, p->k, p->ks,
                         p->v, p->vs, p->o, p->os, p->lse, a, beta, beta, beta, ws);
    free(ws);
}

static double keep_factor(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (!(p->a.dropout > 0)) return 1;
    const int64_t element = j + p->a.n_positions * h;
    uint32_t words[4];
    bk_rng_block(words, p->a.key, (uint64_t)p->samples[b], (uint32_t)i, (uint32_t)(element / 4));
    return words[element % 4] >= bk_dropout_threshold(p->a.dropout) ? 1 / (1 - p->a.dropout) : 0;
}

/* The definition, one row at a time. */
static void naive_row(double *o, double *lse, const problem *p, int64_t i, int64_t b, int64_t g, int64_t r)
{
    const bk_attention_args *a = &p->a;
    const double *q = p->q + bk_heads_at(p->qs, i, b, g, r);
    double sum = 0;
    for (int64_t c = 0; c < a->dv; c++) o[c] = 0;
    for (int64_t j = 0; j <= i; j++) {
        const double e = exp(a->scale * dot(q, p->k + bk_heads_at(p->ks, j, b, g, 0), a->d));
        const double kept = e * keep_factor(p, b, g * a->heads_per_group + r, i, j);
        const double *v = p->v + bk_heads_at(p->vs, j, b, g, 0);
        sum += e;
        for (int64_t c = 0; c < a->dv; c++) o[c] += kept * v[c];
    }
    for (int64_t c = 0; c < a->dv; c++) o[c] /= sum;
    *lse = log(sum);
}

static void check_forward(problem *p, double tol)
{
    const bk_attention_args *a = &p->a;
    double o[BK_ATTENTION_MAX_DIM], lse;
    for (int64_t b = 0; b < a->n_samples; b++)
        for (int64_t h = 0; h < a->n_groups * a->heads_per_group; h++)
            for (int64_t i = 0; i < a->n_positions; i++) {
                const int64_t g = h / a->heads_per_group, r = h % a->heads_per_group;
                naive_row(o, &lse, p, i, b, g, r);
                check_near(p->o + bk_heads_at(p->os, i, b, g, r), o, a->dv, tol);
                check_near(p->lse + (b * a->n_groups * a->heads_per_group + h) * a->n_positions + i, &lse, 1,
                           tol);
            }
}

static const int64_t lengths[] = {1, 5, 63, 64, 65, 130, 192};

static void test_attention__forward_is_the_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int dropped = 0; dropped < 2; dropped++) {
            problem p = make(lengths[i], 2, 2, 3, 7, 5, dropped * 0.3);
            forward(&p), check_forward(&p, 1e-14), drop_problem(&p);
        }
    problem wide = make(70, 1, 1, 1, BK_ATTENTION_MAX_DIM, BK_ATTENTION_MAX_DIM, 0);
    forward(&wide), check_forward(&wide, 1e-13), drop_problem(&wide);
}

/* Scores in the hundreds: without the running maximum the sums would overflow, in the old or the new block.
 */
static void test_attention__large_scores(void **state)
{
    (void)state;
    problem p = make(130, 1, 1, 1, 8, 8, 0);
    for (int64_t i = 0; i < p.nk; i++)
        p.k[i] = (i / 8 == 40 || i / 8 == 100) ? 300 : -300, p.q[i] = 1 + 0.01 * p.q[i];
    p.a.scale = 1;
    forward(&p), backward(&p, 0);
    for (int64_t i = 40; i < 100; i++) check_near(p.o + i * 8, p.v + 40 * 8, 8, 1e-14);
    for (int64_t i = 0; i < p.nq; i++)
        assert_true(isfinite(p.dq[i]) && isfinite(p.dk[i]) && isfinite(p.dv[i]));
    drop_problem(&p);
}

static double weighted_output(void *context)
{
    problem *p = context;
    forward(p);
    return dot(p->o, p->dout, p->no);
}

static void check_gradients(problem p, int64_t step)
{
    forward(&p), backward(&p, 0);
    check_gradient(weighted_output, &p, p.q, p.dq, p.nq, step);
    check_gradient(weighted_output, &p, p.k, p.dk, p.nk, step);
    check_gradient(weighted_output, &p, p.v, p.dv, p.nv, step);
    drop_problem(&p);
}

static void test_attention__gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    check_gradients(make(67, 1, 1, 2, 3, 2, 0), 5); /* crosses a block */
    check_gradients(make(67, 1, 1, 2, 3, 2, 0.25), 5);
    check_gradients(make(5, 2, 2, 3, 3, 4, 0.1), 1);
    check_gradients(make(1, 2, 1, 1, 2, 3, 0), 1);
}

static void test_attention__beta_adds(void **state)
{
    (void)state;
    problem p = make(70, 1, 2, 2, 5, 3, 0);
    forward(&p), backward(&p, 0);
    problem twice = make(70, 1, 2, 2, 5, 3, 0);
    forward(&twice), backward(&twice, 0), backward(&twice, 1);
    for (int64_t i = 0; i < p.nq; i++) p.dq[i] *= 2; /* exact, and so is x + x */
    for (int64_t i = 0; i < p.nk; i++) p.dk[i] *= 2;
    for (int64_t i = 0; i < p.nv; i++) p.dv[i] *= 2;
    assert_memory_equal(p.dq, twice.dq, sizeof *p.dq * (size_t)p.nq);
    assert_memory_equal(p.dk, twice.dk, sizeof *p.dk * (size_t)p.nk);
    assert_memory_equal(p.dv, twice.dv, sizeof *p.dv * (size_t)p.nv);
    drop_problem(&p), drop_problem(&twice);
}

/* q, k, v and their gradients as parts of one fused projection give the bits of the separate tensors. */
static void test_attention__fused_projection_in_place(void **state)
{
    (void)state;
    enum { S = 70, B = 2, G = 2, R = 2, D = 6, GROUP = (R + 2) * D, SIZE = S * B * G * GROUP };
    problem p = make(S, B, G, R, D, D, 0.2);
    forward(&p), backward(&p, 0);
    double *x = random_f64(SIZE, 1), *dx = random_f64(SIZE, 2), *o = random_f64(p.no, 3);
    const bk_heads xs = {.s = B * G * GROUP, .b = G * GROUP, .g = GROUP, .r = D};
    for (int64_t t = 0; t < S * B * G; t++) {
        memcpy(x + t * GROUP, p.q + t * R * D, sizeof *x * R * D);
        memcpy(x + t * GROUP + R * D, p.k + t * D, sizeof *x * D);
        memcpy(x + t * GROUP + (R + 1) * D, p.v + t * D, sizeof *x * D);
    }
    const double *k = x + R * D, *v = k + D;
    void *ws = workspace(bk_attention_bwd_workspace_f64(S, B, G * R, D));
    bk_attention_fwd_f64(o, p.os, p.lse, x, xs, k, xs, v, xs, &p.a);
    bk_attention_bwd_f64(dx, xs, dx + R * D, xs, dx + (R + 1) * D, xs, p.dout, p.os, x, xs, k, xs, v, xs, o,
                         p.os, p.lse, &p.a, 0, 0, 0, ws);
    assert_memory_equal(o, p.o, sizeof *o * (size_t)p.no);
    for (int64_t t = 0; t < S * B * G; t++) {
        assert_memory_equal(dx + t * GROUP, p.dq + t * R * D, sizeof *x * R * D);
        assert_memory_equal(dx + t * GROUP + R * D, p.dk + t * D, sizeof *x * D);
        assert_memory_equal(dx + t * GROUP + (R + 1) * D, p.dv + t * D, sizeof *x * D);
    }
    free(x), free(dx), free(o), free(ws), drop_problem(&p);
}

static void test_attention__bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    /* One group: the tasks of backward all wait for one another. */
    problem one = make(330, 1, 1, 2, 16, 16, 0.1), p = make(330, 1, 1, 2, 16, 16, 0.1);
    omp_set_num_threads(1);
    forward(&one), backward(&one, 0);
    for (int round = 0; round < 5; round++)
        WITH_THREADS({
            forward(&p), backward(&p, 0);
            assert_memory_equal(p.o, one.o, sizeof *p.o * (size_t)p.no);
            assert_memory_equal(p.lse, one.lse, sizeof *p.lse * (size_t)p.nl);
            assert_memory_equal(p.dq, one.dq, sizeof *p.dq * (size_t)p.nq);
            assert_memory_equal(p.dk, one.dk, sizeof *p.dk * (size_t)p.nk);
            assert_memory_equal(p.dv, one.dv, sizeof *p.dv * (size_t)p.nv);
        });
    drop_problem(&one), drop_problem(&p);
}

/* A sample computed alone has the bits that it has in a batch. */
static void test_attention__bits_of_a_sample_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    enum { S = 100, R = 2, D = 9 };
    problem both = make(S, 2, 1, R, D, D, 0.1), alone = make(S, 1, 1, R, D, D, 0.1);
    forward(&both), backward(&both, 0);
    alone.samples[0] = both.samples[1];
    for (int64_t s = 0; s < S; s++) {
        const int64_t wide = R * D * sizeof(double), narrow = D * sizeof(double);
        memcpy(alone.q + s * R * D, both.q + (2 * s + 1) * R * D, (size_t)wide);
        memcpy(alone.dout + s * R * D, both.dout + (2 * s + 1) * R * D, (size_t)wide);
        memcpy(alone.k + s * D, both.k + (2 * s + 1) * D, (size_t)narrow);
        memcpy(alone.v + s * D, both.v + (2 * s + 1) * D, (size_t)narrow);
    }
    forward(&alone), backward(&alone, 0);
    for (int64_t s = 0; s < S; s++) {
        assert_memory_equal(alone.o + s * R * D, both.o + (2 * s + 1) * R * D, R * D * sizeof(double));
        assert_memory_equal(alone.dq + s * R * D, both.dq + (2 * s + 1) * R * D, R * D * sizeof(double));
        assert_memory_equal(alone.dk + s * D, both.dk + (2 * s + 1) * D, D * sizeof(double));
        assert_memory_equal(alone.dv + s * D, both.dv + (2 * s + 1) * D, D * sizeof(double));
    }
    drop_problem(&both), drop_problem(&alone);
}

static void test_attention__float_is_close_to_double(void **state)
{
    (void)state;
    problem p = make(200, 1, 2, 2, 24, 40, 0.1);
    forward(&p), backward(&p, 0);
    float *q = to_f32(p.q, p.nq), *k = to_f32(p.k, p.nk), *v = to_f32(p.v, p.nv), *o = to_f32(p.o, p.no);
    float *dout = to_f32(p.dout, p.no), *lse = to_f32(p.lse, p.nl);
    float *dq = to_f32(p.dq, p.nq), *dk = to_f32(p.dk, p.nk), *dv = to_f32(p.dv, p.nv);
    void *ws = workspace(bk_attention_bwd_workspace_f32(200, 1, 4, 24));
    bk_attention_fwd_f32(o, p.os, lse, q, p.qs, k, p.ks, v, p.vs, &p.a);
    bk_attention_bwd_f32(dq, p.qs, dk, p.ks, dv, p.vs, dout, p.os, q, p.qs, k, p.ks, v, p.vs, o, p.os, lse,
                         &p.a, 0, 0, 0, ws);
    /* Scores are a few units with an error of some eps each, which p inherits; dk and dv sum up to 200 x 2
     * rows. */
    check_near_f32(o, p.o, p.no, 1e-6), check_near_f32(lse, p.lse, p.nl, 5e-7);
    check_near_f32(dq, p.dq, p.nq, 2e-6), check_near_f32(dk, p.dk, p.nk, 4e-6),
        check_near_f32(dv, p.dv, p.nv, 4e-6);
    free(q), free(k), free(v), free(o), free(dout), free(lse), free(dq), free(dk), free(dv), free(ws);
    drop_problem(&p);
}

static void test_attention__counts_its_multiply_adds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        problem p = make(lengths[i], 2, 2, 3, 7, 5, 0);
        int64_t before = bk_tally_madds;
        forward(&p);
        assert_int_equal(bk_tally_madds - before, bk_attention_fwd_madds_f64(lengths[i], 2, 6, 7, 5));
        before = bk_tally_madds, backward(&p, 0);
        assert_int_equal(bk_tally_madds - before, bk_attention_bwd_madds_f32(lengths[i], 2, 6, 7, 5));
        drop_problem(&p);
    }
    assert_int_equal(bk_attention_fwd_madds_f32(65, 1, 1, 2, 1), (64 * 64 + 65) * 3); /* by hand */
}

static void test_attention__no_samples(void **state)
{
    (void)state;
    problem p = make(3, 0, 1, 1, 2, 2, 0);
    const int64_t before = bk_tally_madds;
    forward(&p), backward(&p, 0);
    assert_int_equal(bk_tally_madds, before);
    drop_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention__forward_is_the_definition),
        cmocka_unit_test(test_attention__large_scores),
        cmocka_unit_test(test_attention__gradients_agree_with_finite_differences),
        cmocka_unit_test(test_attention__beta_adds),
        cmocka_unit_test(test_attention__fused_projection_in_place),
        cmocka_unit_test(test_attention__bits_do_not_depend_on_threads),
        cmocka_unit_test(test_attention__bits_of_a_sample_do_not_depend_on_the_batch),
        cmocka_unit_test(test_attention__float_is_close_to_double),
        cmocka_unit_test(test_attention__counts_its_multiply_adds),
        cmocka_unit_test(test_attention__no_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
