#include "store/adapter_sizes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "store/parameter_names.h"
#include "text/distance.h"

enum { MATCH_LIMIT = 100000 };

/* A product of a layer. */
typedef struct product {
  const char *module; /* as files call it: "model.layers.3.mlp.down_proj" */
  int parameter;      /* of the graph without adapters */
  int64_t layer;
  int linear; /* of ls_model_linears */
} product;

typedef struct product_list {
  product *items;
  int count;
  ls_parameter_names *names;
  int parameters;
} product_list;

static bool is_target(const ls_model_config *config, int linear) {
  return config->lora_targets >> linear & 1;
}

/* Those that have adapters. */
static ls_status list_products(ls_arena *arena, const ls_model_config *config, product_list *list,
                               ls_error *error) {
  ls_model_config bare;
  ls_graph *graph;
  ls_weight_plan plan;
  LS_TRY(ls_adapters_bare_plan(arena, config, &bare, &graph, &plan, error));
  LS_TRY(ls_parameter_names_list(arena, &bare, graph, &list->names, error));
  list->parameters = graph->parameters.count;
  list->items = LS_NEW_ARRAY(arena, product, plan.count + 1);
  list->count = 0;
  for (int t = 0; t < plan.count; t++) {
    const ls_stored_layout *tensor = &plan.tensors[t];
    /* Of several that are one tensor the first stands for all: they have one rank and alpha. */
    product *made = &list->items[list->count];
    made->parameter = tensor->pieces.items[0].parameter;
    made->linear =
        ls_model_linear_find(graph->parameters.items[made->parameter].about.name, &made->layer);
    if (made->linear < 0 || !is_target(config, made->linear)) continue;
    const size_t length = strlen(tensor->name) - strlen(".weight");
    made->module = ls_arena_printf(arena, "%.*s", (int)length, tensor->name);
    list->count++;
  }
  return LS_OK;
}

bool ls_adapter_name_covers(const char *name, const char *module) {
  const size_t length = strlen(module), end = strlen(name);
  if (length < end || strcmp(module + length - end, name) != 0) return false;
  return length == end || module[length - end - 1] == '.';
}

ls_status ls_adapters_bare_plan(ls_arena *arena, const ls_model_config *config,
                                ls_model_config *bare, ls_graph **graph, ls_weight_plan *plan,
                                ls_error *error) {
  const ls_build_options one = {.mode = LS_MODEL_FORWARD, .tokens = 1, .sequence = 1};
  *bare = *config;
  bare->lora_rank = bare->lora_targets = bare->lora_modules = 0;
  LS_TRY(ls_model_build(arena, bare, &one, graph, error));
  return ls_weights_plan(arena, bare, *graph, plan, error);
}

/* Whose whole name the pattern matches; `front` stands for what may be before it. */
static ls_status cover_by_pattern(ls_arena *arena, const product_list *list, const char *front,
                                  const char *pattern, bool *covered, ls_error *error) {
  const char *whole = ls_arena_printf(arena, "%s(?:%s)", front, pattern);
  int code;
  PCRE2_SIZE offset;
  pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED,
                                       PCRE2_ANCHORED | PCRE2_ENDANCHORED, &code, &offset, NULL);
  if (!compiled)
    return ls_fail(error, LS_INPUT, "%.80s: found no regular expression; expected a module's name",
                   pattern);
  pcre2_match_data *data = pcre2_match_data_create(1, NULL);
  pcre2_match_context *context = pcre2_match_context_create(NULL);
  pcre2_set_match_limit(context, MATCH_LIMIT);
  code = 0;
  for (int p = 0; p < list->count && (code >= 0 || code == PCRE2_ERROR_NOMATCH); p++) {
    const char *module = list->items[p].module;
    code = pcre2_match(compiled, (PCRE2_SPTR)module, strlen(module), 0, 0, data, context);
    covered[p] = code >= 0;
  }
  pcre2_match_context_free(context);
  pcre2_match_data_free(data);
  pcre2_code_free(compiled);
  if (code >= 0 || code == PCRE2_ERROR_NOMATCH) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%.80s: found a regular expression that takes too long; expected a module's name",
                 pattern);
}

/* With the nearest of names such as "down_proj", or what `error` has to say of parameters. */
static ls_status refuse_unknown(ls_arena *arena, const product_list *list, const char *name,
                                ls_error *error) {
  const char **words = LS_NEW_ARRAY(arena, const char *, list->count + 1);
  for (int p = 0; p < list->count; p++) {
    const char *point = strrchr(list->items[p].module, '.');
    words[p] = point ? point + 1 : list->items[p].module;
  }
  const char *last = strrchr(name, '.'),
             *near = ls_nearest(last ? last + 1 : name, words, list->count);
  if (!near) return LS_INPUT;
  return ls_fail(error, LS_INPUT, "no product with adapters is called %.80s; the nearest is %s",
                 name, near);
}

/* As lora.targets are called, or as any parameters are. */
static ls_status cover_by_name(ls_arena *arena, const product_list *list, const char *name,
                               bool *covered, ls_error *error) {
  bool any = false;
  for (int p = 0; p < list->count; p++) {
    covered[p] = ls_adapter_name_covers(name, list->items[p].module);
    any |= covered[p];
  }
  if (any) return LS_OK;
  bool *parameters = LS_NEW_ARRAY(arena, bool, list->parameters + 1);
  if (ls_parameter_names_cover(list->names, name, parameters, error) != LS_OK)
    return refuse_unknown(arena, list, name, error);
  for (int p = 0; p < list->count; p++) {
    covered[p] = parameters[list->items[p].parameter];
    any |= covered[p];
  }
  if (any) return LS_OK;
  return ls_fail(error, LS_INPUT, "%.80s has no adapters; expected a product of lora.targets",
                 name);
}

/* Sets of the products that a group covers what no group before has set. */
static ls_status apply_group(ls_arena *arena, const product_list *list,
                             const ls_adapter_group *group, ls_lora_size *sizes, ls_error *error) {
  bool *covered = LS_NEW_ARRAY(arena, bool, list->count + 1);
  /* As PEFT matches: re.match(r"(.*\.)?(PATTERN)$", module). */
  LS_TRY(group->pattern ? cover_by_pattern(arena, list, "(?:.*\\.)?", group->match, covered, error)
                        : cover_by_name(arena, list, group->match, covered, error));
  for (int p = 0; p < list->count; p++) {
    if (!covered[p]) continue;
    ls_lora_size *size = &sizes[list->items[p].layer * LS_MODEL_LINEARS + list->items[p].linear];
    if (!size->rank) size->rank = group->rank;
    if (!(size->alpha > 0)) size->alpha = group->alpha;
  }
  return LS_OK;
}

static ls_status apply(ls_arena *arena, ls_arena *scratch, const ls_adapters *asked,
                       ls_model_config *config, ls_error *error) {
  product_list list;
  const int64_t count = config->layers * LS_MODEL_LINEARS;
  bool differ = false;
  LS_TRY(list_products(scratch, config, &list, error));
  ls_lora_size *sizes = LS_NEW_ARRAY(arena, ls_lora_size, count);
  for (int g = 0; g < asked->group_count; g++)
    LS_TRY(apply_group(scratch, &list, &asked->groups[g], sizes, error));
  for (int64_t i = 0; i < count; i++) {
    ls_lora_size *size = &sizes[i];
    if (config->lora_fused >> i % LS_MODEL_LINEARS & 1) *size = size[-1];
    if (!size->rank) size->rank = config->lora_rank;
    if (!(size->alpha > 0)) size->alpha = asked->alpha > 0 ? asked->alpha : 2 * (double)size->rank;
    differ |= size->rank != config->lora_rank || size->alpha < config->lora_alpha ||
              size->alpha > config->lora_alpha;
  }
  if (differ) config->lora_sizes = sizes;
  return LS_OK;
}

ls_status ls_adapter_sizes_apply(ls_arena *arena, const ls_adapters *asked, ls_model_config *config,
                                 ls_error *error) {
  config->lora_sizes = NULL;
  if (!asked->group_count) return LS_OK;
  ls_arena *scratch = ls_arena_create();
  const ls_status status = apply(arena, scratch, asked, config, error);
  ls_arena_destroy(&scratch);
  return status;
}

static ls_status read_pattern(ls_arena *arena, const ls_json_object *json, const char *key,
                              bool ranks, ls_adapter_group *groups, int *count, ls_error *error) {
  const char *match;
  json_t *value, *pattern = json_object_get(json->json, key);
  if (pattern && !json_is_object(pattern) && !json_is_null(pattern))
    return ls_fail(error, LS_INPUT, "%s: %s: expected an object of numbers by name", json->where,
                   key);
  json_object_foreach(pattern, match, value) {
    const double number = json_number_value(value);
    const bool whole = json_is_integer(value) && number >= 1 && number <= LS_MOST_LORA_RANK;
    if (ranks ? !whole : !(number > 0 && number <= 1e9))
      return ls_fail(error, LS_INPUT, "%s: %s: %.80s: expected %s", json->where, key, match,
                     ranks ? "a whole number from 1 to 65536" : "a number above 0");
    groups[(*count)++] = (ls_adapter_group){.match = ls_arena_strdup(arena, match),
                                            .rank = ranks ? (int64_t)number : 0,
                                            .alpha = ranks ? 0 : number,
                                            .pattern = true};
  }
  return LS_OK;
}

ls_status ls_adapter_sizes_read(ls_arena *arena, const ls_json_object *json, ls_adapters *made,
                                ls_error *error) {
  const size_t most = json_object_size(json_object_get(json->json, "rank_pattern")) +
                      json_object_size(json_object_get(json->json, "alpha_pattern"));
  ls_adapter_group *groups = LS_NEW_ARRAY(arena, ls_adapter_group, (int64_t)most + 1);
  made->group_count = 0;
  made->groups = groups;
  LS_TRY(read_pattern(arena, json, "rank_pattern", true, groups, &made->group_count, error));
  return read_pattern(arena, json, "alpha_pattern", false, groups, &made->group_count, error);
}

/* What of a module's name is the same in all layers: "mlp.down_proj" of
 * "model.layers.3.mlp.down_proj". */
static const char *behind_layer(ls_arena *arena, const product *of) {
  const char *number = ls_arena_printf(arena, ".%lld.", (long long)of->layer);
  const char *found = strstr(of->module, number);
  LS_ASSERT(found);
  return found + strlen(number);
}

/* The names of products that a pattern covers; each has to be covered in all layers or in none. */
static ls_status list_targets(ls_arena *arena, const product_list *list, const bool *covered,
                              ls_adapters *made, ls_error *error) {
  const char **names = LS_NEW_ARRAY(arena, const char *, LS_MODEL_LINEARS);
  made->targets = names;
  made->target_count = 0;
  for (int linear = 0; linear < LS_MODEL_LINEARS; linear++) {
    int of = 0, taken = 0;
    const char *name = "";
    for (int p = 0; p < list->count; p++) {
      if (list->items[p].linear != linear) continue;
      name = of++ ? name : behind_layer(arena, &list->items[p]);
      taken += covered[p];
    }
    if (taken > 0 && taken < of)
      return ls_fail(error, LS_INPUT,
                     "the pattern covers %s of some layers alone, whose adapters are not built; "
                     "expected it of all layers or of none",
                     name);
    if (taken) names[made->target_count++] = name;
  }
  return LS_OK;
}

ls_status ls_adapter_sizes_targets(ls_arena *arena, const ls_model_config *config,
                                   const char *pattern, ls_adapters *made, ls_error *error) {
  ls_model_config all = *config;
  product_list list;
  all.lora_targets = -1;
  LS_TRY(list_products(arena, &all, &list, error));
  bool *covered = LS_NEW_ARRAY(arena, bool, list.count + 1);
  LS_TRY(cover_by_pattern(arena, &list, "", pattern, covered, error));
  LS_TRY(list_targets(arena, &list, covered, made, error));
  if (made->target_count) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "found no product of a %s model with the pattern %.80s; expected a regular "
                 "expression of whole names, such as %s",
                 config->family, pattern, list.count ? list.items[0].module : "none");
}

/* Whether all layers have it as the first has. */
static bool is_uniform(const ls_model_config *config, int linear) {
  const ls_lora_size first = ls_model_lora_size(config, 0, linear);
  for (int64_t l = 1; l < config->layers; l++) {
    const ls_lora_size other = ls_model_lora_size(config, l, linear);
    if (other.rank != first.rank || other.alpha < first.alpha || other.alpha > first.alpha)
      return false;
  }
  return true;
}

/* PEFT has whole numbers here, as those who read it may expect. */
static json_t *number_json(double value) {
  return value == (double)(json_int_t)value ? json_integer((json_int_t)value) : json_real(value);
}

ls_status ls_adapter_sizes_json(ls_arena *arena, const ls_model_config *config, json_t **ranks,
                                json_t **alphas, ls_error *error) {
  product_list list = {0};
  *ranks = json_object();
  *alphas = json_object();
  if (config->lora_sizes) LS_TRY(list_products(arena, config, &list, error));
  for (int p = 0; p < list.count; p++) {
    const product *of = &list.items[p];
    const ls_lora_size size = ls_model_lora_size(config, of->layer, of->linear);
    const bool uniform = is_uniform(config, of->linear);
    if (uniform && of->layer > 0) continue;
    const char *name = uniform ? behind_layer(arena, of) : of->module;
    if (size.rank != config->lora_rank)
      json_object_set_new(*ranks, name, json_integer((json_int_t)size.rank));
    if (size.alpha < config->lora_alpha || size.alpha > config->lora_alpha)
      json_object_set_new(*alphas, name, number_json(size.alpha));
  }
  return LS_OK;
}
