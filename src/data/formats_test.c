/* Texts in all their forms: JSON lines, packed files, folders, and what is wrong with them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>
#include <zstd.h>

#include "base/random.h"
#include "data/corpus.h"
#include "data/text_blocks.h"
#include "data/text_stream.h"
#include "data/token_file.h"
#include "support/test_folder.h"
#include "support/test_seed.h"

static ls_error error;
static uint64_t seed;

static const char *write_bytes(const char *name, const void *data, size_t bytes) {
  const char *path = in_folder(name);
  assert_int_equal(ls_file_write(path, data, bytes, &error), LS_OK);
  return path;
}

static const char *write_text(const char *name, const char *text) {
  return write_bytes(name, text, strlen(text));
}

static size_t gzipped(const void *data, size_t bytes, uint8_t *packed, size_t room) {
  z_stream stream = {0};
  assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = (void *)(uintptr_t)data;
  stream.avail_in = (uInt)bytes;
  stream.next_out = packed;
  stream.avail_out = (uInt)room;
  assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
  const size_t used = room - stream.avail_out;
  deflateEnd(&stream);
  return used;
}

static size_t zstandard(const void *data, size_t bytes, uint8_t *packed, size_t room) {
  const size_t used = ZSTD_compress(packed, room, data, bytes, 3);
  assert_false(ZSTD_isError(used));
  return used;
}

typedef size_t packer(const void *data, size_t bytes, uint8_t *packed, size_t room);

/* In `frames` parts, one after another: files put together stay files. */
static const char *write_packed(const char *name, const void *data, size_t bytes, packer *pack,
                                size_t frames) {
  const size_t room = 2 * bytes + 4096 * frames;
  uint8_t *packed = ls_arena_alloc(arena, room);
  size_t used = 0;
  for (size_t f = 0; f < frames; f++) {
    const size_t begin = bytes * f / frames, end = bytes * (f + 1) / frames;
    used += pack((const uint8_t *)data + begin, end - begin, packed + used, room - used);
  }
  return write_bytes(name, packed, used);
}

/* Bytes, and 256 at the end of each document. */
static int64_t encode_bytes(const ls_tokenizer *tokenizer, const void *text, int64_t bytes,
                            int32_t *ids) {
  (void)tokenizer;
  for (int64_t i = 0; i < bytes; i++) ids[i] = ((const uint8_t *)text)[i];
  return bytes;
}

static const ls_tokenizer ending = {
    .name = "ending", .vocabulary = 257, .end_of_text = 256, .encode = encode_bytes};

static ls_status open_with(const char *const *patterns, int count, bool skip, ls_corpus *corpus) {
  error = (ls_error){0};
  const ls_corpus_options options = {.key = "data.text",
                                     .patterns = patterns,
                                     .pattern_count = count,
                                     .skip_bad_lines = skip,
                                     .tokenizer = &ending,
                                     .cache_folder = in_folder("cache")};
  return ls_corpus_open(arena, &options, corpus, &error);
}

static ls_status open_one(const char *pattern, ls_corpus *corpus) {
  return open_with(&pattern, 1, false, corpus);
}

/* Documents as one text, a | after each. */
static const char *text_of(const ls_corpus *corpus) {
  char *text = ls_arena_alloc(arena, (size_t)corpus->count + 1);
  int32_t *ids = LS_NEW_ARRAY(arena, int32_t, corpus->count);
  assert_int_equal(ls_corpus_copy(corpus, 0, corpus->count, ids, &error), LS_OK);
  int64_t documents = 0;
  for (int64_t i = 0; i < corpus->count; i++) {
    const bool first = i == 0 || ids[i - 1] == 256;
    if (first) assert_int_equal(corpus->documents[documents++].first, i);
    assert_int_equal(ls_corpus_document(corpus, i), documents - 1);
    text[i] = ids[i] == 256 ? '|' : (char)ids[i];
  }
  assert_int_equal(documents, corpus->document_count);
  return text;
}

static void assert_reads(const char *pattern, const char *expected) {
  ls_corpus corpus;
  if (open_one(pattern, &corpus) != LS_OK) fail_msg("%s", error.text);
  assert_string_equal(text_of(&corpus), expected);
  ls_corpus_close(&corpus);
}

static void assert_refused(const char *pattern, const char *part) {
  ls_corpus corpus;
  assert_int_equal(open_one(pattern, &corpus), LS_INPUT);
  if (!strstr(error.text, part)) fail_msg("%s", error.text);
  assert_null(strchr(error.text, '\n'));
  char **paths;
  int count = 0;
  assert_int_equal(ls_file_glob(arena, in_folder("cache/*"), &paths, &count, NULL), LS_INPUT);
}

static void json_lines_are_documents(void **state) {
  (void)state;
  const char *path =
      write_text("a.jsonl",
                 "\xEF\xBB\xBF{\"id\": 1, \"text\": \"one\\ntwo\"}\r\n"
                 "\n  \n"
                 "{\"text\": \"\"}\n"
                 "{\"text\": \"last wins\", \"text\": \"caf\\u00e9 \\ud83d\\ude00\"}\n"
                 "{\"n\": 123456789012345678901234567890, \"text\": \"no end\"}");
  assert_reads(path, "one\ntwo|caf\xC3\xA9 \xF0\x9F\x98\x80|no end|");
  assert_reads(write_text("b.ndjson", "{\"text\": \"x\"}\n"), "x|");
}

static void a_nul_is_a_character_like_others(void **state) {
  (void)state;
  ls_corpus corpus;
  char nul[80]; /* one of 80 bytes: a text with a fault, not UTF-16 */
  memset(nul, 'c', sizeof nul);
  nul[1] = 0;
  const char *const paths[] = {write_text("a.jsonl", "{\"text\": \"a\\u0000b\"}\n"),
                               write_bytes("b.txt", nul, sizeof nul)};
  assert_int_equal(open_with(paths, 2, false, &corpus), LS_OK);
  assert_memory_equal(text_of(&corpus), "a\0b|c\0ccc", 9);
  ls_corpus_close(&corpus);
}

static void a_field_may_have_another_name(void **state) {
  (void)state;
  const char *const paths[] = {
      write_text("a.jsonl", "{\"body\": \"a\", \"text\": \"not me\"}\n"),
      write_text("b.jsonl", "{\"body\": \"nor me\", \"content\": \"b\"}\n")};
  const char *const fields[] = {NULL, "content"};
  ls_corpus_options options = {.key = "data.text",
                               .patterns = paths,
                               .pattern_count = 2,
                               .fields = fields,
                               .text_key = "body",
                               .tokenizer = &ending,
                               .cache_folder = in_folder("cache")};
  ls_corpus corpus;
  assert_int_equal(ls_corpus_open(arena, &options, &corpus, &error), LS_OK);
  assert_string_equal(text_of(&corpus), "a|b|");
  ls_corpus_close(&corpus);
  options.pattern_count = 1;
  options.text_key = NULL; /* another field is another cache */
  assert_int_equal(ls_corpus_open(arena, &options, &corpus, &error), LS_OK);
  assert_string_equal(text_of(&corpus), "not me|");
  ls_corpus_close(&corpus);
}

static void bad_lines_stop_or_are_counted(void **state) {
  (void)state;
  static const struct {
    const char *line, *said;
  } cases[] = {
      {"{\"text\": \"cut", "a.jsonl:3:"},
      {"{\"text\": \"x\"} {\"text\": \"y\"}", "a.jsonl:3:"},
      {"[\"text\"]", "a.jsonl:3: found a list; expected an object with a key \"text\""},
      {"\"text\"", "a.jsonl:3: found a string; expected an object"},
      {"{\"body\": \"x\", \"id\": 3}",
       "a.jsonl:3: found no key \"text\"; expected a string there "
       "(the line's strings: body); data.text_key names another"},
      {"{\"text\": null}", "a.jsonl:3: \"text\": found null; expected a string"},
      {"{\"text\": 7}", "a.jsonl:3: \"text\": found a number; expected a string"},
      {"{\"text\": \"\xFF\"}", "a.jsonl:3:"},
      {"{\"text\": \"\\ud800\"}", "a.jsonl:3:"},
      {"{\"text\": NaN}", "a.jsonl:3:"},
      {"{\"text\": \"a\tb\"}", "a.jsonl:3:"},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const char *path = write_text(
        "a.jsonl",
        ls_arena_printf(arena, "{\"text\": \"one\"}\n\n%s\n{\"text\": \"two\"}\n", cases[c].line));
    assert_refused(path, cases[c].said);
    ls_corpus corpus;
    for (int again = 0; again < 2; again++) {
      assert_int_equal(open_with(&path, 1, true, &corpus), LS_OK);
      assert_string_equal(text_of(&corpus), "one|two|");
      assert_int_equal(corpus.skipped, 1);
      assert_int_equal(corpus.from_cache, again); /* which knows the count, too */
      ls_corpus_close(&corpus);
    }
    assert_int_equal(ls_directory_remove(in_folder("cache"), &error), LS_OK);
  }
  const char *path = write_bytes("a.jsonl", "{\"text\": \"a\"}\0\0\n", 16);
  assert_refused(path, "a.jsonl:1:14: found a NUL byte");
  path = write_text("a.jsonl", "no\nno\n");
  ls_corpus corpus;
  assert_int_equal(open_with(&path, 1, true, &corpus), LS_INPUT);
  assert_non_null(strstr(error.text, "found no text in"));
  assert_non_null(strstr(error.text, "(2 bad lines)"));
}

/* Lines of very different lengths, some longer than the buffer they are read into. */
static char *many_lines(size_t *bytes, char **documents) {
  const size_t room = 60 << 20;
  char *text = ls_arena_alloc(arena, room), *plain = ls_arena_alloc(arena, room);
  size_t used = 0, plain_used = 0;
  for (uint64_t line = 0; line < 1200; line++) {
    const uint64_t bits = ls_random_bits(seed, 1, line);
    size_t length = line == 1777 ? 17u << 20 : bits % 5000;
    if (line % 401 == 3) length = 1 + bits % (1 << 20);
    used += (size_t)snprintf(text + used, room - used, "{\"text\": \"");
    for (size_t i = 0; i < length; i++)
      plain[plain_used + i] = text[used + i] = (char)('a' + (bits + i) % 23);
    used += length;
    plain_used += length;
    if (length) plain[plain_used++] = '|';
    used += (size_t)snprintf(text + used, room - used, "\"}\n");
  }
  *bytes = used;
  *documents = plain;
  return text;
}

static void packed_files_are_the_same_texts(void **state) {
  (void)state;
  size_t bytes;
  char *documents;
  const char *text = many_lines(&bytes, &documents);
  const char *const paths[] = {write_bytes("a.jsonl", text, bytes),
                               write_packed("b.jsonl.gz", text, bytes, gzipped, 1),
                               write_packed("c.JSONL.GZ", text, bytes, gzipped, 3),
                               write_packed("d.jsonl.zst", text, bytes, zstandard, 1),
                               write_packed("e.jsonl.zst", text, bytes, zstandard, 5)};
  uint64_t content = 0;
  for (int i = 0; i < 5; i++) {
    ls_corpus corpus;
    if (open_one(paths[i], &corpus) != LS_OK) fail_msg("%s", error.text);
    const char *found = text_of(&corpus);
    assert_int_equal(corpus.count, strlen(documents));
    assert_memory_equal(found, documents, (size_t)corpus.count);
    if (i > 0) assert_true(corpus.content == content);
    content = corpus.content;
    ls_corpus_close(&corpus);
    assert_int_equal(open_one(paths[i], &corpus), LS_OK);
    assert_true(corpus.from_cache);
    ls_corpus_close(&corpus);
  }
}

/* Packed, it is small: what is unpacked of it is never kept. */
static void a_line_too_long_is_a_bad_line(void **state) {
  (void)state;
  const size_t long_bytes = (size_t)LS_LINE_BYTES + (3 << 20);
  char *text = ls_arena_alloc(arena, long_bytes + 100);
  size_t used = (size_t)snprintf(text, 40, "{\"text\": \"one\"}\n{\"text\": \"");
  memset(text + used, 'x', long_bytes);
  used += long_bytes;
  used += (size_t)snprintf(text + used, 40, "\"}\n{\"text\": \"two\"}\n");
  const char *path = write_packed("a.jsonl.zst", text, used, zstandard, 4);
  assert_refused(path, "a.jsonl.zst:2: a line of more than 67108864 bytes");
  ls_corpus corpus;
  assert_int_equal(open_with(&path, 1, true, &corpus), LS_OK);
  assert_string_equal(text_of(&corpus), "one|two|");
  assert_int_equal(corpus.skipped, 1);
  ls_corpus_close(&corpus);
}

/* The library itself notices this where the output has room for all that the frame says it has. */
static void a_frame_that_ends_early_is_refused(void **state) {
  (void)state;
  static const char frame[] = "\x28\xb5\x2f\xfd\x40\x04\x03\x03\x01\x00"; /* 1027 of 0 */
  write_bytes("a.txt.zst", frame, sizeof frame);
  for (size_t room = 1; room <= 2048; room += 2047) {
    const char *path = in_folder("a.txt.zst");
    ls_text_files files;
    ls_text_stream *stream;
    char *data = ls_arena_alloc(arena, room);
    size_t got;
    assert_int_equal(ls_text_files_find(arena, "data.text", &path, 1, &files, &error), LS_OK);
    assert_int_equal(ls_text_stream_open("data.text", files.items, &stream, &error), LS_OK);
    assert_int_equal(ls_text_stream_read(stream, data, room, &got, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "a.txt.zst: damaged: "));
    ls_text_stream_close(&stream);
  }
}

static void damaged_packed_files_are_refused(void **state) {
  (void)state;
  char text[5000];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + ls_random_bits(seed, 2, i) % 26);
  packer *const packers[] = {gzipped, zstandard};
  static const char *const endings[] = {"gz", "zst"};
  for (int p = 0; p < 2; p++) {
    const char *name = ls_arena_printf(arena, "a.txt.%s", endings[p]);
    const char *path = write_packed(name, text, sizeof text, packers[p], 1);
    char *packed;
    size_t bytes;
    assert_int_equal(ls_file_read(arena, path, &packed, &bytes, &error), LS_OK);
    for (size_t cut = 1; cut < bytes; cut += 1 + bytes / 40) {
      write_bytes(name, packed, cut);
      assert_refused(path, cut < 4 ? "a.txt." : "is cut short");
    }
    write_bytes(name, ls_arena_printf(arena, "%s", "plain words"), 11);
    assert_refused(
        path, p ? "is not packed with zstd, as .zst says" : "is not packed with gzip, as .gz says");
    packed[bytes / 2] ^= 1;
    write_bytes(name, packed, bytes);
    ls_corpus corpus; /* zstd alone does not notice every bit, without its checksum */
    if (open_one(path, &corpus) == LS_OK)
      ls_corpus_close(&corpus);
    else
      assert_non_null(strstr(error.text, "damaged"));
    assert_int_equal(ls_directory_remove(in_folder("cache"), &error), LS_OK);
    packed[bytes / 2] ^= 1;
    write_bytes("a.txt", packed, bytes);
    assert_refused(in_folder("a.txt"), p ? "is packed with zstd; give it a name that ends in .zst"
                                         : "is packed with gzip; give it a name that ends in .gz");
  }
}

static void formats_that_are_not_read_are_refused_by_name(void **state) {
  (void)state;
  assert_refused(write_text("a.parquet", "PAR1"), ".parquet files are not read; no Parquet");
  assert_refused(write_text("b.txt", "PAR1...."), "is a Parquet file");
  assert_refused(write_text("c.json", "[]"), "found no text in ");
  assert_refused(write_text("e.txt.xz", "?"), "packed texts end in .gz or .zst");
}

static void folders_stand_for_the_texts_in_them(void **state) {
  (void)state;
  assert_int_equal(ls_directory_make(in_folder("in [x]/deep/er"), &error), LS_OK);
  write_text("in [x]/b.txt", "b");
  write_text("in [x]/deep/er/c.md", "c");
  write_text("in [x]/deep/a.jsonl", "{\"text\": \"a\"}\n");
  write_text("in [x]/picture.png", "?");
  write_text("in [x]/.hidden.txt", "?");
  assert_reads(in_folder("in [x]"), "b|a|c|");
  assert_reads(in_folder("in [x]/"), "b|a|c|");
  assert_reads(in_folder("in*/**/*.jsonl"), "a|");
  assert_int_equal(ls_directory_remove(in_folder("cache"), &error), LS_OK);
  write_text("in [x]/deep/d.parquet", "PAR1");
  assert_refused(in_folder("in [x]"), ".parquet files are not read");
  assert_int_equal(ls_directory_make(in_folder("none"), &error), LS_OK);
  write_text("none/picture.png", "?");
  assert_refused(in_folder("none"), "none of the 1 files in the folder");
}

/* Between the look at a text and its reading, as a writer at the wrong moment would do. */
static void a_text_changed_while_it_is_read_is_refused(void **state) {
  (void)state;
  const char *path = write_text("a.txt", "some words");
  ls_text_files files;
  assert_int_equal(ls_text_files_find(arena, "data.text", &path, 1, &files, &error), LS_OK);
  for (int i = 0; i < 3; i++) {
    write_text("a.txt", i == 0 ? "some words and more" : i == 1 ? "some" : "same words");
    ls_text_blocks *blocks;
    ls_text_batch batch;
    ls_text_blocks_open("data.text", &files, &ending, 1, &blocks);
    assert_int_equal(ls_text_blocks_next(blocks, &batch, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "a.txt changed while it was being read"));
    ls_text_blocks_close(&blocks);
  }
}

static void a_damaged_cache_is_noticed_where_it_is_read(void **state) {
  (void)state;
  const size_t bytes = 300000;
  char *text = ls_arena_alloc(arena, bytes);
  for (size_t i = 0; i < bytes; i++) text[i] = (char)('a' + i % 26);
  const char *path = write_bytes("a.txt", text, bytes);
  /* Old enough for its time to prove that the cache fits. */
  const struct timespec old[2] = {{time(NULL) - 100, 0}, {time(NULL) - 100, 0}};
  assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
  ls_corpus corpus;
  assert_int_equal(open_one(path, &corpus), LS_OK);
  const char *cache = corpus.cache_path;
  ls_corpus_close(&corpus);
  struct stat about;
  assert_int_equal(stat(cache, &about), 0);
  for (uint64_t trial = 0; trial < 60; trial++) {
    const off_t at = (off_t)(ls_random_bits(seed, 3, trial) % (uint64_t)about.st_size);
    const uint8_t flip = (uint8_t)(1u << trial % 8);
    const int file = open(cache, O_RDWR);
    uint8_t byte;
    assert_int_equal(pread(file, &byte, 1, at), 1);
    assert_int_equal(pwrite(file, &(uint8_t){byte ^ flip}, 1, at), 1);
    const ls_status status = open_one(path, &corpus);
    ls_status read = LS_OK;
    if (status == LS_OK) {
      int32_t *ids = LS_NEW_ARRAY(arena, int32_t, corpus.count);
      const bool again = !corpus.from_cache; /* the header was damaged: made again */
      read = ls_corpus_copy(&corpus, 0, corpus.count, ids, &error);
      if (again) assert_int_equal(read, LS_OK);
      ls_corpus_close(&corpus);
      close(file);
      if (again) continue;
    } else {
      assert_int_equal(status, LS_FAILED);
      close(file);
    }
    if (status == LS_OK && read == LS_OK) fail_msg("byte %lld: not noticed", (long long)at);
    if (!strstr(error.text, "remove it and start again")) fail_msg("%s", error.text);
    const int repair = open(cache, O_RDWR);
    assert_int_equal(pwrite(repair, &byte, 1, at), 1);
    close(repair);
  }
}

static void a_token_file_says_what_it_holds(void **state) {
  (void)state;
  const char *path = write_text("a.jsonl", "{\"text\": \"one\"}\nbad\n{\"text\": \"three\"}\n");
  ls_corpus corpus;
  assert_int_equal(open_with(&path, 1, true, &corpus), LS_OK);
  const char *cache = corpus.cache_path;
  ls_token_header about;
  assert_true(ls_token_file_is(cache));
  assert_false(ls_token_file_is(path));
  assert_int_equal(ls_token_file_about(cache, &about, &error), LS_OK);
  assert_int_equal(about.count, 10);
  assert_int_equal(about.documents, 2);
  assert_int_equal(about.skipped, 1);
  assert_int_equal(about.end_of_text, 256);
  assert_string_equal(about.tokenizer, "ending");
  assert_true(about.content == corpus.content);
  ls_corpus_close(&corpus);
  assert_int_equal(truncate(cache, 130), 0);
  assert_int_equal(ls_token_file_about(cache, &about, &error), LS_FAILED);
}

/* As ranks of one host do: one of them makes the cache, the others wait for it. */
static void several_processes_make_one_cache(void **state) {
  (void)state;
  enum { PROCESSES = 4 };
  char *text = ls_arena_alloc(arena, 8 << 20);
  memset(text, 'w', 8 << 20);
  const char *path = write_bytes("a.txt", text, 8 << 20);
  const struct timespec old[2] = {{time(NULL) - 100, 0}, {time(NULL) - 100, 0}};
  assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
  pid_t children[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    children[i] = fork();
    if (children[i]) continue;
    ls_corpus corpus; /* 0: made it, 1: found it, 2: neither */
    _exit(open_one(path, &corpus) != LS_OK ? 2 : corpus.from_cache);
  }
  int made = 0;
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    made += WEXITSTATUS(status) == 0;
  }
  assert_int_equal(made, 1);
}

/* Whatever lies in a long text, its blocks are it. */
static void long_texts_are_cut(void **state) {
  (void)state;
  const size_t bytes = 5 * LS_BLOCK_BYTES + 12345;
  char *text = ls_arena_alloc(arena, bytes);
  for (int kind = 0; kind < 4; kind++) {
    for (size_t i = 0; i < bytes; i++) {
      const uint64_t bits = ls_random_bits(seed, 10 + (uint64_t)kind, i);
      text[i] = (char)('a' + bits % 26);
      if (kind < 2 && bits % 7 == 0) text[i] = ' ';
      if (kind < 1 && bits % 50 == 0) text[i] = '\n';
      if (kind == 2) memcpy(text + i / 3 * 3, "\xE6\xBC\xA2", 3);
    }
    ls_text_files files;
    const char *path = write_bytes("a.txt", text, bytes);
    assert_int_equal(ls_text_files_find(arena, "k", &path, 1, &files, &error), LS_OK);
    ls_text_blocks *blocks;
    ls_text_batch batch;
    ls_text_blocks_open("k", &files, &ending, 1, &blocks);
    size_t at = 0;
    do {
      assert_int_equal(ls_text_blocks_next(blocks, &batch, &error), LS_OK);
      for (int i = 0; i < batch.count; i++) {
        const ls_text_block *block = &batch.items[i];
        assert_int_equal(block->first, at == 0);
        assert_in_range(block->bytes, 1, LS_BLOCK_BYTES);
        assert_memory_equal(block->text, text + at, (size_t)block->bytes);
        at += (size_t)block->bytes;
        assert_int_equal(block->last, at == bytes);
      }
    } while (batch.count > 0);
    assert_int_equal(at, bytes);
    ls_text_blocks_close(&blocks);
  }
}

int main(void) {
  seed = test_seed(20261128);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      CASE(several_processes_make_one_cache), /* first: OpenMP's threads do not survive a fork */
      CASE(json_lines_are_documents),
      CASE(a_nul_is_a_character_like_others),
      CASE(a_field_may_have_another_name),
      CASE(bad_lines_stop_or_are_counted),
      CASE(packed_files_are_the_same_texts),
      CASE(a_line_too_long_is_a_bad_line),
      CASE(damaged_packed_files_are_refused),
      CASE(a_frame_that_ends_early_is_refused),
      CASE(formats_that_are_not_read_are_refused_by_name),
      CASE(folders_stand_for_the_texts_in_them),
      CASE(a_text_changed_while_it_is_read_is_refused),
      CASE(a_damaged_cache_is_noticed_where_it_is_read),
      CASE(a_token_file_says_what_it_holds),
      CASE(long_texts_are_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
