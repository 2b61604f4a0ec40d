/* The configuration of a run: one field per option, and where each value came from.
 *
 *     bk_config c;
 *     bk_config_init(&c);
 *     st = bk_config_read_flags(NULL, own, n_own, argc, argv, e);  // where is --config?
 *     st = bk_config_read_yaml(&c, path, e);                       // defaults < file < flags
 *     st = bk_config_read_flags(&c, own, n_own, argc, argv, e);
 *     st = bk_config_resolve(&c, e);                               // derived values, then every rule
 *     ...
 *     bk_config_free(&c);
 *
 * Fields may be read after bk_config_resolve; before it some are unset: a count is BK_UNSET_COUNT, a real is
 * NaN. Unset after it too, where not given: memory_limit, lr_warmup_fraction, lr_wsd_decay_iters, and
 * lr_decay_iters of a run without steps. The activation is `activation`, however it was spelled. When a call
 * fails, the configuration is good for bk_config_free alone. */
#ifndef BK_CONFIG_CONFIG_H
#define BK_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define BK_UNSET_COUNT INT64_MIN

/* Room for any option's name with its dashes. */
enum { BK_OPTION_NAME_LEN = 96 };

typedef struct bk_str_list {
    const char *const *items;
    int64_t n;
} bk_str_list;

/* Enumerations: bk_activation and so on. */
#define BK_ENUM(type, choices)    typedef enum { choices } type;
#define BK_CHOICE(constant, text) constant,
#include "config/options.def"

/* Ids of all options, those without a field included. */
typedef enum bk_option_id {
#define BK_OPT(name, kind, def, lo, hi, group, aliases, help) BK_OPT_##name,
#define BK_OPT_ENUM(name, type, def, group, aliases, help)    BK_OPT_##name,
#define BK_OFF(name, kind, off, aliases, feature)             BK_OPT_##name,
#define BK_INERT(name, kind, aliases)                         BK_OPT_##name,
#include "config/options.def"
    BK_N_OPTIONS
} bk_option_id;

typedef struct bk_origin {
    const char *where; /* "my.yaml:3", "--lr"; the formula of a derived value; NULL: the default stands */
    const char *text;  /* the value as it was written; NULL for defaults and derived values */
} bk_origin;

typedef struct bk_config {
#define BK_C_flag                                             bool
#define BK_C_count                                            int64_t
#define BK_C_real                                             double
#define BK_C_bytes                                            int64_t
#define BK_C_text                                             const char *
#define BK_C_list                                             bk_str_list
#define BK_OPT(name, kind, def, lo, hi, group, aliases, help) BK_C_##kind name;
#define BK_OPT_ENUM(name, type, def, group, aliases, help)    type name;
#include "config/options.def"
#undef BK_C_flag
#undef BK_C_count
#undef BK_C_real
#undef BK_C_bytes
#undef BK_C_text
#undef BK_C_list
    bk_origin origin[BK_N_OPTIONS];
    bk_arena arena; /* owns every string above */
} bk_config;

/* Every option at its default. */
void bk_config_init(bk_config *c);

/* Frees the strings; NULL is fine. */
void bk_config_free(bk_config *c);

/* Sets one option. `name` is a name or an alias, with '-' or '_', with or without leading "--"; "no_" in
 * front of a flag's name turns it round. `value` is text as in a file ("true", "12", "3e-4", "rope"); "none",
 * "null" and "~" give the default back, unless they are a choice of the option. `where` is for messages,
 * copied; NULL: "set by the program". BK_E_INPUT names the option, the value and what is allowed; an unknown
 * name gets the nearest known one. */
bk_status bk_config_set(bk_config *c, const char *name, const char *value, const char *where, bk_err *e);

/* The same for an option that takes a list; a list of one is fine for any option. */
bk_status bk_config_set_list(bk_config *c, const char *name, const char *const *values, int64_t n,
                             const char *where, bk_err *e);

/* Reads a YAML file of `name: value`, or one of Megatron's with the options under MODEL_ARGS (other keys in
 * capitals are then left alone: they are for its test harness). JSON of that shape is YAML too. At most 1
 * MiB. BK_E_IO when the file cannot be read; BK_E_INPUT, with file and line, for all that is wrong in it:
 * syntax, unknown or repeated options (an alias is the same option), nesting, anchors, bad values. */
bk_status bk_config_read_yaml(bk_config *c, const char *path, bk_err *e);

/* The same for bytes in memory; `name` stands for the file in messages. */
bk_status bk_config_read_yaml_memory(bk_config *c, const void *bytes, size_t n, const char *name, bk_err *e);

/* A flag of the caller that is no option: --config FILE, --dump. */
typedef struct bk_flag {
    const char *name;  /* "config", without dashes */
    bool takes_value;  /* what follows is its value */
    const char *value; /* out: NULL when absent, "" for a flag without value, else borrowed from argv */
} bk_flag;

/* Reads `--name value`, `--name=value`, `--flag`, `--flag=false`, `--no-flag`; a list takes all arguments up
 * to the next one that starts with "--". The last of two wins. The caller's flags go to `own`, all others are
 * options of `c`. With c NULL only `own` is filled: names are checked, values are not. argv has arguments
 * alone, neither program nor command. BK_E_INPUT: unknown flag (with the nearest), missing or bad value, an
 * argument that is no flag. */
bk_status bk_config_read_flags(bk_config *c, bk_flag *own, int64_t n_own, int argc, char *const *argv,
                               bk_err *e);

/* Derives what was left unset, then checks every rule; may be called again after further sets. BK_E_INPUT
 * names the options of the broken rule, where they were set, and a way out. */
bk_status bk_config_resolve(bk_config *c, bk_err *e);

/* Appends one option's value as text that bk_config_set reads back ("unset" for none). */
void bk_config_value(bk_str *out, const bk_config *c, bk_option_id id);

/* "hidden_size 100 (my.yaml:3)": an option, its value and its origin, for messages; cut to fit. Returns out.
 */
enum { BK_CITE_LEN = 192 };
char *bk_config_cite(char out[BK_CITE_LEN], const bk_config *c, bk_option_id id);

/* A hash over what decides the numbers of a run: names and values of the options of model, mHC, training and
 * data. How it is computed and reported does not count. BK_E_MEM. */
bk_status bk_config_hash(uint64_t *out, const bk_config *c);

/* Appends all options, one a line: name, value, origin; then those that were set without effect. Same text
 * for the same configuration. */
void bk_config_dump(bk_str *out, const bk_config *c);

/* Appends the options with kind, default, range and help, by group; then the names that are not built. */
void bk_config_help(bk_str *out);

#endif
