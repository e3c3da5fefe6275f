/* Adapters are PEFT's: its training repeated on one device and in layouts, its folder read, and
 * merged with the weights, its logits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/export.h"
#include "generate/generate.h"
#include "store/adapters.h"
#include "store/safetensors.h"
#include "support/test_folder.h"
#include "support/trace_case.h"
#include "text/json.h"

#define TRACE "tests/data/traces/lora-llama"

static void training_is_pefts(void **state) {
  (void)state;
  static const char *const layouts[] = {"mesh.dp_shard=1",
                                        "mesh.dp_replicate=3 train.microbatches=1",
                                        "mesh.dp_shard=3 zero=1",
                                        "mesh.dp_shard=3 zero=2",
                                        "mesh.dp_shard=3 zero=3",
                                        "mesh.tp=2 sequence_parallel=false",
                                        "mesh.tp=2 logits_rows=7",
                                        "mesh.tp=6",
                                        "mesh.pp=2 train.microbatches=3",
                                        "mesh.pp=2 mesh.tp=2 schedule=zbh1 train.microbatches=3",
                                        "recompute=full",
                                        "mesh.dp_shard=3 offload.optimizer=host",
                                        "mesh.cp=2 mesh.tp=2",
                                        "mesh.cp=4 mesh.dp_shard=3 zero=2",
                                        "mesh.cp=2 mesh.dp_shard=3 zero=3 context=ulysses",
                                        NULL};
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(TRACE, "fp64", *layout);
  failed += !ls_trace_case_holds(TRACE, "fp32", "mesh.tp=2");
  failed += !ls_trace_case_holds(TRACE, "bf16", "mesh.dp_shard=3");
  assert_int_equal(failed, 0);
}

/* Of every position of the trace's prompt: the largest difference from PEFT's merged logits. */
static ls_status compare_logits(void *context, ls_generator *generator, ls_error *failed) {
  double *worst = context;
  ls_arena *own = ls_arena_create();
  ls_error error = {0};
  json_t *json;
  ls_json_object root;
  int64_t *ids;
  int count;
  (void)failed;
  assert_int_equal(ls_json_read(TRACE "/trace.json", 0, &json, &error), LS_OK);
  assert_int_equal(ls_json_root("trace.json", json, &root, &error), LS_OK);
  assert_int_equal(ls_json_ints(own, &root, "prompt_ids", &ids, &count, &error), LS_OK);
  json_decref(json);
  ls_safetensors *merged;
  assert_int_equal(ls_safetensors_open(TRACE "/merged.safetensors", NULL, &merged, &error), LS_OK);
  const ls_stored_tensor *logits = ls_safetensors_find(merged, "merged_logits");
  const int64_t vocabulary = ls_generator_config(generator)->vocabulary;
  assert_int_equal(logits->count, count * vocabulary);
  double *theirs = LS_NEW_ARRAY(own, double, vocabulary);
  for (int at = 0; at < count; at++) {
    const int32_t id = (int32_t)ids[at];
    const float *ours;
    assert_int_equal(ls_generator_feed(generator, &id, 1, &ours, &error), LS_OK);
    assert_int_equal(
        ls_stored_tensor_read(logits, at * vocabulary, vocabulary, LS_F64, theirs, &error), LS_OK);
    for (int64_t v = 0; v < vocabulary; v++)
      *worst = fmax(*worst, fabs((double)ours[v] - theirs[v]));
  }
  ls_safetensors_close(&merged);
  ls_arena_destroy(&own);
  return LS_OK;
}

static double logits_off(const char *model, int ranks) {
  ls_error error = {0};
  ls_world *world;
  double worst = 0;
  const ls_generator_options options = {
      .folder = model, .compute = LS_F64, .rows = 32, .sequences = ranks};
  assert_int_equal(ls_world_create_threads(ranks, &world, &error), LS_OK);
  if (ls_generator_run(arena, &options, world, compare_logits, &worst, &error) != LS_OK)
    fail_msg("%s", error.text);
  ls_world_destroy(&world);
  return worst;
}

static ls_export_report export_to(const char *from, const char *to, bool merge) {
  ls_error error = {0};
  ls_export_report report;
  const ls_export_options options = {
      .from = from, .to = to, .dtype = LS_DTYPE_COUNT, .max_shard_bytes = 1 << 30, .merge = merge};
  if (ls_export(&options, &report, &error) != LS_OK) fail_msg("%s", error.text);
  return report;
}

/* Logits of about 10, that are stored in fp32; the adapters and merged weights are fp32 too. */
static void logits_are_pefts(void **state) {
  (void)state;
  const char *adapters = ls_trace_adapters(arena, TRACE, in_folder("adapters")),
             *merged = in_folder("merged");
  assert_true(logits_off(TRACE, 1) > 0.1); /* without them */
  assert_true(logits_off(adapters, 1) < 1e-5);
  assert_true(logits_off(adapters, 2) < 1e-5);
  const ls_export_report report = export_to(adapters, merged, true);
  assert_true(report.tensors > 0);
  assert_false(ls_adapters_has(merged));
  assert_true(logits_off(merged, 1) < 1e-5);
}

/* Exported again they are the same tensors, under the same names, and say the same of themselves.
 */
static void an_export_is_pefts_folder(void **state) {
  (void)state;
  const char *adapters = ls_trace_adapters(arena, TRACE, in_folder("adapters")),
             *again = in_folder("again");
  const ls_export_report report = export_to(adapters, again, false);
  assert_int_equal(report.tensors, 8);
  assert_false(ls_file_exists(ls_arena_printf(arena, "%s/config.json", again)));
  ls_error error = {0};
  ls_safetensors *first, *second;
  assert_int_equal(ls_safetensors_open(adapters, LS_ADAPTERS_STEM, &first, &error), LS_OK);
  assert_int_equal(ls_safetensors_open(again, LS_ADAPTERS_STEM, &second, &error), LS_OK);
  for (int i = 0; i < ls_safetensors_count(first); i++) {
    const ls_stored_tensor *one = ls_safetensors_at(first, i);
    const ls_stored_tensor *other = ls_safetensors_find(second, one->name);
    assert_non_null(other);
    assert_int_equal(one->bytes, other->bytes);
    assert_memory_equal(one->data, other->data, one->bytes);
  }
  ls_safetensors_close(&first);
  ls_safetensors_close(&second);
  json_t *json, *theirs;
  const char *path = ls_arena_printf(arena, "%s/adapter_config.json", again);
  assert_int_equal(ls_json_read(path, 0, &json, &error), LS_OK);
  assert_int_equal(ls_json_read(TRACE "/adapter_final/adapter_config.json", 0, &theirs, &error),
                   LS_OK);
  const char *key;
  json_t *value;
  json_object_foreach(json, key, value) {
    if (strcmp(key, "base_model_name_or_path") == 0) continue;
    if (!json_equal(value, json_object_get(theirs, key))) fail_msg("%s differs", key);
  }
  json_decref(json);
  json_decref(theirs);
  assert_true(logits_off(again, 1) < 1e-5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_is_pefts),
      cmocka_unit_test_setup_teardown(logits_are_pefts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_export_is_pefts_folder, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
