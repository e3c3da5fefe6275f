/* GPT-2's alphabet: each byte as one character, so that any bytes are a text of characters that
 * print. A byte that prints in Latin-1 stands for itself, the others are U+0100 and on in order.
 * Thread-safe. */
#ifndef LS_TOKENIZER_BYTE_LEVEL_H
#define LS_TOKENIZER_BYTE_LEVEL_H

#include "tokenizer/token_buffer.h"

/* GPT-2's pattern, in Ruby's syntax. */
extern const char ls_byte_level_pattern[];

/* The character of a byte. */
uint32_t ls_byte_level_point(int byte);

/* The byte of a character, -1 for one that stands for none. */
int ls_byte_level_byte(uint32_t point);

/* Appends the alphabet's characters for bytes. */
void ls_byte_level_write(ls_span bytes, ls_bytes *out);

/* Appends the bytes of a text of valid UTF-8; false, with nothing appended, where a character of it
 * stands for none. */
bool ls_byte_level_read(ls_span text, ls_bytes *out);

#endif
