/* Layouts that are trained beside one device, and how it went with all of them.
 *
 *   ls_test_tally tally = {0};
 *   ls_test_one_device(arena, &experiment, name, &reference);
 *   ls_test_tally_layout(&tally, &experiment, &reference, &layout, name);
 *   assert_int_equal(tally.failed, 0);
 */
#ifndef LS_TESTS_TALLY_H
#define LS_TESTS_TALLY_H

#include "verify/equality.h"

typedef struct ls_test_tally {
  int run, refused, failed;
  double worst; /* difference from one device */
} ls_test_tally;

/* What one device comes to, in fp64. Ends the test program where it cannot train. */
void ls_test_one_device(ls_arena *arena, const ls_experiment *experiment, const char *name,
                        ls_trajectory *reference);

/* Trains under the layout. It failed, and is printed, where it ends otherwise than by LS_INPUT or
 * is further than 1e-10 from the reference. With LS_CASE set only names that have it run. */
void ls_test_tally_layout(ls_test_tally *tally, const ls_experiment *experiment,
                          const ls_trajectory *reference, const ls_layout *layout,
                          const char *name);

#endif
