#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/arena.h"

static void test_arena__blocks_are_zero_aligned_and_apart(void **state)
{
    (void)state;
    bk_arena a = {0};
    unsigned char *blocks[300];
    for (int i = 0; i < 300; i++) { /* 300 * 1000 bytes: several chunks */
        blocks[i] = bk_arena_alloc(&a, 1000, 1);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % _Alignof(max_align_t), 0);
        for (int k = 0; k < 1000; k++) assert_int_equal(blocks[i][k], 0);
        memset(blocks[i], i % 255 + 1, 1000);
    }
    for (int i = 0; i < 300; i++)
        for (int k = 0; k < 1000; k++) assert_int_equal(blocks[i][k], i % 255 + 1);
    assert_true(a.n_bytes >= 300000);
    bk_arena_free(&a);
    assert_int_equal(a.n_bytes, 0);
}

static void test_arena__large_and_empty_blocks(void **state)
{
    (void)state;
    bk_arena a;
    bk_arena_init(&a);
    char *big = bk_arena_alloc(&a, 1 << 20, 3);
    assert_non_null(big);
    big[3 * (1 << 20) - 1] = 1;
    assert_non_null(bk_arena_alloc(&a, 0, 8));
    bk_arena_free(&a);
}

static void test_arena__refuses_sizes_that_overflow(void **state)
{
    (void)state;
    bk_arena a = {0};
    assert_null(bk_arena_alloc(&a, INT64_MAX, 2));
    assert_null(bk_arena_alloc(&a, INT64_MAX, 1));
    assert_null(bk_arena_alloc(&a, -1, 1));
    assert_null(bk_arena_alloc(&a, 1, -1));
    bk_arena_free(&a);
}

static void test_arena__strings(void **state)
{
    (void)state;
    bk_arena a = {0};
    assert_string_equal(bk_arena_strdup(&a, "layer"), "layer");
    assert_string_equal(bk_arena_strndup(&a, "layer", 3), "lay");
    assert_string_equal(bk_arena_strndup(&a, "layer", 30), "layer");
    assert_string_equal(bk_arena_printf(&a, "decoder.layers.%d.%s", 12, "mlp"), "decoder.layers.12.mlp");
    bk_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena__blocks_are_zero_aligned_and_apart),
        cmocka_unit_test(test_arena__large_and_empty_blocks),
        cmocka_unit_test(test_arena__refuses_sizes_that_overflow),
        cmocka_unit_test(test_arena__strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
