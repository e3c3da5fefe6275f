#include "data/text_blocks.h"

#include <inttypes.h>
#include <string.h>

#include "base/random.h"
#include "data/fingerprint.h"
#include "data/text_check.h"
#include "data/text_stream.h"

enum { BUFFER_BYTES = 1 << 24 };

struct ls_text_blocks {
  const char *key;
  const ls_text_files *files;
  const ls_tokenizer *tokenizer;
  ls_text_stream *stream; /* of files->items[file]; NULL: it is still to be opened */
  int file;
  ls_arena *arena;
  char *buffer;
  size_t capacity, used;
  size_t cut;           /* bytes that are in blocks already */
  size_t known;         /* bytes without a line's end; of JSON lines */
  int64_t line;         /* number of the line that begins at `cut` */
  bool inside;          /* plain text: a block of the document is out already */
  bool skipping;        /* a line that is too long, to its end */
  int depth;            /* of a JSON list: brackets open at `cut` + `known`, its own too */
  bool quoted, escaped; /* there, inside a string; behind a backslash */
  bool closed;          /* the list has ended */
  int64_t packed_bytes; /* of the files before */
  uint64_t fingerprint;
  ls_text_check check; /* of the open file */
  int bad_files, first_bad_file;
  int64_t bad_bytes, first_bad; /* that are no UTF-8 */
  LS_LIST(ls_text_block) items; /* of this batch */
};

/* Of a few small texts all of them; else what keeps all cores busy: two blocks each. */
static size_t buffer_bytes(const ls_text_files *files, int threads) {
  const int64_t busy = (int64_t)threads * 2 * LS_BLOCK_BYTES;
  const int64_t most = busy > BUFFER_BYTES ? busy : BUFFER_BYTES;
  for (int i = 0; i < files->count; i++)
    if (files->items[i].packing == LS_TEXT_GZIP || files->items[i].packing == LS_TEXT_ZSTD)
      return (size_t)most;
  return (size_t)(files->bytes < most ? files->bytes : most) + LS_TEXT_HEAD_BYTES;
}

void ls_text_blocks_open(const char *key, const ls_text_files *files, const ls_tokenizer *tokenizer,
                         int threads, ls_text_blocks **blocks) {
  ls_arena *arena = ls_arena_create();
  ls_text_blocks *made = LS_NEW(arena, ls_text_blocks);
  made->arena = arena;
  made->key = key;
  made->files = files;
  made->tokenizer = tokenizer;
  made->capacity = buffer_bytes(files, threads);
  made->buffer = ls_arena_alloc(arena, made->capacity);
  made->fingerprint = ls_random_stream("texts");
  *blocks = made;
}

void ls_text_blocks_close(ls_text_blocks **blocks) {
  ls_text_blocks *dying = *blocks;
  *blocks = NULL;
  if (!dying) return;
  ls_text_stream_close(&dying->stream);
  ls_arena_destroy(&dying->arena); /* which it lies in */
}

int64_t ls_text_blocks_packed_bytes(const ls_text_blocks *blocks) {
  return blocks->packed_bytes + (blocks->stream ? ls_text_stream_packed_bytes(blocks->stream) : 0);
}

uint64_t ls_text_blocks_fingerprint(const ls_text_blocks *blocks) {
  return blocks->fingerprint;
}

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

static void add_block(ls_text_blocks *self, const ls_text_block *block) {
  *LS_APPEND(self->arena, &self->items) = *block;
}

/* Where the text is cut, for its beginning alone, twice as long each time until it can be. All of
 * it is where it ends; 0: more of it must be there. */
static ls_status find_cut(const ls_text_blocks *self, const char *text, int64_t left, bool ended,
                          int64_t *bytes, ls_error *error) {
  *bytes = left;
  if (ended && left <= LS_BLOCK_BYTES) return LS_OK;
  for (int64_t window = LS_BLOCK_BYTES + 1; window <= LS_LINE_BYTES + 1; window = 2 * window - 1) {
    const bool all = window >= left;
    *bytes = 0;
    if (all && !ended) return LS_OK;
    *bytes = ls_tokenizer_cut(self->tokenizer, text, all ? left : window);
    if (*bytes == 0 && all) *bytes = left;
    if (*bytes > 0) return LS_OK;
  }
  return ls_fail(error, LS_INPUT,
                 "%s: %s has %d MiB without a place where the text may be cut; expected a line end "
                 "or a space between words",
                 self->key, self->files->items[self->file].path, LS_LINE_BYTES >> 20);
}

static ls_status take_plain(ls_text_blocks *self, bool ended, ls_error *error) {
  while (self->cut < self->used) {
    const int64_t left = (int64_t)(self->used - self->cut);
    char *text = self->buffer + self->cut;
    int64_t bytes;
    LS_TRY(find_cut(self, text, left, ended, &bytes, error));
    if (bytes == 0) return LS_OK;
    const bool whole = bytes == left;
    add_block(self, &(ls_text_block){.text = text,
                                     .bytes = bytes,
                                     .file = self->file,
                                     .first = !self->inside,
                                     .last = whole});
    self->inside = !whole;
    self->cut += (size_t)bytes;
  }
  return LS_OK;
}

/* A line from `cut` on, without its end. */
static void add_line(ls_text_blocks *self, int64_t bytes) {
  char *text = self->buffer + self->cut;
  if (self->line == 1 && bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
    text += 3; /* a byte order mark */
    bytes -= 3;
  }
  while (bytes > 0 && is_blank(text[bytes - 1])) bytes--;
  const bool too_long = self->skipping || bytes > LS_LINE_BYTES;
  self->skipping = false;
  if (bytes == 0 && !too_long) return;
  add_block(self, &(ls_text_block){.text = text,
                                   .bytes = too_long ? 0 : bytes,
                                   .file = self->file,
                                   .line = self->line,
                                   .first = true,
                                   .last = true,
                                   .too_long = too_long});
}

static void take_lines(ls_text_blocks *self, bool ended) {
  for (;;) {
    const size_t looked_at = self->cut + self->known;
    const char *end = memchr(self->buffer + looked_at, '\n', self->used - looked_at);
    if (!end) break;
    const size_t place = (size_t)(end - self->buffer);
    add_line(self, (int64_t)(place - self->cut));
    self->line++;
    self->cut = place + 1;
    self->known = 0;
  }
  self->known = self->used - self->cut;
  if (!ended) return;
  const bool open = self->known > 0 || self->skipping;
  if (open) add_line(self, (int64_t)self->known);
  self->cut = self->used;
  self->known = 0;
}

/* One more character of a list; whether an item ends behind it. */
static bool item_ends(ls_text_blocks *self, char c) {
  if (self->quoted) {
    const bool escaped = self->escaped;
    self->escaped = !escaped && c == '\\';
    self->quoted = escaped || c != '"';
    return false;
  }
  if (c == '"') self->quoted = true;
  if (c == '{' || c == '[') self->depth++;
  if (c == '}' || c == ']') self->depth--;
  return self->depth == 1 && (c == '}' || c == ']');
}

static void take_item(ls_text_blocks *self) {
  const int64_t bytes = (int64_t)self->known, line = self->line;
  int64_t next = line;
  for (int64_t i = 0; i < bytes; i++) next += self->buffer[self->cut + (size_t)i] == '\n';
  add_line(self, bytes);
  self->line = next;
  self->cut += self->known;
  self->known = 0;
}

static ls_status refuse_list(const ls_text_blocks *self, char c, ls_error *error) {
  const char *path = self->files->items[self->file].path;
  if (self->closed)
    return ls_fail(error, LS_INPUT, "%s:%lld: found more behind the list; expected the end of it",
                   path, (long long)self->line);
  return ls_fail(error, LS_INPUT,
                 "%s:%lld: found %s; expected a list of objects in .json: [{...}, ...], or in "
                 ".jsonl an object a line",
                 path, (long long)self->line, c == '{' ? "an object" : "something that is no list");
}

/* What is no list, or no object, in a list ends before a comma, a bracket or a blank. */
static bool ended_before(const ls_text_blocks *self, char c) {
  const bool inside = self->known > 0 || self->skipping;
  return inside && self->depth == 1 && !self->quoted && (c == ',' || c == ']' || is_blank(c));
}

/* What lies between items; false: an item begins or goes on. */
static bool take_between(ls_text_blocks *self, char c) {
  const bool opens = c == '[' && self->depth == 0 && !self->closed;
  const bool closes = c == ']' && self->depth == 1;
  if (!is_blank(c) && !opens && !closes && (c != ',' || self->depth == 0)) return false;
  self->line += c == '\n';
  self->depth += opens ? 1 : closes ? -1 : 0;
  self->closed |= closes;
  self->cut++;
  return true;
}

/* Items of a list of objects, each a line by its first character's number. */
static ls_status take_items(ls_text_blocks *self, bool ended, ls_error *error) {
  while (self->cut + self->known < self->used) {
    const char c = self->buffer[self->cut + self->known];
    const bool between = self->known == 0 && self->depth <= 1 && !self->quoted && !self->skipping;
    if (between && take_between(self, c)) continue;
    if (self->depth == 0 && between) return refuse_list(self, c, error);
    if (ended_before(self, c)) {
      take_item(self);
      continue;
    }
    const bool whole = item_ends(self, c);
    self->known++;
    if (whole) take_item(self);
  }
  if (!ended || self->closed) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s:%lld: found the end of the file; expected %s",
                 self->files->items[self->file].path, (long long)self->line,
                 self->depth ? "']', which ends the list" : "a list of objects");
}

/* Nothing could be cut from a full buffer: a line that needs a larger one, or is too long. */
static void make_room(ls_text_blocks *self) {
  if (self->cut > 0) {
    memmove(self->buffer, self->buffer + self->cut, self->used - self->cut);
    self->used -= self->cut;
    self->cut = 0;
    return;
  }
  if (self->skipping || self->capacity > LS_LINE_BYTES) {
    self->skipping = true;
    self->used = self->known = 0;
    return;
  }
  char *buffer = ls_arena_alloc(self->arena, 2 * self->capacity);
  memcpy(buffer, self->buffer, self->used);
  self->buffer = buffer;
  self->capacity *= 2;
}

static ls_status begin_file(ls_text_blocks *self, ls_error *error) {
  self->check = (ls_text_check){.key = self->key, .path = self->files->items[self->file].path};
  self->line = 1;
  self->known = 0;
  self->inside = self->skipping = self->quoted = self->escaped = self->closed = false;
  self->depth = 0;
  return ls_text_stream_open(self->key, &self->files->items[self->file], &self->stream, error);
}

static void count_bad(ls_text_blocks *self) {
  const int64_t bad = self->files->items[self->file].json_lines ? 0 : self->check.bad;
  if (bad > 0 && self->bad_files++ == 0) {
    self->first_bad_file = self->file;
    self->first_bad = self->check.first_bad;
  }
  self->bad_bytes += bad;
}

static void warn_of_bad(const ls_text_blocks *self) {
  if (self->bad_files == 0) return;
  const char *path = self->files->items[self->first_bad_file].path;
  const char *become = self->tokenizer->pipeline ? "what is no UTF-8 is read as U+FFFD"
                                                 : "they are kept as they are";
  if (self->bad_files == 1)
    ls_warn("%s: %s: bytes that are NUL or no UTF-8: %" PRId64 ", the first at offset %" PRId64
            "; %s",
            self->key, path, self->bad_bytes, self->first_bad, become);
  else
    ls_warn("%s: bytes that are NUL or no UTF-8: %" PRId64
            " in %d files, the first at offset "
            "%" PRId64 " of %s; %s",
            self->key, self->bad_bytes, self->bad_files, self->first_bad, path, become);
}

static void end_file(ls_text_blocks *self) {
  count_bad(self);
  self->packed_bytes += ls_text_stream_packed_bytes(self->stream);
  self->fingerprint =
      ls_fingerprint_word(self->fingerprint, ls_text_stream_fingerprint(self->stream));
  ls_text_stream_close(&self->stream);
  if (++self->file == self->files->count) warn_of_bad(self);
}

/* Of JSON lines the beginning alone: each line is checked by who reads it. */
static ls_status check_read(ls_text_blocks *self, const char *text, size_t bytes, ls_error *error) {
  const bool lines = self->files->items[self->file].json_lines;
  if (bytes == 0) return lines ? LS_OK : ls_text_check_end(&self->check, error);
  if (lines && self->check.bytes > 0) return LS_OK;
  return ls_text_check_add(&self->check, text,
                           lines && bytes > LS_TEXT_HEAD_BYTES ? LS_TEXT_HEAD_BYTES : bytes, error);
}

/* A byte order mark is no part of a plain text; of JSON lines it is taken off with the line. */
static void skip_mark(ls_text_blocks *self, const char *text, size_t bytes) {
  if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) self->cut += 3;
}

/* As much as there is room for; of a file's beginning its head at least. */
static ls_status read_some(ls_text_blocks *self, char *text, size_t *bytes, ls_error *error) {
  const size_t room = self->capacity - self->used;
  size_t got;
  *bytes = 0;
  do {
    LS_TRY(ls_text_stream_read(self->stream, text + *bytes, room - *bytes, &got, error));
    *bytes += got;
  } while (got > 0 && self->check.bytes == 0 && *bytes < LS_TEXT_HEAD_BYTES);
  return LS_OK;
}

/* Reads on in the open file and cuts what is there. */
static ls_status read_on(ls_text_blocks *self, ls_error *error) {
  char *text = self->buffer + self->used;
  size_t got;
  LS_TRY(read_some(self, text, &got, error));
  const bool begins = self->check.bytes == 0;
  LS_TRY(check_read(self, text, got, error));
  self->used += got;
  const ls_text_file *file = &self->files->items[self->file];
  if (begins && (!file->json_lines || file->json_array)) skip_mark(self, text, got);
  const bool ended = got == 0;
  if (self->files->items[self->file].json_array)
    LS_TRY(take_items(self, ended, error));
  else if (self->files->items[self->file].json_lines)
    take_lines(self, ended);
  else
    LS_TRY(take_plain(self, ended, error));
  if (ended) end_file(self);
  return LS_OK;
}

ls_status ls_text_blocks_next(ls_text_blocks *self, ls_text_batch *batch, ls_error *error) {
  self->items.count = 0;
  if (self->cut > 0) make_room(self);
  while (self->file < self->files->count) {
    if (!self->stream) LS_TRY(begin_file(self, error));
    const size_t least = self->check.bytes == 0 ? LS_TEXT_HEAD_BYTES : 1;
    if (self->capacity - self->used < least) {
      if (self->items.count > 0) break;
      make_room(self);
    }
    LS_TRY(read_on(self, error));
  }
  *batch =
      (ls_text_batch){self->buffer, (int64_t)self->capacity, self->items.items, self->items.count};
  return LS_OK;
}
