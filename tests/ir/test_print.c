#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ir/ir_sample.h"
#include "ir/small_graph.h"

static bk_graph *empty_graph(void)
{
    bk_graph *g = NULL;
    assert_int_equal(bk_graph_new(&g, BK_F64, NULL), BK_OK);
    return g;
}

static void assert_prints(const bk_graph *g, const char *text)
{
    bk_str out = {0};
    bk_graph_print(&out, g);
    assert_false(out.failed);
    assert_string_equal(bk_str_text(&out), text);
    bk_str_free(&out);
}

static void test_print__empty_graph(void **state)
{
    (void)state;
    bk_graph *g = empty_graph();
    assert_prints(g, "graph f64\n");
    g->axis_size[BK_AXIS_DP] = 4;
    assert_prints(g, "graph f64 dp=4\n");
    bk_graph_free(g);
}

static void test_print__values(void **state)
{
    (void)state;
    bk_graph *g = empty_graph();
    bk_vid n, x, view;
    const int64_t dim[] = {2, 3}, stride[] = {8, 1};
    const bk_value count = {.name = "n", .dtype = BK_I64, .kind = BK_CONSTANT, .scope = BK_RUN};
    bk_value rows = {.name = "a \"name\"\n", .dtype = BK_F64, .kind = BK_STATE, .scope = BK_RUN, .rank = 2};
    rows.param = BK_NONE;
    assert_int_equal(bk_value_add(&n, g, &count, NULL), BK_OK);
    rows.dim[0] = (bk_dim){4, n + 1}, rows.dim[1] = (bk_dim){8, 0};
    assert_int_equal(bk_value_add(&x, g, &rows, NULL), BK_OK);
    assert_int_equal(bk_view_add(&view, g, "", x, 2, dim, stride, 5, NULL), BK_OK);
    g->value[x].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 1};
    g->value[view].replay_of = x;
    g->axis_size[BK_AXIS_EP] = 2;
    assert_prints(g, "graph f64 ep=2\n\n"
                     "%0:n i64[] const run ep=same\n"
                     "%1:\"a \\x22name\\x22\\x0a\" f64[%0:n<=4, 8] state run tp=split:1 ep=same\n"
                     "%2 f64[2, 3] state run view=%1:\"a \\x22name\\x22\\x0a\" +5[8, 1] "
                     "replay=%1:\"a \\x22name\\x22\\x0a\" ep=same\n");
    bk_graph_free(g);
}

static void test_print__parameters(void **state)
{
    (void)state;
    bk_graph *g = empty_graph();
    bk_vid v;
    const bk_param row = {.name = "w",
                          .alias = "old.w",
                          .rank = 1,
                          .shape = {3},
                          .dtype = BK_BF16,
                          .master = true,
                          .class_ = BK_CLASS_MHC,
                          .init = BK_INIT_CONST,
                          .init_arg = 1.0 / 3};
    assert_int_equal(bk_param_add(&v, g, &row, NULL), BK_OK);
    assert_prints(g, "graph f64\n\n"
                     "p0 w bf16[3] mhc init=const:0.33333333333333331 master value=%0:w alias=old.w\n\n"
                     "%0:w bf16[3] param run p0\n");
    bk_graph_free(g);
}

/* Absent inputs, attributes, updates, lanes; ops of scope step that read no micro-batch come first. */
static void test_print__ops_in_plain_order(void **state)
{
    (void)state;
    bk_graph *g = empty_graph();
    bk_vid in, x, y;
    const bk_value input = {
        .name = "x", .dtype = BK_F64, .kind = BK_INPUT, .scope = BK_MICRO, .rank = 1, .dim = {{3, 0}}};
    assert_int_equal(bk_value_add(&in, g, &input, NULL), BK_OK);
    assert_int_equal(bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_feed, .into = in + 1}, NULL), BK_OK);
    g->tag = (bk_tag){BK_MODULE_MTP, BK_NODE_MLP, BK_PASS_FORWARD, 7};
    assert_int_equal(bk_op1(&x, g, NULL, BK_OP_copy, "y", (.n_out = 1), in), BK_OK);
    bk_value scalar = input;
    scalar.name = "one", scalar.scope = BK_STEP;
    assert_int_equal(bk_value_add(&y, g, &scalar, NULL), BK_OK);
    assert_int_equal(bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_feed, .into = y + 1}, NULL), BK_OK);
    g->op[1].attr[0].i = 5; /* copy has no attributes: not printed */
    assert_prints(g, "graph f64\n\n"
                     "%0:x f64[3] input micro\n"
                     "%1:y f64[3] act micro\n"
                     "%2:one f64[3] input step\n\n"
                     "step mtp.7.mlp forward\n"
                     "  @2 %2:one = feed() lane=host\n\n"
                     "micro decoder.pre_process forward\n"
                     "  @0 %0:x = feed() lane=host\n\n"
                     "micro mtp.7.mlp forward\n"
                     "  @1 %1:y = copy(%0:x)\n");
    bk_graph_free(g);
}

/* Nothing of a graph that the verifier refuses makes the printer read outside of it. */
static void test_print__survives_damage(void **state)
{
    (void)state;
    bk_graph *g = ir_sample();
    bk_str out = {0};
    g->value[0].dtype = (bk_dtype)77;
    g->value[1].base = 100000;
    g->value[2].rank = 99;
    g->op[0].kind = 999;
    g->op[1].first = -5;
    g->op[2].tag.node = 200;
    g->op[3].n_in = 1000000;
    g->operand[g->op[4].first] = -17;
    g->region[0].n_ops = INT32_MAX;
    g->param[0].value = INT32_MAX;
    bk_graph_print(&out, g);
    assert_non_null(strstr(bk_str_text(&out), "%0:tokens ?77[2, 4] input micro"));
    assert_non_null(strstr(bk_str_text(&out), "?999()"));
    assert_non_null(strstr(bk_str_text(&out), "%-17"));
    bk_str_free(&out);
    bk_graph_free(g);
}

/* What the passes make verifies, and its text reads back to the same text. */
static void test_print__round_trip_of_a_model(void **state)
{
    (void)state;
    bk_err e = {0};
    bk_graph *g = NULL, *again = NULL;
    bk_str a = {0}, b = {0};
    if (sg_build(&g, &e) != BK_OK) fail_msg("%s", e.msg);
    if (bk_graph_verify(g, &e) != BK_OK) fail_msg("%s", e.msg);
    bk_graph_print(&a, g);
    if (bk_graph_parse(&again, a.s, (int64_t)a.len, "model", &e) != BK_OK) fail_msg("%s", e.msg);
    bk_graph_print(&b, again);
    assert_string_equal(bk_str_text(&a), bk_str_text(&b));
    assert_int_equal(again->n_ops, g->n_ops);
    assert_int_equal(again->n_terms, g->n_terms);
    for (int64_t k = 0; k < g->n_ops; k++) /* floats are exact */
        assert_memory_equal(again->op[k].attr, g->op[k].attr, sizeof g->op[k].attr);
    bk_str_free(&a), bk_str_free(&b);
    bk_graph_free(g), bk_graph_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print__empty_graph),     cmocka_unit_test(test_print__values),
        cmocka_unit_test(test_print__parameters),      cmocka_unit_test(test_print__ops_in_plain_order),
        cmocka_unit_test(test_print__survives_damage), cmocka_unit_test(test_print__round_trip_of_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
