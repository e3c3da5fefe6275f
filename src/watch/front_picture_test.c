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
      cmocka_unit_test(test_one_point),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
