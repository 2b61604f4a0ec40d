/* The step graph: norm, clip factor, AdamW, and the step that is not taken. */
#include "passes/pass_run.h"

enum { S = 2, B = 2, C = 4, WEIGHTS = C * C, BIASES = C };

/* A table that is embedding and output, a bias, a parameter that nothing reads. */
static void open_step(pass_run *r, const bk_step_options *o)
{
    bk_err e;
    pr_open(r, 2);
    const bk_vid table = pr_param(r, "table", PR_DIMS(C, C)), bias = pr_param(r, "bias", PR_DIMS(C));
    pr_param(r, "idle", PR_DIMS(C, C));
    const bk_vid tokens = pr_input(r, "tokens", BK_I32, PR_DIMS(B, S));
    const bk_vid h = pr_op(r, BK_OP_embedding, "h", PR_IN(table, tokens));
    pr_seed(r, pr_op(r, BK_OP_linear, "y", PR_IN(h, table, bias)));
    pr_autodiff(r);
    pr_accumulate(r);
    pr_must(bk_pass_step(r->g, o, &e), &e);
    pr_verify(r);
    pr_fetch_gradients(r);
    pr_plan(r);
}

static double *moment(const pass_run *r, const char *which, bk_pid p)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", which, r->g->param[p].name);
    const bk_vid v = bk_value_find(r->g, BK_STATE, name);
    assert_int_not_equal(v, BK_NONE);
    return bk_exec_value(r->x, r->p, v);
}

/* Norm over the rows of the table: a shared table counts once. */
static double norm_of(const pass_run *r)
{
    double sum = 0;
    for (bk_pid p = 0; p < r->g->n_params; p++)
        for (int64_t i = 0; i < pr_n_weights(r, p); i++) sum += r->grad[p][i] * r->grad[p][i];
    return sqrt(sum);
}

/* AdamW of Loshchilov and Hutter (2019), one element. */
typedef struct {
    double w, m, v;
} element;

static void adamw(element *x, double g, const bk_step_options *o, double lr, double decay, int64_t t)
{
    x->m = o->beta1 * x->m + (1 - o->beta1) * g;
    x->v = o->beta2 * x->v + (1 - o->beta2) * g * g;
    const double m = x->m / (1 - pow(o->beta1, (double)t)), v = x->v / (1 - pow(o->beta2, (double)t));
    x->w -= lr * (m / (sqrt(v) + o->eps) + decay * x->w);
}

static void check_close(double got, double want)
{
    /* Both are some dozen operations in double. */
    if (!(fabs(got - want) <= 1e-14 * (1 + fabs(want)))) fail_msg("%.17g instead of %.17g", got, want);
}

/* Two steps against the reference; `clips` says whether the clip must bite. */
static void check_two_steps(const bk_step_options *o, bool clips)
{
    pass_run r;
    open_step(&r, o);
    element want[3][WEIGHTS] = {0};
    for (bk_pid p = 0; p < 3; p++)
        for (int64_t i = 0; i < pr_n_weights(&r, p); i++) want[p][i].w = pr_weights(&r, p)[i];
    for (r.step = 1; r.step <= 2; r.step++) {
        r.learning_rate = 0.1 / (double)r.step;
        pr_run(&r);
        const double norm = norm_of(&r);
        assert_true(norm > 1);
        check_close(r.grad_norm, norm);
        const double factor = o->clip_grad > 0 ? fmin(1, o->clip_grad / (norm + 1e-6)) : 1;
        assert_int_equal(factor < 1, clips);
        for (bk_pid p = 0; p < 3; p++)
            for (int64_t i = 0; i < pr_n_weights(&r, p); i++) {
                element *x = &want[p][i];
                adamw(x, factor * r.grad[p][i], o, r.learning_rate, p == 1 ? 0 : o->weight_decay, r.step);
                check_close(pr_weights(&r, p)[i], x->w);
                check_close(moment(&r, "exp_avg", p)[i], x->m);
                check_close(moment(&r, "exp_avg_sq", p)[i], x->v);
            }
    }
    pr_close(&r);
}

static void test_step__two_steps_of_adamw(void **state)
{
    (void)state;
    check_two_steps(
        &(bk_step_options){.clip_grad = 0, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0},
        false);
    check_two_steps(
        &(bk_step_options){.clip_grad = 0, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.3},
        false);
}

static void test_step__clips_by_the_global_norm(void **state)
{
    (void)state;
    check_two_steps(
        &(bk_step_options){.clip_grad = 0.5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1},
        true);
    check_two_steps(
        &(bk_step_options){.clip_grad = 1e6, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1},
        false);
}

/* The idle table is a row with decay and a gradient of zero: it shrinks by lr * decay; a bias does not. */
static void test_step__decay_is_for_rows_that_say_so(void **state)
{
    (void)state;
    pass_run r;
    const bk_step_options o = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.25};
    open_step(&r, &o);
    double idle[WEIGHTS];
    memcpy(idle, pr_weights(&r, 2), sizeof idle);
    r.seed_scale = 0, r.learning_rate = 0.5;
    double bias[BIASES];
    memcpy(bias, pr_weights(&r, 1), sizeof bias);
    pr_run(&r);
    assert_true(r.grad_norm == 0);
    for (int i = 0; i < WEIGHTS; i++) check_close(pr_weights(&r, 2)[i], idle[i] * (1 - 0.5 * 0.25));
    assert_memory_equal(bias, pr_weights(&r, 1), sizeof bias);
    pr_close(&r);
}

static void test_step__rate_0_leaves_the_parameters(void **state)
{
    (void)state;
    pass_run r;
    open_step(&r, &(bk_step_options){
                      .clip_grad = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1});
    double table[WEIGHTS];
    memcpy(table, pr_weights(&r, 0), sizeof table);
    r.learning_rate = 0;
    pr_run(&r);
    assert_memory_equal(table, pr_weights(&r, 0), sizeof table);
    assert_true(moment(&r, "exp_avg", 0)[0] != 0); /* the moments go on */
    pr_close(&r);
}

/* A gradient that is infinite or no number: nothing of scope run changes, and the norm says so. */
static void test_step__void_step_changes_nothing(void **state)
{
    (void)state;
    const double bad[] = {(double)INFINITY, (double)NAN};
    for (int k = 0; k < 2; k++) {
        pass_run r;
        open_step(&r, &(bk_step_options){
                          .clip_grad = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1});
        pr_run(&r); /* moments are no longer zero */
        const size_t bytes = (size_t)r.p->run_bytes;
        void *before = malloc(bytes), *run = pr_weights(&r, 0);
        assert_int_equal(bk_plan_value_address(r.p, r.g->param[0].value, BK_NONE), 0);
        memcpy(before, run, bytes);
        r.seed_scale = bad[k], r.step = 2;
        pr_run(&r);
        assert_true(isinf(r.grad_norm) || isnan(r.grad_norm));
        assert_memory_equal(before, run, bytes);
        r.seed_scale = 1;
        pr_run(&r); /* the step is taken when the gradient is a number again */
        assert_true(r.grad_norm > 0 && r.grad_norm < 1e9);
        assert_memory_not_equal(before, run, bytes);
        free(before);
        pr_close(&r);
    }
}

static void test_step__names_and_scopes(void **state)
{
    (void)state;
    pass_run r;
    open_step(&r, &(bk_step_options){
                      .clip_grad = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1});
    const bk_value *rate = &r.g->value[bk_value_find(r.g, BK_INPUT, "learning_rate")];
    const bk_value *step = &r.g->value[bk_value_find(r.g, BK_INPUT, "step")];
    assert_true(rate->dtype == BK_F64 && rate->scope == BK_STEP);
    assert_true(step->dtype == BK_I64 && step->scope == BK_STEP);
    assert_int_equal(pr_count(r.g, BK_OP_adamw), 3);
    assert_int_equal(pr_count(r.g, BK_OP_grad_norm), 1);
    assert_int_equal(r.g->op[pr_find(r.g, BK_OP_grad_norm, 0)].n_in, 3);
    for (bk_pid p = 0; p < 3; p++) {
        char name[64];
        snprintf(name, sizeof name, "exp_avg_sq.%s", r.g->param[p].name);
        const bk_value *v = &r.g->value[bk_value_find(r.g, BK_STATE, name)];
        assert_int_equal(v->scope, BK_RUN);
        assert_int_equal(v->param, p);
    }
    pr_close(&r);
}

/* Hundreds of experts in dozens of layers have more parameters than 15 bits count. */
static void test_step__has_room_for_many_parameters(void **state)
{
    (void)state;
    enum { MANY = 40000 };
    bk_graph *g;
    bk_err e = {0};
    pr_must(bk_graph_new(&g, BK_F32, &e), &e);
    for (int k = 0; k < MANY; k++) {
        char name[32];
        bk_vid v;
        snprintf(name, sizeof name, "expert.%d", k);
        pr_must(bk_param_add(&v, g, &(bk_param){.name = name, .dtype = BK_F32, .rank = 1, .shape = {1}}, &e),
                &e);
    }
    pr_must(bk_pass_step(g, &(bk_step_options){.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, &e), &e);
    int64_t n_inputs = 0;
    for (int64_t o = 0; o < g->n_ops; o++)
        if (g->op[o].kind == BK_OP_grad_norm) n_inputs = g->op[o].n_in;
    assert_int_equal(n_inputs, MANY);
    bk_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step__two_steps_of_adamw),
        cmocka_unit_test(test_step__clips_by_the_global_norm),
        cmocka_unit_test(test_step__decay_is_for_rows_that_say_so),
        cmocka_unit_test(test_step__rate_0_leaves_the_parameters),
        cmocka_unit_test(test_step__void_step_changes_nothing),
        cmocka_unit_test(test_step__names_and_scopes),
        cmocka_unit_test(test_step__has_room_for_many_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
