#include "train/run.h"

#include <stdlib.h>

#include "base/size.h"

bool bk_run_measures(const bk_config *c)
{
    return c->log_health_interval > 0 && (*c->log_jsonl || *c->tensorboard_dir) && bk_model_can_measure(c);
}

static bk_status make_program(bk_program *out, const bk_config *c, const bk_layout *l, bk_model_mode mode,
                              const bk_dump *dump, bk_err *e)
{
    const bk_program_options o = {.mode = mode, .real = BK_F32, .optimizer = true, .dump = dump};
    return bk_program_graph(out, c, l, &o, e);
}

static bk_status add_program(bk_session *s, const bk_config *c, const bk_layout *l, bk_model_mode mode,
                             int64_t n_micro, const bk_dump *dump, bk_err *e)
{
    bk_program prog;
    const bk_status st = make_program(&prog, c, l, mode, dump, e);
    if (st == BK_OK) bk_session_add(s, &prog, n_micro);
    return st;
}

bk_status bk_run_add_programs(bk_session *s, bk_generator *gen, const bk_config *c, const bk_layout *l,
                              bool evaluate, const bk_dump *dump, bk_err *e)
{
    bk_status st = add_program(s, c, l, BK_MODEL_TRAIN, l->n_micro, dump, e);
    if (st == BK_OK && evaluate) st = add_program(s, c, l, BK_MODEL_EVALUATE, 1, NULL, e);
    if (st == BK_OK && l->n_ranks == 1) /* text is generated on one rank alone */
        st = bk_generator_add(gen, s, c, BK_F32, e);
    if (st == BK_OK && bk_run_measures(c)) st = add_program(s, c, l, BK_MODEL_MEASURE, l->n_micro, NULL, e);
    return st;
}

static bk_status open_session(bk_run *r, bk_err *e)
{
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = r->c->deterministic};
    bk_status st = BK_OK;
    BK_TRY(bk_run_add_programs(&r->session, &r->gen, r->c, &r->layout, r->data.valid.ctx != NULL, NULL, e));
    BK_TRY(bk_session_plan(&r->session, &target, e));
    BK_TRY(bk_session_open(&r->session, r->c->memory_limit, e));
    r->feed = (bk_feed){.micro_batch = r->layout.micro_batch, .seq = r->layout.seq};
    r->feed.mask = malloc((size_t)r->layout.seq * sizeof *r->feed.mask);
    if (!r->feed.mask) st = bk_err_set(e, BK_E_MEM, "train: out of memory");
done:
    return st;
}

/* Parameters, moments and position of a checkpoint. */
static bk_status load(bk_run *r, bk_err *e)
{
    bk_checkpoint *k = NULL;
    bk_status st = BK_OK;
    BK_TRY(bk_checkpoint_open(&k, r->c->load, r->c->ckpt_step, e));
    BK_TRY(bk_checkpoint_load(k, &r->session, BK_CHECKPOINT_ALL, e));
    bk_checkpoint_config_diff(&r->config_diff, k, r->c);
    r->state = bk_checkpoint_get_state(k);
    int64_t consumed;
    if (!bk_mul64(&consumed, r->state.iteration, r->layout.global_batch) ||
        consumed != r->state.consumed_samples)
        st = bk_err_set(e, BK_E_INPUT,
                        "%s: %lld steps consumed %lld samples, which is not global_batch_size %lld a step; "
                        "give the batch that it was trained with",
                        bk_checkpoint_path(k), (long long)r->state.iteration,
                        (long long)r->state.consumed_samples, (long long)r->layout.global_batch);
done:
    bk_checkpoint_close(k);
    return st;
}

bk_status bk_run_open(bk_run *r, const bk_config *c, bk_err *e)
{
    bk_layout l;
    *r = (bk_run){.c = c};
    const bk_status st = bk_layout_resolve(&l, c, 1, e);
    return st == BK_OK ? bk_run_open_layout(r, c, &l, e) : st;
}

bk_status bk_run_open_layout(bk_run *r, const bk_config *c, const bk_layout *l, bk_err *e)
{
    *r = (bk_run){.c = c, .layout = *l};
    bk_status st = BK_OK;
    BK_TRY(bk_run_data_open(&r->data, c, &r->layout, e));
    BK_TRY(open_session(r, e));
    bk_session_init_params(&r->session, (uint64_t)c->seed);
    if (c->load[0]) BK_TRY(load(r, e));
    if (c->save[0]) BK_TRY(bk_checkpoint_dir_open(&r->save, c->save, r->state.iteration, c, e));
done:
    return st;
}

static bk_status replace_program(bk_run *r, int k, bk_model_mode mode, const bk_layout *l, bk_err *e)
{
    bk_program prog;
    const bk_status st = make_program(&prog, r->c, l, mode, NULL, e);
    return st == BK_OK ? bk_session_replace(&r->session, k, &prog, r->c->memory_limit, e) : st;
}

bk_status bk_run_make_room(bk_run *r, int64_t excess, bk_err *e)
{
    bk_layout l = r->layout;
    const int64_t need = l.routed_rows + excess; /* both are at most 2^31 */
    const int64_t rows = need + need / 4;        /* the next steps are likely to need more */
    l.routed_rows = rows < l.most_rows ? rows : l.most_rows;
    bk_status st = replace_program(r, BK_RUN_TRAIN, BK_MODEL_TRAIN, &l, e);
    if (st == BK_OK && bk_run_measures(r->c))
        st = replace_program(r, r->session.n_programs - 1, BK_MODEL_MEASURE, &l, e);
    if (st == BK_OK && r->data.valid.ctx) st = replace_program(r, BK_RUN_EVALUATE, BK_MODEL_EVALUATE, &l, e);
    if (st == BK_OK)
        r->layout = l;
    else
        bk_err_prefix(e,
                      "%lld rows of tokens came to the experts of a layer where there is room for %lld "
                      "(moe_capacity_headroom), and there cannot be more: ",
                      (long long)need, (long long)r->layout.routed_rows);
    return st;
}

void bk_run_close(bk_run *r)
{
    bk_checkpoint_dir_close(r->save);
    bk_str_free(&r->config_diff);
    bk_feed_free(&r->feed);
    bk_generator_free(&r->gen);
    bk_session_close(&r->session);
    bk_run_data_close(&r->data);
    *r = (bk_run){0};
}
