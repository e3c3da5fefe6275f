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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(weights_are_those_of_the_layers_kept, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
