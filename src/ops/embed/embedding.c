/* embedding: y [S, B, C] = w[tokens], w [V, C], tokens i32 [B, S]. embedding_grad: dw += dy at the rows of
 * the tokens. */
#include "ops/rules.h"

#include <inttypes.h>

#define BK_BOTH "ops/embed/embed_cpu.h"
#include "base/real_both.h"

static bk_status fwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "vc,bs:i>sbc", e);
}

static bk_status fwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "Vc,bs>sbc", e);
}

/* Reads the rows of the tokens, not the table. */
static void fwd_cost(bk_cost *out, const bk_graph *g, const bk_op *op, const bk_target *target)
{
    (void)target;
    const bk_value *w = bk_in(g, op, 0), *tokens = bk_in(g, op, 1);
    const int64_t row_bytes = w->dim[1].size * bk_dtype_bytes(w->dtype);
    out->bytes = bk_value_bytes(tokens) + 2 * bk_elements(tokens) * row_bytes;
}

static bk_status fwd_grad(bk_grad_ctx *c, bk_oid id, bk_err *e)
{
    const bk_op_ids op = bk_grad_ids(c, id);
    const bk_vid dy = bk_grad_of(c, op.out[0]);
    if (dy == BK_NONE || !bk_grad_wanted(c, op.in[0])) return BK_OK;
    const bk_op_spec spec = {.kind = BK_OP_embedding_grad, .in = (const bk_vid[]){dy, op.in[1]}, .n_in = 2};
    return bk_grad_op(NULL, c, &spec, &op.in[0], 1, id, e);
}

static bk_status bad_token(const bk_arg *tokens, int64_t at, int64_t n_vocab, bk_err *e)
{
    const int64_t S = bk_arg_dim(tokens, 1);
    return bk_err_set(e, BK_E_INPUT,
                      "token id %" PRId32 " at position %" PRId64 " of sequence %" PRId64
                      " is not in the vocabulary of %" PRId64
                      "; the data and the model need the same tokenizer",
                      ((const int32_t *)tokens->p)[at], at % S, at / S, n_vocab);
}

static bk_status fwd_cpu(bk_call *c, bk_err *e)
{
    const bk_arg *w = &c->in[0], *tokens = &c->in[1];
    const int64_t n_vocab = bk_arg_dim(w, 0);
    const int64_t bad = BK_REAL_CALL(bk_call_f64(c), bk_embed_word_fwd, c->out[0].p, w->p, tokens->p,
                                     bk_arg_dim(tokens, 1), bk_arg_dim(tokens, 0), bk_arg_dim(w, 1), n_vocab);
    return bad < 0 ? BK_OK : bad_token(tokens, bad, n_vocab, e);
}

const bk_op_rules bk_embedding_rules = {
    .shape = fwd_shape, .spread = fwd_spread, .cost = fwd_cost, .grad = fwd_grad, .cpu = fwd_cpu};

/* The number of rows is the accumulator's. */
static bk_status bwd_shape(bk_value *out, const bk_graph *g, const bk_op *op, bk_err *e)
{
    return bk_shape_pattern(out, g, op, "sbc,bs:i>+vc", e);
}

static bk_status bwd_spread(bk_spread *out, const bk_graph *g, const bk_op *op, bk_axis axis, bk_err *e)
{
    return bk_spread_pattern(out, g, op, axis, "sbc,bs>+Vc", e);
}

static bk_status bwd_cpu(bk_call *c, bk_err *e)
{
    const bk_arg *dy = &c->in[0], *tokens = &c->in[1], *dw = &c->upd[0];
    const int64_t n_vocab = bk_arg_dim(dw, 0);
    const int64_t bad =
        BK_REAL_CALL(bk_call_f64(c), bk_embed_word_bwd, dw->p, dy->p, tokens->p, bk_arg_dim(dy, 0),
                     bk_arg_dim(dy, 1), bk_arg_dim(dy, 2), n_vocab, bk_call_beta(c, 0));
    return bad < 0 ? BK_OK : bad_token(tokens, bad, n_vocab, e);
}

const bk_op_rules bk_embedding_grad_rules = {.shape = bwd_shape, .spread = bwd_spread, .cpu = bwd_cpu};
