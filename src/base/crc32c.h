/* CRC-32C (Castagnoli), the checksum of TFRecord frames. */
#ifndef BK_BASE_CRC32C_H
#define BK_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of n bytes: RFC 3720, appendix B.4. */
uint32_t bk_crc32c(const void *bytes, size_t n);

/* Turned and offset, as TFRecord frames store it, so that a checksum over bytes that contain checksums stays
 * a good one. */
static inline uint32_t bk_crc32c_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

#endif
