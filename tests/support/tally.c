#include "support/tally.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double tolerance = 1e-10;

void ls_test_one_device(ls_arena *arena, const ls_experiment *experiment, const char *name,
                        ls_trajectory *reference) {
  ls_layout one = ls_layout_default();
  ls_error error = {0};
  one.compute = LS_F64;
  if (ls_trajectory_run(arena, experiment, &one, reference, &error) != LS_OK)
    fail_msg("%s on one device: %s", name, error.text);
}

void ls_test_tally_layout(ls_test_tally *tally, const ls_experiment *experiment,
                          const ls_trajectory *reference, const ls_layout *layout,
                          const char *name) {
  const char *only = getenv("LS_CASE"), *where;
  if (only && !strstr(name, only)) {
    tally->refused++;
    return;
  }
  ls_arena *arena = ls_arena_create();
  ls_trajectory found;
  ls_error error = {0};
  const ls_status status = ls_trajectory_run(arena, experiment, layout, &found, &error);
  if (status == LS_INPUT) {
    tally->refused++;
  } else if (status != LS_OK) {
    print_message("%s: %s\n", name, error.text);
    tally->failed++;
  } else {
    const double difference = ls_trajectory_difference(&found, reference, &where);
    tally->run++;
    if (difference > tally->worst) tally->worst = difference;
    if (!(difference <= tolerance)) {
      print_message("%s: %.3g in %s\n", name, difference, where);
      tally->failed++;
    }
  }
  ls_arena_destroy(&arena);
}
