#include "generate/prompts.h"

#include <inttypes.h>
#include <string.h>

#include "data/text_blocks.h"
#include "data/text_stream.h"
#include "text/json.h"
#include "text/utf8.h"

enum { PIECE_BYTES = 1 << 16 };

/* One reading of prompts. */
typedef struct reading {
  ls_arena *arena;
  const ls_prompts_options *options;
  ls_prompts *prompts;
} reading;

static ls_status fail_encoding(ls_error *error) {
  return ls_fail(error, LS_INPUT, "the message is no UTF-8; expected text in UTF-8");
}

ls_status ls_prompts_say(json_t *messages, const char *role, const char *content, size_t bytes,
                         ls_error *error) {
  json_t *text = json_stringn(content, bytes);
  if (!text) return fail_encoding(error);
  json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", text));
  return LS_OK;
}

static ls_status keep_ids(const reading *self, ls_prompt *prompt, const ls_ids *ids,
                          ls_error *error) {
  const int64_t positions = self->options->positions;
  if (ids->count == 0) return ls_fail(error, LS_INPUT, "the prompt has no tokens; expected some");
  if (ids->count > positions)
    return ls_fail(error, LS_INPUT,
                   "the prompt has %" PRId64 " tokens; the model is made for %" PRId64
                   ": shorten it",
                   ids->count, positions);
  int32_t *kept = LS_NEW_ARRAY(self->arena, int32_t, ids->count);
  memcpy(kept, ids->items, sizeof *kept * (size_t)ids->count);
  prompt->ids = kept;
  prompt->count = ids->count;
  return LS_OK;
}

static bool has_system(const json_t *question) {
  const json_t *messages = json_object_get(question, "messages");
  if (!messages) messages = json_object_get(question, "prompt");
  const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
  const json_t *own = json_object_get(question, "system");
  return (own && !json_is_null(own)) || (role && strcmp(role, "system") == 0);
}

/* A question; where it has no system prompt of its own it is given one. */
static ls_status ask(const reading *self, const json_t *question, ls_prompt *prompt,
                     ls_error *error) {
  ls_ids ids = {0};
  if (!self->options->chat) return ls_fail(error, LS_INPUT, "%s", self->options->chatless);
  json_t *whole = json_copy((json_t *)question);
  if (self->options->system && !has_system(question))
    json_object_set_new(whole, "system", json_string(self->options->system));
  ls_status status = ls_chat_ask(self->options->chat, whole, &ids, error);
  json_decref(whole);
  if (status == LS_OK) status = keep_ids(self, prompt, &ids, error);
  ls_ids_free(&ids);
  return status;
}

static ls_status continue_text(const reading *self, ls_prompt *prompt, ls_error *error) {
  ls_ids ids = {0};
  ls_status status =
      ls_tokenizer_append(self->options->tokenizer, prompt->text, (int64_t)prompt->text_bytes,
                          LS_TOKENS_SPECIAL | LS_TOKENS_MORE, &ids, error);
  if (status == LS_OK) status = keep_ids(self, prompt, &ids, error);
  ls_ids_free(&ids);
  return status;
}

/* Any bytes as a JSON string. */
static json_t *json_text(ls_arena *arena, const char *bytes, size_t count) {
  char *text = ls_arena_alloc(arena, LS_UTF8_MOST(count) + LS_UTF8_MOST(0));
  ls_utf8_stream stream = {0};
  size_t length = ls_utf8_push(&stream, bytes, count, text);
  length += ls_utf8_end(&stream, text + length);
  return json_stringn(text, length);
}

/* A text is continued or, where they are asked, a question. */
static ls_status add_text(const reading *self, const char *where, const char *text, size_t bytes,
                          ls_error *error) {
  ls_prompt *prompt = LS_APPEND(self->arena, &self->prompts->list);
  *prompt = (ls_prompt){.where = where, .text = text, .text_bytes = bytes};
  if (!self->options->asks) {
    prompt->asked = json_text(self->arena, text, bytes);
    return continue_text(self, prompt, error);
  }
  prompt->text = NULL;
  prompt->asked = json_stringn(text, bytes); /* jansson looks whether it is UTF-8 */
  if (!prompt->asked) return fail_encoding(error);
  json_t *question = json_pack("{s:O}", "prompt", prompt->asked);
  const ls_status status = ask(self, question, prompt, error);
  json_decref(question);
  return status;
}

static ls_status add_messages(const reading *self, const char *where, const json_t *question,
                              ls_error *error) {
  static const char *const keys[] = {"messages", "conversations", "prompt"};
  ls_prompt *prompt = LS_APPEND(self->arena, &self->prompts->list);
  *prompt = (ls_prompt){.where = where};
  for (int k = 2; k >= 0; k--)
    if (json_object_get(question, keys[k])) prompt->asked = json_object_get(question, keys[k]);
  json_incref(prompt->asked);
  return ask(self, question, prompt, error);
}

static ls_status add_object(const reading *self, const char *where, const json_t *root,
                            ls_error *error) {
  const json_t *prompt = json_object_get(root, "prompt");
  if (json_is_string(prompt) && json_string_length(prompt) > 0 &&
      !json_object_get(root, "messages")) {
    const size_t bytes = json_string_length(prompt);
    char *text = ls_arena_alloc(self->arena, bytes + 1);
    memcpy(text, json_string_value(prompt), bytes + 1);
    return add_text(self, where, text, bytes, error);
  }
  const bool messages = json_is_array(json_object_get(root, "messages")) ||
                        json_is_array(json_object_get(root, "conversations")) ||
                        json_is_array(prompt);
  if (messages) return add_messages(self, where, root, error);
  return ls_fail(error, LS_INPUT,
                 "found no prompt; expected {\"prompt\": \"...\"} or {\"messages\": [...]}");
}

static ls_status add_line(const reading *self, const ls_text_files *files,
                          const ls_text_block *block, ls_error *error) {
  const char *where =
      ls_arena_printf(self->arena, "%s:%" PRId64, files->items[block->file].path, block->line);
  json_t *root;
  if (block->too_long)
    return ls_fail(error, LS_INPUT, "%s: the line is too long; expected at most %d bytes", where,
                   LS_LINE_BYTES);
  LS_TRY(ls_json_parse_part(files->items[block->file].path, block->line, block->text,
                            (size_t)block->bytes, LS_JSON_LAST_KEY, &root, error));
  const ls_status status = add_object(self, where, root, error);
  json_decref(root);
  return status == LS_OK ? LS_OK : ls_error_prefix(error, "%s", where);
}

static ls_status read_objects(const reading *self, const ls_text_files *files, ls_error *error) {
  ls_text_blocks *blocks;
  ls_status status = LS_OK;
  ls_text_batch batch = {.count = 1};
  ls_text_blocks_open(self->options->key, files, self->options->tokenizer, 1, &blocks);
  while (status == LS_OK && batch.count) {
    status = ls_text_blocks_next(blocks, &batch, error);
    for (int b = 0; status == LS_OK && b < batch.count; b++)
      status = add_line(self, files, &batch.items[b], error);
  }
  ls_text_blocks_close(&blocks);
  return status;
}

static ls_status read_all(const reading *self, const ls_text_file *file, const char **text,
                          size_t *bytes, ls_error *error) {
  ls_text_stream *stream;
  size_t capacity = 0, got = 1;
  char *all = NULL;
  *bytes = 0;
  LS_TRY(ls_text_stream_open(self->options->key, file, &stream, error));
  ls_status status = LS_OK;
  while (status == LS_OK && got) {
    if (capacity - *bytes < PIECE_BYTES) {
      char *larger = ls_arena_alloc(self->arena, 2 * capacity + PIECE_BYTES);
      if (*bytes) memcpy(larger, all, *bytes);
      all = larger;
      capacity = 2 * capacity + PIECE_BYTES;
    }
    status = ls_text_stream_read(stream, all + *bytes, PIECE_BYTES, &got, error);
    *bytes += got;
  }
  ls_text_stream_close(&stream);
  *text = all;
  return status;
}

/* A prompt a line; blank ones are none. */
static ls_status read_lines(const reading *self, const ls_text_file *file, ls_error *error) {
  const char *text;
  size_t bytes, length;
  LS_TRY(read_all(self, file, &text, &bytes, error));
  int64_t line = 1;
  for (size_t at = 0; at < bytes; at += length + 1, line++) {
    const char *end = memchr(text + at, '\n', bytes - at);
    length = end ? (size_t)(end - text) - at : bytes - at;
    size_t kept = length;
    while (kept && strchr("\r \t", text[at + kept - 1])) kept--;
    if (kept == 0) continue;
    if (text[at + length - 1] != '\r') kept = length;
    const char *where = ls_arena_printf(self->arena, "%s:%" PRId64, file->path, line);
    if (add_text(self, where, text + at, kept, error) != LS_OK)
      return ls_error_prefix(error, "%s", where);
  }
  return LS_OK;
}

static ls_status read_file(const reading *self, const char *path, ls_error *error) {
  ls_text_files files;
  LS_TRY(ls_text_files_find(self->arena, self->options->key, &path, 1, &files, error));
  for (int f = 0; f < files.count; f++) {
    const ls_text_files one = {&files.items[f], 1, files.items[f].bytes};
    if (one.items->tokens)
      return ls_fail(error, LS_INPUT, "%s: %s: found tokens; expected a text", self->options->key,
                     one.items->path);
    LS_TRY(one.items->json_lines ? read_objects(self, &one, error)
                                 : read_lines(self, one.items, error));
  }
  if (self->prompts->list.count) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found no prompt; expected one a line",
                 self->options->key, path);
}

ls_status ls_prompts_read(ls_arena *arena, const ls_prompts_options *options, const char *path,
                          ls_prompts *prompts, ls_error *error) {
  return read_file(&(reading){arena, options, prompts}, path, error);
}

ls_status ls_prompts_add(ls_arena *arena, const ls_prompts_options *options, const char *where,
                         const char *text, size_t bytes, ls_prompts *prompts, ls_error *error) {
  return add_text(&(reading){arena, options, prompts}, where, text, bytes, error);
}

int64_t ls_prompts_longest(const ls_prompts *prompts) {
  int64_t longest = 0;
  for (int p = 0; p < prompts->list.count; p++)
    if (prompts->list.items[p].count > longest) longest = prompts->list.items[p].count;
  return longest;
}

void ls_prompts_free(ls_prompts *prompts) {
  for (int p = 0; p < prompts->list.count; p++) json_decref(prompts->list.items[p].asked);
  *prompts = (ls_prompts){0};
}
