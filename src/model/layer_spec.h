/* What each layer of the model consists of. The configuration decides it here and nowhere else; the parts of
 * the model look at the spec of their layer. */
#ifndef BK_MODEL_LAYER_SPEC_H
#define BK_MODEL_LAYER_SPEC_H

#include "base/arena.h"
#include "base/err.h"
#include "config/config.h"

typedef enum {
    BK_ATTENTION_STANDARD, /* causal, grouped queries; attention_sublayer.c */
    BK_ATTENTION_MLA,      /* multi-latent; mla_sublayer.c */
    BK_N_ATTENTIONS
} bk_attention_kind;

typedef enum {
    BK_MLP_DENSE, /* mlp_sublayer.c */
    BK_MLP_MOE,   /* moe_sublayer.c */
    BK_N_MLPS
} bk_mlp_kind;

typedef struct {
    bk_attention_kind attention;
    bk_mlp_kind mlp;
    bool hyper; /* both sublayers are wrapped in hyper-connections; otherwise a plain residual */
} bk_layer_spec;

/* The specs of the num_layers decoder layers, owned by the arena. */
bk_status bk_layer_specs(const bk_layer_spec **out, bk_arena *arena, const bk_config *c, bk_err *e);

#endif
