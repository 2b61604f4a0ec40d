/* The mHC operators against files written by an independent implementation (single precision, random
 * weights): outputs to 1e-6 and gradients to 1e-5 of their norm, which is what that implementation's own
 * rounding allows. */
#include "mhc/sublayer.h"

#include <stdio.h>

#include "data/safetensors.h"

typedef struct {
    const char *name;
    int array;
} entry;

static const entry inputs[] = {
    {"in.x", X},
    {"in.y", Y},
    {"in.bias", D},
    {"in.du", DA},
    {"in.dout", G},
    {"param.mapping_proj.weight", W},
    {"param.alpha_pre", ALPHA_PRE},
    {"param.alpha_post", ALPHA_POST},
    {"param.alpha_res", ALPHA_RES},
    {"param.bias", BIAS},
    {"head.x", S},
    {"head.fn", V},
    {"head.scale", SCALE},
    {"head.base", BASE},
    {"head.dout", DH},
};

static const entry outputs[] = {
    {"out.h_pre", H_PRE}, {"out.h_post", H_POST}, {"out.h_res", H_RES},
    {"out.u", A_},        {"out.x_next", X_NEXT}, {"head.out", H},
};

static const entry gradients[] = {
    {"grad.x", DX},
    {"grad.y", DY},
    {"grad.bias", DD},
    {"grad.mapping_proj.weight", DW},
    {"grad.alpha_pre", DALPHA_PRE},
    {"grad.alpha_post", DALPHA_POST},
    {"grad.alpha_res", DALPHA_RES},
    {"grad.mapping.bias", DBIAS},
    {"head.grad.x", DS},
    {"head.grad.fn", DV},
    {"head.grad.scale", DSCALE},
    {"head.grad.base", DBASE},
};

static double *load(const bk_st *file, const sublayer *s, const entry *e)
{
    const bk_st_tensor *tensor = bk_st_find(file, e->name);
    assert_non_null(tensor);
    assert_int_equal(bk_st_n_elems(tensor), s->size[e->array]);
    double *values = malloc((size_t)s->size[e->array] * sizeof *values);
    assert_non_null(values);
    assert_int_equal(bk_st_to_f64(values, tensor, NULL), BK_OK);
    return values;
}

static void compare(const bk_st *file, const sublayer *s, const entry *e, double tolerance)
{
    double *want = load(file, s, e), norm = 0, error = 0;
    for (int64_t i = 0; i < s->size[e->array]; i++) {
        const double d = get(s, e->array, i) - want[i];
        error += d * d, norm += want[i] * want[i];
    }
    free(want);
    /* The absolute part is for gradients that are themselves rounding noise. */
    if (!(sqrt(error) <= tolerance * sqrt(norm) + 1e-9))
        fail_msg("%s: error %g of norm %g, allowed %g", e->name, sqrt(error), sqrt(norm), tolerance);
}

static void check_file(const char *name, int64_t T, int64_t n, int64_t C, int64_t iterations)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.safetensors", BK_DATA_DIR, name);
    bk_st *file = NULL;
    bk_err err = {0};
    if (bk_st_open(&file, path, &err) != BK_OK) fail_msg("%s", err.msg);
    const bk_mhc_dtype dtypes[] = {BK_MHC_F32, BK_MHC_F64};
    for (int k = 0; k < 2; k++) {
        sublayer s = sublayer_make(dtypes[k], T, n, C, iterations);
        s.eps = 1e-6;
        for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
            double *values = load(file, &s, &inputs[i]);
            set_values(&s, inputs[i].array, values, (size_t)s.size[inputs[i].array]);
            free(values);
        }
        sublayer_forward(&s);
        sublayer_backward(&s, 0);
        for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) compare(file, &s, &outputs[i], 1e-6);
        /* The alphas' gradients are sums over all tokens and rows that cancel: with eight streams the file
         * itself is 6e-6 from the double-precision value, and a float evaluation may stand on the other side
         * of it. */
        for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
            compare(file, &s, &gradients[i], k == 0 && s.size[gradients[i].array] == 1 ? 2e-5 : 1e-5);
        sublayer_free(&s);
    }
    bk_st_free(file);
}

static void test_mhc_oracle__one_stream(void **state)
{
    (void)state;
    check_file("op_mhc_n1_c16", 5, 1, 16, 20);
}

static void test_mhc_oracle__two_streams_five_rounds(void **state)
{
    (void)state;
    check_file("op_mhc_n2_c16", 5, 2, 16, 5);
}

static void test_mhc_oracle__four_streams(void **state)
{
    (void)state;
    check_file("op_mhc_n4_c32", 7, 4, 32, 20);
}

static void test_mhc_oracle__eight_streams(void **state)
{
    (void)state;
    check_file("op_mhc_n8_c24", 3, 8, 24, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mhc_oracle__one_stream),
        cmocka_unit_test(test_mhc_oracle__two_streams_five_rounds),
        cmocka_unit_test(test_mhc_oracle__four_streams),
        cmocka_unit_test(test_mhc_oracle__eight_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
