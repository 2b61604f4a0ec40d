#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/mt19937.h"

static void test_mt19937__words_are_those_of_the_published_generator(void **state)
{
    (void)state;
    bk_mt19937 rng;
    bk_mt19937_seed(&rng, 5489);
    const uint32_t first[] = {3499211612u, 581869302u, 3890346734u};
    for (int i = 0; i < 3; i++) assert_int_equal(bk_mt19937_next(&rng), first[i]);
    uint32_t last = 0;
    for (int i = 3; i < 10000; i++) last = bk_mt19937_next(&rng);
    assert_int_equal(last, 4123659995u); /* the 10,000th, which the C++ standard demands */
}

static void expect_shuffle(bk_mt19937 *rng, const int64_t *expected, int n)
{
    int64_t items[16];
    for (int i = 0; i < n; i++) items[i] = i;
    bk_mt19937_shuffle(items, rng, n);
    for (int i = 0; i < n; i++) assert_int_equal(items[i], expected[i]);
}

static void test_mt19937__shuffles_are_those_of_numpy(void **state)
{
    (void)state;
    bk_mt19937 rng;
    bk_mt19937_seed(&rng, 1234);
    expect_shuffle(&rng, (const int64_t[]){7, 2, 9, 1, 0, 8, 4, 5, 6, 3}, 10);
    expect_shuffle(&rng, (const int64_t[]){6, 4, 0, 5, 3, 2, 1}, 7); /* the same generator goes on */

    static int64_t items[1000];
    int64_t sum = 0;
    bk_mt19937_seed(&rng, UINT32_MAX);
    for (int i = 0; i < 1000; i++) items[i] = i;
    bk_mt19937_shuffle(items, &rng, 1000);
    const int64_t first[] = {94, 405, 819, 632, 217, 169, 449, 275};
    for (int i = 0; i < 8; i++) assert_int_equal(items[i], first[i]);
    for (int i = 0; i < 1000; i++) sum += i * items[i];
    assert_int_equal(sum, 249935792);
    assert_int_equal(bk_mt19937_next(&rng), 442012709u); /* as many words were drawn */
}

static void test_mt19937__short_arrays_draw_nothing(void **state)
{
    (void)state;
    bk_mt19937 rng, untouched;
    bk_mt19937_seed(&rng, 3);
    bk_mt19937_seed(&untouched, 3);
    int64_t one = 42;
    bk_mt19937_shuffle(&one, &rng, 1);
    bk_mt19937_shuffle(NULL, &rng, 0);
    assert_int_equal(one, 42);
    assert_int_equal(bk_mt19937_bounded(&rng, 0), 0);
    assert_int_equal(bk_mt19937_next(&rng), bk_mt19937_next(&untouched));
}

static void test_mt19937__bounds_beyond_32_bits_take_two_words(void **state)
{
    (void)state;
    bk_mt19937 rng;
    bk_mt19937_seed(&rng, 7);
    /* NumPy: RandomState(7).randint(0, 2**40 + 1, dtype=int64) */
    const uint64_t expected[] = {752595690692, 108744157686, 291964244179, 309610205529};
    for (int i = 0; i < 4; i++) assert_int_equal(bk_mt19937_bounded(&rng, UINT64_C(1) << 40), expected[i]);
    assert_int_equal(bk_mt19937_next(&rng), 309457262u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mt19937__words_are_those_of_the_published_generator),
        cmocka_unit_test(test_mt19937__shuffles_are_those_of_numpy),
        cmocka_unit_test(test_mt19937__short_arrays_draw_nothing),
        cmocka_unit_test(test_mt19937__bounds_beyond_32_bits_take_two_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
