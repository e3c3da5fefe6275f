/* A classifier of texts is trained as transformers trains it: a training repeated on one device and
 * in layouts, with the logits of the first texts and how many each step tells right. Skipped where
 * the trace is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/trace_case.h"

#define TRACE "../shared/data/traces/llama-seqcls-tiny"
#define POOLED "../shared/data/traces/bert-cls-tiny"

static void training_is_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1",
      "mesh.dp_shard=3 zero=1",
      "mesh.dp_shard=2 zero=2 train.microbatches=3",
      "mesh.tp=2 mesh.dp_shard=2 zero=3",
      "mesh.cp=2 mesh.tp=2 context=ring",
      "mesh.cp=2 mesh.dp_shard=3 zero=3",
      "mesh.pp=2 mesh.tp=2 schedule=zbh1 recompute=full train.microbatches=3",
      "mesh.pp=2 schedule=zbh1 post_validation=true train.microbatches=3",
      "mesh.dp_shard=2 logits_rows=8",
      NULL};
  int failed = 0;
  if (!ls_directory_exists(TRACE)) {
    print_message("the traces of others are not here\n");
    skip();
  }
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(TRACE, "fp64", *layout);
  failed += !ls_trace_case_holds(TRACE, "fp32", "mesh.tp=2");
  assert_int_equal(failed, 0);
}

/* BERT's own head: a pooler on [CLS], and a classifier with a bias. */
static void pooled_training_is_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1",
      "mesh.dp_shard=3 zero=1",
      "mesh.tp=5 mesh.dp_shard=2 zero=3",
      "mesh.cp=2 mesh.dp_shard=3 zero=2",
      "mesh.pp=2 schedule=zbh1 recompute=full train.microbatches=3",
      "mesh.dp_shard=2 logits_rows=8",
      NULL};
  int failed = 0;
  if (!ls_directory_exists(POOLED)) {
    print_message("%s is not here\n", POOLED);
    skip();
  }
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(POOLED, "fp64", *layout);
  failed += !ls_trace_case_holds(POOLED, "fp32", layouts[0]);
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_is_pytorchs),
                                     cmocka_unit_test(pooled_training_is_pytorchs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
