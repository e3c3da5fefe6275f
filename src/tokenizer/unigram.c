#include "tokenizer/unigram.h"

#include "tokenizer/unicode.h"

/* The best way to a place in the text: its last piece, and where that begins. */
typedef struct node {
  int32_t id;
  int32_t begin; /* -1: no way leads here */
  float score;
} node;

#define UNKNOWN_PENALTY 10.0f

void ls_unigram_work_free(ls_unigram_work *work) {
  ls_bytes_free(&work->nodes);
}

/* The sum is compared in double and kept in float, as the reference does. */
static void offer(node *target, int32_t id, size_t begin, double score) {
  if (target->begin >= 0 && score <= (double)target->score) return;
  *target = (node){id, (int32_t)begin, (float)score};
}

/* All pieces that begin at `begin`. */
static void extend(const ls_unigram *self, node *nodes, ls_span text, size_t begin) {
  const float here = nodes[begin].score;
  const char *at = text.text + begin, *end = text.text + text.bytes;
  const size_t most = self->pieces->longest;
  bool single = false;
  size_t first = 0;
  while (at < end) {
    ls_unicode_next(&at);
    const ls_span piece = {text.text + begin, (size_t)(at - text.text) - begin};
    if (!first) first = piece.bytes;
    if (piece.bytes > most) break;
    const int32_t id = ls_vocabulary_find(self->pieces, piece);
    if (id < 0) continue;
    if (piece.bytes == first) single = true;
    if (self->user_defined[id]) {
      const double score = (double)((float)piece.bytes * self->highest) - 0.1;
      offer(&nodes[begin + piece.bytes], id, begin, score + (double)here);
    } else {
      offer(&nodes[begin + piece.bytes], id, begin, (double)self->scores[id] + (double)here);
    }
  }
  if (!single && first) {
    const float unknown = self->lowest - UNKNOWN_PENALTY;
    offer(&nodes[begin + first], self->unknown, begin, (double)(unknown + here));
  }
}

void ls_unigram_encode(const ls_unigram *self, ls_unigram_work *work, ls_span text, ls_ids *ids) {
  work->nodes.count = 0;
  ls_bytes_reserve(&work->nodes, (text.bytes + 1) * sizeof(node));
  node *nodes = (node *)(void *)work->nodes.data;
  for (size_t i = 0; i <= text.bytes; i++) nodes[i] = (node){.begin = -1};
  nodes[0].begin = 0;
  for (const char *at = text.text, *end = at + text.bytes; at < end; ls_unicode_next(&at)) {
    extend(self, nodes, text, (size_t)(at - text.text));
  }
  /* From the end back; then the order is turned, and unknown characters in a row become one. */
  const int64_t before = ids->count;
  for (size_t end = text.bytes; end > 0; end = (size_t)nodes[end].begin) {
    const node *last = &nodes[end];
    if (last->id != self->unknown || !self->byte_ids) {
      const bool again = ids->count > before && ids->items[ids->count - 1] == self->unknown;
      if (last->id != self->unknown || !again) ls_ids_push(ids, last->id);
      continue;
    }
    for (size_t b = end; b > (size_t)last->begin; b--) {
      ls_ids_push(ids, self->byte_ids[(unsigned char)text.text[b - 1]]);
    }
  }
  for (int64_t low = before, high = ids->count - 1; low < high; low++, high--) {
    const int32_t kept = ids->items[low];
    ids->items[low] = ids->items[high];
    ids->items[high] = kept;
  }
}
