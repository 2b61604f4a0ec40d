/* Generation: tokens from a model, one after the other, with a cache of keys and values.
 *
 * Two programs of a session do it, beside those that train or with none beside them: one runs
 * BK_PREFILL_TOKENS tokens of the prompt at a time, the other one token. The parameters are those of the
 * session, wherever they came from.
 *
 *     bk_generator_add(&gen, &session, &config, BK_F32, e);     before bk_session_plan and bk_session_open
 *     bk_generate(&gen, prompt, n_prompt, &options, e);         as often as you like
 *     bk_generator_free(&gen);
 *
 * The model sees the last tokens, up to seq_length of them, which is what it was trained on. When they are
 * that many and another one follows, the later half of them is kept and read again, from position 0. */
#ifndef BK_TRAIN_GENERATE_H
#define BK_TRAIN_GENERATE_H

#include "train/sampling.h"
#include "train/session.h"

enum { BK_PREFILL_TOKENS = 32 };

typedef struct {
    bk_session *session;      /* borrowed */
    int prefill, decode;      /* their programs; prefill BK_NONE where the context is shorter than a piece */
    int64_t context, n_vocab; /* tokens that the model sees; tokens that occur (the padding does not) */
    int32_t *seen;            /* [context] the tokens that the model sees */
    int64_t n_seen, n_cached; /* of them: how many there are, and how many of those are in the cache */
    double *logits;           /* [padded vocabulary] of the last token that was run */
    bk_candidate *scratch;    /* [padded vocabulary] */
} bk_generator;

/* Builds the programs for a resolved configuration and adds them to the session, which must stay where it is.
 * The caller frees `out` in any case (it is {0} after an error). Errors as of bk_program_graph. */
bk_status bk_generator_add(bk_generator *out, bk_session *s, const bk_config *c, bk_dtype real, bk_err *e);
void bk_generator_free(bk_generator *gen); /* {0} is fine */

typedef struct {
    int64_t n_tokens; /* to generate */
    int32_t stop;     /* ends the text; it is handed on as the last token. BK_NONE: nothing does */
    bk_sampling sampling;
    void *ctx;
    /* Takes a token as soon as it is drawn; another status than BK_OK ends the call with it. */
    bk_status (*token)(void *ctx, int32_t token, bk_err *e);
} bk_generate_options;

/* Reads the prompt (one token at least) and generates. BK_E_INPUT: an empty prompt, a token outside of the
 * vocabulary, bad sampling options. BK_E_CHECK: logits that are not finite. */
bk_status bk_generate(bk_generator *gen, const int32_t *prompt, int64_t n_prompt,
                      const bk_generate_options *o, bk_err *e);

/* The parts of bk_generate. Starts a new sequence; appends a token; runs the tokens that are not in the cache
 * yet, after which gen->logits are those of the token that follows. */
void bk_generator_start(bk_generator *gen);
bk_status bk_generator_append(bk_generator *gen, int32_t token, bk_err *e);
bk_status bk_generator_run(bk_generator *gen, bk_err *e);

#endif
