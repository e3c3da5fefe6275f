/* Whether a model's folder has weights, and what else looks as if it were some.
 *
 *   bool there;
 *   LS_TRY(ls_weights_folder_check(arena, run->model, &there, error));
 *
 * A folder whose weights are a link to nowhere, in pieces without their index or in another format
 * must not be taken for one without any, or a run begins from scratch unasked. Thread-safe: no
 * state. */
#ifndef LS_STORE_WEIGHTS_FOLDER_H
#define LS_STORE_WEIGHTS_FOLDER_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "lockstep/status.h"

/* Whether `folder` has a model.safetensors, or an index of that name. */
bool ls_weights_folder_has(ls_arena *arena, const char *folder);

/* The same; LS_INPUT where it has not, but something that weights are kept in. */
LS_CHECKED ls_status ls_weights_folder_check(ls_arena *arena, const char *folder, bool *has,
                                             ls_error *error);

/* Adds to `sum` what tells the weights of `folder` from others: of each file of theirs, or of
 * adapters, the name, the size, the header and bytes from all over it. It is a glance, not a
 * checksum of all. LS_FAILED: a file cannot be read. */
LS_CHECKED ls_status ls_weights_folder_glance(ls_arena *arena, const char *folder, ls_checksum *sum,
                                              ls_error *error);

#endif
