#include "data/chat_texts.h"

#include <string.h>

#include "chat/chat_example.h"
#include "data/text_stream.h"

enum { HEAD_BYTES = 1 << 20 };

/* The first object of a beginning of a file: of a list behind its bracket. What follows it, if only
 * a part of something, is not looked at. */
static json_t *first_object(const char *text, size_t bytes) {
  const char *end = text + bytes;
  while (text < end && strchr(" \t\r\n[\xEF\xBB\xBF", *text)) text++;
  return json_loadb(text, (size_t)(end - text), JSON_DISABLE_EOF_CHECK | JSON_DECODE_INT_AS_REAL,
                    NULL);
}

static bool begins_as_chats(const ls_text_file *file, const char *text_key, char *head) {
  ls_text_stream *stream = NULL;
  size_t bytes = 0, got = 1;
  bool good = ls_text_stream_open("data.text", file, &stream, NULL) == LS_OK;
  for (; good && got > 0 && bytes < HEAD_BYTES; bytes += got)
    good = ls_text_stream_read(stream, head + bytes, HEAD_BYTES - bytes, &got, NULL) == LS_OK;
  ls_text_stream_close(&stream);
  if (!good) return false;
  json_t *root = first_object(head, bytes);
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
  const bool chats =
      found && begins_as_chats(&files.items[0], data->text_key, ls_arena_alloc(arena, HEAD_BYTES));
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
