/* Queues of a device for transfers, with events that say to other queues how far they are: what
 * the engines of queues share. Private to this room.
 *
 *   LS_TRY(ls_lane_open(calls, &compute, &lane, error));
 *   LS_TRY(ls_lane_fence(calls, &compute, &lane, error));   what follows on the lane comes after
 *   ... work on lane.queue ...
 *   LS_TRY(ls_begun_keep(&all, &lane, &transfer, error));   at its end:
 *   LS_TRY(ls_begun_await(&all, &compute, &transfer, error));
 *
 * One thread at a time. */
#ifndef LS_COMM_LANES_H
#define LS_COMM_LANES_H

#include "comm/engine.h"

/* A queue with events that are recorded on it alone, so that those recorded later pass later. */
typedef struct ls_lane {
  ls_device_queue queue;
  bool borrowed;                   /* the queue is another's to close */
  ls_device_event *fence;          /* of what is handed to another queue at once */
  LS_LIST(ls_device_event *) idle; /* of transfers that have ended */
  int made;                        /* of those events, idle or not */
} ls_lane;

/* A transfer that has begun: at its end this event is awaited. */
typedef struct ls_begun {
  ls_transfer what;
  const char *about; /* what it is of; NULL: not said */
  int64_t number;    /* of all that have begun */
  bool ended;        /* on the host: its event is kept for who watches until it has passed */
  ls_device_event *event;
  ls_lane *on; /* that it was recorded on */
} ls_begun;

typedef struct ls_begun_list {
  bool watched; /* transfers that have ended stay until they have passed on the device */
  const ls_transfer_calls *calls;
  ls_arena *memory;
  int64_t count;        /* begun so far */
  LS_LIST(ls_begun) of; /* event NULL: free; grows where more are under way than ever before */
} ls_begun_list;

/* A lane on a queue of its own beside that of the kernels, or on this one itself. */
LS_CHECKED ls_status ls_lane_open(const ls_transfer_calls *calls, const ls_device_queue *beside,
                                  ls_lane *made, ls_error *error);
LS_CHECKED ls_status ls_lane_borrow(const ls_transfer_calls *calls, const ls_device_queue *queue,
                                    ls_lane *made, ls_error *error);
void ls_lane_close(const ls_transfer_calls *calls, ls_lane *of);

/* What is put on `later` from now on comes after all that is on `earlier`. */
LS_CHECKED ls_status ls_lane_fence(const ls_transfer_calls *calls, const ls_lane *earlier,
                                   const ls_lane *later, ls_error *error);

/* Makes events for transfers on a lane that is watched, so that none is made in a step. */
LS_CHECKED ls_status ls_begun_prepare(ls_begun_list *all, ls_lane *on, ls_error *error);

/* Keeps, until the transfer's end, all that is on the lane now. */
LS_CHECKED ls_status ls_begun_keep(ls_begun_list *all, ls_lane *on, const ls_transfer *what,
                                   ls_error *error);

/* What was kept last has ended on the host: it stays for who watches. */
void ls_begun_end(ls_begun_list *all);

/* Awaits on the queue what was kept of the transfer. */
LS_CHECKED ls_status ls_begun_await(ls_begun_list *all, const ls_device_queue *queue,
                                    const ls_transfer *what, ls_error *error);
void ls_begun_close(ls_begun_list *all);

#endif
