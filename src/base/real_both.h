/* Declares the float and the double functions of a kernel header. Use:
 *     #define BK_BOTH "ops/norm/norm_cpu.h"
 *     #include "base/real_both.h"
 * (no include guard: once for each header). Call one of the two with BK_REAL_CALL(is_f64, bk_name, args...).
 */
#undef BK_R
#define real       float
#define BK_R(name) name##_f32
#include BK_BOTH
#undef real
#undef BK_R
#define real       double
#define BK_R(name) name##_f64
#include BK_BOTH
#undef real
#undef BK_R
#undef BK_BOTH

#ifndef BK_REAL_CALL
#define BK_REAL_CALL(is_f64, name, ...) ((is_f64) ? name##_f64(__VA_ARGS__) : name##_f32(__VA_ARGS__))
#endif
