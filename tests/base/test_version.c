#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/version.h"

static void test_version__has_three_numbers(void **state)
{
    (void)state;
    int major, minor, patch, end = 0;
    assert_int_equal(sscanf(bk_version(), "%d.%d.%d%n", &major, &minor, &patch, &end), 3);
    assert_int_equal(bk_version()[end], '\0');
}

/* 12 hexadecimal digits (git takes more where they do not suffice), then perhaps "+dirty"; or "unknown". */
static void test_version__commit_is_a_hash_or_unknown(void **state)
{
    (void)state;
    const char *c = bk_version_commit();
    if (strcmp(c, "unknown") == 0) return;
    const size_t n = strspn(c, "0123456789abcdef");
    assert_in_range(n, 12, 64);
    if (c[n] != '\0') assert_string_equal(c + n, "+dirty");
}

static void test_version__describes_the_build(void **state)
{
    (void)state;
    static const char *const keys[] = {"birkhoff", "commit", "compiler", "build", "cblas", "openmp"};
    bk_str text = {0};
    bk_version_describe(&text);
    const char *at = bk_str_text(&text);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        char word[16], value[512];
        int end = 0;
        assert_int_equal(sscanf(at, "%15s %511[^\n]\n%n", word, value, &end), 2);
        assert_string_equal(word, keys[k]);
        if (k == 0) assert_string_equal(value, bk_version());
        if (k == 1) assert_string_equal(value, bk_version_commit());
        if (k == 5) assert_true(strncmp(value, "20", 2) == 0 && strstr(value, " thread"));
        at += end;
    }
    assert_string_equal(at, "");
    bk_str_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version__has_three_numbers),
        cmocka_unit_test(test_version__commit_is_a_hash_or_unknown),
        cmocka_unit_test(test_version__describes_the_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
