#include "base/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* A file that holds one number; -1 if there is none ("max"). */
static int64_t read_number(const char *path)
{
    FILE *f = fopen(path, "r");
    int64_t n = -1;
    if (f && fscanf(f, "%" SCNd64, &n) != 1) n = -1;
    if (f) fclose(f);
    return n;
}

static int64_t below_limit(int64_t available, const char *limit_path, const char *used_path)
{
    const int64_t limit = read_number(limit_path), used = read_number(used_path);
    if (limit < 0 || used < 0) return available;
    const int64_t left = limit > used ? limit - used : 0;
    return left < available ? left : available;
}

int64_t bk_available_memory(void)
{
    int64_t available = INT64_MAX, kib;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNd64 " kB", &kib) == 1) available = kib * 1024;
    if (f) fclose(f);
    available = below_limit(available, "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
    return below_limit(available, "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                       "/sys/fs/cgroup/memory/memory.usage_in_bytes");
}

double bk_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
