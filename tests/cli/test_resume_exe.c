/* birkhoff train from outside: how a run is stopped, what it says then, and how it goes on. */
#include "cli/run_exe.h"

#include <signal.h>
#include <sys/ioctl.h>

/* Ninety lines of output for each hundred steps. */
static const char *const small =
    "num_layers: 1\nhidden_size: 16\nnum_attention_heads: 2\nffn_hidden_size: 32\n"
    "seq_length: 8\nvocab_size: 257\nmake_vocab_size_divisible_by: 1\n"
    "position_embedding_type: rope\nenable_mhc_connections: true\nmhc_num_residual_streams: 2\n"
    "hidden_dropout: 0.1\nattention_dropout: 0.1\ndata_path: text\nsplit: 90,10\nmicro_batch_size: 2\n"
    "global_batch_size: 4\nlr: 0.01\nlr_decay_style: cosine\nlog_interval: 1\neval_interval: 25\n"
    "eval_iters: 2\n";

static int enter(void **state)
{
    char text[64 * 8 + 1];
    const int rc = enter_new_folder(state);
    for (unsigned i = 0; i < 64; i++) snprintf(text + 8 * i, 9, "word %02u\n", i % 100);
    put("text", text);
    put("small.yaml", small);
    return rc;
}

#define TRAIN "train", "--config", "small.yaml", "--train-iters", "100"

/* ---- a run that stands still ----------------------------------------------------------------------------
 *
 * It prints into a pipe of one page that nobody reads: after some forty lines it waits in the middle of a
 * step's report, until the test reads on. So a signal reaches it while it trains, on machines of any speed.
 */

typedef struct {
    pid_t pid;
    int pipe;
} halted;

static const int page = 4096;

static void pause_a_little(void)
{
    usleep(5000);
}

static void start_halted(halted *h, const char *const *args)
{
    unlink("pipe");
    assert_int_equal(mkfifo("pipe", 0666), 0);
    h->pipe = open("pipe", O_RDONLY | O_NONBLOCK);
    assert_true(h->pipe >= 0);
    if (fcntl(h->pipe, F_SETPIPE_SZ, page) > page) {
        print_message(
            "test_resume_exe: the pages of this machine are too large for a run that stands still\n");
        skip();
    }
    fflush(NULL);
    h->pid = fork();
    assert_true(h->pid >= 0);
    if (h->pid == 0) become_exe(args, "pipe");
    for (int held = 0; held < page - 100; pause_a_little()) { /* no line is longer */
        int status;
        assert_int_equal(ioctl(h->pipe, FIONREAD, &held), 0);
        if (waitpid(h->pid, &status, WNOHANG) != 0) fail_msg("it ended with status %d", status);
    }
}

/* Reads what it prints, and waits for its end. */
static void let_end(exe_result *r, const halted *h)
{
    size_t n = 0;
    int status;
    assert_int_equal(fcntl(h->pipe, F_SETFL, 0), 0); /* reads wait again */
    for (ssize_t got; n + 1 < sizeof r->out && (got = read(h->pipe, r->out + n, sizeof r->out - 1 - n)) > 0;)
        n += (size_t)got;
    r->out[n] = '\0';
    close(h->pipe);
    assert_int_equal(waitpid(h->pid, &status, 0), h->pid);
    r->rc = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    slurp(r->err, sizeof r->err, ".stderr");
}

static void expect_rc(const exe_result *r, int rc)
{
    if (r->rc != rc) fail_msg("exit code %d, not %d: %s%s", r->rc, rc, r->out, r->err);
}

/* ---- what a run leaves ----------------------------------------------------------------------------------
 */

static void assert_same_checkpoint(const char *folder, const char *other, int iteration)
{
    static char a[1 << 20], b[1 << 20];
    char path[256];
    snprintf(path, sizeof path, "%s/iter_%07d/model.safetensors", folder, iteration);
    slurp(a, sizeof a, path);
    snprintf(path, sizeof path, "%s/iter_%07d/model.safetensors", other, iteration);
    slurp(b, sizeof b, path);
    assert_memory_equal(a, b, sizeof a);
}

/* The number behind these words. */
static int number_after(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    if (!at) fail_msg("'%s' is not in: %s", words, text);
    return atoi(at + strlen(words));
}

/* Runs the command that a stopped run printed, as someone would who copies it into a shell. */
static void run_resume_command(exe_result *r, const char *printed)
{
    static const char words[] = "\nresume with: ";
    char command[8192], folder[] = BK_EXE;
    const char *at = strstr(printed, words);
    if (!at) fail_msg("no command to resume in: %s", printed);
    at += strlen(words);
    *strrchr(folder, '/') = '\0';
    snprintf(command, sizeof command,
             "PATH='%s':$PATH; OMP_WAIT_POLICY=passive; export OMP_WAIT_POLICY; "
             "{ %.*s; } >.stdout 2>.stderr",
             folder, (int)strcspn(at, "\n"), at);
    const int status = system(command);
    assert_true(WIFEXITED(status));
    r->rc = WEXITSTATUS(status);
    slurp(r->out, sizeof r->out, ".stdout");
    slurp(r->err, sizeof r->err, ".stderr");
}

/* Lines "   <step>  <loss>  <grad norm>  <lr>" of a run, without what was measured. */
static void expect_lines_of(const char *whole, const char *part, int from)
{
    for (int i = from; i <= 100; i++) {
        char start[16], line[64];
        snprintf(start, sizeof start, "\n%8d  ", i);
        const char *at = strstr(whole, start);
        assert_non_null(at);
        snprintf(line, sizeof line, "%.41s", at);
        if (!strstr(part, line)) fail_msg("the line%s is not in: %s", line, part);
    }
}

/* ---- signals --------------------------------------------------------------------------------------------
 */

static void expect_stopped_and_resumed(int number, const char *folder)
{
    exe_result whole, r, rest;
    halted h;
    run_exe(&whole, ARGS(TRAIN, "--save", "whole"));
    expect_rc(&whole, 0);
    start_halted(&h, ARGS(TRAIN, "--save", folder));
    kill(h.pid, number);
    let_end(&r, &h);
    expect_rc(&r, 0);
    assert_string_equal(r.err, "");
    const int step = number_after(r.out, "\nstopped ");
    assert_in_range(step, 10, 90);
    char saved[512];
    snprintf(saved, sizeof saved, "\nsaved   %s/iter_%07d\n", folder, step);
    expect_contains(r.out, ARGS(saved));
    assert_null(strstr(r.out, "\nsample  "));
    run_resume_command(&rest, r.out);
    expect_rc(&rest, 0);
    char resumed[512];
    snprintf(resumed, sizeof resumed, "\nresume  %s after step %d\n", folder, step);
    expect_contains(rest.out, ARGS(resumed, "\ndone    100 steps"));
    assert_null(strstr(rest.out, "options that differ"));
    expect_lines_of(whole.out, rest.out, step + 1);
    assert_same_checkpoint("whole", folder, 100);
}

static void test_resume_exe__sigterm_saves_and_tells_how_to_go_on(void **state)
{
    (void)state;
    expect_stopped_and_resumed(SIGTERM, "stopped");
}

/* The printed command is for a shell, whatever is in its words. */
static void test_resume_exe__sigint_with_odd_names(void **state)
{
    (void)state;
    expect_stopped_and_resumed(SIGINT, "it's \"saved\" in $HOME; `here`");
}

static void test_resume_exe__a_signal_with_nothing_saved(void **state)
{
    (void)state;
    static const int numbers[] = {SIGTERM, SIGINT};
    for (int k = 0; k < 2; k++) {
        exe_result r;
        halted h;
        start_halted(&h, ARGS(TRAIN));
        kill(h.pid, numbers[k]);
        let_end(&r, &h);
        expect_rc(&r, 128 + numbers[k]);
        expect_contains(r.out, ARGS("\nstopped ", "nothing was saved; give --save DIR"));
        assert_null(strstr(r.out, "resume with"));
    }
}

/* Who sends it twice does not want to wait. The folder can be used again. */
static void test_resume_exe__the_second_signal_ends_at_once(void **state)
{
    (void)state;
    exe_result r;
    halted h;
    int status = 0;
    start_halted(&h, ARGS(TRAIN, "--save", "ck"));
    while (waitpid(h.pid, &status, WNOHANG) == 0) kill(h.pid, SIGTERM), pause_a_little();
    close(h.pipe);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_int_not_equal(access("ck/latest_checkpointed_iteration.txt", F_OK), 0);
    run_exe(&r, ARGS(TRAIN, "--save", "ck", "--train-iters", "2"));
    expect_rc(&r, 0);
}

/* Where the first command named a step or a folder to load, in whatever spelling, the next one does not. */
static void test_resume_exe__a_resumed_run_is_resumed(void **state)
{
    (void)state;
    exe_result whole, r, rest;
    halted h;
    run_exe(&whole, ARGS(TRAIN, "--save", "whole", "--save-interval", "10"));
    expect_rc(&whole, 0);
    put("more.yaml", small);
    FILE *f = fopen("more.yaml", "a");
    assert_non_null(f);
    fputs("load: whole\nckpt_step: 20\nsave: stopped\ntrain_iters: 100\n", f);
    assert_int_equal(fclose(f), 0);
    const char *const *const commands[] = {
        ARGS(TRAIN, "--load", "whole", "--ckpt-step=20", "--save", "stopped"),
        ARGS(TRAIN, "--load=whole", "--ckpt_step", "20", "--save", "stopped"),
        ARGS("train", "--config", "more.yaml"),
    };
    for (size_t k = 0; k < sizeof commands / sizeof *commands; k++) {
        start_halted(&h, commands[k]);
        kill(h.pid, SIGTERM);
        let_end(&r, &h);
        expect_rc(&r, 0);
        assert_in_range(number_after(r.out, "\nstopped "), 21, 95);
        run_resume_command(&rest, r.out);
        expect_rc(&rest, 0);
        assert_int_equal(number_after(rest.out, "\nresume  stopped after step "),
                         number_after(r.out, "\nstopped "));
        assert_same_checkpoint("whole", "stopped", 100);
        char name[32];
        snprintf(name, sizeof name, "stopped_%zu", k);
        assert_int_equal(rename("stopped", name), 0);
    }
}

/* ---- time -----------------------------------------------------------------------------------------------
 */

static void test_resume_exe__time_is_up(void **state)
{
    (void)state;
    exe_result r, rest;
    run_exe(&r,
            ARGS("train", "--config", "small.yaml", "--train-iters", "100000000", "--log-interval", "100000",
                 "--eval-interval", "1000000", "--exit-duration-in-mins", "0.01", "--save", "ck"));
    expect_rc(&r, 0);
    const int step = number_after(r.out, "\ntime is up ");
    assert_true(step >= 1);
    run_resume_command(&rest, r.out);
    expect_rc(&rest, 0);
    assert_int_equal(number_after(rest.out, "\nresume  ck after step "), step);
    assert_true(number_after(rest.out, "\ntime is up ") > step);
    run_exe(&r, ARGS(TRAIN, "--exit-duration-in-mins", "1e-9"));
    expect_rc(&r, 0);
    expect_contains(r.out, ARGS("\ntime is up 1 step ", "nothing was saved"));
}

/* ---- folders --------------------------------------------------------------------------------------------
 */

static void test_resume_exe__one_run_saves_into_a_folder(void **state)
{
    (void)state;
    exe_result r;
    halted h;
    char who[64];
    start_halted(&h, ARGS(TRAIN, "--save", "ck"));
    snprintf(who, sizeof who, "ck: another run (process %ld) saves into this folder", (long)h.pid);
    expect_refusal(2, ARGS(TRAIN, "--save", "ck"), ARGS(who, "wait for it", "--save"));
    let_end(&r, &h);
    expect_rc(&r, 0);
    expect_contains(r.out, ARGS("\nsaved   ck/iter_0000100\n"));
    expect_refusal(2, ARGS(TRAIN, "--save", "ck"),
                   ARGS("it has the checkpoint iter_0000100", "go on from that one with --load ck"));
}

static void test_resume_exe__shows_which_options_differ(void **state)
{
    (void)state;
    exe_result r;
    run_exe(&r, ARGS(TRAIN, "--save", "ck"));
    expect_rc(&r, 0);
    run_exe(&r, ARGS(TRAIN, "--load", "ck", "--lr", "0.003", "--train-iters", "102"));
    expect_rc(&r, 0);
    expect_contains(r.out,
                    ARGS("\nresume  ck after step 100\n        options that differ from the checkpoint's:\n",
                         "\n          lr 0.01 -> 0.003\n", "\n          train_iters 100 -> 102\n",
                         "\ndone    102 steps"));
    expect_refusal(2, ARGS(TRAIN, "--load", "ck", "--global-batch-size", "2"),
                   ARGS("100 steps consumed 400 samples", "global_batch_size 2"));
    /* Nothing is left to do, and nothing is claimed to be in a folder where it is not. */
    run_exe(&r, ARGS(TRAIN, "--load", "ck", "--save", "ck"));
    expect_rc(&r, 0);
    expect_contains(r.out, ARGS("\ndone    100 steps", "\nsaved   ck/iter_0000100\n"));
    run_exe(&r, ARGS(TRAIN, "--load", "ck", "--save", "other"));
    expect_rc(&r, 0);
    assert_null(strstr(r.out, "\nsaved "));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_resume_exe__##name, enter, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sigterm_saves_and_tells_how_to_go_on),
        TEST(sigint_with_odd_names),
        TEST(a_signal_with_nothing_saved),
        TEST(the_second_signal_ends_at_once),
        TEST(a_resumed_run_is_resumed),
        TEST(time_is_up),
        TEST(one_run_saves_into_a_folder),
        TEST(shows_which_options_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
