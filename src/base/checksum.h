/* A checksum of a file that many may take together: each of its own bytes, in any order, and the
 * sums added up. Two sums over the 32-bit little-endian words, as Fletcher's (J. Fletcher, An
 * arithmetic checksum for serial transmissions, 1982), modulo 2^64: of the words, which sees every
 * change within one, and of each word times its place, which sees their order.
 *
 *   ls_checksum sum = {0};
 *   ls_checksum_add(&sum, 0, data, 10);
 *   ls_checksum_add(&sum, 10, data + 10, bytes - 10);
 *   ls_checksum_text(&sum, text);
 *
 * It is against accidents, not against intent. Thread-safe: no state. */
#ifndef LS_BASE_CHECKSUM_H
#define LS_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_checksum {
  uint64_t words, places;
} ls_checksum;

enum { LS_CHECKSUM_DIGITS = 32 };

/* Adds the bytes that lie `offset` bytes behind the file's beginning. */
void ls_checksum_add(ls_checksum *sum, uint64_t offset, const void *data, size_t bytes);

/* Adds what another has summed of the same file. */
void ls_checksum_join(ls_checksum *sum, const ls_checksum *other);

/* As hexadecimal digits. */
void ls_checksum_text(const ls_checksum *sum, char text[LS_CHECKSUM_DIGITS + 1]);

#endif
