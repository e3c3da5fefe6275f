/* The runs of a sweep, each on its part of the machine, and what OUT/sweep.json keeps of them. */
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
#include "device/gpus.h"
#include "text/json.h"

extern char **environ;

static const char *const states[] = {"waits", "done", "failed"};

/* Ends with NULL. */
static char **words_of(const ls_sweep *sweep, const ls_sweep_run *run) {
  char **words = LS_NEW_ARRAY(sweep->arena, char *, run->key_count + 6);
  int count = 0;
  words[count++] = ls_arena_printf(sweep->arena, "lockstep");
  words[count++] = ls_arena_printf(sweep->arena, "train");
  words[count++] = ls_arena_printf(sweep->arena, "%s", run->file ? run->file : sweep->file);
  for (int k = 0; k < run->key_count; k++)
    words[count++] = ls_arena_printf(sweep->arena, "%s", run->keys[k]);
  if (sweep->devices) {
    words[count++] = ls_arena_printf(sweep->arena, "-n");
    words[count++] = ls_arena_printf(sweep->arena, "%s", sweep->devices);
  }
  return words;
}

/* This process's, but for the GPUs that are visible. */
static char **environment_of(const ls_sweep *sweep, const char *gpus) {
  static const char name[] = "CUDA_VISIBLE_DEVICES=";
  int count = 0, kept = 0;
  if (!gpus) return environ;
  while (environ[count]) count++;
  char **made = LS_NEW_ARRAY(sweep->arena, char *, count + 2);
  for (int e = 0; e < count; e++)
    if (strncmp(environ[e], name, sizeof name - 1) != 0) made[kept++] = environ[e];
  made[kept] = ls_arena_printf(sweep->arena, "%s%s", name, gpus);
  return made;
}

static ls_status spawn(const ls_sweep *sweep, const ls_sweep_run *run, pid_t *child,
                       ls_error *error) {
  const ls_sweep_place *place = sweep->places ? &sweep->places[run->place] : NULL;
  const ls_thread_set all = ls_machine_allowed();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, run->log, O_WRONLY | O_CREAT | O_APPEND,
                                   0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  /* A process has the threads of the one that starts it. */
  const bool bound = place && ls_machine_bind(&place->threads);
  const int failed = posix_spawn(child, "/proc/self/exe", &actions, NULL, words_of(sweep, run),
                                 environment_of(sweep, place ? place->gpus : NULL));
  if (bound) (void)ls_machine_bind(&all);
  posix_spawn_file_actions_destroy(&actions);
  if (!failed) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be started: %s", run->name, strerror(failed));
}

/* Once: a second time would end runs before they have saved. */
static void tell_all_to_stop(ls_sweep *sweep) {
  if (sweep->told) return;
  sweep->told = true;
  for (int r = 0; r < sweep->runs.count; r++)
    if (sweep->runs.items[r].child) kill(sweep->runs.items[r].child, SIGUSR1);
}

static void await_all(ls_sweep *sweep) {
  for (int r = 0; r < sweep->runs.count; r++) {
    pid_t *child = &sweep->runs.items[r].child;
    while (*child && waitpid(*child, NULL, 0) < 0 && errno == EINTR) continue;
    *child = 0;
  }
}

/* *code: its exit status; of a process that a signal ended 128 and its number. NULL: all go on, or
 * there is none. */
static ls_sweep_run *find_ended(ls_sweep *sweep, int *code) {
  for (int r = 0; r < sweep->runs.count; r++) {
    ls_sweep_run *run = &sweep->runs.items[r];
    int status;
    if (!run->child) continue;
    const pid_t ended = waitpid(run->child, &status, WNOHANG);
    *code = 128;
    if (ended == run->child)
      *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
    run->child = 0;
    return run;
  }
  return NULL;
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

/* Of GPUs their numbers, of those that are visible now. */
static const char *gpus_of(ls_arena *arena, int first, int count) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *text = "";
  for (int g = 0; visible && g < first; g++) visible += strcspn(visible, ",") + 1;
  for (int g = 0; g < count; g++) {
    const int length = visible ? (int)strcspn(visible, ",") : 0;
    text = visible ? ls_arena_printf(arena, "%s%s%.*s", text, g ? "," : "", length, visible)
                   : ls_arena_printf(arena, "%s%s%d", text, g ? "," : "", first + g);
    if (visible) visible += length + (visible[length] == ',');
  }
  return text;
}

ls_status ls_sweep_divide(ls_sweep *sweep, bool gpus, ls_error *error) {
  const ls_thread_set all = ls_machine_allowed();
  const int parts = sweep->at_once, cores = ls_machine_cores();
  int each = 0;
  if (cores < parts)
    return ls_fail(error, LS_INPUT,
                   "--at-once: found %d; this process has %d cores: expected at "
                   "most as many",
                   parts, cores);
  if (gpus) {
    ls_gpus there;
    LS_TRY(ls_gpus_here(sweep->arena, &there, error));
    each = sweep->devices ? atoi(sweep->devices) : there.count / parts;
    if (each < 1 || each * parts > there.count)
      return ls_fail(error, LS_INPUT, "--at-once: found %d runs of %d GPUs; %d are visible", parts,
                     each > 0 ? each : 1, there.count);
  }
  sweep->places = LS_NEW_ARRAY(sweep->arena, ls_sweep_place, parts);
  for (int p = 0; p < parts; p++)
    sweep->places[p] =
        (ls_sweep_place){.threads = ls_machine_part("", &all, p, parts),
                         .gpus = gpus ? gpus_of(sweep->arena, p * each, each) : NULL};
  return LS_OK;
}

ls_status ls_sweep_begin(ls_sweep *sweep, ls_sweep_run *run, int place, ls_error *error) {
  run->place = place;
  return spawn(sweep, run, &run->child, error);
}

/* What came of a run that ended so. */
static ls_status end(ls_sweep *sweep, ls_sweep_run *run, int code, ls_error *error) {
  enum { STOPPED = 4 };
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

ls_status ls_sweep_wait(ls_sweep *sweep, ls_sweep_run **ended, ls_error *error) {
  const struct timespec while_they_work = {.tv_nsec = 50000000};
  int code = 0;
  while (!(*ended = find_ended(sweep, &code))) {
    if (ls_stop_asked()) tell_all_to_stop(sweep);
    nanosleep(&while_they_work, NULL);
  }
  return end(sweep, *ended, code, error);
}

void ls_sweep_leave(ls_sweep *sweep) {
  tell_all_to_stop(sweep);
  await_all(sweep);
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
