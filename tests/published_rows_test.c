/* Rows of published measurements are read as they stand, and judged by hand-made predictions. */
#include "published/rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"

typedef struct fixture {
  ls_arena *arena;
  published_table table;
} fixture;

static int open_rows(void **state) {
  static fixture made;
  ls_error error = {0};
  char *text;
  size_t bytes;
  made.arena = ls_arena_create();
  if (ls_file_read(made.arena, "tests/data/published/rows.csv", &text, &bytes, &error) != LS_OK)
    return 1;
  published_read(made.arena, text, &made.table);
  *state = &made;
  return 0;
}

static int close_rows(void **state) {
  fixture *of = *state;
  ls_arena_destroy(&of->arena);
  return 0;
}

static void test_cells_are_read(void **state) {
  const fixture *of = *state;
  assert_int_equal(of->table.column_count, 30);
  assert_int_equal(of->table.rows.count, 6);
  const published_row *row = of->table.rows.items;
  assert_string_equal(published_cell(&of->table, row, "notes"), "a comma, and a \"quote\"");
  assert_string_equal(published_cell(&of->table, row, "completeness"), "full");
  assert_string_equal(published_cell(&of->table, row, "no such column"), "");
  assert_true(published_number(&of->table, row, "vpp", 7) == 7);
  assert_true(published_number(&of->table, row, "tp", 7) == 2);
}

static void test_values_become_seconds(void **state) {
  fixture *of = *state;
  published_row *rows = of->table.rows.items;
  rows[4].flops = rows[5].flops = 8e14;
  rows[5].peak = 4e14;
  for (int i = 0; i < 6; i++) published_take_value(&of->table, &rows[i]);
  assert_true(rows[0].measured == 2);
  assert_true(rows[1].measured == 8.0 * 512 / (512 * 4));
  assert_true(isnan(rows[3].measured) && rows[3].out_of_memory);
  assert_true(rows[4].measured == 8e14 / (100e12 * 4));
  assert_true(rows[5].measured == 8e14 / (0.5 * 4e14 * 4));
}

/* Two layers of 4 x 1024^2 and 2 x 1024 x 4096 weights, attention over 512 tokens, a head. */
static void test_flops_are_counted(void **state) {
  const fixture *of = *state;
  const published_row *row = of->table.rows.items;
  const double tokens = 512 * 8, layer = 2 * 12.0 * 1024 * 1024 + 4.0 * 1024 * 512;
  const double head = 6.0 * 1024 * 1000;
  assert_true(published_flops(&of->table, row, false, false) == tokens * (6 * layer + head));
  assert_true(published_flops(&of->table, row, false, true) == tokens * (8 * layer + head));
  assert_true(published_flops(&of->table, row, true, false) >
              published_flops(&of->table, row, false, false));
}

static void test_errors_are_judged(void **state) {
  fixture *of = *state;
  published_row *rows = of->table.rows.items;
  for (int i = 0; i < 6; i++) published_take_value(&of->table, &rows[i]);
  rows[0].predicted = 2.2; /* of 2: +10 % */
  rows[1].predicted = 2.4; /* of 2: +20 % */
  rows[2].predicted = 2.1; /* of 4: -47.5 %, and in the wrong order with both */
  published_score score = published_judge(of->arena, &of->table, "first", PUBLISHED_TIME);
  assert_int_equal(score.rows, 3);
  assert_int_equal(score.done, 3);
  assert_true(fabs(score.median - 0.2) < 1e-12);
  assert_true(fabs(score.bias - 0.1) < 1e-12);
  assert_true(fabs(score.worst - 0.475) < 1e-12);
  assert_true(score.tau == -1); /* the first two measured the same, so are no pair */
  rows[1].why = "for a test";
  score = published_judge(of->arena, &of->table, "first", PUBLISHED_TIME);
  assert_int_equal(score.done, 2);
  assert_true(fabs(score.median - (0.1 + 0.475) / 2) < 1e-12);
  score = published_judge(of->arena, &of->table, "first", PUBLISHED_MEMORY);
  assert_int_equal(score.rows, 1);
  assert_int_equal(score.done, 0);
}

static void test_sources_and_halves(void **state) {
  const fixture *of = *state;
  int count;
  const char **names = published_sources(of->arena, &of->table, &count);
  assert_int_equal(count, 2);
  assert_string_equal(names[0], "first");
  assert_string_equal(names[1], "second");
  int fitted = 0;
  for (int i = 0; i < 6; i++) fitted += published_is_fitted(&of->table, &of->table.rows.items[i]);
  assert_in_range(fitted, 1, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_cells_are_read, open_rows, close_rows),
      cmocka_unit_test_setup_teardown(test_values_become_seconds, open_rows, close_rows),
      cmocka_unit_test_setup_teardown(test_flops_are_counted, open_rows, close_rows),
      cmocka_unit_test_setup_teardown(test_errors_are_judged, open_rows, close_rows),
      cmocka_unit_test_setup_teardown(test_sources_and_halves, open_rows, close_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
