#include "store/weights_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

/* Each is alone in its folder. `link`: to a file that is not there, as an interrupted download or a
 * moved cache leaves it. */
static const struct {
  const char *name;
  bool link, has, refused;
} cases[] = {
    {"config.json", false, false, false},
    {"adapter_model.safetensors", false, false, false},
    {"optimizer.safetensors", false, false, false},
    {"model.safetensors", false, true, false},
    {"model.safetensors.index.json", false, true, false},
    {"model.safetensors", true, false, true},
    {"model.safetensors.index.json", true, false, true},
    {"model-00001-of-00002.safetensors", false, false, true},
    {"pytorch_model.bin", false, false, true},
    {"pytorch_model-00001-of-00002.bin", true, false, true},
};

static void what_looks_like_weights_is_no_start_from_scratch(void **state) {
  (void)state;
  char folder[] = "/tmp/lockstep-weights-XXXXXX";
  assert_non_null(mkdtemp(folder));
  ls_arena *arena = ls_arena_create();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_error error = {0};
    const char *path = ls_arena_printf(arena, "%s/%s", folder, cases[i].name);
    if (cases[i].link)
      assert_int_equal(symlink("nowhere", path), 0);
    else
      assert_int_equal(ls_file_write(path, "", 0, &error), LS_OK);
    bool has = !cases[i].has;
    const ls_status status = ls_weights_folder_check(arena, folder, &has, &error);
    if (status != (cases[i].refused ? LS_INPUT : LS_OK) || has != cases[i].has ||
        (cases[i].refused && !strstr(error.text, cases[i].name)))
      fail_msg("%s%s: status %d, %d: %s", cases[i].name, cases[i].link ? " (link)" : "", status,
               has, error.text);
    assert_int_equal(ls_weights_folder_has(arena, folder), cases[i].has);
    assert_int_equal(unlink(path), 0);
  }
  assert_int_equal(rmdir(folder), 0);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_looks_like_weights_is_no_start_from_scratch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
