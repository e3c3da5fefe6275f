/* Vectors of texts are learned as sentence-transformers' MultipleNegativesRankingLoss has it of
 * transformers' models: trainings of LlamaModel, by the last token and with wrong answers, and of
 * BertModel, by the mean, repeated on one device and in layouts, with the share of texts that find
 * their answer at each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/trace_case.h"

static void expect_layouts(const char *trace, const char *const *layouts) {
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(trace, "fp64", *layout);
  failed += !ls_trace_case_holds(trace, "fp32", "mesh.dp_shard=2");
  assert_int_equal(failed, 0);
}

static void last_tokens_are_transformers(void **state) {
  (void)state;
  static const char *const layouts[] = {"mesh.dp_shard=1",
                                        "mesh.dp_shard=4 zero=1",
                                        "mesh.dp_replicate=2 mesh.dp_shard=2 zero=3",
                                        "mesh.tp=2 mesh.dp_shard=2 zero=2",
                                        "mesh.cp=3",
                                        "mesh.pp=2 schedule=zbh1 recompute=full",
                                        NULL};
  expect_layouts("tests/data/traces/llama-texts", layouts);
}

static void means_are_transformers(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "mesh.dp_shard=1", "mesh.dp_shard=2 zero=3 train.microbatches=2",
      "mesh.cp=3 mesh.dp_shard=2 zero=2",
      "mesh.pp=2 mesh.tp=2 schedule=zbh1 recompute=full train.microbatches=2", NULL};
  expect_layouts("tests/data/traces/bert-texts", layouts);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(last_tokens_are_transformers),
                                     cmocka_unit_test(means_are_transformers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
