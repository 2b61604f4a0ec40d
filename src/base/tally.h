/* Multiply-adds done by matrix products (GEMM, attention, mHC projections), counted where the product is
 * issued and by the thread that issues it. The plan predicts the same number; a test holds the two together.
 */
#ifndef BK_BASE_TALLY_H
#define BK_BASE_TALLY_H

#include <stdint.h>

extern _Thread_local int64_t bk_tally_madds;

#endif
