#include <math.h>
#include <string.h>

#include "model/family.h"

/* Rotary positions as config.json has them: rope_theta, partial_rotary_factor and rope_scaling; or,
 * since transformers 5, all of these in rope_parameters. */

/* Keys of the object by rope_type, besides those that every type has. */
static const struct {
  const char *name;
  ls_rope_scaling scaling;
  const char *const keys[9];
} types[] = {
    {"default", LS_ROPE_PLAIN, {NULL}},
    {"linear", LS_ROPE_LINEAR, {"factor", NULL}},
    {"dynamic", LS_ROPE_DYNAMIC, {"factor", NULL}},
    {"yarn",
     LS_ROPE_YARN,
     {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
      "truncate", "original_max_position_embeddings", NULL}},
    {"longrope",
     LS_ROPE_LONGROPE,
     {"factor", "attention_factor", "short_factor", "long_factor",
      "original_max_position_embeddings", NULL}},
    {"llama3",
     LS_ROPE_LLAMA3,
     {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL}},
};
enum { TYPES = sizeof types / sizeof *types };

/* The object and the file's outermost one, where some numbers may stand instead. */
typedef struct rope_source {
  ls_json_object object;
  const ls_json_object *file;
} rope_source;

static ls_status check_positive(const ls_json_object *json, const char *key, double value,
                                ls_error *error) {
  if (value > 0 && isfinite(value)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected a number above 0", json->where, key,
                 value);
}

/* A key that is not known here may change the mathematics (tables by layer type). */
static ls_status check_keys(const ls_json_object *rope, int type, ls_error *error) {
  static const char *const everywhere[] = {"rope_type", "type", "rope_theta",
                                           "partial_rotary_factor", NULL};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)rope->json, key, value) {
    bool found = json_is_null(value);
    for (const char *const *known = everywhere; *known; known++)
      found = found || strcmp(key, *known) == 0;
    for (const char *const *known = types[type].keys; *known; known++)
      found = found || strcmp(key, *known) == 0;
    if (!found)
      return ls_fail(error, LS_INPUT,
                     "%s: %.60s is not known for rope_type %s: remove it if it "
                     "changes nothing",
                     rope->where, key, types[type].name);
  }
  return LS_OK;
}

/* rope_type, or type, which files have from before transformers 4.43. The first Phi-3s call
 * longrope "su". */
static ls_status find_type(const ls_json_object *rope, const ls_model_config *config, int *type,
                           ls_error *error) {
  const char *name, *old;
  LS_TRY(ls_json_string_or(rope, "type", "default", &old, error));
  LS_TRY(ls_json_string_or(rope, "rope_type", old, &name, error));
  if (ls_json_has(rope, "type") && strcmp(name, old) != 0)
    return ls_fail(error, LS_INPUT,
                   "%s: rope_type is \"%.40s\" and type \"%.40s\"; expected one of them",
                   rope->where, name, old);
  if (strcmp(name, "su") == 0 && strcmp(config->family, "phi3") == 0) name = "longrope";
  for (*type = 0; *type < TYPES; ++*type)
    if (strcmp(types[*type].name, name) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: rope_type: found \"%.60s\"; expected default, linear, dynamic, yarn, "
                 "longrope or llama3",
                 rope->where, name);
}

/* A number that may stand in the object or in the file itself: in both, it must be the same. */
static ls_status read_either(const rope_source *rope, const char *key, double fallback,
                             double *value, ls_error *error) {
  double outside;
  LS_TRY(ls_json_number_or(rope->file, key, fallback, &outside, error));
  LS_TRY(ls_json_number_or(&rope->object, key, outside, value, error));
  if (!ls_json_has(rope->file, key) || !(*value < outside || *value > outside)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s is %g, and %g in the file itself; expected one of them",
                 rope->object.where, key, *value, outside);
}

/* The positions it was trained for before they were stretched. */
static ls_status read_original(const rope_source *rope, ls_model_config *config, ls_error *error) {
  static const char *const key = "original_max_position_embeddings";
  LS_TRY(
      read_either(rope, key, (double)config->positions, &config->rope_original_positions, error));
  return check_positive(&rope->object, key, config->rope_original_positions, error);
}

static ls_status read_factor(const rope_source *rope, bool needed, ls_model_config *config,
                             ls_error *error) {
  const double ratio = (double)config->positions / config->rope_original_positions;
  if (needed)
    LS_TRY(ls_json_number(&rope->object, "factor", &config->rope_factor, error));
  else
    LS_TRY(ls_json_number_or(&rope->object, "factor", ratio, &config->rope_factor, error));
  return check_positive(&rope->object, "factor", config->rope_factor, error);
}

static ls_status read_llama3(const rope_source *rope, ls_model_config *config, ls_error *error) {
  const ls_json_object *json = &rope->object;
  LS_TRY(ls_json_number(json, "low_freq_factor", &config->rope_low_freq_factor, error));
  LS_TRY(ls_json_number(json, "high_freq_factor", &config->rope_high_freq_factor, error));
  LS_TRY(check_positive(json, "low_freq_factor", config->rope_low_freq_factor, error));
  if (config->rope_high_freq_factor > config->rope_low_freq_factor) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: high_freq_factor: found %g; expected above low_freq_factor",
                 json->where, config->rope_high_freq_factor);
}

static double yarn_scale(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

static ls_status read_yarn(const rope_source *rope, ls_model_config *config, ls_error *error) {
  const ls_json_object *json = &rope->object;
  const double factor = config->rope_factor;
  double one, all;
  bool rounded;
  LS_TRY(ls_json_number_or(json, "beta_fast", 32, &config->rope_beta_fast, error));
  LS_TRY(ls_json_number_or(json, "beta_slow", 1, &config->rope_beta_slow, error));
  LS_TRY(ls_json_number_or(json, "mscale", 0, &one, error));
  LS_TRY(ls_json_number_or(json, "mscale_all_dim", 0, &all, error));
  LS_TRY(ls_json_bool_or(json, "truncate", true, &rounded, error));
  LS_TRY(check_positive(json, "beta_fast", config->rope_beta_fast, error));
  LS_TRY(check_positive(json, "beta_slow", config->rope_beta_slow, error));
  config->rope_exact_range = !rounded;
  const double usual = one > 0 && all > 0 ? yarn_scale(factor, one) / yarn_scale(factor, all)
                                          : yarn_scale(factor, 1);
  return ls_json_number_or(json, "attention_factor", usual, &config->rope_attention_factor, error);
}

static ls_status read_factors(ls_arena *arena, const rope_source *rope, const char *key,
                              int64_t pairs, const double **factors, ls_error *error) {
  double *values;
  int count;
  LS_TRY(ls_json_numbers(arena, &rope->object, key, &values, &count, error));
  if (count != pairs)
    return ls_fail(error, LS_INPUT,
                   "%s: %s has %d numbers; expected %lld, one for each pair of "
                   "columns that are turned",
                   rope->object.where, key, count, (long long)pairs);
  for (int i = 0; i < count; i++) LS_TRY(check_positive(&rope->object, key, values[i], error));
  *factors = values;
  return LS_OK;
}

static ls_status read_longrope(ls_arena *arena, const rope_source *rope, ls_model_config *config,
                               ls_error *error) {
  const int64_t pairs = (config->rotary_dim ? config->rotary_dim : config->head_dim) / 2;
  const double factor = config->rope_factor, original = config->rope_original_positions;
  LS_TRY(read_factors(arena, rope, "short_factor", pairs, &config->rope_short, error));
  LS_TRY(read_factors(arena, rope, "long_factor", pairs, &config->rope_long, error));
  const double usual = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
  LS_TRY(ls_json_number_or(&rope->object, "attention_factor", usual, &config->rope_attention_factor,
                           error));
  return check_positive(&rope->object, "attention_factor", config->rope_attention_factor, error);
}

static ls_status read_scaling(ls_arena *arena, const rope_source *rope, ls_model_config *config,
                              ls_error *error) {
  int type;
  LS_TRY(find_type(&rope->object, config, &type, error));
  LS_TRY(check_keys(&rope->object, type, error));
  config->rope_scaling = types[type].scaling;
  switch (config->rope_scaling) {
    case LS_ROPE_PLAIN: return LS_OK;
    case LS_ROPE_LINEAR: return read_factor(rope, true, config, error);
    case LS_ROPE_DYNAMIC:
      config->rope_original_positions = (double)config->positions;
      LS_TRY(read_factor(rope, true, config, error));
      if (config->rope_factor >= 1 && config->rope_factor <= 1e6) return LS_OK;
      return ls_fail(error, LS_INPUT, "%s: factor: found %g; expected from 1 to a million",
                     rope->object.where, config->rope_factor);
    case LS_ROPE_LLAMA3:
      LS_TRY(read_factor(rope, true, config, error));
      LS_TRY(read_llama3(rope, config, error));
      return read_original(rope, config, error);
    case LS_ROPE_YARN:
      LS_TRY(read_original(rope, config, error));
      LS_TRY(read_factor(rope, false, config, error));
      return read_yarn(rope, config, error);
    case LS_ROPE_LONGROPE: break;
  }
  LS_TRY(read_original(rope, config, error));
  LS_TRY(read_factor(rope, false, config, error));
  return read_longrope(arena, rope, config, error);
}

/* How many of a head's columns are turned, as transformers counts them. */
static ls_status read_partial(const rope_source *rope, double partial, ls_model_config *config,
                              ls_error *error) {
  static const char *const key = "partial_rotary_factor";
  const ls_json_object *where = rope->object.json ? &rope->object : rope->file;
  double part;
  LS_TRY(read_either(rope, key, partial < 0 ? 1 : partial, &part, error));
  if (partial < 0 && (part < 1 || part > 1))
    return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected 1", where->where, key, part);
  if (!(part > 0 && part <= 1))
    return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected above 0, and at most 1",
                   where->where, key, part);
  const int64_t columns = (int64_t)((double)config->head_dim * part);
  if (columns % 2 != 0 || columns == 0)
    return ls_fail(error, LS_INPUT,
                   "%s: head_dim: found %lld, of which %lld columns are turned; expected an even "
                   "number, as rotary positions need",
                   rope->file->where, (long long)config->head_dim, (long long)columns);
  config->rotary_dim = columns == config->head_dim ? 0 : columns;
  return LS_OK;
}

ls_status ls_read_rope_object(ls_arena *arena, const ls_json_object *file,
                              const ls_json_object *object, double theta, double partial,
                              ls_model_config *config, ls_error *error) {
  const rope_source rope = {*object, file};
  LS_TRY(read_either(&rope, "rope_theta", theta, &config->rope_theta, error));
  LS_TRY(check_positive(file, "rope_theta", config->rope_theta, error));
  LS_TRY(read_partial(&rope, partial, config, error));
  return object->json ? read_scaling(arena, &rope, config, error) : LS_OK;
}

ls_status ls_find_rope(ls_arena *arena, const ls_json_object *json, ls_json_object *rope,
                       ls_error *error) {
  const bool scaling = ls_json_has(json, "rope_scaling");
  if (scaling && ls_json_has(json, "rope_parameters"))
    return ls_fail(error, LS_INPUT, "%s: rope_scaling and rope_parameters; expected one of them",
                   json->where);
  return ls_json_child_or(arena, json, scaling ? "rope_scaling" : "rope_parameters", rope, error);
}

ls_status ls_read_rope(ls_arena *arena, const ls_json_object *json, double theta, double partial,
                       ls_model_config *config, ls_error *error) {
  ls_json_object rope;
  LS_TRY(ls_find_rope(arena, json, &rope, error));
  return ls_read_rope_object(arena, json, &rope, theta, partial, config, error);
}

ls_status ls_read_two_ropes(ls_arena *arena, const ls_json_object *json, const ls_json_object *both,
                            double theta, ls_model_config *config, ls_error *error) {
  ls_json_object full, sliding;
  ls_model_config local = *config;
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)both->json, key, value) {
    if (strcmp(key, "full_attention") != 0 && strcmp(key, "sliding_attention") != 0)
      return ls_fail(error, LS_INPUT,
                     "%s: found %.60s; expected full_attention and sliding_attention alone",
                     both->where, key);
  }
  LS_TRY(ls_json_child(arena, both, "full_attention", &full, error));
  LS_TRY(ls_json_child(arena, both, "sliding_attention", &sliding, error));
  LS_TRY(ls_read_rope_object(arena, json, &full, theta, -1, config, error));
  const ls_json_object none = {json->where, NULL};
  LS_TRY(ls_read_rope_object(arena, &none, &sliding, 1e4, -1, &local, error));
  if (local.rope_scaling != LS_ROPE_PLAIN)
    return ls_fail(error, LS_INPUT, "%s: rope_type: found another; expected default",
                   sliding.where);
  config->rope_local_theta = local.rope_theta;
  return LS_OK;
}
