/* The tree over time finds the places that going through all boxes finds, and so do periods. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "lower/lower.h"

enum { SEED = 11, BOXES = 400, MOST_ROUNDS = 44 * 10 + 10 };

static int draw(uint64_t trial, uint64_t which, int below) {
  return (int)(ls_random_bits(SEED, trial, which) % (uint64_t)below);
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

static void assert_lowest(ls_life_box *boxes, int count, int times, int period) {
  ls_arena *arena = ls_arena_create();
  ls_life_box *same = LS_NEW_ARRAY(arena, ls_life_box, count);
  memcpy(same, boxes, sizeof *same * (size_t)count);
  ls_space space = {.alignment = 256, .limit = -1};
  for (int i = 0; i < count; i++) assert_true(ls_space_place(arena, &space, &boxes[i]));
  assert_int_equal(ls_life_boxes_place(same, count, times, period, 256), space.bytes);
  for (int i = 0; i < count; i++) assert_int_equal(same[i].offset, boxes[i].offset);
  ls_arena_destroy(&arena);
}

static void test_places_are_the_lowest(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 60; trial++) {
    ls_life_box boxes[BOXES];
    const int times = trial % 5 == 0 ? 1 : 1 + draw(trial, 4 * BOXES, 500);
    make_boxes(trial, times, boxes);
    assert_lowest(boxes, BOXES, times, 0);
  }
}

/* What a period is made of, and what lives beside it. */
typedef struct rounds {
  int period, count; /* how many there are, with the first and the last that are not whole */
  int forms, others;
} rounds;

static int by_size_and_begin(const void *a, const void *b) {
  const ls_life_box *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x->about - y->about;
}

/* Boxes that come again in each period, but for some: those are a little longer, or not there;
 * among others that live anywhere, some for the whole step, and from where the step has half its
 * periods in another form. */
static int make_rounds(uint64_t trial, const rounds *of, ls_life_box *boxes) {
  const int times = of->period * of->count, sizes = 1 + draw(trial, 4, 6);
  const int longest = of->period * (1 + draw(trial, 5, 5)), odd = 40 + draw(trial, 6, 400);
  const bool turns = trial % 4 == 0;
  uint64_t at = 10;
  int count = 0;
  for (int f = 0; f < of->forms; f++, at += 3)
    for (int r = 0; r < of->count; r++) {
      const int form = turns && r > of->count / 2 ? (f + 1) % of->forms : f;
      const uint64_t from = 10 + 3 * (uint64_t)form;
      const int first = r * of->period + draw(trial, from, of->period);
      int last = first + (draw(trial, from, 3) ? draw(trial, from + 1, longest) : 0);
      const int drawn = draw(trial, 5000 + (uint64_t)(f * of->count + r), odd);
      if (drawn == 0) continue;
      if (drawn == 1) last += 3;
      if (last >= times) last = times - 1;
      boxes[count] = (ls_life_box){.bytes = (int64_t)draw(trial, from + 2, sizes) * 300,
                                   .first = first,
                                   .last = last,
                                   .about = count};
      count++;
    }
  for (int o = 0; o < of->others; o++, at += 3) {
    const int first = draw(trial, at, times), last = first + draw(trial, at + 1, times - first);
    const bool whole = o % 2 == 0;
    boxes[count] = (ls_life_box){.bytes = (int64_t)draw(trial, at + 2, sizes) * 300,
                                 .first = whole ? draw(trial, at, of->period) : first,
                                 .last = whole ? times - 1 : last,
                                 .about = count};
    count++;
  }
  qsort(boxes, (size_t)count, sizeof *boxes, by_size_and_begin);
  return count;
}

static void test_periods_tell_places(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 120; trial++) {
    const rounds of = {.period = 1 + draw(trial, 0, 40),
                       .count = 4 + draw(trial, 1, 40),
                       .forms = 1 + draw(trial, 2, 10),
                       .others = trial % 3 ? 0 : draw(trial, 3, 6)};
    ls_life_box boxes[MOST_ROUNDS];
    const int count = make_rounds(trial, &of, boxes);
    if (count) assert_lowest(boxes, count, of.period * of.count, of.period);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_places_are_the_lowest),
                                     cmocka_unit_test(test_periods_tell_places)};
  print_message("seed %d\n", SEED);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
