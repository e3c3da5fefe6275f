/* Models by their name on the Hugging Face hub, where the local cache has them.
 *
 *   const char *folder;
 *   LS_TRY(ls_hub_find(arena, "openai-community/gpt2", &folder, error));
 *
 * The cache is $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub, laid out as huggingface_hub
 * does: models--ORG--NAME/refs/main names the snapshot. Nothing is ever downloaded. Thread-safe. */
#ifndef LS_MODEL_HUB_H
#define LS_MODEL_HUB_H

#include <stdbool.h>

#include "base/arena.h"

/* Whether `model` reads like ORG/NAME and is no path that exists. */
bool ls_hub_is_name(const char *model);

/* The snapshot's folder. LS_INPUT where the cache has none, with the command that downloads it. */
LS_CHECKED ls_status ls_hub_find(ls_arena *arena, const char *model, const char **folder,
                                 ls_error *error);

#endif
