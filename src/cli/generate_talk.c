/* A conversation with a model, on a terminal or through pipes. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/generate.h"

static const char commands[] =
    "/reset begins a new conversation, /quit or Ctrl-D ends; Ctrl-C ends an answer\n";

/* A signal handler can reach nothing else. */
static volatile sig_atomic_t interrupted, waits_for_line;

static void interrupt(int number) {
  (void)number;
  static const char said[] = "\n(/quit or Ctrl-D ends)\n> ";
  interrupted = 1;
  if (waits_for_line) (void)!write(STDERR_FILENO, said, sizeof said - 1);
}

static bool is_interrupted(void) {
  return interrupted != 0;
}

typedef struct talk {
  const ls_generate_opened *opened;
  ls_generator *generator;
  json_t *messages;
  bool terminal; /* a person sits there */
} talk;

static ls_status begin(talk *self, ls_error *error) {
  const char *system = self->opened->asked->system;
  json_array_clear(self->messages);
  if (!system) return LS_OK;
  return ls_prompts_say(self->messages, "system", system, strlen(system), error);
}

/* The answer to the messages, printed and kept; *said the bytes of it. */
static ls_status print_answer(talk *self, const ls_ids *ids, FILE *copy, ls_error *error) {
  const ls_prompt prompt = {.ids = ids->items, .count = ids->count};
  ls_text_writer writer = ls_generate_writer(self->opened, stdout);
  writer.copy = copy;
  writer.stops = is_interrupted;
  ls_generate_end end;
  interrupted = 0;
  LS_TRY(ls_text_writer_run(&writer, self->generator, &prompt, true, &end, error));
  writer.copy = NULL;
  LS_TRY(ls_text_writer_put(&writer, "\n", 1, error));
  ls_generate_tell(&writer, self->opened, end, ls_generator_rows(self->generator));
  return LS_OK;
}

static ls_status answer(talk *self, const ls_ids *ids, ls_error *error) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *copy = open_memstream(&text, &bytes);
  if (!copy) return ls_fail(error, LS_FAILED, "out of memory");
  ls_status status = print_answer(self, ids, copy, error);
  fclose(copy);
  if (status == LS_OK) status = ls_prompts_say(self->messages, "assistant", text, bytes, error);
  free(text);
  return status;
}

/* The messages as ids. LS_INPUT: the template refuses them, or they are too long. */
static ls_status encode(const talk *self, ls_ids *ids, ls_error *error) {
  json_t *question = json_pack("{s:O}", "messages", self->messages);
  const ls_status status = ls_chat_ask(self->opened->chat, question, ids, error);
  const long long rows = ls_generator_rows(self->generator);
  json_decref(question);
  LS_TRY(status);
  if (ids->count < rows) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "the conversation has %lld tokens and there is room for %lld with an answer: "
                 "/reset begins a new one%s",
                 (long long)ids->count, rows,
                 rows < self->opened->config.positions ? ", --context N gives more room" : "");
}

/* What cannot be answered is told and forgotten; an error ends the program. */
static ls_status reply(talk *self, const char *line, size_t bytes, ls_error *error) {
  ls_ids ids = {0};
  ls_status status = ls_prompts_say(self->messages, "user", line, bytes, error);
  const size_t before = json_array_size(self->messages) - (status == LS_OK);
  if (status == LS_OK) status = encode(self, &ids, error);
  if (status == LS_INPUT) {
    fprintf(stderr, "lockstep generate: %s\n", error->text);
    if (json_array_size(self->messages) > before) json_array_remove(self->messages, before);
    status = LS_OK;
  } else if (status == LS_OK) {
    status = answer(self, &ids, error);
  }
  ls_ids_free(&ids);
  return status;
}

static ls_status obey(talk *self, const char *line, bool *quits, ls_error *error) {
  *quits = strcmp(line, "/quit") == 0;
  if (*quits) return LS_OK;
  if (strcmp(line, "/reset") == 0) {
    fprintf(stderr, "a new conversation\n");
    return begin(self, error);
  }
  if (strcmp(line, "/help") != 0) fprintf(stderr, "%s: no such command; ", line);
  fprintf(stderr, "%s", commands);
  return LS_OK;
}

/* The next line without its end; false: there is none. */
static bool read_line(const talk *self, char **line, size_t *room, size_t *bytes) {
  if (self->terminal) fprintf(stderr, "> ");
  waits_for_line = self->terminal;
  const ssize_t got = getline(line, room, stdin);
  waits_for_line = 0;
  if (got < 0) return false;
  *bytes = (size_t)got;
  while (*bytes && strchr("\r\n", (*line)[*bytes - 1])) (*line)[--*bytes] = 0;
  return true;
}

static ls_status converse(talk *self, ls_error *error) {
  char *line = NULL;
  size_t room = 0, bytes;
  bool quits = false;
  ls_status status = LS_OK;
  while (status == LS_OK && !quits && read_line(self, &line, &room, &bytes)) {
    if (bytes == 0) continue;
    status = *line == '/' ? obey(self, line, &quits, error) : reply(self, line, bytes, error);
  }
  free(line);
  if (status == LS_OK && ferror(stdin))
    return ls_fail(error, LS_FAILED, "standard input cannot be read: %s", strerror(errno));
  if (!quits && self->terminal) fprintf(stderr, "\n");
  return status;
}

ls_status ls_generate_talk(const ls_generate_opened *opened, ls_generator *generator,
                           ls_error *error) {
  talk self = {.opened = opened,
               .generator = generator,
               .messages = json_array(),
               .terminal = isatty(STDIN_FILENO) != 0};
  struct sigaction before, action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before);
  fprintf(stderr, "%s", commands);
  ls_status status = begin(&self, error);
  if (status == LS_OK) status = converse(&self, error);
  sigaction(SIGINT, &before, NULL);
  json_decref(self.messages);
  return status;
}
