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
#include "lockstep/status.h"

/* Whether `folder` has a model.safetensors, or an index of that name. */
bool ls_weights_folder_has(ls_arena *arena, const char *folder);

/* The same; LS_INPUT where it has not, but something that weights are kept in. */
LS_CHECKED ls_status ls_weights_folder_check(ls_arena *arena, const char *folder, bool *has,
                                             ls_error *error);

#endif
