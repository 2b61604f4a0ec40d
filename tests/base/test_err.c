#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"

static void test_err__prefix_keeps_the_message_and_the_status(void **state)
{
    (void)state;
    bk_err e = {0};
    assert_int_equal(bk_err_set(&e, BK_E_INPUT, "line %d is odd", 3), BK_E_INPUT);
    assert_int_equal(bk_err_prefix(&e, "file %s: ", "a.yaml"), BK_E_INPUT);
    assert_string_equal(e.msg, "file a.yaml: line 3 is odd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err__prefix_keeps_the_message_and_the_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
