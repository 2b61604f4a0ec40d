#include "cli/train_screen.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/flops.h"
#include "cli/sparkline.h"

enum { SAMPLE_TOKENS = 400, SPARK_COLUMNS = 16 };

/* ---- header ------------------------------------------------------------------------------------------- */

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_model(const bk_run *r)
{
    const bk_config *c = r->c;
    const bk_graph *g = r->session.program[BK_RUN_TRAIN].g;
    char text[BK_HUMAN_LEN];
    int64_t of_class[BK_N_CLASSES] = {0}, n = 0;
    for (int64_t p = 0; p < g->n_params; p++) {
        const int64_t elements = bk_elements(&g->value[g->param[p].value]);
        of_class[g->param[p].class_] += elements, n += elements;
    }
    printf("model   %lld layer%s, width %lld, %lld head%s; %s parameters:", (long long)c->num_layers,
           plural(c->num_layers), (long long)c->hidden_size, (long long)c->num_attention_heads,
           plural(c->num_attention_heads), bk_human_count(text, n));
    for (int k = 0; k < BK_N_CLASSES; k++)
        if (of_class[k] > 0)
            printf(" %s %.0f%%", bk_param_class_names[k], 100 * (double)of_class[k] / (double)n);
    putchar('\n');
    if (c->enable_mhc_connections)
        printf("mHC     %lld residual stream%s around %lld sublayers, %lld Sinkhorn iteration%s, learned "
               "contraction\n",
               (long long)c->mhc_num_residual_streams, plural(c->mhc_num_residual_streams),
               (long long)(2 * c->num_layers), (long long)c->mhc_sinkhorn_iterations,
               plural(c->mhc_sinkhorn_iterations));
}

static void print_source(const bk_run *r)
{
    const bk_str_list *given = &r->c->data_path;
    const bk_run_data *d = &r->data;
    switch (d->kind) {
    case BK_DATA_MOCK:
        printf("Megatron's mock data");
        return;
    case BK_DATA_MARKOV:
        printf("Markov chain of order %d over %lld symbols: entropy %.4f, %.4f from one token less",
               d->markov.options.order, (long long)d->markov.options.n_symbols, d->markov.entropy,
               d->markov.lower_entropy);
        return;
    case BK_DATA_INDEXED:
    case BK_DATA_TEXT:
        break;
    }
    printf("%s", given->n ? given->items[0] : BK_DEFAULT_DATA_PATH " (" BK_DEFAULT_DATA_PATTERN ")");
    if (given->n > 1) printf(" and %lld more", (long long)given->n - 1);
}

static void print_data(const bk_run *r)
{
    const bk_run_data *d = &r->data;
    char train[BK_HUMAN_LEN], valid[BK_HUMAN_LEN];
    printf("data    ");
    print_source(r);
    printf(": %lld document%s, %s tokens%s", (long long)d->n_documents, plural(d->n_documents),
           bk_human_count(train, d->n_train_tokens),
           d->n_valid_tokens > 0 || !d->valid.ctx ? " for training, " : "");
    if (d->n_valid_tokens > 0) printf("%s for validation", bk_human_count(valid, d->n_valid_tokens));
    puts(d->valid.ctx ? "" : "no validation");
    if (d->text_report.n_unreadable > 0)
        printf("        %lld could not be read; the first: %s\n", (long long)d->text_report.n_unreadable,
               d->text_report.first_unreadable);
    if (d->has_ngram)
        printf("        validation loss of a unigram model %.4f, of a bigram model %.4f nats a token\n",
               d->ngram.unigram, d->ngram.bigram);
}

static void print_position(const bk_run *r)
{
    if (r->state.iteration == 0) return;
    printf("resume  %s after step %lld\n", r->c->load, (long long)r->state.iteration);
    if (r->config_diff.len == 0) return;
    printf("        options that differ from the checkpoint's:\n");
    for (const char *line = bk_str_text(&r->config_diff); *line;) {
        const size_t n = strcspn(line, "\n");
        printf("          %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

void bk_train_screen_begin(bk_train_screen *s, const bk_run *run)
{
    *s = (bk_train_screen){.c = run->c, .run = run, .loss = (double)NAN, .valid_loss = (double)NAN};
    const bk_config *c = s->c;
    const int64_t n_micro = s->run->layout.n_micro, bytes = bk_session_bytes(&s->run->session);
    const int64_t peak = s->run->session.program[BK_RUN_TRAIN].p->peak_bytes;
    char memory[BK_HUMAN_LEN], peak_text[BK_HUMAN_LEN];
    print_model(s->run);
    print_data(s->run);
    printf("batch   %lld tokens: %lld sample%s of %lld in %lld micro-batch%s; %lld step%s\n",
           (long long)(c->global_batch_size * c->seq_length), (long long)c->global_batch_size,
           plural(c->global_batch_size), (long long)c->seq_length, (long long)n_micro,
           n_micro == 1 ? "" : "es", (long long)c->train_iters, plural(c->train_iters));
    printf("memory  %s planned, peak %s%s\n", bk_human_bytes(memory, bytes), bk_human_bytes(peak_text, peak),
           bytes >= 1 << 30 ? "; the first step is slow, since it touches all of it for the first time" : "");
    if (c->save[0]) printf("save    %s\n", c->save);
    print_position(s->run);
    s->peak_flops = bk_measure_flops_f32(0.1);
    printf("machine %.0f GFLOP/s of multiply-adds in float\n", 1e-9 * s->peak_flops);
    printf("\n%8s  %8s  %9s  %9s  %8s  %8s  %5s  %7s\n", "step", "loss", "grad norm", "lr", "tokens/s",
           "GFLOP/s", "peak", "ETA");
    fflush(stdout);
    bk_progress_begin(&s->progress, c->train_iters, s->run->state.iteration);
    bk_progress_draw(&s->progress, s->run->state.iteration, "first step");
}

/* ---- what the loop reports ------------------------------------------------------------------------------
 */

static void draw(bk_train_screen *s)
{
    char text[32 + BK_SPARKLINE_LEN(SPARK_COLUMNS)], spark[BK_SPARKLINE_LEN(SPARK_COLUMNS)];
    if (s->n_losses == 0) return;
    bk_sparkline(spark, s->losses, s->n_losses, SPARK_COLUMNS, bk_locale_is_utf8());
    snprintf(text, sizeof text, "loss %.4f %s", s->losses[s->n_losses - 1], spark);
    bk_progress_draw(&s->progress, s->run->state.iteration, text);
}

static void remember_loss(bk_train_screen *s, double loss)
{
    if (s->n_losses == BK_SPARK_STEPS)
        memmove(s->losses, s->losses + 1, sizeof s->losses - sizeof *s->losses), s->n_losses--;
    s->losses[s->n_losses++] = loss;
}

static void print_line(bk_train_screen *s, const bk_step_report *r)
{
    char left[BK_CLOCK_LEN];
    const double flops = 2 * (double)s->madds / s->seconds;
    s->loss = r->line_loss;
    bk_progress_clear(&s->progress);
    printf("%8lld  %8.4f  %9.4f  %9.3e  %8.0f  %8.1f  %4.0f%%  %7s\n", (long long)r->iteration, r->line_loss,
           r->grad_norm, r->learning_rate, (double)s->n_tokens / s->seconds, 1e-9 * flops,
           100 * flops / s->peak_flops,
           bk_progress_clock(left, bk_progress_left(&s->progress, r->iteration)));
    fflush(stdout);
    s->seconds = 0, s->n_tokens = s->madds = 0;
}

/* printf shows the sign of a NaN, which means nothing. */
static double without_sign(double x)
{
    return isnan(x) ? fabs(x) : x;
}

void bk_train_screen_step(bk_train_screen *s, const bk_step_report *r)
{
    s->seconds += r->seconds, s->madds += r->madds, s->n_tokens += r->n_tokens;
    remember_loss(s, r->loss);
    if (r->skipped) {
        bk_progress_clear(&s->progress);
        printf("%8lld  skipped: loss %g, gradient norm %g\n", (long long)r->iteration, without_sign(r->loss),
               without_sign(r->grad_norm));
    }
    if (r->line) print_line(s, r);
    draw(s);
}

void bk_train_screen_evaluated(bk_train_screen *s, double loss)
{
    s->valid_loss = loss;
    bk_progress_clear(&s->progress);
    printf("%8lld  %8.4f  validation\n", (long long)s->run->state.iteration, loss);
    fflush(stdout);
    draw(s);
}

void bk_train_screen_room(bk_train_screen *s, const bk_room_values *v)
{
    bk_progress_clear(&s->progress);
    printf("%8lld  again, with room for %lld rows of routed tokens: %lld came where %lld had room\n",
           (long long)v->iteration, (long long)v->room, (long long)v->n_rows, (long long)v->room_before);
    fflush(stdout);
    draw(s);
}

/* ---- the end --------------------------------------------------------------------------------------------
 */

static bk_status print_token(void *ctx, int32_t token, bk_err *e)
{
    (void)ctx, (void)e;
    if (token == BK_TEXT_EOD) return BK_OK;
    if (token == '\n')
        printf("\n    ");
    else
        putchar(token == '\t' || (token >= ' ' && token < 127) ? token : '?');
    return BK_OK;
}

/* What the model writes when a document begins. */
bk_status bk_train_screen_sample(bk_run *r, bk_err *e)
{
    if (r->data.kind != BK_DATA_TEXT || r->state.iteration == 0) return BK_OK;
    const int32_t prompt = BK_TEXT_EOD;
    const bk_generate_options o = {
        .n_tokens = SAMPLE_TOKENS,
        .stop = BK_TEXT_EOD,
        .sampling = {.temperature = 0.7, .top_p = 0.95, .seed = (uint64_t)r->c->seed},
        .token = print_token};
    printf("\nsample  %d tokens, temperature %.1f, top-p %.2f\n\n    ", SAMPLE_TOKENS, o.sampling.temperature,
           o.sampling.top_p);
    const bk_status st = bk_generate(&r->gen, &prompt, 1, &o, e);
    putchar('\n');
    return st;
}

void bk_train_screen_end(const bk_train_screen *s, const bk_end_report *end)
{
    char time[BK_CLOCK_LEN];
    const bk_run_data *d = &s->run->data;
    static const char *const words[] = {
        [BK_END_DONE] = "done    ", [BK_END_STOPPED] = "stopped ", [BK_END_TIME] = "time is up "};
    printf("\n%s%lld step%s in %s", words[end->end], (long long)end->iteration, plural(end->iteration),
           bk_progress_clock(time, bk_progress_elapsed(&s->progress)));
    if (!isnan(s->loss)) printf(", loss %.4f", s->loss);
    if (!isnan(s->valid_loss)) printf(", validation loss %.4f", s->valid_loss);
    if (!isnan(s->valid_loss) && d->has_ngram)
        printf(" (%.0f%% %s the bigram model)", 100 * fabs(1 - s->valid_loss / d->ngram.bigram),
               s->valid_loss < d->ngram.bigram ? "below" : "above");
    if (end->n_skipped > 0) printf(", %lld skipped", (long long)end->n_skipped);
    putchar('\n');
    if (end->saved) printf("saved   %s/iter_%07lld\n", s->c->save, (long long)end->iteration);
}
