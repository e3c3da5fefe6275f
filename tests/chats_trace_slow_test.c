/* Packed chats, whose answers alone are trained, as transformers trains them: repeated on one
 * device and on meshes, in fp64 and fp32. Skipped where the trace is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/trace_case.h"

#define TRACE "../shared/data/traces/sft-packed-qwen2-tiny"

/* Two rows a step, of two to four chats each. */
static void training_is_transformers(void **state) {
  (void)state;
  static const char *const layouts[] = {"mesh.dp_shard=1",
                                        "mesh.dp_shard=2 zero=1",
                                        "mesh.dp_shard=2 zero=2",
                                        "mesh.dp_shard=2 zero=3 recompute=full",
                                        "mesh.tp=2",
                                        "mesh.pp=2 train.microbatches=2",
                                        "mesh.cp=2",
                                        "mesh.cp=4 context=ring",
                                        "mesh.cp=2 context=ulysses mesh.dp_shard=2 zero=3",
                                        "mesh.pp=2 mesh.tp=2 mesh.cp=2 train.microbatches=2",
                                        "mesh.tp=2 logits_rows=7",
                                        NULL};
  if (!ls_directory_exists(TRACE)) {
    print_message("%s is not here\n", TRACE);
    skip();
  }
  int failed = !ls_trace_case_holds(TRACE, "fp32", "mesh.tp=2");
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(TRACE, "fp64", *layout);
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_is_transformers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
