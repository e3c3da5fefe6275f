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
  ls_run_device device;
  const char *gpus;    /* what is said of them; NULL: nothing */
  int devices, pp, cp; /* that the model is cut over; of them stages, and ranks that share tokens */
  double timeout;      /* s; longest wait for another device */
  const char *draft;   /* NULL: none */
  ls_draft_options draft_options; /* but for its folder */
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

/* Fills draft_options by the words. LS_INPUT: they are none. */
LS_CHECKED ls_status ls_generate_read_draft(ls_generate_asked *asked, ls_error *error);

/* What drafts: LS_INPUT where its tokens are not the model's. */
LS_CHECKED ls_status ls_generate_open_draft(ls_arena *arena, const ls_generate_opened *opened,
                                            ls_draft_options *options, ls_error *error);

/* "; of 120 drafted 78 kept (65%), 2.95 tokens a round", to stderr; nothing where there is none. */
void ls_generate_tell_draft(const ls_draft_counts *drafts);

/* A folder without a tokenizer is taken for bytes only if it has their count. Close it. */
LS_CHECKED ls_status ls_generate_find_tokenizer(const char *folder, const ls_model_config *config,
                                                const ls_tokenizer **tokenizer, ls_error *error);

/* A writer of what was asked for. */
ls_text_writer ls_generate_writer(const ls_generate_opened *opened, FILE *to);

/* How it went, to stderr. */
void ls_generate_tell(const ls_text_writer *writer, const ls_generate_opened *opened,
                      ls_generate_end end, int64_t rows);

/* From now on how far long prompts are read stands on stderr. The arena must outlive the
 * generator. */
void ls_generate_show_reading(ls_arena *arena, ls_generator *generator);

/* A conversation: lines of stdin, answers to stdout, until the end of stdin or /quit. */
LS_CHECKED ls_status ls_generate_talk(const ls_generate_opened *opened, ls_generator *generator,
                                      ls_error *error);

#endif
