/* The tree over time finds the places that going through all boxes finds. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "lower/lower.h"

enum { BOXES = 400 };

static int draw(uint64_t trial, uint64_t which, int below) {
  return (int)(ls_random_bits(11, trial, which) % (uint64_t)below);
}

/* Few sizes, as layers have, or many; lives inside each other, as those of forward and backward
 * passes, or anywhere; some without bytes. */
static void make_boxes(uint64_t trial, int times, ls_life_box *boxes) {
  const int sizes = trial % 3 ? 6 : 5000;
  for (int i = 0; i < BOXES; i++) {
    const uint64_t at = (uint64_t)i * 4;
    int first = draw(trial, at, times), last = draw(trial, at + 1, times);
    if (trial % 2 && first > times / 2) first = times - 1 - first;
    if (trial % 2) last = times - 1 - first;
    boxes[i] = (ls_life_box){.bytes = (int64_t)draw(trial, at + 2, sizes) * 100,
                             .first = first < last ? first : last,
                             .last = first < last ? last : first,
                             .about = i};
  }
  ls_life_boxes_sort(boxes, BOXES);
}

static void test_places_are_the_lowest(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 60; trial++) {
    ls_arena *arena = ls_arena_create();
    ls_life_box boxes[BOXES];
    const int times = trial % 5 == 0 ? 1 : 1 + draw(trial, 4 * BOXES, 500);
    make_boxes(trial, times, boxes);
    ls_space space = {.alignment = 256, .limit = -1};
    ls_occupancy *taken = ls_occupancy_create(arena, times, 256);
    for (int i = 0; i < BOXES; i++) {
      ls_life_box box = boxes[i];
      assert_true(ls_space_place(arena, &space, &boxes[i]));
      ls_occupancy_place(taken, &box);
      assert_int_equal(box.offset, boxes[i].offset);
    }
    assert_int_equal(ls_occupancy_bytes(taken), space.bytes);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_places_are_the_lowest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
