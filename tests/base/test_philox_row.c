#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/philox_row.h"

/* Word for word, for a sample number and a first element beyond 32 bits. */
static void test_philox_row__agrees_with_single_blocks(void **state)
{
    (void)state;
    const bk_rng_key key = bk_rng_key_make(1, BK_RNG_DROPOUT, 2, 3);
    const uint64_t firsts[] = {0, 64, 1020, (UINT64_C(1) << 33) + 8}, sample = (UINT64_C(5) << 32) + 6;
    for (size_t k = 0; k < sizeof firsts / sizeof *firsts; k++) {
        uint32_t row[BK_RNG_ROW], words[4];
        bk_rng_row(row, key, sample, 77, firsts[k]);
        for (uint32_t i = 0; i < BK_RNG_ROW; i += 4) {
            bk_rng_block(words, key, sample, 77, (uint32_t)(firsts[k] / 4) + i / 4);
            assert_memory_equal(row + i, words, sizeof words);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_philox_row__agrees_with_single_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
