/* Bytes that come piece by piece, out as whole UTF-8 characters.
 *
 *   ls_utf8_stream stream = {0};
 *   char text[LS_UTF8_MOST(sizeof piece)];
 *   length = ls_utf8_push(&stream, piece, count, text);
 *   ... fwrite(text, 1, length, stdout) ...
 *   length = ls_utf8_end(&stream, text);
 *
 * A character is held back until its last byte is there; what can be no character becomes U+FFFD,
 * one for each longest beginning of one, as Unicode recommends. One thread at a time. */
#ifndef LS_TEXT_UTF8_H
#define LS_TEXT_UTF8_H

#include <stddef.h>

typedef struct ls_utf8_stream {
  unsigned char held[4];
  int count;
} ls_utf8_stream;

/* Most bytes that pushing `count` bytes gives; ending gives at most LS_UTF8_MOST(0). */
#define LS_UTF8_MOST(count) (3 * ((count) + 1))

size_t ls_utf8_push(ls_utf8_stream *stream, const void *bytes, size_t count, char *text);

/* What is held is a character that will never be whole. */
size_t ls_utf8_end(ls_utf8_stream *stream, char *text);

#endif
