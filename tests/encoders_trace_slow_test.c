/* Encoders trained by masked language modelling with transformers, repeated on one device and on
 * meshes, in fp64 and fp32. Skipped where their traces are not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/trace_case.h"

#define TRACES "../shared/data/traces/"

static void repeat(const char *trace, const char *const *layouts) {
  if (!ls_directory_exists(trace)) {
    print_message("%s is not here\n", trace);
    skip();
  }
  int failed = !ls_trace_case_holds(trace, "fp32", layouts[0]);
  for (; *layouts; layouts++) failed += !ls_trace_case_holds(trace, "fp64", *layouts);
  assert_int_equal(failed, 0);
}

/* Five rows a step. */
static void test_bert(void **state) {
  (void)state;
  static const char *const layouts[] = {"mesh.dp_shard=1",
                                        "mesh.dp_shard=5 zero=1",
                                        "mesh.tp=2 zero=3",
                                        "mesh.pp=2 train.microbatches=5",
                                        "mesh.cp=2",
                                        "mesh.cp=2 context=ulysses",
                                        "mesh.dp_shard=5 mesh.tp=2 zero=3",
                                        "mesh.pp=2 mesh.cp=2 mesh.tp=2 train.microbatches=5",
                                        NULL};
  repeat(TRACES "bert-mlm-tiny", layouts);
}

static void test_modernbert(void **state) {
  (void)state;
  static const char *const layouts[] = {"mesh.dp_shard=1",
                                        "mesh.dp_shard=2 zero=1",
                                        "mesh.dp_shard=4 zero=2",
                                        "mesh.dp_shard=4 zero=3 recompute=full",
                                        "mesh.pp=2 train.microbatches=4",
                                        "mesh.cp=3",
                                        "mesh.cp=2 context=ulysses mesh.tp=2",
                                        "mesh.pp=2 mesh.dp_shard=2 mesh.tp=2 train.microbatches=2",
                                        NULL};
  repeat(TRACES "modernbert-mlm-tiny", layouts);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bert),
                                     cmocka_unit_test(test_modernbert)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
