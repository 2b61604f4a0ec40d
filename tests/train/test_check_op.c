/* The mHC operators, through passes, plan and executor, against the reference vectors in tests/data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "check_fixture.h"

#define N4 BK_DATA_DIR "/op_mhc_n4_c32.safetensors"

static void test_check_op__agrees_with_the_reference(void **state)
{
    (void)state;
    static const char *const files[] = {"op_mhc_n1_c16", "op_mhc_n2_c16", "op_mhc_n4_c32", "op_mhc_n8_c24"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        char path[512];
        reference r;
        bk_check_report report;
        snprintf(path, sizeof path, "%s/%s.safetensors", BK_DATA_DIR, files[k]);
        reference_open(&r, path);
        reference_compare(&report, &r);
        assert_int_equal(report.n_failed, 0);
        assert_int_equal(report.n_rows, 18); /* 6 results, 12 gradients */
        bk_check_report_free(&report);
        reference_close(&r);
    }
}

static void test_check_op__every_scaled_tensor_is_caught(void **state)
{
    (void)state;
    reference r;
    int n_altered, n_below;
    reference_open(&r, N4);
    reference_scale_each(&n_altered, &n_below, &r, "op_mhc_n4_c32");
    assert_int_equal(n_altered, 18);
    assert_int_equal(n_below, 0);
    reference_close(&r);
}

static void test_check_op__transposed_residual_block_is_caught(void **state)
{
    (void)state;
    reference r;
    bk_err e = {0};
    reference_open(&r, N4);
    reference_transpose_residual(&r, "param.mapping_proj.weight", 4);
    if (reference_run(&r, &e) != BK_OK) fail_msg("%s", e.msg);
    bk_check_report report;
    reference_compare(&report, &r);
    assert_false(bk_check_report_find(&report, "out.h_res")->ok);
    assert_false(bk_check_report_find(&report, "out.x_next")->ok);
    assert_false(bk_check_report_find(&report, "grad.x")->ok);
    assert_true(bk_check_report_find(&report, "out.h_pre")->ok);
    bk_check_report_free(&report);
    reference_close(&r);
}

/* A NaN in any tensor of the file, inputs included. */
static void test_check_op__nan_anywhere_is_caught(void **state)
{
    (void)state;
    reference r;
    bk_err e = {0};
    int n_altered = 0, n_caught = 0;
    reference_open(&r, N4);
    for (int64_t k = 0; k < bk_st_count(r.st); k++) {
        const float nan = NAN;
        float kept;
        int64_t n;
        char *at = reference_bytes(&r, bk_st_at(r.st, k)->name, &n);
        at += 4 * (n / 2);
        memcpy(&kept, at, 4);
        memcpy(at, &nan, 4);
        if (reference_run(&r, &e) != BK_OK) fail_msg("%s", e.msg);
        n_altered++, n_caught += reference_failures(&r) > 0;
        memcpy(at, &kept, 4);
    }
    print_message("op_mhc_n4_c32: a NaN in %d tensors, %d caught\n", n_altered, n_caught);
    assert_int_equal(n_altered, 33);
    assert_int_equal(n_caught, n_altered);
    reference_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_op__agrees_with_the_reference),
        cmocka_unit_test(test_check_op__every_scaled_tensor_is_caught),
        cmocka_unit_test(test_check_op__transposed_residual_block_is_caught),
        cmocka_unit_test(test_check_op__nan_anywhere_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
