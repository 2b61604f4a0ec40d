#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"
#include "temp_folder.h"

/* Writes a file and the folders above it; the root of a made-up system is the current folder. */
static void put(const char *path, const char *text)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = strchr(folder, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(folder, 0777);
        *at = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_group(const char *folder, const char *limit, const char *used, const char *stat)
{
    char path[256];
    const char *const files[][2] = {{"memory.max", limit}, {"memory.current", used}, {"memory.stat", stat}};
    for (int k = 0; k < 3; k++) {
        snprintf(path, sizeof path, "sys/fs/cgroup%s/%s", folder, files[k][0]);
        put(path, files[k][1]);
    }
}

static const char *const meminfo = "MemTotal:       8388608 kB\nMemFree:          100000 kB\n"
                                   "MemAvailable:    4194304 kB\n";

static void test_machine__this_one_has_memory(void **state)
{
    (void)state;
    const int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    assert_true(bk_available_memory() > 0 && bk_available_memory() <= all);
}

static void test_machine__a_silent_system_has_no_limit(void **state)
{
    (void)state;
    assert_true(bk_available_memory_below(".") == INT64_MAX);
    put("proc/meminfo", "MemTotal: 12 kB\n");
    put("proc/self/cgroup", "nonsense\n::\n0::/gone\n");
    assert_true(bk_available_memory_below(".") == INT64_MAX);
}

static void test_machine__what_the_kernel_calls_available(void **state)
{
    (void)state;
    put("proc/meminfo", meminfo);
    assert_true(bk_available_memory_below(".") == INT64_C(4) << 30);
    put("proc/self/cgroup", "0::/\n");
    put_group("", "max\n", "1000000\n", "");
    assert_true(bk_available_memory_below(".") == INT64_C(4) << 30);
}

static void test_machine__the_tightest_group_counts(void **state)
{
    (void)state;
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "0::/job/step\n");
    put_group("/job/step", "3000000000\n", "1000000000\n", "");
    assert_int_equal(bk_available_memory_below("."), 2000000000);
    put_group("/job", "2500000000\n", "1000000000\n", "");
    assert_int_equal(bk_available_memory_below("."), 1500000000);
    put_group("", "1200000000\n", "1100000000\n", "");
    assert_int_equal(bk_available_memory_below("."), 100000000);
    put_group("/job/step", "3000000000\n", "3100000000\n", "");
    assert_int_equal(bk_available_memory_below("."), 0);
}

/* A group that has read files is not full. */
static void test_machine__page_cache_can_be_had_back(void **state)
{
    (void)state;
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "0::/\n");
    put_group("", "2000000000\n", "1900000000\n", "anon 100\nactive_file 7\ninactive_file 1500000000\n");
    assert_int_equal(bk_available_memory_below("."), 1600000000);
    put_group("", "2000000000\n", "1000\n", "inactive_file 5000\n");
    assert_int_equal(bk_available_memory_below("."), 2000000000);
}

static void test_machine__groups_of_the_first_version(void **state)
{
    (void)state;
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/host/path/of/a/container\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
    assert_true(bk_available_memory_below(".") == INT64_C(4) << 30);
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000000\n");
    put("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 200000000\n");
    assert_int_equal(bk_available_memory_below("."), 600000000);
}

static void test_machine__the_clock_moves_forward(void **state)
{
    (void)state;
    const double before = bk_now();
    usleep(2000);
    assert_true(bk_now() - before >= 0.002);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_machine__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(this_one_has_memory),
        TEST(a_silent_system_has_no_limit),
        TEST(what_the_kernel_calls_available),
        TEST(the_tightest_group_counts),
        TEST(page_cache_can_be_had_back),
        TEST(groups_of_the_first_version),
        TEST(the_clock_moves_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
