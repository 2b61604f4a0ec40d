#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "data/safetensors.h"
#include "ir/verify.h"
#include "model/hc_probe.h"
#include "passes/passes.h"

static const bk_hc_probe_sizes sizes = {
    .n_tokens = 7, .n_streams = 4, .width = 32, .iterations = 20, .eps = 1e-6};

static bk_graph *build(bk_hc_probe *h, bk_dtype real)
{
    bk_graph *g = NULL;
    bk_err e = {0};
    assert_int_equal(bk_graph_new(&g, real, &e), BK_OK);
    if (bk_hc_probe_build(h, g, &sizes, &e) != BK_OK) fail_msg("%s", e.msg);
    return g;
}

static void test_hc_probe__sizes_of_the_reference(void **state)
{
    (void)state;
    char path[512];
    bk_st *st = NULL;
    bk_err e = {0};
    bk_hc_probe h;
    snprintf(path, sizeof path, "%s/op_mhc_n4_c32.safetensors", BK_DATA_DIR);
    if (bk_st_open(&st, path, &e) != BK_OK) fail_msg("%s", e.msg);
    bk_graph *g = build(&h, BK_F32);
    const struct {
        const char *name;
        bk_vid v;
    } same[] = {{"in.x", h.x},
                {"in.y", h.y},
                {"in.bias", h.sublayer_bias},
                {"in.du", h.du},
                {"in.dout", h.dout},
                {"param.mapping_proj.weight", h.mapping},
                {"param.alpha_pre", h.alpha_pre},
                {"param.alpha_post", h.alpha_post},
                {"param.alpha_res", h.alpha_res},
                {"param.bias", h.bias},
                {"out.h_pre", h.h_pre},
                {"out.h_post", h.h_post},
                {"out.h_res", h.h_res},
                {"out.u", h.u},
                {"out.x_next", h.x_next},
                {"head.x", h.head_x},
                {"head.fn", h.head_fn},
                {"head.base", h.head_base},
                {"head.scale", h.head_scale},
                {"head.out", h.head_out},
                {"head.dout", h.head_dout}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const bk_st_tensor *t = bk_st_find(st, same[i].name);
        assert_non_null(t);
        assert_int_equal(bk_elements(&g->value[same[i].v]), bk_st_n_elems(t));
    }
    bk_st_free(st);
    bk_graph_free(g);
}

static void test_hc_probe__what_is_differentiated_is_a_parameter(void **state)
{
    (void)state;
    bk_hc_probe h;
    bk_err e = {0};
    bk_graph *g = build(&h, BK_F64);
    const bk_vid wanted[] = {h.x,         h.y,    h.sublayer_bias, h.mapping, h.alpha_pre, h.alpha_post,
                             h.alpha_res, h.bias, h.head_x,        h.head_fn, h.head_base, h.head_scale};
    assert_int_equal(g->n_params, sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(g->value[wanted[i]].kind, BK_PARAM);
        assert_int_equal(g->value[wanted[i]].dtype, BK_F64);
        assert_int_equal(g->param[g->value[wanted[i]].param].class_, BK_CLASS_MHC);
    }
    if (bk_graph_verify(g, &e) != BK_OK) fail_msg("%s", e.msg);
    bk_graph_free(g);
}

static void test_hc_probe__gradient_reaches_every_row(void **state)
{
    (void)state;
    bk_hc_probe h;
    bk_err e = {0};
    bk_graph *g = build(&h, BK_F32);
    const bk_seed seeds[] = {{h.u, h.du}, {h.x_next, h.dout}, {h.head_out, h.head_dout}};
    if (bk_pass_autodiff(g, seeds, 3, &e) != BK_OK || bk_graph_verify(g, &e) != BK_OK) fail_msg("%s", e.msg);
    for (int64_t i = 0; i < g->n_params; i++) assert_int_not_equal(g->param[i].grad, BK_NONE);
    assert_int_equal(g->n_terms, g->n_params);
    bk_graph_free(g);
}

static void test_hc_probe__seeds_belong_to_a_micro_batch(void **state)
{
    (void)state;
    bk_hc_probe h;
    bk_graph *g = build(&h, BK_F32);
    const bk_vid seed[] = {h.du, h.dout, h.head_dout}, of[] = {h.u, h.x_next, h.head_out};
    const char *const name[] = {"du", "dout", "head.dout"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(seed[i], bk_value_find(g, BK_INPUT, name[i]));
        assert_int_equal(g->value[seed[i]].scope, BK_MICRO);
        assert_int_equal(g->value[seed[i]].rank, g->value[of[i]].rank);
        for (int d = 0; d < g->value[of[i]].rank; d++)
            assert_int_equal(g->value[seed[i]].dim[d].size, g->value[of[i]].dim[d].size);
    }
    bk_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hc_probe__sizes_of_the_reference),
        cmocka_unit_test(test_hc_probe__what_is_differentiated_is_a_parameter),
        cmocka_unit_test(test_hc_probe__gradient_reaches_every_row),
        cmocka_unit_test(test_hc_probe__seeds_belong_to_a_micro_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
