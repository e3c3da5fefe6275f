/* Structs filled by a table of keys: values, units, nested keys, and what is refused. */
#include "text/fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct row {
  const char *name;
  double rate;
  int64_t count;
  bool on;
} row;

static const ls_field fields[] = {
    LS_FIELD(row, "name", TEXT, name, 1),         LS_FIELD(row, "link.gb_per_s", NUMBER, rate, 1e9),
    LS_FIELD(row, "link.count", COUNT, count, 1), LS_FIELD(row, "on", BOOL, on, 1),
    {.key = "others", .kind = LS_FIELD_OTHER},
};

static ls_status read_row(ls_arena *arena, const char *text, row *into, ls_error *error) {
  ls_yaml *root;
  LS_TRY(ls_yaml_parse(arena, "rows.yaml", text, strlen(text), &root, error));
  return ls_fields_read(root, fields, LS_FIELDS(fields), into, error);
}

static void test_values(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  row into = {.on = true, .count = 7};
  ls_error error = {0};
  assert_int_equal(
      read_row(arena, "name: a\nlink: {gb_per_s: 2.5}\nothers: [1, 2]\n", &into, &error), LS_OK);
  assert_string_equal(into.name, "a");
  assert_true(into.rate == 2.5e9);
  assert_true(into.on && into.count == 7); /* what is not given stays */
  ls_arena_destroy(&arena);
}

static void test_refusals(void **state) {
  (void)state;
  static const char *const wrong[][2] = {
      {"nam: a\n", "rows.yaml:1: nam: no such key; the nearest is name"},
      {"name: a\nlink:\n  count: 0\n", ":3: link.count: found 0; expected a whole number of 1"},
      {"link: {gb_per_s: -1}\n", "expected a number of 0 or more"},
      {"link: {gb_per_s: {a: 1}}\n", "expected a number of 0 or more"},
      {"link: {deep: {count: 1}}\n", "link.deep: no such key"},
      {"colour: red\n", ":1: colour: no such key; expected one of name, "},
      {"on: maybe\n", "found maybe"},
      {"[1]\n", "expected keys and values"},
  };
  ls_arena *arena = ls_arena_create();
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    row into = {0};
    ls_error error = {0};
    assert_int_equal(read_row(arena, wrong[i][0], &into, &error), LS_INPUT);
    if (!strstr(error.text, wrong[i][1])) fail_msg("%s: %s", wrong[i][0], error.text);
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
