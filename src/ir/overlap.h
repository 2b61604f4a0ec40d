/* Do two values of one storage share elements? */
#ifndef BK_IR_OVERLAP_H
#define BK_IR_OVERLAP_H

#include "ir/graph.h"

/* True if a and b, views of one base or the base itself, have an element in common. Exact for strides as
 * tensors have them; where the answer would take too long (strides that nearly divide each other), true. */
bool bk_values_overlap(const bk_value *a, const bk_value *b);

/* Offset of the last element (0 <= dims, 0 <= strides); -1 for no elements or where it does not fit. */
int64_t bk_value_last_element(const bk_value *v);

#endif
