/* small.ir as text and as a graph, and edits of it. */
#ifndef TESTS_IR_IR_SAMPLE_H
#define TESTS_IR_IR_SAMPLE_H

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

static inline void ir_load(bk_str *out)
{
    FILE *f = fopen(BK_SOURCE_DIR "/tests/ir/small.ir", "rb");
    assert_non_null(f);
    char block[4096];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0) bk_str_append_n(out, block, n);
    fclose(f);
    assert_true(out->len > 1000 && !out->failed);
}

/* The text with the first `from`, which must be there, replaced by `to`. */
static inline void ir_edit(bk_str *out, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at) fail_msg("the sample has no '%s'", from);
    bk_str_append_n(out, text, (size_t)(at - text));
    bk_str_append(out, to);
    bk_str_append(out, at + strlen(from));
}

static inline bk_graph *ir_sample(void)
{
    bk_str text = {0};
    bk_err e = {0};
    bk_graph *g = NULL;
    ir_load(&text);
    if (bk_graph_parse(&g, text.s, (int64_t)text.len, "small.ir", &e) != BK_OK) fail_msg("%s", e.msg);
    bk_str_free(&text);
    return g;
}

#endif
