/* Whole models against the reference vectors in BK_ORACLE_DIR: losses, activations, gradients, ten steps of
 * training. Without that folder the test is skipped, which CTest says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "check_fixture.h"

#define FILE_OF(name) BK_ORACLE_DIR "/" name ".safetensors"

/* `more`: further options, YAML. */
static void agrees_with(const char *path, const char *more, int64_t n_rows, bool trains)
{
    reference r;
    bk_check_report report;
    bk_str text = {0};
    reference_open_with(&r, path, more);
    reference_compare(&report, &r);
    bk_check_report_print(&text, &report);
    if (report.n_failed > 0) fail_msg("%s\n%s", path, bk_str_text(&text));
    assert_int_equal(report.n_rows, n_rows);
    assert_int_equal(bk_check_report_find(&report, "train.loss") != NULL, trains);
    bk_str_free(&text);
    bk_check_report_free(&report);
    reference_close(&r);
}

static void agrees(const char *path, int64_t n_rows, bool trains)
{
    agrees_with(path, "", n_rows, trains);
}

static void test_check_model__dense_plain(void **state)
{
    (void)state;
    agrees(FILE_OF("dense_plain"), 36, true);
}

static void test_check_model__dense_mhc4(void **state)
{
    (void)state;
    agrees(FILE_OF("dense_mhc4"), 82, true);
}

static void test_check_model__dense_mhc2_ln_gelu_bias_tied(void **state)
{
    (void)state;
    agrees(FILE_OF("dense_mhc2_ln_gelu_bias_tied"), 55, false);
}

static void test_check_model__dense_gqa_mhc4(void **state)
{
    (void)state;
    agrees(FILE_OF("dense_gqa_mhc4"), 42, false);
}

static void test_check_model__dense_mhc4_mtp2(void **state)
{
    (void)state;
    agrees(FILE_OF("dense_mhc4_mtp2"), 90, false);
}

static void test_check_model__moe_mhc4(void **state)
{
    (void)state;
    agrees(FILE_OF("moe_mhc4"), 110, true);
}

static void test_check_model__moe_mhc4_dense_final(void **state)
{
    (void)state;
    agrees(FILE_OF("moe_mhc4_dense_final"), 51, false);
}

static void test_check_model__moe_mhc4_mtp1(void **state)
{
    (void)state;
    agrees(FILE_OF("moe_mhc4_mtp1"), 87, false);
}

static void test_check_model__moe_sigmoid_bias_mhc4(void **state)
{
    (void)state;
    agrees(FILE_OF("moe_sigmoid_bias_mhc4"), 58, false);
}

static void test_check_model__moe_droppad_mhc4(void **state)
{
    (void)state;
    agrees(FILE_OF("moe_droppad_mhc4"), 56, false);
}

/* The down projections as two products, and as one. */
static void latents_agree(const char *path, int64_t n_rows)
{
    agrees(path, n_rows, false);
    agrees_with(path, "mla_down_proj_fusion: true\n", n_rows, false);
}

static void test_check_model__mla_dense_mhc4(void **state)
{
    (void)state;
    latents_agree(FILE_OF("mla_dense_mhc4"), 52);
}

/* With the tables of both layers. */
static void test_check_model__mla_yarn_dense_mhc4(void **state)
{
    (void)state;
    latents_agree(FILE_OF("mla_yarn_dense_mhc4"), 56);
}

static void test_check_model__mla_moe_mhc4(void **state)
{
    (void)state;
    latents_agree(FILE_OF("mla_moe_mhc4"), 66);
}

/* Gradients, losses, activations, results of training. Below the floor are alpha_pre and alpha_res of the
 * first hyper-connection, which sees equal streams. */
static void test_check_model__every_scaled_tensor_is_caught(void **state)
{
    (void)state;
    reference r;
    int n_altered, n_below;
    reference_open(&r, FILE_OF("dense_mhc4"));
    reference_scale_each(&n_altered, &n_below, &r, "dense_mhc4");
    assert_int_equal(n_altered, 80);
    assert_int_equal(n_below, 2);
    reference_close(&r);
}

static void test_check_model__transposed_residual_block_is_caught(void **state)
{
    (void)state;
    static const char *const sublayers[] = {"self_attention", "mlp"};
    reference r;
    bk_err e = {0};
    int n_caught = 0;
    reference_open(&r, FILE_OF("dense_mhc4"));
    for (int layer = 0; layer < 2; layer++)
        for (int s = 0; s < 2; s++) {
            char name[256];
            snprintf(name, sizeof name, "param.decoder.layers.%d.%s_hyper_connection.mapping_proj.weight",
                     layer, sublayers[s]);
            reference_transpose_residual(&r, name, 4);
            if (reference_run(&r, &e) != BK_OK) fail_msg("%s", e.msg);
            n_caught += reference_failures(&r) > 0;
            reference_transpose_residual(&r, name, 4);
        }
    print_message("dense_mhc4: the residual block transposed in 4 mappings, %d caught\n", n_caught);
    assert_int_equal(n_caught, 4);
    reference_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_model__dense_plain),
        cmocka_unit_test(test_check_model__dense_mhc4),
        cmocka_unit_test(test_check_model__dense_mhc2_ln_gelu_bias_tied),
        cmocka_unit_test(test_check_model__dense_gqa_mhc4),
        cmocka_unit_test(test_check_model__dense_mhc4_mtp2),
        cmocka_unit_test(test_check_model__moe_mhc4),
        cmocka_unit_test(test_check_model__moe_mhc4_dense_final),
        cmocka_unit_test(test_check_model__moe_mhc4_mtp1),
        cmocka_unit_test(test_check_model__moe_sigmoid_bias_mhc4),
        cmocka_unit_test(test_check_model__moe_droppad_mhc4),
        cmocka_unit_test(test_check_model__mla_dense_mhc4),
        cmocka_unit_test(test_check_model__mla_yarn_dense_mhc4),
        cmocka_unit_test(test_check_model__mla_moe_mhc4),
        cmocka_unit_test(test_check_model__every_scaled_tensor_is_caught),
        cmocka_unit_test(test_check_model__transposed_residual_block_is_caught),
    };
    if (access(FILE_OF("dense_mhc4"), R_OK) != 0) {
        fprintf(stderr,
                "SKIPPED: there are no reference vectors in %s, so whole models were compared with NOTHING.\n"
                "Give their folder with cmake -DBK_ORACLE_DIR=FOLDER.\n",
                BK_ORACLE_DIR);
        return 77; /* CTest: skipped */
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
