/* birkhoff plan as a user meets it: what it prints, where, and its exit code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    int code;
    char *out, *err; /* owned */
} ran;

static char folder[] = "/tmp/birkhoff-test-XXXXXX";

static char *read_all(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long n = ftell(f);
    char *text = malloc((size_t)n + 1);
    assert_non_null(text);
    rewind(f);
    assert_int_equal(fread(text, 1, (size_t)n, f), n);
    text[n] = '\0';
    fclose(f);
    return text;
}

static ran run_command(const char *name, const char *args)
{
    char command[1024];
    snprintf(command, sizeof command, "'%s' %s %s >%s/out 2>%s/err", BK_EXE, name, args, folder, folder);
    const int status = system(command);
    assert_true(WIFEXITED(status));
    return (ran){WEXITSTATUS(status), read_all("out"), read_all("err")};
}

static ran run_plan(const char *args)
{
    return run_command("plan", args);
}

static void ran_free(ran *r)
{
    free(r->out), free(r->err);
}

#define SMALL "--num-layers 2 --seq-length 16 --global-batch-size 16 "

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char path[128];
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/%s", folder, k ? "err" : "out");
        unlink(path);
    }
    return rmdir(folder);
}

/* Each stage has what is its own, lacks what comes later, and gives the same bytes again. */
static void test_plan_command__dumps(void **state)
{
    (void)state;
    static const struct {
        const char *stage, *has, *lacks;
    } cases[] = {
        /* clang-format off */
        {"config", "hidden_size", "adamw"},
        {"model", "linear", " backward"},
        {"autodiff", " backward", "adamw"},
        {"accumulate", " backward", "adamw"},
        {"step", "adamw", " chunk=0"},
        {"partition", " chunk=0", "micro-batches"},
        {"graph", " chunk=0", "micro-batches"},
        {"schedule", "schedule 2 micro-batches", "adamw"},
        {"plan", "plan run ", "schedule"},
        /* clang-format on */
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char args[128];
        snprintf(args, sizeof args, SMALL "--dump %s", cases[k].stage);
        ran a = run_plan(args), b = run_plan(args);
        assert_int_equal(a.code, 0);
        assert_string_equal(a.err, "");
        if (!strstr(a.out, cases[k].has)) fail_msg("%s: no '%s'", cases[k].stage, cases[k].has);
        if (strstr(a.out, cases[k].lacks)) fail_msg("%s: has '%s'", cases[k].stage, cases[k].lacks);
        assert_string_equal(a.out, b.out);
        ran_free(&a), ran_free(&b);
    }
}

static void test_plan_command__graph_is_the_last_pass(void **state)
{
    (void)state;
    ran a = run_plan(SMALL "--dump graph"), b = run_plan(SMALL "--dump partition");
    assert_string_equal(a.out, b.out);
    ran_free(&a), ran_free(&b);
}

static void test_plan_command__report(void **state)
{
    (void)state;
    static const char *const parts[] = {"model     2 layers",
                                        "step      256 tokens: 2 micro-batches of 8 samples of 16 tokens",
                                        "PARAMETERS",
                                        "MEMORY AT THE PEAK",
                                        "ARENA",
                                        "WORK",
                                        "LANES",
                                        "evaluate  one micro-batch: peak ",
                                        "plan checked: rules 1 2 3 5 6 hold",
                                        "plan fits: "};
    ran r = run_plan(SMALL);
    assert_int_equal(r.code, 0);
    assert_string_equal(r.err, "");
    const char *at = r.out;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        at = strstr(at, parts[k]); /* in this order */
        if (!at) fail_msg("no '%s' in its place", parts[k]);
    }
    ran_free(&r);
}

/* A line for the program that measures, where the run has one. */
static void test_plan_command__measuring(void **state)
{
    (void)state;
    static const char *const none[] = {SMALL, SMALL "--log-jsonl x --log-health-interval 0"};
    ran with = run_plan(SMALL "--log-jsonl x --log-health-interval 50");
    assert_non_null(strstr(with.out, "\nmeasure   every 50 steps: peak "));
    for (int k = 0; k < 2; k++) {
        ran r = run_plan(none[k]);
        assert_int_equal(r.code, 0);
        assert_null(strstr(r.out, "measure "));
        ran_free(&r);
    }
    ran_free(&with);
}

static void expect_need_of(const char *options)
{
    char args[256];
    snprintf(args, sizeof args, "--train-iters 0 --data-path '" BK_SOURCE_DIR "/src' %s", options);
    ran plan = run_plan(options), train = run_command("train", args);
    assert_int_equal(plan.code, 0);
    assert_int_equal(train.code, 0);
    char needed[32], taken[32];
    const char *fits = strstr(plan.out, "plan fits: "), *memory = strstr(train.out, "memory  ");
    assert_true(fits && memory);
    assert_int_equal(sscanf(fits, "plan fits: %31[^a]are needed", needed), 1);
    assert_int_equal(sscanf(memory, "memory  %31[^p]planned", taken), 1);
    assert_string_equal(needed, taken);
    ran_free(&plan), ran_free(&train);
}

/* All programs of the run are counted, those of the sample at its end and the one that measures too. */
static void test_plan_command__needs_what_training_takes(void **state)
{
    (void)state;
    expect_need_of("");
    expect_need_of("--log-jsonl /dev/null");
}

static void test_plan_command__too_large_for_the_limit(void **state)
{
    (void)state;
    ran r = run_plan(SMALL "--memory-limit 64K");
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "plan checked: ")); /* the report comes all the same */
    assert_null(strstr(r.out, "plan fits"));
    assert_non_null(strstr(r.err, "birkhoff: the plan needs "));
    assert_non_null(strstr(r.err, "64.0 KiB are allowed by memory_limit; lower micro_batch_size"));
    ran_free(&r);
}

static void test_plan_command__unknown_stage(void **state)
{
    (void)state;
    ran r = run_plan("--dump shedule");
    assert_int_equal(r.code, 2);
    assert_string_equal(r.out, "");
    assert_string_equal(r.err,
                        "birkhoff: --dump shedule: no such stage; did you mean schedule? Give one of "
                        "config, model, autodiff, accumulate, step, graph, partition, schedule, plan\n");
    ran_free(&r);
    r = run_plan("--dump 42");
    assert_int_equal(r.code, 2);
    assert_non_null(strstr(r.err, "no such stage; give one of config, "));
    ran_free(&r);
}

static void test_plan_command__bad_options(void **state)
{
    (void)state;
    static const struct {
        const char *args, *message;
    } cases[] = {
        {"--dmp model", "there is no option '--dmp'; did you mean dump?"},
        {"--num-layer 3", "there is no option '--num-layer'; did you mean num_layers?"},
        {"--dump", "dump"},
        {"--hidden-size 0", "hidden_size"},
        {"--moe-router-topk 9", "num_experts 8"},
        {"--global-batch-size 12", "global_batch_size"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        ran r = run_plan(cases[k].args);
        assert_int_equal(r.code, 2);
        assert_string_equal(r.out, "");
        if (!strstr(r.err, cases[k].message)) fail_msg("%s: %s", cases[k].args, r.err);
        ran_free(&r);
    }
    ran r = run_plan("--config /no/such/file.yaml");
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.err, "/no/such/file.yaml"));
    ran_free(&r);
}

/* 38 billion parameters in 61 layers: planned in little memory, and refused. */
static void test_plan_command__large_model_is_not_allocated(void **state)
{
    (void)state;
    ran r = run_plan("--num-layers 61 --hidden-size 7168 --num-attention-heads 56 --ffn-hidden-size 18432 "
                     "--seq-length 4096 --vocab-size 129280 --micro-batch-size 1 --global-batch-size 4 "
                     "--memory-limit 16GiB");
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.out, "61 layers, width 7168"));
    assert_non_null(strstr(r.out, "plan checked: "));
    assert_non_null(strstr(r.err, "the plan needs "));
    ran_free(&r);
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &u), 0);
    assert_true(u.ru_maxrss < 512 * 1024); /* KiB; 20 MiB without sanitizers */
}

/* One of 4 ranks that share the experts: it holds a quarter of them, and tokens travel on a lane of their
 * own. */
static void test_plan_command__a_share_of_the_experts(void **state)
{
    (void)state;
#define EXPERTS SMALL "--num-experts 8 --micro-batch-size 2 "
    ran one = run_plan(EXPERTS), share = run_plan(EXPERTS "--expert-model-parallel-size 4");
    assert_string_equal(share.err, "");
    assert_int_equal(share.code, 0);
    assert_null(strstr(one.out, "a2a"));
    assert_null(strstr(one.out, "layout"));
    assert_non_null(strstr(one.out, "all that come, as planned"));
    assert_non_null(strstr(share.out, "headroom 2, as planned"));
    assert_non_null(strstr(share.out, "one of 4 ranks, with 2 of the 8 experts"));
    assert_non_null(strstr(share.out, "a2a"));
    assert_non_null(strstr(one.out, "8 micro-batches of 2 samples"));
    assert_non_null(strstr(share.out, "2 micro-batches of 2 samples"));
    assert_non_null(strstr(share.out, "plan checked: "));
    ran_free(&one), ran_free(&share);
    ran r = run_command("train", EXPERTS "--data-path none --expert-model-parallel-size 4");
    assert_int_not_equal(r.code, 0);
    assert_non_null(strstr(r.err, "expert_model_parallel_size 4"));
    ran_free(&r);
}

static void test_plan_command__output_that_cannot_be_written(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof command, "'%s' plan >/dev/full 2>%s/err", BK_EXE, folder);
    const int status = system(command);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    char *err = read_all("err");
    assert_non_null(strstr(err, "cannot be written"));
    free(err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_command__dumps),
        cmocka_unit_test(test_plan_command__graph_is_the_last_pass),
        cmocka_unit_test(test_plan_command__report),
        cmocka_unit_test(test_plan_command__measuring),
        cmocka_unit_test(test_plan_command__needs_what_training_takes),
        cmocka_unit_test(test_plan_command__too_large_for_the_limit),
        cmocka_unit_test(test_plan_command__unknown_stage),
        cmocka_unit_test(test_plan_command__bad_options),
        cmocka_unit_test(test_plan_command__large_model_is_not_allocated),
        cmocka_unit_test(test_plan_command__a_share_of_the_experts),
        cmocka_unit_test(test_plan_command__output_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
