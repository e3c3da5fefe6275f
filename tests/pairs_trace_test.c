/* Preferences are learned as PyTorch learns them: trainings by DPO and by ORPO repeated on one
 * device and in layouts, with the log-probabilities of the first answers and the rewards of every
 * step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/trace_case.h"

#define TRACE "tests/data/traces/dpo-llama"
#define ODDS "tests/data/traces/orpo-llama"

static void training_is_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1",
      "mesh.dp_replicate=3 train.microbatches=1",
      "mesh.dp_shard=3 zero=1",
      "mesh.tp=4",
      "mesh.tp=2 mesh.dp_shard=3 zero=3",
      "mesh.pp=2 mesh.tp=2 schedule=zbh1 train.microbatches=3",
      "mesh.pp=2 schedule=zbh1 post_validation=true recompute=full train.microbatches=3",
      NULL};
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(TRACE, "fp64", *layout);
  failed += !ls_trace_case_holds(TRACE, "fp32", "mesh.tp=2");
  assert_int_equal(failed, 0);
}

static void odds_are_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1", "mesh.dp_shard=4 zero=2", "mesh.tp=2 mesh.dp_shard=2 zero=3",
      "mesh.pp=2 schedule=zbh1 post_validation=true recompute=full train.microbatches=2", NULL};
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(ODDS, "fp64", *layout);
  failed += !ls_trace_case_holds(ODDS, "fp32", "mesh.tp=2");
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_is_pytorchs),
                                     cmocka_unit_test(odds_are_pytorchs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
