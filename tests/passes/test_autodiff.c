/* Gradients of small graphs against finite differences, through plan and executor, and the structure that
 * autodiff gives them. */
#include "passes/random_graph.h"

enum { S = 2, B = 2, C = 4 };

static bk_vid input_sbc(pass_run *r, const char *name)
{
    return pr_input(r, name, BK_F64, PR_DIMS(S, B, C));
}

static bk_vid linear(pass_run *r, const char *name, bk_vid x, bk_vid w)
{
    return pr_op(r, BK_OP_linear, name, PR_IN(x, w));
}

static bk_vid add(pass_run *r, const char *name, bk_vid x, bk_vid y)
{
    return pr_op(r, BK_OP_residual_add, name, PR_IN(x, y));
}

/* Without and with the pass accumulate. */
static void check_both(void (*build)(pass_run *r), int32_t n_micro)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        pass_run r;
        pr_open(&r, n_micro);
        build(&r);
        pr_gradients(&r, accumulate);
        pr_check_differences(&r);
        pr_close(&r);
    }
}

/* ---- how often a value is used ------------------------------------------------------------------------- */

/* `uses` linears read one value; a norm makes the gradient depend on where it is taken. */
static void build_uses(pass_run *r, int uses)
{
    const bk_vid x = input_sbc(r, "x"), gain = pr_param(r, "gain", PR_DIMS(C));
    const bk_vid h = linear(r, "h", x, pr_param(r, "w", PR_DIMS(C, C)));
    bk_vid y = pr_norm(r, "y", linear(r, "y0", x, pr_param(r, "w0", PR_DIMS(C, C))), gain);
    for (int k = 0; k < uses; k++) {
        char name[16];
        snprintf(name, sizeof name, "u%d", k);
        const bk_vid u = pr_norm(r, name, linear(r, name, h, pr_param(r, name, PR_DIMS(C, C))), gain);
        y = add(r, name, y, u);
    }
    pr_seed(r, add(r, "end", y, y));
}

static void uses_0(pass_run *r)
{
    build_uses(r, 0);
}
static void uses_1(pass_run *r)
{
    build_uses(r, 1);
}
static void uses_2(pass_run *r)
{
    build_uses(r, 2);
}
static void uses_3(pass_run *r)
{
    build_uses(r, 3);
}

static void test_autodiff__value_used_0_1_2_3_times(void **state)
{
    (void)state;
    static void (*const build[])(pass_run *) = {uses_0, uses_1, uses_2, uses_3};
    for (int uses = 0; uses < 4; uses++) {
        pass_run r;
        pr_open(&r, 1);
        build[uses](&r);
        pr_autodiff(&r);
        /* One sum for the two uses of the end, one for h if it has several terms, in the order in which the
         * walk meets them: the last use first. */
        assert_int_equal(pr_count(r.g, BK_OP_add_n), 1 + (uses > 1));
        if (uses > 1) {
            const bk_op *sum = &r.g->op[pr_find(r.g, BK_OP_add_n, 1)];
            assert_int_equal(sum->n_in, uses);
            for (int k = 0; k < uses; k++)
                assert_int_equal(bk_ins(r.g, sum)[k], pr_out(r.g, pr_find(r.g, BK_OP_linear_dgrad, k)));
        }
        pr_close(&r);
        check_both(build[uses], 2);
    }
}

static void build_two_seeds(pass_run *r)
{
    const bk_vid x = input_sbc(r, "x"), w = pr_param(r, "w", PR_DIMS(C, C)),
                 gain = pr_param(r, "gain", PR_DIMS(C));
    const bk_vid h = linear(r, "h", x, w), y = pr_norm(r, "y", h, gain);
    pr_seed(r, h);
    pr_seed(r, y);
}

static void build_one_value_seeded_twice(pass_run *r)
{
    const bk_vid y = linear(r, "y", input_sbc(r, "x"), pr_param(r, "w", PR_DIMS(C, C)));
    pr_seed(r, y);
    pr_seed(r, y);
}

static void test_autodiff__two_seeds(void **state)
{
    (void)state;
    check_both(build_two_seeds, 3);
    check_both(build_one_value_seeded_twice, 1);
}

static void test_autodiff__seed_without_parameters_is_refused(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 1);
    const bk_vid x = input_sbc(&r, "x");
    pr_param(&r, "w", PR_DIMS(C, C));
    pr_seed(&r, add(&r, "alone", x, x));
    const int64_t n_ops = r.g->n_ops;
    pr_refused(bk_pass_autodiff(r.g, r.seed, r.n_seeds, &e), &e, BK_E_CHECK, "alone depends on no parameter");
    assert_int_equal(r.g->n_ops, n_ops);
    pr_close(&r);
}

/* ---- parameters ---------------------------------------------------------------------------------------- */

static void build_tied(pass_run *r)
{
    const bk_vid table = pr_param(r, "table", PR_DIMS(C, C));
    const bk_vid tokens = pr_input(r, "tokens", BK_I32, PR_DIMS(B, S));
    const bk_vid h = pr_op(r, BK_OP_embedding, "h", PR_IN(table, tokens));
    pr_seed(r, linear(r, "y", pr_norm(r, "n", h, pr_param(r, "gain", PR_DIMS(C))), table));
}

static void test_autodiff__tied_parameter_has_a_term_for_each_use(void **state)
{
    (void)state;
    check_both(build_tied, 2);
    pass_run r;
    pr_open(&r, 1);
    build_tied(&r);
    pr_autodiff(&r);
    pr_accumulate(&r);
    int n = 0;
    for (int64_t t = 0; t < r.g->n_terms; t++) {
        const bk_term *x = &r.g->term[t];
        if (x->param != 0) continue;
        n++;
        assert_int_equal(r.g->op[x->use].kind,
                         r.g->op[x->term].kind == BK_OP_linear_wgrad ? BK_OP_linear : BK_OP_embedding);
        assert_int_equal(bk_upds(r.g, &r.g->op[x->term])[0], r.g->param[0].grad);
    }
    assert_int_equal(n, 2);
    pr_close(&r);
}

/* x is an input: no op may compute its gradient, and labels have none. */
static void test_autodiff__no_gradient_of_inputs(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    pr_seed(&r, linear(&r, "y", input_sbc(&r, "x"), pr_param(&r, "w", PR_DIMS(C, C))));
    pr_autodiff(&r);
    assert_int_equal(pr_count(r.g, BK_OP_linear_dgrad), 0);
    assert_int_equal(pr_count(r.g, BK_OP_linear_wgrad), 1);
    assert_int_equal(r.g->n_terms, 1);
    pr_close(&r);
}

static void test_autodiff__parameter_without_path_gets_an_exact_zero(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 2);
    const bk_vid x = input_sbc(&r, "x"), used = pr_param(&r, "used", PR_DIMS(C, C));
    const bk_vid idle = pr_param(&r, "idle", PR_DIMS(C, C));
    pr_param(&r, "nowhere", PR_DIMS(C));
    linear(&r, "unread", x, idle);
    pr_seed(&r, linear(&r, "y", x, used));
    pr_autodiff(&r);
    pr_accumulate(&r);
    assert_int_equal(r.g->param[1].grad, BK_NONE);
    pr_must(bk_pass_step(r.g,
                         &(bk_step_options){
                             .clip_grad = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0},
                         &e),
            &e);
    pr_verify(&r);
    pr_fetch_gradients(&r);
    pr_plan(&r);
    const double before = pr_weights(&r, 1)[3];
    pr_run(&r); /* what nobody holds is NaN, so a gradient that nobody writes would show */
    double sum = 0;
    for (int64_t i = 0; i < C * C; i++) {
        assert_true(r.grad[1][i] == 0);
        sum += r.grad[0][i] * r.grad[0][i];
    }
    for (int64_t i = 0; i < C; i++) assert_true(r.grad[2][i] == 0);
    assert_true(fabs(r.grad_norm - sqrt(sum)) <= 1e-14 * r.grad_norm && r.grad_norm > 1);
    assert_true(pr_weights(&r, 1)[3] == before);
    pr_close(&r);
}

/* A parameter as the input of an op that passes gradients through. */
static void build_passed_through(pass_run *r)
{
    const bk_vid p = pr_param(r, "p", PR_DIMS(S, B, C)), x = input_sbc(r, "x");
    const bk_vid gain = pr_param(r, "gain", PR_DIMS(C));
    const bk_vid once = add(r, "once", x, p), twice = add(r, "twice", p, p);
    pr_seed(r, pr_norm(r, "y", add(r, "sum", once, twice), gain));
}

static void test_autodiff__parameter_that_is_added_gets_its_terms(void **state)
{
    (void)state;
    check_both(build_passed_through, 2);
    pass_run r;
    pr_open(&r, 1);
    build_passed_through(&r);
    pr_autodiff(&r);
    int n = 0;
    for (int64_t t = 0; t < r.g->n_terms; t++) n += r.g->term[t].param == 0;
    assert_int_equal(n, 2); /* one for each op that reads it */
    pr_close(&r);
}

/* ---- views --------------------------------------------------------------------------------------------- */

enum { HEADS = 2, D = 2 };

/* A head layout [S, B, HEADS, D] in row `at` of `of` of a fused projection. */
static bk_vid part(pass_run *r, const char *name, bk_vid base, int at, int of)
{
    const int64_t row = (int64_t)of * HEADS * D;
    return pr_view(r, name, base, 4, (const int64_t[]){S, B, HEADS, D}, (const int64_t[]){B * row, row, D, 1},
                   (int64_t)at * HEADS * D);
}

static void tables(pass_run *r, bk_vid out[2])
{
    bk_err e;
    const bk_op_spec spec = {
        .kind = BK_OP_rope_table, .name = "angles", .attr = {{.i = S}, {.i = D}, {.f = 100.0}}};
    pr_must(bk_op_add(out, r->g, &spec, &e), &e);
}

static bk_vid rope(pass_run *r, const char *name, bk_vid x, const bk_vid table[2])
{
    return pr_op(r, BK_OP_rope, name, PR_IN(x, table[0], table[1]));
}

/* A fused projection of `parts` parts. */
static bk_vid fused(pass_run *r, int parts)
{
    const bk_vid w = pr_param(r, "fused.w", PR_DIMS(parts * HEADS * D, C));
    return linear(r, "fused", input_sbc(r, "x"), w);
}

static void build_tiles(pass_run *r)
{
    bk_vid t[2];
    const bk_vid base = fused(r, 3);
    tables(r, t);
    /* Not in the order of their places. */
    pr_seed(r, rope(r, "k", part(r, "base.k", base, 1, 3), t));
    pr_seed(r, rope(r, "v", part(r, "base.v", base, 2, 3), t));
    pr_seed(r, rope(r, "q", part(r, "base.q", base, 0, 3), t));
}

static void test_autodiff__tiles_are_written_straight_into_the_gradient(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 2);
    build_tiles(&r);
    const int64_t n_forward = r.g->n_ops;
    pr_autodiff(&r);
    assert_int_equal(pr_count(r.g, BK_OP_copy) + pr_count(r.g, BK_OP_acc) + pr_count(r.g, BK_OP_fill), 0);
    bk_vid base = BK_NONE;
    int64_t seen = 0;
    for (int64_t o = n_forward; o < r.g->n_ops; o++) {
        if (r.g->op[o].kind != BK_OP_rope) continue;
        const bk_value *d = &r.g->value[pr_out(r.g, (bk_oid)o)];
        assert_true(base == BK_NONE || base == d->base);
        base = d->base;
        seen |= INT64_C(1) << d->offset;
    }
    assert_int_equal(seen, 1 | 1 << HEADS * D | 1 << 2 * HEADS * D);
    assert_int_equal(bk_ins(r.g, &r.g->op[pr_find(r.g, BK_OP_linear_wgrad, 0)])[0], base);
    pr_close(&r);
    check_both(build_tiles, 2);
}

/* The gradients of the second projection's parts are computed after those of the first one were joined. */
static void build_tiles_twice(pass_run *r)
{
    bk_vid t[2];
    const bk_vid base = fused(r, 2);
    tables(r, t);
    const bk_vid again =
        linear(r, "again", base, pr_param(r, "again.w", PR_DIMS(2 * HEADS * D, 2 * HEADS * D)));
    pr_seed(r, rope(r, "k1", part(r, "again.k", again, 0, 2), t));
    pr_seed(r, rope(r, "v1", part(r, "again.v", again, 1, 2), t));
    const bk_vid other =
        linear(r, "other", input_sbc(r, "x2"), pr_param(r, "other.w", PR_DIMS(2 * HEADS * D, C)));
    pr_seed(r, rope(r, "k2", part(r, "other.k", other, 0, 2), t));
    pr_seed(r, rope(r, "v2", part(r, "other.v", other, 1, 2), t));
}

static void test_autodiff__tiles_of_several_values(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 2);
    build_tiles_twice(&r);
    pr_autodiff(&r);
    assert_int_equal(pr_count(r.g, BK_OP_copy) + pr_count(r.g, BK_OP_acc) + pr_count(r.g, BK_OP_fill), 0);
    pr_close(&r);
    check_both(build_tiles_twice, 2);
}

static void build_hole(pass_run *r)
{
    bk_vid t[2];
    const bk_vid base = fused(r, 3);
    tables(r, t);
    pr_seed(r, rope(r, "q", part(r, "base.q", base, 0, 3), t));
    pr_seed(r, rope(r, "v", part(r, "base.v", base, 2, 3), t));
}

static void build_hole_at_the_end(pass_run *r)
{
    bk_vid t[2];
    const bk_vid base = fused(r, 3);
    tables(r, t);
    pr_seed(r, rope(r, "q", part(r, "base.q", base, 0, 3), t));
    pr_seed(r, rope(r, "k", part(r, "base.k", base, 1, 3), t));
}

static void build_overlap(pass_run *r)
{
    bk_vid t[2];
    const bk_vid base = fused(r, 2);
    const int64_t row = 2 * HEADS * D;
    tables(r, t);
    pr_seed(r, rope(r, "q", part(r, "base.q", base, 0, 2), t));
    pr_seed(r, rope(r, "k", part(r, "base.k", base, 1, 2), t));
    const bk_vid middle = pr_view(r, "base.m", base, 4, (const int64_t[]){S, B, HEADS, D},
                                  (const int64_t[]){B * row, row, D, 1}, D);
    pr_seed(r, rope(r, "m", middle, t));
}

static void build_direct(pass_run *r)
{
    bk_vid t[2];
    const bk_vid base = fused(r, 2), w = pr_param(r, "w", PR_DIMS(C, 2 * HEADS * D));
    tables(r, t);
    pr_seed(r, rope(r, "q", part(r, "base.q", base, 0, 2), t));
    pr_seed(r, rope(r, "k", part(r, "base.k", base, 1, 2), t));
    pr_seed(r, linear(r, "whole", base, w));
}

static void build_view_used_twice(pass_run *r)
{
    bk_vid t[2];
    const bk_vid base = fused(r, 2), q = part(r, "base.q", base, 0, 2);
    tables(r, t);
    pr_seed(r, rope(r, "q", q, t));
    pr_seed(r, pr_op(r, BK_OP_copy, "q2", PR_IN(q)));
    pr_seed(r, rope(r, "k", part(r, "base.k", base, 1, 2), t));
}

/* Two views of the same place. */
static void build_same_place(pass_run *r)
{
    bk_vid t[2];
    const bk_vid base = fused(r, 2);
    tables(r, t);
    pr_seed(r, rope(r, "q", part(r, "base.q", base, 0, 2), t));
    pr_seed(r, rope(r, "p", part(r, "base.p", base, 0, 2), t));
    pr_seed(r, rope(r, "k", part(r, "base.k", base, 1, 2), t));
}

/* A part turned by 90 degrees: what it covers is no run. */
static void build_transposed(pass_run *r)
{
    const bk_vid base = fused(r, 1);
    const bk_vid view =
        pr_view(r, "base.t", base, 3, (const int64_t[]){C, B, S}, (const int64_t[]){1, C, B * C}, 0);
    const bk_vid y = pr_op(r, BK_OP_copy, "t", PR_IN(view));
    pr_seed(r, linear(r, "y", y, pr_param(r, "w", PR_DIMS(C, S))));
}

static void test_autodiff__views_with_holes_overlaps_and_direct_uses(void **state)
{
    (void)state;
    check_both(build_hole, 2);
    check_both(build_hole_at_the_end, 2);
    check_both(build_overlap, 2);
    check_both(build_direct, 2);
    check_both(build_view_used_twice, 2);
    check_both(build_same_place, 1);
    check_both(build_transposed, 1);
}

static void test_autodiff__holes_are_zero_and_overlaps_are_added(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    build_hole(&r);
    pr_autodiff(&r);
    assert_int_equal(pr_count(r.g, BK_OP_fill), 1);
    assert_int_equal(pr_count(r.g, BK_OP_acc), 2);
    pr_close(&r);
    pr_open(&r, 1);
    build_direct(&r);
    pr_autodiff(&r);
    assert_int_equal(pr_count(r.g, BK_OP_fill), 0);
    assert_int_equal(pr_count(r.g, BK_OP_acc), 2);
    pr_close(&r);
}

/* ---- gradients that several values share ----------------------------------------------------------------
 */

/* First and second half of the positions of a value, each as dense as a value of its own. */
static bk_vid half(pass_run *r, const char *name, bk_vid base, int which)
{
    return pr_view(r, name, base, 3, (const int64_t[]){S, B, C}, (const int64_t[]){B * C, C, 1},
                   (int64_t)which * S * B * C);
}

/* Heads that turn, added: the op that writes strides computes one gradient for both halves. */
static void build_halves_share(pass_run *r)
{
    bk_vid t[2], part_of[2];
    const bk_vid x = pr_input(r, "x2", BK_F64, PR_DIMS(2 * S, B, C));
    const bk_vid base = linear(r, "long", x, pr_param(r, "long.w", PR_DIMS(C, C)));
    for (int k = 0; k < 2; k++)
        part_of[k] = pr_view(r, "long.half", base, 4, (const int64_t[]){S, B, HEADS, D},
                             (const int64_t[]){B * C, C, D, 1}, (int64_t)k * S * B * C);
    tables(r, t);
    pr_seed(r, rope(r, "z", pr_op(r, BK_OP_add_n, "sum", part_of, 2), t));
}

/* The gradient of q is also that of a norm, which is finished later and wants it dense. */
static void build_part_shares_with_another(pass_run *r)
{
    bk_vid t[2];
    const bk_vid heads = pr_input(r, "heads", BK_F64, PR_DIMS(S, B, HEADS, D));
    const bk_vid other = pr_norm(r, "other", heads, pr_param(r, "gain", PR_DIMS(D)));
    const bk_vid base = fused(r, 2);
    tables(r, t);
    const bk_vid q = pr_op(r, BK_OP_copy, "q", PR_IN(part(r, "base.q", base, 0, 2)));
    pr_seed(r, rope(r, "z", pr_op(r, BK_OP_add_n, "sum", PR_IN(other, q)), t));
    pr_seed(r, rope(r, "k", part(r, "base.k", base, 1, 2), t));
}

static void build_residual_chain(pass_run *r)
{
    const bk_vid gain = pr_param(r, "gain", PR_DIMS(C));
    bk_vid x = linear(r, "in", input_sbc(r, "x"), pr_param(r, "w", PR_DIMS(C, C)));
    for (int k = 0; k < 2; k++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", k);
        const bk_vid y = linear(r, name, pr_norm(r, name, x, gain), pr_param(r, name, PR_DIMS(C, C)));
        x = add(r, name, add(r, name, x, y), y);
    }
    pr_seed(r, x);
}

static void build_value_added_to_itself(pass_run *r)
{
    const bk_vid h = linear(r, "h", input_sbc(r, "x"), pr_param(r, "w", PR_DIMS(C, C)));
    const bk_vid y = add(r, "y", h, h);
    pr_seed(r, pr_norm(r, "z", add(r, "yy", y, h), pr_param(r, "gain", PR_DIMS(C))));
}

static void test_autodiff__gradients_that_pass_through(void **state)
{
    (void)state;
    check_both(build_residual_chain, 2);
    check_both(build_value_added_to_itself, 2);
}

static void test_autodiff__shared_gradient_is_not_turned_into_a_view(void **state)
{
    (void)state;
    check_both(build_halves_share, 1);
    check_both(build_part_shares_with_another, 1);
}

/* A value computed once a step whose views micro-batches read: its gradient is theirs. */
static void build_step_value_with_views(pass_run *r)
{
    const bk_vid p = pr_param(r, "p", PR_DIMS(2 * S, B, C)), gain = pr_param(r, "gain", PR_DIMS(C));
    const bk_vid base = pr_op(r, BK_OP_copy, "cast", PR_IN(p));
    assert_int_equal(r->g->value[base].scope, BK_STEP);
    const bk_vid y = add(r, "y", input_sbc(r, "x"), half(r, "first", base, 0));
    pr_seed(r, pr_norm(r, "z", y, gain));
    pr_seed(r, add(r, "u", input_sbc(r, "x1"), half(r, "second", base, 1)));
}

static void test_autodiff__views_of_a_step_value(void **state)
{
    (void)state;
    check_both(build_step_value_with_views, 3);
}

/* A seed of scope step that reaches a part of a micro-batch's value unchanged. */
static void test_autodiff__parts_seeded_once_a_step_are_refused(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 2);
    const bk_vid y = pr_op(&r, BK_OP_copy, "y", PR_IN(part(&r, "base.q", fused(&r, 2), 0, 2)));
    bk_value proto = r.g->value[y];
    bk_vid seed;
    proto.name = "seed", proto.kind = BK_INPUT, proto.scope = BK_STEP;
    pr_must(bk_value_add(&seed, r.g, &proto, &e), &e);
    pr_must(bk_op_add(NULL, r.g, &(bk_op_spec){.kind = BK_OP_feed, .into = seed + 1}, &e), &e);
    pr_refused(bk_pass_autodiff(r.g, &(bk_seed){y, seed}, 1, &e), &e, BK_E_CHECK,
               "a part of fused gets its gradient once a step");
    pr_close(&r);
}

/* Forward ops that write parts of a value: no gradient would reach them. */
static void test_autodiff__writing_parts_is_refused(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 1);
    const bk_vid h = linear(&r, "h", input_sbc(&r, "x"), pr_param(&r, "w", PR_DIMS(C, C)));
    bk_value proto = r.g->value[h];
    proto.name = "cat", proto.dim[0].size = 2 * S;
    bk_vid cat;
    pr_must(bk_value_add(&cat, r.g, &proto, &e), &e);
    for (int k = 0; k < 2; k++) {
        const bk_vid into = half(&r, "cat.half", cat, k);
        pr_must(bk_op_add(NULL, r.g, &(bk_op_spec){.kind = BK_OP_copy, .in = &h, .n_in = 1, .into = into + 1},
                          &e),
                &e);
    }
    pr_seed(&r, linear(&r, "y", cat, pr_param(&r, "w2", PR_DIMS(C, C))));
    pr_refused(bk_pass_autodiff(r.g, r.seed, r.n_seeds, &e), &e, BK_E_CHECK, "cat.half");
    pr_close(&r);
}

/* ---- random graphs ------------------------------------------------------------------------------------- */

/* Along one direction in the space of all parameters the gradient is the slope. Values grow with the depth of
 * a graph, so the step is short and the bound relative: truncation and rounding are both of order 1e-9. */
static void check_slope(pass_run *r, uint64_t seed)
{
    const double h = 1e-5;
    double want = 0, scale = 0, loss[2];
    for (bk_pid p = 0; p < r->g->n_params; p++)
        for (int64_t i = 0; r->grad[p] && i < pr_n_weights(r, p); i++) {
            const double term = r->grad[p][i] * pr_wave("direction", (int64_t)seed, i + 100 * p);
            want += term, scale += fabs(term);
        }
    for (int side = 0; side < 2; side++) {
        const double step = side ? -2 * h : h;
        for (bk_pid p = 0; p < r->g->n_params; p++)
            for (int64_t i = 0; i < pr_n_weights(r, p); i++)
                pr_weights(r, p)[i] += step * pr_wave("direction", (int64_t)seed, i + 100 * p);
        pr_run(r);
        loss[side] = r->loss;
    }
    const double got = (loss[0] - loss[1]) / (2 * h);
    assert_true(scale > 1e-2);
    if (!(fabs(got - want) <= 1e-6 * (1 + scale)))
        fail_msg("graph %llu: slope %.12g, gradient gives %.12g", (unsigned long long)seed, got, want);
}

static void test_autodiff__random_graphs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        pass_run r;
        pr_open(&r, 1 + (int32_t)(seed % 3));
        pr_build_random(&r, seed);
        pr_gradients(&r, seed % 4 != 0);
        check_slope(&r, seed);
        pr_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_autodiff__value_used_0_1_2_3_times),
        cmocka_unit_test(test_autodiff__two_seeds),
        cmocka_unit_test(test_autodiff__seed_without_parameters_is_refused),
        cmocka_unit_test(test_autodiff__tied_parameter_has_a_term_for_each_use),
        cmocka_unit_test(test_autodiff__no_gradient_of_inputs),
        cmocka_unit_test(test_autodiff__parameter_without_path_gets_an_exact_zero),
        cmocka_unit_test(test_autodiff__parameter_that_is_added_gets_its_terms),
        cmocka_unit_test(test_autodiff__tiles_are_written_straight_into_the_gradient),
        cmocka_unit_test(test_autodiff__tiles_of_several_values),
        cmocka_unit_test(test_autodiff__views_with_holes_overlaps_and_direct_uses),
        cmocka_unit_test(test_autodiff__holes_are_zero_and_overlaps_are_added),
        cmocka_unit_test(test_autodiff__gradients_that_pass_through),
        cmocka_unit_test(test_autodiff__shared_gradient_is_not_turned_into_a_view),
        cmocka_unit_test(test_autodiff__views_of_a_step_value),
        cmocka_unit_test(test_autodiff__parts_seeded_once_a_step_are_refused),
        cmocka_unit_test(test_autodiff__writing_parts_is_refused),
        cmocka_unit_test(test_autodiff__random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
