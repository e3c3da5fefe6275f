#include "train/checkpoint_room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void copies_are_those_there_at_once(void **state) {
  (void)state;
  static const struct {
    int64_t saves, existing, keep, copies;
  } cases[] = {
      {0, 0, 2, 0},                             /* nothing is left to do */
      {1, 0, 2, 1}, {5, 0, 2, 3}, {5, 0, 1, 2}, /* one more before the first is removed */
      {5, 1, 2, 2}, {5, 2, 2, 1}, {5, 1, 1, 1}, /* the oldest goes when the new one is there */
      {5, 7, 2, 1},                             /* of a run that kept more */
      {1, 7, 0, 1}, {9, 7, 0, 9},               /* all are kept */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    assert_int_equal(ls_checkpoint_copies(cases[i].saves, cases[i].existing, cases[i].keep),
                     cases[i].copies);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copies_are_those_there_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
