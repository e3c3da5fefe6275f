/* What waits on the host or in a file comes back as it went: losses, norms, gradients and
 * parameters are the same to the last bit as with all of it on the device, over what is offloaded
 * and where, ZeRO, tensor parallelism, pipelines, microbatches, recomputation and types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/program.h"
#include "support/counts.h"
#include "support/layouts.h"
#include "support/offloads.h"
#include "verify/equality.h"

/* Golden: a kind that no longer runs must be seen. 98 samples draw what is refused by design, as
 * parameters that every rank stores whole. */
enum { SAMPLES = 240, RUN = 142, REFUSED = 98 };

typedef struct tally {
  int run, refused, same;
} tally;

static void run_sample(int sample, tally *count) {
  ls_arena *arena = ls_arena_create();
  const int shape = ls_test_offload_shape(sample);
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  ls_layout layout = ls_test_offload_layout(sample);
  const ls_experiment experiment = {.config = &config,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .learning_rate = 1e-2,
                                    .loss_scale = layout.compute == LS_F16 ? 1024 : 0,
                                    .device = {.kind = layout.compute != LS_F64 ? "cpu" : NULL},
                                    .seed = 5,
                                    .offload_path = "/tmp",
                                    .deadline_s = 60};
  ls_trajectory plain, offloaded;
  ls_error error = {0};
  const char *where = "";
  ls_status status = ls_trajectory_run(arena, &experiment, &layout, &plain, &error);
  layout.offload = ls_test_offload(sample);
  if (status == LS_OK) status = ls_trajectory_run(arena, &experiment, &layout, &offloaded, &error);
  if (status == LS_INPUT) {
    count->refused++;
  } else if (status != LS_OK) {
    fail_msg("%d: %s: %s", sample, ls_layout_print(arena, &layout), error.text);
  } else {
    const double worst = ls_trajectory_difference(&offloaded, &plain, &where);
    if (worst != 0)
      fail_msg("%d: %s: %g in %s", sample, ls_layout_print(arena, &layout), worst, where);
    count->run++;
  }
  ls_arena_destroy(&arena);
}

static void test_what_waits_elsewhere_comes_back_as_it_was(void **state) {
  (void)state;
  tally count = {0};
  const char *only = getenv("LS_SAMPLE");
  for (int sample = 0; sample < SAMPLES; sample++)
    if (!only || atoi(only) == sample) run_sample(sample, &count);
  print_message("%d runs equal to the last bit, %d refused\n", count.run, count.refused);
  if (only) return;
  const ls_test_count wanted[] = {LS_TEST_COUNT(count.run, RUN),
                                  LS_TEST_COUNT(count.refused, REFUSED)};
  ls_test_expect_counts(wanted, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_waits_elsewhere_comes_back_as_it_was)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
