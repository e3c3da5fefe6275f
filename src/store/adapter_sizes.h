/* Ranks and alphas of adapters, where products have others than the rest: those of the run file's
 * groups, and PEFT's rank_pattern and alpha_pattern. Internal to this room.
 *
 *   LS_TRY(ls_adapter_sizes_apply(arena, &asked, &config, error));
 *
 * Thread-safe: no state. */
#ifndef LS_STORE_ADAPTER_SIZES_H
#define LS_STORE_ADAPTER_SIZES_H

#include "store/adapters.h"
#include "text/json.h"

/* Sets config->lora_sizes of a model whose targets are set, in the arena, where asked->groups make
 * any differ. LS_INPUT: a group covers no product that has adapters. */
LS_CHECKED ls_status ls_adapter_sizes_apply(ls_arena *arena, const ls_adapters *asked,
                                            ls_model_config *config, ls_error *error);

/* rank_pattern and alpha_pattern of an adapter_config.json as groups. LS_INPUT names the key. */
LS_CHECKED ls_status ls_adapter_sizes_read(ls_arena *arena, const ls_json_object *json,
                                           ls_adapters *made, ls_error *error);

/* The same as they are written, {} where all adapters are of one size. */
LS_CHECKED ls_status ls_adapter_sizes_json(ls_arena *arena, const ls_model_config *config,
                                           json_t **ranks, json_t **alphas, ls_error *error);

#endif
