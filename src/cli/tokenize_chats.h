/* lockstep tokenize --template: chats as their model sees them, and what of them is trained.
 *
 *   LS_TRY(ls_tokenize_chats_print(arena, &asked, tokenizer, error)); */
#ifndef LS_CLI_TOKENIZE_CHATS_H
#define LS_CLI_TOKENIZE_CHATS_H

#include "cli/command.h"
#include "tokenizer/tokenizer.h"

typedef struct ls_tokenize_chats {
  const ls_words *words; /* whose positional ones are the files */
  const char *template;  /* a file; NULL: the tokenizer's own */
  const char *loss_on;   /* answers, all or last; NULL: answers */
  bool show, count;
} ls_tokenize_chats;

/* Prints each example's tokens, or how many they are. Errors name file and line. */
LS_CHECKED ls_status ls_tokenize_chats_print(ls_arena *arena, const ls_tokenize_chats *asked,
                                             const ls_tokenizer *tokenizer, ls_error *error);

#endif
