#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/philox.h"

/* Known answers published with Random123. */
static void test_philox__agrees_with_the_published_vectors(void **state)
{
    (void)state;
    uint32_t w[4];
    bk_philox(w, (bk_rng_key){{0, 0}}, 0, 0, 0, 0);
    assert_int_equal(w[0], 0x6627e8d5), assert_int_equal(w[1], 0xe169c58d);
    assert_int_equal(w[2], 0xbc57ac4c), assert_int_equal(w[3], 0x9b00dbd8);
    const uint32_t f = 0xffffffff;
    bk_philox(w, (bk_rng_key){{f, f}}, f, f, f, f);
    assert_int_equal(w[0], 0x408f276d), assert_int_equal(w[1], 0x41c83b0e);
    assert_int_equal(w[2], 0xa20bc7c6), assert_int_equal(w[3], 0x6d5451fd);
}

static void test_philox__keys_differ_by_each_part(void **state)
{
    (void)state;
    const bk_rng_key a = bk_rng_key_make(1, BK_RNG_DROPOUT, 2, 3);
    const bk_rng_key others[] = {
        bk_rng_key_make(2, BK_RNG_DROPOUT, 2, 3), bk_rng_key_make(1, BK_RNG_INIT, 2, 3),
        bk_rng_key_make(1, BK_RNG_DROPOUT, 3, 3), bk_rng_key_make(1, BK_RNG_DROPOUT, 2, 4)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_memory_not_equal(&a, &others[i], sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox__agrees_with_the_published_vectors),
        cmocka_unit_test(test_philox__keys_differ_by_each_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
