/* Classes of tokens are learned as transformers learns them: trainings of
 * BertForTokenClassification and LlamaForTokenClassification repeated on one device and in layouts,
 * with the logits of a token and how many labels each step tells right; one of them weighs its
 * classes. And several labels of a text, as BertForSequenceClassification learns them: of 3
 * classes, and of 40 that weigh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/trace_case.h"

#define TRACE "tests/data/traces/bert-tokens"
#define WEIGHTED "tests/data/traces/bert-weighted"
#define SEVERAL "tests/data/traces/bert-several"
#define SETS "tests/data/traces/bert-sets"
#define DECODER "tests/data/traces/llama-tokens"

static void expect_held(const char *trace, const char *const *layouts) {
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(trace, "fp64", *layout);
  failed += !ls_trace_case_holds(trace, "fp32", "mesh.tp=2");
  assert_int_equal(failed, 0);
}

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
  expect_held(TRACE, layouts);
}

static void weights_are_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1", "mesh.cp=3 mesh.dp_shard=2 zero=2 train.microbatches=2",
      "mesh.pp=2 mesh.tp=2 schedule=zbh1 recompute=full train.microbatches=2 logits_rows=8", NULL};
  expect_held(WEIGHTED, layouts);
}

static void several_labels_are_transformers(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1", "mesh.cp=3 mesh.dp_shard=2 zero=2 train.microbatches=2",
      "mesh.pp=2 mesh.tp=2 schedule=zbh1 recompute=full train.microbatches=2 logits_rows=8", NULL};
  expect_held(SEVERAL, layouts);
}

static void sets_of_many_classes_weigh_as_pytorchs(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1", "mesh.cp=3 mesh.dp_shard=2 zero=3 train.microbatches=2",
      "mesh.pp=2 mesh.tp=2 schedule=zbh1 recompute=full train.microbatches=2 logits_rows=8", NULL};
  expect_held(SETS, layouts);
}

static void tokens_of_a_decoder_are_transformers(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1",
      "mesh.dp_shard=4 zero=1",
      "mesh.tp=2 mesh.dp_shard=2 zero=3",
      "mesh.cp=3 mesh.dp_shard=2 zero=2 train.microbatches=2",
      "mesh.pp=2 schedule=zbh1 recompute=full train.microbatches=2 logits_rows=8",
      NULL};
  expect_held(DECODER, layouts);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(training_is_pytorchs),
                                     cmocka_unit_test(weights_are_pytorchs),
                                     cmocka_unit_test(several_labels_are_transformers),
                                     cmocka_unit_test(sets_of_many_classes_weigh_as_pytorchs),
                                     cmocka_unit_test(tokens_of_a_decoder_are_transformers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
