/* Regions: every op in one, no two kinds of op in one, and in an order that respects all dependences. */
#include "passes/pass_run.h"
#include "train/small_run.h"

enum { S = 2, B = 2, C = 4 };

/* The region of each op; fails unless every op is in exactly one and fits it. */
static bk_rid *regions_of(const bk_graph *g)
{
    bk_rid *of = malloc((size_t)g->n_ops * sizeof *of);
    for (int64_t o = 0; o < g->n_ops; o++) of[o] = BK_NONE;
    assert_int_equal(g->n_region_ops, g->n_ops);
    for (bk_rid r = 0; r < g->n_regions; r++) {
        const bk_region *x = &g->region[r];
        assert_true(x->n_ops > 0 && x->chunk == 0);
        assert_int_not_equal(x->tag.pass, BK_PASS_WGRAD);
        for (int32_t k = 0; k < x->n_ops; k++) {
            const bk_oid o = g->region_op[x->first + k];
            const bk_op *op = &g->op[o];
            bk_tag tag = op->tag;
            if (tag.pass == BK_PASS_WGRAD) tag.pass = BK_PASS_BACKWARD;
            assert_int_equal(of[o], BK_NONE);
            of[o] = r;
            assert_int_equal(op->scope, x->scope);
            assert_int_equal(op->lane, x->lane);
            assert_true(tag.module == x->tag.module && tag.node == x->tag.node && tag.pass == x->tag.pass &&
                        tag.layer == x->tag.layer);
            if (k) assert_true(g->region_op[x->first + k - 1] < o);
        }
    }
    return of;
}

/* Whoever writes or updates something stands in front of whoever reads it later in plain order. */
static void check_order(const bk_graph *g, const bk_rid *of)
{
    bk_plain_order order;
    bk_err e;
    int64_t n = 0;
    pr_must(bk_plain_order_make(&order, g, &e), &e);
    for (int64_t a = 0; a < g->n_ops; a++) {
        const bk_op *w = &g->op[a];
        assert_int_equal(g->region[of[a]].epilogue, order.late[a]);
        for (int32_t i = 0; i < w->n_out + w->n_upd; i++)
            for (int64_t b = 0; b < g->n_ops; b++) {
                const bk_op *r = &g->op[b];
                for (int32_t k = 0; k < r->n_in; k++) {
                    const bk_vid v = bk_ins(g, r)[k];
                    if (v == BK_NONE || bk_root(g, v) != bk_root(g, bk_outs(g, w)[i])) continue;
                    const bool first = order.pos[a] < order.pos[b];
                    const bk_rid x = first ? of[a] : of[b], y = first ? of[b] : of[a];
                    n++;
                    if (g->region[x].scope == g->region[y].scope) assert_true(x <= y);
                }
            }
    }
    assert_true(n > g->n_ops / 2);
    bk_plain_order_free(&order);
}

static void check_model(const char *more)
{
    small_run r;
    small_run_graphs(&r, more, 1, BK_F32);
    const bk_graph *g = r.session.program[0].g;
    bk_rid *of = regions_of(g);
    check_order(g, of);
    /* A weight gradient runs with the data gradient of its node. */
    int n = 0;
    for (int64_t o = 0; o < g->n_ops; o++) {
        if (g->op[o].tag.pass != BK_PASS_WGRAD) continue;
        bool found = false;
        const bk_region *x = &g->region[of[o]];
        for (int32_t k = 0; k < x->n_ops; k++)
            found = found || g->op[g->region_op[x->first + k]].tag.pass == BK_PASS_BACKWARD;
        assert_true(found);
        n++;
    }
    assert_true(n >= 8);
    free(of);
    small_run_close(&r);
}

static void test_partition__regions_of_models(void **state)
{
    (void)state;
    check_model("");
    check_model("enable_mhc_connections: false\nadd_bias_linear: true\nnormalization: LayerNorm\n"
                "untie_embeddings_and_output_weights: false\nposition_embedding_type: learned_absolute\n"
                "hidden_dropout: 0.1\n");
}

/* The host feeds x before and takes y after the linear between them, all under one tag. In one region the
 * host would wait for itself. */
static void test_partition__circle_between_lanes_opens_a_second_region(void **state)
{
    (void)state;
    pass_run r;
    bk_err e;
    pr_open(&r, 2);
    const bk_vid x = pr_input(&r, "x", BK_F64, PR_DIMS(S, B, C)), w = pr_param(&r, "w", PR_DIMS(C, C));
    const bk_vid y = pr_op(&r, BK_OP_linear, "y", PR_IN(x, w));
    pr_must(bk_op_add(NULL, r.g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &y, .n_in = 1}, &e), &e);
    const bk_vid late = pr_input(&r, "late", BK_F64, PR_DIMS(S, B, C));
    const bk_vid z = pr_op(&r, BK_OP_residual_add, "z", PR_IN(late, y));
    pr_must(bk_op_add(NULL, r.g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &z, .n_in = 1}, &e), &e);
    pr_plan(&r);
    bk_rid *of = regions_of(r.g);
    check_order(r.g, of);
    /* feed x | linear | fetch y, feed late | add | fetch z: z may not join the region of y, and the sum may
     * not join that of the linear. */
    const bk_oid feed_x = pr_find(r.g, BK_OP_feed, 0), feed_late = pr_find(r.g, BK_OP_feed, 1);
    const bk_oid fetch_y = pr_find(r.g, BK_OP_fetch, 0), fetch_z = pr_find(r.g, BK_OP_fetch, 1);
    assert_int_equal(r.g->n_regions, 5);
    assert_true(of[feed_x] < of[fetch_y] && of[fetch_y] < of[fetch_z]);
    assert_int_equal(of[fetch_y], of[feed_late]);
    pr_run(&r);
    assert_int_equal(r.n_fetched, 4);
    free(of);
    pr_close(&r);
}

/* An op that reads many parts of a value, each from a region of its own. */
static void test_partition__many_parts_from_many_regions(void **state)
{
    (void)state;
    enum { PARTS = 24 };
    pass_run r;
    bk_err e;
    pr_open(&r, 1);
    const bk_vid x = pr_input(&r, "x", BK_F64, PR_DIMS(S, B, C));
    bk_value proto = r.g->value[x];
    bk_vid all, view[PARTS];
    proto.name = "all", proto.kind = BK_ACTIVATION, proto.dim[0].size = S * PARTS;
    pr_must(bk_value_add(&all, r.g, &proto, &e), &e);
    for (int k = 0; k < PARTS; k++) {
        r.g->tag.layer = (int16_t)k;
        view[k] = pr_view(&r, "part", all, 3, (const int64_t[]){S, B, C}, (const int64_t[]){B * C, C, 1},
                          (int64_t)k * S * B * C);
        pr_must(bk_op_add(NULL, r.g,
                          &(bk_op_spec){.kind = BK_OP_copy, .in = &x, .n_in = 1, .into = view[k] + 1}, &e),
                &e);
    }
    r.g->tag.layer = PARTS;
    const bk_vid sum = pr_op(&r, BK_OP_add_n, "sum", view, PARTS);
    pr_must(bk_op_add(NULL, r.g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &sum, .n_in = 1}, &e), &e);
    pr_plan(&r);
    bk_rid *of = regions_of(r.g);
    check_order(r.g, of);
    assert_int_equal(r.g->n_regions, PARTS + 3);
    free(of);
    pr_close(&r);
}

/* Regions are made from the graph alone: a second time they are the same. */
static void test_partition__again_gives_the_same(void **state)
{
    (void)state;
    small_run r;
    bk_err e;
    small_run_graphs(&r, "", 1, BK_F32);
    bk_graph *g = r.session.program[0].g;
    const int64_t n = g->n_regions;
    bk_region *region = malloc((size_t)n * sizeof *region);
    bk_oid *op = malloc((size_t)g->n_ops * sizeof *op);
    memcpy(region, g->region, (size_t)n * sizeof *region);
    memcpy(op, g->region_op, (size_t)g->n_ops * sizeof *op);
    must(bk_pass_partition(g, &e), &e);
    assert_int_equal(g->n_regions, n);
    for (int64_t k = 0; k < n; k++)
        assert_true(g->region[k].first == region[k].first && g->region[k].n_ops == region[k].n_ops &&
                    g->region[k].lane == region[k].lane);
    assert_memory_equal(g->region_op, op, (size_t)g->n_ops * sizeof *op);
    free(region), free(op);
    small_run_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partition__regions_of_models),
        cmocka_unit_test(test_partition__circle_between_lanes_opens_a_second_region),
        cmocka_unit_test(test_partition__many_parts_from_many_regions),
        cmocka_unit_test(test_partition__again_gives_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
