/* Building a graph. Every op goes through bk_op_add, so every value's shape, spread and scope comes from a
 * rule. */
#include "ir/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/vec.h"

#define MAX_BYTES (INT64_C(1) << 62)

bk_status bk_graph_new(bk_graph **out, bk_dtype real, bk_err *e)
{
    bk_graph *g = calloc(1, sizeof *g);
    if (!g) return bk_err_set(e, BK_E_MEM, "graph: out of memory");
    bk_arena_init(&g->arena);
    g->real = real;
    g->tag.layer = BK_NONE;
    for (int a = 0; a < BK_N_AXES; a++) g->axis_size[a] = 1;
    *out = g;
    return BK_OK;
}

void bk_graph_free(bk_graph *g)
{
    if (!g) return;
    bk_arena_free(&g->arena);
    for (int k = 0; k < BK_N_KINDS; k++) bk_map_free(&g->by_name[k]);
    free(g->value), free(g->op), free(g->operand), free(g->param);
    free(g->region), free(g->region_op), free(g->term);
    free(g);
}

int64_t bk_elements(const bk_value *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->rank; d++) n *= v->dim[d].size;
    return n;
}

int64_t bk_value_bytes(const bk_value *v)
{
    return bk_elements(v) * bk_dtype_bytes(v->dtype);
}

bool bk_is_dense(const bk_value *v)
{
    int64_t stride = 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        if (v->dim[d].size != 1 && v->stride[d] != stride) return false;
        stride *= v->dim[d].size;
    }
    return true;
}

static void make_dense(bk_value *v)
{
    int64_t stride = 1;
    for (int d = v->rank - 1; d >= 0; d--) v->stride[d] = stride, stride *= v->dim[d].size;
}

/* Enters the value under its name, unless another one has it. */
static bk_status index_name(bk_graph *g, bk_vid v)
{
    const bk_value *x = &g->value[v];
    if (x->kind == BK_ACTIVATION || x->base != BK_NONE || bk_value_find(g, x->kind, x->name) != BK_NONE)
        return BK_OK;
    return bk_map_set(&g->by_name[x->kind], x->name, v);
}

bk_status bk_graph_index_names(bk_graph *g, bk_err *e)
{
    bk_status st = BK_OK;
    for (int k = 0; k < BK_N_KINDS; k++) bk_map_free(&g->by_name[k]);
    for (bk_vid v = 0; v < g->n_values && st == BK_OK; v++) st = index_name(g, v);
    return st == BK_OK ? st : bk_err_set(e, st, "graph: out of memory");
}

static bk_status push_value(bk_vid *out, bk_graph *g, const bk_value *v, bk_err *e)
{
    bk_value copy = *v;
    copy.name = bk_arena_strdup(&g->arena, v->name ? v->name : "");
    bk_status st = copy.name && g->n_values < INT32_MAX ? BK_OK : BK_E_MEM;
    if (st == BK_OK) BK_VEC_PUSH(st, g->value, g->n_values, g->cap_values, copy);
    if (st == BK_OK) st = index_name(g, (bk_vid)(g->n_values - 1));
    if (st != BK_OK)
        return bk_err_set(e, BK_E_MEM, "graph: out of memory at value %s", v->name ? v->name : "");
    *out = (bk_vid)(g->n_values - 1);
    return BK_OK;
}

bk_status bk_value_add(bk_vid *out, bk_graph *g, const bk_value *proto, bk_err *e)
{
    bk_value v = *proto;
    int64_t bytes = bk_dtype_bytes(v.dtype);
    for (int d = 0; d < v.rank; d++)
        if (v.dim[d].size < 0 || !bk_mul64(&bytes, bytes, v.dim[d].size) || bytes > MAX_BYTES)
            return bk_err_set(
                e, BK_E_MEM, "value %s: its size overflows; lower the batch, sequence or model size", v.name);
    v.base = v.replay_of = BK_NONE, v.offset = 0;
    if (v.kind != BK_PARAM && v.kind != BK_GRADIENT && v.kind != BK_STATE) v.param = BK_NONE;
    make_dense(&v);
    return push_value(out, g, &v, e);
}

bk_status bk_view_add(bk_vid *out, bk_graph *g, const char *name, bk_vid base, int rank, const int64_t *dim,
                      const int64_t *stride, int64_t offset, bk_err *e)
{
    const bk_value *parent = &g->value[base];
    const bk_vid root = bk_root(g, base);
    bk_value v = {.name = name,
                  .dtype = parent->dtype,
                  .kind = parent->kind,
                  .scope = parent->scope,
                  .rank = rank,
                  .base = root,
                  .offset = parent->offset + offset,
                  .param = parent->param,
                  .replay_of = BK_NONE};
    int64_t last = v.offset;
    for (int d = 0; d < rank; d++) {
        v.dim[d] = (bk_dim){dim[d], 0};
        v.stride[d] = stride[d];
        last += (dim[d] - 1) * stride[d];
    }
    if (v.offset < 0 || (bk_elements(&v) > 0 && last >= bk_elements(&g->value[root])))
        return bk_err_set(e, BK_E_CHECK, "view %s: reaches outside of %s", name, g->value[root].name);
    /* A cut along a dim of the base is a cut along the same dim of the view as long as it keeps the dim. */
    for (int a = 0; a < BK_N_AXES; a++) {
        v.spread[a] = parent->spread[a];
        if (v.spread[a].kind == BK_SPLIT &&
            (v.spread[a].dim >= rank || dim[v.spread[a].dim] != parent->dim[v.spread[a].dim].size))
            return bk_err_set(e, BK_E_CHECK, "view %s: cuts through the dim along which %s is split over %s",
                              name, parent->name, bk_axis_names[a]);
    }
    return push_value(out, g, &v, e);
}

bk_status bk_param_add(bk_vid *out, bk_graph *g, const bk_param *row, bk_err *e)
{
    bk_param p = *row;
    bk_value v = {.name = p.name,
                  .dtype = p.dtype,
                  .kind = BK_PARAM,
                  .scope = BK_RUN,
                  .rank = p.rank,
                  .param = (bk_pid)g->n_params};
    for (int d = 0; d < p.rank; d++) v.dim[d] = (bk_dim){p.shape[d], 0};
    memcpy(v.spread, p.spread, sizeof v.spread);
    bk_status st = bk_value_add(&p.value, g, &v, e);
    if (st != BK_OK) return st;
    p.name = g->value[p.value].name;
    p.alias = p.alias ? bk_arena_strdup(&g->arena, p.alias) : NULL;
    p.grad = BK_NONE;
    BK_VEC_PUSH(st, g->param, g->n_params, g->cap_params, p);
    if (st != BK_OK) return bk_err_set(e, BK_E_MEM, "graph: out of memory at parameter %s", p.name);
    *out = p.value;
    return BK_OK;
}

static bk_scope derive_scope(const bk_graph *g, const bk_op_spec *s)
{
    bk_scope scope = s->n_in == 0 && s->into ? g->value[s->into - 1].scope : BK_STEP;
    for (int k = 0; k < s->n_in; k++)
        if (s->in[k] != BK_NONE && g->value[s->in[k]].scope > scope) scope = g->value[s->in[k]].scope;
    return scope;
}

static bk_lane lane_of(bk_op_kind kind, bk_tag tag)
{
    if (bk_ops[kind].effect == BK_HOST_IO) return BK_LANE_HOST;
    switch (tag.node) {
    case BK_NODE_MOE_DISPATCH:
    case BK_NODE_MOE_COMBINE:
        return BK_LANE_A2A;
    case BK_NODE_SEND:
    case BK_NODE_RECV:
        return BK_LANE_P2P;
    case BK_NODE_REDUCE:
        return BK_LANE_GRAD;
    default:
        return BK_LANE_COMP;
    }
}

static bk_status check_arity(const bk_op_spec *s, int n_out, bk_err *e)
{
    const bk_op_info *k = &bk_ops[s->kind];
    if (s->n_in < k->in_min || s->n_in > k->in_max || n_out < k->out_min || n_out > k->out_max ||
        s->n_upd < k->upd_min || s->n_upd > k->upd_max)
        return bk_err_set(e, BK_E_CHECK,
                          "op %s %s: %d inputs, %d outputs, %d updates are not what its row allows", k->name,
                          s->name ? s->name : "", s->n_in, n_out, s->n_upd);
    for (int i = 0; i < k->in_min && i < s->n_in; i++)
        if (s->in[i] == BK_NONE)
            return bk_err_set(e, BK_E_CHECK, "op %s %s: input %d is absent", k->name, s->name ? s->name : "",
                              i);
    return BK_OK;
}

static bool same_dims(const bk_value *a, const bk_value *b)
{
    if (a->rank != b->rank || a->dtype != b->dtype) return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dim[d].size != b->dim[d].size) return false;
    return true;
}

/* Runs the shape and spread rules; makes the outputs that do not exist and compares those that do. */
static bk_status settle_results(bk_graph *g, bk_oid id, const char *name, bk_err *e)
{
    const bk_op op = g->op[id];
    const bk_op_rules *rules = bk_ops[op.kind].rules;
    const int n = op.n_out + op.n_upd;
    bk_value *result = calloc((size_t)n + 1, sizeof *result);
    bk_spread *spread = calloc((size_t)n * BK_N_AXES + 1, sizeof *spread); /* [axis, result] */
    bk_status st = result && spread ? BK_OK : bk_err_set(e, BK_E_MEM, "out of memory");
    if (st == BK_OK) st = rules->shape(result, g, &op, e);
    for (int a = 0; a < BK_N_AXES && st == BK_OK; a++)
        if (g->axis_size[a] > 1) st = rules->spread(spread + a * n, g, &op, (bk_axis)a, e);
    for (int r = 0; r < n && st == BK_OK; r++) {
        bk_vid *slot = &g->operand[op.first + op.n_in + r];
        bk_value *v = &result[r];
        for (int a = 0; a < BK_N_AXES; a++) v->spread[a] = spread[a * n + r];
        if (*slot == BK_NONE) {
            char numbered[256];
            snprintf(numbered, sizeof numbered, "%s.%d", name, r);
            v->name = r == 0 ? name : numbered;
            v->kind = BK_ACTIVATION, v->scope = op.scope;
            bk_vid made;
            st = bk_value_add(&made, g, v, e);
            if (st == BK_OK) g->operand[op.first + op.n_in + r] = made;
        } else if (!same_dims(v, &g->value[*slot])) {
            st = bk_err_set(e, BK_E_CHECK, "%s has another shape or dtype than the op gives",
                            g->value[*slot].name);
        } else if (r < op.n_out) {
            memcpy(g->value[*slot].spread, v->spread, sizeof v->spread);
        } else if (g->value[*slot].kind == BK_GRADIENT) {
            memcpy(g->value[*slot].spread, v->spread, sizeof v->spread);
        }
    }
    free(result), free(spread);
    return st;
}

bk_status bk_op_add(bk_vid *out, bk_graph *g, const bk_op_spec *s, bk_err *e)
{
    const char *name = s->name ? s->name : bk_ops[s->kind].name;
    const int n_out = s->n_out ? s->n_out : bk_ops[s->kind].out_min;
    bk_status st = check_arity(s, n_out, e);
    if (st != BK_OK) return st;
    bk_op op = {.kind = (uint16_t)s->kind,
                .scope = derive_scope(g, s),
                .tag = g->tag,
                .lane = lane_of(s->kind, g->tag),
                .n_in = s->n_in,
                .n_out = n_out,
                .n_upd = s->n_upd,
                .first = (int32_t)g->n_operands};
    memcpy(op.attr, s->attr, sizeof op.attr);
    if (g->n_ops >= INT32_MAX || g->n_operands > INT32_MAX / 2)
        return bk_err_set(e, BK_E_MEM, "graph: too many ops");
    st = bk_vec_grow(&g->operand, &g->cap_operands, g->n_operands, op.n_in + n_out + op.n_upd,
                     sizeof *g->operand);
    if (st == BK_OK) BK_VEC_PUSH(st, g->op, g->n_ops, g->cap_ops, op);
    if (st != BK_OK) return bk_err_set(e, BK_E_MEM, "graph: out of memory at op %s", name);
    for (int k = 0; k < op.n_in; k++) g->operand[g->n_operands++] = s->in[k];
    for (int k = 0; k < n_out; k++) g->operand[g->n_operands++] = k == 0 && s->into ? s->into - 1 : BK_NONE;
    for (int k = 0; k < op.n_upd; k++) g->operand[g->n_operands++] = s->upd[k];
    st = settle_results(g, (bk_oid)(g->n_ops - 1), name, e);
    if (st != BK_OK) {
        bk_err_prefix(e, "op %s %s: ", bk_ops[op.kind].name, name);
        g->n_ops--, g->n_operands = op.first;
        return st;
    }
    if (out) memcpy(out, g->operand + op.first + op.n_in, (size_t)n_out * sizeof *out);
    return BK_OK;
}

bk_status bk_op_set_operands(bk_graph *g, bk_oid id, const bk_vid *in, int n_in, const bk_vid *out, int n_out,
                             const bk_vid *upd, int n_upd, bk_err *e)
{
    const int64_t n = (int64_t)n_in + n_out + n_upd;
    bk_status st = bk_vec_grow(&g->operand, &g->cap_operands, g->n_operands, n, sizeof *g->operand);
    if (st != BK_OK || g->n_operands > INT32_MAX - n) return bk_err_set(e, BK_E_MEM, "graph: out of memory");
    bk_op *op = &g->op[id];
    op->first = (int32_t)g->n_operands;
    op->n_in = n_in, op->n_out = n_out, op->n_upd = n_upd;
    for (int k = 0; k < n_in; k++) g->operand[g->n_operands++] = in[k];
    for (int k = 0; k < n_out; k++) g->operand[g->n_operands++] = out[k];
    for (int k = 0; k < n_upd; k++) g->operand[g->n_operands++] = upd[k];
    return BK_OK;
}

bk_vid bk_value_find(const bk_graph *g, bk_kind kind, const char *name)
{
    return (bk_vid)bk_map_get(&g->by_name[kind], name, BK_NONE);
}

const char *bk_tag_name(char *buf, int64_t cap, bk_tag t)
{
    if (t.layer == BK_NONE)
        snprintf(buf, (size_t)cap, "%s.%s %s", bk_module_names[t.module], bk_node_names[t.node],
                 bk_pass_names[t.pass]);
    else
        snprintf(buf, (size_t)cap, "%s.%d.%s %s", bk_module_names[t.module], t.layer, bk_node_names[t.node],
                 bk_pass_names[t.pass]);
    return buf;
}
