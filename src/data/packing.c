#include "data/packing.h"

#include <string.h>

#include "model/model.h"

/* A sequence that is being filled. */
typedef struct bin {
  int64_t next; /* with as much room left; -1: none */
  int64_t last; /* piece put in; pieces of a bin are linked back */
  int64_t held; /* pieces in it */
} bin;

typedef struct packer {
  ls_arena *arena;
  const ls_text_part *part;
  int64_t seq_len;
  ls_too_long too_long;
  bool whole;      /* documents, none of which is left out */
  int64_t longest; /* of one document of a pair; 0: there are no pairs */
  int64_t most;    /* pieces of a sequence; 0: as many as fit */
  ls_packing *made;
  LS_LIST(ls_packed_piece) pieces;
  int64_t *before; /* [pieces] the one put into its bin before; -1: none */
  bin *bins;       /* at most as many as pieces */
  int64_t bin_count;
  int64_t *with_room; /* [seq_len + 1] a bin with exactly so much room; -1: none */
  uint64_t *any;      /* a bit for each room that some bin has */
} packer;

/* How many of these tokens are targets: the first of an example has nothing before it. */
static ls_status count_trained(const packer *self, int64_t first, int64_t count, int64_t *trained,
                               ls_error *error) {
  enum { ONCE = 1024 };
  int32_t labels[ONCE];
  *trained = 0;
  for (int64_t at = 1; at < count;) {
    const int64_t here = count - at < ONCE ? count - at : ONCE;
    LS_TRY(ls_corpus_copy_labels(self->part->corpus, first + at, here, labels, error));
    for (int64_t i = 0; i < here; i++) *trained += labels[i] >= 0;
    at += here;
  }
  return LS_OK;
}

static void add_piece(packer *self, const ls_packed_piece *piece, int64_t trained) {
  ls_packing *made = self->made;
  const int64_t before = self->pieces.count;
  const ls_packed_piece *last = before ? &self->pieces.items[before - 1] : NULL;
  const bool shares = last && last->first + last->count > piece->first;
  *LS_APPEND(self->arena, &self->pieces) = *piece;
  made->examples++;
  made->tokens += piece->count;
  made->distinct += piece->count - shares;
  made->trained += trained;
}

/* How many tokens at the end of `count` are trained. */
static ls_status count_classes(const packer *self, int64_t first, int64_t count, int64_t *classes,
                               ls_error *error) {
  enum { ONCE = 64 };
  int32_t labels[ONCE];
  *classes = 0;
  while (*classes < count) {
    const int64_t left = count - *classes, here = left < ONCE ? left : ONCE;
    int64_t own = 0;
    LS_TRY(ls_corpus_copy_labels(self->part->corpus, first + left - here, here, labels, error));
    while (own < here && labels[here - 1 - own] >= 0) own++;
    *classes += own;
    if (own < here) break;
  }
  return LS_OK;
}

/* A text of `count` tokens with its classes behind them, or of each token one. */
static ls_status add_labelled(packer *self, int64_t first, int64_t count, int64_t classes,
                              ls_error *error) {
  const bool too_long = count > self->seq_len;
  LS_ASSERT(count > 0);
  LS_ASSERT(self->too_long != LS_TOO_LONG_SPLIT);
  if (too_long && self->too_long == LS_TOO_LONG_DROP) {
    self->made->dropped++;
    return LS_OK;
  }
  const int64_t kept = too_long ? self->seq_len : count;
  int64_t trained = 1;
  /* The first that is counted has nothing before it, as if it were asked for what follows. */
  if (self->made->each) LS_TRY(count_trained(self, first + count - 1, kept + 1, &trained, error));
  if (trained == 0) {
    self->made->unasked++;
    return LS_OK;
  }
  self->made->cut += too_long;
  const int32_t labels = (int32_t)(self->made->each ? kept : classes);
  add_piece(self, &(ls_packed_piece){first, (int32_t)kept, 0, first + count, labels}, trained);
  return LS_OK;
}

/* Pieces of a document, each of which is asked for what follows its tokens but the last, so that
 * the next begins with that one. Those of which nothing is trained are left out. */
static ls_status add_pieces(packer *self, int64_t first, int64_t count, ls_error *error) {
  for (int64_t at = 0; at + 1 < count; at += self->seq_len - 1) {
    const int64_t left = count - at, own = left < self->seq_len ? left : self->seq_len;
    int64_t trained;
    LS_TRY(count_trained(self, first + at, own, &trained, error));
    if (trained > 0)
      add_piece(self, &(ls_packed_piece){first + at, (int32_t)own, 0, 0, 0}, trained);
  }
  return LS_OK;
}

static ls_status add_example(packer *self, int64_t first, int64_t count, ls_error *error) {
  ls_packing *made = self->made;
  if (made->labelled) {
    int64_t classes = made->each ? count / 2 : 1;
    if (made->several) LS_TRY(count_classes(self, first, count, &classes, error));
    return add_labelled(self, first, count - classes, classes, error);
  }
  const bool too_long = count > self->seq_len;
  int64_t trained;
  if (too_long && self->too_long == LS_TOO_LONG_SPLIT) {
    made->split++;
    return add_pieces(self, first, count, error);
  }
  if (too_long && self->too_long == LS_TOO_LONG_DROP) {
    made->dropped++;
    return LS_OK;
  }
  if (too_long) count = self->seq_len;
  LS_TRY(count_trained(self, first, count, &trained, error));
  if (trained == 0) {
    made->unasked++;
    return LS_OK;
  }
  add_piece(self, &(ls_packed_piece){first, (int32_t)count, 0, 0, 0}, trained);
  made->cut += too_long;
  return LS_OK;
}

/* Two documents of the corpus from number `d` on. */
static ls_status add_pair(packer *self, int64_t d, ls_error *error) {
  const ls_corpus *corpus = self->part->corpus;
  ls_packing *made = self->made;
  int64_t count[2], trained[2];
  LS_ASSERT(d + 1 < corpus->document_count);
  for (int64_t s = 0; s < 2; s++) {
    const int64_t first = corpus->documents[d + s].first, next = d + s + 1;
    const bool last = next == corpus->document_count;
    count[s] = (last ? corpus->count : corpus->documents[next].first) - first;
    LS_TRY(count_trained(self, first, count[s], &trained[s], error));
  }
  if (count[0] + count[1] > self->seq_len || count[0] > self->longest || count[1] > self->longest) {
    made->dropped++;
    return LS_OK;
  }
  if (trained[0] == 0 || trained[1] == 0) {
    made->unasked++;
    return LS_OK;
  }
  const int32_t both = (int32_t)(count[0] + count[1]);
  add_piece(self, &(ls_packed_piece){corpus->documents[d].first, both, (int32_t)count[0], 0, 0},
            trained[0] + trained[1]);
  return LS_OK;
}

/* Document `d`, whose tokens are [first, end) of those of a run. */
static ls_status add_one(packer *self, int64_t d, int64_t first, int64_t end, ls_error *error) {
  if (self->whole) return add_pieces(self, first, end - first, error);
  return self->longest ? add_pair(self, d, error) : add_example(self, first, end - first, error);
}

/* The documents of a part, which are whole ones; in pieces, what a part has of its first and last
 * too. */
static ls_status add_examples(packer *self, ls_error *error) {
  const ls_corpus *corpus = self->part->corpus;
  const int64_t step = self->longest ? 2 : 1;
  for (int64_t r = 0; r < self->part->run_count; r++) {
    const ls_token_run *run = &self->part->runs[r];
    const int64_t end = run->first + (run[1].place - run->place);
    for (int64_t d = ls_corpus_document(corpus, run->first);
         d < corpus->document_count && corpus->documents[d].first < end; d += step) {
      const int64_t begins = corpus->documents[d].first;
      const int64_t next =
          d + 1 < corpus->document_count ? corpus->documents[d + 1].first : corpus->count;
      if (begins < run->first && !self->whole) continue;
      LS_TRY(add_one(self, d, begins < run->first ? run->first : begins, next < end ? next : end,
                     error));
    }
  }
  return LS_OK;
}

/* The numbers of the pieces, longest first; of equal ones in their order. */
static int64_t *by_length(const packer *self) {
  const int64_t count = self->pieces.count;
  int64_t *order = LS_NEW_ARRAY(self->arena, int64_t, count + 1);
  int64_t *places = LS_NEW_ARRAY(self->arena, int64_t, self->seq_len + 2);
  for (int64_t p = 0; p < count; p++) places[self->seq_len - self->pieces.items[p].count + 1]++;
  for (int64_t l = 0; l <= self->seq_len; l++) places[l + 1] += places[l];
  for (int64_t p = 0; p < count; p++)
    order[places[self->seq_len - self->pieces.items[p].count]++] = p;
  return order;
}

static void put_back(packer *self, int64_t b, int64_t room) {
  self->bins[b].next = self->with_room[room];
  self->with_room[room] = b;
  self->any[room / 64] |= UINT64_C(1) << room % 64;
}

/* A bin with the least room that is enough; a new one where none is. */
static int64_t take_bin(packer *self, int64_t wanted, int64_t *room) {
  for (int64_t word = wanted / 64; word <= self->seq_len / 64; word++) {
    uint64_t bits = self->any[word];
    if (word == wanted / 64) bits &= ~UINT64_C(0) << wanted % 64;
    if (!bits) continue;
    *room = word * 64 + __builtin_ctzll(bits);
    const int64_t b = self->with_room[*room];
    self->with_room[*room] = self->bins[b].next;
    if (self->with_room[*room] < 0) self->any[word] &= ~(UINT64_C(1) << *room % 64);
    return b;
  }
  *room = self->seq_len;
  self->bins[self->bin_count] = (bin){-1, -1, 0};
  return self->bin_count++;
}

static void fill_bins(packer *self) {
  const int64_t count = self->pieces.count;
  const int64_t *order = by_length(self);
  self->before = LS_NEW_ARRAY(self->arena, int64_t, count + 1);
  self->bins = LS_NEW_ARRAY(self->arena, bin, count + 1);
  self->with_room = LS_NEW_ARRAY(self->arena, int64_t, self->seq_len + 1);
  self->any = LS_NEW_ARRAY(self->arena, uint64_t, self->seq_len / 64 + 1);
  for (int64_t r = 0; r <= self->seq_len; r++) self->with_room[r] = -1;
  for (int64_t o = 0; o < count; o++) {
    const int64_t p = order[o], length = self->pieces.items[p].count;
    int64_t room;
    const int64_t b = take_bin(self, length, &room);
    self->before[p] = self->bins[b].last;
    self->bins[b].last = p;
    if (++self->bins[b].held != self->most) put_back(self, b, room - length);
  }
}

static void list_rows(packer *self) {
  ls_packed_piece *pieces = LS_NEW_ARRAY(self->arena, ls_packed_piece, self->pieces.count + 1);
  int64_t *rows = LS_NEW_ARRAY(self->arena, int64_t, self->bin_count + 1), count = 0;
  for (int64_t b = 0; b < self->bin_count; b++) {
    rows[b] = count;
    for (int64_t p = self->bins[b].last; p >= 0; p = self->before[p]) count++;
    int64_t at = count; /* they are linked from the last to the first */
    for (int64_t p = self->bins[b].last; p >= 0; p = self->before[p])
      pieces[--at] = self->pieces.items[p];
  }
  rows[self->bin_count] = count;
  self->made->pieces = pieces;
  self->made->rows = rows;
  self->made->row_count = self->bin_count;
}

/* `form` says what there is of labels. */
static ls_status make(packer *self, ls_packing form, const ls_packing **packing, ls_error *error) {
  self->made = LS_NEW(self->arena, ls_packing);
  *self->made = form;
  LS_TRY(add_examples(self, error));
  fill_bins(self);
  list_rows(self);
  *packing = self->made;
  return LS_OK;
}

static packer packer_of(ls_arena *arena, const ls_text_part *part, const ls_packing_room *room) {
  return (packer){.arena = arena,
                  .part = part,
                  .seq_len = room->seq_len,
                  .most = room->most,
                  .too_long = room->too_long};
}

ls_status ls_packing_make(ls_arena *arena, const ls_text_part *part, const ls_packing_room *room,
                          const ls_packing **packing, ls_error *error) {
  packer self = packer_of(arena, part, room);
  LS_ASSERT(room->too_long != LS_TOO_LONG_SPLIT || room->seq_len > 1);
  return make(&self, (ls_packing){0}, packing, error);
}

ls_status ls_packing_make_pairs(ls_arena *arena, const ls_text_part *part,
                                const ls_packing_room *room, int64_t longest,
                                const ls_packing **packing, ls_error *error) {
  packer self = packer_of(arena, part, room);
  LS_ASSERT(longest > 0);
  self.longest = longest;
  return make(&self, (ls_packing){0}, packing, error);
}

ls_status ls_packing_make_labelled(ls_arena *arena, const ls_text_part *part,
                                   const ls_packing_room *room, bool several, bool first,
                                   const ls_packing **packing, ls_error *error) {
  packer self = packer_of(arena, part, room);
  const ls_packing form = {.labelled = true, .several = several, .first = first};
  return make(&self, form, packing, error);
}

ls_status ls_packing_make_each(ls_arena *arena, const ls_text_part *part,
                               const ls_packing_room *room, const ls_packing **packing,
                               ls_error *error) {
  packer self = packer_of(arena, part, room);
  return make(&self, (ls_packing){.labelled = true, .each = true}, packing, error);
}

ls_status ls_packing_make_texts(ls_arena *arena, const ls_text_part *part,
                                const ls_packing_room *room, const ls_packing **packing,
                                ls_error *error) {
  packer self = packer_of(arena, part, room);
  LS_ASSERT(room->most > 0);
  return make(&self, (ls_packing){.texts = true}, packing, error);
}

ls_status ls_packing_make_documents(ls_arena *arena, const ls_text_part *part, int64_t seq_len,
                                    const ls_packing **packing, ls_error *error) {
  packer self = {.arena = arena, .part = part, .seq_len = seq_len, .whole = true};
  LS_ASSERT(seq_len > 1);
  return make(&self, (ls_packing){0}, packing, error);
}
