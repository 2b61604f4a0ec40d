/* Every message of the checker, each on a plan with one thing wrong. */
#include "passes/pass_run.h"

enum { S = 2, B = 2, C = 4 };

static const bk_step_options step_options = {
    .clip_grad = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};

static bk_vid linear(pass_run *r, const char *name, bk_vid x, bk_vid w)
{
    return pr_op(r, BK_OP_linear, name, PR_IN(x, w));
}

static bk_vid input_sbc(pass_run *r, const char *name)
{
    return pr_input(r, name, BK_F64, PR_DIMS(S, B, C));
}

static void fetch(pass_run *r, bk_vid v)
{
    bk_err e;
    pr_must(bk_op_add(NULL, r->g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &v, .n_in = 1}, &e), &e);
}

/* Makes regions, schedule and plan, which may be wrong, and asks the checker. */
static bk_status judge(pass_run *r, bk_err *e)
{
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    pr_must(bk_pass_partition(r->g, e), e);
    pr_must(bk_schedule_plain(&r->s, r->g, r->n_micro, e), e);
    pr_must(bk_run_layout_add(&r->run, r->g, e), e);
    pr_must(bk_plan_build(&r->p, r->g, r->s, &r->run, &target, e), e);
    return bk_plan_check(r->p, e);
}

static void expect_refused(pass_run *r, const char *part)
{
    bk_err e;
    pr_refused(judge(r, &e), &e, BK_E_CHECK, part);
    pr_close(r);
}

/* The table is embedding and output; a bias; two layers of linears between. Up to the gradients. */
static void open_tied(pass_run *r)
{
    pr_open(r, 2);
    const bk_vid table = pr_param(r, "table", PR_DIMS(C, C)), bias = pr_param(r, "bias", PR_DIMS(C));
    const bk_vid tokens = pr_input(r, "tokens", BK_I32, PR_DIMS(B, S));
    const bk_vid h = pr_op(r, BK_OP_embedding, "h", PR_IN(table, tokens));
    const bk_vid m = linear(r, "m", h, pr_param(r, "middle", PR_DIMS(C, C)));
    pr_seed(r, pr_op(r, BK_OP_linear, "y", PR_IN(m, table, bias)));
    pr_autodiff(r);
    pr_accumulate(r);
}

static void open_whole(pass_run *r)
{
    bk_err e;
    open_tied(r);
    pr_must(bk_pass_step(r->g, &step_options, &e), &e);
    pr_plan(r);
}

/* ---- complete ------------------------------------------------------------------------------------------ */

/* Checks the plan of r with another graph or schedule of the same sizes. */
static void expect_complete(const pass_run *r, const bk_graph *g, const bk_schedule *s, const char *part)
{
    bk_err e;
    bk_plan p = *r->p;
    p.g = g, p.s = s;
    pr_refused(bk_plan_check(&p, &e), &e, BK_E_CHECK, part);
}

static void test_check__complete_regions(void **state)
{
    (void)state;
    pass_run r;
    open_whole(&r);
    bk_graph g = *r.g;
    const size_t n_regions = (size_t)g.n_regions, n_ops = (size_t)g.n_region_ops;
    bk_region *region = malloc(n_regions * sizeof *region);
    bk_oid *op = malloc(n_ops * sizeof *op);
    bk_rid long_one = 0;
    while (r.g->region[long_one].n_ops < 2) long_one++;
    g.region = region, g.region_op = op;
#define FRESH()                                                                                              \
    (memcpy(region, r.g->region, n_regions * sizeof *region), memcpy(op, r.g->region_op, n_ops * sizeof *op))
    FRESH();
    region[long_one].n_ops--;
    expect_complete(&r, &g, r.s, "is in 0 regions instead of one");
    FRESH();
    op[region[long_one].first + region[long_one].n_ops - 1] = (bk_oid)(g.n_ops - 1); /* a second time */
    expect_complete(&r, &g, r.s, "regions instead of one");
    FRESH();
    op[3] = (bk_oid)g.n_ops;
    expect_complete(&r, &g, r.s, "a region names op");
    FRESH();
    const int32_t at = region[long_one].first;
    op[at] = r.g->region_op[at + 1], op[at + 1] = r.g->region_op[at];
    expect_complete(&r, &g, r.s, "of a region is not in plain order");
    FRESH();
    bk_rid of_step = 0, of_micro = 0;
    while (region[of_step].scope != BK_STEP || region[of_step].n_ops != 1) of_step++;
    while (region[of_micro].scope != BK_MICRO || region[of_micro].n_ops != 1) of_micro++;
    op[region[of_step].first] = r.g->region_op[region[of_micro].first];
    op[region[of_micro].first] = r.g->region_op[region[of_step].first];
    expect_complete(&r, &g, r.s, "is of another scope than its region");
#undef FRESH
    free(region), free(op);
    pr_close(&r);
}

static void test_check__complete_items(void **state)
{
    (void)state;
    pass_run r;
    open_whole(&r);
    bk_schedule s = *r.s;
    const size_t n = (size_t)s.n_items;
    s.item = malloc((n + 1) * sizeof *s.item);
#define FRESH() (memcpy(s.item, r.s->item, n * sizeof *s.item), s.n_items = r.s->n_items)
    FRESH();
    s.n_items--;
    expect_complete(&r, r.g, &s, "runs 0 times");
    FRESH();
    s.item[s.n_items++] = r.s->item[n - 1];
    expect_complete(&r, r.g, &s, "runs 2 times");
    FRESH();
    s.item[1].lane = BK_LANE_A2A;
    expect_complete(&r, r.g, &s, "does not fit its region's scope, lane or chunk");
    FRESH();
    s.item[n - 1].micro = 0;
    expect_complete(&r, r.g, &s, "does not fit its region's scope, lane or chunk");
    FRESH();
    s.item[0].region = (bk_rid)r.g->n_regions;
    expect_complete(&r, r.g, &s, "item 0 names no region");
#undef FRESH
    free(s.item);
    pr_close(&r);
}

/* ---- rule 1 -------------------------------------------------------------------------------------------- */

static void test_check__rule_1_read_before_the_write(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_whole(&r);
    bk_plan p = *r.p;
    p.n_waits = 0;
    pr_refused(bk_plan_check(&p, &e), &e, BK_E_CHECK, "rule 1: ");
    assert_non_null(strstr(e.msg, "must be done before"));
    pr_close(&r);
}

/* The host takes a gradient without waiting for its last term. */
static void test_check__rule_1_read_before_the_last_update(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_tied(&r);
    pr_fetch_gradients(&r);
    pr_must(judge(&r, &e), &e);
    const int32_t last = (int32_t)r.s->n_items - 1;
    assert_int_equal(r.s->item[last].lane, BK_LANE_HOST);
    const int64_t n_waits = r.p->n_waits;
    while (r.p->n_waits > 0 && r.p->wait[r.p->n_waits - 1].after == last) r.p->n_waits--;
    assert_true(r.p->n_waits < n_waits);
    pr_refused(bk_plan_check(r.p, &e), &e, BK_E_CHECK, "(it updates) must be done before fetch");
    pr_close(&r);
}

static void test_check__rule_1_read_between_updates(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 2);
    const bk_vid x = input_sbc(&r, "x");
    bk_value proto = r.g->value[x];
    bk_vid acc;
    proto.name = "sum", proto.kind = BK_STATE, proto.scope = BK_STEP;
    pr_must(bk_value_add(&acc, r.g, &proto, &e), &e);
    pr_must(bk_op_add(NULL, r.g,
                      &(bk_op_spec){.kind = BK_OP_acc, .in = &x, .n_in = 1, .upd = &acc, .n_upd = 1}, &e),
            &e);
    fetch(&r, pr_op(&r, BK_OP_residual_add, "y", PR_IN(x, acc)));
    expect_refused(&r, "reads sum between its updates");
}

/* Its read of the second micro-batch stands before its own update, the last one. */
static void test_check__rule_1_an_op_may_read_what_it_updates(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 2);
    const bk_vid x = input_sbc(&r, "x");
    bk_value proto = r.g->value[x];
    bk_vid acc;
    proto.name = "sum", proto.kind = BK_STATE, proto.scope = BK_RUN;
    pr_must(bk_value_add(&acc, r.g, &proto, &e), &e);
    const bk_oid o = (bk_oid)r.g->n_ops;
    pr_must(bk_op_add(NULL, r.g,
                      &(bk_op_spec){.kind = BK_OP_acc, .in = &x, .n_in = 1, .upd = &acc, .n_upd = 1}, &e),
            &e);
    r.g->operand[r.g->op[o].first] = acc;
    pr_must(judge(&r, &e), &e);
    pr_close(&r);
}

static void test_check__rule_1_written_twice(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 1);
    const bk_vid x = input_sbc(&r, "x"), y = pr_op(&r, BK_OP_copy, "y", PR_IN(x));
    pr_must(bk_op_add(NULL, r.g, &(bk_op_spec){.kind = BK_OP_copy, .in = &x, .n_in = 1, .into = y + 1}, &e),
            &e);
    fetch(&r, y);
    expect_refused(&r, "rule 1: y of micro-batch 0 is written twice");
}

static void test_check__rule_1_never_written(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 1);
    bk_value proto = {.name = "ghost",
                      .dtype = BK_F64,
                      .kind = BK_ACTIVATION,
                      .scope = BK_MICRO,
                      .rank = 1,
                      .dim = {{4, 0}}};
    bk_vid ghost;
    pr_must(bk_value_add(&ghost, r.g, &proto, &e), &e);
    fetch(&r, ghost);
    expect_refused(&r, "rule 1: ghost of micro-batch 0 is read and never written");
}

/* ---- rule 2 -------------------------------------------------------------------------------------------- */

static void test_check__rule_2(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_whole(&r);
    bk_plan p = *r.p;
    const size_t nv = (size_t)p.n_values, no = (size_t)p.n_ops;
    bk_place *place = malloc(nv * sizeof *place), *work = malloc(no * sizeof *work);
    bk_chunk_block chunk;
    int32_t slot[2];
    bk_vid h = 0, table = r.g->param[0].value, middle = r.g->param[2].value;
    while (strcmp(r.g->value[h].name, "h") != 0) h++;
    bk_oid with_work = 0;
    while (p.work[with_work].space == BK_SPACE_NONE) with_work++;
    p.place = place, p.work = work, p.chunk = &chunk, p.slot = slot;
#define FRESH()                                                                                              \
    (memcpy(place, r.p->place, nv * sizeof *place), memcpy(work, r.p->work, no * sizeof *work),              \
     memcpy(slot, r.p->slot, sizeof slot), chunk = r.p->chunk[0])
#define EXPECT(part) pr_refused(bk_plan_check(&p, &e), &e, BK_E_CHECK, part)
    FRESH();
    pr_must(bk_plan_check(&p, &e), &e);
    place[h].offset++;
    EXPECT("rule 2: h of micro-batch 0: place");
    FRESH();
    place[h].offset = chunk.slot_bytes;
    EXPECT("rule 2: h of micro-batch 0: place");
    FRESH();
    place[h].offset = -64;
    EXPECT("rule 2: h of micro-batch 0: place");
    FRESH();
    place[h].bytes--;
    EXPECT("rule 2: h of micro-batch 0: place");
    FRESH();
    place[h].space = BK_SPACE_NONE;
    EXPECT("rule 2: h of micro-batch 0: place");
    FRESH();
    place[middle].offset = place[table].offset;
    EXPECT("share bytes and both live as long as the run");
    FRESH();
    work[with_work].space = BK_SPACE_NONE;
    EXPECT("has no place for its scratch memory");
    FRESH();
    work[with_work].bytes += 64;
    EXPECT("the scratch memory of op");
    FRESH();
    slot[1] = 1;
    EXPECT("rule 2: micro-batch 1 has no slot in chunk 0");
    FRESH();
    chunk.n_slots = 1000;
    EXPECT("rule 2: the slots of chunk 0 do not fit the arena");
    FRESH();
    /* h is read by the backward: whatever else the forward writes is alive at the same time. */
    bk_vid y = 0;
    while (strcmp(r.g->value[y].name, "m") != 0) y++;
    place[y].offset = place[h].offset;
    EXPECT("share bytes, but ");
#undef EXPECT
#undef FRESH
    free(place), free(work);
    pr_close(&r);
}

/* An op may take the bytes of one input, not those of any other that ends with it. */
static void test_check__rule_2_in_place_of_another_input(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 1);
    const bk_vid x = input_sbc(&r, "x"), a = pr_op(&r, BK_OP_copy, "a", PR_IN(x));
    const bk_vid b = pr_op(&r, BK_OP_copy, "b", PR_IN(x)), sum = pr_op(&r, BK_OP_add_n, "sum", PR_IN(a, b));
    fetch(&r, sum);
    pr_must(judge(&r, &e), &e);
    assert_int_equal(r.p->place[sum].offset, r.p->place[a].offset);
    r.p->place[sum].offset = r.p->place[b].offset;
    pr_refused(bk_plan_check(r.p, &e), &e, BK_E_CHECK,
               "rule 2: b of micro-batch 0 and sum of micro-batch 0 share bytes");
    pr_close(&r);
}

/* ---- rule 3 -------------------------------------------------------------------------------------------- */

static void test_check__rule_3_use_without_a_term(void **state)
{
    (void)state;
    pass_run r;
    open_tied(&r);
    int64_t n = 0;
    for (int64_t t = 0; t < r.g->n_terms; t++) /* the embedding's row goes */
        if (r.g->op[r.g->term[t].use].kind != BK_OP_embedding) r.g->term[n++] = r.g->term[t];
    assert_int_equal(n, r.g->n_terms - 1);
    r.g->n_terms = n;
    expect_refused(&r, "rule 3: parameter table: a use has no term");
}

static void test_check__rule_3_the_same_term_twice(void **state)
{
    (void)state;
    pass_run r;
    open_tied(&r);
    bk_term *term = malloc((size_t)(r.g->n_terms + 1) * sizeof *term);
    memcpy(term, r.g->term, (size_t)r.g->n_terms * sizeof *term);
    term[r.g->n_terms] = term[0];
    free(r.g->term);
    r.g->term = term, r.g->cap_terms = ++r.g->n_terms;
    expect_refused(&r, "a use has two terms");
}

static void test_check__rule_3_term_of_another(void **state)
{
    (void)state;
    pass_run r;
    open_tied(&r);
    for (int64_t t = 0; t < r.g->n_terms; t++)
        if (r.g->term[t].param == 2) r.g->term[t].term = r.g->term[t == 0].term;
    expect_refused(&r, "rule 3: parameter middle: a term does not reach its accumulator");
}

static void test_check__rule_3_update_that_is_no_term(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_tied(&r);
    const bk_vid grad = r.g->param[2].grad;
    bk_vid same;
    bk_value proto = r.g->value[grad];
    proto.name = "more", proto.kind = BK_INPUT, proto.scope = BK_MICRO;
    pr_must(bk_value_add(&same, r.g, &proto, &e), &e);
    pr_must(bk_op_add(NULL, r.g, &(bk_op_spec){.kind = BK_OP_feed, .into = same + 1}, &e), &e);
    pr_must(bk_op_add(NULL, r.g,
                      &(bk_op_spec){.kind = BK_OP_acc, .in = &same, .n_in = 1, .upd = &grad, .n_upd = 1}, &e),
            &e);
    expect_refused(&r, "rule 3: parameter middle: its accumulator is updated by an op that is no term of it");
}

/* One more AdamW of parameter p, like the one that is there. */
static void second_optimizer(pass_run *r, bk_pid p)
{
    bk_err e;
    const bk_op op = r->g->op[pr_find(r->g, BK_OP_adamw, p)];
    bk_vid in[5], upd[3];
    memcpy(in, bk_ins(r->g, &op), sizeof in), memcpy(upd, bk_upds(r->g, &op), sizeof upd);
    bk_op_spec spec = {.kind = BK_OP_adamw, .in = in, .n_in = 5, .upd = upd, .n_upd = 3};
    memcpy(spec.attr, op.attr, sizeof spec.attr);
    pr_must(bk_op_add(NULL, r->g, &spec, &e), &e);
}

static void test_check__rule_3_optimizers(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_tied(&r);
    pr_must(bk_pass_step(r.g, &step_options, &e), &e);
    second_optimizer(&r, 1);
    expect_refused(&r, "rule 3: parameter bias: it is not updated exactly once a step");

    open_tied(&r);
    pr_must(bk_pass_step(r.g, &step_options, &e), &e);
    r.g->n_ops--; /* that of the last row */
    expect_refused(&r, "rule 3: parameter middle: it is not updated exactly once a step");

    open_tied(&r);
    pr_must(bk_pass_step(r.g, &step_options, &e), &e);
    const bk_op *last = &r.g->op[r.g->n_ops - 1];
    r.g->operand[last->first] = bk_ins(r.g, last)[0] == r.g->param[2].grad ? bk_upds(r.g, last)[1] : BK_NONE;
    expect_refused(&r, "rule 3: parameter middle: it is updated by an op that does not read its gradient");

    open_tied(&r);
    pr_must(bk_pass_step(r.g, &step_options, &e), &e);
    r.g->param[2].grad = BK_NONE;
    expect_refused(&r, "rule 3: parameter middle: it has no gradient");
}

static void test_check__rule_3_norm(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_tied(&r);
    pr_must(bk_pass_step(r.g, &step_options, &e), &e);
    bk_op *norm = &r.g->op[pr_find(r.g, BK_OP_grad_norm, 0)];
    bk_vid *in = &r.g->operand[norm->first];
    assert_int_equal(in[1], r.g->param[1].grad);
    in[1] = in[0]; /* the bias leaves, the table counts twice */
    expect_refused(&r, "rule 3: parameter bias: its gradient does not enter the norm exactly once");

    open_tied(&r);
    pr_must(bk_pass_step(r.g, &step_options, &e), &e);
    bk_vid norm_again;
    const bk_vid grad = r.g->param[2].grad;
    pr_must(bk_op_add(&norm_again, r.g, &(bk_op_spec){.kind = BK_OP_grad_norm, .in = &grad, .n_in = 1}, &e),
            &e);
    fetch(&r, norm_again);
    expect_refused(&r, "rule 3: parameter middle: its gradient does not enter the norm exactly once");
}

static void test_check__rule_3_assigns(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_whole(&r);
    bk_plan p = *r.p;
    assert_int_equal(p.n_assigns, 3);
    bk_assign assign[4];
    memcpy(assign, r.p->assign, 3 * sizeof *assign);
    p.assign = assign, p.n_assigns = 2;
    pr_refused(bk_plan_check(&p, &e), &e, BK_E_CHECK, "adds to what nobody wrote");
    /* The second micro-batch assigns too. */
    p.n_assigns = 4, assign[3] = assign[2];
    while (r.s->item[assign[3].item].region != r.s->item[assign[2].item].region ||
           r.s->item[assign[3].item].micro != 1)
        assign[3].item++;
    pr_refused(bk_plan_check(&p, &e), &e, BK_E_CHECK,
               "4 updates assign instead of adding, but there are 3 accumulators");
    pr_close(&r);
}

/* ---- rule 5 -------------------------------------------------------------------------------------------- */

/* Moves the last op to place `at`, and what stands there on. */
static void move_last_op(bk_graph *g, bk_oid at)
{
    const bk_op op = g->op[g->n_ops - 1];
    memmove(&g->op[at + 1], &g->op[at], (size_t)(g->n_ops - 1 - at) * sizeof op);
    g->op[at] = op;
    for (int64_t t = 0; t < g->n_terms; t++) {
        g->term[t].use += g->term[t].use >= at;
        g->term[t].term += g->term[t].term >= at;
    }
}

/* Appends the replay of an elementwise op whose output is `dropped`, reading `from`, at the end of the
 * forward. */
static bk_vid replay(pass_run *r, bk_op_kind kind, bk_vid dropped, bk_vid from, bk_oid n_forward)
{
    const bk_tag tag = r->g->tag;
    r->g->tag = (bk_tag){BK_MODULE_DECODER, BK_NODE_MLP, BK_PASS_RECOMPUTE, 0};
    const bk_vid again = pr_op(r, kind, "again", PR_IN(from));
    r->g->value[again].replay_of = dropped;
    move_last_op(r->g, n_forward);
    r->g->tag = tag;
    return again;
}

typedef struct {
    pass_run r;
    bk_vid h, a, b; /* h = linear(x), a = gelu(h), b = copy(a), y = linear(b) */
    bk_oid n_forward;
} replayed;

static void open_replayed(replayed *t)
{
    pass_run *r = &t->r;
    pr_open(r, 2);
    t->h = linear(r, "h", input_sbc(r, "x"), pr_param(r, "w1", PR_DIMS(C, C)));
    t->a = pr_op(r, BK_OP_gelu, "a", PR_IN(t->h));
    t->b = pr_op(r, BK_OP_copy, "b", PR_IN(t->a));
    pr_seed(r, linear(r, "y", t->b, pr_param(r, "w2", PR_DIMS(C, C))));
    t->n_forward = (bk_oid)r->g->n_ops;
    pr_autodiff(r);
    pr_fetch_gradients(r);
}

/* The backward reads `now` instead of `old`. */
static void backward_reads(replayed *t, bk_vid old, bk_vid now)
{
    bk_graph *g = t->r.g;
    int n = 0;
    for (int64_t o = t->n_forward; o < g->n_ops; o++)
        for (int32_t k = 0; k < g->op[o].n_in && g->op[o].tag.pass != BK_PASS_RECOMPUTE; k++)
            if (g->operand[g->op[o].first + k] == old) g->operand[g->op[o].first + k] = now, n++;
    assert_true(n > 0);
}

/* Both b and a, on which it depends, are computed again: two replays, the second reading the first. */
static void test_check__rule_5_a_legal_replay(void **state)
{
    (void)state;
    replayed plain, t;
    open_replayed(&plain), open_replayed(&t);
    const bk_vid a = replay(&t.r, BK_OP_gelu, t.a, t.h, t.n_forward);
    const bk_vid b = replay(&t.r, BK_OP_copy, t.b, a, t.n_forward + 1);
    backward_reads(&t, t.b, b);
    pr_verify(&t.r);
    pr_plan(&plain.r), pr_plan(&t.r);
    pr_run(&plain.r), pr_run(&t.r);
    for (bk_pid p = 0; p < 2; p++)
        assert_memory_equal(plain.r.grad[p], t.r.grad[p], (size_t)pr_n_weights(&t.r, p) * sizeof(double));
    pr_close(&plain.r), pr_close(&t.r);
}

static void test_check__rule_5_violations(void **state)
{
    (void)state;
    replayed t;
    open_replayed(&t); /* which value it is */
    bk_vid b = replay(&t.r, BK_OP_copy, BK_NONE, t.a, t.n_forward);
    backward_reads(&t, t.b, b);
    expect_refused(&t.r, "rule 5: the replay copy does not say which value again computes again");

    open_replayed(&t); /* an effect */
    t.r.g->op[pr_find(t.r.g, BK_OP_linear_wgrad, 0)].tag.pass = BK_PASS_RECOMPUTE;
    expect_refused(&t.r, "rule 5: the replay linear_wgrad has an effect");

    open_replayed(&t); /* b's replay reads a, which is dropped, in front of a's */
    b = replay(&t.r, BK_OP_copy, t.b, t.a, t.n_forward);
    replay(&t.r, BK_OP_gelu, t.a, t.h, t.n_forward + 1);
    backward_reads(&t, t.b, b);
    expect_refused(&t.r, "rule 5: the replay copy reads a, which is dropped; again replaces it");

    open_replayed(&t); /* the backward still reads b */
    replay(&t.r, BK_OP_copy, t.b, t.a, t.n_forward);
    expect_refused(
        &t.r,
        "rule 5: b of micro-batch 0 is dropped and computed again, but still used after its replay begins");
}

/* ---- rule 6 -------------------------------------------------------------------------------------------- */

/* y = linear(x, w) over two data-parallel ranks; x and the seed are split along B if `split`. */
static void open_spread(pass_run *r, bool split)
{
    pr_open(r, 1);
    r->g->axis_size[BK_AXIS_DP] = 2;
    const bk_vid x = input_sbc(r, "x");
    if (split) r->g->value[x].spread[BK_AXIS_DP] = (bk_spread){BK_SPLIT, 1};
    pr_seed(r, linear(r, "y", x, pr_param(r, "w", PR_DIMS(C, C))));
    if (split) r->g->value[r->seed[0].seed].spread[BK_AXIS_DP] = (bk_spread){BK_SPLIT, 1};
    pr_autodiff(r);
}

static void test_check__rule_6_same_everywhere_is_legal(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_spread(&r, false);
    pr_must(bk_pass_step(r.g, &step_options, &e), &e);
    pr_must(judge(&r, &e), &e);
    pr_close(&r);
}

static void test_check__rule_6_missing_reduction_names_the_parameter(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    open_spread(&r, true);
    expect_refused(
        &r, "rule 6: the gradient of w is not spread over dp as the parameter: a reduction is missing");
    open_spread(&r, true);
    /* The step graph of such a gradient is refused where it is made; turned into one afterwards, by the
     * checker. */
    pr_refused(bk_pass_step(r.g, &step_options, &e), &e, BK_E_CHECK,
               "input 0 w [4, 4] is a partial sum over dp");
    pr_close(&r);
    open_spread(&r, false);
    pr_must(bk_pass_step(r.g, &step_options, &e), &e);
    for (bk_vid v = 0; v < r.g->n_values; v++)
        if (r.g->value[v].kind == BK_INPUT && r.g->value[v].scope == BK_MICRO)
            r.g->value[v].spread[BK_AXIS_DP] = (bk_spread){BK_SPLIT, 1};
    bk_vid y = 0;
    while (strcmp(r.g->value[y].name, "y") != 0) y++;
    r.g->value[y].spread[BK_AXIS_DP] = (bk_spread){BK_SPLIT, 1};
    r.g->value[r.g->param[0].grad].spread[BK_AXIS_DP] = (bk_spread){.kind = BK_PARTIAL};
    expect_refused(&r, "rule 6: input 0 w [4, 4] is a partial sum over dp");
}

static void test_check__rule_6_spread_that_no_rule_gives(void **state)
{
    (void)state;
    pass_run r;
    open_spread(&r, true);
    bk_vid y = 0;
    while (strcmp(r.g->value[y].name, "y") != 0) y++;
    r.g->value[y].spread[BK_AXIS_DP] = (bk_spread){.kind = BK_SAME};
    expect_refused(&r, "rule 6: y is not spread over dp as linear makes it");
    open_spread(&r, false);
    r.g->value[y].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0};
    expect_refused(&r, "rule 6: y is spread over tp, which has one rank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check__complete_regions),
        cmocka_unit_test(test_check__complete_items),
        cmocka_unit_test(test_check__rule_1_read_before_the_write),
        cmocka_unit_test(test_check__rule_1_read_before_the_last_update),
        cmocka_unit_test(test_check__rule_1_read_between_updates),
        cmocka_unit_test(test_check__rule_1_an_op_may_read_what_it_updates),
        cmocka_unit_test(test_check__rule_1_written_twice),
        cmocka_unit_test(test_check__rule_1_never_written),
        cmocka_unit_test(test_check__rule_2),
        cmocka_unit_test(test_check__rule_2_in_place_of_another_input),
        cmocka_unit_test(test_check__rule_3_use_without_a_term),
        cmocka_unit_test(test_check__rule_3_the_same_term_twice),
        cmocka_unit_test(test_check__rule_3_term_of_another),
        cmocka_unit_test(test_check__rule_3_update_that_is_no_term),
        cmocka_unit_test(test_check__rule_3_optimizers),
        cmocka_unit_test(test_check__rule_3_norm),
        cmocka_unit_test(test_check__rule_3_assigns),
        cmocka_unit_test(test_check__rule_5_a_legal_replay),
        cmocka_unit_test(test_check__rule_5_violations),
        cmocka_unit_test(test_check__rule_6_same_everywhere_is_legal),
        cmocka_unit_test(test_check__rule_6_missing_reduction_names_the_parameter),
        cmocka_unit_test(test_check__rule_6_spread_that_no_rule_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
