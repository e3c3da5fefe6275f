#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/family.h"

/* More would not be a model of this decade, and overflows sums of sizes. */
static const double most_parameters = 1e15;
enum { MOST_LAYERS = 65536, MOST_HEAD = 65536 };

static ls_status read_key(const ls_json_object *json, const ls_config_key *key,
                          ls_model_config *config, ls_error *error) {
  const bool alias = key->alias && ls_json_has(json, key->alias);
  if (alias && ls_json_has(json, key->key))
    return ls_fail(error, LS_INPUT, "%s: %s and %s, which mean the same; expected one of them",
                   json->where, key->key, key->alias);
  const char *name = alias ? key->alias : key->key;
  void *field = (char *)config + key->offset;
  switch (key->kind) {
    case LS_KEY_COUNT: return ls_json_count_or(json, name, (int64_t)key->fallback, field, error);
    case LS_KEY_BOOL: return ls_json_bool_or(json, name, key->fallback > 0, field, error);
    case LS_KEY_NUMBER: break;
  }
  LS_TRY(ls_json_number_or(json, name, key->fallback, field, error));
  if (*(double *)field >= 0 && isfinite(*(double *)field)) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected a number not below 0", json->where,
                 name, *(double *)field);
}

static bool same_value(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b)) {
    const double difference = json_number_value(a) - json_number_value(b);
    return !(difference < 0 || difference > 0);
  }
  return json_equal(a, b);
}

static ls_status check_guard(const ls_json_object *json, const ls_config_guard *guard,
                             ls_error *error) {
  if (!ls_json_has(json, guard->key)) return LS_OK;
  const json_t *value = json_object_get(json->json, guard->key);
  json_t *allowed = json_loads(guard->allowed, JSON_DECODE_ANY, NULL);
  const bool same = same_value(value, allowed);
  json_decref(allowed);
  if (same) return LS_OK;
  char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const ls_status status =
      ls_fail(error, LS_INPUT,
              "%s: %s: found %.80s; expected %s: this changes the model's mathematics in a way "
              "that is not built",
              json->where, guard->key, found ? found : "a value", guard->allowed);
  free(found);
  return status;
}

/* Of every family. */
static const ls_config_guard common_guards[] = {{"add_cross_attention", "false"},
                                                {"is_encoder_decoder", "false"},
                                                {"is_causal", "true"},
                                                {"use_bidirectional_attention", "false"},
                                                {"pruned_heads", "{}"},
                                                {"token_classification_bias", "true"},
                                                {0}};

/* Keys that say nothing about the mathematics of a language model: where the file comes from, how
 * weights are stored, what generating takes for defaults, heads for other
 * tasks, and notes. Each stands between blanks. */
static const char common_unused[] =
    " comment license note source architectures attn_implementation auto_map bad_words_ids"
    " begin_suppress_tokens chunk_size_feed_forward classifier_dropout classifier_pooling"
    " cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype"
    " early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty"
    " finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label"
    " is_decoder keys_to_ignore_at_inference label2id length_penalty max_length min_length"
    " model_type name_or_path no_repeat_ngram_size num_beam_groups num_beams num_labels"
    " num_return_sequences output_attentions output_hidden_states output_scores pad_token_id"
    " prefix pretraining_tp problem_type remove_invalid_values repetition_penalty return_dict"
    " return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature"
    " tf_legacy_loss tokenizer_class top_k top_p torch_dtype torchscript transformers_version"
    " typical_p unk_token_id unsloth_fixed unsloth_version use_bfloat16 use_cache"
    " bos_token_id eos_token_id text_vectors"
    " ";

static bool lists(const char *const *keys, const char *key) {
  for (; keys && *keys; keys++)
    if (strcmp(*keys, key) == 0) return true;
  return false;
}

static bool is_common(const char *key) {
  const size_t length = strlen(key);
  if (!length || strchr(key, ' ')) return false;
  for (const char *at = common_unused; (at = strstr(at, key)) != NULL; at++)
    if (at[-1] == ' ' && at[length] == ' ') return true;
  return false;
}

static bool guards_list(const ls_config_guard *guards, const char *key) {
  for (; guards && guards->key; guards++)
    if (strcmp(guards->key, key) == 0) return true;
  return false;
}

static bool is_known(const ls_family *family, const char *key) {
  for (const ls_config_key *each = family->keys; each->key; each++)
    if (strcmp(each->key, key) == 0 || (each->alias && strcmp(each->alias, key) == 0)) return true;
  return lists(family->others, key) || lists(family->unused, key) ||
         lists(ls_family_dropout_keys(family), key) || guards_list(family->guards, key) ||
         is_common(key) || guards_list(common_guards, key) ||
         strcmp(key, "quantization_config") == 0;
}

/* What asks for nothing, whatever it is about. A leading underscore is transformers' own note. */
static bool asks_nothing(const char *key, const json_t *value) {
  return *key == '_' || json_is_null(value) || json_is_false(value) ||
         (json_is_array(value) && json_array_size(value) == 0) ||
         (json_is_object(value) && json_object_size(value) == 0);
}

/* A key that is not known may change the mathematics. */
static ls_status check_unknown(const ls_json_object *json, const ls_family *family,
                               ls_error *error) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)json->json, key, value) {
    if (asks_nothing(key, value) || is_known(family, key)) continue;
    char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const ls_status status =
        ls_fail(error, LS_INPUT,
                "%s: %.60s: found %.60s; this key is not known for the family %s and may change "
                "its mathematics: remove it if it does not",
                json->where, key, found ? found : "a value", family->name);
    free(found);
    return status;
  }
  return LS_OK;
}

/* A family's keys say by their names what they are of: attn_pdrop, embd_pdrop, resid_pdrop. */
static double *dropout_of(ls_model_config *config, const char *key) {
  if (strncmp(key, "att", 3) == 0) return &config->dropout.attention;
  if (strncmp(key, "emb", 3) == 0) return &config->dropout.embedding;
  return &config->dropout.hidden;
}

static ls_status read_dropout(const ls_json_object *json, const ls_family *family,
                              ls_model_config *config, ls_error *error) {
  for (const char *const *key = ls_family_dropout_keys(family); *key; key++) {
    double rate;
    LS_TRY(ls_json_number_or(json, *key, family->dropout_fallback, &rate, error));
    if (!(rate >= 0 && rate < 1))
      return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected from 0 to below 1", json->where,
                     *key, rate);
    *dropout_of(config, *key) = rate;
  }
  return LS_OK;
}

/* One id, a list of them, or null. A missing key is Hugging Face's default. */
static ls_status read_ends(ls_arena *arena, const ls_json_object *json, const ls_family *family,
                           ls_model_config *config, ls_error *error) {
  const json_t *value = json_object_get(json->json, "eos_token_id");
  if (value && json_is_null(value)) return LS_OK;
  if (!value && family->end_fallback < 0) return LS_OK;
  config->end_count = 1;
  if (!json_is_array(value))
    return ls_json_int_or(json, "eos_token_id", family->end_fallback, config->end_ids, error);
  int64_t *ids;
  LS_TRY(ls_json_ints(arena, json, "eos_token_id", &ids, &config->end_count, error));
  if (config->end_count > LS_MAX_END_IDS)
    return ls_fail(error, LS_INPUT, "%s: eos_token_id: found %d ids; expected at most %d",
                   json->where, config->end_count, LS_MAX_END_IDS);
  memcpy(config->end_ids, ids, sizeof *ids * (size_t)config->end_count);
  return LS_OK;
}

static ls_status read_begin(const ls_json_object *json, const ls_family *family,
                            ls_model_config *config, ls_error *error) {
  const json_t *value = json_object_get(json->json, "bos_token_id");
  const int64_t fallback = value && json_is_null(value) ? -1 : family->begin_fallback;
  return ls_json_int_or(json, "bos_token_id", fallback, &config->begin_id, error);
}

static ls_status check_size(const ls_json_object *json, const ls_model_config *config,
                            ls_error *error) {
  const double width = (double)config->width, head_dim = (double)config->head_dim;
  const double heads = 2 * ((double)config->heads + (double)config->kv_heads) * head_dim;
  const double dense = 3 * (double)config->mlp_width + 3 * (double)config->shared_width;
  const double each = 1 + 3 * (double)ls_model_expert_width(config);
  const double latents = (double)config->latent + (double)config->query_latent;
  const double layer =
      width * (heads + 1 + dense + (double)config->experts * each) + latents * (width + heads);
  const double outside = width * (2 * (double)config->vocabulary + (double)config->positions);
  const double total = (double)config->layers * layer + outside;
  if (total > most_parameters)
    return ls_fail(error, LS_INPUT, "%s: about %g parameters; expected at most %g", json->where,
                   total, most_parameters);
  if (config->head_dim > MOST_HEAD)
    return ls_fail(error, LS_INPUT, "%s: heads of %lld elements (head_dim); expected at most %d",
                   json->where, (long long)config->head_dim, MOST_HEAD);
  return LS_OK;
}

/* Whether it is an encoder with a decoder that reads it, by its name or by what it says. */
static bool is_encoder_decoder(const ls_json_object *json, const char *name) {
  static const char *const names[] = {"t5",      "mt5",     "umt5",   "longt5",  "bart",
                                      "mbart",   "led",     "marian", "pegasus", "m2m_100",
                                      "whisper", "t5gemma", NULL};
  const json_t *value = json_object_get(json->json, "is_encoder_decoder");
  return json_is_true(value) || lists(names, name);
}

static ls_status find_family(ls_arena *arena, const ls_json_object *json, const ls_family **family,
                             ls_error *error) {
  const char *name;
  if (!ls_json_has(json, "model_type"))
    return ls_fail(error, LS_INPUT, "%s: no model_type; expected one of %s", json->where,
                   ls_family_names(arena));
  LS_TRY(ls_json_string(json, "model_type", &name, error));
  *family = ls_family_find(name);
  if (*family) return LS_OK;
  if (is_encoder_decoder(json, name))
    return ls_fail(error, LS_INPUT,
                   "%s: model_type: found \"%.60s\", an encoder whose tokens a decoder attends to, "
                   "which is not built: a model here is one stream of tokens; expected a decoder "
                   "(llama, qwen3, gemma2, ...) for text from text, or an encoder (bert, roberta, "
                   "modernbert) for classes and vectors",
                   json->where, name);
  return ls_fail(error, LS_INPUT, "%s: model_type: found \"%.60s\"; expected one of %s",
                 json->where, name, ls_family_names(arena));
}

static ls_status read_object(ls_arena *arena, const ls_json_object *json, ls_model_config *config,
                             ls_error *error) {
  const ls_family *family;
  LS_TRY(find_family(arena, json, &family, error));
  config->family = family->name;
  for (const ls_config_guard *guard = common_guards; guard->key; guard++)
    LS_TRY(check_guard(json, guard, error));
  for (const ls_config_guard *guard = family->guards; guard && guard->key; guard++)
    LS_TRY(check_guard(json, guard, error));
  LS_TRY(check_unknown(json, family, error));
  for (const ls_config_key *key = family->keys; key->key; key++)
    LS_TRY(read_key(json, key, config, error));
  if (config->initializer_range > 1)
    return ls_fail(error, LS_INPUT, "%s: initializer_range: found %g; expected at most 1",
                   json->where, config->initializer_range);
  if (config->layers > MOST_LAYERS)
    return ls_fail(error, LS_INPUT, "%s: %lld layers; expected at most %d", json->where,
                   (long long)config->layers, MOST_LAYERS);
  LS_TRY(read_dropout(json, family, config, error));
  LS_TRY(read_begin(json, family, config, error));
  LS_TRY(read_ends(arena, json, family, config, error));
  LS_TRY(family->read(arena, json, config, error));
  LS_TRY(check_size(json, config, error));
  LS_TRY(ls_config_read_classes(arena, json, config, error));
  LS_TRY(ls_config_read_vectors(json, config, error));
  return ls_config_read_blocks(arena, json, config, error);
}

ls_status ls_model_config_parse(ls_arena *arena, const char *name, const char *text, size_t bytes,
                                ls_model_config *config, ls_error *error) {
  json_t *root;
  ls_json_object json;
  *config = (ls_model_config){.source = ls_arena_strdup(arena, name)};
  LS_TRY(ls_json_parse(name, text, bytes, 0, &root, error));
  ls_status status = ls_json_root(config->source, root, &json, error);
  if (status == LS_OK) status = read_object(arena, &json, config, error);
  json_decref(root);
  if (status != LS_OK) return status;
  char *copy = ls_arena_alloc(arena, bytes + 1);
  memcpy(copy, text, bytes);
  config->text = copy;
  return LS_OK;
}

ls_status ls_model_config_read(ls_arena *arena, const char *path, ls_model_config *config,
                               ls_error *error) {
  char *text;
  size_t bytes;
  if (ls_directory_exists(path)) path = ls_arena_printf(arena, "%s/config.json", path);
  LS_TRY(ls_file_read(arena, path, &text, &bytes, error));
  return ls_model_config_parse(arena, path, text, bytes, config, error);
}
