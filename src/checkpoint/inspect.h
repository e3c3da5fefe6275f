/* What a folder or file holds: a run or checkpoint, a model, an adapter, tensors, a tokenizer, a
 * token file.
 *
 *   json_t *found;
 *   LS_TRY(ls_inspect("runs/quickstart", false, &found, error));
 *   ... json_object_get(found, "weights") ...
 *   json_decref(found);
 *
 * Thread-safe: no state. */
#ifndef LS_CHECKPOINT_INSPECT_H
#define LS_CHECKPOINT_INSPECT_H

#include <jansson.h>
#include <stdbool.h>

#include "lockstep/status.h"

/* An object of sections ("checkpoint", "model", "weights", "optimizer", "adapter", "tokenizer",
 * "tokens"; the name of each token file of a folder), in the order in which a person would hear of
 * them; `tensors`: with each tensor's name, type and shape. Owned by the caller; NULL on failure.
 * LS_INPUT: nothing known is there, or it is damaged; a checkpoint's files and a token file are
 * checked by checksum. */
LS_CHECKED ls_status ls_inspect(const char *path, bool tensors, json_t **found, ls_error *error);

#endif
