/* Times training steps of a configuration: the program, planner, executor and feed of `birkhoff train`, on
 * random tokens instead of text, so that any vocabulary can be filled.
 *
 *     bench_step [--config FILE] [--steps N] [--warmup N] [--peaks] [--option value ...]
 *
 * Prints one line of JSON. Without --config it takes the built-in configuration. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <omp.h>

#include "base/machine.h"
#include "cli/cli.h"
#include "peaks.h"
#include "step_floor.h"
#include "train/feeder.h"
#include "train/session.h"

typedef struct {
    bk_config c;
    bk_layout layout;
    bk_session session;
    bk_feed feed;
} run;

typedef struct {
    double wall, cpu; /* seconds: the fastest step, and the step with the least processor time */
    double mean_wall, first_loss, last_loss;
    int64_t madds;
} timing;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The source's sample: uniform tokens, a hash (splitmix64) of their place in the run. ctx is the config. */
static bk_status random_sample(int32_t *tokens, int32_t *labels, float *mask, const void *ctx,
                               int64_t sample_number, bk_err *e)
{
    (void)e;
    const bk_config *c = ctx;
    for (int64_t i = 0; i <= c->seq_length; i++) {
        uint64_t x = (uint64_t)(sample_number * (c->seq_length + 1) + i + 1) * 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        const int32_t token = (int32_t)((x ^ (x >> 31)) % (uint64_t)c->vocab_size);
        if (tokens && i < c->seq_length) tokens[i] = token;
        if (labels && i > 0) labels[i - 1] = token;
        if (mask && i < c->seq_length) mask[i] = 1;
    }
    return BK_OK;
}

static bk_status open_run(run *r, bk_err *e)
{
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = r->c.deterministic};
    const bk_program_options o = {.mode = BK_MODEL_TRAIN, .real = BK_F32, .optimizer = true};
    bk_program prog = {0};
    bk_status st = BK_OK;
    BK_TRY(bk_layout_resolve(&r->layout, &r->c, 1, e));
    BK_TRY(bk_program_graph(&prog, &r->c, &r->layout, &o, e));
    bk_session_add(&r->session, &prog, r->layout.n_micro);
    BK_TRY(bk_session_plan(&r->session, &target, e));
    BK_TRY(bk_session_open(&r->session, r->c.memory_limit, e));
    bk_session_init_params(&r->session, (uint64_t)r->c.seed);
    r->feed.source = (bk_source){.ctx = &r->c, .n_samples = INT64_MAX, .get = random_sample};
    r->feed.mask = malloc((size_t)r->layout.seq * sizeof *r->feed.mask);
    if (!r->feed.mask) st = bk_err_set(e, BK_E_MEM, "bench: out of memory");
    r->feed.micro_batch = r->layout.micro_batch, r->feed.seq = r->layout.seq,
    r->feed.n_micro = r->layout.n_micro;
    r->feed.learning_rate = r->c.lr;
done:
    return st;
}

static bk_status time_steps(timing *out, run *r, int64_t n_warmup, int64_t n_steps, bk_err *e)
{
    *out = (timing){.wall = 1e30, .cpu = 1e30};
    const bk_host host = bk_feed_host(&r->feed);
    for (int64_t i = 1; i <= n_warmup + n_steps; i++) {
        r->feed.step = i, r->feed.first_sample = (i - 1) * r->layout.global_batch;
        const double wall = bk_now(), cpu = cpu_now();
        const bk_status st = bk_exec_run(r->session.exec, r->session.program[0].p, &host, e);
        if (st != BK_OK) return st;
        const double d_wall = bk_now() - wall, d_cpu = cpu_now() - cpu;
        if (r->feed.routed_excess > 0)
            return bk_err_set(e, BK_E_INPUT,
                              "bench: %" PRId64 " routed rows found no room in step %" PRId64
                              "; raise moe_capacity_headroom",
                              r->feed.routed_excess, i);
        out->last_loss = r->feed.loss_sum / r->feed.n_tokens;
        if (i == 1) out->first_loss = out->last_loss;
        if (i <= n_warmup) continue;
        if (d_wall < out->wall) out->wall = d_wall;
        if (d_cpu < out->cpu) out->cpu = d_cpu;
        out->mean_wall += d_wall / (double)n_steps;
    }
    out->madds = bk_exec_get_stats(r->session.exec).madds;
    return BK_OK;
}

static void print_json(const run *r, const timing *t, const bk_step_floor *floor, bool peaks)
{
    const double tokens = (double)(r->layout.global_batch * r->layout.seq);
    printf("{\"engine\": \"birkhoff\", \"threads\": %d, \"tokens\": %.0f, \"step_s\": %.6f, \"mean_step_s\": "
           "%.6f, "
           "\"cpu_s\": %.6f, \"tokens_per_s\": %.2f, \"tokens_per_cpu_s\": %.2f, \"madds_per_token\": %.0f, "
           "\"least_madds_per_token\": %.0f, \"stream_bytes_per_token\": %.0f, \"first_loss\": %.6f, "
           "\"last_loss\": %.6f",
           omp_get_max_threads(), tokens, t->wall, t->mean_wall, t->cpu, tokens / t->wall, tokens / t->cpu,
           (double)t->madds / tokens, floor->madds, floor->stream_bytes, t->first_loss, t->last_loss);
    if (peaks) {
        const bk_peaks p = bk_peaks_measure();
        printf(", \"fma_flops\": %.4g, \"copy_bytes\": %.4g", p.fma_flops, p.copy_bytes);
    }
    printf("}\n");
}

static int64_t count_of(const bk_flag *f, int64_t otherwise)
{
    return f->value ? strtoll(f->value, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    enum { CONFIG, STEPS, WARMUP, PEAKS, N_OWN };
    bk_flag own[N_OWN] = {{.name = "config", .takes_value = true},
                          {.name = "steps", .takes_value = true},
                          {.name = "warmup", .takes_value = true},
                          {.name = "peaks"}};
    run r = {0};
    timing t;
    bk_step_floor floor;
    bk_err e = {0};
    bk_status st = bk_cli_config(&r.c, own, N_OWN, argc - 1, argv + 1, &e);
    if (st == BK_OK) st = open_run(&r, &e);
    const int64_t n_steps = count_of(&own[STEPS], 5);
    if (st == BK_OK && n_steps < 1)
        st = bk_err_set(&e, BK_E_INPUT, "--steps %" PRId64 ": give 1 or more", n_steps);
    if (st == BK_OK) st = time_steps(&t, &r, count_of(&own[WARMUP], 2), n_steps, &e);
    if (st == BK_OK) st = bk_step_floor_of(&floor, &r.c, &e);
    if (st == BK_OK) print_json(&r, &t, &floor, own[PEAKS].value != NULL);
    free(r.feed.mask);
    bk_session_close(&r.session);
    bk_config_free(&r.c);
    return bk_cli_report(st, &e);
}
