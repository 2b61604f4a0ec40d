/* Options from command line arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option.h"

/* Arguments still to be read. */
typedef struct args {
    char *const *argv;
    int n;
} args;

/* Splits "--name=value"; *value is NULL without '='. False when the name is longer than any flag. */
static bool split_flag(char name[BK_OPTION_NAME_LEN], const char **value, const char *arg)
{
    const size_t len = strcspn(arg, "=");
    if (len >= BK_OPTION_NAME_LEN) return false;
    snprintf(name, BK_OPTION_NAME_LEN, "%.*s", (int)len, arg);
    *value = arg[len] == '=' ? arg + len + 1 : NULL;
    return true;
}

static bool is_flag(const char *arg)
{
    return strncmp(arg, "--", 2) == 0;
}

static bk_flag *find_own(bk_flag *own, int64_t n_own, const char *name)
{
    for (int64_t i = 0; i < n_own; i++)
        if (strcmp(own[i].name, name + 2) == 0) return &own[i];
    return NULL;
}

static bk_status read_own(bk_flag *flag, const char *value, args *rest, bk_err *e)
{
    if (!flag->takes_value) {
        if (value) return bk_err_set(e, BK_E_INPUT, "--%s takes no value; write it alone", flag->name);
        flag->value = "";
        return BK_OK;
    }
    if (!value && rest->n > 0 && !is_flag(rest->argv[0])) value = rest->argv[0], rest->argv++, rest->n--;
    if (!value) return bk_err_set(e, BK_E_INPUT, "--%s needs a value after it", flag->name);
    flag->value = value;
    return BK_OK;
}

/* How many of the arguments that follow belong to the option. */
static int count_values(const bk_option *o, const args *rest)
{
    if (rest->n == 0 || is_flag(rest->argv[0])) return 0;
    if (o->kind == BK_KIND_flag)
        return strcmp(rest->argv[0], "true") == 0 || strcmp(rest->argv[0], "false") == 0;
    int n = 1;
    if (o->kind == BK_KIND_list)
        while (n < rest->n && !is_flag(rest->argv[n])) n++;
    return n;
}

static bk_status read_option(bk_config *c, const bk_option *o, const char *name, const char *value,
                             args *rest, bk_err *e)
{
    const char *const alone = value ? value : "true";
    const char *const *values = &alone;
    int n = 1;
    if (!value) {
        const int following = count_values(o, rest);
        if (following == 0 && o->kind != BK_KIND_flag)
            return bk_err_set(e, BK_E_INPUT, "%s needs a value after it", name);
        if (following > 0) values = (const char *const *)rest->argv, n = following;
        rest->argv += following, rest->n -= following;
    }
    return c ? bk_config_set_list(c, name, values, n, name, e) : BK_OK;
}

static bk_status refuse_unknown(const char *name, const bk_flag *own, int64_t n_own, bk_err *e)
{
    const char *more[64];
    int64_t n = 0;
    for (; n < n_own && n < 64; n++) more[n] = own[n].name;
    char quoted[BK_QUOTE_LEN], near[BK_SUGGEST_LEN];
    return bk_err_set(e, BK_E_INPUT, "there is no option %s%s", bk_quote(quoted, name),
                      bk_option_suggest(near, name, more, n));
}

bk_status bk_config_read_flags(bk_config *c, bk_flag *own, int64_t n_own, int argc, char *const *argv,
                               bk_err *e)
{
    args rest = {argv, argc};
    bk_status st = BK_OK;
    while (st == BK_OK && rest.n > 0) {
        const char *arg = rest.argv[0];
        rest.argv++, rest.n--;
        char name[BK_OPTION_NAME_LEN], quoted[BK_QUOTE_LEN];
        const char *value;
        if (!is_flag(arg))
            return bk_err_set(e, BK_E_INPUT,
                              "%s is no option; options begin with --, and a value follows its option",
                              bk_quote(quoted, arg));
        if (!split_flag(name, &value, arg)) return refuse_unknown(arg, own, n_own, e);
        bk_flag *mine = find_own(own, n_own, name);
        bk_option_id id;
        bool negated;
        if (mine)
            st = read_own(mine, value, &rest, e);
        else if (bk_option_find(&id, &negated, name))
            st = read_option(c, &bk_options[id], name, value, &rest, e);
        else
            return refuse_unknown(name, own, n_own, e);
    }
    return st;
}
