#include "config/moe_options.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CITE(c, name) bk_config_cite((char[BK_CITE_LEN]){0}, (c), BK_OPT_##name)

/* ---- moe_layer_freq ---- */

/* A list expression while it is read, whose words may stand in several items. What does not fit in out[0 ..
 * cap) is counted once and dropped.
 *
 *     sum  = term ("+" term)*
 *     term = part ("*" NUMBER)*
 *     part = "(" sum ")" | "[" (0 | 1),* "]" */
typedef struct {
    const char *at;
    const char *const *next; /* items after that of `at` */
    int64_t n_next;
    bool *out;
    int64_t n, cap;
    bool bad;
} list_reader;

enum { MAX_NESTING = 32 };

static void skip_blanks(list_reader *r)
{
    for (;;) {
        while (isspace((unsigned char)*r->at)) r->at++;
        if (*r->at != '\0' || r->n_next == 0) return;
        r->at = *r->next++, r->n_next--;
    }
}

static bool take(list_reader *r, char c)
{
    skip_blanks(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static int64_t number(list_reader *r)
{
    int64_t n = 0;
    skip_blanks(r);
    r->bad = r->bad || !isdigit((unsigned char)*r->at);
    for (; isdigit((unsigned char)*r->at); r->at++)
        if (n <= r->cap) n = 10 * n + (*r->at - '0'); /* beyond cap all numbers are alike */
    return n;
}

static void append(list_reader *r, bool value)
{
    if (r->n < r->cap) r->out[r->n] = value;
    if (r->n <= r->cap) r->n++;
}

/* The entries from `from` on, `times` times. */
static void repeat(list_reader *r, int64_t from, int64_t times)
{
    const int64_t n = r->n - from;
    if (times == 0) r->n = from;
    for (int64_t k = 1; k < times && n > 0 && r->n <= r->cap; k++)
        for (int64_t i = 0; i < n && r->n <= r->cap; i++) append(r, from + i < r->cap && r->out[from + i]);
}

static void sum(list_reader *r, int depth);

static void part(list_reader *r, int depth)
{
    if (take(r, '(') && depth < MAX_NESTING) {
        sum(r, depth + 1);
        r->bad = r->bad || !take(r, ')');
        return;
    }
    r->bad = r->bad || !take(r, '[');
    if (r->bad || take(r, ']')) return;
    do {
        const int64_t value = number(r);
        r->bad = r->bad || value > 1;
        append(r, value == 1);
    } while (!r->bad && take(r, ','));
    r->bad = r->bad || !take(r, ']');
}

static void sum(list_reader *r, int depth)
{
    do {
        const int64_t from = r->n;
        part(r, depth);
        while (!r->bad && take(r, '*')) repeat(r, from, number(r));
    } while (!r->bad && take(r, '+'));
}

/* A list of items that are each 0 or 1. */
static bool read_items(list_reader *r, const bk_str_list *items)
{
    r->n = 0;
    for (int64_t i = 0; i < items->n; i++) {
        const char *text = items->items[i];
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) return false;
        append(r, *text == '1');
    }
    return true;
}

static bk_status read_pattern(bool *out, const bk_config *c, bk_err *e)
{
    const bk_str_list *freq = &c->moe_layer_freq;
    list_reader r = {.at = freq->items[0],
                     .next = freq->items + 1,
                     .n_next = freq->n - 1,
                     .out = out,
                     .cap = c->num_layers};
    bool ok = read_items(&r, freq);
    if (!ok) {
        r.n = 0;
        sum(&r, 0);
        skip_blanks(&r);
        ok = !r.bad && *r.at == '\0';
    }
    if (!ok)
        return bk_err_set(
            e, BK_E_INPUT,
            "%s is neither a number above 0 nor a pattern of 0 and 1; write it like 2, [0, 1, 1] "
            "or ([0]*1+[1]*2)",
            CITE(c, moe_layer_freq));
    if (r.n == c->num_layers) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s has too %s entries for %s; give each layer a 0 or a 1",
                      CITE(c, moe_layer_freq), r.n > c->num_layers ? "many" : "few", CITE(c, num_layers));
}

bk_status bk_config_moe_layers(bool *out, const bk_config *c, bk_err *e)
{
    const bk_str_list *freq = &c->moe_layer_freq;
    for (int64_t i = 0; i < c->num_layers; i++) out[i] = c->num_experts > 0;
    if (c->num_experts == 0 || freq->n == 0) return BK_OK;
    char *end;
    const long every = strtol(freq->items[0], &end, 10);
    if (freq->n > 1 || end == freq->items[0] || *end != '\0' || every < 1) return read_pattern(out, c, e);
    for (int64_t i = 0; i < c->num_layers; i++) out[i] = i % every == 0;
    return BK_OK;
}

/* ---- balancing losses ---- */

static const char *const kind_names[BK_N_BALANCES] = {"aux_loss", "seq_aux_loss", "global_aux_loss"};

static bk_status read_coeff(double *out, const bk_config *c, int64_t k, bk_err *e)
{
    *out = 0;
    if (c->moe_aux_loss_coeff.n == 0) return BK_OK;
    const char *text = c->moe_aux_loss_coeff.items[k];
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(*out) && *out >= 0) return BK_OK;
    return bk_err_set(e, BK_E_INPUT, "%s: '%.40s' is not a number of at least 0; correct it",
                      CITE(c, moe_aux_loss_coeff), text);
}

bk_status bk_config_balances(bk_balance out[BK_N_BALANCES], int *n, const bk_config *c, bk_err *e)
{
    static const char *const unset[] = {"aux_loss"};
    const bk_str_list *given = &c->moe_router_load_balancing_type;
    const bk_str_list types = given->n ? *given : (bk_str_list){unset, 1};
    *n = 0;
    if (types.n == 1 && strcmp(types.items[0], "none") == 0) return BK_OK;
    if (c->moe_aux_loss_coeff.n != 0 && c->moe_aux_loss_coeff.n != types.n)
        return bk_err_set(e, BK_E_INPUT,
                          "%s and %s have different lengths; give one coefficient for each loss",
                          CITE(c, moe_router_load_balancing_type), CITE(c, moe_aux_loss_coeff));
    bool seen[BK_N_BALANCES] = {false};
    for (int64_t k = 0; k < types.n; k++) {
        int kind = 0;
        while (kind < BK_N_BALANCES && strcmp(types.items[k], kind_names[kind]) != 0) kind++;
        if (kind == BK_N_BALANCES || seen[kind])
            return bk_err_set(e, BK_E_INPUT,
                              "%s: '%.40s' is %s; give aux_loss, seq_aux_loss, global_aux_loss, each at most "
                              "once, or none alone",
                              CITE(c, moe_router_load_balancing_type), types.items[k],
                              kind == BK_N_BALANCES ? "not a balancing loss" : "repeated");
        seen[kind] = true;
        out[*n].kind = (bk_balance_kind)kind;
        const bk_status st = read_coeff(&out[*n].coeff, c, k, e);
        if (st != BK_OK) return st;
        *n += out[*n].coeff > 0;
    }
    return BK_OK;
}

/* ---- capacity ---- */

int64_t bk_config_expert_capacity(const bk_config *c)
{
    if (isnan(c->moe_expert_capacity_factor)) return 0;
    const int64_t tokens = c->seq_length * c->micro_batch_size; /* fits: config_rules.c */
    const double balanced = (double)tokens * (double)c->moe_router_topk / (double)c->num_experts;
    const double rows = ceil(balanced * c->moe_expert_capacity_factor);
    return rows < (double)tokens ? (int64_t)rows : tokens;
}
