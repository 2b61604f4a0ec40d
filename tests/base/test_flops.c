#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/flops.h"

/* How fast a machine is cannot be known here; that it computes can, and that the number is one of operations
 * a second (the slowest build on a busy machine does more than 10^6). */
static void test_flops__is_a_pace(void **state)
{
    (void)state;
    const double single = bk_measure_flops_f32(0.02), twice = bk_measure_flops_f64(0.02);
    assert_true(isfinite(single) && single > 1e6);
    assert_true(isfinite(twice) && twice > 1e6);
}

static void test_flops__no_time_still_measures(void **state)
{
    (void)state;
    const double pace = bk_measure_flops_f32(0);
    assert_true(isfinite(pace) && pace > 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flops__is_a_pace),
        cmocka_unit_test(test_flops__no_time_still_measures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
