/* Text of others, made fit for one line of an error message.
 *
 *   char shown[LS_QUOTE_BYTES];
 *   ls_fail(error, LS_INPUT, "found \"%s\"; expected ...", ls_quote(shown, text, strlen(text)));
 *
 * Thread-safe: no state. */
#ifndef LS_TEXT_QUOTE_H
#define LS_TEXT_QUOTE_H

#include <stdbool.h>
#include <stddef.h>

enum { LS_QUOTE_BYTES = 96 };

/* Copies at most LS_QUOTE_BYTES - 1 bytes of `text`: control characters and bytes that are no
 * UTF-8 become '?', a longer text is cut between characters and ends in "...". Returns `shown`. */
const char *ls_quote(char shown[LS_QUOTE_BYTES], const char *text, size_t bytes);

/* Bytes of the UTF-8 character at the start of `text`; 0 where there is none (RFC 3629: no
 * overlong forms, no surrogates, nothing above U+10FFFF). */
size_t ls_utf8_length(const char *text, size_t bytes);

/* Whether `data` is the text that git-lfs leaves in place of a large file. */
bool ls_is_lfs_pointer(const void *data, size_t bytes);

#endif
