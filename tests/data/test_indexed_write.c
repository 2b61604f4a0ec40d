#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>

#include "data/indexed.h"
#include "temp_folder.h"

static void test_indexed_write__what_is_written_is_read(void **state)
{
    (void)state;
    const struct {
        bk_indexed_dtype dtype;
        int32_t least, most;
    } kinds[] = {{BK_INDEXED_U8, 0, 255},
                 {BK_INDEXED_I8, -128, 127},
                 {BK_INDEXED_I16, -32768, 32767},
                 {BK_INDEXED_U16, 0, 65535},
                 {BK_INDEXED_I32, INT32_MIN, INT32_MAX},
                 {BK_INDEXED_I64, INT32_MIN, INT32_MAX}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const int32_t tokens[] = {1, kinds[k].most, 3, 4, 5, 6};
        const int64_t lengths[] = {2, 0, 4}, documents[] = {0, 1, 1, 3};
        bk_indexed_content c = {
            .dtype = kinds[k].dtype, .tokens = tokens, .lengths = lengths, .n_sequences = 3};
        for (int with_documents = 0; with_documents < 2; with_documents++) {
            if (with_documents) c.documents = documents, c.n_documents = 3;
            bk_indexed *x = NULL;
            bk_err e = {0};
            if (bk_indexed_write("d", &c, &e) != BK_OK || bk_indexed_open(&x, "d", &e) != BK_OK)
                fail_msg("%s", e.msg);
            assert_int_equal(bk_indexed_get_dtype(x), kinds[k].dtype);
            assert_int_equal(bk_indexed_n_documents(x), 3);
            for (int i = 0; i <= 3; i++)
                assert_int_equal(bk_indexed_document(x, i), with_documents ? documents[i] : i);
            int32_t t[6];
            assert_int_equal(bk_indexed_read(t, x, 0, 0, 2, INT64_MAX, NULL), BK_OK);
            assert_int_equal(bk_indexed_read(t + 2, x, 2, 0, 4, INT64_MAX, NULL), BK_OK);
            assert_memory_equal(t, tokens, sizeof tokens);
            bk_indexed_free(x);
        }
        /* One below the least does not fit, nor does one above the most. */
        for (int side = 0; side < 2; side++) {
            if (kinds[k].most == INT32_MAX) continue;
            const int32_t bad[] = {1, 2, 3, side ? kinds[k].most + 1 : kinds[k].least - 1, 5, 6};
            bk_err e = {0};
            c.tokens = bad;
            assert_int_equal(bk_indexed_write("bad", &c, &e), BK_E_INPUT);
            assert_non_null(strstr(e.msg, "bad: sequence 2, position 1: token"));
        }
        assert_false(bk_indexed_exists("bad"));
    }
}

static void test_indexed_write__bad_arguments_write_nothing(void **state)
{
    (void)state;
    const int32_t tokens[] = {1, 2, 3};
    const int64_t good[] = {1, 2}, negative[] = {1, -1}, large[] = {1, INT64_C(1) << 31};
    const int64_t late[] = {1, 2}, falls[] = {0, 2, 1, 2}, short_of[] = {0, 1};
    const bk_indexed_content contents[] = {
        {.dtype = (bk_indexed_dtype)6, .tokens = tokens, .lengths = good, .n_sequences = 2},
        {.dtype = BK_INDEXED_U8, .tokens = tokens, .lengths = negative, .n_sequences = 2},
        {.dtype = BK_INDEXED_U8, .tokens = tokens, .lengths = large, .n_sequences = 2},
        {.dtype = BK_INDEXED_U8, .tokens = tokens, .lengths = good, .n_sequences = -1},
        {BK_INDEXED_U8, tokens, good, 2, late, 1},
        {BK_INDEXED_U8, tokens, good, 2, falls, 3},
        {BK_INDEXED_U8, tokens, good, 2, short_of, 1},
    };
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        bk_err e = {0};
        assert_int_equal(bk_indexed_write("d", &contents[i], &e), BK_E_INPUT);
        assert_memory_equal(e.msg, "d: ", 3);
        assert_int_equal(access("d.bin", F_OK), -1);
        assert_int_equal(access("d.idx", F_OK), -1);
    }
}

static void test_indexed_write__a_failure_leaves_no_pair(void **state)
{
    (void)state;
    const int32_t tokens[] = {1, 2, 3};
    const int64_t lengths[] = {1, 2};
    const bk_indexed_content c = {
        .dtype = BK_INDEXED_U8, .tokens = tokens, .lengths = lengths, .n_sequences = 2};
    bk_err e = {0};
    assert_int_equal(bk_indexed_write("none/d", &c, &e), BK_E_IO);
    assert_non_null(strstr(e.msg, "none/d.bin: cannot create: No such file"));
    assert_int_equal(bk_indexed_write("d", &c, NULL), BK_OK);
    assert_int_equal(unlink("d.bin") + mkdir("d.bin", 0777), 0);
    assert_int_equal(bk_indexed_write("d", &c, &e), BK_E_IO);
    assert_non_null(strstr(e.msg, "d.bin: cannot create: Is a directory"));
    assert_false(bk_indexed_exists("d")); /* the old index did not fit a new .bin */
    /* A disk that is full: every write to this device fails. */
    assert_int_equal(symlink("/dev/full", "full.bin"), 0);
    assert_int_equal(bk_indexed_write("full", &c, &e), BK_E_IO);
    assert_non_null(strstr(e.msg, "full.bin: cannot write: No space left on device"));
    assert_false(bk_indexed_exists("full"));
}

#define TEST(name)                                                                                           \
    cmocka_unit_test_setup_teardown(test_indexed_write__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read),
        TEST(bad_arguments_write_nothing),
        TEST(a_failure_leaves_no_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
