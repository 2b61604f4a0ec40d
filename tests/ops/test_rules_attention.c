/* The rules of attention. */
#include "ops/grad_bench.h"

enum { S = 5, B = 2, G = 2, R = 2, D = 3, DV = 2, ROW = R * D + D + DV, BASE = S * B * G * ROW };

/* q, k and v as parts of one fused projection, whose rows hold for each group R query heads, a key head and a
 * value head. */
static void fused_views(bk_vid qkv[3], bench *b)
{
    bk_err e;
    const bk_vid base = ACT(b, "qkv", S, B, G, ROW);
    bench_wave(b, base, 0.1);
    const int64_t stride[] = {B * G * ROW, G * ROW, ROW, D, 1}, flat[] = {B * G * ROW, G * ROW, ROW, 1};
    assert_int_equal(
        bk_view_add(&qkv[0], b->g, "q", base, 5, (const int64_t[]){S, B, G, R, D}, stride, 0, &e), BK_OK);
    assert_int_equal(bk_view_add(&qkv[1], b->g, "k", base, 4, (const int64_t[]){S, B, G, D}, flat, R * D, &e),
                     BK_OK);
    assert_int_equal(
        bk_view_add(&qkv[2], b->g, "v", base, 4, (const int64_t[]){S, B, G, DV}, flat, R * D + D, &e), BK_OK);
}

static void attention(bench *b)
{
    bk_vid x[3], out[2];
    fused_views(x, b);
    expect_op(out, b, .kind = BK_OP_attention, IN(x[0], x[1], x[2]), .attr = {{.f = 0.7}});
    assert_int_equal(b->g->value[out[0]].dim[2].size, G * R * DV);
    assert_int_equal(b->g->value[out[1]].dim[1].size, G * R);
}

static void attention_dropout(bench *b)
{
    bk_vid x[3], out[2];
    fused_views(x, b);
    const bk_vid samples = INPUT(b, "samples", BK_I64, B);
    for (int64_t i = 0; i < B; i++) ((int64_t *)bench_data(b, samples))[i] = 11 + i;
    b->g->tag.layer = 3;
    expect_op(out, b, .kind = BK_OP_attention, IN(x[0], x[1], x[2], samples),
              .attr = {{.f = 0.7}, {.f = 0.3}, {.i = 5}, {.i = 2}});
}

static void test_attention__gradient_is_that_of_the_op(void **state)
{
    (void)state;
    check_op(attention, 1, 7);
    check_op(attention_dropout, 1, 7);
    check_nothing_flows(attention);
}

/* Position 0 sees itself alone: with dropout its output is v or 0, by the mask of its head. */
static void test_attention__dropout_drops(void **state)
{
    (void)state;
    grad_bench t = grad_open(attention_dropout, BK_F64, 1, false);
    const bk_op op = t.b.g->op[t.use];
    const bk_vid v = bk_ins(t.b.g, &op)[2], o = bk_outs(t.b.g, &op)[0];
    int kept = 0;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < G * R; h++) {
            const double got = bench_get(&t.b, o, (b * G * R + h) * DV);
            const double want = bench_at(&t.b, v, (b * G + h / R) * DV) / 0.7;
            kept += got != 0;
            assert_true(got == 0 || fabs(got - want) < 1e-14);
        }
    assert_true(kept > 0 && kept < B * G * R);
    grad_close(&t);
}

/* What autodiff does: the three gradients become the parts of one gradient. */
static void test_attention__writes_into_views(void **state)
{
    (void)state;
    grad_bench t = grad_open(attention, BK_F64, 1, false);
    bk_graph *g = t.b.g;
    double dense[3][S * B * G * R * D];
    const bk_vid base = ACT(&t.b, "d(qkv)", S, B, G, ROW);
    for (int k = 0; k < 3; k++) {
        const bk_vid d = grad_of_input(&t, k), x = bk_ins(g, &g->op[t.use])[k];
        for (int64_t i = 0; i < bk_elements(&g->value[d]); i++) dense[k][i] = bench_at(&t.b, d, i);
        g->value[d].base = base, g->value[d].offset = g->value[x].offset;
        memcpy(g->value[d].stride, g->value[x].stride, sizeof g->value[d].stride);
    }
    for (int i = 0; i < BASE; i++) bench_put(&t.b, base, i, 77);
    bench_run_counted(&t.b, t.use + 1, 0);
    for (int k = 0; k < 3; k++) {
        const bk_vid d = grad_of_input(&t, k);
        for (int64_t i = 0; i < bk_elements(&g->value[d]); i++)
            assert_true(bench_at(&t.b, d, i) == dense[k][i]);
    }
    for (int i = 0; i < BASE; i++) assert_true(bench_get(&t.b, base, i) != 77);
    grad_close(&t);
}

static void test_attention__refuses_what_does_not_fit(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid x[3];
    fused_views(x, &b);
    const bk_vid k1 = ACT(&b, "k1", S, B, G, D + 1), k2 = ACT(&b, "k2", S, B, G + 1, D),
                 wide_q = ACT(&b, "wide_q", S, B, G, R, 300), wide_k = ACT(&b, "wide_k", S, B, G, 300),
                 samples = INPUT(&b, "samples", BK_I64, B), few = INPUT(&b, "few", BK_I64, B - 1),
                 o = ACT(&b, "o", S, B, G * R * DV), lse = ACT(&b, "lse", B, G * R, S),
                 bad_o = ACT(&b, "bad_o", S, B, G * R * D), bad_lse = ACT(&b, "bad_lse", B, R, S);
    expect_refused(&b, "k1", .kind = BK_OP_attention, IN(x[0], k1, x[2]));
    expect_refused(&b, "k2", .kind = BK_OP_attention, IN(x[0], k2, x[2]));
    expect_refused(&b, "has 4 dims, expected 5", .kind = BK_OP_attention, IN(x[1], x[1], x[2]));
    expect_refused(&b, "up to 256 dims", .kind = BK_OP_attention, IN(wide_q, wide_k, x[2]));
    expect_refused(&b, "p is 1", .kind = BK_OP_attention, IN(x[0], x[1], x[2]), .attr = {{.f = 1}, {.f = 1}});
    expect_refused(&b, "sample numbers", .kind = BK_OP_attention, IN(x[0], x[1], x[2]),
                   .attr = {{.f = 1}, {.f = 0.1}});
    expect_refused(&b, "few", .kind = BK_OP_attention, IN(x[0], x[1], x[2], few),
                   .attr = {{.f = 1}, {.f = 0.1}});
    expect_refused(&b, "is i64", .kind = BK_OP_attention, IN(x[0], x[1], samples));
    expect_refused(&b, "scale", .kind = BK_OP_attention, IN(x[0], x[1], x[2]), .attr = {{.f = HUGE_VAL}});
    expect_refused(&b, "G*R*dv", .kind = BK_OP_attention_grad, IN(bad_o, x[0], x[1], x[2], bad_o, lse));
    expect_refused(&b, "lse [B, G*R, S]", .kind = BK_OP_attention_grad, IN(o, x[0], x[1], x[2], o, bad_lse));
    bench_close(&b);
}

/* Groups may be split over ranks, positions not; with dropout a head's mask is keyed by its number. */
static void test_attention__spread(void **state)
{
    (void)state;
    bench b = bench_open(BK_F32);
    bk_vid x[3], out[2], d[3];
    fused_views(x, &b);
    const bk_vid samples = INPUT(&b, "samples", BK_I64, B);
    b.g->axis_size[BK_AXIS_TP] = 2;
    for (int k = 0; k < 3; k++) b.g->value[x[k]].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 2};
    expect_op(out, &b, .kind = BK_OP_attention, IN(x[0], x[1], x[2]));
    assert_int_equal(b.g->value[out[0]].spread[BK_AXIS_TP].dim, 2);
    assert_int_equal(b.g->value[out[1]].spread[BK_AXIS_TP].kind, BK_SPLIT);
    assert_int_equal(b.g->value[out[1]].spread[BK_AXIS_TP].dim, 1);
    expect_op(d, &b, .kind = BK_OP_attention_grad, IN(out[0], x[0], x[1], x[2], out[0], out[1]));
    for (int k = 0; k < 3; k++) assert_int_equal(b.g->value[d[k]].spread[BK_AXIS_TP].dim, 2);
    expect_refused(&b, "needs all of it", .kind = BK_OP_attention, IN(x[0], x[1], x[2], samples),
                   .attr = {{.f = 1}, {.f = 0.1}});
    for (int k = 0; k < 3; k++) b.g->value[x[k]].spread[BK_AXIS_TP] = (bk_spread){BK_SPLIT, 0};
    expect_refused(&b, "needs all of it", .kind = BK_OP_attention, IN(x[0], x[1], x[2]));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention__gradient_is_that_of_the_op),
        cmocka_unit_test(test_attention__dropout_drops),
        cmocka_unit_test(test_attention__writes_into_views),
        cmocka_unit_test(test_attention__refuses_what_does_not_fit),
        cmocka_unit_test(test_attention__spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
