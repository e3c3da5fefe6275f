/* Whether the checkpoints of a run can be written, looked at before its first step.
 *
 *   LS_TRY(ls_checkpoint_check_room(session, run->out, steps_done, existing, error));
 *
 * Of one thread. */
#ifndef LS_TRAIN_CHECKPOINT_ROOM_H
#define LS_TRAIN_CHECKPOINT_ROOM_H

#include "train/session.h"

/* Bytes of one checkpoint, its tokenizer's files left out. */
int64_t ls_checkpoint_bytes(const ls_session *session);

/* How many checkpoints are there at once beside the `existing`, 2 at most: a run that saves `saves`
 * times and keeps `keep` (0: all) has one more while it replaces the oldest. */
int64_t ls_checkpoint_copies(int64_t saves, int64_t existing, int64_t keep);

/* With `existing` checkpoints in OUT and `done` steps made. LS_FAILED: OUT/checkpoints cannot be
 * written, and why; LS_NO: its drive has no space for what is saved before something is removed. */
LS_CHECKED ls_status ls_checkpoint_check_room(const ls_session *session, const char *out,
                                              int64_t done, int64_t existing, ls_error *error);

#endif
