/* The processor's multiply-add pace, compiled as the kernels are: once in float, once in double. */
#include "base/flops.h"

#include <math.h>
#include <time.h>

#include "base/machine.h"
#include "base/real.h"

double BK_R(bk_measure_flops)(double seconds);

/* Enough chains that two units of four or five cycles never wait, few enough to stay in 16 registers with the
 * two factors. Without fused multiply-add the compiler makes two instructions of one, as in the kernels. */
enum { CHAINS = 12, ROUNDS = 2048, WINDOWS = 8 };

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
typedef real vector __attribute__((vector_size(VECTOR_BYTES)));
enum { VECTOR_LEN = VECTOR_BYTES / sizeof(real) };

/* chain <- chain a + b, ROUNDS times. With 0 < a < 1 the chains go to b/(1-a): they neither overflow nor
 * become denormal. */
static void multiply_add(vector chain[CHAINS], vector a, vector b)
{
    vector c[CHAINS];
    for (int k = 0; k < CHAINS; k++) c[k] = chain[k];
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < CHAINS; k++) c[k] = c[k] * a + b;
    for (int k = 0; k < CHAINS; k++) chain[k] = c[k];
}

/* Seconds that this thread has had a processor. */
static double thread_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Operations a second of this thread, while it has a processor: what other programs take does not count. What
 * the compiler must not know: the factors, and that nobody asks for the result. */
static double pace(double seconds)
{
    volatile const real factor = (real)0.75, term = (real)0.25;
    volatile real sink;
    vector a = {0}, b = {0}, chain[CHAINS];
    for (int l = 0; l < VECTOR_LEN; l++) a[l] = factor, b[l] = term;
    for (int k = 0; k < CHAINS; k++) chain[k] = a * (real)k;
    double n_calls = 0;
    const double start = bk_now(), start_of_thread = thread_time();
    do {
        multiply_add(chain, a, b);
        n_calls++;
    } while (bk_now() - start < seconds);
    const double spent = fmax(thread_time() - start_of_thread, 1e-9); /* the clock's grain */
    for (int k = 0; k < CHAINS; k++) sink = chain[k][0];
    (void)sink;
    return n_calls * 2.0 * ROUNDS * CHAINS * VECTOR_LEN / spent;
}

double BK_R(bk_measure_flops)(double seconds)
{
    double best = 0;
    for (int w = 0; w < WINDOWS; w++) {
        double sum = 0;
#pragma omp parallel
        {
#pragma omp barrier
            const double mine = pace(seconds / WINDOWS);
#pragma omp atomic
            sum += mine;
        }
        best = fmax(best, sum);
    }
    return best;
}
