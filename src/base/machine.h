/* What the machine under the process offers. */
#ifndef BK_BASE_MACHINE_H
#define BK_BASE_MACHINE_H

#include <stdint.h>

/* Bytes that this process may still take: what the kernel calls available, or what is left below the limits
 * of its control groups where that is less. INT64_MAX where the system does not say. */
int64_t bk_available_memory(void);

/* Seconds of a clock that only moves forward. */
double bk_now(void);

#endif
