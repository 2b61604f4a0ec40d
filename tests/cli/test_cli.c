/* Commands, options and configuration files through the executable. Exit codes: 1 the run failed, 2 the user
 * asked for something that cannot be. */
#include "cli/run_exe.h"

static void test_cli__helps(void **state)
{
    (void)state;
    exe_result r;
    static const char *const ways[][3] = {{"help"}, {"--help"}, {"-h"}, {"train", "--help"}, {"plan", "-h"}};
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        run_exe(&r, ways[k]);
        assert_int_equal(r.rc, 0);
        assert_string_equal(r.err, "");
        expect_contains(r.out, ARGS("usage: birkhoff", "train", "plan", "check", "help options"));
    }
    run_exe(&r, ARGS("generate", "--help"));
    assert_int_equal(r.rc, 0);
    expect_contains(r.out, ARGS("--load DIR", "--prompt TEXT", "--top-p X"));
    run_exe(&r, ARGS("check", "--help"));
    expect_contains(r.out, ARGS("--against FILE", "--precision f32|f64"));
    run_exe(&r, ARGS("plan", "--help"));
    expect_contains(r.out, ARGS("--dump STAGE"));
    run_exe(&r, ARGS("help", "options"));
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.err, "");
    expect_contains(
        r.out, ARGS("--num-layers N", "--mhc-num-residual-streams N", "--memory-limit", "--eval-interval N"));
}

static void test_cli__says_its_version(void **state)
{
    (void)state;
    exe_result r;
    int major, minor, patch, end = 0;
    run_exe(&r, ARGS("--version"));
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.err, "");
    assert_int_equal(sscanf(r.out, "birkhoff %d.%d.%d\ncommit %n", &major, &minor, &patch, &end), 3);
    assert_true(end > 0);
    expect_contains(r.out + end, ARGS("\ncompiler ", "\nbuild ", "\ncblas ", "\nopenmp "));
}

static void test_cli__without_a_command_shows_the_usage(void **state)
{
    (void)state;
    exe_result r;
    run_exe(&r, (const char *const[]){NULL});
    assert_int_equal(r.rc, 2);
    assert_string_equal(r.out, "");
    expect_contains(r.err, ARGS("usage: birkhoff", "train"));
}

static void test_cli__unknown_commands(void **state)
{
    (void)state;
    expect_refusal(2, ARGS("tarin"), ARGS("tarin", "did you mean train?"));
    expect_refusal(2, ARGS("chek"), ARGS("chek", "did you mean check?"));
    expect_refusal(2, ARGS("frobnicate"), ARGS("frobnicate", "birkhoff help"));
    expect_refusal(2, ARGS("--config", "x.yaml"), ARGS("--config", "birkhoff help"));
    expect_refusal(2, ARGS(""), ARGS("there is no command"));
}

static void test_cli__unknown_options(void **state)
{
    (void)state;
    expect_refusal(2, ARGS("train", "--num-layer", "2"), ARGS("--num-layer", "did you mean", "num_layers"));
    expect_refusal(2, ARGS("train", "--hiden-size=2"), ARGS("--hiden-size", "hidden_size"));
    expect_refusal(2, ARGS("train", "--confg", "x"), ARGS("--confg", "config"));
    expect_refusal(2, ARGS("train", "--zzzzzzzzzz", "2"), ARGS("there is no option '--zzzzzzzzzz'"));
    expect_refusal(2, ARGS("train", "my.yaml"), ARGS("'my.yaml' is no option"));
}

/* One reader of options stands behind all commands. */
static void test_cli__every_command_refuses_alike(void **state)
{
    (void)state;
    static const char *const commands[] = {"train", "plan", "check"};
    for (size_t k = 0; k < sizeof commands / sizeof *commands; k++) {
        expect_refusal(2, ARGS(commands[k], "--num-layer", "2"), ARGS("--num-layer", "num_layers"));
        expect_refusal(2, ARGS(commands[k], "--num-layers", "0"), ARGS("num_layers must be at least 1"));
        expect_refusal(2, ARGS(commands[k], "--moe-router-topk", "9"),
                       ARGS("moe_router_topk 9", "num_experts 8"));
        expect_refusal(2, ARGS(commands[k], "stray"), ARGS("'stray' is no option"));
    }
    /* As with cmp and diff, 1 would say that check has found a difference. */
    expect_refusal(1, ARGS("plan", "--config", "absent.yaml"), ARGS("absent.yaml", "No such file"));
    expect_refusal(2, ARGS("check", "--config", "absent.yaml"), ARGS("absent.yaml", "No such file"));
}

static void test_cli__values_that_are_missing_or_wrong(void **state)
{
    (void)state;
    expect_refusal(2, ARGS("train", "--num-layers"), ARGS("--num-layers needs a value"));
    expect_refusal(2, ARGS("train", "--num-layers", "--lr", "1"), ARGS("--num-layers needs a value"));
    expect_refusal(2, ARGS("train", "--config"), ARGS("--config needs a value"));
    expect_refusal(2, ARGS("train", "--num-layers", "0"), ARGS("num_layers must be at least 1", "not '0'"));
    expect_refusal(2, ARGS("train", "--num-layers", "-3"), ARGS("num_layers", "-3"));
    expect_refusal(2, ARGS("train", "--num-layers", "two"), ARGS("num_layers takes a whole number", "two"));
    expect_refusal(2, ARGS("train", "--num-layers", "99999999999999999999"), ARGS("num_layers"));
    expect_refusal(2, ARGS("train", "--mhc-num-residual-streams", "17"),
                   ARGS("mhc_num_residual_streams", "at most 16", "17"));
    expect_refusal(2, ARGS("train", "--lr", "nan"), ARGS("lr takes a number", "nan"));
    expect_refusal(2, ARGS("train", "--lr", "-1"), ARGS("lr must be at least 0", "-1"));
    expect_refusal(2, ARGS("train", "--hidden-dropout", "1"), ARGS("hidden_dropout", "below 1"));
    expect_refusal(2, ARGS("train", "--normalization", "BatchNorm"),
                   ARGS("normalization takes", "LayerNorm", "RMSNorm", "BatchNorm"));
    expect_refusal(2, ARGS("train", "--swiglu=perhaps"), ARGS("swiglu takes true or false", "perhaps"));
    expect_refusal(2, ARGS("train", "--memory-limit", "lots"), ARGS("memory_limit", "lots"));
    expect_refusal(2, ARGS("train", "--split", "1,x"), ARGS("split", "1,x"));
    expect_refusal(2, ARGS("train", "--split", "0,0"), ARGS("split", "0,0"));
}

/* Each sentence has both names. */
static void test_cli__options_that_contradict(void **state)
{
    (void)state;
    expect_refusal(2, ARGS("train", "--activation", "gelu"), ARGS("activation", "contradicts", "swiglu"));
    expect_refusal(
        2,
        ARGS("train", "--multi-latent-attention=false", "--qk-layernorm=false", "--num-attention-heads", "5"),
        ARGS("hidden_size 128", "num_attention_heads 5 (--num-attention-heads)"));
    expect_refusal(2, ARGS("train", "--num-query-groups", "3"),
                   ARGS("num_query_groups 3", "num_attention_heads 4"));
    expect_refusal(2, ARGS("train", "--global-batch-size", "12"),
                   ARGS("global_batch_size 12", "not a multiple of micro_batch_size 8"));
    expect_refusal(2, ARGS("train", "--min-lr", "1"), ARGS("min_lr 1", "above lr 0.002"));
    expect_refusal(2, ARGS("train", "--fp32-residual-connection"),
                   ARGS("enable_mhc_connections", "fp32_residual_connection"));
    expect_refusal(2, ARGS("train", "--lr-warmup-iters", "20"),
                   ARGS("lr_warmup_iters", "lr_warmup_fraction"));
    expect_refusal(2, ARGS("train", "--lr-warmup-fraction", "0", "--lr-warmup-iters", "1600"),
                   ARGS("lr_warmup_iters", "lr_decay_iters"));
    expect_refusal(2, ARGS("train", "--add-qkv-bias=false", "--add-bias-linear"),
                   ARGS("add_qkv_bias", "add_bias_linear"));
    expect_refusal(
        2, ARGS("train", "--position-embedding-type", "learned_absolute", "--max-position-embeddings", "64"),
        ARGS("max_position_embeddings 64", "seq_length 128"));
    expect_refusal(2, ARGS("train", "--lr-decay-style", "WSD"), ARGS("lr_decay_style", "lr_wsd_decay_iters"));
}

static void test_cli__features_that_are_not_built(void **state)
{
    (void)state;
    expect_refusal(2, ARGS("train", "--context-parallel-size", "8"),
                   ARGS("context_parallel_size 8", "not built"));
    expect_refusal(2, ARGS("train", "--tensor-model-parallel-size", "2"),
                   ARGS("tensor_model_parallel_size 2", "tensor parallelism", "not built"));
}

/* Where an option is said to be switched off, it is as if it was not there. */
static void test_cli__explicit_zero_is_accepted(void **state)
{
    (void)state;
    put("text", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    exe_result plain, zeros;
    put("dense.yaml", "num_layers: 1\nhidden_size: 32\nnum_attention_heads: 4\nvocab_size: 257\n"
                      "hidden_dropout: 0\nlr: 0.001\nlr_decay_style: constant\nlog_interval: 1\n");
#define RUN                                                                                                  \
    "train", "--config", "dense.yaml", "--data-path", "text", "--train-iters", "2", "--seq-length", "8"
    run_exe(&plain, ARGS(RUN));
    run_exe(&zeros, ARGS(RUN, "--mtp-num-layers", "0", "--num-experts", "0", "--hidden-dropout", "0",
                         "--decoupled-lr", "0", "--lr-warmup-iters", "0"));
    assert_int_equal(plain.rc, 0);
    assert_int_equal(zeros.rc, 0);
    /* Step, loss, gradient norm and rate of both steps; what follows in a line is measured time. */
    const char *a = plain.out, *b = zeros.out;
    for (int step = 1; step <= 2; step++) {
        a = strstr(a + 1, "\n       "), b = strstr(b + 1, "\n       ");
        assert_true(a && b && a[8] == '0' + step);
        assert_memory_equal(a, b, 41);
    }
}

static void test_cli__configuration_files(void **state)
{
    (void)state;
    expect_refusal(1, ARGS("train", "--config", "absent.yaml"), ARGS("absent.yaml", "No such file"));
    assert_int_equal(mkdir("folder.yaml", 0777), 0);
    expect_refusal(1, ARGS("train", "--config", "folder.yaml"), ARGS("folder.yaml"));
    put("empty.yaml", "");
    expect_refusal(2, ARGS("train", "--config", "empty.yaml"), ARGS("num_layers is not set"));
    static const struct {
        const char *text, *parts[4];
    } bad[] = {
        {"num_layers: 2\nhiden_size: 8\n", {"bad.yaml:2", "hiden_size", "did you mean hidden_size?"}},
        {"num_layers: 2\n\nseq_length: 0\n", {"bad.yaml:3", "seq_length must be at least 1"}},
        {"num_layers: 2\nlr: [1, 2\n", {"bad.yaml:"}},
        {"num_layers: 2\n\tlr: 1\n", {"bad.yaml:2"}},
        {"num_layers: 2\nnum_layers: 3\n", {"bad.yaml:2", "num_layers", "1"}},
        {"num_layers: 2\nseq_length: {deep: 2}\n", {"bad.yaml:2", "a mapping stands"}},
        {"- 1\n- 2\n", {"bad.yaml:1"}},
        {"num_layers: two\n", {"bad.yaml:1", "num_layers takes a whole number", "two"}},
        {"num_layers: \xff\xfe\n", {"bad.yaml"}},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        put("bad.yaml", bad[k].text);
        expect_refusal(2, ARGS("train", "--config", "bad.yaml"), bad[k].parts);
    }
    /* Both sources of a contradiction are named. */
    put("small.yaml",
        "num_layers: 1\nhidden_size: 30\nnum_attention_heads: 3\nseq_length: 8\nvocab_size: 257\n");
    expect_refusal(2, ARGS("train", "--config", "small.yaml", "--num-attention-heads", "4"),
                   ARGS("hidden_size 30 (small.yaml:2)", "num_attention_heads 4 (--num-attention-heads)"));
}

/* What a name or value holds cannot break the line or reach the terminal as a control sequence. */
static void test_cli__errors_stay_one_line(void **state)
{
    (void)state;
    expect_refusal(2, ARGS("tr\nain\033[31m"), ARGS("tr?ain?[31m"));
    expect_refusal(2, ARGS("train", "--lr", "1\n2"), ARGS("lr takes a number"));
    expect_refusal(1, ARGS("train", "--data-path", "a\nb\033c"), ARGS("a?b?c"));
    char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    expect_refusal(2, ARGS(longest), ARGS("there is no command xxx"));
    expect_refusal(2, ARGS("train", longest), ARGS("is no option"));
    expect_refusal(1, ARGS("train", "--config", longest), ARGS("xxx"));
    expect_refusal(1, ARGS("train", "--data-path", longest), ARGS("xxx"));
}

/* Output that is lost is a failure, as for other tools. */
static void test_cli__a_full_disk_is_an_error(void **state)
{
    (void)state;
    if (access("/dev/full", W_OK) != 0) skip();
    exe_result r;
    run_exe_to(&r, "/dev/full", ARGS("help", "options"));
    assert_int_equal(r.rc, 1);
    expect_contains(r.err, ARGS("birkhoff: cannot write to the standard output"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_cli__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(helps),
        TEST(says_its_version),
        TEST(without_a_command_shows_the_usage),
        TEST(unknown_commands),
        TEST(unknown_options),
        TEST(every_command_refuses_alike),
        TEST(values_that_are_missing_or_wrong),
        TEST(options_that_contradict),
        TEST(features_that_are_not_built),
        TEST(explicit_zero_is_accepted),
        TEST(configuration_files),
        TEST(errors_stay_one_line),
        TEST(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
