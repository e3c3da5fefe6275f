/* A small model learns of a larger one as PyTorch has it: a distillation repeated on one device and
 * in layouts. Skipped where its trace is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/trace_case.h"

#define TRACE "../shared/data/traces/distill-llama-tiny"

static void training_is_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {"mesh.dp_shard=1 logits_rows=50",
                                        "mesh.dp_shard=2 zero=1 train.microbatches=2",
                                        "mesh.dp_shard=4 zero=2",
                                        "mesh.tp=2 mesh.dp_shard=2 zero=3 logits_rows=16",
                                        "mesh.pp=2 schedule=zbh1 train.microbatches=4",
                                        "mesh.cp=2 context=ring recompute=full",
                                        "mesh.pp=2 mesh.tp=2 mesh.cp=2 zero=3 train.microbatches=2",
                                        NULL};
  if (!ls_directory_exists(TRACE)) {
    print_message("%s is not here\n", TRACE);
    skip();
  }
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(TRACE, "fp64", *layout);
  failed += !ls_trace_case_holds(TRACE, "fp32", "mesh.tp=2");
  failed += !ls_trace_case_holds(TRACE, "bf16", "mesh.dp_shard=2 zero=3");
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_is_pytorchs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
