/* A pair of answers to one prompt, as two examples of chats that each give the prompt and one
 * answer.
 *
 *   ls_chat_pair pair;
 *   LS_TRY(ls_chat_pair_read(json, &pair, error));
 *   ls_chat_pair_free(&pair);
 *
 * {"prompt", "chosen", "rejected"}, each a text or a list of messages (TRL's explicit form);
 * without "prompt", two lists that begin with the same messages, which are the prompt (the implicit
 * form); chosen_messages and rejected_messages are the same under other names. A system prompt,
 * tools and chat_template_kwargs may stand beside them. Thread-safe: no state. */
#ifndef LS_CHAT_CHAT_PAIR_H
#define LS_CHAT_CHAT_PAIR_H

#include <jansson.h>
#include <stdbool.h>

#include "lockstep/status.h"

typedef struct ls_chat_pair {
  json_t *side[2]; /* owned: chosen, rejected; {"prompt": [...], "completion": [...]} */
} ls_chat_pair;

/* Whether an object has the keys of one. */
bool ls_chat_pair_is(const json_t *json);

/* LS_INPUT says which key is wrong and what was expected; also where an answer is empty, or the two
 * are equal. `error` may be NULL. */
LS_CHECKED ls_status ls_chat_pair_read(const json_t *json, ls_chat_pair *pair, ls_error *error);

void ls_chat_pair_free(ls_chat_pair *pair);

#endif
