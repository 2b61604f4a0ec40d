#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/size.h"

static void test_size__says_when_a_result_does_not_fit(void **state)
{
    (void)state;
    int64_t v;
    assert_true(bk_mul64(&v, 3037000499, 3037000499) && v == INT64_C(9223372030926249001));
    assert_false(bk_mul64(&v, 3037000500, 3037000500));
    assert_true(bk_add64(&v, INT64_MAX, 0) && v == INT64_MAX);
    assert_false(bk_add64(&v, INT64_MAX, 1));
    assert_false(bk_add64(&v, INT64_MIN, -1));
}

static void test_size__align_up(void **state)
{
    (void)state;
    assert_int_equal(bk_align_up(0, 64), 0);
    assert_int_equal(bk_align_up(1, 64), 64);
    assert_int_equal(bk_align_up(64, 64), 64);
    assert_int_equal(bk_align_up(50257, 128), 50304);
    assert_int_equal(bk_align_up(10, 3), 12);
    assert_int_equal(bk_align_up(INT64_MAX, 2), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size__says_when_a_result_does_not_fit),
        cmocka_unit_test(test_size__align_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
