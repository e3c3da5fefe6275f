/* What is generated as text, written as it comes: whole characters, without special tokens, and of
 * an answer without the text that ends it.
 *
 *   ls_text_writer writer = {.tokenizer = tokenizer, .end = end, .most = 200, .to = stdout};
 *   LS_TRY(ls_text_writer_run(&writer, generator, &prompts.list.items[0], false, &why, error));
 *
 * Of one thread; a writer writes one text. */
#ifndef LS_GENERATE_TEXT_WRITER_H
#define LS_GENERATE_TEXT_WRITER_H

#include <stdio.h>

#include "chat/chat.h"
#include "generate/generate.h"
#include "generate/prompts.h"
#include "text/utf8.h"

typedef struct ls_text_writer {
  const ls_tokenizer *tokenizer;
  ls_chat_end end; /* of answers; its text is never NULL */
  ls_sampling sampling;
  int64_t most;        /* new tokens */
  FILE *to, *copy;     /* either may be NULL */
  bool (*stops)(void); /* NULL: never */
  bool repeats; /* where the prompt is from, and its text, are written ahead of what is new */
  /* The writer's own; all 0. */
  bool answers;            /* what is written is the answer to a question */
  const ls_prompt *before; /* the prompt, until it is repeated */
  ls_utf8_stream stream;
  size_t held; /* bytes of the text that ends an answer which are there and not yet written */
  bool ended;  /* all of them */
  int64_t tokens, prompt_tokens, reused;
  ls_draft_counts drafts;
  double begin, first, last; /* s: when it began, and when the tokens were there */
} ls_text_writer;

/* What is to be generated so that the writer writes it, and the end of that: for ls_generate_all,
 * whose requests begin and end with these. The request refers to both. */
ls_generate_request ls_text_writer_request(ls_text_writer *writer, const ls_prompt *prompt);
LS_CHECKED ls_status ls_text_writer_end(ls_text_writer *writer, ls_generate_end *end,
                                        ls_error *error);

/* Generates, and writes what is new. `continues` as ls_generate has it. LS_FAILED also where it
 * cannot be written. */
LS_CHECKED ls_status ls_text_writer_run(ls_text_writer *writer, ls_generator *generator,
                                        const ls_prompt *prompt, bool continues,
                                        ls_generate_end *end, ls_error *error);

/* Writes where a prompt is from, where that is known, and its text, where it is continued. */
LS_CHECKED ls_status ls_text_writer_put_prompt(const ls_text_writer *writer,
                                               const ls_prompt *prompt, ls_error *error);

/* Writes text as it is. */
LS_CHECKED ls_status ls_text_writer_put(const ls_text_writer *writer, const char *text,
                                        size_t bytes, ls_error *error);

/* Tokens of the prompt until the first new one, and of those behind it, a second. */
double ls_text_writer_prompt_rate(const ls_text_writer *writer);
double ls_text_writer_token_rate(const ls_text_writer *writer);

#endif
