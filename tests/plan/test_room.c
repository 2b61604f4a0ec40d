/* Room: the lowest free offset, against all pieces that were placed before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>

#include "base/philox.h"
#include "plan/room.h"

typedef struct {
    int64_t first, last, start, end;
} piece;

static int64_t take(bk_room *r, int64_t first, int64_t last, int64_t bytes)
{
    int64_t at = -1;
    assert_int_equal(bk_room_take(&at, r, first, last, bytes), BK_OK);
    return at;
}

/* Whether [at, at + bytes) meets none of the pieces alive in [first, last]. */
static bool is_free(const piece *p, int64_t n, int64_t first, int64_t last, int64_t at, int64_t bytes)
{
    for (int64_t k = 0; k < n; k++)
        if (p[k].first <= last && first <= p[k].last && p[k].start < at + bytes && at < p[k].end)
            return false;
    return true;
}

/* The lowest free offset is 0 or the end of a piece. */
static int64_t lowest(const piece *p, int64_t n, int64_t first, int64_t last, int64_t bytes)
{
    if (is_free(p, n, first, last, 0, bytes)) return 0;
    int64_t best = INT64_MAX;
    for (int64_t k = 0; k < n; k++)
        if (p[k].end < best && is_free(p, n, first, last, p[k].end, bytes)) best = p[k].end;
    return best;
}

/* Sizes in any order, so that gaps of all sizes are left; stretches short and long, times not a power of two.
 */
static void test_room__lowest_free_offset(void **state)
{
    (void)state;
    enum { PIECES = 600 };
    static const int64_t n_times[] = {1, 2, 3, 64, 100, 1000};
    piece p[PIECES];
    int64_t n_in_gaps = 0;
    for (uint32_t t = 0; t < sizeof n_times / sizeof *n_times; t++) {
        const bk_rng_key key = bk_rng_key_make(11, BK_RNG_INIT, t, 0);
        bk_room r;
        int64_t top = 0;
        assert_int_equal(bk_room_init(&r, n_times[t]), BK_OK);
        for (uint32_t k = 0; k < PIECES; k++) {
            uint32_t w[4];
            bk_rng_block(w, key, 0, 0, k);
            const int64_t longest = w[0] % 4 ? 8 : n_times[t], first = w[1] % n_times[t];
            int64_t last = first + w[2] % longest;
            if (last >= n_times[t]) last = n_times[t] - 1;
            const int64_t bytes = 64 * (1 + w[3] % 40), at = take(&r, first, last, bytes);
            assert_int_equal(at, lowest(p, k, first, last, bytes));
            n_in_gaps += at + bytes < top;
            if (at + bytes > top) top = at + bytes;
            p[k] = (piece){first, last, at, at + bytes};
        }
        bk_room_free(&r);
    }
    assert_true(n_in_gaps > 1000);
}

static void test_room__a_gap_that_fits_to_the_byte(void **state)
{
    (void)state;
    bk_room r;
    assert_int_equal(bk_room_init(&r, 4), BK_OK);
    assert_int_equal(take(&r, 0, 3, 100), 0);
    assert_int_equal(take(&r, 1, 1, 50), 100);
    assert_int_equal(take(&r, 1, 2, 100), 150);
    assert_int_equal(take(&r, 2, 2, 51), 250); /* 50 are free */
    assert_int_equal(take(&r, 2, 2, 50), 100);
    assert_int_equal(take(&r, 2, 2, 1), 301);
    assert_int_equal(take(&r, 0, 0, 1000), 100);
    bk_room_free(&r);
}

static void test_room__nothing_takes_nothing(void **state)
{
    (void)state;
    bk_room r;
    assert_int_equal(bk_room_init(&r, 2), BK_OK);
    assert_int_equal(take(&r, 0, 1, 10), 0);
    assert_int_equal(take(&r, 0, 1, 0), 0);
    assert_int_equal(take(&r, 0, 1, 10), 10);
    bk_room_free(&r);
}

static void test_room__end_that_no_number_holds(void **state)
{
    (void)state;
    bk_room r;
    int64_t at;
    assert_int_equal(bk_room_init(&r, 3), BK_OK);
    assert_int_equal(take(&r, 0, 2, INT64_MAX - 5), 0);
    assert_int_equal(take(&r, 1, 1, 5), INT64_MAX - 5);
    assert_int_equal(bk_room_take(&at, &r, 2, 2, 6), BK_E_MEM);
    bk_room_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room__lowest_free_offset),
        cmocka_unit_test(test_room__a_gap_that_fits_to_the_byte),
        cmocka_unit_test(test_room__nothing_takes_nothing),
        cmocka_unit_test(test_room__end_that_no_number_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
