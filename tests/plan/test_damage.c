/* The checker's silence is tested: every single damage to a small plan is reported, or the interleaver gives
 * the same bits under 20 seeds. */
#include "train/small_run.h"

#include "plan/access.h"
#include "plan/check.h"
#include "train/generate.h"

enum { SEEDS = 20, VOCAB = 32 };

/* The undamaged plan, what it computes, and how the damages fared. */
typedef struct {
    small_run r;
    int program; /* of the session: the one whose plan is damaged */
    bk_host host;
    int64_t position;    /* of a generating program: that of the token */
    float logits[VOCAB]; /* ... what it gave, and what the undamaged one gives */
    float whole_logits[VOCAB];
    unsigned char *initial, *result; /* the run part before and after the step */
    double loss_sum, grad_norm;
    int64_t n_fetched;
    int64_t reported, harmless;
} bench;

static const bk_plan *whole_plan(const bench *b)
{
    return b->r.session.program[b->program].p;
}

/* Runs a plan from the initial state; true if the step gives the bits of the undamaged one. */
static bool same_bits(bench *b, const bk_plan *p, uint64_t seed)
{
    bk_err e = {0};
    bk_exec *x;
    must(bk_exec_open(&x, p->run_bytes, p->step_bytes, &e), &e);
    const bk_graph *g = whole_plan(b)->g;
    void *run = bk_exec_value(x, whole_plan(b), g->param[0].value);
    memcpy(run, b->initial, (size_t)p->run_bytes);
    b->r.n_fetched = 0, b->r.loss_sum = b->r.grad_norm = -1;
    memset(b->logits, 0, sizeof b->logits);
    const bool ran = bk_exec_interleave(x, p, &b->host, seed, &e) == BK_OK;
    const bool same = ran && memcmp(run, b->result, (size_t)p->run_bytes) == 0 &&
                      b->r.n_fetched == b->n_fetched && b->r.loss_sum == b->loss_sum &&
                      b->r.grad_norm == b->grad_norm &&
                      memcmp(b->logits, b->whole_logits, sizeof b->logits) == 0;
    bk_exec_close(x);
    return same;
}

/* Takes the initial state as it stands, and runs the undamaged plan. */
static void record(bench *b)
{
    bk_err e = {0};
    const bk_plan *p = whole_plan(b);
    /* The first row of the table is the first value of the run part. */
    assert_int_equal(bk_plan_value_address(p, p->g->param[0].value, BK_NONE), 0);
    b->initial = malloc((size_t)p->run_bytes), b->result = malloc((size_t)p->run_bytes);
    memcpy(b->initial, small_run_state(&b->r), (size_t)p->run_bytes);
    b->r.n_fetched = 0, b->r.loss_sum = b->r.grad_norm = -1; /* as they stay where nothing gives them */
    must(bk_exec_run(b->r.session.exec, p, &b->host, &e), &e);
    memcpy(b->whole_logits, b->logits, sizeof b->logits);
    memcpy(b->result, small_run_state(&b->r), (size_t)p->run_bytes);
    b->loss_sum = b->r.loss_sum, b->grad_norm = b->r.grad_norm, b->n_fetched = b->r.n_fetched;
    assert_true(memcmp(b->initial, b->result, (size_t)p->run_bytes) != 0);
    for (uint64_t seed = 0; seed < SEEDS; seed++) assert_true(same_bits(b, p, seed));
}

static void bench_open(bench *b, const char *more)
{
    *b = (bench){0};
    small_run_graphs(&b->r, more, 2, BK_F32);
    small_run_open(&b->r);
    b->host = b->r.host;
    record(b);
}

static bk_status feed_token(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    bench *b = ctx;
    if (strcmp(v->name, "position") != 0) return b->r.host.feed(&b->r, v, micro, dst, e);
    *(int64_t *)dst = b->position;
    return BK_OK;
}

static bk_status fetch_logits(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    bench *b = ctx;
    (void)micro, (void)e;
    assert_int_equal(bk_value_bytes(v), sizeof b->logits);
    memcpy(b->logits, src, sizeof b->logits);
    b->r.n_fetched++;
    return BK_OK;
}

/* A program that generates, at a position with tokens before it. */
static void bench_open_generating(bench *b, const char *more)
{
    bk_err e = {0};
    bk_generator gen;
    *b = (bench){.host = {b, feed_token, fetch_logits}};
    small_run_graphs(&b->r, more, 2, BK_F32);
    must(bk_generator_add(&gen, &b->r.session, &b->r.c, BK_F32, &e), &e);
    b->program = gen.decode;
    bk_generator_free(&gen);
    small_run_open(&b->r);
    for (; b->position < 3; b->position++, b->r.step++)
        must(bk_exec_run(b->r.session.exec, whole_plan(b), &b->host, &e), &e);
    record(b);
}

static void bench_close(bench *b)
{
    free(b->initial), free(b->result);
    small_run_close(&b->r);
}

/* Judges one damaged plan. */
static void judge(bench *b, const bk_plan *p, const char *what)
{
    bk_err e = {0};
    if (bk_plan_check(p, &e) != BK_OK) {
        assert_int_equal(e.status, BK_E_CHECK);
        b->reported++;
        return;
    }
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        if (!same_bits(b, p, seed))
            fail_msg("%s: not reported, and seed %d gives other bits", what, (int)seed);
    b->harmless++;
}

static void tell(bench *b, const char *damage)
{
    print_message("%-48s %5lld reported, %4lld harmless\n", damage, (long long)b->reported,
                  (long long)b->harmless);
    assert_true(b->reported + b->harmless > 0);
    b->reported = b->harmless = 0;
}

static void remove_each_wait(bench *b)
{
    const bk_plan *whole = whole_plan(b);
    for (int64_t k = 0; k < whole->n_waits; k++) {
        bk_plan p = *whole;
        bk_wait *wait = malloc((size_t)whole->n_waits * sizeof *wait);
        memcpy(wait, whole->wait, (size_t)k * sizeof *wait);
        memcpy(wait + k, whole->wait + k + 1, (size_t)(whole->n_waits - k - 1) * sizeof *wait);
        p.wait = wait, p.n_waits--;
        judge(b, &p, "wait removed");
        free(wait);
    }
    tell(b, "each wait removed");
}

static int by_after(const void *x, const void *y)
{
    const bk_wait *a = x, *b = y;
    return a->after != b->after ? (a->after > b->after) - (a->after < b->after)
                                : (a->before > b->before) - (a->before < b->before);
}

static int by_item(const void *x, const void *y)
{
    const bk_assign *a = x, *b = y;
    if (a->item != b->item) return a->item < b->item ? -1 : 1;
    if (a->op != b->op) return a->op < b->op ? -1 : 1;
    return (a->upd > b->upd) - (a->upd < b->upd);
}

/* Items keep their waits and assigns; only their places in the list change. */
static void swap_each_pair(bench *b)
{
    const bk_plan *whole = whole_plan(b);
    for (int64_t i = 0; i + 1 < whole->s->n_items; i++) {
        bk_plan p = *whole;
        bk_schedule s = *whole->s;
        s.item = malloc((size_t)s.n_items * sizeof *s.item);
        p.wait = malloc((size_t)p.n_waits * sizeof *p.wait + 1);
        p.assign = malloc((size_t)(p.n_assigns + 1) * sizeof *p.assign);
        memcpy(s.item, whole->s->item, (size_t)s.n_items * sizeof *s.item);
        memcpy(p.wait, whole->wait, (size_t)p.n_waits * sizeof *p.wait);
        if (whole->n_assigns > 0) memcpy(p.assign, whole->assign, (size_t)p.n_assigns * sizeof *p.assign);
        const bk_item first = s.item[i];
        s.item[i] = s.item[i + 1], s.item[i + 1] = first;
        const int32_t x = (int32_t)i, y = (int32_t)i + 1;
#define MOVED(n) ((n) == x ? y : (n) == y ? x : (n))
        for (int64_t k = 0; k < p.n_waits; k++)
            p.wait[k] = (bk_wait){MOVED(p.wait[k].before), MOVED(p.wait[k].after)};
        for (int64_t k = 0; k < p.n_assigns; k++) p.assign[k].item = MOVED(p.assign[k].item);
#undef MOVED
        qsort(p.wait, (size_t)p.n_waits, sizeof *p.wait, by_after);
        if (p.n_assigns > 0) qsort(p.assign, (size_t)p.n_assigns, sizeof *p.assign, by_item);
        p.s = &s;
        judge(b, &p, "items swapped");
        free(s.item), free(p.wait), free(p.assign);
    }
    tell(b, "each pair of neighbouring items swapped");
}

typedef struct {
    bk_place *place;
    int64_t index;
} placed;

static int by_offset(const void *x, const void *y)
{
    const bk_place *a = ((const placed *)x)->place, *b = ((const placed *)y)->place;
    if (a->space != b->space) return a->space < b->space ? -1 : 1;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return ((const placed *)x)->index < ((const placed *)y)->index ? -1 : 1;
}

/* Each value and each scratch memory moves to the offset of the one before and of the one after it. */
static void move_each_offset(bench *b)
{
    const bk_plan *whole = whole_plan(b);
    const int64_t nv = whole->n_values, no = whole->n_ops;
    bk_plan p = *whole;
    p.place = malloc((size_t)(nv + no) * sizeof *p.place);
    p.work = p.place + nv;
    memcpy(p.place, whole->place, (size_t)nv * sizeof *p.place);
    memcpy(p.work, whole->work, (size_t)no * sizeof *p.place);
    placed *order = malloc((size_t)(nv + no) * sizeof *order);
    int64_t n = 0;
    for (int64_t k = 0; k < nv + no; k++)
        if (p.place[k].space != BK_SPACE_NONE && p.place[k].bytes > 0) order[n++] = (placed){&p.place[k], k};
    qsort(order, (size_t)n, sizeof *order, by_offset);
    for (int64_t k = 0; k < n; k++)
        for (int64_t j = k - 1; j <= k + 1; j += 2) {
            if (j < 0 || j >= n || order[j].place->space != order[k].place->space) continue;
            const bk_place old = *order[k].place;
            if (old.offset == order[j].place->offset) continue;
            order[k].place->offset = order[j].place->offset;
            judge(b, &p, order[k].index < nv ? whole->g->value[order[k].index].name : "scratch memory moved");
            *order[k].place = old;
        }
    free(order), free(p.place);
    tell(b, "each offset moved onto each neighbour");
}

/* The op leaves its region; whatever it wrote stays what it was. */
static void drop_each_op(bench *b)
{
    const bk_plan *whole = whole_plan(b);
    for (int64_t r = 0; r < whole->g->n_regions; r++)
        for (int32_t k = 0; k < whole->g->region[r].n_ops; k++) {
            bk_graph g = *whole->g;
            bk_plan p = *whole;
            g.region = malloc((size_t)g.n_regions * sizeof *g.region);
            g.region_op = malloc((size_t)g.n_region_ops * sizeof *g.region_op);
            memcpy(g.region, whole->g->region, (size_t)g.n_regions * sizeof *g.region);
            memcpy(g.region_op, whole->g->region_op, (size_t)g.n_region_ops * sizeof *g.region_op);
            bk_oid *at = g.region_op + g.region[r].first + k;
            memmove(at, at + 1, (size_t)(g.region[r].n_ops - k - 1) * sizeof *at);
            g.region[r].n_ops--;
            p.g = &g;
            judge(b, &p, "op dropped");
            free(g.region), free(g.region_op);
        }
    tell(b, "each op dropped");
}

static void judge_assigns(bench *b, bk_assign *assign, int64_t n, const char *what)
{
    bk_plan p = *whole_plan(b);
    if (n > 0) qsort(assign, (size_t)n, sizeof *assign, by_item);
    p.assign = assign, p.n_assigns = n;
    judge(b, &p, what);
}

static void turn_each_update(bench *b)
{
    const bk_plan *whole = whole_plan(b);
    const bk_graph *g = whole->g;
    bk_assign *a = malloc((size_t)(whole->n_assigns + 1) * sizeof *a);
    for (int64_t i = 0; i < whole->s->n_items; i++) {
        const bk_region *r = &g->region[whole->s->item[i].region];
        for (int32_t k = 0; k < r->n_ops; k++) {
            const bk_oid o = g->region_op[r->first + k];
            for (int32_t u = 0; u < g->op[o].n_upd; u++) {
                if (bk_plan_assigns(whole, (int32_t)i, o, u)) continue;
                if (whole->n_assigns > 0) memcpy(a, whole->assign, (size_t)whole->n_assigns * sizeof *a);
                a[whole->n_assigns] = (bk_assign){(int32_t)i, o, u};
                judge_assigns(b, a, whole->n_assigns + 1, "update turned into a write");
            }
        }
    }
    tell(b, "each update turned into a write");
    for (int64_t k = 0; k < whole->n_assigns; k++) {
        memcpy(a, whole->assign, (size_t)whole->n_assigns * sizeof *a);
        a[k] = a[whole->n_assigns - 1];
        judge_assigns(b, a, whole->n_assigns - 1, "write turned into an update");
    }
    if (whole->n_assigns > 0) tell(b, "each first write turned into an update");
    free(a);
}

static void damage_all(bench *b)
{
    remove_each_wait(b);
    swap_each_pair(b);
    move_each_offset(b);
    drop_each_op(b);
    turn_each_update(b);
    bench_close(b);
}

static void test_damage__every_single_damage_is_reported_or_harmless(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, "");
    damage_all(&b);
}

static void test_damage__also_of_a_plain_model_with_biases_tying_and_dropout(void **state)
{
    (void)state;
    bench b;
    bench_open(
        &b, "enable_mhc_connections: false\nadd_bias_linear: true\nnormalization: LayerNorm\nswiglu: false\n"
            "untie_embeddings_and_output_weights: false\nposition_embedding_type: learned_absolute\n"
            "hidden_dropout: 0.1\nattention_dropout: 0.1\n");
    damage_all(&b);
}

static void test_damage__also_of_a_program_that_generates(void **state)
{
    (void)state;
    bench b;
    bench_open_generating(&b, "");
    damage_all(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage__every_single_damage_is_reported_or_harmless),
        cmocka_unit_test(test_damage__also_of_a_plain_model_with_biases_tying_and_dropout),
        cmocka_unit_test(test_damage__also_of_a_program_that_generates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
