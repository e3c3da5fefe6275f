#include "store/adapter_modules.h"

#include <string.h>

#include "store/adapters.h"
#include "store/names_table.h"
#include "store/safetensors.h"

static const char of_texts[] = "SEQ_CLS", of_tokens[] = "TOKEN_CLS";

static bool ends_with(const char *text, size_t length, const char *end) {
  const size_t bytes = strlen(end);
  return length >= bytes && memcmp(text + length - bytes, end, bytes) == 0;
}

/* As PEFT matches: what a module that the tensor is in is called ends so. */
static bool covers(const char *target, const char *tensor) {
  for (const char *point = strchr(tensor, '.'); point; point = strchr(point + 1, '.'))
    if (ends_with(tensor, (size_t)(point - tensor), target)) return true;
  return false;
}

/* A plan of the model whose head is not kept: its modules are called as in files of weights. */
static ls_status plan_head(ls_arena *arena, const ls_model_config *config, ls_weight_plan *plan,
                           ls_error *error) {
  const ls_build_options one = {.mode = LS_MODEL_FORWARD, .tokens = 1, .sequence = 1};
  ls_model_config bare = *config;
  bare.lora_rank = bare.lora_targets = bare.lora_modules = 0;
  ls_graph *graph;
  LS_TRY(ls_model_build(arena, &bare, &one, &graph, error));
  return ls_weights_plan(arena, &bare, graph, plan, error);
}

ls_status ls_adapters_keep_head(ls_model_config *config, ls_error *error) {
  ls_arena *scratch = ls_arena_create();
  ls_weight_plan plan;
  const ls_status status = plan_head(scratch, config, &plan, error);
  config->lora_modules = 0;
  for (int t = 0; status == LS_OK && t < plan.count; t++)
    config->lora_modules |= plan.tensors[t].module;
  ls_arena_destroy(&scratch);
  return status;
}

/* The modules all of whose tensors some name covers. */
static int64_t covered(const ls_weight_plan *plan, const char **names, int count) {
  int64_t kept = 0, left = 0;
  for (int t = 0; t < plan->count; t++) {
    bool any = false;
    for (int n = 0; n < count; n++) any = any || covers(names[n], plan->tensors[t].name);
    *(any ? &kept : &left) |= plan->tensors[t].module;
  }
  return kept & ~left;
}

/* PEFT gives names of heads of which a model has one. */
static ls_status check_name(const ls_weight_plan *plan, const ls_class_head *head,
                            const ls_json_object *json, const char *name, ls_error *error) {
  static const char *const usual[] = {"classifier", "score"};
  bool module = strcmp(name, usual[0]) == 0 || strcmp(name, usual[1]) == 0, other = false;
  for (int t = 0; t < plan->count; t++) {
    const bool found = covers(name, plan->tensors[t].name);
    module = module || (found && plan->tensors[t].module);
    other = other || (found && !plan->tensors[t].module);
  }
  if (module && !other) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: modules_to_save: found %.60s; expected modules of the head over classes, "
                 "%s%s%s: others are not built",
                 json->where, name, head->classes, head->before ? " and " : "",
                 head->before ? head->before : "");
}

/* Classes of a head whose base has none. */
static ls_status count_classes(ls_arena *arena, const char *folder, ls_pooling pooling,
                               ls_model_config *config, ls_error *error) {
  ls_model_config pooled = *config;
  pooled.pooling = pooling;
  const ls_name_rule *rule = ls_class_head_of(&pooled).rules;
  while (strcmp(rule->ours, "head.weight") != 0) rule++;
  ls_safetensors *file;
  LS_TRY(ls_safetensors_open(folder, LS_ADAPTERS_STEM, &file, error));
  const char *name = ls_arena_printf(arena, LS_ADAPTERS_PREFIX "%s", rule->theirs + 1);
  const ls_stored_tensor *found = ls_safetensors_find(file, name);
  const int64_t count = found && found->ndim == 2 ? found->dims[0] : 0;
  ls_safetensors_close(&file);
  if (count < 2 || count > LS_MOST_CLASSES)
    return ls_fail(error, LS_INPUT,
                   "%s: %s has %lld rows; expected one for each class, from 2 to %d", folder, name,
                   (long long)count, LS_MOST_CLASSES);
  const char **names = LS_NEW_ARRAY(arena, const char *, count);
  for (int64_t c = 0; c < count; c++) names[c] = ls_arena_printf(arena, "LABEL_%lld", (long long)c);
  ls_model_set_classes(arena, config, names, count);
  if (pooling == LS_POOLING_EACH) ls_model_set_pooling(arena, config, pooling);
  config->draws_head = false; /* what the folder leaves out the base must have */
  return LS_OK;
}

static ls_status read_names(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                            ls_error *error) {
  const char **names;
  int count;
  ls_weight_plan plan;
  LS_TRY(ls_json_strings(arena, json, "modules_to_save", &names, &count, error));
  LS_TRY(plan_head(arena, config, &plan, error));
  const ls_class_head head = ls_class_head_of(config);
  for (int n = 0; n < count; n++) LS_TRY(check_name(&plan, &head, json, names[n], error));
  config->lora_modules = covered(&plan, names, count);
  return LS_OK;
}

ls_status ls_adapter_modules_read(ls_arena *arena, const char *folder, const ls_json_object *json,
                                  ls_model_config *config, ls_error *error) {
  const json_t *value = json_object_get(json->json, "modules_to_save");
  const char *type;
  LS_TRY(ls_json_string_or(json, "task_type", "", &type, error));
  const bool none = !value || json_is_null(value) || json_array_size(value) == 0;
  const bool tokens = strcmp(type, of_tokens) == 0 && ls_model_may_class_tokens(config);
  if ((tokens || strcmp(type, of_texts) == 0) && !config->classes && !none)
    LS_TRY(count_classes(arena, folder, tokens ? LS_POOLING_EACH : config->pooling, config, error));
  if (none && !json_is_string(value)) return LS_OK;
  if (!config->classes)
    return ls_fail(
        error, LS_INPUT,
        "%s: modules_to_save asks for something that is not built, but for the head "
        "over classes of task_type SEQ_CLS or, where transformers has one, TOKEN_CLS; expected "
        "plain LoRA, where it is null",
        json->where);
  ls_arena *scratch = ls_arena_create();
  const ls_status status = read_names(scratch, json, config, error);
  ls_arena_destroy(&scratch);
  return status;
}

json_t *ls_adapter_modules_json(const ls_model_config *config) {
  const ls_class_head head = ls_class_head_of(config);
  if (!config->lora_modules) return json_null();
  json_t *names = json_array();
  if (config->lora_modules & LS_HEAD_CLASSES)
    json_array_append_new(names, json_string(head.classes));
  if ((config->lora_modules & LS_HEAD_BEFORE) && head.before)
    json_array_append_new(names, json_string(head.before));
  return names;
}

bool ls_adapter_modules_has(const ls_model_config *config, const char *word) {
  const ls_name_rule *rule = config->classes ? ls_class_head_of(config).rules : NULL;
  for (; rule && rule->ours; rule++) {
    const size_t length = strlen(rule->theirs), end = strlen(".weight");
    if (length > end && strcmp(rule->theirs + length - end, ".weight") == 0 &&
        ends_with(rule->theirs, length - end, word))
      return true;
  }
  return false;
}
