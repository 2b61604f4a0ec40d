/* birkhoff train from outside: its output, and every kind of text that cannot be trained on. */
#include "cli/run_exe.h"

#include <pty.h>

static const char *const small =
    "num_layers: 1\nhidden_size: 16\nnum_attention_heads: 2\nffn_hidden_size: 32\n"
    "seq_length: 8\nvocab_size: 257\nmake_vocab_size_divisible_by: 1\n"
    "position_embedding_type: rope\nenable_mhc_connections: true\n"
    "mhc_num_residual_streams: 2\ntrain_iters: 4\nlr: 0.01\neval_iters: 1\n";

/* 64 words of 8 characters. */
static void put_text(const char *path)
{
    char text[64 * 8 + 1];
    for (unsigned i = 0; i < 64; i++) snprintf(text + 8 * i, 9, "word %02u\n", i % 100);
    put(path, text);
}

static int enter(void **state)
{
    const int rc = enter_new_folder(state);
    put("small.yaml", small);
    put_text("text");
    return rc;
}

#define TRAIN "train", "--config", "small.yaml"
#define TEXT  TRAIN, "--data-path", "text"

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++) n++;
    return n;
}

/* Plain lines when the output is no terminal: no control characters, one header, one closing line. */
static void test_train_exe__prints_plain_lines(void **state)
{
    (void)state;
    exe_result r;
    run_exe(&r, ARGS(TEXT, "--split", "80,20", "--log-interval", "2", "--eval-interval", "3"));
    assert_int_equal(r.rc, 0);
    assert_string_equal(r.err, "");
    expect_contains(r.out, ARGS("model   1 layer, width 16, 2 heads",
                                "mHC     2 residual streams around 2 sublayers",
                                "data    text: 1 document, 410 tokens for training, 103 for validation\n",
                                "batch   8 tokens: 1 sample of 8 in 1 micro-batch; 4 steps\n",
                                "a bigram model ", "\nsample  ", "memory  ", "step      loss  grad norm",
                                "\ndone    4 steps in 0:", ", loss ", ", validation loss "));
    assert_null(strpbrk(r.out, "\r\033\b"));
    assert_int_equal(count(r.out, "  validation\n"), 2);
    for (int step = 1; step <= 4; step++) {
        char start[16];
        snprintf(start, sizeof start, "\n%8d  ", step);
        const int lines = step == 4 ? 2 : 1; /* 4: its own and validation; 3: validation alone */
        assert_int_equal(count(r.out, start), lines);
    }
    assert_int_equal(count(r.out, "done "), 1);
}

/* Runs a training of four steps on a terminal of some columns; gives all that it wrote. */
static void run_on_terminal(char *out, size_t size, const char *term, unsigned short columns)
{
    int terminal, status;
    const struct winsize window = {.ws_row = 24, .ws_col = columns};
    const pid_t child = forkpty(&terminal, NULL, NULL, &window);
    assert_true(child >= 0);
    if (child == 0) {
        setenv("TERM", term, 1);
        setenv("OMP_WAIT_POLICY", "passive", 1);
        alarm(EXE_MAX_SECONDS);
        execl(BK_EXE, BK_EXE, TEXT, "--log-interval", "2", (char *)NULL);
        _exit(127);
    }
    size_t n = 0;
    for (ssize_t got; n + 1 < size && (got = read(terminal, out + n, size - 1 - n)) > 0;) n += (size_t)got;
    out[n] = '\0';
    close(terminal);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The bar is wiped before each line and when the run ends, and never fills the last column. */
static void test_train_exe__draws_a_bar_on_a_terminal(void **state)
{
    (void)state;
    char out[16384];
    run_on_terminal(out, sizeof out, "xterm", 80);
    expect_contains(out, ARGS("\r\033[K[........", "   0%  0/4  first step  ETA -:--", "\r\033[K       1  ",
                              "  25%  1/4  loss ", "\r\033[K       4  ", "\r\033[K\r\nsample  ",
                              "\r\ndone    4 steps"));
    run_on_terminal(out, sizeof out, "xterm", 24);
    expect_contains(out, ARGS("\r\033[K  0%  0/4  first step "));
    for (const char *at = strstr(out, "\r\033[K"), *next; at; at = next) {
        next = strstr(at + 4, "\r\033[K");
        if (strcspn(at + 4, "%") < 4) assert_true(next && next - (at + 4) <= 23);
    }
    run_on_terminal(out, sizeof out, "dumb", 80);
    assert_null(strchr(out, '\033'));
    expect_contains(out, ARGS("done    4 steps"));
}

static void test_train_exe__says_when_there_is_no_validation(void **state)
{
    (void)state;
    exe_result r;
    run_exe(&r, ARGS(TEXT, "--split", "1,0,0"));
    assert_int_equal(r.rc, 0);
    expect_contains(r.out, ARGS("513 tokens for training, no validation\n", "\ndone    4 steps"));
    assert_null(strstr(r.out, "validation loss"));
    run_exe(&r, ARGS(TEXT, "--train-iters", "0"));
    assert_int_equal(r.rc, 0);
    expect_contains(r.out, ARGS("; 0 steps\n", "\ndone    0 steps in 0:00\n"));
}

static void test_train_exe__names_what_it_could_not_read(void **state)
{
    (void)state;
    exe_result r;
    assert_int_equal(mkdir("folder", 0777), 0);
    put_text("folder/a");
    assert_int_equal(symlink("nowhere", "folder/dangling"), 0);
    run_exe(&r, ARGS(TRAIN, "--data-path", "folder"));
    assert_int_equal(r.rc, 0);
    expect_contains(
        r.out, ARGS("data    folder: 1 document", "1 could not be read; the first: folder/dangling: No"));
}

static void test_train_exe__memory_is_refused_before_it_is_taken(void **state)
{
    (void)state;
    expect_refusal(1, ARGS("train", "--memory-limit", "1M"),
                   ARGS("the plan needs ", " MiB (", " bytes) of memory",
                        "1.00 MiB are allowed by memory_limit",
                        "lower micro_batch_size, seq_length or num_layers"));
    /* More than any machine has: the same sentence, and no attempt. */
    expect_refusal(1, ARGS(TEXT, "--micro-batch-size", "16000000", "--seq-length", "256"),
                   ARGS("the plan needs ", " TiB (", "are available", "lower micro_batch_size"));
}

static void test_train_exe__paths_that_cannot_be_read(void **state)
{
    (void)state;
    expect_refusal(1, ARGS(TRAIN, "--data-path", "absent"), ARGS("'absent'", "No such file"));
    expect_refusal(1, ARGS(TRAIN, "--data-path", "text", "absent"), ARGS("'absent'", "No such file"));
    expect_refusal(2, ARGS(TRAIN, "--data-path"), ARGS("--data-path needs a value"));
    assert_int_equal(mkfifo("pipe", 0666), 0);
    expect_refusal(2, ARGS(TRAIN, "--data-path", "pipe"), ARGS("'pipe' is neither a file nor a folder"));
    put_text("secret");
    assert_int_equal(chmod("secret", 0), 0);
    if (access("secret", R_OK) == 0) return; /* root reads everything */
    expect_refusal(1, ARGS(TRAIN, "--data-path", "secret"), ARGS("'secret'", "Permission denied"));
}

static void test_train_exe__texts_that_are_too_short(void **state)
{
    (void)state;
    put("empty", "");
    expect_refusal(2, ARGS(TRAIN, "--data-path", "empty"), ARGS("file 'empty' is empty"));
    put("short", "1234567"); /* eight tokens with the end mark, nine are needed */
    expect_refusal(2, ARGS(TRAIN, "--data-path", "short"), ARGS("8 tokens are too few", "sequence of 8"));
    assert_int_equal(mkdir("folder", 0777), 0);
    expect_refusal(2, ARGS(TRAIN, "--data-path", "folder"), ARGS("folder 'folder' holds no text"));
    put("folder/a", ""), put("folder/b", "");
    expect_refusal(2, ARGS(TRAIN, "--data-path", "folder"), ARGS("folder 'folder' holds no text"));
}

/* The shortest text that makes a sample. */
static void test_train_exe__one_sample_is_enough(void **state)
{
    (void)state;
    exe_result r;
    put("short", "12345678");
    run_exe(&r, ARGS(TRAIN, "--data-path", "short", "--split", "1", "--micro-batch-size", "3"));
    assert_int_equal(r.rc, 0);
    expect_contains(r.out, ARGS("9 tokens for training", "done    4 steps"));
}

static void test_train_exe__a_split_without_training(void **state)
{
    (void)state;
    expect_refusal(2, ARGS(TEXT, "--split", "0,1,0"), ARGS("no training data", "split '0,1,0'"));
    expect_refusal(2, ARGS(TEXT, "--split", "1,9998,1"), ARGS("no training data", "split '1,9998,1'"));
}

static void test_train_exe__a_vocabulary_below_bytes(void **state)
{
    (void)state;
    expect_refusal(2, ARGS(TEXT, "--vocab-size", "256"), ARGS("vocab_size 256", "set vocab_size to 257"));
}

/* The header stands, the steps done are shown, and the error names the step. */
static void test_train_exe__a_loss_that_is_not_finite_fails_the_run(void **state)
{
    (void)state;
    exe_result r;
    run_exe(&r,
            ARGS(TEXT, "--lr", "1000", "--weight-decay", "1", "--train-iters", "50", "--log-interval", "1"));
    assert_int_equal(r.rc, 1);
    expect_contains(r.out, ARGS("model   1 layer", "\n       1  "));
    assert_null(strstr(r.out, "done "));
    int step, end = 0;
    assert_int_equal(sscanf(r.err, "birkhoff: step %d: the %n", &step, &end), 1);
    assert_true(end > 0 && step > 1 && step < 50);
    expect_contains(r.err, ARGS("ower lr or clip_grad"));
    assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
    char next[16];
    snprintf(next, sizeof next, "\n%8d  ", step);
    assert_null(strstr(r.out, next));
}

/* The command can be pasted into a shell, whatever the folder's name. */
static void test_train_exe__prints_how_to_resume(void **state)
{
    (void)state;
    exe_result r;
    run_exe(&r, ARGS(TEXT, "--save", "it's", "--exit-duration-in-mins", "1e-9"));
    assert_int_equal(r.rc, 0);
    expect_contains(r.out, ARGS("\ntime is up 1 step", "\nsaved   it's/iter_0000001\n",
                                " --save 'it'\\''s' --exit-duration-in-mins 1e-9 --load 'it'\\''s'\n"));
}

/* A run that has no step left saves nothing, and says so where its folder is not the one it loaded from. */
static void test_train_exe__does_not_claim_what_it_did_not_save(void **state)
{
    (void)state;
    exe_result r;
    run_exe(&r, ARGS(TEXT, "--save", "a"));
    assert_int_equal(r.rc, 0);
    expect_contains(r.out, ARGS("\nsaved   a/iter_0000004\n"));
    run_exe(&r, ARGS(TEXT, "--load", "a", "--save", "a"));
    assert_int_equal(r.rc, 0);
    expect_contains(r.out, ARGS("\nsaved   a/iter_0000004\n"));
    run_exe(&r, ARGS(TEXT, "--load", "a", "--save", "b"));
    assert_int_equal(r.rc, 0);
    assert_null(strstr(r.out, "\nsaved "));
    assert_int_equal(access("b/iter_0000004", F_OK), -1);
}

/* The printed numbers, without the measured ones, are those of any number of threads. */
static void test_train_exe__deterministic_whatever_the_threads(void **state)
{
    (void)state;
    static const char *const threads[] = {"1", "2", "3"};
    char first[2048] = "", line[256];
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        exe_result r;
        char shown[2048] = "";
        setenv("OMP_NUM_THREADS", threads[k], 1);
        run_exe(&r, ARGS(TEXT, "--deterministic", "--hidden-size", "128", "--micro-batch-size", "4",
                         "--seq-length", "32", "--log-interval", "1", "--train-iters", "6"));
        unsetenv("OMP_NUM_THREADS");
        assert_int_equal(r.rc, 0);
        for (const char *at = strstr(r.out, "\n       "); at; at = strstr(at + 1, "\n       ")) {
            snprintf(line, sizeof line, "%.41s", at);
            strncat(shown, line, sizeof shown - strlen(shown) - 1);
        }
        assert_true(strlen(shown) > 6 * 40);
        if (k == 0)
            memcpy(first, shown, sizeof first);
        else
            assert_string_equal(shown, first);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_train_exe__##name, enter, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(prints_plain_lines),
        TEST(draws_a_bar_on_a_terminal),
        TEST(says_when_there_is_no_validation),
        TEST(names_what_it_could_not_read),
        TEST(memory_is_refused_before_it_is_taken),
        TEST(paths_that_cannot_be_read),
        TEST(texts_that_are_too_short),
        TEST(one_sample_is_enough),
        TEST(a_split_without_training),
        TEST(a_vocabulary_below_bytes),
        TEST(a_loss_that_is_not_finite_fails_the_run),
        TEST(prints_how_to_resume),
        TEST(does_not_claim_what_it_did_not_save),
        TEST(deterministic_whatever_the_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
