/* Ranks and alphas of adapters, where products have others than the rest: those of the run file's
 * groups, and PEFT's rank_pattern and alpha_pattern. Internal to this room.
 *
 *   LS_TRY(ls_adapter_sizes_apply(arena, &asked, &config, error));
 *
 * Thread-safe: no state. */
#ifndef LS_STORE_ADAPTER_SIZES_H
#define LS_STORE_ADAPTER_SIZES_H

#include "store/adapters.h"
#include "store/names.h"
#include "text/json.h"

/* As PEFT matches a name: the whole of a module's, or what is behind a point of it. */
bool ls_adapter_name_covers(const char *name, const char *module);

/* The graph of a model without its adapters, and how files store it, in the arena. */
LS_CHECKED ls_status ls_adapters_bare_plan(ls_arena *arena, const ls_model_config *config,
                                           ls_model_config *bare, ls_graph **graph,
                                           ls_weight_plan *plan, ls_error *error);

/* Sets config->lora_sizes of a model whose targets are set, in the arena, where asked->groups make
 * any differ. LS_INPUT: a group covers no product that has adapters. */
LS_CHECKED ls_status ls_adapter_sizes_apply(ls_arena *arena, const ls_adapters *asked,
                                            ls_model_config *config, ls_error *error);

/* made->targets of a target_modules that is a regular expression of whole names, in the arena.
 * LS_INPUT: it covers none, or a product in some layers alone. */
LS_CHECKED ls_status ls_adapter_sizes_targets(ls_arena *arena, const ls_model_config *config,
                                              const char *pattern, ls_adapters *made,
                                              ls_error *error);

/* rank_pattern and alpha_pattern of an adapter_config.json as groups. LS_INPUT names the key. */
LS_CHECKED ls_status ls_adapter_sizes_read(ls_arena *arena, const ls_json_object *json,
                                           ls_adapters *made, ls_error *error);

/* The same as they are written, {} where all adapters are of one size. */
LS_CHECKED ls_status ls_adapter_sizes_json(ls_arena *arena, const ls_model_config *config,
                                           json_t **ranks, json_t **alphas, ls_error *error);

#endif
