#include <stdlib.h>
#include <string.h>

#include "model/family.h"

/* A head that tells classes of texts or of tokens apart, as config.json has it. */

static const char of_texts[] = "ForSequenceClassification";
static const char of_tokens[] = "ForTokenClassification";

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), bytes = strlen(end);
  return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

static const char *architecture_of(const json_t *json) {
  const char *name = json_string_value(json_array_get(json_object_get(json, "architectures"), 0));
  return name ? name : "";
}

/* The name of class `number`; NULL where it has none. */
static const char *name_of(const json_t *id2label, int64_t number) {
  char key[24];
  snprintf(key, sizeof key, "%lld", (long long)number);
  return json_string_value(json_object_get(id2label, key));
}

/* The classes from 0 on, each with a name of its own. */
static ls_status read_names(ls_arena *arena, const ls_json_object *json, const json_t *id2label,
                            ls_model_config *config, ls_error *error) {
  const int64_t count = (int64_t)json_object_size(id2label);
  const char **names = LS_NEW_ARRAY(arena, const char *, count + 1);
  json_t *seen = json_object();
  ls_status status = LS_OK;
  for (int64_t c = 0; c < count && status == LS_OK; c++) {
    const char *name = name_of(id2label, c);
    if (!name)
      status = ls_fail(error, LS_INPUT,
                       "%s: id2label: found no name for \"%lld\"; expected texts for 0 to %lld",
                       json->where, (long long)c, (long long)count - 1);
    else if (json_object_get(seen, name))
      status = ls_fail(error, LS_INPUT, "%s: id2label: found \"%.60s\" twice; expected each once",
                       json->where, name);
    else
      json_object_set_new(seen, name, json_true());
    names[c] = name ? ls_arena_strdup(arena, name) : NULL;
  }
  json_decref(seen);
  config->classes = count;
  config->class_names = names;
  return status;
}

static const char pooling_key[] = "classifier_pooling";
static const char *const poolings[LS_POOLING_COUNT] = {"last", "cls", "mean", NULL};

/* As ModernBERT's config.json says it; other families' say nothing where it is their own. */
static ls_status read_pooling(const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  const char *name;
  const char *architecture = architecture_of(json->json);
  if (ends_with(architecture, of_tokens)) {
    config->pooling = LS_POOLING_EACH;
    if (ls_model_may_class_tokens(config)) return LS_OK;
    return ls_fail(error, LS_INPUT,
                   "%s: architectures: found %.60s, which transformers has not; expected another "
                   "family for classes of tokens",
                   json->where, architecture);
  }
  const ls_pooling own = ls_family_find(config->family)->classes.pooling;
  LS_TRY(ls_json_string_or(json, pooling_key, poolings[own], &name, error));
  for (int p = 0; poolings[p]; p++) {
    config->pooling = (ls_pooling)p;
    if (strcmp(name, poolings[p]) == 0) return LS_OK;
  }
  return ls_fail(error, LS_INPUT, "%s: %s: found \"%.40s\"; expected last, cls or mean",
                 json->where, pooling_key, name);
}

bool ls_model_may_class_tokens(const ls_model_config *config) {
  return !ls_family_find(config->family)->classes.of_texts_alone;
}

/* The key that says it, NULL: nothing does; and the rate where config.json does not. A decoder's
 * head drops before classes of tokens alone, a DistilBERT's before those of texts. */
static const char *dropout_key_of(const ls_model_config *config, double *usual) {
  const ls_class_form *form = &ls_family_find(config->family)->classes;
  const bool each = config->pooling == LS_POOLING_EACH;
  const bool decoder = each && !ls_model_is_encoder(config);
  const bool hidden = form->dropout < 0 || (each && form->dropout_of_texts);
  *usual = hidden ? config->dropout.hidden : decoder ? 0.1 : form->dropout;
  if (decoder) return "classifier_dropout";
  if (!form->dropout_key) *usual = 0;
  return each && form->dropout_of_texts ? NULL : form->dropout_key;
}

static ls_status read_dropout(const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  double usual;
  const char *key = dropout_key_of(config, &usual);
  double *rate = &config->dropout.head;
  *rate = usual;
  if (!key || !ls_json_has(json, key)) return LS_OK;
  LS_TRY(ls_json_number_or(json, key, usual, rate, error));
  if (*rate >= 0 && *rate < 1) return LS_OK;
  return ls_fail(error, LS_INPUT, "%s: %s: found %g; expected from 0 to below 1", json->where, key,
                 *rate);
}

/* It is attention over as many heads as the model's own. */
static ls_status check_mean(const ls_json_object *json, const ls_model_config *config,
                            ls_error *error) {
  if (config->pooling != LS_POOLING_MEAN || config->width % config->heads == 0) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: %s: found mean with a width of %lld over %lld heads; expected a multiple of "
                 "the heads, or last",
                 json->where, pooling_key, (long long)config->width, (long long)config->heads);
}

static const char problem_key[] = "problem_type";
static const char one_label[] = "single_label_classification";
static const char several_labels[] = "multi_label_classification";

static ls_status read_problem(const ls_json_object *json, ls_model_config *config,
                              ls_error *error) {
  const char *problem;
  const bool each = config->pooling == LS_POOLING_EACH;
  LS_TRY(ls_json_string_or(json, problem_key, one_label, &problem, error));
  config->several = !each && strcmp(problem, several_labels) == 0;
  if (config->several || strcmp(problem, one_label) == 0) return LS_OK;
  return ls_fail(
      error, LS_INPUT, "%s: %s: found \"%.60s\"; expected %s%s: other problems are not built",
      json->where, problem_key, problem, one_label, each ? "" : " or multi_label_classification");
}

ls_status ls_config_read_classes(ls_arena *arena, const ls_json_object *json,
                                 ls_model_config *config, ls_error *error) {
  LS_TRY(read_pooling(json, config, error));
  LS_TRY(check_mean(json, config, error));
  LS_TRY(read_dropout(json, config, error));
  if (config->pooling != LS_POOLING_EACH && !ends_with(architecture_of(json->json), of_texts))
    return LS_OK;
  const json_t *id2label = json_object_get(json->json, "id2label");
  LS_TRY(read_problem(json, config, error));
  if (id2label && !json_is_object(id2label) && !json_is_null(id2label))
    return ls_fail(error, LS_INPUT,
                   "%s: id2label: expected an object of names by number, as in {\"0\": \"no\"}",
                   json->where);
  if (json_object_size(id2label)) {
    LS_TRY(read_names(arena, json, id2label, config, error));
  } else {
    LS_TRY(ls_json_count_or(json, "num_labels", 2, &config->classes, error));
    if (config->classes > LS_MOST_CLASSES)
      return ls_fail(error, LS_INPUT, "%s: num_labels: found %lld; expected at most %d",
                     json->where, (long long)config->classes, LS_MOST_CLASSES);
    const char **names = LS_NEW_ARRAY(arena, const char *, config->classes + 1);
    for (int64_t c = 0; c < config->classes; c++)
      names[c] = ls_arena_printf(arena, "LABEL_%lld", (long long)c);
    config->class_names = names;
  }
  if (config->classes >= 2) return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "%s: found a head of %lld label (num_labels, id2label), which is a regression; "
                 "expected two classes or more",
                 json->where, (long long)config->classes);
}

const char *const *ls_model_class_names(ls_arena *arena, const ls_model_config *config,
                                        int64_t *count) {
  json_t *json = json_loads(config->text, 0, NULL);
  const json_t *id2label = json_object_get(json, "id2label");
  const char **names = NULL;
  bool given = false;
  *count = (int64_t)json_object_size(id2label);
  if (*count >= 2) names = LS_NEW_ARRAY(arena, const char *, *count);
  for (int64_t c = 0; names && c < *count; c++) {
    const char *name = name_of(id2label, c);
    char made_up[32];
    snprintf(made_up, sizeof made_up, "LABEL_%lld", (long long)c);
    if (!name) names = NULL;
    if (names) names[c] = ls_arena_strdup(arena, name);
    given = given || (name && strcmp(name, made_up) != 0);
  }
  json_decref(json);
  if (!given || !names) *count = 0;
  return *count ? names : NULL;
}

/* "LlamaForCausalLM", "GPT2LMHeadModel", "BertForMaskedLM": what comes before. */
static const char *architecture_for(ls_arena *arena, const char *family, const char *ending) {
  static const char *const ends[] = {"ForCausalLM", "LMHeadModel", "ForMaskedLM"};
  size_t length = strlen(family);
  for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
    if (ends_with(family, ends[e])) length -= strlen(ends[e]);
  return ls_arena_printf(arena, "%.*s%s", (int)length, family, ending);
}

void ls_model_set_classes(ls_arena *arena, ls_model_config *config, const char *const *names,
                          int64_t count) {
  const ls_family *family = ls_family_find(config->family);
  LS_ASSERT(family && count >= 2 && config->classes == 0);
  json_t *json = json_loads(config->text, 0, NULL);
  json_t *names_of = json_object(), *numbers_of = json_object();
  int failed = 0;
  for (int64_t c = 0; c < count; c++) {
    char key[24];
    snprintf(key, sizeof key, "%lld", (long long)c);
    failed |= json_object_set_new(names_of, key, json_string(names[c]));
    failed |= json_object_set_new(numbers_of, names[c], json_integer(c));
  }
  failed |= json_object_set_new(
      json, "architectures",
      json_pack("[s]", architecture_for(arena, family->architecture, of_texts)));
  failed |= json_object_set_new(json, "id2label", names_of);
  failed |= json_object_set_new(json, "label2id", numbers_of);
  failed |= json_object_set_new(json, "num_labels", json_integer(count));
  failed |= json_object_set_new(json, problem_key, json_string(one_label));
  char *dumped = failed ? NULL : ls_config_dump(json);
  if (!dumped) ls_panic("no memory for a config.json of the family %s", config->family);
  config->text = ls_arena_printf(arena, "%s\n", dumped);
  config->classes = count;
  config->class_names = names;
  config->draws_head = true;
  free(dumped);
  json_decref(json);
}

void ls_model_set_several(ls_arena *arena, ls_model_config *config) {
  json_t *json = json_loads(config->text, 0, NULL);
  LS_ASSERT(config->classes >= 2);
  const int failed = json_object_set_new(json, problem_key, json_string(several_labels));
  char *dumped = failed ? NULL : ls_config_dump(json);
  if (!dumped) ls_panic("no memory for a config.json of the family %s", config->family);
  config->text = ls_arena_printf(arena, "%s\n", dumped);
  config->several = true;
  free(dumped);
  json_decref(json);
}

void ls_model_set_pooling(ls_arena *arena, ls_model_config *config, ls_pooling pooling) {
  json_t *json = json_loads(config->text, 0, NULL);
  const ls_family *family = ls_family_find(config->family);
  if (pooling == LS_POOLING_EACH) {
    json_object_del(json, problem_key);
    json_object_set_new(json, "architectures",
                        json_pack("[s]", architecture_for(arena, family->architecture, of_tokens)));
  }
  if (pooling == LS_POOLING_EACH || pooling == family->classes.pooling)
    json_object_del(json, pooling_key);
  else
    json_object_set_new(json, pooling_key, json_string(poolings[pooling]));
  char *dumped = ls_config_dump(json);
  if (!dumped) ls_panic("no memory for a config.json of the family %s", config->family);
  config->text = ls_arena_printf(arena, "%s\n", dumped);
  config->pooling = pooling;
  double usual;
  const char *key = dropout_key_of(config, &usual);
  const json_t *rate = key ? json_object_get(json, key) : NULL;
  config->dropout.head = json_is_number(rate) ? json_number_value(rate) : usual;
  free(dumped);
  json_decref(json);
}
