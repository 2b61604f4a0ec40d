/* Ranges and their owners, against an array with the owner of each byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/philox.h"
#include "plan/owners.h"

enum { BYTES = 4096, TAKES = 20000 };

typedef struct {
    int64_t owner[BYTES];     /* -1: nobody */
    int64_t former[BYTES], n; /* what `was` was called with */
    int64_t taker, stop;      /* stop: refuse at this former owner */
} model;

static bk_status was(void *ctx, int64_t former, int64_t taker)
{
    model *m = ctx;
    assert_int_equal(taker, m->taker);
    assert_true(m->n < BYTES);
    m->former[m->n++] = former;
    return former == m->stop ? BK_E_CHECK : BK_OK;
}

/* Former owners in the order of addresses, each once for a run of its bytes. */
static void check_take(bk_owners *o, model *m, int64_t start, int64_t end)
{
    int64_t expected[BYTES], n = 0;
    for (int64_t k = start; k < end; k++)
        if (m->owner[k] >= 0 && (k == start || m->owner[k] != m->owner[k - 1])) expected[n++] = m->owner[k];
    m->n = 0, m->taker++;
    assert_int_equal(bk_owners_take(o, start, end, m->taker, was, m), BK_OK);
    assert_int_equal(m->n, n);
    assert_memory_equal(m->former, expected, (size_t)n * sizeof *expected);
    for (int64_t k = start; k < end; k++) m->owner[k] = m->taker;
}

static model *fresh_model(void)
{
    static model m;
    m = (model){.stop = -1};
    for (int k = 0; k < BYTES; k++) m.owner[k] = -1;
    return &m;
}

/* Many small ranges fill and split chunks, some large ones empty them. */
static void test_owners__agree_with_bytes(void **state)
{
    (void)state;
    bk_owners o = {0};
    model *m = fresh_model();
    const bk_rng_key key = bk_rng_key_make(7, BK_RNG_INIT, 0, 0);
    int64_t most_chunks = 0;
    for (uint32_t t = 0; t < TAKES; t++) {
        uint32_t w[4];
        bk_rng_block(w, key, 0, 0, t);
        const int64_t start = w[0] % BYTES, longest = w[1] % 500 == 0 ? BYTES : 5, len = 1 + w[2] % longest;
        check_take(&o, m, start, start + len < BYTES ? start + len : BYTES);
        if (o.n > most_chunks) most_chunks = o.n;
    }
    check_take(&o, m, 0, BYTES);
    assert_int_equal(o.n, 1);
    assert_true(most_chunks > 4);
    bk_owners_free(&o);
}

static void test_owners__nothing_is_taken_by_nothing(void **state)
{
    (void)state;
    bk_owners o = {0};
    model *m = fresh_model();
    check_take(&o, m, 10, 20);
    check_take(&o, m, 15, 15);
    m->taker = 1; /* the empty one left no mark */
    check_take(&o, m, 12, 18);
    bk_owners_free(&o);
}

/* A refusal comes back as it is, and nothing has changed hands. */
static void test_owners__refusal(void **state)
{
    (void)state;
    bk_owners o = {0};
    model *m = fresh_model();
    check_take(&o, m, 0, 10);
    check_take(&o, m, 10, 20);
    m->stop = 2, m->n = 0, m->taker = 3;
    assert_int_equal(bk_owners_take(&o, 5, 15, 3, was, m), BK_E_CHECK);
    assert_int_equal(m->n, 2);
    m->stop = -1;
    check_take(&o, m, 0, 20);
    bk_owners_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners__agree_with_bytes),
        cmocka_unit_test(test_owners__nothing_is_taken_by_nothing),
        cmocka_unit_test(test_owners__refusal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
