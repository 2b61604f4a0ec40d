/* What this machine can do at most, measured: the floors of the tables stand on it. */
#ifndef BK_BENCH_PEAKS_H
#define BK_BENCH_PEAKS_H

typedef struct {
    double fma_flops;  /* fp32 multiply-adds in registers, two flops each, per second */
    double copy_bytes; /* bytes read and written by a copy beyond the caches, per second */
} bk_peaks;

/* Best of several short runs on the OpenMP threads of the process, each timed by its own processor time, so
 * that other work on the machine disturbs little; takes about a second. copy_bytes is 0 when there is no
 * memory for the copy. */
bk_peaks bk_peaks_measure(void);

#endif
