#include "model/smaller.h"

#include <stdlib.h>
#include <string.h>

#include "text/json.h"

void ls_layers_kept(int64_t layers, int64_t few, int64_t *kept) {
  LS_ASSERT(few > 0 && few <= layers);
  for (int64_t i = 0; i < few; i++)
    kept[i] = few == 1 ? 0 : (2 * i * (layers - 1) + few - 1) / (2 * (few - 1));
}

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* Sets those of the names that the text has as numbers; whether there is one. */
static bool set_count(json_t *root, const char *const *names, int64_t count) {
  bool any = false;
  for (int n = 0; names[n]; n++) {
    if (!json_is_integer(json_object_get(root, names[n]))) continue;
    json_object_set_new(root, names[n], json_integer((json_int_t)count));
    any = true;
  }
  return any;
}

/* Of lists with an entry a layer those of the layers that are kept. */
static void keep_entries(json_t *root, const char *name, const int64_t *kept, int64_t few,
                         int64_t layers) {
  const json_t *list = json_object_get(root, name);
  if (!json_is_array(list) || (int64_t)json_array_size(list) != layers) return;
  json_t *made = json_array();
  for (int64_t i = 0; i < few; i++) json_array_append(made, json_array_get(list, (size_t)kept[i]));
  json_object_set_new(root, name, made);
}

static void cut_layers(json_t *root, const ls_model_config *config, const int64_t *kept,
                       int64_t few) {
  static const char *const counts[] = {"num_hidden_layers", "n_layer", NULL};
  static const char *const dense[] = {"first_k_dense_replace", NULL};
  if (!set_count(root, counts, few))
    json_object_set_new(root, counts[0], json_integer((json_int_t)few));
  keep_entries(root, "layer_types", kept, few, config->layers);
  keep_entries(root, "no_rope_layers", kept, few, config->layers);
  const json_int_t first = json_integer_value(json_object_get(root, dense[0]));
  int64_t before = 0;
  while (before < few && kept[before] < first) before++;
  set_count(root, dense, before);
}

/* Every number that is so many columns of the stream, or of what is as wide. */
static ls_status set_width(json_t *root, const ls_model_config *config, int64_t width,
                           ls_error *error) {
  static const char *const widths[] = {"hidden_size", "n_embd", "n_embed", NULL};
  static const char *const heads[] = {"num_attention_heads", "n_head", NULL};
  static const char *const kv_heads[] = {"num_key_value_heads", "num_kv_heads", "n_head_kv", NULL};
  static const char *const mlps[] = {"intermediate_size",
                                     "n_inner",
                                     "ffn_hidden_size",
                                     "moe_intermediate_size",
                                     "shared_expert_intermediate_size",
                                     NULL};
  const int64_t groups = config->kv_heads > 1 ? config->kv_heads : config->heads;
  const int64_t unit = config->width / common_divisor(config->heads, groups);
  if (config->latent)
    return ls_fail(error, LS_INPUT,
                   "width=%lld: a %s model's latents have columns of their own: only layers=N is "
                   "built for it",
                   (long long)width, config->family);
  if (width % unit || width > config->width)
    return ls_fail(
        error, LS_INPUT,
        "width=%lld: heads keep their columns; expected a multiple of %lld, at most %lld",
        (long long)width, (long long)unit, (long long)config->width);
  bool named = set_count(root, widths, width);
  named &= set_count(root, heads, config->heads * width / config->width);
  if (config->kv_heads > 1) set_count(root, kv_heads, config->kv_heads * width / config->width);
  for (int n = 0; mlps[n]; n++) {
    const char *const one[] = {mlps[n], NULL};
    const int64_t columns = json_integer_value(json_object_get(root, mlps[n])) * width;
    set_count(root, one, (columns + config->width - 1) / config->width);
  }
  if (named) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "width=%lld: %s says neither hidden_size nor num_attention_heads: expected both",
                 (long long)width, config->source);
}

/* A window is one only where there is a width of it. */
static int kind_of(const ls_model_config *config, int64_t layer) {
  const int kind = config->layer_kinds ? config->layer_kinds[layer] : LS_LAYER_WINDOW;
  return config->window > 0 ? kind : kind & ~LS_LAYER_WINDOW;
}

static ls_status check_layers(const ls_model_config *config, const int64_t *kept, int64_t few,
                              const ls_model_config *small, ls_error *error) {
  for (int64_t i = 0; i < few; i++) {
    const int64_t from = kept ? kept[i] : i;
    if (kind_of(config, from) == kind_of(small, i)) continue;
    return ls_fail(error, LS_INPUT,
                   "layers=%lld: layer %lld would be made of layer %lld, which is of another kind "
                   "(window, positions or experts): try another number of layers",
                   (long long)few, (long long)i, (long long)from);
  }
  return LS_OK;
}

static ls_status change(ls_arena *arena, json_t *root, const ls_model_config *config,
                        const int64_t *kept, int64_t few, int64_t width, ls_model_config *small,
                        ls_error *error) {
  if (kept) cut_layers(root, config, kept, few);
  if (width) LS_TRY(set_width(root, config, width, error));
  char *text = json_dumps(root, JSON_INDENT(2));
  if (!text) return ls_fail(error, LS_FAILED, "out of memory");
  const char *copy = ls_arena_printf(arena, "%s\n", text);
  free(text);
  LS_TRY(ls_model_config_parse(arena, config->source, copy, strlen(copy), small, error));
  if (small->layers != few || (width && small->width != width) ||
      small->head_dim != config->head_dim)
    return ls_fail(error, LS_INPUT,
                   "%s: what a %s model's layers and width are follows from other keys; expected "
                   "num_hidden_layers, hidden_size and num_attention_heads",
                   config->source, config->family);
  return check_layers(config, kept, few, small, error);
}

ls_status ls_model_smaller(ls_arena *arena, const ls_model_config *config, const int64_t *kept,
                           int64_t few, int64_t width, ls_model_config *small, ls_error *error) {
  json_error_t reason;
  json_t *root = config->text ? json_loads(config->text, 0, &reason) : NULL;
  if (!root)
    return ls_fail(error, LS_INPUT, "%s: no config.json that could be changed", config->source);
  const ls_status status =
      change(arena, root, config, kept, kept ? few : config->layers, width, small, error);
  json_decref(root);
  return status;
}
