#include "cli/tokenize_chats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "chat/chat.h"
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
    fwrite(piece, 1, bytes, stdout);
  }
  printf("%s\n", open ? end : "");
}

static ls_status print_example(printing *self, const ls_text_block *block, ls_error *error) {
  char where[512];
  ls_ids ids = {0};
  json_t *root;
  snprintf(where, sizeof where, "%s:%" PRId64, self->files->items[block->file].path, block->line);
  if (!block->line || block->too_long)
    return ls_fail(error, LS_INPUT, "%s: expected chats as JSON: .jsonl or .json", where);
  LS_TRY(ls_json_parse(where, block->text, (size_t)block->bytes, LS_JSON_LAST_KEY, &root, error));
  const ls_status status = ls_chat_encode(self->chat, root, &ids, error);
  json_decref(root);
  if (status != LS_OK) return ls_error_prefix(error, "%s", where);
  int64_t trained = 0;
  for (int64_t i = 0; i < ids.count; i++) trained += ls_chat_is_trained(ids.items[i]);
  self->examples++;
  self->tokens += ids.count;
  self->trained += trained;
  if (self->asked->show) {
    printf("%s: %" PRId64 " tokens, %" PRId64 " trained\n", where, ids.count, trained);
    show(self, &ids);
  }
  ls_ids_free(&ids);
  return LS_OK;
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
