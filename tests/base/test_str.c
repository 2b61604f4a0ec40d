#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/str.h"

static void test_str__appends(void **state)
{
    (void)state;
    bk_str b = {0};
    assert_string_equal(bk_str_text(&b), "");
    for (int i = 0; i < 200; i++) bk_str_appendf(&b, "%d,", i % 10);
    assert_int_equal(b.len, 400);
    assert_int_equal(strlen(bk_str_text(&b)), 400);
    bk_str_append_char(&b, '=', 3);
    bk_str_append_char(&b, '!', 0);
    bk_str_append_n(&b, "endless", 3);
    assert_string_equal(bk_str_text(&b) + 396, "8,9,===end");
    assert_false(b.failed);
    bk_str_free(&b);
    bk_str_append(&b, "again");
    assert_string_equal(bk_str_text(&b), "again");
    bk_str_free(&b);
}

static void test_str__failure_sticks(void **state)
{
    (void)state;
    bk_str b = {0};
    bk_str_append(&b, "ab");
    bk_str_append_char(&b, 'x', INT64_MAX);
    assert_true(b.failed);
    bk_str_append(&b, "cd");
    assert_string_equal(bk_str_text(&b), "ab");
    bk_str_free(&b);
}

static void test_str__quotes_for_json(void **state)
{
    (void)state;
    bk_str s = {0};
    bk_str_append_json(&s, "");
    bk_str_append_json(&s, "a\"b\\c/\n\x1f\x7f\xc3\xa9");
    assert_string_equal(bk_str_text(&s), "\"\"\"a\\\"b\\\\c/\\u000a\\u001f\x7f\xc3\xa9\"");
    bk_str_free(&s);
}

static void test_str__bytes_as_people_read_them(void **state)
{
    (void)state;
    const struct {
        int64_t n;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {10234, "9.99 KiB"},
        {10240, "10.0 KiB"},
        {102400, "100 KiB"},
        {1048575, "1.00 MiB"},
        {1320702444, "1.23 GiB"},
        {INT64_MAX, "8.00 EiB"},
        {-2048, "-2.00 KiB"},
    };
    char out[BK_HUMAN_LEN];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(bk_human_bytes(out, cases[i].n), cases[i].text);
}

static void test_str__counts_as_people_read_them(void **state)
{
    (void)state;
    char out[BK_HUMAN_LEN];
    assert_string_equal(bk_human_count(out, 0), "0");
    assert_string_equal(bk_human_count(out, 999), "999");
    assert_string_equal(bk_human_count(out, 1000), "1.0 K");
    assert_string_equal(bk_human_count(out, 999960), "1.0 M");
    assert_string_equal(bk_human_count(out, 124439808), "124.4 M");
    assert_string_equal(bk_human_count(out, 671000000000), "671.0 G");
}

static void test_str__reads_bytes(void **state)
{
    (void)state;
    int64_t n;
    assert_true(bk_parse_bytes(&n, "1048576") && n == 1048576);
    assert_true(bk_parse_bytes(&n, "9007199254740993") && n == 9007199254740993);
    assert_true(bk_parse_bytes(&n, "512K") && n == 512 << 10);
    assert_true(bk_parse_bytes(&n, "1.5GiB") && n == INT64_C(3) << 29);
    assert_true(bk_parse_bytes(&n, "2 tb") && n == INT64_C(2) << 40);
    assert_true(bk_parse_bytes(&n, "7B") && n == 7);
    const char *const bad[] = {"",
                               "G",
                               "-1",
                               "1.5",
                               "1e99G",
                               "5GiBs",
                               "5 apples",
                               "nan",
                               "0x10",
                               "1iB",
                               "inf",
                               "9999999T",
                               "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(bk_parse_bytes(&n, bad[i]));
}

static void test_str__nearest_name(void **state)
{
    (void)state;
    const char *const names[] = {"num_layers", "hidden_size", "lr", "seed", "mhc_sinkhorn_iterations"};
    assert_string_equal(bk_nearest("num_layer", names, 5), "num_layers");
    assert_string_equal(bk_nearest("num-layesr", names, 5), "num_layers");
    assert_string_equal(bk_nearest("Hidden_Size", names, 5), "hidden_size");
    assert_string_equal(bk_nearest("mhc_sinkhorn_iters", names, 5), "mhc_sinkhorn_iterations");
    assert_string_equal(bk_nearest("sede", names, 5), "seed"); /* one swap */
    assert_null(bk_nearest("tokenizer_model", names, 5));
    assert_null(bk_nearest("x", names, 0));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1), longest[sizeof longest - 1] = '\0';
    assert_null(bk_nearest(longest, names, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_str__appends),
        cmocka_unit_test(test_str__failure_sticks),
        cmocka_unit_test(test_str__quotes_for_json),
        cmocka_unit_test(test_str__bytes_as_people_read_them),
        cmocka_unit_test(test_str__counts_as_people_read_them),
        cmocka_unit_test(test_str__reads_bytes),
        cmocka_unit_test(test_str__nearest_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
