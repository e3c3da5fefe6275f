/* Prompts as ids: texts that are continued, and questions that a chat template asks.
 *
 *   ls_prompts prompts = {0};
 *   LS_TRY(ls_prompts_read(arena, &options, "questions.jsonl", &prompts, error));
 *   ... prompts.list.items[0].ids ...
 *   ls_prompts_free(&prompts);
 *
 * A file has a prompt a line, or is .jsonl or .json of {"prompt": "..."} or {"messages": [...]};
 * packed as .gz or .zst. One thread a list. */
#ifndef LS_GENERATE_PROMPTS_H
#define LS_GENERATE_PROMPTS_H

#include <jansson.h>

#include "chat/chat.h"
#include "tokenizer/tokenizer.h"

typedef struct ls_prompts_options {
  const char *key; /* that names the file, for errors */
  const ls_tokenizer *tokenizer;
  const ls_chat *chat;  /* asks questions; NULL: none can be asked */
  const char *chatless; /* why */
  bool asks;            /* texts are questions, too */
  const char *system;   /* prompt of questions that have none; NULL: none */
  int64_t positions;    /* tokens that the model is made for */
} ls_prompts_options;

typedef struct ls_prompt {
  const char *where; /* "FILE:LINE"; NULL: of no file */
  const char *text;  /* what is continued; NULL: a question, whose answer alone is wanted */
  size_t text_bytes;
  json_t *asked; /* owned by the prompts: a string, or a list of messages */
  const int32_t *ids;
  int64_t count;
} ls_prompt;

typedef struct ls_prompts {
  LS_LIST(ls_prompt) list;
} ls_prompts;

/* Appends those of a file, in the arena. LS_INPUT names file and line: no prompt, one that cannot
 * be asked, or of more tokens than the model is made for. Free the prompts in any case. */
LS_CHECKED ls_status ls_prompts_read(ls_arena *arena, const ls_prompts_options *options,
                                     const char *path, ls_prompts *prompts, ls_error *error);

/* Appends one, whose text lives as long as the arena. */
LS_CHECKED ls_status ls_prompts_add(ls_arena *arena, const ls_prompts_options *options,
                                    const char *where, const char *text, size_t bytes,
                                    ls_prompts *prompts, ls_error *error);

/* Tokens of the longest. */
int64_t ls_prompts_longest(const ls_prompts *prompts);

void ls_prompts_free(ls_prompts *prompts);

/* {"role", "content"} behind the messages. LS_INPUT: the content is no UTF-8. */
LS_CHECKED ls_status ls_prompts_say(json_t *messages, const char *role, const char *content,
                                    size_t bytes, ls_error *error);

#endif
