#include "tokenizer/pre_tokenizer.h"

#include <string.h>

#include "tokenizer/byte_level.h"

/* Takes the ranges of a text in order, matches and what is between, and makes words of them. */
typedef struct cutter {
  const ls_pre_tokenizer_step *step;
  const char *text;
  ls_spans *words;
  size_t first_word; /* of this text */
  bool previous;     /* the range before was a match */
  bool held;         /* LS_SPLIT_WITH_NEXT: a match that waits for what it joins */
  size_t held_begin, held_end;
} cutter;

static void put_word(cutter *self, size_t begin, size_t end) {
  if (begin < end) ls_spans_append(self->words, self->text + begin, end - begin);
}

static void put_held(cutter *self) {
  if (self->held) put_word(self, self->held_begin, self->held_end);
  self->held = false;
}

/* Makes the last word end at `end`; false where this text has none yet. */
static bool extend_last(cutter *self, size_t end) {
  if (self->words->count == self->first_word) return false;
  ls_span *last = &self->words->items[self->words->count - 1];
  last->bytes = (size_t)(self->text + end - last->text);
  return true;
}

static void put_range(cutter *self, size_t begin, size_t end, bool match) {
  if (self->step->invert) match = !match;
  switch (self->step->behavior) {
    case LS_SPLIT_ISOLATED: put_word(self, begin, end); break;
    case LS_SPLIT_REMOVED:
      if (!match) put_word(self, begin, end);
      break;
    case LS_SPLIT_CONTIGUOUS:
      if (match != self->previous || !extend_last(self, end)) put_word(self, begin, end);
      break;
    case LS_SPLIT_WITH_PREVIOUS:
      if (!match || self->previous || !extend_last(self, end)) put_word(self, begin, end);
      break;
    case LS_SPLIT_WITH_NEXT:
      if (match) {
        put_held(self);
        self->held = true;
        self->held_begin = begin;
        self->held_end = end;
      } else {
        put_word(self, self->held ? self->held_begin : begin, end);
        self->held = false;
      }
      break;
  }
  self->previous = match;
}

/* A match that may also be of a text that stands for itself. */
static ls_status find(const ls_pre_tokenizer_step *step, ls_matcher *matcher, ls_span text,
                      size_t from, ls_match *match, ls_error *error) {
  if (step->pattern) return ls_pattern_find(matcher, from, match, error);
  const char *at = memmem(text.text + from, text.bytes - from, step->text.text, step->text.bytes);
  match->found = at != NULL;
  if (at) match->begin = (size_t)(at - text.text);
  match->end = match->begin + step->text.bytes;
  return LS_OK;
}

static ls_status cut_by_pattern(cutter *self, ls_matcher *matcher, ls_span text, ls_error *error) {
  size_t done = 0, from = 0;
  if (self->step->pattern) ls_pattern_begin(self->step->pattern, matcher, text);
  while (from < text.bytes) {
    ls_match match = {0};
    LS_TRY(find(self->step, matcher, text, from, &match, error));
    if (!match.found) break;
    if (match.begin > done) put_range(self, done, match.begin, false);
    put_range(self, match.begin, match.end, true);
    done = from = match.end;
    if (match.end == match.begin && from < text.bytes) { /* go on behind the next character */
      const char *next = text.text + from;
      ls_unicode_next(&next);
      from = (size_t)(next - text.text);
    }
  }
  if (done < text.bytes) put_range(self, done, text.bytes, false);
  return LS_OK;
}

static bool is_of_kind(ls_pre_tokenizer_kind kind, uint32_t point) {
  if (kind == LS_PRE_DIGITS) return ls_unicode_is_number(point);
  if (kind == LS_PRE_PUNCTUATION) return ls_unicode_is_punctuation(point);
  return ls_unicode_is_space(point);
}

/* Each character of a kind is a match of its own. */
static void cut_by_kind(cutter *self, ls_span text) {
  size_t done = 0;
  for (const char *at = text.text, *end = at + text.bytes; at < end;) {
    const size_t begin = (size_t)(at - text.text);
    if (!is_of_kind(self->step->kind, ls_unicode_next(&at))) continue;
    if (begin > done) put_range(self, done, begin, false);
    done = (size_t)(at - text.text);
    put_range(self, begin, done, true);
  }
  if (done < text.bytes) put_range(self, done, text.bytes, false);
}

static ls_status cut(const ls_pre_tokenizer_step *step, ls_span text, ls_pre_tokenizer_work *work,
                     ls_error *error) {
  cutter self = {
      .step = step, .text = text.text, .words = &work->words, .first_word = work->words.count};
  if (step->kind == LS_PRE_SPLIT || step->kind == LS_PRE_WORDS || step->kind == LS_PRE_METASPACE) {
    LS_TRY(cut_by_pattern(&self, work->matcher, text, error));
  } else {
    cut_by_kind(&self, text);
  }
  put_held(&self);
  return LS_OK;
}

static bool starts_with(ls_span text, ls_span start) {
  return text.bytes >= start.bytes && memcmp(text.text, start.text, start.bytes) == 0;
}

static size_t total_bytes(const ls_spans *words) {
  size_t total = 0;
  for (size_t i = 0; i < words->count; i++) total += words->items[i].bytes;
  return total;
}

/* A word that was written at the end of a buffer from `begin` on. The buffer has its room. */
static ls_span written(const ls_bytes *buffer, size_t begin) {
  return (ls_span){buffer->data + begin, buffer->count - begin};
}

static void put_space_first(ls_pre_tokenizer_work *work, ls_bytes *made, bool goes_on) {
  ls_bytes_reserve(made, total_bytes(&work->before) + work->before.count + 1);
  for (size_t i = 0; i < work->before.count; i++) {
    const ls_span word = work->before.items[i];
    const size_t begin = made->count;
    if (word.text[0] != ' ' && !(goes_on && i == 0)) ls_bytes_append(made, " ", 1);
    ls_bytes_append(made, word.text, word.bytes);
    ls_spans_append(&work->words, written(made, begin).text, made->count - begin);
  }
}

static void put_alphabet(ls_pre_tokenizer_work *work, ls_bytes *made) {
  ls_bytes_reserve(made, 4 * total_bytes(&work->before) + 8);
  for (size_t i = 0; i < work->before.count; i++) {
    const size_t begin = made->count;
    ls_byte_level_write(work->before.items[i], made);
    ls_spans_append(&work->words, written(made, begin).text, made->count - begin);
  }
}

/* Back from the alphabet, of which all words are at the end. */
static void take_alphabet(ls_pre_tokenizer_work *work, ls_bytes *made) {
  made->count = 0;
  ls_bytes_reserve(made, 2 * total_bytes(&work->words) + 8);
  for (size_t i = 0; i < work->words.count; i++) {
    const size_t begin = made->count;
    const bool read = ls_byte_level_read(work->words.items[i], made);
    LS_ASSERT(read);
    work->words.items[i] = written(made, begin);
  }
}

/* Spaces become the character, one is put first; the words are cut before each. */
static ls_status put_metaspace(const ls_pre_tokenizer_step *step, bool first, bool goes_on,
                               ls_pre_tokenizer_work *work, ls_bytes *made, ls_error *error) {
  const size_t wide = step->text.bytes;
  ls_bytes_reserve(made, wide * (total_bytes(&work->before) + work->before.count) + 1);
  for (size_t i = 0; i < work->before.count; i++) {
    const ls_span word = work->before.items[i];
    const size_t begin = made->count;
    const bool has = word.text[0] == ' ' || starts_with(word, step->text);
    const bool wanted =
        step->scheme == LS_PREPEND_ALWAYS || (step->scheme == LS_PREPEND_FIRST && first && i == 0);
    if (wanted && !has && !(goes_on && i == 0)) ls_bytes_append(made, step->text.text, wide);
    for (size_t b = 0; b < word.bytes; b++) {
      if (word.text[b] == ' ') {
        ls_bytes_append(made, step->text.text, wide);
      } else {
        ls_bytes_append(made, word.text + b, 1);
      }
    }
    const ls_span whole = written(made, begin);
    if (step->split) {
      LS_TRY(cut(step, whole, work, error));
    } else {
      ls_spans_append(&work->words, whole.text, whole.bytes);
    }
  }
  return LS_OK;
}

static ls_status apply_step(const ls_pre_tokenizer_step *step, bool first, bool goes_on,
                            ls_pre_tokenizer_work *work, ls_bytes *made, ls_error *error) {
  switch (step->kind) {
    case LS_PRE_SPACE_FIRST: put_space_first(work, made, goes_on); return LS_OK;
    case LS_PRE_ALPHABET: put_alphabet(work, made); return LS_OK;
    case LS_PRE_METASPACE: return put_metaspace(step, first, goes_on, work, made, error);
    case LS_PRE_SPLIT:
    case LS_PRE_WORDS:
    case LS_PRE_DIGITS:
    case LS_PRE_PUNCTUATION:
    case LS_PRE_SPACES: break;
  }
  for (size_t i = 0; i < work->before.count; i++) {
    LS_TRY(cut(step, work->before.items[i], work, error));
  }
  return LS_OK;
}

ls_status ls_pre_tokenizer_apply(const ls_pre_tokenizer *pre, ls_span text, bool first,
                                 bool goes_on, ls_pre_tokenizer_work *work, ls_error *error) {
  work->words.count = 0;
  if (text.bytes) ls_spans_append(&work->words, text.text, text.bytes);
  int next = 0; /* the buffer that the words are not in */
  for (int i = 0; i < pre->steps.count; i++) {
    const ls_spans before = work->words;
    work->words = work->before;
    work->before = before;
    work->words.count = 0;
    ls_bytes *made = &work->made[next];
    made->count = 0;
    LS_TRY(apply_step(&pre->steps.items[i], first, goes_on, work, made, error));
    /* A step that writes words writes all of them: the other buffer is free then. */
    if (made->count) next = 1 - next;
  }
  if (pre->alphabet) take_alphabet(work, &work->made[next]);
  return LS_OK;
}
