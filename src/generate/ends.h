/* Which ids end a text, as Hugging Face's generate has it.
 *
 *   LS_TRY(ls_ends_read(arena, folder, &config, error));
 *
 * Thread-safe: no state. */
#ifndef LS_GENERATE_ENDS_H
#define LS_GENERATE_ENDS_H

#include "model/model.h"

/* Replaces config->end_ids by the eos_token_id of the folder's generation_config.json, or of its
 * base's where the folder is one of adapters; where there is none config.json's stay. LS_INPUT: the
 * file is not as Hugging Face writes it. */
LS_CHECKED ls_status ls_ends_read(ls_arena *arena, const char *folder, ls_model_config *config,
                                  ls_error *error);

#endif
