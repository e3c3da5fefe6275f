/* Trainings of others (llm.c, llama2.c, litgpt) repeated on one device and on meshes. Skipped where
 * their traces are not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/trace_case.h"

#define TRACES "../shared/data/traces/"

static const char *const gpt2[] = {
    "mesh.dp_shard=2 zero=1 train.microbatches=2",
    "mesh.dp_shard=4 zero=2",
    "mesh.dp_shard=2 zero=3 train.microbatches=4",
    "mesh.dp_replicate=2 mesh.dp_shard=2 zero=3",
    "mesh.tp=2 sequence_parallel=false",
    "mesh.tp=4 train.microbatches=2",
    "mesh.dp_replicate=2 mesh.dp_shard=2 mesh.tp=2 zero=2",
    NULL,
};

static const char *const stories[] = {
    "mesh.dp_shard=2 zero=1",
    "mesh.dp_shard=4 zero=2",
    "mesh.dp_shard=2 zero=3 train.microbatches=2",
    "mesh.dp_replicate=2 mesh.dp_shard=2 zero=3",
    "mesh.tp=4 sequence_parallel=false",
    "mesh.tp=8 train.microbatches=2",
    "mesh.dp_replicate=2 mesh.dp_shard=2 mesh.tp=2 zero=1",
    NULL,
};

static const char *const llama3[] = {
    "mesh.dp_shard=3 zero=1",
    "mesh.dp_shard=3 zero=2",
    "mesh.dp_shard=3 zero=3",
    "mesh.dp_replicate=3 zero=0",
    "mesh.tp=2 sequence_parallel=false train.microbatches=3",
    "mesh.tp=4",
    "mesh.dp_shard=3 mesh.tp=2 zero=3",
    "mesh.dp_replicate=3 mesh.tp=4",
    NULL,
};

/* Families that another wrote down: litgpt, whose names were mapped. */
static const char *const others[] = {
    "mesh.dp_shard=3 zero=3",
    "mesh.tp=2 sequence_parallel=false",
    "mesh.tp=4",
    "mesh.dp_replicate=3 mesh.tp=2 zero=1",
    "mesh.dp_shard=3 mesh.tp=2 zero=3",
    NULL,
};

static int run_layouts(const char *trace, const char *dtype, const char *const *layouts) {
  int failed = 0;
  for (; *layouts; layouts++) failed += !ls_trace_case_holds(trace, dtype, *layouts);
  return failed;
}

static void need(const char *trace) {
  if (ls_directory_exists(trace)) return;
  print_message("%s is not here\n", trace);
  skip();
}

/* In fp64 the plain kernels take a quarter of a minute for each of these two: one device there, and
 * every layout in fp32. */
static void test_gpt2(void **state) {
  (void)state;
  const char *trace = TRACES "gpt2-tiny-pretrain";
  need(trace);
  int failed = !ls_trace_case_holds(trace, "fp64", "mesh.dp_shard=1");
  failed += !ls_trace_case_holds(trace, "fp32", "mesh.dp_shard=1");
  failed += !ls_trace_case_holds(trace, "bf16", "mesh.dp_shard=2");
  assert_int_equal(failed + run_layouts(trace, "fp32", gpt2), 0);
}

static void test_stories(void **state) {
  (void)state;
  const char *trace = TRACES "llama-stories260K-finetune";
  need(trace);
  int failed = !ls_trace_case_holds(trace, "fp64", "mesh.dp_shard=1");
  failed += !ls_trace_case_holds(trace, "fp32", "mesh.dp_shard=1");
  failed += !ls_trace_case_holds(trace, "bf16", "mesh.dp_shard=2");
  assert_int_equal(failed + run_layouts(trace, "fp32", stories), 0);
}

static void test_llama3(void **state) {
  (void)state;
  const char *trace = TRACES "llama3-rope-tiny";
  need(trace);
  int failed = !ls_trace_case_holds(trace, "fp64", "mesh.dp_shard=1");
  failed += !ls_trace_case_holds(trace, "fp32", "mesh.dp_shard=1");
  failed += !ls_trace_case_holds(trace, "bf16", "mesh.dp_shard=3");
  failed += run_layouts(trace, "fp64", llama3);
  assert_int_equal(failed + run_layouts(trace, "fp32", llama3), 0);
}

static void test_others(void **state) {
  (void)state;
  static const char *const traces[] = {TRACES "gemma2-tiny", TRACES "mistral-tiny",
                                       TRACES "qwen2-tiny", TRACES "qwen3-tiny"};
  int failed = 0;
  for (int t = 0; t < 4; t++) {
    need(traces[t]);
    failed += !ls_trace_case_holds(traces[t], "fp64", "mesh.dp_shard=1");
    failed += !ls_trace_case_holds(traces[t], "fp32", "mesh.dp_shard=1");
    failed += run_layouts(traces[t], "fp64", others);
    failed += run_layouts(traces[t], "fp32", others);
  }
  assert_int_equal(failed, 0);
}

/* Three rows a step, and experts that two and four ranks can share out: those of the context. */
static const char *const shared_experts[] = {
    "mesh.cp=2 mesh.ep=2",
    "mesh.cp=4 mesh.ep=4 zero=3",
    "mesh.cp=2 mesh.ep=2 mesh.tp=2 zero=1 context=ring",
    "mesh.dp_shard=3 mesh.cp=2 mesh.ep=2 zero=2 context=ulysses",
    "mesh.dp_replicate=3 mesh.cp=2 mesh.ep=2 zero=3 recompute=full",
    "mesh.pp=2 mesh.cp=2 mesh.ep=2 zero=1 train.microbatches=3",
    NULL,
};

/* Mixtures of experts. litgpt's fp64 run has their weights in float32 too, which its noise explains
 * of Mixtral's logits alone. */
static void test_experts(void **state) {
  (void)state;
  static const char *const traces[] = {TRACES "qwen3_moe-16x4-tiny", TRACES "mixtral-tiny",
                                       TRACES "qwen3_moe-tiny"};
  int failed = 0;
  for (int t = 0; t < 3; t++) {
    need(traces[t]);
    if (t < 2) failed += !ls_trace_case_holds(traces[t], "fp64", "mesh.dp_shard=1");
    if (t < 1) failed += run_layouts(traces[t], "fp64", others);
    failed += !ls_trace_case_holds(traces[t], "fp32", "mesh.dp_shard=1");
    failed += run_layouts(traces[t], "fp32", others);
    failed += run_layouts(traces[t], t < 2 ? "fp64" : "fp32", shared_experts);
  }
  assert_int_equal(failed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2), cmocka_unit_test(test_stories),
                                     cmocka_unit_test(test_llama3), cmocka_unit_test(test_others),
                                     cmocka_unit_test(test_experts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
