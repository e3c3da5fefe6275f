#include "train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_list.h"
#include "train/advice.h"
#include "train/metrics.h"

static const char head[] = "# Written by lockstep train: ";

static ls_status lock_folder(ls_arena *arena, const char *out, int *lock, ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/lock", out);
  *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (*lock < 0) return ls_fail(error, LS_FAILED, "%s: cannot be made: %s", path, strerror(errno));
  if (flock(*lock, LOCK_EX | LOCK_NB) == 0) return LS_OK;
  const int reason = errno;
  close(*lock);
  *lock = -1;
  if (reason != EWOULDBLOCK)
    return ls_fail(error, LS_FAILED,
                   "%s: cannot be locked (%s), so another process could train there unseen: give "
                   "an out on another file system",
                   path, strerror(reason));
  return ls_fail(error, LS_INPUT,
                 "%s: another process is training there: wait for it, stop it, or give another out",
                 out);
}

static bool exists(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0;
}

/* The resolved run file of OUT; of a run of an older version it is run.yaml. NULL: none. */
static const char *resolved_of(ls_arena *arena, const char *out) {
  static const char *const names[] = {LS_RESOLVED_NAME, "run.yaml"};
  for (int i = 0; i < 2; i++) {
    const char *path = ls_arena_printf(arena, "%s/%s", out, names[i]);
    if (ls_file_exists(path)) return path;
  }
  return NULL;
}

ls_status ls_run_folder_file(ls_arena *arena, const char *word, const char **path,
                             ls_error *error) {
  const bool resolved = exists(ls_arena_printf(arena, "%s/" LS_RESOLVED_NAME, word));
  if (!resolved && ls_checkpoint_is_sealed(arena, word))
    return ls_fail(error, LS_INPUT,
                   "%s: a checkpoint; expected a run file, or the folder of a run, which goes on "
                   "from its newest; model=%s begins another run with its weights",
                   word, word);
  *path = ls_directory_exists(word) ? resolved_of(arena, word) : word;
  if (*path == word && !exists(word))
    return ls_fail(error, LS_INPUT, "%s: no such file; expected a run file, or the folder of a run",
                   word);
  if (*path) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: a folder without " LS_RESOLVED_NAME
                 "; expected a run file, or the folder of "
                 "a run",
                 word);
}

/* Whether the file begins as those do that are written here. */
static ls_status check_ours(const char *path, const char *begin, ls_error *error) {
  char found[128] = "";
  FILE *file = fopen(path, "re");
  LS_ASSERT(strlen(begin) < sizeof found);
  if (!file && !exists(path)) return LS_OK;
  if (file) (void)!fread(found, 1, strlen(begin), file);
  if (file) fclose(file);
  if (strcmp(found, begin) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: is not one that lockstep wrote, and would be overwritten: move it, or give "
                 "another out",
                 path);
}

/* What a run writes beside its checkpoints. */
static const struct told {
  const char *stem, *end;
  const char *second; /* the second key of its lines; NULL: it has none, */
  const char *begin;  /* and begins so */
} told[] = {{"metrics", "jsonl", "epoch", NULL},
            {"samples", "jsonl", "prompt", NULL},
            {"trace", "json", NULL, "{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"title\": "},
            {"timeline", "svg", NULL, "<svg xmlns='http://www.w3.org/2000/svg' width='"}};

static const char *now_of(ls_arena *arena, const char *out, const struct told *file) {
  return ls_arena_printf(arena, "%s/%s.%s", out, file->stem, file->end);
}

/* What tracing writes over. */
static ls_status check_traces(ls_arena *arena, const ls_run_file *run, ls_error *error) {
  for (size_t i = 0; i < sizeof told / sizeof *told && run->trace; i++)
    if (told[i].begin) LS_TRY(check_ours(now_of(arena, run->out, &told[i]), told[i].begin, error));
  return LS_OK;
}

/* The line that says where a resolved file came from; it keeps it where the run goes on from the
 * file itself. */
static ls_status origin(ls_arena *arena, const ls_run_file *run, const char *path,
                        const char **line, ls_error *error) {
  const char *from = run->path[0] ? run->path : "the command line";
  char *full = realpath(from, NULL), *own = realpath(path, NULL);
  const bool itself = full && own && strcmp(full, own) == 0;
  *line =
      ls_arena_printf(arena, "%s%s, with every key as it was resolved.", head, full ? full : from);
  free(full);
  free(own);
  char *text;
  size_t bytes;
  if (!itself) return LS_OK;
  LS_TRY(ls_file_read(arena, path, &text, &bytes, error));
  *line = ls_arena_printf(arena, "%.*s", (int)strcspn(text, "\n"), text);
  return LS_OK;
}

static ls_status write_resolved(ls_arena *arena, const ls_run_file *run, ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/" LS_RESOLVED_NAME, run->out), *line;
  LS_TRY(check_ours(path, head, error));
  LS_TRY(origin(arena, run, path, &line, error));
  const ls_run_file *full = ls_run_file_absolute(arena, run);
  const char *made = ls_arena_printf(
      arena, "%s\n# `lockstep train %s` goes on with this run, from any folder.\n%s", line,
      full->out, ls_run_file_text(arena, full));
  return ls_file_write(path, made, strlen(made), error);
}

static ls_status find_earlier(ls_arena *arena, const ls_run_file *run, ls_run_folder *folder,
                              ls_error *error) {
  LS_TRY(ls_checkpoint_recover(run->out, error));
  LS_TRY(
      ls_checkpoint_newest(arena, run->out, INT64_MAX, &folder->checkpoint, &folder->step, error));
  ls_published_list list = {0};
  LS_TRY(ls_checkpoint_list(arena, run->out, &list, error));
  folder->checkpoints = list.found.count;
  const char *path = resolved_of(arena, run->out);
  if (!folder->checkpoint || !path) return LS_OK;
  ls_run_file *before;
  LS_TRY(ls_run_file_read(arena, path, NULL, 0, &before, error));
  LS_TRY(ls_run_file_may_resume(arena, ls_run_file_absolute(arena, before),
                                ls_run_file_absolute(arena, run), folder->checkpoint, error));
  ls_advise_learning_rate(before, run, folder->step);
  return LS_OK;
}

/* What follows OUT/checkpoints/ in the path of the weights that a run starts from; NULL: they are
 * elsewhere. */
static const char *start_inside(ls_arena *arena, const ls_run_file *run) {
  const ls_run_file *full = ls_run_file_absolute(arena, run);
  const char *folder = ls_arena_printf(arena, "%s/checkpoints/", full->out);
  const size_t length = strlen(folder);
  const int64_t best = ls_checkpoint_best_step(full->out);
  if (best >= 0 && strcmp(full->model, ls_arena_printf(arena, "%s/" LS_BEST_NAME, full->out)) == 0)
    return ls_arena_printf(arena, "step-%lld", (long long)best);
  return strncmp(full->model, folder, length) == 0 ? full->model + length : NULL;
}

/* Of a process that was killed as it wrote there; this one has the lock. */
static void sweep(const char *out) {
  static const char begin[] = LS_RESOLVED_NAME ".tmp-";
  DIR *folder = opendir(out);
  if (!folder) return;
  for (const struct dirent *entry; (entry = readdir(folder));) {
    const char *process = entry->d_name + strlen(begin);
    if (strncmp(entry->d_name, begin, strlen(begin)) != 0) continue;
    if (*process && process[strspn(process, "0123456789")] == 0)
      unlinkat(dirfd(folder), entry->d_name, 0);
  }
  closedir(folder);
}

ls_status ls_run_folder_open(ls_arena *arena, const ls_run_file *run, ls_fresh fresh,
                             ls_run_folder **folder, ls_error *error) {
  ls_run_folder *made = LS_NEW(arena, ls_run_folder);
  *made = (ls_run_folder){.arena = arena, .lock = -1, .fresh = fresh};
  *folder = made; /* to be closed, should memory run out below */
  LS_TRY(ls_directory_make(run->out, error));
  LS_TRY(lock_folder(arena, run->out, &made->lock, error));
  sweep(run->out);
  ls_status status = LS_OK;
  if (fresh == LS_FRESH_DELETE && start_inside(arena, run)) {
    status = ls_fail(error, LS_INPUT,
                     "%s: the run starts from weights that --fresh=delete removes: give --fresh, "
                     "which keeps them",
                     ls_run_file_where(run, "model"));
  } else if (fresh == LS_FRESH_NO) {
    status = find_earlier(arena, run, made, error);
    if (status == LS_OK) status = check_traces(arena, run, error);
    if (status == LS_OK) status = write_resolved(arena, run, error);
  } else {
    status = check_ours(ls_arena_printf(arena, "%s/" LS_RESOLVED_NAME, run->out), head, error);
  }
  if (status != LS_OK) ls_run_folder_close(&made);
  *folder = made;
  return status;
}

static ls_status move(const char *from, const char *to, ls_error *error) {
  if (rename(from, to) == 0 || errno == ENOENT) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be renamed to %s: %s", from, to, strerror(errno));
}

/* The first number that is free beside every name that is moved. */
static int free_number(ls_arena *arena, const char *out) {
  int k = 1;
  while (exists(ls_arena_printf(arena, "%s/checkpoints.old-%d", out, k)) ||
         exists(ls_arena_printf(arena, "%s/metrics.old-%d.jsonl", out, k)) ||
         exists(ls_arena_printf(arena, "%s/samples.old-%d.jsonl", out, k)))
    k++;
  return k;
}

/* A link to a folder on another drive: the folder itself is moved, on that drive, and an empty one
 * takes its place. */
static ls_status move_linked(ls_arena *arena, const char *link, const char *aside, int k,
                             ls_error *error) {
  char target[PATH_MAX];
  if (!realpath(link, target))
    return ls_fail(error, LS_FAILED, "%s: cannot be followed: %s", link, strerror(errno));
  const char *old = ls_arena_printf(arena, "%s.old-%d", target, k);
  while (exists(old)) old = ls_arena_printf(arena, "%s.old-%d", target, ++k);
  LS_TRY(move(target, old, error));
  LS_TRY(ls_directory_make(target, error));
  if (symlink(old, aside) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: cannot be made: %s", aside, strerror(errno));
}

static ls_status move_checkpoints(ls_run_folder *folder, const char *out, int k, const char **kept,
                                  ls_error *error) {
  const char *now = ls_arena_printf(folder->arena, "%s/checkpoints", out);
  const char *aside = ls_arena_printf(folder->arena, "%s/checkpoints.old-%d", out, k);
  struct stat info;
  if (lstat(now, &info)) return LS_OK;
  *kept = aside;
  if (S_ISLNK(info.st_mode)) return move_linked(folder->arena, now, aside, k, error);
  return move(now, aside, error);
}

static ls_status move_told(ls_arena *arena, const char *out, const struct told *file, int k,
                           const char **aside, ls_error *error) {
  *aside = ls_arena_printf(arena, "%s/%s.old-%d.%s", out, file->stem, k, file->end);
  return move(now_of(arena, out, file), *aside, error);
}

/* How many bytes of the file are lines that a run wrote; *own where all of it is. */
static size_t lines_of(ls_arena *arena, const char *path, const char *second, bool *own) {
  struct stat info;
  char *text;
  size_t bytes;
  int64_t foreign;
  *own = false;
  if (!second || lstat(path, &info) || !S_ISREG(info.st_mode)) return 0;
  if (ls_file_read(arena, path, &text, &bytes, NULL) != LS_OK) return 0;
  const size_t kept = ls_metrics_kept(text, bytes, second, INT64_MAX, &foreign);
  *own = !foreign;
  return kept;
}

ls_status ls_run_folder_keep_lines(const ls_run_folder *folder, const char *out, ls_error *error) {
  ls_arena *arena = folder->arena;
  const int k = free_number(arena, out);
  for (int i = 0; i < 2; i++) {
    bool own;
    const char *now = now_of(arena, out, &told[i]), *aside;
    if (!lines_of(arena, now, told[i].second, &own) || !own) continue;
    LS_TRY(move_told(arena, out, &told[i], k, &aside, error));
    ls_warn("%s: there is no checkpoint of these steps; they are kept in %s", now, aside);
  }
  return LS_OK;
}

/* Removes what the run wrote; *left where something else is among it. */
static ls_status delete_checkpoints(const ls_run_folder *folder, const char *out, bool *left) {
  const char *now = ls_arena_printf(folder->arena, "%s/checkpoints", out);
  ls_checkpoint_clear(out);
  ls_checkpoint_remove_all(out);
  *left = rmdir(now) != 0 && errno != ENOENT && errno != ENOTDIR;
  return LS_OK;
}

ls_status ls_run_folder_take(ls_run_folder *folder, ls_run_file *run, const char **kept,
                             ls_error *error) {
  ls_arena *arena = folder->arena;
  const int k = free_number(arena, run->out);
  const bool deletes = folder->fresh == LS_FRESH_DELETE;
  const char *inside = start_inside(arena, run);
  bool left = true;
  *kept = NULL;
  for (int i = 0; i < 4; i++) {
    const char *now = now_of(arena, run->out, &told[i]), *aside;
    bool own;
    lines_of(arena, now, told[i].second, &own);
    if (!deletes || !own)
      LS_TRY(move_told(arena, run->out, &told[i], k, &aside, error));
    else if (unlink(now) != 0 && errno != ENOENT)
      return ls_fail(error, LS_FAILED, "%s: cannot be removed: %s", now, strerror(errno));
  }
  ls_checkpoint_forget_best(run->out); /* it is moved or removed with the others */
  if (deletes) LS_TRY(delete_checkpoints(folder, run->out, &left));
  if (left) LS_TRY(move_checkpoints(folder, run->out, k, kept, error));
  if (*kept && inside) run->model = ls_arena_printf(run->arena, "%s/%s", *kept, inside);
  return write_resolved(arena, run, error);
}

void ls_run_folder_close(ls_run_folder **folder) {
  if (*folder && (*folder)->lock >= 0) close((*folder)->lock);
  *folder = NULL;
}
