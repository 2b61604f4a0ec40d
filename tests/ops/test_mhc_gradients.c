/* Every backward operator against central differences of its forward, in double: all inputs, every stream
 * count of the specialised and the general code, odd sizes, with and without dropout. */
#include "mhc/sublayer.h"

enum { SAMPLES = 40 }; /* elements tried in each array; all of them where there are fewer */

/* Truncation is step^2 times a third derivative of order 10; rounding is 1e-16 |scalar| / step, |scalar| <
 * 1e3. */
#define STEP      3e-5
#define TOLERANCE 3e-8

static double scalar_at(sublayer *s, int array, int64_t i, double value)
{
    const double old = get(s, array, i);
    set(s, array, i, value);
    sublayer_forward(s);
    set(s, array, i, old);
    return sublayer_scalar(s);
}

static void check_gradients(sublayer *s)
{
    sublayer_forward(s);
    sublayer_backward(s, 0);
    for (int array = 0; array < N_INPUTS; array++) {
        const int64_t stride = s->size[array] / SAMPLES + 1;
        for (int64_t i = 0; i < s->size[array]; i += stride) {
            const double at = get(s, array, i), grad = get(s, array + N_INPUTS, i);
            const double numeric =
                (scalar_at(s, array, i, at + STEP) - scalar_at(s, array, i, at - STEP)) / (2 * STEP);
            if (!(fabs(numeric - grad) <= TOLERANCE * (1 + fabs(grad))))
                fail_msg("n %d: input %d element %d: gradient %.12g, differences give %.12g", (int)s->call.n,
                         array, (int)i, grad, numeric);
        }
    }
}

static void check_shape(int64_t T, int64_t n, int64_t C, int64_t iterations)
{
    sublayer s = sublayer_make(BK_MHC_F64, T, n, C, iterations);
    sublayer_randomise(&s);
    check_gradients(&s);

    const int64_t samples[3] = {7, 0, INT64_C(1) << 40};
    const bk_mhc_dropout dropout = {.p = 0.3, .key = {5, 6}, .S = T / 3, .B = 3, .samples = samples};
    assert_int_equal(T % 3, 0);
    s.dropout = &dropout;
    check_gradients(&s);
    sublayer_free(&s);
}

static void test_mhc_gradients__specialised_counts(void **state)
{
    (void)state;
    check_shape(3, 1, 5, 3);
    check_shape(9, 2, 7, 4);
    check_shape(21, 4, 11, 20); /* more than one lane group, tiles with a rest */
    check_shape(3, 8, 3, 5);
}

static void test_mhc_gradients__general_counts(void **state)
{
    (void)state;
    check_shape(9, 3, 9, 20);
    check_shape(3, 5, 7, 2);
    check_shape(3, 16, 3, 4);
    check_shape(3, 13, 1, 1);
}

static void test_mhc_gradients__several_token_chunks(void **state)
{
    (void)state;
    check_shape(135, 2, 3, 2);
}

/* Wide enough for whole strips, blocks and spans with a rest after each. */
static void test_mhc_gradients__wide_streams(void **state)
{
    (void)state;
    check_shape(3, 2, 523, 2);
    check_shape(3, 3, 261, 1);
}

/* A token of zeros: the root mean square has no derivative there. The direct terms remain, all finite; the
 * forward is the bias alone. */
static void test_mhc_gradients__token_of_zeros(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        sublayer s = sublayer_make(k ? BK_MHC_F64 : BK_MHC_F32, 2, 4, 9, 20), other;
        sublayer_randomise(&s);
        for (int64_t i = 0; i < 36; i++) set(&s, X, i, 0), set(&s, S, i, 0);
        sublayer_forward(&s);
        sublayer_backward(&s, 0);
        for (int array = 0; array < N_ARRAYS; array++)
            for (int64_t i = 0; i < s.size[array]; i++) assert_true(isfinite(get(&s, array, i)));
        assert_close(get(&s, H_PRE, 1), 1 / (1 + exp(-get(&s, BIAS, 1))) + 1e-6, 1e-7);

        /* The other token's gradients do not depend on this one. */
        other = sublayer_make(s.call.dtype, 1, 4, 9, 20);
        sublayer_randomise(&other);
        for (int array = 0; array < N_ARRAYS; array++)
            if (s.size[array] == 2 * other.size[array])
                for (int64_t i = 0; i < other.size[array]; i++)
                    set(&other, array, i, get(&s, array, other.size[array] + i));
        sublayer_forward(&other);
        sublayer_backward(&other, 0);
        for (int64_t i = 0; i < 36; i++) {
            assert_true(get(&other, DX, i) == get(&s, DX, 36 + i));
            assert_true(get(&other, DS, i) == get(&s, DS, 36 + i));
        }
        sublayer_free(&other);
        sublayer_free(&s);
    }
}

/* add = 1 adds to what is there. */
static void test_mhc_gradients__are_added_on_request(void **state)
{
    (void)state;
    const int64_t sizes[][3] = {{5, 4, 7}, {150, 3, 45}};
    for (int k = 0; k < 2; k++) {
        sublayer s = sublayer_make(BK_MHC_F64, sizes[k][0], sizes[k][1], sizes[k][2], 5);
        sublayer added = sublayer_make(BK_MHC_F64, sizes[k][0], sizes[k][1], sizes[k][2], 5);
        sublayer before = sublayer_make(BK_MHC_F64, sizes[k][0], sizes[k][1], sizes[k][2], 5);
        sublayer_randomise(&s), sublayer_randomise(&added);
        for (int array = N_INPUTS; array < 2 * N_INPUTS; array++) fill_random(&added, array, 1, 0);
        sublayer_forward(&s), sublayer_forward(&added);
        sublayer_backward(&s, 0), sublayer_backward(&added, 1);
        for (int array = N_INPUTS; array < 2 * N_INPUTS; array++) {
            if (array == DY) continue; /* one reader: always written */
            fill_random(&before, array, 1, 0);
            for (int64_t i = 0; i < s.size[array]; i++)
                assert_close(get(&added, array, i), get(&before, array, i) + get(&s, array, i), 1e-12);
        }
        sublayer_free(&before);
        sublayer_free(&s);
        sublayer_free(&added);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mhc_gradients__specialised_counts),
        cmocka_unit_test(test_mhc_gradients__general_counts),
        cmocka_unit_test(test_mhc_gradients__several_token_chunks),
        cmocka_unit_test(test_mhc_gradients__wide_streams),
        cmocka_unit_test(test_mhc_gradients__token_of_zeros),
        cmocka_unit_test(test_mhc_gradients__are_added_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
