/* Characters as tokenizers ask about them: UTF-8, classes, normalization forms.
 *
 *   ls_bytes out = {0};
 *   const ls_span nfc = ls_unicode_normalize(LS_NFC, text, &out);
 *
 * Classes are those of unicode_tables.h. So are the characters that normal forms act on; what they
 * do there utf8proc says, which Unicode promises never to change. Texts are valid UTF-8 unless a
 * function says otherwise. Thread-safe but for the buffers. */
#ifndef LS_TOKENIZER_UNICODE_H
#define LS_TOKENIZER_UNICODE_H

#include "tokenizer/token_buffer.h"

/* The character at *at, which is moved behind it. */
static inline uint32_t ls_unicode_next(const char **at) {
  const unsigned char *from = (const unsigned char *)*at;
  if (from[0] < 0x80) {
    *at += 1;
    return from[0];
  }
  if (from[0] < 0xe0) {
    *at += 2;
    return (from[0] & 0x1fu) << 6 | (from[1] & 0x3fu);
  }
  if (from[0] < 0xf0) {
    *at += 3;
    return (from[0] & 0xfu) << 12 | (from[1] & 0x3fu) << 6 | (from[2] & 0x3fu);
  }
  *at += 4;
  return (from[0] & 7u) << 18 | (from[1] & 0x3fu) << 12 | (from[2] & 0x3fu) << 6 |
         (from[3] & 0x3fu);
}

/* Writes a character; returns its bytes. */
int ls_unicode_put(uint32_t point, char text[4]);

/* The text where it is valid UTF-8; else a copy in `out` with U+FFFD for each longest beginning of
 * a character (as Python's errors="replace"), or, with `each_byte`, for each byte that is none (as
 * SentencePiece). */
ls_span ls_unicode_repair(ls_span text, bool each_byte, ls_bytes *out);

bool ls_unicode_is_space(uint32_t point);       /* White_Space */
bool ls_unicode_is_punctuation(uint32_t point); /* as a Punctuation step */
bool ls_unicode_is_number(uint32_t point);      /* as a Digits step */
bool ls_unicode_is_word(uint32_t point);        /* \w of fancy-regex */

bool ls_unicode_is_accent(uint32_t point);  /* as BertNormalizer's strip_accents */
bool ls_unicode_is_cleaned(uint32_t point); /* its clean_text leaves it out */
bool ls_unicode_is_han(uint32_t point);     /* as its handle_chinese_chars */

/* Writes the character in lower case, at most two characters; returns its bytes. */
int ls_unicode_put_lower(uint32_t point, char text[8]);

typedef enum ls_unicode_form { LS_NFC, LS_NFD, LS_NFKC, LS_NFKD } ls_unicode_form;

/* The text in a normalization form: itself where it is already, else in `out`. */
ls_span ls_unicode_normalize(ls_unicode_form form, ls_span text, ls_bytes *out);

#endif
