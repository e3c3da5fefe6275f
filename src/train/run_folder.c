#include "train/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "train/checkpoint.h"

static ls_status lock_folder(ls_arena *arena, const char *out, int *lock, ls_error *error) {
  const char *path = ls_arena_printf(arena, "%s/lock", out);
  *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (*lock < 0) return ls_fail(error, LS_FAILED, "%s: cannot be made: %s", path, strerror(errno));
  if (flock(*lock, LOCK_EX | LOCK_NB) == 0) return LS_OK;
  close(*lock);
  *lock = -1;
  return ls_fail(error, LS_INPUT,
                 "%s: another process is training there: wait for it, stop it, or give another out",
                 out);
}

static ls_status remove_earlier(ls_arena *arena, const char *out, ls_error *error) {
  LS_TRY(ls_directory_remove(ls_arena_printf(arena, "%s/checkpoints", out), error));
  static const char *const names[] = {"metrics.jsonl", "trace.json", "timeline.svg"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = ls_arena_printf(arena, "%s/%s", out, names[i]);
    if (unlink(path) != 0 && errno != ENOENT)
      return ls_fail(error, LS_FAILED, "%s: cannot be removed: %s", path, strerror(errno));
  }
  return LS_OK;
}

static ls_status find_earlier(ls_arena *arena, const ls_run_file *run, ls_run_folder *folder,
                              ls_error *error) {
  LS_TRY(ls_checkpoint_recover(run->out, error));
  LS_TRY(
      ls_checkpoint_newest(arena, run->out, INT64_MAX, &folder->checkpoint, &folder->step, error));
  const char *path = ls_arena_printf(arena, "%s/run.yaml", run->out);
  if (!folder->checkpoint || !ls_file_exists(path)) return LS_OK;
  ls_run_file *before;
  LS_TRY(ls_run_file_read(arena, path, NULL, 0, &before, error));
  return ls_run_file_may_resume(arena, before, run, error);
}

ls_status ls_run_folder_open(ls_arena *arena, const ls_run_file *run, bool fresh,
                             ls_run_folder **folder, ls_error *error) {
  ls_run_folder *made = LS_NEW(arena, ls_run_folder);
  made->lock = -1;
  LS_TRY(ls_directory_make(run->out, error));
  LS_TRY(lock_folder(arena, run->out, &made->lock, error));
  ls_status status =
      fresh ? remove_earlier(arena, run->out, error) : find_earlier(arena, run, made, error);
  if (status == LS_OK)
    status = ls_run_file_write(run, ls_arena_printf(arena, "%s/run.yaml", run->out), error);
  if (status != LS_OK) ls_run_folder_close(&made);
  *folder = made;
  return status;
}

void ls_run_folder_close(ls_run_folder **folder) {
  if (*folder && (*folder)->lock >= 0) close((*folder)->lock);
  *folder = NULL;
}
