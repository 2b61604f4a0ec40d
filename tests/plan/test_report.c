/* The report: each number against a count of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "plan/report.h"
#include "train/session.h"

enum { L = 2, C = 16, F = 64, V = 40, S = 6, B = 2, N = 3, M = 3 };

static const char small[] = "num_layers: 2\nhidden_size: 16\nnum_attention_heads: 2\nffn_hidden_size: 64\n"
                            "seq_length: 6\nvocab_size: 40\nmake_vocab_size_divisible_by: 1\n"
                            "micro_batch_size: 2\nglobal_batch_size: 6\nposition_embedding_type: rope\n"
                            "normalization: RMSNorm\nswiglu: true\nadd_bias_linear: false\n"
                            "untie_embeddings_and_output_weights: true\nhidden_dropout: 0\n"
                            "attention_dropout: 0\n";
static const char mhc[] = "enable_mhc_connections: true\nmhc_num_residual_streams: 3\n";

typedef struct {
    bk_config c;
    bk_layout l;
    bk_session session;
    bk_plan_report r;
} planned;

static void plan_text(planned *x, const char *more, bk_model_mode mode)
{
    bk_err e = {0};
    bk_program prog;
    const bk_target target = {.kind = BK_TARGET_CPU};
    *x = (planned){0};
    bk_config_init(&x->c);
    if (bk_config_read_yaml_memory(&x->c, small, strlen(small), "small", &e) != BK_OK ||
        bk_config_read_yaml_memory(&x->c, more, strlen(more), "more", &e) != BK_OK ||
        bk_config_resolve(&x->c, &e) != BK_OK ||
        bk_layout_resolve(&x->l, &x->c, bk_layout_ranks(&x->c), &e) != BK_OK ||
        bk_program_graph(&prog, &x->c, &x->l,
                         &(bk_program_options){.mode = mode, .real = BK_F32, .optimizer = true}, &e) != BK_OK)
        fail_msg("%s", e.msg);
    bk_session_add(&x->session, &prog, x->l.n_micro);
    if (bk_session_plan(&x->session, &target, &e) != BK_OK ||
        bk_plan_report_make(&x->r, x->session.program[0].p, &e) != BK_OK)
        fail_msg("%s", e.msg);
}

static void plan_free(planned *x)
{
    bk_session_close(&x->session);
    bk_config_free(&x->c);
}

/* Every class by its formula. */
static void test_report__parameters_by_class(void **state)
{
    (void)state;
    planned x;
    plan_text(&x, mhc, BK_MODEL_TRAIN);
    const int64_t expected[BK_N_CLASSES] = {
        [BK_CLASS_EMBEDDING] = V * C,
        [BK_CLASS_ATTENTION] = L * 4 * C * C,
        [BK_CLASS_MLP] = L * 3 * C * F,
        [BK_CLASS_NORM] = (2 * L + 1) * C,
        /* projection, bias and three alphas of each sublayer; contraction */
        [BK_CLASS_MHC] = 2 * L * ((N * N + 2 * N) * (N * C + 1) + 3) + N * (N * C) + N + 1,
        [BK_CLASS_OUTPUT] = V * C,
    };
    int64_t all = 0;
    for (int k = 0; k < BK_N_CLASSES; k++) {
        assert_int_equal(x.r.class_elements[k], expected[k]);
        assert_int_equal(x.r.class_bytes[k], 4 * expected[k]);
        all += expected[k];
    }
    assert_int_equal(x.r.n_elements, all);
    assert_int_equal(x.r.param_bytes, 4 * all);
    assert_int_equal(x.r.mem_bytes[BK_MEM_PARAMS], 4 * all);
    assert_int_equal(x.r.mem_bytes[BK_MEM_MOMENTS], 8 * all);
    plan_free(&x);
}

/* When a value of one micro-batch (or of the step), or an op's scratch memory, is alive. */
typedef struct {
    int64_t first, last, at, bytes;
} span;

static void touch(span *s, int64_t first, int64_t last, int64_t at, int64_t bytes)
{
    if (bytes == 0) return;
    if (s->bytes == 0) *s = (span){first, last, at, bytes};
    if (first < s->first) s->first = first;
    if (last > s->last) s->last = last;
}

/* Time is the number of ops issued. A value of the step that micro-batches use lives through all of them. */
static int64_t find_spans(span *s, const bk_plan *p, int64_t *peak_time)
{
    const bk_graph *g = p->g;
    int64_t n = 0, begin = -1, end = -1;
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (int64_t i = 0; i < p->s->n_items; i++) {
            const bk_item *it = &p->s->item[i];
            const int32_t m = it->micro == BK_NONE ? 0 : it->micro;
            for (int32_t k = 0; k < g->region[it->region].n_ops; k++, n++) {
                const bk_oid o = g->region_op[g->region[it->region].first + k];
                const bk_op *op = &g->op[o];
                if (it->micro != BK_NONE) begin = begin < 0 ? n : begin, end = pass ? end : n;
                if (pass == 0) continue;
                if (i == p->peak_item && o == p->peak_op) *peak_time = n;
                for (int32_t j = 0; j < op->n_in + op->n_out + op->n_upd; j++) {
                    if (g->operand[op->first + j] == BK_NONE) continue;
                    const bk_vid v = bk_root(g, g->operand[op->first + j]);
                    if (g->value[v].scope == BK_RUN) continue;
                    const bool micro = g->value[v].scope == BK_MICRO, whole = !micro && it->micro != BK_NONE;
                    touch(&s[v * M + (micro ? m : 0)], whole ? begin : n, whole ? end : n,
                          bk_plan_value_address(p, v, m), p->place[v].bytes);
                }
                touch(&s[(g->n_values + o) * M + m], n, n, bk_plan_address(p, &p->work[o], m),
                      p->work[o].bytes);
            }
        }
    }
    return n;
}

/* Paints the bytes that are alive at a time; those of the run part are all. */
static int64_t count_alive(const span *s, int64_t n_spans, int64_t time, unsigned char *arena,
                           const bk_plan *p)
{
    memset(arena, 0, (size_t)bk_plan_bytes(p));
    memset(arena, 1, (size_t)p->run_bytes);
    for (int64_t k = 0; k < n_spans; k++)
        if (s[k].bytes && s[k].first <= time && time <= s[k].last)
            memset(arena + s[k].at, 1, (size_t)s[k].bytes);
    int64_t n = 0;
    for (int64_t k = 0; k < bk_plan_bytes(p); k++) n += arena[k];
    return n;
}

static void check_memory(const char *more, bk_model_mode mode)
{
    planned x;
    plan_text(&x, more, mode);
    const bk_plan *p = x.session.program[0].p;
    const int64_t n_spans = (p->g->n_values + p->g->n_ops) * M;
    span *s = calloc((size_t)n_spans, sizeof *s);
    unsigned char *arena = malloc((size_t)bk_plan_bytes(p));
    assert_true(s && arena);
    int64_t peak_time = -1, most = 0;
    const int64_t n_times = find_spans(s, p, &peak_time);
    for (int64_t t = 0; t < n_times; t++) {
        const int64_t n = count_alive(s, n_spans, t, arena, p);
        if (n > most) most = n;
    }
    assert_int_equal(p->peak_bytes, most);
    assert_int_equal(count_alive(s, n_spans, peak_time, arena, p), most);
    int64_t sum = 0, nodes = 0;
    for (int k = 0; k < BK_N_MEMS; k++) assert_true(x.r.mem_bytes[k] >= 0), sum += x.r.mem_bytes[k];
    for (int k = 0; k < BK_N_NODES; k++) nodes += x.r.node_bytes[k];
    assert_int_equal(sum, most);
    assert_int_equal(nodes, x.r.mem_bytes[BK_MEM_ACTIVATIONS]);
    assert_true(nodes > 0);
    assert_int_equal(x.r.mem_bytes[BK_MEM_OTHER_MICRO], 0); /* one in flight */
    assert_true(p->peak_bytes <= bk_plan_bytes(p));
    free(s), free(arena);
    plan_free(&x);
}

static void test_report__memory_adds_up_to_the_peak(void **state)
{
    (void)state;
    check_memory(mhc, BK_MODEL_TRAIN);
    check_memory("", BK_MODEL_TRAIN);
    check_memory(mhc, BK_MODEL_EVALUATE);
    check_memory("hidden_dropout: 0.1\nattention_dropout: 0.1\nswiglu: false\nadd_bias_linear: true\n",
                 BK_MODEL_TRAIN);
}

/* All accumulators are alive while a micro-batch runs, and none in evaluation. */
static void test_report__gradients_are_alive_in_micro_batches(void **state)
{
    (void)state;
    planned x;
    plan_text(&x, mhc, BK_MODEL_TRAIN);
    assert_int_not_equal(x.session.program[0].s->item[x.session.program[0].p->peak_item].micro, BK_NONE);
    assert_int_equal(x.r.mem_bytes[BK_MEM_GRADS], x.r.param_bytes);
    plan_free(&x);
    plan_text(&x, mhc, BK_MODEL_EVALUATE);
    assert_int_equal(x.r.mem_bytes[BK_MEM_GRADS], 0);
    assert_int_equal(x.r.mem_bytes[BK_MEM_MOMENTS], 0);
    plan_free(&x);
}

/* With one position attention has one score and one weight for each channel. */
static void test_report__matrix_flops(void **state)
{
    (void)state;
    planned x;
    const int64_t tokens = B * M, linear = L * (4 * C * C + 3 * C * F) + V * C, attention = L * 2 * C;
    plan_text(&x, "seq_length: 1\n", BK_MODEL_EVALUATE);
    assert_int_equal(bk_plan_matrix_flops(x.session.program[0].p), 2 * tokens * (linear + attention));
    plan_free(&x);
}

static void test_report__flops_saturate(void **state)
{
    (void)state;
    const bk_plan p = {.cost = {.madds = INT64_MAX / 2 + 1}};
    assert_int_equal(bk_plan_matrix_flops(&p), INT64_MAX);
}

static void test_report__lanes(void **state)
{
    (void)state;
    planned x;
    plan_text(&x, mhc, BK_MODEL_TRAIN);
    const bk_plan *p = x.session.program[0].p;
    int64_t items = 0, waits = 0;
    for (int l = 0; l < BK_N_LANES; l++) items += x.r.lane_items[l], waits += x.r.lane_waits[l];
    assert_int_equal(items, p->s->n_items);
    assert_int_equal(waits, p->n_waits);
    /* A lane alone waits for nobody, so both have waits. */
    assert_true(x.r.lane_items[BK_LANE_COMP] > 0 && x.r.lane_items[BK_LANE_HOST] > 0);
    assert_true(x.r.lane_waits[BK_LANE_COMP] > 0 && x.r.lane_waits[BK_LANE_HOST] > 0);
    plan_free(&x);
}

static bool has_row(const char *text, const char *name, const char *number)
{
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        while (*line == ' ') line++;
        if (strncmp(line, name, strlen(name)) != 0) continue;
        const char *at = line + strlen(name) + strspn(line + strlen(name), " ");
        if (strncmp(at, number, strlen(number)) == 0 && at[strlen(number)] == ' ') return true;
    }
    return false;
}

static void test_report__text(void **state)
{
    (void)state;
    planned x;
    bk_str t = {0};
    plan_text(&x, mhc, BK_MODEL_TRAIN);
    bk_plan_report_print_run(&t, &x.c, &x.l);
    bk_plan_report_print(&t, &x.r, x.session.program[0].p, M * B * S);
    const char *text = bk_str_text(&t);
    assert_non_null(
        strstr(text, "model     2 layers, width 16, 2 heads, MLP 64, vocabulary 40, 3 streams\n"));
    assert_non_null(strstr(text, "step      36 tokens: 3 micro-batches of 2 samples of 6 tokens\n"));
    assert_true(has_row(text, "attention", "2,048"));
    assert_true(has_row(text, "mlp", "6,144"));
    assert_true(has_row(text, "embedding", "640"));
    assert_non_null(strstr(text, "\n  in decoder."));
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        assert_true(end - line <= 80); /* a terminal's width */
    bk_str_free(&t);
    plan_free(&x);
}

/* Twice the room for rows, twice the bytes of what has a row for each. */
static void test_report__routed_buffers_grow_with_their_rows(void **state)
{
    (void)state;
    planned dense, one, room[2];
    plan_text(&dense, mhc, BK_MODEL_TRAIN);
    assert_int_equal(dense.r.routed_bytes, 0);
    plan_free(&dense);
    plan_text(&one, "num_experts: 4\n", BK_MODEL_TRAIN);
    assert_true(one.r.routed_bytes > 0 && one.r.routed_bytes % (S * B * 2) == 0);
    plan_free(&one);
    for (int k = 0; k < 2; k++)
        plan_text(&room[k],
                  k ? "num_experts: 4\nexpert_model_parallel_size: 4\nglobal_batch_size: "
                      "24\nmoe_capacity_headroom: 2\n"
                    : "num_experts: 4\nexpert_model_parallel_size: 4\nglobal_batch_size: "
                      "24\nmoe_capacity_headroom: 1\n",
                  BK_MODEL_TRAIN);
    assert_int_equal(room[0].l.routed_rows, S * B * 2);
    assert_int_equal(room[1].l.routed_rows, 2 * S * B * 2);
    assert_int_equal(room[1].r.routed_bytes, 2 * room[0].r.routed_bytes);
    plan_free(&room[0]), plan_free(&room[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report__parameters_by_class),
        cmocka_unit_test(test_report__memory_adds_up_to_the_peak),
        cmocka_unit_test(test_report__gradients_are_alive_in_micro_batches),
        cmocka_unit_test(test_report__matrix_flops),
        cmocka_unit_test(test_report__flops_saturate),
        cmocka_unit_test(test_report__lanes),
        cmocka_unit_test(test_report__text),
        cmocka_unit_test(test_report__routed_buffers_grow_with_their_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
