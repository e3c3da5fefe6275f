/* What the files of `lockstep generate` share: what was asked for, and the model that is opened.
 *
 *   LS_TRY(ls_generate_talk(&opened, generator, error));
 *
 * Of one thread. */
#ifndef LS_CLI_GENERATE_H
#define LS_CLI_GENERATE_H

#include "generate/text_batch.h"

/* The words as they were given. */
typedef struct ls_generate_asked {
  const char *model, *prompt, *prompts; /* one prompt, or a file of them */
  size_t prompt_bytes;
  const char *system, *template; /* NULL: none, the model's own */
  bool chat, interactive, json, trust;
  ls_sampling sampling;
  int64_t most, context; /* tokens: of an answer, of a conversation */
  int64_t batch;         /* prompts at once; 0: as many as fit */
  ls_dtype compute;
  int threads;     /* 0: what suits the model */
  int devices, pp; /* that the model is cut over, and stages of them */
  double timeout;  /* s; longest wait for another device */
} ls_generate_asked;

typedef struct ls_generate_opened {
  const ls_generate_asked *asked;
  const char *folder;
  ls_model_config config;
  const ls_tokenizer *tokenizer;
  ls_chat *chat;     /* NULL: no question is asked, or */
  ls_error chatless; /* none can be */
  ls_chat_end end;
} ls_generate_opened;

/* A writer of what was asked for. */
ls_text_writer ls_generate_writer(const ls_generate_opened *opened, FILE *to);

/* How it went, to stderr. */
void ls_generate_tell(const ls_text_writer *writer, const ls_generate_opened *opened,
                      ls_generate_end end, int64_t rows);

/* A conversation: lines of stdin, answers to stdout, until the end of stdin or /quit. */
LS_CHECKED ls_status ls_generate_talk(const ls_generate_opened *opened, ls_generator *generator,
                                      ls_error *error);

#endif
