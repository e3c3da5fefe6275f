/* The same of 10,000 layouts. LS_SEED draws others. */
#include "plan/test_memory.h"

static void of_ten_thousand_none_is_below(void **state) {
  (void)state;
  const char *given = getenv("LS_SEED");
  const tally sum = compare_memories(given ? strtoull(given, NULL, 10) : 2000, 1250);
  assert_int_equal(sum.layouts, 1250 * MEMORY_TASKS);
  assert_int_equal(sum.below, 0);
  assert_in_range(sum.above, 0, sum.layouts / 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_ten_thousand_none_is_below),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
