/* birkhoff train: a header, a line at intervals, validation losses, a closing line; on a terminal a bar below
 * them. */
#include <math.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "train/loop.h"

typedef struct {
    const bk_config *c;
    bk_progress progress;
    int64_t n_done;
    double step_loss;        /* of the last step */
    double loss, valid_loss; /* of the last line; NaN before it */
    /* Since the last line. */
    double loss_sum, seconds;
    int64_t n_steps, n_tokens, madds;
} screen;

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_model(const bk_run_report *r)
{
    const bk_config *c = r->config;
    char text[BK_HUMAN_LEN];
    printf("model   %lld layer%s, width %lld, %lld head%s, %s parameters", (long long)c->num_layers,
           plural(c->num_layers), (long long)c->hidden_size, (long long)c->num_attention_heads,
           plural(c->num_attention_heads), bk_human_count(text, r->n_params));
    if (c->enable_mhc_connections)
        printf(", %lld residual stream%s (mHC, %lld Sinkhorn iteration%s)",
               (long long)c->mhc_num_residual_streams, plural(c->mhc_num_residual_streams),
               (long long)c->mhc_sinkhorn_iterations, plural(c->mhc_sinkhorn_iterations));
    putchar('\n');
}

static void print_data(const bk_run_report *r)
{
    const bk_str_list *given = &r->config->data_path;
    char train[BK_HUMAN_LEN], valid[BK_HUMAN_LEN];
    if (given->n == 0)
        printf("data    " BK_DEFAULT_DATA_PATH " (" BK_DEFAULT_DATA_PATTERN ")");
    else
        printf("data    %s", given->items[0]);
    if (given->n > 1) printf(" and %lld more", (long long)given->n - 1);
    printf(": %lld file%s, %s tokens for training, ", (long long)r->text->n_files, plural(r->text->n_files),
           bk_human_count(train, r->n_train_tokens));
    if (r->n_valid_tokens > 0)
        printf("%s for validation\n", bk_human_count(valid, r->n_valid_tokens));
    else
        puts("no validation");
    if (r->text->n_unreadable > 0)
        printf("        %lld could not be read; the first: %s\n", (long long)r->text->n_unreadable,
               r->text->first_unreadable);
}

static void begin(void *ctx, const bk_run_report *r)
{
    screen *s = ctx;
    const bk_config *c = r->config;
    const int64_t n_micro = c->global_batch_size / c->micro_batch_size;
    char memory[BK_HUMAN_LEN];
    print_model(r);
    print_data(r);
    printf("batch   %lld sample%s of %lld tokens in %lld micro-batch%s, %lld step%s\n",
           (long long)c->global_batch_size, plural(c->global_batch_size), (long long)c->seq_length,
           (long long)n_micro, n_micro == 1 ? "" : "es", (long long)c->train_iters, plural(c->train_iters));
    printf("memory  %s planned\n\n", bk_human_bytes(memory, r->arena_bytes));
    printf("%8s  %8s  %9s  %9s  %8s  %8s  %7s\n", "step", "loss", "grad norm", "lr", "tokens/s", "GFLOP/s",
           "ETA");
    fflush(stdout);
    bk_progress_begin(&s->progress, c->train_iters);
    bk_progress_draw(&s->progress, 0, "first step");
}

static void draw(screen *s)
{
    char text[32];
    snprintf(text, sizeof text, "loss %.4f", s->step_loss);
    bk_progress_draw(&s->progress, s->n_done, text);
}

static void print_line(screen *s, const bk_step_report *r)
{
    char left[BK_CLOCK_LEN];
    s->loss = s->loss_sum / (double)s->n_steps;
    bk_progress_clear(&s->progress);
    printf("%8lld  %8.4f  %9.4f  %9.3e  %8.0f  %8.1f  %7s\n", (long long)r->iteration, s->loss, r->grad_norm,
           r->learning_rate, (double)s->n_tokens / s->seconds, 2e-9 * (double)s->madds / s->seconds,
           bk_progress_clock(left, bk_progress_left(&s->progress, r->iteration)));
    fflush(stdout);
    s->loss_sum = s->seconds = 0, s->n_steps = s->n_tokens = s->madds = 0;
}

static void step(void *ctx, const bk_step_report *r)
{
    screen *s = ctx;
    s->loss_sum += r->loss, s->seconds += r->seconds, s->madds += r->madds;
    s->n_tokens += r->n_tokens, s->n_steps++;
    s->n_done = r->iteration, s->step_loss = r->loss;
    if (r->iteration % s->c->log_interval == 0 || r->iteration == 1 || r->iteration == s->c->train_iters)
        print_line(s, r);
    draw(s);
}

static void evaluated(void *ctx, int64_t iteration, double loss)
{
    screen *s = ctx;
    s->valid_loss = loss;
    bk_progress_clear(&s->progress);
    printf("%8lld  %8.4f  validation\n", (long long)iteration, loss);
    fflush(stdout);
    draw(s);
}

static void print_end(const screen *s)
{
    char time[BK_CLOCK_LEN];
    printf("\ndone    %lld step%s in %s", (long long)s->n_done, plural(s->n_done),
           bk_progress_clock(time, bk_progress_elapsed(&s->progress)));
    if (!isnan(s->loss)) printf(", loss %.4f", s->loss);
    if (!isnan(s->valid_loss)) printf(", validation loss %.4f", s->valid_loss);
    putchar('\n');
}

int bk_cli_train(int argc, char *const *argv)
{
    bk_config c;
    bk_err e = {0};
    bk_flag own[] = {{.name = "config", .takes_value = true}};
    bk_status st = bk_cli_config(&c, own, 1, argc, argv, &e);
    screen s = {.c = &c, .loss = (double)NAN, .valid_loss = (double)NAN};
    const bk_train_log log = {.ctx = &s, .begin = begin, .step = step, .evaluated = evaluated};
    if (st == BK_OK) st = bk_train(&c, &log, &e);
    bk_progress_clear(&s.progress);
    if (st == BK_OK) print_end(&s);
    bk_config_free(&c);
    return bk_cli_report(st, &e);
}
