#include "train/log_check.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>

#include "train/jsonl.h"

enum { MAX_LINES = 8 };

static const bk_step_values a_step = {.iteration = 7,
                                      .n_samples = INT64_C(9007199254740993), /* 2^53 + 1: no double */
                                      .batch_size = 8,
                                      .loss = 0.1,
                                      .grad_norm = 1.0 / 3,
                                      .learning_rate = 2.5e-300,
                                      .next_learning_rate = 9,
                                      .tokens_per_s = 123456789.125,
                                      .tflops = -0.0,
                                      .seconds = 5e-324};

/* The lines of out.jsonl, each an object. */
typedef struct {
    char text[8192];
    cJSON *line[MAX_LINES];
    int n;
} lines;

static void read_lines(lines *l)
{
    const size_t n = slurp(l->text, sizeof l->text, "out.jsonl");
    assert_true(n > 0 && l->text[n - 1] == '\n');
    l->n = 0;
    for (char *at = l->text, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        assert_in_range(l->n, 0, MAX_LINES - 1);
        const char *stop;
        cJSON *object = cJSON_ParseWithOpts(at, &stop, true);
        if (!cJSON_IsObject(object)) fail_msg("no object: %s", at);
        *end = '\n';
        l->line[l->n++] = object;
    }
}

static void free_lines(lines *l)
{
    for (int k = 0; k < l->n; k++) cJSON_Delete(l->line[k]);
}

static const cJSON *get(const cJSON *line, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, key);
    if (!item) fail_msg("there is no %s", key);
    return item;
}

static void expect_text(const cJSON *line, const char *key, const char *text)
{
    assert_true(cJSON_IsString(get(line, key)));
    assert_string_equal(get(line, key)->valuestring, text);
}

/* The same bits. */
static void expect_real(const cJSON *line, const char *key, double x)
{
    assert_true(cJSON_IsNumber(get(line, key)));
    assert_memory_equal(&get(line, key)->valuedouble, &x, sizeof x);
}

static void test_jsonl__one_object_a_line(void **state)
{
    (void)state;
    bk_jsonl j;
    bk_err e;
    lines l;
    const bk_run_values run = {
        .version = "1.2.3", .commit = "abc+dirty", .config_hash = 0x1f, .first_iteration = 4};
    ok(bk_jsonl_open(&j, "out.jsonl", &e), &e);
    ok(bk_jsonl_run(&j, &run, &e), &e);
    ok(bk_jsonl_step(&j, &a_step, &e), &e);
    ok(bk_jsonl_evaluation(&j, &(bk_evaluation_values){.iteration = 7, .n_samples = 56, .loss = 2}, &e), &e);
    read_lines(&l); /* before the file is closed: each line is out */
    assert_int_equal(l.n, 3);
    expect_text(l.line[0], "kind", "run");
    expect_text(l.line[0], "birkhoff", "1.2.3");
    expect_text(l.line[0], "commit", "abc+dirty");
    expect_text(l.line[0], "config_hash", "000000000000001f");
    expect_real(l.line[0], "first_iteration", 4);
    assert_true(get(l.line[0], "time")->valuedouble > 1.7e9);
    expect_text(l.line[1], "kind", "step");
    expect_real(l.line[1], "iteration", 7);
    assert_non_null(strstr(l.text, "\"consumed_samples\":9007199254740993,"));
    expect_real(l.line[1], "loss", 0.1);
    expect_real(l.line[1], "grad_norm", 1.0 / 3);
    expect_real(l.line[1], "learning_rate", 2.5e-300);
    expect_real(l.line[1], "tokens_per_s", 123456789.125);
    expect_real(l.line[1], "tflops", -0.0);
    expect_real(l.line[1], "seconds", 5e-324);
    assert_int_equal(cJSON_GetArraySize(l.line[1]), 9);
    expect_text(l.line[2], "kind", "validation");
    expect_real(l.line[2], "consumed_samples", 56);
    expect_real(l.line[2], "validation_loss", 2);
    expect_real(l.line[2], "validation_ppl", exp(2.0));
    free_lines(&l);
    ok(bk_jsonl_close(&j, &e), &e);
    ok(bk_jsonl_close(&j, &e), &e);
}

static void test_jsonl__a_step_done_again(void **state)
{
    (void)state;
    bk_jsonl j;
    bk_err e;
    lines l;
    const bk_room_values v = {
        .iteration = 4, .n_rows = INT64_C(9007199254740993), .room_before = 24, .room = 32};
    ok(bk_jsonl_open(&j, "out.jsonl", &e), &e);
    ok(bk_jsonl_room(&j, &v, &e), &e);
    ok(bk_jsonl_close(&j, &e), &e);
    read_lines(&l);
    assert_int_equal(l.n, 1);
    expect_text(l.line[0], "kind", "room");
    expect_real(l.line[0], "iteration", 4);
    assert_non_null(strstr(l.text, "\"rows\":9007199254740993,"));
    expect_real(l.line[0], "room_before", 24);
    expect_real(l.line[0], "room", 32);
    free_lines(&l);
}

static void test_jsonl__no_number_is_null(void **state)
{
    (void)state;
    bk_jsonl j;
    bk_err e;
    lines l;
    const bk_step_values v = {
        .iteration = 1, .loss = (double)NAN, .grad_norm = (double)INFINITY, .tflops = -(double)INFINITY};
    ok(bk_jsonl_open(&j, "out.jsonl", &e), &e);
    ok(bk_jsonl_step(&j, &v, &e), &e);
    ok(bk_jsonl_evaluation(&j, &(bk_evaluation_values){.loss = (double)NAN}, &e), &e);
    ok(bk_jsonl_close(&j, &e), &e);
    read_lines(&l);
    assert_true(cJSON_IsNull(get(l.line[0], "loss")) && cJSON_IsNull(get(l.line[0], "grad_norm")));
    assert_true(cJSON_IsNull(get(l.line[0], "tflops")));
    expect_real(l.line[0], "seconds", 0);
    assert_true(cJSON_IsNull(get(l.line[1], "validation_loss")) &&
                cJSON_IsNull(get(l.line[1], "validation_ppl")));
    free_lines(&l);
}

static void test_jsonl__perplexity_is_bounded(void **state)
{
    (void)state;
    const double at_20 = bk_perplexity(20), beyond = bk_perplexity(1000);
    assert_memory_equal(&at_20, &beyond, sizeof at_20);
    assert_true(bk_perplexity(19.9) < at_20 && bk_perplexity(0) > 0.999 && bk_perplexity(0) < 1.001);
}

/* A second run goes on behind the first; behind half a line, on a line of its own. */
static void test_jsonl__appends(void **state)
{
    (void)state;
    bk_jsonl j;
    bk_err e;
    char text[4096];
    for (int run = 0; run < 2; run++) {
        ok(bk_jsonl_open(&j, "out.jsonl", &e), &e);
        ok(bk_jsonl_step(&j, &a_step, &e), &e);
        ok(bk_jsonl_close(&j, &e), &e);
    }
    lines l;
    read_lines(&l);
    assert_int_equal(l.n, 2);
    free_lines(&l);
    put("out.jsonl", "{\"kind\":\"st");
    ok(bk_jsonl_open(&j, "out.jsonl", &e), &e);
    ok(bk_jsonl_step(&j, &a_step, &e), &e);
    ok(bk_jsonl_close(&j, &e), &e);
    slurp(text, sizeof text, "out.jsonl");
    assert_non_null(strstr(text, "{\"kind\":\"st\n{\"kind\":\"step\","));
}

/* The disk is full at any byte of the second record: an error, and the first one stays alone. */
static void test_jsonl__full_disk(void **state)
{
    (void)state;
    char whole[4096], text[4096];
    bk_jsonl j;
    bk_err e;
    ok(bk_jsonl_open(&j, "out.jsonl", &e), &e);
    ok(bk_jsonl_step(&j, &a_step, &e), &e);
    const size_t n = slurp(whole, sizeof whole, "out.jsonl");
    for (size_t room = n; room < 2 * n; room++) {
        limit_files(room);
        assert_int_equal(bk_jsonl_step(&j, &a_step, &e), BK_E_IO);
        limit_files(0);
        expect_message(&e, "out.jsonl", "File too large");
        slurp(text, sizeof text, "out.jsonl");
        assert_string_equal(text, whole);
    }
    ok(bk_jsonl_step(&j, &a_step, &e), &e); /* there is room again */
    assert_int_equal(slurp(text, sizeof text, "out.jsonl"), 2 * n);
    ok(bk_jsonl_close(&j, &e), &e);
}

static void test_jsonl__vanished_folder(void **state)
{
    (void)state;
    bk_jsonl j;
    bk_err e;
    assert_int_equal(bk_jsonl_open(&j, "folder/out.jsonl", &e), BK_E_IO);
    expect_message(&e, "folder/out.jsonl", "No such file");
    ok(bk_jsonl_close(&j, &e), &e);
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(bk_jsonl_open(&j, "folder", &e), BK_E_IO);
    expect_message(&e, "folder", "directory");
    ok(bk_jsonl_open(&j, "folder/out.jsonl", &e), &e);
    ok(bk_jsonl_step(&j, &a_step, &e), &e);
    assert_int_equal(remove("folder/out.jsonl"), 0);
    assert_int_equal(remove("folder"), 0);
    assert_int_equal(bk_jsonl_step(&j, &a_step, &e), BK_E_IO);
    expect_message(&e, "folder/out.jsonl", "removed");
    ok(bk_jsonl_close(&j, &e), &e);
}

/* A device is no regular file: neither size nor number of links count. */
static void test_jsonl__device(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    bk_jsonl j;
    bk_err e;
    ok(bk_jsonl_open(&j, "/dev/full", &e), &e);
    assert_int_equal(bk_jsonl_step(&j, &a_step, &e), BK_E_IO);
    expect_message(&e, "/dev/full", "No space left");
    ok(bk_jsonl_close(&j, &e), &e);
    ok(bk_jsonl_open(&j, "/dev/null", &e), &e);
    ok(bk_jsonl_step(&j, &a_step, &e), &e);
    ok(bk_jsonl_close(&j, &e), &e);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_jsonl__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_object_a_line), TEST(a_step_done_again),
        TEST(no_number_is_null), TEST(perplexity_is_bounded),
        TEST(appends),           TEST(full_disk),
        TEST(vanished_folder),   TEST(device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
