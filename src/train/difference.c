#include "train/difference.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/philox.h"
#include "train/check_host.h"
#include "train/session.h"

/* Parameters of at most FEW elements: each element alone; others: DIRECTIONS random directions of length 1.
 *
 * The difference quotient of five points, (f(x-2h) - 8 f(x-h) + 8 f(x+h) - f(x+2h)) / 12h, errs by h^4/30
 * times the fifth derivative, at most 1e-9 of the slope in what was tried, and by the rounding of the loss
 * over h, some 1e-13. `relative` leaves room for models more curved than those. `floor_of_error` is the
 * rounding with room: slopes that are zero but for rounding (of alpha_res where all streams are equal) are
 * judged by it alone. A mistake in a gradient rule costs 1e-3 and more. */
enum { FEW = 8, DIRECTIONS = 4, MAX_MICRO = 2 };
static const double step_length = 0x1p-10, relative = 1e-7, floor_of_error = 5e-12;

struct bk_difference {
    const bk_config *c;
    bk_layout l;
    bk_session s;
    bk_check_host h;
    bk_arena arena;
    double loss[MAX_MICRO];
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
    static const char *const probe[] = {BK_PROBE_OBJECTIVE};
    const bk_program_options o = {
        .mode = BK_MODEL_TRAIN, .real = BK_F64, .fetch_grads = true, .probe = probe, .n_probes = 1};
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
 * have a length near 1. */
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
}

static bk_status evaluate(double *out, bk_difference *b)
{
    const bk_host host = bk_check_host_of(&b->h);
    const bk_status st = bk_exec_run(b->s.exec, b->s.program[0].p, &host, b->e);
    *out = 0;
    for (int64_t m = 0; m < b->l.n_micro; m++) *out += b->loss[m] / (double)b->l.n_micro;
    return st;
}

/* Every gradient, at the parameters as they are. Afterwards runs keep the loss alone. */
static bk_status run_gradients(bk_difference *b)
{
    const bk_graph *g = b->s.program[0].g;
    double loss;
    bk_status st;
    b->h.g = g;
    b->grad = bk_arena_alloc(&b->arena, g->n_params, sizeof *b->grad);
    if (!b->grad) return bk_err_set(b->e, BK_E_MEM, "check: out of memory");
    BK_TRY(bk_check_host_tap(&b->h, bk_check_probe(g, 0), b->loss, b->e));
    for (bk_pid p = 0; p < g->n_params; p++) {
        if (!(b->grad[p] = doubles(b, bk_elements(&g->value[g->param[p].value])))) return BK_E_MEM;
        if (g->param[p].grad != BK_NONE) BK_TRY(bk_check_host_tap(&b->h, g->param[p].grad, b->grad[p], b->e));
    }
    BK_TRY(evaluate(&loss, b));
    b->h.n_taps = 1;
done:
    return st;
}

/* ---- differences ---- */

/* The slope of the loss along `direction` from `base`, to which the parameter is put back. */
static bk_status slope(double *out, bk_difference *b, double *x, const double *base, const double *direction,
                       int64_t n)
{
    static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1, -8, 8, -1};
    bk_status st = BK_OK;
    *out = 0;
    for (int k = 0; k < 4 && st == BK_OK; k++) {
        double loss;
        for (int64_t i = 0; i < n; i++) x[i] = base[i] + at[k] * step_length * direction[i];
        st = evaluate(&loss, b);
        *out += weight[k] * loss / (12 * step_length);
    }
    memcpy(x, base, (size_t)n * sizeof *x);
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

static bk_status compare_param(bk_check_report *out, bk_difference *b, bk_pid p)
{
    const bk_graph *g = b->s.program[0].g;
    const char *name = g->param[p].name;
    const int64_t n = bk_elements(&g->value[g->param[p].value]);
    const int n_directions = n <= FEW ? (int)n : DIRECTIONS;
    double *base = malloc((size_t)n * sizeof *base), *direction = malloc((size_t)n * sizeof *direction);
    double diff2 = 0, size2 = 0;
    bk_status st = base && direction ? BK_OK : bk_err_set(b->e, BK_E_MEM, "check: out of memory");
    if (st == BK_OK) memcpy(base, param(b, p), (size_t)n * sizeof *base);
    for (int k = 0; k < n_directions && st == BK_OK; k++) {
        double numeric, analytic = 0;
        pick_direction(direction, n, b, name, k);
        for (int64_t i = 0; i < n; i++) analytic += b->grad[p][i] * direction[i];
        st = slope(&numeric, b, param(b, p), base, direction, n);
        diff2 += (numeric - analytic) * (numeric - analytic), size2 += numeric * numeric;
    }
    free(base), free(direction);
    if (st != BK_OK) return st;
    bk_check_row row = {.name = name,
                        .error = diff2 > 0 || isnan(diff2) ? sqrt(diff2 / size2) : 0,
                        .tolerance = relative + floor_of_error / sqrt(size2)};
    row.ok = row.error <= row.tolerance;
    if (row.ok && row.error > relative) row.note = "zero but for rounding";
    return bk_check_report_add(out, &row, b->e);
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
    BK_TRY(run_gradients(b));
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

double *bk_difference_gradient(int64_t *n, bk_difference *d, const char *name)
{
    const bk_graph *g = d->s.program[0].g;
    for (bk_pid p = 0; p < g->n_params; p++) {
        if (strcmp(g->param[p].name, name) != 0) continue;
        *n = bk_elements(&g->value[g->param[p].value]);
        return d->grad[p];
    }
    return NULL;
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
