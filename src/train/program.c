#include "train/program.h"

#include "ir/verify.h"
#include "plan/check.h"

/* After every stage: dump it, and in debug builds verify the graph. */
static bk_status stage_done(const bk_program *prog, const char *name, bk_err *e)
{
    if (prog->dump) prog->dump->stage(prog->dump->ctx, name, prog->g, prog->s, prog->p);
#ifndef NDEBUG
    const bk_status st = bk_graph_verify(prog->g, e);
    if (st != BK_OK) bk_err_prefix(e, "after %s: ", name);
    return st;
#else
    (void)e;
    return BK_OK;
#endif
}

static bk_status fetch_gradients(bk_graph *g, bk_err *e)
{
    g->tag = (bk_tag){BK_MODULE_DECODER, BK_NODE_STEP, BK_PASS_STEP, BK_NONE};
    bk_status st = BK_OK;
    for (int64_t p = 0; p < g->n_params && st == BK_OK; p++)
        if (g->param[p].grad != BK_NONE)
            st =
                bk_op_add(NULL, g, &(bk_op_spec){.kind = BK_OP_fetch, .in = &g->param[p].grad, .n_in = 1}, e);
    return st;
}

bk_status bk_program_passes(bk_program *prog, const bk_seed *seed, int n_seeds, const bk_step_options *step,
                            bool fetch_grads, bk_err *e)
{
    bk_graph *g = prog->g;
    bk_status st = BK_OK;
    if (n_seeds) {
        BK_TRY(bk_pass_autodiff(g, seed, n_seeds, e));
        BK_TRY(stage_done(prog, "autodiff", e));
        BK_TRY(bk_pass_accumulate(g, e));
        BK_TRY(stage_done(prog, "accumulate", e));
    }
    if (fetch_grads) BK_TRY(fetch_gradients(g, e));
    if (step) {
        BK_TRY(bk_pass_step(g, step, e));
        BK_TRY(stage_done(prog, "step", e));
    }
    BK_TRY(bk_pass_partition(g, e));
    BK_TRY(stage_done(prog, "partition", e));
done:
    return st;
}

bk_status bk_program_graph(bk_program *out, const bk_config *c, const bk_layout *l,
                           const bk_program_options *o, bk_err *e)
{
    bk_program prog = {.dump = o->dump};
    bk_model_io io;
    bk_status st = BK_OK;
    BK_TRY(bk_graph_new(&prog.g, o->real, e));
    BK_TRY(bk_model_build(&io, prog.g, c, l, o->mode, e));
    for (int k = 0; k < o->n_probes; k++) {
        bk_vid ignored;
        BK_TRY(bk_model_probe(&ignored, prog.g, &io, o->probe[k], e));
    }
    BK_TRY(stage_done(&prog, "model", e));
    const bool train = bk_model_trains(o->mode);
    bk_seed seed[BK_MAX_LOSSES];
    for (int k = 0; k < io.n_losses; k++) seed[k] = (bk_seed){io.losses[k].of, io.losses[k].seed};
    bk_step_bias *biases = bk_arena_alloc(&prog.g->arena, io.n_biases, sizeof *biases);
    if (!biases) {
        st = bk_err_set(e, BK_E_MEM, "model: out of memory");
        goto done;
    }
    for (int k = 0; k < io.n_biases; k++) biases[k] = (bk_step_bias){io.biases[k].bias, io.biases[k].counts};
    const bk_step_options step = {.clip_grad = c->clip_grad,
                                  .excess = io.excess != BK_NONE ? &io.excess : NULL,
                                  .beta1 = c->adam_beta1,
                                  .beta2 = c->adam_beta2,
                                  .eps = c->adam_eps,
                                  .weight_decay = c->weight_decay,
                                  .biases = biases,
                                  .n_biases = io.n_biases,
                                  .bias_update_rate = c->moe_router_bias_update_rate};
    BK_TRY(
        bk_program_passes(&prog, seed, io.n_losses, train && o->optimizer ? &step : NULL, o->fetch_grads, e));
    *out = prog, prog = (bk_program){0};
done:
    bk_program_free(&prog);
    return st;
}

bk_status bk_program_plan(bk_program *prog, const bk_run_layout *run, const bk_target *target,
                          int64_t n_micro, bk_err *e)
{
    bk_status st = BK_OK;
    if (n_micro < 1 || n_micro > INT32_MAX)
        return bk_err_set(e, BK_E_INPUT, "%lld micro-batches in a step: give 1 to %d", (long long)n_micro,
                          INT32_MAX);
    BK_TRY(bk_schedule_plain(&prog->s, prog->g, (int32_t)n_micro, e));
    BK_TRY(stage_done(prog, "schedule", e));
    BK_TRY(bk_plan_build(&prog->p, prog->g, prog->s, run, target, e));
    BK_TRY(stage_done(prog, "plan", e));
    BK_TRY(bk_plan_check(prog->p, e));
done:
    return st;
}

void bk_program_free(bk_program *prog)
{
    bk_plan_free(prog->p);
    bk_schedule_free(prog->s);
    bk_graph_free(prog->g);
    *prog = (bk_program){0};
}
