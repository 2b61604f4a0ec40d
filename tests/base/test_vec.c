#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/vec.h"

static void test_vec__push_keeps_what_was_there(void **state)
{
    (void)state;
    int *items = NULL;
    int64_t n = 0, cap = 0;
    for (int i = 0; i < 1000; i++) {
        bk_status st;
        BK_VEC_PUSH(st, items, n, cap, i * 3);
        assert_int_equal(st, BK_OK);
    }
    assert_int_equal(n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(items[i], i * 3);
    for (int64_t i = n; i < cap; i++) assert_int_equal(items[i], 0);
    free(items);
}

static void test_vec__overflow_changes_nothing(void **state)
{
    (void)state;
    int *items = NULL;
    int64_t cap = 0;
    assert_int_equal(bk_vec_grow(&items, &cap, 0, INT64_MAX, sizeof *items), BK_E_MEM);
    assert_int_equal(bk_vec_grow(&items, &cap, 0, INT64_MAX / 4, sizeof *items), BK_E_MEM);
    assert_int_equal(bk_vec_grow(&items, &cap, INT64_MAX, 1, sizeof *items), BK_E_MEM);
    assert_int_equal(bk_vec_grow(&items, &cap, 0, -1, sizeof *items), BK_E_MEM);
    assert_null(items);
    assert_int_equal(cap, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vec__push_keeps_what_was_there),
        cmocka_unit_test(test_vec__overflow_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
