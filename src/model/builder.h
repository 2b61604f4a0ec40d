/* Inside src/model: what the parts of the model append to the graph with.
 *
 * The first failure stays in `st`, with its message; every call after it does nothing and gives BK_NONE. So
 * the parts read as the model does, and bk_model_build looks at `st` once. */
#ifndef BK_MODEL_BUILDER_H
#define BK_MODEL_BUILDER_H

#include "config/config.h"
#include "ir/graph.h"
#include "layout/layout.h"
#include "model/model.h"

enum { BK_PREFIX_LEN = 64, BK_NAME_LEN = 192 };

typedef struct {
    bk_graph *g;
    const bk_config *c;
    const bk_layout *l;
    bk_model_io *io;
    bool train, generate;       /* neither: evaluation */
    bool measure;               /* with `train`: more metrics */
    bk_module module;           /* of the ops to come */
    int64_t n_moe_layers;       /* those of multi-token prediction included */
    bk_vid word_embeddings;     /* parameter [Vp, C] */
    bk_vid output_weight;       /* parameter [Vp, C], the same if tied */
    char values[BK_PREFIX_LEN]; /* stands in front of the names of values */
    char params[BK_PREFIX_LEN]; /* ... of parameters and of their aliases */
    bk_status st;
    bk_err *e;
} bk_builder;

/* Says where the next ops come from: the builder's module, `layer` or BK_NONE, forward. */
void bk_build_at(bk_builder *b, int64_t layer, bk_node node);
/* Sets the two prefixes. */
void bk_build_names(bk_builder *b, const char *values, const char *params);

/* Inputs of an op, in the initialiser of a bk_op_spec. */
#define BK_IN(...)                                                                                           \
    .in = (const bk_vid[]){__VA_ARGS__}, .n_in = (int)(sizeof((const bk_vid[]){__VA_ARGS__}) / sizeof(bk_vid))

/* Appends an op; its name gets the prefix, absent inputs at the end are cut off. `out` gets all outputs. */
void bk_build_op(bk_vid *out, bk_builder *b, const bk_op_spec *spec);
/* The same for an op with one output. */
bk_vid bk_build_op1(bk_builder *b, const bk_op_spec *spec);

/* Appends a view, its name with the prefix. */
bk_vid bk_build_view(bk_builder *b, const char *name, bk_vid base, int rank, const int64_t *dim,
                     const int64_t *stride, int64_t offset);

/* Appends an input of the host with this name, as it is, and the op that feeds it. */
bk_vid bk_build_input(bk_builder *b, const char *name, bk_dtype dtype, bk_scope scope, int rank,
                      const int64_t *dim);

/* Appends a parameter. `row` gives name and alias (both get the prefix), rank, shape, class and init; the
 * dtype is the graph's, and two or more dims mean weight decay. In module mtp a name may come again: depths
 * that share a layer get its parameters. */
bk_vid bk_build_param(bk_builder *b, const bk_param *row);

/* The state [n] of that scope named `prefix` and `name`, which is made at the first call. */
bk_vid bk_build_state(bk_builder *b, const char *prefix, const char *name, bk_scope scope, bk_dtype dtype,
                      int64_t n);

/* Weight [n_out, n_in] ~ N(0, std^2) and bias [n_out] = 0 of a linear layer; bias BK_NONE if it has none. */
typedef struct {
    bk_vid weight, bias;
} bk_linear_params;
bk_linear_params bk_build_linear_params(bk_builder *b, const char *name, int64_t n_out, int64_t n_in,
                                        double std, bool has_bias, bk_param_class class_);

/* The norm that the configuration asks for, of the last dim of x, with its parameters `param`.weight and
 * .bias; `alias`_weight and _bias are their second spelling, or NULL. */
bk_vid bk_build_norm(bk_builder *b, const char *name, bk_vid x, const char *param, const char *alias);

/* Scope of what differs from batch to batch: a generating program has no micro-batches. */
static inline bk_scope bk_build_batch_scope(const bk_builder *b)
{
    return b->generate ? BK_STEP : BK_MICRO;
}

/* p of a dropout: 0 but in training. */
double bk_build_dropout(const bk_builder *b, double p);
/* Attributes p, seed, site of an op that drops out. */
#define BK_DROPOUT(b, p, site)                                                                               \
    (bk_attr){.f = (p)}, (bk_attr){.i = (b)->c->seed}, (bk_attr)                                             \
    {                                                                                                        \
        .i = (site)                                                                                          \
    }
/* The input "samples" if p > 0. */
static inline bk_vid bk_build_samples(const bk_builder *b, double p)
{
    return p > 0 ? b->io->samples : BK_NONE;
}

#endif
