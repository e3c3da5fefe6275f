/* The same of more layouts than the quick test has: of 2,250, and with LS_LAYOUTS=all of 11,250.
 * LS_SEED draws others. */
#include "plan/test_memory.h"
#include "support/test_seed.h"

static void of_many_layouts_none_is_below(void **state) {
  (void)state;
  const char *which = getenv("LS_LAYOUTS");
  const int each = which && strcmp(which, "all") == 0 ? 1250 : 250;
  const tally sum = compare_memories(test_seed_untold(2000), each);
  assert_int_equal(sum.layouts, each * MEMORY_TASKS);
  assert_int_equal(sum.below, 0);
  assert_in_range(sum.above, 0, sum.layouts / 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_many_layouts_none_is_below),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
