/* Texts as patterns match them: each character is one byte, its symbol. ASCII stands for itself;
 * beyond it the characters that a pattern's sets do not tell apart share one of 128 symbols. So
 * PCRE2 sees bytes and ASCII alone, and what it knows of Unicode does not matter.
 *
 *   const ls_symbols *symbols = ls_symbols_create(arena, sets, count);
 *   if (!symbols) ... more kinds of characters than there are symbols
 *   const size_t count = ls_symbols_write(symbols, text, bytes);
 *
 * Thread-safe. */
#ifndef LS_TOKENIZER_PATTERN_SYMBOLS_H
#define LS_TOKENIZER_PATTERN_SYMBOLS_H

#include <string.h>

#include "tokenizer/point_set.h"
#include "tokenizer/token_buffer.h"

typedef struct ls_symbols ls_symbols;

/* Symbols that tell these sets apart; NULL where 128 are not enough. */
const ls_symbols *ls_symbols_create(ls_arena *arena, const ls_point_set *sets, int count);

/* Whether a symbol stands for the characters of one of the sets, or for others. */
bool ls_symbols_has(const ls_symbols *symbols, const ls_point_set *set, int symbol);

/* How many of the eight bytes at `at` are ASCII before the first that is not. */
static inline size_t ls_ascii_of_eight(const char *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  word &= 0x8080808080808080u;
  return word ? (size_t)__builtin_ctzll(word) / 8 : sizeof word;
}

/* Writes the symbols of valid UTF-8, at most text.bytes; returns how many. */
size_t ls_symbols_write(const ls_symbols *symbols, ls_span text, char *out);

#endif
