#include "train/tensorboard.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "train/tensorboard.pb-c.h" /* from tensorboard.proto */

enum { MAX_VALUES = 8, MAX_FILES = 1000 };

/* One event's scalars; {0} is none. */
typedef struct {
    int64_t n;
    BkTb__Value value[MAX_VALUES];
    BkTb__Value *at[MAX_VALUES];
} scalars;

/* Tags are borrowed; protobuf-c's strings are not const, but packing only reads them. */
static void add(scalars *s, const char *tag, double x)
{
    assert(s->n < MAX_VALUES);
    BkTb__Value *v = &s->value[s->n];
    bk_tb__value__init(v);
    memcpy(&v->tag, &tag, sizeof tag);
    v->value_case = BK_TB__VALUE__VALUE_SIMPLE_VALUE;
    v->simple_value = (float)x;
    s->at[s->n++] = v;
}

static void put_little_endian(bk_str *out, uint64_t x, int n_bytes)
{
    for (int k = 0; k < n_bytes; k++) bk_str_append_char(out, (char)(x >> 8 * k & 255), 1);
}

/* protobuf-c writes into a bk_str. */
typedef struct {
    ProtobufCBuffer base;
    bk_str *out;
} str_buffer;

static void append_to_str(ProtobufCBuffer *buffer, size_t n, const uint8_t *bytes)
{
    bk_str_append_n(((str_buffer *)buffer)->out, (const char *)bytes, n);
}

/* Appends the event's frame to `frames`. */
static void frame_event(bk_tensorboard *t, BkTb__Event *event)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    event->wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    bk_str *f = &t->frames;
    const size_t n = bk_tb__event__get_packed_size(event), start = f->len;
    put_little_endian(f, n, 8);
    if (f->failed) return;
    put_little_endian(f, bk_crc32c_mask(bk_crc32c(f->s + start, 8)), 4);
    const size_t body = f->len;
    str_buffer buffer = {{append_to_str}, f};
    bk_tb__event__pack_to_buffer(event, &buffer.base);
    if (f->failed) return;
    put_little_endian(f, bk_crc32c_mask(bk_crc32c(f->s + body, n)), 4);
}

static void frame_scalars(bk_tensorboard *t, int64_t x, scalars *s)
{
    BkTb__Summary summary = BK_TB__SUMMARY__INIT;
    BkTb__Event event = BK_TB__EVENT__INIT;
    summary.n_value = (size_t)s->n, summary.value = s->at;
    event.step = x, event.what_case = BK_TB__EVENT__WHAT_SUMMARY, event.summary = &summary;
    frame_event(t, &event);
}

/* Writes the frames collected so far, in one piece. */
static bk_status flush_frames(bk_tensorboard *t, bk_err *e)
{
    if (t->frames.failed) return bk_err_set(e, BK_E_MEM, "%s: out of memory", t->file.path);
    const bk_status st = bk_log_file_write(&t->file, t->frames.s, t->frames.len, e);
    t->frames.len = 0;
    return st;
}

/* No session log stands behind it: its START would void what earlier runs wrote from a step on, and readers
 * hold the samples of the twins to be steps. */
static void frame_version(bk_tensorboard *t)
{
    char version[] = "brain.Event:2";
    BkTb__Event event = BK_TB__EVENT__INIT;
    event.what_case = BK_TB__EVENT__WHAT_FILE_VERSION, event.file_version = version;
    frame_event(t, &event);
}

/* The folder and those above it. */
static bk_status make_folders(const char *folder, bk_err *e)
{
    char *path = strdup(folder);
    if (!path) return bk_err_set(e, BK_E_MEM, "%s: out of memory", folder);
    int failure = 0;
    for (char *at = path; at && !failure;) {
        at = strchr(at + 1, '/'); /* the root is there */
        if (at) *at = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) failure = errno;
        if (at) *at = '/';
    }
    free(path);
    if (!failure) return BK_OK;
    return bk_err_set(e, BK_E_IO, "cannot make the folder %s for TensorBoard: %s", folder, strerror(failure));
}

/* A new file whose name no other run has. */
static bk_status open_new(bk_tensorboard *t, const char *folder, bk_err *e)
{
    char host[65] = "localhost"; /* names have 64 bytes at most */
    gethostname(host, sizeof host - 1);
    bk_str path = {0};
    bk_str_appendf(&path, "%s/events.out.tfevents.%010lld.%s", folder, (long long)time(NULL), host);
    const size_t plain = path.len;
    bk_status st = BK_E_INPUT; /* taken */
    for (int k = 0; st == BK_E_INPUT && k < MAX_FILES && !path.failed; k++) {
        path.len = plain;
        if (k > 0) bk_str_appendf(&path, ".%d", k);
        st = bk_log_file_open(&t->file, bk_str_text(&path), true, e);
    }
    if (path.failed) st = bk_err_set(e, BK_E_MEM, "%s: out of memory", folder);
    bk_str_free(&path);
    return st;
}

bk_status bk_tensorboard_open(bk_tensorboard *t, const char *folder, int64_t interval,
                              int64_t first_iteration, bk_err *e)
{
    bk_status st = BK_OK;
    *t = (bk_tensorboard){.interval = interval, .first_iteration = first_iteration};
    BK_TRY(make_folders(folder, e));
    BK_TRY(open_new(t, folder, e));
    frame_version(t);
    BK_TRY(flush_frames(t, e));
done:
    if (st != BK_OK) bk_tensorboard_close(t, NULL);
    return st;
}

/* An event for one scalar: where the number of them has no bound. */
static void frame_scalar(bk_tensorboard *t, int64_t iteration, const char *tag, double x)
{
    scalars s = {0};
    add(&s, tag, x);
    frame_scalars(t, iteration, &s);
}

/* The losses beside that of the language model. */
static void frame_metrics(bk_tensorboard *t, int64_t iteration, const bk_metric_table *metrics)
{
    for (int64_t k = 0; metrics && k < metrics->n; k++)
        if (bk_metric_is_scalar(&metrics->row[k]))
            frame_scalar(t, iteration, metrics->row[k].name, metrics->row[k].x[0]);
}

bk_status bk_tensorboard_step(bk_tensorboard *t, const bk_step_values *v, bk_err *e)
{
    if (v->iteration % t->interval != 0) return BK_OK;
    const bool timed = v->iteration > t->first_iteration;
    scalars by_step = {0}, by_samples = {0};
    add(&by_step, "lm loss", v->loss);
    add(&by_step, "grad-norm", v->grad_norm);
    add(&by_step, "learning-rate", v->next_learning_rate);
    add(&by_step, "batch-size", (double)v->batch_size);
    if (timed) add(&by_step, "iteration-time", v->seconds);
    if (timed) add(&by_step, "throughput", v->tflops);
    frame_scalars(t, v->iteration, &by_step);
    frame_metrics(t, v->iteration, v->metrics);
    add(&by_samples, "lm loss vs samples", v->loss);
    add(&by_samples, "grad-norm vs samples", v->grad_norm);
    add(&by_samples, "learning-rate vs samples", v->next_learning_rate);
    add(&by_samples, "batch-size vs samples", (double)v->batch_size);
    if (timed) add(&by_samples, "iteration-time vs samples", v->seconds);
    frame_scalars(t, v->n_samples, &by_samples);
    return flush_frames(t, e);
}

bk_status bk_tensorboard_evaluation(bk_tensorboard *t, const bk_evaluation_values *v, bk_err *e)
{
    const double ppl = bk_perplexity(v->loss);
    scalars by_step = {0}, by_samples = {0};
    add(&by_step, "lm loss validation", v->loss);
    add(&by_step, "lm loss validation ppl", ppl);
    frame_scalars(t, v->iteration, &by_step);
    add(&by_samples, "lm loss validation vs samples", v->loss);
    add(&by_samples, "lm loss validation ppl vs samples", ppl);
    frame_scalars(t, v->n_samples, &by_samples);
    return flush_frames(t, e);
}

/* Where the figures of a part of a layer go. */
typedef struct {
    bk_tensorboard *t;
    int64_t iteration;
    const char *layer, *part;
} place;

static void frame_figure(const place *at, const char *figure, double x)
{
    char tag[256];
    snprintf(tag, sizeof tag, "health/%s/%s/%s", at->layer, at->part, figure);
    frame_scalar(at->t, at->iteration, tag, x);
}

static void frame_experts(const place *at, const bk_expert_health *x)
{
    if (x->n == 0) return;
    frame_figure(at, "least", (double)x->least);
    frame_figure(at, "most", (double)x->most);
    frame_figure(at, "dead", (double)x->dead);
    frame_figure(at, "tokens", (double)x->tokens);
    for (int k = 0; k < x->n_losses; k++) frame_figure(at, x->loss[k].name, x->loss[k].value);
}

static void frame_hc(const place *at, const bk_hc_health *x)
{
    if (x->n_streams == 0) return;
    frame_figure(at, "row_error", x->row_error);
    frame_figure(at, "column_error", x->column_error);
    frame_figure(at, "from_identity", x->from_identity);
    frame_figure(at, "from_uniform", x->from_uniform);
    for (int64_t k = 0; k < x->n_streams; k++) {
        char figure[48];
        snprintf(figure, sizeof figure, "stream_norms/%lld", (long long)k);
        frame_figure(at, figure, x->stream_norm[k]);
    }
}

bk_status bk_tensorboard_health(bk_tensorboard *t, const bk_health_values *v, bk_err *e)
{
    for (int64_t k = 0; k < v->health.n; k++) {
        const bk_layer_health *x = &v->health.row[k];
        frame_experts(&(place){t, v->iteration, x->name, "experts"}, &x->experts);
        frame_hc(&(place){t, v->iteration, x->name, "hc/attention"}, &x->attention);
        frame_hc(&(place){t, v->iteration, x->name, "hc/mlp"}, &x->mlp);
    }
    return flush_frames(t, e);
}

bk_status bk_tensorboard_close(bk_tensorboard *t, bk_err *e)
{
    bk_str_free(&t->frames);
    return bk_log_file_close(&t->file, e);
}
