/* What the files of `lockstep generate` share: what was asked for, the model that is opened for it,
 * the prompts, and the printing of what comes.
 *
 *   LS_TRY(ls_generate_prompts_read(arena, opened, &prompts, error));
 *   ls_generate_printer_begin(&printer, opened, stdout, NULL);
 *   LS_TRY(ls_generate_print(&printer, generator, &prompts.items[0], false, &end, error));
 *
 * Of one thread. */
#ifndef LS_CLI_GENERATE_H
#define LS_CLI_GENERATE_H

#include <jansson.h>
#include <stdio.h>

#include "chat/chat.h"
#include "generate/generate.h"
#include "text/utf8.h"
#include "tokenizer/tokenizer.h"

/* The words as they were given. */
typedef struct ls_generate_asked {
  const char *model, *prompt, *prompts; /* one prompt, or a file of them */
  size_t prompt_bytes;
  const char *system, *template; /* NULL: none, the model's own */
  bool chat, interactive, json, trust;
  ls_sampling sampling;
  int64_t most, context; /* tokens: of an answer, of a conversation */
  ls_dtype compute;
  int threads; /* 0: what suits the model */
} ls_generate_asked;

typedef struct ls_generate_opened {
  const ls_generate_asked *asked;
  const char *folder;
  ls_model_config config;
  const ls_tokenizer *tokenizer;
  ls_chat *chat; /* NULL: no question is asked */
  ls_chat_end end;
} ls_generate_opened;

typedef struct ls_generate_prompt {
  const char *where; /* "FILE:LINE"; NULL: the one of the command line */
  const char *text;  /* what is continued; NULL: a question, whose answer alone is printed */
  size_t text_bytes;
  json_t *asked; /* owned by the prompts: a string, or a list of messages */
  const int32_t *ids;
  int64_t count;
} ls_generate_prompt;

typedef struct ls_generate_prompts {
  LS_LIST(ls_generate_prompt) list;
} ls_generate_prompts;

/* Opens the template, where a question is asked: by --chat, or by messages in a file. LS_INPUT: the
 * model has none. */
LS_CHECKED ls_status ls_generate_open_chat(ls_arena *arena, ls_generate_opened *opened,
                                           ls_error *error);

/* The prompts as ids. LS_INPUT, with file and line: no prompt, or more tokens than the model is
 * made for. Free them. */
LS_CHECKED ls_status ls_generate_prompts_read(ls_arena *arena, ls_generate_opened *opened,
                                              ls_generate_prompts *prompts, ls_error *error);
void ls_generate_prompts_free(ls_generate_prompts *prompts);

/* {"role", "content"} behind the messages. LS_INPUT: the content is no UTF-8. */
LS_CHECKED ls_status ls_generate_say(json_t *messages, const char *role, const char *content,
                                     size_t bytes, ls_error *error);

typedef struct ls_generate_printer {
  const ls_generate_opened *opened;
  FILE *to, *copy;     /* either may be NULL */
  bool (*stops)(void); /* NULL: never */
  bool answers;        /* what is printed is the answer to a question */
  ls_utf8_stream stream;
  size_t held; /* bytes of the text that ends an answer which are there and not yet printed */
  bool ended;  /* all of them */
  int64_t tokens, prompt_tokens, reused;
  double begin, first, last; /* s: when it began, and when the tokens were there */
} ls_generate_printer;

/* Generates, and prints as it comes: what is new. */
LS_CHECKED ls_status ls_generate_print(ls_generate_printer *printer, ls_generator *generator,
                                       const ls_generate_prompt *prompt, bool continues,
                                       ls_generate_end *end, ls_error *error);

/* Prints text as it is. LS_FAILED: it cannot be written. */
LS_CHECKED ls_status ls_generate_put(const ls_generate_printer *printer, const char *text,
                                     size_t bytes, ls_error *error);

/* Tokens of the prompt until the first new one, and of those behind it, a second. */
double ls_generate_prompt_rate(const ls_generate_printer *printer);
double ls_generate_token_rate(const ls_generate_printer *printer);

/* How it went, to stderr. */
void ls_generate_tell(const ls_generate_printer *printer, ls_generate_end end, int64_t rows);

/* A conversation: lines of stdin, answers to stdout, until the end of stdin or /quit. */
LS_CHECKED ls_status ls_generate_talk(const ls_generate_opened *opened, ls_generator *generator,
                                      ls_error *error);

#endif
