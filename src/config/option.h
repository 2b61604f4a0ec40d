/* Inside src/config: the options of options.def as a table, and their values as text. */
#ifndef BK_CONFIG_OPTION_H
#define BK_CONFIG_OPTION_H

#include <float.h>
#include <math.h>

#include "config/config.h"

#define BK_UNSET_REAL  ((double)NAN)
#define BK_EMPTY_LIST  ((bk_str_list){0})
#define BK_MAX_EXPERTS 65536
/* The least of a list whose word none is an entry and does not stand for the default. */
#define BK_NONE_IS_ENTRY 1
#define BK_MAX_WIDTH     16777216 /* 2^24: products of two sizes and a few counts fit in 63 bits */
#define BK_BELOW_1       0x1.fffffffffffffp-1 /* a range that ends before 1 */
#define BK_ABOVE_0       DBL_TRUE_MIN         /* a range that begins after 0 */

typedef enum {
    BK_KIND_flag,
    BK_KIND_count,
    BK_KIND_real,
    BK_KIND_bytes,
    BK_KIND_text,
    BK_KIND_list,
    BK_KIND_enum
} bk_option_kind;

typedef enum {
    BK_GROUP_MODEL,
    BK_GROUP_MHC,
    BK_GROUP_MLA,
    BK_GROUP_MOE,
    BK_GROUP_MTP,
    BK_GROUP_TRAIN,
    BK_GROUP_DATA,
    BK_GROUP_RUN,
    BK_GROUP_OFF,
    BK_GROUP_INERT
} bk_group;

typedef struct bk_option {
    const char *name, *aliases;
    bk_option_kind kind;
    bk_group group;
    size_t offset;              /* of the field; unused for OFF and INERT */
    double lo, hi;              /* inclusive; numbers alone */
    const char *const *choices; /* NULL-terminated; enumerations alone */
    const char *off;            /* OFF: values that mean "not used" */
    const char *help;           /* OFF: the feature, INERT: NULL */
} bk_option;

extern const bk_option bk_options[BK_N_OPTIONS];

static inline bool bk_option_has_field(const bk_option *o)
{
    return o->group < BK_GROUP_OFF;
}

/* Finds an option by any spelling that bk_config_set takes. *negated: the value is to be turned round. */
bool bk_option_find(bk_option_id *out, bool *negated, const char *name);

/* "; did you mean num_layers?" into out, or "" when nothing is near. `more` are further names to consider.
 * Returns out. */
enum { BK_SUGGEST_LEN = BK_OPTION_NAME_LEN + 32 };
char *bk_option_suggest(char out[BK_SUGGEST_LEN], const char *name, const char *const *more, int64_t n_more);

/* Text of the user for a message: at most 60 characters, unprintable ones as '?'. Returns out. */
enum { BK_QUOTE_LEN = 68 };
char *bk_quote(char out[BK_QUOTE_LEN], const char *text);

/* "at least 1 and at most 16", "above 0": the range of a number. Returns out. */
enum { BK_RANGE_LEN = 96 };
char *bk_option_range(char out[BK_RANGE_LEN], const bk_option *o);

/* The option gets its default back. */
void bk_option_reset(bk_config *c, bk_option_id id);

/* "true" for a flag's "false" and its like, "false" otherwise; NULL when the text is no flag's value. */
const char *bk_option_opposite(const char *text);

/* Parses and stores a value; the message does not yet say where. */
bk_status bk_option_store(bk_config *c, bk_option_id id, const char *const *values, int64_t n, bk_err *e);

/* Whether an OFF option was given a value that asks for the feature. */
bool bk_option_wants_feature(const bk_config *c, bk_option_id id);

/* Whether a file, a flag or the program set the option. */
static inline bool bk_option_is_given(const bk_config *c, bk_option_id id)
{
    return c->origin[id].text != NULL;
}

/* Fills in what was left unset (derive.c). */
bk_status bk_config_derive(bk_config *c, bk_err *e);

/* The rules of mixture of experts, for a configuration with derived values. */
bk_status bk_config_check_mla(const bk_config *c, bk_err *e);
bk_status bk_config_check_moe(const bk_config *c, bk_err *e);

#endif
