#include "cli/tokenize_folder.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/command.h"
#include "data/token_folder.h"
#include "watch/progress.h"

/* The line, and how fast tokens are made: what is only looked at is no measure of that. */
typedef struct telling {
  ls_arena *arena;
  ls_progress *line;
  double begin_s, last_s, made_s;
  int64_t last_bytes, made_bytes;
} telling;

static void tell(void *context, int64_t done, int64_t total, int64_t tokens) {
  telling *self = context;
  const double now = ls_now_s(), past = now - self->begin_s;
  if (tokens && done > self->last_bytes) {
    self->made_bytes += done - self->last_bytes;
    self->made_s += now - self->last_s;
  }
  self->last_bytes = done;
  self->last_s = now;
  if (past < 0.5) return; /* what is there at once needs no line */
  if (!self->line)
    self->line = ls_progress_create(self->arena, stderr, isatty(STDERR_FILENO) != 0, 0, total);
  const double rate = self->made_s > 0 ? (double)self->made_bytes / self->made_s : 0;
  if (!tokens || rate <= 0) {
    ls_progress_line(self->line, done, past, "reading %.1f of %.1f MB", (double)done / 1e6,
                     (double)total / 1e6);
    return;
  }
  char left[LS_DURATION_BYTES];
  ls_duration_show(left, (double)(total - done) / rate);
  ls_progress_line(self->line, done, past, "%.1f of %.1f MB  %.1f MB/s  %.2fM tokens  left %s",
                   (double)done / 1e6, (double)total / 1e6, rate / 1e6, (double)tokens / 1e6, left);
}

static void print_file(const ls_token_folder_file *file) {
  const ls_token_header *about = &file->about;
  if (!file->path) {
    printf("%s: no text in it\n", file->pattern);
    return;
  }
  printf("%s: %lld tokens, %lld document%s, of %.1f MB in %d file%s", file->path,
         (long long)about->count, (long long)about->documents, about->documents == 1 ? "" : "s",
         (double)file->bytes / 1e6, file->texts, file->texts == 1 ? "" : "s");
  if (about->skipped)
    printf("; %lld bad line%s skipped", (long long)about->skipped, about->skipped == 1 ? "" : "s");
  printf("%s\n", file->reused ? "; as it was: nothing changed" : "");
}

ls_status ls_tokenize_to_folder(ls_arena *arena, const ls_tokenize_folder *asked,
                                const ls_tokenizer *tokenizer, ls_error *error) {
  telling told = {.arena = arena, .begin_s = ls_now_s(), .last_s = ls_now_s()};
  const ls_corpus_options options = {.key = "texts",
                                     .patterns = asked->words->positional,
                                     .pattern_count = asked->words->positional_count,
                                     .text_key = asked->text_key,
                                     .skip_bad_lines = asked->skip_bad_lines,
                                     .tokenizer = tokenizer,
                                     .cache_folder = asked->folder,
                                     .progress = tell,
                                     .context = &told,
                                     .threads = asked->threads};
  ls_command_catch_signals(NULL);
  ls_token_folder_file *files;
  int count;
  const ls_status status = ls_token_folder_write(arena, &options, &files, &count, error);
  if (told.line) ls_progress_end(told.line);
  LS_TRY(status);
  for (int i = 0; i < count; i++) print_file(&files[i]);
  return LS_OK;
}
