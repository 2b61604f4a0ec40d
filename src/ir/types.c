#include "ir/types.h"

#include <stddef.h>

const char *const bk_dtype_names[BK_N_DTYPES] = {"f32", "f64", "bf16", "i32", "i64"};
const char *const bk_kind_names[BK_N_KINDS] = {"input", "param", "act", "grad", "state", "const"};
const char *const bk_scope_names[BK_N_SCOPES] = {"run", "step", "micro"};
const char *const bk_module_names[BK_N_MODULES] = {"decoder", "mtp"};
const char *const bk_node_names[BK_N_NODES] = {
    "pre_process",  "attn", "moe_dispatch", "mlp",    "moe_combine", "mhc_post", "mtp_post_process",
    "post_process", "recv", "send",         "reduce", "gather",      "step"};
const char *const bk_pass_names[BK_N_PASSES] = {"forward", "backward", "wgrad", "recompute", "step"};
const char *const bk_lane_names[BK_N_LANES] = {"comp", "a2a", "p2p", "grad", "host"};

int64_t bk_dtype_bytes(bk_dtype d)
{
    static const int8_t bytes[BK_N_DTYPES] = {4, 8, 2, 4, 8};
    return bytes[d];
}

bool bk_dtype_is_float(bk_dtype d)
{
    return d == BK_F32 || d == BK_F64 || d == BK_BF16;
}
