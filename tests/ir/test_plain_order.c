#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ir/ir_sample.h"
#include "ir/plain_order.h"

/* The text lists ops in the plain order; the parser puts them back by id. */
static void test_plain_order__of_the_sample(void **state)
{
    (void)state;
    bk_graph *g = ir_sample();
    bk_plain_order o;
    assert_int_equal(bk_plain_order_make(&o, g, NULL), BK_OK);
    assert_int_equal(o.n, g->n_ops);
    /* rope table, seed, learning rate, step; the micro-batch; from the norm on the epilogue */
    const bk_oid prologue[] = {6, 16, 30, 31};
    assert_int_equal(o.micro, 4);
    assert_memory_equal(o.op, prologue, sizeof prologue);
    assert_int_equal(o.op[o.micro], 0);
    assert_int_equal(o.op[o.epilogue], 32);
    assert_int_equal(o.op[o.n - 1], 38);
    for (int32_t k = 0; k < o.n; k++) {
        const bk_oid op = o.op[k];
        assert_int_equal(o.pos[op], k);
        assert_int_equal(o.late[op], k >= o.epilogue);
        assert_int_equal(g->op[op].scope == BK_MICRO, k >= o.micro && k < o.epilogue);
    }
    bk_plain_order_free(&o);
    bk_graph_free(g);
}

/* A step op is late through a view, through the count of an input and through another late op, but not
 * through what it writes. */
static void test_plain_order__what_makes_late(void **state)
{
    (void)state;
    static const char text[] = "graph f32\n"
                               "%0:x f32[2] input micro\n"
                               "%1:sum f32[4] state step\n"
                               "%2:part f32[2] state step view=%1 +2[1]\n"
                               "%3:late f32[2] act step\n"
                               "%4:later f32[2] act step\n"
                               "%5:early f32[2] act step\n"
                               "step decoder.step step\n"
                               "@2 %1 = fill(; value=0)\n"
                               "@5 %5 = copy(%6)\n"
                               "%6:one f32[2] const run\n"
                               "micro decoder.mlp forward\n"
                               "@0 %0 = feed()\n"
                               "@1 acc(%0) updates %2\n"
                               "step decoder.step step\n"
                               "@3 %3 = copy(%2)\n"
                               "@4 %4 = copy(%3)\n";
    const bk_oid want[] = {2, 5, 0, 1, 3, 4};
    bk_err e = {0};
    bk_graph *g = NULL;
    bk_plain_order o;
    if (bk_graph_parse(&g, text, sizeof text - 1, "x", &e) != BK_OK) fail_msg("%s", e.msg);
    assert_int_equal(bk_plain_order_make(&o, g, NULL), BK_OK);
    assert_memory_equal(o.op, want, sizeof want);
    assert_int_equal(o.micro, 2);
    assert_int_equal(o.epilogue, 4);
    bk_plain_order_free(&o);
    g->value[6].dim[0].count = 1 + 2; /* counted by something that a micro-batch updates */
    assert_int_equal(bk_plain_order_make(&o, g, NULL), BK_OK);
    assert_true(o.late[5]);
    bk_plain_order_free(&o);
    bk_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_order__of_the_sample),
        cmocka_unit_test(test_plain_order__what_makes_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
