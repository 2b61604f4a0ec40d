/* Metrics as JSON lines: one object a line, its "kind" first.
 *
 *     {"kind":"run","birkhoff":"0.1.0","commit":"...","config_hash":"16 hex digits","first_iteration":1,
 *      "time":1700000000}                                                             (seconds since 1970)
 *     {"kind":"step","iteration":1,"consumed_samples":8,"loss":5.5,"grad_norm":...,"learning_rate":...,
 *      "tokens_per_s":...,"tflops":...,"seconds":...}        (and the losses beside that of the language
 *                                                              model, such as "mtp_1_loss")
 *     {"kind":"validation","iteration":100,"consumed_samples":800,
 *      "validation_loss":...,"validation_ppl":...}
 *     {"kind":"health","iteration":100,"consumed_samples":800,"layers":[{"layer":"decoder.layers.0",
 *      "experts":{"least":3,...},"hc":{"attention":{"row_error":...},"mlp":{...}}},...]}
 *     {"kind":"room","iteration":4,"rows":96,"room_before":64,"room":120}    (the step is done again with
 *                                                                     room for more rows of routed tokens)
 *
 * docs/logs.md says what each key is. Each on a line of its own. Reals have 17 digits, so that they read back
 * to the same bits; what JSON has no number for (NaN, infinities) is null. A run appends: a resumed one goes
 * on in the same file. */
#ifndef BK_TRAIN_JSONL_H
#define BK_TRAIN_JSONL_H

#include "base/str.h"
#include "train/log_file.h"
#include "train/metric_values.h"

/* {0} is closed. */
typedef struct {
    bk_log_file file;
    bk_str line;
} bk_jsonl;

/* Opens the file for appending. After a last line that was cut off, a new line begins. BK_E_IO. */
bk_status bk_jsonl_open(bk_jsonl *j, const char *path, bk_err *e);

/* One line each. BK_E_IO when it could not be written whole; the file then ends with the line before. */
bk_status bk_jsonl_run(bk_jsonl *j, const bk_run_values *v, bk_err *e);
bk_status bk_jsonl_step(bk_jsonl *j, const bk_step_values *v, bk_err *e);
bk_status bk_jsonl_evaluation(bk_jsonl *j, const bk_evaluation_values *v, bk_err *e);
bk_status bk_jsonl_health(bk_jsonl *j, const bk_health_values *v, bk_err *e);
bk_status bk_jsonl_room(bk_jsonl *j, const bk_room_values *v, bk_err *e);

/* Closes in any case; a closed one is fine. */
bk_status bk_jsonl_close(bk_jsonl *j, bk_err *e);

#endif
