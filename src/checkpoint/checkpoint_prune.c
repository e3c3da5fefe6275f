#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_list.h"

/* A checkpoint that a run wrote and that can be read: only these are counted and removed. */
typedef struct owned {
  const char *folder;
  int64_t step;
  struct timespec written;
  ls_sealed_folder sealed;
} owned;

/* A step-900 that training went past by going on from step-800 is older than step-850. */
static int by_age(const void *a, const void *b) {
  const owned *left = a, *right = b;
  if (left->written.tv_sec != right->written.tv_sec)
    return left->written.tv_sec < right->written.tv_sec ? 1 : -1;
  if (left->written.tv_nsec != right->written.tv_nsec)
    return left->written.tv_nsec < right->written.tv_nsec ? 1 : -1;
  return (left->step < right->step) - (left->step > right->step);
}

/* A link is somebody's, who keeps the checkpoint elsewhere. */
static bool is_owned(ls_arena *arena, const char *folder, int64_t step, owned *about) {
  struct stat info;
  *about = (owned){.folder = folder, .step = step};
  if (lstat(folder, &info) || !S_ISDIR(info.st_mode)) return false;
  if (ls_checkpoint_sealed(arena, folder, &about->sealed, NULL) != LS_OK) return false;
  if (step >= 0 && about->sealed.state.step != step) return false;
  if (stat(ls_arena_printf(arena, "%s/state.json", folder), &info)) return false;
  about->written = info.st_mtim;
  return true;
}

/* Removes the files that state.json of `about` names from `folder`, state.json last, then the
 * folder. What else is in it is somebody's: it stays, as step-N.rest. False where nothing could be
 * removed. */
static bool remove_files(ls_arena *arena, const char *folder, const owned *about) {
  const char *step = ls_checkpoint_final_name(arena, folder);
  int reason = 0, removed = 0;
  for (int i = 0; i <= about->sealed.count && !reason; i++) {
    const char *name =
        i < about->sealed.count ? strrchr(about->sealed.files[i].path, '/') + 1 : "state.json";
    if (unlink(ls_arena_printf(arena, "%s/%s", folder, name)) == 0)
      removed++;
    else if (errno != ENOENT)
      reason = errno;
  }
  if (!reason && rmdir(folder)) reason = errno;
  if (!reason) return true;
  if (reason != ENOTEMPTY && reason != EEXIST) {
    ls_warn("%s: cannot be removed: %s", step, strerror(reason));
    return removed > 0;
  }
  const char *rest = ls_checkpoint_free_name(arena, step, "rest");
  if (rename(folder, rest))
    ls_warn("%s: has files that the run did not write: %s", folder, strerror(errno));
  else
    ls_warn("%s: removed; the files in it that the run did not write are kept in %s", step, rest);
  return true;
}

/* Takes its name away first, so that a kill in between leaves no checkpoint with files missing. */
static void remove_owned(ls_arena *arena, const owned *about) {
  const char *aside = ls_arena_printf(arena, "%s.tmp-%ld" LS_PRUNED, about->folder, (long)getpid());
  if (rename(about->folder, aside))
    ls_warn("%s: cannot be removed: %s", about->folder, strerror(errno));
  else if (!remove_files(arena, aside, about)) /* it is whole */
    (void)!rename(aside, about->folder);
}

/* Leaves the `keep` newest, and the best. */
static void remove_beyond(const char *out, int64_t keep) {
  ls_arena *arena = ls_arena_create();
  ls_published_list list = {0};
  ls_error error = {0};
  if (ls_checkpoint_list(arena, out, &list, &error) != LS_OK) ls_warn("%s", error.text);
  owned *ours = LS_NEW_ARRAY(arena, owned, list.found.count + 1);
  int count = 0;
  for (int i = 0; i < list.found.count; i++) {
    const ls_published *each = &list.found.items[i];
    count += is_owned(arena, each->folder, each->step, &ours[count]);
  }
  qsort(ours, (size_t)count, sizeof *ours, by_age);
  const int64_t best = keep > 0 ? ls_checkpoint_best_step(out) : -1;
  for (int64_t i = keep; i < count; i++)
    if (ours[i].step != best) remove_owned(arena, &ours[i]);
  ls_arena_destroy(&arena);
}

typedef struct pruning {
  const char *out;
  int64_t keep;
} pruning;

static ls_status prune(void *context, ls_error *error) {
  const pruning *self = context;
  (void)error;
  remove_beyond(self->out, self->keep);
  return LS_OK;
}

void ls_checkpoint_prune(const char *out, int64_t keep) {
  ls_error error = {0};
  if (keep > 0 && ls_arena_guard(prune, &(pruning){out, keep}, true, &error) != LS_OK)
    ls_warn("%s: old checkpoints are not removed: %s", out, error.text);
}

void ls_checkpoint_remove_all(const char *out) {
  remove_beyond(out, 0);
}

static bool ends_with(const char *folder, const char *end) {
  const size_t length = strlen(folder), part = strlen(end);
  return length > part && strcmp(folder + length - part, end) == 0;
}

/* One that was published, and lost its name since. */
static bool is_nameless(ls_arena *arena, const char *folder) {
  return (ends_with(folder, LS_WHOLE) || ends_with(folder, LS_OLD)) &&
         ls_checkpoint_is_sealed(arena, folder) &&
         !ls_directory_exists(ls_checkpoint_final_name(arena, folder));
}

void ls_checkpoint_clear(const char *out) {
  ls_arena *arena = ls_arena_create();
  ls_published_list list = {0};
  ls_error error = {0};
  if (ls_checkpoint_list(arena, out, &list, &error) != LS_OK) ls_warn("%s", error.text);
  for (int i = 0; i < list.temporary.count; i++) {
    const char *folder = list.temporary.items[i];
    owned about;
    if (ends_with(folder, LS_PRUNED)) {
      /* Without its state.json, which goes last, only what others put in it is left. */
      if (!is_owned(arena, folder, -1, &about)) about.sealed.count = 0;
      (void)remove_files(arena, folder, &about);
    } else if (is_nameless(arena, folder)) {
      ls_warn("%s: is a whole checkpoint without its name, and is kept", folder);
    } else if (ls_directory_remove(folder, &error) != LS_OK) {
      ls_warn("%s", error.text);
    }
  }
  ls_arena_destroy(&arena);
}

struct ls_pruner {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool asked, ends;
  ls_arena *arena; /* it lies in it */
  const char *out;
  int64_t keep;
};

static void *prune_when_asked(void *argument) {
  ls_pruner *self = argument;
  pthread_mutex_lock(&self->mutex);
  while (self->asked || !self->ends) {
    if (!self->asked) {
      pthread_cond_wait(&self->changed, &self->mutex);
      continue;
    }
    self->asked = false;
    pthread_mutex_unlock(&self->mutex);
    ls_checkpoint_prune(self->out, self->keep);
    pthread_mutex_lock(&self->mutex);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

ls_pruner *ls_pruner_start(const char *out, int64_t keep) {
  ls_arena *arena = ls_arena_create();
  ls_pruner *self = LS_NEW(arena, ls_pruner);
  *self = (ls_pruner){.mutex = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER,
                      .arena = arena,
                      .out = ls_arena_strdup(arena, out),
                      .keep = keep};
  const int reason = pthread_create(&self->thread, NULL, prune_when_asked, self);
  if (!reason) return self;
  ls_warn("%s: old checkpoints are not removed: no thread can be made: %s", out, strerror(reason));
  ls_arena_destroy(&arena);
  return NULL;
}

static void tell(ls_pruner *self, bool ends) {
  pthread_mutex_lock(&self->mutex);
  self->asked |= !ends;
  self->ends |= ends;
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

void ls_pruner_ask(ls_pruner *self) {
  if (self) tell(self, false);
}

void ls_pruner_stop(ls_pruner **self) {
  if (!*self) return;
  tell(*self, true);
  pthread_join((*self)->thread, NULL);
  ls_arena *arena = (*self)->arena;
  *self = NULL;
  ls_arena_destroy(&arena);
}
