#include "model/model.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/parts.h"

/* One decoder layer, streams to streams. */
static bk_vid decoder_layer(bk_builder *b, const bk_layer_spec *spec, int64_t layer, bk_vid x)
{
    char values[BK_PREFIX_LEN], params[BK_PREFIX_LEN];
    snprintf(values, sizeof values, "decoder.%" PRId64 ".", layer);
    snprintf(params, sizeof params, "decoder.layers.%" PRId64 ".", layer);
    bk_build_names(b, values, params);
    return bk_build_layer(b, spec, layer, x);
}

/* All ids of an io at BK_NONE. */
static void clear_io(bk_model_io *io)
{
    *io = (bk_model_io){.tokens = BK_NONE,
                        .labels = BK_NONE,
                        .loss_mask = BK_NONE,
                        .samples = BK_NONE,
                        .loss_seed = BK_NONE,
                        .rope_cos = BK_NONE,
                        .rope_sin = BK_NONE,
                        .position = BK_NONE,
                        .loss = BK_NONE,
                        .token_loss = BK_NONE,
                        .logits = BK_NONE,
                        .hidden = BK_NONE,
                        .loss_sum = BK_NONE,
                        .n_tokens = BK_NONE,
                        .excess = BK_NONE};
}

/* The layers of multi-token prediction are like the last of the decoder. */
static int64_t count_moe_layers(const bk_config *c, const bk_layer_spec *spec)
{
    int64_t n = spec[c->num_layers - 1].mlp == BK_MLP_MOE ? c->mtp_num_layers : 0;
    for (int64_t i = 0; i < c->num_layers; i++) n += spec[i].mlp == BK_MLP_MOE;
    return n;
}

bool bk_model_can_measure(const bk_config *c)
{
    return c->enable_mhc_connections || c->num_experts > 0;
}

bk_status bk_model_build(bk_model_io *out, bk_graph *g, const bk_config *c, const bk_layout *l,
                         bk_model_mode mode, bk_err *e)
{
    assert(g->n_ops == 0 && l->n_stages == 1 && l->n_chunks == 1);
    assert(c->num_layers >= 1 && c->padded_vocab_size >= c->vocab_size);
    if (c->num_layers > INT16_MAX) { /* tags of ops have 15 bits for the layer */
        char cite[BK_CITE_LEN];
        return bk_err_set(e, BK_E_INPUT, "%s is more than %d; use fewer layers",
                          bk_config_cite(cite, c, BK_OPT_num_layers), INT16_MAX);
    }
    bk_model_io io;
    clear_io(&io);
    bk_builder b = {.g = g,
                    .c = c,
                    .l = l,
                    .io = &io,
                    .train = bk_model_trains(mode),
                    .measure = mode == BK_MODEL_MEASURE,
                    .generate = mode == BK_MODEL_GENERATE,
                    .e = e};
    const bk_layer_spec *spec = NULL;
    bk_vid *layer_out = bk_arena_alloc(&g->arena, c->num_layers, sizeof *layer_out);
    io.losses = bk_arena_alloc(&g->arena, BK_MAX_LOSSES, sizeof *io.losses);
    const int64_t n_all = c->num_layers + c->mtp_num_layers;
    io.biases = bk_arena_alloc(&g->arena, n_all, sizeof *io.biases);
    io.choices = bk_arena_alloc(&g->arena, n_all * BK_LAYER_CHOICES, sizeof *io.choices);
    if (!layer_out || !io.losses || !io.biases || !io.choices)
        return bk_err_set(e, BK_E_MEM, "model: out of memory");
    b.st = bk_layer_specs(&spec, &g->arena, c, e);
    b.n_moe_layers = b.st == BK_OK ? count_moe_layers(c, spec) : 0;

    bk_vid x = bk_build_pre_process(&b);
    for (int64_t i = 0; i < c->num_layers && b.st == BK_OK; i++)
        x = layer_out[i] = decoder_layer(&b, &spec[i], i, x);
    /* Still under the tag of the last layer: whatever ends it owns the boundary. */
    bk_build_names(&b, "decoder.", "decoder.");
    io.hidden = bk_build_boundary(&b, x);
    if (b.generate)
        bk_build_next_logits(&b, io.hidden);
    else
        bk_build_post_process(&b, io.hidden);
    if (b.train && c->mtp_num_layers > 0 && b.st == BK_OK) bk_build_mtp(&b, &spec[c->num_layers - 1], x);
    if (b.train) bk_build_seeds(&b);
    if (!b.generate) bk_build_fetch_metrics(&b);

    if (b.st != BK_OK) return bk_err_prefix(e, "model: ");
    io.layer_out = layer_out, io.n_layers = c->num_layers;
    *out = io;
    return BK_OK;
}

/* The number in "act.layerI", or -1. */
static int64_t layer_of(const char *name)
{
    static const char prefix[] = "act.layer";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return -1;
    const char *digits = name + sizeof prefix - 1;
    if (*digits < '0' || *digits > '9' || strlen(digits) > 9) return -1;
    char *end;
    const long i = strtol(digits, &end, 10);
    return *end ? -1 : i;
}

static bk_vid find_probe(const bk_model_io *io, const char *name)
{
    const struct {
        const char *name;
        bk_vid v;
    } named[] = {{"out.loss", io->loss}, {"out.token_loss", io->token_loss}, {"logits", io->logits},
                 {"hidden", io->hidden}, {"rope.cos", io->rope_cos},         {"rope.sin", io->rope_sin}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(named[i].name, name) == 0) return named[i].v;
    const int64_t layer = layer_of(name);
    return layer >= 0 && layer < io->n_layers ? io->layer_out[layer] : BK_NONE;
}

static bk_status probe_choices(bk_vid *out, bk_graph *g, const bk_model_io *io, bk_err *e)
{
    bk_status st = BK_OK;
    *out = BK_NONE;
    for (int64_t k = 0; k < io->n_choices && st == BK_OK; k++) {
        *out = io->choices[k];
        st = bk_op_add(NULL, g, &(bk_op_spec){BK_OP_fetch, BK_IN(*out), .name = BK_PROBE_CHOICES}, e);
    }
    return st;
}

bk_status bk_model_probe(bk_vid *out, bk_graph *g, const bk_model_io *io, const char *name, bk_err *e)
{
    g->tag = (bk_tag){
        .module = BK_MODULE_DECODER, .node = BK_NODE_POST_PROCESS, .pass = BK_PASS_FORWARD, .layer = BK_NONE};
    bk_vid v = find_probe(io, name);
    if (strcmp(name, BK_PROBE_CHOICES) == 0) return probe_choices(out, g, io, e);
    if (strcmp(name, BK_PROBE_OBJECTIVE) == 0) {
        const bk_status st = bk_build_objective(&v, g, io, e);
        if (st != BK_OK) return st;
    }
    if (v == BK_NONE)
        return bk_err_set(e, BK_E_INPUT,
                          "probe \"%s\" is not known; there are act.layer0 to act.layer%" PRId64
                          ", out.loss, out.token_loss, " BK_PROBE_OBJECTIVE ", " BK_PROBE_CHOICES
                          ", logits, hidden, and where heads turn rope.cos, rope.sin",
                          name, io->n_layers - 1);
    const bk_status st = bk_op_add(NULL, g, &(bk_op_spec){BK_OP_fetch, BK_IN(v), .name = name}, e);
    if (st == BK_OK) *out = v;
    return st;
}
