#include "cli/tokenize_chats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "chat/chat.h"
#include "chat/chat_pair.h"
#include "data/text_blocks.h"
#include "text/json.h"

typedef struct printing {
  const ls_tokenize_chats *asked;
  const ls_tokenizer *tokenizer;
  ls_chat *chat;
  const ls_text_files *files;
  bool colour;
  int64_t examples, tokens, trained;
} printing;

static ls_status read_loss_on(const char *word, ls_loss_on *loss_on, ls_error *error) {
  static const char *const words[] = {"answers", "all", "last"};
  *loss_on = LS_LOSS_ON_ANSWERS;
  for (int w = 0; w < 3; w++) {
    if (word && strcmp(word, words[w]) != 0) continue;
    *loss_on = (ls_loss_on)w;
    return LS_OK;
  }
  return ls_fail(error, LS_INPUT, "--loss-on: found \"%s\"; expected answers, all or last", word);
}

/* Ids with bars between them; what is trained in colour, or in brackets where that is a file. */
static void show(const printing *self, const ls_ids *ids) {
  const char *begin = self->colour ? "\x1b[32m" : "\u27e6",
             *end = self->colour ? "\x1b[0m" : "\u27e7";
  bool open = false;
  for (int64_t i = 0; i < ids->count; i++) {
    char small[256];
    size_t bytes = 0;
    const bool trained = ls_chat_is_trained(ids->items[i]);
    const char *piece =
        ls_tokenizer_piece(self->tokenizer, ls_chat_id(ids->items[i]), small, &bytes);
    if (open && !trained) printf("%s", end);
    if (i > 0) putchar('|');
    if (!open && trained) printf("%s", begin);
    open = trained;
    if (piece) fwrite(piece, 1, bytes, stdout);
  }
  printf("%s\n", open ? end : "");
}

/* A chat, or a pair's side. */
static void tell(printing *self, const char *where, const char *which, const ls_ids *ids) {
  int64_t trained = 0;
  for (int64_t i = 0; i < ids->count; i++) trained += ls_chat_is_trained(ids->items[i]);
  self->tokens += ids->count;
  self->trained += trained;
  if (!self->asked->show) return;
  printf("%s: %s%" PRId64 " tokens, %" PRId64 " trained\n", where, which, ids->count, trained);
  show(self, ids);
}

static ls_status print_example(printing *self, const ls_text_block *block, ls_error *error) {
  char where[512];
  ls_ids ids = {0};
  json_t *root;
  const char *path = self->files->items[block->file].path;
  snprintf(where, sizeof where, "%s:%" PRId64, path, block->line);
  if (!block->line)
    return ls_fail(error, LS_INPUT,
                   "%s: found a plain text; expected chats as JSON: .jsonl or .json", path);
  if (block->too_long)
    return ls_fail(error, LS_INPUT, "%s: a line of more than %d bytes; expected shorter ones",
                   where, LS_LINE_BYTES);
  LS_TRY(ls_json_parse_part(path, block->line, block->text, (size_t)block->bytes, LS_JSON_LAST_KEY,
                            &root, error));
  const bool pair = ls_chat_pair_is(root);
  int64_t chosen = 0;
  const ls_status status = pair ? ls_chat_encode_pair(self->chat, root, &ids, &chosen, error)
                                : ls_chat_encode(self->chat, root, &ids, error);
  json_decref(root);
  if (status == LS_OK) {
    self->examples++;
    if (pair) tell(self, where, "chosen: ", &(ls_ids){.items = ids.items, .count = chosen});
    tell(self, where, pair ? "rejected: " : "",
         &(ls_ids){.items = ids.items + chosen, .count = ids.count - chosen});
  }
  ls_ids_free(&ids);
  return status == LS_OK ? LS_OK : ls_error_prefix(error, "%s", where);
}

static ls_status print_blocks(printing *self, ls_text_blocks *blocks, ls_error *error) {
  for (;;) {
    ls_text_batch batch;
    LS_TRY(ls_text_blocks_next(blocks, &batch, error));
    if (batch.count == 0) return LS_OK;
    for (int b = 0; b < batch.count; b++) LS_TRY(print_example(self, &batch.items[b], error));
  }
}

ls_status ls_tokenize_chats_print(ls_arena *arena, const ls_tokenize_chats *asked,
                                  const ls_tokenizer *tokenizer, ls_error *error) {
  printing self = {.asked = asked, .tokenizer = tokenizer, .colour = isatty(STDOUT_FILENO) != 0};
  ls_chat_options options = {
      .tokenizer = tokenizer, .template = asked->template, .remedy = "--template-file FILE.jinja"};
  ls_text_files files;
  ls_text_blocks *blocks;
  LS_TRY(read_loss_on(asked->loss_on, &options.loss_on, error));
  for (int p = 0; p < asked->words->positional_count; p++)
    if (strcmp(asked->words->positional[p], "-") == 0)
      return ls_fail(error, LS_INPUT,
                     "-: chats are read from files alone; expected .jsonl or .json");
  LS_TRY(ls_text_files_find(arena, "tokenize", asked->words->positional,
                            asked->words->positional_count, &files, error));
  LS_TRY(ls_chat_open(&options, &self.chat, error));
  self.files = &files;
  ls_text_blocks_open("tokenize", &files, tokenizer, 1, &blocks);
  const ls_status status = print_blocks(&self, blocks, error);
  ls_text_blocks_close(&blocks);
  ls_chat_close(&self.chat);
  if (status == LS_OK && asked->count)
    printf("%" PRId64 " examples, %" PRId64 " tokens, %" PRId64 " trained\n", self.examples,
           self.tokens, self.trained);
  return status;
}
