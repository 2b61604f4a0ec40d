/* Setting options by name, and what messages say about them. */
#include "config/config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/option.h"

void bk_config_free(bk_config *c)
{
    if (!c) return;
    bk_arena_free(&c->arena);
    bk_config_init(c);
}

bk_status bk_config_set(bk_config *c, const char *name, const char *value, const char *where, bk_err *e)
{
    return bk_config_set_list(c, name, &value, 1, where, e);
}

/* "none" and the like give the default back, unless the word is a choice of the option, or an entry of a list
 * that knows it. */
static bool means_default(const bk_option *o, const char *text)
{
    if (o->kind == BK_KIND_list && o->lo == BK_NONE_IS_ENTRY && strcasecmp(text, "none") == 0) return false;
    for (int i = 0; o->choices && o->choices[i]; i++)
        if (strcasecmp(o->choices[i], text) == 0) return false;
    return strcasecmp(text, "none") == 0 || strcasecmp(text, "null") == 0 || strcasecmp(text, "unset") == 0 ||
           strcmp(text, "~") == 0;
}

/* The value as one text: itself, or "[a, b]" for a list. NULL when memory is short. */
static char *joined(bk_config *c, bk_option_kind kind, const char *const *values, int64_t n)
{
    if (n == 1 && kind != BK_KIND_list) return bk_arena_strdup(&c->arena, values[0]);
    bk_str all = {0};
    bk_str_append(&all, "[");
    for (int64_t i = 0; i < n; i++) bk_str_appendf(&all, "%s%s", i ? ", " : "", values[i]);
    bk_str_append(&all, "]");
    char *text = all.failed ? NULL : bk_arena_strdup(&c->arena, bk_str_text(&all));
    bk_str_free(&all);
    return text;
}

static bk_status set_found(bk_config *c, bk_option_id id, bool negated, const char *const *values, int64_t n,
                           const char *where, bk_err *e)
{
    const bk_option *o = &bk_options[id];
    if (n == 1 && means_default(o, values[0])) {
        bk_option_reset(c, id);
        return BK_OK;
    }
    const char *const opposite = negated && n == 1 ? bk_option_opposite(values[0]) : NULL;
    if (opposite) values = &opposite;
    const bk_status st = bk_option_store(c, id, values, n, e);
    if (st != BK_OK) return st;
    c->origin[id] = (bk_origin){bk_arena_strdup(&c->arena, where), joined(c, o->kind, values, n)};
    if (!c->origin[id].where || !c->origin[id].text)
        return bk_err_set(e, BK_E_MEM, "no memory for the value of %s", o->name);
    return BK_OK;
}

bk_status bk_config_set_list(bk_config *c, const char *name, const char *const *values, int64_t n,
                             const char *where, bk_err *e)
{
    if (!where) where = "set by the program";
    bk_option_id id;
    bool negated;
    bk_status st;
    if (bk_option_find(&id, &negated, name)) {
        st = set_found(c, id, negated, values, n, where, e);
    } else {
        char quoted[BK_QUOTE_LEN], near[BK_SUGGEST_LEN];
        st = bk_err_set(e, BK_E_INPUT, "there is no option %s%s", bk_quote(quoted, name),
                        bk_option_suggest(near, name, NULL, 0));
    }
    if (st != BK_OK) bk_err_prefix(e, "%s: ", where);
    return st;
}

char *bk_config_cite(char out[BK_CITE_LEN], const bk_config *c, bk_option_id id)
{
    bk_str value = {0};
    bk_config_value(&value, c, id);
    const char *where = c->origin[id].where;
    snprintf(out, BK_CITE_LEN, "%s %.60s (%.80s)", bk_options[id].name, bk_str_text(&value),
             where ? where : "default");
    bk_str_free(&value);
    return out;
}
