#include "base/machine.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PATH_LEN = 8192, LINE_LEN = 4096 };

/* Where one version of Linux's control groups keeps what we ask for. */
typedef struct {
    const char *mount, *limit, *used;
    const char *cache; /* key in memory.stat */
} group_version;

static const group_version unified = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
static const group_version legacy = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                     "memory.usage_in_bytes", "total_inactive_file"};

/* The number in a file: the first, or with a key the one after that word at the start of a line. -1 if there
 * is none ("max"). */
static int64_t read_number(const char *path, const char *key)
{
    char line[LINE_LEN], word[64];
    int64_t n, found = -1;
    FILE *f = fopen(path, "r");
    while (f && found < 0 && fgets(line, sizeof line, f)) {
        const bool here = key ? sscanf(line, "%63s %" SCNd64, word, &n) == 2 && strcmp(word, key) == 0
                              : sscanf(line, "%" SCNd64, &n) == 1;
        if (here) found = n;
    }
    if (f) fclose(f);
    return found;
}

static int64_t read_in_group(const char *root, const group_version *v, const char *group, const char *file,
                             const char *key)
{
    char path[PATH_LEN];
    const int n = snprintf(path, sizeof path, "%s%s%s/%s", root, v->mount, group, file);
    return n < (int)sizeof path ? read_number(path, key) : -1;
}

/* Page cache counts as used, but what of it is inactive the kernel gives back before it refuses memory: a
 * group that has read large files is not full. */
static int64_t left_in_group(const char *root, const group_version *v, const char *group)
{
    const int64_t limit = read_in_group(root, v, group, v->limit, NULL);
    const int64_t used = read_in_group(root, v, group, v->used, NULL);
    if (limit < 0 || used < 0) return INT64_MAX;
    const int64_t cache = read_in_group(root, v, group, "memory.stat", v->cache);
    const int64_t held = cache > 0 ? used - cache : used;
    return held >= limit ? 0 : held > 0 ? limit - held : limit;
}

/* The least over a group ("/a/b", cut off at the end) and those around it. In a container the path may be
 * that of the host, of which only the root is seen; what is not there limits nothing. */
static int64_t left_in_groups(const char *root, const group_version *v, char *group)
{
    int64_t least = INT64_MAX;
    for (;;) {
        const int64_t left = left_in_group(root, v, group);
        if (left < least) least = left;
        char *cut = strrchr(group, '/');
        if (!cut) return least;
        *cut = '\0';
    }
}

/* A line of /proc/self/cgroup: number:controllers:path, the unified hierarchy without controllers. */
static int64_t left_by_line(const char *root, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return INT64_MAX;
    *group++ = '\0', controllers++;
    if (*controllers == '\0') return left_in_groups(root, &unified, group);
    return strstr(controllers, "memory") ? left_in_groups(root, &legacy, group) : INT64_MAX;
}

int64_t bk_available_memory_below(const char *root)
{
    char path[PATH_LEN], line[LINE_LEN];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const int64_t kib = read_number(path, "MemAvailable:");
    int64_t least = kib < 0 || kib > INT64_MAX / 1024 ? INT64_MAX : kib * 1024;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        const int64_t left = left_by_line(root, line);
        if (left < least) least = left;
    }
    if (f) fclose(f);
    return least;
}

int64_t bk_available_memory(void)
{
    return bk_available_memory_below("");
}

double bk_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
