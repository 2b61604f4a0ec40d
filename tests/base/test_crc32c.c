#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/crc32c.h"

/* RFC 3720, appendix B.4, and the check value of the catalogue of CRCs. */
static void test_crc32c__known_vectors(void **state)
{
    (void)state;
    unsigned char bytes[32];
    memset(bytes, 0, 32);
    assert_true(bk_crc32c(bytes, 32) == UINT32_C(0x8a9136aa));
    memset(bytes, 0xff, 32);
    assert_true(bk_crc32c(bytes, 32) == UINT32_C(0x62a8ab43));
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_true(bk_crc32c(bytes, 32) == UINT32_C(0x46dd794e));
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    assert_true(bk_crc32c(bytes, 32) == UINT32_C(0x113fdb5c));
    assert_true(bk_crc32c("123456789", 9) == UINT32_C(0xe3069283));
    assert_true(bk_crc32c(bytes, 0) == 0);
}

/* crc = 1: turned right by 15, bit 0 becomes bit 17. */
static void test_crc32c__mask(void **state)
{
    (void)state;
    assert_true(bk_crc32c_mask(0) == UINT32_C(0xa282ead8));
    assert_true(bk_crc32c_mask(1) == UINT32_C(0xa282ead8) + (UINT32_C(1) << 17));
    assert_true(bk_crc32c_mask(UINT32_C(1) << 15) == UINT32_C(0xa282ead9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c__known_vectors),
        cmocka_unit_test(test_crc32c__mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
