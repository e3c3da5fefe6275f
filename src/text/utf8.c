#include "text/utf8.h"

#include <stdbool.h>
#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

/* Bytes of the character that begins so; 0 where none does. */
static int length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

/* Whether `next` may follow what is held. The second byte rules out longer forms than needed,
 * surrogates, and what is above U+10FFFF. */
static bool continues(const ls_utf8_stream *stream, unsigned char next) {
  unsigned char low = 0x80, high = 0xBF;
  if (stream->count == 1) {
    switch (stream->held[0]) {
      case 0xE0: low = 0xA0; break;
      case 0xED: high = 0x9F; break;
      case 0xF0: low = 0x90; break;
      case 0xF4: high = 0x8F; break;
      default: break;
    }
  }
  return next >= low && next <= high;
}

size_t ls_utf8_end(ls_utf8_stream *stream, char *text) {
  if (!stream->count) return 0;
  stream->count = 0;
  memcpy(text, replacement, strlen(replacement));
  return strlen(replacement);
}

size_t ls_utf8_push(ls_utf8_stream *stream, const void *bytes, size_t count, char *text) {
  const unsigned char *in = bytes;
  size_t used = 0;
  for (size_t i = 0; i < count; i++) {
    if (stream->count && !continues(stream, in[i])) used += ls_utf8_end(stream, text + used);
    stream->held[stream->count++] = in[i];
    const int length = length_of(stream->held[0]);
    if (!length) {
      used += ls_utf8_end(stream, text + used);
    } else if (stream->count == length) {
      memcpy(text + used, stream->held, (size_t)length);
      used += (size_t)length;
      stream->count = 0;
    }
  }
  return used;
}
