/* Texts for many prompts, decoded together and handed out in the order of the prompts.
 *
 *   const ls_text_batch batch = {.writer = writer, .prompts = prompts.list.items,
 *                                .count = prompts.list.count, .take = print, .context = self};
 *   LS_TRY(ls_text_batch_run(&batch, generator, error));
 *
 * Of one thread. */
#ifndef LS_GENERATE_TEXT_BATCH_H
#define LS_GENERATE_TEXT_BATCH_H

#include "generate/text_writer.h"

/* A text as it came to be: the writer with its counts and times. */
typedef struct ls_text {
  const ls_text_writer *writer;
  const ls_prompt *prompt;
  const char *text; /* until `take` returns */
  size_t bytes;
  ls_generate_end end;
} ls_text;

typedef struct ls_text_batch {
  ls_text_writer writer; /* what each is written like; `to` and `copy` are not looked at */
  const ls_prompt *prompts;
  int count;
  /* Gets each text when it and all before it are there; an error of it ends the work. */
  ls_status (*take)(void *context, int number, const ls_text *text, ls_error *error);
  void *context;
} ls_text_batch;

/* As many at once as the generator has sequences. */
LS_CHECKED ls_status ls_text_batch_run(const ls_text_batch *batch, ls_generator *generator,
                                       ls_error *error);

#endif
