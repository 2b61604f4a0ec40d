/* Each rule of the verifier: small.ir with one damage, and the message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ir/ir_sample.h"

/* The message is `rule` and then `text`, which leaves out what a rule of an op has written. */
static void assert_begins(const char *message, const char *rule, const char *text)
{
    assert_int_equal(strncmp(message, rule, strlen(rule)), 0);
    if (*text == '\0' || strncmp(message + strlen(rule), text, strlen(text)) != 0)
        fail_msg("'%s' instead of '%s%s'", message, rule, text);
}

/* ---- damages that a text can show --------------------------------------------------------------------- */

typedef struct {
    const char *from, *to, *message;
} edit;

static void assert_edits_refused(const edit *edits, size_t n)
{
    bk_str text = {0};
    ir_load(&text);
    for (size_t k = 0; k < n; k++) {
        bk_str edited = {0};
        bk_err e = {0};
        bk_graph *g = NULL;
        ir_edit(&edited, bk_str_text(&text), edits[k].from, edits[k].to);
        const bk_status st = bk_graph_parse(&g, edited.s, (int64_t)edited.len, "x", &e);
        if (st == BK_OK) fail_msg("'%s' was taken", edits[k].to);
        assert_begins(e.msg, "x: verify ", edits[k].message);
        assert_int_equal(st, BK_E_CHECK);
        bk_str_free(&edited);
    }
    bk_str_free(&text);
}
#define ASSERT_EDITS_REFUSED(edits) assert_edits_refused(edits, sizeof(edits) / sizeof *(edits))

static void test_verify__values(void **state)
{
    (void)state;
    const edit edits[] = {
        {"%10:qkv f32[4, 2, 24]", "%10:qkv f32[4, %45:learning_rate<=2, 24]",
         "value: value %10 'qkv': dim 1 is counted by %45, which is not an integer"},
        {"%4:h0 f32[4, 2, 8] act micro", "%4:h0 f32[4, 2, 8] act micro tp=split:3",
         "value: value %4 'h0': spread 1 over tp names dim 3 of 3 dims"},
        {"%11:q f32[4, 2, 2, 1, 4] act micro", "%11:q f32[4, 2, 2, 1, 4] act micro replay=%11",
         "value: value %11 'q': is a replay of %11"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__parameters(void **state)
{
    (void)state;
    const edit edits[] = {
        {"value=%5:layers.0.norm.weight", "value=%6",
         "param: parameter p1 'layers.0.norm.weight': %6 is not its value"},
        {"grad=%43:layers.0.norm.weight", "grad=%42",
         "param: parameter p1 'layers.0.norm.weight': %42 is not its gradient accumulator"},
        {"p1 layers.0.norm.weight", "p1 embedding.weight",
         "param: parameter p1 'embedding.weight': p0 has the same name"},
        {"p1 layers.0.norm.weight f32[8] norm init=one",
         "p1 layers.0.norm.weight f32[8] norm init=one tp=partial",
         "param: parameter p1 'layers.0.norm.weight': is spread over tp as no parameter is"},
        {"p1 layers.0.norm.weight f32[8] norm init=one",
         "p1 layers.0.norm.weight f32[8] norm init=one tp=split:1",
         "param: parameter p1 'layers.0.norm.weight': is spread over tp as no parameter is"},
        {"grad step p1", "grad step",
         "param: parameter p1 'layers.0.norm.weight': %43 is not its gradient accumulator"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__views(void **state)
{
    (void)state;
    const edit edits[] = {
        {"act micro view=%10:qkv +8", "act micro view=%11:q +8",
         "view: value %12 'k': is a view of %11 'q', which is a view itself"},
        {"%12:k f32[4, 2, 2, 4] act micro", "%12:k f32[4, 2, 2, 4] act step",
         "view: value %12 'k': differs from its base %10 'qkv' in dtype, kind, scope or parameter"},
        {"%12:k f32[4, 2, 2, 4] act micro view=%10:qkv +8",
         "%12:k f32[4, 2, 2, 4] act micro view=%10:qkv +200",
         "view: value %12 'k': reaches outside of its base %10 'qkv', which has 192 elements"},
        {"+8[48, 24, 4, 1]", "+8[4611686018427387904, 24, 4, 1]",
         "view: value %12 'k': reaches outside of its base %10 'qkv', which has 192 elements"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__arity(void **state)
{
    (void)state;
    const edit edits[] = {
        {"linear(%8:normed, %6:layers.0.qkv.weight)", "linear(%8:normed)",
         "arity: op @5 linear (decoder.0.attn forward): has 1 inputs, not 2 to 3"},
        {"linear(%8:normed, %6:layers.0.qkv.weight)", "linear(%8:normed, -)",
         "arity: op @5 linear (decoder.0.attn forward): input 1 is absent"},
        {"%8:normed, %9:normed.1 = ", "%8:normed, - = ",
         "arity: op @4 rmsnorm (decoder.0.attn forward): output 1 is absent"},
        {"%14:rope, %15:rope.1 = ", "%14:rope = ",
         "arity: op @6 rope_table (decoder.0.attn forward): has 1 outputs, not 2 to 2"},
        {" updates %34:layers.0.proj.weight", "",
         "arity: op @22 linear_wgrad (decoder.0.attn wgrad): has 0 updates, not 1 to 2"},
        {" updates %34:layers.0.proj.weight", " updates -",
         "arity: op @22 linear_wgrad (decoder.0.attn wgrad): update 0 is absent"},
        {"%1:labels)\n", "%1:labels) folded\n",
         "arity: op @13 cross_entropy (decoder.post_process forward): is folded, but its kind takes no "
         "addend"},
        {", %31:linear.dx) updates", ") updates",
         "arity: op @28 rmsnorm_grad (decoder.0.attn backward): has 4 inputs, not 5 to 5"},
        {", %31:linear.dx) updates", ", -) updates",
         "arity: op @28 rmsnorm_grad (decoder.0.attn backward): input 4 is absent"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__effects(void **state)
{
    (void)state;
    const edit edits[] = {
        {"micro decoder.post_process wgrad", "micro decoder.post_process recompute",
         "effect: op @20 linear_wgrad (decoder.post_process recompute): is a replay, but has an effect that "
         "must happen once"},
        {"@3 %4:h0 = ", "@3 %3 = ",
         "effect: op @3 embedding (decoder.pre_process forward): writes %3 'embedding.weight', a value of "
         "kind param"},
        {"@3 %4:h0 = ", "@3 %0 = ",
         "effect: op @3 embedding (decoder.pre_process forward): writes %0 'tokens', a value of kind input"},
        {"@2 %2:loss_mask = feed", "@2 %4:h0 = feed",
         "effect: op @2 feed (decoder.pre_process forward): writes %4 'h0', a value of kind act"},
        {"updates %34:layers.0.proj.weight", "updates %2",
         "effect: op @22 linear_wgrad (decoder.0.attn wgrad): updates %2 'loss_mask', a value of kind input"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__strided_operands(void **state)
{
    (void)state;
    const edit edits[] = {
        {"%8:normed, %9:normed.1 = rmsnorm(%4:h0", "%8:normed, %9:normed.1 = rmsnorm(%12:k",
         "dense: op @4 rmsnorm (decoder.0.attn forward): operand %12 'k' is not dense, and the kind takes no "
         "strided views"},
        {"d(qkv)\" +16[48, 24, 4, 1]", "d(qkv)\" +16[0, 24, 4, 1]",
         "dense: op @23 attention_grad (decoder.0.attn backward): writes %37 'attention_grad.2', whose "
         "elements stand on each other"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__scopes(void **state)
{
    (void)state;
    const edit edits[] = {
        {"step decoder.0.attn forward", "micro decoder.0.attn forward",
         "scope: op @6 rope_table (decoder.0.attn forward): is of scope micro, but its operands give step"},
        {"micro decoder.0.attn backward", "step decoder.0.attn backward",
         "scope: op @21 linear_dgrad (decoder.0.attn backward): is of scope step, but its operands give "
         "micro"},
        {"%21:h1 f32[4, 2, 8] act micro", "%21:h1 f32[4, 2, 8] act step",
         "scope: op @11 residual_add (decoder.0.attn forward): is of scope micro, but its output %21 'h1' is "
         "of scope step"},
        {"%14:rope f32[4, 2] act step", "%14:rope f32[4, 2] act run",
         "scope: op @6 rope_table (decoder.0.attn forward): is of scope step, but its operands give run"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__shapes(void **state)
{
    (void)state;
    const edit edits[] = {
        {"%21:h1 f32[4, 2, 8]", "%21:h1 f32[4, 2, 7]",
         "shape: op @11 residual_add (decoder.0.attn forward): %21 'h1' is f32[4, 2, 7], but the shape rule "
         "gives f32[4, 2, 8]"},
        {"%14:rope f32[4, 2]", "%14:rope f64[4, 2]",
         "shape: op @6 rope_table (decoder.0.attn forward): %14 'rope' is f64[4, 2], but the shape rule "
         "gives f32[4, 2]"},
        {"%20:proj f32[4, 2, 8]", "%20:proj f32[4, %46:step<=2, 8]",
         "shape: op @10 linear (decoder.0.attn forward): %20 'proj' is f32[4, 2 counted, 8], but the shape "
         "rule gives f32[4, 2, 8]"},
        {"%43:layers.0.norm.weight f32[8] grad", "%43:layers.0.norm.weight f32[9] grad",
         "shape: op @28 rmsnorm_grad (decoder.0.attn backward): "},
        {", %31:linear.dx) updates", ", %30) updates",
         "shape: op @28 rmsnorm_grad (decoder.0.attn backward): "},
        {"p=0, seed", "p=2, seed", "shape: op @9 attention (decoder.0.attn forward): "},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__order(void **state)
{
    (void)state;
    const edit edits[] = {
        {"= rmsnorm(%4:h0", "= rmsnorm(%21",
         "order: op @4 rmsnorm (decoder.0.attn forward): reads %21 'h1' before op @11 has written it"},
        {"linear(%18:attn", "linear(%20",
         "order: op @10 linear (decoder.0.attn forward): reads %20 'proj' before op @10 has written it"},
        {"@24 %38:rope_grad = ", "@24 %37 = ",
         "order: op @24 rope (decoder.0.attn backward): writes %37 'attention_grad.2', which op @23 writes "
         "too"},
        {"view=%40:\"d(qkv)\" +8[48", "view=%40:\"d(qkv)\" +12[48",
         "order: op @24 rope (decoder.0.attn backward): writes %38 'rope_grad', which op @23 writes too"},
        {"updates %34:layers.0.proj.weight", "updates %7",
         "order: op @10 linear (decoder.0.attn forward): reads %7 'layers.0.proj.weight' between its "
         "updates, the last of which is op @38"},
        {"linear_dgrad(%31:linear.dx, %7:layers.0.proj.weight)", "linear_dgrad(%31:linear.dx, %34)",
         "order: op @21 linear_dgrad (decoder.0.attn backward): reads %34 'layers.0.proj.weight' between its "
         "updates, the last of which is op @22"},
        {"= rope(%35:attention_grad,", "= rope(%39,",
         "order: op @25 rope (decoder.0.attn backward): reads %39 'rope_grad' before op @25 has written it"},
        {"@16 %28:seed = feed()", "@16 fetch(%45)",
         "order: op @16 fetch (decoder.post_process forward): reads %45 'learning_rate' before op @30 has "
         "written it"},
        {" view=%40:\"d(qkv)\" +8[48, 24, 4, 1]", "",
         "order: op @26 linear_dgrad (decoder.0.attn backward): reads %40 'd(qkv)', which no op writes"},
        {"  @22 linear_wgrad(%31:linear.dx, %18:attn) updates %34:layers.0.proj.weight",
         "%58:x f32[8, 8] act micro\n@22 linear_wgrad(%31, %18) updates %58",
         "order: op @22 linear_wgrad (decoder.0.attn wgrad): updates %58 'x', which no op writes"},
        {"  @22 linear_wgrad(%31:linear.dx, %18:attn) updates %34:layers.0.proj.weight",
         "%58:x f32[8, 8] act micro\n@22 linear_wgrad(%31, %18) updates %58\n@39 %58 = fill(; value=0)",
         "order: op @22 linear_wgrad (decoder.0.attn wgrad): updates %58 'x' before op @39 has written it"},
        {"@32 %47:grad_norm = grad_norm(%32:embedding.weight",
         "%58:m f32[8] state step\n@39 acc(%43) updates %58\n@32 %47 = grad_norm(%58",
         "order: op @32 grad_norm (decoder.step step): reads %58 'm' before its first update, which begins "
         "it"},
        {"@2 %2:loss_mask = feed() lane=host\n",
         "@2 %2:loss_mask = feed() lane=host\n%58:c i32[1] input micro\n%59:t i32[%58<=2, 4] input "
         "micro\n@39 %59 = feed() lane=host\n@40 %58 = feed() lane=host\n",
         "order: op @39 feed (decoder.pre_process forward): reads %58 'c' before op @40 has written it"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__regions(void **state)
{
    (void)state;
    const edit edits[] = {
        {"@0 @1 @2", "@0 @2 @1",
         "region: op @1 feed (decoder.pre_process forward): does not ascend in region r0"},
        {"@0 @1 @2", "@0 @1 @3",
         "region: op @3 embedding (decoder.pre_process forward): differs from its region r0 in scope, lane, "
         "tag or epilogue"},
        {"chunk=0: @3\n", "chunk=0: @4\n",
         "region: op @4 rmsnorm (decoder.0.attn forward): differs from its region r1 in scope, lane, tag or "
         "epilogue"},
        {"chunk=0: @3\n", "chunk=0:\n",
         "region: region r1: its list is empty or out of range, or its chunk is negative"},
        {"r3 step decoder.0.attn", "r3 step decoder.1.attn",
         "region: op @6 rope_table (decoder.0.attn forward): differs from its region r3 in scope, lane, tag "
         "or epilogue"},
        {"r3 step decoder.0.attn forward lane=comp", "r3 step decoder.0.attn forward lane=a2a",
         "region: op @6 rope_table (decoder.0.attn forward): differs from its region r3 in scope, lane, tag "
         "or epilogue"},
        {"r11 step decoder.step step lane=comp chunk=0 epilogue",
         "r11 step decoder.step step lane=comp chunk=0",
         "region: op @32 grad_norm (decoder.step step): differs from its region r11 in scope, lane, tag or "
         "epilogue"},
        {"r9 micro", "r9 step",
         "region: op @29 embedding_grad (decoder.pre_process backward): differs from its region r9 in scope, "
         "lane, tag or epilogue"},
        {"term p0 use=@12", "r13 micro decoder.pre_process forward lane=comp chunk=0: @3\nterm p0 use=@12",
         "region: op @3 embedding (decoder.pre_process forward): is in region r13 and in another"},
    };
    ASSERT_EDITS_REFUSED(edits);
}

static void test_verify__terms(void **state)
{
    (void)state;
    const edit edits[] = {
        {"use=@12", "use=@11",
         "term: op @11 residual_add (decoder.0.attn forward): is a use of 'embedding.weight' in term 0, but "
         "does not read it"},
        {"term=@20", "term=@22",
         "term: op @22 linear_wgrad (decoder.0.attn wgrad): is term 0 of 'embedding.weight', but does not "
         "update its accumulator"},
        /* Another term of the same parameter is in order. */
        {"use=@3 ", "use=@11 ",
         "term: op @11 residual_add (decoder.0.attn forward): is a use of 'embedding.weight' in term 4, but "
         "does not read it"},
        {"term=@29", "term=@22",
         "term: op @22 linear_wgrad (decoder.0.attn wgrad): is term 4 of 'embedding.weight', but does not "
         "update its accumulator"},
        /* The optimizer reads the accumulator and updates the parameter. */
        {"use=@12", "use=@35",
         "term: op @35 adamw (decoder.step step): is a use of 'embedding.weight' in term 0, but does not "
         "read "
         "it"},
        {"term=@20", "term=@35",
         "term: op @35 adamw (decoder.step step): is term 0 of 'embedding.weight', but does not update its "
         "accumulator"},
    };
    ASSERT_EDITS_REFUSED(edits);
}
/* ---- damages that no text can show -------------------------------------------------------------------- */

static bk_vid value_named(const bk_graph *g, const char *name)
{
    for (int64_t v = 0; v < g->n_values; v++)
        if (strcmp(g->value[v].name, name) == 0) return (bk_vid)v;
    fail_msg("the sample has no value %s", name);
    return BK_NONE;
}

static bk_value *value_of(bk_graph *g, const char *name)
{
    return &g->value[value_named(g, name)];
}

static bk_op *op_of(bk_graph *g, bk_op_kind kind)
{
    for (int64_t o = 0; o < g->n_ops; o++)
        if (g->op[o].kind == kind) return &g->op[o];
    fail_msg("the sample has no %s", bk_ops[kind].name);
    return NULL;
}

static void assert_verify_says(const bk_graph *g, const char *message)
{
    bk_err e = {0};
    if (bk_graph_verify(g, &e) == BK_OK) fail_msg("taken instead of: %s", message);
    assert_begins(e.msg, "verify ", message);
    assert_int_equal(bk_graph_verify(g, NULL), BK_E_CHECK);
}

/* A fresh sample `g`, damaged by the statement. */
#define ASSERT_REFUSED(damage, message)                                                                      \
    do {                                                                                                     \
        bk_graph *g = ir_sample();                                                                           \
        damage;                                                                                              \
        assert_verify_says(g, message);                                                                      \
        bk_graph_free(g);                                                                                    \
    } while (0)

static void test_verify__head(void **state)
{
    (void)state;
    ASSERT_REFUSED(g->real = BK_I32, "value: graph: activations are f32 or f64, not dtype 3");
    ASSERT_REFUSED(g->axis_size[BK_AXIS_CP] = 0, "value: graph: axis cp has 0 ranks");
}

static void test_verify__value_fields(void **state)
{
    (void)state;
    ASSERT_REFUSED(g->value[4].name = NULL, "value: value %4 has no name");
    ASSERT_REFUSED(g->value[4].dtype = (bk_dtype)99,
                   "value: value %4 'h0': dtype 99, kind 2 or scope 2 does not exist");
    ASSERT_REFUSED(g->value[4].kind = (bk_kind)99,
                   "value: value %4 'h0': dtype 0, kind 99 or scope 2 does not exist");
    ASSERT_REFUSED(g->value[4].scope = (bk_scope)-1,
                   "value: value %4 'h0': dtype 0, kind 2 or scope -1 does not exist");
    ASSERT_REFUSED(g->value[4].rank = 6, "value: value %4 'h0': has 6 dims, at most 5 are allowed");
    ASSERT_REFUSED(g->value[4].dim[1].size = -2, "value: value %4 'h0': dim 1 has size -2");
    ASSERT_REFUSED(g->value[4].dim[0].size = g->value[4].dim[1].size = INT64_C(1) << 40,
                   "value: value %4 'h0': its size overflows");
    ASSERT_REFUSED(g->value[4].dim[1].count = 59,
                   "value: value %4 'h0': dim 1 is counted by %58, but there are 58 values");
    ASSERT_REFUSED(g->value[4].dim[1].count = -7,
                   "value: value %4 'h0': dim 1 is counted by %-8, but there are 58 values");
    ASSERT_REFUSED(g->value[4].base = 58, "value: value %4 'h0': is a view of %58, but there are 58 values");
    ASSERT_REFUSED(g->value[4].param = 4, "value: value %4 'h0': belongs to p4, but there are 4 parameters");
    ASSERT_REFUSED(g->value[4].replay_of = -2, "value: value %4 'h0': is a replay of %-2");
    ASSERT_REFUSED(g->value[4].spread[BK_AXIS_EP].kind = 3,
                   "value: value %4 'h0': spread 3 over ep names dim 0 of 3 dims");
    ASSERT_REFUSED(g->value[4].spread[BK_AXIS_EP].dim = 1,
                   "value: value %4 'h0': spread 0 over ep names dim 1 of 3 dims");
    ASSERT_REFUSED(value_of(g, "layers.0.norm.weight")->param = BK_NONE,
                   "param: parameter p1 'layers.0.norm.weight': %5 is not its value");
    ASSERT_REFUSED((value_of(g, "exp_avg.embedding.weight")->kind = BK_GRADIENT,
                    value_of(g, "exp_avg.embedding.weight")->param = BK_NONE),
                   "param: value %50 'exp_avg.embedding.weight': is a grad of no parameter");
}

static void test_verify__param_fields(void **state)
{
    (void)state;
    ASSERT_REFUSED(g->param[2].name = NULL,
                   "param: parameter p2 '': name, dtype, class, init rule or rank is out of range");
    ASSERT_REFUSED(
        g->param[2].class_ = BK_N_CLASSES,
        "param: parameter p2 'layers.0.qkv.weight': name, dtype, class, init rule or rank is out of range");
    ASSERT_REFUSED(
        g->param[2].rank = -1,
        "param: parameter p2 'layers.0.qkv.weight': name, dtype, class, init rule or rank is out of range");
    ASSERT_REFUSED(g->param[2].value = 1000,
                   "param: parameter p2 'layers.0.qkv.weight': %1000 is not its value");
    ASSERT_REFUSED(g->param[2].grad = -5,
                   "param: parameter p2 'layers.0.qkv.weight': %-5 is not its gradient accumulator");
}

static void test_verify__strides(void **state)
{
    (void)state;
    ASSERT_REFUSED(value_of(g, "h0")->stride[0] = 17,
                   "view: value %4 'h0': is no view, but its strides or offset are not dense");
    ASSERT_REFUSED(value_of(g, "h0")->offset = 1,
                   "view: value %4 'h0': is no view, but its strides or offset are not dense");
    ASSERT_REFUSED(value_of(g, "k")->stride[0] = -48, "view: value %12 'k': stride -48 is negative");
    ASSERT_REFUSED(value_of(g, "k")->offset = -1, "view: value %12 'k': offset -1 is negative");
}

static void test_verify__op_fields(void **state)
{
    (void)state;
    char beyond[128];
    snprintf(beyond, sizeof beyond,
             "op: op @5 of no kind (decoder.0.attn forward): kind %d is not in ops.def", (int)BK_N_OPS);
    ASSERT_REFUSED(g->op[5].kind = BK_N_OPS, beyond);
    ASSERT_REFUSED(g->op[5].lane = BK_N_LANES,
                   "op: op @5 linear (decoder.0.attn forward): there is no lane 5");
    ASSERT_REFUSED(g->op[5].tag.node = BK_N_NODES,
                   "op: op @5 linear (tag out of range): its tag is out of range");
    ASSERT_REFUSED(g->op[5].tag.layer = -2,
                   "op: op @5 linear (decoder.-2.attn forward): its tag is out of range");
    ASSERT_REFUSED(g->op[5].first = -1,
                   "op: op @5 linear (decoder.0.attn forward): its operands reach outside of the table");
    ASSERT_REFUSED(g->op[5].n_in = INT32_MAX,
                   "op: op @5 linear (decoder.0.attn forward): its operands reach outside of the table");
    ASSERT_REFUSED(g->operand[g->op[5].first + 1] = 58,
                   "op: op @5 linear (decoder.0.attn forward): operand 1 is %58, but there are 58 values");
    ASSERT_REFUSED(g->operand[g->op[5].first] = -2,
                   "op: op @5 linear (decoder.0.attn forward): operand 0 is %-2, but there are 58 values");
    ASSERT_REFUSED(op_of(g, BK_OP_rope_table)->scope = BK_RUN,
                   "scope: op @6 rope_table (decoder.0.attn forward): is of scope 0; an op runs once a step "
                   "or once a micro-batch");
}

static void test_verify__list_fields(void **state)
{
    (void)state;
    ASSERT_REFUSED(g->region[1].first = 1000,
                   "region: region r1: its list is empty or out of range, or its chunk is negative");
    ASSERT_REFUSED(g->region[1].chunk = -1,
                   "region: region r1: its list is empty or out of range, or its chunk is negative");
    ASSERT_REFUSED(g->region_op[g->region[1].first] = 39, "region: region r1: there is no op @39");
    ASSERT_REFUSED(g->term[1].param = 4, "term: term 1: p4, @10 or @22 does not exist");
    ASSERT_REFUSED(g->term[1].use = -1, "term: term 1: p3, @-1 or @22 does not exist");
}

/* Over an axis of two ranks the spreads must be those that the rules give. */
static void test_verify__spreads(void **state)
{
    (void)state;
    bk_graph *good = ir_sample();
    bk_err e = {0};
    good->axis_size[BK_AXIS_TP] = 2;
    if (bk_graph_verify(good, &e) != BK_OK) fail_msg("%s", e.msg);
    value_of(good, "h1")->spread[BK_AXIS_DP] = (bk_spread){BK_SPLIT, 1}; /* one rank: it does not matter */
    if (bk_graph_verify(good, &e) != BK_OK) fail_msg("%s", e.msg);
    bk_graph_free(good);
    ASSERT_REFUSED(
        (g->axis_size[BK_AXIS_TP] = 2, value_of(g, "h1")->spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 2}),
        "spread: op @11 residual_add (decoder.0.attn forward): %21 'h1' is split (dim 2) over tp, but the "
        "spread rule gives same (dim 0)");
    ASSERT_REFUSED((g->axis_size[BK_AXIS_TP] = 2,
                    value_of(g, "layers.0.norm.weight")->spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0}),
                   "spread: op @4 rmsnorm (decoder.0.attn forward): ");
    ASSERT_REFUSED((g->axis_size[BK_AXIS_TP] = 2,
                    value_of(g, "exp_avg.embedding.weight")->spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0}),
                   "spread: op @35 adamw (decoder.step step): ");
}

/* The rule "effect" relies on this: ops with updates are those that say so. */
static void test_verify__rows_of_ops_def(void **state)
{
    (void)state;
    for (int k = 0; k < BK_N_OPS; k++) {
        assert_int_equal(bk_ops[k].upd_max > 0, bk_ops[k].effect == BK_UPDATES);
        assert_true(!bk_ops[k].adds || bk_ops[k].out_min > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify__values),          cmocka_unit_test(test_verify__parameters),
        cmocka_unit_test(test_verify__views),           cmocka_unit_test(test_verify__arity),
        cmocka_unit_test(test_verify__effects),         cmocka_unit_test(test_verify__strided_operands),
        cmocka_unit_test(test_verify__scopes),          cmocka_unit_test(test_verify__shapes),
        cmocka_unit_test(test_verify__order),           cmocka_unit_test(test_verify__regions),
        cmocka_unit_test(test_verify__terms),           cmocka_unit_test(test_verify__head),
        cmocka_unit_test(test_verify__value_fields),    cmocka_unit_test(test_verify__param_fields),
        cmocka_unit_test(test_verify__strides),         cmocka_unit_test(test_verify__op_fields),
        cmocka_unit_test(test_verify__list_fields),     cmocka_unit_test(test_verify__spreads),
        cmocka_unit_test(test_verify__rows_of_ops_def),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
