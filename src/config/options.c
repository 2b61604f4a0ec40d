/* The option table, and how names are found in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "config/option.h"

#define BK_ENUM(type, choices)                                                                               \
    _Static_assert(sizeof(type) == sizeof(int), "enumerations are stored as int");                           \
    static const char *const type##_choices[] = {choices NULL};
#define BK_CHOICE(constant, text) [constant] = text,
#include "config/options.def"

const bk_option bk_options[BK_N_OPTIONS] = {
#define BK_OPT(name_, kind_, def, lo_, hi_, group_, aliases_, help_)                                         \
    [BK_OPT_##name_] = {.name = #name_,                                                                      \
                        .aliases = aliases_,                                                                 \
                        .kind = BK_KIND_##kind_,                                                             \
                        .group = BK_GROUP_##group_,                                                          \
                        .offset = offsetof(bk_config, name_),                                                \
                        .lo = (double)(lo_),                                                                 \
                        .hi = (double)(hi_),                                                                 \
                        .help = help_},
#define BK_OPT_ENUM(name_, type, def, group_, aliases_, help_)                                               \
    [BK_OPT_##name_] = {.name = #name_,                                                                      \
                        .aliases = aliases_,                                                                 \
                        .kind = BK_KIND_enum,                                                                \
                        .group = BK_GROUP_##group_,                                                          \
                        .offset = offsetof(bk_config, name_),                                                \
                        .choices = type##_choices,                                                           \
                        .help = help_},
#define BK_OFF(name_, kind_, off_, aliases_, feature)                                                        \
    [BK_OPT_##name_] = {.name = #name_,                                                                      \
                        .aliases = aliases_,                                                                 \
                        .kind = BK_KIND_##kind_,                                                             \
                        .group = BK_GROUP_OFF,                                                               \
                        .lo = -DBL_MAX,                                                                      \
                        .hi = DBL_MAX,                                                                       \
                        .off = off_,                                                                         \
                        .help = feature},
#define BK_INERT(name_, kind_, aliases_)                                                                     \
    [BK_OPT_##name_] = {.name = #name_,                                                                      \
                        .aliases = aliases_,                                                                 \
                        .kind = BK_KIND_##kind_,                                                             \
                        .group = BK_GROUP_INERT,                                                             \
                        .lo = -DBL_MAX,                                                                      \
                        .hi = DBL_MAX},
#include "config/options.def"
};

/* Without leading dashes, '_' for '-'. False when longer than any option. */
static bool normalise(char out[BK_OPTION_NAME_LEN], const char *name)
{
    while (*name == '-') name++;
    const size_t len = strlen(name);
    if (len == 0 || len >= BK_OPTION_NAME_LEN) return false;
    for (size_t i = 0; i <= len; i++) out[i] = name[i] == '-' ? '_' : name[i];
    return true;
}

/* Steps through "a !b c": the next word, its length and whether it is negated. NULL at the end. */
static const char *next_alias(const char **at, size_t *len, bool *negated)
{
    *at += strspn(*at, " ");
    if (**at == '\0') return NULL;
    *negated = **at == '!';
    const char *word = *at + *negated;
    *len = strcspn(word, " ");
    *at = word + *len;
    return word;
}

static bool find_exact(bk_option_id *out, bool *negated, const char *name)
{
    const size_t name_len = strlen(name);
    for (int i = 0; i < BK_N_OPTIONS; i++) {
        *out = (bk_option_id)i, *negated = false;
        if (strcmp(bk_options[i].name, name) == 0) return true;
        const char *at = bk_options[i].aliases, *word;
        for (size_t len; (word = next_alias(&at, &len, negated));)
            if (len == name_len && memcmp(word, name, len) == 0) return true;
    }
    return false;
}

bool bk_option_find(bk_option_id *out, bool *negated, const char *name)
{
    char plain[BK_OPTION_NAME_LEN];
    if (!normalise(plain, name)) return false;
    if (find_exact(out, negated, plain)) return true;
    if (strncmp(plain, "no_", 3) != 0 || !find_exact(out, negated, plain + 3)) return false;
    *negated = !*negated;
    return bk_options[*out].kind == BK_KIND_flag;
}

/* Names and aliases of all options; strings of the arena. False when memory is short. */
static bool collect_names(bk_arena *a, const char ***names, int64_t *n, int64_t *cap)
{
    bk_status st;
    for (int i = 0; i < BK_N_OPTIONS; i++) {
        BK_VEC_PUSH(st, *names, *n, *cap, bk_options[i].name);
        if (st != BK_OK) return false;
        const char *at = bk_options[i].aliases, *word;
        bool negated;
        for (size_t len; (word = next_alias(&at, &len, &negated));) {
            char *copy = bk_arena_strndup(a, word, len);
            if (!copy) return false;
            BK_VEC_PUSH(st, *names, *n, *cap, copy);
            if (st != BK_OK) return false;
        }
    }
    return true;
}

char *bk_option_suggest(char out[BK_SUGGEST_LEN], const char *name, const char *const *more, int64_t n_more)
{
    out[0] = '\0';
    char plain[BK_OPTION_NAME_LEN];
    if (!normalise(plain, name)) return out;
    bk_arena a = {0};
    const char **names = NULL;
    int64_t n = 0, cap = 0;
    bool ok = collect_names(&a, &names, &n, &cap);
    for (int64_t i = 0; ok && i < n_more; i++) {
        bk_status st;
        BK_VEC_PUSH(st, names, n, cap, more[i]);
        ok = st == BK_OK;
    }
    const char *near = ok ? bk_nearest(plain, names, n) : NULL;
    if (near) snprintf(out, BK_SUGGEST_LEN, "; did you mean %s?", near);
    free(names);
    bk_arena_free(&a);
    return out;
}

char *bk_quote(char out[BK_QUOTE_LEN], const char *text)
{
    size_t n = 0;
    out[n++] = '\'';
    for (; text[n - 1] && n <= 60; n++) {
        const unsigned char ch = (unsigned char)text[n - 1];
        out[n] = ch < 0x20 || ch == 0x7f ? '?' : (char)ch;
    }
    snprintf(out + n, BK_QUOTE_LEN - n, text[n - 1] ? "...'" : "'");
    return out;
}
