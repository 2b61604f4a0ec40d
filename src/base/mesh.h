/* The axes along which ranks are laid out. */
#ifndef BK_BASE_MESH_H
#define BK_BASE_MESH_H

/* Tensor, context, data, expert, expert-data. Pipeline stages are chunks, not an axis. */
typedef enum { BK_AXIS_TP, BK_AXIS_CP, BK_AXIS_DP, BK_AXIS_EP, BK_AXIS_EDP, BK_N_AXES } bk_axis;

extern const char *const bk_axis_names[BK_N_AXES]; /* "tp", ... */

#endif
