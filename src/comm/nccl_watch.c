/* Watches the communicators of a rank, whose own thread may be waiting for its device: what failed
 * on the device or at another rank, and transfers that do not end, end the run. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/nccl.h"

enum { TURN_NS = 10 * 1000000, TEXT_BYTES = 320 };

/* A rank that waits for no transfer leaves it that long to others to say what failed. */
static const int64_t OTHERS_FIRST_NS = 500 * 1000000;

/* The oldest transfer that is under way, for which the clock runs. */
typedef struct oldest {
  int64_t number;    /* -1: none is */
  int64_t failed_ns; /* when a failure was found first; 0: none was */
  ls_wait wait;
  char text[TEXT_BYTES];
} oldest;

/* "all-gather of 4096 fp32 (parameters of layers.3)" */
static void say(const ls_begun *of, char text[TEXT_BYTES]) {
  snprintf(text, TEXT_BYTES, "%s of %lld %s%s%.200s%s", ls_collective_name(of->what.kind),
           (long long)of->what.count, ls_dtype_name(of->what.dtype), of->about ? " (" : "",
           of->about ? of->about : "", of->about ? ")" : "");
}

/* The lock is held. */
static ls_status find_oldest(const ls_nccl *self, oldest *found, ls_error *error) {
  const ls_begun *first = NULL;
  for (int b = 0; b < self->begun.of.count; b++) {
    const ls_begun *each = &self->begun.of.items[b];
    bool passed = true;
    if (each->event) LS_TRY(self->begun.calls->passed(each->event, &passed, error));
    if (!passed && (!first || each->number < first->number)) first = each;
  }
  const int64_t number = first ? first->number : -1;
  if (number == found->number) return LS_OK;
  *found = (oldest){.number = number, .failed_ns = found->failed_ns};
  if (first) say(first, found->text);
  found->wait = (ls_wait){.comm = self->carrier.of.comm,
                          .peer = first && ls_collective_is_message(first->what.kind)
                                      ? first->what.group->members[first->what.peer]
                                      : -1,
                          .started_ns = ls_now_ns()};
  return LS_OK;
}

/* What no transfer has said yet; the lock is held. */
static ls_status find_failure(ls_nccl *self, ls_error *error) {
  bool busy;
  const ls_communicator_calls *calls = ls_nccl_calls_of(self);
  if (self->first) LS_TRY(calls->poll(self->first, &busy, error));
  for (int c = 0; c < self->channels.count; c++) {
    ls_communicator *of = self->channels.items[c]->communicator;
    if (of && of != self->first) LS_TRY(calls->poll(of, &busy, error));
  }
  return LS_OK;
}

static ls_status look(ls_nccl *self, oldest *waited, ls_error *error) {
  ls_comm *comm = self->carrier.of.comm;
  ls_error cause = {0};
  if (comm->world->transport) comm->world->transport->poll(comm->world->transport);
  if (ls_control_aborted(comm->world->control, error)) return LS_FAILED;
  pthread_mutex_lock(&self->lock);
  ls_status status = find_oldest(self, waited, &cause);
  if (status == LS_OK) status = find_failure(self, &cause);
  pthread_mutex_unlock(&self->lock);
  const bool any = waited->number >= 0;
  const char *doing = any ? waited->text : "nothing";
  if (status != LS_OK && !waited->failed_ns) waited->failed_ns = ls_now_ns();
  if (status != LS_OK && !any && ls_now_ns() - waited->failed_ns < OTHERS_FIRST_NS) return LS_OK;
  if (status != LS_OK)
    return ls_comm_give_up(comm, error, "%s%s%s", any ? doing : "", any ? ": " : "", cause.text);
  if (!any) waited->wait = (ls_wait){.comm = comm, .started_ns = ls_now_ns()};
  return ls_wait_look(&waited->wait, ls_now_ns(), doing, error);
}

static void *watch(void *context) {
  ls_nccl *self = context;
  oldest waited = {.number = -1, .wait = {.comm = self->carrier.of.comm}};
  ls_error error = {0};
  ls_status status = ls_nccl_calls_of(self)->visit(self->carrier.of.queue, &error);
  while (status == LS_OK && !atomic_load(&self->closing)) {
    const struct timespec turn = {.tv_nsec = TURN_NS};
    nanosleep(&turn, NULL);
    status = look(self, &waited, &error);
  }
  if (status == LS_OK) return NULL;
  (void)!ls_comm_give_up(self->carrier.of.comm, NULL, "%s", error.text);
  pthread_mutex_lock(&self->lock);
  ls_nccl_abort(self);
  pthread_mutex_unlock(&self->lock);
  return NULL;
}

ls_status ls_nccl_watch_start(ls_nccl *self, ls_error *error) {
  const int failure = pthread_create(&self->watch, NULL, watch, self);
  self->watched = !failure;
  if (!failure) return LS_OK;
  return ls_fail(error, LS_FAILED, "cannot start a thread: %s", strerror(failure));
}

void ls_nccl_watch_stop(ls_nccl *self) {
  atomic_store(&self->closing, true);
  if (self->watched) pthread_join(self->watch, NULL);
  self->watched = false;
}
