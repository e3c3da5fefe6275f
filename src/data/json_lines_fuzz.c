/* Fuzz target of JSON lines: the input is a file of them, read as a corpus is. Its lines must be
 * those that a simpler reader finds, and each a document or refused in one line that names it. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/json_line.h"
#include "data/text_blocks.h"
#include "data/text_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What jansson finds in the line; NULL: nothing that is a document. */
static json_t *parsed(const char *text, int64_t bytes, const json_t **found) {
  if (memchr(text, 0, (size_t)bytes)) return NULL;
  json_t *root = json_loadb(text, (size_t)bytes,
                            JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
  *found = json_object_get(root, "text");
  if (json_is_string(*found)) return root;
  json_decref(root);
  return NULL;
}

static void check_line(const ls_text_block *block) {
  ls_error error = {0};
  ls_json_line line;
  const json_t *expected = NULL;
  json_t *root = parsed(block->text, block->bytes, &expected);
  const ls_status status =
      ls_json_line_read("fuzz", block->line, block->text, block->bytes, "text", &line, &error);
  LS_ASSERT((status == LS_OK) == (root != NULL));
  if (status == LS_OK) {
    LS_ASSERT(line.bytes == (int64_t)json_string_length(expected) && line.bytes <= block->bytes);
    LS_ASSERT(memcmp(line.text, json_string_value(expected), (size_t)line.bytes) == 0);
    ls_json_line_close(&line);
    json_decref(root);
    return;
  }
  char place[32];
  const int length = snprintf(place, sizeof place, "fuzz:%lld:", (long long)block->line);
  LS_ASSERT(status == LS_INPUT && !line.root && !strchr(error.text, '\n'));
  LS_ASSERT(strncmp(error.text, place, (size_t)length) == 0);
  LS_ASSERT(ls_json_line_read("fuzz", block->line, block->text, block->bytes, "text", &line,
                              NULL) == status);
}

/* The next line that is not blank, from *at on, without what is blank at its end. */
static int64_t next_line(const char *text, size_t bytes, size_t *at, int64_t *line,
                         const char **found) {
  while (*at < bytes) {
    size_t end = *at, begin = *at;
    while (end < bytes && text[end] != '\n') end++;
    *at = end + 1;
    ++*line;
    if (*line == 1 && end - begin >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) begin += 3;
    while (end > begin && strchr(" \t\r\v\f", text[end - 1]) && text[end - 1]) end--;
    *found = text + begin;
    if (end > begin) return (int64_t)(end - begin);
  }
  return 0;
}

/* Whether the file begins as one that is no text does, which is refused whole. */
static bool is_refused(const ls_text_files *files, ls_text_blocks *blocks, const char *text,
                       size_t bytes) {
  ls_error expected = {0}, error = {0};
  ls_text_check head = {.key = "fuzz", .path = files->items[0].path};
  ls_text_batch batch;
  if (ls_text_check_add(&head, text, bytes < LS_TEXT_HEAD_BYTES ? bytes : LS_TEXT_HEAD_BYTES,
                        &expected) == LS_OK)
    return false;
  LS_ASSERT(ls_text_blocks_next(blocks, &batch, &error) == LS_INPUT);
  LS_ASSERT(strcmp(error.text, expected.text) == 0 && !strchr(error.text, '\n'));
  return true;
}

static void check_file(const ls_text_files *files, const char *text, size_t bytes) {
  ls_error error = {0};
  ls_text_blocks *blocks;
  ls_text_batch batch;
  size_t at = 0;
  int64_t line = 0;
  const char *expected = NULL;
  ls_text_blocks_open("fuzz", files, ls_tokenizer_bytes(), 1, &blocks);
  if (is_refused(files, blocks, text, bytes)) {
    ls_text_blocks_close(&blocks);
    return;
  }
  do {
    LS_ASSERT(ls_text_blocks_next(blocks, &batch, &error) == LS_OK);
    for (int i = 0; i < batch.count; i++) {
      const int64_t length = next_line(text, bytes, &at, &line, &expected);
      LS_ASSERT(batch.items[i].line == line && batch.items[i].bytes == length);
      LS_ASSERT(memcmp(batch.items[i].text, expected, (size_t)length) == 0);
      check_line(&batch.items[i]);
    }
  } while (batch.count > 0);
  LS_ASSERT(next_line(text, bytes, &at, &line, &expected) == 0);
  ls_text_blocks_close(&blocks);
}

/* The same file as a list: where jansson reads one, its items are those; else it may be refused. */
static void check_list(const ls_text_files *files, const char *text, size_t bytes) {
  ls_error error = {0};
  ls_text_blocks *blocks;
  ls_text_batch batch = {0};
  json_t *list = bytes && memchr(text, 0, bytes) /* jansson ends there */
                     ? NULL
                     : json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
  size_t count = 0;
  ls_status status;
  ls_text_blocks_open("fuzz", files, ls_tokenizer_bytes(), 1, &blocks);
  while ((status = ls_text_blocks_next(blocks, &batch, &error)) == LS_OK && batch.count > 0)
    for (int i = 0; i < batch.count; i++, count++) {
      json_t *item = json_loadb(batch.items[i].text, (size_t)batch.items[i].bytes,
                                JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
      LS_ASSERT(!json_is_array(list) || json_equal(item, json_array_get(list, count)));
      json_decref(item);
    }
  LS_ASSERT(status == LS_OK || (status == LS_INPUT && !strchr(error.text, '\n')));
  LS_ASSERT(!json_is_array(list) || (status == LS_OK && count == json_array_size(list)));
  LS_ASSERT(!json_is_object(list) || status == LS_INPUT);
  json_decref(list);
  ls_text_blocks_close(&blocks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static int file = -1;
  if (file < 0) file = memfd_create("json_lines_fuzz", 0);
  LS_ASSERT(file >= 0 && ftruncate(file, 0) == 0);
  LS_ASSERT(pwrite(file, data, bytes, 0) == (ssize_t)bytes);
  ls_arena *arena = ls_arena_create();
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  const char *const pattern = path;
  ls_text_files files;
  ls_error error = {0};
  if (ls_text_files_find(arena, "fuzz", &pattern, 1, &files, &error) == LS_OK) {
    ls_text_file lines = files.items[0];
    lines.json_lines = true;
    lines.packing = LS_TEXT_RAW;
    files.items = &lines;
    check_file(&files, (const char *)data, bytes);
    lines.json_array = true;
    check_list(&files, (const char *)data, bytes);
  }
  ls_arena_destroy(&arena);
  return 0;
}
