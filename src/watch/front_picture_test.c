/* The picture of a front: what is drawn, numbered and listed, with few points and with many. */
#include "watch/front_picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/xml.h"

static const char *const names[] = {"2xRTX4090", "1x<A100>"};

static ls_front make_front(ls_arena *arena, int count, int machines) {
  ls_front front = {.arena = arena, .title = "llama & co", .currency = "USD"};
  front.machines = names;
  front.machine_count = machines;
  for (int p = 0; p < count; p++)
    *LS_APPEND(arena, &front.points) = (ls_front_point){.seconds = 1 + 0.01 * p,
                                                        .bytes = 8e10 / (1 + p % 7),
                                                        .money = 0.5 + 0.01 * p,
                                                        .machine = p % machines,
                                                        .fits = p % 3 != 2,
                                                        .best = p % 3 == 0,
                                                        .layout = "dp 2"};
  return front;
}

static char *draw(const ls_front *front) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *stream = open_memstream(&text, &bytes);
  assert_non_null(stream);
  ls_front_svg(front, stream);
  assert_int_equal(fclose(stream), 0);
  assert_null(strstr(text, "nan"));
  assert_null(strstr(text, "inf"));
  return text;
}

static void test_few_points(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_front front = make_front(arena, 3, 1);
  char *text = draw(&front);
  assert_int_equal(text_count(text, "class='best'"), 1);
  assert_int_equal(text_count(text, "class='fits'"), 1);
  assert_int_equal(text_count(text, "class='large'"), 1);
  assert_int_equal(text_count(text, "class='frame'"), 1);
  assert_non_null(strstr(text, "llama &amp; co"));
  assert_non_null(strstr(text, "1 s, 74.51 GiB, 0.5 USD: dp 2"));
  free(text);
  ls_arena_destroy(&arena);
}

static void test_many_points_of_two_machines(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_front front = make_front(arena, 3000, 2);
  char *text = draw(&front);
  assert_int_equal(text_count(text, "class='frame'"), 2);
  assert_int_equal(text_count(text, "class='best'"), 2000);
  assert_int_equal(text_count(text, "class='large'"), 1000); /* has no money: it is not bought */
  assert_non_null(strstr(text, "and 984 more"));
  assert_non_null(strstr(text, "1x&lt;A100&gt;"));
  free(text);
  ls_arena_destroy(&arena);
}

/* No text ends beyond the picture, however long a layout or a machine's name is. */
static void test_long_lines_are_within(void **state) {
  (void)state;
  static const char *const long_names[] = {
      "3072xH100-SXM", "a cluster whose file has a name that is longer than what it says"};
  static const char layout[] =
      "pp 16 (interleaved, 2 chunks), tp 2 (whole sequences), cp 2 (ring), dp 4 x 16 zero-3, "
      "micro-batch 1, recompute budget, prefetch 2, optimizer and parameters on the host";
  for (int machines = 1; machines <= 2; machines++) {
    ls_arena *arena = ls_arena_create();
    ls_front front = make_front(arena, 30, machines);
    front.machines = long_names;
    for (int p = 0; p < front.points.count; p++) front.points.items[p].layout = layout;
    char *text = draw(&front);
    const double width = xml_attribute(text, "width");
    const char *const ends[] = {strstr(text, "large: no layout"),
                                strstr(text, "1 s, 74.51 GiB, 0.5 USD")};
    for (int e = 0; e < 2; e++) {
      assert_non_null(ends[e]);
      const char *begin = ends[e];
      while (strncmp(begin, "<text", 5) != 0) begin--;
      const double letters = (double)(strchr(ends[e], '<') - strchr(begin, '>') - 1);
      assert_true(xml_attribute(begin, "x") + 6.5 * letters < width);
    }
    free(text);
    ls_arena_destroy(&arena);
  }
}

/* Points that lie close have their numbers on different sides. */
static void test_numbers_of_close_points(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_front front = make_front(arena, 6, 1);
  for (int p = 0; p < 6; p++) {
    front.points.items[p].best = front.points.items[p].fits = p < 5;
    front.points.items[p].seconds = p < 4 ? 1 + 1e-4 * p : 2;
    front.points.items[p].bytes = p < 4 ? 1e10 * (1 - 1e-4 * p) : 5e9;
  }
  char *text = draw(&front);
  assert_int_equal(text_count(text, "class='number'"), 5);
  free(text);
  ls_arena_destroy(&arena);
}

static void test_one_point(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_front front = make_front(arena, 1, 1);
  free(draw(&front));
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_few_points),
      cmocka_unit_test(test_many_points_of_two_machines),
      cmocka_unit_test(test_long_lines_are_within),
      cmocka_unit_test(test_numbers_of_close_points),
      cmocka_unit_test(test_one_point),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
