/* birkhoff check as a user runs it: exit codes and messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/check_fixture.h"

#define N2 BK_DATA_DIR "/op_mhc_n2_c16.safetensors"

enum { OUTPUT_BYTES = 1 << 16 };

/* Runs `birkhoff check ARGUMENTS`; both streams go to `out`. Gives the exit code. */
static int check(char out[OUTPUT_BYTES], const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof command, "'%s' check %s 2>&1", BK_EXE, arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(out, 1, OUTPUT_BYTES - 1, f);
    out[n] = '\0';
    const int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(const char *arguments, int code, const char *message)
{
    char *out = malloc(OUTPUT_BYTES);
    assert_non_null(out);
    const int got = check(out, arguments);
    if (got != code || !strstr(out, message))
        fail_msg("check %s: exit code %d, not %d with \"%s\":\n%s", arguments, got, code, message, out);
    free(out);
}

/* A folder for altered files, one test at a time. */
static char folder[] = "/tmp/birkhoff_check_XXXXXX";

static void path_of(char path[512], const char *name)
{
    snprintf(path, 512, "%s/%s", folder, name);
}

/* Checks the n = 2 file with an edit. */
static void expect_edited(const reference_edit *edit, const char *flags, int code, const char *message)
{
    char path[512], arguments[1024];
    reference r;
    reference_read(&r, N2);
    path_of(path, "edited.safetensors");
    reference_write(&r, path, edit);
    snprintf(arguments, sizeof arguments, "--against %s %s", path, flags);
    expect(arguments, code, message);
    unlink(path);
    reference_close(&r);
}

static void test_check__reference_passes(void **state)
{
    (void)state;
    expect("--against " N2, 0, "passed: 18 of 18");
    expect("--against " N2 " --precision f64", 0, "passed: 18 of 18");
}

static void test_check__differences_pass(void **state)
{
    (void)state;
    expect("", 0, "passed: 99 of 99");
    expect("--num-layers 1 --no-enable-mhc-connections --hidden-dropout 0.3", 0, "hidden_dropout 0.3");
    expect("--num-experts 8 --moe-layer-freq 2 --moe-aux-loss-coeff 0.1 --mtp-num-layers 1", 0,
           "moe_layer_freq [0, 1]");
}

/* 0 passes, 1 says that a row fails. */
static void test_check__altered_tensors_fail(void **state)
{
    (void)state;
    static const char *const names[] = {"grad.mapping_proj.weight", "out.h_res", "head.grad.fn"};
    char path[512], arguments[1024];
    path_of(path, "scaled.safetensors");
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        reference r;
        reference_read(&r, N2);
        reference_scale(&r, names[k], 1.001f);
        reference_write(&r, path, &(reference_edit){0});
        snprintf(arguments, sizeof arguments, "--against %s", path);
        expect(arguments, 1, "FAILED: 1 of 18");
        reference_close(&r);
    }
    unlink(path);
}

static void test_check__transposed_residual_block_fails(void **state)
{
    (void)state;
    char path[512], arguments[1024];
    reference r;
    path_of(path, "transposed.safetensors");
    reference_read(&r, N2);
    reference_transpose_residual(&r, "param.mapping_proj.weight", 2);
    reference_write(&r, path, &(reference_edit){0});
    snprintf(arguments, sizeof arguments, "--against %s", path);
    expect(arguments, 1, "FAILED");
    unlink(path);
    reference_close(&r);
}

static void test_check__nan_fails(void **state)
{
    (void)state;
    char path[512], arguments[1024];
    reference r;
    path_of(path, "nan.safetensors");
    reference_read(&r, N2);
    reference_scale(&r, "out.u", NAN);
    reference_write(&r, path, &(reference_edit){0});
    snprintf(arguments, sizeof arguments, "--against %s --allow-missing", path);
    expect(arguments, 1, "the reference is not finite");
    unlink(path);
    reference_close(&r);
}

static void test_check__missing_and_extra_tensors(void **state)
{
    (void)state;
    expect_edited(&(reference_edit){.add = "grad.other"}, "", 1, "not compared");
    expect_edited(&(reference_edit){.add = "grad.other"}, "--allow-missing", 0, "not compared");
    expect_edited(&(reference_edit){.drop = "grad.x"}, "", 1, "not in the file");
    expect_edited(&(reference_edit){.drop = "grad.x"}, "--allow-missing", 0, "not in the file");
    expect_edited(&(reference_edit){.drop = "param.bias"}, "", 2, "tensor param.bias is missing");
    expect_edited(&(reference_edit){.drop = "in.dout"}, "--allow-missing", 2, "tensor in.dout is missing");
    expect_edited(&(reference_edit){.add = "param.other"}, "", 2, "tensor param.other");
}

static void test_check__wrong_shapes(void **state)
{
    (void)state;
    expect_edited(&(reference_edit){.flatten = "param.mapping_proj.weight"}, "", 2,
                  "tensor param.mapping_proj.weight has shape [256], and the configuration asks for [8, 32]");
    expect_edited(&(reference_edit){.turn = "in.x"}, "", 2,
                  "tensor in.x has shape [32, 5], and the configuration asks for [5, 32]");
    expect_edited(&(reference_edit){.turn = "out.u"}, "", 2, "tensor out.u has shape [16, 5]");
}

static void test_check__truncated_file(void **state)
{
    (void)state;
    char path[512], arguments[1024];
    reference r;
    reference_read(&r, N2);
    path_of(path, "short.safetensors");
    snprintf(arguments, sizeof arguments, "--against %s", path);
    const long lengths[] = {0, 7, 8, 100, r.n_bytes / 2, r.n_bytes - 1};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(r.bytes, 1, (size_t)lengths[k], f), lengths[k]);
        assert_int_equal(fclose(f), 0);
        expect(arguments, 2, path);
    }
    unlink(path);
    reference_close(&r);
}

static void test_check__bad_arguments(void **state)
{
    (void)state;
    expect("--against /nowhere/at_all.safetensors", 2, "/nowhere/at_all.safetensors");
    expect("--against", 2, "--against needs a value");
    expect("--agianst " N2, 2, "against");
    expect("--config " BK_SOURCE_DIR "/configs/tiny.yaml --against " N2, 2, "--config contradicts --against");
    expect("--against " N2 " --precision f16", 2, "f32 or f64");
    expect("--against " N2 " --num-layers 3", 2, "num_layers 3 (--num-layers)");
    expect("--allow-missing", 2, "--allow-missing");
    expect("--precision f64", 2, "--precision");
    expect("--moe-router-topk 9", 2, "num_experts 8");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check__reference_passes),
        cmocka_unit_test(test_check__differences_pass),
        cmocka_unit_test(test_check__altered_tensors_fail),
        cmocka_unit_test(test_check__transposed_residual_block_fails),
        cmocka_unit_test(test_check__nan_fails),
        cmocka_unit_test(test_check__missing_and_extra_tensors),
        cmocka_unit_test(test_check__wrong_shapes),
        cmocka_unit_test(test_check__truncated_file),
        cmocka_unit_test(test_check__bad_arguments),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
