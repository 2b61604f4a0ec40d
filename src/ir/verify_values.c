/* What the verifier asks of the tables of values and parameters. */
#include "ir/verify_parts.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/size.h"
#include "ir/overlap.h"

static bool in_range(int64_t id, int64_t n)
{
    return id >= 0 && id < n;
}

static bool none_or_in_range(int64_t id, int64_t n)
{
    return id == BK_NONE || in_range(id, n);
}

static bk_status check_head(const bk_verifier *v)
{
    const bk_graph *g = v->g;
    if (g->real != BK_F32 && g->real != BK_F64)
        return bk_err_set(v->e, BK_E_CHECK, "graph: activations are f32 or f64, not dtype %d", (int)g->real);
    for (int a = 0; a < BK_N_AXES; a++)
        if (g->axis_size[a] < 1)
            return bk_err_set(v->e, BK_E_CHECK, "graph: axis %s has %" PRId32 " ranks", bk_axis_names[a],
                              g->axis_size[a]);
    const int64_t most = INT32_MAX - 1;
    if (g->n_values > most || g->n_ops > most || g->n_operands > most || g->n_params > most ||
        g->n_regions > most || g->n_region_ops > most)
        return bk_err_set(v->e, BK_E_CHECK, "graph: more entries than ids can name");
    return BK_OK;
}

static bk_status check_spreads(const bk_verifier *v, bk_vid id)
{
    const bk_value *x = &v->g->value[id];
    for (int a = 0; a < BK_N_AXES; a++) {
        const bk_spread s = x->spread[a];
        if (s.kind > BK_PARTIAL || (s.kind == BK_SPLIT ? !in_range(s.dim, x->rank) : s.dim != 0))
            return bk_verify_value_error(v, id, "spread %d over %s names dim %d of %d dims", s.kind,
                                         bk_axis_names[a], s.dim, x->rank);
    }
    return BK_OK;
}

/* Bytes of a value, views included, stay below 2^62, as bk_value_add has it. */
static bool size_fits(const bk_value *x)
{
    int64_t bytes = bk_dtype_bytes(x->dtype);
    for (int d = 0; d < x->rank; d++)
        if (!bk_mul64(&bytes, bytes, x->dim[d].size) || bytes > INT64_C(1) << 62) return false;
    return true;
}

static bk_status check_count(const bk_verifier *v, bk_vid id, int d)
{
    const bk_graph *g = v->g;
    const int64_t count = (int64_t)g->value[id].dim[d].count - 1;
    if (!none_or_in_range(count, g->n_values))
        return bk_verify_value_error(v, id,
                                     "dim %d is counted by %%%" PRId64 ", but there are %" PRId64 " values",
                                     d, count, g->n_values);
    if (count == BK_NONE) return BK_OK;
    const bk_dtype dtype = g->value[count].dtype;
    if (dtype != BK_I32 && dtype != BK_I64)
        return bk_verify_value_error(v, id, "dim %d is counted by %%%" PRId64 ", which is not an integer", d,
                                     count);
    return BK_OK;
}

static bk_status check_value(const bk_verifier *v, bk_vid id)
{
    const bk_graph *g = v->g;
    const bk_value *x = &g->value[id];
    if (!x->name) return bk_err_set(v->e, BK_E_CHECK, "value %%%" PRId32 " has no name", id);
    if (!in_range((int)x->dtype, BK_N_DTYPES) || !in_range((int)x->kind, BK_N_KINDS) ||
        !in_range((int)x->scope, BK_N_SCOPES))
        return bk_verify_value_error(v, id, "dtype %d, kind %d or scope %d does not exist", (int)x->dtype,
                                     (int)x->kind, (int)x->scope);
    if (!in_range(x->rank, BK_MAX_DIMS + 1))
        return bk_verify_value_error(v, id, "has %d dims, at most %d are allowed", x->rank, BK_MAX_DIMS);
    for (int d = 0; d < x->rank; d++)
        if (x->dim[d].size < 0)
            return bk_verify_value_error(v, id, "dim %d has size %" PRId64, d, x->dim[d].size);
    if (!size_fits(x)) return bk_verify_value_error(v, id, "its size overflows");
    if (!none_or_in_range(x->base, g->n_values))
        return bk_verify_value_error(v, id, "is a view of %%%" PRId32 ", but there are %" PRId64 " values",
                                     x->base, g->n_values);
    if (!none_or_in_range(x->param, g->n_params))
        return bk_verify_value_error(v, id, "belongs to p%" PRId32 ", but there are %" PRId64 " parameters",
                                     x->param, g->n_params);
    if (!none_or_in_range(x->replay_of, g->n_values) || x->replay_of == id)
        return bk_verify_value_error(v, id, "is a replay of %%%" PRId32, x->replay_of);
    return check_spreads(v, id);
}

bk_status bk_verify_value_ids(bk_verifier *v)
{
    bk_status st = check_head(v);
    for (int64_t id = 0; id < v->g->n_values && st == BK_OK; id++) st = check_value(v, (bk_vid)id);
    for (int64_t id = 0; id < v->g->n_values && st == BK_OK; id++)
        for (int d = 0; d < v->g->value[id].rank && st == BK_OK; d++) st = check_count(v, (bk_vid)id, d);
    return st;
}

/* ---- parameters --------------------------------------------------------------------------------------- */

static bk_status check_row(const bk_verifier *v, int64_t id)
{
    const bk_graph *g = v->g;
    const bk_param *p = &g->param[id];
    const char *name = p->name ? p->name : "";
    if (!p->name || !in_range((int)p->dtype, BK_N_DTYPES) || !in_range((int)p->class_, BK_N_CLASSES) ||
        !in_range((int)p->init, BK_INIT_XAVIER + 1) || !in_range(p->rank, BK_MAX_DIMS + 1))
        return bk_err_set(
            v->e, BK_E_CHECK,
            "parameter p%" PRId64 " '%s': name, dtype, class, init rule or rank is out of range", id, name);
    for (int a = 0; a < BK_N_AXES; a++)
        if (p->spread[a].kind > BK_SPLIT ||
            (p->spread[a].kind == BK_SPLIT ? !in_range(p->spread[a].dim, p->rank) : p->spread[a].dim != 0))
            return bk_err_set(v->e, BK_E_CHECK,
                              "parameter p%" PRId64 " '%s': is spread over %s as no parameter is", id, name,
                              bk_axis_names[a]);
    if (!in_range(p->value, g->n_values) || g->value[p->value].kind != BK_PARAM ||
        g->value[p->value].param != id || g->value[p->value].base != BK_NONE)
        return bk_err_set(v->e, BK_E_CHECK, "parameter p%" PRId64 " '%s': %%%" PRId32 " is not its value", id,
                          name, p->value);
    if (p->grad != BK_NONE && (!in_range(p->grad, g->n_values) || g->value[p->grad].kind != BK_GRADIENT ||
                               g->value[p->grad].param != id))
        return bk_err_set(v->e, BK_E_CHECK,
                          "parameter p%" PRId64 " '%s': %%%" PRId32 " is not its gradient accumulator", id,
                          name, p->grad);
    return BK_OK;
}

bk_status bk_verify_params(bk_verifier *v)
{
    const bk_graph *g = v->g;
    bk_map names = {0};
    bk_status st = BK_OK;
    for (int64_t id = 0; id < g->n_params && st == BK_OK; id++) {
        st = check_row(v, id);
        if (st != BK_OK) break;
        const int64_t other = bk_map_get(&names, g->param[id].name, BK_NONE);
        if (other != BK_NONE)
            st = bk_err_set(v->e, BK_E_CHECK, "parameter p%" PRId64 " '%s': p%" PRId64 " has the same name",
                            id, g->param[id].name, other);
        else if (bk_map_set(&names, g->param[id].name, id) != BK_OK)
            st = bk_err_set(v->e, BK_E_MEM, "out of memory");
    }
    bk_map_free(&names);
    for (int64_t id = 0; id < g->n_values && st == BK_OK; id++)
        if ((g->value[id].kind == BK_PARAM || g->value[id].kind == BK_GRADIENT) &&
            g->value[id].param == BK_NONE)
            st = bk_verify_value_error(v, (bk_vid)id, "is a %s of no parameter",
                                       bk_kind_names[g->value[id].kind]);
    return st;
}

/* ---- views -------------------------------------------------------------------------------------------- */

static bk_status check_view(const bk_verifier *v, bk_vid id)
{
    const bk_graph *g = v->g;
    const bk_value *x = &g->value[id], *base = &g->value[x->base];
    char name[BK_VERIFY_NAME];
    bk_verify_name(name, g, x->base);
    if (base->base != BK_NONE)
        return bk_verify_value_error(v, id, "is a view of %s, which is a view itself", name);
    if (x->dtype != base->dtype || x->kind != base->kind || x->scope != base->scope ||
        x->param != base->param)
        return bk_verify_value_error(v, id, "differs from its base %s in dtype, kind, scope or parameter",
                                     name);
    for (int d = 0; d < x->rank; d++)
        if (x->stride[d] < 0)
            return bk_verify_value_error(v, id, "stride %" PRId64 " is negative", x->stride[d]);
    if (x->offset < 0) return bk_verify_value_error(v, id, "offset %" PRId64 " is negative", x->offset);
    const int64_t last = bk_value_last_element(x);
    if (bk_elements(x) > 0 && (last < 0 || last >= bk_elements(base)))
        return bk_verify_value_error(v, id, "reaches outside of its base %s, which has %" PRId64 " elements",
                                     name, bk_elements(base));
    return BK_OK;
}

bk_status bk_verify_strides(bk_verifier *v)
{
    const bk_graph *g = v->g;
    bk_status st = BK_OK;
    for (int64_t id = 0; id < g->n_values && st == BK_OK; id++) {
        const bk_value *x = &g->value[id];
        if (x->base != BK_NONE)
            st = check_view(v, (bk_vid)id);
        else if (!bk_is_dense(x) || x->offset != 0)
            st = bk_verify_value_error(v, (bk_vid)id, "is no view, but its strides or offset are not dense");
    }
    return st;
}
