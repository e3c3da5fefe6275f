/* The folder of a checkpoint: state.json, which seals it, and its publishing. What checkpoint.c
 * fills with tensors; private to this room.
 *
 *   LS_TRY(ls_checkpoint_seal(aside, state, files, count, error));
 *   LS_TRY(ls_checkpoint_publish(aside, final, error));
 *
 * Of one thread at a time for one folder. */
#ifndef LS_CHECKPOINT_CHECKPOINT_FOLDER_H
#define LS_CHECKPOINT_CHECKPOINT_FOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "checkpoint/checkpoint.h"
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

/* A file as state.json names it. */
typedef struct ls_sealed_entry {
  const char *path, *checksum;
  int64_t bytes;
} ls_sealed_entry;

typedef struct ls_sealed_folder {
  ls_checkpoint_state state;
  ls_sealed_entry *files; /* state.json is none of them */
  int count;
} ls_sealed_folder;

/* What state.json says; in the arena. LS_INPUT: it is missing, damaged or of another format;
 * LS_FAILED: the system does not let it be read. */
LS_CHECKED ls_status ls_checkpoint_sealed(ls_arena *arena, const char *folder,
                                          ls_sealed_folder *sealed, ls_error *error);

/* The best evaluation as state.json has it, and back. LS_INPUT: damaged. */
json_t *ls_checkpoint_best_json(const ls_best_evaluation *best);
LS_CHECKED ls_status ls_checkpoint_best_read(const char *path, const json_t *root,
                                             ls_checkpoint_state *state, ls_error *error);

/* That each file a run needs is there in its size: what can be told without reading them. Errors as
 * above. */
LS_CHECKED ls_status ls_checkpoint_check_sizes(const char *folder, ls_error *error);

/* The checksums of part `part` of `parts` of every file that state.json names, in its order, and
 * none of those that are not among `which`; in the arena. LS_INPUT names the file that is not there
 * or of another size, LS_FAILED one that cannot be read. */
LS_CHECKED ls_status ls_checkpoint_sum(ls_arena *arena, const char *folder, ls_sealed_part which,
                                       int part, int parts, ls_checksum **sums, int *count,
                                       ls_error *error);

/* LS_INPUT names the first file whose checksum, the sum of all parts, is another one. A file that
 * no run needs (a tokenizer's, the run file) costs a warning, where `warns`. */
LS_CHECKED ls_status ls_checkpoint_compare(const char *folder, ls_sealed_part which,
                                           const ls_checksum *sums, int count, bool warns,
                                           ls_error *error);

/* Flushes `aside` and gives it the name `final`, in one instant also where `final` is there and the
 * file system can exchange; what was there is removed after. On failure what was there is there. */
LS_CHECKED ls_status ls_checkpoint_publish(const char *aside, const char *final, ls_error *error);

/* What a kill amid publishing leaves under ASIDE's name with these ends where the file system
 * cannot exchange: the new folder, all of it, and the one before. */
#define LS_WHOLE "-whole"
#define LS_OLD "-old"
#define LS_PRUNED "-pruned" /* and a kill amid removing one, after it was given this name */

/* How folders change places; tests put in a file system that cannot, or that fails. */
typedef struct ls_rename_calls {
  int (*exchange)(const char *from, const char *to); /* as renameat2 with RENAME_EXCHANGE */
  int (*rename)(const char *from, const char *to);
} ls_rename_calls;
extern ls_rename_calls ls_checkpoint_renames;

#endif
