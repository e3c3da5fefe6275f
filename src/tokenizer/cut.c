/* Where a long text may be cut so that its parts can be encoded on their own. */
#include <string.h>

#include "tokenizer/token_pipeline.h"

/* Each place is tried on so much text before and behind it; places too close to the text's end are
 * none, since what follows may join what is there. */
enum { WINDOW = 512, MARGIN = 64, TRIES = 64 };

/* Unigram's sums are rounded, and a cut begins them anew: shorter texts are left whole. */
enum { UNIGRAM_BYTES = 16 << 20 };

static bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

static bool is_letter(char c) {
  return is_lower(c) || (c >= 'A' && c <= 'Z');
}

static bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The beginning of a line, or of a word behind a single space (which goes with the word). */
static bool is_candidate(const char *text, int64_t at) {
  if (text[at - 1] == '\n') return !is_blank(text[at]);
  return text[at] == ' ' && is_lower(text[at - 1]) && is_letter(text[at + 1]);
}

static bool is_inside_character(char c) {
  return ((unsigned char)c & 0xc0) == 0x80;
}

/* Whether the text around a place has the ids of its two parts. */
static bool holds(const ls_tokenizer *tokenizer, const char *text, int64_t bytes, int64_t at,
                  ls_ids *whole, ls_ids *parts) {
  const unsigned inside = LS_TOKENS_CONTINUE | LS_TOKENS_MORE;
  int64_t begin = at > WINDOW ? at - WINDOW : 0;
  int64_t end = bytes - at > WINDOW ? at + WINDOW : bytes;
  while (begin < at && is_inside_character(text[begin])) begin++;
  while (end > at && end < bytes && is_inside_character(text[end])) end--;
  whole->count = parts->count = 0;
  const bool encoded =
      ls_tokenizer_append(tokenizer, text + begin, end - begin, inside, whole, NULL) == LS_OK &&
      ls_tokenizer_append(tokenizer, text + begin, at - begin, inside, parts, NULL) == LS_OK &&
      ls_tokenizer_append(tokenizer, text + at, end - at, inside, parts, NULL) == LS_OK;
  return encoded && whole->count == parts->count &&
         memcmp(whole->items, parts->items, (size_t)whole->count * sizeof *whole->items) == 0;
}

int64_t ls_tokenizer_cut(const ls_tokenizer *tokenizer, const void *text, int64_t bytes) {
  if (!tokenizer->pipeline) return bytes > 1 ? bytes - 1 : 0;
  if (tokenizer->pipeline->unigram && bytes < UNIGRAM_BYTES) return 0;
  const char *from = text;
  ls_ids whole = {0}, parts = {0};
  int64_t found = 0;
  int tried = 0;
  for (int64_t at = bytes - MARGIN; at > 0 && !found && tried < TRIES; at--) {
    if (!is_candidate(from, at)) continue;
    tried++;
    if (holds(tokenizer, from, bytes, at, &whole, &parts)) found = at;
  }
  ls_ids_free(&whole);
  ls_ids_free(&parts);
  return found;
}
