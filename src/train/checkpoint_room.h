/* Whether the checkpoints of a run can be written, looked at before its first step.
 *
 *   LS_TRY(ls_checkpoint_check_room(session, folder, error));
 *
 * Of one thread. */
#ifndef LS_TRAIN_CHECKPOINT_ROOM_H
#define LS_TRAIN_CHECKPOINT_ROOM_H

#include "session/session.h"
#include "train/run_folder.h"

/* Bytes of one checkpoint, its tokenizer's files left out. */
int64_t ls_checkpoint_bytes(const ls_session *session);

/* How many checkpoints there will be at a time beside the `existing`: a run that saves `saves`
 * times and keeps `keep` (0: all) has one more while it replaces the oldest. */
int64_t ls_checkpoint_copies(int64_t saves, int64_t existing, int64_t keep);

/* LS_FAILED: the run's checkpoints cannot be written to its folder, and why; LS_REFUTED: its drive
 * has no space for as many as there will be at a time. */
LS_CHECKED ls_status ls_checkpoint_check_room(const ls_session *session,
                                              const ls_run_folder *folder, ls_error *error);

#endif
