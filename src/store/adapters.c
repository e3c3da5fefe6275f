#include "store/adapters.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/hub.h"
#include "store/adapter_modules.h"
#include "store/adapter_sizes.h"
#include "store/names.h"
#include "text/distance.h"
#include "text/json.h"

/* A product as the files of the family have it: "self_attn.q_proj". */
typedef struct module {
  const char *name;
  int linear;      /* of ls_model_linears */
  bool follows;    /* in a tensor of several products, one of them */
  bool unlike;     /* of latents: what generation does with it has no adapters */
  bool transposed; /* as stored */
} module;

typedef struct module_list {
  module *items;
  int count;
} module_list;

/* The product whose weight is the parameter, in the first layer; -1: none. */
static int linear_of(const char *parameter) {
  int64_t layer = 0;
  const int linear = ls_model_linear_find(parameter, &layer);
  return layer == 0 ? linear : -1;
}

/* What is behind the layer's number, without ".weight". */
static const char *module_name(ls_arena *arena, const char *plain) {
  const char *number = strstr(plain, ".0.");
  LS_ASSERT(number);
  const size_t length = strlen(number + 3) - strlen(".weight");
  return ls_arena_printf(arena, "%.*s", (int)length, number + 3);
}

/* The products of a block, by the model's graph without adapters. */
static ls_status list_modules(ls_arena *arena, const ls_model_config *config, module_list *list,
                              ls_error *error) {
  ls_model_config bare;
  ls_graph *graph;
  ls_weight_plan plan;
  LS_TRY(ls_adapters_bare_plan(arena, config, &bare, &graph, &plan, error));
  list->count = 0;
  list->items = LS_NEW_ARRAY(arena, module, LS_MODEL_LINEARS);
  for (int t = 0; t < plan.count; t++) {
    const ls_stored_layout *tensor = &plan.tensors[t];
    for (int i = 0; i < tensor->pieces.count; i++) {
      const int p = tensor->pieces.items[i].parameter;
      const int linear = linear_of(graph->parameters.items[p].about.name);
      if (linear < 0) continue;
      list->items[list->count++] = (module){.name = module_name(arena, tensor->plain),
                                            .linear = linear,
                                            .follows = i > 0,
                                            .unlike = tensor->pieces.count > 1 && config->latent,
                                            .transposed = tensor->transposed};
    }
  }
  return LS_OK;
}

static const char *last_word(const char *name) {
  const char *point = strrchr(name, '.');
  return point ? point + 1 : name;
}

/* "q_proj, k_proj": what can have adapters. */
static const char *list_legal(ls_arena *arena, const module_list *list) {
  const char *text = "";
  for (int m = 0; m < list->count; m++) {
    bool again = list->items[m].unlike;
    for (int before = 0; before < m && !again; before++)
      again = strcmp(last_word(list->items[before].name), last_word(list->items[m].name)) == 0;
    if (!again)
      text =
          ls_arena_printf(arena, "%s%s%s", text, *text ? ", " : "", last_word(list->items[m].name));
  }
  return text;
}

/* What a list of legal targets begins with. */
static const char *or_all(const ls_model_config *config) {
  return config->experts ? "" : "all-linear, or ";
}

static ls_status refuse_unknown(ls_arena *arena, const module_list *list,
                                const ls_model_config *config, const char *target,
                                ls_error *error) {
  const char *names[LS_MODEL_LINEARS];
  for (int m = 0; m < list->count; m++) names[m] = last_word(list->items[m].name);
  const char *near = ls_nearest(target, names, list->count);
  return ls_fail(error, LS_INPUT,
                 "no product of a %s model%s is called %.60s; %s%s: expected %ssome of %s",
                 config->family, config->experts ? " outside its experts" : "", target,
                 near ? "the nearest is " : "", near ? near : "found none near", or_all(config),
                 list_legal(arena, list));
}

static ls_status apply_target(ls_arena *arena, const module_list *list, const char *target,
                              bool all, ls_model_config *config, ls_error *error) {
  bool any = false;
  for (int m = 0; m < list->count; m++) {
    const module *each = &list->items[m];
    if (!all && !ls_adapter_name_covers(target, each->name)) continue;
    if (each->unlike)
      return ls_fail(error, LS_INPUT,
                     "%s%s, which files of %s keep as one tensor of several products: adapters of "
                     "it are not built; expected some of %s",
                     all ? "all-linear has " : "found ", last_word(each->name), config->family,
                     list_legal(arena, list));
    config->lora_targets |= INT64_C(1) << each->linear;
    if (each->follows) config->lora_fused |= INT64_C(1) << each->linear;
    any = true;
  }
  return any ? LS_OK : refuse_unknown(arena, list, config, target, error);
}

static ls_status apply(ls_arena *scratch, const ls_adapters *asked, ls_model_config *config,
                       ls_error *error) {
  module_list list;
  LS_TRY(list_modules(scratch, config, &list, error));
  config->lora_rank = asked->rank;
  config->lora_alpha = asked->alpha > 0 ? asked->alpha : 2 * (double)asked->rank;
  config->lora_rslora = asked->rslora;
  config->dropout.adapter = asked->dropout;
  config->lora_targets = config->lora_fused = 0;
  const bool all = asked->target_count == 1 && strcmp(asked->targets[0], "all-linear") == 0;
  if (all && config->experts)
    return ls_fail(error, LS_INPUT,
                   "all-linear has the products of experts, whose adapters are not built; expected "
                   "some of %s",
                   list_legal(scratch, &list));
  for (int t = 0; t < asked->target_count; t++)
    LS_TRY(apply_target(scratch, &list, asked->targets[t], all, config, error));
  if (config->lora_targets) return LS_OK;
  return ls_fail(error, LS_INPUT, "found no targets; expected %ssome of %s", or_all(config),
                 list_legal(scratch, &list));
}

ls_status ls_adapters_apply(ls_arena *arena, const ls_adapters *asked, ls_model_config *config,
                            ls_error *error) {
  ls_arena *scratch = ls_arena_create();
  const ls_status status = apply(scratch, asked, config, error);
  ls_arena_destroy(&scratch);
  return status == LS_OK ? ls_adapter_sizes_apply(arena, asked, config, error) : status;
}

static const char *config_path(ls_arena *arena, const char *folder) {
  return ls_arena_printf(arena, "%s/adapter_config.json", folder);
}

bool ls_adapters_has(const char *folder) {
  ls_arena *scratch = ls_arena_create();
  const bool has = ls_file_exists(config_path(scratch, folder));
  ls_arena_destroy(&scratch);
  return has;
}

/* Read below, or of no meaning for what is computed. */
static const char *const known_keys[] = {"peft_type",
                                         "r",
                                         "lora_alpha",
                                         "use_rslora",
                                         "target_modules",
                                         "lora_dropout",
                                         "bias",
                                         "auto_mapping",
                                         "inference_mode",
                                         "modules_to_save",
                                         "base_model_name_or_path",
                                         "rank_pattern",
                                         "alpha_pattern",
                                         "revision",
                                         "task_type",
                                         "fan_in_fan_out",
                                         "init_lora_weights",
                                         "peft_version",
                                         "corda_config",
                                         "eva_config",
                                         "lora_ga_config",
                                         "loftq_config",
                                         "layers_pattern",
                                         "megatron_core",
                                         "qalora_group_size",
                                         NULL};

static bool asks_nothing(const json_t *value) {
  if (json_is_null(value) || json_is_false(value)) return true;
  return (json_is_object(value) && json_object_size(value) == 0) ||
         (json_is_array(value) && json_array_size(value) == 0);
}

/* Another key asks for nothing, or for a kind of adapter that is not built. */
static ls_status check_keys(const ls_json_object *json, ls_error *error) {
  const char *key, *type, *bias;
  json_t *value;
  LS_TRY(ls_json_string(json, "peft_type", &type, error));
  LS_TRY(ls_json_string_or(json, "bias", "none", &bias, error));
  if (strcmp(type, "LORA") != 0)
    return ls_fail(error, LS_INPUT, "%s: peft_type: found %.40s; expected LORA", json->where, type);
  if (strcmp(bias, "none") != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: bias: found %.40s, which trains biases of the base; "
                   "expected none",
                   json->where, bias);
  json_object_foreach((json_t *)json->json, key, value) {
    int k = 0;
    while (known_keys[k] && strcmp(known_keys[k], key) != 0) k++;
    if (!known_keys[k] && !asks_nothing(value))
      return ls_fail(error, LS_INPUT,
                     "%s: %.60s asks for something that is not built; expected plain LoRA, where "
                     "it is null, false or empty",
                     json->where, key);
  }
  return LS_OK;
}

/* A list of names, or a text: all-linear, or a regular expression. */
static ls_status read_targets(ls_arena *arena, const ls_json_object *json,
                              const ls_model_config *config, ls_adapters *made, ls_error *error) {
  static const char *const all[] = {"all-linear"};
  const char *pattern = json_string_value(json_object_get(json->json, "target_modules"));
  const char **names;
  if (pattern && strcmp(pattern, all[0]) != 0) {
    if (ls_adapter_sizes_targets(arena, config, pattern, made, error) == LS_OK) return LS_OK;
    return ls_error_prefix(error, "%s: target_modules", json->where);
  }
  made->targets = all;
  made->target_count = 1;
  if (pattern) return LS_OK;
  LS_TRY(ls_json_strings(arena, json, "target_modules", &names, &made->target_count, error));
  for (int t = 0; t < made->target_count; t++) names[t] = ls_arena_strdup(arena, names[t]);
  made->targets = names;
  return LS_OK;
}

/* A folder, from here or from the adapters' own, or a name on the hub. */
static ls_status find_base(ls_arena *arena, const char *folder, const ls_json_object *json,
                           const char **base, ls_error *error) {
  const char *name;
  LS_TRY(ls_json_string_or(json, "base_model_name_or_path", "", &name, error));
  const char *beside = ls_arena_printf(arena, "%s/%s", folder, name);
  *base = ls_arena_strdup(arena, name);
  if (!*name)
    return ls_fail(error, LS_INPUT,
                   "%s: base_model_name_or_path is empty; expected the folder of the weights that "
                   "the adapters are of: write it there",
                   json->where);
  if (ls_directory_exists(name)) return LS_OK;
  if (ls_directory_exists(beside)) {
    *base = beside;
    return LS_OK;
  }
  if (ls_hub_is_name(name)) return ls_hub_find(arena, *base, base, error);
  return ls_fail(error, LS_INPUT,
                 "%s: base_model_name_or_path: found no folder %.200s; expected that of the "
                 "weights that the adapters are of: write where it is now",
                 json->where, name);
}

static ls_status read_object(ls_arena *arena, const char *folder, const ls_json_object *json,
                             ls_model_config *config, ls_error *error) {
  const char *base;
  ls_adapters made = {0};
  LS_TRY(check_keys(json, error));
  const bool own = ls_file_exists(ls_arena_printf(arena, "%s/config.json", folder));
  ls_error missing = {0};
  const ls_status found = find_base(arena, folder, json, &base, &missing);
  if (found != LS_OK && !own) return ls_fail(error, found, "%s", missing.text);
  if (found == LS_OK && ls_adapters_has(base))
    return ls_fail(error, LS_INPUT,
                   "%s: base_model_name_or_path: %.200s holds adapters itself; expected whole "
                   "weights, as lockstep export --merge writes them",
                   json->where, base);
  LS_TRY(ls_model_config_read(arena, own ? folder : base, config, error));
  LS_TRY(ls_weights_settle_scales(config, error));
  LS_TRY(ls_json_count(json, "r", &made.rank, error));
  LS_TRY(ls_json_number(json, "lora_alpha", &made.alpha, error));
  LS_TRY(ls_json_bool_or(json, "use_rslora", false, &made.rslora, error));
  LS_TRY(read_targets(arena, json, config, &made, error));
  LS_TRY(ls_adapter_sizes_read(arena, json, &made, error));
  LS_TRY(ls_json_number_or(json, "lora_dropout", 0, &made.dropout, error));
  LS_TRY(ls_adapter_modules_read(arena, folder, json, config, error));
  if (!(made.dropout >= 0 && made.dropout < 1))
    return ls_fail(error, LS_INPUT, "%s: lora_dropout: found %g; expected from 0 to below 1",
                   json->where, made.dropout);
  if (made.rank < 1 || made.rank > LS_MOST_LORA_RANK || !(made.alpha > 0 && made.alpha <= 1e9))
    return ls_fail(error, LS_INPUT,
                   "%s: r %lld, lora_alpha %g; expected numbers above 0, at most %d and 1e9",
                   json->where, (long long)made.rank, made.alpha, LS_MOST_LORA_RANK);
  const ls_status status = ls_adapters_apply(arena, &made, config, error);
  config->base = base;
  if (status != LS_OK) return ls_error_prefix(error, "%s: adapters", json->where);
  return LS_OK;
}

ls_status ls_adapters_read(ls_arena *arena, const char *folder, ls_model_config *config,
                           ls_error *error) {
  if (!ls_adapters_has(folder)) {
    LS_TRY(ls_model_config_read(arena, folder, config, error));
    return ls_weights_settle_scales(config, error);
  }
  const char *path = config_path(arena, folder);
  json_t *root;
  ls_json_object json;
  LS_TRY(ls_json_read(path, 0, &root, error));
  ls_status status = ls_json_root(path, root, &json, error);
  if (status == LS_OK) status = read_object(arena, folder, &json, config, error);
  json_decref(root);
  return status;
}

static bool is_target(const ls_model_config *config, const module *of) {
  return config->lora_targets >> of->linear & 1;
}

/* GPT-2 has two products that are called c_proj: one name for both, or the whole name of one. So it
 * is with one that a head over classes calls so, too. */
static const char *target_name(const ls_model_config *config, const module_list *list, int m) {
  const char *name = last_word(list->items[m].name);
  if (ls_adapter_modules_has(config, name)) return list->items[m].name;
  for (int other = 0; other < list->count; other++)
    if (!is_target(config, &list->items[other]) &&
        strcmp(last_word(list->items[other].name), name) == 0)
      return list->items[m].name;
  return name;
}

static json_t *list_targets(const ls_model_config *config, const module_list *list) {
  json_t *names = json_array();
  for (int m = 0; m < list->count; m++) {
    if (!is_target(config, &list->items[m])) continue;
    const char *name = target_name(config, list, m);
    bool again = false;
    for (size_t n = 0; n < json_array_size(names) && !again; n++)
      again = strcmp(json_string_value(json_array_get(names, n)), name) == 0;
    if (!again) json_array_append_new(names, json_string(name));
  }
  return names;
}

/* PEFT has whole numbers here, as those who read it may expect. */
static json_t *number(double value) {
  return value == (double)(json_int_t)value ? json_integer((json_int_t)value) : json_real(value);
}

static const char *task_of(const ls_model_config *config) {
  if (config->vectors) return "FEATURE_EXTRACTION";
  if (!config->classes) return "CAUSAL_LM";
  return config->pooling == LS_POOLING_EACH ? "TOKEN_CLS" : "SEQ_CLS";
}

ls_status ls_adapters_text(ls_arena *arena, const ls_model_config *config, const char **text,
                           ls_error *error) {
  module_list list;
  LS_TRY(list_modules(arena, config, &list, error));
  bool transposed = false;
  for (int m = 0; m < list.count; m++)
    transposed |= is_target(config, &list.items[m]) && list.items[m].transposed;
  json_t *ranks, *alphas;
  LS_TRY(ls_adapter_sizes_json(arena, config, &ranks, &alphas, error));
  char *whole = config->base ? realpath(config->base, NULL) : NULL;
  json_t *json = json_pack(
      "{s:o, s:n, s:s, s:s, s:b, s:b, s:b, s:n, s:n, s:o, s:f, s:o, s:s, s:i, s:o, s:n, s:o, "
      "s:s, s:b, s:b}",
      "alpha_pattern", alphas, "auto_mapping", "base_model_name_or_path",
      whole          ? whole
      : config->base ? config->base
                     : "",
      "bias", "none", "fan_in_fan_out", transposed, "inference_mode", 1, "init_lora_weights", 1,
      "layers_pattern", "layers_to_transform", "lora_alpha", number(config->lora_alpha),
      "lora_dropout", config->dropout.adapter, "modules_to_save", ls_adapter_modules_json(config),
      "peft_type", "LORA", "r", (int)config->lora_rank, "rank_pattern", ranks, "revision",
      "target_modules", list_targets(config, &list), "task_type", task_of(config), "use_dora", 0,
      "use_rslora", config->lora_rslora);
  char *made = json ? json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
  if (made) *text = ls_arena_printf(arena, "%s\n", made);
  free(made);
  free(whole);
  json_decref(json);
  return made ? LS_OK : ls_fail(error, LS_FAILED, "adapter_config.json: out of memory");
}
