/* What the files of the engine of communicators share. Private to this room.
 *
 * A channel is a communicator with a queue of its own: one for each set of axes, and for each peer
 * two, for messages to it and from it. Channels are made by splitting the first communicator, which
 * all ranks are in. The watch also finds what failed on a device or at another rank; it gives all
 * channels up, which ends every wait.
 *
 * Threads: the watch's lock is held while calls are made of the device's library. */
#ifndef LS_COMM_NCCL_H
#define LS_COMM_NCCL_H

#include "comm/watch.h"

typedef struct ls_channel_of {
  int64_t signature; /* the same on all ranks of the split that makes it; 0: of all ranks */
  int color, key;    /* the lowest of its ranks, and this one's place */
  bool messages;     /* else for collectives */
  size_t beside;     /* bytes of scratch */
  ls_communicator *communicator;
  ls_lane lane;
  char *scratch, *numbers;
  void *kept[LS_MAX_ARENAS + 1]; /* memory that is known to it */
  uint32_t sums, sums_ended;     /* of numbers, so far */
} ls_nccl_channel;

/* The channels of a group. */
typedef struct ls_nccl_group {
  const ls_group *group;
  ls_nccl_channel *together, *out, *in;
} ls_nccl_group;

typedef struct ls_nccl {
  ls_carrier carrier;
  ls_arena *memory;
  ls_lane compute; /* the rank's kernels have */
  ls_begun_list begun;
  LS_LIST(ls_nccl_group) groups;
  LS_LIST(ls_nccl_channel *) channels;
  ls_communicator *first; /* of all ranks */
  char *scratch;          /* of all channels */
  size_t scratch_bytes;
  ls_watch watch;
  bool given_up;
} ls_nccl;

static inline const ls_communicator_calls *ls_nccl_calls_of(const ls_nccl *self) {
  return self->carrier.of.device->communicators;
}

/* Notes that a group takes a channel for all members, or two for messages. LS_INTERNAL: the group
 * and an earlier one are neither the same nor apart. */
LS_CHECKED ls_status ls_nccl_add_group(ls_nccl *self, const ls_group *group,
                                       const ls_group_use *use, ls_error *error);
ls_nccl_group *ls_nccl_group_of(const ls_nccl *self, const ls_group *group);

/* Makes the communicators of all channels, and has them know this rank's memory. Collective: all
 * ranks. */
LS_CHECKED ls_status ls_nccl_connect(ls_nccl *self, ls_group *everyone, ls_error *error);

/* Waits until what was begun of a communicator has ended. */
LS_CHECKED ls_status ls_nccl_settle(ls_nccl *self, ls_communicator *of, ls_error *error);

/* Closes all communicators: in peace, where all transfers have ended and no rank has failed. */
void ls_nccl_disconnect(ls_nccl *self);

/* Gives all communicators up; the lock is held. */
void ls_nccl_abort(void *context);

/* What failed on the device or at another rank, of communicators; the lock is held. */
LS_CHECKED ls_status ls_nccl_find_failure(void *context, ls_error *error);

#endif
