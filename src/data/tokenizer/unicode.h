/* Characters as tokenizers ask about them: UTF-8, classes, normalization forms.
 *
 *   ls_bytes out = {0};
 *   const ls_span nfc = ls_unicode_normalize(LS_NFC, text, &out);
 *
 * The tables are utf8proc's. Texts are valid UTF-8 unless a function says otherwise. Thread-safe
 * but for the buffers. */
#ifndef LS_DATA_TOKENIZER_UNICODE_H
#define LS_DATA_TOKENIZER_UNICODE_H

#include "data/tokenizer/token_buffer.h"

/* The character at *at, which is moved behind it. */
uint32_t ls_unicode_next(const char **at);

/* Writes a character; returns its bytes. */
int ls_unicode_put(uint32_t point, char text[4]);

/* The text where it is valid UTF-8; else a copy in `out` with U+FFFD for each longest beginning of
 * a character (as Python's errors="replace"), or, with `each_byte`, for each byte that is none (as
 * SentencePiece). */
ls_span ls_unicode_repair(ls_span text, bool each_byte, ls_bytes *out);

bool ls_unicode_is_space(uint32_t point);       /* White_Space */
bool ls_unicode_is_punctuation(uint32_t point); /* category P, and ASCII's */
bool ls_unicode_is_number(uint32_t point);      /* category N */
bool ls_unicode_is_word(uint32_t point);        /* \w: Alphabetic, M, Nd, Pc */

typedef enum ls_unicode_form { LS_NFC, LS_NFD, LS_NFKC, LS_NFKD } ls_unicode_form;

/* The text in a normalization form: itself where it is already, else in `out`. */
ls_span ls_unicode_normalize(ls_unicode_form form, ls_span text, ls_bytes *out);

#endif
