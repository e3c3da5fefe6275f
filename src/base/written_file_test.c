/* A file made as a stream: whole, or not there. */
#include "base/written_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

static char path[64];
static ls_error error;

static void it_is_there_whole(void **state) {
  (void)state;
  ls_written_file file;
  assert_int_equal(ls_written_file_begin(&file, &error), LS_OK);
  for (int i = 0; i < 10000; i++) fprintf(file.to, "%04d\n", i);
  assert_false(ls_file_exists(path));
  assert_int_equal(ls_written_file_end(&file, path, &error), LS_OK);
  assert_null(file.to);
  ls_arena *arena = ls_arena_create();
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, path, &text, &bytes, &error), LS_OK);
  assert_int_equal(bytes, 50000);
  assert_string_equal(text + 49995, "9999\n");
  ls_arena_destroy(&arena);
  unlink(path);
}

static void what_cannot_be_written_is_named(void **state) {
  (void)state;
  ls_written_file file;
  assert_int_equal(ls_written_file_begin(&file, &error), LS_OK);
  fputs("lost", file.to);
  assert_int_equal(ls_written_file_end(&file, "/no/such/folder/a.svg", &error), LS_FAILED);
  assert_non_null(strstr(error.text, "/no/such/folder/a.svg"));
}

int main(void) {
  snprintf(path, sizeof path, "/tmp/written_file_test.%d", (int)getpid());
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_there_whole),
      cmocka_unit_test(what_cannot_be_written_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
