/* A model's chat template with its tokenizer: examples of chats to ids, and which of them are
 * trained.
 *
 *   ls_chat *chat;
 *   LS_TRY(ls_chat_open(&(ls_chat_options){.tokenizer = tokenizer}, &chat, error));
 *   LS_TRY(ls_chat_encode(chat, example, &ids, error));   // ls_chat_id, ls_chat_is_trained
 *   ls_chat_close(&chat);
 *
 * The template is the tokenizer's own (chat_template.jinja, or tokenizer_config.json's), that
 * beside a model of bytes, or a file. What an example may look like is in chat_example.h. Where an
 * answer begins and ends the template's generation blocks say, or else rendering the chat up to it.
 * Thread-safe once open. */
#ifndef LS_CHAT_CHAT_H
#define LS_CHAT_CHAT_H

#include <jansson.h>

#include "tokenizer/tokenizer.h"

/* What of a chat is trained: what the model answers, all of it, or the last answer. */
typedef enum ls_loss_on { LS_LOSS_ON_ANSWERS, LS_LOSS_ON_ALL, LS_LOSS_ON_LAST } ls_loss_on;

typedef struct ls_chat_options {
  const ls_tokenizer *tokenizer;
  const char *template; /* a file; NULL: the tokenizer's own */
  const char *folder;   /* of the model, or NULL: bytes as ids have no files, but their model's
                         * chat_template.jinja */
  ls_loss_on loss_on;
  bool pairs;         /* examples are pairs of answers: ls_chat_encode_pair */
  const char *remedy; /* how a template is given, for errors; NULL: data.template=FILE.jinja */
} ls_chat_options;

typedef struct ls_chat ls_chat;

/* LS_INPUT where there is no template, or it cannot be read. Borrows the tokenizer. */
LS_CHECKED ls_status ls_chat_open(const ls_chat_options *options, ls_chat **chat, ls_error *error);
void ls_chat_close(ls_chat **chat);

/* Changes with the template and with what is trained: for the names of cached files. */
uint64_t ls_chat_fingerprint(const ls_chat *chat);

/* An id and whether it is trained, as one number. */
static inline int32_t ls_chat_id(int32_t marked) {
  return marked >> 1;
}
static inline bool ls_chat_is_trained(int32_t marked) {
  return marked & 1;
}

/* Appends the marked ids of an example. LS_INPUT: it is none, the template refuses it, it has no
 * answer, or where its answers lie cannot be told. `error` may be NULL. */
LS_CHECKED ls_status ls_chat_encode(const ls_chat *chat, const json_t *example, ls_ids *marked,
                                    ls_error *error);

/* Whether its examples are pairs. */
bool ls_chat_has_pairs(const ls_chat *chat);

/* Appends the marked ids of a pair: of the prompt with the answer that was chosen, so many as
 * *chosen says, then of the prompt with the one that was rejected (chat_pair.h). LS_INPUT also
 * where the two are equal, or one is empty. */
LS_CHECKED ls_status ls_chat_encode_pair(const ls_chat *chat, const json_t *example, ls_ids *marked,
                                         int64_t *chosen, ls_error *error);

/* Appends the ids that ask the model for an answer: an example that ends before one, {"messages":
 * [...]} or {"prompt": "..."} (ls_chat_question_read). LS_INPUT: it is none, or the template
 * refuses it. */
LS_CHECKED ls_status ls_chat_ask(const ls_chat *chat, const json_t *question, ls_ids *ids,
                                 ls_error *error);

/* What the template puts behind an answer: a special token, or else a text, as of models that were
 * trained from bytes. */
typedef struct ls_chat_end {
  int32_t id;       /* -1: none */
  const char *text; /* without blanks around it; empty: none; in the arena */
} ls_chat_end;

/* Both are none where the template puts nothing there, or does not say. */
LS_CHECKED ls_status ls_chat_find_end(ls_arena *arena, const ls_chat *chat, ls_chat_end *end,
                                      ls_error *error);

/* The template that a file gave; NULL: it is the tokenizer's own. Lives as long as the chat. */
const char *ls_chat_given_template(const ls_chat *chat, size_t *bytes);

#endif
