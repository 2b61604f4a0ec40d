/* Writes manifests. The reader is manifest_parse.c. */
#include "train/manifest.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "data/safetensors_scan.h"

uint64_t bk_manifest_checksum(const void *bytes, int64_t n_bytes)
{
    return XXH3_64bits(bytes, (size_t)n_bytes);
}

/* The text as a JSON string; false when it is not UTF-8. */
static bool append_string(bk_str *out, const char *s)
{
    if (!bk_utf8_valid(s, (int64_t)strlen(s))) return false;
    bk_str_append_json(out, s);
    return true;
}

static bk_status append_count(bk_str *out, const char *key, int64_t n, bk_err *e)
{
    if (n < 0 || n > BK_ST_MAX_NUMBER)
        return bk_err_set(e, BK_E_INPUT, "%s %" PRId64 " is not in 0 ... 2^53, as a manifest has it", key, n);
    bk_str_appendf(out, "  \"%s\": %" PRId64 ",\n", key, n);
    return BK_OK;
}

static bk_status append_option(bk_str *out, const bk_manifest_option *o, bk_err *e)
{
    bool ok = append_string(out, o->name);
    bk_str_append(out, o->is_list ? ": [" : ": ");
    for (int64_t i = 0; i < o->n_values; i++) {
        if (i) bk_str_append(out, ", ");
        ok = append_string(out, o->value[i]) && ok;
    }
    if (o->is_list) bk_str_append(out, "]");
    if (ok) return BK_OK;
    return bk_err_set(e, BK_E_INPUT,
                      "the value of %.100s is not UTF-8 text, as a checkpoint needs it; "
                      "rename what it names",
                      o->name);
}

static bk_status append_tensor(bk_str *out, const bk_manifest_tensor *t, bk_err *e)
{
    if (!append_string(out, t->name)) return bk_err_set(e, BK_E_INPUT, "a tensor's name is not UTF-8 text");
    bk_str_appendf(out, ": {\"dtype\": \"%s\", \"shape\": [", bk_st_dtype_name(t->dtype));
    for (int d = 0; d < t->rank; d++) bk_str_appendf(out, "%s%" PRId64, d ? ", " : "", t->shape[d]);
    bk_str_appendf(out, "], \"xxh3\": \"%016" PRIx64 "\"}", t->checksum);
    return BK_OK;
}

void bk_manifest_seal(bk_str *text)
{
    bk_str_appendf(text, "  \"checksum\": \"%016" PRIx64 "\"\n}\n",
                   bk_manifest_checksum(bk_str_text(text), (int64_t)text->len));
}

bk_status bk_manifest_print(bk_str *out, const bk_manifest *m, bk_err *e)
{
    bk_str text = {0};
    bk_status st = BK_OK;
    bk_str_appendf(&text, "{\n  \"format_version\": %d,\n  \"birkhoff_version\": ", BK_MANIFEST_VERSION);
    if (!append_string(&text, m->birkhoff_version)) {
        st = bk_err_set(e, BK_E_INPUT, "birkhoff's version is not UTF-8 text");
        goto done;
    }
    bk_str_append(&text, ",\n");
    BK_TRY(append_count(&text, "iteration", m->iteration, e));
    BK_TRY(append_count(&text, "consumed_samples", m->consumed_samples, e));
    BK_TRY(append_count(&text, "skipped_steps", m->skipped_steps, e));
    BK_TRY(append_count(&text, "line_steps", m->line_steps, e));
    bk_str_appendf(&text, "  \"line_loss_sum\": \"%.17g\",\n", m->line_loss_sum);
    BK_TRY(append_count(&text, "file_bytes", m->file_bytes, e));
    bk_str_append(&text, "  \"config\": {");
    for (int64_t i = 0; i < m->n_options; i++) {
        bk_str_append(&text, i ? ",\n    " : "\n    ");
        BK_TRY(append_option(&text, &m->option[i], e));
    }
    bk_str_append(&text, "\n  },\n  \"tensors\": {");
    for (int64_t i = 0; i < m->n_tensors; i++) {
        bk_str_append(&text, i ? ",\n    " : "\n    ");
        BK_TRY(append_tensor(&text, &m->tensor[i], e));
    }
    bk_str_append(&text, "\n  },\n");
    bk_manifest_seal(&text);
    bk_str_append_n(out, bk_str_text(&text), text.len);
    if (text.failed || out->failed) st = bk_err_set(e, BK_E_MEM, "no memory for a manifest");
done:
    bk_str_free(&text);
    return st;
}

void bk_manifest_free(bk_manifest *m)
{
    bk_arena_free(&m->arena);
    *m = (bk_manifest){0};
}
