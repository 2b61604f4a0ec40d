/* Values by their names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "ir/graph.h"
#include "ir/parse.h"

static bk_vid add(bk_graph *g, bk_kind kind, const char *name)
{
    bk_err e;
    bk_vid v;
    const bk_value proto = {.name = name, .dtype = BK_F32, .kind = kind, .rank = 1, .dim = {{4, 0}}};
    if (bk_value_add(&v, g, &proto, &e) != BK_OK) fail_msg("%s", e.msg);
    return v;
}

static void test_graph__values_by_kind_and_name(void **state)
{
    (void)state;
    bk_graph *g;
    bk_err e;
    bk_vid view;
    assert_int_equal(bk_graph_new(&g, BK_F32, &e), BK_OK);
    assert_int_equal(bk_value_find(g, BK_STATE, "a"), BK_NONE);
    add(g, BK_ACTIVATION, "a");
    const bk_vid state_a = add(g, BK_STATE, "a");
    const bk_vid input_a = add(g, BK_INPUT, "a"), state_b = add(g, BK_STATE, "b");
    add(g, BK_STATE, "a"); /* the first keeps the name */
    assert_int_equal(
        bk_view_add(&view, g, "part", state_b, 1, (const int64_t[]){2}, (const int64_t[]){1}, 1, &e), BK_OK);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(bk_value_find(g, BK_STATE, "a"), state_a);
        assert_int_equal(bk_value_find(g, BK_INPUT, "a"), input_a);
        assert_int_equal(bk_value_find(g, BK_STATE, "b"), state_b);
        assert_int_equal(bk_value_find(g, BK_INPUT, "b"), BK_NONE);
        assert_int_equal(bk_value_find(g, BK_STATE, "part"), BK_NONE); /* a view */
        assert_int_equal(bk_value_find(g, BK_ACTIVATION, "a"), BK_NONE);
        assert_int_equal(bk_graph_index_names(g, &e), BK_OK);
    }
    bk_graph_free(g);
}

/* In a text a view may stand in front of the value of the same name. */
static void test_graph__names_of_a_text(void **state)
{
    (void)state;
    static const char text[] = "graph f32\n\n"
                               "%0:a f32[2] state run view=%1+0[1]\n"
                               "%1:a f32[4] state run\n";
    bk_graph *g;
    bk_err e;
    if (bk_graph_parse(&g, text, (int64_t)strlen(text), "text", &e) != BK_OK) fail_msg("%s", e.msg);
    assert_int_equal(bk_value_find(g, BK_STATE, "a"), 1);
    bk_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph__values_by_kind_and_name),
        cmocka_unit_test(test_graph__names_of_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
