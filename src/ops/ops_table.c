/* The table of all op kinds, made from ir/ops.def, and the reader of its column of attributes. */
#include "ops/rules.h"

#include <string.h>

const bk_op_info bk_ops[BK_N_OPS] = {
#define BK_OP(name, ...) [BK_OP_##name] = {#name, __VA_ARGS__, &bk_##name##_rules},
#include "ir/ops.def"
#undef BK_OP
};

/* Attribute names are "name:type" with one space between; the next one, or NULL at the end. */
static const char *next_attr(const char *at)
{
    const char *space = strchr(at, ' ');
    return space ? space + 1 : NULL;
}

int bk_attr_count(bk_op_kind kind)
{
    int n = 0;
    for (const char *at = bk_ops[kind].attrs; at && *at; at = next_attr(at)) n++;
    return n;
}

const char *bk_attr_name(int *len, bool *is_float, bk_op_kind kind, int i)
{
    const char *at = bk_ops[kind].attrs;
    while (i-- > 0 && at) at = next_attr(at);
    const char *colon = at ? strchr(at, ':') : NULL;
    if (!colon) return NULL;
    *len = (int)(colon - at);
    if (is_float) *is_float = colon[1] == 'f';
    return at;
}

int bk_attr_index(bk_op_kind kind, const char *name, bool *is_float)
{
    const int n = bk_attr_count(kind);
    for (int i = 0; i < n; i++) {
        int len = 0;
        bool f = false;
        const char *at = bk_attr_name(&len, &f, kind, i);
        if ((size_t)len != strlen(name) || memcmp(at, name, (size_t)len) != 0) continue;
        if (is_float) *is_float = f;
        return i;
    }
    return BK_NONE;
}
