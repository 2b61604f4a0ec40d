#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files.h"
#include "temp_folder.h"

static void test_files__makes_folders_above_the_last(void **state)
{
    (void)state;
    bk_err e = {0};
    struct stat info;
    assert_int_equal(bk_files_make_folder("a/b//c/", &e), BK_OK);
    assert_int_equal(bk_files_make_folder("a/b/c", &e), BK_OK);
    assert_int_equal(stat("a/b/c", &info), 0);
    assert_true(S_ISDIR(info.st_mode));
}

static void test_files__refuses_a_folder_where_a_file_is(void **state)
{
    (void)state;
    bk_err e = {0};
    assert_int_equal(bk_files_write("file", "x", 1, &e), BK_OK);
    assert_int_equal(bk_files_make_folder("file", &e), BK_E_IO);
    assert_non_null(strstr(e.msg, "file: cannot use it as a folder: "));
    assert_int_equal(bk_files_make_folder("file/below", &e), BK_E_IO);
    assert_int_equal(bk_files_make_folder("", &e), BK_E_INPUT);
}

static void test_files__reads_what_was_written(void **state)
{
    (void)state;
    bk_err e = {0};
    bk_str text = {0};
    assert_int_equal(bk_files_write("file", "longer than the next", 20, &e), BK_OK);
    assert_int_equal(bk_files_write("file", "a\0b", 3, &e), BK_OK);
    assert_int_equal(bk_files_read(&text, "file", 3, &e), BK_OK);
    assert_int_equal(text.len, 3);
    assert_memory_equal(text.s, "a\0b", 3);
    bk_str_free(&text);
    assert_int_equal(bk_files_read(&text, "file", 2, &e), BK_E_INPUT);
    assert_int_equal(bk_files_read(&text, ".", 2, &e), BK_E_INPUT);
    assert_int_equal(bk_files_read(&text, "nowhere", 2, &e), BK_E_IO);
    bk_str_free(&text);
}

static void test_files__removes_a_folder_with_its_files(void **state)
{
    (void)state;
    bk_err e = {0};
    struct stat info;
    assert_int_equal(bk_files_make_folder("a", &e), BK_OK);
    assert_int_equal(bk_files_write("a/x", "x", 1, &e), BK_OK);
    assert_int_equal(bk_files_remove_folder("a", &e), BK_OK);
    assert_int_equal(stat("a", &info), -1);
    assert_int_equal(bk_files_remove_folder("a", &e), BK_OK);
}

static void test_files__refuses_long_paths(void **state)
{
    (void)state;
    bk_err e = {0};
    char path[BK_PATH_LEN], name[BK_PATH_LEN] = "";
    memset(name, 'x', BK_PATH_LEN - 3);
    assert_int_equal(bk_files_path(path, "a", name, &e), BK_OK);
    assert_int_equal(strlen(path), BK_PATH_LEN - 1);
    name[BK_PATH_LEN - 3] = 'x';
    assert_int_equal(bk_files_path(path, "a", name, &e), BK_E_INPUT);
}

static void test_files__syncs_the_folder_of_a_path(void **state)
{
    bk_err e = {0};
    char path[BK_PATH_LEN];
    assert_true(bk_files_sync_parent("file"));
    assert_int_equal(bk_files_path(path, *state, "file", &e), BK_OK);
    assert_true(bk_files_sync_parent(path));
    assert_true(bk_files_sync_parent("/file"));
    errno = 0;
    assert_false(bk_files_sync_parent("nowhere/file"));
    assert_int_equal(errno, ENOENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_files__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(makes_folders_above_the_last), TEST(refuses_a_folder_where_a_file_is),
        TEST(reads_what_was_written),       TEST(removes_a_folder_with_its_files),
        TEST(refuses_long_paths),           TEST(syncs_the_folder_of_a_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
