/* One hyper-connection and one contraction head, through the same passes, plan and executor as a model. */
#include <string.h>

#include <cjson/cJSON.h>

#include "model/hc_probe.h"
#include "train/against.h"
#include "train/against_file.h"
#include "train/check_host.h"
#include "train/session.h"

/* The files say nothing about the epsilon of their head; they were made with this one. */
static const double head_eps = 1e-6;

/* n, C, T of the largest file that is taken; more is a damaged one. */
enum { MAX_SIZE = 4096 };

typedef struct {
    const bk_st *file;
    bk_outcome *out;
    bk_hc_probe_sizes size;
    bk_hc_probe h;
    bk_session s;
    bk_err *e;
} run;

static bool read_size(int64_t *out, const cJSON *config, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1 && item->valuedouble <= MAX_SIZE)) return false;
    *out = (int64_t)item->valuedouble;
    return (double)*out >= item->valuedouble;
}

bool bk_against_is_op(const bk_st *file)
{
    const char *text = bk_st_meta(file, "config");
    cJSON *config = text ? cJSON_Parse(text) : NULL;
    const bool is_op = cJSON_HasObjectItem(config, "n") && cJSON_HasObjectItem(config, "C") &&
                       cJSON_HasObjectItem(config, "T");
    cJSON_Delete(config);
    return is_op;
}

static bk_status read_sizes(run *r)
{
    cJSON *config = cJSON_Parse(bk_st_meta(r->file, "config"));
    const bool ok = read_size(&r->size.n_tokens, config, "T") && read_size(&r->size.n_streams, config, "n") &&
                    read_size(&r->size.width, config, "C") &&
                    read_size(&r->size.iterations, config, "sinkhorn_iterations");
    cJSON_Delete(config);
    r->size.eps = head_eps;
    return ok ? BK_OK
              : bk_err_set(
                    r->e, BK_E_INPUT,
                    "the metadata's \"config\" needs n, C, T and sinkhorn_iterations, whole numbers from "
                    "1 to %d",
                    MAX_SIZE);
}

/* Results in the order in which they are handed to the host, and the seeds of the gradients. */
enum { N_RESULTS = 6, N_SEEDS = 3 };
static const char *const results[N_RESULTS] = {"out.h_pre", "out.h_post", "out.h_res",
                                               "out.u",     "out.x_next", "head.out"};

static bk_status build(run *r, bk_dtype real)
{
    bk_program prog = {0};
    bk_status st;
    BK_TRY(bk_graph_new(&prog.g, real, r->e));
    BK_TRY(bk_hc_probe_build(&r->h, prog.g, &r->size, r->e));
    const bk_hc_probe *h = &r->h;
    const bk_vid value[N_RESULTS] = {h->h_pre, h->h_post, h->h_res, h->u, h->x_next, h->head_out};
    for (int k = 0; k < N_RESULTS; k++)
        BK_TRY(bk_op_add(NULL, prog.g,
                         &(bk_op_spec){.kind = BK_OP_fetch, .in = &value[k], .n_in = 1, .name = results[k]},
                         r->e));
    const bk_seed seed[N_SEEDS] = {{h->u, h->du}, {h->x_next, h->dout}, {h->head_out, h->head_dout}};
    BK_TRY(bk_program_passes(&prog, seed, N_SEEDS, NULL, true, r->e));
    bk_session_add(&r->s, &prog, 1);
done:
    bk_program_free(&prog);
    return st;
}

/* Parameters of the probe, their tensors and those of their gradients. */
static const char *const params[][3] = {
    {"x", "in.x", "grad.x"},
    {"y", "in.y", "grad.y"},
    {"sublayer_bias", "in.bias", "grad.bias"},
    {"mapping_proj.weight", "param.mapping_proj.weight", "grad.mapping_proj.weight"},
    {"alpha_pre", "param.alpha_pre", "grad.alpha_pre"},
    {"alpha_post", "param.alpha_post", "grad.alpha_post"},
    {"alpha_res", "param.alpha_res", "grad.alpha_res"},
    {"bias", "param.bias", "grad.mapping.bias"},
    {"head.x", "head.x", "head.grad.x"},
    {"head.fn", "head.fn", "head.grad.fn"},
    {"head.base", "head.base", "head.grad.base"},
    {"head.scale", "head.scale", "head.grad.scale"},
};
enum { N_PARAMS = sizeof params / sizeof *params };

/* Loads every parameter of the probe and makes room for its gradient. */
static bk_status connect_params(run *r, bk_check_host *host)
{
    const bk_program *prog = &r->s.program[0];
    bk_status st = BK_OK;
    for (bk_pid p = 0; p < prog->g->n_params; p++) {
        int k = 0;
        while (k < N_PARAMS && strcmp(params[k][0], prog->g->param[p].name) != 0) k++;
        if (k == N_PARAMS)
            return bk_err_set(r->e, BK_E_CHECK, "check: the parameter %s of the operator is in no file",
                              prog->g->param[p].name);
        BK_TRY(bk_against_load(r->s.exec, prog->p, p, r->out, r->file, params[k][1], r->e));
        BK_TRY(bk_check_host_keep(host, r->out, prog->g->param[p].grad, BK_OUTCOME_OP_GRADIENT, params[k][2],
                                  r->e));
    }
    BK_TRY(bk_against_no_other_params(r->out, r->file, r->e));
done:
    return st;
}

static bk_status connect_inputs(run *r, bk_check_host *host)
{
    const int64_t T = r->size.n_tokens, C = r->size.width, nC = r->size.n_streams * C;
    const struct {
        const char *name, *tensor;
        int64_t shape[2];
    } in[] = {{"du", "in.du", {T, C}}, {"dout", "in.dout", {T, nC}}, {"head.dout", "head.dout", {T, C}}};
    double *data = bk_arena_alloc(&r->out->arena, T, sizeof *data);
    bk_status st = data ? BK_OK : bk_err_set(r->e, BK_E_MEM, "check: out of memory");
    if (st != BK_OK) return st;
    for (int64_t t = 0; t < T; t++) data[t] = (double)t;
    bk_check_host_feed(host, "rows", data);
    for (size_t k = 0; k < sizeof in / sizeof *in; k++) {
        BK_TRY(bk_against_read(&data, r->out, r->file, in[k].tensor, 2, in[k].shape, r->e));
        bk_check_host_feed(host, in[k].name, data);
    }
done:
    return st;
}

bk_status bk_against_op(bk_outcome *out, const bk_st *file, bk_dtype real, bk_err *e)
{
    run r = {.file = file, .out = out, .e = e};
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = true};
    bk_check_host h = {0};
    const bk_host host = bk_check_host_of(&h);
    bk_status st;
    BK_TRY(read_sizes(&r));
    BK_TRY(build(&r, real));
    BK_TRY(bk_session_plan(&r.s, &target, e));
    BK_TRY(bk_session_open(&r.s, BK_UNSET_COUNT, e));
    h.g = r.s.program[0].g;
    for (int k = 0; k < N_RESULTS; k++)
        BK_TRY(bk_check_host_keep(&h, out, bk_check_probe(h.g, k), BK_OUTCOME_OP_OUTPUT, results[k], e));
    BK_TRY(connect_params(&r, &h));
    BK_TRY(connect_inputs(&r, &h));
    BK_TRY(bk_exec_run(r.s.exec, r.s.program[0].p, &host, e));
done:
    bk_check_host_free(&h);
    bk_session_close(&r.s);
    return st;
}
