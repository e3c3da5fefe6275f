/* Growing memory of an encoder: bytes of text, spans of it, token ids.
 *
 *   ls_bytes text = {0};
 *   ls_bytes_append(&text, "abc", 3);
 *   ls_bytes_free(&text);
 *
 * All zero is empty. What is in a buffer moves when it grows. One thread at a time. */
#ifndef LS_TOKENIZER_TOKEN_BUFFER_H
#define LS_TOKENIZER_TOKEN_BUFFER_H

#include "tokenizer/tokenizer.h"

/* A part of a text, borrowed. */
typedef struct ls_span {
  const char *text;
  size_t bytes;
} ls_span;

typedef struct ls_bytes {
  char *data;
  size_t count, capacity;
} ls_bytes;

typedef struct ls_spans {
  ls_span *items;
  size_t count, capacity;
} ls_spans;

/* Makes room for `more` bytes behind what is there. */
void ls_bytes_reserve(ls_bytes *buffer, size_t more);
void ls_bytes_append(ls_bytes *buffer, const void *data, size_t bytes);
void ls_bytes_free(ls_bytes *buffer);

void ls_spans_append(ls_spans *spans, const char *text, size_t bytes);
void ls_spans_free(ls_spans *spans);

/* Makes room for `more` ids behind what is there. */
void ls_ids_reserve(ls_ids *ids, int64_t more);

static inline void ls_ids_push(ls_ids *ids, int32_t id) {
  if (ids->count == ids->capacity) ls_ids_reserve(ids, 1);
  ids->items[ids->count++] = id;
}

#endif
