/* The folder of a checkpoint: state.json, which seals it, and its publishing. What checkpoint.c
 * fills with tensors; private to this room.
 *
 *   LS_TRY(ls_checkpoint_seal(aside, state, error));
 *   LS_TRY(ls_checkpoint_publish(aside, final, error));
 *
 * Of one thread at a time for one folder. */
#ifndef LS_TRAIN_CHECKPOINT_FOLDER_H
#define LS_TRAIN_CHECKPOINT_FOLDER_H

#include <jansson.h>
#include <stdint.h>

#include "lockstep/status.h"

/* Writes state.json: `state`, with name, size and checksum of every file of the folder added, and
 * a checksum of itself. */
LS_CHECKED ls_status ls_checkpoint_seal(const char *folder, json_t *state, ls_error *error);

/* Flushes `aside` and gives it the name `final`, in one instant also where `final` is there; what
 * was there is removed after. */
LS_CHECKED ls_status ls_checkpoint_publish(const char *aside, const char *final, ls_error *error);

#endif
