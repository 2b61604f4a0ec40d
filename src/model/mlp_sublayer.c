/* The dense feed-forward sublayer. With SwiGLU the first projection is twice as wide: gate, then up. */
#include <math.h>

#include "model/parts.h"

static bk_vid activate(bk_builder *b, bk_vid x)
{
    if (b->c->activation == BK_ACT_SWIGLU)
        return bk_build_op1(b, &(bk_op_spec){BK_OP_swiglu, BK_IN(x), .name = "mlp.act"});
    const bool tanh_form = b->c->activation == BK_ACT_GELU_TANH;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_gelu, BK_IN(x), .name = "mlp.act", .attr = {{tanh_form}}});
}

bk_branch bk_build_dense_mlp(bk_builder *b, bk_vid x)
{
    const bk_config *c = b->c;
    const int64_t C = c->hidden_size, f = c->ffn_hidden_size;
    const int64_t inner = c->activation == BK_ACT_SWIGLU ? 2 * f : f;
    const bk_linear_params fc1 = bk_build_linear_params(b, "mlp.linear_fc1", inner, C, c->init_method_std,
                                                        c->add_bias_linear, BK_CLASS_MLP);
    const bk_vid h =
        bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(x, fc1.weight, fc1.bias), .name = "mlp.fc1"});
    const bk_vid a = activate(b, h);
    const bk_linear_params fc2 = bk_build_linear_params(
        b, "mlp.linear_fc2", C, f, c->init_method_std / sqrt(2.0 * (double)c->num_layers), c->add_bias_linear,
        BK_CLASS_MLP);
    const bk_vid y = bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(a, fc2.weight), .name = "mlp.fc2"});
    return (bk_branch){y, fc2.bias};
}
