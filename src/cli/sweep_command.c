/* A grid of runs, one after another or several at once. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/stop.h"
#include "cli/command.h"
#include "cli/plot.h"
#include "cli/sweep.h"
#include "cluster/machine.h"
#include "device/gpus.h"
#include "text/number.h"
#include "train/run_folder.h"

static const char help[] =
    "usage: lockstep sweep RUN.yaml KEY=A,B,C [KEY=A,B ...] [KEY=VALUE ...] [-n DEVICES]\n\n"
    "Trains a run for each value of a key, of several keys for each combination, one after "
    "another\n"
    "or several at once on parts of the machine,\n"
    "each in a folder of its own under `out`. At the end a table, a picture as `lockstep plot` "
    "draws\n"
    "it (OUT/sweep.svg), and which was the best: by its validation loss where all have one, else "
    "by\n"
    "its loss. A run that fails is a row with its error. The same command goes on where it "
    "stopped:\n"
    "what is done (OUT/sweep.json) is not trained again, what was interrupted goes on from its\n"
    "checkpoint. Commas within brackets or quotes are of the value.\n\n"
    "  -n DEVICES      of each run, threads of its process\n"
    "  --at-once K     K runs at a time, each on its part of the cores, or of the GPUs\n"
    "  --continue N    then train the best of them on to N steps\n"
    "  --retry         train those that failed once more\n"
    "  --plan          print the runs and end\n"
    "  --help          this text\n\n"
    "examples:\n"
    "  lockstep sweep run.yaml train.lr=1e-4,3e-4,1e-3\n"
    "  lockstep sweep run.yaml train.seed=1,2,3,4 -n 2 --at-once 4 --continue 5000\n"
    "  lockstep sweep small.yaml train.lr=1e-3,3e-3 train.batch=8,16,32 train.steps=500 "
    "out=runs/s\n";

/* Of a run's folder, beside which lies its log. */
enum { MOST_NAME = 255 - (int)sizeof ".log" + 1 };

/* A key with its values. */
typedef struct axis {
  const char *key;
  LS_LIST(const char *) values;
} axis;

typedef struct request {
  const char *devices, *at_once, *steps;
  bool retry, plan;
  ls_sweep sweep;
  LS_LIST(axis) axes;
  LS_LIST(const char *) fixed;
} request;

/* Where the value ends: at a comma outside of brackets and quotes, or at the end. */
static const char *end_of_value(const char *at) {
  int depth = 0;
  char quote = 0;
  for (; *at; at++) {
    if (quote) {
      if (*at == quote) quote = 0;
    } else if (*at == '\'' || *at == '"') {
      quote = *at;
    } else if (*at == '[' || *at == '{') {
      depth++;
    } else if (*at == ']' || *at == '}') {
      depth--;
    } else if (*at == ',' && depth <= 0) {
      return at;
    }
  }
  return at;
}

static ls_status take_key(ls_arena *arena, const char *word, request *asked, ls_error *error) {
  const char *name = word + strspn(word, "-"), *is = strchr(name, '=');
  if (!is || !*end_of_value(is + 1)) {
    *LS_APPEND(arena, &asked->fixed) = word;
    return LS_OK;
  }
  axis *made = LS_APPEND(arena, &asked->axes);
  made->key = ls_arena_printf(arena, "%.*s", (int)(is - name), name);
  for (const char *at = is + 1;; at++) {
    const char *end = end_of_value(at);
    if (end == at)
      return ls_fail(error, LS_INPUT, "%s: found an empty value; expected one between commas",
                     made->key);
    *LS_APPEND(arena, &made->values) = ls_arena_printf(arena, "%.*s", (int)(end - at), at);
    if (!*end) return LS_OK;
    at = end;
  }
}

static const char *folder_name(ls_arena *arena, const char *name) {
  char *copy = ls_arena_printf(arena, "%s", name);
  for (char *c = copy; *c; c++)
    if (strchr("/ \"'*?[]{}:", *c)) *c = '_';
  return copy;
}

static bool same_key(const char *word, const char *key) {
  const char *name = word + strspn(word, "-");
  const size_t length = strlen(key);
  return strncmp(name, key, length) == 0 && (name[length] == '=' || !name[length]);
}

/* A key that is both swept and fixed, or swept twice. */
static ls_status check_once(const request *asked, ls_error *error) {
  for (int a = 0; a < asked->axes.count; a++) {
    const char *key = asked->axes.items[a].key;
    bool twice = strcmp(key, "out") == 0;
    for (int f = 0; f < asked->fixed.count; f++) twice |= same_key(asked->fixed.items[f], key);
    for (int b = 0; b < a; b++) twice |= same_key(asked->axes.items[b].key, key);
    if (twice)
      return ls_fail(error, LS_INPUT, "%s: found several; expected it once%s", key,
                     strcmp(key, "out") == 0 ? ", one folder for all runs" : "");
  }
  return LS_OK;
}

/* The run at a place of the grid. LS_INPUT: a value that its key cannot have. */
static ls_status add_run(ls_arena *arena, request *asked, int64_t place, ls_error *error) {
  ls_sweep_run *run = LS_APPEND(arena, &asked->sweep.runs);
  ls_run_file *read;
  const char *name = "";
  run->loss = run->validation = run->speed = NAN;
  run->keys = LS_NEW_ARRAY(arena, const char *, asked->fixed.count + asked->axes.count + 1);
  for (int f = 0; f < asked->fixed.count; f++) run->keys[run->key_count++] = asked->fixed.items[f];
  for (int a = asked->axes.count - 1; a >= 0; a--) {
    const axis *of = &asked->axes.items[a];
    const char *value = of->values.items[place % of->values.count];
    const char *word = ls_arena_printf(arena, "%s=%s", of->key, value);
    place /= of->values.count;
    name = *name ? ls_arena_printf(arena, "%s,%s", word, name) : word;
    run->keys[run->key_count++] = word;
  }
  LS_TRY(ls_run_file_read(arena, asked->sweep.file, run->keys, run->key_count, &read, error));
  asked->sweep.out = read->out;
  run->name = name;
  if (strlen(name) > MOST_NAME)
    return ls_fail(
        error, LS_INPUT,
        "%.60s...: a run's folder is named after its values, and would have a name of %zu "
        "bytes; expected at most %d: give shorter values, or fewer keys at a time",
        name, strlen(name), (int)MOST_NAME);
  run->folder = ls_arena_printf(arena, "%s/%s", read->out, folder_name(arena, name));
  run->log = ls_arena_printf(arena, "%s.log", run->folder);
  run->text = ls_run_file_text(arena, read);
  run->keys[run->key_count++] = ls_arena_printf(arena, "out=%s", run->folder);
  for (int r = 0; r < asked->sweep.runs.count - 1; r++)
    if (strcmp(asked->sweep.runs.items[r].folder, run->folder) == 0)
      return ls_fail(error, LS_INPUT, "%s: is there twice; expected each value once", name);
  return LS_OK;
}

static ls_status list_runs(ls_arena *arena, const ls_words *words, request *asked,
                           ls_error *error) {
  enum { MOST = 1000 };
  int64_t count = 1;
  if (words->positional_count != 1)
    return ls_fail(error, LS_INPUT, "found %d words; expected a run file and keys (see --help)",
                   words->positional_count);
  LS_TRY(ls_run_folder_file(arena, words->positional[0], &asked->sweep.file, error));
  for (int k = 0; k < words->key_count; k++) LS_TRY(take_key(arena, words->keys[k], asked, error));
  if (!asked->axes.count)
    return ls_fail(error, LS_INPUT,
                   "no key has several values; expected one, as in train.lr=1e-4,3e-4,1e-3");
  LS_TRY(check_once(asked, error));
  for (int a = 0; a < asked->axes.count; a++) {
    count *= asked->axes.items[a].values.count;
    if (count > MOST)
      return ls_fail(error, LS_INPUT, "%lld runs and more; expected at most %d", (long long)count,
                     (int)MOST);
  }
  for (int64_t place = 0; place < count; place++) LS_TRY(add_run(arena, asked, place, error));
  return LS_OK;
}

static bool has_loss(const ls_sweep_run *run) {
  return run->state == LS_SWEEP_DONE && isfinite(run->loss);
}

/* NULL: none has a loss. */
static const ls_sweep_run *find_best(const ls_sweep *sweep, bool *validated) {
  const ls_sweep_run *best = NULL;
  *validated = true;
  for (int r = 0; r < sweep->runs.count; r++)
    if (has_loss(&sweep->runs.items[r]))
      *validated &= (bool)isfinite(sweep->runs.items[r].validation);
  for (int r = 0; r < sweep->runs.count; r++) {
    const ls_sweep_run *run = &sweep->runs.items[r];
    if (!has_loss(run)) continue;
    if (!best || (*validated ? run->validation < best->validation : run->loss < best->loss))
      best = run;
  }
  return best;
}

static const char *number(ls_arena *arena, const char *format, double value) {
  char text[32];
  snprintf(text, sizeof text, format, value);
  return isfinite(value) ? ls_arena_printf(arena, "%s", text) : "-";
}

static void print_table(ls_arena *arena, const ls_sweep *sweep) {
  int width = (int)strlen("run");
  for (int r = 0; r < sweep->runs.count; r++) {
    const int length = (int)strlen(sweep->runs.items[r].name);
    if (length > width) width = length;
  }
  printf("%-*s  %8s  %9s  %9s  %10s\n", width, "run", "step", "loss", "eval loss", "tokens/s");
  for (int r = 0; r < sweep->runs.count; r++) {
    const ls_sweep_run *run = &sweep->runs.items[r];
    printf("%-*s  %8lld  %9s  %9s  %10s%s%s\n", width, run->name, (long long)run->step,
           number(arena, "%.4f", run->loss), number(arena, "%.4f", run->validation),
           number(arena, "%.1f", run->speed), run->state == LS_SWEEP_FAILED ? "  failed: " : "",
           run->state == LS_SWEEP_FAILED ? run->error : "");
  }
}

static ls_status draw(ls_arena *arena, const ls_sweep *sweep, ls_error *error) {
  const char **folders = LS_NEW_ARRAY(arena, const char *, sweep->runs.count);
  int count = 0;
  for (int r = 0; r < sweep->runs.count; r++)
    if (sweep->runs.items[r].step > 0) folders[count++] = sweep->runs.items[r].folder;
  const char *picture = ls_arena_printf(arena, "%s/sweep.svg", sweep->out);
  return count ? ls_plot_runs(arena, folders, count, picture, error) : LS_OK;
}

static void print_name(const ls_sweep *sweep, const ls_sweep_run *run) {
  fprintf(stderr, "%d of %d: %s", (int)(run - sweep->runs.items) + 1, sweep->runs.count, run->name);
}

static void print_end(const ls_sweep_run *run) {
  if (run->state == LS_SWEEP_FAILED)
    fprintf(stderr, " failed: %s\n", run->error);
  else
    fprintf(stderr, " loss %.4f, %.1f tokens a second\n", run->loss, run->speed);
}

/* Trains the best on, with all of the machine. */
static ls_status go_on(request *asked, const ls_sweep_run *best, ls_error *error) {
  ls_sweep alone = asked->sweep;
  const char *keys[] = {ls_arena_printf(alone.arena, "train.steps=%s", asked->steps)};
  ls_sweep_run on = *best, *ended;
  on.file = best->folder;
  on.keys = keys;
  on.key_count = 1;
  alone.places = NULL;
  alone.runs.items = &on;
  alone.runs.count = 1;
  fprintf(stderr, "going on with it to step %s: %s", asked->steps, on.name);
  LS_TRY(ls_sweep_begin(&alone, &on, 0, error));
  const ls_status status = ls_sweep_wait(&alone, &ended, error);
  if (status != LS_OK) fprintf(stderr, "\n");
  LS_TRY(status);
  print_end(&on);
  if (on.state == LS_SWEEP_FAILED) return ls_fail(error, LS_FAILED, "%s: %s", on.folder, on.error);
  return LS_OK;
}

static ls_status tell(ls_arena *arena, request *asked, ls_error *error) {
  const ls_sweep *sweep = &asked->sweep;
  bool validated;
  const ls_sweep_run *best = find_best(sweep, &validated);
  print_table(arena, sweep);
  LS_TRY(draw(arena, sweep, error));
  if (!best) return ls_fail(error, LS_FAILED, "no run was trained to its end");
  printf("best: %s, %s %.4f\n", best->name, validated ? "eval loss" : "loss",
         validated ? best->validation : best->loss);
  if (asked->steps) return go_on(asked, best, error);
  printf("go on with it: lockstep train %s train.steps=%lld\n", best->folder,
         (long long)best->step * 2);
  return LS_OK;
}

/* The next that is to be trained, from run *next on; NULL: there is none. What is done is told. */
static ls_sweep_run *find_waiting(request *asked, int *next) {
  ls_sweep *sweep = &asked->sweep;
  while (*next < sweep->runs.count) {
    ls_sweep_run *run = &sweep->runs.items[(*next)++];
    const bool again = run->state == LS_SWEEP_FAILED && asked->retry;
    if (run->state == LS_SWEEP_WAITS || again) return run;
    print_name(sweep, run);
    fprintf(stderr, ", before");
    print_end(run);
  }
  return NULL;
}

/* Until none waits and none is trained. Several at once have a line for their beginnings, too. */
static ls_status train_some(request *asked, ls_error *error) {
  ls_sweep *sweep = &asked->sweep;
  int next = 0, trained = 0;
  for (;;) {
    ls_sweep_run *run = NULL;
    int place = 0;
    while (sweep->places && place < sweep->at_once && sweep->places[place].taken) place++;
    if (trained < sweep->at_once && (run = find_waiting(asked, &next))) {
      LS_TRY(ls_stop_check("sweeping: the same command goes on", error));
      run->state = LS_SWEEP_WAITS;
      print_name(sweep, run);
      fprintf(stderr, sweep->at_once > 1 ? " ...\n" : " ...");
      LS_TRY(ls_sweep_begin(sweep, run, place, error));
      if (sweep->places) sweep->places[place].taken = true;
      trained++;
      continue;
    }
    if (!trained) return LS_OK;
    LS_TRY(ls_sweep_wait(sweep, &run, error));
    if (sweep->places) sweep->places[run->place].taken = false;
    trained--;
    LS_TRY(ls_sweep_write(sweep, error));
    if (sweep->at_once > 1) print_name(sweep, run);
    print_end(run);
  }
}

/* Whatever ends it, no run is left behind. */
static ls_status train_all(request *asked, ls_error *error) {
  const ls_status status = train_some(asked, error);
  if (status != LS_OK) ls_sweep_leave(&asked->sweep);
  return status;
}

/* GPUs are divided where the runs take them: as the first does. */
/* No run is there already. Whose keys are wrong is told when it is tried. */
static ls_status check_goes_on(const ls_sweep *sweep, int64_t steps, const char *text,
                               ls_error *error) {
  for (int r = 0; r < sweep->runs.count; r++) {
    const ls_sweep_run *each = &sweep->runs.items[r];
    ls_run_file *run;
    ls_error wrong;
    if (ls_run_file_read(sweep->arena, sweep->file, each->keys, each->key_count, &run, &wrong) ==
            LS_OK &&
        run->train.steps >= steps)
      return ls_fail(error, LS_INPUT,
                     "--continue: found %s, and %s is trained to step %lld; expected more", text,
                     each->name, (long long)run->train.steps);
  }
  return LS_OK;
}

static ls_status divide(request *asked, ls_error *error) {
  ls_sweep *sweep = &asked->sweep;
  double count = 1;
  bool gpus = false;
  if (asked->at_once && (!ls_number_read(asked->at_once, &count) ||
                         !(count >= 1 && count <= 1024) || count > floor(count)))
    return ls_fail(error, LS_INPUT, "--at-once: found %s; expected a whole number from 1 to 1024",
                   asked->at_once);
  sweep->at_once = (int)count;
  double steps = 0;
  if (asked->steps && (!ls_number_read(asked->steps, &steps) || !(steps >= 1 && steps <= 1e15) ||
                       steps > floor(steps)))
    return ls_fail(error, LS_INPUT, "--continue: found %s; expected a number of steps",
                   asked->steps);
  if (asked->steps) LS_TRY(check_goes_on(sweep, (int64_t)steps, asked->steps, error));
  if (sweep->at_once == 1) return LS_OK;
  const ls_sweep_run *first = &sweep->runs.items[0];
  ls_run_file *read;
  LS_TRY(ls_run_file_read(sweep->arena, sweep->file, first->keys, first->key_count, &read, error));
  if (read->device.kind != LS_RUN_DEVICE_CPU) (void)ls_gpus_choose(sweep->arena, LS_F32, &gpus);
  return ls_sweep_divide(sweep, gpus, error);
}

static ls_status sweep(ls_arena *arena, const ls_words *words, void *flags, ls_error *error) {
  request *asked = flags;
  asked->sweep.arena = arena;
  asked->sweep.devices = asked->devices;
  LS_TRY(list_runs(arena, words, asked, error));
  const ls_launcher launcher = ls_launcher_detect();
  if (!ls_command_is_first()) return LS_OK;
  if (launcher.tasks > 1)
    return ls_fail(error, LS_INPUT,
                   "%s=%d: a sweep starts its runs itself: expected no launcher, and -n DEVICES",
                   launcher.variable, launcher.tasks);
  for (int r = 0; asked->plan && r < asked->sweep.runs.count; r++)
    printf("%s\n", asked->sweep.runs.items[r].folder);
  if (asked->plan) return LS_OK;
  LS_TRY(divide(asked, error));
  LS_TRY(ls_directory_make(asked->sweep.out, error));
  LS_TRY(ls_sweep_read(&asked->sweep, error));
  ls_command_catch_signals("stopping: the run saves its state");
  const ls_status status = train_all(asked, error);
  if (status == LS_STOPPED) fprintf(stderr, "\n");
  LS_TRY(status);
  if (!asked->steps) ls_command_answer_no_signals();
  return tell(arena, asked, error);
}

int ls_command_sweep(int count, char **words) {
  request asked = {0};
  const ls_command_flag flags[] = {{"-n", &asked.devices, NULL},
                                   {"--at-once", &asked.at_once, NULL},
                                   {"--continue", &asked.steps, NULL},
                                   {"--retry", NULL, &asked.retry},
                                   {"--plan", NULL, &asked.plan}};
  return ls_command_run(
      &(ls_command){"sweep", help, false, flags, sizeof flags / sizeof *flags, sweep, &asked},
      count, words);
}
