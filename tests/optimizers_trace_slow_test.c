/* Trainings by bitsandbytes' AdamW of 8 bits and by PyTorch's Muon, repeated on one device and in
 * layouts. Skipped where their traces are not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/trace_case.h"

#define TRACES "../shared/data/traces/"

static const struct {
  const char *trace, *layout;
} repeated[] = {
    {"adamw8bit-llama-tiny", "mesh.dp_shard=1"},
    {"adamw8bit-llama-tiny", "mesh.dp_shard=2 zero=1"},
    {"adamw8bit-llama-tiny", "mesh.dp_shard=2 zero=2 train.microbatches=2"},
    {"adamw8bit-llama-tiny", "mesh.dp_shard=4 zero=3"},
    {"adamw8bit-llama-tiny", "mesh.tp=2"},
    {"adamw8bit-llama-tiny", "mesh.tp=4 mesh.dp_shard=2 zero=3"},
    {"adamw8bit-llama-tiny", "mesh.pp=2 train.microbatches=2"},
    {"adamw8bit-llama-tiny", "mesh.dp_shard=2 zero=3 offload.optimizer=host"},
    {"muon-llama-tiny", "mesh.dp_shard=1"},
    {"muon-llama-tiny", "mesh.dp_shard=2 zero=1"},
    {"muon-llama-tiny", "mesh.dp_shard=2 zero=2 train.microbatches=2"},
    {"muon-llama-tiny", "mesh.dp_shard=4 zero=3"},
    {"muon-llama-tiny", "mesh.tp=5"},
    {"muon-llama-tiny", "mesh.tp=5 mesh.dp_shard=2 zero=3"},
    {"muon-llama-tiny", "mesh.pp=2 train.microbatches=2"},
    {"muon-llama-tiny", "mesh.dp_shard=2 zero=3 offload.optimizer=host"},
};

static void trainings_are_those_of_others(void **state) {
  (void)state;
  int failed = 0;
  if (!ls_directory_exists(TRACES "muon-llama-tiny")) {
    print_message("the traces of others are not here\n");
    skip();
  }
  for (size_t r = 0; r < sizeof repeated / sizeof *repeated; r++) {
    char trace[128];
    snprintf(trace, sizeof trace, TRACES "%s", repeated[r].trace);
    failed += !ls_trace_case_holds(trace, "fp64", repeated[r].layout);
    if (r % 4 == 0) failed += !ls_trace_case_holds(trace, "fp32", repeated[r].layout);
  }
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(trainings_are_those_of_others)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
