/* The parser: one function a kind of line. Ids that a line defines must come in order; ids that it refers to
 * are noted with their line and checked at the end, since tables refer to each other. What the ids make
 * together is the verifier's matter. */
#include "ir/parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ir/lexer.h"
#include "ir/print.h"
#include "ir/verify.h"

/* A reference to check at the end. */
typedef struct {
    char sigil; /* '%' value, '@' op, 'p' parameter */
    int32_t id;
    int32_t line;
    const char *name; /* the name that was given with it, or NULL */
} reference;

typedef struct {
    bk_lexer x;
    bk_graph *g;
    reference *ref;
    int64_t n_refs, cap_refs;
    bk_oid *op_id; /* the ids that the ops were given, in the order of the text */
    int64_t n_ids, cap_ids;
    bk_scope scope; /* of the heading above */
    bk_tag tag;
    bool heading;
} parser;

static bool grown(parser *p, bk_status st)
{
    if (st != BK_OK) {
        p->x.st = bk_err_set(p->x.e, BK_E_MEM, "%s:%" PRId32 ": out of memory", p->x.where, p->x.line);
        return false;
    }
    return true;
}

/* ---- parts of lines ----------------------------------------------------------------------------------- */

static bool read_id(parser *p, int32_t *out, char sigil)
{
    int64_t id;
    if (!bk_lex_expect(&p->x, sigil) || !bk_lex_int(&p->x, &id, 0, INT32_MAX - 1, "an id")) return false;
    *out = (int32_t)id;
    return true;
}

/* "%3", "%3:name", "@3", "p3". */
static bool read_reference(parser *p, int32_t *out, char sigil)
{
    reference r = {.sigil = sigil, .line = p->x.line};
    if (!read_id(p, &r.id, sigil)) return false;
    if (sigil == '%' && bk_lex_accept(&p->x, ':') && !bk_lex_name(&p->x, &r.name, "the value's name"))
        return false;
    bk_status st;
    BK_VEC_PUSH(st, p->ref, p->n_refs, p->cap_refs, r);
    *out = r.id;
    return grown(p, st);
}

/* One of the spread words "tp=split:0", or false without an error where there is none. */
static bool accept_spread(parser *p, bk_spread *spread)
{
    static const char *const kinds[] = {"same", "split", "partial"};
    for (int a = 0; a < BK_N_AXES; a++) {
        if (!bk_lex_accept_word(&p->x, bk_axis_names[a])) continue;
        int kind = 0;
        int64_t dim = 0;
        if (!bk_lex_expect(&p->x, '=') || !bk_lex_choice(&p->x, &kind, kinds, 3, "a spread")) return false;
        if (kind == BK_SPLIT &&
            (!bk_lex_expect(&p->x, ':') || !bk_lex_int(&p->x, &dim, 0, BK_MAX_DIMS - 1, "a dim")))
            return false;
        spread[a] = (bk_spread){(uint8_t)kind, (int8_t)dim};
        return true;
    }
    return false;
}

static bool more_in_list(parser *p, int n, char close, bool *more)
{
    *more = false;
    if (bk_lex_accept(&p->x, close)) return true;
    if (n > 0 && !bk_lex_expect(&p->x, ',')) return false;
    *more = true;
    return true;
}

/* "[4, %7:n<=16]" after the '['; counts are not wanted where count is NULL. */
static bool read_dims(parser *p, int *rank, int64_t *size, bk_vid *count, const char *what)
{
    for (*rank = 0;; ++*rank) {
        bool more;
        if (!more_in_list(p, *rank, ']', &more)) return false;
        if (!more) return true;
        if (*rank == BK_MAX_DIMS) return bk_lex_fail(&p->x, "expected at most %d dims", BK_MAX_DIMS);
        bk_vid id = -1;
        const bool counted = count && !bk_lex_at_end(&p->x) && *p->x.at == '%';
        if (counted &&
            (!read_reference(p, &id, '%') || !bk_lex_expect(&p->x, '<') || !bk_lex_expect(&p->x, '=')))
            return false;
        if (count) count[*rank] = counted ? id + 1 : 0;
        if (!bk_lex_int(&p->x, &size[*rank], 0, INT64_MAX, what)) return false;
    }
}

static bool read_tag(parser *p, bk_tag *out)
{
    bk_lexer *x = &p->x;
    int module = 0, node = 0, pass = 0;
    int64_t layer = BK_NONE;
    if (!bk_lex_choice(x, &module, bk_module_names, BK_N_MODULES, "a module") || !bk_lex_expect(x, '.'))
        return false;
    if (bk_lex_number_next(x) && (!bk_lex_int(x, &layer, 0, INT16_MAX, "a layer") || !bk_lex_expect(x, '.')))
        return false;
    if (!bk_lex_choice(x, &node, bk_node_names, BK_N_NODES, "a node")) return false;
    if (!bk_lex_choice(x, &pass, bk_pass_names, BK_N_PASSES, "a pass")) return false;
    *out = (bk_tag){(uint8_t)module, (uint8_t)node, (uint8_t)pass, (int16_t)layer};
    return true;
}

static bool read_named_lane(parser *p, bk_lane *out)
{
    int lane = 0;
    if (!bk_lex_expect(&p->x, '=') || !bk_lex_choice(&p->x, &lane, bk_lane_names, BK_N_LANES, "a lane"))
        return false;
    *out = (bk_lane)lane;
    return true;
}

static bool read_dtype(parser *p, bk_dtype *out)
{
    int dtype = 0;
    if (!bk_lex_choice(&p->x, &dtype, bk_dtype_names, BK_N_DTYPES, "a dtype")) return false;
    *out = (bk_dtype)dtype;
    return true;
}

/* The id that the line defines must be the next of its table. */
static bool check_next_id(parser *p, int32_t id, int64_t n, const char *what)
{
    return id == n || bk_lex_fail(&p->x, "%s %" PRId32 " must be number %" PRId64 ", the next of its table",
                                  what, id, n);
}

/* ---- lines -------------------------------------------------------------------------------------------- */

static bool read_head(parser *p)
{
    if (!bk_lex_next_line(&p->x) || !bk_lex_accept_word(&p->x, "graph"))
        return bk_lex_fail(&p->x, "expected 'graph' and the dtype of activations");
    if (!read_dtype(p, &p->g->real)) return false;
    while (!bk_lex_at_end(&p->x)) {
        int axis = 0;
        int64_t n = 0;
        if (!bk_lex_choice(&p->x, &axis, bk_axis_names, BK_N_AXES, "an axis") || !bk_lex_expect(&p->x, '=') ||
            !bk_lex_int(&p->x, &n, 1, INT32_MAX, "the ranks of the axis"))
            return false;
        p->g->axis_size[axis] = (int32_t)n;
    }
    return true;
}

static bool read_init(parser *p, bk_param *row)
{
    int init = 0;
    if (!bk_lex_expect(&p->x, '=') ||
        !bk_lex_choice(&p->x, &init, bk_init_rule_names, BK_INIT_XAVIER + 1, "an init rule"))
        return false;
    row->init = (bk_init_rule)init;
    return !bk_lex_accept(&p->x, ':') || bk_lex_float(&p->x, &row->init_arg, "the argument of the init rule");
}

/* One of the words after a parameter's class. */
static bool read_param_word(parser *p, bk_param *row)
{
    bk_lexer *x = &p->x;
    if (bk_lex_accept_word(x, "init")) return read_init(p, row);
    if (bk_lex_accept_word(x, "decay")) return row->decay = true;
    if (bk_lex_accept_word(x, "master")) return row->master = true;
    if (bk_lex_accept_word(x, "value")) return bk_lex_expect(x, '=') && read_reference(p, &row->value, '%');
    if (bk_lex_accept_word(x, "grad")) return bk_lex_expect(x, '=') && read_reference(p, &row->grad, '%');
    if (bk_lex_accept_word(x, "alias"))
        return bk_lex_expect(x, '=') && bk_lex_name(x, &row->alias, "the alias");
    return accept_spread(p, row->spread) ||
           bk_lex_fail(x, "expected init, decay, master, value, grad, alias or an axis");
}

static bool read_param(parser *p)
{
    bk_graph *g = p->g;
    bk_lexer *x = &p->x;
    bk_param row = {.value = BK_NONE, .grad = BK_NONE};
    int32_t id;
    int class_ = 0;
    if (!read_id(p, &id, 'p') || !check_next_id(p, id, g->n_params, "parameter") ||
        !bk_lex_name(x, &row.name, "the parameter's name") || !read_dtype(p, &row.dtype) ||
        !bk_lex_expect(x, '[') || !read_dims(p, &row.rank, row.shape, NULL, "a size") ||
        !bk_lex_choice(x, &class_, bk_param_class_names, BK_N_CLASSES, "a class"))
        return false;
    row.class_ = (bk_param_class)class_;
    while (!bk_lex_at_end(x))
        if (!read_param_word(p, &row)) return false;
    if (row.value == BK_NONE) return bk_lex_fail(x, "expected 'value=%%' and the parameter's value");
    bk_status st;
    BK_VEC_PUSH(st, g->param, g->n_params, g->cap_params, row);
    return grown(p, st);
}

static bool read_view(parser *p, bk_value *v)
{
    bk_lexer *x = &p->x;
    int rank = 0;
    if (!bk_lex_expect(x, '=') || !read_reference(p, &v->base, '%') || !bk_lex_expect(x, '+') ||
        !bk_lex_int(x, &v->offset, 0, INT64_MAX, "the view's offset") || !bk_lex_expect(x, '[') ||
        !read_dims(p, &rank, v->stride, NULL, "a stride"))
        return false;
    return rank == v->rank || bk_lex_fail(x, "expected %d strides, one for each dim", v->rank);
}

/* One of the words after a value's scope. */
static bool read_value_word(parser *p, bk_value *v)
{
    bk_lexer *x = &p->x;
    if (bk_lex_accept_word(x, "view")) return read_view(p, v);
    if (bk_lex_accept_word(x, "replay"))
        return bk_lex_expect(x, '=') && read_reference(p, &v->replay_of, '%');
    if (accept_spread(p, v->spread)) return true;
    if (!bk_lex_at_end(x) && *x->at == 'p') return read_reference(p, &v->param, 'p');
    return bk_lex_fail(x, "expected a parameter's id, view, replay or an axis");
}

static bool add_value(parser *p, const bk_value *v)
{
    bk_graph *g = p->g;
    bk_vid id;
    p->x.st = bk_value_add(&id, g, v, p->x.e);
    if (p->x.st != BK_OK) {
        bk_err_prefix(p->x.e, "%s:%" PRId32 ": ", p->x.where, p->x.line);
        return false;
    }
    bk_value *made = &g->value[id];
    made->param = v->param, made->replay_of = v->replay_of;
    if (v->base == BK_NONE) return true;
    made->base = v->base, made->offset = v->offset;
    memcpy(made->stride, v->stride, sizeof made->stride);
    return true;
}

static bool read_value(parser *p)
{
    bk_lexer *x = &p->x;
    bk_value v = {.name = "", .base = BK_NONE, .param = BK_NONE, .replay_of = BK_NONE};
    int64_t size[BK_MAX_DIMS] = {0};
    bk_vid count[BK_MAX_DIMS] = {0};
    int32_t id;
    int kind = 0, scope = 0;
    if (!read_id(p, &id, '%') || !check_next_id(p, id, p->g->n_values, "value") ||
        (bk_lex_accept(x, ':') && !bk_lex_name(x, &v.name, "the value's name")) || !read_dtype(p, &v.dtype) ||
        !bk_lex_expect(x, '[') || !read_dims(p, &v.rank, size, count, "a size") ||
        !bk_lex_choice(x, &kind, bk_kind_names, BK_N_KINDS, "a kind") ||
        !bk_lex_choice(x, &scope, bk_scope_names, BK_N_SCOPES, "a scope"))
        return false;
    v.kind = (bk_kind)kind, v.scope = (bk_scope)scope;
    for (int d = 0; d < v.rank; d++) v.dim[d] = (bk_dim){size[d], count[d]};
    while (!bk_lex_at_end(x))
        if (!read_value_word(p, &v)) return false;
    return add_value(p, &v);
}

/* Appends operands up to a character that is neither a reference, '-' nor a comma. */
static bool read_operands(parser *p, int32_t *n)
{
    bk_graph *g = p->g;
    for (*n = 0;; ++*n) {
        if (*n > 0 && !bk_lex_accept(&p->x, ',')) return true;
        bk_vid v = BK_NONE;
        const bool absent = bk_lex_accept(&p->x, '-');
        if (!absent && (bk_lex_at_end(&p->x) || *p->x.at != '%'))
            return *n == 0 || bk_lex_fail(&p->x, "expected a value such as %%3, or '-'");
        if (!absent && !read_reference(p, &v, '%')) return false;
        if (g->n_operands >= INT32_MAX - 1) return bk_lex_fail(&p->x, "too many operands");
        bk_status st;
        BK_VEC_PUSH(st, g->operand, g->n_operands, g->cap_operands, v);
        if (!grown(p, st)) return false;
    }
}

static bool read_kind(parser *p, bk_op *op)
{
    bk_span word;
    if (!bk_lex_word(&p->x, &word, "an op")) return false;
    for (int k = 0; k < BK_N_OPS; k++)
        if (bk_span_is(word, bk_ops[k].name)) {
            op->kind = (uint16_t)k;
            return true;
        }
    p->x.at -= word.len;
    return bk_lex_fail(&p->x, "expected an op of ops.def");
}

/* "eps=1e-05, causal=1" up to the closing parenthesis. All attributes must be there, in order. */
static bool read_attrs(parser *p, bk_op *op)
{
    bk_lexer *x = &p->x;
    const bk_op_kind kind = (bk_op_kind)op->kind;
    const int n = bk_attr_count(kind);
    for (int k = 0; k < n && k < BK_MAX_ATTRS; k++) {
        int len = 0;
        bool is_float = false;
        const char *name = bk_attr_name(&len, &is_float, kind, k);
        bk_span word;
        if (!bk_lex_expect(x, k ? ',' : ';') || !bk_lex_word(x, &word, "an attribute")) return false;
        if (word.len != len || memcmp(word.s, name, (size_t)len) != 0) {
            x->at -= word.len;
            return bk_lex_fail(x, "expected attribute '%.*s' of %s", len, name, bk_ops[kind].name);
        }
        if (!bk_lex_expect(x, '=')) return false;
        if (is_float ? !bk_lex_float(x, &op->attr[k].f, "the attribute's value")
                     : !bk_lex_int(x, &op->attr[k].i, INT64_MIN, INT64_MAX, "the attribute's value"))
            return false;
    }
    return bk_lex_expect(x, ')');
}

/* Operands stand in the text as outputs, inputs, updates; in the graph inputs come first. */
static void inputs_first(bk_graph *g, const bk_op *op)
{
    if (op->n_out == 0) return; /* there may be no operand at all yet */
    bk_vid *v = g->operand + op->first;
    for (int32_t k = 0; k < op->n_out; k++) {
        /* Rotate by one, n_out times: lists of outputs are short. */
        const bk_vid head = v[0];
        memmove(v, v + 1, (size_t)(op->n_out + op->n_in - 1) * sizeof *v);
        v[op->n_out + op->n_in - 1] = head;
    }
}

static bool read_op_words(parser *p, bk_op *op)
{
    while (!bk_lex_at_end(&p->x)) {
        if (bk_lex_accept_word(&p->x, "lane")) {
            if (!read_named_lane(p, &op->lane)) return false;
        } else if (bk_lex_accept_word(&p->x, "folded")) {
            op->folded = true;
        } else {
            return bk_lex_fail(&p->x, "expected updates, lane or folded");
        }
    }
    return true;
}

enum { MOST_OUTPUTS = 64 }; /* far beyond ops.def; keeps inputs_first linear */

static bool read_op(parser *p)
{
    bk_graph *g = p->g;
    bk_lexer *x = &p->x;
    bk_op op = {.scope = p->scope, .tag = p->tag, .lane = BK_LANE_COMP, .first = (int32_t)g->n_operands};
    int32_t id;
    if (!p->heading)
        return bk_lex_fail(x, "expected a line such as 'micro decoder.0.attn forward' above the first op");
    if (!read_id(p, &id, '@') || !read_operands(p, &op.n_out)) return false;
    if (op.n_out > MOST_OUTPUTS) return bk_lex_fail(x, "expected at most %d outputs", MOST_OUTPUTS);
    if (op.n_out > 0 && !bk_lex_expect(x, '=')) return false;
    if (!read_kind(p, &op) || !bk_lex_expect(x, '(') || !read_operands(p, &op.n_in) || !read_attrs(p, &op))
        return false;
    if (bk_lex_accept_word(x, "updates") && !read_operands(p, &op.n_upd)) return false;
    if (!read_op_words(p, &op)) return false;
    inputs_first(g, &op);
    bk_status st;
    BK_VEC_PUSH(st, g->op, g->n_ops, g->cap_ops, op);
    if (st == BK_OK) BK_VEC_PUSH(st, p->op_id, p->n_ids, p->cap_ids, id);
    return grown(p, st);
}

static bool read_heading(parser *p, bk_scope scope)
{
    p->scope = scope, p->heading = true;
    return read_tag(p, &p->tag) && bk_lex_end_line(&p->x);
}

static bool read_region(parser *p)
{
    bk_graph *g = p->g;
    bk_lexer *x = &p->x;
    bk_region r = {.first = (int32_t)g->n_region_ops};
    int32_t id;
    int scope = 0;
    int64_t chunk = 0;
    if (!read_id(p, &id, 'r') || !check_next_id(p, id, g->n_regions, "region") ||
        !bk_lex_choice(x, &scope, bk_scope_names, BK_N_SCOPES, "a scope") || !read_tag(p, &r.tag))
        return false;
    r.scope = (bk_scope)scope;
    if (!bk_lex_accept_word(x, "lane")) return bk_lex_fail(x, "expected lane=");
    if (!read_named_lane(p, &r.lane)) return false;
    if (!bk_lex_accept_word(x, "chunk")) return bk_lex_fail(x, "expected chunk=");
    if (!bk_lex_expect(x, '=') || !bk_lex_int(x, &chunk, 0, INT16_MAX, "a chunk")) return false;
    r.chunk = (int16_t)chunk;
    r.epilogue = bk_lex_accept_word(x, "epilogue");
    if (!bk_lex_expect(x, ':')) return false;
    bk_status st = BK_OK;
    for (; st == BK_OK && !bk_lex_at_end(x); r.n_ops++) {
        bk_oid op;
        if (g->n_region_ops >= INT32_MAX - 1) return bk_lex_fail(x, "too many ops in regions");
        if (!read_reference(p, &op, '@')) return false;
        BK_VEC_PUSH(st, g->region_op, g->n_region_ops, g->cap_region_ops, op);
    }
    if (st == BK_OK) BK_VEC_PUSH(st, g->region, g->n_regions, g->cap_regions, r);
    return grown(p, st);
}

static bool read_term(parser *p)
{
    bk_lexer *x = &p->x;
    bk_graph *g = p->g;
    bk_term t;
    if (!read_reference(p, &t.param, 'p')) return false;
    if (!bk_lex_accept_word(x, "use")) return bk_lex_fail(x, "expected use=");
    if (!bk_lex_expect(x, '=') || !read_reference(p, &t.use, '@')) return false;
    if (!bk_lex_accept_word(x, "term")) return bk_lex_fail(x, "expected term=");
    if (!bk_lex_expect(x, '=') || !read_reference(p, &t.term, '@') || !bk_lex_end_line(x)) return false;
    bk_status st;
    BK_VEC_PUSH(st, g->term, g->n_terms, g->cap_terms, t);
    return grown(p, st);
}

static bool read_line(parser *p)
{
    if (bk_lex_accept_word(&p->x, "term")) return read_term(p);
    if (bk_lex_accept_word(&p->x, "step")) return read_heading(p, BK_STEP);
    if (bk_lex_accept_word(&p->x, "micro")) return read_heading(p, BK_MICRO);
    switch (*p->x.at) {
    case 'p':
        return read_param(p);
    case '%':
        return read_value(p);
    case '@':
        return read_op(p);
    case 'r':
        return read_region(p);
    default:
        return bk_lex_fail(&p->x,
                           "expected a parameter (p0), value (%%0), heading, op (@0), region (r0) or term");
    }
}

/* ---- the end ------------------------------------------------------------------------------------------ */

/* Puts the ops in the order of their ids, which must be 0, 1, ... in any order. */
static bool sort_ops(parser *p)
{
    bk_graph *g = p->g;
    bk_op *sorted = calloc((size_t)g->n_ops + 1, sizeof *sorted);
    bool *seen = calloc((size_t)g->n_ops + 1, sizeof *seen);
    bool ok = grown(p, sorted && seen ? BK_OK : BK_E_MEM);
    for (int64_t k = 0; ok && k < g->n_ops; k++) {
        const bk_oid id = p->op_id[k];
        if (id >= g->n_ops || seen[id]) {
            p->x.st = bk_err_set(p->x.e, BK_E_INPUT,
                                 "%s: op @%" PRId32 " is %s; the %" PRId64
                                 " ops must be numbered from 0 without gaps",
                                 p->x.where, id, id < g->n_ops ? "there twice" : "beyond the last", g->n_ops);
            ok = false;
        } else {
            sorted[id] = g->op[k], seen[id] = true;
        }
    }
    if (ok && g->n_ops > 0) memcpy(g->op, sorted, (size_t)g->n_ops * sizeof *sorted);
    free(sorted), free(seen);
    return ok;
}

static bool check_references(parser *p)
{
    const bk_graph *g = p->g;
    for (int64_t k = 0; k < p->n_refs; k++) {
        const reference *r = &p->ref[k];
        const int64_t n = r->sigil == '%' ? g->n_values : r->sigil == '@' ? g->n_ops : g->n_params;
        if (r->id >= n) {
            p->x.st = bk_err_set(p->x.e, BK_E_INPUT,
                                 "%s:%" PRId32 ": there is no %c%" PRId32 ", the last is %c%" PRId64,
                                 p->x.where, r->line, r->sigil, r->id, r->sigil, n - 1);
            return false;
        }
        if (r->name && strcmp(r->name, g->value[r->id].name) != 0) {
            p->x.st = bk_err_set(p->x.e, BK_E_INPUT, "%s:%" PRId32 ": %%%" PRId32 " is named '%s', not '%s'",
                                 p->x.where, r->line, r->id, g->value[r->id].name, r->name);
            return false;
        }
    }
    return true;
}

bk_status bk_graph_parse(bk_graph **out, const char *text, int64_t len, const char *where, bk_err *e)
{
    parser p = {.x = {.at = text, .end = text + len, .line = 1, .where = where, .e = e}};
    bk_status st = bk_graph_new(&p.g, BK_F32, e);
    if (st != BK_OK) return st;
    p.x.names = &p.g->arena;
    bool ok = read_head(&p);
    while (ok && bk_lex_next_line(&p.x)) ok = read_line(&p);
    ok = ok && p.x.st == BK_OK && sort_ops(&p) && check_references(&p);
    st = ok ? bk_graph_index_names(p.g, e) : p.x.st; /* what is a view was not known when it was added */
    if (ok && st == BK_OK && (st = bk_graph_verify(p.g, e)) != BK_OK) bk_err_prefix(e, "%s: ", where);
    free(p.ref), free(p.op_id);
    if (st == BK_OK)
        *out = p.g;
    else
        bk_graph_free(p.g);
    return st;
}
