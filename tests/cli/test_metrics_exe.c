/* Metrics files of birkhoff train: a record for every step and every evaluation, over a stop and a resume. */
#include "cli/run_exe.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdbool.h>

static const char *const small =
    "num_layers: 1\nhidden_size: 16\nnum_attention_heads: 2\nffn_hidden_size: 32\n"
    "seq_length: 8\nvocab_size: 257\nmake_vocab_size_divisible_by: 1\n"
    "position_embedding_type: rope\nenable_mhc_connections: true\nmhc_num_residual_streams: 2\n"
    "data_path: text\nsplit: 80,20\nmicro_batch_size: 2\nlr: 0.01\nlr_decay_iters: 7\neval_interval: 3\n"
    "eval_iters: 1\nlog_interval: 100\n";

static int enter(void **state)
{
    char text[64 * 8 + 1];
    const int rc = enter_new_folder(state);
    for (unsigned i = 0; i < 64; i++) snprintf(text + 8 * i, 9, "word %02u\n", i % 100);
    put("text", text);
    put("small.yaml", small);
    return rc;
}

#define TRAIN "train", "--config", "small.yaml"

static void must_run(const char *const *args)
{
    static exe_result r;
    run_exe(&r, args);
    if (r.rc != 0) fail_msg("exit code %d: %s%s", r.rc, r.out, r.err);
    assert_string_equal(r.err, "");
}

/* ---- JSON lines -----------------------------------------------------------------------------------------
 */

enum { MAX_RECORDS = 64 };

/* Kind and iteration of each line, as "run 1", "step 4", "validation 3". */
typedef struct {
    int n;
    char what[MAX_RECORDS][32];
    double loss[MAX_RECORDS]; /* of a step or an evaluation */
} records;

static double number(const cJSON *object, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(x)) fail_msg("%s is no number", key);
    return x->valuedouble;
}

static void read_record(records *out, const char *line)
{
    cJSON *object = cJSON_ParseWithOpts(line, NULL, true);
    if (!cJSON_IsObject(object)) fail_msg("no object: %s", line);
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "kind"));
    assert_non_null(kind);
    const bool is_run = strcmp(kind, "run") == 0, is_step = strcmp(kind, "step") == 0;
    const int iteration = (int)number(object, is_run ? "first_iteration" : "iteration");
    snprintf(out->what[out->n], sizeof out->what[0], "%s %d", kind, iteration);
    if (!is_run) {
        out->loss[out->n] = number(object, is_step ? "loss" : "validation_loss");
        assert_int_equal(number(object, "consumed_samples"), 2 * iteration);
    }
    out->n++;
    cJSON_Delete(object);
}

static void read_jsonl(records *out, const char *path)
{
    char line[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *out = (records){0};
    while (out->n < MAX_RECORDS && fgets(line, sizeof line, f)) {
        assert_int_equal(line[strlen(line) - 1], '\n');
        line[strlen(line) - 1] = '\0';
        read_record(out, line);
    }
    fclose(f);
}

static void expect_records(const records *r, const char *const *what)
{
    int n = 0;
    while (what[n]) n++;
    assert_int_equal(r->n, n);
    for (int i = 0; i < n; i++) assert_string_equal(r->what[i], what[i]);
}

static void test_metrics_exe__json_lines(void **state)
{
    (void)state;
    static records whole, resumed;
    must_run(ARGS(TRAIN, "--train-iters", "7", "--log-jsonl", "whole.jsonl"));
    read_jsonl(&whole, "whole.jsonl");
    expect_records(&whole, ARGS("run 1", "step 1", "step 2", "step 3", "validation 3", "step 4", "step 5",
                                "step 6", "validation 6", "step 7", "validation 7"));
    /* Two runs append to one file: each says where it begins, and the losses are those of the whole run. */
    must_run(ARGS(TRAIN, "--train-iters", "4", "--log-jsonl", "two.jsonl", "--save", "ck"));
    must_run(ARGS(TRAIN, "--train-iters", "7", "--log-jsonl", "two.jsonl", "--load", "ck"));
    read_jsonl(&resumed, "two.jsonl");
    expect_records(&resumed,
                   ARGS("run 1", "step 1", "step 2", "step 3", "validation 3", "step 4", "validation 4",
                        "run 5", "step 5", "step 6", "validation 6", "step 7", "validation 7"));
    assert_memory_equal(resumed.loss, whole.loss, 6 * sizeof *whole.loss);
    assert_memory_equal(resumed.loss + 8, whole.loss + 6, 5 * sizeof *whole.loss);
}

/* ---- TensorBoard ----------------------------------------------------------------------------------------
 */

/* Records of an event file: a length in 8 bytes, its checksum in 4, the data, their checksum in 4. */
static int count_events(const char *path)
{
    static char bytes[1 << 16];
    int n = 0;
    size_t at = 0;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (; at + 16 <= size; n++) {
        uint64_t length;
        memcpy(&length, bytes + at, sizeof length);
        assert_true(length <= size - at - 16);
        at += 16 + (size_t)length;
    }
    assert_int_equal(at, size);
    return n;
}

/* Events in all files of the folder, of which there must be so many. */
static int count_all_events(const char *folder, int n_files)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *f = readdir(d); f; f = readdir(d)) {
        char path[512];
        if (f->d_name[0] == '.') continue;
        assert_int_equal(strncmp(f->d_name, "events.out.tfevents.", 20), 0);
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        n += count_events(path), n_files--;
    }
    closedir(d);
    assert_int_equal(n_files, 0);
    return n;
}

/* A version a file; two events, by steps and by samples, for each step and each evaluation. */
static void test_metrics_exe__tensorboard(void **state)
{
    (void)state;
    must_run(ARGS(TRAIN, "--train-iters", "7", "--tensorboard-dir", "runs/one"));
    assert_int_equal(count_all_events("runs/one", 1), 1 + 2 * (7 + 3));
    must_run(ARGS(TRAIN, "--train-iters", "4", "--tensorboard-dir", "two", "--save", "ck"));
    assert_int_equal(count_all_events("two", 1), 1 + 2 * (4 + 2));
    must_run(ARGS(TRAIN, "--train-iters", "7", "--tensorboard-dir", "two", "--load", "ck"));
    assert_int_equal(count_all_events("two", 2), 2 + 2 * (4 + 2) + 2 * (3 + 2));
    must_run(
        ARGS(TRAIN, "--train-iters", "7", "--tensorboard-dir", "three", "--tensorboard-log-interval", "3"));
    assert_int_equal(count_all_events("three", 1), 1 + 2 * (2 + 3));
}

/* How often the bytes of `tag` stand in the only file of the folder. */
static int count_tags(const char *folder, const char *tag)
{
    static char bytes[1 << 16];
    char path[512] = "";
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *f = readdir(d); f; f = readdir(d))
        if (f->d_name[0] != '.') snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
    closedir(d);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    for (size_t at = 0; at + strlen(tag) <= size; at++) n += memcmp(bytes + at, tag, strlen(tag)) == 0;
    return n;
}

/* Losses of the router, the mean over micro-batches and layers, and of each further token. */
static void test_metrics_exe__further_losses(void **state)
{
    (void)state;
    static const char *const keys[] = {"mtp_1_loss", "mtp_2_loss", "load_balancing_loss",
                                       "seq_load_balancing_loss", "z_loss"};
    static const char *const tags[] = {"mtp_1 loss", "mtp_2 loss", "load_balancing_loss",
                                       "seq_load_balancing_loss", "z_loss"};
    char line[4096];
    must_run(ARGS(TRAIN, "--train-iters", "3", "--log-jsonl", "moe.jsonl", "--tensorboard-dir", "moe",
                  "--global-batch-size", "4", "--num-experts", "4", "--mtp-num-layers", "2",
                  "--moe-z-loss-coeff", "0.01", "--moe-router-load-balancing-type", "aux_loss",
                  "seq_aux_loss", "--moe-aux-loss-coeff", "0.1", "0.2"));
    int n_steps = 0;
    FILE *f = fopen("moe.jsonl", "rb");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        cJSON *object = cJSON_Parse(line);
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "kind"));
        if (kind && strcmp(kind, "step") == 0) {
            n_steps++;
            for (int k = 0; k < 2; k++) /* near ln 257 while nothing is learnt */
                assert_true(number(object, keys[k]) > 4 && number(object, keys[k]) < 7);
            for (int k = 2; k < 4; k++) /* 1 where the experts are as busy as each other */
                assert_true(number(object, keys[k]) > 0.9 && number(object, keys[k]) < 2);
            assert_true(number(object, keys[4]) > 1.5 && number(object, keys[4]) < 2.5); /* ln^2 4 = 1.92 */
        }
        cJSON_Delete(object);
    }
    fclose(f);
    assert_int_equal(n_steps, 3);
    assert_int_equal(count_all_events("moe", 1), 1 + (2 + 5) * 3 + 2 * 1);
    assert_int_equal(count_tags("moe", "load_balancing_loss"), 2 * 3); /* also at the end of the other */
    for (int k = 0; k < 5; k++) assert_true(count_tags("moe", tags[k]) >= 3);
}

/* The lines of kind health, which must be JSON, one after the other; returns their number. */
static int read_health(char *out, size_t size, const char *path)
{
    char line[4096];
    int n = 0;
    size_t used = 0;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (out[0] = '\0'; fgets(line, sizeof line, f);) {
        cJSON *object = cJSON_Parse(line);
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "kind"));
        assert_non_null(kind);
        if (strcmp(kind, "health") == 0) {
            const int length = snprintf(out + used, size - used, "%s", line);
            assert_true((size_t)length < size - used);
            used += (size_t)length, n++;
        }
        cJSON_Delete(object);
    }
    fclose(f);
    return n;
}

#define HEALTH(train_iters, interval, file)                                                                  \
    TRAIN, "--train-iters", train_iters, "--log-health-interval", interval, "--log-jsonl", file,             \
        "--num-layers", "2", "--num-experts", "4", "--moe-layer-freq", "[0,1]", "--global-batch-size", "4"

/* A line at the interval, the same ones after a stop in the middle of it. */
static void test_metrics_exe__health_of_layers(void **state)
{
    (void)state;
    static char whole[1 << 14], two[1 << 14];
    must_run(ARGS(HEALTH("7", "3", "whole.jsonl"), "--tensorboard-dir", "board"));
    assert_int_equal(read_health(whole, sizeof whole, "whole.jsonl"), 2);
    must_run(ARGS(HEALTH("4", "3", "two.jsonl"), "--save", "ck"));
    must_run(ARGS(HEALTH("7", "3", "two.jsonl"), "--load", "ck"));
    read_health(two, sizeof two, "two.jsonl");
    assert_string_equal(two, whole);

    cJSON *line = cJSON_Parse(whole); /* the first */
    assert_true(number(line, "iteration") == 3 && number(line, "consumed_samples") == 12);
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(line, "layers");
    assert_int_equal(cJSON_GetArraySize(layers), 2);
    for (int k = 0; k < 2; k++) {
        const cJSON *layer = cJSON_GetArrayItem(layers, k);
        const cJSON *experts = cJSON_GetObjectItemCaseSensitive(layer, "experts");
        const cJSON *hc = cJSON_GetObjectItemCaseSensitive(layer, "hc");
        assert_true(cJSON_IsObject(hc) && (experts != NULL) == (k == 1));
        if (experts) assert_true(number(experts, "tokens") == 4 * 8 * 2 && number(experts, "dead") < 3);
        const cJSON *mlp = cJSON_GetObjectItemCaseSensitive(hc, "mlp");
        assert_true(number(mlp, "row_error") < 1e-4 && number(mlp, "from_uniform") < 0.1);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(mlp, "stream_norms")), 2);
    }
    cJSON_Delete(line);
    assert_int_equal(count_tags("board", "health/decoder.layers.1/experts/least"), 2);
    assert_int_equal(count_tags("board", "health/decoder.layers.0/hc/attention/stream_norms/1"), 2);
    assert_int_equal(count_tags("board", "health/decoder.layers.0/experts"), 0);
}

static void test_metrics_exe__no_health_where_it_is_not_wanted(void **state)
{
    (void)state;
    static char lines[1 << 14];
    must_run(ARGS(HEALTH("3", "0", "never.jsonl"), "--tensorboard-dir", "board"));
    assert_int_equal(read_health(lines, sizeof lines, "never.jsonl"), 0);
    assert_int_equal(count_tags("board", "health/"), 0);
    must_run(ARGS(TRAIN, "--train-iters", "2", "--log-health-interval", "1", "--log-jsonl", "plain.jsonl",
                  "--no-enable-mhc-connections"));
    assert_int_equal(read_health(lines, sizeof lines, "plain.jsonl"), 0);
}

static void test_metrics_exe__files_that_cannot_be_written(void **state)
{
    (void)state;
    put("file", "");
    expect_refusal(1, ARGS(TRAIN, "--log-jsonl", "absent/metrics.jsonl"),
                   ARGS("cannot open absent/metrics.jsonl for metrics", "No such file"));
    expect_refusal(1, ARGS(TRAIN, "--tensorboard-dir", "file/runs"), ARGS("file/runs", "Not a directory"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_metrics_exe__##name, enter, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(json_lines),
        TEST(tensorboard),
        TEST(further_losses),
        TEST(health_of_layers),
        TEST(no_health_where_it_is_not_wanted),
        TEST(files_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
