#include "train/samples.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/stop.h"
#include "checkpoint/checkpoint.h"
#include "generate/text_batch.h"
#include "session/agree.h"
#include "session/fit.h"
#include "train/best.h"
#include "train/metrics.h"

struct ls_samples {
  ls_arena *arena;
  const ls_session *session;
  const ls_tokenizer *tokenizer;
  ls_prompts prompts;
  ls_chat_end end;
  const char *path;
  ls_arena *made;    /* holds what follows; NULL: nothing was made */
  json_t **lines;    /* one a prompt */
  int64_t sequences; /* that are decoded at once */
};

static const char key[] = "eval.prompts";

/* What is named so is a file, whether it is there or not. */
static bool names_file(const char *text) {
  static const char *const ends[] = {".txt", ".jsonl", ".ndjson", ".json", ".gz", ".zst"};
  const size_t length = strlen(text);
  for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
    const size_t end = strlen(ends[e]);
    if (length > end && strcmp(text + length - end, ends[e]) == 0 && !strchr(text, ' '))
      return true;
  }
  return ls_file_exists(text);
}

static ls_status read_prompts(ls_samples *self, const ls_dataset *dataset, ls_error *error) {
  const ls_run_file *run = self->session->run;
  const ls_run_globs *given = &run->eval.prompts;
  const ls_prompts_options options = {.key = ls_run_file_where(run, key),
                                      .tokenizer = self->tokenizer,
                                      .chat = dataset->chat,
                                      .chatless =
                                          "found messages; expected a text to go on with, "
                                          "since data.text is no chats",
                                      .asks = dataset->chat != NULL,
                                      .positions = self->session->config.positions};
  if (dataset->chat) LS_TRY(ls_chat_find_end(self->arena, dataset->chat, &self->end, error));
  if (given->count == 1 && names_file(given->items[0]))
    return ls_prompts_read(self->arena, &options, given->items[0], &self->prompts, error);
  for (int p = 0; p < given->count; p++) {
    const char *text = given->items[p];
    if (ls_prompts_add(self->arena, &options, NULL, text, strlen(text), &self->prompts, error) !=
        LS_OK)
      return ls_error_prefix(error, "%s: prompt %d", options.key, p + 1);
  }
  return LS_OK;
}

static ls_dtype compute_of(const ls_samples *self) {
  return self->session->layout.compute == LS_F64 ? LS_F64 : LS_F32;
}

static int64_t rows_of(const ls_samples *self) {
  return ls_prompts_longest(&self->prompts) + self->session->run->eval.max_new_tokens;
}

static ls_generator_options options_of(const ls_samples *self, const char *folder) {
  return (ls_generator_options){.folder = folder,
                                .compute = compute_of(self),
                                .threads = self->session->device.facts.threads,
                                .rows = rows_of(self),
                                .sequences = self->sequences};
}

static ls_status check_memory(const ls_samples *self, int ranks_here, ls_error *error) {
  int64_t bytes;
  ls_arena *arena = ls_arena_create();
  const ls_generator_options options = options_of(self, NULL);
  const ls_status status =
      ls_generator_bytes(arena, &self->session->config, &options, 1, &bytes, error);
  ls_arena_destroy(&arena);
  LS_TRY(status);
  const bool beside = strcmp(self->session->device.kind, "cpu") == 0;
  return ls_check_memory(
      bytes + (beside ? ls_session_needs(self->session, ranks_here) : 0),
      "eval.prompts has the first process hold the whole model besides: leave it "
      "out, and ask checkpoints with lockstep generate",
      error);
}

/* All prompts at once, or half of them, as memory has it. */
static ls_status choose_sequences(ls_samples *self, int ranks_here, ls_error *error) {
  const int prompts = self->prompts.list.count;
  self->sequences = prompts < LS_MOST_SEQUENCES ? prompts : LS_MOST_SEQUENCES;
  while (self->sequences > 1 && check_memory(self, ranks_here, NULL) != LS_OK) self->sequences /= 2;
  return check_memory(self, ranks_here, error);
}

ls_status ls_samples_open(ls_arena *arena, const ls_session *session, const ls_dataset *dataset,
                          const ls_tokenizer *tokenizer, int ranks_here, ls_samples **samples,
                          ls_error *error) {
  const ls_run_file *run = session->run;
  const ls_run_globs *given = &run->eval.prompts;
  *samples = NULL;
  if (given->count == 0 || (given->count == 1 && strcmp(given->items[0], "none") == 0))
    return LS_OK;
  LS_TRY(ls_best_check_evaluates(run, key, dataset->evaluation.sequences > 0, error));
  if (!tokenizer)
    return ls_fail(error, LS_INPUT, "%s: this program trains without a tokenizer: leave it out",
                   ls_run_file_where(run, key));
  ls_samples *made = LS_NEW(arena, ls_samples);
  *made = (ls_samples){.arena = arena,
                       .session = session,
                       .tokenizer = tokenizer,
                       .end = {.id = -1, .text = ""},
                       .path = ls_arena_printf(arena, "%s/samples.jsonl", run->out)};
  *samples = made;
  LS_TRY(read_prompts(made, dataset, error));
  return choose_sequences(made, ranks_here, error);
}

static ls_status cut(ls_arena *arena, const char *path, int64_t steps, ls_error *error) {
  char *text;
  size_t bytes;
  int64_t foreign;
  LS_TRY(ls_file_read(arena, path, &text, &bytes, error));
  const size_t kept = ls_metrics_kept(text, bytes, "prompt", steps, &foreign);
  if (foreign)
    return ls_fail(error, LS_INPUT,
                   "%s:%lld: is no line of a run's samples, and would be lost: move the file, or "
                   "give another out",
                   path, (long long)foreign);
  if (kept == bytes || truncate(path, (off_t)kept) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be cut to step %lld: %s", path, (long long)steps,
                 strerror(errno));
}

ls_status ls_samples_begin(ls_samples *samples, int64_t steps, ls_error *error) {
  if (!ls_file_exists(samples->path)) return LS_OK;
  ls_arena *arena = ls_arena_create();
  const ls_status status = cut(arena, samples->path, steps, error);
  ls_arena_destroy(&arena);
  return status;
}

static void forget(ls_samples *self) {
  if (!self->made) return;
  for (int p = 0; p < self->prompts.list.count; p++) json_decref(self->lines[p]);
  ls_arena_destroy(&self->made);
}

/* What the texts of a step are made with. */
typedef struct making {
  ls_samples *samples;
  int64_t step;
} making;

static ls_status take_text(void *context, int number, const ls_text *text, ls_error *error) {
  const making *self = context;
  json_t **line = &self->samples->lines[number];
  *line = json_pack("{s:I, s:O, s:s%}", "step", (json_int_t)self->step, "prompt",
                    text->prompt->asked, "text", text->text, text->bytes);
  return *line ? LS_OK : ls_fail(error, LS_FAILED, "out of memory");
}

static ls_status make_all(ls_samples *self, const char *folder, int64_t step, ls_error *error) {
  const ls_generator_options options = options_of(self, folder);
  making made = {self, step};
  const ls_text_batch batch = {.writer = {.tokenizer = self->tokenizer,
                                          .end = self->end,
                                          .most = self->session->run->eval.max_new_tokens,
                                          .stops = ls_stop_asked},
                               .prompts = self->prompts.list.items,
                               .count = self->prompts.list.count,
                               .take = take_text,
                               .context = &made};
  ls_generator *generator;
  self->made = ls_arena_create();
  self->lines = LS_NEW_ARRAY(self->made, json_t *, batch.count);
  LS_TRY(ls_generator_create(self->made, &options, &generator, error));
  const ls_status status = ls_text_batch_run(&batch, generator, error);
  ls_generator_destroy(&generator);
  return status;
}

/* Of rank 0, from the weights in the folder, which it removes. */
static void make_from(ls_samples *self, const char *folder, int64_t step, bool *stopped) {
  ls_error reason = {0};
  forget(self);
  const ls_status status = make_all(self, folder, step, &reason);
  *stopped = ls_stop_asked();
  if (status != LS_OK || *stopped) forget(self);
  if (status != LS_OK) ls_warn("step %lld: no samples: %s", (long long)step, reason.text);
  if (ls_directory_remove(folder, &reason) != LS_OK) ls_warn("%s", reason.text);
}

ls_status ls_samples_make(ls_samples *samples, ls_rank *rank, int64_t step, bool *interrupted,
                          ls_error *error) {
  const char *folder;
  bool stopped = false;
  ls_arena *arena = ls_arena_create();
  const ls_status status = ls_checkpoint_lay_weights(
      arena, samples->session, rank, samples->session->run->out, step, &folder, error);
  if (status == LS_OK && ls_rank_number(rank) == 0) make_from(samples, folder, step, &stopped);
  ls_arena_destroy(&arena);
  LS_TRY(status);
  return ls_agree_any(rank, stopped, "samples of eval.prompts", interrupted, error);
}

/* All lines in one write: who reads along sees whole ones. */
static ls_status append(const ls_samples *self, ls_error *error) {
  const char *all = "";
  for (int p = 0; p < self->prompts.list.count; p++) {
    char *line = json_dumps(self->lines[p], 0);
    all = ls_arena_printf(self->made, "%s%s\n", all, line ? line : "");
    free(line);
  }
  const size_t bytes = strlen(all);
  const int file = open(self->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file >= 0) errno = ENOSPC;
  const bool written = file >= 0 && write(file, all, bytes) == (ssize_t)bytes;
  const int reason = errno;
  if (file >= 0) close(file);
  if (written) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be written: %s", self->path, strerror(reason));
}

ls_status ls_samples_write(ls_samples *samples, int64_t step,
                           void (*told)(void *context, int64_t step, const char *prompt,
                                        const char *text),
                           void *context, ls_error *error) {
  if (!samples->made) return LS_OK;
  LS_TRY(append(samples, error));
  for (int p = 0; told && p < samples->prompts.list.count; p++) {
    char *prompt = json_dumps(samples->prompts.list.items[p].asked, JSON_ENCODE_ANY);
    char *text = json_dumps(json_object_get(samples->lines[p], "text"), JSON_ENCODE_ANY);
    if (prompt && text) told(context, step, prompt, text);
    free(prompt);
    free(text);
  }
  forget(samples);
  return LS_OK;
}

void ls_samples_close(ls_samples **samples) {
  if (!*samples) return;
  forget(*samples);
  ls_prompts_free(&(*samples)->prompts);
  *samples = NULL;
}
