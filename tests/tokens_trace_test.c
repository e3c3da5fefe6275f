/* Classes of tokens are learned as transformers learns them: trainings of
 * BertForTokenClassification repeated on one device and in layouts, with the logits of a token and
 * how many labels each step tells right; one of them weighs its classes. And several labels of a
 * text, as BertForSequenceClassification learns them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/trace_case.h"

#define TRACE "tests/data/traces/bert-tokens"
#define WEIGHTED "tests/data/traces/bert-weighted"
#define SEVERAL "tests/data/traces/bert-several"

static void training_is_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1",
      "mesh.dp_shard=4 zero=1",
      "mesh.tp=4",
      "mesh.tp=2 mesh.dp_shard=2 zero=3",
      "mesh.cp=3 mesh.dp_shard=2 zero=2",
      "mesh.pp=2 schedule=zbh1 recompute=full train.microbatches=2",
      "mesh.dp_shard=2 logits_rows=8",
      NULL};
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(TRACE, "fp64", *layout);
  failed += !ls_trace_case_holds(TRACE, "fp32", "mesh.tp=2");
  assert_int_equal(failed, 0);
}

static void weights_are_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1", "mesh.cp=3 mesh.dp_shard=2 zero=2 train.microbatches=2",
      "mesh.pp=2 mesh.tp=2 schedule=zbh1 recompute=full train.microbatches=2 logits_rows=8", NULL};
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(WEIGHTED, "fp64", *layout);
  failed += !ls_trace_case_holds(WEIGHTED, "fp32", "mesh.tp=2");
  assert_int_equal(failed, 0);
}

static void several_labels_are_transformers(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1", "mesh.cp=3 mesh.dp_shard=2 zero=2 train.microbatches=2",
      "mesh.pp=2 mesh.tp=2 schedule=zbh1 recompute=full train.microbatches=2 logits_rows=8", NULL};
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(SEVERAL, "fp64", *layout);
  failed += !ls_trace_case_holds(SEVERAL, "fp32", "mesh.tp=2");
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_is_pytorchs),
                                     cmocka_unit_test(weights_are_pytorchs),
                                     cmocka_unit_test(several_labels_are_transformers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
