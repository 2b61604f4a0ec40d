/* birkhoff train: runs the loop, with its screen, its metrics files and its signals. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/train_screen.h"
#include "config/option.h"
#include "train/metrics.h"

typedef struct {
    const bk_run *run;
    bk_train_screen screen;
    bk_metrics metrics;
} job;

/* Nothing where no layer has anything to tell. */
static bk_status write_health(job *j, const bk_step_report *r, bk_err *e)
{
    bk_health_values v = {.iteration = r->iteration, .n_samples = r->n_samples};
    bk_status st = bk_health_read(&v.health, r->metrics, e);
    if (st == BK_OK && v.health.n > 0) st = bk_metrics_health(&j->metrics, &v, e);
    bk_health_free(&v.health);
    return st;
}

static bk_status step(void *ctx, const bk_step_report *r, bk_err *e)
{
    job *j = ctx;
    bk_train_screen_step(&j->screen, r);
    const bk_step_values values = {.iteration = r->iteration,
                                   .n_samples = r->n_samples,
                                   .batch_size = j->run->layout.global_batch,
                                   .loss = r->loss,
                                   .grad_norm = r->grad_norm,
                                   .learning_rate = r->learning_rate,
                                   .next_learning_rate = r->next_learning_rate,
                                   .tokens_per_s = (double)r->n_tokens / r->seconds,
                                   .tflops = 2e-12 * (double)r->madds / r->seconds,
                                   .seconds = r->seconds,
                                   .metrics = r->metrics};
    const bk_status st = bk_metrics_step(&j->metrics, &values, e);
    return st == BK_OK && r->measured ? write_health(j, r, e) : st;
}

static bk_status evaluated(void *ctx, int64_t iteration, double loss, double seconds, bk_err *e)
{
    (void)seconds;
    job *j = ctx;
    const bk_evaluation_values values = {
        .iteration = iteration, .n_samples = j->run->state.consumed_samples, .loss = loss};
    bk_train_screen_evaluated(&j->screen, loss);
    return bk_metrics_evaluation(&j->metrics, &values, e);
}

static bk_status made_room(void *ctx, const bk_room_values *v, bk_err *e)
{
    job *j = ctx;
    bk_train_screen_room(&j->screen, v);
    return bk_metrics_room(&j->metrics, v, e);
}

/* ---- how to go on ----------------------------------------------------------------------------------------
 */

static void print_shell_word(const char *word)
{
    const bool plain =
        word[0] && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+") ==
                       strlen(word);
    if (plain) {
        printf(" %s", word);
        return;
    }
    printf(" '");
    for (const char *x = word; *x; x++) printf(*x == '\'' ? "'\\''" : "%c", *x);
    putchar('\'');
}

/* Whether the argument is a flag that says what to load, in whatever spelling. */
static bool says_what_to_load(const char *arg)
{
    char name[BK_OPTION_NAME_LEN];
    bk_option_id id;
    bool negated;
    if (strncmp(arg, "--", 2) != 0) return false;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
    return bk_option_find(&id, &negated, name) && (id == BK_OPT_load || id == BK_OPT_ckpt_step);
}

/* The arguments again, as a shell takes them, with what was saved in place of what was loaded. */
static void print_resume(const bk_config *c, int argc, char *const *argv)
{
    printf("resume with:");
    print_shell_word(bk_cli_program);
    printf(" train");
    for (int k = 0; k < argc; k++) {
        if (!says_what_to_load(argv[k]))
            print_shell_word(argv[k]);
        else if (!strchr(argv[k], '='))
            k++; /* its value */
    }
    printf(" --load");
    print_shell_word(c->save);
    /* A step that the file names is not meant for what this run has saved. */
    puts(c->ckpt_step == BK_UNSET_COUNT ? "" : " --ckpt-step none");
}

static void print_how_to_go_on(const bk_config *c, const bk_end_report *end, int argc, char *const *argv)
{
    if (end->saved)
        print_resume(c, argc, argv);
    else
        puts("nothing was saved; give --save DIR to keep what a run has learnt");
}

/* ---- signals --------------------------------------------------------------------------------------------
 */

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

/* The first signal is noted, the second one ends the process at once. Output that is under way goes on. */
static void listen(int number)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    sigaction(number, &a, NULL);
}

static bool stopped(void *ctx)
{
    (void)ctx;
    return stop_signal != 0;
}

int bk_cli_train(int argc, char *const *argv)
{
    bk_config c;
    bk_err e = {0};
    bk_run run = {0};
    bk_end_report end = {0};
    bk_flag own[] = {{.name = "config", .takes_value = true}};
    bk_status st = bk_cli_config(&c, own, 1, argc, argv, &e);
    job j = {.run = &run};
    const bk_train_log log = {
        .ctx = &j, .step = step, .evaluated = evaluated, .made_room = made_room, .stop = stopped};
    if (st != BK_OK) goto done;
    BK_TRY(bk_run_open(&run, &c, &e));
    BK_TRY(bk_metrics_open(&j.metrics, &c, run.state.iteration + 1, &e));
    bk_train_screen_begin(&j.screen, &run);
    listen(SIGINT), listen(SIGTERM);
    BK_TRY(bk_train(&end, &run, &log, &e));
    BK_TRY(bk_metrics_close(&j.metrics, &e));
    bk_progress_clear(&j.screen.progress);
    if (end.end == BK_END_DONE) BK_TRY(bk_train_screen_sample(&run, &e));
    bk_train_screen_end(&j.screen, &end);
    if (end.end != BK_END_DONE) print_how_to_go_on(&c, &end, argc, argv);
done:
    bk_progress_clear(&j.screen.progress);
    bk_metrics_close(&j.metrics, NULL);
    bk_run_close(&run);
    bk_config_free(&c);
    if (st == BK_OK && end.end == BK_END_STOPPED && !end.saved) return 128 + stop_signal;
    return bk_cli_report(st, &e);
}
