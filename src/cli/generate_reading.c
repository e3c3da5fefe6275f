/* How far long prompts are read, on stderr. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/generate.h"
#include "watch/progress.h"

/* Of what takes less nothing is shown. */
static const double shortest_seconds = 3;

/* Seconds after n tokens are a n + b n^2: products take as long for every token, attention longer
 * for later ones. Sums for the least squares of it, in shares of all tokens. */
typedef struct reading {
  ls_arena *arena;
  ls_progress *progress; /* NULL: too short so far */
  double begin, x2, x3, x4, xt, x2t;
} reading;

static double seconds_left(const reading *self, double x) {
  const double determinant = self->x2 * self->x4 - self->x3 * self->x3;
  double a = 0, b = 0;
  if (determinant > 1e-6 * self->x2 * self->x4) {
    a = (self->xt * self->x4 - self->x2t * self->x3) / determinant;
    b = (self->x2t * self->x2 - self->xt * self->x3) / determinant;
  }
  if (a <= 0 || b <= 0) a = self->xt / self->x2, b = 0;
  return a * (1 - x) + b * (1 - x * x);
}

static void show_line(reading *self, int64_t done, int64_t all, double now) {
  char left[LS_DURATION_BYTES];
  const double t = now - self->begin;
  if (!self->progress)
    self->progress = ls_progress_create(self->arena, stderr, isatty(STDERR_FILENO) != 0, 0, all);
  ls_duration_show(left, seconds_left(self, (double)done / (double)all));
  ls_progress_line(self->progress, done, t,
                   "reading the prompt: %lld of %lld tokens  %.0f tok/s  left %s", (long long)done,
                   (long long)all, (double)done / t, left);
}

static ls_status show(void *context, int64_t done, int64_t all, ls_error *error) {
  reading *self = context;
  const double now = ls_now_s(), x = (double)done / (double)all;
  (void)error;
  if (done == 0) *self = (reading){.arena = self->arena, .begin = now};
  if (done > 0) {
    const double t = now - self->begin;
    self->x2 += x * x, self->x3 += x * x * x, self->x4 += x * x * x * x;
    self->xt += x * t, self->x2t += x * x * t;
    if (t >= shortest_seconds) show_line(self, done, all, now);
  }
  if (self->progress && (done < 0 || done == all)) ls_progress_end(self->progress);
  return LS_OK;
}

void ls_generate_show_reading(ls_arena *arena, ls_generator *generator) {
  reading *self = LS_NEW(arena, reading);
  *self = (reading){.arena = arena};
  ls_generator_tell(generator, show, self);
}
