/* Where the rows of experts come from and how many there may be; shared by the rules and the kernels of both
 * scalar types. */
#ifndef BK_OPS_MOE_ROUTE_H
#define BK_OPS_MOE_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t first, local; /* experts first .. first + local - 1 have rows */
    int64_t rows;         /* room for rows */
    int64_t capacity;     /* rows that an expert keeps; 0: all */
    bool pad;             /* every expert has `capacity` rows, some of them empty */
    bool by_position;     /* kept are the first tokens, otherwise the most probable */
} bk_route_room;

#endif
