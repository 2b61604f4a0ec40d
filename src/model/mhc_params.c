#include "model/mhc_params.h"

#include <stdio.h>

static bk_vid vector(bk_builder *b, const char *prefix, const char *which, int64_t size, bk_init_rule init,
                     double arg)
{
    char name[BK_NAME_LEN];
    snprintf(name, sizeof name, "%s%s", prefix, which);
    return bk_build_param(
        b,
        &(bk_param){
            .name = name, .rank = 1, .shape = {size}, .class_ = BK_CLASS_MHC, .init = init, .init_arg = arg});
}

static bk_vid matrix(bk_builder *b, const char *prefix, const char *which, int64_t n_rows, int64_t n_cols)
{
    char name[BK_NAME_LEN];
    snprintf(name, sizeof name, "%s%s", prefix, which);
    return bk_build_param(b, &(bk_param){.name = name,
                                         .rank = 2,
                                         .shape = {n_rows, n_cols},
                                         .class_ = BK_CLASS_MHC,
                                         .init = BK_INIT_XAVIER});
}

bk_mhc_params bk_build_mhc_params(bk_builder *b, const char *prefix, int64_t n, int64_t C, double gate)
{
    const int64_t n_rows = n * n + 2 * n;
    bk_mhc_params p;
    p.mapping = matrix(b, prefix, "mapping_proj.weight", n_rows, n * C);
    p.alpha_pre = vector(b, prefix, "alpha_pre", 1, BK_INIT_CONST, gate);
    p.alpha_post = vector(b, prefix, "alpha_post", 1, BK_INIT_CONST, gate);
    p.alpha_res = vector(b, prefix, "alpha_res", 1, BK_INIT_CONST, gate);
    p.bias = vector(b, prefix, "bias", n_rows, BK_INIT_ZERO, 0);
    return p;
}

bk_mhc_head_params bk_build_mhc_head_params(bk_builder *b, const char *prefix, int64_t n, int64_t C)
{
    bk_mhc_head_params p;
    p.fn = matrix(b, prefix, "fn", n, n * C);
    p.base = vector(b, prefix, "base", n, BK_INIT_ZERO, 0);
    p.scale = vector(b, prefix, "scale", 1, BK_INIT_ONE, 0);
    return p;
}
