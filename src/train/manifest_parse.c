/* Reads manifests: the checksum first, then the version, then every member. cJSON does the grammar; what it
 * lets through is harmless behind the checksum, but nothing is believed because of it. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/safetensors_scan.h"
#include "train/manifest.h"

typedef struct {
    bk_manifest m;
    const char *label;
    bk_err *e;
} reader;

static bk_status no_memory(const reader *r)
{
    return bk_err_set(r->e, BK_E_MEM, "%s: out of memory", r->label);
}

/* The last line but one holds the checksum of what is before it. */
static bk_status check_seal(const reader *r, const char *text, int64_t n_bytes)
{
    bk_str end = {0};
    bk_manifest_seal(&end);
    const int64_t n_end = (int64_t)end.len, n_body = n_bytes - n_end;
    bk_str_free(&end);
    if (n_end == 0) return no_memory(r);
    bool ok = n_body >= 0;
    if (ok) {
        char want[64];
        snprintf(want, sizeof want, "  \"checksum\": \"%016" PRIx64 "\"\n}\n",
                 bk_manifest_checksum(text, n_body));
        ok = memcmp(text + n_body, want, (size_t)n_end) == 0;
    }
    if (ok) return BK_OK;
    return bk_err_set(r->e, BK_E_INPUT, "%s: it does not have its checksum: cut short or altered", r->label);
}

static bk_status read_count(int64_t *out, const reader *r, const char *name, const cJSON *v)
{
    const double x = cJSON_IsNumber(v) ? v->valuedouble : -1;
    if (!(x >= 0 && x <= (double)BK_ST_MAX_NUMBER) || (double)(int64_t)x < x)
        return bk_err_set(r->e, BK_E_INPUT, "%s: %.200s is not a whole number in 0 ... 2^53", r->label, name);
    *out = (int64_t)x;
    return BK_OK;
}

static bk_status read_text(const char **out, reader *r, const char *name, const cJSON *v)
{
    if (!cJSON_IsString(v)) return bk_err_set(r->e, BK_E_INPUT, "%s: %.200s is not a text", r->label, name);
    *out = bk_arena_strdup(&r->m.arena, v->valuestring);
    return *out ? BK_OK : no_memory(r);
}

/* A number that is written as text, so that every bit of it comes back. */
static bk_status read_real(double *out, reader *r, const char *name, const cJSON *v)
{
    char *end = NULL;
    *out = cJSON_IsString(v) ? strtod(v->valuestring, &end) : 0;
    if (end && end != v->valuestring && !*end && isfinite(*out)) return BK_OK;
    return bk_err_set(r->e, BK_E_INPUT, "%s: %.200s is not a finite number in quotes", r->label, name);
}

static int64_t count_members(const cJSON *v)
{
    int64_t n = 0;
    for (const cJSON *c = v->child; c; c = c->next) n++;
    return n;
}

static bk_status read_option(bk_manifest_option *o, reader *r, const cJSON *v)
{
    o->is_list = cJSON_IsArray(v);
    o->n_values = o->is_list ? count_members(v) : 1;
    o->name = bk_arena_strdup(&r->m.arena, v->string);
    const char **value = bk_arena_alloc(&r->m.arena, o->n_values, sizeof *value);
    if (!o->name || !value) return no_memory(r);
    o->value = value;
    if (o->n_values == 0)
        return bk_err_set(r->e, BK_E_INPUT, "%s: the list of option %.200s is empty", r->label, o->name);
    bk_status st = BK_OK;
    const cJSON *item = o->is_list ? v->child : v;
    for (int64_t i = 0; i < o->n_values && st == BK_OK; i++, item = item->next)
        st = read_text(&value[i], r, o->name, item);
    return st;
}

static bk_status read_config(reader *r, const cJSON *v)
{
    if (!cJSON_IsObject(v)) return bk_err_set(r->e, BK_E_INPUT, "%s: config is not an object", r->label);
    r->m.n_options = count_members(v);
    r->m.option = bk_arena_alloc(&r->m.arena, r->m.n_options, sizeof *r->m.option);
    if (!r->m.option) return no_memory(r);
    bk_status st = BK_OK;
    bk_manifest_option *o = r->m.option;
    for (const cJSON *c = v->child; c && st == BK_OK; c = c->next) st = read_option(o++, r, c);
    return st;
}

static bk_status read_dtype(bk_st_dtype *out, const reader *r, const char *name, const cJSON *v)
{
    for (int i = 0; cJSON_IsString(v) && i < BK_ST_N_DTYPES; i++) {
        *out = (bk_st_dtype)i;
        if (strcmp(v->valuestring, bk_st_dtype_name(*out)) == 0) return BK_OK;
    }
    return bk_err_set(r->e, BK_E_INPUT, "%s: tensor %.200s has an unknown dtype", r->label, name);
}

static bk_status read_shape(bk_manifest_tensor *t, const reader *r, const cJSON *v)
{
    if (!cJSON_IsArray(v) || count_members(v) > BK_ST_MAX_RANK)
        return bk_err_set(r->e, BK_E_INPUT, "%s: tensor %.200s has no shape of at most %d dims", r->label,
                          t->name, BK_ST_MAX_RANK);
    bk_status st = BK_OK;
    for (const cJSON *c = v->child; c && st == BK_OK; c = c->next)
        st = read_count(&t->shape[t->rank++], r, t->name, c);
    return st;
}

/* Sixteen digits 0-9 a-f. */
static bk_status read_checksum(uint64_t *out, const reader *r, const char *name, const cJSON *v)
{
    const char *s = cJSON_IsString(v) ? v->valuestring : "";
    if (strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16)
        return bk_err_set(r->e, BK_E_INPUT, "%s: tensor %.200s has no checksum", r->label, name);
    *out = strtoull(s, NULL, 16);
    return BK_OK;
}

static bk_status read_tensor(bk_manifest_tensor *t, reader *r, const cJSON *v)
{
    bk_status st = BK_OK;
    t->name = bk_arena_strdup(&r->m.arena, v->string);
    if (!t->name) return no_memory(r);
    if (!cJSON_IsObject(v) || count_members(v) != 3)
        return bk_err_set(r->e, BK_E_INPUT, "%s: the entry of tensor %.200s is not dtype, shape and xxh3",
                          r->label, t->name);
    BK_TRY(read_dtype(&t->dtype, r, t->name, cJSON_GetObjectItemCaseSensitive(v, "dtype")));
    BK_TRY(read_shape(t, r, cJSON_GetObjectItemCaseSensitive(v, "shape")));
    BK_TRY(read_checksum(&t->checksum, r, t->name, cJSON_GetObjectItemCaseSensitive(v, "xxh3")));
done:
    return st;
}

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp(((const bk_manifest_tensor *)a)->name, ((const bk_manifest_tensor *)b)->name);
}

static bk_status read_tensors(reader *r, const cJSON *v)
{
    if (!cJSON_IsObject(v)) return bk_err_set(r->e, BK_E_INPUT, "%s: tensors is not an object", r->label);
    r->m.n_tensors = count_members(v);
    r->m.tensor = bk_arena_alloc(&r->m.arena, r->m.n_tensors, sizeof *r->m.tensor);
    if (!r->m.tensor) return no_memory(r);
    bk_status st = BK_OK;
    bk_manifest_tensor *t = r->m.tensor;
    for (const cJSON *c = v->child; c && st == BK_OK; c = c->next) st = read_tensor(t++, r, c);
    if (st != BK_OK) return st;
    qsort(r->m.tensor, (size_t)r->m.n_tensors, sizeof *t, by_tensor_name);
    for (int64_t i = 1; i < r->m.n_tensors; i++)
        if (strcmp(r->m.tensor[i - 1].name, r->m.tensor[i].name) == 0)
            return bk_err_set(r->e, BK_E_INPUT, "%s: tensor %.200s is given twice", r->label,
                              r->m.tensor[i].name);
    return BK_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bk_status options_are_distinct(const reader *r)
{
    bk_status st = BK_OK;
    const char **name = malloc(((size_t)r->m.n_options + 1) * sizeof *name);
    if (!name) return no_memory(r);
    for (int64_t i = 0; i < r->m.n_options; i++) name[i] = r->m.option[i].name;
    qsort(name, (size_t)r->m.n_options, sizeof *name, by_text);
    for (int64_t i = 1; i < r->m.n_options && st == BK_OK; i++)
        if (strcmp(name[i - 1], name[i]) == 0)
            st = bk_err_set(r->e, BK_E_INPUT, "%s: option %.200s is given twice", r->label, name[i]);
    free(name);
    return st;
}

static bk_status read_version(const reader *r, const cJSON *root)
{
    int64_t version = 0;
    const bk_status st =
        read_count(&version, r, "format_version", cJSON_GetObjectItemCaseSensitive(root, "format_version"));
    if (st != BK_OK || version == BK_MANIFEST_VERSION) return st;
    return bk_err_set(r->e, BK_E_INPUT,
                      "%s: it has format version %" PRId64
                      ", this birkhoff reads version %d; use the birkhoff that saved it",
                      r->label, version, BK_MANIFEST_VERSION);
}

/* Each member once, and no other. */
static bk_status read_members(reader *r, const cJSON *root)
{
    enum {
        FORMAT,
        BIRKHOFF,
        ITERATION,
        SAMPLES,
        SKIPPED,
        LINE_STEPS,
        LINE_SUM,
        BYTES,
        CONFIG,
        TENSORS,
        CHECKSUM,
        N_MEMBERS
    };
    static const char *const names[N_MEMBERS] = {
        "format_version", "birkhoff_version", "iteration", "consumed_samples", "skipped_steps", "line_steps",
        "line_loss_sum",  "file_bytes",       "config",    "tensors",          "checksum"};
    const cJSON *member[N_MEMBERS] = {0};
    bk_status st = BK_OK;
    for (const cJSON *c = root->child; c; c = c->next) {
        int k = 0;
        while (k < N_MEMBERS && strcmp(c->string, names[k]) != 0) k++;
        if (k == N_MEMBERS || member[k])
            return bk_err_set(r->e, BK_E_INPUT, "%s: member %.200s is %s", r->label, c->string,
                              k == N_MEMBERS ? "not known" : "given twice");
        member[k] = c;
    }
    for (int k = 0; k < N_MEMBERS; k++)
        if (!member[k]) return bk_err_set(r->e, BK_E_INPUT, "%s: %s is missing", r->label, names[k]);
    BK_TRY(read_text(&r->m.birkhoff_version, r, names[BIRKHOFF], member[BIRKHOFF]));
    BK_TRY(read_count(&r->m.iteration, r, names[ITERATION], member[ITERATION]));
    BK_TRY(read_count(&r->m.consumed_samples, r, names[SAMPLES], member[SAMPLES]));
    BK_TRY(read_count(&r->m.skipped_steps, r, names[SKIPPED], member[SKIPPED]));
    BK_TRY(read_count(&r->m.line_steps, r, names[LINE_STEPS], member[LINE_STEPS]));
    BK_TRY(read_real(&r->m.line_loss_sum, r, names[LINE_SUM], member[LINE_SUM]));
    BK_TRY(read_count(&r->m.file_bytes, r, names[BYTES], member[BYTES]));
    BK_TRY(read_config(r, member[CONFIG]));
    BK_TRY(options_are_distinct(r));
    BK_TRY(read_tensors(r, member[TENSORS]));
done:
    return st;
}

bk_status bk_manifest_parse(bk_manifest *out, const char *text, int64_t n_bytes, const char *label, bk_err *e)
{
    reader r = {.label = label, .e = e};
    cJSON *root = NULL;
    bk_status st = BK_OK;
    BK_TRY(check_seal(&r, text, n_bytes));
    root = cJSON_ParseWithLength(text, (size_t)n_bytes);
    if (!cJSON_IsObject(root)) {
        st = bk_err_set(e, BK_E_INPUT, "%s: it is not a JSON object", label);
        goto done;
    }
    BK_TRY(read_version(&r, root));
    BK_TRY(read_members(&r, root));
    *out = r.m, r.m = (bk_manifest){0};
done:
    cJSON_Delete(root);
    bk_manifest_free(&r.m);
    return st;
}
