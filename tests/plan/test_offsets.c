/* Addresses: nothing that lives at once shares bytes, over random graphs; in place where it may be; slots. */
#include "passes/random_graph.h"
#include "plan/brute_plan.h"

enum { S = 2, B = 2, C = 4 };

static void open_random(pass_run *r, uint64_t seed)
{
    pr_open(r, 1 + (int32_t)(seed % 3));
    pr_build_random(r, seed);
    pr_autodiff(r);
    if (seed % 2) pr_accumulate(r);
    pr_fetch_gradients(r);
    pr_plan(r);
}

static void test_offsets__no_two_lives_share_bytes(void **state)
{
    (void)state;
    int64_t n_shared = 0;
    for (uint64_t seed = 100; seed < 140; seed++) {
        pass_run r;
        open_random(&r, seed);
        n_shared += brute_check_bytes(r.p);
        assert_true(r.p->peak_bytes <= bk_plan_bytes(r.p));
        pr_close(&r);
    }
    assert_true(n_shared > 1000); /* bytes are used again, or there would be nothing to prove */
}

static void test_offsets__same_graph_same_addresses(void **state)
{
    (void)state;
    pass_run a, b;
    open_random(&a, 7), open_random(&b, 7);
    assert_int_equal(a.p->n_values, b.p->n_values);
    for (int32_t v = 0; v < a.p->n_values; v++) assert_int_equal(a.p->place[v].offset, b.p->place[v].offset);
    pr_close(&a), pr_close(&b);
}

/* ---- in place ------------------------------------------------------------------------------------------ */

static bool same_place(const pass_run *r, bk_vid a, bk_vid b)
{
    const bk_place *x = &r->p->place[a], *y = &r->p->place[b];
    return x->space == y->space && x->offset == y->offset && x->bytes == y->bytes;
}

static void fetch(pass_run *r, bk_vid v)
{
    bk_err e;
    pr_must(bk_op_add(NULL, r->g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &v, .n_in = 1}, &e), &e);
}

static bk_vid copy(pass_run *r, const char *name, bk_vid x)
{
    return pr_op(r, BK_OP_copy, name, PR_IN(x));
}

static bk_vid add(pass_run *r, const char *name, bk_vid x, bk_vid y)
{
    return pr_op(r, BK_OP_add_n, name, PR_IN(x, y));
}

static void test_offsets__in_place_where_the_source_ends(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 1);
    const bk_vid x = pr_input(&r, "x", BK_F64, PR_DIMS(S, B, C));
    const bk_vid a = copy(&r, "a", x), chain1 = add(&r, "chain1", a, x),
                 chain2 = add(&r, "chain2", chain1, x);
    const bk_vid later = copy(&r, "later", x), kept = add(&r, "kept", later, chain2);
    const bk_vid twice = copy(&r, "twice", x), doubled = add(&r, "doubled", twice, twice);
    const bk_vid second = copy(&r, "second", x), of_input = add(&r, "of_input", x, doubled);
    const bk_vid by_second = add(&r, "by_second", later, second);
    fetch(&r, later), fetch(&r, kept), fetch(&r, of_input), fetch(&r, by_second);
    pr_plan(&r);
    brute_check_bytes(r.p);
    assert_true(same_place(&r, a, chain1));
    assert_true(same_place(&r, chain1, chain2));
    assert_false(same_place(&r, later, kept));       /* read again */
    assert_false(same_place(&r, twice, doubled));    /* read twice by the op itself */
    assert_false(same_place(&r, x, of_input));       /* an input is the host's */
    assert_false(same_place(&r, second, by_second)); /* only input 0 may be taken */
    pr_run(&r);
    pr_close(&r);
}

/* A value of the step is not taken by a micro-batch: the next one needs it again. */
static void test_offsets__not_in_place_across_scopes(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 3);
    const bk_vid p = pr_param(&r, "p", PR_DIMS(S, B, C)), x = pr_input(&r, "x", BK_F64, PR_DIMS(S, B, C));
    const bk_vid once = copy(&r, "once", p), sum = add(&r, "sum", once, x);
    fetch(&r, sum);
    pr_plan(&r);
    assert_int_equal(r.p->place[once].space, BK_SPACE_STEP);
    assert_int_equal(r.p->place[sum].space, BK_SPACE_SLOT);
    brute_check_bytes(r.p);
    pr_run(&r);
    pr_close(&r);
}

/* ---- sizes --------------------------------------------------------------------------------------------- */

static void test_offsets__values_without_elements(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 2);
    const bk_vid none = pr_input(&r, "none", BK_F64, PR_DIMS(0, B, C)), w = pr_param(&r, "w", PR_DIMS(C, C));
    const bk_vid y = pr_op(&r, BK_OP_linear, "y", PR_IN(none, w));
    pr_seed(&r, copy(&r, "end", y));
    pr_autodiff(&r);
    pr_fetch_gradients(&r);
    pr_plan(&r);
    assert_int_equal(r.p->place[y].bytes, 0);
    brute_check_bytes(r.p);
    pr_run(&r);
    for (int i = 0; i < C * C; i++)
        assert_true(r.grad[0][i] == 0); /* the first update assigns the empty sum */
    pr_close(&r);
}

static void test_offsets__scratch_memory_has_a_place_of_its_own(void **state)
{
    (void)state;
    pass_run r;
    open_random(&r, 3);
    int n = 0;
    for (bk_oid o = 0; o < r.g->n_ops; o++) {
        const bk_op *op = &r.g->op[o];
        const int64_t need =
            bk_ops[op->kind].rules->workspace ? bk_ops[op->kind].rules->workspace(r.g, op, &r.p->target) : 0;
        assert_int_equal(r.p->work[o].space != BK_SPACE_NONE, need > 0);
        if (need > 0) assert_int_equal(r.p->work[o].bytes, need);
        n += need > 0;
    }
    assert_true(n > 0);
    pr_close(&r);
}

/* Values of 2^61 bytes each fit in their type; four of them at once do not. */
static void test_offsets__sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    pr_open(&r, 1);
    bk_vid v[5];
    const int64_t rows = INT64_C(1) << 58;
    for (int k = 0; k < 5; k++)
        v[k] = pr_input(&r, (const char *[]){"a", "b", "c", "d", "e"}[k], BK_F64, PR_DIMS(rows));
    fetch(&r, pr_op(&r, BK_OP_add_n, "sum", v, 5));
    pr_must(bk_pass_partition(r.g, &e), &e);
    pr_must(bk_schedule_plain(&r.s, r.g, 1, &e), &e);
    pr_refused(bk_plan_build(&r.p, r.g, r.s, &r.run, &target, &e), &e, BK_E_MEM,
               "the sizes of this step overflow");
    assert_null(r.p);
    bk_value proto = {
        .name = "huge", .dtype = BK_F64, .scope = BK_MICRO, .rank = 2, .dim = {{rows, 0}, {rows, 0}}};
    pr_refused(bk_value_add(&v[0], r.g, &proto, &e), &e, BK_E_MEM, "value huge: its size overflows");
    pr_close(&r);
}

/* Two slots of 2^61 bytes fit, five do not. */
static void test_offsets__slots_that_overflow_are_refused(void **state)
{
    (void)state;
    for (int32_t n_micro = 2; n_micro <= 5; n_micro += 3) {
        pass_run r;
        bk_err e;
        const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
        pr_open(&r, n_micro);
        fetch(&r, pr_input(&r, "x", BK_F64, PR_DIMS(INT64_C(1) << 58)));
        r.g->op[1].tag.layer = 1; /* a region of its own */
        pr_must(bk_pass_partition(r.g, &e), &e);
        pr_must(bk_schedule_plain(&r.s, r.g, n_micro, &e), &e);
        assert_int_equal(r.s->n_items, 2 * n_micro);
        bk_rid feed = r.s->item[0].region, take = r.s->item[1].region;
        for (int32_t m = 0; m < n_micro; m++) {
            r.s->item[m].region = feed, r.s->item[m].micro = m;
            r.s->item[n_micro + m].region = take, r.s->item[n_micro + m].micro = m;
        }
        const bk_status st = bk_plan_build(&r.p, r.g, r.s, &r.run, &target, &e);
        if (n_micro == 2) {
            pr_must(st, &e);
            assert_int_equal(r.p->chunk[0].n_slots, 2);
            pr_must(bk_plan_check(r.p, &e), &e);
        } else {
            pr_refused(st, &e, BK_E_MEM, "overflow");
        }
        pr_close(&r);
    }
}

/* ---- the part of the run ------------------------------------------------------------------------------- */

static bk_graph *with_params(int64_t rows, bk_dtype dtype)
{
    bk_graph *g;
    bk_err e;
    bk_vid v;
    pr_must(bk_graph_new(&g, dtype, &e), &e);
    pr_must(bk_param_add(&v, g, &(bk_param){.name = "a", .rank = 1, .shape = {3}, .dtype = BK_F32}, &e), &e);
    pr_must(bk_param_add(&v, g, &(bk_param){.name = "b", .rank = 1, .shape = {rows}, .dtype = dtype}, &e),
            &e);
    return g;
}

static void test_offsets__run_layout_is_shared(void **state)
{
    (void)state;
    bk_run_layout run = {0};
    bk_err e;
    bk_graph *first = with_params(20, BK_F32), *again = with_params(20, BK_F32);
    bk_graph *larger = with_params(21, BK_F32), *wider = with_params(10, BK_F64);
    bk_vid extra;
    pr_must(
        bk_param_add(&extra, again, &(bk_param){.name = "c", .rank = 1, .shape = {1}, .dtype = BK_F32}, &e),
        &e);
    pr_must(bk_run_layout_add(&run, first, &e), &e);
    assert_int_equal(run.n_entries, 2);
    assert_int_equal(run.entry[1].offset, 64);
    assert_int_equal(run.bytes, 64 + 128);
    pr_must(bk_run_layout_add(&run, again, &e), &e);
    assert_int_equal(run.n_entries, 3);
    assert_int_equal(run.entry[2].offset, 64 + 128);
    pr_refused(bk_run_layout_add(&run, larger, &e), &e, BK_E_CHECK,
               "two programs disagree about the size of b");
    pr_refused(bk_run_layout_add(&run, wider, &e), &e, BK_E_CHECK,
               "two programs disagree about the size of b");
    bk_run_layout_free(&run);
    bk_graph_free(first), bk_graph_free(again), bk_graph_free(larger), bk_graph_free(wider);
}

static void test_offsets__value_outside_of_the_run_layout(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    const bk_target target = {.kind = BK_TARGET_CPU};
    pr_open(&r, 1);
    fetch(&r, copy(&r, "y", pr_param(&r, "lonely", PR_DIMS(C))));
    pr_must(bk_pass_partition(r.g, &e), &e);
    pr_must(bk_schedule_plain(&r.s, r.g, 1, &e), &e);
    pr_refused(bk_plan_build(&r.p, r.g, r.s, &r.run, &target, &e), &e, BK_E_CHECK,
               "lonely is not in the layout of the run");
    pr_close(&r);
}

/* ---- chunks -------------------------------------------------------------------------------------------- */

static void test_offsets__program_of_the_step_alone(void **state)
{
    (void)state;
    pass_run r;
    pr_open(&r, 2);
    fetch(&r, copy(&r, "y", pr_param(&r, "p", PR_DIMS(C))));
    pr_plan(&r);
    assert_int_equal(r.p->chunk[0].n_slots, 0);
    pr_run(&r);
    assert_int_equal(r.n_fetched, 1);
    pr_close(&r);
}

static void test_offsets__chunk_with_a_high_number(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    open_random(&r, 11);
    pr_run(&r);
    const double loss = r.loss;
    for (int64_t k = 0; k < r.g->n_regions; k++)
        if (r.g->region[k].scope == BK_MICRO) r.g->region[k].chunk = 200;
    bk_plan_free(r.p), bk_schedule_free(r.s), bk_exec_close(r.x);
    r.p = NULL, r.s = NULL, r.x = NULL;
    pr_must(bk_schedule_plain(&r.s, r.g, r.n_micro, &e), &e);
    pr_must(bk_plan_build(&r.p, r.g, r.s, &r.run, &target, &e), &e);
    pr_must(bk_plan_check(r.p, &e), &e);
    brute_check_bytes(r.p);
    pr_must(bk_exec_open(&r.x, r.p->run_bytes, r.p->step_bytes, &e), &e);
    for (bk_pid p = 0; p < r.g->n_params; p++)
        for (int64_t i = 0; i < pr_n_weights(&r, p); i++)
            pr_weights(&r, p)[i] = pr_wave(r.g->param[p].name, 0, i);
    pr_run(&r);
    assert_true(r.loss == loss);
    pr_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets__no_two_lives_share_bytes),
        cmocka_unit_test(test_offsets__same_graph_same_addresses),
        cmocka_unit_test(test_offsets__in_place_where_the_source_ends),
        cmocka_unit_test(test_offsets__not_in_place_across_scopes),
        cmocka_unit_test(test_offsets__values_without_elements),
        cmocka_unit_test(test_offsets__scratch_memory_has_a_place_of_its_own),
        cmocka_unit_test(test_offsets__sizes_that_overflow_are_refused),
        cmocka_unit_test(test_offsets__slots_that_overflow_are_refused),
        cmocka_unit_test(test_offsets__run_layout_is_shared),
        cmocka_unit_test(test_offsets__value_outside_of_the_run_layout),
        cmocka_unit_test(test_offsets__program_of_the_step_alone),
        cmocka_unit_test(test_offsets__chunk_with_a_high_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
