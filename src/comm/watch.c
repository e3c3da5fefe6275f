/* Watches transfers of a rank whose own thread may be waiting for its device. */
#include "comm/watch.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

enum { TURN_NS = 10 * 1000000, TEXT_BYTES = 320 };

/* A rank that waits for no transfer leaves it that long to others to say what failed or who died.
 */
static const int64_t OTHERS_FIRST_NS = 500 * 1000000;

/* The oldest transfer that is under way, for which the clock runs. */
typedef struct oldest {
  int64_t number;    /* -1: none is */
  int64_t failed_ns; /* when a failure was found first; 0: none was */
  int64_t died_ns;   /* and a death */
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
static ls_status find_oldest(const ls_watch *self, oldest *found, ls_error *error) {
  const ls_begun *first = NULL;
  for (int b = 0; b < self->begun->of.count; b++) {
    const ls_begun *each = &self->begun->of.items[b];
    bool passed = true;
    if (each->event) LS_TRY(self->begun->calls->passed(each->event, &passed, error));
    if (!passed && (!first || each->number < first->number)) first = each;
  }
  const int64_t number = first ? first->number : -1;
  if (number == found->number) return LS_OK;
  *found = (oldest){.number = number, .failed_ns = found->failed_ns, .died_ns = found->died_ns};
  if (first) say(first, found->text);
  found->wait = (ls_wait){.comm = self->of->comm,
                          .peer = first && ls_collective_is_message(first->what.kind)
                                      ? first->what.group->members[first->what.peer]
                                      : -1,
                          .started_ns = ls_now_ns()};
  return LS_OK;
}

/* Whether somebody has died just now, which whoever waits for that rank says better. */
static bool leaves_to_others(const ls_world *world, oldest *waited) {
  bool died = false;
  for (int i = 0; i < world->neighbour_count; i++)
    died = died || ls_neighbour_died(&world->neighbours[i]);
  if (died && !waited->died_ns) waited->died_ns = ls_now_ns();
  return died && ls_now_ns() - waited->died_ns < OTHERS_FIRST_NS;
}

static ls_status look(ls_watch *self, oldest *waited, ls_error *error) {
  ls_comm *comm = self->of->comm;
  ls_error cause = {0};
  if (comm->world->transport) comm->world->transport->poll(comm->world->transport);
  if (ls_control_aborted(comm->world->control, error)) return LS_FAILED;
  pthread_mutex_lock(&self->lock);
  ls_status status = find_oldest(self, waited, &cause);
  if (status == LS_OK && self->poll) status = self->poll(self->owner, &cause);
  pthread_mutex_unlock(&self->lock);
  const bool any = waited->number >= 0;
  const char *doing = any ? waited->text : "its own work";
  if (status != LS_OK && !waited->failed_ns) waited->failed_ns = ls_now_ns();
  if (status != LS_OK && !any && ls_now_ns() - waited->failed_ns < OTHERS_FIRST_NS) return LS_OK;
  if (status != LS_OK)
    return ls_comm_give_up(comm, error, "%s%s%s", any ? doing : "", any ? ": " : "", cause.text);
  if (!any && leaves_to_others(comm->world, waited)) return LS_OK;
  if (!any) waited->wait = (ls_wait){.comm = comm, .started_ns = ls_now_ns()};
  return ls_wait_look(&waited->wait, ls_now_ns(), doing, error);
}

static void rest(void) {
  const struct timespec turn = {.tv_nsec = TURN_NS};
  nanosleep(&turn, NULL);
}

static void *watch(void *context) {
  ls_watch *self = context;
  oldest waited = {.number = -1, .wait = {.comm = self->of->comm}};
  ls_error error = {0};
  ls_status status = self->of->device->transfers->visit(self->of->queue, &error);
  while (status == LS_OK && !atomic_load(&self->closing)) {
    rest();
    status = look(self, &waited, &error);
  }
  if (status == LS_OK) return NULL;
  (void)!ls_comm_give_up(self->of->comm, NULL, "%s", error.text);
  atomic_store(&self->failed, true);
  for (bool closing = false; !closing; rest()) {
    closing = atomic_load(&self->closing);
    pthread_mutex_lock(&self->lock);
    self->give_up(self->owner);
    pthread_mutex_unlock(&self->lock);
  }
  return NULL;
}

void ls_watch_open(ls_watch *of) {
  pthread_mutex_init(&of->lock, NULL);
}

ls_status ls_watch_start(ls_watch *of, ls_error *error) {
  const int failure = pthread_create(&of->thread, NULL, watch, of);
  of->started = !failure;
  if (!failure) return LS_OK;
  return ls_fail(error, LS_FAILED, "cannot start a thread: %s", strerror(failure));
}

void ls_watch_stop(ls_watch *of) {
  atomic_store(&of->closing, true);
  if (of->started) pthread_join(of->thread, NULL);
  of->started = false;
}

void ls_watch_close(ls_watch *of) {
  pthread_mutex_destroy(&of->lock);
}

ls_status ls_watch_check(const ls_watch *of, ls_error *error) {
  if (!atomic_load(&of->failed)) return LS_OK;
  if (ls_control_aborted(of->of->comm->world->control, error)) return LS_FAILED;
  return ls_fail(error, LS_FAILED, "transfers between ranks were given up");
}
