/* The folder of a checkpoint: state.json, which seals it, and its publishing. What checkpoint.c
 * fills with tensors; private to this room.
 *
 *   LS_TRY(ls_checkpoint_seal(aside, state, files, count, error));
 *   LS_TRY(ls_checkpoint_publish(aside, final, error));
 *
 * Of one thread at a time for one folder. */
#ifndef LS_TRAIN_CHECKPOINT_FOLDER_H
#define LS_TRAIN_CHECKPOINT_FOLDER_H

#include <jansson.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "lockstep/status.h"

/* A file whose writers know what is in it, so that nobody reads it again. */
typedef struct ls_sealed_file {
  const char *name;
  uint64_t bytes;
  ls_checksum checksum;
} ls_sealed_file;

/* Writes state.json: `state`, with name, size and checksum of every file of the folder added (those
 * of `known` as given), and a checksum of itself. */
LS_CHECKED ls_status ls_checkpoint_seal(const char *folder, json_t *state,
                                        const ls_sealed_file *known, int count, ls_error *error);

/* The checksums of part `part` of `parts` of every file that state.json names, in its order; in the
 * arena. LS_INPUT names the file that is not there or of another size. */
LS_CHECKED ls_status ls_checkpoint_sum(ls_arena *arena, const char *folder, int part, int parts,
                                       ls_checksum **sums, int *count, ls_error *error);

/* LS_INPUT names the first file whose checksum, the sum of all parts, is another one. */
LS_CHECKED ls_status ls_checkpoint_compare(const char *folder, const ls_checksum *sums, int count,
                                           ls_error *error);

/* Flushes `aside` and gives it the name `final`, in one instant also where `final` is there; what
 * was there is removed after. */
LS_CHECKED ls_status ls_checkpoint_publish(const char *aside, const char *final, ls_error *error);

#endif
