#include "ir/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "ir/verify_parts.h"

/* Every rule, in the order in which they are checked. */
static const struct {
    const char *name;
    bk_status (*check)(bk_verifier *v);
} rules[] = {
    {"value", bk_verify_value_ids}, /* enums, dims, spreads; counts, bases, parameters, replays in range */
    {"param", bk_verify_params},    /* rows and their values and accumulators refer to each other */
    {"view", bk_verify_strides},    /* views like their base and inside it, other values dense */
    {"op", bk_verify_op_ids},       /* enums in range, operands in range */
    {"arity", bk_verify_arity},     /* numbers of operands as in ops.def, absent inputs only where allowed */
    {"effect", bk_verify_effects},  /* what is written and updated; no replay of an effect */
    {"dense", bk_verify_dense},     /* strided views only for kinds that take them */
    {"scope", bk_verify_scopes},    /* of an op the shortest among its inputs, of its outputs the op's */
    {"shape", bk_verify_shapes},    /* results as the shape rule says */
    {"spread", bk_verify_spreads},  /* results as the spread rule says */
    {"order", bk_verify_order},     /* written once, before it is read; updates apart from readers */
    {"region", bk_verify_regions},  /* ops of one scope, lane and tag, ascending, each in one region */
    {"term", bk_verify_terms},      /* a use of the parameter, and an update of its accumulator */
};

const char *bk_verify_name(char buf[BK_VERIFY_NAME], const bk_graph *g, bk_vid v)
{
    snprintf(buf, BK_VERIFY_NAME, "%%%" PRId32 " '%.120s'", v, g->value[v].name);
    return buf;
}

bk_status bk_verify_op_error(const bk_verifier *v, bk_oid id, const char *fmt, ...)
{
    const bk_op *op = &v->g->op[id];
    char text[512], tag[96] = "tag out of range";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (op->tag.module < BK_N_MODULES && op->tag.node < BK_N_NODES && op->tag.pass < BK_N_PASSES)
        bk_tag_name(tag, sizeof tag, op->tag);
    return bk_err_set(v->e, BK_E_CHECK, "op @%" PRId32 " %s (%s): %s", id,
                      op->kind < BK_N_OPS ? bk_ops[op->kind].name : "of no kind", tag, text);
}

bk_status bk_verify_value_error(const bk_verifier *v, bk_vid id, const char *fmt, ...)
{
    char text[512], name[BK_VERIFY_NAME];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return bk_err_set(v->e, BK_E_CHECK, "value %s: %s", bk_verify_name(name, v->g, id), text);
}

bk_status bk_graph_verify(const bk_graph *g, bk_err *e)
{
    bk_err own = {0};
    bk_verifier v = {.g = g, .e = e ? e : &own};
    bk_status st = BK_OK;
    for (size_t k = 0; k < sizeof rules / sizeof *rules && st == BK_OK; k++) {
        st = rules[k].check(&v);
        if (st != BK_OK) bk_err_prefix(v.e, "verify %s: ", rules[k].name);
    }
    bk_plain_order_free(&v.order);
    return st;
}
