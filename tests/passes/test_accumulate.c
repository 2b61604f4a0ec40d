/* What accumulate folds and what it leaves, that sums keep their values, and that folded sums stand in place.
 */
#include "passes/pass_run.h"
#include "train/small_run.h"

enum { S = 2, B = 2, C = 4 };

static bk_vid linear(pass_run *r, const char *name, bk_vid x)
{
    return pr_op(r, BK_OP_linear, name, PR_IN(x, pr_param(r, name, PR_DIMS(C, C))));
}

static bk_vid base_value(pass_run *r)
{
    return linear(r, "h", pr_input(r, "x", BK_F64, PR_DIMS(S, B, C)));
}

/* ---- structure ----------------------------------------------------------------------------------------- */

/* Three linears read h: their data gradients become a chain in the order of the sum. */
static void test_accumulate__folds_a_whole_sum_in_its_order(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid h = base_value(&r);
    for (int k = 0; k < 3; k++) pr_seed(&r, linear(&r, (const char *[]){"a", "b", "c"}[k], h));
    pr_autodiff(&r);
    const bk_op *sum = &r.g->op[pr_find(r.g, BK_OP_add_n, 0)];
    assert_int_equal(sum->n_in, 3);
    const int64_t n_ops = r.g->n_ops;
    pr_accumulate(&r);
    assert_int_equal(r.g->n_ops, n_ops - 1);
    assert_int_equal(pr_count(r.g, BK_OP_add_n), 0);
    for (int k = 0; k < 3; k++) {
        const bk_op *op = &r.g->op[pr_find(r.g, BK_OP_linear_dgrad, k)];
        assert_int_equal(op->folded, k > 0);
        if (k) assert_int_equal(bk_ins(r.g, op)[2], pr_out(r.g, pr_find(r.g, BK_OP_linear_dgrad, k - 1)));
    }
    /* Whoever read the sum reads the last of the chain. */
    const bk_op *wgrad = &r.g->op[pr_find(r.g, BK_OP_linear_wgrad, 3)];
    assert_int_equal(bk_ins(r.g, wgrad)[0], pr_out(r.g, pr_find(r.g, BK_OP_linear_dgrad, 2)));
    pr_close(&r);
}

/* Values have other ids once a sum is gone; those with lasting names are found under them. */
static void test_accumulate__names_follow_their_values(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid h = base_value(&r);
    for (int k = 0; k < 3; k++) pr_seed(&r, linear(&r, (const char *[]){"a", "b", "c"}[k], h));
    pr_autodiff(&r);
    const bk_vid before = bk_value_find(r.g, BK_GRADIENT, "h");
    const int64_t n_values = r.g->n_values;
    pr_accumulate(&r);
    assert_true(r.g->n_values < n_values);
    assert_true(bk_value_find(r.g, BK_GRADIENT, "h") < before);
    int n = 0;
    for (bk_vid v = 0; v < r.g->n_values; v++) {
        const bk_value *x = &r.g->value[v];
        const bool lasts = x->kind != BK_ACTIVATION && x->base == BK_NONE;
        if (lasts) assert_int_equal(bk_value_find(r.g, x->kind, x->name), v);
        n += lasts;
    }
    assert_int_equal(n, 1 + 4 + 4 + 3); /* input, parameters and their gradients, seeds */
    pr_close(&r);
}

/* The first term of one sum is another sum that is gone. What holds that one was written before the second
 * term, the sum itself stood behind it. */
static void test_accumulate__folds_onto_a_folded_sum(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid h = base_value(&r);
    const bk_vid c = pr_op(&r, BK_OP_copy, "c", PR_IN(h)), u = pr_op(&r, BK_OP_copy, "u", PR_IN(h));
    pr_seed(&r, linear(&r, "last", c));
    pr_seed(&r, linear(&r, "second", u));
    pr_seed(&r, linear(&r, "first", u));
    pr_autodiff(&r);
    assert_int_equal(pr_count(r.g, BK_OP_add_n), 2);
    pr_accumulate(&r);
    assert_int_equal(pr_count(r.g, BK_OP_add_n), 0);
    for (int k = 1; k < 3; k++)
        assert_int_equal(bk_ins(r.g, &r.g->op[pr_find(r.g, BK_OP_linear_dgrad, k)])[2],
                         pr_out(r.g, pr_find(r.g, BK_OP_linear_dgrad, k - 1)));
    pr_fetch_gradients(&r);
    pr_plan(&r);
    pr_run(&r);
    pr_check_differences(&r);
    pr_close(&r);
}

/* A rule may read a part of a gradient that turns out to be a sum. */
static void test_accumulate__views_of_a_sum_follow_it(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid h = base_value(&r);
    pr_seed(&r, linear(&r, "a", h)), pr_seed(&r, linear(&r, "b", h));
    pr_autodiff(&r);
    const bk_vid sum = pr_out(r.g, pr_find(r.g, BK_OP_add_n, 0));
    pr_op(&r, BK_OP_copy, "read",
          PR_IN(pr_view(&r, "part", sum, 2, (const int64_t[]){S, C}, (const int64_t[]){B * C, 1}, C)));
    pr_accumulate(&r);
    assert_int_equal(pr_count(r.g, BK_OP_add_n), 0);
    const bk_value *part = &r.g->value[bk_ins(r.g, &r.g->op[pr_find(r.g, BK_OP_copy, 0)])[0]];
    assert_int_equal(part->base, pr_out(r.g, pr_find(r.g, BK_OP_linear_dgrad, 1)));
    assert_int_equal(part->offset, C);
    pr_close(&r);
}

/* The seed of h itself comes first, then a linear's gradient, then that of an op which cannot add (gelu),
 * then another linear's: what stands behind the term that cannot be folded is not folded either. */
static void test_accumulate__stops_at_a_term_that_cannot_be_folded(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid h = base_value(&r);
    const bk_vid last = linear(&r, "last", h);
    const bk_vid bent = pr_op(&r, BK_OP_gelu, "bent", PR_IN(h));
    const bk_vid first = linear(&r, "first", h);
    pr_seed(&r, h), pr_seed(&r, last), pr_seed(&r, bent), pr_seed(&r, first);
    pr_autodiff(&r);
    assert_int_equal(r.g->op[pr_find(r.g, BK_OP_add_n, 0)].n_in, 4);
    pr_accumulate(&r);
    const bk_op *sum = &r.g->op[pr_find(r.g, BK_OP_add_n, 0)], *folded;
    assert_int_equal(sum->n_in, 3);
    assert_int_equal(pr_count_folded(r.g), 1);
    folded = &r.g->op[pr_find(r.g, BK_OP_linear_dgrad, 0)];
    assert_true(folded->folded);
    assert_int_equal(bk_ins(r.g, folded)[2], r.seed[0].seed);
    assert_int_equal(bk_ins(r.g, sum)[0], bk_outs(r.g, folded)[0]);
    assert_int_equal(bk_ins(r.g, sum)[1], pr_out(r.g, pr_find(r.g, BK_OP_gelu_grad, 0)));
    assert_int_equal(bk_ins(r.g, sum)[2], pr_out(r.g, pr_find(r.g, BK_OP_linear_dgrad, 1)));
    pr_fetch_gradients(&r);
    pr_plan(&r);
    pr_run(&r);
    pr_check_differences(&r);
    pr_close(&r);
}

/* A term that something else reads must keep its value. */
static void test_accumulate__leaves_a_term_that_is_read_elsewhere(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid h = base_value(&r);
    const bk_vid other = linear(&r, "other", pr_input(&r, "x2", BK_F64, PR_DIMS(S, B, C)));
    const bk_vid sum = pr_op(&r, BK_OP_residual_add, "sum", PR_IN(h, other));
    pr_seed(&r, h);
    pr_seed(&r, linear(&r, "y", sum)); /* its data gradient is that of h and of the other branch */
    pr_autodiff(&r);
    pr_accumulate(&r);
    assert_int_equal(pr_count_folded(r.g), 0);
    assert_int_equal(pr_count(r.g, BK_OP_add_n), 1);
    pr_close(&r);
}

/* A term that was computed before the first one passed through a copy: it cannot wait for it. */
static void test_accumulate__leaves_a_term_that_comes_too_early(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid h = base_value(&r);
    const bk_vid copy = pr_op(&r, BK_OP_copy, "copy", PR_IN(h));
    pr_seed(&r, linear(&r, "first", h));
    pr_seed(&r, linear(&r, "second", copy));
    pr_autodiff(&r);
    const bk_op *sum = &r.g->op[pr_find(r.g, BK_OP_add_n, 0)];
    assert_int_equal(bk_ins(r.g, sum)[0], pr_out(r.g, pr_find(r.g, BK_OP_linear_dgrad, 1)));
    assert_int_equal(bk_ins(r.g, sum)[1], pr_out(r.g, pr_find(r.g, BK_OP_linear_dgrad, 0)));
    pr_accumulate(&r);
    assert_int_equal(pr_count(r.g, BK_OP_add_n), 1);
    assert_int_equal(pr_count_folded(r.g), 0);
    pr_close(&r);
}

/* Sums of the forward are the model's business. */
static void test_accumulate__leaves_the_forward_alone(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid x = pr_input(&r, "x", BK_F64, PR_DIMS(S, B, C));
    const bk_vid y = pr_op(&r, BK_OP_add_n, "y", PR_IN(linear(&r, "a", x), linear(&r, "b", x)));
    pr_seed(&r, y);
    pr_autodiff(&r);
    pr_accumulate(&r);
    assert_int_equal(pr_count(r.g, BK_OP_add_n), 1);
    pr_close(&r);
}

/* An op of the step runs once; a micro-batch's sum is no addend of it. */
static void test_accumulate__keeps_scopes(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 2);
    const bk_vid p = pr_param(&r, "p", PR_DIMS(S, B, C));
    const bk_vid h = pr_op(&r, BK_OP_copy, "h", PR_IN(p)); /* once a step */
    const bk_vid once = linear(&r, "once", h);
    pr_seed(&r, pr_op(&r, BK_OP_residual_add, "y", PR_IN(pr_input(&r, "x", BK_F64, PR_DIMS(S, B, C)), h)));
    bk_value proto = r.g->value[once];
    bk_vid seed;
    proto.name = "seed.once", proto.kind = BK_INPUT, proto.scope = BK_STEP;
    pr_must(bk_value_add(&seed, r.g, &proto, &e), &e);
    pr_must(bk_op_add(NULL, r.g, &(bk_op_spec){.kind = BK_OP_feed, .into = seed + 1}, &e), &e);
    r.seed[r.n_seeds++] = (bk_seed){once, seed};
    pr_autodiff(&r);
    pr_accumulate(&r);
    for (int64_t o = 0; o < r.g->n_ops; o++)
        if (r.g->op[o].kind == BK_OP_linear_dgrad) assert_int_equal(r.g->op[o].scope, BK_STEP);
    pr_close(&r);
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static const char *const plain_model =
    "enable_mhc_connections: false\nadd_bias_linear: true\nnormalization: LayerNorm\nswiglu: false\n"
    "untie_embeddings_and_output_weights: false\nposition_embedding_type: learned_absolute\n";

/* The graph of small_run with or without the pass. */
static bk_graph *model_graph(small_run *r, bool accumulate, bk_dtype real)
{
    bk_err e = {0};
    bk_graph *g;
    bk_model_io io;
    must(bk_graph_new(&g, real, &e), &e);
    must(bk_model_build(&io, g, &r->c, &r->layout, BK_MODEL_TRAIN, &e), &e);
    const bk_seed seed = {io.loss, io.loss_seed};
    must(bk_pass_autodiff(g, &seed, 1, &e), &e);
    if (accumulate) must(bk_pass_accumulate(g, &e), &e);
    must(bk_graph_verify(g, &e), &e);
    const bk_step_options step = {
        .clip_grad = 1.0, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
    must(bk_pass_step(g, &step, &e), &e);
    must(bk_pass_partition(g, &e), &e);
    must(bk_graph_verify(g, &e), &e);
    return g;
}

/* Exchanges the session's program for one with or without the pass. */
static void open_model(small_run *r, const char *more, bool accumulate, bk_dtype real)
{
    small_run_graphs(r, more, 2, real);
    bk_graph_free(r->session.program[0].g);
    r->session.program[0].g = model_graph(r, accumulate, real);
    small_run_open(r);
}

static double state_at(const small_run *r, const char *name, int64_t i)
{
    const bk_program *p = &r->session.program[0];
    for (bk_vid v = 0; v < p->g->n_values; v++)
        if (p->g->value[v].scope == BK_RUN && strcmp(p->g->value[v].name, name) == 0) {
            const void *at = bk_exec_value(r->session.exec, p->p, v);
            return p->g->real == BK_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
        }
    fail_msg("there is no %s", name);
    return 0;
}

/* exp_avg after the first step is (1 - beta1) times the clipped gradient. A folded sum rounds once less or in
 * another place for each term: a gradient is the sum of some hundred products whose factors each differ by a
 * few units in the last place, so 1e3 units of the largest gradient bound the difference. */
static void compare(const char *more, bk_dtype real)
{
    const double unit = real == BK_F64 ? 2.2e-16 : 1.2e-7;
    small_run with, without;
    bk_err e = {0};
    open_model(&with, more, true, real);
    open_model(&without, more, false, real);
    must(bk_exec_run(with.session.exec, with.session.program[0].p, &with.host, &e), &e);
    must(bk_exec_run(without.session.exec, without.session.program[0].p, &without.host, &e), &e);
    assert_true(with.loss_sum == without.loss_sum); /* the forward is the same */
    const bk_graph *g = with.session.program[0].g, *other = without.session.program[0].g;
    assert_int_equal(g->n_params, other->n_params);
    assert_true(pr_count(g, BK_OP_add_n) < pr_count(other, BK_OP_add_n));
    double largest = 0, off = 0;
    for (bk_pid p = 0; p < g->n_params; p++) {
        char name[256];
        snprintf(name, sizeof name, "exp_avg.%s", g->param[p].name);
        for (int64_t i = 0; i < bk_elements(&g->value[g->param[p].value]); i++) {
            largest = fmax(largest, fabs(state_at(&with, name, i)));
            off = fmax(off, fabs(state_at(&with, name, i) - state_at(&without, name, i)));
        }
    }
    assert_true(largest > 1e-3);
    if (!(off <= 1e3 * unit * largest)) fail_msg("off by %g of %g", off, largest);
    small_run_close(&with), small_run_close(&without);
}

static void test_accumulate__changes_gradients_by_rounding_alone(void **state)
{
    (void)state;
    compare("", BK_F64);
    compare("", BK_F32);
    compare(plain_model, BK_F64);
    compare(plain_model, BK_F32);
}

/* All terms of a stream's gradient come from mHC ops, which add. */
static void test_accumulate__no_sum_of_streams_remains(void **state)
{
    (void)state;
    small_run r;
    small_run_graphs(&r, "", 1, BK_F32);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        bk_graph *g = model_graph(&r, accumulate, BK_F32);
        int sums = 0;
        for (int64_t o = 0; o < g->n_ops; o++)
            if (g->op[o].kind == BK_OP_add_n && g->value[pr_out(g, (bk_oid)o)].rank == 4) sums++;
        /* One for each sublayer: the streams go into the map, the aggregate and the post. */
        assert_int_equal(sums, accumulate ? 0 : 4);
        if (accumulate) assert_int_equal(pr_count_folded(g), 8);
        bk_graph_free(g);
    }
    small_run_close(&r);
}

/* With a plan, a folded op's output stands on its addend: the streams' gradient never moves within a
 * sublayer. */
static void test_accumulate__folded_sums_stand_on_the_same_bytes(void **state)
{
    (void)state;
    static const char *const models[] = {"", plain_model};
    for (int m = 0; m < 2; m++) {
        small_run r;
        small_run_graphs(&r, models[m], 2, BK_F32);
        small_run_open(&r);
        const bk_program *prog = &r.session.program[0];
        const bk_graph *g = prog->g;
        int n = 0;
        for (int64_t o = 0; o < g->n_ops; o++) {
            const bk_op *op = &g->op[o];
            if (!op->folded) continue;
            const bk_vid addend = bk_ins(g, op)[bk_ops[op->kind].in_max], out = bk_outs(g, op)[0];
            const bk_place *a = &prog->p->place[addend], *b = &prog->p->place[out];
            assert_int_not_equal(addend, out);
            assert_int_equal(a->space, BK_SPACE_SLOT);
            assert_int_equal(b->space, BK_SPACE_SLOT);
            assert_int_equal(a->offset, b->offset);
            assert_int_equal(a->bytes, b->bytes);
            n++;
        }
        assert_true(n >= 4);
        small_run_close(&r);
    }
}

int main(void)
{
    omp_set_num_threads(1); /* as in pr_open */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accumulate__folds_a_whole_sum_in_its_order),
        cmocka_unit_test(test_accumulate__names_follow_their_values),
        cmocka_unit_test(test_accumulate__folds_onto_a_folded_sum),
        cmocka_unit_test(test_accumulate__views_of_a_sum_follow_it),
        cmocka_unit_test(test_accumulate__stops_at_a_term_that_cannot_be_folded),
        cmocka_unit_test(test_accumulate__leaves_a_term_that_is_read_elsewhere),
        cmocka_unit_test(test_accumulate__leaves_a_term_that_comes_too_early),
        cmocka_unit_test(test_accumulate__leaves_the_forward_alone),
        cmocka_unit_test(test_accumulate__keeps_scopes),
        cmocka_unit_test(test_accumulate__changes_gradients_by_rounding_alone),
        cmocka_unit_test(test_accumulate__no_sum_of_streams_remains),
        cmocka_unit_test(test_accumulate__folded_sums_stand_on_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
