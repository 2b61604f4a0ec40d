/* Megatron's mock data, for runs without any: 100,000 sequences of 1 to 4095 tokens, of which the one with n
 * tokens is 1, 2, ..., n - 1 (modulo the vocabulary) and the end of the document. */
#ifndef BK_DATA_MOCK_H
#define BK_DATA_MOCK_H

#include <stdint.h>

#include "base/err.h"
#include "data/sequences.h"

#define BK_MOCK_SPLIT "1,1,1" /* whatever split is asked for */

typedef struct {
    int32_t *lengths;
    int32_t eod;
} bk_mock;

/* Errors: BK_E_MEM. */
bk_status bk_mock_make(bk_mock *out, int32_t eod, bk_err *e);
void bk_mock_free(bk_mock *m); /* of zeros: fine */

bk_sequences bk_mock_sequences(const bk_mock *m);

#endif
