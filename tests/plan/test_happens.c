/* Happens-before by vector clocks against the closure of all arrows. */
#include "plan/random_lanes.h"
#include "plan/brute_plan.h"
#include "plan/happens.h"

static void test_happens__agrees_with_the_closure(void **state)
{
    (void)state;
    for (uint64_t seed = 300; seed < 315; seed++) {
        pass_run r;
        bk_happens h;
        bk_err e;
        rl_open(&r, seed, true);
        const int64_t n = r.s->n_items;
        bool *done = brute_happens(r.p, -1);
        pr_must(bk_happens_init(&h, r.p, &e), &e);
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(h.order[h.rank[i]], i);
            for (int32_t j = 0; j < n; j++) {
                assert_int_equal(bk_happens_before(&h, i, j), done[i * n + j]);
                if (done[i * n + j]) assert_true(h.rank[i] < h.rank[j]);
            }
        }
        bk_happens_free(&h);
        free(done);
        pr_close(&r);
    }
}

/* Two lanes that wait for each other: compute for the host, the host for compute. */
static void test_happens__circle_is_a_deadlock(void **state)
{
    (void)state;
    pass_run r;
    bk_happens h;
    bk_err e;
    pr_open(&r, 1);
    const bk_vid x = pr_input(&r, "x", BK_F64, PR_DIMS(2, 2, 4));
    pr_seed(&r, pr_op(&r, BK_OP_linear, "y", PR_IN(x, pr_param(&r, "w", PR_DIMS(4, 4)))));
    pr_autodiff(&r);
    pr_fetch_gradients(&r);
    pr_plan(&r);
    int32_t feed = BK_NONE, linear = BK_NONE;
    for (int32_t i = 0; i < r.s->n_items; i++) {
        if (feed == BK_NONE && r.s->item[i].lane == BK_LANE_HOST) feed = i;
        if (linear == BK_NONE && r.s->item[i].lane == BK_LANE_COMP) linear = i;
    }
    bk_plan p = *r.p;
    bk_wait circle[] = {{feed, linear}, {linear, feed}};
    if (circle[0].after > circle[1].after)
        circle[0] = (bk_wait){linear, feed}, circle[1] = (bk_wait){feed, linear};
    p.wait = circle, p.n_waits = 2;
    pr_refused(bk_happens_init(&h, &p, &e), &e, BK_E_CHECK, "deadlock: item ");
    assert_non_null(strstr(e.msg, "which can never start"));
    bk_happens_free(&h);
    pr_refused(bk_plan_check(&p, &e), &e, BK_E_CHECK, "deadlock: item ");
    pr_refused(bk_exec_interleave(r.x, &p, &r.host, 1, &e), &e, BK_E_CHECK, "deadlock: item ");
    /* An item that waits for a later one of its own lane. */
    int32_t later = BK_NONE;
    for (int32_t i = linear + 1; i < r.s->n_items; i++)
        if (r.s->item[i].lane == BK_LANE_COMP) later = i;
    circle[0] = (bk_wait){later, linear}, p.n_waits = 1;
    assert_true(later > linear);
    pr_refused(bk_happens_init(&h, &p, &e), &e, BK_E_CHECK, "deadlock: item ");
    bk_happens_free(&h);
    pr_close(&r);
}

static void test_happens__waits_that_name_no_item(void **state)
{
    (void)state;
    pass_run r;
    bk_happens h;
    bk_err e;
    rl_open(&r, 320, true);
    const int32_t n = (int32_t)r.s->n_items;
    bk_wait bad[2][2] = {{{0, n}, {0, n}}, {{0, 2}, {0, 1}}};
    for (int k = 0; k < 2; k++) {
        bk_plan p = *r.p;
        p.wait = bad[k], p.n_waits = 2;
        pr_refused(bk_happens_init(&h, &p, &e), &e, BK_E_CHECK, "names no item, or is out of order");
        bk_happens_free(&h);
    }
    pr_close(&r);
}

static void test_happens__names_items(void **state)
{
    (void)state;
    pass_run r;
    char name[192];
    rl_open(&r, 321, false);
    for (int32_t i = 0; i < r.s->n_items; i++) {
        bk_item_name(name, sizeof name, r.p, i);
        const bool micro = r.s->item[i].micro != BK_NONE;
        assert_int_equal(strstr(name, "micro-batch") != NULL, micro);
        assert_int_equal(strncmp(name, "item ", 5), 0);
        assert_int_equal(atoi(name + 5), i);
    }
    pr_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_happens__agrees_with_the_closure),
        cmocka_unit_test(test_happens__circle_is_a_deadlock),
        cmocka_unit_test(test_happens__waits_that_name_no_item),
        cmocka_unit_test(test_happens__names_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
