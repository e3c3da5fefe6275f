/* Weights of products that are stored as blocks: what of a model can be, and what its config.json
 * says of it. */
#include <stdlib.h>
#include <string.h>

#include "lockstep/dtype.h"
#include "model/family.h"
#include "model/quantised_text.h"
#include "text/quote.h"

ls_status ls_model_quantize(ls_model_config *config, ls_precision precision, ls_error *error) {
  const int64_t of_head = config->latent ? config->value_dim : config->head_dim;
  const struct {
    const char *what;
    int64_t columns;
  } rows[] = {{"hidden_size", config->width},
              {"heads x head_dim", config->heads * of_head},
              {"q_lora_rank", config->query_latent},
              {"kv_lora_rank", config->latent},
              {"intermediate_size", config->mlp_width}};
  config->blocks = precision;
  if (!ls_precision_is_blocks(precision)) return LS_OK;
  if (config->experts)
    return ls_fail(error, LS_INPUT,
                   "%s: a mixture of experts, whose quantised weights are not built: use "
                   "quantize=none",
                   config->source);
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    if (rows[r].columns % LS_BLOCK_WEIGHTS != 0)
      return ls_fail(error, LS_INPUT,
                     "%s: %s is %lld, and rows of weights are quantised in whole blocks of %d: use "
                     "quantize=none",
                     config->source, rows[r].what, (long long)rows[r].columns,
                     (int)LS_BLOCK_WEIGHTS);
  return LS_OK;
}

ls_status ls_model_set_fp8(ls_model_config *config, ls_error *error) {
  config->fp8 = true;
  if (config->experts)
    return ls_fail(error, LS_INPUT,
                   "%s: a mixture of experts, whose products in fp8 are not built: use dtype=bf16",
                   config->source);
  if (!ls_precision_is_blocks(config->blocks)) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: quantised weights, whose products in fp8 are not built: use dtype=bf16, or "
                 "quantize=none",
                 config->source);
}

/* NF4 and FP4 are bitsandbytes', INT8 what compressed-tensors has as groups of 64. MXFP4 is in
 * files alone: weights of it are read as numbers. */
static const char of_mxfp4[] = "mxfp4", of_four_bits[] = "bitsandbytes",
                  of_int8[] = "compressed-tensors", key[] = "quantization_config",
                  again_key[] = "bnb_4bit_use_double_quant";

static ls_status expect_word(const ls_json_object *json, const char *name, const char *expected,
                             ls_error *error) {
  const char *found;
  LS_TRY(ls_json_string_or(json, name, "", &found, error));
  if (strcmp(found, expected) == 0) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found \"%.40s\"; expected \"%s\"", json->where, name,
                 found, expected);
}

static ls_status read_four_bits(const ls_json_object *json, ls_precision *precision,
                                ls_error *error) {
  bool four, again;
  const char *type;
  LS_TRY(ls_json_bool_or(json, "load_in_4bit", false, &four, error));
  if (!four)
    return ls_fail(error, LS_INPUT,
                   "%s: load_in_4bit: found false; expected true: of bitsandbytes' "
                   "formats NF4 and FP4 are built",
                   json->where);
  LS_TRY(ls_json_string_or(json, "bnb_4bit_quant_type", "fp4", &type, error)); /* as there */
  const bool fp4 = strcmp(type, "fp4") == 0;
  if (!fp4) LS_TRY(expect_word(json, "bnb_4bit_quant_type", "nf4", error));
  LS_TRY(ls_json_bool_or(json, again_key, false, &again, error));
  *precision = again ? (fp4 ? LS_BLOCKS_FP4_DOUBLE : LS_BLOCKS_NF4_DOUBLE)
                     : (fp4 ? LS_BLOCKS_FP4 : LS_BLOCKS_NF4);
  if (!ls_json_has(json, "bnb_4bit_quant_storage")) return LS_OK;
  return expect_word(json, "bnb_4bit_quant_storage", "uint8", error);
}

static ls_status expect_number(const ls_json_object *json, const char *name, int64_t expected,
                               ls_error *error) {
  int64_t found;
  LS_TRY(ls_json_count_or(json, name, 0, &found, error));
  if (found == expected) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %lld; expected %lld", json->where, name,
                 (long long)found, (long long)expected);
}

/* One group of products, whose inputs are as they are. */
static ls_status read_int8(ls_arena *arena, const ls_json_object *json, ls_error *error) {
  ls_json_object groups, group, weights;
  LS_TRY(expect_word(json, "format", "int-quantized", error));
  LS_TRY(ls_json_child(arena, json, "config_groups", &groups, error));
  const char *name = json_object_iter_key(json_object_iter((json_t *)groups.json));
  if (json_object_size(groups.json) != 1)
    return ls_fail(error, LS_INPUT, "%s: found %zu groups; expected one", groups.where,
                   json_object_size(groups.json));
  LS_TRY(ls_json_child(arena, &groups, name, &group, error));
  if (ls_json_has(&group, "input_activations"))
    return ls_fail(error, LS_INPUT,
                   "%s: input_activations: found some; expected null: weights alone are quantised",
                   group.where);
  LS_TRY(ls_json_child(arena, &group, "weights", &weights, error));
  LS_TRY(expect_number(&weights, "num_bits", 8, error));
  LS_TRY(expect_word(&weights, "type", "int", error));
  LS_TRY(expect_word(&weights, "strategy", "group", error));
  LS_TRY(expect_number(&weights, "group_size", LS_BLOCK_WEIGHTS, error));
  bool symmetric;
  LS_TRY(ls_json_bool_or(&weights, "symmetric", true, &symmetric, error));
  if (symmetric) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: symmetric: found false; expected true", weights.where);
}

static ls_status read_object(ls_arena *arena, const ls_json_object *json, ls_precision *precision,
                             ls_error *error) {
  const char *method;
  LS_TRY(ls_json_string_or(json, "quant_method", "", &method, error));
  *precision = LS_BLOCKS_INT8;
  if (strcmp(method, of_int8) == 0) return read_int8(arena, json, error);
  *precision = LS_COMPUTE;
  if (strcmp(method, of_mxfp4) == 0) return LS_OK;
  if (strcmp(method, of_four_bits) == 0) return read_four_bits(json, precision, error);
  char shown[LS_QUOTE_BYTES];
  return ls_fail(error, LS_INPUT,
                 "%s: quant_method: found \"%s\"; expected \"%s\", \"%s\" or \"%s\"", json->where,
                 ls_quote(shown, method, strlen(method)), of_four_bits, of_int8, of_mxfp4);
}

ls_status ls_config_read_blocks(ls_arena *arena, const ls_json_object *json,
                                ls_model_config *config, ls_error *error) {
  const json_t *value = json_object_get(json->json, key);
  ls_precision precision = LS_COMPUTE;
  ls_json_object child;
  if (!value || json_is_null(value)) return LS_OK;
  LS_TRY(ls_json_child(arena, json, key, &child, error));
  LS_TRY(read_object(arena, &child, &precision, error));
  return ls_model_quantize(config, precision, error);
}

/* `others`: products that are no blocks; NULL: nobody asks. */
static json_t *describe(ls_precision precision, json_t *others) {
  if (precision != LS_BLOCKS_INT8)
    return json_pack("{s:s, s:b, s:s, s:b, s:s, s:o*}", "quant_method", of_four_bits,
                     "load_in_4bit", 1, "bnb_4bit_quant_type",
                     ls_dtype_name(ls_precision_blocks(ls_precision_single(precision))), again_key,
                     (int)ls_precision_is_double(precision), "bnb_4bit_quant_storage", "uint8",
                     "llm_int8_skip_modules", others);
  return json_pack(
      "{s:s, s:s, s:s, s:{s:{s:[s], s:n, s:n, s:{s:i, s:s, s:s, s:i, s:b, s:b}}}, s:o*}",
      "quant_method", of_int8, "format", "int-quantized", "quantization_status", "compressed",
      "config_groups", "group_0", "targets", "Linear", "input_activations", "output_activations",
      "weights", "num_bits", 8, "type", "int", "strategy", "group", "group_size",
      (int)LS_BLOCK_WEIGHTS, "symmetric", 1, "dynamic", 0, "ignore", others);
}

/* Takes the json. */
static const char *text_of(ls_arena *arena, json_t *json) {
  char *dumped = ls_config_dump(json);
  if (!dumped) ls_panic("no memory for a config.json");
  const char *text = ls_arena_printf(arena, "%s\n", dumped);
  free(dumped);
  json_decref(json);
  return text;
}

const char *ls_config_scales_again(ls_arena *arena, const char *text) {
  json_t *json = json_loads(text, 0, NULL), *said = json_object_get(json, key);
  LS_ASSERT(said);
  if (json_object_set_new(said, again_key, json_true())) ls_panic("no memory for a config.json");
  return text_of(arena, json);
}

const char *ls_config_with_blocks(ls_arena *arena, const char *text, ls_precision precision,
                                  const char *const *others, int count) {
  json_t *json = json_loads(text, 0, NULL);
  const json_t *said = json_object_get(json, key);
  const bool has = said && !json_is_null(said), wants = ls_precision_is_blocks(precision);
  if (has != wants || (wants && others)) {
    json_t *names = wants && others ? json_array() : NULL;
    for (int i = 0; names && i < count; i++) json_array_append_new(names, json_string(others[i]));
    const int failed = wants ? json_object_set_new(json, key, describe(precision, names))
                             : json_object_del(json, key);
    if (failed) ls_panic("no memory for a config.json");
    return text_of(arena, json);
  }
  const bool four_bits = wants && precision != LS_BLOCKS_INT8;
  if (four_bits &&
      json_is_true(json_object_get(said, again_key)) != ls_precision_is_double(precision)) {
    if (json_object_set_new((json_t *)said, again_key,
                            json_boolean(ls_precision_is_double(precision))))
      ls_panic("no memory for a config.json");
    return text_of(arena, json);
  }
  json_decref(json);
  return text;
}
