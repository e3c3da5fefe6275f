/* Curves of runs: what is drawn of few points, of many, of gaps and of nothing. */
#include "watch/curves.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/xml.h"

static const char *const names[] = {"runs/a & b", "runs/<c>"};

static char *draw(const ls_curves *curves) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  assert_non_null(stream);
  ls_curves_svg(curves, stream);
  assert_int_equal(fclose(stream), 0);
  assert_null(strstr(text, "nan"));
  assert_null(strstr(text, "inf"));
  return text;
}

/* The panel of one curve. */
static char *draw_one(ls_arena *arena, const double *y, int count, ls_curve_kind kind) {
  double *x = LS_NEW_ARRAY(arena, double, count + 1);
  for (int i = 0; i < count; i++) x[i] = i + 1;
  ls_curves curves = {
      .arena = arena, .title = "t", .x_name = "step", .runs = names, .run_count = 2};
  ls_curves_panel *panel = LS_APPEND(arena, &curves.panels);
  *panel = (ls_curves_panel){.title = "loss"};
  *LS_APPEND(arena, &panel->curves) =
      (ls_curve){.run = 1, .kind = kind, .x = x, .y = y, .count = count};
  return draw(&curves);
}

static void test_names_and_points(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const double y[] = {3, 2, 1};
  char *text = draw_one(arena, y, 3, LS_CURVE_MARKED);
  assert_non_null(strstr(text, "runs/a &amp; b"));
  assert_non_null(strstr(text, "runs/&lt;c&gt;"));
  assert_int_equal(text_count(text, "<circle"), 3);
  assert_int_equal(text_count(text, "class='marked'"), 1);
  assert_non_null(strstr(text, "3: 1</title>"));
  free(text);
  ls_arena_destroy(&arena);
}

static void test_a_gap_is_no_line(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const double y[] = {3, 2, NAN, 1, INFINITY, 5};
  char *text = draw_one(arena, y, 6, LS_CURVE_LINE);
  const char *path = strstr(text, " d='M");
  assert_non_null(path);
  int begun = 0;
  for (const char *at = path; *at != '/'; at++) begun += *at == 'M';
  assert_int_equal(begun, 3);
  free(text);
  ls_arena_destroy(&arena);
}

/* A spike of one step among a million stays to be seen, and the picture stays small. */
static void test_many_points(void **state) {
  (void)state;
  enum { STEPS = 1000000 };
  ls_arena *arena = ls_arena_create();
  double *y = LS_NEW_ARRAY(arena, double, STEPS);
  for (int i = 0; i < STEPS; i++) y[i] = 1;
  y[654321] = 9;
  char *text = draw_one(arena, y, STEPS, LS_CURVE_LINE);
  assert_true(strlen(text) < 60000);
  const char *path = strstr(text, " d='M");
  double least = 1e9, most = -1e9;
  for (const char *at = path + 5; at && *at != '\'';) {
    char *end;
    strtod(at, &end);
    const double down = strtod(end, &end);
    least = fmin(least, down);
    most = fmax(most, down);
    at = *end == 'L' || *end == 'M' ? end + 1 : end;
  }
  assert_true(most - least > 200); /* pixels, of 260 */
  free(text);
  ls_arena_destroy(&arena);
}

static void test_no_value(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const double y[] = {NAN, NAN};
  char *text = draw_one(arena, y, 2, LS_CURVE_LINE);
  assert_non_null(strstr(text, "no value"));
  free(text);
  ls_arena_destroy(&arena);
}

static void test_smooth(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const double y[] = {4, NAN, 2, 2}, flat[] = {5, 5, 5};
  const double *none = ls_curve_smooth(arena, y, 4, 0), *half = ls_curve_smooth(arena, y, 4, 0.5);
  assert_true(fabs(none[2] - 2) < 1e-12);
  assert_true(fabs(half[0] - 4) < 1e-12);
  assert_true(isnan(half[1]));
  assert_true(fabs(half[2] - 2 / 0.75) < 1e-12);
  assert_true(fabs(ls_curve_smooth(arena, flat, 3, 0.9)[1] - 5) < 1e-12);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_and_points), cmocka_unit_test(test_a_gap_is_no_line),
      cmocka_unit_test(test_many_points),      cmocka_unit_test(test_no_value),
      cmocka_unit_test(test_smooth),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
