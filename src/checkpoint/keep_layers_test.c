#include "checkpoint/keep_layers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/smaller.h"
#include "store/safetensors.h"

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

/* Where the small model's tensor of that name is from: layer 1 is layer 2. */
static const char *source_of(const char *name) {
  const char *at = strstr(name, ".1.");
  return at ? ls_arena_printf(arena, "%.*s.2.%s", (int)(at - name), name, at + 3) : name;
}

static void weights_are_those_of_the_layers_kept(void **state) {
  (void)state;
  static const char from[] = "tests/data/traces/llama-frozen";
  const int64_t kept[] = {0, 2};
  char folder[] = "/tmp/lockstep-layers-XXXXXX";
  ls_model_config config, small, again;
  ls_safetensors *large, *made;
  assert_non_null(mkdtemp(folder));
  assert_int_equal(ls_model_config_read(arena, from, &config, &error), LS_OK);
  assert_int_equal(config.layers, 3);
  assert_int_equal(ls_model_smaller(arena, &config, kept, 2, 0, &small, &error), LS_OK);
  if (ls_keep_layers(arena, from, &config, kept, &small, folder, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(ls_model_config_read(arena, folder, &again, &error), LS_OK);
  assert_int_equal(ls_model_config_compare(&again, &small, &error), LS_OK);
  assert_int_equal(ls_safetensors_open(from, NULL, &large, &error), LS_OK);
  assert_int_equal(ls_safetensors_open(folder, NULL, &made, &error), LS_OK);
  int moved = 0;
  for (int t = 0; t < ls_safetensors_count(made); t++) {
    const ls_stored_tensor *found = ls_safetensors_at(made, t);
    const ls_stored_tensor *wanted = ls_safetensors_find(large, source_of(found->name));
    moved += wanted && strcmp(wanted->name, found->name) != 0;
    assert_null(strstr(found->name, ".2."));
    if (!wanted || wanted->bytes != found->bytes || wanted->dtype != found->dtype ||
        memcmp(wanted->data, found->data, found->bytes) != 0)
      fail_msg("%s is not %s", found->name, source_of(found->name));
  }
  assert_true(moved > 5);
  ls_safetensors_close(&large);
  ls_safetensors_close(&made);
  /* It is not written over. */
  assert_int_equal(ls_keep_layers(arena, from, &config, kept, &small, folder, &error), LS_INPUT);
  assert_int_equal(ls_directory_remove(folder, NULL), LS_OK);
}

static double *read_all(ls_safetensors *file, const char *name, int64_t dims[2]) {
  const ls_stored_tensor *tensor = ls_safetensors_find(file, name);
  assert_non_null(tensor);
  double *values = LS_NEW_ARRAY(arena, double, tensor->count);
  assert_int_equal(ls_stored_tensor_read(tensor, 0, tensor->count, LS_F64, values, &error), LS_OK);
  dims[0] = tensor->ndim == 2 ? tensor->dims[0] : 1;
  dims[1] = tensor->dims[tensor->ndim - 1];
  return values;
}

/* Adds the squares of a matrix's rows or columns. */
static void add_squares(ls_safetensors *file, const char *name, bool columns, double *sums) {
  int64_t dims[2];
  const double *values = read_all(file, name, dims);
  for (int64_t r = 0; r < dims[0]; r++)
    for (int64_t c = 0; c < dims[1]; c++)
      sums[columns ? c : r] += values[r * dims[1] + c] * values[r * dims[1] + c];
}

static void mark_largest(const double *sums, int64_t count, int64_t few, bool *kept) {
  for (int64_t n = 0; n < few; n++) {
    int64_t best = -1;
    for (int64_t i = 0; i < count; i++)
      if (!kept[i] && (best < 0 || sums[i] > sums[best])) best = i;
    kept[best] = true;
  }
}

/* The tensor of the narrow model is the marked rows and columns of the large one's. */
static void compare_narrow(ls_safetensors *large, ls_safetensors *narrow, const char *name,
                           const bool *rows, const bool *columns) {
  int64_t from[2], to[2], at = 0;
  const double *whole = read_all(large, name, from), *part = read_all(narrow, name, to);
  for (int64_t r = 0; r < from[0]; r++)
    for (int64_t c = 0; c < from[1]; c++)
      if ((!rows || rows[r]) && (!columns || columns[c])) {
        assert_true(at < to[0] * to[1]);
        assert_true(part[at++] == whole[r * from[1] + c]);
      }
  assert_int_equal(at, to[0] * to[1]);
}

#define LAYER "model.layers.%d."

/* Columns of the stream by the weights of all layers, those of an MLP by its own. */
static void the_largest_columns_are_kept(void **state) {
  (void)state;
  static const char from[] = "tests/data/traces/llama-frozen";
  static const char *const read_by[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "mlp.gate_proj", "mlp.up_proj"};
  static const char *const written_by[] = {"self_attn.o_proj", "mlp.down_proj"};
  enum { MOST = 256 };
  double stream[MOST] = {0}, mlp[MOST] = {0};
  bool kept[MOST] = {false}, kept_mlp[MOST] = {false};
  char folder[] = "/tmp/lockstep-columns-XXXXXX";
  ls_model_config config, small, again;
  ls_safetensors *large, *made;
  const int64_t all[] = {0, 1, 2};
  assert_non_null(mkdtemp(folder));
  assert_int_equal(ls_model_config_read(arena, from, &config, &error), LS_OK);
  const int64_t width = config.width / 2;
  if (ls_model_smaller(arena, &config, NULL, 3, width, &small, &error) != LS_OK)
    fail_msg("%s", error.text);
  if (ls_keep_layers(arena, from, &config, all, &small, folder, &error) != LS_OK)
    fail_msg("%s", error.text);
  assert_int_equal(ls_model_config_read(arena, folder, &again, &error), LS_OK);
  assert_int_equal(ls_model_config_compare(&again, &small, &error), LS_OK);
  assert_int_equal(ls_safetensors_open(from, NULL, &large, &error), LS_OK);
  assert_int_equal(ls_safetensors_open(folder, NULL, &made, &error), LS_OK);
  add_squares(large, "model.embed_tokens.weight", true, stream);
  if (!config.tied) add_squares(large, "lm_head.weight", true, stream);
  for (int l = 0; l < 3; l++) {
    for (int i = 0; i < 5; i++)
      add_squares(large, ls_arena_printf(arena, LAYER "%s.weight", l, read_by[i]), true, stream);
    for (int i = 0; i < 2; i++)
      add_squares(large, ls_arena_printf(arena, LAYER "%s.weight", l, written_by[i]), false,
                  stream);
  }
  add_squares(large, "model.layers.1.mlp.gate_proj.weight", false, mlp);
  add_squares(large, "model.layers.1.mlp.up_proj.weight", false, mlp);
  add_squares(large, "model.layers.1.mlp.down_proj.weight", true, mlp);
  mark_largest(stream, config.width, width, kept);
  mark_largest(mlp, config.mlp_width, small.mlp_width, kept_mlp);
  compare_narrow(large, made, "model.embed_tokens.weight", NULL, kept);
  compare_narrow(large, made, "model.norm.weight", NULL, kept);
  compare_narrow(large, made, "model.layers.1.mlp.up_proj.weight", kept_mlp, kept);
  compare_narrow(large, made, "model.layers.1.mlp.down_proj.weight", kept, kept_mlp);
  int64_t dims[2];
  (void)read_all(made, "model.layers.2.self_attn.k_proj.weight", dims);
  assert_int_equal(dims[0], small.kv_heads * small.head_dim);
  (void)read_all(made, "model.layers.2.self_attn.o_proj.weight", dims);
  assert_int_equal(dims[1], small.heads * small.head_dim);
  ls_safetensors_close(&large);
  ls_safetensors_close(&made);
  assert_int_equal(ls_directory_remove(folder, NULL), LS_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(weights_are_those_of_the_layers_kept, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_largest_columns_are_kept, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
