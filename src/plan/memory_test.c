/* Memory estimates held against compiled programs, on a few layouts of each model. */
#include "plan/test_memory.h"

static void estimates_are_never_below(void **state) {
  (void)state;
  const tally sum = compare_memories(20, 30);
  assert_int_equal(sum.layouts, 30 * MEMORY_TASKS);
  assert_int_equal(sum.below, 0);
  assert_in_range(sum.above, 0, sum.layouts / 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(estimates_are_never_below),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
