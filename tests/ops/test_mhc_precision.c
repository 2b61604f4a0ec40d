/* The float operators against the double ones on inputs that bf16 holds exactly. */
#include "mhc/sublayer.h"

/* Xavier weights, streams near 1, all gates at `alpha`. */
static void initialise(sublayer *s, double alpha)
{
    const double n = (double)s->call.n, K = n * (double)s->call.C;
    sublayer_randomise(s);
    fill_random(s, X, 1.7, 0);
    fill_random(s, W, sqrt(6 / (K + n * n + 2 * n)), 0);
    fill(s, ALPHA_PRE, alpha), fill(s, ALPHA_POST, alpha), fill(s, ALPHA_RES, alpha);
}

static double *copy(const sublayer *s, int array)
{
    double *values = malloc((size_t)s->size[array] * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < s->size[array]; i++) values[i] = get(s, array, i);
    return values;
}

static void check_error(const sublayer *f32, const sublayer *f64, int array, double tolerance)
{
    double *want = copy(f64, array);
    const double error = relative_error(f32, array, want);
    free(want);
    if (!(error <= tolerance)) fail_msg("array %d: relative error %g, allowed %g", array, error, tolerance);
}

/* Alphas are given to both as float values. */
static void check_shape(int64_t T, int64_t n, int64_t C, double alpha)
{
    sublayer f32 = sublayer_make(BK_MHC_F32, T, n, C, 20), f64 = sublayer_make(BK_MHC_F64, T, n, C, 20);
    initialise(&f32, (double)(float)alpha);
    initialise(&f64, (double)(float)alpha);
    sublayer_forward(&f32), sublayer_forward(&f64);
    sublayer_backward(&f32, 0), sublayer_backward(&f64, 0);

    /* A mapping with bf16 sums shows 1.5e-3 here and 2e-5 is what is asked for; float sums in lanes and
     * blocks stay within a few roundings. */
    const int outputs[] = {H_PRE, H_POST, H_RES, A_, X_NEXT, H, Q, W_, RHO};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) check_error(&f32, &f64, outputs[i], 4e-7);
    for (int array = N_INPUTS; array < 2 * N_INPUTS; array++)
        if (f32.size[array] > 1)
            check_error(&f32, &f64, array, 2e-6);
        else /* a sum over all tokens whose terms, about 200 in all, may cancel */
            assert_close(get(&f32, array, 0), get(&f64, array, 0), 1e-6 * (200 + fabs(get(&f64, array, 0))));

    for (int64_t t = 0; t < T && alpha < 0.1; t++)
        for (int64_t j = 0; j < n; j++) {
            double row = 0;
            for (int64_t i = 0; i < n; i++) row += get(&f32, H_RES, (t * n + j) * n + i);
            assert_close(row, 1, 2e-5);
        }
    sublayer_free(&f32);
    sublayer_free(&f64);
}

static void test_mhc_precision__narrow(void **state)
{
    (void)state;
    check_shape(512, 4, 64, 0.01);
    check_shape(512, 4, 64, 1);
    check_shape(512, 4, 64, 3);
}

static void test_mhc_precision__wide(void **state)
{
    (void)state;
    check_shape(33, 4, 7168, 0.01);
    check_shape(33, 4, 7168, 1);
    check_shape(17, 4, 7168, 3);
}

static void test_mhc_precision__other_stream_counts(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 2, 3, 5, 8, 16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) check_shape(65, counts[i], 129, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mhc_precision__narrow),
        cmocka_unit_test(test_mhc_precision__wide),
        cmocka_unit_test(test_mhc_precision__other_stream_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
