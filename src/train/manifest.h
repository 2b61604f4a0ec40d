/* The manifest of a checkpoint, a JSON file:
 *
 *     {
 *       "format_version": 1,
 *       "birkhoff_version": "0.1.0",
 *       "iteration": 100,
 *       "consumed_samples": 3200,
 *       "skipped_steps": 0,                        of nan_policy skip
 *       "line_steps": 3,                           since the last log line,
 *       "line_loss_sum": "10.25",                  and the sum of their losses
 *       "file_bytes": 123456,                      of model.safetensors
 *       "config": {"num_layers": "2", ..., "data_path": ["a", "b"]},
 *       "tensors": {"embedding.weight": {"dtype": "F32", "shape": [256, 64], "xxh3": "0123456789abcdef"}},
 *       "checksum": "fedcba9876543210"
 *     }
 *
 * xxh3 is XXH3-64 of a tensor's bytes. The last member is that of all bytes of the file before its line;
 * every version of the format keeps it there, so damage is told apart from a version that is not known.
 * Integers are at most 2^53, so that any JSON reader gets them right. */
#ifndef BK_TRAIN_MANIFEST_H
#define BK_TRAIN_MANIFEST_H

#include "base/arena.h"
#include "base/str.h"
#include "data/safetensors.h"

enum { BK_MANIFEST_VERSION = 1 };

#define BK_MANIFEST_MAX_BYTES INT64_C(100000000) /* more is taken for a broken file */

/* An option of the run. One value; a list that is not empty has as many as it has items. */
typedef struct {
    const char *name;
    const char *const *value;
    int64_t n_values;
    bool is_list;
} bk_manifest_option;

typedef struct {
    const char *name;
    bk_st_dtype dtype;
    int rank;
    int64_t shape[BK_ST_MAX_RANK];
    uint64_t checksum;
} bk_manifest_tensor;

typedef struct {
    bk_arena arena; /* of a manifest that was read: owns all below */
    const char *birkhoff_version;
    int64_t iteration, consumed_samples, skipped_steps, line_steps, file_bytes;
    double line_loss_sum;       /* finite */
    bk_manifest_option *option; /* names distinct; in the order of the file */
    int64_t n_options;
    bk_manifest_tensor *tensor; /* names distinct; sorted by name where it was read */
    int64_t n_tensors;
} bk_manifest;

/* Appends the text. The same manifest gives the same text. BK_E_INPUT: a text that is not UTF-8, a number
 * above 2^53 or below 0. BK_E_MEM. */
bk_status bk_manifest_print(bk_str *out, const bk_manifest *m, bk_err *e);

/* Reads a text of n_bytes bytes; messages begin with `label`. Nothing in it is trusted. BK_E_INPUT: a
 * checksum that does not fit, another version, anything missing, unknown, given twice, or of the wrong kind.
 */
bk_status bk_manifest_parse(bk_manifest *out, const char *text, int64_t n_bytes, const char *label,
                            bk_err *e);

/* Appends the checksum of the text so far, and the end of the file. The text is that of a JSON object up to
 * the line of its last member but one, comma included. */
void bk_manifest_seal(bk_str *text);

void bk_manifest_free(bk_manifest *m); /* {0} is fine */

/* XXH3-64. */
uint64_t bk_manifest_checksum(const void *bytes, int64_t n_bytes);

#endif
