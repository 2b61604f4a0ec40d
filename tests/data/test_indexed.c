#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>

#include "data/gpt_dataset.h"
#include "data/indexed.h"
#include "temp_folder.h"

/* Three sequences of uint16, the second empty, in two documents: written by hand from the format. */
static const unsigned char idx_bytes[] = {
    'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, /* 0 */
    1,   0,   0,   0,   0,   0,   0,   0,    /* 9: version */
    8,                                       /* 17: uint16 */
    3,   0,   0,   0,   0,   0,   0,   0,    /* 18: sequences */
    3,   0,   0,   0,   0,   0,   0,   0,    /* 26: document entries */
    2,   0,   0,   0,                        /* 34: lengths */
    0,   0,   0,   0,                        /* 38 */
    3,   0,   0,   0,                        /* 42 */
    0,   0,   0,   0,   0,   0,   0,   0,    /* 46: pointers */
    4,   0,   0,   0,   0,   0,   0,   0,    /* 54 */
    4,   0,   0,   0,   0,   0,   0,   0,    /* 62 */
    0,   0,   0,   0,   0,   0,   0,   0,    /* 70: documents */
    2,   0,   0,   0,   0,   0,   0,   0,    /* 78 */
    3,   0,   0,   0,   0,   0,   0,   0,    /* 86 */
};
static const unsigned char bin_bytes[] = {1, 0, 255, 255, 3, 0, 0, 1, 5, 0};

static void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put_pair(const char *prefix, const void *idx, size_t n_idx, const void *bin, size_t n_bin)
{
    char path[64];
    snprintf(path, sizeof path, "%s.idx", prefix), put_file(path, idx, n_idx);
    snprintf(path, sizeof path, "%s.bin", prefix), put_file(path, bin, n_bin);
}

static bk_indexed *open_good(const char *prefix)
{
    bk_indexed *x = NULL;
    bk_err e = {0};
    if (bk_indexed_open(&x, prefix, &e) != BK_OK) fail_msg("%s", e.msg);
    return x;
}

static void test_indexed__reads_a_file_written_by_hand(void **state)
{
    (void)state;
    put_pair("d", idx_bytes, sizeof idx_bytes, bin_bytes, sizeof bin_bytes);
    assert_true(bk_indexed_exists("d"));
    assert_false(bk_indexed_exists("c"));
    bk_indexed *x = open_good("d");
    assert_int_equal(bk_indexed_get_dtype(x), BK_INDEXED_U16);
    assert_int_equal(bk_indexed_n_tokens(x), 5);
    assert_int_equal(bk_indexed_n_sequences(x), 3);
    assert_int_equal(bk_indexed_n_documents(x), 2);
    const int64_t lengths[] = {2, 0, 3}, documents[] = {0, 2, 3};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bk_indexed_length(x, i), lengths[i]);
        assert_int_equal(bk_indexed_document(x, i), documents[i]);
    }
    int32_t t[3] = {0};
    assert_int_equal(bk_indexed_read(t, x, 0, 0, 2, 65536, NULL), BK_OK);
    assert_int_equal(t[0], 1), assert_int_equal(t[1], 65535);
    assert_int_equal(bk_indexed_read(t, x, 2, 1, 2, 65536, NULL), BK_OK);
    assert_int_equal(t[0], 256), assert_int_equal(t[1], 5);
    assert_int_equal(bk_indexed_read(t, x, 1, 0, 0, 1, NULL), BK_OK);
    bk_indexed_free(x);
}

static void expect_read_error(const bk_indexed *x, int64_t sequence, int64_t offset, int64_t n, int64_t vocab,
                              const char *words)
{
    int32_t t[4];
    bk_err e = {0};
    assert_int_equal(bk_indexed_read(t, x, sequence, offset, n, vocab, &e), BK_E_INPUT);
    if (!strstr(e.msg, words)) fail_msg("'%s', expected '%s'", e.msg, words);
}

static void test_indexed__reads_outside_are_errors(void **state)
{
    (void)state;
    bk_indexed *x = NULL;
    assert_int_equal(
        bk_indexed_from_memory(&x, idx_bytes, sizeof idx_bytes, bin_bytes, sizeof bin_bytes, "m", NULL),
        BK_OK);
    expect_read_error(x, 0, 0, 2, 65535,
                      "m.bin: sequence 0, position 1: token 65535 is not in the vocabulary of 65535");
    expect_read_error(x, 2, 1, 2, 256,
                      "m.bin: sequence 2, position 1: token 256 is not in the vocabulary of 256");
    expect_read_error(x, 2, 1, 3, 65536, "3 tokens from position 1 of sequence 2 are asked for, which has 3");
    expect_read_error(x, 2, 4, 0, 65536, "0 tokens from position 4");
    expect_read_error(x, 2, INT64_MAX, 1, 65536, "are asked for");
    expect_read_error(x, 2, 1, INT64_MAX, 65536, "are asked for");
    expect_read_error(x, 2, -1, 1, 65536, "are asked for");
    expect_read_error(x, 3, 0, 1, 65536, "sequence 3 of 3");
    expect_read_error(x, -1, 0, 1, 65536, "sequence -1 of 3");
    bk_indexed_free(x);
}

/* One byte of the good .idx changed, or its length, or that of the .bin. */
static void test_indexed__an_index_that_lies_is_refused(void **state)
{
    (void)state;
    const struct {
        size_t at;
        unsigned char value;
        size_t n_idx, n_bin;
        const char *words;
    } lies[] = {
        {0, 'X', 94, 10, "d.idx: it does not begin with MMIDIDX"},
        {8, 1, 94, 10, "does not begin with MMIDIDX"},
        {9, 2, 94, 10, "d.idx: version 2, expected 1"},
        {16, 1, 94, 10, "version 72057594037927937, expected 1"},
        {17, 0, 94, 10, "unknown code 0"},
        {17, 7, 94, 10, "code 7: the .bin holds floating-point numbers"},
        {17, 9, 94, 10, "unknown code 9"},
        {17, 4, 94, 10, "sequence 1 begins at byte 4 of the .bin, expected 8"},
        {18, 4, 94, 10, "4 sequences and 3 document entries do not fit its 94 bytes"},
        {18, 2, 94, 10, "12 bytes follow what 2 sequences and 3 document entries need"},
        {25, 0x80, 94, 10, "9223372036854775811 sequences and 3 document entries do not fit"},
        {25, 0x16, 94, 10, "do not fit its 94 bytes"}, /* 12 times it exceeds 64 bits */
        {26, 2, 94, 10, "8 bytes follow what 3 sequences and 2 document entries need"},
        {33, 0x20, 94, 10, "do not fit its 94 bytes"}, /* 8 times it, modulo 2^64, is right */
        {37, 0x80, 94, 10, "sequence 0 has -2147483646 tokens, expected 0 or more"},
        {34, 1, 94, 10, "sequence 1 begins at byte 4 of the .bin, expected 2, where the one before ends"},
        {42, 4, 94, 10, "sequence 2 of 4 tokens of 2 bytes begins at byte 4, but d.bin has 10 bytes"},
        {42, 2, 94, 10, "its sequences end at byte 8, but d.bin has 10 bytes"},
        {46, 1, 94, 10, "sequence 0 begins at byte 1 of the .bin, expected 0"},
        {61, 0x80, 94, 10, "sequence 1 begins at byte -9223372036854775804 of the .bin, expected 4"},
        {65, 0x80, 94, 10, "sequence 2 begins at byte 2147483652 of the .bin, expected 4"},
        {66, 1, 94, 10, "sequence 2 begins at byte 4294967300 of the .bin, expected 4"},
        {70, 1, 94, 10, "the first document begins at sequence 1, expected 0"},
        {78, 4, 94, 10, "document 0 ends before sequence 4, expected 0 to 3"},
        {85, 0x80, 94, 10, "document 0 ends before sequence -9223372036854775806, expected 0 to 3"},
        {86, 1, 94, 10, "document 1 ends before sequence 1, expected 2 to 3"},
        {86, 2, 94, 10, "its 2 documents hold 2 sequences, expected all 3"},
        {0, 'M', 93, 10, "3 sequences and 3 document entries do not fit its 93 bytes"},
        {0, 'M', 33, 10, "33 bytes are too few, the header alone has 34"},
        {0, 'M', 0, 10, "0 bytes are too few"},
        {0, 'M', 94, 9, "sequence 2 of 3 tokens of 2 bytes begins at byte 4, but d.bin has 9 bytes"},
        {0, 'M', 94, 0, "sequence 0 of 2 tokens of 2 bytes begins at byte 0, but d.bin has 0 bytes"},
        {0, 'M', 95, 10, "1 bytes follow"},
        {0, 'M', 97, 10, "d.idx: it holds the modes of multimodal data"},
        {0, 'M', 94, 11, "its sequences end at byte 10, but d.bin has 11 bytes"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        unsigned char idx[128] = {0}, bin[16] = {0};
        memcpy(idx, idx_bytes, sizeof idx_bytes);
        memcpy(bin, bin_bytes, sizeof bin_bytes);
        idx[lies[i].at] = lies[i].value;
        put_pair("d", idx, lies[i].n_idx, bin, lies[i].n_bin);
        bk_indexed *x = NULL;
        bk_err e = {0};
        assert_int_equal(bk_indexed_open(&x, "d", &e), BK_E_INPUT);
        assert_null(x);
        if (!strstr(e.msg, lies[i].words)) fail_msg("%zu: '%s', expected '%s'", i, e.msg, lies[i].words);
    }
}

static void expect_open_error(const char *prefix, bk_status status, const char *words)
{
    bk_indexed *x = NULL;
    bk_err e = {0};
    const bk_status st = bk_indexed_open(&x, prefix, &e);
    assert_null(x);
    if (st != status || !strstr(e.msg, words))
        fail_msg("status %d, '%s', expected '%s'", (int)st, e.msg, words);
}

static void test_indexed__missing_files_are_named(void **state)
{
    (void)state;
    put_file("only.idx", idx_bytes, sizeof idx_bytes);
    put_file("folder.bin", bin_bytes, sizeof bin_bytes);
    assert_int_equal(mkdir("folder.idx", 0777), 0);
    expect_open_error("none", BK_E_IO, "none.idx: cannot open: No such file");
    expect_open_error("only", BK_E_IO, "only.bin: cannot open: No such file");
    expect_open_error("folder", BK_E_INPUT, "folder.idx: not a regular file");
}

static void test_indexed__no_sequences_are_fine(void **state)
{
    (void)state;
    unsigned char idx[42] = {0};
    memcpy(idx, idx_bytes, 18); /* then no sequences, one document entry, 0 */
    idx[26] = 1;
    put_pair("d", idx, sizeof idx, "", 0);
    bk_indexed *x = open_good("d");
    assert_int_equal(bk_indexed_n_tokens(x) + bk_indexed_n_sequences(x) + bk_indexed_n_documents(x), 0);
    bk_indexed_free(x);
    put_pair("d", idx, 34, "", 0);
    expect_open_error("d", BK_E_INPUT, "0 sequences and 1 document entries do not fit its 34 bytes");
    idx[26] = 0;
    put_pair("d", idx, 34, "", 0);
    expect_open_error("d", BK_E_INPUT, "no document entry");
}

/* 64-bit tokens that do not fit 32 bits are refused, not cut. */
static void test_indexed__wide_tokens_are_not_cut(void **state)
{
    (void)state;
    unsigned char idx[62] = {0};
    memcpy(idx, idx_bytes, 18);
    idx[17] = BK_INDEXED_I64, idx[18] = 1, idx[26] = 2, idx[34] = 4, idx[54] = 1;
    const int64_t tokens[4] = {7, (INT64_C(1) << 32) + 7, INT64_C(1) << 31, -1};
    bk_indexed *x = NULL;
    bk_err e = {0};
    if (bk_indexed_from_memory(&x, idx, sizeof idx, tokens, sizeof tokens, "m", &e) != BK_OK)
        fail_msg("%s", e.msg);
    int32_t t = 0;
    assert_int_equal(bk_indexed_read(&t, x, 0, 0, 1, INT64_MAX, NULL), BK_OK);
    assert_int_equal(t, 7);
    expect_read_error(x, 0, 1, 1, INT64_MAX, "position 1: token 4294967303 is not");
    expect_read_error(x, 0, 2, 1, INT64_MAX, "position 2: token 2147483648 is not");
    expect_read_error(x, 0, 3, 1, INT64_MAX, "position 3: token -1 is not");
    bk_indexed_free(x);
}

static void test_indexed__any_alignment(void **state)
{
    (void)state;
    unsigned char moved_idx[sizeof idx_bytes + 1], moved_bin[sizeof bin_bytes + 1];
    memcpy(moved_idx + 1, idx_bytes, sizeof idx_bytes);
    memcpy(moved_bin + 1, bin_bytes, sizeof bin_bytes);
    bk_indexed *x = NULL;
    assert_int_equal(bk_indexed_from_memory(&x, moved_idx + 1, sizeof idx_bytes, moved_bin + 1,
                                            sizeof bin_bytes, "m", NULL),
                     BK_OK);
    int32_t t[3];
    assert_int_equal(bk_indexed_read(t, x, 2, 0, 3, 65536, NULL), BK_OK);
    assert_int_equal(t[1], 256);
    bk_indexed_free(x);
}

enum { BIG = 1200000000, PLACE = 1100000000, T = 1024 };

static void put_at(int fd, const void *bytes, size_t n, int64_t at)
{
    assert_int_equal(pwrite(fd, bytes, n, at), (ssize_t)n);
}

/* Two sequences of 1.2e9 uint16 tokens, zero but for a pattern in each: the file has 4.8e9 bytes, of which
 * next to none are on the disk. */
static void make_sparse(const uint16_t pattern[T])
{
    struct __attribute__((packed)) {
        char magic[9];
        uint64_t version;
        uint8_t code;
        uint64_t n_sequences, n_entries;
        int32_t lengths[2];
        int64_t pointers[2], documents[3];
    } idx = {"MMIDIDX", 1, 8, 2, 3, {BIG, BIG}, {0, INT64_C(2) * BIG}, {0, 1, 2}};
    put_file("big.idx", &idx, sizeof idx);
    const int fd = open("big.bin", O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, INT64_C(4) * BIG), 0);
    put_at(fd, pattern, 2 * T, INT64_C(2) * PLACE);
    put_at(fd, pattern, 2 * T, INT64_C(2) * BIG + INT64_C(2) * PLACE + 2);
    close(fd);
}

static void test_indexed__more_than_2_GiB(void **state)
{
    (void)state;
    uint16_t pattern[T];
    int32_t t[T], labels[T];
    for (int i = 0; i < T; i++) pattern[i] = (uint16_t)(1 + i * 60013 % 50000);
    make_sparse(pattern);
    bk_indexed *x = open_good("big");
    for (int sequence = 0; sequence < 2; sequence++) {
        assert_int_equal(bk_indexed_read(t, x, sequence, PLACE + sequence, T, 50001, NULL), BK_OK);
        for (int i = 0; i < T; i++) assert_int_equal(t[i], pattern[i]);
    }

    /* The same through samples: of both sequences, in whatever order, the pattern of the one that comes
     * second lies beyond token 2^31. */
    const bk_sequences sequences = bk_indexed_sequences(x);
    const bk_gpt_options options = {.seq_length = T, .seed = 1, .vocab_size = 50001};
    bk_gpt_dataset ds;
    bk_err e = {0};
    if (bk_gpt_dataset_make(&ds, &sequences, (bk_sequence_range){0, 2}, BK_PART_TRAIN, &options, &e) != BK_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(ds.n_samples, (INT64_C(2) * BIG - 1) / T);
    const int64_t at = INT64_C(0) + BIG + PLACE + ds.documents[1], sample = at / T, skip = at % T;
    assert_true(at > INT32_MAX);
    int64_t number = 0;
    while (ds.shuffle[number] != sample) number++;
    assert_int_equal(bk_gpt_dataset_get(t, labels, NULL, &ds, number, NULL), BK_OK);
    for (int64_t i = 0; i < T; i++) {
        assert_int_equal(t[i], i < skip ? 0 : pattern[i - skip]);
        assert_int_equal(labels[i], i + 1 < skip ? 0 : pattern[i + 1 - skip]);
    }
    bk_gpt_dataset_free(&ds);
    bk_indexed_free(x);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_indexed__##name, enter_new_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_a_file_written_by_hand),
        TEST(reads_outside_are_errors),
        TEST(an_index_that_lies_is_refused),
        TEST(missing_files_are_named),
        TEST(no_sequences_are_fine),
        TEST(wide_tokens_are_not_cut),
        TEST(any_alignment),
        TEST(more_than_2_GiB),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
