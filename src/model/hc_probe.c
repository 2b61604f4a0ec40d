#include "model/hc_probe.h"

#include "model/mhc_params.h"

static bk_vid operand(bk_builder *b, const char *name, int rank, const int64_t *dim)
{
    bk_param row = {.name = name, .rank = rank, .class_ = BK_CLASS_MHC, .init = BK_INIT_ZERO};
    for (int d = 0; d < rank; d++) row.shape[d] = dim[d];
    return bk_build_param(b, &row);
}

/* Rows of a table [T, width] as an activation [T, 1, width], through which gradient flows into the table. */
static bk_vid look_up(bk_builder *b, const char *name, bk_vid table, bk_vid rows)
{
    return bk_build_op1(b, &(bk_op_spec){BK_OP_embedding, BK_IN(table, rows), .name = name});
}

static bk_vid as_streams(bk_builder *b, const char *name, bk_vid flat, const bk_hc_probe_sizes *s)
{
    const int64_t n = s->n_streams, C = s->width;
    return bk_build_view(b, name, flat, 4, (const int64_t[]){s->n_tokens, 1, n, C},
                         (const int64_t[]){n * C, n * C, C, 1}, 0);
}

static void build_connection(bk_hc_probe *h, bk_builder *b, const bk_hc_probe_sizes *s)
{
    const int64_t T = s->n_tokens, n = s->n_streams, C = s->width;
    h->x = operand(b, "x", 2, (const int64_t[]){T, n * C});
    h->y = operand(b, "y", 2, (const int64_t[]){T, C});
    h->sublayer_bias = operand(b, "sublayer_bias", 1, &C);
    const bk_mhc_params p = bk_build_mhc_params(b, "", n, C, 0);
    h->mapping = p.mapping, h->bias = p.bias;
    h->alpha_pre = p.alpha_pre, h->alpha_post = p.alpha_post, h->alpha_res = p.alpha_res;

    const bk_vid x = as_streams(b, "x.streams", look_up(b, "x.flat", h->x, h->rows), s);
    const bk_vid y = look_up(b, "y.rows", h->y, h->rows);
    bk_vid map[5];
    bk_build_op(map, b,
                &(bk_op_spec){BK_OP_mhc_map,
                              BK_IN(x, p.mapping, p.alpha_pre, p.alpha_post, p.alpha_res, p.bias),
                              .name = "map", .attr = {{s->iterations}}});
    h->h_pre = map[0], h->h_post = map[1], h->h_res = map[2];
    h->u = bk_build_op1(b, &(bk_op_spec){BK_OP_mhc_aggregate, BK_IN(x, h->h_pre), .name = "u"});
    h->x_next =
        bk_build_op1(b, &(bk_op_spec){BK_OP_mhc_post, BK_IN(x, h->h_res, h->h_post, y, h->sublayer_bias),
                                      .name = "x_next", .attr = {{.f = 0}}});
    h->du = bk_build_input(b, "du", b->g->real, BK_MICRO, 3, (const int64_t[]){T, 1, C});
    h->dout = bk_build_input(b, "dout", b->g->real, BK_MICRO, 4, (const int64_t[]){T, 1, n, C});
}

static void build_head(bk_hc_probe *h, bk_builder *b, const bk_hc_probe_sizes *s)
{
    const int64_t T = s->n_tokens, n = s->n_streams, C = s->width;
    h->head_x = operand(b, "head.x", 2, (const int64_t[]){T, n * C});
    const bk_mhc_head_params p = bk_build_mhc_head_params(b, "head.", n, C);
    h->head_fn = p.fn, h->head_base = p.base, h->head_scale = p.scale;
    const bk_vid x = as_streams(b, "head.streams", look_up(b, "head.flat", h->head_x, h->rows), s);
    bk_vid out[4];
    bk_build_op(out, b,
                &(bk_op_spec){BK_OP_mhc_contract, BK_IN(x, p.fn, p.base, p.scale), .name = "head.out",
                              .attr = {{.f = s->eps}}});
    h->head_out = out[0];
    h->head_dout = bk_build_input(b, "head.dout", b->g->real, BK_MICRO, 3, (const int64_t[]){T, 1, C});
}

bk_status bk_hc_probe_build(bk_hc_probe *out, bk_graph *g, const bk_hc_probe_sizes *sizes, bk_err *e)
{
    bk_hc_probe h;
    bk_builder b = {.g = g, .e = e};
    bk_build_at(&b, 0, BK_NODE_ATTN);
    h.rows = bk_build_input(&b, "rows", BK_I32, BK_MICRO, 2, (const int64_t[]){1, sizes->n_tokens});
    build_connection(&h, &b, sizes);
    bk_build_at(&b, 0, BK_NODE_MLP);
    build_head(&h, &b, sizes);
    if (b.st == BK_OK) *out = h;
    return b.st;
}
