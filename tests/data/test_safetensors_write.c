#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/safetensors.h"

static int enter_new_folder(void **state)
{
    char *folder = strdup("/tmp/birkhoff-test-XXXXXX");
    *state = folder;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int count_entries(void)
{
    int n = 0;
    DIR *d = opendir(".");
    for (struct dirent *f = readdir(d); f; f = readdir(d)) n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

static int remove_folder(void **state)
{
    DIR *d = opendir(".");
    for (struct dirent *f = readdir(d); f; f = readdir(d)) unlinkat(dirfd(d), f->d_name, 0);
    closedir(d);
    const int rc = chdir("/") + rmdir(*state);
    free(*state);
    return rc;
}

static char *read_whole(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *bytes = malloc(4096);
    *n = fread(bytes, 1, 4096, f);
    fclose(f);
    return bytes;
}

static const double weights[3] = {1.0, -2.5, 0x1p-1074};
static const float bias[3] = {0.5f, 1e30f, -0.0f};
static const uint16_t half[1] = {0x3C00};
static const int8_t flags[3] = {1, 0, -1};
static const bk_st_tensor some[5] = {
    {.name = "flags", .dtype = BK_ST_I8, .rank = 1, .shape = {3}, .bytes = 3, .data = flags},
    {.name = "half", .dtype = BK_ST_F16, .rank = 0, .bytes = 2, .data = half},
    {.name = "layer.0 \"q\"\\\n\xC3\xA9",
     .dtype = BK_ST_F32,
     .rank = 2,
     .shape = {1, 3},
     .bytes = 12,
     .data = bias},
    {.name = "weights", .dtype = BK_ST_F64, .rank = 1, .shape = {3}, .bytes = 24, .data = weights},
    {.name = "none", .dtype = BK_ST_BF16, .rank = 2, .shape = {0, 7}, .bytes = 0, .data = NULL},
};
static const bk_st_pair pairs[2] = {{"step", "1e3"}, {"note", "tab\t, \x01, \"quoted\""}};

static void test_safetensors_write__reads_back_what_was_written(void **state)
{
    (void)state;
    bk_err e = {0};
    if (bk_st_write("a.st", some, 5, pairs, 2, &e) != BK_OK) fail_msg("%s", e.msg);
    bk_st *st = NULL;
    if (bk_st_open(&st, "a.st", &e) != BK_OK) fail_msg("%s", e.msg);
    assert_int_equal(bk_st_count(st), 5);
    for (int i = 0; i < 5; i++) {
        const bk_st_tensor *t = bk_st_find(st, some[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, some[i].dtype);
        assert_int_equal(t->rank, some[i].rank);
        assert_memory_equal(t->shape, some[i].shape, sizeof t->shape);
        assert_int_equal(t->bytes, some[i].bytes);
        if (t->bytes) assert_memory_equal(t->data, some[i].data, (size_t)t->bytes);
        assert_int_equal((uintptr_t)t->data % (uintptr_t)bk_st_dtype_size(t->dtype), 0);
    }
    assert_string_equal(bk_st_meta(st, "step"), "1e3");
    assert_string_equal(bk_st_meta(st, "note"), pairs[1].value);
    bk_st_free(st);
}

static void test_safetensors_write__the_order_of_arguments_does_not_matter(void **state)
{
    (void)state;
    const bk_st_tensor turned[5] = {some[4], some[2], some[3], some[0], some[1]};
    const bk_st_pair turned_pairs[2] = {pairs[1], pairs[0]};
    assert_int_equal(bk_st_write("a.st", some, 5, pairs, 2, NULL), BK_OK);
    assert_int_equal(bk_st_write("b.st", turned, 5, turned_pairs, 2, NULL), BK_OK);
    size_t n_a = 0, n_b = 0;
    char *a = read_whole("a.st", &n_a), *b = read_whole("b.st", &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a), free(b);
}

static void test_safetensors_write__lays_out_the_bytes_of_the_format(void **state)
{
    (void)state;
    const float one = 1.0f;
    const bk_st_tensor t = {
        .name = "x", .dtype = BK_ST_F32, .rank = 1, .shape = {1}, .bytes = 4, .data = &one};
    assert_int_equal(bk_st_write("a.st", &t, 1, &(bk_st_pair){"k", "v"}, 1, NULL), BK_OK);
    const char expected[] =
        "\x50\0\0\0\0\0\0\0{\"__metadata__\":{\"k\":\"v\"},\"x\":{\"dtype\":\"F32\",\"shape\":[1],"
        "\"data_offsets\":[0,4]}} \0\0\x80\x3f";
    size_t n = 0;
    char *bytes = read_whole("a.st", &n);
    assert_int_equal(n, 8 + 80 + 4);
    assert_memory_equal(bytes, expected, n);
    free(bytes);
    assert_int_equal(bk_st_write("empty.st", NULL, 0, NULL, 0, NULL), BK_OK);
    bytes = read_whole("empty.st", &n);
    assert_memory_equal(bytes, "\x08\0\0\0\0\0\0\0{}      ", 16);
    assert_int_equal(n, 16);
    free(bytes);
}

static void expect_refusal(const bk_st_tensor *tensors, int64_t n, const bk_st_pair *meta, int64_t n_meta,
                           const char *words)
{
    bk_err e = {0};
    assert_int_equal(bk_st_write("bad.st", tensors, n, meta, n_meta, &e), BK_E_INPUT);
    if (!strstr(e.msg, words) || strncmp(e.msg, "bad.st: ", 8) != 0)
        fail_msg("'%s', expected '%s'", e.msg, words);
    assert_int_equal(count_entries(), 0);
}

static void test_safetensors_write__refuses_bad_arguments_before_writing(void **state)
{
    (void)state;
    bk_st_tensor t[2] = {some[3], some[3]};
    expect_refusal(t, 2, NULL, 0, "tensor 'weights' is given twice");
    t[0].bytes = 16;
    expect_refusal(t, 1, NULL, 0, "tensor 'weights': 16 bytes do not fit its shape");
    t[0] = some[3], t[0].data = NULL;
    expect_refusal(t, 1, NULL, 0, "tensor 'weights' has no data");
    t[0] = some[3], t[0].shape[0] = -3, t[0].bytes = -24;
    expect_refusal(t, 1, NULL, 0, "do not fit its shape");
    t[0] = some[3], t[0].rank = 2, t[0].shape[0] = t[0].shape[1] = INT64_C(1) << 32, t[0].bytes = 0;
    expect_refusal(t, 1, NULL, 0, "do not fit its shape");
    t[0] = some[3], t[0].rank = 9;
    expect_refusal(t, 1, NULL, 0, "at most 8 dims");
    t[0] = some[3], t[0].name = "__metadata__";
    expect_refusal(t, 1, NULL, 0, "'__metadata__' cannot be the name of a tensor");
    t[0].name = "\xFF";
    expect_refusal(t, 1, NULL, 0, "cannot be the name");
    const bk_st_pair twice[2] = {{"k", "1"}, {"k", "2"}}, bad = {"k", "\xFF"};
    expect_refusal(some, 5, twice, 2, "metadata key 'k' is given twice");
    expect_refusal(some, 5, &bad, 1, "metadata pair 0 is not UTF-8");
}

/* A limit on the size of files stands for a full disk: write() is cut short, then refused. */
static void test_safetensors_write__a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    assert_int_equal(bk_st_write("a.st", some, 5, pairs, 2, NULL), BK_OK);
    size_t n_before = 0, n_after = 0;
    char *before = read_whole("a.st", &n_before);
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    const double other[3] = {7.0, 8.0, 9.0};
    const bk_st_tensor t = {
        .name = "w", .dtype = BK_ST_F64, .rank = 1, .shape = {3}, .bytes = 24, .data = other};
    for (rlim_t limit = 0; limit < 8 + 56 + 24; limit += 5) {
        const struct rlimit tight = {limit, old.rlim_max};
        bk_err e = {0};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        const bk_status st = bk_st_write("a.st", &t, 1, NULL, 0, &e);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(st, BK_E_IO);
        assert_non_null(strstr(e.msg, "a.st: cannot write: File too large; what was there is unchanged"));
        assert_int_equal(count_entries(), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
    char *after = read_whole("a.st", &n_after);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, n_before);
    assert_int_equal(bk_st_write("a.st", &t, 1, NULL, 0, NULL), BK_OK); /* and with room it is replaced */
    bk_st *st = NULL;
    assert_int_equal(bk_st_open(&st, "a.st", NULL), BK_OK);
    assert_int_equal(bk_st_count(st), 1);
    bk_st_free(st);
    free(before), free(after);
}

static void test_safetensors_write__says_why_a_path_cannot_be_used(void **state)
{
    (void)state;
    bk_err e = {0};
    assert_int_equal(bk_st_write("no/such/folder.st", some, 5, NULL, 0, &e), BK_E_IO);
    assert_string_equal(e.msg, "no/such/folder.st: cannot create a file there: No such file or directory");
    assert_int_equal(mkdir("sub", 0777), 0);
    assert_int_equal(bk_st_write("sub", some, 5, NULL, 0, &e), BK_E_IO); /* rename onto a folder */
    assert_non_null(strstr(e.msg, "sub: cannot write: Is a directory"));
    assert_int_equal(count_entries(), 1);

    bk_st *st = NULL;
    assert_int_equal(bk_st_open(&st, "sub", &e), BK_E_INPUT);
    assert_string_equal(e.msg, "sub: not a regular file");
    assert_int_equal(rmdir("sub"), 0);
    assert_int_equal(bk_st_open(&st, "none.st", &e), BK_E_IO);
    assert_string_equal(e.msg, "none.st: cannot open: No such file or directory");
    assert_int_equal(mkfifo("pipe", 0666), 0);
    assert_int_equal(bk_st_open(&st, "pipe", &e), BK_E_INPUT);
    assert_int_equal(unlink("pipe"), 0);
    assert_int_equal(close(creat("empty.st", 0666)), 0);
    assert_int_equal(bk_st_open(&st, "empty.st", &e), BK_E_INPUT);
    assert_string_equal(e.msg, "empty.st: 0 bytes are too short for a safetensors file");
    assert_null(st);
}

/* What a crash left behind neither hinders nor is destroyed. */
static void test_safetensors_write__passes_by_leftovers(void **state)
{
    (void)state;
    char left[64];
    snprintf(left, sizeof left, "a.st.tmp-%ld-0", (long)getpid());
    assert_int_equal(close(creat(left, 0666)), 0);
    assert_int_equal(bk_st_write("a.st", some, 5, NULL, 0, NULL), BK_OK);
    assert_int_equal(count_entries(), 2);
    assert_int_equal(access(left, F_OK), 0);
}

#define TEST(name)                                                                                           \
    cmocka_unit_test_setup_teardown(test_safetensors_write__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_back_what_was_written),
        TEST(the_order_of_arguments_does_not_matter),
        TEST(lays_out_the_bytes_of_the_format),
        TEST(refuses_bad_arguments_before_writing),
        TEST(a_full_disk_leaves_the_old_file),
        TEST(says_why_a_path_cannot_be_used),
        TEST(passes_by_leftovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
