#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/lanes.h"
#include "base/realmath.h"

/* The error of got against want, in units of the last place of a float. */
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

static void test_realmath__exp_in_float(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 2000000; i++) {
        const float x = (float)(-87 + 175.7 * i / 2000000);
        const double e = ulps(bk_exp(x), exp((double)x));
        worst = e > worst ? e : worst;
    }
    assert_true(worst < 2);
    for (int i = 0; i <= 1000; i++) /* below the normal range: a unit of the smallest number */
        assert_true(ulps(bk_exp(-87 - 0.017f * (float)i), exp((double)(-87 - 0.017f * (float)i))) <= 1.5);
    assert_true(bk_exp(0) == 1 && bk_exp(-200) == 0 && bk_exp(-INFINITY) == 0);
    assert_true(isinf(bk_exp(89)) && isinf(bk_exp(INFINITY)) && isnan(bk_exp(NAN)));
}

static void test_realmath__normal_distribution_in_float(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 400000; i++) {
        const float x = (float)(-13 + 26.0 * i / 400000);
        const double e = ulps(bk_normal_cdf(x), 0.5 * erfc(-(double)x / sqrt(2)));
        worst = e > worst ? e : worst;
    }
    assert_true(worst < 6);
    assert_true(bk_normal_cdf(-20) == 0 && bk_normal_cdf(20) == 1 && isnan(bk_normal_cdf(NAN)));
}

static void test_realmath__logistic_in_float(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i <= 400000; i++) {
        const float x = (float)(-80 + 160.0 * i / 400000);
        const double e = ulps(bk_logistic(x), 1 / (1 + exp(-(double)x)));
        worst = e > worst ? e : worst;
    }
    assert_true(worst < 4);
    assert_true(bk_logistic(-200) == 0 && bk_logistic(200) == 1 && bk_logistic(0) == 0.5f);
}

static void test_realmath__lanes(void **state)
{
    (void)state;
    float x[101];
    for (int n = 1; n <= 101; n++) {
        double sum;
        for (int i = 0; i < n; i++) x[i] = (float)((i * 37) % n);
        BK_LANES_SUM(sum, i, n, (double)x[i]);
        double want = 0;
        float max = 0;
        for (int i = 0; i < n; i++) want += (double)x[i], max = x[i] > max ? x[i] : max;
        assert_true(sum == want && bk_lanes_max(x, n) == max); /* small integers: exact */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_realmath__exp_in_float),
        cmocka_unit_test(test_realmath__normal_distribution_in_float),
        cmocka_unit_test(test_realmath__logistic_in_float),
        cmocka_unit_test(test_realmath__lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
