#include "tokenizer/charsmap.h"

#include <string.h>

#include "tokenizer/unicode.h"

/* A unit: bits 0 to 7 are the label, bit 8 says that a value follows, bit 9 that the offset is in
 * steps of 256, the rest is the offset; a value has bit 31 and nothing of these. */
#define VALUE_BIT 0x80000000u
#define LABEL_BITS (VALUE_BIT | 0xffu)

static uint32_t unit_at(const ls_charsmap *map, size_t at) {
  uint32_t unit = 0;
  for (int i = 3; i >= 0; i--) unit = unit << 8 | (unsigned char)map->units[4 * at + (size_t)i];
  return unit;
}

static uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & 0x200u) >> 6);
}

ls_status ls_charsmap_read(const char *where, const char *data, size_t bytes, ls_charsmap *map,
                           ls_error *error) {
  *map = (ls_charsmap){0};
  if (!bytes) return LS_OK;
  size_t size = 0;
  for (size_t i = 4; i > 0 && bytes >= 4; i--) size = size << 8 | (unsigned char)data[i - 1];
  if (bytes < 4 || size > bytes - 4 || size % 4 || !size) {
    return ls_fail(error, LS_INPUT,
                   "%s: found a table of replacements of %zu bytes whose index has %zu; expected a "
                   "whole one",
                   where, bytes, size);
  }
  *map = (ls_charsmap){.units = data + 4,
                       .unit_count = size / 4,
                       .replacements = data + 4 + size,
                       .replacement_bytes = bytes - 4 - size};
  ls_bytes unused = {0};
  const ls_span all = {map->replacements, map->replacement_bytes};
  const bool utf8 = ls_unicode_repair(all, false, &unused).text == all.text;
  ls_bytes_free(&unused);
  if (utf8) return LS_OK;
  *map = (ls_charsmap){0};
  return ls_fail(error, LS_INPUT, "%s: found a table of replacements that are no UTF-8", where);
}

/* Whether a character of UTF-8 begins there, or the text ends. */
static bool is_boundary(const char *text, size_t at, size_t bytes) {
  return at >= bytes || ((unsigned char)text[at] & 0xc0) != 0x80;
}

size_t ls_charsmap_find(const ls_charsmap *map, ls_span text, ls_span *replacement) {
  if (!map->unit_count) return 0;
  size_t taken = 0;
  size_t at = offset_of(unit_at(map, 0));
  for (size_t i = 0; i < text.bytes; i++) {
    const unsigned char label = (unsigned char)text.text[i];
    at ^= label;
    if (at >= map->unit_count) break;
    const uint32_t unit = unit_at(map, at);
    if ((unit & LABEL_BITS) != label) break;
    at ^= offset_of(unit);
    if (!(unit & 0x100u)) continue;
    if (at >= map->unit_count) break;
    const size_t value = unit_at(map, at) & ~VALUE_BIT;
    if (value >= map->replacement_bytes) break;
    /* In a damaged table a match or what replaces it may be part of a character. */
    if (!is_boundary(map->replacements, value, map->replacement_bytes) ||
        !is_boundary(text.text, i + 1, text.bytes))
      continue;
    const size_t room = map->replacement_bytes - value;
    *replacement = (ls_span){map->replacements + value, strnlen(map->replacements + value, room)};
    taken = i + 1;
  }
  return taken;
}
