/* The runs of a sweep, one at a time, and what is kept of them in OUT/sweep.json. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/stop.h"
#include "cli/plot.h"
#include "cli/sweep.h"
#include "text/json.h"

extern char **environ;

static const char *const states[] = {"waits", "done", "failed"};

/* Ends with NULL. */
static char **words_of(const ls_sweep *sweep, const ls_sweep_run *run) {
  char **words = LS_NEW_ARRAY(sweep->arena, char *, run->key_count + 6);
  int count = 0;
  words[count++] = ls_arena_printf(sweep->arena, "lockstep");
  words[count++] = ls_arena_printf(sweep->arena, "train");
  words[count++] = ls_arena_printf(sweep->arena, "%s", sweep->file);
  for (int k = 0; k < run->key_count; k++)
    words[count++] = ls_arena_printf(sweep->arena, "%s", run->keys[k]);
  if (sweep->devices) {
    words[count++] = ls_arena_printf(sweep->arena, "-n");
    words[count++] = ls_arena_printf(sweep->arena, "%s", sweep->devices);
  }
  return words;
}

static ls_status spawn(const ls_sweep *sweep, const ls_sweep_run *run, pid_t *child,
                       ls_error *error) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, run->log, O_WRONLY | O_CREAT | O_APPEND,
                                   0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const int failed =
      posix_spawn(child, "/proc/self/exe", &actions, NULL, words_of(sweep, run), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (!failed) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be started: %s", run->name, strerror(failed));
}

/* The exit status; of a process that a signal ended 128 and its number. A wish to stop is handed
 * on once: a second one would end the run before it has saved. */
static int wait_for(pid_t child) {
  const struct timespec while_it_works = {.tv_nsec = 50000000};
  bool told = false;
  for (;;) {
    int status;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno != EINTR) return 128;
    if (ls_stop_asked() && !told) {
      kill(child, SIGUSR1);
      told = true;
    }
    nanosleep(&while_it_works, NULL);
  }
}

/* The last line of what was printed that says what went wrong. */
static const char *last_words(ls_arena *arena, const char *path) {
  static const char mark[] = "lockstep train: ";
  char *text, *found = NULL;
  size_t bytes;
  if (ls_file_read(arena, path, &text, &bytes, NULL) != LS_OK) return "nothing was printed";
  for (char *line = text, *next; line; line = next) {
    next = strpbrk(line, "\n\r");
    if (next) *next++ = 0;
    if (strncmp(line, mark, sizeof mark - 1) == 0) found = line + sizeof mark - 1;
  }
  return found ? found : "it ended without a word";
}

static void look_at(ls_arena *arena, ls_sweep_run *run) {
  ls_metrics_rows rows = {0};
  const char *path = ls_arena_printf(arena, "%s/metrics.jsonl", run->folder);
  double sum = 0;
  run->step = 0;
  run->loss = run->validation = run->speed = NAN;
  if (!ls_file_exists(path) || ls_metrics_read(arena, path, &rows, NULL) != LS_OK || !rows.count)
    return;
  const int tail = (rows.count + 9) / 10;
  for (int r = 0; r < rows.count; r++) {
    if (isfinite(rows.items[r].validation_loss)) run->validation = rows.items[r].validation_loss;
    if (r >= rows.count - tail) sum += rows.items[r].loss;
  }
  run->step = rows.items[rows.count - 1].step;
  run->loss = sum / tail;
  run->speed = ls_plot_median_speed(arena, &rows);
}

ls_status ls_sweep_train(ls_sweep *sweep, ls_sweep_run *run, ls_error *error) {
  enum { STOPPED = 4 };
  pid_t child;
  LS_TRY(spawn(sweep, run, &child, error));
  const int code = wait_for(child);
  look_at(sweep->arena, run);
  if (code == STOPPED || (code && ls_stop_asked()))
    return ls_fail(error, LS_STOPPED, "stopped at step %lld of %s: the same command goes on",
                   (long long)run->step, run->name);
  run->state = code ? LS_SWEEP_FAILED : LS_SWEEP_DONE;
  if (code > 128)
    run->error = ls_arena_printf(sweep->arena, "ended by signal %d (%s)", code - 128, run->log);
  else if (code)
    run->error = last_words(sweep->arena, run->log);
  return LS_OK;
}

static double number_of(const json_t *of, const char *key) {
  const json_t *value = json_object_get(of, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *text_of(const json_t *of, const char *key) {
  const char *text = json_string_value(json_object_get(of, key));
  return text ? text : "";
}

static void take_run(ls_sweep *sweep, const json_t *of) {
  for (int r = 0; r < sweep->runs.count; r++) {
    ls_sweep_run *run = &sweep->runs.items[r];
    if (strcmp(text_of(of, "name"), run->name) != 0 || strcmp(text_of(of, "run"), run->text) != 0)
      continue;
    for (int s = 0; s < 3; s++)
      if (strcmp(text_of(of, "state"), states[s]) == 0) run->state = (ls_sweep_state)s;
    run->error = ls_arena_printf(sweep->arena, "%s", text_of(of, "error"));
    run->step = json_integer_value(json_object_get(of, "step"));
    run->loss = number_of(of, "loss");
    run->validation = number_of(of, "validation_loss");
    run->speed = number_of(of, "tokens_per_second");
  }
}

static const char *path_of(const ls_sweep *sweep) {
  return ls_arena_printf(sweep->arena, "%s/sweep.json", sweep->out);
}

ls_status ls_sweep_read(ls_sweep *sweep, ls_error *error) {
  const char *path = path_of(sweep);
  json_t *root;
  if (!ls_file_exists(path)) return LS_OK;
  LS_TRY(ls_json_read(path, 0, &root, error));
  const json_t *runs = json_object_get(root, "runs");
  const bool ours = json_is_array(runs);
  for (size_t r = 0; r < json_array_size(runs); r++) take_run(sweep, json_array_get(runs, r));
  json_decref(root);
  if (ours) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: is none of a sweep: move it, or give another out", path);
}

static json_t *real_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

ls_status ls_sweep_write(const ls_sweep *sweep, ls_error *error) {
  json_t *runs = json_array();
  for (int r = 0; r < sweep->runs.count; r++) {
    const ls_sweep_run *run = &sweep->runs.items[r];
    json_array_append_new(
        runs, json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:s}", "name", run->name, "state",
                        states[run->state], "error", run->error ? run->error : "", "step",
                        (json_int_t)run->step, "loss", real_or_null(run->loss), "validation_loss",
                        real_or_null(run->validation), "tokens_per_second",
                        real_or_null(run->speed), "run", run->text));
  }
  json_t *root = json_pack("{s:o}", "runs", runs);
  char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
  json_decref(root);
  if (!text) return ls_fail(error, LS_FAILED, "out of memory");
  const ls_status status = ls_file_write(path_of(sweep), text, strlen(text), error);
  free(text);
  return status;
}
