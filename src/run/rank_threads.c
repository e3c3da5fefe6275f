#include "run/rank_threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

typedef struct rank_threads {
  ls_rank_threads_body body;
  void *context;
  pthread_mutex_t lock;
  ls_error first; /* failure; status LS_OK: none yet */
} rank_threads;

typedef struct member {
  rank_threads *of;
  ls_comm *comm;
  pthread_t thread;
} member;

static ls_status run_body(void *argument, ls_error *error) {
  const member *self = argument;
  return self->of->body(self->comm, self->of->context, error);
}

/* What a rank made may be others' too: running out of memory frees none of it. */
static void *run_member(void *argument) {
  member *self = argument;
  ls_error error = {0};
  const ls_status status = ls_arena_guard(run_body, self, false, &error);
  if (status == LS_OK) return NULL;
  pthread_mutex_lock(&self->of->lock);
  if (self->of->first.status == LS_OK) {
    self->of->first = error;
    self->of->first.status = status;
  }
  pthread_mutex_unlock(&self->of->lock);
  /* All ranks have agreed to stop: none waits for another. */
  if (status != LS_STOPPED) ls_comm_abort(self->comm, error.text);
  return NULL;
}

ls_status ls_rank_threads_run(ls_world *world, ls_rank_threads_body body, void *context,
                              ls_error *error) {
  const int count = ls_world_count_here(world), first = ls_world_first_here(world);
  rank_threads all = {.body = body, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER};
  member *members = calloc((size_t)count, sizeof *members);
  if (!members) return ls_fail(error, LS_FAILED, "out of memory for %d ranks", count);
  int started = 0;
  for (; started < count; started++) {
    member *each = &members[started];
    each->of = &all;
    each->comm = ls_world_comm(world, first + started);
    const int failure = pthread_create(&each->thread, NULL, run_member, each);
    if (!failure) continue;
    all.first.status = LS_FAILED;
    ls_fail(&all.first, LS_FAILED, "cannot start the thread of rank %d: %s", first + started,
            strerror(failure));
    ls_comm_abort(each->comm, all.first.text);
    break;
  }
  for (int i = 0; i < started; i++) pthread_join(members[i].thread, NULL);
  free(members);
  if (all.first.status == LS_OK) return LS_OK;
  if (error) *error = all.first;
  return all.first.status;
}
