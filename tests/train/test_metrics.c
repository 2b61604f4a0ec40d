#include "train/log_check.h"

#include <dirent.h>

#include "train/metrics.h"

static const bk_step_values a_step = {.iteration = 2, .n_samples = 8, .batch_size = 4, .loss = 2};

static void set(bk_config *c, const char *name, const char *value)
{
    bk_err e;
    ok(bk_config_set(c, name, value, NULL, &e), &e);
}

static int count_lines(const char *path)
{
    char text[4096];
    int n = 0;
    slurp(text, sizeof text, path);
    for (const char *at = text; (at = strchr(at, '\n')); at++) n++;
    return n;
}

/* Bytes of all files of a folder; -1 without the folder. */
static long folder_bytes(const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) return -1;
    long sum = 0;
    for (const struct dirent *entry; (entry = readdir(d));) {
        char path[512];
        struct stat s;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (stat(path, &s) == 0 && S_ISREG(s.st_mode)) sum += (long)s.st_size;
    }
    closedir(d);
    return sum;
}

static void test_metrics__nothing_asked_for(void **state)
{
    (void)state;
    bk_config c;
    bk_metrics m;
    bk_err e;
    bk_config_init(&c);
    ok(bk_metrics_open(&m, &c, 1, &e), &e);
    ok(bk_metrics_step(&m, &a_step, &e), &e);
    ok(bk_metrics_evaluation(&m, &(bk_evaluation_values){.loss = 1}, &e), &e);
    ok(bk_metrics_close(&m, &e), &e);
    assert_int_equal(folder_bytes("."), 0);
    bk_config_free(&c);
}

static void test_metrics__to_all_that_are_asked_for(void **state)
{
    (void)state;
    bk_config c;
    bk_metrics m;
    bk_err e;
    bk_config_init(&c);
    set(&c, "log-jsonl", "out.jsonl");
    set(&c, "tensorboard-dir", "board");
    set(&c, "tensorboard-log-interval", "2");
    ok(bk_metrics_open(&m, &c, 1, &e), &e);
    assert_int_equal(count_lines("out.jsonl"), 1);
    const long begun = folder_bytes("board");
    assert_true(begun > 0);
    bk_step_values odd = a_step;
    odd.iteration = 3;
    ok(bk_metrics_step(&m, &odd, &e), &e);
    assert_int_equal(folder_bytes("board"), begun);
    ok(bk_metrics_step(&m, &a_step, &e), &e);
    const long stepped = folder_bytes("board");
    assert_true(stepped > begun);
    ok(bk_metrics_evaluation(&m, &(bk_evaluation_values){.loss = 1}, &e), &e);
    assert_true(folder_bytes("board") > stepped);
    ok(bk_metrics_close(&m, &e), &e);
    assert_int_equal(count_lines("out.jsonl"), 4);
    bk_config_free(&c);
}

/* What fails is told, and the other file has the step. */
static void test_metrics__one_of_two_fails(void **state)
{
    (void)state;
    bk_config c;
    bk_metrics m;
    bk_err e;
    bk_config_init(&c);
    set(&c, "log-jsonl", "out.jsonl");
    set(&c, "tensorboard-dir", "board");
    ok(bk_metrics_open(&m, &c, 1, &e), &e);
    const long begun = folder_bytes("board");
    assert_int_equal(remove("out.jsonl"), 0);
    assert_int_equal(bk_metrics_step(&m, &a_step, &e), BK_E_IO);
    expect_message(&e, "out.jsonl", "removed");
    assert_true(folder_bytes("board") > begun);
    assert_int_equal(bk_metrics_evaluation(&m, &(bk_evaluation_values){.loss = 1}, NULL), BK_E_IO);
    ok(bk_metrics_close(&m, &e), &e);
    bk_config_free(&c);
}

static void test_metrics__open_fails(void **state)
{
    (void)state;
    bk_config c;
    bk_metrics m;
    bk_err e;
    bk_config_init(&c);
    set(&c, "log-jsonl", "out.jsonl");
    set(&c, "tensorboard-dir", "out.jsonl/board");
    assert_int_equal(bk_metrics_open(&m, &c, 1, &e), BK_E_IO);
    expect_message(&e, "out.jsonl/board", "Not a directory");
    assert_null(m.jsonl.file.path);
    assert_null(m.tensorboard.file.path);
    bk_config_free(&c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_metrics__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_asked_for),
        TEST(to_all_that_are_asked_for),
        TEST(one_of_two_fails),
        TEST(open_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
