#include "checkpoint/checkpoint_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "store/adapters.h"

/* The step of "step-N"; -1 for anything else. *end is what follows the digits. */
static int64_t step_of(const char *name, const char **end) {
  static const char prefix[] = "step-";
  if (strncmp(name, prefix, strlen(prefix)) != 0) return -1;
  const char *digits = name + strlen(prefix);
  const size_t count = strspn(digits, "0123456789");
  if (!count || count > 18) return -1;
  *end = digits + count;
  return strtoll(digits, NULL, 10);
}

/* Whether ".tmp-PID", with an end that saving or pruning gives or none. */
static bool is_temporary(const char *end) {
  static const char mark[] = ".tmp-";
  static const char *const ends[] = {"", LS_WHOLE, LS_OLD, LS_PRUNED};
  if (strncmp(end, mark, strlen(mark)) != 0) return false;
  end += strlen(mark);
  const size_t digits = strspn(end, "0123456789");
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (digits && strcmp(end + digits, ends[i]) == 0) return true;
  return false;
}

static int by_step_falling(const void *a, const void *b) {
  const ls_published *left = a, *right = b;
  return (left->step < right->step) - (left->step > right->step);
}

ls_status ls_checkpoint_list(ls_arena *arena, const char *out, ls_published_list *list,
                             ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/checkpoints", out);
  DIR *directory = opendir(path);
  if (!directory && errno == ENOENT) return LS_OK;
  if (!directory) return ls_fail(error, LS_FAILED, "%s: cannot be read: %s", path, strerror(errno));
  const struct dirent *entry;
  while ((entry = readdir(directory))) {
    const char *folder = ls_arena_printf(arena, "%s/%s", path, entry->d_name), *end;
    const int64_t step = step_of(entry->d_name, &end);
    struct stat info;
    if (step < 0 || stat(folder, &info) || !S_ISDIR(info.st_mode)) continue;
    if (!*end)
      *LS_APPEND(arena, &list->found) = (ls_published){folder, step};
    else if (is_temporary(end))
      *LS_APPEND(arena, &list->temporary) = folder;
  }
  closedir(directory);
  if (list->found.count)
    qsort(list->found.items, (size_t)list->found.count, sizeof *list->found.items, by_step_falling);
  return LS_OK;
}

const char *ls_checkpoint_free_name(ls_arena *arena, const char *folder, const char *word) {
  const char *name = ls_arena_printf(arena, "%s.%s", folder, word);
  struct stat info;
  for (int i = 2; lstat(name, &info) == 0; i++)
    name = ls_arena_printf(arena, "%s.%s-%d", folder, word, i);
  return name;
}

ls_status ls_checkpoint_none_good(const char *out, ls_error *error) {
  return ls_fail(error, LS_INPUT,
                 "%s/checkpoints: no checkpoint in it can be used, and none was touched: bring "
                 "back the files that are named above, start from other weights (model=FOLDER) in "
                 "another out, or give --fresh to begin anew here",
                 out);
}

/* Those that cannot be read or are damaged beside the one that stops the run. */
static void name_unreadable(const ls_published_list *list, int first) {
  for (int i = first; i < list->found.count; i++) {
    ls_error damage = {0};
    if (ls_checkpoint_check_sizes(list->found.items[i].folder, &damage) != LS_OK)
      ls_warn("%s", damage.text);
  }
}

ls_status ls_checkpoint_newest(ls_arena *arena, const char *out, int64_t below, const char **folder,
                               int64_t *step, ls_error *error) {
  *folder = NULL;
  ls_published_list list = {0};
  LS_TRY(ls_checkpoint_list(arena, out, &list, error));
  bool damaged = false;
  for (int i = 0; i < list.found.count && !*folder; i++) {
    const ls_published *each = &list.found.items[i];
    ls_error damage = {0};
    if (each->step >= below) continue;
    const ls_status status = ls_checkpoint_check_sizes(each->folder, &damage);
    if (status == LS_INPUT) {
      ls_warn("%s", damage.text);
      damaged = true;
      continue;
    }
    if (status != LS_OK) {
      name_unreadable(&list, i + 1);
      return ls_fail(error, status,
                     "%s: it may be good, so no other is taken: let it be read, move it away, or "
                     "give --fresh to begin anew",
                     damage.text);
    }
    *folder = each->folder;
    *step = each->step;
  }
  return damaged && !*folder ? ls_checkpoint_none_good(out, error) : LS_OK;
}

ls_status ls_checkpoint_newest_whole(ls_arena *arena, const char *out, const char **folder,
                                     int64_t *step, ls_error *error) {
  *step = INT64_MAX;
  for (;;) {
    const int64_t below = *step;
    ls_error damage = {0};
    LS_TRY(ls_checkpoint_newest(arena, out, below, folder, step, error));
    if (!*folder) return below < INT64_MAX ? ls_checkpoint_none_good(out, error) : LS_OK;
    const ls_status status = ls_checkpoint_verify(*folder, LS_SEALED_ALL, &damage);
    if (status == LS_OK) return LS_OK;
    if (status != LS_INPUT) return ls_fail(error, status, "%s", damage.text);
    ls_warn("%s", damage.text);
  }
}

bool ls_checkpoint_is_sealed(ls_arena *arena, const char *folder) {
  return ls_file_exists(ls_arena_printf(arena, "%s/state.json", folder));
}

/* Of a folder that was named, or is the newest by sizes. */
static ls_status verify_named(ls_arena *arena, const char *folder, bool trust, ls_error *error) {
  if (!ls_checkpoint_is_sealed(arena, folder)) return LS_OK;
  if (!trust) return ls_checkpoint_verify(folder, LS_SEALED_WEIGHTS, error);
  ls_warn("%s: its checksums are not looked at (--trust)", folder);
  return LS_OK;
}

static ls_status find_newest(ls_arena *arena, const char *word, bool whole, const char **folder,
                             ls_error *error) {
  int64_t step;
  ls_published_list list = {0};
  LS_TRY(ls_checkpoint_list(arena, word, &list, error));
  if (whole)
    LS_TRY(ls_checkpoint_newest_whole(arena, word, folder, &step, error));
  else
    LS_TRY(ls_checkpoint_newest(arena, word, INT64_MAX, folder, &step, error));
  if (*folder && step != list.found.items[0].step)
    ls_warn("%s: is taken, the newest that is good", *folder);
  if (*folder) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: no good checkpoint in it; let the run save one first", word);
}

/* Whether what is named is a model's folder or a checkpoint; else it is a run's folder. */
static ls_status find_named(ls_arena *arena, const char *word, bool *model, ls_error *error) {
  if (!ls_directory_exists(word))
    return ls_fail(error, LS_INPUT,
                   "%s: no such folder; expected a run's folder, a checkpoint or a model's folder",
                   word);
  *model = ls_file_exists(ls_arena_printf(arena, "%s/config.json", word)) || ls_adapters_has(word);
  if (*model || ls_directory_exists(ls_arena_printf(arena, "%s/checkpoints", word))) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: neither config.json nor checkpoints in it; expected a run's folder, a "
                 "checkpoint or a model's folder",
                 word);
}

ls_status ls_checkpoint_find(ls_arena *arena, const char *word, bool trust, const char **folder,
                             ls_error *error) {
  bool model;
  *folder = word;
  LS_TRY(find_named(arena, word, &model, error));
  if (!model) LS_TRY(find_newest(arena, word, !trust, folder, error));
  return model || trust ? verify_named(arena, *folder, trust, error) : LS_OK;
}

ls_status ls_checkpoint_locate(ls_arena *arena, const char *word, const char **folder,
                               ls_error *error) {
  bool model;
  *folder = word;
  LS_TRY(find_named(arena, word, &model, error));
  return model ? LS_OK : find_newest(arena, word, false, folder, error);
}

const char *ls_checkpoint_final_name(ls_arena *arena, const char *temporary) {
  const char *mark = strstr(strrchr(temporary, '/'), ".tmp-");
  return ls_arena_printf(arena, "%.*s", (int)(mark - temporary), temporary);
}

static bool ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), part = strlen(end);
  return length >= part && strcmp(name + length - part, end) == 0;
}

/* A whole checkpoint of ours without its name gets it; LS_FAILED: that cannot be told or done. */
static ls_status recover(ls_arena *arena, const char *folder, ls_error *error) {
  const char *final = ls_checkpoint_final_name(arena, folder);
  if (ls_directory_exists(final)) return LS_OK;
  const ls_status status = ls_checkpoint_check_sizes(folder, error);
  if (status == LS_INPUT && ls_checkpoint_is_sealed(arena, folder)) {
    /* Damaged since: it counts as a damaged checkpoint, under its name. */
  } else if (status != LS_OK) {
    return status == LS_INPUT ? LS_OK : status;
  }
  if (rename(folder, final) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be renamed to %s: %s", folder, final,
                 strerror(errno));
}

ls_status ls_checkpoint_recover(const char *out, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_published_list list = {0};
  ls_status status = ls_checkpoint_list(arena, out, &list, error);
  static const char *const ends[] = {LS_WHOLE, LS_OLD}; /* rather the new one */
  for (int i = 0; i < 2 * list.temporary.count && status == LS_OK; i++) {
    const char *folder = list.temporary.items[i % list.temporary.count];
    if (ends_with(folder, ends[i / list.temporary.count])) status = recover(arena, folder, error);
  }
  ls_arena_destroy(&arena);
  return status;
}

ls_status ls_checkpoint_set_aside(const char *out, int64_t above, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_published_list list = {0};
  ls_status status = ls_checkpoint_list(arena, out, &list, error);
  for (int i = 0; i < list.found.count && status == LS_OK; i++) {
    const ls_published *each = &list.found.items[i];
    if (each->step <= above) break;
    const char *name = ls_checkpoint_free_name(arena, each->folder, "damaged");
    if (rename(each->folder, name))
      status = ls_fail(error, LS_FAILED, "%s: cannot be renamed to %s: %s", each->folder, name,
                       strerror(errno));
    else
      ls_warn("%s is kept as %s, which nothing removes", each->folder, name);
  }
  ls_arena_destroy(&arena);
  return status;
}
