#include "tokenizer/byte_level.h"

#include "tokenizer/unicode.h"

const char ls_byte_level_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool prints(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

/* The bytes that do not print, in order: 0 to 32, 127 to 160, 173. */
uint32_t ls_byte_level_point(int byte) {
  const uint32_t value = (uint32_t)byte;
  if (prints(value)) return value;
  if (value <= ' ') return 0x100 + value;
  return value == 0xad ? 0x143 : 0x100 + 33 + (value - 0x7f);
}

int ls_byte_level_byte(uint32_t point) {
  if (point < 0x100) return prints(point) ? (int)point : -1;
  if (point <= 0x120) return (int)(point - 0x100);
  if (point < 0x143) return (int)(point - 0x121 + 0x7f);
  return point == 0x143 ? 0xad : -1;
}

void ls_byte_level_write(ls_span bytes, ls_bytes *out) {
  ls_bytes_reserve(out, 2 * bytes.bytes);
  for (size_t i = 0; i < bytes.bytes; i++) {
    char text[4];
    const int length = ls_unicode_put(ls_byte_level_point((unsigned char)bytes.text[i]), text);
    ls_bytes_append(out, text, (size_t)length);
  }
}

bool ls_byte_level_read(ls_span text, ls_bytes *out) {
  const size_t before = out->count;
  ls_bytes_reserve(out, text.bytes);
  for (const char *at = text.text, *end = at + text.bytes; at < end;) {
    const int byte = ls_byte_level_byte(ls_unicode_next(&at));
    if (byte < 0) {
      out->count = before;
      return false;
    }
    out->data[out->count++] = (char)byte;
  }
  return true;
}
