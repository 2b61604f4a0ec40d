#include "train/generate.h"

#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"

static bk_status add_program(int *out, bk_session *s, const bk_config *c, int64_t n_tokens, bk_dtype real,
                             bk_err *e)
{
    const bk_layout l = bk_layout_generate(c, n_tokens);
    const bk_program_options o = {.mode = BK_MODEL_GENERATE, .real = real};
    bk_program prog;
    const bk_status st = bk_program_graph(&prog, c, &l, &o, e);
    if (st != BK_OK) return st;
    *out = s->n_programs;
    bk_session_add(s, &prog, 1);
    return BK_OK;
}

bk_status bk_generator_add(bk_generator *out, bk_session *s, const bk_config *c, bk_dtype real, bk_err *e)
{
    const int64_t n_vocab = c->padded_vocab_size;
    bk_generator gen = {.session = s,
                        .prefill = BK_NONE,
                        .decode = BK_NONE,
                        .context = c->seq_length,
                        .n_vocab = c->vocab_size,
                        .seen = malloc((size_t)c->seq_length * sizeof *gen.seen),
                        .logits = malloc((size_t)n_vocab * sizeof *gen.logits),
                        .scratch = malloc((size_t)n_vocab * sizeof *gen.scratch)};
    bk_status st = BK_OK;
    *out = (bk_generator){0};
    if (!gen.seen || !gen.logits || !gen.scratch) {
        st = bk_err_set(e, BK_E_MEM, "generate: out of memory");
        goto done;
    }
    if (c->seq_length >= BK_PREFILL_TOKENS)
        BK_TRY(add_program(&gen.prefill, s, c, BK_PREFILL_TOKENS, real, e));
    BK_TRY(add_program(&gen.decode, s, c, 1, real, e));
    *out = gen, gen = (bk_generator){0};
done:
    bk_generator_free(&gen);
    return st;
}

void bk_generator_free(bk_generator *gen)
{
    free(gen->seen), free(gen->logits), free(gen->scratch);
    *gen = (bk_generator){0};
}

/* ---- running ------------------------------------------------------------------------------------------ */

static bk_status feed(void *ctx, const bk_value *v, int64_t micro, void *dst, bk_err *e)
{
    const bk_generator *gen = ctx;
    (void)micro;
    if (strcmp(v->name, "tokens") == 0)
        memcpy(dst, gen->seen + gen->n_cached, (size_t)bk_value_bytes(v));
    else if (strcmp(v->name, "position") == 0)
        *(int64_t *)dst = gen->n_cached;
    else
        return bk_err_set(e, BK_E_CHECK, "generate: nobody feeds the input %s", v->name);
    return BK_OK;
}

static bk_status fetch(void *ctx, const bk_value *v, int64_t micro, const void *src, bk_err *e)
{
    const bk_generator *gen = ctx;
    (void)micro;
    if (strcmp(v->name, "logits") != 0)
        return bk_err_set(e, BK_E_CHECK, "generate: nobody takes the value %s", v->name);
    for (int64_t k = 0; k < bk_elements(v); k++)
        gen->logits[k] = v->dtype == BK_F64 ? ((const double *)src)[k] : (double)((const float *)src)[k];
    return BK_OK;
}

void bk_generator_start(bk_generator *gen)
{
    gen->n_seen = gen->n_cached = 0;
}

bk_status bk_generator_append(bk_generator *gen, int32_t token, bk_err *e)
{
    if (token < 0 || token >= gen->n_vocab)
        return bk_err_set(e, BK_E_INPUT, "token %d is not in the vocabulary of %lld", (int)token,
                          (long long)gen->n_vocab);
    if (gen->n_seen == gen->context) {
        const int64_t kept = gen->context / 2;
        memmove(gen->seen, gen->seen + gen->context - kept, (size_t)kept * sizeof *gen->seen);
        gen->n_seen = kept, gen->n_cached = 0;
    }
    gen->seen[gen->n_seen++] = token;
    return BK_OK;
}

bk_status bk_generator_run(bk_generator *gen, bk_err *e)
{
    const bk_host host = {gen, feed, fetch};
    while (gen->n_cached < gen->n_seen) {
        const bool piece = gen->prefill != BK_NONE && gen->n_seen - gen->n_cached >= BK_PREFILL_TOKENS;
        const bk_program *prog = &gen->session->program[piece ? gen->prefill : gen->decode];
        const bk_status st = bk_exec_run(gen->session->exec, prog->p, &host, e);
        if (st != BK_OK) return st;
        gen->n_cached += piece ? BK_PREFILL_TOKENS : 1;
    }
    return BK_OK;
}

bk_status bk_generate(bk_generator *gen, const int32_t *prompt, int64_t n_prompt,
                      const bk_generate_options *o, bk_err *e)
{
    bk_status st = bk_sampling_check(&o->sampling, e);
    if (st != BK_OK) return st;
    if (n_prompt < 1)
        return bk_err_set(e, BK_E_INPUT, "generate: the prompt has no token; give one to begin with");
    bk_generator_start(gen);
    for (int64_t k = 0; k < n_prompt; k++) BK_TRY(bk_generator_append(gen, prompt[k], e));
    for (int64_t k = 0; k < o->n_tokens; k++) {
        int32_t token;
        BK_TRY(bk_generator_run(gen, e));
        BK_TRY(
            bk_sampling_draw(&token, gen->logits, gen->n_vocab, &o->sampling, n_prompt + k, gen->scratch, e));
        BK_TRY(o->token(o->ctx, token, e));
        if (token == o->stop) break;
        BK_TRY(bk_generator_append(gen, token, e));
    }
done:
    return st;
}
