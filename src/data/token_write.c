#include "data/token_write.h"

#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "base/stop.h"
#include "data/fingerprint.h"
#include "data/json_line.h"
#include "data/text_blocks.h"
#include "data/text_stream.h"
#include "device/device.h"
#include "text/json.h"

/* The part of the file that has checksums, written a block at a time. */
typedef struct body {
  FILE *out;
  uint8_t *block; /* [LS_TOKEN_BLOCK_BYTES] */
  size_t used;
  int64_t bytes; /* so far */
  LS_LIST(uint64_t) sums;
} body;

/* What one block became. */
typedef struct outcome {
  ls_status status; /* of its line, and of the tokenizer */
  int thread;       /* whose ids these are among */
  int64_t first, count;
  int64_t chosen; /* of a pair: ids of its first document */
  uint64_t hash;  /* of the text */
} outcome;

typedef struct pass {
  const ls_token_file *file;
  const char *out_path;
  ls_arena *arena;
  body body;
  FILE *documents; /* aside, until all ids are out */
  ls_ids *ids;     /* of this batch, by the thread that made them */
  int threads;
  outcome *outcomes;
  int outcome_room;
  ls_document open; /* the document that is being written */
  ls_token_header header;
} pass;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static ls_status fail_write(const pass *self, ls_error *error) {
  const int64_t written = (int64_t)sizeof self->header + self->body.bytes;
  return ls_fail(error, LS_FAILED,
                 "%s: writing the token file failed after %lld bytes: %m; make room for about %lld "
                 "bytes or %s",
                 self->out_path, (long long)written,
                 (long long)(self->file->files->bytes * (int64_t)self->header.width),
                 self->file->advice);
}

static bool flush_block(pass *self) {
  body *b = &self->body;
  if (!b->used) return true;
  *LS_APPEND(self->arena, &b->sums) = ls_token_block_checksum(b->block, b->used);
  const bool written = fwrite(b->block, 1, b->used, b->out) == b->used;
  b->used = 0;
  return written;
}

static bool put(pass *self, const void *data, size_t bytes) {
  body *b = &self->body;
  const uint8_t *from = data;
  while (bytes > 0) {
    const size_t room = LS_TOKEN_BLOCK_BYTES - b->used;
    const size_t taken = bytes < room ? bytes : room;
    memcpy(b->block + b->used, from, taken);
    from += taken;
    bytes -= taken;
    b->used += taken;
    b->bytes += (int64_t)taken;
    if (b->used == LS_TOKEN_BLOCK_BYTES && !flush_block(self)) return false;
  }
  return true;
}

/* Ids to `width` bytes each, in place: they only get shorter. */
static void narrow(int32_t *ids, int64_t count, int width) {
  uint8_t *target = (uint8_t *)ids;
  if (width == 1)
    for (int64_t i = 0; i < count; i++) target[i] = (uint8_t)ids[i];
  if (width == 2)
    for (int64_t i = 0; i < count; i++) {
      const uint16_t id = (uint16_t)ids[i];
      memcpy(target + 2 * i, &id, sizeof id);
    }
}

static bool put_ids(pass *self, int32_t *ids, int64_t count) {
  const int width = (int)self->header.width;
  narrow(ids, count, width);
  self->header.count += count;
  return put(self, ids, (size_t)count * (size_t)width);
}

static const ls_text_file *file_of(const pass *self, const ls_text_block *block) {
  return &self->file->files->items[block->file];
}

static ls_status read_line(const pass *self, const ls_text_block *block, ls_json_line *line,
                           ls_error *error) {
  const ls_text_file *file = file_of(self, block);
  if (block->too_long)
    return ls_fail(error, LS_INPUT, "%s:%lld: a line of more than %d bytes; expected shorter ones",
                   file->path, (long long)block->line, LS_LINE_BYTES);
  return ls_json_line_read(file->path, block->line, block->text, block->bytes,
                           ls_corpus_field(self->file->options, file), line, error);
}

static ls_status encode_root(const pass *self, const ls_text_file *file, const json_t *root,
                             ls_ids *ids, int64_t *chosen, ls_error *error) {
  const ls_corpus_options *options = self->file->options;
  if (options->text_pairs) return ls_text_pairs_encode(options->text_pairs, root, ids, error);
  if (options->labelled)
    return ls_labelled_encode(options->labelled, root, ls_corpus_field(options, file), ids, error);
  return ls_chat_has_pairs(options->chat)
             ? ls_chat_encode_pair(options->chat, root, ids, chosen, error)
             : ls_chat_encode(options->chat, root, ids, error);
}

/* An example of a chat, or a text with its class: its marked ids. A pair's are those of two
 * documents, the first of *chosen ids. */
static ls_status encode_example(const pass *self, const ls_text_block *block, ls_ids *ids,
                                int64_t *chosen, ls_error *error) {
  const ls_text_file *file = file_of(self, block);
  char where[512];
  snprintf(where, sizeof where, "%s:%lld", file->path, (long long)block->line);
  if (!block->line)
    return ls_fail(error, LS_INPUT, "%s: found a plain text among %s; expected JSON lines",
                   file->path, self->file->options->chat ? "chats" : "texts with a class");
  if (block->too_long)
    return ls_fail(error, LS_INPUT, "%s: a line of more than %d bytes; expected shorter ones",
                   where, LS_LINE_BYTES);
  json_t *root;
  LS_TRY(ls_json_parse_part(file->path, block->line, block->text, (size_t)block->bytes,
                            LS_JSON_LAST_KEY, &root, error));
  const ls_status status = encode_root(self, file, root, ids, chosen, error);
  json_decref(root);
  return status == LS_OK ? LS_OK : ls_error_prefix(error, "%s", where);
}

/* Any thread: a block's ids behind those that the thread has made. */
static ls_status tokenize(const pass *self, const ls_text_block *block, ls_ids *ids, outcome *made,
                          ls_error *error) {
  const ls_tokenizer *tokenizer = self->file->options->tokenizer;
  const uint64_t seed = ls_random_stream("document");
  if (ls_corpus_is_marked(self->file->options)) {
    made->hash = ls_fingerprint_bytes(seed, block->text, (size_t)block->bytes);
    return encode_example(self, block, ids, &made->chosen, error);
  }
  if (!block->line) {
    const unsigned flags =
        (block->first ? 0u : LS_TOKENS_CONTINUE) | (block->last ? 0u : LS_TOKENS_MORE);
    made->hash = ls_fingerprint_bytes(seed, block->text, (size_t)block->bytes);
    return ls_tokenizer_append(tokenizer, block->text, block->bytes, flags, ids, error);
  }
  ls_json_line line;
  LS_TRY(read_line(self, block, &line, error));
  made->hash = ls_fingerprint_bytes(seed, line.text, (size_t)line.bytes);
  const ls_status status = ls_tokenizer_append(tokenizer, line.text, line.bytes, 0, ids, error);
  ls_json_line_close(&line);
  return status;
}

static void begin_threads(pass *self) {
  const int wanted =
      self->file->options->threads > 0 ? self->file->options->threads : ls_host_threads();
  self->threads = 0; /* as many as have ids */
  self->ids = LS_NEW_ARRAY(self->arena, ls_ids, wanted);
  self->threads = wanted;
}

/* What the blocks of a batch are turned into ids by. */
typedef struct batch_work {
  pass *of;
  const ls_text_batch *batch;
} batch_work;

static ls_status tokenize_turn(void *context, int thread, int64_t turn, ls_error *error) {
  (void)error;
  const batch_work *work = context;
  if (ls_stop_asked()) return LS_OK;
  outcome *made = &work->of->outcomes[turn];
  made->thread = thread;
  ls_ids *ids = &work->of->ids[thread];
  made->first = ids->count;
  made->chosen = 0;
  made->status = tokenize(work->of, &work->batch->items[turn], ids, made, NULL);
  made->count = ids->count - made->first;
  return LS_OK;
}

/* Lines are taken several at a time, but so that all threads have some: of plain text a batch is
 * only a few blocks. What follows a signal is left out. */
static void tokenize_batch(pass *self, const ls_text_batch *batch) {
  if (batch->count > self->outcome_room) {
    self->outcome_room = 2 * batch->count;
    self->outcomes = LS_NEW_ARRAY(self->arena, outcome, self->outcome_room);
  }
  for (int t = 0; t < self->threads; t++) self->ids[t].count = 0;
  const int even = batch->count / (16 * self->threads);
  const int at_once = even < 1 ? 1 : even > 16 ? 16 : even;
  batch_work work = {self, batch};
  const ls_status status =
      ls_host_share(self->threads, at_once, batch->count, tokenize_turn, &work, NULL);
  LS_ASSERT(status == LS_OK); /* each block has its own */
}

/* A document's ids, behind its begin token. */
static bool put_text(pass *self, int32_t *ids, int64_t count) {
  int32_t begin = ls_tokenizer_begin(self->file->options->tokenizer);
  const bool begins = count > 0 && self->header.count == self->open.first;
  if (begin >= 0 && begins && !ls_corpus_is_marked(self->file->options) &&
      !put_ids(self, &begin, 1))
    return false;
  return put_ids(self, ids, count);
}

static void begin_document(pass *self, const outcome *made) {
  const uint64_t hash = ls_fingerprint_word(ls_random_stream("document"), made->hash);
  self->open = (ls_document){self->header.count, hash};
}

/* The document's end: its end-of-text, and its place in the table. One without ids is none. */
static bool end_document(pass *self) {
  const int32_t end_of_text = (int32_t)self->header.end_of_text;
  if (self->header.count == self->open.first) return true;
  if (end_of_text >= 0 && !ls_corpus_is_marked(self->file->options) &&
      !put_ids(self, (int32_t[]){end_of_text}, 1))
    return false;
  self->header.documents++;
  self->header.content = ls_fingerprint_word(self->header.content, self->open.hash);
  self->open.hash = ls_fingerprint_spread(self->open.hash);
  return fwrite(&self->open, sizeof self->open, 1, self->documents) == 1;
}

/* A bad line; or a text that the tokenizer gives up on, which is no reason to go on without it. */
static ls_status fail_block(pass *self, const ls_text_block *block, ls_error *error) {
  ls_json_line line;
  if (ls_corpus_is_marked(self->file->options)) {
    self->header.skipped++;
    ls_ids none = {0};
    outcome made;
    const ls_status status = tokenize(self, block, &none, &made, error);
    ls_ids_free(&none);
    return self->file->options->skip_bad_lines ? LS_OK : status;
  }
  if (block->line && read_line(self, block, &line, NULL) != LS_OK) {
    self->header.skipped++;
    if (self->file->options->skip_bad_lines) return LS_OK;
    return read_line(self, block, &line, error);
  }
  if (block->line) ls_json_line_close(&line);
  ls_ids ids = {0};
  outcome made;
  ls_status status = tokenize(self, block, &ids, &made, error);
  ls_ids_free(&ids);
  if (status == LS_OK) status = ls_fail(error, LS_FAILED, "there was no memory to encode it");
  if (block->line)
    return ls_error_prefix(error, "%s:%lld", file_of(self, block)->path, (long long)block->line);
  return ls_error_prefix(error, "%s", file_of(self, block)->path);
}

static ls_status write_block(pass *self, const ls_text_batch *batch, int index, ls_error *error) {
  const ls_text_block *block = &batch->items[index];
  const outcome *made = &self->outcomes[index];
  if (made->status != LS_OK) return fail_block(self, block, error);
  if (block->first) begin_document(self, made);
  int32_t *ids = self->ids[made->thread].items + made->first;
  bool written = true;
  if (made->chosen) { /* both of a pair are drawn by the same hash */
    written = put_ids(self, ids, made->chosen) && end_document(self);
    begin_document(self, made);
  } else if (!block->first) {
    self->open.hash = ls_fingerprint_word(self->open.hash, made->hash);
  }
  written = written && put_text(self, ids + made->chosen, made->count - made->chosen);
  if (!written || (block->last && !end_document(self))) return fail_write(self, error);
  return LS_OK;
}

static void report(const pass *self, const ls_text_blocks *blocks) {
  const ls_corpus_options *options = self->file->options;
  if (options->progress)
    options->progress(options->context, ls_text_blocks_packed_bytes(blocks),
                      self->file->files->bytes, self->header.count);
}

static ls_status write_batches(pass *self, ls_text_blocks *blocks, ls_error *error) {
  for (;;) {
    ls_text_batch batch;
    LS_TRY(ls_text_blocks_next(blocks, &batch, error));
    if (batch.count == 0) break;
    tokenize_batch(self, &batch);
    if (ls_stop_asked())
      return ls_fail(error, LS_STOPPED, "stopped; nothing is left of %s", self->out_path);
    for (int i = 0; i < batch.count; i++) LS_TRY(write_block(self, &batch, i, error));
    report(self, blocks);
  }
  self->header.packed =
      ls_fingerprint_word(ls_text_blocks_fingerprint(blocks), self->file->settings);
  return LS_OK;
}

static ls_status write_ids(pass *self, ls_error *error) {
  ls_text_blocks *blocks;
  begin_threads(self);
  ls_text_blocks_open(self->file->options->key, self->file->files, self->file->options->tokenizer,
                      self->threads, &blocks);
  const ls_status status = write_batches(self, blocks, error);
  ls_text_blocks_close(&blocks);
  LS_TRY(status);
  if (self->header.count > 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: found no text in %s%s (%lld bad lines); expected some",
                 self->file->options->key, self->file->files->items[0].path,
                 self->file->files->count > 1 ? " and the others" : "",
                 (long long)self->header.skipped);
}

static bool append_documents(pass *self) {
  static const uint8_t zeros[8];
  if (!put(self, zeros, (size_t)(-self->body.bytes & 7))) return false;
  if (fflush(self->documents) != 0 || fseeko(self->documents, 0, SEEK_SET) != 0) return false;
  uint8_t copied[1 << 14];
  for (size_t got; (got = fread(copied, 1, sizeof copied, self->documents)) > 0;)
    if (!put(self, copied, got)) return false;
  return !ferror(self->documents) && flush_block(self);
}

/* The rest of the file, and its header once more, now that it is known. */
static bool finish(pass *self) {
  FILE *out = self->body.out;
  if (!append_documents(self)) return false;
  const size_t sums = (size_t)self->body.sums.count;
  if (fwrite(self->body.sums.items, sizeof(uint64_t), sums, out) != sums) return false;
  self->header.checksums = ls_fingerprint_bytes(ls_random_stream("sums"), self->body.sums.items,
                                                sums * sizeof(uint64_t));
  self->header.checksum = ls_token_header_checksum(&self->header);
  return fseeko(out, 0, SEEK_SET) == 0 && fwrite(&self->header, sizeof self->header, 1, out) == 1 &&
         fflush(out) == 0 && fsync(fileno(out)) == 0;
}

/* A file without a name: nothing is left of it, however this ends. */
static FILE *open_aside(ls_arena *arena, const char *path) {
  const char *name = ls_arena_printf(arena, "%s.documents", path);
  FILE *file = fopen(name, "w+bx");
  if (file) unlink(name);
  return file;
}

static ls_status write_all(void *context, ls_error *error) {
  pass *self = context;
  self->body.out = fopen(self->out_path, "wbx");
  /* Until it is closed: who sees it unlocked knows that its writer is gone. */
  if (self->body.out) (void)!flock(fileno(self->body.out), LOCK_EX);
  self->documents = open_aside(self->arena, self->out_path);
  self->body.block = ls_arena_alloc(self->arena, LS_TOKEN_BLOCK_BYTES);
  if (!self->body.out || !self->documents)
    return ls_fail(error, LS_FAILED, "%s: the token file cannot be made: %m", self->out_path);
  if (fwrite(&self->header, sizeof self->header, 1, self->body.out) != 1)
    return fail_write(self, error);
  LS_TRY(write_ids(self, error));
  return finish(self) ? LS_OK : fail_write(self, error);
}

static uint64_t content_of(const ls_token_file *file) {
  const uint64_t name = ls_random_stream(file->options->tokenizer->name);
  const ls_corpus_options *options = file->options;
  if (options->text_pairs)
    return ls_fingerprint_word(name, ls_text_pairs_fingerprint(options->text_pairs));
  if (options->labelled)
    return ls_fingerprint_word(name, ls_labelled_fingerprint(options->labelled));
  return options->chat ? ls_fingerprint_word(name, ls_chat_fingerprint(options->chat)) : name;
}

static ls_token_header header_of(const ls_token_file *file) {
  const ls_tokenizer *tokenizer = file->options->tokenizer;
  const uint32_t version =
      ls_corpus_is_marked(file->options) ? LS_TOKEN_MARKED_VERSION : LS_TOKEN_VERSION;
  ls_token_header header = {
      .version = version,
      .width = (uint32_t)ls_token_stored_width(version, tokenizer->vocabulary),
      .quick = ls_token_file_quick(file),
      .content = content_of(file),
      .made_ns = now_ns(),
      .vocabulary = tokenizer->vocabulary,
      .end_of_text = ls_corpus_end_of_text(tokenizer)};
  memcpy(header.magic, ls_token_magic, sizeof header.magic);
  snprintf(header.tokenizer, sizeof header.tokenizer, "%s", tokenizer->name);
  return header;
}

static ls_status write_file(const ls_token_file *file, ls_arena *arena, const char *aside,
                            ls_error *error) {
  pass self = {.file = file, .out_path = aside, .arena = arena, .header = header_of(file)};
  ls_status status = ls_arena_guard(write_all, &self, true, error);
  if (self.body.out && fclose(self.body.out) != 0 && status == LS_OK)
    status = fail_write(&self, error);
  if (self.documents) fclose(self.documents);
  for (int t = 0; t < self.threads; t++) ls_ids_free(&self.ids[t]);
  return status;
}

ls_status ls_token_file_make(const ls_token_file *file, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  const char *aside = ls_arena_printf(arena, "%s.%d.%016llx", file->path, (int)getpid(),
                                      (unsigned long long)now_ns());
  ls_status status = write_file(file, arena, aside, error);
  if (status == LS_OK && rename(aside, file->path) != 0) {
    status = ls_fail(error, LS_FAILED, "%s: the token file cannot be published: %m", file->path);
  }
  if (status != LS_OK) unlink(aside);
  ls_arena_destroy(&arena);
  return status;
}

bool ls_token_file_read_texts(const ls_token_file *file, uint64_t *packed) {
  /* The files as they lie on disk, not unpacked. */
  const ls_corpus_options *options = file->options;
  int64_t done = 0;
  *packed = ls_random_stream("texts");
  ls_arena *arena = ls_arena_create();
  uint8_t *data = ls_arena_alloc(arena, 1 << 20);
  bool good = true;
  for (int i = 0; i < file->files->count && good; i++) {
    ls_text_file raw = file->files->items[i];
    raw.packing = LS_TEXT_RAW;
    ls_text_stream *stream = NULL;
    good = ls_text_stream_open(options->key, &raw, &stream, NULL) == LS_OK;
    for (size_t got = 1; good && got > 0;) {
      good = ls_text_stream_read(stream, data, 1 << 20, &got, NULL) == LS_OK;
      done += (int64_t)got;
      if (options->progress) options->progress(options->context, done, file->files->bytes, 0);
      good = good && !ls_stop_asked();
    }
    if (good) *packed = ls_fingerprint_word(*packed, ls_text_stream_fingerprint(stream));
    ls_text_stream_close(&stream);
  }
  *packed = ls_fingerprint_word(*packed, file->settings);
  ls_arena_destroy(&arena);
  return good;
}
