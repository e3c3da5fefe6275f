/* A thread beside a rank that watches the transfers which its device has under way. Private to this
 * room.
 *
 *   watch = (ls_watch){.of = options, .begun = &begun, .owner = self, .give_up = give_up};
 *   ls_watch_open(&watch);
 *   LS_TRY(ls_watch_start(&watch, error));
 *   ... the lock is held where the begun list changes ...
 *   ls_watch_stop(&watch);
 *   ls_watch_close(&watch);
 *
 * An abort, the death of a process of this host, what `poll` finds, and a transfer that does not
 * end within the deadline end the run, and `give_up` ends what the device waits for. */
#ifndef LS_COMM_WATCH_H
#define LS_COMM_WATCH_H

#include "comm/lanes.h"
#include "comm/world.h"

typedef struct ls_watch {
  const ls_carrier_options *of;
  const ls_begun_list *begun;
  void *owner;
  ls_status (*poll)(void *owner, ls_error *error); /* what no transfer says; NULL: nothing */
  /* Called with the lock held, again and again until it is stopped. */
  void (*give_up)(void *owner);
  pthread_mutex_t lock;
  pthread_t thread;
  bool started;
  _Atomic bool closing, failed; /* failed: set before transfers are given up */
} ls_watch;

void ls_watch_open(ls_watch *of);
LS_CHECKED ls_status ls_watch_start(ls_watch *of, ls_error *error);
void ls_watch_stop(ls_watch *of);
void ls_watch_close(ls_watch *of);

/* LS_FAILED where transfers were given up: what a wait for the device has ended with is nothing. */
LS_CHECKED ls_status ls_watch_check(const ls_watch *of, ls_error *error);

#endif
