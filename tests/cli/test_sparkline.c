#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sparkline.h"

static const double nan_ = (double)NAN, inf = (double)INFINITY;

/* The drawing, with its columns and a guard behind the room that is promised. */
static void expect(const char *drawing, int64_t columns, const double *x, int64_t n, int64_t width, bool utf8)
{
    char out[256];
    memset(out, '!', sizeof out);
    assert_int_equal(bk_sparkline(out, x, n, width, utf8), columns);
    assert_string_equal(out, drawing);
    assert_int_equal(out[BK_SPARKLINE_LEN(width)], '!');
}

static void test_sparkline__rises_and_falls(void **state)
{
    (void)state;
    const double up[] = {0, 1, 2, 3, 4, 5, 6, 7}, down[] = {8, 7, 6, 5, 4, 3, 2, 1};
    expect("▁▂▃▄▅▆▇█", 8, up, 8, 8, true);
    expect("█▇▆▅▄▃▂▁", 8, down, 8, 8, true);
    expect("_.,-=+*#", 8, up, 8, 20, false);
    expect("#*+=-,._", 8, down, 8, 8, false);
}

static void test_sparkline__alike_is_half_height(void **state)
{
    (void)state;
    const double x[] = {3, 3, 3};
    expect("▅▅▅", 3, x, 3, 8, true);
    expect("=", 1, x, 1, 8, false);
}

static void test_sparkline__no_number_is_blank(void **state)
{
    (void)state;
    const double x[] = {nan_, 0, inf, 7, -inf}, none[] = {nan_, inf};
    expect(" ▁ █ ", 5, x, 5, 8, true);
    expect("  ", 2, none, 2, 2, true);
    expect("", 0, x, 0, 8, true);
    expect("", 0, x, 5, 0, true);
}

/* Columns of 2, 2 and 3 numbers: means 1, 2 (the NaN counts for nothing), 8. */
static void test_sparkline__more_numbers_than_columns(void **state)
{
    (void)state;
    const double x[] = {0, 2, 2, nan_, 8, 8, 8};
    expect("▁▂█", 3, x, 7, 3, true);
    double many[1000];
    for (int i = 0; i < 1000; i++) many[i] = i;
    expect("_.,-=+*#", 8, many, 1000, 8, false);
    for (int n = 1; n <= 60; n++) { /* a column each, whatever the division does */
        char out[BK_SPARKLINE_LEN(60)];
        for (int i = 0; i < n; i++) many[i] = i % 2;
        assert_int_equal(bk_sparkline(out, many, n, 60, false), n);
        for (int i = 0; n > 1 && i < n; i++) assert_int_equal(out[i], i % 2 ? '#' : '_');
    }
}

static void test_sparkline__range_beyond_the_greatest_number(void **state)
{
    (void)state;
    const double x[] = {-DBL_MAX, 0, DBL_MAX};
    expect("_=#", 3, x, 3, 3, false);
}

static void test_sparkline__locale_of_the_environment(void **state)
{
    (void)state;
    unsetenv("LC_ALL");
    setenv("LC_CTYPE", "C", 1);
    assert_false(bk_locale_is_utf8());
    setenv("LC_ALL", "C.UTF-8", 1); /* comes before LC_CTYPE */
    assert_true(bk_locale_is_utf8());
    setenv("LC_ALL", "no_such_locale", 1);
    assert_false(bk_locale_is_utf8());
    assert_string_equal(setlocale(LC_CTYPE, NULL), "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparkline__rises_and_falls),
        cmocka_unit_test(test_sparkline__alike_is_half_height),
        cmocka_unit_test(test_sparkline__no_number_is_blank),
        cmocka_unit_test(test_sparkline__more_numbers_than_columns),
        cmocka_unit_test(test_sparkline__range_beyond_the_greatest_number),
        cmocka_unit_test(test_sparkline__locale_of_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
