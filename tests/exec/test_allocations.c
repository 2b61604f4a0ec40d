/* From the third step on our code allocates nothing. The linker sends every call that it makes to the
 * allocator, to mmap and to pthread_create through the functions below (--wrap); calls inside libraries are
 * not ours. */
#include "train/small_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

static _Atomic int64_t n_calls;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x);

void *__wrap_malloc(size_t n)
{
    n_calls++;
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    n_calls++;
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    n_calls++;
    return __real_realloc(p, n);
}
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    n_calls++;
    return __real_mmap(at, n, prot, flags, fd, offset);
}
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x)
{
    n_calls++;
    return __real_pthread_create(t, a, f, x);
}

static void test_allocations__none_from_the_third_step_on(void **state)
{
    (void)state;
    small_run r;
    bk_err e = {0};
    small_run_graphs(&r, "hidden_dropout: 0.1\nattention_dropout: 0.1\n", 2, BK_F32);
    small_run_open(&r);
    assert_true(n_calls > 0); /* the count works */
    const bk_plan *p = r.session.program[0].p;
    for (r.step = 1; r.step <= 2; r.step++) must(bk_exec_run(r.session.exec, p, &r.host, &e), &e);
    const int64_t before = n_calls;
    for (; r.step <= 6; r.step++) must(bk_exec_run(r.session.exec, p, &r.host, &e), &e);
    assert_int_equal(n_calls, before);
    small_run_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocations__none_from_the_third_step_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
