/* From the configuration to the graph of the whole model: inputs, parameters, forward ops, losses, metrics.
 * Gradients, the optimizer and everything else of a step are appended by passes, of which this module knows
 * nothing.
 *
 *     what                                                                                 node of the tag
 *     tokens -> embedding (+ positions, dropout) -> expand to n streams                    pre_process
 *     each layer:  streams -> [map, aggregate] -> norm -> attention -> [post] -> streams   attn
 *                  streams -> [map, aggregate] -> norm -> mlp       -> [post] -> streams   mlp
 *     contract to one stream, final norm                                                   the last mlp
 *     output layer -> cross entropy -> masked mean, metrics                                post_process
 *     in training the depths of multi-token prediction (mtp.c), of module mtp: each
 *     embedding, norms, projections, attention                                             attn
 *     feed-forward part                                                                    mlp
 *     contract to one stream, final norm                                                   mtp_post_process
 *     output layer, its loss                                                               post_process
 *
 * For generation the graph runs S new tokens of a sequence that was begun before: keys and values of all
 * tokens are kept in caches of scope run, and of the logits there are those of the last token alone.
 *
 * Without hyper-connections there is one stream, nothing to expand or contract, and the brackets become a
 * residual addition. */
#ifndef BK_MODEL_MODEL_H
#define BK_MODEL_MODEL_H

#include "base/err.h"
#include "config/config.h"
#include "ir/graph.h"
#include "layout/layout.h"

/* Measuring is training, to the same bits, with more metrics: those of each layer's streams and losses.
 * In evaluation nothing is dropped out and the loss gets no seed. In generation there is no loss either:
 * every input is of scope step, the tokens [B, S] stand at positions position .. position + S - 1, and each
 * layer has the states "cache.k.layerI" and "cache.v.layerI" [M, B, G, d] of scope run, M =
 * config.seq_length. S is layout.seq and may be any number up to M. */
typedef enum { BK_MODEL_TRAIN, BK_MODEL_MEASURE, BK_MODEL_EVALUATE, BK_MODEL_GENERATE } bk_model_mode;

static inline bool bk_model_trains(bk_model_mode mode)
{
    return mode == BK_MODEL_TRAIN || mode == BK_MODEL_MEASURE;
}

/* Whether there is more to measure than training measures by itself. */
bool bk_model_can_measure(const bk_config *c);

/* How a metric is gathered over the micro-batches of a step (and over ranks). It stands in the name of its
 * state: "metric.NAME", "metric.sum.NAME", "metric.max.NAME". The state of a mean holds the sum. */
typedef enum { BK_METRIC_MEAN, BK_METRIC_SUM, BK_METRIC_MAX, BK_N_METRIC_KINDS } bk_metric_kind;

/* NAME and kind of the metric in a state of this name, part of `value`; NULL if it is none. */
const char *bk_metric_of(bk_metric_kind *kind, const char *value);

/* Metrics of one layer are named as its parameters: "decoder.layers.0.", a part of the layer, the metric. */
#define BK_PART_ROUTER       "mlp.router."
#define BK_PART_ATTENTION_HC "self_attention_hyper_connection."
#define BK_PART_MLP_HC       "mlp_hyper_connection."
/* Of a router, a sum [E]; beside it the mean [1] of each of its losses, where there is measuring. */
#define BK_METRIC_TOKENS "tokens_per_expert"
/* Of a hyper-connection, a maximum [2] and a mean [2 + n]: the outputs of mhc_health. */
#define BK_METRIC_WORST  "health.worst"
#define BK_METRIC_HEALTH "health.mean"

/* The part in the NAME of a layer's metric, and as `figure` what stands behind it; NULL for metrics of the
 * whole model. Both are parts of `name`. */
const char *bk_metric_part(const char **figure, const char *name);

/* What the names of states of the run begin with that belong to one sequence being generated. */
#define BK_CACHE "cache."

/* One of the scalars that training minimises: `of` [1], coefficient included in its upstream gradient `seed`.
 */
typedef struct {
    bk_vid of, seed;
    double coeff; /* seed = coeff * loss_seed */
} bk_model_loss;

enum { BK_MAX_LOSSES = 1024 };

/* A router's bias in the choice of experts, state [E] of the run, and how often each expert was chosen in
 * this step, state [E]. */
typedef struct {
    bk_vid bias, counts;
} bk_model_bias;

/* Values of the graph that others need. S positions, B samples, C width, n streams, Vp padded vocabulary. */
typedef struct {
    bk_vid tokens;    /* input  [B, S] i32 "tokens" */
    bk_vid labels;    /* input  [B, S] i32 "labels": the token to predict at each position */
    bk_vid loss_mask; /* input  [B, S] "loss_mask": weight of each position in the loss, 0 or 1 */
    bk_vid samples;   /* input  [B] i64 "samples": number of each sample in the run, the key of its dropout;
                         BK_NONE where nothing is dropped */
    bk_vid loss_seed; /* input  [1] "loss_seed", of scope step: the gradient of the scalar that is minimised
                         with respect to `loss`; BK_NONE in evaluation */
    bk_vid position; /* input  [1] i64 "position", of scope step: that of the first token, and how many tokens
                        the caches hold; BK_NONE but in generation */
    bk_vid rope_cos, rope_sin; /* [S, dims/2] of scope step: the tables that heads turn by; BK_NONE where they
                                  do not turn */
    bk_vid loss;               /* [1]     mean of token_loss over the mask */
    bk_vid token_loss;         /* [B, S]  cross entropy, not masked */
    bk_vid logits;   /* [S, B, Vp]; in generation [1, B, Vp], those of the last token, handed to the host */
    bk_vid hidden;   /* [S, B, C]  after the final norm */
    bk_vid loss_sum; /* state [1] "metric.sum.loss_sum": sum of masked token losses of the step */
    bk_vid n_tokens; /* state [1] "metric.sum.n_tokens": sum of the mask */
    bk_model_loss *losses; /* [n_losses] in training; owned by the graph's arena, as are the other lists */
    int n_losses;
    bk_model_bias *biases; /* [n_biases] in training */
    int n_biases;
    bk_vid excess;   /* state [1] i64 "metric.max.routed_excess": rows of tokens that found no room, of the
                        layer and micro-batch with most of them; BK_NONE where there is room for all */
    bk_vid *choices; /* [n_choices] in training: chosen experts, rows of tokens, counts; whole numbers that
                        jump where a parameter passes a tie, and through which no gradient flows */
    int64_t n_choices;
    const bk_vid *layer_out; /* [n_layers] outputs of the layers: [S, B, n, C], without mHC [S, B, C]; owned
                                by the graph's arena */
    int64_t n_layers;
} bk_model_io;

/* Appends the model to an empty graph (which gives the dtype of activations and parameters). The
 * configuration is a resolved one. Every parameter of the model is a row of g->param afterwards. Errors come
 * from the rules of the ops (BK_E_INPUT, BK_E_CHECK) or from memory. */
bk_status bk_model_build(bk_model_io *out, bk_graph *g, const bk_config *c, const bk_layout *l,
                         bk_model_mode mode, bk_err *e);

#define BK_PROBE_OBJECTIVE "objective"
#define BK_PROBE_CHOICES   "choices"

/* Appends an op that hands a value to the host in each micro-batch, and gives its id. Names: "act.layerI" (0
 * <= I < n_layers), "out.loss", "out.token_loss", "logits", "hidden", where heads turn
 * "rope.cos" and "rope.sin" (once a step), and in training BK_PROBE_OBJECTIVE, the
 * scalar whose gradient it follows: every loss times its coefficient. BK_PROBE_CHOICES appends an op for each
 * of io.choices and gives the last (BK_NONE if there are none). BK_E_INPUT for another. */
bk_status bk_model_probe(bk_vid *out, bk_graph *g, const bk_model_io *io, const char *name, bk_err *e);

/* Sites of dropout: what tells the draws of one layer apart (ops.def, base/philox.h). */
typedef enum {
    BK_SITE_EMBEDDING,
    BK_SITE_ATTENTION_PROBS,
    BK_SITE_ATTENTION_OUT,
    BK_SITE_MLP_OUT,
} bk_site;

#endif
