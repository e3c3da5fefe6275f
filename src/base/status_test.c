#include "lockstep/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void failures_carry_their_text(void **state) {
  (void)state;
  ls_error error = {0};
  assert_int_equal(ls_fail(&error, LS_INPUT, "%s:%d: found %s", "run.yaml", 3, "tab"), LS_INPUT);
  assert_int_equal(error.status, LS_INPUT);
  assert_string_equal(error.text, "run.yaml:3: found tab");
}

/* Names in files are others': one with an escape sequence must not reach the terminal. */
static void failures_are_one_line(void **state) {
  (void)state;
  ls_error error = {0};
  ls_fail(&error, LS_INPUT, "%s: no tensor", "a\nb\x1b[31m\x7f \xc3\xa9");
  assert_string_equal(error.text, "a?b?[31m? \xc3\xa9: no tensor");
  ls_error_prefix(&error, "%s", "x\ty");
  assert_string_equal(error.text, "x?y: a?b?[31m? \xc3\xa9: no tensor");
}

static void long_texts_are_cut(void **state) {
  (void)state;
  ls_error error = {0};
  char text[2000];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = 0;
  ls_fail(&error, LS_REFUTED, "%s", text);
  assert_int_equal(strlen(error.text), sizeof error.text - 1);
  assert_int_equal(ls_error_prefix(&error, "rank %d", 4), LS_REFUTED);
  assert_int_equal(strlen(error.text), sizeof error.text - 1);
  assert_memory_equal(error.text, "rank 4: xxx", 11);
  ls_error_prefix(&error, "%s", text);
  assert_int_equal(error.text[sizeof error.text - 1], 0);
  assert_memory_equal(error.text + 508, "xxx: rank 4: xxx", 16);
}

static void prefixes_add_up(void **state) {
  (void)state;
  ls_error error = {0};
  ls_fail(&error, LS_FAILED, "disk full");
  ls_error_prefix(&error, "a.safetensors");
  assert_int_equal(ls_error_prefix(&error, "step %d", 12), LS_FAILED);
  assert_string_equal(error.text, "step 12: a.safetensors: disk full");
}

static void nobody_needs_to_ask(void **state) {
  (void)state;
  assert_int_equal(ls_fail(NULL, LS_REFUTED, "%d", 1), LS_REFUTED);
  assert_int_equal(ls_error_prefix(NULL, "rank %d", 1), LS_FAILED);
}

static ls_status forwards(ls_status status, int *reached) {
  LS_TRY(status);
  *reached = 1;
  return LS_OK;
}

static void try_forwards_failures_only(void **state) {
  (void)state;
  int reached = 0;
  assert_int_equal(forwards(LS_STOPPED, &reached), LS_STOPPED);
  assert_int_equal(reached, 0);
  assert_int_equal(forwards(LS_OK, &reached), LS_OK);
  assert_int_equal(reached, 1);
}

static void exit_statuses_are_the_documented_ones(void **state) {
  (void)state;
  assert_int_equal(ls_exit_status(LS_OK), 0);
  assert_int_equal(ls_exit_status(LS_REFUTED), 1);
  assert_int_equal(ls_exit_status(LS_INPUT), 2);
  assert_int_equal(ls_exit_status(LS_FAILED), 3);
  assert_int_equal(ls_exit_status(LS_STOPPED), 4);
  assert_int_equal(ls_exit_status(LS_INTERNAL), 3);
}

static void keep_warning(void *context, const char *text) {
  snprintf(context, 64, "%s", text);
}

static void warnings_go_to_the_handler(void **state) {
  (void)state;
  char kept[64] = "";
  ls_warn("lost: nobody listens");
  ls_warnings_to(keep_warning, kept);
  ls_warn("%s: %d\nlines", "file", 2);
  ls_warnings_to(NULL, NULL);
  ls_warn("lost again");
  assert_string_equal(kept, "file: 2?lines");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(failures_carry_their_text),
      cmocka_unit_test(failures_are_one_line),
      cmocka_unit_test(long_texts_are_cut),
      cmocka_unit_test(prefixes_add_up),
      cmocka_unit_test(nobody_needs_to_ask),
      cmocka_unit_test(try_forwards_failures_only),
      cmocka_unit_test(warnings_go_to_the_handler),
      cmocka_unit_test(exit_statuses_are_the_documented_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
