/* Options from YAML: a flat mapping, or Megatron's files, whose options stand under MODEL_ARGS.
 *
 * Reads libyaml's events, never a tree, so depth and size are bounded here: no anchors, no nesting beyond a
 * list as a value, one document, 1 MiB. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/vec.h"
#include "config/option.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_LIST = 4096 };

typedef struct reader {
    bk_config *config;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; owned */
    const char *name;   /* of the file */
    bk_err *err;
    int64_t seen[BK_N_OPTIONS]; /* line where the option was set, 0 for none */
    bool has_model_args;
} reader;

static int64_t line_of(const reader *r)
{
    return (int64_t)r->event.start_mark.line + 1;
}

static bk_status fail(reader *r, int64_t line, const char *what)
{
    return bk_err_set(r->err, BK_E_INPUT, "%s:%" PRId64 ": %s", r->name, line, what);
}

/* Steps to the next event. */
static bk_status next(reader *r)
{
    yaml_event_delete(&r->event);
    memset(&r->event, 0, sizeof r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        const yaml_parser_t *p = &r->parser;
        const int64_t line = (int64_t)(p->problem_mark.line ? p->problem_mark.line : p->mark.line) + 1;
        if (p->error == YAML_MEMORY_ERROR)
            return bk_err_set(r->err, BK_E_MEM, "%s: no memory to read it", r->name);
        return bk_err_set(r->err, BK_E_INPUT, "%s:%" PRId64 ": not YAML: %s", r->name, line,
                          p->problem ? p->problem : "cannot be read");
    }
    const yaml_event_t *ev = &r->event;
    const bool anchored = (ev->type == YAML_SCALAR_EVENT && ev->data.scalar.anchor) ||
                          (ev->type == YAML_SEQUENCE_START_EVENT && ev->data.sequence_start.anchor) ||
                          (ev->type == YAML_MAPPING_START_EVENT && ev->data.mapping_start.anchor);
    if (anchored || ev->type == YAML_ALIAS_EVENT)
        return fail(r, line_of(r), "anchors and aliases are not read; write the value out");
    if (ev->type == YAML_SCALAR_EVENT && memchr(ev->data.scalar.value, 0, ev->data.scalar.length))
        return fail(r, line_of(r), "a value holds a zero byte; remove it");
    return BK_OK;
}

/* Steps over the value that begins at the current event. */
static bk_status skip_value(reader *r)
{
    for (int depth = 0;;) {
        const yaml_event_type_t t = r->event.type;
        depth += t == YAML_MAPPING_START_EVENT || t == YAML_SEQUENCE_START_EVENT;
        depth -= t == YAML_MAPPING_END_EVENT || t == YAML_SEQUENCE_END_EVENT;
        if (depth == 0) return BK_OK;
        if (depth > 16) return fail(r, line_of(r), "nested deeper than 16 levels; flatten it");
        const bk_status st = next(r);
        if (st != BK_OK) return st;
    }
}

/* A plain scalar of a list option has its items between spaces, as on a command line. */
static bk_status split_words(char ***items, int64_t *n, int64_t *cap, bk_arena *a, const char *text)
{
    bk_status st = BK_OK;
    while (st == BK_OK && *(text += strspn(text, " \t\n"))) {
        const size_t len = strcspn(text, " \t\n");
        char *word = bk_arena_strndup(a, text, len);
        if (!word) return BK_E_MEM;
        BK_VEC_PUSH(st, *items, *n, *cap, word);
        text += len;
    }
    return st;
}

/* The items of a sequence; the current event is its start, afterwards its end. */
static bk_status read_items(reader *r, char ***items, int64_t *n, int64_t *cap)
{
    for (;;) {
        bk_status st = next(r);
        if (st != BK_OK || r->event.type == YAML_SEQUENCE_END_EVENT) return st;
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail(r, line_of(r), "a list holds a list or a mapping; write its items as plain values");
        if (*n >= MAX_LIST) return fail(r, line_of(r), "a list has more than 4096 items; shorten it");
        char *item = bk_arena_strdup(&r->config->arena, (const char *)r->event.data.scalar.value);
        st = BK_E_MEM;
        if (item) BK_VEC_PUSH(st, *items, *n, *cap, item);
        if (st != BK_OK) return bk_err_set(r->err, st, "%s: no memory to read it", r->name);
    }
}

/* The value of an option; the current event is its start, afterwards its end. */
static bk_status read_value(reader *r, const char *key, bool is_list, const char *where)
{
    char **items = NULL;
    int64_t n = 0, cap = 0;
    bk_status st = BK_OK;
    if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        BK_TRY(read_items(r, &items, &n, &cap));
        st = bk_config_set_list(r->config, key, (const char *const *)items, n, where, r->err);
    } else if (r->event.type != YAML_SCALAR_EVENT) {
        st = bk_err_set(r->err, BK_E_INPUT,
                        "%s: a mapping stands where an option has its value; write one value", where);
    } else {
        const bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        const char *text = (const char *)r->event.data.scalar.value;
        if (plain && *text == '\0') text = "null";
        if (is_list && strpbrk(text, " \t\n")) {
            st = split_words(&items, &n, &cap, &r->config->arena, text);
            if (st != BK_OK) bk_err_set(r->err, st, "%s: no memory to read it", r->name);
            BK_TRY(st);
            st = bk_config_set_list(r->config, key, (const char *const *)items, n, where, r->err);
        } else {
            st = bk_config_set(r->config, key, text, where, r->err);
        }
    }
done:
    free(items);
    return st;
}

/* One `name: value`; the current event is the key. */
static bk_status read_option(reader *r, const char *key)
{
    const int64_t line = line_of(r);
    char *where = bk_arena_printf(&r->config->arena, "%s:%" PRId64, r->name, line);
    if (!where) return bk_err_set(r->err, BK_E_MEM, "%s: no memory to read it", r->name);
    bk_option_id id;
    bool negated;
    const bool known = bk_option_find(&id, &negated, key);
    if (known && r->seen[id] > 0)
        return bk_err_set(r->err, BK_E_INPUT,
                          "%s: %s is set a second time, first in line %" PRId64 "; keep one", where,
                          bk_options[id].name, r->seen[id]);
    if (known) r->seen[id] = line;
    const bk_status st = next(r);
    if (st != BK_OK) return st;
    if (!known) return bk_config_set(r->config, key, "", where, r->err); /* the message about the name */
    return read_value(r, key, bk_options[id].kind == BK_KIND_list, where);
}

static bk_status read_mapping(reader *r, bool top);

/* One entry; the current event is its key. */
static bk_status read_entry(reader *r, const char *key, bool top)
{
    const int64_t line = line_of(r);
    if (top && strcmp(key, "MODEL_ARGS") == 0) {
        if (r->has_model_args) return fail(r, line, "MODEL_ARGS stands a second time; keep one");
        r->has_model_args = true;
        const bk_status st = next(r);
        if (st != BK_OK) return st;
        if (r->event.type != YAML_MAPPING_START_EVENT)
            return fail(r, line, "MODEL_ARGS is no mapping; write the options under it, one a line");
        return read_mapping(r, false);
    }
    if (top && isupper((unsigned char)key[0])) { /* the test harness's own; legal beside MODEL_ARGS alone */
        const bk_status st = next(r);
        return st == BK_OK ? skip_value(r) : st;
    }
    return read_option(r, key);
}

/* The current event is the start of the mapping, afterwards its end. */
static bk_status read_mapping(reader *r, bool top)
{
    int64_t capitals_line = 0;
    char capitals[BK_QUOTE_LEN];
    for (;;) {
        bk_status st = next(r);
        if (st != BK_OK) return st;
        if (r->event.type == YAML_MAPPING_END_EVENT) break;
        if (r->event.type != YAML_SCALAR_EVENT)
            return fail(r, line_of(r), "an option's name is a list or a mapping; write name: value");
        char key[BK_OPTION_NAME_LEN];
        const char *text = (const char *)r->event.data.scalar.value;
        snprintf(key, sizeof key, "%s", text); /* a longer one is unknown, cut or not */
        if (top && isupper((unsigned char)key[0]) && strcmp(key, "MODEL_ARGS") != 0 && capitals_line == 0)
            capitals_line = line_of(r), bk_quote(capitals, key);
        st = read_entry(r, key, top);
        if (st != BK_OK) return st;
    }
    if (capitals_line == 0 || r->has_model_args) return BK_OK;
    return bk_err_set(r->err, BK_E_INPUT,
                      "%s:%" PRId64 ": there is no option %s, and no MODEL_ARGS in the file", r->name,
                      capitals_line, capitals);
}

static bk_status read_stream(reader *r)
{
    bk_status st;
    BK_TRY(next(r)); /* stream start */
    BK_TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) goto done; /* empty: all defaults */
    BK_TRY(next(r));
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        BK_TRY(read_mapping(r, true));
    } else if (r->event.type != YAML_SCALAR_EVENT || r->event.data.scalar.length > 0) {
        st = fail(r, line_of(r), "the file is no mapping; write options as name: value, one a line");
        goto done;
    }
    BK_TRY(next(r)); /* document end */
    BK_TRY(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        st = fail(r, line_of(r), "a second document begins; keep one");
done:
    return st;
}

bk_status bk_config_read_yaml_memory(bk_config *c, const void *bytes, size_t n, const char *name, bk_err *e)
{
    if (n > MAX_FILE_BYTES)
        return bk_err_set(e, BK_E_INPUT, "%s: larger than 1 MiB, which no config is; check the path", name);
    reader r = {.config = c, .name = name, .err = e};
    if (!yaml_parser_initialize(&r.parser)) return bk_err_set(e, BK_E_MEM, "%s: no memory to read it", name);
    yaml_parser_set_input_string(&r.parser, n ? bytes : (const unsigned char *)"", n);
    const bk_status st = read_stream(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return st;
}

bk_status bk_config_read_yaml(bk_config *c, const char *path, bk_err *e)
{
    bk_status st = BK_OK;
    char *bytes = NULL;
    FILE *f = fopen(path, "rb");
    if (!f) {
        st = bk_err_set(e, BK_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
        goto done;
    }
    bytes = malloc(MAX_FILE_BYTES + 1);
    if (!bytes) {
        st = bk_err_set(e, BK_E_MEM, "%s: no memory to read it", path);
        goto done;
    }
    const size_t n = fread(bytes, 1, MAX_FILE_BYTES + 1, f);
    if (ferror(f)) {
        st = bk_err_set(e, BK_E_IO, "%s: cannot be read: %s", path, strerror(errno));
        goto done;
    }
    st = bk_config_read_yaml_memory(c, bytes, n, path, e);
done:
    free(bytes);
    if (f) fclose(f);
    return st;
}
