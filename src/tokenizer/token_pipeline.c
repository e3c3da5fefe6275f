#include "tokenizer/token_pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "text/quote.h"

ls_token_pipeline *ls_token_pipeline_create(void) {
  ls_arena *arena = ls_arena_create();
  ls_token_pipeline *made = LS_NEW(arena, ls_token_pipeline);
  made->arena = arena;
  made->vocabulary = ls_vocabulary_create(arena);
  made->tokenizer.pipeline = made;
  made->tokenizer.end_of_text = made->begin = made->mask = -1;
  pthread_mutex_init(&made->lock, NULL);
  return made;
}

static void free_encoder(ls_encoder *encoder) {
  ls_matcher_free(&encoder->matcher);
  ls_bytes_free(&encoder->repaired);
  ls_bytes_free(&encoder->sentence);
  ls_bytes_free(&encoder->word);
  for (int i = 0; i < 2; i++) {
    ls_bytes_free(&encoder->normalizer.made[i]);
    ls_bytes_free(&encoder->pre.made[i]);
  }
  ls_spans_free(&encoder->pre.words);
  ls_spans_free(&encoder->pre.before);
  ls_bpe_work_free(&encoder->bpe);
  ls_unigram_work_free(&encoder->unigram);
  free(encoder);
}

void ls_token_pipeline_destroy(ls_token_pipeline **pipeline) {
  ls_token_pipeline *self = *pipeline;
  *pipeline = NULL;
  if (!self) return;
  for (ls_encoder *next; self->idle; self->idle = next) {
    next = self->idle->next;
    free_encoder(self->idle);
  }
  ls_normalizer_free(&self->normalizer);
  ls_pre_tokenizer_free(&self->pre);
  ls_token_decoder_free(&self->decoder);
  pthread_mutex_destroy(&self->lock);
  ls_arena *arena = self->arena;
  ls_arena_destroy(&arena);
}

ls_status ls_token_pipeline_add_token(ls_token_pipeline *self, const char *where,
                                      const ls_added_token *token, ls_added_tokens **into,
                                      bool special, ls_error *error) {
  LS_TRY(ls_vocabulary_add(self->vocabulary, where, token->content, token->id, error));
  if (special) *LS_APPEND(self->arena, &self->special) = *token;
  if (!into) return LS_OK;
  if (!*into) *into = ls_added_tokens_create(self->arena);
  ls_added_tokens_add(*into, token);
  return LS_OK;
}

/* Whether ▁ is a piece and stands in every piece only before or behind others of itself at its
 * beginning: then no merge goes over the place before a ▁ that follows another character. */
static bool can_cut_at_sign(const ls_vocabulary *vocabulary) {
  static const char sign[] = "\xe2\x96\x81";
  if (ls_vocabulary_find(vocabulary, (ls_span){sign, 3}) < 0) return false;
  for (int32_t id = 0; id < vocabulary->count; id++) {
    ls_span piece = vocabulary->pieces[id];
    while (piece.bytes >= 3 && memcmp(piece.text, sign, 3) == 0) {
      piece.text += 3;
      piece.bytes -= 3;
    }
    if (piece.bytes && memmem(piece.text, piece.bytes, sign, 3)) return false;
  }
  return true;
}

/* Texts of the ids inside a text, as they follow each other when a model writes. */
static ls_status make_texts(ls_token_pipeline *self, ls_error *error) {
  const int32_t count = self->vocabulary->count;
  self->shown = LS_NEW_ARRAY(self->arena, ls_span, count);
  self->texts = LS_NEW_ARRAY(self->arena, ls_span, count);
  if (count) memcpy(self->shown, self->vocabulary->pieces, (size_t)count * sizeof *self->shown);
  for (int i = 0; i < self->renamed.count; i++) {
    self->shown[self->renamed.items[i].id] = self->renamed.items[i].content;
  }
  ls_bytes made = {0};
  ls_status status = LS_OK;
  for (int32_t id = 0; id < count && status == LS_OK; id++) {
    const ls_span piece = self->shown[id];
    if (!piece.text) continue;
    made.count = 0;
    ls_bytes_reserve(&made, 1);
    if (self->bytes_are_text) {
      ls_bytes_append(&made, piece.text, piece.bytes);
    } else if (self->sentence) {
      ls_sentence_piece(self->sentence, id, piece, &made);
    } else {
      status = ls_token_decoder_piece(&self->decoder, piece, &made, error);
    }
    char *copy = ls_arena_alloc(self->arena, made.count + 1);
    memcpy(copy, made.data, made.count);
    self->texts[id] = (ls_span){copy, made.count};
  }
  ls_bytes_free(&made);
  return status;
}

ls_status ls_token_pipeline_finish(ls_token_pipeline *self, ls_error *error) {
  self->tokenizer.vocabulary = self->vocabulary->count;
  self->cut_at_sign =
      self->bpe && !self->pre.bytes && can_cut_at_sign(self->vocabulary) && !self->bytes_are_text;
  self->is_special = LS_NEW_ARRAY(self->arena, bool, self->vocabulary->count);
  for (int i = 0; i < self->special.count; i++) {
    self->is_special[self->special.items[i].id] = true;
  }
  return make_texts(self, error);
}

static ls_encoder *take_encoder(ls_token_pipeline *self) {
  pthread_mutex_lock(&self->lock);
  ls_encoder *taken = self->idle;
  if (taken) self->idle = taken->next;
  pthread_mutex_unlock(&self->lock);
  if (!taken) taken = calloc(1, sizeof *taken);
  if (!taken) ls_out_of_memory(sizeof *taken);
  return taken;
}

static void give_encoder(ls_token_pipeline *self, ls_encoder *encoder) {
  pthread_mutex_lock(&self->lock);
  encoder->next = self->idle;
  self->idle = encoder;
  pthread_mutex_unlock(&self->lock);
}

/* One encoding of one text. */
typedef struct encoding {
  const ls_token_pipeline *pipeline;
  ls_encoder *encoder;
  unsigned flags;
  ls_ids *ids;
} encoding;

static void encode_word(const encoding *self, ls_span word) {
  if (self->pipeline->word_piece) {
    ls_word_piece_encode(self->pipeline->word_piece, &self->encoder->word, word, self->ids);
  } else if (self->pipeline->unigram) {
    ls_unigram_encode(self->pipeline->unigram, &self->encoder->unigram, word, self->ids);
  } else {
    ls_bpe_encode(self->pipeline->bpe, &self->encoder->bpe, word, self->ids);
  }
}

/* Words up to each ▁ that follows another character: what they become does not depend on it, and
 * the cache of words knows most of them. */
static void encode_at_sign(const encoding *self, ls_span text) {
  static const char sign[] = "\xe2\x96\x81";
  const char *begin = text.text, *end = text.text + text.bytes;
  for (const char *at = begin; at < end;) {
    while (end - at >= 3 && memcmp(at, sign, 3) == 0) at += 3;
    while (at < end) {
      at = memchr(at, sign[0], (size_t)(end - at));
      if (!at) at = end;
      if (end - at >= 3 && memcmp(at, sign, 3) == 0) break;
      if (at < end) at++;
    }
    encode_word(self, (ls_span){begin, (size_t)(at - begin)});
    begin = at;
  }
}

static ls_status encode_plain(const encoding *self, ls_span text, bool first, bool goes_on,
                              ls_error *error) {
  const ls_token_pipeline *pipeline = self->pipeline;
  ls_pre_tokenizer_work *work = &self->encoder->pre;
  work->matcher = &self->encoder->matcher;
  if (!pipeline->pre.steps.count) {
    if (pipeline->cut_at_sign) {
      encode_at_sign(self, text);
    } else {
      encode_word(self, text);
    }
    return LS_OK;
  }
  LS_TRY(ls_pre_tokenizer_apply(&pipeline->pre, text, first, goes_on, work, error));
  for (size_t i = 0; i < work->words.count; i++) encode_word(self, work->words.items[i]);
  return LS_OK;
}

/* Text between tokens: normalized, searched for the tokens of normalized text, cut into words. */
static ls_status encode_segment(const encoding *self, ls_span text, bool at_start,
                                ls_error *error) {
  const ls_token_pipeline *pipeline = self->pipeline;
  const bool goes_on = at_start && (self->flags & LS_TOKENS_CONTINUE);
  if (pipeline->sentence) {
    text = ls_sentence_normalize(pipeline->sentence, text, goes_on, self->flags & LS_TOKENS_MORE,
                                 &self->encoder->sentence);
  } else {
    self->encoder->normalizer.matcher = &self->encoder->matcher;
    LS_TRY(ls_normalizer_apply(&pipeline->normalizer, text, goes_on, &self->encoder->normalizer,
                               &text, error));
  }
  ls_added_cursor cursor = {0};
  ls_added_segment segment;
  while (ls_added_tokens_next(pipeline->added_normalized, text, &cursor, &segment)) {
    if (segment.id >= 0) {
      ls_ids_push(self->ids, segment.id);
      continue;
    }
    const bool begins = segment.text.text == text.text;
    LS_TRY(
        encode_plain(self, segment.text, begins && at_start && !goes_on, begins && goes_on, error));
  }
  return LS_OK;
}

static ls_status encode_text(const encoding *self, ls_span text, ls_error *error) {
  const ls_token_pipeline *pipeline = self->pipeline;
  const ls_added_tokens *added = pipeline->added;
  if (!added && (self->flags & LS_TOKENS_SPECIAL)) added = pipeline->added_on_request;
  ls_added_cursor cursor = {0};
  ls_added_segment segment;
  while (ls_added_tokens_next(added, text, &cursor, &segment)) {
    if (segment.id >= 0) {
      ls_ids_push(self->ids, segment.id);
    } else {
      LS_TRY(encode_segment(self, segment.text, segment.text.text == text.text, error));
    }
  }
  return LS_OK;
}

static ls_status append_with(ls_token_pipeline *pipeline, ls_span text, unsigned flags, ls_ids *ids,
                             ls_error *error) {
  const encoding self = {pipeline, take_encoder(pipeline), flags, ids};
  const bool special = flags & LS_TOKENS_SPECIAL;
  ls_ids_reserve(ids, (int64_t)(text.bytes / 4) + 8);
  for (int i = 0; i < pipeline->prefix.count && special && !(flags & LS_TOKENS_CONTINUE); i++) {
    ls_ids_push(ids, pipeline->prefix.items[i]);
  }
  text = ls_unicode_repair(text, pipeline->sentence != NULL, &self.encoder->repaired);
  const ls_status status = encode_text(&self, text, error);
  for (int i = 0; i < pipeline->suffix.count && special && !(flags & LS_TOKENS_MORE); i++) {
    ls_ids_push(ids, pipeline->suffix.items[i]);
  }
  give_encoder(pipeline, self.encoder);
  return status;
}

typedef struct appending {
  const ls_tokenizer *tokenizer;
  const void *text;
  int64_t bytes;
  unsigned flags;
  ls_ids *ids;
} appending;

static ls_status append(void *context, ls_error *error) {
  const appending *self = context;
  const ls_tokenizer *tokenizer = self->tokenizer;
  ls_ids *ids = self->ids;
  if (tokenizer->pipeline)
    return append_with(tokenizer->pipeline, (ls_span){self->text, (size_t)self->bytes}, self->flags,
                       ids, error);
  ls_ids_reserve(ids, self->bytes + 1);
  ids->count += tokenizer->encode(tokenizer, self->text, self->bytes, ids->items + ids->count);
  return LS_OK;
}

ls_status ls_tokenizer_append(const ls_tokenizer *tokenizer, const void *text, int64_t bytes,
                              unsigned flags, ls_ids *ids, ls_error *error) {
  LS_ASSERT(bytes >= 0);
  if (bytes > INT32_MAX / 4) {
    return ls_fail(error, LS_INPUT,
                   "a text of %lld bytes is to be tokenized at once; expected at most %d: cut it",
                   (long long)bytes, INT32_MAX / 4);
  }
  /* In a guard of its own: texts are encoded by teams of threads. */
  return ls_arena_guard(append, &(appending){tokenizer, text, bytes, flags, ids}, false, error);
}

const char *ls_tokenizer_piece(const ls_tokenizer *tokenizer, int32_t id, char small[256],
                               size_t *bytes) {
  *bytes = 0;
  if (id < 0 || id >= tokenizer->vocabulary) return NULL;
  if (!tokenizer->pipeline) {
    *bytes = (size_t)tokenizer->decode(tokenizer, id, small);
    return small;
  }
  *bytes = tokenizer->pipeline->texts[id].bytes;
  return tokenizer->pipeline->texts[id].text;
}

bool ls_tokenizer_is_special(const ls_tokenizer *tokenizer, int32_t id) {
  if (!tokenizer->pipeline || id < 0 || id >= tokenizer->vocabulary) return false;
  return tokenizer->pipeline->is_special[id];
}

int32_t ls_tokenizer_begin(const ls_tokenizer *tokenizer) {
  return tokenizer->pipeline ? tokenizer->pipeline->begin : -1;
}

int32_t ls_tokenizer_mask(const ls_tokenizer *tokenizer) {
  return tokenizer->pipeline ? tokenizer->pipeline->mask : -1;
}

static ls_status decode_with(const ls_token_pipeline *self, ls_spans *pieces, const ls_ids *ids,
                             ls_bytes *out, ls_error *error) {
  if (self->sentence) {
    ls_sentence_decode(self->sentence, pieces, ids->items, out);
    return LS_OK;
  }
  if (!self->bytes_are_text) return ls_token_decoder_apply(&self->decoder, pieces, out, error);
  ls_bytes joined = {0};
  ls_bytes_reserve(&joined, 1);
  for (size_t i = 0; i < pieces->count; i++) {
    ls_bytes_append(&joined, pieces->items[i].text, pieces->items[i].bytes);
  }
  ls_bytes repaired = {0};
  const ls_span all = ls_unicode_repair((ls_span){joined.data, joined.count}, false, &repaired);
  ls_bytes_append(out, all.text, all.bytes);
  ls_bytes_free(&joined);
  ls_bytes_free(&repaired);
  return LS_OK;
}

/* The pieces that are to be seen, and their ids. */
static ls_status gather(const ls_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                        unsigned flags, ls_spans *pieces, ls_ids *shown, ls_error *error) {
  const ls_token_pipeline *self = tokenizer->pipeline;
  for (int64_t i = 0; i < count; i++) {
    const bool known = ids[i] >= 0 && ids[i] < tokenizer->vocabulary && self->shown[ids[i]].text;
    if (!known) {
      return ls_fail(error, LS_INPUT, "id %d is not one of the tokenizer's; expected 0 to %d",
                     ids[i], tokenizer->vocabulary - 1);
    }
    if (self->is_special[ids[i]] && !(flags & LS_TOKENS_SPECIAL)) continue;
    ls_spans_append(pieces, self->shown[ids[i]].text, self->shown[ids[i]].bytes);
    ls_ids_push(shown, ids[i]);
  }
  return LS_OK;
}

ls_status ls_tokenizer_text(const ls_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                            unsigned flags, char **text, size_t *bytes, ls_error *error) {
  ls_bytes out = {0};
  ls_bytes_reserve(&out, (size_t)count * 4 + 1);
  ls_status status = LS_OK;
  if (tokenizer->pipeline) {
    ls_spans pieces = {0};
    ls_ids shown = {0};
    status = gather(tokenizer, ids, count, flags, &pieces, &shown, error);
    if (status == LS_OK) status = decode_with(tokenizer->pipeline, &pieces, &shown, &out, error);
    ls_spans_free(&pieces);
    ls_ids_free(&shown);
  } else {
    for (int64_t i = 0; i < count && status == LS_OK; i++) {
      char small[256];
      size_t length;
      const char *piece = ls_tokenizer_piece(tokenizer, ids[i], small, &length);
      if (piece) {
        ls_bytes_append(&out, piece, length);
      } else {
        status = ls_fail(error, LS_INPUT, "id %d is not one of the tokenizer's; expected 0 to %d",
                         ids[i], tokenizer->vocabulary - 1);
      }
    }
  }
  if (status != LS_OK) {
    ls_bytes_free(&out);
    return status;
  }
  ls_bytes_reserve(&out, 1);
  out.data[out.count] = 0;
  *text = out.data;
  *bytes = out.count;
  return LS_OK;
}
