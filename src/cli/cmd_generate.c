/* birkhoff generate --load DIR [--iteration N] [--prompt TEXT | --prompt-tokens 1,2,3]
 *                   [--num-tokens-to-generate N] [--temperature X] [--top-k N] [--top-p X] [--seed N]
 *
 * Continues a prompt with the model of a checkpoint, whose manifest holds the configuration. A model of bytes
 * reads and writes text, byte by byte as they are drawn, and stops at the end of a document; any other reads
 * and writes token ids. The prompt stands in front of what is generated. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "cli/cli.h"
#include "data/text.h"
#include "train/checkpoint.h"
#include "train/generate.h"

enum { LOAD, ITERATION, PROMPT, PROMPT_TOKENS, N_TOKENS, TEMPERATURE, TOP_K, TOP_P, SEED, N_OWN };

typedef struct {
    bk_checkpoint *checkpoint;
    bk_config c;
    bk_session session;
    bk_generator gen;
    bool bytes; /* the tokens are bytes and BK_TEXT_EOD */
    int32_t *prompt;
    int64_t n_prompt, cap_prompt;
    int64_t n_printed;
    int32_t last; /* token printed last */
} model;

/* ---- flags -------------------------------------------------------------------------------------------- */

static bk_status read_count(int64_t *out, const bk_flag *f, bk_err *e)
{
    char *end = NULL;
    if (!f->value) return BK_OK;
    errno = 0;
    const long long x = strtoll(f->value, &end, 10);
    if (errno != 0 || end == f->value || *end || x < 0)
        return bk_err_set(e, BK_E_INPUT, "--%s %.100s: give a whole number from 0 on", f->name, f->value);
    *out = x;
    return BK_OK;
}

static bk_status read_real(double *out, const bk_flag *f, bk_err *e)
{
    char *end = NULL;
    if (!f->value) return BK_OK;
    *out = strtod(f->value, &end);
    if (end == f->value || *end)
        return bk_err_set(e, BK_E_INPUT, "--%s %.100s: give a number", f->name, f->value);
    return BK_OK;
}

static bk_status push_token(model *m, int32_t token, bk_err *e)
{
    bk_status st;
    BK_VEC_PUSH(st, m->prompt, m->n_prompt, m->cap_prompt, token);
    return st == BK_OK ? st : bk_err_set(e, st, "generate: out of memory");
}

static bk_status read_tokens(model *m, const char *text, bk_err *e)
{
    for (const char *at = text;; at++) {
        char *end = NULL;
        errno = 0;
        const long x = strtol(at, &end, 10);
        if (errno != 0 || end == at || (*end && *end != ',') || x < 0 || x >= m->c.vocab_size)
            return bk_err_set(
                e, BK_E_INPUT,
                "--prompt-tokens: '%.40s' does not begin with a token id from 0 to %lld; give ids with "
                "commas between, such as 1,2,3",
                at, (long long)m->c.vocab_size - 1);
        const bk_status st = push_token(m, (int32_t)x, e);
        if (st != BK_OK || !*end) return st;
        at = end;
    }
}

static bk_status read_text(model *m, const char *text, bk_err *e)
{
    bk_status st = BK_OK;
    if (!m->bytes)
        return bk_err_set(
            e, BK_E_INPUT,
            "--prompt: the tokens of this model are not bytes (vocab_size %lld, not %d); give their ids "
            "with --prompt-tokens",
            (long long)m->c.vocab_size, BK_TEXT_VOCAB);
    for (; *text && st == BK_OK; text++) st = push_token(m, (unsigned char)*text, e);
    return st;
}

/* Without a prompt a text of bytes begins as one does in the data: after the end of another. */
static bk_status read_prompt(model *m, const bk_flag *own, bk_err *e)
{
    bk_status st = BK_OK;
    if (own[PROMPT].value && own[PROMPT_TOKENS].value)
        return bk_err_set(e, BK_E_INPUT, "--prompt and --prompt-tokens are two prompts; give one of them");
    if (own[PROMPT].value) BK_TRY(read_text(m, own[PROMPT].value, e));
    if (own[PROMPT_TOKENS].value) BK_TRY(read_tokens(m, own[PROMPT_TOKENS].value, e));
    if (m->n_prompt == 0 && m->bytes) BK_TRY(push_token(m, BK_TEXT_EOD, e));
    if (m->n_prompt == 0)
        st = bk_err_set(e, BK_E_INPUT,
                        "generate: this model needs a token to begin with; give --prompt-tokens");
done:
    return st;
}

static bk_status read_options(bk_generate_options *o, const model *m, const bk_flag *own, bk_err *e)
{
    bk_status st;
    int64_t seed = m->c.seed;
    *o = (bk_generate_options){.n_tokens = 256,
                               .stop = m->bytes ? BK_TEXT_EOD : BK_NONE,
                               .sampling = {.temperature = 1, .top_p = 1}};
    BK_TRY(read_count(&o->n_tokens, &own[N_TOKENS], e));
    BK_TRY(read_real(&o->sampling.temperature, &own[TEMPERATURE], e));
    BK_TRY(read_count(&o->sampling.top_k, &own[TOP_K], e));
    BK_TRY(read_real(&o->sampling.top_p, &own[TOP_P], e));
    BK_TRY(read_count(&seed, &own[SEED], e));
    o->sampling.seed = (uint64_t)seed;
    BK_TRY(bk_sampling_check(&o->sampling, e));
done:
    return st;
}

/* ---- model -------------------------------------------------------------------------------------------- */

static bk_status open_checkpoint(model *m, const bk_flag *own, bk_err *e)
{
    int64_t iteration = BK_UNSET_COUNT;
    bk_status st;
    if (!own[LOAD].value)
        return bk_err_set(e, BK_E_INPUT,
                          "generate needs a model: give --load DIR, a folder that train --save wrote");
    BK_TRY(read_count(&iteration, &own[ITERATION], e));
    BK_TRY(bk_checkpoint_open(&m->checkpoint, own[LOAD].value, iteration, e));
    BK_TRY(bk_checkpoint_config(&m->c, m->checkpoint, e));
    m->bytes = m->c.vocab_size == BK_TEXT_VOCAB;
done:
    return st;
}

static bk_status open_session(model *m, bk_err *e)
{
    const bk_target target = {.kind = BK_TARGET_CPU, .deterministic = m->c.deterministic};
    bk_status st;
    BK_TRY(bk_generator_add(&m->gen, &m->session, &m->c, BK_F32, e));
    BK_TRY(bk_session_plan(&m->session, &target, e));
    BK_TRY(bk_session_open(&m->session, m->c.memory_limit, e));
    BK_TRY(bk_checkpoint_load(m->checkpoint, &m->session, BK_CHECKPOINT_WEIGHTS, e));
done:
    return st;
}

/* ---- output ------------------------------------------------------------------------------------------- */

static bk_status print_token(void *ctx, int32_t token, bk_err *e)
{
    model *m = ctx;
    if (!m->bytes)
        printf("%s%d", m->n_printed ? " " : "", (int)token);
    else if (token < 256)
        putchar(token);
    m->n_printed++, m->last = token;
    if (fflush(stdout) == 0 && !ferror(stdout)) return BK_OK;
    return bk_err_set(e, BK_E_IO, "cannot write to the standard output: %s", strerror(errno));
}

static bk_status generate(model *m, const bk_flag *own, bk_err *e)
{
    bk_generate_options o;
    bk_status st;
    BK_TRY(open_checkpoint(m, own, e));
    BK_TRY(read_options(&o, m, own, e));
    BK_TRY(read_prompt(m, own, e));
    BK_TRY(open_session(m, e));
    o.ctx = m, o.token = print_token;
    for (int64_t k = 0; k < m->n_prompt; k++) BK_TRY(print_token(m, m->prompt[k], e));
    st = bk_generate(&m->gen, m->prompt, m->n_prompt, &o, e);
    if (!m->bytes || m->last != '\n') putchar('\n');
done:
    return st;
}

int bk_cli_generate(int argc, char *const *argv)
{
    bk_flag own[N_OWN] = {[LOAD] = {"load", true, NULL},
                          [ITERATION] = {"iteration", true, NULL},
                          [PROMPT] = {"prompt", true, NULL},
                          [PROMPT_TOKENS] = {"prompt-tokens", true, NULL},
                          [N_TOKENS] = {"num-tokens-to-generate", true, NULL},
                          [TEMPERATURE] = {"temperature", true, NULL},
                          [TOP_K] = {"top-k", true, NULL},
                          [TOP_P] = {"top-p", true, NULL},
                          [SEED] = {"seed", true, NULL}};
    bk_err e = {0};
    model m = {0};
    bk_config_init(&m.c);
    bk_status st = bk_cli_own_flags(own, N_OWN, argc, argv, "the checkpoint holds the configuration", &e);
    if (st == BK_OK) st = generate(&m, own, &e);
    bk_generator_free(&m.gen);
    bk_session_close(&m.session);
    bk_checkpoint_close(m.checkpoint);
    bk_config_free(&m.c);
    free(m.prompt);
    return bk_cli_report(st, &e);
}
