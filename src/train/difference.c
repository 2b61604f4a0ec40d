#include "train/difference.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/philox.h"
#include "train/check_host.h"
#include "train/session.h"
#include "train/slope.h"

/* Parameters of at most FEW elements: each element alone; others: DIRECTIONS random directions of length 1.
 *
 * The difference quotient (train/slope.h) errs by at most 1e-9 of the slope in what was tried, and by the
 * rounding of the loss over the step, some 1e-13. `relative` leaves room for models more curved than those.
 * `floor_of_error` is the rounding with room: slopes that are zero but for rounding (of alpha_res where all
 * streams are equal) are judged by it alone. A mistake in a gradient rule costs 1e-3 and more.
 *
 * A gradient is that of the choices as they are: which experts a token uses, which rows an expert keeps, how
 * often an expert counts. A direction in which the shortest step changes one is not compared. Of the
 * directions of a parameter one in MAY_SKIP may be left out; with more its row fails. */
enum { FEW = 8, DIRECTIONS = 4, MAY_SKIP = 4, MAX_MICRO = 2 };
static const double relative = 1e-7, floor_of_error = 5e-12;

struct bk_difference {
    const bk_config *c;
    bk_layout l;
    bk_session s;
    bk_check_host h;
    bk_arena arena;
    double loss[MAX_MICRO];
    int64_t n_loss_taps, n_all_taps; /* of h; gradients come last */
    double *choice, *chosen; /* of the last run, and of the one that gave the gradients; all micro-batches */
    int64_t n_choices;
    double **grad; /* of each parameter */
    bk_err *e;     /* of the call that is running */
};

static double *doubles(bk_difference *b, int64_t n)
{
    double *x = bk_arena_alloc(&b->arena, n, sizeof *x);
    if (!x) bk_err_set(b->e, BK_E_MEM, "check: out of memory");
    return x;
}

/* Uniform in (-1, 1), keyed by what it is for. */
static void draw(double *x, int64_t n, const bk_difference *b, const char *what, uint32_t number)
{
    const bk_rng_key key = bk_rng_key_make((uint64_t)b->c->seed, BK_RNG_CHECK, number, bk_hash_str(what));
    for (int64_t k = 0; k < n; k++) {
        uint32_t word[4];
        bk_rng_block(word, key, 0, 0, (uint32_t)(k / 4));
        x[k] = 2 * bk_rng_unit(word[k % 4]) - 1;
    }
}

/* ---- the model and its inputs ---- */

static bk_status open_model(bk_difference *b)
{
    static const char *const probe[] = {BK_PROBE_OBJECTIVE, BK_PROBE_CHOICES};
    const bk_program_options o = {
        .mode = BK_MODEL_TRAIN, .real = BK_F64, .fetch_grads = true, .probe = probe, .n_probes = 2};
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    bk_program prog = {0};
    bk_status st;
    BK_TRY(bk_layout_resolve(&b->l, b->c, 1, b->e));
    if (b->l.n_micro > MAX_MICRO) {
        st = bk_err_set(b->e, BK_E_INPUT, "check: more than %d micro-batches; shrink the configuration first",
                        MAX_MICRO);
        goto done;
    }
    BK_TRY(bk_program_graph(&prog, b->c, &b->l, &o, b->e));
    bk_session_add(&b->s, &prog, b->l.n_micro);
    BK_TRY(bk_session_plan(&b->s, &target, b->e));
    BK_TRY(bk_session_open(&b->s, b->c->memory_limit, b->e));
done:
    bk_program_free(&prog);
    return st;
}

static int64_t n_tokens(const bk_difference *b)
{
    return b->l.n_micro * b->l.micro_batch * b->l.seq;
}

/* Random tokens; one in four has no loss; samples are numbered from 0 on. */
static bk_status feed_inputs(bk_difference *b)
{
    const int64_t n = n_tokens(b), n_samples = b->l.n_micro * b->l.micro_batch;
    double *tokens = doubles(b, n), *labels = doubles(b, n), *mask = doubles(b, n);
    double *samples = doubles(b, n_samples), *seed = doubles(b, 1);
    if (!tokens || !labels || !mask || !samples || !seed) return BK_E_MEM;
    draw(tokens, n, b, "tokens", 0);
    draw(labels, n, b, "labels", 0);
    for (int64_t k = 0; k < n; k++) {
        tokens[k] = floor((tokens[k] + 1) / 2 * (double)b->c->vocab_size);
        labels[k] = floor((labels[k] + 1) / 2 * (double)b->c->vocab_size);
        mask[k] = k % 4 == 3 ? 0 : 1;
    }
    for (int64_t k = 0; k < n_samples; k++) samples[k] = (double)k;
    *seed = 1 / (double)b->l.n_micro; /* the scalar is the mean over the micro-batches */
    bk_check_host_feed(&b->h, "tokens", tokens);
    bk_check_host_feed(&b->h, "labels", labels);
    bk_check_host_feed(&b->h, "loss_mask", mask);
    bk_check_host_feed(&b->h, "samples", samples);
    bk_check_host_feed(&b->h, "loss_seed", seed);
    return BK_OK;
}

static double *param(const bk_difference *b, bk_pid p)
{
    const bk_program *prog = &b->s.program[0];
    return bk_exec_value(b->s.exec, prog->p, prog->g->param[p].value);
}

/* Not the initial values of training: gates of 0.01, zero biases and small matrices would hide mistakes
 * behind tiny factors. Here gates and norms are in (0.5, 1.5), biases in (-0.5, 0.5), and rows of matrices
 * have a length near 1. A bias of experts is in (-0.25, 0.25). */
static void set_params(const bk_difference *b)
{
    const bk_graph *g = b->s.program[0].g;
    for (bk_pid p = 0; p < g->n_params; p++) {
        const bk_param *row = &g->param[p];
        const int64_t n = bk_elements(&g->value[row->value]);
        double *x = param(b, p);
        draw(x, n, b, row->name, 0);
        const bool matrix = row->init == BK_INIT_NORMAL || row->init == BK_INIT_XAVIER;
        const double centre = row->init == BK_INIT_ONE || row->init == BK_INIT_CONST ? 1 : 0;
        const double scale = matrix ? sqrt(3 / (double)row->shape[row->rank - 1]) : 0.5;
        for (int64_t k = 0; k < n; k++) x[k] = centre + scale * x[k];
    }
    for (bk_vid v = 0; v < g->n_values; v++) {
        if (g->value[v].kind != BK_STATE || g->value[v].scope != BK_RUN) continue;
        double *x = bk_exec_value(b->s.exec, b->s.program[0].p, v);
        const int64_t n = bk_elements(&g->value[v]);
        draw(x, n, b, g->value[v].name, 0);
        for (int64_t k = 0; k < n; k++) x[k] /= 4;
    }
}

static bk_status evaluate(double *out, bk_difference *b)
{
    const bk_host host = bk_check_host_of(&b->h);
    const bk_status st = bk_exec_run(b->s.exec, b->s.program[0].p, &host, b->e);
    *out = 0;
    for (int64_t m = 0; m < b->l.n_micro; m++) *out += b->loss[m] / (double)b->l.n_micro;
    return st;
}

/* The probes behind the first are choices. */
static bk_status tap_choices(bk_difference *b)
{
    const bk_graph *g = b->s.program[0].g;
    bk_vid v;
    for (int k = 1; (v = bk_check_probe(g, k)) != BK_NONE; k++)
        b->n_choices += b->l.n_micro * bk_elements(&g->value[v]);
    b->choice = doubles(b, b->n_choices), b->chosen = doubles(b, b->n_choices);
    if (!b->choice || !b->chosen) return BK_E_MEM;
    double *at = b->choice;
    bk_status st = BK_OK;
    for (int k = 1; (v = bk_check_probe(g, k)) != BK_NONE && st == BK_OK; k++) {
        st = bk_check_host_tap(&b->h, v, at, b->e);
        at += b->l.n_micro * bk_elements(&g->value[v]);
    }
    return st;
}

static bk_status prepare_taps(bk_difference *b)
{
    const bk_graph *g = b->s.program[0].g;
    bk_status st;
    b->h.g = g;
    b->grad = bk_arena_alloc(&b->arena, g->n_params, sizeof *b->grad);
    if (!b->grad) return bk_err_set(b->e, BK_E_MEM, "check: out of memory");
    BK_TRY(bk_check_host_tap(&b->h, bk_check_probe(g, 0), b->loss, b->e));
    BK_TRY(tap_choices(b));
    b->n_loss_taps = b->h.n_taps;
    for (bk_pid p = 0; p < g->n_params; p++) {
        if (!(b->grad[p] = doubles(b, bk_elements(&g->value[g->param[p].value])))) return BK_E_MEM;
        if (g->param[p].grad != BK_NONE) BK_TRY(bk_check_host_tap(&b->h, g->param[p].grad, b->grad[p], b->e));
    }
    b->n_all_taps = b->h.n_taps;
done:
    return st;
}

/* Every gradient, at the parameters as they are. Other runs keep the loss and the choices alone. */
static bk_status run_gradients(bk_check_report *unused, bk_difference *b)
{
    (void)unused;
    double loss;
    b->h.n_taps = b->n_all_taps;
    const bk_status st = evaluate(&loss, b);
    b->h.n_taps = b->n_loss_taps;
    if (b->n_choices > 0) memcpy(b->chosen, b->choice, (size_t)b->n_choices * sizeof *b->chosen);
    return st;
}

/* ---- differences ---- */

/* A parameter that leaves its place along a direction. */
typedef struct {
    bk_difference *b;
    double *x, *base, *direction;
    int64_t n;
} probe_line;

static bk_status loss_at(double *loss, bool *jumped, void *ctx, double distance, bk_err *e)
{
    (void)e; /* the one of the call that is running */
    const probe_line *l = ctx;
    bk_difference *b = l->b;
    for (int64_t i = 0; i < l->n; i++) l->x[i] = l->base[i] + distance * l->direction[i];
    const bk_status st = evaluate(loss, b);
    *jumped = b->n_choices > 0 && memcmp(b->choice, b->chosen, (size_t)b->n_choices * sizeof *b->choice) != 0;
    memcpy(l->x, l->base, (size_t)l->n * sizeof *l->x);
    return st;
}

static void pick_direction(double *d, int64_t n, const bk_difference *b, const char *name, int number)
{
    if (n <= FEW) {
        for (int64_t k = 0; k < n; k++) d[k] = k == number ? 1 : 0;
        return;
    }
    double sum = 0;
    draw(d, n, b, name, (uint32_t)number + 1);
    for (int64_t k = 0; k < n; k++) sum += d[k] * d[k];
    for (int64_t k = 0; k < n; k++) d[k] /= sqrt(sum);
}

/* What the directions of one parameter gave. */
typedef struct {
    double diff2, size2;
    double shortened; /* of the shortest step */
    int n, n_skipped;
} tally;

static void add_direction(tally *t, const bk_slope *s, const double *grad, const probe_line *l)
{
    double analytic = 0;
    t->n++, t->n_skipped += s->shortened == 0;
    if (s->shortened == 0) return;
    for (int64_t i = 0; i < l->n; i++) analytic += grad[i] * l->direction[i];
    t->diff2 += (s->value - analytic) * (s->value - analytic), t->size2 += s->value * s->value;
    t->shortened = fmax(t->shortened, s->shortened);
}

static bk_status add_row(bk_check_report *out, const char *name, const tally *t, bk_err *e)
{
    char skipped[160];
    const double diff = t->diff2 > 0 || isnan(t->diff2) ? sqrt(t->diff2 / t->size2) : 0;
    bk_check_row row = {.name = name,
                        .error = t->n_skipped == t->n ? (double)NAN : diff,
                        .tolerance = relative + t->shortened * floor_of_error / sqrt(t->size2)};
    row.ok = row.error <= row.tolerance && MAY_SKIP * t->n_skipped <= t->n;
    if (row.ok && row.error > relative) row.note = "zero but for rounding";
    if (t->n_skipped > 0) {
        snprintf(skipped, sizeof skipped,
                 "%d of %d directions not compared: the least step changes a choice of experts%s",
                 t->n_skipped, t->n, row.ok ? "" : "; another --seed draws other parameters");
        row.note = skipped;
    }
    return bk_check_report_add(out, &row, e);
}

static bk_status compare_param(bk_check_report *out, bk_difference *b, bk_pid p)
{
    const bk_graph *g = b->s.program[0].g;
    const char *name = g->param[p].name;
    const int64_t n = bk_elements(&g->value[g->param[p].value]);
    const int n_directions = n <= FEW ? (int)n : DIRECTIONS;
    probe_line l = {.b = b, .x = param(b, p), .n = n};
    const bk_line line = {&l, loss_at};
    tally t = {0};
    l.base = malloc((size_t)n * sizeof *l.base), l.direction = malloc((size_t)n * sizeof *l.direction);
    bk_status st = l.base && l.direction ? BK_OK : bk_err_set(b->e, BK_E_MEM, "check: out of memory");
    if (st == BK_OK) memcpy(l.base, l.x, (size_t)n * sizeof *l.base);
    for (int k = 0; k < n_directions && st == BK_OK; k++) {
        bk_slope s;
        pick_direction(l.direction, n, b, name, k);
        st = bk_slope_along(&s, &line, b->e);
        if (st == BK_OK) add_direction(&t, &s, b->grad[p], &l);
    }
    free(l.base), free(l.direction);
    return st == BK_OK ? add_row(out, name, &t, b->e) : st;
}

/* The model is so small that a team of threads would only wait for itself. */
static bk_status on_one_thread(bk_status (*work)(bk_check_report *, bk_difference *), bk_check_report *out,
                               bk_difference *b)
{
    const int n_threads = omp_get_max_threads();
    omp_set_num_threads(1); /* for teams that this thread opens */
    const bk_status st = work(out, b);
    omp_set_num_threads(n_threads);
    return st;
}

static bk_status prepare(bk_check_report *unused, bk_difference *b)
{
    (void)unused;
    bk_status st;
    BK_TRY(open_model(b));
    BK_TRY(feed_inputs(b));
    set_params(b);
    BK_TRY(prepare_taps(b));
    BK_TRY(run_gradients(NULL, b));
done:
    return st;
}

static bk_status compare_params(bk_check_report *out, bk_difference *b)
{
    bk_status st = BK_OK;
    for (bk_pid p = 0; p < b->s.program[0].g->n_params && st == BK_OK; p++) st = compare_param(out, b, p);
    return st;
}

bk_status bk_difference_open(bk_difference **out, const bk_config *c, bk_err *e)
{
    bk_difference *b = calloc(1, sizeof *b);
    if (!b) return bk_err_set(e, BK_E_MEM, "check: out of memory");
    b->c = c, b->e = e;
    const bk_status st = on_one_thread(prepare, NULL, b);
    if (st == BK_OK)
        *out = b;
    else
        bk_difference_close(b);
    return st;
}

static bk_pid find_param(const bk_difference *d, const char *name)
{
    const bk_graph *g = d->s.program[0].g;
    bk_pid p = 0;
    while (p < g->n_params && strcmp(g->param[p].name, name) != 0) p++;
    return p < g->n_params ? p : BK_NONE;
}

double *bk_difference_gradient(int64_t *n, bk_difference *d, const char *name)
{
    const bk_graph *g = d->s.program[0].g;
    const bk_pid p = find_param(d, name);
    if (p == BK_NONE) return NULL;
    *n = bk_elements(&g->value[g->param[p].value]);
    return d->grad[p];
}

double *bk_difference_param(int64_t *n, bk_difference *d, const char *name)
{
    const bk_pid p = find_param(d, name);
    if (p == BK_NONE) return NULL;
    *n = bk_elements(&d->s.program[0].g->value[d->s.program[0].g->param[p].value]);
    return param(d, p);
}

bk_status bk_difference_run(bk_difference *d, bk_err *e)
{
    d->e = e;
    return on_one_thread(run_gradients, NULL, d);
}

bk_status bk_difference_compare(bk_check_report *out, bk_difference *d, bk_err *e)
{
    d->e = e;
    return on_one_thread(compare_params, out, d);
}

void bk_difference_close(bk_difference *d)
{
    if (!d) return;
    bk_session_close(&d->s);
    bk_check_host_free(&d->h);
    bk_arena_free(&d->arena);
    free(d);
}
