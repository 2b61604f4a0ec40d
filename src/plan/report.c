#include "plan/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "plan/build.h"

static void count_params(bk_plan_report *r, const bk_graph *g)
{
    for (int64_t p = 0; p < g->n_params; p++) {
        const bk_value *v = &g->value[g->param[p].value];
        r->class_elements[g->param[p].class_] += bk_elements(v);
        r->class_bytes[g->param[p].class_] += bk_value_bytes(v);
        r->n_elements += bk_elements(v), r->param_bytes += bk_value_bytes(v);
    }
}

/* For each value the first op in plain order that writes it or a part of it, or BK_NONE. */
static bk_oid *find_writers(const bk_graph *g)
{
    bk_oid *writer = malloc((size_t)(g->n_values + 1) * sizeof *writer);
    for (int64_t v = 0; v < g->n_values && writer; v++) writer[v] = BK_NONE;
    for (int64_t o = 0; o < g->n_ops && writer; o++)
        for (int32_t k = 0; k < g->op[o].n_out; k++) {
            bk_oid *w = &writer[bk_root(g, bk_outs(g, &g->op[o])[k])];
            if (*w == BK_NONE) *w = (bk_oid)o;
        }
    return writer;
}

static bk_mem_kind run_kind(const bk_value *v)
{
    if (v->kind == BK_PARAM) return BK_MEM_PARAMS;
    return v->kind == BK_STATE && v->param != BK_NONE ? BK_MEM_MOMENTS : BK_MEM_RUN_REST;
}

static bk_mem_kind step_kind(const bk_graph *g, const bk_value *v, bk_oid writer)
{
    if (v->kind == BK_INPUT) return BK_MEM_INPUTS;
    if (v->kind == BK_GRADIENT) return BK_MEM_GRADS;
    if (v->kind != BK_ACTIVATION || v->scope != BK_MICRO || writer == BK_NONE) return BK_MEM_STEP_REST;
    const int pass = g->op[writer].tag.pass;
    return pass == BK_PASS_FORWARD || pass == BK_PASS_RECOMPUTE ? BK_MEM_ACTIVATIONS : BK_MEM_ACT_GRADS;
}

/* Whether the value has a row for each that comes to the experts of this rank: what counts them was written
 * in the node that brings them from several ranks, where there is one. */
static bool is_routed(const bk_graph *g, const bk_value *v, const bk_oid *writer, bool travels)
{
    if (v->rank == 0 || v->dim[0].count == 0) return false;
    const bk_oid by = writer[bk_root(g, v->dim[0].count - 1)];
    return !travels || (by != BK_NONE && g->op[by].tag.node == BK_NODE_MOE_DISPATCH);
}

static bool rows_travel(const bk_graph *g)
{
    for (int64_t o = 0; o < g->n_ops; o++)
        if (g->op[o].tag.node == BK_NODE_MOE_DISPATCH) return true;
    return false;
}

static bk_status count_memory(bk_plan_report *r, const bk_plan *p, bk_err *e)
{
    const bk_graph *g = p->g;
    bk_oid *writer = find_writers(g);
    if (!writer) return bk_err_set(e, BK_E_MEM, "report: out of memory");
    const bool travels = rows_travel(g);
    r->mem_bytes[BK_MEM_RUN_REST] = p->run_bytes;
    r->mem_bytes[BK_MEM_OTHER_MICRO] = p->peak_bytes - p->run_bytes;
    for (int64_t v = 0; v < g->n_values; v++) {
        const bk_value *x = &g->value[v];
        const int64_t bytes = p->place[v].bytes;
        if (p->place[v].space == BK_SPACE_RUN && run_kind(x) != BK_MEM_RUN_REST) {
            r->mem_bytes[run_kind(x)] += bytes, r->mem_bytes[BK_MEM_RUN_REST] -= bytes;
        } else if (p->at_peak[v]) {
            const bk_mem_kind kind = step_kind(g, x, writer[v]);
            r->mem_bytes[kind] += bytes, r->mem_bytes[BK_MEM_OTHER_MICRO] -= bytes;
            if (is_routed(g, x, writer, travels)) r->routed_bytes += bytes;
            if (kind == BK_MEM_ACTIVATIONS) r->node_bytes[g->op[writer[v]].tag.node] += bytes;
        }
    }
    for (int64_t o = 0; o < g->n_ops; o++)
        if (p->at_peak[g->n_values + o]) {
            r->mem_bytes[BK_MEM_SCRATCH] += p->work[o].bytes;
            r->mem_bytes[BK_MEM_OTHER_MICRO] -= p->work[o].bytes;
        }
    free(writer);
    return BK_OK;
}

bk_status bk_plan_report_make(bk_plan_report *out, const bk_plan *p, bk_err *e)
{
    *out = (bk_plan_report){0};
    count_params(out, p->g);
    for (int64_t i = 0; i < p->s->n_items; i++) out->lane_items[p->s->item[i].lane]++;
    for (int64_t k = 0; k < p->n_waits; k++) out->lane_waits[p->s->item[p->wait[k].after].lane]++;
    return count_memory(out, p, e);
}

/* "1,234,567" */
enum { GROUPED = 32 };
static const char *grouped(char out[GROUPED], int64_t n)
{
    char digits[GROUPED];
    const int len = snprintf(digits, sizeof digits, "%" PRId64, n);
    int at = 0;
    for (int k = 0; k < len; k++) {
        if (k && (len - k) % 3 == 0 && digits[k - 1] != '-') out[at++] = ',';
        out[at++] = digits[k];
    }
    out[at] = '\0';
    return out;
}

void bk_plan_report_print_run(bk_str *out, const bk_config *c, const bk_layout *l)
{
    char n[GROUPED];
    bk_str_appendf(out, "model     %lld layers, width %lld, %lld heads", (long long)c->num_layers,
                   (long long)c->hidden_size, (long long)c->num_attention_heads);
    if (c->num_query_groups != c->num_attention_heads)
        bk_str_appendf(out, " in %lld groups", (long long)c->num_query_groups);
    bk_str_appendf(out, ", MLP %lld, vocabulary %lld, ", (long long)c->ffn_hidden_size,
                   (long long)c->padded_vocab_size);
    if (c->enable_mhc_connections)
        bk_str_appendf(out, "%lld streams\n", (long long)c->mhc_num_residual_streams);
    else
        bk_str_append(out, "one plain residual stream\n");
    if (l->n_ranks > 1)
        bk_str_appendf(
            out,
            "layout    one of %d ranks, with %lld of the %lld experts of a layer; sums over the ranks "
            "are not planned\n",
            (int)l->n_ranks, (long long)l->n_local_experts, (long long)c->num_experts);
    bk_str_appendf(out, "step      %s tokens: %lld micro-batches of %lld samples of %lld tokens\n\n",
                   grouped(n, l->n_micro * l->micro_batch * l->seq), (long long)l->n_micro,
                   (long long)l->micro_batch, (long long)l->seq);
}

static void print_params(bk_str *out, const bk_plan_report *r)
{
    char n[GROUPED], h[BK_HUMAN_LEN];
    bk_str_appendf(out, "%-34s %19s  %6s %11s\n", "PARAMETERS", "count", "share", "memory");
    for (int c = 0; c < BK_N_CLASSES; c++)
        if (r->class_elements[c])
            bk_str_appendf(out, "  %-32s %19s  %5.1f%% %11s\n", bk_param_class_names[c],
                           grouped(n, r->class_elements[c]),
                           100.0 * (double)r->class_elements[c] / (double)r->n_elements,
                           bk_human_bytes(h, r->class_bytes[c]));
    bk_str_appendf(out, "  %-32s %19s  %6s %11s\n\n", "total", grouped(n, r->n_elements), "",
                   bk_human_bytes(h, r->param_bytes));
}

static const char *const mem_names[BK_N_MEMS] = {
    [BK_MEM_PARAMS] = "parameters",
    [BK_MEM_MOMENTS] = "optimizer moments",
    [BK_MEM_RUN_REST] = "alignment and state of the run",
    [BK_MEM_GRADS] = "gradients of parameters",
    [BK_MEM_ACTIVATIONS] = "activations kept",
    [BK_MEM_ACT_GRADS] = "gradients of activations",
    [BK_MEM_SCRATCH] = "scratch of the running op",
    [BK_MEM_INPUTS] = "inputs",
    [BK_MEM_STEP_REST] = "tables, scalars, metrics",
    [BK_MEM_OTHER_MICRO] = "other micro-batches in flight",
};

static void print_bytes(bk_str *out, int indent, const char *name, int64_t bytes, int64_t whole)
{
    char n[GROUPED], h[BK_HUMAN_LEN], share[16] = "";
    if (whole) snprintf(share, sizeof share, "%.1f%%", 100.0 * (double)bytes / (double)whole);
    bk_str_appendf(out, "%*s%-*s %19s  %6s %11s\n", indent, "", 34 - indent, name, grouped(n, bytes), share,
                   bk_human_bytes(h, bytes));
}

static void print_peak_place(bk_str *out, const bk_plan *p)
{
    if (p->peak_op == BK_NONE) return;
    char tag[96], micro[48] = "";
    const bk_item *it = &p->s->item[p->peak_item];
    if (it->micro != BK_NONE) snprintf(micro, sizeof micro, ", micro-batch %d", (int)it->micro);
    bk_str_appendf(out, "  in %s%s (item %d, op %s)\n",
                   bk_tag_name(tag, sizeof tag, p->g->region[it->region].tag), micro, (int)p->peak_item,
                   bk_ops[p->g->op[p->peak_op].kind].name);
}

static void print_memory(bk_str *out, const bk_plan_report *r, const bk_plan *p)
{
    bk_str_appendf(out, "%-34s %19s  %6s %11s\n", "MEMORY AT THE PEAK", "bytes", "share", "memory");
    for (int k = 0; k < BK_N_MEMS; k++) {
        if (r->mem_bytes[k] == 0) continue;
        print_bytes(out, 2, mem_names[k], r->mem_bytes[k], p->peak_bytes);
        for (int node = 0; node < BK_N_NODES && k == BK_MEM_ACTIVATIONS; node++)
            if (r->node_bytes[node])
                print_bytes(out, 4, bk_node_names[node], r->node_bytes[node], p->peak_bytes);
    }
    print_bytes(out, 2, "total", p->peak_bytes, 0);
    print_peak_place(out, p);
    bk_str_append(out, "\n");
}

static void print_arena(bk_str *out, const bk_plan *p)
{
    const int64_t all = bk_plan_bytes(p);
    bk_str_appendf(out, "%-34s %19s  %6s %11s\n", "ARENA", "bytes", "share", "memory");
    print_bytes(out, 2, "run part", p->run_bytes, all);
    print_bytes(out, 2, "step part", p->step_bytes, all);
    print_bytes(out, 2, "total", all, 0);
    print_bytes(out, 2, "holes at the peak", all - p->peak_bytes, all);
    bk_str_append(out, "\n");
}

int64_t bk_plan_matrix_flops(const bk_plan *p)
{
    int64_t flops;
    return bk_mul64(&flops, 2, p->cost.madds) ? flops : INT64_MAX;
}

static void print_flops(bk_str *out, const char *name, int64_t flops, int64_t n_tokens)
{
    char n[BK_HUMAN_LEN], a[BK_HUMAN_LEN + 8], b[BK_HUMAN_LEN + 8];
    snprintf(a, sizeof a, "%sflop", bk_human_count(n, flops));
    snprintf(b, sizeof b, "%sflop", bk_human_count(n, flops / n_tokens));
    bk_str_appendf(out, "  %-32s %19s  %18s\n", name, a, b);
}

static void print_work(bk_str *out, const bk_plan *p, int64_t n_tokens)
{
    char a[BK_HUMAN_LEN], b[BK_HUMAN_LEN];
    bk_str_appendf(out, "%-34s %19s  %18s\n", "WORK", "a step", "a token");
    print_flops(out, "matrix products", bk_plan_matrix_flops(p), n_tokens);
    print_flops(out, "other arithmetic", p->cost.flops, n_tokens);
    bk_str_appendf(out, "  %-32s %19s  %18s\n\n", "memory read and written", bk_human_bytes(a, p->cost.bytes),
                   bk_human_bytes(b, p->cost.bytes / n_tokens));
}

static void print_lanes(bk_str *out, const bk_plan_report *r)
{
    char n[GROUPED], m[GROUPED];
    bk_str_appendf(out, "%-34s %19s  %18s\n", "LANES", "items a step", "waits");
    for (int l = 0; l < BK_N_LANES; l++)
        if (r->lane_items[l])
            bk_str_appendf(out, "  %-32s %19s  %18s\n", bk_lane_names[l], grouped(n, r->lane_items[l]),
                           grouped(m, r->lane_waits[l]));
    bk_str_append(out, "\n");
}

void bk_plan_report_print(bk_str *out, const bk_plan_report *r, const bk_plan *p, int64_t n_tokens)
{
    print_params(out, r);
    print_memory(out, r, p);
    print_arena(out, p);
    print_work(out, p, n_tokens);
    print_lanes(out, r);
}

void bk_plan_report_print_rooms(bk_str *out)
{
    bk_str_appendf(out, "%-34s %15s  %10s %11s\n", "ROUTED BUFFERS", "rows", "memory", "whole peak");
}

void bk_plan_report_print_room(bk_str *out, const char *name, int64_t rows, const bk_plan_report *r,
                               const bk_plan *p)
{
    char n[GROUPED], routed[BK_HUMAN_LEN], peak[BK_HUMAN_LEN];
    bk_str_appendf(out, "  %-32s %15s  %10s %11s\n", name, grouped(n, rows),
                   bk_human_bytes(routed, r->routed_bytes), bk_human_bytes(peak, p->peak_bytes));
}
