/* SentencePiece's tokenizer.model: BPE and Unigram. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/quote.h"
#include "tokenizer/protobuf.h"
#include "tokenizer/token_pipeline.h"

/* Fields of sentencepiece_model.proto. */
enum { MODEL_PIECES = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3, MODEL_DENORMALIZER = 5 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_KIND = 3 };
enum { TRAINER_KIND = 3, TRAINER_SPACE_BEHIND = 24, TRAINER_BYTE_FALLBACK = 35 };
enum { TRAINER_BEGIN = 41, TRAINER_END = 42, TRAINER_UNKNOWN_SURFACE = 44 };
enum { NORMALIZER_MAP = 2, NORMALIZER_DUMMY = 3, NORMALIZER_EXTRA = 4, NORMALIZER_ESCAPE = 5 };
enum { KIND_UNIGRAM = 1, KIND_BPE = 2, KIND_WORD = 3 };

typedef struct reader {
  ls_token_pipeline *pipeline;
  const char *path;
  ls_sentence *sentence;
  LS_LIST(float) scores;
  LS_LIST(uint8_t) kinds;
  int64_t model_kind;
  int64_t begin, end; /* ids; below 0: none */
  int32_t unknown;
  bool byte_fallback;
  bool has_trainer, has_normalizer; /* they stand behind the pieces: a cut file lacks them */
  int32_t *byte_ids;
} reader;

static ls_status fail_broken(const reader *self, ls_error *error) {
  return ls_fail(error, LS_INPUT,
                 "%s: the file is cut or damaged; expected a SentencePiece model or tiktoken's "
                 "ranks",
                 self->path);
}

static ls_status read_piece(reader *self, ls_span message, ls_error *error) {
  ls_protobuf fields = {message.text, message.bytes, false};
  ls_protobuf_field field;
  ls_span text = {"", 0};
  float score = 0;
  uint64_t kind = LS_PIECE_NORMAL;
  while (ls_protobuf_next(&fields, &field)) {
    if (field.number == PIECE_TEXT && field.kind == 2) text = field.text;
    if (field.number == PIECE_SCORE && field.kind == 5) score = field.float_value;
    if (field.number == PIECE_KIND && field.kind == 0) kind = field.number_value;
  }
  if (fields.broken) return fail_broken(self, error);
  ls_token_pipeline *pipeline = self->pipeline;
  const int32_t id = self->kinds.count;
  ls_bytes unused = {0};
  const bool utf8 = ls_unicode_repair(text, false, &unused).text == text.text;
  ls_bytes_free(&unused);
  char shown[LS_QUOTE_BYTES];
  ls_quote(shown, text.text, text.bytes);
  if (!utf8 || !text.bytes || !isfinite(score)) {
    return ls_fail(error, LS_INPUT,
                   "%s: piece %d (\"%s\") is empty, no UTF-8 or has no finite score", self->path,
                   id, shown);
  }
  if (kind < LS_PIECE_NORMAL || kind > LS_PIECE_BYTE || kind == LS_PIECE_UNUSED) {
    return ls_fail(error, LS_INPUT,
                   "%s: piece %d (\"%s\") is of kind %llu (%s), which is not "
                   "supported",
                   self->path, id, shown, (unsigned long long)kind,
                   kind == LS_PIECE_UNUSED ? "unused" : "unknown");
  }
  *LS_APPEND(pipeline->arena, &self->kinds) = (uint8_t)kind;
  *LS_APPEND(pipeline->arena, &self->scores) = score;
  LS_TRY(ls_vocabulary_add(pipeline->vocabulary, self->path, text, id, error));
  if (kind == LS_PIECE_UNKNOWN) self->unknown = id;
  if (kind == LS_PIECE_BYTE) {
    const int byte = ls_byte_piece(text);
    if (byte < 0) {
      return ls_fail(error, LS_INPUT, "%s: piece %d (\"%s\") is a byte; expected it as <0x0A>",
                     self->path, id, shown);
    }
    self->byte_ids[byte] = id;
  }
  return LS_OK;
}

static ls_status read_trainer(reader *self, ls_span message, ls_error *error) {
  self->has_trainer = true;
  ls_protobuf fields = {message.text, message.bytes, false};
  ls_protobuf_field field;
  while (ls_protobuf_next(&fields, &field)) {
    switch (field.number) {
      case TRAINER_KIND: self->model_kind = (int64_t)field.number_value; break;
      case TRAINER_SPACE_BEHIND: self->sentence->space_behind = field.number_value != 0; break;
      case TRAINER_BYTE_FALLBACK: self->byte_fallback = field.number_value != 0; break;
      case TRAINER_BEGIN: self->begin = (int64_t)field.number_value; break;
      case TRAINER_END: self->end = (int64_t)field.number_value; break;
      case TRAINER_UNKNOWN_SURFACE: self->sentence->unknown_surface = field.text; break;
    }
  }
  return fields.broken ? fail_broken(self, error) : LS_OK;
}

static ls_status read_normalizer(reader *self, ls_span message, ls_error *error) {
  self->has_normalizer = true;
  ls_protobuf fields = {message.text, message.bytes, false};
  ls_protobuf_field field;
  ls_span map = {NULL, 0};
  while (ls_protobuf_next(&fields, &field)) {
    switch (field.number) {
      case NORMALIZER_MAP: map = field.text; break;
      case NORMALIZER_DUMMY: self->sentence->add_dummy_prefix = field.number_value != 0; break;
      case NORMALIZER_EXTRA: self->sentence->remove_extra_spaces = field.number_value != 0; break;
      case NORMALIZER_ESCAPE: self->sentence->escape_spaces = field.number_value != 0; break;
    }
  }
  if (fields.broken) return fail_broken(self, error);
  return ls_charsmap_read(self->path, map.text, map.bytes, &self->sentence->map, error);
}

static ls_status read_model(reader *self, ls_span model, ls_error *error) {
  ls_protobuf fields = {model.text, model.bytes, false};
  ls_protobuf_field field;
  while (ls_protobuf_next(&fields, &field)) {
    if (field.kind != 2) continue;
    switch (field.number) {
      case MODEL_PIECES: LS_TRY(read_piece(self, field.text, error)); break;
      case MODEL_TRAINER: LS_TRY(read_trainer(self, field.text, error)); break;
      case MODEL_NORMALIZER: LS_TRY(read_normalizer(self, field.text, error)); break;
      case MODEL_DENORMALIZER:
        if (!field.text.bytes) break;
        return ls_fail(error, LS_INPUT, "%s: a denormalizer is not supported", self->path);
    }
  }
  const bool whole = self->kinds.count && self->has_trainer && self->has_normalizer;
  if (fields.broken || !whole) return fail_broken(self, error);
  return LS_OK;
}

/* What the model may make of a text: pieces by their text, and characters that only begin some. */
static ls_status list_symbols(reader *self, ls_vocabulary **symbols, ls_error *error) {
  const ls_token_pipeline *pipeline = self->pipeline;
  const ls_vocabulary *vocabulary = pipeline->vocabulary;
  *symbols = ls_vocabulary_create(pipeline->arena);
  for (int32_t id = 0; id < vocabulary->count; id++) {
    if (self->kinds.items[id] != LS_PIECE_NORMAL) continue;
    LS_TRY(ls_vocabulary_add(*symbols, self->path, vocabulary->pieces[id], id, error));
  }
  int32_t next = vocabulary->count;
  for (int32_t id = 0; id < vocabulary->count; id++) {
    if (self->kinds.items[id] != LS_PIECE_NORMAL) continue;
    const ls_span piece = vocabulary->pieces[id];
    for (const char *at = piece.text, *end = at + piece.bytes; at < end;) {
      ls_span character = {at, 0};
      ls_unicode_next(&at);
      character.bytes = (size_t)(at - character.text);
      if (ls_vocabulary_find(*symbols, character) >= 0) continue;
      LS_TRY(ls_vocabulary_add(*symbols, self->path, character, next++, error));
    }
  }
  return LS_OK;
}

typedef struct pair {
  int32_t left, right, made;
} pair;

/* Ids in the order of their scores, the highest first. */
typedef struct scored {
  float score;
  int32_t id;
} scored;

static int compare_scores(const void *a, const void *b) {
  const scored *left = a, *right = b;
  if (left->score != right->score) return left->score > right->score ? -1 : 1;
  return left->id - right->id;
}

/* Ranks of pieces: the highest score is 0, equal scores are equal ranks. */
static uint32_t *rank_pieces(const reader *self) {
  ls_arena *arena = self->pipeline->arena;
  const int32_t count = self->pipeline->vocabulary->count;
  scored *order = LS_NEW_ARRAY(arena, scored, count);
  uint32_t *ranks = LS_NEW_ARRAY(arena, uint32_t, count);
  for (int32_t id = 0; id < count; id++) order[id] = (scored){self->scores.items[id], id};
  qsort(order, (size_t)count, sizeof *order, compare_scores);
  for (int32_t i = 1; i < count; i++) {
    const bool equal = order[i].score == order[i - 1].score;
    ranks[order[i].id] = equal ? ranks[order[i - 1].id] : (uint32_t)i;
  }
  return ranks;
}

static ls_status make_bpe(reader *self, ls_error *error) {
  ls_token_pipeline *pipeline = self->pipeline;
  ls_vocabulary *symbols;
  LS_TRY(list_symbols(self, &symbols, error));
  const uint32_t *ranks = rank_pieces(self);
  ls_arena *scratch = ls_arena_create();
  LS_LIST(pair) pairs = {0};
  for (int32_t id = 0; id < pipeline->vocabulary->count; id++) {
    if (self->kinds.items[id] != LS_PIECE_NORMAL) continue;
    const ls_span piece = pipeline->vocabulary->pieces[id];
    const char *at = piece.text, *end = at + piece.bytes;
    for (ls_unicode_next(&at); at < end; ls_unicode_next(&at)) {
      const size_t cut = (size_t)(at - piece.text);
      const int32_t left = ls_vocabulary_find(symbols, (ls_span){piece.text, cut});
      const int32_t right = ls_vocabulary_find(symbols, (ls_span){at, piece.bytes - cut});
      if (left >= 0 && right >= 0) *LS_APPEND(scratch, &pairs) = (pair){left, right, id};
    }
  }
  const ls_bpe_options options = {.symbols = symbols,
                                  .byte_ids = self->byte_fallback ? self->byte_ids : NULL,
                                  .unknown = self->unknown,
                                  .pieces = pipeline->vocabulary->count,
                                  .fall_back_last = true};
  pipeline->bpe = ls_bpe_create(pipeline->arena, &options, pairs.count);
  for (int i = 0; i < pairs.count; i++) {
    const pair *each = &pairs.items[i];
    ls_bpe_add_merge(pipeline->bpe, each->left, each->right, ranks[each->made], each->made);
  }
  ls_arena_destroy(&scratch);
  return LS_OK;
}

static ls_status make_unigram(reader *self, ls_error *error) {
  ls_token_pipeline *pipeline = self->pipeline;
  const int32_t count = pipeline->vocabulary->count;
  ls_vocabulary *pieces = ls_vocabulary_create(pipeline->arena);
  bool *user_defined = LS_NEW_ARRAY(pipeline->arena, bool, count);
  ls_unigram *made = LS_NEW(pipeline->arena, ls_unigram);
  made->lowest = INFINITY;
  made->highest = -INFINITY;
  for (int32_t id = 0; id < count; id++) {
    const uint8_t kind = self->kinds.items[id];
    user_defined[id] = kind == LS_PIECE_USER_DEFINED;
    if (kind != LS_PIECE_NORMAL && !user_defined[id]) continue;
    LS_TRY(ls_vocabulary_add(pieces, self->path, pipeline->vocabulary->pieces[id], id, error));
    if (kind != LS_PIECE_NORMAL) continue;
    made->lowest = fminf(made->lowest, self->scores.items[id]);
    made->highest = fmaxf(made->highest, self->scores.items[id]);
  }
  made->pieces = pieces;
  made->scores = self->scores.items;
  made->user_defined = user_defined;
  made->unknown = self->unknown;
  made->byte_ids = self->byte_fallback ? self->byte_ids : NULL;
  pipeline->unigram = made;
  return LS_OK;
}

/* Control pieces are special; user-defined ones are found in the normalized text. */
static void list_tokens(reader *self) {
  ls_token_pipeline *pipeline = self->pipeline;
  for (int32_t id = 0; id < pipeline->vocabulary->count; id++) {
    const ls_added_token token = {.content = pipeline->vocabulary->pieces[id], .id = id};
    if (self->kinds.items[id] == LS_PIECE_CONTROL) {
      *LS_APPEND(pipeline->arena, &pipeline->special) = token;
    }
    if (self->kinds.items[id] != LS_PIECE_USER_DEFINED) continue;
    if (!pipeline->added_normalized) {
      pipeline->added_normalized = ls_added_tokens_create(pipeline->arena);
    }
    ls_added_tokens_add(pipeline->added_normalized, &token);
  }
  self->sentence->user_defined = pipeline->added_normalized;
}

static ls_status check(const reader *self, ls_error *error) {
  if (self->model_kind != KIND_BPE && self->model_kind != KIND_UNIGRAM) {
    return ls_fail(error, LS_INPUT, "%s: a model of kind %s is not supported; BPE and Unigram are",
                   self->path, self->model_kind == KIND_WORD ? "word" : "character");
  }
  if (self->unknown < 0) {
    return ls_fail(error, LS_INPUT, "%s: found no unknown piece; expected one", self->path);
  }
  for (int byte = 0; self->byte_fallback && byte < 256; byte++) {
    if (self->byte_ids[byte] >= 0) continue;
    return ls_fail(error, LS_INPUT, "%s: byte fallback is on, but there is no piece <0x%02X>",
                   self->path, (unsigned)byte);
  }
  return LS_OK;
}

/* Where the beginning's or the end's token is. */
static bool is_control(const reader *self, int64_t id) {
  return id >= 0 && id < self->kinds.count && self->kinds.items[id] == LS_PIECE_CONTROL;
}

ls_status ls_token_pipeline_read_sentencepiece(ls_token_pipeline *pipeline, const char *path,
                                               const char *data, size_t bytes, ls_error *error) {
  ls_arena *arena = pipeline->arena;
  char *copy = ls_arena_alloc(arena, bytes + 1); /* the table of replacements stays in it */
  if (bytes) memcpy(copy, data, bytes);
  reader self = {.pipeline = pipeline,
                 .path = path,
                 .sentence = LS_NEW(arena, ls_sentence),
                 .model_kind = KIND_UNIGRAM,
                 .begin = 1,
                 .end = 2,
                 .unknown = -1,
                 .byte_ids = LS_NEW_ARRAY(arena, int32_t, 256)};
  for (int byte = 0; byte < 256; byte++) self.byte_ids[byte] = -1;
  *self.sentence = (ls_sentence){.add_dummy_prefix = true,
                                 .remove_extra_spaces = true,
                                 .escape_spaces = true,
                                 .unknown_surface = {" \xe2\x81\x87 ", 5}};
  LS_TRY(read_model(&self, (ls_span){copy, bytes}, error));
  LS_TRY(check(&self, error));
  self.sentence->kinds = self.kinds.items;
  pipeline->sentence = self.sentence;
  list_tokens(&self);
  if (self.model_kind == KIND_BPE) {
    LS_TRY(make_bpe(&self, error));
  } else {
    LS_TRY(make_unigram(&self, error));
  }
  if (is_control(&self, self.begin)) {
    *LS_APPEND(arena, &pipeline->prefix) = (int32_t)self.begin;
  }
  if (is_control(&self, self.end)) pipeline->tokenizer.end_of_text = (int32_t)self.end;
  return LS_OK;
}
