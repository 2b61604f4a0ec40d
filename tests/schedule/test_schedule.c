/* The plain schedule: prologue, each micro-batch whole, epilogue. */
#include "passes/random_graph.h"

static void open_step(pass_run *r, int32_t n_micro)
{
    bk_err e;
    pr_open(r, n_micro);
    pr_build_random(r, 5);
    pr_autodiff(r);
    pr_must(bk_pass_step(r->g,
                         &(bk_step_options){
                             .clip_grad = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1},
                         &e),
            &e);
    pr_must(bk_pass_partition(r->g, &e), &e);
    pr_must(bk_schedule_plain(&r->s, r->g, n_micro, &e), &e);
}

static void test_schedule__each_region_once_for_each_micro_batch(void **state)
{
    (void)state;
    for (int32_t n_micro = 1; n_micro <= 4; n_micro++) {
        pass_run r;
        open_step(&r, n_micro);
        const bk_graph *g = r.g;
        int64_t n_prologue = 0, n_body = 0, n_epilogue = 0;
        for (int64_t k = 0; k < g->n_regions; k++) {
            const bool step = g->region[k].scope == BK_STEP;
            n_prologue += step && !g->region[k].epilogue, n_body += !step,
                n_epilogue += g->region[k].epilogue;
        }
        assert_true(n_prologue > 0 && n_body > 1 && n_epilogue > 0);
        assert_int_equal(r.s->n_items, n_prologue + n_micro * n_body + n_epilogue);
        bk_rid last = BK_NONE;
        for (int64_t i = 0; i < r.s->n_items; i++) {
            const bk_item *it = &r.s->item[i];
            const bk_region *x = &g->region[it->region];
            const bool body = i >= n_prologue && i < r.s->n_items - n_epilogue;
            assert_int_equal(it->micro, body ? (i - n_prologue) / n_body : BK_NONE);
            assert_int_equal(x->scope == BK_MICRO, body);
            assert_int_equal(x->epilogue, i >= r.s->n_items - n_epilogue);
            assert_int_equal(it->lane, x->lane);
            assert_int_equal(it->chunk, x->chunk);
            if (i == n_prologue || i == r.s->n_items - n_epilogue || (body && (i - n_prologue) % n_body == 0))
                last = BK_NONE; /* regions keep their order inside each part */
            assert_true(it->region > last);
            last = it->region;
        }
        assert_int_equal(r.s->n_micro, n_micro);
        pr_close(&r);
    }
}

static void test_schedule__prints_a_line_for_each_item(void **state)
{
    (void)state;
    pass_run r;
    bk_str text = {0};
    open_step(&r, 2);
    bk_schedule_print(&text, r.s, r.g);
    char head[64];
    snprintf(head, sizeof head, "schedule 2 micro-batches, %d items\n", (int)r.s->n_items);
    assert_int_equal(strncmp(text.s, head, strlen(head)), 0);
    int64_t n_lines = 0;
    for (const char *c = text.s; *c; c++) n_lines += *c == '\n';
    assert_int_equal(n_lines, r.s->n_items + 2);
    assert_non_null(strstr(text.s, "host      0     -  decoder.step step"));
    assert_non_null(strstr(text.s, "comp      0     1  decoder.0.mlp backward"));
    bk_str_free(&text);
    pr_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedule__each_region_once_for_each_micro_batch),
        cmocka_unit_test(test_schedule__prints_a_line_for_each_item),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
