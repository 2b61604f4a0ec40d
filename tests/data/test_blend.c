#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "data/blend.h"

static void expect_paths(const char *const *words, int n_words, int n, const char *const *paths,
                         const double *weights)
{
    bk_blend_paths p;
    bk_err e = {0};
    if (bk_blend_parse(&p, words, n_words, &e) != BK_OK) fail_msg("%s", e.msg);
    assert_int_equal(p.n, n);
    assert_true((p.weights != NULL) == (weights != NULL));
    for (int i = 0; i < n; i++) {
        assert_string_equal(p.paths[i], paths[i]);
        if (weights) assert_true(p.weights[i] == weights[i]);
    }
    bk_blend_paths_free(&p);
}

static void test_blend__words_are_paths_or_pairs(void **state)
{
    (void)state;
    expect_paths((const char *[]){"a"}, 1, 1, (const char *[]){"a"}, NULL);
    expect_paths((const char *[]){"7"}, 1, 1, (const char *[]){"7"}, NULL);
    expect_paths((const char *[]){"a", "b"}, 2, 2, (const char *[]){"a", "b"}, NULL);
    expect_paths((const char *[]){"a", "1", "b"}, 3, 3, (const char *[]){"a", "1", "b"}, NULL);
    expect_paths((const char *[]){"5", "a"}, 2, 1, (const char *[]){"a"}, (double[]){1});
    expect_paths((const char *[]){"1", "a", "3", "b"}, 4, 2, (const char *[]){"a", "b"},
                 (double[]){0.25, 0.75});
    expect_paths((const char *[]){"0", "a", "1e3", "b"}, 4, 2, (const char *[]){"a", "b"}, (double[]){0, 1});
}

static void test_blend__bad_weights_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *words[4];
        int n;
        const char *message;
    } bad[] = {
        {{"1", "a", "b", "c"}, 4, "1 of 2 paths have a weight"},
        {{"-1", "a", "2", "b"}, 4, "weight '-1' must be"},
        {{"nan", "a", "2", "b"}, 4, "weight 'nan' must be"},
        {{"inf", "a", "2", "b"}, 4, "weight 'inf' must be"},
        {{"0", "a", "0", "b"}, 4, "sum to 0"},
        {{"1e308", "a", "1e308", "b"}, 4, "sum to inf"},
        {{NULL}, 0, "0 words"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bk_blend_paths p = {0};
        bk_err e = {0};
        assert_int_equal(bk_blend_parse(&p, bad[i].words, bad[i].n, &e), BK_E_INPUT);
        if (!strstr(e.msg, bad[i].message)) fail_msg("'%s', expected '%s'", e.msg, bad[i].message);
        assert_null(p.paths);
    }
}

/* A source whose samples are one token: 1000 times the source's number plus the sample's. */
static bk_status get_number(int32_t *tokens, int32_t *labels, float *mask, const void *ctx,
                            int64_t sample_number, bk_err *e)
{
    (void)labels, (void)mask, (void)e;
    *tokens = *(const int32_t *)ctx * 1000 + (int32_t)sample_number;
    return BK_OK;
}

static void expect_order(const bk_blend *b, const int *which, int n)
{
    int32_t used[8] = {0};
    const bk_source source = bk_blend_source(b);
    assert_int_equal(source.n_samples, n);
    for (int t = 0; t < n; t++) {
        int32_t token = -1;
        assert_int_equal(bk_source_get(&token, NULL, NULL, &source, t, NULL), BK_OK);
        assert_int_equal(token, which[t] * 1000 + used[which[t]]++);
    }
    bk_err e = {0};
    assert_int_equal(bk_source_get(NULL, NULL, NULL, &source, n, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "but the blend has"));
    assert_int_equal(bk_source_get(NULL, NULL, NULL, &source, -1, &e), BK_E_INPUT);
}

static const int32_t numbers[] = {0, 1, 2};

static void make_sources(bk_source out[3], int64_t n0, int64_t n1, int64_t n2)
{
    const int64_t n[] = {n0, n1, n2};
    for (int i = 0; i < 3; i++)
        out[i] = (bk_source){.ctx = &numbers[i], .n_samples = n[i], .get = get_number};
}

/* The orders come from the rule evaluated in Python's doubles. */
static void test_blend__orders_are_those_of_the_rule(void **state)
{
    (void)state;
    bk_source sources[3];
    bk_blend b;
    make_sources(sources, 20, 20, 20);
    assert_int_equal(bk_blend_make(&b, sources, (double[]){0.3, 0.5, 0.2}, 3, 20, NULL), BK_OK);
    expect_order(&b, (int[]){1, 0, 2, 1, 0, 1, 2, 1, 0, 1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1}, 20);
    bk_blend_free(&b);
    assert_int_equal(bk_blend_make(&b, sources, (double[]){0.5, 0.5}, 2, 6, NULL), BK_OK);
    expect_order(&b, (int[]){0, 1, 0, 1, 0, 1}, 6);
    bk_blend_free(&b);
    /* ceil(12 * 0.7) + 0 + ceil(12 * 0.3) = 13 samples */
    assert_int_equal(bk_blend_make(&b, sources, (double[]){0.7, 0, 0.3}, 3, 12, NULL), BK_OK);
    expect_order(&b, (int[]){0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 0, 2, 0}, 13);
    bk_blend_free(&b);
}

static void test_blend__a_short_source_is_refused(void **state)
{
    (void)state;
    bk_source sources[3];
    bk_blend b = {0};
    bk_err e = {0};
    make_sources(sources, 10, 9, 10);
    assert_int_equal(bk_blend_make(&b, sources, (double[]){0.3, 0.5, 0.2}, 3, 20, &e), BK_E_INPUT);
    assert_string_equal(e.msg, "a blend of 20 samples takes 10 from data set 1, which has 9");
    assert_null(b.which);
    assert_int_equal(bk_blend_make(&b, sources, (double[]){1}, 1, 0, &e), BK_E_INPUT);
    assert_int_equal(bk_blend_make(&b, sources, (double[]){1}, 1, INT64_C(1) << 58, &e), BK_E_MEM);
}

/* What a source is built with is at least what the rule takes. */
static void test_blend__shares_suffice(void **state)
{
    (void)state;
    assert_int_equal(bk_blend_share(1000, 0.5), 503);
    assert_int_equal(bk_blend_share(1, 0.001), 2);
    assert_int_equal(bk_blend_share(1000, 0), 0);
    for (int64_t n = 1; n < 400; n++) {
        for (int k = 1; k < 10; k++) {
            const double weights[] = {0.05 * k, 0.3, 0.7 - 0.05 * k};
            bk_source sources[3];
            bk_blend b;
            make_sources(sources, bk_blend_share(n, weights[0]), bk_blend_share(n, weights[1]),
                         bk_blend_share(n, weights[2]));
            assert_int_equal(bk_blend_make(&b, sources, weights, 3, n, NULL), BK_OK);
            assert_in_range(b.n_samples, n, n + 3);
            bk_blend_free(&b);
        }
    }
}

static void test_blend__exhaustive_takes_every_sample_once(void **state)
{
    (void)state;
    bk_source sources[3];
    bk_blend b;
    bk_err e = {0};
    make_sources(sources, 5, 0, 2);
    assert_int_equal(bk_blend_make_exhaustive(&b, sources, 3, NULL), BK_OK);
    expect_order(&b, (int[]){0, 2, 0, 0, 2, 0, 0}, 7);
    bk_blend_free(&b);
    make_sources(sources, 5, INT64_MAX, 2);
    assert_int_equal(bk_blend_make_exhaustive(&b, sources, 3, &e), BK_E_INPUT);
    assert_string_equal(e.msg, "data set 1 of the blend never ends: give weights");
}

#define TEST(name) cmocka_unit_test(test_blend__##name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(words_are_paths_or_pairs),
        TEST(bad_weights_are_refused),
        TEST(orders_are_those_of_the_rule),
        TEST(a_short_source_is_refused),
        TEST(shares_suffice),
        TEST(exhaustive_takes_every_sample_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
