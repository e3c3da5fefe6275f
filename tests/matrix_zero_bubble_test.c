/* A zero-bubble step computes what 1F1B's does: a backward pass in two halves sums the same
 * numbers. Where the order of every sum is the same too, all bits are: microbatches in their order,
 * so losses, gradients and parameters of any model under zbh1 and zbh2, which cut it as 1F1B does,
 * and of a model without tied embeddings under zbv. A tied embedding's two uses are added up on one
 * stage under zbv, microbatch by microbatch, and on two under 1F1B; and a norm adds up the stages:
 * there it is rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/counts.h"
#include "support/layouts.h"
#include "verify/equality.h"

static const char *const schedules[] = {"zbh1", "zbh2", "zbv"};

/* pp, dp_shard, tp. */
static const int meshes[][3] = {{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {2, 1, 4}, {3, 1, 1}, {4, 1, 1}};

enum { SCHEDULES = 3, MESHES = 6, LAYERS = 6, RUN = 96, SAME_BITS = 80 };

static ls_status run(ls_arena *arena, int shape, int mesh, const char *schedule, int microbatches,
                     ls_trajectory *made, ls_error *error) {
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  config.layers = LAYERS;
  const ls_experiment experiment = {.config = &config,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .learning_rate = 1e-2,
                                    .seed = 5,
                                    .steps = 3,
                                    .deadline_s = 120};
  ls_layout layout = ls_test_layout_default();
  layout.compute = LS_F64;
  layout.pp = meshes[mesh][0];
  layout.dp_shard = meshes[mesh][1];
  layout.tp = meshes[mesh][2];
  layout.schedule = schedule;
  layout.microbatches = microbatches;
  layout.prefetch = microbatches % 3;
  layout.optimizer.clip = 0; /* parameters do not go by the norm */
  return ls_trajectory_run(arena, &experiment, &layout, made, error);
}

static bool same(const double *a, const double *b, int64_t count) {
  return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

static bool same_bits(const ls_trajectory *a, const ls_trajectory *b) {
  bool all = same(a->loss, b->loss, LS_TRAJECTORY_STEPS);
  for (int p = 0; p < a->parameters; p++) {
    all &= same(a->final[p], b->final[p], a->elements[p]);
    for (int s = 0; s < LS_TRAJECTORY_STEPS; s++)
      all &= same(a->gradient[s * a->parameters + p], b->gradient[s * a->parameters + p],
                  a->elements[p]);
  }
  return all;
}

static void compare(int shape, int mesh, int microbatches, int *count, int *equal) {
  ls_arena *arena = ls_arena_create();
  ls_trajectory one, other;
  ls_error error = {0};
  if (run(arena, shape, mesh, "1f1b", microbatches, &one, &error) == LS_OK)
    for (int k = 0; k < SCHEDULES; k++) {
      if (run(arena, shape, mesh, schedules[k], microbatches, &other, &error) != LS_OK)
        fail_msg("%s", error.text);
      const char *where;
      const double worst = ls_trajectory_difference(&other, &one, &where);
      const bool equal_bits = same_bits(&other, &one);
      const bool tied = strstr(ls_test_shapes[shape].name, "tied");
      const bool expected = !tied || strcmp(schedules[k], "zbv") != 0;
      *count += 1;
      *equal += equal_bits;
      if (!(worst < 1e-10) || (expected && !equal_bits))
        fail_msg("%s under %s, pp %d, dp_shard %d, tp %d, %d microbatches: %g in %s",
                 ls_test_shapes[shape].name, schedules[k], meshes[mesh][0], meshes[mesh][1],
                 meshes[mesh][2], microbatches, worst, where);
    }
  ls_arena_destroy(&arena);
}

static void test_zero_bubble_steps_have_the_bits_of_1f1b(void **state) {
  (void)state;
  int count = 0, equal = 0;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++)
    for (int mesh = 0; mesh < MESHES; mesh++)
      for (int microbatches = 3; microbatches <= 8; microbatches += 5)
        compare(shape, mesh, microbatches, &count, &equal);
  print_message("%d steps equal to 1F1B's, %d of them to the last bit\n", count, equal);
  const ls_test_count wanted[] = {LS_TEST_COUNT(count, RUN), LS_TEST_COUNT(equal, SAME_BITS)};
  ls_test_expect_counts(wanted, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_zero_bubble_steps_have_the_bits_of_1f1b)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
