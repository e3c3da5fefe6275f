#include "train/checkpoint_room.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_list.h"
#include "session/saved_tensors.h"

static const double mib = 1048576;
enum { BESIDE_TENSORS = 1 << 16 }; /* headers, config.json, state.json */

int64_t ls_checkpoint_bytes(const ls_session *session) {
  const ls_program *program = session->programs[LS_SESSION_STEP];
  const ls_dtype dtype = program->layout.compute == LS_F64 ? LS_F64 : LS_F32;
  int64_t elements = 0;
  for (int p = 0; p < program->parameter_count; p++)
    elements += ls_program_parameter_elements(&program->parameters[p]) *
                (1 + ls_saved_moments_of(program, p));
  return elements * (int64_t)ls_dtype_bytes(dtype) + BESIDE_TENSORS;
}

int64_t ls_checkpoint_copies(int64_t saves, int64_t existing, int64_t keep) {
  if (saves <= 0) return 0;
  const int64_t most = keep > 0 && keep < INT64_MAX ? keep + 1 : INT64_MAX;
  int64_t copies = most > existing ? most - existing : 1;
  if (copies > saves) copies = saves;
  return copies;
}

static int64_t saves_of(const ls_run_file *run, int64_t done) {
  const int64_t left = run->train.steps - done, every = run->checkpoint.every;
  if (left <= 0) return 0;
  const int64_t best = run->checkpoint.best && run->eval.every > 0 ? left / run->eval.every : 0;
  if (every <= 0) return best + 1;
  const int64_t at = run->train.steps / every - done / every;
  return best + (run->train.steps % every ? at + 1 : at);
}

/* Makes a folder in it, as saving does: rights, quotas and read-only drives all say why. */
static ls_status try_folder(ls_arena *arena, const char *folder, ls_error *error) {
  /* A kill between the two leaves what the next run takes for a checkpoint half-written. */
  const char *probe = ls_arena_printf(arena, "%s/step-0.tmp-%d", folder, (int)getpid());
  if (mkdir(probe, 0777) == 0 && rmdir(probe) == 0) return LS_OK;
  return ls_fail(error, LS_FAILED, "%s: checkpoints cannot be written there: %s", folder,
                 strerror(errno));
}

/* What the run's own checkpoints take, which --fresh=delete removes before anything is saved. */
static int64_t bytes_of_own(ls_arena *arena, const char *out) {
  ls_published_list list = {0};
  int64_t bytes = 0;
  if (ls_checkpoint_list(arena, out, &list, NULL) != LS_OK) return 0;
  for (int c = 0; c < list.found.count; c++) {
    ls_sealed_folder sealed;
    if (ls_checkpoint_sealed(arena, list.found.items[c].folder, &sealed, NULL) != LS_OK) continue;
    for (int f = 0; f < sealed.count; f++) bytes += sealed.files[f].bytes;
  }
  return bytes;
}

static ls_status check_space(const ls_session *session, const char *folder, int64_t freed,
                             int64_t copies, ls_error *error) {
  struct statvfs about;
  if (statvfs(folder, &about) != 0) return LS_OK; /* saving will say why */
  const double there = (double)about.f_bavail * (double)about.f_frsize + (double)freed;
  const double each = (double)ls_checkpoint_bytes(session);
  if (each * (double)copies <= there) return LS_OK;
  return ls_fail(error, LS_REFUTED,
                 "%s: its drive has %.1f MiB free, and %" PRId64
                 " more checkpoint%s of %.1f MiB %s "
                 "there at a time (checkpoint.keep=%" PRId64
                 ", and one while it is saved): free some, keep fewer, or give another out",
                 folder, there / mib, copies, copies == 1 ? "" : "s", each / mib,
                 copies == 1 ? "is" : "are", session->run->checkpoint.keep);
}

ls_status ls_checkpoint_check_room(const ls_session *session, const ls_run_folder *folder,
                                   ls_error *error) {
  const ls_run_file *run = session->run;
  const int64_t saves = saves_of(run, folder->step);
  if (saves == 0) return LS_OK;
  ls_arena *arena = ls_arena_create();
  const char *path = ls_arena_printf(arena, "%s/checkpoints", run->out);
  struct stat info;
  ls_status status = LS_OK;
  if (!ls_directory_exists(path) && lstat(path, &info) == 0)
    status = ls_directory_make(path, error); /* a file or a link to nothing: it says which */
  else if (!ls_directory_exists(path))
    path = run->out;
  if (status == LS_OK) status = try_folder(arena, path, error);
  if (status == LS_OK)
    status = check_space(session, path,
                         folder->fresh == LS_FRESH_DELETE ? bytes_of_own(arena, run->out) : 0,
                         ls_checkpoint_copies(saves, folder->checkpoints,
                                              run->checkpoint.keep + run->checkpoint.best),
                         error);
  ls_arena_destroy(&arena);
  return status;
}
