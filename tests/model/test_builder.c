#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "model/builder.h"

static void test_builder__the_first_failure_stays(void **state)
{
    (void)state;
    bk_err e = {0};
    bk_graph *g = NULL;
    assert_int_equal(bk_graph_new(&g, BK_F32, &e), BK_OK);
    bk_builder b = {.g = g, .e = &e};
    bk_build_at(&b, BK_NONE, BK_NODE_PRE_PROCESS);
    bk_build_names(&b, "v.", "p.");
    const bk_vid x = bk_build_input(&b, "x", BK_F32, BK_MICRO, 3, (const int64_t[]){2, 3, 4});
    const bk_vid w = bk_build_linear_params(&b, "w", 5, 6, 1, false, BK_CLASS_MLP).weight;
    assert_int_equal(b.st, BK_OK);
    /* A weight for 6 inputs does not fit an activation of 4. */
    assert_int_equal(bk_build_op1(&b, &(bk_op_spec){BK_OP_linear, BK_IN(x, w), .name = "y"}), BK_NONE);
    const bk_status first = b.st;
    const int64_t n_values = g->n_values, n_ops = g->n_ops, n_params = g->n_params;
    char msg[sizeof e.msg];
    assert_int_not_equal(first, BK_OK);
    assert_non_null(strstr(e.msg, "v.y"));
    memcpy(msg, e.msg, sizeof msg);

    bk_vid two[2] = {0, 0};
    const bk_attr eps = {.f = 1e-5};
    bk_build_op(two, &b, &(bk_op_spec){BK_OP_rmsnorm, BK_IN(x, w), .name = "n", .attr = {eps}});
    assert_int_equal(two[0], BK_NONE);
    assert_int_equal(two[1], BK_NONE);
    assert_int_equal(bk_build_view(&b, "view", BK_NONE, 1, (const int64_t[]){1}, (const int64_t[]){1}, 0),
                     BK_NONE);
    assert_int_equal(bk_build_input(&b, "z", BK_F32, BK_MICRO, 1, (const int64_t[]){1}), BK_NONE);
    assert_int_equal(bk_build_linear_params(&b, "u", 1, 1, 1, true, BK_CLASS_MLP).bias, BK_NONE);
    assert_int_equal(b.st, first);
    assert_string_equal(e.msg, msg);
    assert_int_equal(g->n_values, n_values);
    assert_int_equal(g->n_ops, n_ops);
    assert_int_equal(g->n_params, n_params);
    bk_graph_free(g);
}

static void test_builder__prefixes_and_absent_inputs(void **state)
{
    (void)state;
    bk_err e = {0};
    bk_graph *g = NULL;
    assert_int_equal(bk_graph_new(&g, BK_F64, &e), BK_OK);
    bk_builder b = {.g = g, .e = &e};
    bk_build_at(&b, 3, BK_NODE_MLP);
    bk_build_names(&b, "v.", "p.");
    const bk_vid x = bk_build_input(&b, "x", BK_F64, BK_MICRO, 3, (const int64_t[]){2, 3, 4});
    const bk_linear_params w = bk_build_linear_params(&b, "w", 5, 4, 0.25, false, BK_CLASS_MLP);
    const bk_vid y = bk_build_op1(&b, &(bk_op_spec){BK_OP_linear, BK_IN(x, w.weight, w.bias), .name = "y"});
    assert_int_equal(b.st, BK_OK);
    assert_string_equal(g->value[x].name, "x");
    assert_string_equal(g->value[w.weight].name, "p.w.weight");
    assert_string_equal(g->value[y].name, "v.y");
    assert_int_equal(g->value[w.weight].dtype, BK_F64);
    const bk_op *op = &g->op[g->n_ops - 1];
    assert_int_equal(op->n_in, 2);
    assert_int_equal(op->tag.layer, 3);
    assert_int_equal(op->tag.node, BK_NODE_MLP);
    bk_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builder__the_first_failure_stays),
        cmocka_unit_test(test_builder__prefixes_and_absent_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
