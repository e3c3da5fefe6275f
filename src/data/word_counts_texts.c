/* Counting the words of texts with all cores: one thread reads and cuts, all count, each in a table
 * of its own. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "data/json_line.h"
#include "data/text_blocks.h"
#include "data/word_counts_texts.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

enum { MOST_THREADS = 256, SPAN_BYTES = 1 << 16 };

/* What a thread takes at once: a line, or some text. */
typedef struct item {
  char *text;
  int64_t bytes;
  int file;
  int64_t line; /* 0: plain text */
  bool too_long;
} item;

typedef struct counter {
  struct counting *all;
  ls_arena *arena;
  ls_word_counts *counts;
  ls_matcher matcher;
  ls_bytes repaired;
  ls_status status;
  int failed; /* the item that status is of */
  ls_error error;
} counter;

typedef struct counting {
  const ls_word_counts_options *options;
  const ls_text_files *files;
  ls_pattern *pattern;
  counter *counters;
  int threads;
  ls_arena *batch; /* what lives as long as the items */
  LS_LIST(item) items;
  atomic_int next;
  ls_bytes held; /* a document's text behind its last cut */
} counting;

static bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether a character begins here that is no white space, whatever comes behind these bytes. All
 * of Unicode's begin with C2, E1, E2, E3 80, or are ASCII. */
static bool is_solid(const char *at, const char *end) {
  const unsigned char c = (unsigned char)*at;
  if (c < 0x80) return !is_blank((char)c);
  if (c == 0xe3) return end - at > 1 && (unsigned char)at[1] != 0x80;
  return c > 0xc2 && c != 0xe1 && c != 0xe2;
}

/* GPT-2's pattern gives the last white space before a word to it, or makes it a word: what is
 * before it ends a word either way, and its own look ahead sees white space or the end alike. */
int64_t ls_word_counts_cut(ls_span text, bool first) {
  const char *end = text.text + text.bytes;
  const int64_t pairs = (int64_t)text.bytes - 1;
  for (int64_t i = 0; i < pairs; i++) {
    const int64_t at = first ? i : pairs - 1 - i;
    if (is_blank(text.text[at]) && is_solid(text.text + at + 1, end)) return at;
  }
  return -1;
}

static ls_status count_words(counter *self, ls_span text, ls_error *error) {
  self->repaired.count = 0;
  text = ls_unicode_repair(text, false, &self->repaired);
  ls_pattern_begin(self->all->pattern, &self->matcher, text);
  for (size_t from = 0; from < text.bytes;) {
    ls_match match;
    LS_TRY(ls_pattern_find(&self->matcher, from, &match, error));
    /* Every character is of one of the pattern's kinds: words lie side by side. */
    LS_ASSERT(match.found && match.begin == from && match.end > from);
    ls_word_counts_add(self->counts, (ls_span){text.text + from, match.end - from}, 1);
    from = match.end;
  }
  return LS_OK;
}

static ls_status count_item(counter *self, const item *each, ls_error *error) {
  const char *path = self->all->files->items[each->file].path;
  if (!each->line) {
    const ls_span text = {each->text, (size_t)each->bytes};
    if (count_words(self, text, error) == LS_OK) return LS_OK;
    return ls_error_prefix(error, "%s", path);
  }
  if (each->too_long) {
    return ls_fail(error, LS_INPUT, "%s:%lld: a line of more than %d bytes; expected shorter ones",
                   path, (long long)each->line, LS_LINE_BYTES);
  }
  ls_json_line line;
  LS_TRY(ls_json_line_read(path, each->line, each->text, each->bytes, self->all->options->text_key,
                           &line, error));
  ls_status status = count_words(self, (ls_span){line.text, (size_t)line.bytes}, error);
  if (status != LS_OK) status = ls_error_prefix(error, "%s:%lld", path, (long long)each->line);
  ls_json_line_close(&line);
  return status;
}

/* One that fails stops; items before that one are all taken by then, and gone through. */
static ls_status count_items(void *context, ls_error *error) {
  counter *self = context;
  for (;;) {
    const int at = atomic_fetch_add(&self->all->next, 1);
    if (at >= self->all->items.count) return LS_OK;
    self->failed = at;
    LS_TRY(count_item(self, &self->all->items.items[at], error));
  }
}

/* A thread, the calling one too: whichever runs out of memory, all are joined. */
static void *run_counter(void *context) {
  counter *self = context;
  self->status = ls_arena_guard(count_items, self, false, &self->error);
  return NULL;
}

/* The calling thread is one of the threads. The first failure in the texts' order is told. */
static ls_status count_batch(counting *self, ls_error *error) {
  pthread_t others[MOST_THREADS];
  int started = 0;
  const int wanted = self->items.count < self->threads ? self->items.count : self->threads;
  atomic_store(&self->next, 0);
  while (started < wanted - 1 &&
         pthread_create(&others[started], NULL, run_counter, &self->counters[started + 1]) == 0)
    started++;
  run_counter(&self->counters[0]);
  for (int i = 0; i < started; i++) pthread_join(others[i], NULL);
  const counter *failed = NULL;
  for (int t = 0; t < self->threads; t++) {
    const counter *each = &self->counters[t];
    if (each->status != LS_OK && (!failed || each->failed < failed->failed)) failed = each;
  }
  if (!failed) return LS_OK;
  if (error) *error = failed->error;
  return failed->status;
}

static void put_text(counting *self, char *text, int64_t bytes, int file) {
  while (bytes > 0) {
    int64_t taken = bytes;
    if (bytes > SPAN_BYTES) { /* in parts, for the sake of many threads */
      const ls_span rest = {text + SPAN_BYTES, (size_t)(bytes - SPAN_BYTES)};
      const int64_t cut = ls_word_counts_cut(rest, true);
      if (cut >= 0) taken = SPAN_BYTES + cut;
    }
    *LS_APPEND(self->batch, &self->items) = (item){.text = text, .bytes = taken, .file = file};
    text += taken;
    bytes -= taken;
  }
}

/* What is held, as an item. */
static void put_held(counting *self, int file) {
  char *text = ls_arena_alloc(self->batch, self->held.count);
  if (self->held.count) memcpy(text, self->held.data, self->held.count);
  put_text(self, text, (int64_t)self->held.count, file);
  self->held.count = 0;
}

/* Plain text comes cut anywhere: what is behind the last good place waits for the next block. */
static ls_status put_plain(counting *self, const ls_text_block *block, ls_error *error) {
  char *text = block->text;
  int64_t bytes = block->bytes;
  if (!block->first) {
    const int64_t cut = ls_word_counts_cut((ls_span){text, (size_t)bytes}, true);
    const int64_t joined = cut >= 0 ? cut : bytes;
    ls_bytes_append(&self->held, text, (size_t)joined);
    text += joined;
    bytes -= joined;
    if (cut >= 0 || block->last) put_held(self, block->file);
  }
  if (!block->last && bytes > 0) {
    const int64_t cut = ls_word_counts_cut((ls_span){text, (size_t)bytes}, false);
    const int64_t whole = cut > 0 ? cut : 0;
    ls_bytes_append(&self->held, text + whole, (size_t)(bytes - whole));
    bytes = whole;
  }
  put_text(self, text, bytes, block->file);
  if (self->held.count <= LS_LINE_BYTES) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found %d MiB without white space between words; expected some",
                 self->files->items[block->file].path, LS_LINE_BYTES >> 20);
}

static ls_status put_batch(counting *self, const ls_text_batch *batch, ls_error *error) {
  self->items.items = NULL;
  self->items.count = self->items.capacity = 0;
  for (int i = 0; i < batch->count; i++) {
    const ls_text_block *block = &batch->items[i];
    if (!block->line) {
      LS_TRY(put_plain(self, block, error));
      continue;
    }
    *LS_APPEND(self->batch, &self->items) = (item){.text = block->text,
                                                   .bytes = block->bytes,
                                                   .file = block->file,
                                                   .line = block->line,
                                                   .too_long = block->too_long};
  }
  return LS_OK;
}

static ls_status count_all(counting *self, ls_text_blocks *blocks, ls_error *error) {
  for (;;) {
    ls_text_batch batch;
    LS_TRY(ls_text_blocks_next(blocks, &batch, error));
    if (batch.count == 0) return LS_OK;
    self->batch = ls_arena_create();
    ls_status status = put_batch(self, &batch, error);
    if (status == LS_OK) status = count_batch(self, error);
    ls_arena_destroy(&self->batch);
    LS_TRY(status);
    if (self->options->progress) {
      self->options->progress(self->options->context, ls_text_blocks_packed_bytes(blocks),
                              self->files->bytes);
    }
  }
}

static void begin_counters(counting *self, ls_arena *arena) {
  self->threads = self->options->threads;
  if (self->threads < 1) self->threads = 1;
  if (self->threads > MOST_THREADS) self->threads = MOST_THREADS;
  self->counters = LS_NEW_ARRAY(arena, counter, self->threads);
  for (int t = 0; t < self->threads; t++) {
    counter *each = &self->counters[t];
    each->all = self;
    each->arena = ls_arena_create();
    each->counts = ls_word_counts_create(each->arena);
  }
}

/* `counts`: NULL: what was counted is of no use. */
static void end_counters(counting *self, ls_word_counts *counts) {
  for (int t = 0; t < self->threads; t++) {
    counter *each = &self->counters[t];
    for (int i = 0; counts && i < each->counts->count; i++)
      ls_word_counts_add(counts, each->counts->items[i].word, each->counts->items[i].count);
    ls_matcher_free(&each->matcher);
    ls_bytes_free(&each->repaired);
    ls_arena_destroy(&each->arena);
  }
}

ls_status ls_word_counts_texts(const ls_word_counts_options *options, const ls_text_files *files,
                               ls_word_counts *counts, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  counting self = {.options = options, .files = files};
  ls_status status = ls_pattern_compile(arena, "words", ls_byte_level_pattern, LS_PATTERN_RUBY,
                                        &self.pattern, error);
  if (status == LS_OK) {
    ls_text_blocks *blocks;
    begin_counters(&self, arena);
    ls_text_blocks_open("text", files, ls_tokenizer_bytes(), self.threads, &blocks);
    status = count_all(&self, blocks, error);
    ls_text_blocks_close(&blocks);
    end_counters(&self, status == LS_OK ? counts : NULL);
  }
  ls_pattern_free(self.pattern);
  ls_bytes_free(&self.held);
  ls_arena_destroy(&arena);
  return status;
}
