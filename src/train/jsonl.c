#include "train/jsonl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Whether a new line must begin before the first record: a run that filled the disk may have left half a one.
 * A file that cannot be read is taken to end in the middle of a line: an empty one harms no reader. */
static bool ends_in_a_line(const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size == 0) return false;
    FILE *f = fopen(path, "rb");
    const int last = f && fseek(f, -1, SEEK_END) == 0 ? fgetc(f) : EOF;
    if (f) fclose(f);
    return last != '\n';
}

bk_status bk_jsonl_open(bk_jsonl *j, const char *path, bk_err *e)
{
    *j = (bk_jsonl){0};
    const bool cut_off = ends_in_a_line(path);
    bk_status st = bk_log_file_open(&j->file, path, false, e);
    if (st == BK_OK && cut_off) st = bk_log_file_write(&j->file, "\n", 1, e);
    if (st != BK_OK) bk_jsonl_close(j, NULL);
    return st;
}

static void begin(bk_jsonl *j, const char *kind)
{
    j->line.len = 0;
    bk_str_appendf(&j->line, "{\"kind\":\"%s\"", kind);
}

/* None where an object or a list begins. */
static void put_comma(bk_jsonl *j)
{
    const char last = j->line.len ? j->line.s[j->line.len - 1] : '{';
    if (last != '{' && last != '[') bk_str_append(&j->line, ",");
}

static void put_key(bk_jsonl *j, const char *key)
{
    put_comma(j);
    bk_str_appendf(&j->line, "\"%s\":", key);
}

static void put_count(bk_jsonl *j, const char *key, int64_t n)
{
    put_key(j, key);
    bk_str_appendf(&j->line, "%" PRId64, n);
}

static void put_number(bk_jsonl *j, double x)
{
    if (isfinite(x))
        bk_str_appendf(&j->line, "%.17g", x);
    else
        bk_str_append(&j->line, "null");
}

static void put_real(bk_jsonl *j, const char *key, double x)
{
    put_key(j, key);
    put_number(j, x);
}

static void put_text(bk_jsonl *j, const char *key, const char *text)
{
    put_key(j, key);
    bk_str_append_json(&j->line, text);
}

static bk_status end(bk_jsonl *j, bk_err *e)
{
    bk_str_append(&j->line, "}\n");
    if (j->line.failed) return bk_err_set(e, BK_E_MEM, "%s: out of memory", j->file.path);
    return bk_log_file_write(&j->file, j->line.s, j->line.len, e);
}

bk_status bk_jsonl_run(bk_jsonl *j, const bk_run_values *v, bk_err *e)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, v->config_hash);
    begin(j, "run");
    put_text(j, "birkhoff", v->version);
    put_text(j, "commit", v->commit);
    put_text(j, "config_hash", hash);
    put_count(j, "first_iteration", v->first_iteration);
    put_count(j, "time", (int64_t)time(NULL));
    return end(j, e);
}

/* "mtp_1 loss" under the key "mtp_1_loss". */
static void put_scalars(bk_jsonl *j, const bk_metric_table *t)
{
    for (int64_t k = 0; t && k < t->n; k++) {
        char key[64];
        if (!bk_metric_is_scalar(&t->row[k])) continue;
        snprintf(key, sizeof key, "%s", t->row[k].name);
        for (char *space = key; (space = strchr(space, ' '));) *space = '_';
        put_real(j, key, t->row[k].x[0]);
    }
}

bk_status bk_jsonl_step(bk_jsonl *j, const bk_step_values *v, bk_err *e)
{
    begin(j, "step");
    put_count(j, "iteration", v->iteration);
    put_count(j, "consumed_samples", v->n_samples);
    put_real(j, "loss", v->loss);
    put_real(j, "grad_norm", v->grad_norm);
    put_real(j, "learning_rate", v->learning_rate);
    put_real(j, "tokens_per_s", v->tokens_per_s);
    put_real(j, "tflops", v->tflops);
    put_real(j, "seconds", v->seconds);
    put_scalars(j, v->metrics);
    return end(j, e);
}

bk_status bk_jsonl_evaluation(bk_jsonl *j, const bk_evaluation_values *v, bk_err *e)
{
    begin(j, "validation");
    put_count(j, "iteration", v->iteration);
    put_count(j, "consumed_samples", v->n_samples);
    put_real(j, "validation_loss", v->loss);
    put_real(j, "validation_ppl", bk_perplexity(v->loss));
    return end(j, e);
}

static void put_experts(bk_jsonl *j, const bk_expert_health *x)
{
    put_key(j, "experts");
    bk_str_append(&j->line, "{");
    put_count(j, "least", x->least);
    put_count(j, "most", x->most);
    put_count(j, "dead", x->dead);
    put_count(j, "tokens", x->tokens);
    for (int k = 0; k < x->n_losses; k++) put_real(j, x->loss[k].name, x->loss[k].value);
    bk_str_append(&j->line, "}");
}

static void put_hc(bk_jsonl *j, const char *key, const bk_hc_health *x)
{
    put_key(j, key);
    bk_str_append(&j->line, "{");
    put_real(j, "row_error", x->row_error);
    put_real(j, "column_error", x->column_error);
    put_real(j, "from_identity", x->from_identity);
    put_real(j, "from_uniform", x->from_uniform);
    put_key(j, "stream_norms");
    bk_str_append(&j->line, "[");
    for (int64_t k = 0; k < x->n_streams; k++) put_comma(j), put_number(j, x->stream_norm[k]);
    bk_str_append(&j->line, "]}");
}

static void put_layer(bk_jsonl *j, const bk_layer_health *x)
{
    put_comma(j);
    bk_str_append(&j->line, "{");
    put_text(j, "layer", x->name);
    if (x->experts.n) put_experts(j, &x->experts);
    if (x->attention.n_streams) {
        put_key(j, "hc");
        bk_str_append(&j->line, "{");
        put_hc(j, "attention", &x->attention);
        put_hc(j, "mlp", &x->mlp);
        bk_str_append(&j->line, "}");
    }
    bk_str_append(&j->line, "}");
}

bk_status bk_jsonl_health(bk_jsonl *j, const bk_health_values *v, bk_err *e)
{
    begin(j, "health");
    put_count(j, "iteration", v->iteration);
    put_count(j, "consumed_samples", v->n_samples);
    put_key(j, "layers");
    bk_str_append(&j->line, "[");
    for (int64_t k = 0; k < v->health.n; k++) put_layer(j, &v->health.row[k]);
    bk_str_append(&j->line, "]");
    return end(j, e);
}

bk_status bk_jsonl_room(bk_jsonl *j, const bk_room_values *v, bk_err *e)
{
    begin(j, "room");
    put_count(j, "iteration", v->iteration);
    put_count(j, "rows", v->n_rows);
    put_count(j, "room_before", v->room_before);
    put_count(j, "room", v->room);
    return end(j, e);
}

bk_status bk_jsonl_close(bk_jsonl *j, bk_err *e)
{
    bk_str_free(&j->line);
    return bk_log_file_close(&j->file, e);
}
