/* Safetensors files: eight bytes of header length (little-endian), a JSON header, the data of the tensors.
 *
 * The reader trusts nothing: when it returns BK_OK, every tensor's bytes lie inside the data, hold exactly
 * shape x dtype, overlap no other tensor's, and all together cover the data. It is stricter than the format
 * in three points, so that nothing is ignored silently: an entry holds dtype, shape and data_offsets alone,
 * names hold no NUL, and at most BK_ST_MAX_RANK dims are accepted.
 *
 * The writer puts a complete file in place or leaves what was there. */
#ifndef BK_DATA_SAFETENSORS_H
#define BK_DATA_SAFETENSORS_H

#include <stdint.h>

#include "base/err.h"

#define BK_ST_MAX_RANK   8
#define BK_ST_MAX_HEADER INT64_C(100000000) /* bytes of JSON; more is taken for a broken file */

/* clang-format off */
#define BK_ST_DTYPES(X) /* name in the file, bytes of an element */ \
    X(F64, 8) X(F32, 4) X(F16, 2) X(BF16, 2) X(I64, 8) X(I32, 4) X(I16, 2) X(I8, 1) \
    X(U8, 1)  X(U16, 2) X(U32, 4) X(U64, 8)  X(BOOL, 1)

typedef enum {
#define BK_ST_ENUM(name, size) BK_ST_##name,
    BK_ST_DTYPES(BK_ST_ENUM)
#undef BK_ST_ENUM
    BK_ST_N_DTYPES
} bk_st_dtype;
/* clang-format on */

typedef struct {
    const char *name; /* UTF-8 */
    bk_st_dtype dtype;
    int rank; /* 0 is a scalar: one element */
    int64_t shape[BK_ST_MAX_RANK];
    int64_t bytes;    /* product of shape times the element size */
    const void *data; /* row-major; not aligned if the file comes from elsewhere */
} bk_st_tensor;

typedef struct {
    const char *key, *value; /* UTF-8 */
} bk_st_pair;

typedef struct bk_st bk_st;

/* Maps the file and checks its header. The file must not shrink while `*out` lives.
 * Errors: BK_E_IO the file cannot be read, BK_E_INPUT it is not a valid safetensors file, BK_E_MEM. */
bk_status bk_st_open(bk_st **out, const char *path, bk_err *e);

/* The same for bytes in memory, which are borrowed until bk_st_free. `label` stands in messages where a path
 * would. */
bk_status bk_st_from_memory(bk_st **out, const void *bytes, int64_t n_bytes, const char *label, bk_err *e);

void bk_st_free(bk_st *st); /* NULL is fine */

/* Tensors sorted by name (byte order), 0 <= idx < bk_st_count. Borrowed from `st`. */
int64_t bk_st_count(const bk_st *st);
const bk_st_tensor *bk_st_at(const bk_st *st, int64_t idx);
const bk_st_tensor *bk_st_find(const bk_st *st, const char *name); /* NULL if there is none */

/* Puts two tensors in the place of one: its first `rows` rows, and the others. The data stay where they are,
 * names are copied; tensors found before are no longer valid. BK_E_INPUT, with nothing changed: there is no
 * such tensor, it has no dims or fewer rows, or a name is taken. */
bk_status bk_st_split(bk_st *st, const char *name, int64_t rows, const char *first, const char *others,
                      bk_err *e);

/* The strings of __metadata__, sorted by key. Borrowed from `st`. */
int64_t bk_st_meta_count(const bk_st *st);
const bk_st_pair *bk_st_meta_at(const bk_st *st, int64_t idx);
const char *bk_st_meta(const bk_st *st, const char *key); /* NULL if there is none */

const char *bk_st_dtype_name(bk_st_dtype dtype);
int bk_st_dtype_size(bk_st_dtype dtype);
int64_t bk_st_n_elems(const bk_st_tensor *t);

/* Converts all elements of an F64, F32, F16 or BF16 tensor; out has bk_st_n_elems(t) elements. Exact, but for
 * F64 to float, which rounds to nearest even. Errors: BK_E_INPUT for another dtype. */
bk_status bk_st_to_f64(double *out, const bk_st_tensor *t, bk_err *e);
bk_status bk_st_to_f32(float *out, const bk_st_tensor *t, bk_err *e);

/* Writes a file: to a temporary name in the folder of `path`, synced, then renamed to `path`. On failure the
 * temporary file is removed and a file that stood at `path` is untouched. The data are ordered so that each
 * tensor is aligned to its element, and to 8 bytes wherever its size and those before it allow; the same
 * arguments in any order give the same bytes.
 *   tensors  [n_tensors]  names distinct, bytes as the shape says; data may be NULL if bytes is 0
 *   meta     [n_meta]     keys distinct; NULL if n_meta is 0
 * Errors: BK_E_INPUT bad arguments (nothing is written), BK_E_IO, BK_E_MEM. */
bk_status bk_st_write(const char *path, const bk_st_tensor *tensors, int64_t n_tensors,
                      const bk_st_pair *meta, int64_t n_meta, bk_err *e);

#endif
