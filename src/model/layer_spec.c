#include "model/layer_spec.h"

#include <inttypes.h>

#include "config/moe_options.h"

bk_status bk_layer_specs(const bk_layer_spec **out, bk_arena *arena, const bk_config *c, bk_err *e)
{
    bk_layer_spec *spec = bk_arena_alloc(arena, c->num_layers, sizeof *spec);
    if (!spec) return bk_err_set(e, BK_E_MEM, "model: out of memory for %" PRId64 " layers", c->num_layers);
    bool *has_experts = bk_arena_alloc(arena, c->num_layers, sizeof *has_experts);
    if (!has_experts)
        return bk_err_set(e, BK_E_MEM, "model: out of memory for %" PRId64 " layers", c->num_layers);
    const bk_status st = bk_config_moe_layers(has_experts, c, e);
    const bk_attention_kind attention = c->multi_latent_attention ? BK_ATTENTION_MLA : BK_ATTENTION_STANDARD;
    for (int64_t i = 0; i < c->num_layers; i++)
        spec[i] =
            (bk_layer_spec){attention, has_experts[i] ? BK_MLP_MOE : BK_MLP_DENSE, c->enable_mhc_connections};
    *out = spec;
    return st;
}
