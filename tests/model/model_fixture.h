/* A model built from the text of a configuration, for tests. */
#ifndef TESTS_MODEL_MODEL_FIXTURE_H
#define TESTS_MODEL_MODEL_FIXTURE_H

#include <string.h>

#include "base/str.h"
#include "ir/verify.h"
#include "model/model.h"

typedef struct {
    bk_config c;
    bk_layout l;
    bk_graph *g;
    bk_model_io io;
} model_fixture;

static inline void model_build_read(model_fixture *f, bk_model_mode mode)
{
    bk_err e = {0};
    if (bk_config_resolve(&f->c, &e) != BK_OK ||
        bk_layout_resolve(&f->l, &f->c, bk_layout_ranks(&f->c), &e) != BK_OK ||
        bk_graph_new(&f->g, BK_F32, &e) != BK_OK ||
        bk_model_build(&f->io, f->g, &f->c, &f->l, mode, &e) != BK_OK)
        fail_msg("%s", e.msg);
}

/* From YAML text, which JSON is too; `more` is read after `text` and overrides it. */
static inline void model_build_text(model_fixture *f, const char *text, const char *more, bk_model_mode mode)
{
    bk_err e = {0};
    *f = (model_fixture){0};
    bk_config_init(&f->c);
    if (bk_config_read_yaml_memory(&f->c, text, strlen(text), "text", &e) != BK_OK ||
        bk_config_read_yaml_memory(&f->c, more, strlen(more), "more", &e) != BK_OK)
        fail_msg("%s", e.msg);
    model_build_read(f, mode);
}

static inline void model_free(model_fixture *f)
{
    bk_graph_free(f->g);
    bk_config_free(&f->c);
}

/* The kinds of all ops in plain order, a line for each run of one tag. */
static inline void model_outline(bk_str *out, const bk_graph *g)
{
    for (int64_t i = 0; i < g->n_ops; i++) {
        char tag[64];
        const bk_op *op = &g->op[i];
        if (i == 0 || memcmp(&op->tag, &op[-1].tag, sizeof op->tag) != 0)
            bk_str_appendf(out, "%s%s:", i ? "\n" : "", bk_tag_name(tag, sizeof tag, op->tag));
        bk_str_appendf(out, " %s", bk_ops[op->kind].name);
    }
}

/* The graph verifies, and this is its outline. */
static inline void model_outlined(const char *config, const char *more, bk_model_mode mode,
                                  const char *expected)
{
    model_fixture f;
    bk_str text = {0};
    bk_err e = {0};
    model_build_text(&f, config, more, mode);
    model_outline(&text, f.g);
    assert_string_equal(bk_str_text(&text), expected);
    if (bk_graph_verify(f.g, &e) != BK_OK) fail_msg("%s", e.msg);
    bk_str_free(&text);
    model_free(&f);
}

static inline const bk_param *model_param(const bk_graph *g, const char *name)
{
    for (int64_t i = 0; i < g->n_params; i++)
        if (strcmp(g->param[i].name, name) == 0) return &g->param[i];
    return NULL;
}

static inline int64_t model_param_elements(const bk_graph *g)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->n_params; i++) n += bk_elements(&g->value[g->param[i].value]);
    return n;
}

#endif
