/* Tokens found in a text before anything is done to it: "<|im_start|>".
 *
 *   ls_added_tokens *added = ls_added_tokens_create(arena);
 *   ls_added_tokens_add(added, &(ls_added_token){.content = {"<s>", 3}, .id = 1});
 *   LS_TRY(...); while (ls_added_tokens_next(added, text, &cursor, &segment)) ...
 *
 * At each place the longest token is taken. Constant once filled: thread-safe. */
#ifndef LS_TOKENIZER_ADDED_TOKENS_H
#define LS_TOKENIZER_ADDED_TOKENS_H

#include "tokenizer/token_buffer.h"

typedef struct ls_added_token {
  ls_span content; /* borrowed */
  int32_t id;
  bool single_word;    /* only between characters that are no part of a word */
  bool lstrip, rstrip; /* takes the white space before, behind */
} ls_added_token;

typedef struct ls_added_tokens ls_added_tokens;

ls_added_tokens *ls_added_tokens_create(ls_arena *arena);

/* Adds a token with content; of two with the same content the first holds. */
void ls_added_tokens_add(ls_added_tokens *tokens, const ls_added_token *token);

/* Where a search stands; all zero at a text's beginning. */
typedef struct ls_added_cursor {
  size_t searched; /* where the next match may begin */
  size_t done;     /* what was given out */
  size_t begin, end;
  int32_t id; /* the match that waits behind a segment of text; -1 + found */
  bool found;
} ls_added_cursor;

typedef struct ls_added_segment {
  ls_span text;
  int32_t id; /* -1: text between tokens */
} ls_added_segment;

/* The next token, or the text up to it; false at the end. NULL for `tokens` has none. */
bool ls_added_tokens_next(const ls_added_tokens *tokens, ls_span text, ls_added_cursor *cursor,
                          ls_added_segment *segment);

/* Bytes of the longest token that the text begins with, 0 for none, and its id. */
size_t ls_added_tokens_prefix(const ls_added_tokens *tokens, ls_span text, int32_t *id);

#endif
