/* The files are taken apart by hand: a reader that shares nothing with the writer but the checksum. */
#include "train/log_check.h"

#include <dirent.h>
#include <math.h>

#include "base/crc32c.h"
#include "train/tensorboard.h"

enum { MAX_EVENTS = 64, MAX_VALUES = 8 };

typedef struct {
    double wall_time;
    int64_t step;
    char version[32];
    int n_values;
    char tag[MAX_VALUES][64];
    float value[MAX_VALUES];
} event;

typedef struct {
    char bytes[65536];
    size_t n_bytes;
    event event[MAX_EVENTS];
    int n;
} event_file;

static uint64_t little_endian(const char *at, int n_bytes)
{
    uint64_t x = 0;
    for (int k = 0; k < n_bytes; k++) x |= (uint64_t)(unsigned char)at[k] << 8 * k;
    return x;
}

/* A field of a message: its number, then the number or the bytes. */
typedef struct {
    uint64_t number, kind, value;
    const char *bytes;
} field;

static uint64_t read_varint(const char **at, const char *end)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        assert_true(*at < end);
        const unsigned char byte = (unsigned char)*(*at)++;
        x |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return x;
    }
    fail_msg("a number of more than 64 bits");
    return 0;
}

static bool next_field(field *f, const char **at, const char *end)
{
    if (*at == end) return false;
    const uint64_t key = read_varint(at, end);
    *f = (field){.number = key >> 3, .kind = key & 7};
    if (f->kind == 0) {
        f->value = read_varint(at, end);
        return true;
    }
    assert_true(f->kind == 1 || f->kind == 2 || f->kind == 5);
    const uint64_t n = f->kind == 2 ? read_varint(at, end) : f->kind == 1 ? 8 : 4;
    assert_true(n <= (uint64_t)(end - *at));
    f->bytes = *at, *at += n;
    f->value = f->kind == 2 ? n : little_endian(f->bytes, (int)n);
    return true;
}

static void copy_text(char *out, size_t size, const field *f)
{
    assert_true(f->kind == 2 && f->value < size);
    memcpy(out, f->bytes, f->value);
    out[f->value] = '\0';
}

static void read_value(event *ev, const field *value)
{
    field f;
    bool has_value = false;
    const int k = ev->n_values++;
    assert_in_range(k, 0, MAX_VALUES - 1);
    for (const char *at = value->bytes, *end = at + value->value; next_field(&f, &at, end);) {
        if (f.number == 1) {
            copy_text(ev->tag[k], sizeof ev->tag[k], &f);
        } else {
            assert_true(f.number == 2 && f.kind == 5);
            memcpy(&ev->value[k], f.bytes, sizeof(float));
            has_value = true;
        }
    }
    assert_true(has_value);
}

static void read_event(event *ev, const char *at, const char *end)
{
    field f, inner;
    *ev = (event){0};
    while (next_field(&f, &at, end)) {
        const char *in = f.bytes, *in_end = f.kind == 2 ? in + f.value : in;
        if (f.number == 1 && f.kind == 1)
            memcpy(&ev->wall_time, f.bytes, sizeof(double));
        else if (f.number == 2 && f.kind == 0)
            ev->step = (int64_t)f.value;
        else if (f.number == 3)
            copy_text(ev->version, sizeof ev->version, &f);
        else if (f.number == 5)
            while (next_field(&inner, &in, in_end)) read_value(ev, &inner);
        else
            fail_msg("field %d of kind %d", (int)f.number, (int)f.kind);
    }
}

static void expect_checksum(const char *at, const char *bytes, size_t n)
{
    assert_int_equal(little_endian(at, 4), bk_crc32c_mask(bk_crc32c(bytes, n)));
}

static void read_events(event_file *f, const char *path)
{
    f->n_bytes = slurp(f->bytes, sizeof f->bytes, path);
    f->n = 0;
    for (const char *at = f->bytes, *end = at + f->n_bytes; at < end; f->n++) {
        assert_true(end - at >= 16 && f->n < MAX_EVENTS);
        const uint64_t n = little_endian(at, 8);
        expect_checksum(at + 8, at, 8);
        assert_true(n <= (uint64_t)(end - at) - 16);
        expect_checksum(at + 12 + n, at + 12, n);
        read_event(&f->event[f->n], at + 12, at + 12 + n);
        at += 16 + n;
    }
}

/* The paths of the folder's files, sorted; returns their number. */
static int list_files(char path[][512], int max, const char *folder)
{
    struct dirent **entry;
    int n = 0;
    const int n_entries = scandir(folder, &entry, NULL, alphasort);
    for (int k = 0; k < n_entries; k++) {
        if (entry[k]->d_name[0] != '.' && n < max)
            snprintf(path[n++], 512, "%s/%s", folder, entry[k]->d_name);
        free(entry[k]);
    }
    free(entry);
    return n;
}

static void read_only_file(event_file *f, const char *folder)
{
    char path[2][512];
    assert_int_equal(list_files(path, 2, folder), 1);
    read_events(f, path[0]);
}

static bk_step_values step_values(int64_t iteration)
{
    return (bk_step_values){.iteration = iteration,
                            .n_samples = 8 * iteration,
                            .batch_size = 8,
                            .loss = 2.5,
                            .grad_norm = 0.75,
                            .learning_rate = 9,
                            .next_learning_rate = 0.125,
                            .tokens_per_s = 9,
                            .tflops = 1.5,
                            .seconds = 0.5};
}

/* The event is these tags and values at x. */
static void expect_scalars(const event *ev, int64_t x, int n, const char *const *tag, const float *value)
{
    assert_int_equal(ev->step, x);
    assert_true(ev->wall_time > 1.7e9);
    assert_int_equal(ev->n_values, n);
    for (int k = 0; k < n; k++) {
        assert_string_equal(ev->tag[k], tag[k]);
        assert_memory_equal(&ev->value[k], &value[k], sizeof(float));
    }
}

static const char *const by_step[] = {"lm loss",    "grad-norm",      "learning-rate",
                                      "batch-size", "iteration-time", "throughput"};
static const float by_step_values[] = {2.5F, 0.75F, 0.125F, 8, 0.5F, 1.5F};
static const char *const by_samples[] = {"lm loss vs samples", "grad-norm vs samples",
                                         "learning-rate vs samples", "batch-size vs samples",
                                         "iteration-time vs samples"};

static void test_tensorboard__file_begins_as_readers_expect(void **state)
{
    (void)state;
    bk_tensorboard t;
    bk_err e;
    static event_file f;
    char path[2][512], host[65] = "";
    ok(bk_tensorboard_open(&t, "a/b//c/", 1, 1, &e), &e);
    assert_int_equal(list_files(path, 2, "a/b/c"), 1);
    read_events(&f, path[0]); /* before the file is closed */
    long long time = 0;
    gethostname(host, sizeof host - 1);
    int end = 0;
    assert_int_equal(sscanf(path[0], "a/b/c/events.out.tfevents.%lld.%n", &time, &end), 1);
    assert_true(time > 1700000000);
    assert_string_equal(path[0] + end, host);
    /* A length of 24 with its masked checksum, as every event file begins. */
    assert_memory_equal(f.bytes, "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.event[0].version, "brain.Event:2");
    assert_true(f.event[0].wall_time > 1.7e9);
    ok(bk_tensorboard_close(&t, &e), &e);
    ok(bk_tensorboard_close(&t, &e), &e);
}

static void test_tensorboard__steps_and_evaluations(void **state)
{
    (void)state;
    bk_tensorboard t;
    bk_err e;
    static event_file f;
    ok(bk_tensorboard_open(&t, "out", 1, 1, &e), &e);
    for (int i = 1; i <= 2; i++) {
        const bk_step_values v = step_values(i);
        ok(bk_tensorboard_step(&t, &v, &e), &e);
    }
    const bk_evaluation_values eval = {.iteration = 2, .n_samples = 16, .loss = 30};
    ok(bk_tensorboard_evaluation(&t, &eval, &e), &e);
    read_only_file(&f, "out");
    ok(bk_tensorboard_close(&t, &e), &e);
    assert_int_equal(f.n, 7);
    expect_scalars(&f.event[1], 1, 4, by_step, by_step_values); /* the first is not timed */
    expect_scalars(&f.event[2], 8, 4, by_samples, by_step_values);
    expect_scalars(&f.event[3], 2, 6, by_step, by_step_values);
    expect_scalars(&f.event[4], 16, 5, by_samples, by_step_values);
    const float values[] = {30, (float)exp(20.0)};
    static const char *const tags[] = {"lm loss validation", "lm loss validation ppl"};
    static const char *const twins[] = {"lm loss validation vs samples", "lm loss validation ppl vs samples"};
    expect_scalars(&f.event[5], 2, 2, tags, values);
    expect_scalars(&f.event[6], 16, 2, twins, values);
}

static void test_tensorboard__health_of_layers(void **state)
{
    (void)state;
    static const double norms[] = {3, 4};
    bk_layer_health layers[] = {
        {.name = "decoder.layers.0", .attention = {2, 1, 2, 3, 4, norms}, .mlp = {2, 5, 6, 7, 8, norms}},
        {.name = "decoder.layers.1",
         .experts = {.n = 4, .least = 1, .most = 9, .dead = 0, .tokens = 20, .n_losses = 1}}};
    layers[1].experts.loss[0].name = "z_loss", layers[1].experts.loss[0].value = 0.5;
    static const struct {
        const char *tag;
        float x;
    } want[] = {{"health/decoder.layers.0/hc/attention/row_error", 1},
                {"health/decoder.layers.0/hc/attention/column_error", 2},
                {"health/decoder.layers.0/hc/attention/from_identity", 3},
                {"health/decoder.layers.0/hc/attention/from_uniform", 4},
                {"health/decoder.layers.0/hc/attention/stream_norms/0", 3},
                {"health/decoder.layers.0/hc/attention/stream_norms/1", 4},
                {"health/decoder.layers.0/hc/mlp/row_error", 5},
                {"health/decoder.layers.0/hc/mlp/column_error", 6},
                {"health/decoder.layers.0/hc/mlp/from_identity", 7},
                {"health/decoder.layers.0/hc/mlp/from_uniform", 8},
                {"health/decoder.layers.0/hc/mlp/stream_norms/0", 3},
                {"health/decoder.layers.0/hc/mlp/stream_norms/1", 4},
                {"health/decoder.layers.1/experts/least", 1},
                {"health/decoder.layers.1/experts/most", 9},
                {"health/decoder.layers.1/experts/dead", 0},
                {"health/decoder.layers.1/experts/tokens", 20},
                {"health/decoder.layers.1/experts/z_loss", 0.5F}};
    enum { N = sizeof want / sizeof *want };
    bk_tensorboard t;
    bk_err e;
    static event_file f;
    ok(bk_tensorboard_open(&t, "out", 1000, 1, &e), &e); /* which is not the interval of these */
    const bk_health_values v = {.iteration = 6, .n_samples = 48, .health = {.row = layers, .n = 2}};
    ok(bk_tensorboard_health(&t, &v, &e), &e);
    ok(bk_tensorboard_close(&t, &e), &e);
    read_only_file(&f, "out");
    assert_int_equal(f.n, 1 + N);
    for (int k = 0; k < N; k++) expect_scalars(&f.event[1 + k], 6, 1, &want[k].tag, &want[k].x);
}

/* Zero is a value, not a field left out, and NaN is one. */
static void test_tensorboard__zero_and_nan(void **state)
{
    (void)state;
    bk_tensorboard t;
    bk_err e;
    static event_file f;
    ok(bk_tensorboard_open(&t, "out", 1, 1, &e), &e);
    const bk_step_values v = {.iteration = 1, .n_samples = INT64_C(1) << 40, .grad_norm = (double)NAN};
    ok(bk_tensorboard_step(&t, &v, &e), &e);
    ok(bk_tensorboard_close(&t, &e), &e);
    read_only_file(&f, "out");
    assert_int_equal(f.n, 3);
    assert_int_equal(f.event[1].n_values, 4);
    assert_string_equal(f.event[1].tag[0], "lm loss");
    assert_true(fabsf(f.event[1].value[0]) <= 0 && isnan(f.event[1].value[1]));
    assert_true(f.event[2].step == INT64_C(1) << 40);
}

static void test_tensorboard__interval(void **state)
{
    (void)state;
    bk_tensorboard t;
    bk_err e;
    static event_file f;
    ok(bk_tensorboard_open(&t, "out", 3, 1, &e), &e);
    for (int i = 1; i <= 7; i++) {
        const bk_step_values v = step_values(i);
        ok(bk_tensorboard_step(&t, &v, &e), &e);
    }
    ok(bk_tensorboard_close(&t, &e), &e);
    read_only_file(&f, "out");
    assert_int_equal(f.n, 5);
    assert_int_equal(f.event[1].step, 3);
    assert_int_equal(f.event[3].step, 6);
}

/* A second run has a file of its own, even within the same second. */
static void test_tensorboard__resumed_run(void **state)
{
    (void)state;
    bk_tensorboard t;
    bk_err e;
    static event_file f;
    char path[9][512];
    for (int run = 0; run < 8; run++) {
        ok(bk_tensorboard_open(&t, "out", 1, 5 + run, &e), &e);
        const bk_step_values v = step_values(5 + run);
        ok(bk_tensorboard_step(&t, &v, &e), &e);
        ok(bk_tensorboard_close(&t, &e), &e);
    }
    assert_int_equal(list_files(path, 9, "out"), 8);
    int64_t steps = 0;
    for (int k = 0; k < 8; k++) {
        read_events(&f, path[k]);
        assert_int_equal(f.n, 3);
        steps += f.event[1].step;
        assert_int_equal(f.event[1].n_values, 4); /* its first step is not timed either */
    }
    assert_int_equal(steps, 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12);
}

static void test_tensorboard__full_disk(void **state)
{
    (void)state;
    bk_tensorboard t;
    bk_err e;
    static event_file f;
    const bk_step_values v = step_values(2);
    ok(bk_tensorboard_open(&t, "out", 1, 1, &e), &e);
    ok(bk_tensorboard_step(&t, &v, &e), &e);
    read_only_file(&f, "out");
    const size_t n = f.n_bytes;
    for (size_t room = n; room < n + 100; room += 7) {
        limit_files(room);
        assert_int_equal(bk_tensorboard_step(&t, &v, &e), BK_E_IO);
        limit_files(0);
        expect_message(&e, "out/events.out.tfevents.", "File too large");
        read_only_file(&f, "out");
        assert_int_equal(f.n_bytes, n);
    }
    ok(bk_tensorboard_step(&t, &v, &e), &e);
    read_only_file(&f, "out");
    assert_int_equal(f.n, 5);
    ok(bk_tensorboard_close(&t, &e), &e);
    limit_files(1);
    assert_int_equal(bk_tensorboard_open(&t, "new", 1, 1, &e), BK_E_IO);
    limit_files(0);
    ok(bk_tensorboard_close(&t, &e), &e);
}

static void test_tensorboard__folder_cannot_be(void **state)
{
    (void)state;
    bk_tensorboard t;
    bk_err e;
    put("file", "");
    assert_int_equal(bk_tensorboard_open(&t, "file/below", 1, 1, &e), BK_E_IO);
    expect_message(&e, "file/below", "Not a directory");
    assert_int_equal(bk_tensorboard_open(&t, "file", 1, 1, &e), BK_E_IO);
    expect_message(&e, "file/events.out.tfevents.", "Not a directory");
    ok(bk_tensorboard_open(&t, "out", 1, 1, &e), &e);
    char path[2][512];
    assert_int_equal(list_files(path, 2, "out"), 1);
    assert_int_equal(remove(path[0]), 0);
    assert_int_equal(remove("out"), 0);
    const bk_step_values v = step_values(2);
    assert_int_equal(bk_tensorboard_step(&t, &v, &e), BK_E_IO);
    expect_message(&e, "out/events.out.tfevents.", "removed");
    ok(bk_tensorboard_close(&t, &e), &e);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_tensorboard__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(file_begins_as_readers_expect),
        TEST(steps_and_evaluations),
        TEST(health_of_layers),
        TEST(zero_and_nan),
        TEST(interval),
        TEST(resumed_run),
        TEST(full_disk),
        TEST(folder_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
