/* Values of options: from text to field, from field to text, and back to the default. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/option.h"

static void set_defaults(bk_config *c)
{
#define BK_OPT(name, kind, def, lo, hi, group, aliases, help) c->name = def;
#define BK_OPT_ENUM(name, type, def, group, aliases, help)    c->name = def;
#include "config/options.def"
}

void bk_config_init(bk_config *c)
{
    memset(c, 0, sizeof *c);
    set_defaults(c);
    bk_arena_init(&c->arena);
}

static void *field_of(bk_config *c, const bk_option *o)
{
    return (char *)c + o->offset;
}

static size_t field_size(bk_option_kind kind)
{
    switch (kind) {
    case BK_KIND_flag:
        return sizeof(bool);
    case BK_KIND_count:
    case BK_KIND_bytes:
        return sizeof(int64_t);
    case BK_KIND_real:
        return sizeof(double);
    case BK_KIND_text:
        return sizeof(const char *);
    case BK_KIND_list:
        return sizeof(bk_str_list);
    case BK_KIND_enum:
        return sizeof(int);
    }
    return 0;
}

void bk_option_reset(bk_config *c, bk_option_id id)
{
    const bk_option *o = &bk_options[id];
    c->origin[id] = (bk_origin){0};
    if (!bk_option_has_field(o)) return;
    bk_config defaults;
    bk_config_init(&defaults);
    memcpy(field_of(c, o), field_of(&defaults, o), field_size(o->kind));
}

/* What Python prints for a function or a dtype, down to its name: "<function silu at 0x7f>", "torch.float32".
 */
static void bare_name(char *out, size_t size, const char *text)
{
    static const char *const heads[] = {"<function ", "<built-in function ", "torch.", "torch.nn.functional.",
                                        "F."};
    size_t skip = 0;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (strncmp(text, heads[i], strlen(heads[i])) == 0) skip = strlen(heads[i]);
    const size_t len = skip && *text == '<' ? strcspn(text + skip, " >") : strlen(text + skip);
    snprintf(out, size, "%.*s", (int)(len < size ? len : size - 1), text + skip);
}

static bool parse_flag(bool *out, const char *text)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2;
            return true;
        }
    return false;
}

const char *bk_option_opposite(const char *text)
{
    bool v;
    return !parse_flag(&v, text) ? NULL : v ? "false" : "true";
}

static bool parse_count(int64_t *out, const char *text)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!isdigit((unsigned char)*digits)) return false;
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    *out = v;
    return errno == 0 && *end == '\0' && v != BK_UNSET_COUNT;
}

static bool parse_real(double *out, const char *text)
{
    if (text[strspn(text, "+-.0123456789eE")] != '\0') return false; /* no hex, inf, nan */
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

char *bk_option_range(char out[BK_RANGE_LEN], const bk_option *o)
{
    char lo[40], hi[40] = "";
    if (o->lo > 0 && o->lo <= BK_ABOVE_0)
        snprintf(lo, sizeof lo, "above 0");
    else
        snprintf(lo, sizeof lo, "at least %.15g", o->lo);
    if (o->hi < 1 && o->hi >= BK_BELOW_1)
        snprintf(hi, sizeof hi, " and below 1");
    else if (o->hi < 0x1p63)
        snprintf(hi, sizeof hi, " and at most %.15g", o->hi);
    snprintf(out, BK_RANGE_LEN, "%s%s", lo, hi);
    return out;
}

static bk_status check_range(const bk_option *o, double v, const char *text, bk_err *e)
{
    if (v >= o->lo && v <= o->hi) return BK_OK;
    char range[BK_RANGE_LEN], quoted[BK_QUOTE_LEN];
    return bk_err_set(e, BK_E_INPUT, "%s must be %s, not %s", o->name, bk_option_range(range, o),
                      bk_quote(quoted, text));
}

static bk_status refuse(const bk_option *o, const char *wanted, const char *text, bk_err *e)
{
    char quoted[BK_QUOTE_LEN];
    return bk_err_set(e, BK_E_INPUT, "%s takes %s, not %s", o->name, wanted, bk_quote(quoted, text));
}

/* The number of the choice called `text`, -1 for none. */
static int find_choice(const bk_option *o, const char *text)
{
    char bare[64];
    bare_name(bare, sizeof bare, text);
    for (int i = 0; o->choices[i]; i++)
        if (strcasecmp(o->choices[i], bare) == 0) return i;
    return -1;
}

static bk_status refuse_choice(const bk_option *o, const char *text, bk_err *e)
{
    char allowed[256] = "";
    for (int i = 0; o->choices[i]; i++) {
        const size_t n = strlen(allowed);
        const char *join = i == 0 ? "" : o->choices[i + 1] ? ", " : " or ";
        snprintf(allowed + n, sizeof allowed - n, "%s%s", join, o->choices[i]);
    }
    return refuse(o, allowed, text, e);
}

static bk_status store_list(bk_config *c, void *field, const char *const *values, int64_t n, bk_err *e)
{
    const char **items = bk_arena_alloc(&c->arena, n, sizeof *items);
    bool ok = items != NULL;
    for (int64_t i = 0; ok && i < n; i++) ok = (items[i] = bk_arena_strdup(&c->arena, values[i])) != NULL;
    if (!ok) return bk_err_set(e, BK_E_MEM, "no memory for a list of %" PRId64 " values", n);
    memcpy(field, &(bk_str_list){items, n}, sizeof(bk_str_list));
    return BK_OK;
}

/* One value into `field`, which has the size of the kind. */
static bk_status store_one(bk_config *c, void *field, const bk_option *o, const char *text, bk_err *e)
{
    switch (o->kind) {
    case BK_KIND_flag: {
        bool v;
        if (!parse_flag(&v, text)) return refuse(o, "true or false", text, e);
        memcpy(field, &v, sizeof v);
        return BK_OK;
    }
    case BK_KIND_count:
    case BK_KIND_bytes: {
        int64_t v;
        const bool bytes = o->kind == BK_KIND_bytes;
        if (bytes ? !bk_parse_bytes(&v, text) : !parse_count(&v, text))
            return refuse(o, bytes ? "a number of bytes (4096, 512M, 8GiB)" : "a whole number", text, e);
        memcpy(field, &v, sizeof v);
        return check_range(o, (double)v, text, e);
    }
    case BK_KIND_real: {
        double v;
        if (!parse_real(&v, text)) return refuse(o, "a number", text, e);
        memcpy(field, &v, sizeof v);
        return check_range(o, v, text, e);
    }
    case BK_KIND_enum: {
        const int v = find_choice(o, text);
        if (v < 0) return refuse_choice(o, text, e);
        memcpy(field, &v, sizeof v);
        return BK_OK;
    }
    case BK_KIND_text: {
        const char *copy = bk_arena_strdup(&c->arena, text);
        if (!copy) return bk_err_set(e, BK_E_MEM, "no memory for the value of %s", o->name);
        memcpy(field, &copy, sizeof copy);
        return BK_OK;
    }
    case BK_KIND_list:
        return store_list(c, field, &text, 1, e);
    }
    return BK_OK;
}

bk_status bk_option_store(bk_config *c, bk_option_id id, const char *const *values, int64_t n, bk_err *e)
{
    const bk_option *o = &bk_options[id];
    union {
        int64_t count;
        double real;
        bk_str_list list;
    } scratch;
    void *field = bk_option_has_field(o) ? field_of(c, o) : &scratch;
    if (o->kind == BK_KIND_list) return store_list(c, field, values, n, e);
    if (n != 1) return bk_err_set(e, BK_E_INPUT, "%s takes one value, not a list of %" PRId64, o->name, n);
    return store_one(c, field, o, values[0], e);
}

/* Whether two texts are the same value of the kind. */
static bool same_value(bk_option_kind kind, const char *a, const char *b)
{
    bool fa, fb;
    double ra, rb;
    if (kind == BK_KIND_flag && parse_flag(&fa, a) && parse_flag(&fb, b)) return fa == fb;
    if ((kind == BK_KIND_count || kind == BK_KIND_real) && parse_real(&ra, a) && parse_real(&rb, b))
        return ra >= rb && ra <= rb;
    char bare[64];
    bare_name(bare, sizeof bare, a);
    return strcasecmp(bare, b) == 0;
}

bool bk_option_wants_feature(const bk_config *c, bk_option_id id)
{
    const bk_option *o = &bk_options[id];
    const char *text = c->origin[id].text;
    if (!text) return false;
    for (const char *at = o->off; *at;) {
        char word[64];
        const size_t len = strcspn(at, "|");
        snprintf(word, sizeof word, "%.*s", (int)len, at);
        if (same_value(o->kind, text, word)) return false;
        at += len + (at[len] == '|');
    }
    return true;
}

static void append_real(bk_str *out, double v)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) { /* the shortest that reads back */
        snprintf(text, sizeof text, "%.*g", digits, v);
        const double back = strtod(text, NULL);
        if (back >= v && back <= v) break;
    }
    bk_str_append(out, text);
}

void bk_config_value(bk_str *out, const bk_config *c, bk_option_id id)
{
    const bk_option *o = &bk_options[id];
    if (!bk_option_has_field(o)) {
        bk_str_append(out, c->origin[id].text ? c->origin[id].text : "unset");
        return;
    }
    const void *field = (const char *)c + o->offset;
    bool flag;
    int choice;
    int64_t count;
    double real;
    const char *text;
    bk_str_list list;
    switch (o->kind) {
    case BK_KIND_flag:
        memcpy(&flag, field, sizeof flag), bk_str_append(out, flag ? "true" : "false");
        break;
    case BK_KIND_enum:
        memcpy(&choice, field, sizeof choice), bk_str_append(out, o->choices[choice]);
        break;
    case BK_KIND_text:
        memcpy(&text, field, sizeof text), bk_str_append(out, *text ? text : "unset");
        break;
    case BK_KIND_real:
        memcpy(&real, field, sizeof real);
        if (isnan(real))
            bk_str_append(out, "unset");
        else
            append_real(out, real);
        break;
    case BK_KIND_count:
    case BK_KIND_bytes:
        memcpy(&count, field, sizeof count);
        if (count == BK_UNSET_COUNT)
            bk_str_append(out, "unset");
        else
            bk_str_appendf(out, "%" PRId64, count);
        break;
    case BK_KIND_list:
        memcpy(&list, field, sizeof list);
        if (list.n == 0) bk_str_append(out, "unset");
        for (int64_t i = 0; i < list.n; i++) bk_str_appendf(out, "%s%s", i ? " " : "", list.items[i]);
        break;
    }
}
