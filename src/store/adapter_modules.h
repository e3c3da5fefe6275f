/* Modules of a head over classes that are trained beside adapters and kept in their file: PEFT's
 * modules_to_save. Internal to this room.
 *
 * Thread-safe: no state. */
#ifndef LS_STORE_ADAPTER_MODULES_H
#define LS_STORE_ADAPTER_MODULES_H

#include "model/model.h"
#include "text/json.h"

/* Of an adapter_config.json that stands in `folder`: sets config->lora_modules. Where the base has
 * no head the classes are as many as the folder's has rows, without names of their own. LS_INPUT: a
 * module that is none of the head's. */
LS_CHECKED ls_status ls_adapter_modules_read(ls_arena *arena, const char *folder,
                                             const ls_json_object *json, ls_model_config *config,
                                             ls_error *error);

/* What is written there: names, or null. */
json_t *ls_adapter_modules_json(const ls_model_config *config);

/* Whether the head has a product that is called so, in the family's files: "dense". */
bool ls_adapter_modules_has(const ls_model_config *config, const char *word);

#endif
