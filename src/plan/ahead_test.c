/* What other threads measure before it is asked for. */
#include "plan/ahead.h"

#include <sched.h>

#include "plan/test_plan.h"

static void compare_rows(const ls_plan_row *a, const ls_plan_row *b, int count) {
  for (int r = 0; r < count; r++) {
    assert_true(ls_plan_same(&a[r].layout, &b[r].layout));
    assert_true(a[r].seconds == b[r].seconds && a[r].estimated_s == b[r].estimated_s);
    assert_int_equal(a[r].bytes, b[r].bytes);
  }
}

/* What other threads measure ahead changes nothing but how long it takes: on one core alone there
 * are none. */
static void threads_change_nothing(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_plan_task posed;
  cpu_set_t before, one;
  pose(arena, "gpt2-124m", 8, "4xRTX3090:4", &posed);
  posed.problem.limit = INT64_C(3) << 30;
  const ls_plan *many = plan(arena, &posed.problem);
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET((size_t)sched_getcpu(), &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  const ls_plan *alone = plan(arena, &posed.problem);
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
  assert_true(many->rows.count > 3 && many->too_large.count > 3);
  assert_int_equal(many->rows.count, alone->rows.count);
  assert_int_equal(many->too_large.count, alone->too_large.count);
  assert_int_equal(many->compiled, alone->compiled);
  assert_int_equal(many->work, alone->work);
  compare_rows(many->rows.items, alone->rows.items, many->rows.count);
  compare_rows(many->too_large.items, alone->too_large.items, many->too_large.count);
  ls_arena_destroy(&arena);
}

/* What was expected is answered as what was not; a size above the most is an answer alone. */
static void answers_are_the_same(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_plan_task posed;
  ls_plan_memory *memory;
  pose(arena, "llama-3m", 8, "4xRTX3090:4", &posed);
  assert_int_equal(ls_plan_memory_make(arena, &posed.problem, &memory, NULL), LS_OK);
  ls_plan_candidates all = {.arena = arena};
  ls_plan_enumerate(&posed.problem, &all);
  enum { ASKED = 12 };
  assert_true(all.list.count > ASKED);
  ls_plan_ask asks[ASKED];
  for (int a = 0; a < ASKED; a++) {
    const int place = a * (all.list.count / ASKED);
    asks[a] = (ls_plan_ask){all.list.items[place].layout,
                            a % 3 ? (a % 3 == 2 ? 1 : 1e15) : INFINITY, a % 3 > 0};
  }
  ls_plan_ahead *ahead = ls_plan_ahead_start(arena, &posed.problem, memory);
  ls_plan_ahead_expect(ahead, asks, ASKED);
  for (int a = ASKED - 1; a >= 0; a--) {
    if (a == ASKED / 2) ls_plan_ahead_expect(ahead, asks, 1); /* the others no more */
    ls_plan_row row, own;
    const ls_status status = ls_plan_measure(&posed.problem, &asks[a].layout, NULL, &own, NULL);
    assert_int_equal(ls_plan_ahead_size(ahead, &asks[a].layout),
                     ls_plan_memory_of(memory, &asks[a].layout));
    assert_int_equal(ls_plan_ahead_measure(ahead, &asks[a].layout, INFINITY, &row), status);
    if (status == LS_OK) compare_rows(&row, &own, 1);
  }
  ls_plan_ahead_stop(ahead);
  ls_arena_destroy(&arena);
}

static void count_turn(void *work, int at) {
  ((int *)work)[at]++;
}

static void every_turn_is_taken_once(void **state) {
  (void)state;
  int taken[100] = {0};
  ls_plan_share(100, count_turn, taken);
  for (int t = 0; t < 100; t++) assert_int_equal(taken[t], 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(threads_change_nothing),
      cmocka_unit_test(answers_are_the_same),
      cmocka_unit_test(every_turn_is_taken_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
