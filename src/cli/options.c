#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/stop.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"
#include "cluster/machine.h"
#include "comm/engine.h"
#include "text/distance.h"
#include "train/run_folder.h"

void ls_print_warning(void *context, const char *text) {
  (void)context;
  fprintf(stderr, "lockstep: warning: %s\n", text);
}

/* What every process of a launcher finds alike, the first says. Another one waits for the launcher
 * to end it, as it does once the first has; where it does not, that process alone knows. */
static bool is_told_elsewhere(ls_status status) {
  if ((status != LS_INPUT && status != LS_REFUTED) || ls_command_is_first()) return false;
  nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
  return ls_stop_asked();
}

int ls_command_fail(const char *command, ls_status status, const ls_error *error) {
  if (status != LS_OK && !is_told_elsewhere(status))
    fprintf(stderr, "lockstep %s: %s\n", command, error->text);
  return ls_exit_status(status);
}

static const ls_command_flag *find_flag(const ls_command_flag *flags, int count, const char *word) {
  for (int f = 0; f < count; f++)
    if (strcmp(flags[f].name, word) == 0) return &flags[f];
  return NULL;
}

/* "--name=value" of a flag that takes one. */
static const ls_command_flag *find_assigned(const ls_command_flag *flags, int count,
                                            const char *word, const char **value) {
  for (int f = 0; f < count; f++) {
    const size_t length = strlen(flags[f].name);
    if (!flags[f].value || strncmp(flags[f].name, word, length) != 0 || word[length] != '=')
      continue;
    *value = word + length + 1;
    return &flags[f];
  }
  return NULL;
}

static ls_status unknown_flag(const char *word, const ls_command_flag *flags, int count,
                              ls_error *error) {
  const char *names[32] = {"--help"};
  int known = 1;
  for (int f = 0; f < count && known < 32; f++) names[known++] = flags[f].name;
  const char *nearest = ls_nearest(word, names, known);
  if (nearest)
    return ls_fail(error, LS_INPUT, "unknown flag %s: did you mean %s? (see --help)", word,
                   nearest);
  return ls_fail(error, LS_INPUT, "unknown flag %s (see --help)", word);
}

static bool looks_like_number(const char *word) {
  return word[0] == '-' && word[1] >= '0' && word[1] <= '9';
}

typedef struct parser {
  const ls_command_flag *flags;
  int flag_count;
  ls_words *into;
} parser;

/* Takes words[at] and what belongs to it; *taken says how many words that was. */
static ls_status take_word(const parser *p, int left, char **words, int *taken, ls_error *error) {
  const char *word = words[0], *value = NULL;
  *taken = 1;
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
    p->into->help = true;
    return LS_OK;
  }
  const ls_command_flag *flag = find_flag(p->flags, p->flag_count, word);
  if (!flag) flag = find_assigned(p->flags, p->flag_count, word, &value);
  if (flag) {
    if (flag->given) *flag->given = true;
    if (!flag->value) return LS_OK;
    if (!value && left < 2) return ls_fail(error, LS_INPUT, "%s: expected a value after it", word);
    *taken = value ? 1 : 2;
    *flag->value = value ? value : words[1];
    return LS_OK;
  }
  if (ls_run_file_is_word(word)) {
    p->into->keys[p->into->key_count++] = word;
    if (word[0] == '-' && !strchr(word, '=') && left > 1) {
      p->into->keys[p->into->key_count++] = words[1];
      *taken = 2;
    }
    return LS_OK;
  }
  if (word[0] == '-' && word[1] && !looks_like_number(word)) {
    /* A key that does not exist is answered by the table of keys, which knows the nearest. */
    if (!strchr(word, '=') && !strchr(word, '.'))
      return unknown_flag(word, p->flags, p->flag_count, error);
    p->into->keys[p->into->key_count++] = word;
    return LS_OK;
  }
  const char *equals = strchr(word, '=');
  const bool key = equals && equals > word && !memchr(word, '/', (size_t)(equals - word)) &&
                   !memchr(word, ' ', (size_t)(equals - word));
  if (key)
    p->into->keys[p->into->key_count++] = word;
  else
    p->into->positional[p->into->positional_count++] = word;
  return LS_OK;
}

ls_status ls_words_parse(ls_arena *arena, int count, char **words, const ls_command_flag *flags,
                         int flag_count, ls_words *parsed, ls_error *error) {
  *parsed = (ls_words){.positional = LS_NEW_ARRAY(arena, const char *, count + 1),
                       .keys = LS_NEW_ARRAY(arena, const char *, count + 1)};
  const parser p = {flags, flag_count, parsed};
  for (int at = 0; at < count;) {
    if (strcmp(words[at], "--") == 0) { /* what follows is no flag, whatever it looks like */
      while (++at < count) parsed->positional[parsed->positional_count++] = words[at];
      break;
    }
    int taken;
    LS_TRY(take_word(&p, count - at, words + at, &taken, error));
    at += taken;
  }
  return LS_OK;
}

int ls_command_run(const ls_command *command, int count, char **words) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_words parsed;
  ls_status status =
      ls_words_parse(arena, count, words, command->flags, command->flag_count, &parsed, &error);
  if (status == LS_OK && parsed.help)
    printf("%s%s", command->help, command->has_keys ? ls_run_file_help(arena, NULL) : "");
  else if (status == LS_OK)
    status = command->run(arena, &parsed, command->asked, &error);
  const int exit_status = ls_command_fail(command->name, status, &error);
  ls_arena_destroy(&arena);
  return exit_status;
}

static bool is_preset(ls_arena *arena, const char *model) {
  int count;
  const ls_preset *presets = ls_model_presets(arena, &count);
  for (int i = 0; i < count; i++)
    if (strcmp(presets[i].name, model) == 0) return true;
  return false;
}

/* Where a model is expected a run's folder stands for its newest checkpoint. */
static ls_status take_newest(ls_arena *arena, const char *key, const char **model,
                             ls_error *error) {
  const char *folder;
  if (!**model || !ls_directory_exists(ls_arena_printf(arena, "%s/checkpoints", *model)) ||
      is_preset(arena, *model))
    return LS_OK;
  if (ls_checkpoint_locate(arena, *model, &folder, error) != LS_OK)
    return ls_error_prefix(error, "%s", key);
  if (folder != *model && ls_command_is_first())
    fprintf(stderr, "%s: %s: its newest checkpoint, %s\n", key, *model, folder);
  *model = folder;
  return LS_OK;
}

ls_status ls_command_run_file(ls_arena *arena, const ls_words *words, ls_run_file **run,
                              ls_error *error) {
  const char *path = NULL;
  if (words->positional_count > 1)
    return ls_fail(error, LS_INPUT, "%s: one run file is expected", words->positional[1]);
  if (words->positional_count)
    LS_TRY(ls_run_folder_file(arena, words->positional[0], &path, error));
  LS_TRY(ls_run_file_read(arena, path, words->keys, words->key_count, run, error));
  (*run)->of_folder = path && path != words->positional[0];
  LS_TRY(take_newest(arena, "model", &(*run)->model, error));
  return take_newest(arena, "teacher", &(*run)->teacher, error);
}

ls_status ls_command_devices(const char *text, const ls_run_file *run, int *devices,
                             ls_error *error) {
  if (text) {
    char *end;
    const long value = strtol(text, &end, 10);
    if (*end || end == text || value < 1)
      return ls_fail(error, LS_INPUT, "-n: found \"%s\"; expected a count of devices, 1 or more",
                     text);
    return ls_run_file_count_devices(run, value, devices, error);
  }
  const ls_launcher launcher = ls_launcher_detect();
  return ls_run_file_count_devices(run, launcher.tasks > 1 ? launcher.tasks : 0, devices, error);
}

bool ls_command_is_first(void) {
  const ls_launcher launcher = ls_launcher_detect();
  return ls_launcher_rank(&launcher) == 0;
}

ls_status ls_command_check_file(const char *flag, const char *path, ls_error *error) {
  const char *slash = strrchr(path, '/');
  char folder[4096] = ".";
  if (slash) snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
  if (!ls_directory_exists(folder))
    return ls_fail(error, LS_INPUT, "%s %s: found no folder %s; make it first", flag, path, folder);
  if (ls_directory_exists(path))
    return ls_fail(error, LS_INPUT, "%s %s: found a folder; expected the name of a file", flag,
                   path);
  if (ls_file_is_special(path)) { /* it is written to as it is */
    if (access(path, W_OK) == 0) return LS_OK;
    return ls_fail(error, LS_INPUT, "%s %s: cannot be written: %s", flag, path, strerror(errno));
  }
  if (access(folder, W_OK) != 0)
    return ls_fail(error, LS_INPUT, "%s %s: files cannot be written to the folder %s: %s", flag,
                   path, folder, strerror(errno));
  return LS_OK;
}

ls_status ls_command_world(int devices, ls_world **world, ls_error *error) {
  const ls_launcher launcher = ls_launcher_detect();
  const int tasks = launcher.tasks > 1 ? launcher.tasks : 1;
  if (devices % tasks != 0)
    return ls_fail(error, LS_INPUT,
                   "%s says %d processes, but the mesh has %d devices: start a number of processes "
                   "that divides them, or give -n %d",
                   launcher.variable, tasks, devices, tasks);
  const ls_world_options options = {.ranks = devices, .ranks_here = devices / tasks};
  LS_TRY(ls_world_start(ls_device_facts_here(), &options, world, error));
  if (tasks == 1) return LS_OK;
  const ls_status status =
      ls_launcher_check(&launcher, ls_world_size(*world) / options.ranks_here, error);
  if (status != LS_OK) ls_world_destroy(world);
  return status;
}
