/* An example of a chat, whatever form it was written in, as messages with roles and contents.
 *
 *   ls_chat_example example;
 *   LS_TRY(ls_chat_example_read(json, &example, error));
 *   ls_chat_example_free(&example);
 *
 * {"messages": [{"role", "content"}]}, {"conversations": [{"from", "value"}]} (ShareGPT),
 * {"instruction", "input", "output"}, {"prompt", "completion"}; tools, a system prompt and earlier
 * turns ("history") beside them. Thread-safe: no state. */
#ifndef LS_CHAT_CHAT_EXAMPLE_H
#define LS_CHAT_CHAT_EXAMPLE_H

#include <jansson.h>
#include <stdbool.h>

#include "lockstep/status.h"

typedef struct ls_chat_example {
  json_t *messages; /* owned; an array of objects with a "role" each */
  json_t *tools;    /* owned; NULL: none */
  json_t *more;     /* borrowed; further variables of the template; NULL: none */
  int given;        /* messages of the prompt, whose answers are not trained */
} ls_chat_example;

/* Whether an object has the keys of a form. */
bool ls_chat_example_is(const json_t *json);

/* LS_INPUT says which key is wrong and what was expected. `error` may be NULL. */
LS_CHECKED ls_status ls_chat_example_read(const json_t *json, ls_chat_example *example,
                                          ls_error *error);

/* What a model is to answer: messages or conversations that do not end with an answer, or a
 * "prompt", a text or a list of messages (a completion beside it is not looked at). LS_INPUT
 * likewise. */
LS_CHECKED ls_status ls_chat_question_read(const json_t *json, ls_chat_example *question,
                                           ls_error *error);

void ls_chat_example_free(ls_chat_example *example);

/* Whether a message is an answer: of the assistant, and not of the prompt. */
bool ls_chat_example_speaks(const ls_chat_example *example, size_t message);

/* Whether a message is an answer to be trained: of the assistant, and not weighted 0. */
bool ls_chat_example_answers(const ls_chat_example *example, size_t message);

#endif
