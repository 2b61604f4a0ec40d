/* The configuration as text: the dump and the help. */
#include <string.h>

#include "base/hash.h"
#include "config/option.h"

enum { NAME_WIDTH = 36, VALUE_WIDTH = 20, HELP_INDENT = 6, LINE_WIDTH = 100 };

static const char *const group_titles[] = {
    [BK_GROUP_MODEL] = "model",
    [BK_GROUP_MHC] = "mHC",
    [BK_GROUP_MLA] = "multi-latent attention",
    [BK_GROUP_MOE] = "mixture of experts",
    [BK_GROUP_MTP] = "multi-token prediction",
    [BK_GROUP_TRAIN] = "training",
    [BK_GROUP_DATA] = "data",
    [BK_GROUP_RUN] = "run",
    [BK_GROUP_OFF] = "not built",
    [BK_GROUP_INERT] = "accepted, without effect",
};

/* Blanks up to the column, at least one; `from` is where the line began in out. */
static void pad(bk_str *out, size_t from, size_t column)
{
    const size_t now = out->len - from;
    bk_str_append_char(out, ' ', now < column ? (int64_t)(column - now) : 1);
}

static void dump_line(bk_str *out, const bk_config *c, bk_option_id id)
{
    const size_t from = out->len;
    bk_str_append(out, bk_options[id].name);
    pad(out, from, NAME_WIDTH);
    bk_config_value(out, c, id);
    pad(out, from, NAME_WIDTH + VALUE_WIDTH);
    bk_str_append(out, c->origin[id].where ? c->origin[id].where : "default");
    bk_str_append(out, "\n");
}

void bk_config_dump(bk_str *out, const bk_config *c)
{
    for (int group = 0; group <= BK_GROUP_INERT; group++) {
        bool titled = false;
        for (int i = 0; i < BK_N_OPTIONS; i++) {
            const bk_option *o = &bk_options[i];
            if ((int)o->group != group) continue;
            if (!bk_option_has_field(o) && !bk_option_is_given(c, (bk_option_id)i)) continue;
            if (!titled) bk_str_appendf(out, "# %s\n", group_titles[group]);
            titled = true;
            dump_line(out, c, (bk_option_id)i);
        }
    }
}

bk_status bk_config_hash(uint64_t *out, const bk_config *c)
{
    bk_str text = {0};
    for (int i = 0; i < BK_N_OPTIONS; i++) {
        if (bk_options[i].group >= BK_GROUP_RUN) continue;
        bk_str_appendf(&text, "%s ", bk_options[i].name);
        bk_config_value(&text, c, (bk_option_id)i);
        bk_str_append_char(&text, '\n', 1);
    }
    const bool failed = text.failed;
    *out = bk_hash_str(bk_str_text(&text));
    bk_str_free(&text);
    return failed ? BK_E_MEM : BK_OK;
}

/* The flag with '-' for '_'. */
static void append_flag(bk_str *out, const char *name)
{
    bk_str_append(out, "--");
    for (; *name; name++) bk_str_append_char(out, *name == '_' ? '-' : *name, 1);
}

static void append_kind(bk_str *out, const bk_option *o)
{
    static const char *const words[] = {
        [BK_KIND_flag] = "",        [BK_KIND_count] = " N",   [BK_KIND_real] = " X",
        [BK_KIND_bytes] = " BYTES", [BK_KIND_text] = " TEXT", [BK_KIND_list] = " TEXT ...",
        [BK_KIND_enum] = " "};
    bk_str_append(out, words[o->kind]);
    for (int i = 0; o->choices && o->choices[i]; i++)
        bk_str_appendf(out, "%s%s", i ? "|" : "", o->choices[i]);
}

/* "; also name, name (the opposite)" */
static void append_aliases(bk_str *out, const char *aliases)
{
    const char *join = "; also ";
    for (const char *at = aliases; *at; at += strspn(at, " ")) {
        const size_t len = strcspn(at, " ");
        const bool negated = *at == '!';
        bk_str_appendf(out, "%s%.*s%s", join, (int)(len - negated), at + negated,
                       negated ? " (the opposite)" : "");
        join = ", ";
        at += len;
    }
}

static void help_option(bk_str *out, const bk_config *defaults, bk_option_id id)
{
    const bk_option *o = &bk_options[id];
    bk_str_append(out, "  ");
    append_flag(out, o->name);
    append_kind(out, o);
    bk_str_append(out, "\n");
    bk_str_append_char(out, ' ', HELP_INDENT);
    bk_str_append(out, o->help);
    bk_str value = {0};
    bk_config_value(&value, defaults, id);
    if (strcmp(bk_str_text(&value), "unset") != 0) bk_str_appendf(out, "; default %s", bk_str_text(&value));
    bk_str_free(&value);
    char range[BK_RANGE_LEN];
    if (o->kind == BK_KIND_count || o->kind == BK_KIND_real || o->kind == BK_KIND_bytes)
        bk_str_appendf(out, "; %s", bk_option_range(range, o));
    append_aliases(out, o->aliases);
    bk_str_append(out, "\n");
}

/* The names of a group, wrapped. */
static void help_names(bk_str *out, bk_group group)
{
    size_t from = out->len;
    for (int i = 0; i < BK_N_OPTIONS; i++) {
        if (bk_options[i].group != group) continue;
        if (out->len - from + strlen(bk_options[i].name) + 1 > LINE_WIDTH) {
            bk_str_append(out, "\n");
            from = out->len;
        }
        bk_str_append(out, out->len == from ? "  " : " ");
        bk_str_append(out, bk_options[i].name);
    }
    bk_str_append(out, "\n");
}

void bk_config_help(bk_str *out)
{
    bk_config defaults;
    bk_config_init(&defaults);
    for (int group = 0; group <= BK_GROUP_INERT; group++) {
        bk_str_appendf(out, "%s%s:\n", group ? "\n" : "", group_titles[group]);
        if (group >= BK_GROUP_OFF) {
            help_names(out, (bk_group)group);
            continue;
        }
        for (int i = 0; i < BK_N_OPTIONS; i++)
            if ((int)bk_options[i].group == group) help_option(out, &defaults, (bk_option_id)i);
    }
    bk_config_free(&defaults);
}
