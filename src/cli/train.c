/* birkhoff train: a header, a line at intervals, validation losses. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "train/loop.h"

typedef struct {
    const bk_config *c;
    bool terminal;
    double loss_sum, seconds;
    int64_t n_steps, n_tokens, madds; /* since the last line */
    double per_step;                  /* seconds, smoothed, for the time left */
} screen;

static void begin(void *ctx, const bk_run_report *r)
{
    (void)ctx;
    const bk_config *c = r->config;
    char params[BK_HUMAN_LEN], memory[BK_HUMAN_LEN], tokens[BK_HUMAN_LEN];
    printf("model   %lld layers, width %lld, %lld heads, %s parameters", (long long)c->num_layers,
           (long long)c->hidden_size, (long long)c->num_attention_heads, bk_human_count(params, r->n_params));
    if (c->enable_mhc_connections)
        printf(", %lld residual streams (mHC, %lld Sinkhorn iterations)",
               (long long)c->mhc_num_residual_streams, (long long)c->mhc_sinkhorn_iterations);
    printf("\ndata    %lld files, %s tokens for training\n", (long long)r->n_files,
           bk_human_count(tokens, r->n_data_tokens));
    printf("batch   %lld samples of %lld tokens, %lld steps\n", (long long)c->global_batch_size,
           (long long)c->seq_length, (long long)c->train_iters);
    printf("memory  %s planned (peak %s)\n\n", bk_human_bytes(memory, r->arena_bytes),
           bk_human_bytes(params, r->plan->peak_bytes));
    printf("%8s  %8s  %9s  %9s  %8s  %8s  %6s\n", "step", "loss", "grad norm", "lr", "tokens/s", "GFLOP/s",
           "ETA");
    fflush(stdout);
}

static void print_line(screen *s, const bk_step_report *r)
{
    const double left = s->per_step * (double)(s->c->train_iters - r->iteration);
    printf("%s%8lld  %8.4f  %9.4f  %9.3e  %8.0f  %8.1f  %3d:%02d", s->terminal ? "\r" : "",
           (long long)r->iteration, s->loss_sum / (double)s->n_steps, r->grad_norm, r->learning_rate,
           (double)s->n_tokens / s->seconds, 2e-9 * (double)s->madds / s->seconds, (int)(left / 60),
           (int)left % 60);
    printf(s->terminal ? "\033[K" : "\n");
    fflush(stdout);
}

static void step(void *ctx, const bk_step_report *r)
{
    screen *s = ctx;
    s->loss_sum += r->loss, s->seconds += r->seconds, s->madds += r->madds;
    s->n_tokens += r->n_tokens, s->n_steps++;
    s->per_step = s->per_step == 0 ? r->seconds : 0.9 * s->per_step + 0.1 * r->seconds;
    const bool line =
        r->iteration % s->c->log_interval == 0 || r->iteration == 1 || r->iteration == s->c->train_iters;
    if (!line) return;
    print_line(s, r);
    if (s->terminal) putchar('\n');
    s->loss_sum = s->seconds = 0, s->n_steps = s->n_tokens = s->madds = 0;
}

static void evaluated(void *ctx, int64_t iteration, double loss)
{
    (void)ctx;
    printf("%8lld  %8.4f  validation\n", (long long)iteration, loss);
    fflush(stdout);
}

int bk_cli_train(int argc, char *const *argv)
{
    bk_config c;
    bk_err e = {0};
    bk_flag own[] = {{.name = "config", .takes_value = true}};
    bk_status st = bk_cli_config(&c, own, 1, argc, argv, &e);
    screen s = {.c = &c, .terminal = isatty(STDOUT_FILENO)};
    const bk_train_log log = {.ctx = &s, .begin = begin, .step = step, .evaluated = evaluated};
    if (st == BK_OK) st = bk_train(&c, &log, &e);
    bk_config_free(&c);
    return bk_cli_report(st, &e);
}
