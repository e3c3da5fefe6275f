/* Whatever key of a config.json is changed, the model is seen to be another: over the keys of every
 * family's trace, each changed by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/family.h"

static bool is_in(const char *const *list, const char *key) {
  for (; list && *list; list++)
    if (strcmp(*list, key) == 0) return true;
  return false;
}

/* Keys that say nothing about what is computed from given weights, and the ids of tokens. */
static bool says_nothing(const ls_family *family, const char *key) {
  static const char *const common[] = {"initializer_range", "torch_dtype",  "dtype", "bos_token_id",
                                       "eos_token_id",      "pad_token_id", NULL};
  return is_in(common, key) || is_in(ls_family_dropout_keys(family), key) ||
         is_in(family->unused, key);
}

static bool is_read(const ls_family *family, const char *key) {
  for (const ls_config_key *each = family->keys; each->key; each++)
    if (strcmp(each->key, key) == 0 || (each->alias && strcmp(each->alias, key) == 0)) return true;
  return is_in(family->others, key);
}

/* Another value of the same kind; NULL: it has none that is as legal. */
static json_t *changed(const json_t *value) {
  if (json_is_boolean(value)) return json_boolean(!json_is_true(value));
  if (json_is_integer(value)) return json_integer(2 * json_integer_value(value));
  if (json_is_real(value)) return json_real(1.25 * json_real_value(value));
  return NULL;
}

/* What another key of the same file decides already. */
static bool has_no_say(const char *path, const char *key) {
  static const struct {
    const char *trace, *key;
  } known[] = {{"deepseek", "first_k_dense_replace"}, /* these have no experts */
               {"deepseek", "moe_intermediate_size"},
               {"deepseek", "n_group"},
               {"deepseek", "n_routed_experts"},
               {"deepseek", "n_shared_experts"},
               {"deepseek", "norm_topk_prob"},
               {"deepseek", "num_experts_per_tok"},
               {"deepseek", "output_router_logits"},
               {"deepseek", "routed_scaling_factor"},
               {"deepseek", "topk_group"},
               {"falcon-grouped", "multi_query"},                /* new_decoder_architecture */
               {"falcon-single", "num_kv_heads"},                /* multi_query */
               {"gpt-neox-sequential", "partial_rotary_factor"}, /* rope_parameters */
               {"gpt-oss", "output_router_logits"},              /* as of mixtral */
               {"gpt-oss", "router_aux_loss_coef"},
               {"mixtral", "output_router_logits"}, /* experts.aux_loss of the run */
               {"mixtral", "router_aux_loss_coef"},
               {"moe", "output_router_logits"},
               {"moe", "router_aux_loss_coef"},
               {"qwen3", "max_window_layers"}, /* layer_types */
               {"qwen3", "use_sliding_window"},
               {"smollm3", "no_rope_layer_interval"}, /* no_rope_layers */
               {"smollm3", "use_sliding_window"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strstr(path, known[i].trace) && strcmp(key, known[i].key) == 0) return true;
  print_message("%s: %s can change unseen\n", path, key);
  return false;
}

typedef struct counts {
  int seen, refused;
} counts;

/* `object` lies in `root`, which is parsed with one value of it changed at a time. */
static void change_each(ls_arena *arena, const char *name, json_t *root, json_t *object,
                        const ls_model_config *config, counts *all) {
  const ls_family *family = ls_family_find(config->family);
  json_t *copy = json_deep_copy(object), *value;
  const char *key;
  json_object_foreach(copy, key, value) {
    if (object == root && (says_nothing(family, key) || !is_read(family, key))) continue;
    if (json_is_object(value)) {
      change_each(arena, name, root, json_object_get(object, key), config, all);
      continue;
    }
    json_t *other = changed(value);
    if (!other) continue;
    assert_int_equal(json_object_set_new(object, key, other), 0);
    char *text = json_dumps(root, 0);
    ls_model_config found;
    if (ls_model_config_parse(arena, name, text, strlen(text), &found, NULL) != LS_OK)
      all->refused++;
    else if (ls_model_config_compare(&found, config, NULL) != LS_INPUT)
      assert_true(has_no_say(name, key));
    else
      all->seen++;
    free(text);
    assert_int_equal(json_object_set(object, key, value), 0);
  }
  json_decref(copy);
}

static void every_key_that_counts_is_compared(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  char **paths;
  int count;
  assert_int_equal(ls_file_glob(arena, "tests/data/traces/*/config.json", &paths, &count, &error),
                   LS_OK);
  counts all = {0};
  for (int i = 0; i < count; i++) {
    ls_model_config config;
    if (ls_model_config_read(arena, paths[i], &config, &error) != LS_OK) fail_msg("%s", error.text);
    assert_int_equal(ls_model_config_compare(&config, &config, &error), LS_OK);
    json_t *root = json_load_file(paths[i], 0, NULL);
    assert_non_null(root);
    change_each(arena, paths[i], root, root, &config, &all);
    json_decref(root);
  }
  print_message("%d configurations: %d changes seen, %d refused as no model\n", count, all.seen,
                all.refused);
  assert_true(count > 20 && all.seen > 200);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_key_that_counts_is_compared)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
