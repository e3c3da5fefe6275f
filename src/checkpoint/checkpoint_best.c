/* The best evaluation of a run: in state.json, and the link that keeps its checkpoint. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "text/json.h"

enum { TARGET_BYTES = 64 };

static const char prefix[] = "checkpoints/step-";

json_t *ls_checkpoint_best_json(const ls_best_evaluation *best) {
  json_t *made = json_pack("{s:I, s:I, s:I}", "step", (json_int_t)best->step, "worse",
                           (json_int_t)best->worse, "judged", (json_int_t)best->judged);
  if (made && best->step) json_object_set_new(made, "loss", json_real(best->loss));
  return made;
}

ls_status ls_checkpoint_best_read(const char *path, const json_t *root, ls_checkpoint_state *state,
                                  ls_error *error) {
  ls_best_evaluation *best = &state->best;
  const json_t *json = json_object_get(root, "best");
  *best = (ls_best_evaluation){0};
  if (!json) return LS_OK;
  ls_json_object object;
  LS_TRY(ls_json_root(path, json, &object, error));
  LS_TRY(ls_json_int(&object, "step", &best->step, error));
  LS_TRY(ls_json_int(&object, "worse", &best->worse, error));
  LS_TRY(ls_json_int(&object, "judged", &best->judged, error));
  if (best->step) LS_TRY(ls_json_number(&object, "loss", &best->loss, error));
  const bool right = best->step >= 0 && best->worse >= 0 && best->judged >= best->step &&
                     best->judged <= state->step && isfinite(best->loss);
  if (right) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: damaged: its \"best\" is of no evaluation up to step %" PRId64, path,
                 state->step);
}

static const char *link_of(ls_arena *arena, const char *out) {
  return ls_arena_printf(arena, "%s/" LS_BEST_NAME, out);
}

int64_t ls_checkpoint_best_step(const char *out) {
  char target[TARGET_BYTES];
  ls_arena *arena = ls_arena_create();
  const ssize_t bytes = readlink(link_of(arena, out), target, sizeof target - 1);
  ls_arena_destroy(&arena);
  if (bytes < 0) return -1;
  target[bytes] = 0;
  const char *digits = target + strlen(prefix);
  if (strncmp(target, prefix, strlen(prefix)) != 0) return -1;
  if (!*digits || digits[strspn(digits, "0123456789")] || strlen(digits) > 18) return -1;
  return strtoll(digits, NULL, 10);
}

ls_status ls_checkpoint_check_best(const char *out, ls_error *error) {
  struct stat info;
  ls_arena *arena = ls_arena_create();
  const char *link = link_of(arena, out);
  ls_status status = LS_OK;
  if (lstat(link, &info) == 0 && ls_checkpoint_best_step(out) < 0)
    status = ls_fail(error, LS_INPUT,
                     "%s: is no link to a checkpoint, which the run makes there "
                     "(checkpoint.best): move it, or give another out",
                     link);
  ls_arena_destroy(&arena);
  return status;
}

/* A rename alone may be lost with the power. */
static void flush_folder(const char *path) {
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  (void)!fsync(folder);
  close(folder);
}

ls_status ls_checkpoint_point_best(const char *out, int64_t step, ls_error *error) {
  if (ls_checkpoint_best_step(out) == step) return LS_OK;
  ls_arena *arena = ls_arena_create();
  const char *link = link_of(arena, out), *aside = ls_arena_printf(arena, "%s.tmp", link);
  const char *target = ls_arena_printf(arena, "%s%" PRId64, prefix, step);
  ls_status status = LS_OK;
  if ((unlink(aside) && errno != ENOENT) || symlink(target, aside) || rename(aside, link)) {
    status = ls_fail(error, LS_FAILED, "%s: cannot be made: %s", link, strerror(errno));
    (void)unlink(aside);
  }
  flush_folder(out);
  ls_arena_destroy(&arena);
  return status;
}

void ls_checkpoint_forget_best(const char *out) {
  if (ls_checkpoint_best_step(out) < 0) return;
  ls_arena *arena = ls_arena_create();
  const char *link = link_of(arena, out);
  if (unlink(link)) ls_warn("%s: cannot be removed: %s", link, strerror(errno));
  ls_arena_destroy(&arena);
}
