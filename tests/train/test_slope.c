/* Slopes of functions with a jump near the base: the step is shortened until it stays on this side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "train/slope.h"

typedef struct {
    double jump; /* where sin(3 x + 1) becomes sin(3 x + 1) + 1; INFINITY: nowhere */
    int n_calls;
    int fail_at; /* call that fails, or -1 */
} jumping;

static bk_status at(double *value, bool *jumped, void *ctx, double distance, bk_err *e)
{
    jumping *f = ctx;
    if (f->n_calls++ == f->fail_at) return bk_err_set(e, BK_E_CHECK, "no value there");
    *jumped = f->jump > 0 ? distance >= f->jump : distance <= f->jump;
    *value = sin(3 * distance + 1) + (*jumped ? 1 : 0);
    return BK_OK;
}

static bk_slope slope_with(double jump)
{
    jumping f = {.jump = jump, .fail_at = -1};
    const bk_line line = {&f, at};
    bk_slope s;
    bk_err e = {0};
    assert_int_equal(bk_slope_along(&s, &line, &e), BK_OK);
    return s;
}

static void test_slope__is_the_derivative(void **state)
{
    (void)state;
    const bk_slope s = slope_with((double)INFINITY);
    assert_true(s.shortened == 1);
    assert_true(fabs(s.value - 3 * cos(1)) < 1e-11); /* h^4/30 3^5: 7e-12 */
}

/* The outer points are 2h away: a jump there counts, one behind them does not. */
static void test_slope__steps_are_shortened_to_stay_before_a_jump(void **state)
{
    (void)state;
    const struct {
        double jump, shortened;
    } cases[] = {{2.01 * 0x1p-10, 1}, {2 * 0x1p-10, 8}, {1e-3, 8},
                 {-1e-3, 8},          {1e-4, 64},       {-1e-4, 64},
                 {2e-5, 512},         {0x1p-18, 0},     {2.01 * 0x1p-19, 512},
                 {-2 * 0x1p-19, 0},   {-1e-300, 0},     {1e-300, 0}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const bk_slope s = slope_with(cases[k].jump);
        if (s.shortened != cases[k].shortened)
            fail_msg("a jump at %g: shortened %g times, not %g", cases[k].jump, s.shortened,
                     cases[k].shortened);
        if (s.shortened > 0) assert_true(fabs(s.value - 3 * cos(1)) < 1e-11 + 1e-12 * s.shortened);
    }
}

static void test_slope__errors_are_handed_on(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        jumping f = {.jump = (double)INFINITY, .fail_at = k};
        const bk_line line = {&f, at};
        bk_slope s;
        bk_err e = {0};
        assert_int_equal(bk_slope_along(&s, &line, &e), BK_E_CHECK);
        assert_string_equal(e.msg, "no value there");
        assert_int_equal(f.n_calls, k + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slope__is_the_derivative),
        cmocka_unit_test(test_slope__steps_are_shortened_to_stay_before_a_jump),
        cmocka_unit_test(test_slope__errors_are_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
