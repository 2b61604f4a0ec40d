#include "train/against.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ir/element.h"
#include "train/against_file.h"
#include "train/against_rope.h"
#include "train/check_host.h"
#include "train/session.h"

enum { N_STEPS = 10, NAME_LEN = 256 };

/* Programs of the session. */
enum { GRADIENTS, TRAINING };

typedef struct {
    const bk_st *file;
    const bk_config *c;
    bk_layout l;
    bk_dtype real;
    bk_outcome *out;
    bk_session s;
    bool has_rope; /* the file has the tables that this model turns by */
    bk_err *e;
} run;

/* The recipe of train.*; a file's own options and flags come after it. */
static const char *const recipe[][2] = {
    {"make_vocab_size_divisible_by", "1"},
    {"lr", "1e-3"},
    {"lr_decay_style", "constant"},
    {"adam_beta1", "0.9"},
    {"adam_beta2", "0.95"},
    {"adam_eps", "1e-8"},
    {"weight_decay", "0.1"},
    {"clip_grad", "1.0"},
};

bk_status bk_against_config(bk_config *c, const bk_st *file, const char *name, bk_err *e)
{
    bk_status st = BK_OK;
    char where[NAME_LEN];
    const char *text = bk_st_meta(file, "config");
    if (!text)
        return bk_err_set(e, BK_E_INPUT,
                          "%.200s: the metadata has no \"config\", the options of the model as JSON; add it",
                          name);
    for (size_t k = 0; k < sizeof recipe / sizeof *recipe && st == BK_OK; k++)
        st = bk_config_set(c, recipe[k][0], recipe[k][1], "recipe of reference files", e);
    snprintf(where, sizeof where, "%.200s, config", name);
    return st == BK_OK ? bk_config_read_yaml_memory(c, text, strlen(text), where, e) : st;
}

/* The layer inside a depth of MTP is called transformer_layer in checkpoints, and mtp_model_layer in a
 * running model of Megatron. */
static void spell_as_at_run_time(char name[NAME_LEN])
{
    static const char stored[] = ".transformer_layer.", running[] = ".mtp_model_layer.";
    char rest[NAME_LEN], *at = strstr(name, stored);
    if (!at) return;
    snprintf(rest, sizeof rest, "%s", at + sizeof stored - 1);
    snprintf(at, (size_t)(NAME_LEN - (at - name)), "%s%s", running, rest);
}

/* "param.", "grad." or the like with the parameter's name, or with another spelling where the file has that
 * one. */
static const char *spell(char buf[NAME_LEN], const bk_st *file, const char *prefix, const bk_param *row)
{
    for (int k = 3; k >= 0; k--) { /* the name itself comes last and stays */
        if (k % 2 && !row->alias) continue;
        snprintf(buf, NAME_LEN, "%s%s", prefix, k % 2 ? row->alias : row->name);
        if (k / 2) spell_as_at_run_time(buf);
        if (bk_st_find(file, buf)) break;
    }
    return buf;
}

/* "buffer.X.local_tokens_per_expert" for the metric "X.tokens_per_expert"; false for others. */
static bool name_of_counts(char buf[NAME_LEN], const char *value)
{
    static const char ours[] = "." BK_METRIC_TOKENS, theirs[] = ".local_tokens_per_expert";
    bk_metric_kind ignored;
    const char *name = bk_metric_of(&ignored, value), *end = name ? strstr(name, ours) : NULL;
    if (!end || end[strlen(ours)]) return false;
    snprintf(buf, NAME_LEN, "buffer.%.*s%s", (int)(end - name), name, theirs);
    spell_as_at_run_time(buf);
    return true;
}

static bool has_training(const bk_st *file)
{
    for (int64_t k = 0; k < bk_st_count(file); k++)
        if (strncmp(bk_st_at(file, k)->name, "train.", 6) == 0) return true;
    return false;
}

/* ---- the program that stops at the gradients ---- */

static bk_status add_gradients_program(run *r)
{
    const int64_t n = r->c->num_layers;
    bk_program prog = {0};
    const char **probe = bk_arena_alloc(&r->out->arena, n + 2 + BK_AGAINST_ROPE_PROBES, sizeof *probe);
    int n_probes = (int)n + 2;
    if (!probe) return bk_err_set(r->e, BK_E_MEM, "check: out of memory");
    probe[0] = "out.loss", probe[1] = "out.token_loss";
    for (int64_t i = 0; i < n; i++)
        if (!(probe[i + 2] = bk_arena_printf(&r->out->arena, "act.layer%" PRId64, i)))
            return bk_err_set(r->e, BK_E_MEM, "check: out of memory");
    for (int k = 0; k < BK_AGAINST_ROPE_PROBES && r->has_rope; k++)
        probe[n_probes++] = bk_against_rope_probes[k];
    const bk_program_options o = {
        .mode = BK_MODEL_TRAIN, .real = r->real, .fetch_grads = true, .probe = probe, .n_probes = n_probes};
    const bk_status st = bk_program_graph(&prog, r->c, &r->l, &o, r->e);
    if (st == BK_OK) bk_session_add(&r->s, &prog, 1);
    return st;
}

static bk_status tap_results(run *r, bk_check_host *h)
{
    char name[NAME_LEN];
    bk_status st;
    BK_TRY(bk_check_host_keep(h, r->out, bk_check_probe(h->g, 0), BK_OUTCOME_LOSS, "out.loss", r->e));
    BK_TRY(bk_check_host_keep(h, r->out, bk_check_probe(h->g, 1), BK_OUTCOME_LOSS, "out.token_loss", r->e));
    for (int64_t i = 0; i < r->c->num_layers; i++) {
        snprintf(name, sizeof name, "act.layer%" PRId64, i);
        BK_TRY(bk_check_host_keep(h, r->out, bk_check_probe(h->g, (int)i + 2), BK_OUTCOME_ACTIVATION, name,
                                  r->e));
    }
    for (bk_pid p = 0; p < h->g->n_params; p++)
        BK_TRY(bk_check_host_keep(h, r->out, h->g->param[p].grad, BK_OUTCOME_GRADIENT,
                                  spell(name, r->file, "grad.", &h->g->param[p]), r->e));
    for (int64_t o = 0; o < h->g->n_ops; o++) {
        if (h->g->op[o].kind != BK_OP_fetch) continue;
        const bk_vid v = bk_ins(h->g, &h->g->op[o])[0];
        if (name_of_counts(name, h->g->value[v].name) && bk_st_find(r->file, name))
            BK_TRY(bk_check_host_keep(h, r->out, v, BK_OUTCOME_COUNT, name, r->e));
    }
done:
    return st;
}

/* What every program of a model reads; `tokens` and so on are added by the caller. Samples, where something
 * is dropped out, are numbered from 0. */
static bk_status feed_constants(run *r, bk_check_host *h)
{
    double *seed = bk_arena_alloc(&r->out->arena, 1, sizeof *seed);
    double *samples = bk_arena_alloc(&r->out->arena, r->l.micro_batch, sizeof *samples);
    if (!seed || !samples) return bk_err_set(r->e, BK_E_MEM, "check: out of memory");
    *seed = 1;
    for (int64_t b = 0; b < r->l.micro_batch; b++) samples[b] = (double)b;
    bk_check_host_feed(h, "loss_seed", seed);
    bk_check_host_feed(h, "samples", samples);
    return BK_OK;
}

static bk_status run_gradients(run *r)
{
    const bk_program *prog = &r->s.program[GRADIENTS];
    const int64_t shape[] = {r->l.micro_batch, r->l.seq};
    static const char *const names[] = {"in.tokens", "in.labels", "in.loss_mask"};
    bk_check_host h = {.g = prog->g};
    const bk_host host = bk_check_host_of(&h);
    bk_against_rope rope = {0};
    bk_status st;
    BK_TRY(tap_results(r, &h));
    if (r->has_rope) BK_TRY(bk_against_rope_tap(&rope, &h, r->out, r->e));
    for (int k = 0; k < 3; k++) {
        double *data;
        BK_TRY(bk_against_read(&data, r->out, r->file, names[k], 2, shape, r->e));
        bk_check_host_feed(&h, names[k] + strlen("in."), data);
    }
    BK_TRY(feed_constants(r, &h));
    BK_TRY(bk_exec_run(r->s.exec, prog->p, &host, r->e));
    if (r->has_rope) BK_TRY(bk_against_rope_keep(r->out, &rope, r->file, r->e));
done:
    bk_check_host_free(&h);
    return st;
}

/* ---- the program that trains ---- */

static bk_status add_training_program(run *r)
{
    bk_program prog = {0};
    const bk_program_options o = {.mode = BK_MODEL_TRAIN, .real = r->real, .optimizer = true};
    const bk_status st = bk_program_graph(&prog, r->c, &r->l, &o, r->e);
    if (st == BK_OK) bk_session_add(&r->s, &prog, 1);
    return st;
}

typedef struct {
    double *tokens, *labels, *mask; /* [batch, seq] */
    double lr, step;
    double loss_sum, n_tokens, grad_norm;
} train_io;

static bk_status connect_training(run *r, bk_check_host *h, train_io *io)
{
    const int64_t n = r->l.micro_batch * r->l.seq;
    const bk_graph *g = h->g;
    bk_status st;
    double *all = bk_arena_alloc(&r->out->arena, 3 * n, sizeof *all);
    if (!all) return bk_err_set(r->e, BK_E_MEM, "check: out of memory");
    io->tokens = all, io->labels = all + n, io->mask = all + 2 * n;
    for (int64_t k = 0; k < n; k++) io->mask[k] = 1;
    bk_check_host_feed(h, "tokens", io->tokens);
    bk_check_host_feed(h, "labels", io->labels);
    bk_check_host_feed(h, "loss_mask", io->mask);
    bk_check_host_feed(h, "learning_rate", &io->lr);
    bk_check_host_feed(h, "step", &io->step);
    BK_TRY(feed_constants(r, h));
    for (int64_t o = 0; o < g->n_ops; o++) {
        if (g->op[o].kind != BK_OP_fetch) continue;
        const bk_vid v = bk_ins(g, &g->op[o])[0];
        bk_metric_kind ignored;
        const char *name = bk_metric_of(&ignored, g->value[v].name);
        if (!name) name = g->value[v].name;
        if (strcmp(name, "loss_sum") == 0) BK_TRY(bk_check_host_tap(h, v, &io->loss_sum, r->e));
        if (strcmp(name, "n_tokens") == 0) BK_TRY(bk_check_host_tap(h, v, &io->n_tokens, r->e));
        if (strcmp(name, "grad_norm") == 0) BK_TRY(bk_check_host_tap(h, v, &io->grad_norm, r->e));
    }
done:
    return st;
}

/* Tokens of a step, [batch, seq + 1] in the file: inputs, and the same one further on. */
static bk_status read_step(run *r, train_io *io, int k)
{
    const int64_t B = r->l.micro_batch, S = r->l.seq;
    char name[NAME_LEN];
    double *all;
    snprintf(name, sizeof name, "train.tokens%d", k);
    const bk_status st = bk_against_read(&all, r->out, r->file, name, 2, (const int64_t[]){B, S + 1}, r->e);
    if (st != BK_OK) return st;
    for (int64_t b = 0; b < B; b++)
        for (int64_t s = 0; s < S; s++) {
            io->tokens[b * S + s] = all[b * (S + 1) + s];
            io->labels[b * S + s] = all[b * (S + 1) + s + 1];
        }
    return BK_OK;
}

static bk_status keep_final_params(run *r)
{
    const bk_program *prog = &r->s.program[TRAINING];
    for (bk_pid p = 0; p < prog->g->n_params; p++) {
        const bk_param *row = &prog->g->param[p];
        char name[NAME_LEN];
        bk_outcome_row *final;
        const bk_status st = bk_outcome_add(&final, r->out, BK_OUTCOME_TRAIN_PARAM, row->rank, row->shape,
                                            r->e, "%s", spell(name, r->file, "train.final.", row));
        if (st != BK_OK) return st;
        bk_elements_load(final->data, prog->g->value[row->value].dtype,
                         bk_exec_value(r->s.exec, prog->p, row->value), final->n);
    }
    return BK_OK;
}

static bk_status run_training(run *r)
{
    const bk_program *prog = &r->s.program[TRAINING];
    const int64_t steps[] = {N_STEPS};
    train_io io = {.lr = r->c->lr};
    bk_check_host h = {.g = prog->g};
    const bk_host host = bk_check_host_of(&h);
    bk_outcome_row *loss, *norm;
    bk_status st;
    BK_TRY(connect_training(r, &h, &io));
    BK_TRY(bk_outcome_add(&loss, r->out, BK_OUTCOME_TRAIN_METRIC, 1, steps, r->e, "train.loss"));
    BK_TRY(bk_outcome_add(&norm, r->out, BK_OUTCOME_TRAIN_METRIC, 1, steps, r->e, "train.grad_norm"));
    for (int k = 0; k < N_STEPS; k++) {
        BK_TRY(read_step(r, &io, k));
        io.step = k + 1;
        BK_TRY(bk_exec_run(r->s.exec, prog->p, &host, r->e));
        loss->data[k] = io.loss_sum / io.n_tokens, norm->data[k] = io.grad_norm;
    }
    BK_TRY(keep_final_params(r));
done:
    bk_check_host_free(&h);
    return st;
}

/* ---- both ---- */

/* States of the model, where the file has them; they begin at 0. */
static bk_status load_states(run *r)
{
    const bk_program *prog = &r->s.program[GRADIENTS];
    for (bk_vid v = 0; v < prog->g->n_values; v++) {
        const bk_value *x = &prog->g->value[v];
        char name[NAME_LEN];
        double *data;
        if (x->kind != BK_STATE || x->scope != BK_RUN || x->param != BK_NONE) continue;
        snprintf(name, sizeof name, "buffer.%s", x->name);
        spell_as_at_run_time(name);
        if (!bk_st_find(r->file, name)) continue;
        const int64_t shape[] = {x->dim[0].size};
        const bk_status st = bk_against_read(&data, r->out, r->file, name, 1, shape, r->e);
        if (st != BK_OK) return st;
        bk_elements_store(bk_exec_value(r->s.exec, prog->p, v), x->dtype, data, shape[0]);
    }
    return BK_OK;
}

static bk_status load_params(run *r)
{
    const bk_program *prog = &r->s.program[GRADIENTS];
    bk_status st = BK_OK;
    for (bk_pid p = 0; p < prog->g->n_params && st == BK_OK; p++) {
        char name[NAME_LEN];
        st = bk_against_load(r->s.exec, prog->p, p, r->out, r->file,
                             spell(name, r->file, "param.", &prog->g->param[p]), r->e);
    }
    if (st == BK_OK) st = load_states(r);
    return st == BK_OK ? bk_against_no_other_params(r->out, r->file, r->e) : st;
}

bk_status bk_against_model(bk_outcome *out, const bk_st *file, const bk_config *c, bk_dtype real, bk_err *e)
{
    run r = {
        .file = file, .c = c, .real = real, .out = out, .has_rope = bk_against_has_rope(file, c), .e = e};
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    const bool trains = has_training(file);
    bk_status st;
    BK_TRY(bk_layout_resolve(&r.l, c, 1, e));
    BK_TRY(add_gradients_program(&r));
    if (trains) BK_TRY(add_training_program(&r));
    BK_TRY(bk_session_plan(&r.s, &target, e));
    BK_TRY(bk_session_open(&r.s, c->memory_limit, e));
    BK_TRY(load_params(&r));
    BK_TRY(run_gradients(&r));
    if (trains) BK_TRY(run_training(&r));
done:
    bk_session_close(&r.s);
    return st;
}
