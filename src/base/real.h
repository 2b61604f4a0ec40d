/* The scalar type of the CPU kernels. A file *_cpu.c is compiled twice, once with BK_REAL_F32 and once with
 * BK_REAL_F64; BK_R(bk_gemm) is bk_gemm_f32 in the one and bk_gemm_f64 in the other. A kernel's header is
 * written over `real` as well and begins with #ifndef BK_R #include "base/real.h" #endif and has no include
 * guard, so that base/real_both.h can declare both sets of functions to a caller. */
#ifndef BK_BASE_REAL_H
#define BK_BASE_REAL_H

#ifdef BK_REAL_F64
typedef double real;
#define BK_R(name)  name##_f64
#define BK_REAL_EPS 2.2204460492503131e-16
#else
typedef float real;
#define BK_R(name)  name##_f32
#define BK_REAL_EPS 1.1920928955078125e-07f
#endif

#endif
