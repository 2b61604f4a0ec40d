/* birkhoff generate as a user runs it: text from a checkpoint, exit codes and messages. */
#include "cli/run_exe.h"

#include "train/checkpoint.h"
#include "train/generate.h"
#include "train/small_run.h"

/* Saves a model that nothing has trained into "bytes" (a vocabulary of bytes) and "ids" (of 32 tokens). */
static void save_model(const char *folder, const char *more)
{
    small_run r;
    bk_err e = {0};
    bk_checkpoint_dir *d = NULL;
    const bk_checkpoint_state at = {.iteration = 3, .consumed_samples = 6};
    small_run_graphs(&r, more, 1, BK_F32);
    small_run_open(&r);
    must(bk_checkpoint_dir_open(&d, folder, 0, &r.c, &e), &e);
    must(bk_checkpoint_save(d, &r.session, &at, &r.c, &e), &e);
    bk_checkpoint_dir_close(d);
    small_run_close(&r);
}

static int enter_with_models(void **state)
{
    if (enter_new_folder(state) != 0) return -1;
    /* Options that only go with --save are no hindrance to whoever loads. */
    save_model(
        "bytes",
        "vocab_size: 257\nseq_length: 40\nembedding_init_method_std: 1\nsave: bytes\nsave_interval: 5\n"
        "save_keep: 2\n");
    save_model("ids", "embedding_init_method_std: 1\n");
    return 0;
}

typedef struct {
    char text[1024];
    size_t n;
} taken;

static bk_status take_byte(void *ctx, int32_t token, bk_err *e)
{
    taken *t = ctx;
    (void)e;
    if (token < 256) t->text[t->n++] = (char)token;
    return BK_OK;
}

/* What the library generates from the checkpoint in "bytes", the prompt in front and a line end behind. */
static void expected_text(taken *out, const char *prompt, int64_t n_tokens, bk_sampling sampling)
{
    bk_checkpoint *k = NULL;
    bk_config c;
    bk_session s = {0};
    bk_generator gen;
    bk_err e = {0};
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    const bk_generate_options o = {
        .n_tokens = n_tokens, .stop = 256, .sampling = sampling, .ctx = out, .token = take_byte};
    int32_t tokens[64];
    int64_t n = 0;
    *out = (taken){.n = 0};
    for (; prompt[n]; n++) tokens[n] = (unsigned char)prompt[n], out->text[out->n++] = prompt[n];
    must(bk_checkpoint_open(&k, "bytes", BK_UNSET_COUNT, &e), &e);
    must(bk_checkpoint_config(&c, k, &e), &e);
    must(bk_generator_add(&gen, &s, &c, BK_F32, &e), &e);
    must(bk_session_plan(&s, &target, &e), &e);
    must(bk_session_open(&s, BK_UNSET_COUNT, &e), &e);
    must(bk_checkpoint_load(k, &s, BK_CHECKPOINT_WEIGHTS, &e), &e);
    must(bk_generate(&gen, tokens, n, &o, &e), &e);
    if (out->text[out->n - 1] != '\n') out->text[out->n++] = '\n';
    bk_generator_free(&gen);
    bk_session_close(&s);
    bk_config_free(&c);
    bk_checkpoint_close(k);
}

/* All bytes of a run that must succeed. */
static void run_bytes(taken *out, const char *const *args)
{
    exe_result r;
    run_exe(&r, args);
    if (r.rc != 0) fail_msg("exit code %d: %s", r.rc, r.err);
    assert_string_equal(r.err, "");
    FILE *f = fopen(".stdout", "rb");
    assert_non_null(f);
    out->n = fread(out->text, 1, sizeof out->text, f);
    fclose(f);
}

static void test_generate_exe__prints_what_the_library_generates(void **state)
{
    (void)state;
    taken want, got;
    const char *prompt = "int main(\xff";
    expected_text(&want, prompt, 100,
                  (bk_sampling){.temperature = 0.8, .top_k = 40, .top_p = 0.9, .seed = 5});
    run_bytes(&got, ARGS("generate", "--load", "bytes", "--prompt", prompt, "--num-tokens-to-generate", "100",
                         "--temperature", "0.8", "--top-k=40", "--top-p", "0.9", "--seed", "5", "--iteration",
                         "3"));
    assert_true(want.n > 20);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.text, want.text, want.n);
    run_bytes(&got, ARGS("generate", "--load", "bytes", "--prompt", prompt, "--num-tokens-to-generate", "100",
                         "--temperature", "0.8", "--top-k=40", "--top-p", "0.9", "--seed", "6"));
    assert_true(got.n != want.n || memcmp(got.text, want.text, want.n) != 0);
}

static void test_generate_exe__needs_no_prompt(void **state)
{
    (void)state;
    taken a, b;
    run_bytes(&a, ARGS("generate", "--load", "bytes", "--num-tokens-to-generate", "9", "--temperature", "0"));
    run_bytes(&b, ARGS("generate", "--load", "bytes", "--num-tokens-to-generate", "9", "--temperature", "0",
                       "--prompt-tokens", "256"));
    assert_true(a.n > 1);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.text, b.text, a.n);
}

static void test_generate_exe__other_vocabularies_are_ids(void **state)
{
    (void)state;
    exe_result r;
    int id, n = 0, used;
    run_exe(&r,
            ARGS("generate", "--load", "ids", "--prompt-tokens", "5,0,31", "--num-tokens-to-generate", "12"));
    if (r.rc != 0) fail_msg("exit code %d: %s", r.rc, r.err);
    assert_int_equal(strncmp(r.out, "5 0 31 ", 7), 0);
    for (const char *at = r.out; sscanf(at, "%d%n", &id, &used) == 1; at += used, n++)
        assert_in_range(id, 0, 31);
    assert_int_equal(n, 15);
    assert_int_equal(r.out[strlen(r.out) - 1], '\n');
}

static void test_generate_exe__refuses_in_one_line(void **state)
{
    (void)state;
#define REFUSED(part, ...) expect_refusal(2, ARGS("generate", __VA_ARGS__), (const char *const[]){part, NULL})
    REFUSED("--load DIR", "--prompt", "x");
    REFUSED("nowhere", "--load", "nowhere");
    REFUSED("iter_0000004", "--load", "bytes", "--iteration", "4");
    REFUSED("--iteration -1", "--load", "bytes", "--iteration=-1");
    REFUSED("the checkpoint holds the configuration", "--load", "bytes", "--lr", "1");
    REFUSED("prompt", "--load", "bytes", "--promt", "x");
    REFUSED("two prompts", "--load", "bytes", "--prompt", "x", "--prompt-tokens", "1");
    REFUSED("are not bytes", "--load", "ids", "--prompt", "x");
    REFUSED("needs a token to begin with", "--load", "ids");
    REFUSED("'32,1'", "--load", "ids", "--prompt-tokens", "1,32,1");
    REFUSED("'' does not", "--load", "ids", "--prompt-tokens", "1,");
    REFUSED("'x' does not", "--load", "ids", "--prompt-tokens", "x");
    REFUSED("--num-tokens-to-generate 1.5", "--load", "bytes", "--num-tokens-to-generate", "1.5");
    REFUSED("--temperature hot", "--load", "bytes", "--temperature", "hot");
    REFUSED("temperature -1", "--load", "bytes", "--temperature=-1");
    REFUSED("--top-k -3", "--load", "bytes", "--top-k=-3");
    REFUSED("top-p 0", "--load", "bytes", "--top-p", "0");
#undef REFUSED
}

static void test_generate_exe__lost_output_is_a_failure(void **state)
{
    (void)state;
    exe_result r;
    run_exe_to(&r, "/dev/full", ARGS("generate", "--load", "bytes", "--prompt", "x"));
    assert_int_equal(r.rc, 1);
    expect_contains(r.err, (const char *const[]){"birkhoff: cannot write to the standard output", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate_exe__prints_what_the_library_generates),
        cmocka_unit_test(test_generate_exe__needs_no_prompt),
        cmocka_unit_test(test_generate_exe__other_vocabularies_are_ids),
        cmocka_unit_test(test_generate_exe__refuses_in_one_line),
        cmocka_unit_test(test_generate_exe__lost_output_is_a_failure),
    };
    return cmocka_run_group_tests(tests, enter_with_models, remove_folder);
}
