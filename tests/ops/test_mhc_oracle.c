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

/* The gradient of an alpha, which multiplies n_rows rows of W, is the sum of W * dW over them, over alpha.
 * This is the sum of the sizes of those terms. */
static double size_of_terms(const sublayer *s, int64_t first_row, int64_t n_rows, int alpha)
{
    const int64_t K = s->call.n * s->call.C;
    double sum = 0;
    for (int64_t i = first_row * K; i < (first_row + n_rows) * K; i++)
        sum += fabs(get(s, W, i) * get(s, DW, i) / get(s, alpha, 0));
    return sum;
}

/* What rounding of terms that cancel may leave: with eight streams a 3000th of them is left in alpha_res. */
static double allowed_by_cancelling(const sublayer *s, int array)
{
    const int64_t n = s->call.n;
    switch (array) {
    case DALPHA_PRE:
        return 1e-7 * size_of_terms(s, 0, n, ALPHA_PRE);
    case DALPHA_POST:
        return 1e-7 * size_of_terms(s, n, n, ALPHA_POST);
    case DALPHA_RES:
        return 1e-7 * size_of_terms(s, 2 * n, n * n, ALPHA_RES);
    default:
        return 0;
    }
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
    const double allowed = tolerance * sqrt(norm) + allowed_by_cancelling(s, e->array) + 1e-9;
    if (!(sqrt(error) <= allowed))
        fail_msg("%s: error %g of norm %g, allowed %g", e->name, sqrt(error), sqrt(norm), allowed);
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
        for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
            compare(file, &s, &gradients[i], 1e-5);
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
