#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define BK_REAL_F64 1
#include "base/realmath.h"

static void test_realmath_f64__exp(void **state)
{
    (void)state;
    for (int i = 0; i <= 1000000; i++) {
        const double x = -707 + 1416.0 * i / 1000000, want = exp(x);
        assert_true(fabs(bk_exp(x) - want) <= 2 * 2.3e-16 * want);
    }
    assert_true(bk_exp(0) == 1 && bk_exp(-750) == 0 && isinf(bk_exp(710)) && isnan(bk_exp((double)NAN)));
    assert_true(fabs(bk_exp(-744) - exp(-744)) <= 0x1p-1074);
}

static void test_realmath_f64__normal_distribution(void **state)
{
    (void)state;
    for (int i = 0; i <= 200000; i++) {
        const double x = -37 + 46.0 * i / 200000;
        const long double want = 0.5L * erfcl(-(long double)x * 0.707106781186547524400844L);
        assert_true(fabsl((long double)bk_normal_cdf(x) - want) <= 6 * 2.3e-16L * want);
    }
    assert_true(bk_normal_cdf(-40) == 0 && bk_normal_cdf(40) == 1 && bk_normal_cdf(0) == 0.5);
    assert_true(isnan(bk_normal_cdf((double)NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_realmath_f64__exp),
        cmocka_unit_test(test_realmath_f64__normal_distribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
