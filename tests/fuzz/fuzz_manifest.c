/* Manifests from arbitrary bytes, as they are and with the checksum that lets them pass the first check. What
 * is accepted prints as a text that is accepted and prints the same. */
#include <stdlib.h>
#include <string.h>

#include "train/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool ok)
{
    if (!ok) abort();
}

static void print_and_read_again(const bk_manifest *m)
{
    bk_str a = {0}, b = {0};
    bk_manifest again;
    if (bk_manifest_print(&a, m, NULL) == BK_OK) { /* a text that is not UTF-8 is not printed */
        must(bk_manifest_parse(&again, a.s, (int64_t)a.len, "again", NULL) == BK_OK);
        must(bk_manifest_print(&b, &again, NULL) == BK_OK);
        must(a.len == b.len && memcmp(a.s, b.s, a.len) == 0);
        bk_manifest_free(&again);
    }
    bk_str_free(&a);
    bk_str_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    bk_manifest m;
    bk_str text = {0};
    if (bk_manifest_parse(&m, (const char *)bytes, (int64_t)n, "fuzz", NULL) == BK_OK) {
        print_and_read_again(&m);
        bk_manifest_free(&m);
    }
    bk_str_append_n(&text, (const char *)bytes, n);
    bk_manifest_seal(&text);
    if (bk_manifest_parse(&m, text.s, (int64_t)text.len, "sealed", NULL) == BK_OK) {
        print_and_read_again(&m);
        bk_manifest_free(&m);
    }
    bk_str_free(&text);
    return 0;
}
