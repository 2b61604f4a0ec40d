#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/philox.h"
#include "ir/ir_sample.h"

static bk_status parse_text(bk_graph **out, const char *text, size_t len, bk_err *e)
{
    /* A copy without a byte behind it, so that AddressSanitizer sees reads past the end. */
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    const bk_status st = bk_graph_parse(out, copy, (int64_t)len, "x.ir", e);
    free(copy);
    return st;
}

static void assert_refused(const char *text, const char *message)
{
    bk_err e = {0};
    bk_graph *g = NULL;
    assert_int_equal(parse_text(&g, text, strlen(text), &e), BK_E_INPUT);
    assert_null(g);
    assert_string_equal(e.msg, message);
}

static void test_parse__sample_is_canonical(void **state)
{
    (void)state;
    bk_str text = {0}, again = {0};
    bk_graph *g = ir_sample();
    ir_load(&text);
    bk_graph_print(&again, g);
    /* the sample begins with a comment line */
    assert_string_equal(strchr(bk_str_text(&text), '\n') + 1, bk_str_text(&again));
    bk_graph_free(g);
    bk_str_free(&text), bk_str_free(&again);
}

static void test_parse__free_form(void **state)
{
    (void)state;
    static const char text[] = "  # comment\r\n\n graph\tf32  # another\n"
                               "%0 i64 [ ] const run tp=same\n"
                               "%1:\"\\x41b\" f32[%0<=3,4]const run\n"
                               "%2 f32[2] state run view=%1+1[4]"; /* no newline at the end */
    bk_err e = {0};
    bk_graph *g = NULL;
    bk_str out = {0};
    if (parse_text(&g, text, sizeof text - 1, &e) == BK_OK) fail_msg("a view of another kind was taken");
    assert_string_equal(e.msg,
                        "x.ir: verify view: value %2 '': differs from its base %1 'Ab' in dtype, kind, scope "
                        "or parameter");
    bk_str fixed = {0};
    ir_edit(&fixed, text, "state", "const");
    if (parse_text(&g, fixed.s, fixed.len, &e) != BK_OK) fail_msg("%s", e.msg);
    bk_graph_print(&out, g);
    assert_string_equal(bk_str_text(&out), "graph f32\n\n"
                                           "%0 i64[] const run\n"
                                           "%1:Ab f32[%0<=3, 4] const run\n"
                                           "%2 f32[2] const run view=%1:Ab +1[4]\n");
    bk_graph_free(g);
    bk_str_free(&out), bk_str_free(&fixed);
}

static void test_parse__errors_say_where(void **state)
{
    (void)state;
    assert_refused("", "x.ir:1: expected 'graph' and the dtype of activations, found the end of the text");
    assert_refused("\n\nvalue", "x.ir:3: expected 'graph' and the dtype of activations, found 'value'");
    assert_refused("graph f16", "x.ir:1: expected a dtype, such as 'f32', found 'f16'");
    assert_refused("graph f32 tp=0",
                   "x.ir:1: expected the ranks of the axis, a whole number from 1 to 2147483647, found '0'");
    assert_refused("graph f32\nhello\n",
                   "x.ir:2: expected a parameter (p0), value (%0), heading, op (@0), region (r0) "
                   "or term, found 'hello'");
    assert_refused("graph f32\n%1:a f32[] act micro",
                   "x.ir:2: value 1 must be number 0, the next of its table, found ':a'");
    assert_refused("graph f32\n%0:a f32[1, 2, 3, 4, 5, 6] act micro",
                   "x.ir:2: expected at most 5 dims, found '6]'");
    assert_refused("graph f32\n%0:a f32[99999999999999999999] act micro",
                   "x.ir:2: expected a size, a whole number from 0 to 9223372036854775807, found "
                   "'99999999999999999999]'");
    assert_refused("graph f32\n%0:a f32[4] act micro vew=%0",
                   "x.ir:2: expected a parameter's id, view, replay or an "
                   "axis, found 'vew=%0'");
    assert_refused("graph f32\n%0:\"a f32[4]", "x.ir:2: expected a name that ends with '\"', found 'a'");
    assert_refused("graph f32\n%0:\"\\x00\" f32[4]", "x.ir:2: expected \\x01 to \\xff, found '\\x00\"'");
    assert_refused("graph f32\np0 w f32[4] mlp init=one",
                   "x.ir:2: expected 'value=%' and the parameter's value, "
                   "found the end of the text");
    assert_refused("graph f32\np0 w f32[4] mlp value=%3\n", "x.ir:2: there is no %3, the last is %-1");
    assert_refused("graph f32\n@0 feed()",
                   "x.ir:2: expected a line such as 'micro decoder.0.attn forward' above the "
                   "first op, found '@0'");
    assert_refused("graph f32\nmicro decoder.-3.attn forward",
                   "x.ir:2: expected a node, such as 'pre_process', found '-3.attn'");
}

static void test_parse__errors_in_ops(void **state)
{
    (void)state;
    const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"linear_wgrad(", "linear_wgard(",
         "x.ir:105: expected an op of ops.def, found 'linear_wgard(%30:cross_e'"},
        {"; eps=", "; epsilon=",
         "x.ir:85: expected attribute 'eps' of rmsnorm, found 'epsilon=1.00000000000000'"},
        {"scale=0.5, ", "", "x.ir:89: expected attribute 'scale' of attention, found 'p=0,'"},
        {"scale=0.5", "scale=half", "x.ir:89: expected the attribute's value, a number, found 'half,'"},
        {"= embedding(%3", "= embedding(%3:tokens, %3",
         "x.ir:82: %3 is named 'embedding.weight', not 'tokens'"},
        {"(%3:embedding.weight, %0:tokens)", "(%3:embedding.weight, %99)",
         "x.ir:82: there is no %99, the last is %57"},
        {"@3 ", "@39 ", "x.ir: op @39 is beyond the last; the 39 ops must be numbered from 0 without gaps"},
        {"@3 ", "@4 ", "x.ir: op @4 is there twice; the 39 ops must be numbered from 0 without gaps"},
        {"lane=host", "lane=hots", "x.ir:72: expected a lane, such as 'comp', found 'hots'"},
        {"updates %32:embedding.weight", "updates %32:embedding.weight,",
         "x.ir:105: expected a value such as %3, or "
         "'-', found the end of the line"},
        {"@0 @1 @2", "@0 @1 @77", "x.ir:137: there is no @77, the last is @38"},
        {"term p0 use=@12", "term p9 use=@12", "x.ir:151: there is no p9, the last is p3"},
        {"use=@12 term", "use=@12 tern", "x.ir:151: expected term=, found 'tern=@20'"},
    };
    bk_str text = {0};
    ir_load(&text);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        bk_str edited = {0};
        ir_edit(&edited, bk_str_text(&text), cases[k].from, cases[k].to);
        assert_refused(bk_str_text(&edited), cases[k].message);
        bk_str_free(&edited);
    }
    bk_str_free(&text);
}

/* The table of operands is empty then. */
static void test_parse__op_without_operands(void **state)
{
    (void)state;
    static const char text[] = "graph f32\nmicro decoder.mlp forward\n@0 feed()\n";
    bk_err e = {0};
    bk_graph *g = NULL;
    assert_int_equal(parse_text(&g, text, sizeof text - 1, &e), BK_E_CHECK);
    assert_string_equal(e.msg,
                        "x.ir: verify arity: op @0 feed (decoder.mlp forward): has 0 outputs, not 1 to 1");
}

/* Every prefix, and texts with random bytes changed, give a graph or an error, and the graphs read back. */
static void test_parse__survives_any_bytes(void **state)
{
    (void)state;
    enum { ROUNDS = 3000 };
    bk_str text = {0};
    bk_err e = {0};
    bk_graph *g = NULL;
    int n_good = 0;
    ir_load(&text);
    for (size_t len = 0; len < text.len; len += 7)
        if (parse_text(&g, text.s, len, &e) == BK_OK) bk_graph_free(g);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        bk_str changed = {0};
        bk_str_append_n(&changed, text.s, text.len);
        uint64_t r[4];
        for (uint64_t k = 0; k < 4; k++) r[k] = bk_mix64(round * 4 + k + 1);
        const char *const bytes = "0123456789%@:,-=[]() \n\"#\xff";
        changed.s[r[0] % text.len] = bytes[r[1] % strlen(bytes)];
        if (r[2] % 2) changed.s[r[3] % text.len] = bytes[r[2] % strlen(bytes)];
        if (parse_text(&g, changed.s, changed.len, &e) == BK_OK) {
            bk_str once = {0}, twice = {0};
            bk_graph *again = NULL;
            bk_graph_print(&once, g);
            if (parse_text(&again, once.s, once.len, &e) != BK_OK) fail_msg("%s\n%s", e.msg, once.s);
            bk_graph_print(&twice, again);
            assert_string_equal(bk_str_text(&once), bk_str_text(&twice));
            bk_graph_free(g), bk_graph_free(again);
            bk_str_free(&once), bk_str_free(&twice);
            n_good++;
        }
        bk_str_free(&changed);
    }
    assert_in_range(n_good, 1, ROUNDS / 2); /* both kinds are met */
    bk_str_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__sample_is_canonical), cmocka_unit_test(test_parse__free_form),
        cmocka_unit_test(test_parse__errors_say_where),    cmocka_unit_test(test_parse__errors_in_ops),
        cmocka_unit_test(test_parse__op_without_operands), cmocka_unit_test(test_parse__survives_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
