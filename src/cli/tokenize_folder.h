/* lockstep tokenize TEXT... -o FOLDER: token files to train on. */
#ifndef LS_CLI_TOKENIZE_FOLDER_H
#define LS_CLI_TOKENIZE_FOLDER_H

#include "cli/command.h"
#include "tokenizer/tokenizer.h"

typedef struct ls_tokenize_folder {
  const char *folder;
  const ls_words *words; /* the texts */
  const char *text_key;  /* of JSON lines; NULL: "text" */
  bool skip_bad_lines;
  int threads;
} ls_tokenize_folder;

/* Writes them, with a progress line on stderr, and prints a line of each. SIGINT, SIGTERM and
 * SIGUSR1 end it: LS_STOPPED. */
LS_CHECKED ls_status ls_tokenize_to_folder(ls_arena *arena, const ls_tokenize_folder *asked,
                                           const ls_tokenizer *tokenizer, ls_error *error);

#endif
