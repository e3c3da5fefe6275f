#include "model/smaller.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRACES "tests/data/traces/"

static ls_arena *arena;
static ls_error error;

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return 0;
}

static void layers_are_evenly_spaced(void **state) {
  (void)state;
  static const struct {
    int64_t layers, few, kept[6];
  } cases[] = {{12, 3, {0, 6, 11}}, {12, 4, {0, 4, 7, 11}}, {5, 5, {0, 1, 2, 3, 4}},
               {7, 1, {0}},         {9, 2, {0, 8}},         {6, 5, {0, 1, 3, 4, 5}}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    int64_t kept[6] = {0};
    ls_layers_kept(cases[c].layers, cases[c].few, kept);
    assert_memory_equal(kept, cases[c].kept, sizeof *kept * (size_t)cases[c].few);
  }
}

static ls_model_config smaller(const char *name, int64_t layers, int64_t width,
                               ls_status expected) {
  ls_model_config config, small = {0};
  int64_t kept[64];
  assert_int_equal(ls_model_config_read(arena, name, &config, &error), LS_OK);
  if (layers) ls_layers_kept(config.layers, layers, kept);
  const ls_status status =
      ls_model_smaller(arena, &config, layers ? kept : NULL, layers, width, &small, &error);
  if (status != expected) fail_msg("%s: %s", name, error.text);
  return small;
}

/* Every family that has a model of two layers here: one is left, and the rest is as it was. */
static void every_family_has_fewer_layers(void **state) {
  (void)state;
  static const char *const models[] = {"bloom",   "falcon-grouped", "gemma2",    "gpt-neox",
                                       "gpt-oss", "gpt2-tied",      "mistral",   "mixtral",
                                       "olmo2",   "phi3",           "qwen3-moe", "starcoder2"};
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    const char *name = ls_arena_printf(arena, TRACES "%s", models[m]);
    ls_model_config config, small = smaller(name, 1, 0, LS_OK);
    assert_int_equal(ls_model_config_read(arena, name, &config, &error), LS_OK);
    assert_int_equal(small.layers, 1);
    config.layers = 1;
    if (ls_model_config_compare(&small, &config, &error) != LS_OK)
      fail_msg("%s: %s", models[m], error.text);
  }
}

static void heads_keep_their_columns(void **state) {
  (void)state;
  ls_model_config config;
  assert_int_equal(ls_model_config_read(arena, TRACES "llama-gqa-free", &config, &error), LS_OK);
  const int64_t unit = config.width / config.kv_heads;
  const ls_model_config small = smaller(TRACES "llama-gqa-free", 1, unit, LS_OK);
  assert_int_equal(small.width, unit);
  assert_int_equal(small.layers, 1);
  assert_int_equal(small.head_dim, config.head_dim);
  assert_int_equal(small.kv_heads, 1);
  assert_int_equal(small.heads, config.heads / config.kv_heads);
  assert_int_equal(small.mlp_width, (config.mlp_width + config.kv_heads - 1) / config.kv_heads);
  (void)smaller(TRACES "llama-gqa-free", 0, unit + 1, LS_INPUT);
  assert_non_null(strstr(error.text, "expected a multiple of "));
  (void)smaller(TRACES "deepseek-v3", 0, 16, LS_INPUT);
  assert_non_null(strstr(error.text, "only layers=N"));
}

/* Gemma 2 takes turns: of two kinds of layers the first and the last are left in their turn, or
 * it is said that they are not. SmolLM3's list is cut. */
static void layers_stay_what_they_were(void **state) {
  (void)state;
  static const char text[] =
      "{\"model_type\": \"gemma2\", \"num_hidden_layers\": 5, \"hidden_size\": 32, "
      "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16, "
      "\"intermediate_size\": 64, \"vocab_size\": 64}";
  ls_model_config config, small;
  const int64_t outer[] = {0, 4}, turns[] = {0, 1, 4};
  if (ls_model_config_parse(arena, "gemma", text, strlen(text), &config, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(ls_model_smaller(arena, &config, outer, 2, 0, &small, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "layer 1 would be made of layer 4"));
  if (ls_model_smaller(arena, &config, turns, 3, 0, &small, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(smaller(TRACES "smollm3", 1, 0, LS_OK).layers, 1);
  assert_int_equal(smaller(TRACES "qwen2", 1, 0, LS_OK).layers, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(layers_are_evenly_spaced, set_up, tear_down),
      cmocka_unit_test_setup_teardown(every_family_has_fewer_layers, set_up, tear_down),
      cmocka_unit_test_setup_teardown(heads_keep_their_columns, set_up, tear_down),
      cmocka_unit_test_setup_teardown(layers_stay_what_they_were, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
