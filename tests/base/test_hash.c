#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/hash.h"
#include "base/philox.h"

static void test_hash__is_fnv1a_finished(void **state)
{
    (void)state;
    /* published FNV-1a values: of "", of "a", of "foobar" */
    assert_true(bk_hash_str("") == bk_mix64(UINT64_C(0xcbf29ce484222325)));
    assert_true(bk_hash_str("a") == bk_mix64(UINT64_C(0xaf63dc4c8601ec8c)));
    assert_true(bk_hash_bytes("foobar", 6) == bk_mix64(UINT64_C(0x85944171f73967e8)));
}

static void test_hash__map_finds_what_was_set(void **state)
{
    (void)state;
    static char keys[500][16];
    bk_map m = {0};
    assert_int_equal(bk_map_get(&m, "none", -7), -7);
    for (int i = 0; i < 500; i++) {
        snprintf(keys[i], sizeof keys[i], "key.%d", i);
        assert_int_equal(bk_map_set(&m, keys[i], i), BK_OK);
    }
    assert_int_equal(bk_map_set(&m, "key.3", 33), BK_OK);
    assert_int_equal(m.n, 500);
    for (int i = 0; i < 500; i++) assert_int_equal(bk_map_get(&m, keys[i], -1), i == 3 ? 33 : i);
    assert_int_equal(bk_map_get(&m, "key.500", -1), -1);
    bk_map_free(&m);
    assert_int_equal(bk_map_get(&m, "key.3", -1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash__is_fnv1a_finished),
        cmocka_unit_test(test_hash__map_finds_what_was_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
