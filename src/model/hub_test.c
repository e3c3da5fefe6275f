#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/hub.h"

static void write_text(const char *path, const char *text) {
  ls_error error = {0};
  assert_int_equal(ls_file_write(path, text, strlen(text), &error), LS_OK);
}

static void test_names(void **state) {
  (void)state;
  assert_true(ls_hub_is_name("openai-community/gpt2"));
  assert_false(ls_hub_is_name("gpt2"));
  assert_false(ls_hub_is_name("./gpt2"));
  assert_false(ls_hub_is_name("a/b/c"));
  assert_false(ls_hub_is_name("/gpt2"));
  assert_false(ls_hub_is_name("src/model"));
}

static void test_snapshot_is_found(void **state) {
  (void)state;
  char folder[] = "/tmp/lockstep-hub-XXXXXX";
  assert_non_null(mkdtemp(folder));
  assert_int_equal(setenv("HF_HUB_CACHE", folder, 1), 0);
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const char *found = NULL;
  assert_int_equal(ls_hub_find(arena, "org/name", &found, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "hf download org/name"));
  const char *repository = ls_arena_printf(arena, "%s/models--org--name", folder);
  const char *snapshot = ls_arena_printf(arena, "%s/snapshots/c0ffee", repository);
  assert_int_equal(ls_directory_make(ls_arena_printf(arena, "%s/refs", repository), &error), LS_OK);
  write_text(ls_arena_printf(arena, "%s/refs/main", repository), "c0ffee\n");
  assert_int_equal(ls_hub_find(arena, "org/name", &found, &error), LS_INPUT);
  assert_int_equal(ls_directory_make(snapshot, &error), LS_OK);
  assert_int_equal(ls_hub_find(arena, "org/name", &found, &error), LS_OK);
  assert_string_equal(found, snapshot);
  assert_int_equal(ls_directory_remove(folder, &error), LS_OK);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                     cmocka_unit_test(test_snapshot_is_found)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
