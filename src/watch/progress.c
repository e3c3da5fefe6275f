#include "watch/progress.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>

#include "text/number.h"
#include "watch/line.h"

/* Between lines that are not on a terminal: a second at first, half a minute in a long run. */
static const double shortest_seconds = 1, longest_seconds = 30, share_of_run = 0.02;
/* Of a terminal nobody reads more than ten lines a second. */
static const double terminal_seconds = 0.1;

struct ls_progress {
  FILE *stream;
  bool terminal;
  int64_t done, steps; /* where the run began and where it ends */
  double shown_at;     /* seconds; -1: nothing shown yet */
  double first_at;     /* seconds after the first step of this start: it has extra work in it */
  bool open_line;      /* the cursor stands behind a progress line */
  char line[LS_SHOWN_BYTES];
};

ls_progress *ls_progress_create(ls_arena *arena, FILE *stream, bool terminal, int64_t done,
                                int64_t steps) {
  ls_progress *progress = LS_NEW(arena, ls_progress);
  *progress = (ls_progress){.stream = stream,
                            .terminal = terminal,
                            .done = done,
                            .steps = steps,
                            .shown_at = -1,
                            .first_at = -1};
  return progress;
}

void ls_duration_show(char text[LS_DURATION_BYTES], double seconds) {
  if (!(seconds >= 0)) seconds = 0;
  if (seconds > 1e10) seconds = 1e10;
  const long long whole = llround(seconds);
  const long long minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (whole < 60) {
    snprintf(text, LS_DURATION_BYTES, "%llds", whole);
  } else if (minutes < 60) {
    snprintf(text, LS_DURATION_BYTES, "%lldm%02llds", minutes, whole % 60);
  } else if (hours < 24) {
    snprintf(text, LS_DURATION_BYTES, "%lldh%02lldm", hours, minutes % 60);
  } else {
    snprintf(text, LS_DURATION_BYTES, "%lldd%02lldh", days, hours % 24);
  }
}

static void append_rate(char line[LS_SHOWN_BYTES], double tokens_per_second) {
  if (isnan(tokens_per_second)) return;
  if (tokens_per_second >= 1e6) {
    ls_line_append(line, "  %.2fM tok/s", tokens_per_second / 1e6);
  } else if (tokens_per_second >= 1e4) {
    ls_line_append(line, "  %.1fk tok/s", tokens_per_second / 1e3);
  } else {
    ls_line_append(line, "  %.0f tok/s", tokens_per_second);
  }
}

static void append_left(const ls_progress *progress, char line[LS_SHOWN_BYTES], int64_t step,
                        double now) {
  const int64_t timed = step - progress->done - 1; /* steps since first_at */
  char left[LS_DURATION_BYTES];
  if (timed < 1 || step >= progress->steps) return;
  const double each = (now - progress->first_at) / (double)timed;
  ls_duration_show(left, each * (double)(progress->steps - step));
  ls_line_append(line, "  left %s", left);
}

static void make_line(ls_progress *progress, const ls_progress_step *step, double now) {
  char *line = progress->line, memory[LS_NUMBER_BYTES];
  line[0] = 0;
  ls_line_append(line, "step %lld/%lld", (long long)step->step, (long long)progress->steps);
  if (!isnan(step->loss)) ls_line_append(line, "  loss %.4f", step->loss);
  if (!isnan(step->learning_rate)) ls_line_append(line, "  lr %.2e", step->learning_rate);
  if (!isnan(step->grad_norm)) ls_line_append(line, "  grad %.3g", step->grad_norm);
  append_rate(line, step->tokens_per_second);
  if (step->expert_load > 0) ls_line_append(line, "  fullest expert %.2gx", step->expert_load);
  if (step->dropped) ls_line_append(line, "  dropped %lld", (long long)step->dropped);
  if (step->pairs)
    ls_line_append(line, "  margin %.3g  preferred %.0f%%", step->margin, 100 * step->preferred);
  if (step->taught)
    ls_line_append(line, "  ce %.4f  kl %.4f", step->cross_entropy, step->divergence);
  if (!isnan(step->mfu)) ls_line_append(line, "  mfu %.0f%%", 100 * step->mfu);
  if (!isnan(step->memory_bytes)) {
    ls_size_show(memory, step->memory_bytes);
    ls_line_append(line, "  mem %s", memory);
  }
  if (step->skipped) ls_line_append(line, "  skipped %lld", (long long)step->skipped);
  if (step->repeated) ls_line_append(line, "  made again %lld", (long long)step->repeated);
  append_left(progress, line, step->step, now);
}

static bool is_due(const ls_progress *progress, int64_t step, double now) {
  if (progress->shown_at < 0 || step >= progress->steps) return true;
  if (progress->terminal) return now - progress->shown_at >= terminal_seconds;
  const double wait = fmin(longest_seconds, fmax(shortest_seconds, share_of_run * now));
  return now - progress->shown_at >= wait;
}

/* A line that wraps could not be rewritten in place. */
static void cut_to_width(ls_progress *progress) {
  struct winsize size;
  if (ioctl(fileno(progress->stream), TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return;
  if (size.ws_col <= strlen(progress->line)) progress->line[size.ws_col - 1] = 0;
}

/* Carriage return, and "erase to the end of the line" for what a longer line left there. */
static void draw(ls_progress *progress) {
  if (progress->terminal) {
    cut_to_width(progress);
    fprintf(progress->stream, "\r%s\x1b[K", progress->line);
    progress->open_line = true;
  } else {
    fprintf(progress->stream, "%s\n", progress->line);
  }
  fflush(progress->stream);
}

void ls_progress_show(ls_progress *progress, const ls_progress_step *step, double now_seconds) {
  if (progress->first_at < 0) progress->first_at = now_seconds;
  if (!is_due(progress, step->step, now_seconds)) return;
  make_line(progress, step, now_seconds);
  progress->shown_at = now_seconds;
  draw(progress);
}

void ls_progress_line(ls_progress *progress, int64_t done, double now_seconds, const char *format,
                      ...) {
  if (!is_due(progress, done, now_seconds)) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(progress->line, LS_SHOWN_BYTES, format, arguments);
  va_end(arguments);
  progress->shown_at = now_seconds;
  draw(progress);
}

void ls_progress_note(ls_progress *progress, const char *format, ...) {
  if (progress->open_line) fputs("\r\x1b[K", progress->stream);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(progress->stream, format, arguments);
  va_end(arguments);
  fputc('\n', progress->stream);
  if (progress->open_line) draw(progress);
  fflush(progress->stream);
}

void ls_progress_end(ls_progress *progress) {
  if (progress->open_line) fputc('\n', progress->stream);
  progress->open_line = false;
  fflush(progress->stream);
}
