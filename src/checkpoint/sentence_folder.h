/* What sentence-transformers reads beside a model that makes vectors of texts: modules.json, the
 * pooling, unit length, and what stands before texts that ask and that answer.
 *
 *   LS_TRY(ls_sentence_folder_write(arena, &config, "exported", &files, error));
 *
 * Thread-safe: no state. */
#ifndef LS_CHECKPOINT_SENTENCE_FOLDER_H
#define LS_CHECKPOINT_SENTENCE_FOLDER_H

#include "model/model.h"

/* Into a folder that is there; adds to *files how many were written. Nothing of another model. */
LS_CHECKED ls_status ls_sentence_folder_write(ls_arena *arena, const ls_model_config *config,
                                              const char *folder, int *files, ls_error *error);

#endif
