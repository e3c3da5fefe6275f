#include "store/weights.h"

#include <stdlib.h>
#include <string.h>

#include "store/quantised.h"

struct ls_weights {
  ls_safetensors *file;
  ls_weight_plan plan;
  const ls_stored_tensor **tensors; /* by tensor of the plan */
  ls_weight_place *places;          /* those of one parameter after those of another */
  int *first;                       /* by parameter: the first of its places; and one behind */
  int parameters;
};

/* Finding, in a set that may have all names behind a prefix of its own. */
typedef struct name_search {
  ls_arena *arena;
  const ls_safetensors *file;
  const char *path, *prefix;
  ls_weights_kind kind;
  size_t part, parts;
  bool draws_head; /* it may be missing */
} name_search;

static bool is_meant(const name_search *search, const ls_stored_layout *layout) {
  switch (search->kind) {
    case LS_WEIGHTS_ALL: return true;
    case LS_WEIGHTS_BASE: return !layout->adapter;
    case LS_WEIGHTS_START: return !layout->adapter || layout->module;
    case LS_WEIGHTS_ADAPTERS: return layout->adapter;
  }
  return true;
}

/* A head over classes that the file was not made for: it stays as it is drawn. */
static bool may_lack(const name_search *search, const ls_stored_layout *layout) {
  return search->draws_head && layout->module;
}

/* As the weights have it where it is kept with adapters, too. */
static const char *name_beside(const ls_stored_layout *layout) {
  return layout->module && layout->adapter ? layout->name + strlen(LS_ADAPTERS_PREFIX)
                                           : layout->name;
}

static const ls_stored_tensor *find(const name_search *search, const ls_stored_layout *layout) {
  const char *all[3] = {layout->name, layout->plain, name_beside(layout)};
  for (int i = 0; i < 3; i++) {
    const char *whole = ls_arena_printf(search->arena, "%s%s", search->prefix, all[i]);
    const ls_stored_tensor *tensor = ls_safetensors_find(search->file, whole);
    if (tensor) return tensor;
  }
  return NULL;
}

static const char *shape_text(ls_arena *arena, int ndim, const int64_t *dims) {
  const char *text = "[";
  for (int d = 0; d < ndim; d++)
    text = ls_arena_printf(arena, "%s%s%lld", text, d ? ", " : "", (long long)dims[d]);
  return ls_arena_printf(arena, "%s]", text);
}

/* Quantised weights are stored as their products read them, [out, in], where numbers are not: so
 * transformers has bitsandbytes save those of GPT-2. */
static ls_status turn_quantised(ls_stored_layout *layout, const ls_stored_tensor *tensor,
                                ls_error *error) {
  if (!tensor->quantised || !layout->transposed || layout->stack) return LS_OK;
  if (tensor->quantised->blocks == LS_INT8)
    return ls_fail(error, LS_INPUT,
                   "%s: %.100s is int8, and numbers of it would be stored transposed: expected nf4 "
                   "or fp4, as bitsandbytes saves them",
                   tensor->file, tensor->name);
  const int64_t in = layout->dims[0];
  layout->dims[0] = layout->dims[1];
  layout->dims[1] = in;
  layout->transposed = false;
  return LS_OK;
}

static ls_status check_tensor(const name_search *search, const ls_stored_layout *layout,
                              const ls_stored_tensor *tensor, ls_error *error) {
  int64_t dims[3];
  const int ndim = ls_stored_shape(layout, dims);
  bool same = tensor->ndim == ndim;
  for (int d = 0; same && d < ndim; d++) same = tensor->dims[d] == dims[d];
  if (!same)
    return ls_fail(error, LS_INPUT, "%s: %.100s has shape %s; expected %s, as %s", tensor->file,
                   tensor->name, shape_text(search->arena, tensor->ndim, tensor->dims),
                   shape_text(search->arena, ndim, dims),
                   layout->adapter ? "adapter_config.json and the base's config.json say"
                                   : "config.json says");
  switch (tensor->dtype) {
    case LS_F32:
    case LS_BF16:
    case LS_F16:
    case LS_F64: return LS_OK;
    default: break;
  }
  return ls_fail(error, LS_INPUT,
                 "%s: %.100s has elements of type %s; expected F32, BF16, F16 or F64", tensor->file,
                 tensor->name, tensor->format);
}

/* Whether parameters of the tensor are stored as blocks, and so frozen. */
static bool has_blocks(const ls_graph *graph, const ls_stored_layout *layout) {
  const int first = layout->pieces.items[0].parameter;
  return ls_precision_is_blocks(graph->parameters.items[first].about.precision);
}

/* Scales of 8 bits are of one product's weights, and quantised once. */
static ls_status check_double(const ls_stored_layout *layout, const ls_stored_tensor *tensor,
                              ls_dtype wanted, ls_error *error) {
  if (layout->pieces.count > 1)
    return ls_fail(
        error, LS_INPUT,
        "%s: %.100s has the weights of several products, whose scales would be quantised "
        "together: use quantize=%s",
        tensor->file, tensor->name, ls_dtype_name(wanted));
  if (!tensor->quantised || ls_quantised_is_double(tensor->quantised)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %.100s has %s: use quantize=%s", tensor->file, tensor->name,
                 tensor->quantised->nested ? "scales of 8 bits of another map or length"
                                           : "scales in fp32, which would be quantised again",
                 ls_dtype_name(wanted));
}

/* Blocks are of rows, and what was quantised before is not quantised again. */
static ls_status check_blocks(const ls_graph *graph, const ls_stored_layout *layout,
                              const ls_stored_tensor *tensor, bool others, ls_error *error) {
  if (!has_blocks(graph, layout)) return LS_OK;
  const int first = layout->pieces.items[0].parameter;
  const ls_precision precision = graph->parameters.items[first].about.precision;
  const ls_dtype wanted = ls_blocks_single(ls_precision_blocks(precision));
  if (tensor->quantised && tensor->quantised->blocks != wanted)
    return ls_fail(error, LS_INPUT,
                   "%s: %.100s is quantised as %s, and would be quantised again: use quantize=%s "
                   "or quantize=none",
                   tensor->file, tensor->name, tensor->format, tensor->format);
  if (ls_precision_is_double(precision)) LS_TRY(check_double(layout, tensor, wanted, error));
  if (tensor->quantised || !others) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: %.100s is not quantised, where others are: use quantize=none", tensor->file,
                 tensor->name);
}

static void list_places(ls_arena *arena, ls_weights *weights) {
  const ls_weight_plan *plan = &weights->plan;
  int *first = LS_NEW_ARRAY(arena, int, weights->parameters + 2), all = 0;
  for (int i = 0; i < plan->count; i++)
    for (int p = 0; p < plan->tensors[i].pieces.count; p++, all++)
      first[plan->tensors[i].pieces.items[p].parameter + 2]++;
  for (int p = 0; p < weights->parameters; p++) first[p + 2] += first[p + 1];
  weights->places = LS_NEW_ARRAY(arena, ls_weight_place, all + 1);
  for (int i = 0; i < plan->count; i++)
    for (int p = 0; p < plan->tensors[i].pieces.count; p++) {
      const ls_weight_piece *piece = &plan->tensors[i].pieces.items[p];
      weights->places[first[piece->parameter + 1]++] =
          (ls_weight_place){&plan->tensors[i], piece, weights->tensors[i]};
    }
  weights->first = first;
}

static ls_status find_all(const name_search *search, const ls_graph *graph, ls_weights *weights,
                          ls_error *error) {
  const ls_weight_plan *plan = &weights->plan;
  bool any = false; /* is quantised */
  for (int i = 0; i < ls_safetensors_count(search->file); i++)
    any |= ls_safetensors_at(search->file, i)->quantised != NULL;
  for (int i = 0; i < plan->count; i++) {
    ls_stored_layout *layout = &plan->tensors[i];
    if (!is_meant(search, layout)) continue;
    const ls_stored_tensor *tensor = find(search, layout);
    /* What no gradient reaches has none in a file. */
    const int parameter = layout->pieces.items[0].parameter;
    const bool constant = ls_parameter_is_constant(&graph->parameters.items[parameter].about);
    if (!tensor && constant && *search->prefix) continue;
    if (!tensor && may_lack(search, layout)) continue;
    if (!tensor)
      return ls_fail(error, LS_INPUT,
                     "%s: no tensor %s%s, which a %s model of this config.json has", search->path,
                     search->prefix, layout->name, plan->family);
    LS_TRY(turn_quantised(layout, tensor, error));
    LS_TRY(check_tensor(search, layout, tensor, error));
    LS_TRY(check_blocks(graph, layout, tensor, any, error));
    weights->tensors[i] = tensor;
  }
  list_places(search->arena, weights);
  return LS_OK;
}

/* A head in the file of a tied model. */
static ls_status check_tied_head(const name_search *search, const ls_weights *weights,
                                 const ls_stored_tensor *head, ls_error *error) {
  const ls_stored_tensor *table = weights->tensors[0];
  if (head->dtype == table->dtype && head->bytes == table->bytes) {
    const size_t at_once = (head->bytes + search->parts - 1) / search->parts;
    const size_t begin = search->part * at_once;
    const size_t left = begin < head->bytes ? head->bytes - begin : 0;
    if (left == 0 || memcmp((const char *)head->data + begin, (const char *)table->data + begin,
                            left < at_once ? left : at_once) == 0)
      return LS_OK;
  }
  return ls_fail(error, LS_INPUT,
                 "%s: %s differs from %s, though config.json ties them; set tie_word_embeddings to "
                 "false there, or remove the tensor",
                 head->file, head->name, table->name);
}

static bool is_used(const ls_weights *weights, const ls_stored_tensor *tensor) {
  for (int i = 0; i < weights->plan.count; i++)
    if (weights->tensors[i] == tensor) return true;
  return false;
}

/* The head of tokens, of a model that has one of classes now. */
static bool is_other_head(const ls_weight_plan *plan, const char *name) {
  for (const char *const *head = plan->other_heads; head && *head; head++) {
    const size_t length = strlen(*head);
    if (strncmp(name, *head, length) == 0 && name[length] == '.') return true;
  }
  return false;
}

/* A module of the weights whose trained form is in the file of adapters. */
static bool is_kept_apart(const ls_weight_plan *plan, const char *name) {
  for (int i = 0; i < plan->count; i++) {
    const ls_stored_layout *layout = &plan->tensors[i];
    if (layout->module && layout->adapter &&
        (strcmp(name_beside(layout), name) == 0 || strcmp(layout->plain, name) == 0))
      return true;
  }
  return false;
}

/* Whether the file has every tensor that is meant. */
static bool has_all(const name_search *search, const ls_weight_plan *plan) {
  for (int i = 0; i < plan->count; i++)
    if (is_meant(search, &plan->tensors[i]) && !may_lack(search, &plan->tensors[i]) &&
        !find(search, &plan->tensors[i]))
      return false;
  return true;
}

/* The plan of the form that the file is in: the usual one, unless the other one fits better. */
static ls_status choose_plan(const name_search *search, const ls_model_config *config,
                             const ls_graph *graph, ls_weight_plan *plan, ls_error *error) {
  ls_weight_plan other;
  LS_TRY(ls_weights_plan(search->arena, config, graph, plan, error));
  if (!ls_weights_other_form(config) || has_all(search, plan)) return LS_OK;
  LS_TRY(ls_weights_plan_form(search->arena, config, graph, true, &other, error));
  if (has_all(search, &other)) *plan = other;
  return LS_OK;
}

/* The plan of all layers that the files have; empty where they have no more than the model. */
static ls_status plan_stored(const name_search *search, const ls_model_config *config,
                             ls_weight_plan *plan, ls_error *error) {
  const ls_build_options one = {.mode = LS_MODEL_FORWARD, .tokens = 1, .sequence = 1};
  ls_model_config stored = *config;
  ls_graph *graph;
  *plan = (ls_weight_plan){0};
  if (config->stored_layers <= config->layers) return LS_OK;
  stored.layers = config->stored_layers;
  LS_TRY(ls_model_build(search->arena, &stored, &one, &graph, error));
  return choose_plan(search, &stored, graph, plan, error);
}

static bool is_planned(const ls_weight_plan *plan, const char *name) {
  for (int i = 0; i < plan->count; i++)
    if (strcmp(plan->tensors[i].name, name) == 0 || strcmp(plan->tensors[i].plain, name) == 0)
      return true;
  return false;
}

/* A layer behind the model's own, for further tokens ("layers.61.eh_proj.weight"). */
static bool is_of_next_layer(const ls_weight_plan *plan, const ls_model_config *config,
                             const char *name) {
  static const char layers[] = "layers.";
  const int64_t own =
      config->stored_layers > config->layers ? config->stored_layers : config->layers;
  const size_t prefix = strlen(plan->prefix);
  if (strncmp(name, plan->prefix, prefix) != 0) return false;
  name += prefix;
  if (strncmp(name, layers, sizeof layers - 1) != 0) return false;
  char *end;
  const long long number = strtoll(name + sizeof layers - 1, &end, 10);
  return *end == '.' && number >= own && number < own + config->next_layers;
}

/* Every tensor of the file is a parameter's, a known buffer, a head that is tied, or of a layer
 * that is left out or for further tokens. */
static ls_status check_others(const name_search *search, const ls_model_config *config,
                              const ls_weights *weights, ls_error *error) {
  ls_weight_plan stored;
  LS_TRY(plan_stored(search, config, &stored, error));
  const ls_weight_plan *plan = &weights->plan;
  const size_t prefix = strlen(search->prefix);
  const int count = ls_safetensors_count(search->file);
  for (int i = 0; i < count; i++) {
    const ls_stored_tensor *tensor = ls_safetensors_at(search->file, i);
    if (strncmp(tensor->name, search->prefix, prefix) != 0 || is_used(weights, tensor)) continue;
    const char *name = tensor->name + prefix;
    if (ls_weight_ignored(plan, name) || is_other_head(plan, name) || is_planned(&stored, name) ||
        is_of_next_layer(plan, config, name))
      continue;
    if (search->kind == LS_WEIGHTS_BASE && is_kept_apart(plan, name)) continue;
    const bool has_head = search->kind != LS_WEIGHTS_ADAPTERS && plan->tied_head;
    if (has_head && strcmp(name, plan->tied_head) == 0) {
      LS_TRY(check_tied_head(search, weights, tensor, error));
      continue;
    }
    return ls_fail(error, LS_INPUT, "%s: %.100s is no tensor of a %s model of this config.json",
                   tensor->file, tensor->name, plan->family);
  }
  return LS_OK;
}

static ls_status match(const name_search *search, const ls_model_config *config,
                       const ls_graph *graph, ls_weights *weights, ls_error *error) {
  LS_TRY(find_all(search, graph, weights, error));
  return check_others(search, config, weights, error);
}

ls_status ls_weights_open(ls_arena *arena, const ls_model_config *config, const ls_graph *graph,
                          const ls_weights_source *source, ls_weights **weights, ls_error *error) {
  ls_weights *opened = LS_NEW(arena, ls_weights);
  opened->parameters = graph->parameters.count;
  LS_TRY(ls_safetensors_open(source->path, source->stem, &opened->file, error));
  const name_search search = {arena,
                              opened->file,
                              source->path,
                              source->prefix ? source->prefix : "",
                              source->kind,
                              source->parts ? (size_t)source->part : 0,
                              source->parts ? (size_t)source->parts : 1,
                              config->draws_head};
  ls_status status = choose_plan(&search, config, graph, &opened->plan, error);
  if (status == LS_OK) {
    opened->tensors = LS_NEW_ARRAY(arena, const ls_stored_tensor *, opened->plan.count);
    status = match(&search, config, graph, opened, error);
  }
  if (status != LS_OK) {
    ls_safetensors_close(&opened->file);
    return status;
  }
  *weights = opened;
  return LS_OK;
}

void ls_weights_close(ls_weights **weights) {
  if (!*weights) return;
  ls_safetensors_close(&(*weights)->file);
  *weights = NULL;
}

const ls_weight_place *ls_weights_places(const ls_weights *weights, int parameter, int *count) {
  LS_ASSERT(parameter >= 0 && parameter < weights->parameters);
  *count = weights->first[parameter + 1] - weights->first[parameter];
  return &weights->places[weights->first[parameter]];
}

int64_t ls_weights_bytes_read(const ls_weights *weights) {
  return ls_safetensors_bytes_read(weights->file);
}

const ls_weight_plan *ls_weights_layout(const ls_weights *weights) {
  return &weights->plan;
}

const ls_stored_tensor *ls_weights_tensor(const ls_weights *weights, int index) {
  LS_ASSERT(index >= 0 && index < weights->plan.count);
  return weights->tensors[index];
}
