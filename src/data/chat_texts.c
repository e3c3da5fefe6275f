#include "data/chat_texts.h"

#include <string.h>

#include "chat/chat_example.h"
#include "data/text_blocks.h"
#include "data/text_stream.h"

/* A first object of more than so many bytes is looked for in twice as many, and so on. */
enum { HEAD_BYTES = 1 << 20 };

/* The first object of a beginning of a file: of a list behind its bracket. What follows it, if only
 * a part of something, is not looked at. NULL: there is none, or it goes on. */
static json_t *first_object(const char *text, size_t bytes, bool *goes_on) {
  const char *end = text + bytes;
  json_error_t problem = {0};
  while (text < end && strchr(" \t\r\n[\xEF\xBB\xBF", *text)) text++;
  json_t *root =
      json_loadb(text, (size_t)(end - text),
                 JSON_DISABLE_EOF_CHECK | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &problem);
  *goes_on = !root && json_error_code(&problem) == json_error_premature_end_of_input;
  return root;
}

/* Reads on up to `most` bytes, or to the end: *bytes are there. */
static bool read_head(ls_text_stream *stream, char *head, size_t most, size_t *bytes) {
  size_t got = 1;
  for (; got > 0 && *bytes < most; *bytes += got)
    if (ls_text_stream_read(stream, head + *bytes, most - *bytes, &got, NULL) != LS_OK)
      return false;
  return true;
}

static bool begins_as_chats(ls_arena *arena, const ls_text_file *file, const char *text_key) {
  ls_text_stream *stream = NULL;
  json_t *root = NULL;
  size_t bytes = 0;
  char *head = NULL;
  if (ls_text_stream_open("data.text", file, &stream, NULL) != LS_OK) return false;
  bool goes_on = true;
  for (size_t most = HEAD_BYTES; goes_on && most <= LS_LINE_BYTES; most *= 2) {
    char *larger = ls_arena_alloc(arena, most);
    if (bytes) memcpy(larger, head, bytes);
    head = larger;
    if (!read_head(stream, head, most, &bytes)) break;
    root = first_object(head, bytes, &goes_on);
    goes_on = goes_on && bytes == most;
  }
  ls_text_stream_close(&stream);
  const bool chats = ls_chat_example_is(root) && !json_is_string(json_object_get(root, text_key));
  json_decref(root);
  return chats;
}

bool ls_chat_texts_are(const ls_run_file *run) {
  const ls_run_data *data = &run->data;
  if (data->text.count == 0 || data->text.items[0].field) return false;
  ls_arena *arena = ls_arena_create();
  ls_text_files files;
  const bool found =
      ls_text_files_find(arena, "data.text", &data->text.items[0].path, 1, &files, NULL) == LS_OK &&
      files.items[0].json_lines;
  const bool chats = found && begins_as_chats(arena, &files.items[0], data->text_key);
  ls_arena_destroy(&arena);
  return chats;
}

void ls_chat_texts_resolve(ls_run_file *run) {
  if (run->data.documents != LS_RUN_DOCUMENTS_AUTO) return;
  const bool chats = ls_run_task_prefers(run->task) || run->task == LS_RUN_CLASSIFY ||
                     run->task == LS_RUN_EMBED || ls_chat_texts_are(run);
  run->data.documents = chats ? LS_RUN_MASKED : LS_RUN_STREAM;
  ls_run_file_mark_resolved(run, "data.documents");
}
