/* The pace of this machine's arithmetic, to compare a step's with. */
#ifndef BK_BASE_FLOPS_H
#define BK_BASE_FLOPS_H

/* Floating-point operations a second, two for a multiply-add, that the threads of an OpenMP region reach
 * together with chains of independent multiply-adds in registers, in the widest vectors that the kernels are
 * compiled for: the most that a kernel could reach on these threads. The best of several windows within about
 * `seconds` (0.1 will do), counted in the time that the threads have a processor: other programs do not lower
 * it, but for what they do to its clock. In float and in double. */
double bk_measure_flops_f32(double seconds);
double bk_measure_flops_f64(double seconds);

#endif
