#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/safetensors.h"

#define JSON_F32(name, shape, begin, end)                                                                    \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

/* Opens a file of the given header and n_data bytes 0, 1, 2, ... in a block of its exact size, so that a read
 * past the end is seen by AddressSanitizer. The block is freed before the return, unless `keep` takes it. */
static bk_status open_text(bk_st **out, unsigned char **keep, const char *json, size_t n_json, size_t n_data,
                           bk_err *e)
{
    unsigned char *bytes = malloc(8 + n_json + n_data);
    const uint64_t n_header = n_json;
    memcpy(bytes, &n_header, 8);
    memcpy(bytes + 8, json, n_json);
    for (size_t i = 0; i < n_data; i++) bytes[8 + n_json + i] = (unsigned char)i;
    const bk_status st = bk_st_from_memory(out, bytes, (int64_t)(8 + n_json + n_data), "a.safetensors", e);
    if (st == BK_OK && keep)
        *keep = bytes;
    else
        free(bytes);
    return st;
}

static void expect_refusal_n(const char *json, size_t n_json, size_t n_data, const char *words)
{
    bk_st *st = NULL;
    bk_err e = {0};
    const bk_status status = open_text(&st, NULL, json, n_json, n_data, &e);
    bk_st_free(status == BK_OK ? st : NULL);
    if (status != BK_E_INPUT || !strstr(e.msg, words) || strncmp(e.msg, "a.safetensors: ", 15) != 0)
        fail_msg("header %.300s: status %d, message '%s', expected '%s'", json, (int)status, e.msg, words);
    assert_null(st); /* written on success only */
}

static void expect_refusal(const char *json, size_t n_data, const char *words)
{
    expect_refusal_n(json, strlen(json), n_data, words);
}

static bk_st *expect_ok(unsigned char **keep, const char *json, size_t n_data)
{
    bk_st *st = NULL;
    bk_err e = {0};
    if (open_text(&st, keep, json, strlen(json), n_data, &e) != BK_OK) fail_msg("header %s: %s", json, e.msg);
    return st;
}

static void expect_accepted(const char *json, size_t n_data)
{
    unsigned char *bytes = NULL;
    bk_st_free(expect_ok(&bytes, json, n_data));
    free(bytes);
}

static void test_safetensors__reads_tensors_and_metadata(void **state)
{
    (void)state;
    unsigned char *bytes = NULL;
    bk_st *st =
        expect_ok(&bytes,
                  "{\"w\\u0062\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]},"
                  "\"__metadata__\":{\"step\":\"12\",\"format\":\"pt\"}," JSON_F32("a", "1,2", 0, 8) "}   ",
                  11);
    assert_int_equal(bk_st_count(st), 2);
    assert_string_equal(bk_st_at(st, 0)->name, "a");
    assert_string_equal(bk_st_at(st, 1)->name, "wb");
    const bk_st_tensor *a = bk_st_find(st, "a"), *wb = bk_st_find(st, "wb");
    assert_ptr_equal(a, bk_st_at(st, 0));
    assert_int_equal(a->dtype, BK_ST_F32);
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[0], 1);
    assert_int_equal(a->shape[1], 2);
    assert_int_equal(a->bytes, 8);
    assert_int_equal(bk_st_n_elems(a), 2);
    const unsigned char expected[3] = {8, 9, 10};
    assert_memory_equal(wb->data, expected, 3);
    assert_null(bk_st_find(st, "b"));
    assert_null(bk_st_find(st, "__metadata__"));
    assert_int_equal(bk_st_meta_count(st), 2);
    assert_string_equal(bk_st_meta_at(st, 0)->key, "format");
    assert_string_equal(bk_st_meta(st, "step"), "12");
    assert_null(bk_st_meta(st, "epoch"));
    bk_st_free(st);
    free(bytes);
}

static void test_safetensors__accepts_unusual_but_valid_files(void **state)
{
    (void)state;
    expect_accepted("{}", 0);
    expect_accepted("{\"__metadata__\":{}}", 0);
    expect_accepted("{" JSON_F32("scalar", "", 0, 4) "}", 4);
    expect_accepted("{" JSON_F32("none", "0,5", 0, 0) "}", 0);
    expect_accepted(
        "{" JSON_F32("x", "1", 0, 4) "," JSON_F32("none", "5,0", 4, 4) "," JSON_F32("y", "1", 4, 8) "}", 8);
    expect_accepted("{" JSON_F32("deep", "1,1,1,1,1,1,1,1", 0, 4) "}", 4);
    expect_accepted("{\n\t" JSON_F32("caf\xC3\xA9 \\\"q\\\" \\ud83d\\ude00", "1", 0, 4) "\r\n}", 4);
    expect_accepted("{" JSON_F32("", "1", 0, 4) "}", 4); /* the format does not forbid the empty name */
}

static void test_safetensors__knows_every_dtype(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int size;
    } known[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
                 {"I8", 1},  {"U8", 1},  {"U16", 2}, {"U32", 4},  {"U64", 8}, {"BOOL", 1}};
    assert_int_equal(sizeof known / sizeof *known, BK_ST_N_DTYPES);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char json[128];
        snprintf(json, sizeof json, "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}",
                 known[i].name, 3 * known[i].size);
        unsigned char *bytes = NULL;
        bk_st *st = expect_ok(&bytes, json, (size_t)(3 * known[i].size));
        assert_string_equal(bk_st_dtype_name(bk_st_at(st, 0)->dtype), known[i].name);
        assert_int_equal(bk_st_dtype_size(bk_st_at(st, 0)->dtype), known[i].size);
        bk_st_free(st);
        free(bytes);
    }
    expect_refusal("{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3,
                   "tensor 'x': unknown dtype 'F8_E4M3'");
    expect_refusal("{\"x\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   "unknown dtype 'f32'");
    expect_refusal("{\"x\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is not a string");
}

static void test_safetensors__refuses_offsets_that_do_not_fit(void **state)
{
    (void)state;
    expect_refusal("{" JSON_F32("x", "1000,1000", 0, 4) "}", 4,
                   "tensor 'x': its shape needs 4000000 bytes, data_offsets give 4");
    expect_refusal("{" JSON_F32("x", "1", 4, 0) "}", 4,
                   "tensor 'x': data_offsets begin at 4 after their end 0");
    expect_refusal("{" JSON_F32("x", "2", 0, 8) "}", 4,
                   "tensor 'x': data end at byte 8 but the file holds 4 bytes of data");
    expect_refusal("{" JSON_F32("x", "1", 9223372036854775808, 4) "}", 4, "a number above 2^53");
    expect_refusal("{" JSON_F32("x", "1", 0, 9223372036854775808) "}", 4, "tensor 'x': header byte");
    expect_refusal("{" JSON_F32("x", "1", 0, 18446744073709551620) "}", 4, "a number above 2^53");
    expect_refusal("{" JSON_F32("x", "1", -4, 0) "}", 4, "a negative number");
    expect_refusal("{" JSON_F32("x", "-1", 0, 4) "}", 4, "tensor 'x': header byte 29: a negative number");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4]}}", 4,
                   "tensor 'x': data_offsets has 1 entries, expected 2");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4,
                   "tensor 'x': data_offsets has more than 2 entries");
    expect_refusal("{" JSON_F32("none", "0,5", 2, 2) "," JSON_F32("x", "1", 0, 4) "}", 4, "overlap");
}

static void test_safetensors__refuses_shapes_that_overflow(void **state)
{
    (void)state;
    const char *words = "tensor 'x': its shape has more bytes than 64 bits can count";
    expect_refusal("{" JSON_F32("x", "4294967296,4294967296", 0, 0) "}", 0, words);
    expect_refusal("{" JSON_F32("x", "4294967296,1073741824", 0, 0) "}", 0,
                   words); /* 2^64 bytes, 2^62 elements */
    expect_refusal("{" JSON_F32("x", "0,4294967296,4294967296", 0, 0) "}", 0, words);
    expect_refusal("{" JSON_F32("x", "1,1,1,1,1,1,1,1,1", 0, 4) "}", 4, "shape has more than 8 entries");
}

static void test_safetensors__takes_integers_only_as_written(void **state)
{
    (void)state;
    const char *words = "not written as an integer";
    expect_refusal("{" JSON_F32("x", "1.5", 0, 6) "}", 6, words);
    expect_refusal("{" JSON_F32("x", "1.00000000000000000001", 0, 4) "}", 4, words); /* a double makes it 1 */
    expect_refusal("{" JSON_F32("x", "1e0", 0, 4) "}", 4, words);
    expect_refusal("{" JSON_F32("x", "+1", 0, 4) "}", 4, words);
    expect_refusal("{" JSON_F32("x", "01", 0, 4) "}", 4, "leading zero");
    /* 2^53 is exact and too large for the data; 2^53 + 1 would be rounded to it */
    expect_refusal("{" JSON_F32("x", "1", 0, 9007199254740992) "}", 4, "data end at byte 9007199254740992");
    expect_refusal("{" JSON_F32("x", "1", 0, 9007199254740993) "}", 4, "a number above 2^53");
    expect_refusal("{" JSON_F32("x", "\"1\"", 0, 4) "}", 4, "shape holds something that is not a number");
    expect_refusal("{" JSON_F32("x", "null", 0, 4) "}", 4, "shape holds something that is not a number");
    expect_refusal("{" JSON_F32("x", "[1]", 0, 4) "}", 4, "shape holds something that is not a number");
}

static void test_safetensors__refuses_duplicates_overlaps_and_holes(void **state)
{
    (void)state;
    expect_refusal(
        "{" JSON_F32("x", "1", 0, 4) "," JSON_F32("y", "1", 4, 8) "," JSON_F32("x", "1", 8, 12) "}", 12,
        "tensor 'x': the name is given twice");
    expect_refusal("{" JSON_F32("x", "1", 0, 4) "," JSON_F32("\\u0078", "1", 4, 8) "}", 8,
                   "tensor 'x': the name is given twice");
    expect_refusal("{" JSON_F32("A", "25", 0, 100) "," JSON_F32("B", "25", 50, 150) "}", 150,
                   "tensor 'B': its data overlap those of tensor 'A'");
    expect_refusal("{" JSON_F32("A", "1", 0, 4) "," JSON_F32("B", "1", 8, 12) "}", 12,
                   "tensor 'B': 4 bytes in front of its data belong to no tensor");
    expect_refusal("{" JSON_F32("A", "1", 0, 4) "}", 5, "the last 1 bytes belong to no tensor");
    expect_refusal("{}", 1, "the last 1 bytes belong to no tensor");
    expect_refusal("{" JSON_F32("A", "1", 0, 4) "," JSON_F32("B", "1", 0, 4) "}", 4,
                   "its data overlap those of");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   "tensor 'x': dtype is given twice");
    expect_refusal("{\"__metadata__\":{\"k\":\"1\",\"j\":\"2\",\"k\":\"1\"}}", 0, "key 'k' is given twice");
    expect_refusal("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is given twice");
}

static void test_safetensors__refuses_entries_of_another_form(void **state)
{
    (void)state;
    expect_refusal("{\"x\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor 'x': dtype is missing");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor 'x': shape is missing");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor 'x': data_offsets is missing");
    expect_refusal("{\"x\":{\"DTYPE\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   "unknown key 'DTYPE'");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4,
                   "shape is not an array");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":{\"a\":1},\"data_offsets\":[0,4]}}", 4,
                   "shape is not an array");
    expect_refusal("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":\"0,4\"}}", 4,
                   "data_offsets is not an array");
    expect_refusal("{\"x\":[1]}", 0, "tensor 'x': its entry is not an object");
    expect_refusal("{\"x\":null}", 0, "tensor 'x': its entry is not an object");
    expect_refusal("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    expect_refusal("{\"__metadata__\":{\"k\":1}}", 0, "the value of 'k' is not a string");
}

static void test_safetensors__refuses_text_that_is_not_a_header(void **state)
{
    (void)state;
    expect_refusal("", 0, "not a JSON object");
    expect_refusal(" {}", 0, "not a JSON object");
    expect_refusal("[]", 0, "not a JSON object");
    expect_refusal("null", 0, "not a JSON object");
    expect_refusal("{", 0, "not JSON");
    expect_refusal("{\"x\":}", 0, "not JSON");
    expect_refusal("{\"x", 0, "a string without end");
    expect_refusal("{\"x\\", 0, "a string without end");
    expect_refusal("{} x", 0, "goes on after its JSON ends, at byte 3");
    expect_refusal("{}{}", 0, "goes on after its JSON ends, at byte 2");
    expect_refusal("{}\n", 0, "goes on after its JSON ends, at byte 2");
    expect_refusal_n("{}\0", 3, 0, "a control character");
    expect_refusal_n("\0{}", 3, 0, "a control character");
    expect_refusal("\xEF\xBB\xBF{}", 0, "not a JSON object"); /* a byte order mark */
    expect_refusal("{\"\\u0000\":{}}", 0, "a NUL in a string");
    expect_refusal_n("{\"a\0b\":{}}", 10, 0, "a control character in a string");
    expect_refusal("{\"\\ud800\":{}}", 0, "not JSON");
    expect_refusal("{\"\\q\":{}}", 0, "not JSON");
    expect_refusal("{\"\xFF\":{}}", 0, "not UTF-8");
    expect_refusal("{\"\xC0\x80\":{}}", 0, "not UTF-8");
    expect_refusal("{\"\xED\xA0\x80\":{}}", 0, "not UTF-8");
    expect_refusal("{\"\xF4\x90\x80\x80\":{}}", 0, "not UTF-8");
    expect_refusal("{\"\xE2\x82", 0, "not UTF-8");
}

/* A recursive parser without a limit needs a frame per level: a million levels are more than 8 MB of stack.
 */
static void test_safetensors__refuses_deep_nesting(void **state)
{
    (void)state;
    const size_t n = 1000000;
    char *json = malloc(2 * n);
    memset(json, '[', n), memset(json + n, ']', n);
    expect_refusal_n(json, 2 * n, 0, "nested too deeply");
    for (size_t i = 0; i + 5 <= 2 * n; i += 5) memcpy(json + i, "{\"a\":", 5);
    expect_refusal_n(json, 2 * n, 0, "nested too deeply");
    free(json);
}

static void test_safetensors__refuses_a_wrong_header_length(void **state)
{
    (void)state;
    const struct {
        uint64_t n_header;
        int64_t n_bytes;
        const char *words;
    } cases[] = {
        {2, 0, "0 bytes are too short"},
        {2, 7, "7 bytes are too short"},
        {2, 8, "the header has 2 bytes, but only 0 follow"},
        {3, 10, "the header has 3 bytes, but only 2 follow"},
        {100000001, 10, "above the limit"},
        {UINT64_MAX, 10, "above the limit"},
        {UINT64_MAX - 7, 10, "above the limit"},
        {UINT64_C(1) << 63, 10, "above the limit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char whole[10] = "xxxxxxxx{}";
        memcpy(whole, &cases[i].n_header, 8);
        unsigned char *bytes = malloc((size_t)cases[i].n_bytes + (cases[i].n_bytes == 0));
        memcpy(bytes, whole, (size_t)cases[i].n_bytes);
        bk_st *st = NULL;
        bk_err e = {0};
        assert_int_equal(bk_st_from_memory(&st, bytes, cases[i].n_bytes, "short", &e), BK_E_INPUT);
        if (!strstr(e.msg, cases[i].words)) fail_msg("message '%s', expected '%s'", e.msg, cases[i].words);
        free(bytes);
    }
}

/* Every cut of a valid file, and every single changed bit of its header, is refused or still within bounds.
 */
static void test_safetensors__survives_every_cut_and_flip(void **state)
{
    (void)state;
    const char *json =
        "{\"__metadata__\":{\"k\":\"v\"}," JSON_F32("a", "2", 0, 8) "," JSON_F32("b", "1", 8, 12) "}";
    const size_t n = 8 + strlen(json) + 12;
    unsigned char whole[512] = {0};
    const uint64_t n_header = strlen(json);
    memcpy(whole, &n_header, 8);
    memcpy(whole + 8, json, n_header);
    bk_st *st = NULL;
    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *bytes = malloc(cut + 1);
        memcpy(bytes, whole, cut);
        assert_int_equal(bk_st_from_memory(&st, bytes, (int64_t)cut, "cut", NULL), BK_E_INPUT);
        free(bytes);
    }
    for (size_t bit = 0; bit < 8 * (8 + n_header); bit++) {
        unsigned char *bytes = malloc(n);
        memcpy(bytes, whole, n);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (bk_st_from_memory(&st, bytes, (int64_t)n, "flip", NULL) == BK_OK) {
            int64_t total = 0;
            for (int64_t i = 0; i < bk_st_count(st); i++) {
                const bk_st_tensor *t = bk_st_at(st, i);
                assert_true((const unsigned char *)t->data >= bytes + 8);
                assert_true((const unsigned char *)t->data + t->bytes <= bytes + n);
                total += t->bytes;
            }
            assert_int_equal(total, 12);
            bk_st_free(st);
        }
        free(bytes);
    }
}

static void test_safetensors__converts_floats_exactly(void **state)
{
    (void)state;
    unsigned char packed[1 + 16] = {0}; /* one byte off: data of foreign files need not be aligned */
    const uint16_t f16[8] = {0x3C00, 0xC000, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0x8000, 0x3555};
    const double f16_values[8] = {1.0,  -2.0,           0x1p-24, -1023 * 0x1p-24, 65504.0, (double)INFINITY,
                                  -0.0, 0x555 * 0x1p-12};
    const uint16_t bf16[8] = {0x3F80, 0xC000, 0x0001, 0x7F7F, 0x7F80, 0xFF80, 0x8000, 0x4049};
    const double bf16_values[8] = {1.0,  -2.0,    0x1p-133, 0xFFp+120, (double)INFINITY, -(double)INFINITY,
                                   -0.0, 3.140625};
    bk_st_tensor t = {.name = "x", .rank = 1, .shape = {8}, .bytes = 16, .data = packed + 1};
    for (int kind = 0; kind < 2; kind++) {
        t.dtype = kind == 0 ? BK_ST_F16 : BK_ST_BF16;
        memcpy(packed + 1, kind == 0 ? f16 : bf16, 16);
        double d[8];
        float f[8];
        assert_int_equal(bk_st_to_f64(d, &t, NULL), BK_OK);
        assert_int_equal(bk_st_to_f32(f, &t, NULL), BK_OK);
        for (int i = 0; i < 8; i++) {
            const double expected = kind == 0 ? f16_values[i] : bf16_values[i];
            assert_memory_equal(&d[i], &expected, sizeof expected); /* bits: the sign of zero counts */
            assert_true((double)f[i] == expected);
        }
    }
    const uint16_t nan16 = 0x7E00;
    memcpy(packed + 1, &nan16, 2);
    t.dtype = BK_ST_F16, t.shape[0] = 1, t.bytes = 2;
    double d = 0.0;
    assert_int_equal(bk_st_to_f64(&d, &t, NULL), BK_OK);
    assert_true(isnan(d));
}

static void test_safetensors__rounds_doubles_to_nearest_even(void **state)
{
    (void)state;
    const double values[3] = {1.0 + 0x1p-24, 1.0 + 0x3p-24, 0.1};
    const float rounded[3] = {1.0f, 1.0f + 0x1p-22f, 0.1f};
    const bk_st_tensor t = {
        .name = "x", .dtype = BK_ST_F64, .rank = 1, .shape = {3}, .bytes = 24, .data = values};
    float f[3];
    double d[3];
    assert_int_equal(bk_st_to_f32(f, &t, NULL), BK_OK);
    assert_memory_equal(f, rounded, sizeof rounded);
    assert_int_equal(bk_st_to_f64(d, &t, NULL), BK_OK);
    assert_memory_equal(d, values, sizeof values);
    const bk_st_tensor ints = {
        .name = "n", .dtype = BK_ST_I64, .rank = 1, .shape = {3}, .bytes = 24, .data = values};
    bk_err e = {0};
    assert_int_equal(bk_st_to_f32(f, &ints, &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "tensor 'n': I64 elements"));
}

static void test_safetensors__splits_a_tensor_where_it_lies(void **state)
{
    (void)state;
    unsigned char *bytes = NULL;
    bk_err e = {0};
    bk_st *st = expect_ok(&bytes, "{" JSON_F32("m", "3,2", 0, 24) "," JSON_F32("z", "", 24, 28) "}", 28);
    const char *data = bk_st_find(st, "m")->data;
    assert_int_equal(bk_st_split(st, "m", 1, "tail", "head", &e), BK_OK);
    assert_int_equal(bk_st_count(st), 3);
    assert_string_equal(bk_st_at(st, 0)->name, "head"); /* in order still */
    assert_string_equal(bk_st_at(st, 1)->name, "tail");
    assert_null(bk_st_find(st, "m"));
    const bk_st_tensor *first = bk_st_find(st, "tail"), *others = bk_st_find(st, "head");
    assert_true(first->shape[0] == 1 && first->shape[1] == 2 && first->bytes == 8);
    assert_true(others->shape[0] == 2 && others->shape[1] == 2 && others->bytes == 16);
    assert_ptr_equal(first->data, data);
    assert_ptr_equal(others->data, data + 8);

    assert_int_equal(bk_st_split(st, "m", 1, "a", "b", &e), BK_E_INPUT);    /* gone */
    assert_int_equal(bk_st_split(st, "head", 3, "a", "b", &e), BK_E_INPUT); /* too few rows */
    assert_int_equal(bk_st_split(st, "head", -1, "a", "b", &e), BK_E_INPUT);
    assert_int_equal(bk_st_split(st, "z", 0, "a", "b", &e), BK_E_INPUT); /* no dims */
    assert_int_equal(bk_st_split(st, "head", 1, "z", "b", &e), BK_E_INPUT);
    assert_non_null(strstr(e.msg, "tensor z is there beside head"));
    assert_int_equal(bk_st_split(st, "head", 1, "b", "b", &e), BK_E_INPUT);
    assert_int_equal(bk_st_count(st), 3);
    assert_int_equal(bk_st_split(st, "head", 0, "none", "all", &e), BK_OK);
    assert_true(bk_st_find(st, "none")->bytes == 0 && bk_st_find(st, "all")->bytes == 16);
    bk_st_free(st);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors__reads_tensors_and_metadata),
        cmocka_unit_test(test_safetensors__accepts_unusual_but_valid_files),
        cmocka_unit_test(test_safetensors__knows_every_dtype),
        cmocka_unit_test(test_safetensors__refuses_offsets_that_do_not_fit),
        cmocka_unit_test(test_safetensors__refuses_shapes_that_overflow),
        cmocka_unit_test(test_safetensors__takes_integers_only_as_written),
        cmocka_unit_test(test_safetensors__refuses_duplicates_overlaps_and_holes),
        cmocka_unit_test(test_safetensors__refuses_entries_of_another_form),
        cmocka_unit_test(test_safetensors__refuses_text_that_is_not_a_header),
        cmocka_unit_test(test_safetensors__refuses_deep_nesting),
        cmocka_unit_test(test_safetensors__refuses_a_wrong_header_length),
        cmocka_unit_test(test_safetensors__survives_every_cut_and_flip),
        cmocka_unit_test(test_safetensors__converts_floats_exactly),
        cmocka_unit_test(test_safetensors__rounds_doubles_to_nearest_even),
        cmocka_unit_test(test_safetensors__splits_a_tensor_where_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
