#include "train/checkpoint_options.h"

#include <string.h>

/* Names of the options that have a field; NULL for the others. */
static const char *const option_names[BK_N_OPTIONS] = {
#define BK_OPT(name, kind, def, lo, hi, group, aliases, help) [BK_OPT_##name] = #name,
#define BK_OPT_ENUM(name, type, def, group, aliases, help)    [BK_OPT_##name] = #name,
#include "config/options.def"
};

/* The items of a list, NULL for options of other kinds. */
static const bk_str_list *list_of(const bk_config *c, bk_option_id id)
{
#define LIST_flag(name)
#define LIST_count(name)
#define LIST_real(name)
#define LIST_bytes(name)
#define LIST_text(name)
#define LIST_list(name)                                                                                      \
    if (id == BK_OPT_##name) return &c->name;
#define BK_OPT(name, kind, def, lo, hi, group, aliases, help) LIST_##kind(name)
#include "config/options.def"
    return NULL;
}

/* Where a call of the program reads and writes is not part of a run. */
static bool is_of_the_call(bk_option_id id)
{
    return id == BK_OPT_save || id == BK_OPT_save_interval || id == BK_OPT_save_keep || id == BK_OPT_load ||
           id == BK_OPT_ckpt_step;
}

static bk_status option_of(bk_manifest_option *out, bk_arena *a, const bk_config *c, bk_option_id id,
                           bk_err *e)
{
    const bk_str_list *list = list_of(c, id);
    *out = (bk_manifest_option){.name = option_names[id], .n_values = 1};
    if (list && list->n > 0) {
        out->value = list->items, out->n_values = list->n, out->is_list = true;
        return BK_OK;
    }
    bk_str text = {0};
    bk_config_value(&text, c, id);
    const char **value = bk_arena_alloc(a, 1, sizeof *value);
    if (value && !text.failed) *value = bk_arena_strdup(a, bk_str_text(&text));
    const bool ok = value && *value;
    bk_str_free(&text);
    out->value = value;
    return ok ? BK_OK : bk_err_set(e, BK_E_MEM, "no memory for the options of a checkpoint");
}

bk_status bk_checkpoint_options(bk_manifest *m, const bk_config *c, bk_err *e)
{
    m->option = bk_arena_alloc(&m->arena, BK_N_OPTIONS, sizeof *m->option);
    if (!m->option) return bk_err_set(e, BK_E_MEM, "no memory for the options of a checkpoint");
    bk_status st = BK_OK;
    for (int id = 0; id < BK_N_OPTIONS && st == BK_OK; id++)
        if (option_names[id]) st = option_of(&m->option[m->n_options++], &m->arena, c, (bk_option_id)id, e);
    return st;
}

static const bk_manifest_option *find(const bk_manifest *m, const char *name)
{
    for (int64_t i = 0; i < m->n_options; i++)
        if (strcmp(m->option[i].name, name) == 0) return &m->option[i];
    return NULL;
}

static bool same_values(const bk_manifest_option *a, const bk_manifest_option *b)
{
    bool same = a->n_values == b->n_values;
    for (int64_t i = 0; same && i < a->n_values; i++) same = strcmp(a->value[i], b->value[i]) == 0;
    return same;
}

/* The options of the table that the manifest has with another value, first those of the manifest that the
 * table does not have, are handed to `visit`: `theirs` or `ours` is NULL where the other alone has it. */
typedef bk_status visitor(void *ctx, const bk_manifest_option *theirs, const bk_manifest_option *ours);

static bk_status for_each_difference(const bk_manifest *m, const bk_config *c, visitor *visit, void *ctx,
                                     bk_err *e)
{
    bk_manifest mine = {0};
    bk_status st = BK_OK;
    BK_TRY(bk_checkpoint_options(&mine, c, e));
    for (int64_t i = 0; i < m->n_options; i++)
        if (!find(&mine, m->option[i].name)) BK_TRY(visit(ctx, &m->option[i], NULL));
    int64_t k = 0;
    for (int id = 0; id < BK_N_OPTIONS; id++) {
        if (!option_names[id]) continue;
        const bk_manifest_option *ours = &mine.option[k++], *theirs = find(m, ours->name);
        if (is_of_the_call((bk_option_id)id) || (theirs && same_values(theirs, ours))) continue;
        BK_TRY(visit(ctx, theirs, ours));
    }
done:
    bk_manifest_free(&mine);
    return st;
}

typedef struct {
    bk_config *c;
    const char *where;
    bk_err *e;
} setter;

/* An option that the manifest does not have stays as it is; one that this version does not have is refused by
 * its name. */
static bk_status set_theirs(void *ctx, const bk_manifest_option *theirs, const bk_manifest_option *ours)
{
    (void)ours;
    const setter *s = ctx;
    return theirs ? bk_config_set_list(s->c, theirs->name, theirs->value, theirs->n_values, s->where, s->e)
                  : BK_OK;
}

static bk_status refuse_theirs(void *ctx, const bk_manifest_option *theirs, const bk_manifest_option *ours)
{
    (void)ours;
    const setter *s = ctx;
    if (!theirs) return BK_OK;
    return bk_err_set(s->e, BK_E_INPUT, "%s: %.100s cannot have the value %.100s", s->where, theirs->name,
                      theirs->value[0]);
}

/* Setting every option would make rules stumble over two spellings of one thing, where the run had given one
 * of them. So those are set that differ from the defaults, and then those that still differ: a value that was
 * given and is the default, where this version derives another. */
bk_status bk_checkpoint_options_apply(bk_config *out, const bk_manifest *m, const char *where, bk_err *e)
{
    bk_status st = BK_OK;
    setter s = {.c = out, .where = where, .e = e};
    bk_config_init(out);
    for (int pass = 0; pass < 2; pass++) {
        BK_TRY(for_each_difference(m, out, set_theirs, &s, e));
        BK_TRY(bk_config_resolve(out, e));
    }
    BK_TRY(for_each_difference(m, out, refuse_theirs, &s, e));
done:
    return st;
}

static void append_values(bk_str *out, const bk_manifest_option *o)
{
    for (int64_t i = 0; i < o->n_values; i++) bk_str_appendf(out, "%s%s", i ? " " : "", o->value[i]);
}

static bk_status append_difference(void *ctx, const bk_manifest_option *theirs,
                                   const bk_manifest_option *ours)
{
    bk_str *out = ctx;
    bk_str_appendf(out, "%s ", theirs ? theirs->name : ours->name);
    if (theirs)
        append_values(out, theirs);
    else
        bk_str_append(out, "not saved");
    bk_str_append(out, " -> ");
    if (ours)
        append_values(out, ours);
    else
        bk_str_append(out, "no option of this version");
    bk_str_append(out, "\n");
    return BK_OK;
}

void bk_checkpoint_options_diff(bk_str *out, const bk_manifest *m, const bk_config *c)
{
    if (for_each_difference(m, c, append_difference, out, NULL) != BK_OK) out->failed = true;
}
