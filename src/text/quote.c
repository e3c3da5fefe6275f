#include "text/quote.h"

#include <string.h>

size_t ls_utf8_length(const char *text, size_t bytes) {
  const unsigned char *at = (const unsigned char *)text;
  if (bytes == 0) return 0;
  const size_t length = at[0] < 0x80   ? 1
                        : at[0] < 0xC2 ? 0
                        : at[0] < 0xE0 ? 2
                        : at[0] < 0xF0 ? 3
                                       : 4;
  if (length == 0 || at[0] > 0xF4 || length > bytes) return 0;
  for (size_t i = 1; i < length; i++) {
    if ((at[i] & 0xC0) != 0x80) return 0;
  }
  if (at[0] == 0xE0 && at[1] < 0xA0) return 0; /* overlong */
  if (at[0] == 0xED && at[1] > 0x9F) return 0; /* a surrogate */
  if (at[0] == 0xF0 && at[1] < 0x90) return 0; /* overlong */
  if (at[0] == 0xF4 && at[1] > 0x8F) return 0; /* above U+10FFFF */
  return length;
}

const char *ls_quote(char shown[LS_QUOTE_BYTES], const char *text, size_t bytes) {
  const size_t room = LS_QUOTE_BYTES - sizeof "...";
  size_t used = 0, at = 0;
  while (at < bytes) {
    const size_t length = ls_utf8_length(text + at, bytes - at);
    const size_t step = length ? length : 1;
    if (used + step > room) break;
    const unsigned char byte = (unsigned char)text[at];
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      shown[used] = '?';
    } else {
      memcpy(shown + used, text + at, step);
    }
    used += step;
    at += step;
  }
  memcpy(shown + used, at < bytes ? "..." : "", at < bytes ? sizeof "..." : 1);
  return shown;
}

bool ls_is_lfs_pointer(const void *data, size_t bytes) {
  static const char start[] = "version https://git-lfs.github.com/spec/";
  return bytes >= sizeof start - 1 && memcmp(data, start, sizeof start - 1) == 0;
}
