#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "text/number.h"

enum { LINE_BYTES = 1024 };

struct ls_metrics {
  ls_arena *arena;
  const char *path;
  int file;
  char *interrupted; /* the last line, if its evaluation was interrupted; else NULL */
  size_t interrupted_at;
};

static const char no_loss[] = "\"validation_loss\": null";

/* Takes what of `expected` there is before `end`; false where something else is. */
static bool take(const char **at, const char *end, const char *expected) {
  for (; *expected && *at < end; expected++, (*at)++)
    if (**at != *expected) return false;
  return true;
}

/* Whether a line begins as ours do, {"step": N, "SECOND": , as far as it goes; *step where it goes
 * beyond that, else -1. */
static bool is_ours(const char *line, const char *end, const char *second, int64_t *step) {
  const char *at = line;
  int64_t number = 0;
  *step = -1;
  if (!take(&at, end, "{\"step\": ")) return false;
  int digits = 0;
  for (; at < end && *at >= '0' && *at <= '9' && digits < 18; at++, digits++)
    number = 10 * number + (*at - '0');
  if ((at < end && !digits) || !take(&at, end, ", \"") || !take(&at, end, second)) return false;
  if (!take(&at, end, "\": ")) return false;
  if (at < end) *step = number;
  return true;
}

size_t ls_metrics_kept(const char *text, size_t bytes, const char *second, int64_t steps,
                       int64_t *foreign) {
  const char *const end = text + bytes, *at = text;
  size_t kept = 0;
  bool ours = true;
  int64_t step, line = 1;
  *foreign = 0;
  for (const char *stop; at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1) {
    if (!is_ours(at, stop, second, &step) || step < 0) *foreign = line;
    if (*foreign) return kept;
    ours = ours && step <= steps;
    if (ours) kept = (size_t)(stop - text) + 1;
    line++;
  }
  /* Behind lines of ours a power cut may have left anything. */
  if (at == text && !is_ours(at, end, second, &step)) *foreign = line;
  return kept;
}

/* Keeps the last line if its evaluation was interrupted. */
static void keep_interrupted(ls_metrics *metrics, const char *text, size_t bytes) {
  size_t at = bytes;
  while (at > 0 && (at == bytes || text[at - 1] != '\n')) at--;
  char *line = ls_arena_printf(metrics->arena, "%.*s", (int)(bytes - at), text + at);
  metrics->interrupted = strstr(line, no_loss) ? line : NULL;
  metrics->interrupted_at = at;
}

static ls_status cut_after(ls_metrics *metrics, int64_t steps, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  char *text;
  size_t bytes;
  ls_status status = ls_file_read(arena, metrics->path, &text, &bytes, error);
  int64_t foreign = 0;
  const size_t kept = status == LS_OK ? ls_metrics_kept(text, bytes, "epoch", steps, &foreign) : 0;
  if (foreign) {
    status = ls_fail(error, LS_INPUT,
                     "%s:%lld: is no line of a run's metrics, and would be lost: move the file, or "
                     "give another out",
                     metrics->path, (long long)foreign);
  } else if (status == LS_OK && ftruncate(metrics->file, (off_t)kept) != 0) {
    status = ls_fail(error, LS_FAILED, "%s: cannot be cut to step %lld: %m", metrics->path,
                     (long long)steps);
  }
  if (status == LS_OK) keep_interrupted(metrics, text, kept);
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_metrics_open(const char *path, int64_t steps, ls_metrics **metrics, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_metrics *made = LS_NEW(arena, ls_metrics);
  *made = (ls_metrics){.arena = arena, .path = ls_arena_strdup(arena, path)};
  made->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  struct stat info;
  ls_status status = LS_OK;
  if (made->file < 0 || fstat(made->file, &info))
    status = ls_fail(error, LS_FAILED, "%s: cannot be written: %m", path);
  else if (!S_ISREG(info.st_mode)) /* a device may be read for ever */
    status = ls_fail(error, LS_INPUT, "%s: expected a regular file", path);
  if (status == LS_OK) status = cut_after(made, steps, error);
  if (status != LS_OK) ls_metrics_close(&made);
  *metrics = made;
  return status;
}

static void append_number(char line[LINE_BYTES], const char *name, double value) {
  char text[LS_NUMBER_BYTES];
  const size_t used = strlen(line);
  ls_number_write(text, value);
  snprintf(line + used, LINE_BYTES - used, ", \"%s\": %s", name, text);
}

static void append_whole(char line[LINE_BYTES], const char *name, int64_t value) {
  const size_t used = strlen(line);
  snprintf(line + used, LINE_BYTES - used, ", \"%s\": %lld", name, (long long)value);
}

ls_status ls_metrics_write(ls_metrics *metrics, const ls_metrics_step *step, ls_error *error) {
  char line[LINE_BYTES];
  snprintf(line, sizeof line, "{\"step\": %lld", (long long)step->step);
  append_number(line, "epoch", step->epoch);
  append_whole(line, "tokens", step->tokens);
  append_number(line, "loss", step->loss);
  append_number(line, "grad_norm", step->grad_norm);
  append_number(line, "learning_rate", step->learning_rate);
  append_number(line, "tokens_per_second", step->tokens_per_second);
  append_number(line, "tokens_per_second_per_device", step->tokens_per_second_per_device);
  append_number(line, "mfu", step->mfu);
  append_whole(line, "memory_bytes", step->memory_bytes);
  append_number(line, "step_seconds", step->step_seconds);
  if (!isnan(step->validation_loss) || step->validation_interrupted) {
    append_number(line, "validation_loss", step->validation_loss);
  }
  if (step->classifies && !isnan(step->validation_loss))
    append_number(line, "validation_accuracy", step->validation_accuracy);
  if (!isnan(step->loss_scale)) {
    append_number(line, "loss_scale", step->loss_scale);
    append_whole(line, "skipped", step->skipped);
  }
  if (step->repeated) append_whole(line, "repeated", step->repeated);
  if (step->pairs) {
    append_number(line, "rewards/chosen", step->reward_chosen);
    append_number(line, "rewards/rejected", step->reward_rejected);
    append_number(line, "rewards/accuracies", step->preferred);
    append_number(line, "rewards/margins", step->reward_chosen - step->reward_rejected);
  }
  if (step->taught) {
    append_number(line, "cross_entropy", step->cross_entropy);
    append_number(line, "kl", step->divergence);
  }
  if (step->expert_load > 0) {
    append_number(line, "expert_load", step->expert_load);
    append_whole(line, "expert_load_layer", step->fullest_layer);
    append_number(line, "experts_idle", step->experts_idle);
  }
  if (step->drops) append_whole(line, "dropped", step->dropped);
  const size_t used = strlen(line);
  LS_ASSERT(used + 3 < sizeof line);
  memcpy(line + used, "}\n", 2);
  /* One write for one line: who reads along sees whole lines, and a kill cuts none short. */
  const ssize_t written = write(metrics->file, line, used + 2);
  if (written == (ssize_t)(used + 2)) return LS_OK;
  if (written >= 0) errno = ENOSPC;
  return ls_fail(error, LS_FAILED, "%s: writing step %lld failed: %m", metrics->path,
                 (long long)step->step);
}

bool ls_metrics_validation_interrupted(const ls_metrics *metrics) {
  return metrics->interrupted != NULL;
}

/* The line grows or stays as long as it is: one write, so that a kill leaves one of the two. */
ls_status ls_metrics_add_validation(ls_metrics *metrics, double loss, double accuracy,
                                    ls_error *error) {
  char number[LS_NUMBER_BYTES], more[2 * LS_NUMBER_BYTES] = "";
  ls_number_write(number, accuracy);
  if (!isnan(accuracy)) snprintf(more, sizeof more, ", \"validation_accuracy\": %s", number);
  ls_number_write(number, loss);
  const char *place = strstr(metrics->interrupted, no_loss);
  const char *line = ls_arena_printf(metrics->arena, "%.*s\"validation_loss\": %-4s%s%s",
                                     (int)(place - metrics->interrupted), metrics->interrupted,
                                     number, more, place + sizeof no_loss - 1);
  metrics->interrupted = NULL;
  const int flags = fcntl(metrics->file, F_GETFL);
  const size_t bytes = strlen(line);
  /* Where a file is appended to, Linux has pwrite append as well. */
  const bool written =
      flags >= 0 && fcntl(metrics->file, F_SETFL, flags & ~O_APPEND) == 0 &&
      pwrite(metrics->file, line, bytes, (off_t)metrics->interrupted_at) == (ssize_t)bytes &&
      fcntl(metrics->file, F_SETFL, flags) == 0;
  if (written) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: writing a validation loss failed: %m", metrics->path);
}

void ls_metrics_close(ls_metrics **metrics) {
  if (!*metrics) return;
  if ((*metrics)->file >= 0) close((*metrics)->file);
  ls_arena *arena = (*metrics)->arena;
  *metrics = NULL;
  ls_arena_destroy(&arena);
}
