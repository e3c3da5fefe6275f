/* CRC-32C, the Castagnoli polynomial (RFC 3720, appendix B.4), of data that others' formats seal
 * so.
 *
 *   ls_crc32c("123456789", 9); gives 0xe3069283
 *
 * Thread-safe: no state. */
#ifndef LS_BASE_CRC32C_H
#define LS_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ls_crc32c(const void *data, size_t bytes);

#endif
