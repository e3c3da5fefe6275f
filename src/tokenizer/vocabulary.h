/* The pieces of a tokenizer by id and by text.
 *
 *   ls_vocabulary *vocabulary = ls_vocabulary_create(arena);
 *   LS_TRY(ls_vocabulary_add(vocabulary, where, (ls_span){"the", 3}, 5, error));
 *   int32_t id = ls_vocabulary_find(vocabulary, (ls_span){"the", 3});
 *
 * Ids may have holes. Constant once filled: thread-safe. */
#ifndef LS_TOKENIZER_VOCABULARY_H
#define LS_TOKENIZER_VOCABULARY_H

#include "tokenizer/token_buffer.h"

enum { LS_VOCABULARY_MOST = 1 << 24 }; /* ids are below it: more is a mistake, or a bomb */

typedef struct ls_vocabulary {
  ls_arena *arena;
  ls_span *pieces; /* [count]; .text NULL: no such id */
  int32_t count, capacity;
  int32_t *slots; /* hash table of ids + 1 */
  uint32_t slot_count;
  int32_t filled;
  size_t longest; /* bytes of the longest piece */
} ls_vocabulary;

ls_vocabulary *ls_vocabulary_create(ls_arena *arena);

/* Adds a piece, copying its text. The same pair twice is fine; LS_INPUT for an id outside [0,
 * LS_VOCABULARY_MOST), an id of two pieces and a piece with two ids. */
LS_CHECKED ls_status ls_vocabulary_add(ls_vocabulary *vocabulary, const char *where, ls_span piece,
                                       int64_t id, ls_error *error);

/* Another vocabulary of the same pieces. */
LS_CHECKED ls_status ls_vocabulary_copy(ls_arena *arena, const ls_vocabulary *from,
                                        const char *where, ls_vocabulary **copy, ls_error *error);

/* The piece's id, -1 where there is none. */
int32_t ls_vocabulary_find(const ls_vocabulary *vocabulary, ls_span piece);

/* A hash of bytes, for tables: quick, and no defence against an adversary. */
uint64_t ls_vocabulary_hash(ls_span text);

#endif
