/* The feed-forward sublayer without routing: dense layers, and the shared experts of the others. With SwiGLU
 * the first projection is twice as wide: gate, then up. */
#include <math.h>
#include <stdio.h>

#include "model/parts.h"

double bk_build_output_std(const bk_builder *b)
{
    return b->c->init_method_std / sqrt(2.0 * (double)b->c->num_layers);
}

int64_t bk_build_fc1_width(const bk_builder *b, int64_t inner)
{
    return b->c->activation == BK_ACT_SWIGLU ? 2 * inner : inner;
}

static bk_vid activate(bk_builder *b, const char *name, bk_vid x)
{
    if (b->c->activation == BK_ACT_SWIGLU)
        return bk_build_op1(b, &(bk_op_spec){BK_OP_swiglu, BK_IN(x), .name = name});
    const bool tanh_form = b->c->activation == BK_ACT_GELU_TANH;
    return bk_build_op1(b, &(bk_op_spec){BK_OP_gelu, BK_IN(x), .name = name, .attr = {{tanh_form}}});
}

/* "mlp" and "fc1" to "mlp.fc1". */
static const char *under(char buf[BK_NAME_LEN], const char *part, const char *name)
{
    snprintf(buf, BK_NAME_LEN, "%s.%s", part, name);
    return buf;
}

bk_branch bk_build_feed_forward(bk_builder *b, const char *part, bk_vid x, int64_t inner, bool has_bias)
{
    const int64_t C = b->c->hidden_size;
    char name[BK_NAME_LEN];
    const bk_linear_params fc1 =
        bk_build_linear_params(b, under(name, part, "linear_fc1"), bk_build_fc1_width(b, inner), C,
                               b->c->init_method_std, has_bias, BK_CLASS_MLP);
    const bk_vid h = bk_build_op1(
        b, &(bk_op_spec){BK_OP_linear, BK_IN(x, fc1.weight, fc1.bias), .name = under(name, part, "fc1")});
    const bk_vid a = activate(b, under(name, part, "act"), h);
    const bk_linear_params fc2 = bk_build_linear_params(b, under(name, part, "linear_fc2"), C, inner,
                                                        bk_build_output_std(b), has_bias, BK_CLASS_MLP);
    const bk_vid y =
        bk_build_op1(b, &(bk_op_spec){BK_OP_linear, BK_IN(a, fc2.weight), .name = under(name, part, "fc2")});
    return (bk_branch){y, fc2.bias};
}

bk_branch bk_build_dense_mlp(bk_builder *b, bk_vid x)
{
    return bk_build_feed_forward(b, "mlp", x, b->c->ffn_hidden_size, b->c->add_bias_linear);
}
