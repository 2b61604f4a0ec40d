#include "model/layer_spec.h"

#include <inttypes.h>

bk_status bk_layer_specs(const bk_layer_spec **out, bk_arena *arena, const bk_config *c, bk_err *e)
{
    if (c->num_experts > 0) {
        char cite[BK_CITE_LEN];
        return bk_err_set(e, BK_E_INPUT, "%s asks for mixture of experts, which is not built; set it to 0",
                          bk_config_cite(cite, c, BK_OPT_num_experts));
    }
    bk_layer_spec *spec = bk_arena_alloc(arena, c->num_layers, sizeof *spec);
    if (!spec) return bk_err_set(e, BK_E_MEM, "model: out of memory for %" PRId64 " layers", c->num_layers);
    for (int64_t i = 0; i < c->num_layers; i++)
        spec[i] = (bk_layer_spec){BK_ATTENTION_STANDARD, BK_MLP_DENSE, c->enable_mhc_connections};
    *out = spec;
    return BK_OK;
}
