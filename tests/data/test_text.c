#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/text.h"
#include "temp_folder.h"

static void put(const char *path, const char *bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs(bytes, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The tokens as text, '|' for the end of a document. */
static void expect_text(const char *expected, const char *const *paths, int n_paths, bk_text_options options,
                        bk_text_report *report)
{
    bk_text text = {0};
    bk_err e = {0};
    if (bk_text_load(&text, paths, n_paths, &options, report, &e) != BK_OK) fail_msg("%s", e.msg);
    char shown[256] = {0};
    assert_in_range(text.n_tokens, 1, 255);
    for (int64_t i = 0; i < text.n_tokens; i++)
        shown[i] = text.tokens[i] == BK_TEXT_EOD ? '|' : (char)text.tokens[i];
    assert_string_equal(shown, expected);
    bk_text_free(&text);
    assert_null(text.tokens);
}

static void expect_error(const char *words, bk_status status, const char *const *paths, int n_paths,
                         bk_text_options options)
{
    bk_text text = {0};
    bk_err e = {0};
    const bk_status st = bk_text_load(&text, paths, n_paths, &options, NULL, &e);
    if (st != status || !strstr(e.msg, words))
        fail_msg("status %d, '%s', expected '%s'", (int)st, e.msg, words);
    assert_null(text.tokens); /* written on success only */
}

static void make_tree(void)
{
    assert_int_equal(mkdir("t", 0777) + mkdir("t/b", 0777) + mkdir("t/b/deep", 0777), 0);
    put("t/c.h", "cc");
    put("t/a.h", "a");
    put("t/b/x.h", "x");
    put("t/b/deep/y.c", "yy");
    put("t/b/z.h", "z");
    put("t/.hidden.h", "h");
}

static void test_text__folders_are_read_in_the_order_of_paths(void **state)
{
    (void)state;
    make_tree();
    bk_text_report report;
    expect_text("h|a|yy|x|z|cc|", (const char *[]){"t"}, 1, (bk_text_options){0}, &report);
    assert_int_equal(report.n_files, 6);
    assert_int_equal(report.n_unreadable + report.n_empty + report.n_special + report.n_over_limit, 0);
    assert_string_equal(report.first_unreadable, "");
    expect_text("h|a|yy|x|z|cc|", (const char *[]){"t/"}, 1, (bk_text_options){0}, NULL);
}

static void test_text__suffix_chooses_files_of_folders(void **state)
{
    (void)state;
    make_tree();
    const bk_text_options options = {.suffix = "*.c"};
    expect_text("yy|", (const char *[]){"t"}, 1, options, NULL);
    /* paths in the order given; a file named itself needs no suffix */
    expect_text("x|yy|a|", (const char *[]){"t/b/x.h", "t/b", "t/a.h"}, 3, options, NULL);
    expect_error("text: folder 't' holds no text: 0 files match '*.py'", BK_E_INPUT, (const char *[]){"t"}, 1,
                 (bk_text_options){.suffix = "*.py"});
}

static void test_text__bytes_are_kept_as_they_are(void **state)
{
    (void)state;
    char every[257];
    for (int i = 0; i < 256; i++) every[i] = (char)i;
    FILE *f = fopen("all", "wb");
    for (int i = 0; i < 1000; i++) assert_int_equal(fwrite(every, 1, 256, f), 256); /* several chunks */
    assert_int_equal(fclose(f), 0);
    bk_text text;
    assert_int_equal(bk_text_load(&text, (const char *[]){"all"}, 1, &(bk_text_options){0}, NULL, NULL),
                     BK_OK);
    assert_int_equal(text.n_tokens, 256001);
    for (int i = 0; i < 256000; i++) assert_int_equal(text.tokens[i], i % 256);
    assert_int_equal(text.tokens[256000], BK_TEXT_EOD);
    bk_text_free(&text);
}

static void test_text__links_and_loops(void **state)
{
    (void)state;
    make_tree();
    put("outside", "o");
    assert_int_equal(symlink("../outside", "t/link.h"), 0);
    assert_int_equal(symlink("..", "t/b/up"), 0);
    assert_int_equal(symlink("self", "t/self"), 0);
    assert_int_equal(symlink("nothing", "t/dangling.h"), 0);
    assert_int_equal(symlink("t", "folder"), 0);
    assert_int_equal(mkfifo("t/pipe.h", 0666), 0);
    bk_text_report report;
    expect_text("h|a|yy|x|z|cc|o|", (const char *[]){"t"}, 1, (bk_text_options){0}, &report);
    assert_int_equal(report.n_special, 2);    /* up, pipe.h */
    assert_int_equal(report.n_unreadable, 2); /* self, dangling.h */
    assert_string_equal(report.first_unreadable, "t/dangling.h: No such file or directory");
    /* a link that the user names is followed */
    expect_text("h|a|x|z|cc|o|", (const char *[]){"folder"}, 1, (bk_text_options){.suffix = "*.h"}, &report);
    assert_int_equal(report.n_unreadable, 1); /* self does not match */
}

static void test_text__files_without_permission_are_counted(void **state)
{
    (void)state;
    if (geteuid() == 0) skip(); /* root may read everything */
    make_tree();
    assert_int_equal(chmod("t/a.h", 0) + chmod("t/b/deep", 0), 0);
    bk_text_report report;
    expect_text("h|x|z|cc|", (const char *[]){"t"}, 1, (bk_text_options){0}, &report);
    assert_int_equal(report.n_unreadable, 2);
    expect_error("text: cannot read 't/a.h': Permission denied", BK_E_IO, (const char *[]){"t/a.h"}, 1,
                 (bk_text_options){0});
    expect_error("cannot read folder 't/b/deep': Permission denied", BK_E_IO, (const char *[]){"t/b/deep"}, 1,
                 (bk_text_options){0});
    assert_int_equal(chmod("t/b/deep", 0777), 0);
}

static void test_text__empty_files_make_no_document(void **state)
{
    (void)state;
    make_tree();
    put("t/b/empty.h", "");
    bk_text_report report;
    expect_text("x|z|", (const char *[]){"t/b"}, 1, (bk_text_options){.suffix = "*.h"}, &report);
    assert_int_equal(report.n_empty, 1);
    assert_int_equal(report.n_files, 2);
}

static void test_text__a_limit_cuts_the_text(void **state)
{
    (void)state;
    put("a", "aaaa"), put("b", "bbbb"), put("c", "cccc");
    const char *const paths[] = {"a", "b", "c"};
    bk_text_report report;
    expect_text("aaaa|bb", paths, 3, (bk_text_options){.max_bytes = 6}, &report);
    assert_int_equal(report.n_files, 2);
    assert_int_equal(report.n_over_limit, 2);
    expect_text("aaaa|bbbb|", paths, 3, (bk_text_options){.max_bytes = 8}, &report);
    assert_int_equal(report.n_files, 2);
    assert_int_equal(report.n_over_limit, 1);
    expect_text("aaaa|bbbb|cccc|", paths, 3, (bk_text_options){.max_bytes = 12}, &report);
    assert_int_equal(report.n_over_limit, 0);
    make_tree();
    expect_text("aaa", (const char *[]){"a", "t"}, 2, (bk_text_options){.max_bytes = 3}, &report);
    assert_int_equal(report.n_over_limit, 7);
}

static void test_text__bad_paths_are_errors(void **state)
{
    (void)state;
    put("good", "good"), put("empty", "");
    assert_int_equal(mkdir("void", 0777) + mkfifo("pipe", 0666), 0);
    const bk_text_options o = {0};
    expect_error("text: cannot read 'none': No such file or directory", BK_E_IO,
                 (const char *[]){"good", "none"}, 2, o);
    expect_error("text: cannot read '': No such file", BK_E_IO, (const char *[]){""}, 1, o);
    expect_error("text: cannot read 'good/x': Not a directory", BK_E_IO, (const char *[]){"good/x"}, 1, o);
    expect_error("text: file 'empty' is empty", BK_E_INPUT, (const char *[]){"good", "empty"}, 2, o);
    expect_error("text: folder 'void' holds no text: 0 files match '*'", BK_E_INPUT, (const char *[]){"void"},
                 1, o);
    expect_error("text: 'pipe' is neither a file nor a folder", BK_E_INPUT, (const char *[]){"pipe"}, 1, o);
    expect_error("text: no file or folder is named", BK_E_INPUT, NULL, 0, o);
    expect_error("must not be negative", BK_E_INPUT, (const char *[]){"good"}, 1,
                 (bk_text_options){.max_bytes = -1});
}

static void test_text__shorter_than_one_sequence_is_an_error(void **state)
{
    (void)state;
    put("a", "1234567"); /* 8 tokens with the end of the document */
    expect_text("1234567|", (const char *[]){"a"}, 1, (bk_text_options){.seq_length = 7}, NULL);
    expect_error("text: 8 tokens are too few; one sequence of 8", BK_E_INPUT, (const char *[]){"a"}, 1,
                 (bk_text_options){.seq_length = 8});
    expect_error("too few", BK_E_INPUT, (const char *[]){"a"}, 1, (bk_text_options){.seq_length = INT64_MAX});
}

static void test_text__deep_folders_are_read(void **state)
{
    (void)state;
    char path[4000] = "d";
    for (int i = 0; i < 500; i++) {
        assert_int_equal(mkdir(path, 0777), 0);
        strcat(path, "/d");
    }
    put(path, "bottom");
    expect_text("bottom|", (const char *[]){"d"}, 1, (bk_text_options){0}, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_text__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(folders_are_read_in_the_order_of_paths),
        TEST(suffix_chooses_files_of_folders),
        TEST(bytes_are_kept_as_they_are),
        TEST(links_and_loops),
        TEST(files_without_permission_are_counted),
        TEST(empty_files_make_no_document),
        TEST(a_limit_cuts_the_text),
        TEST(bad_paths_are_errors),
        TEST(shorter_than_one_sequence_is_an_error),
        TEST(deep_folders_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
