#include "base/crc32c.h"

enum { POLYNOMIAL = 0x82f63b78 }; /* 0x1edc6f41, its lowest bit first */

uint32_t ls_crc32c(const void *data, size_t bytes) {
  const unsigned char *at = data;
  uint32_t rest = UINT32_MAX;
  for (size_t i = 0; i < bytes; i++) {
    rest ^= at[i];
    for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (rest & 1 ? (uint32_t)POLYNOMIAL : 0);
  }
  return ~rest;
}
