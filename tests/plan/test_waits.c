/* Waits between lanes: enough, and none too many. */
#include "plan/random_lanes.h"
#include "plan/brute_plan.h"

static void test_waits__cover_every_pair_that_meets_in_memory(void **state)
{
    (void)state;
    int64_t n_waits = 0;
    for (uint64_t seed = 200; seed < 230; seed++) {
        pass_run r;
        rl_open(&r, seed, true);
        brute_check_waits(r.p);
        brute_check_bytes(r.p);
        n_waits += r.p->n_waits;
        pr_close(&r);
    }
    assert_true(n_waits > 600);
}

static void test_waits__sorted_between_lanes_and_forward(void **state)
{
    (void)state;
    pass_run r;
    rl_open(&r, 231, true);
    for (int64_t k = 0; k < r.p->n_waits; k++) {
        const bk_wait *w = &r.p->wait[k], *last = w - 1;
        assert_true(w->before < w->after);
        assert_int_not_equal(r.s->item[w->before].lane, r.s->item[w->after].lane);
        if (k) assert_true(last->after < w->after || (last->after == w->after && last->before < w->before));
    }
    pr_close(&r);
}

/* Without any one of them less is ordered. */
static void test_waits__none_follows_from_the_others(void **state)
{
    (void)state;
    for (uint64_t seed = 240; seed < 244; seed++) {
        pass_run r;
        rl_open(&r, seed, true);
        const int64_t n = r.s->n_items;
        bool *all = brute_happens(r.p, -1);
        for (int64_t k = 0; k < r.p->n_waits; k++) {
            bool *less = brute_happens(r.p, k);
            if (memcmp(all, less, (size_t)(n * n)) == 0)
                fail_msg("item %d need not wait for %d", (int)r.p->wait[k].after, (int)r.p->wait[k].before);
            free(less);
        }
        free(all);
        pr_close(&r);
    }
}

static void test_waits__one_lane_needs_none(void **state)
{
    (void)state;
    pass_run r;
    rl_open(&r, 245, false);
    for (int64_t k = 0; k < r.p->n_waits; k++)
        assert_true(r.s->item[r.p->wait[k].before].lane == BK_LANE_HOST ||
                    r.s->item[r.p->wait[k].after].lane == BK_LANE_HOST);
    assert_true(r.p->n_waits > 0);
    pr_close(&r);
}

/* A parameter is read on a lane that nobody else waits for: its update must. */
static void test_waits__updates_wait_for_readers(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 2);
    pr_build_random(&r, 246);
    pr_autodiff(&r);
    pr_must(bk_pass_step(r.g,
                         &(bk_step_options){
                             .clip_grad = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0},
                         &e),
            &e);
    const bk_vid w = r.g->param[0].value;
    bk_value proto = r.g->value[w];
    bk_vid seen; /* of scope run: nobody takes over its bytes, so the parameter alone is what is waited for */
    proto.name = "seen", proto.kind = BK_STATE;
    pr_must(bk_value_add(&seen, r.g, &proto, &e), &e);
    pr_must(bk_op_add(NULL, r.g,
                      &(bk_op_spec){.kind = BK_OP_acc, .in = &w, .n_in = 1, .upd = &seen, .n_upd = 1}, &e),
            &e);
    const bk_oid reader = (bk_oid)r.g->n_ops - 1;
    r.g->op[reader].lane = BK_LANE_P2P;
    /* In front of the optimizer in plain order. */
    const bk_op op = r.g->op[reader];
    memmove(&r.g->op[1], &r.g->op[0], (size_t)reader * sizeof op);
    r.g->op[0] = op;
    for (int64_t t = 0; t < r.g->n_terms; t++) r.g->term[t].use++, r.g->term[t].term++;
    pr_plan(&r);
    brute_check_waits(r.p);
    int n = 0;
    for (int64_t k = 0; k < r.p->n_waits; k++) n += r.s->item[r.p->wait[k].before].lane == BK_LANE_P2P;
    assert_int_equal(n, 1);
    bk_plan p = *r.p; /* without that wait the checker says what goes wrong */
    bk_wait *wait = malloc((size_t)p.n_waits * sizeof *wait);
    p.wait = wait, p.n_waits = 0;
    for (int64_t k = 0; k < r.p->n_waits; k++)
        if (r.s->item[r.p->wait[k].before].lane != BK_LANE_P2P) wait[p.n_waits++] = r.p->wait[k];
    pr_refused(bk_plan_check(&p, &e), &e, BK_E_CHECK,
               "(it reads the value before the update) must be done before adamw");
    free(wait);
    pr_close(&r);
}

/* Lanes change when things happen, not what is computed. */
static void test_waits__lanes_do_not_change_bits(void **state)
{
    (void)state;
    for (uint64_t seed = 250; seed < 270; seed++) {
        pass_run plain, lanes;
        rl_open(&plain, seed, false), rl_open(&lanes, seed, true);
        pr_run(&plain);
        for (uint64_t order = 0; order < 4; order++) {
            bk_err e;
            lanes.loss = 0;
            if (order < 3)
                pr_must(bk_exec_interleave(lanes.x, lanes.p, &lanes.host, order, &e), &e);
            else
                pr_must(bk_exec_run(lanes.x, lanes.p, &lanes.host, &e), &e);
            assert_true(fabs(lanes.loss - plain.loss) <=
                        1e-12 * fabs(plain.loss)); /* the host adds in any order */
            for (bk_pid p = 0; p < plain.g->n_params; p++)
                if (plain.grad[p])
                    assert_memory_equal(plain.grad[p], lanes.grad[p],
                                        (size_t)pr_n_weights(&plain, p) * sizeof(double));
        }
        pr_close(&plain), pr_close(&lanes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits__cover_every_pair_that_meets_in_memory),
        cmocka_unit_test(test_waits__sorted_between_lanes_and_forward),
        cmocka_unit_test(test_waits__none_follows_from_the_others),
        cmocka_unit_test(test_waits__one_lane_needs_none),
        cmocka_unit_test(test_waits__updates_wait_for_readers),
        cmocka_unit_test(test_waits__lanes_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
