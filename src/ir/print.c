#include "ir/print.h"

#include <inttypes.h>
#include <math.h>

#include "ir/plain_order.h"

const char *const bk_init_rule_names[BK_INIT_XAVIER + 1] = {"zero", "one", "const", "normal", "xavier"};

/* ---- words -------------------------------------------------------------------------------------------- */

static void put_word(bk_str *out, const char *const *names, int n, int which)
{
    if (which >= 0 && which < n)
        bk_str_append(out, names[which]);
    else
        bk_str_appendf(out, "?%d", which);
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-' || c == '/';
}

/* Bare where it can be, otherwise in quotes with \xHH for what does not print. */
static void put_name(bk_str *out, const char *name)
{
    bool plain = *name != '\0';
    for (const char *c = name; *c; c++) plain = plain && is_plain(*c);
    if (plain) {
        bk_str_append(out, name);
        return;
    }
    bk_str_append(out, "\"");
    for (const char *c = name; *c; c++) {
        const unsigned char u = (unsigned char)*c;
        if (u < 0x20 || u >= 0x7f || u == '"' || u == '\\')
            bk_str_appendf(out, "\\x%02x", u);
        else
            bk_str_append_char(out, *c, 1);
    }
    bk_str_append(out, "\"");
}

static void put_value(bk_str *out, const bk_graph *g, bk_vid v)
{
    if (v == BK_NONE) {
        bk_str_append(out, "-");
        return;
    }
    bk_str_appendf(out, "%%%" PRId32, v);
    if (v < 0 || v >= g->n_values || !g->value[v].name || !*g->value[v].name) return;
    bk_str_append(out, ":");
    put_name(out, g->value[v].name);
}

static void put_tag(bk_str *out, bk_tag t)
{
    put_word(out, bk_module_names, BK_N_MODULES, t.module);
    if (t.layer != BK_NONE) bk_str_appendf(out, ".%d", t.layer);
    bk_str_append(out, ".");
    put_word(out, bk_node_names, BK_N_NODES, t.node);
    bk_str_append(out, " ");
    put_word(out, bk_pass_names, BK_N_PASSES, t.pass);
}

static void put_spreads(bk_str *out, const bk_graph *g, const bk_spread *spread)
{
    static const char *const kinds[] = {"same", "split", "partial"};
    for (int a = 0; a < BK_N_AXES; a++) {
        if (g->axis_size[a] <= 1 && spread[a].kind == BK_SAME) continue;
        bk_str_appendf(out, " %s=", bk_axis_names[a]);
        put_word(out, kinds, 3, spread[a].kind);
        if (spread[a].kind == BK_SPLIT) bk_str_appendf(out, ":%d", spread[a].dim);
    }
}

/* ---- lines -------------------------------------------------------------------------------------------- */

static void put_head(bk_str *out, const bk_graph *g)
{
    bk_str_append(out, "graph ");
    put_word(out, bk_dtype_names, BK_N_DTYPES, (int)g->real);
    for (int a = 0; a < BK_N_AXES; a++)
        if (g->axis_size[a] != 1) bk_str_appendf(out, " %s=%" PRId32, bk_axis_names[a], g->axis_size[a]);
    bk_str_append(out, "\n");
}

static void put_param(bk_str *out, const bk_graph *g, int64_t id)
{
    const bk_param *p = &g->param[id];
    bk_str_appendf(out, "p%" PRId64 " ", id);
    put_name(out, p->name ? p->name : "");
    bk_str_append(out, " ");
    put_word(out, bk_dtype_names, BK_N_DTYPES, (int)p->dtype);
    bk_str_append(out, "[");
    for (int d = 0; d < p->rank && d < BK_MAX_DIMS; d++)
        bk_str_appendf(out, "%s%" PRId64, d ? ", " : "", p->shape[d]);
    bk_str_append(out, "] ");
    put_word(out, bk_param_class_names, BK_N_CLASSES, (int)p->class_);
    bk_str_append(out, " init=");
    put_word(out, bk_init_rule_names, BK_INIT_XAVIER + 1, (int)p->init);
    if (!(p->init_arg == 0) || signbit(p->init_arg)) bk_str_appendf(out, ":%.17g", p->init_arg);
    if (p->decay) bk_str_append(out, " decay");
    if (p->master) bk_str_append(out, " master");
    bk_str_append(out, " value=");
    put_value(out, g, p->value);
    if (p->grad != BK_NONE) {
        bk_str_append(out, " grad=");
        put_value(out, g, p->grad);
    }
    if (p->alias) {
        bk_str_append(out, " alias=");
        put_name(out, p->alias);
    }
    put_spreads(out, g, p->spread);
    bk_str_append(out, "\n");
}

static void put_value_line(bk_str *out, const bk_graph *g, int64_t id)
{
    const bk_value *v = &g->value[id];
    const int rank = v->rank < BK_MAX_DIMS ? v->rank : BK_MAX_DIMS;
    put_value(out, g, (bk_vid)id);
    bk_str_append(out, " ");
    put_word(out, bk_dtype_names, BK_N_DTYPES, (int)v->dtype);
    bk_str_append(out, "[");
    for (int d = 0; d < rank; d++) {
        if (d > 0) bk_str_append(out, ", ");
        if (v->dim[d].count != 0) {
            put_value(out, g, v->dim[d].count - 1);
            bk_str_append(out, "<=");
        }
        bk_str_appendf(out, "%" PRId64, v->dim[d].size);
    }
    bk_str_append(out, "] ");
    put_word(out, bk_kind_names, BK_N_KINDS, (int)v->kind);
    bk_str_append(out, " ");
    put_word(out, bk_scope_names, BK_N_SCOPES, (int)v->scope);
    if (v->param != BK_NONE) bk_str_appendf(out, " p%" PRId32, v->param);
    if (v->base != BK_NONE) {
        bk_str_append(out, " view=");
        put_value(out, g, v->base);
        bk_str_appendf(out, " +%" PRId64 "[", v->offset);
        for (int d = 0; d < rank; d++) bk_str_appendf(out, "%s%" PRId64, d ? ", " : "", v->stride[d]);
        bk_str_append(out, "]");
    }
    if (v->replay_of != BK_NONE) {
        bk_str_append(out, " replay=");
        put_value(out, g, v->replay_of);
    }
    put_spreads(out, g, v->spread);
    bk_str_append(out, "\n");
}

static void put_values(bk_str *out, const bk_graph *g, int64_t first, int32_t n)
{
    for (int32_t k = 0; k < n; k++) {
        if (k > 0) bk_str_append(out, ", ");
        if (first + k >= 0 && first + k < g->n_operands)
            put_value(out, g, g->operand[first + k]);
        else
            bk_str_append(out, "?");
    }
}

static void put_attrs(bk_str *out, const bk_op *op)
{
    const int n = bk_attr_count((bk_op_kind)op->kind);
    for (int k = 0; k < n && k < BK_MAX_ATTRS; k++) {
        int len = 0;
        bool is_float = false;
        const char *name = bk_attr_name(&len, &is_float, (bk_op_kind)op->kind, k);
        bk_str_appendf(out, "%s%.*s=", k ? ", " : "; ", len, name);
        if (is_float)
            bk_str_appendf(out, "%.17g", op->attr[k].f);
        else
            bk_str_appendf(out, "%" PRId64, op->attr[k].i);
    }
}

static void put_op(bk_str *out, const bk_graph *g, bk_oid id)
{
    const bk_op *op = &g->op[id];
    bk_str_appendf(out, "  @%" PRId32 " ", id);
    put_values(out, g, (int64_t)op->first + op->n_in, op->n_out);
    if (op->n_out > 0) bk_str_append(out, " = ");
    if (op->kind < BK_N_OPS)
        bk_str_append(out, bk_ops[op->kind].name);
    else
        bk_str_appendf(out, "?%u", op->kind);
    bk_str_append(out, "(");
    put_values(out, g, op->first, op->n_in);
    if (op->kind < BK_N_OPS) put_attrs(out, op);
    bk_str_append(out, ")");
    if (op->n_upd > 0) {
        bk_str_append(out, " updates ");
        put_values(out, g, (int64_t)op->first + op->n_in + op->n_out, op->n_upd);
    }
    if (op->lane != BK_LANE_COMP) {
        bk_str_append(out, " lane=");
        put_word(out, bk_lane_names, BK_N_LANES, (int)op->lane);
    }
    if (op->folded) bk_str_append(out, " folded");
    bk_str_append(out, "\n");
}

static bool same_heading(const bk_op *a, const bk_op *b)
{
    return a->scope == b->scope && a->tag.module == b->tag.module && a->tag.node == b->tag.node &&
           a->tag.pass == b->tag.pass && a->tag.layer == b->tag.layer;
}

static void put_ops(bk_str *out, const bk_graph *g)
{
    bk_plain_order order = {0};
    if (bk_plain_order_make(&order, g, NULL) != BK_OK) out->failed = true;
    for (int32_t i = 0; i < order.n; i++) {
        const bk_op *op = &g->op[order.op[i]];
        if (i == 0 || i == order.epilogue || !same_heading(op, &g->op[order.op[i - 1]])) {
            bk_str_append(out, "\n");
            put_word(out, bk_scope_names, BK_N_SCOPES, (int)op->scope);
            bk_str_append(out, " ");
            put_tag(out, op->tag);
            bk_str_append(out, "\n");
        }
        put_op(out, g, order.op[i]);
    }
    bk_plain_order_free(&order);
}

static void put_region(bk_str *out, const bk_graph *g, int64_t id)
{
    const bk_region *r = &g->region[id];
    bk_str_appendf(out, "r%" PRId64 " ", id);
    put_word(out, bk_scope_names, BK_N_SCOPES, (int)r->scope);
    bk_str_append(out, " ");
    put_tag(out, r->tag);
    bk_str_append(out, " lane=");
    put_word(out, bk_lane_names, BK_N_LANES, (int)r->lane);
    bk_str_appendf(out, " chunk=%d%s:", r->chunk, r->epilogue ? " epilogue" : "");
    for (int64_t k = r->first; k < (int64_t)r->first + r->n_ops && k < g->n_region_ops; k++)
        if (k >= 0) bk_str_appendf(out, " @%" PRId32, g->region_op[k]);
    bk_str_append(out, "\n");
}

void bk_graph_print(bk_str *out, const bk_graph *g)
{
    put_head(out, g);
    if (g->n_params > 0) bk_str_append(out, "\n");
    for (int64_t p = 0; p < g->n_params; p++) put_param(out, g, p);
    if (g->n_values > 0) bk_str_append(out, "\n");
    for (int64_t v = 0; v < g->n_values; v++) put_value_line(out, g, v);
    put_ops(out, g);
    if (g->n_regions > 0) bk_str_append(out, "\n");
    for (int64_t r = 0; r < g->n_regions; r++) put_region(out, g, r);
    if (g->n_terms > 0) bk_str_append(out, "\n");
    for (int64_t t = 0; t < g->n_terms; t++)
        bk_str_appendf(out, "term p%" PRId32 " use=@%" PRId32 " term=@%" PRId32 "\n", g->term[t].param,
                       g->term[t].use, g->term[t].term);
}
