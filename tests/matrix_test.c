/* Every layout equals one device: loss, gradient norm, every parameter's gradient of five steps and
 * every parameter after them, in fp64 on the reference kernels and the real collectives. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/shapes.h"
#include "support/trajectory.h"

enum { SEQUENCES = 48, SEQUENCE = 4 };

/* Counts that every run must reach, so that the matrix cannot empty itself. */
enum { EXPECTED_RUN = 756, EXPECTED_REFUSED = 582 };

static const double tolerance = 1e-10;
static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 8, 12, 16};

typedef struct tally {
  int run, refused, failed;
  double worst;
} tally;

static uint64_t chosen_seed(void) {
  const char *given = getenv("LS_SEED");
  return given ? strtoull(given, NULL, 10) : 20261121;
}

static void describe(const ls_layout *layout, const char *model, char *text, size_t size) {
  snprintf(text, size, "%s dp_replicate=%d dp_shard=%d tp=%d zero=%d%s microbatches=%d", model,
           layout->dp_replicate, layout->dp_shard, layout->tp, layout->zero,
           layout->sequence_parallel ? " sp" : "", layout->microbatches);
}

/* Layouts that compile to the program of another one: ZeRO is about dp_shard, sequence parallelism
 * about tp. */
static bool repeats(const ls_layout *layout) {
  return (layout->dp_shard == 1 && layout->zero != 1) ||
         (layout->tp == 1 && layout->sequence_parallel);
}

static void run_case(const ls_experiment *experiment, const ls_trajectory *reference,
                     const ls_layout *layout, const char *model, tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_trajectory found;
  ls_error error = {0};
  char name[160];
  describe(layout, model, name, sizeof name);
  const char *only = getenv("LS_CASE");
  const ls_status status = only && !strstr(name, only)
                               ? LS_INPUT
                               : ls_trajectory_run(arena, experiment, layout, &found, &error);
  if (status == LS_INPUT) {
    counts->refused++;
  } else if (status != LS_OK) {
    print_message("%s: %s\n", name, error.text);
    counts->failed++;
  } else {
    const char *where;
    const double difference = ls_trajectory_difference(&found, reference, &where);
    counts->run++;
    if (difference > counts->worst) counts->worst = difference;
    if (!(difference <= tolerance)) {
      print_message("%s: %.3g in %s\n", name, difference, where);
      counts->failed++;
    }
  }
  ls_arena_destroy(&arena);
}

static void run_mesh(const ls_experiment *experiment, const ls_trajectory *reference,
                     const char *model, const int mesh[3], tally *counts) {
  for (int zero = 1; zero <= 3; zero++)
    for (int sp = 0; sp < 2; sp++)
      for (int microbatches = 1; microbatches <= 3; microbatches += 2) {
        ls_layout layout = ls_layout_default();
        layout.dp_replicate = mesh[0];
        layout.dp_shard = mesh[1];
        layout.tp = mesh[2];
        layout.zero = zero;
        layout.sequence_parallel = sp;
        layout.microbatches = microbatches;
        layout.compute = LS_F64;
        if (!repeats(&layout)) run_case(experiment, reference, &layout, model, counts);
      }
}

static void run_model(const ls_test_shape *shape, uint64_t seed, tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_model_config config;
  assert_int_equal(ls_model_config_parse(arena, shape->name, shape->config,
                                         strlen(shape->config), &config, &error),
                   LS_OK);
  const ls_experiment experiment = {.config = &config,
                                    .sequences = SEQUENCES,
                                    .sequence = SEQUENCE,
                                    .seed = seed,
                                    .learning_rate = 0.01};
  ls_layout one = ls_layout_default();
  one.compute = LS_F64;
  ls_trajectory reference;
  if (ls_trajectory_run(arena, &experiment, &one, &reference, &error) != LS_OK)
    fail_msg("%s on one device: %s", shape->name, error.text);
  for (size_t n = 0; n < sizeof rank_counts / sizeof *rank_counts; n++) {
    const int ranks = rank_counts[n];
    for (int replicate = 1; replicate <= ranks; replicate++)
      for (int shard = 1; shard <= ranks; shard++)
        if (ranks % (replicate * shard) == 0)
          run_mesh(&experiment, &reference, shape->name,
                   (int[]){replicate, shard, ranks / (replicate * shard)}, counts);
  }
  ls_arena_destroy(&arena);
}

static void test_every_layout_equals_one_device(void **state) {
  (void)state;
  const uint64_t seed = chosen_seed();
  tally counts = {0};
  print_message("seed %llu (set LS_SEED for another)\n", (unsigned long long)seed);
  for (int m = 0; m < LS_TEST_SHAPES; m++) run_model(&ls_test_shapes[m], seed, &counts);
  print_message("%d layouts run, %d refused, %d failed, worst difference %.3g\n", counts.run,
                counts.refused, counts.failed, counts.worst);
  assert_int_equal(counts.failed, 0);
  if (getenv("LS_CASE")) return;
  assert_int_equal(counts.run, EXPECTED_RUN);
  assert_int_equal(counts.refused, EXPECTED_REFUSED);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_layout_equals_one_device)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
