/* What the machine under the process offers. */
#ifndef BK_BASE_MACHINE_H
#define BK_BASE_MACHINE_H

#include <stdint.h>

/* Bytes that this process may still take: what the kernel calls available, or what is left below the limit of
 * its control group, or of one around that, where it is less. INT64_MAX where the system does not say. */
int64_t bk_available_memory(void);

/* The same for a system whose /proc and /sys stand in a folder; "" is the one we run on. */
int64_t bk_available_memory_below(const char *root);

/* Seconds of a clock that only moves forward. */
double bk_now(void);

#endif
