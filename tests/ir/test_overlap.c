#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/philox.h"
#include "ir/overlap.h"

enum { STORAGE = 64 };

/* Marks the elements of a view. */
static void mark(bool hit[STORAGE], const bk_value *v)
{
    int64_t at[BK_MAX_DIMS] = {0};
    for (int64_t k = 0; k < bk_elements(v); k++) {
        int64_t where = v->offset;
        for (int d = 0; d < v->rank; d++) where += at[d] * v->stride[d];
        hit[where] = true;
        for (int d = v->rank - 1; d >= 0 && ++at[d] == v->dim[d].size; d--) at[d] = 0;
    }
}

/* Views with random dims, strides and offsets inside 64 elements, against their elements one by one. */
static void test_overlap__is_exact(void **state)
{
    (void)state;
    enum { ROUNDS = 20000 };
    uint64_t seed = 1;
    int n_overlaps = 0, n_tested = 0;
    for (int round = 0; round < ROUNDS; round++) {
        bk_value v[2] = {0};
        bool hit[2][STORAGE] = {{0}};
        bool inside = true;
        for (int k = 0; k < 2; k++) {
            v[k].rank = (int)(bk_mix64(seed++) % 4);
            v[k].offset = (int64_t)(bk_mix64(seed++) % 16);
            for (int d = 0; d < v[k].rank; d++) {
                v[k].dim[d].size = (int64_t)(bk_mix64(seed++) % 5);
                v[k].stride[d] = (int64_t)(bk_mix64(seed++) % 20);
            }
            inside = inside && bk_value_last_element(&v[k]) < STORAGE;
        }
        if (!inside) continue;
        bool want = false;
        mark(hit[0], &v[0]), mark(hit[1], &v[1]);
        for (int k = 0; k < STORAGE; k++) want = want || (hit[0][k] && hit[1][k]);
        assert_int_equal(bk_values_overlap(&v[0], &v[1]), want);
        assert_int_equal(bk_values_overlap(&v[1], &v[0]), want);
        n_overlaps += want, n_tested++;
    }
    assert_in_range(n_overlaps, n_tested / 20, n_tested / 2); /* both answers are met */
}

/* Heads of a fused projection of 2^40 elements: found at once, not by walking them. */
static void test_overlap__large_views(void **state)
{
    (void)state;
    const int64_t n = INT64_C(1) << 28, width = 4096;
    bk_value q = {.rank = 2, .dim = {{n, 0}, {1024, 0}}, .stride = {width, 1}}, k = q, all = q;
    k.offset = 1024, all.dim[1].size = width;
    assert_false(bk_values_overlap(&q, &k));
    assert_true(bk_values_overlap(&k, &all));
    k.offset = 1023;
    assert_true(bk_values_overlap(&q, &k));
    k.offset = 0, k.dim[0].size = 0;
    assert_false(bk_values_overlap(&q, &k)); /* no elements */
}

/* Where an answer would take too long or does not fit in 64 bits, the safe one. */
static void test_overlap__gives_up_safely(void **state)
{
    (void)state;
    bk_value a = {.rank = 1, .dim = {{3, 0}}, .stride = {INT64_C(1) << 62}}, b = a;
    b.offset = 1;
    assert_int_equal(bk_value_last_element(&a), -1);
    assert_true(bk_values_overlap(&a, &b));
    /* Even elements and odd ones, in strides that do not divide each other. */
    const int64_t many = INT64_C(1) << 30;
    bk_value even = {.rank = 3, .dim = {{many, 0}, {many, 0}, {many, 0}}, .stride = {2, 4, 6}}, odd = even;
    odd.offset = 1;
    even.dim[2].size = odd.dim[2].size = 2;
    assert_true(bk_values_overlap(&even, &odd)); /* wrong, but soon and on the safe side */
    odd.offset = 2;
    assert_true(bk_values_overlap(&even, &odd));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlap__is_exact),
        cmocka_unit_test(test_overlap__large_views),
        cmocka_unit_test(test_overlap__gives_up_safely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
