#include "tokenizer/token_buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { FIRST = 64 };

/* Room for at least `needed` items, doubling. */
static void *grow(void *items, size_t needed, size_t *capacity, size_t item_bytes) {
  size_t larger = *capacity < FIRST ? FIRST : *capacity;
  while (larger < needed) {
    if (larger > SIZE_MAX / 2 / item_bytes) ls_panic("a text is larger than the address space");
    larger *= 2;
  }
  void *moved = realloc(items, larger * item_bytes);
  if (!moved) ls_out_of_memory(larger * item_bytes);
  *capacity = larger;
  return moved;
}

void ls_bytes_reserve(ls_bytes *buffer, size_t more) {
  if (buffer->data && buffer->capacity - buffer->count >= more) return;
  buffer->data = grow(buffer->data, buffer->count + more, &buffer->capacity, 1);
}

void ls_bytes_append(ls_bytes *buffer, const void *data, size_t bytes) {
  ls_bytes_reserve(buffer, bytes);
  if (bytes) memcpy(buffer->data + buffer->count, data, bytes);
  buffer->count += bytes;
}

void ls_bytes_free(ls_bytes *buffer) {
  free(buffer->data);
  *buffer = (ls_bytes){0};
}

void ls_spans_append(ls_spans *spans, const char *text, size_t bytes) {
  if (spans->count == spans->capacity) {
    spans->items = grow(spans->items, spans->count + 1, &spans->capacity, sizeof *spans->items);
  }
  spans->items[spans->count++] = (ls_span){text, bytes};
}

void ls_spans_free(ls_spans *spans) {
  free(spans->items);
  *spans = (ls_spans){0};
}

void ls_ids_reserve(ls_ids *ids, int64_t more) {
  if (ids->items && ids->capacity - ids->count >= more) return;
  size_t capacity = (size_t)ids->capacity;
  ids->items = grow(ids->items, (size_t)(ids->count + more), &capacity, sizeof *ids->items);
  ids->capacity = (int64_t)capacity;
}

void ls_ids_free(ls_ids *ids) {
  free(ids->items);
  *ids = (ls_ids){0};
}
