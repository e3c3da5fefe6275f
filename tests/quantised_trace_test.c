/* A quantised base is bitsandbytes': its codes, read and made here; its training beside PEFT's
 * adapters repeated on one device and in layouts; its logits, and those of merged weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blocks.h"
#include "base/scales.h"
#include "checkpoint/export.h"
#include "generate/generate.h"
#include "session/session.h"
#include "store/quantised.h"
#include "store/safetensors.h"
#include "support/test_folder.h"
#include "support/trace_case.h"
#include "text/json.h"

#define TRACE "tests/data/traces/qlora-llama"

static void training_is_pefts(void **state) {
  (void)state;
  static const char *const layouts[] = {"mesh.dp_shard=1",
                                        "mesh.dp_replicate=3 train.microbatches=1",
                                        "mesh.dp_shard=3 zero=1",
                                        "mesh.dp_shard=3 zero=2",
                                        "mesh.dp_shard=3 zero=3",
                                        "mesh.dp_shard=3 zero=3 prefetch=1 recompute=full",
                                        "train.microbatches=3 offload.parameters=host",
                                        "mesh.cp=3 zero=3",
                                        "mesh.cp=2 mesh.dp_shard=3 zero=3 context=ring",
                                        NULL};
  int failed = 0;
  for (const char *const *layout = layouts; *layout; layout++)
    failed += !ls_trace_case_holds(TRACE, "fp64", *layout);
  failed += !ls_trace_case_holds(TRACE, "fp32", "mesh.dp_shard=1");
  failed += !ls_trace_case_holds(TRACE, "fp32", "mesh.dp_shard=3");
  assert_int_equal(failed, 0);
}

static ls_safetensors *opened(const char *stem) {
  ls_error error = {0};
  ls_safetensors *set;
  if (ls_safetensors_open(TRACE, stem, &set, &error) != LS_OK) fail_msg("%s", error.text);
  return set;
}

/* What the file has of a weight, as blocks. */
static ls_four_bit_block *blocks_of(const ls_stored_tensor *tensor) {
  ls_error error = {0};
  ls_four_bit_block *blocks =
      LS_NEW_ARRAY(arena, ls_four_bit_block, tensor->count / LS_BLOCK_WEIGHTS);
  if (ls_stored_tensor_read(tensor, 0, tensor->count, LS_NF4, blocks, &error) != LS_OK)
    fail_msg("%s", error.text);
  return blocks;
}

/* Scales that are quantised again have the file's bits. */
static void check_scales(const ls_quantised *of, const ls_four_bit_block *made, int64_t count) {
  float *scales = LS_NEW_ARRAY(arena, float, count);
  float *nested = LS_NEW_ARRAY(arena, float, ls_scales_nested(count));
  for (int64_t b = 0; b < count; b++) scales[b] = made[b].scale;
  ls_scales_measure(scales, count, nested);
  assert_true(nested[0] == of->offset);
  assert_memory_equal(nested + 1, of->nested,
                      (size_t)(ls_scales_nested(count) - 1) * sizeof *nested);
  for (int64_t b = 0; b < count; b++)
    assert_int_equal(ls_scale_code(scales[b], nested, b), ((const uint8_t *)of->scales)[b]);
}

/* Codes bit by bit; scales, which the file quantises again, to what that may lose: half a step of
 * its 256, of the largest one's distance from their mean. */
static void codes_are_bitsandbytes(void **state) {
  (void)state;
  ls_safetensors *before = opened("original"), *after = opened("model");
  int64_t compared = 0;
  for (int t = 0; t < ls_safetensors_count(before); t++) {
    const ls_stored_tensor *original = ls_safetensors_at(before, t);
    const ls_stored_tensor *stored = ls_safetensors_find(after, original->name);
    assert_non_null(stored);
    assert_non_null(stored->quantised);
    assert_int_equal(stored->count, original->count);
    const int64_t count = stored->count / LS_BLOCK_WEIGHTS;
    ls_error error = {0};
    float *weights = LS_NEW_ARRAY(arena, float, stored->count);
    ls_four_bit_block *made = LS_NEW_ARRAY(arena, ls_four_bit_block, count),
                      *found = blocks_of(stored);
    assert_int_equal(ls_stored_tensor_read(original, 0, stored->count, LS_F32, weights, &error),
                     LS_OK);
    ls_blocks_quantise(LS_NF4, weights, count, made);
    check_scales(stored->quantised, made, count);
    for (int64_t b = 0; b < count; b++, compared++) {
      assert_memory_equal(made[b].codes, found[b].codes, sizeof made[b].codes);
      assert_true(fabsf(made[b].scale - found[b].scale) < 0.02f * made[b].scale);
    }
  }
  assert_int_equal(compared, (32 + 64) * 64 / LS_BLOCK_WEIGHTS);
  ls_safetensors_close(&before);
  ls_safetensors_close(&after);
}

/* Any elements of a weight, in any type, are those of its blocks. */
static void parts_of_blocks_are_read(void **state) {
  (void)state;
  ls_safetensors *set = opened("model");
  const ls_stored_tensor *down = ls_safetensors_find(set, "model.layers.0.mlp.down_proj.weight");
  assert_non_null(down);
  assert_int_equal(down->dtype, LS_F32);
  assert_int_equal(down->dims[0], 64);
  assert_int_equal(down->dims[1], 320);
  assert_null(ls_safetensors_find(set, "model.layers.0.mlp.down_proj.weight.absmax"));
  float *all = LS_NEW_ARRAY(arena, float, down->count);
  ls_blocks_restore(LS_NF4, blocks_of(down), down->count / LS_BLOCK_WEIGHTS, all);
  for (int64_t first = 0; first < 300; first += 37)
    for (int64_t count = 0; count < 300; count += 29) {
      double some[300];
      ls_error error = {0};
      assert_int_equal(ls_stored_tensor_read(down, first, count, LS_F64, some, &error), LS_OK);
      for (int64_t i = 0; i < count; i++) assert_true(some[i] == (double)all[first + i]);
    }
  ls_safetensors_close(&set);
}

/* A file of the trace with some of its bytes replaced. */
static ls_status open_changed(const char *from, const char *to, ls_error *error) {
  char *data;
  size_t bytes;
  const size_t length = strlen(from);
  assert_int_equal(length, strlen(to));
  assert_int_equal(ls_file_read(arena, TRACE "/model.safetensors", &data, &bytes, error), LS_OK);
  bool any = false;
  for (size_t i = 0; i + length <= bytes; i++)
    if (memcmp(data + i, from, length) == 0) {
      memcpy(data + i, to, length);
      any = true;
    }
  assert_true(any);
  ls_safetensors *set;
  const ls_status status = ls_safetensors_parse("changed", data, bytes, &set, error);
  if (status == LS_OK) ls_safetensors_close(&set);
  return status;
}

static void what_is_not_built_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *from, *to, *said;
  } changes[] = {
      {"\"blocksize\": 64", "\"blocksize\": 65", "blocksize 64"},
      {"\"quant_type\": \"nf4\"", "\"quant_type\": \"fp4\"", "quant_type nf4"},
      {"bitsandbytes__nf4", "bitsandbytes__fp4", "quant_type fp4 and"},
      {"[64, 320]", "[32, 640]", NULL}, /* fits, and config.json says otherwise */
      {"[64, 320]", "[64, 321]", "whole blocks"},
      {"[64, 320]", "[64, 384]", "a byte for two numbers"},
      {"\"float32\", \"shape\"", "\"float99\", \"shape\"", "float16"},
      {"\"nested_offset\"", "\"nested_offsex\"", "nested_offset"},
      {"\"nested_blocksize\": 256", "\"nested_blocksize\": 128", ".nested_absmax"},
      {"proj.weight.quant_map", "proj.weight.quant_mop", ".quant_map"},
      {"proj.weight.absmax", "proj.weight.absmix", ".absmax"},
      {"{\"quant_type\"", "[\"quant_type\"", "quant_state"},
  };
  for (size_t c = 0; c < sizeof changes / sizeof *changes; c++) {
    ls_error error = {0};
    const ls_status status = open_changed(changes[c].from, changes[c].to, &error);
    if (!changes[c].said && status == LS_OK) continue;
    if (status != LS_INPUT || !changes[c].said || !strstr(error.text, changes[c].said))
      fail_msg("%s: %s", changes[c].to, error.text);
    assert_null(strchr(error.text, '\n'));
  }
}

/* Of every position of the trace's prompt: the largest difference from the merged logits. */
static double logits_off(const char *model) {
  ls_error error = {0};
  ls_generator *generator;
  const ls_generator_options options = {.folder = model, .compute = LS_F64, .rows = 32};
  if (ls_generator_create(arena, &options, &generator, &error) != LS_OK) fail_msg("%s", error.text);
  json_t *json;
  ls_json_object root;
  int64_t *ids;
  int count;
  assert_int_equal(ls_json_read(TRACE "/trace.json", 0, &json, &error), LS_OK);
  assert_int_equal(ls_json_root("trace.json", json, &root, &error), LS_OK);
  assert_int_equal(ls_json_ints(arena, &root, "prompt_ids", &ids, &count, &error), LS_OK);
  json_decref(json);
  ls_safetensors *merged = opened("merged");
  const ls_stored_tensor *logits = ls_safetensors_find(merged, "merged_logits");
  const int64_t vocabulary = ls_generator_config(generator)->vocabulary;
  assert_int_equal(logits->count, count * vocabulary);
  double worst = 0, *theirs = LS_NEW_ARRAY(arena, double, vocabulary);
  for (int at = 0; at < count; at++) {
    const int32_t id = (int32_t)ids[at];
    const float *ours;
    assert_int_equal(ls_generator_feed(generator, &id, 1, &ours, &error), LS_OK);
    assert_int_equal(
        ls_stored_tensor_read(logits, at * vocabulary, vocabulary, LS_F64, theirs, &error), LS_OK);
    for (int64_t v = 0; v < vocabulary; v++) worst = fmax(worst, fabs((double)ours[v] - theirs[v]));
  }
  ls_safetensors_close(&merged);
  ls_generator_destroy(&generator);
  return worst;
}

static void merge(const char *from, const char *to) {
  ls_error error = {0};
  ls_export_report report;
  const ls_export_options options = {
      .from = from, .to = to, .dtype = LS_DTYPE_COUNT, .max_shard_bytes = 1 << 30, .merge = true};
  if (ls_export(&options, &report, &error) != LS_OK) fail_msg("%s", error.text);
}

static void copy_config(const char *to) {
  ls_error error = {0};
  char *text;
  size_t bytes;
  assert_int_equal(ls_file_read(arena, TRACE "/config.json", &text, &bytes, &error), LS_OK);
  const char *path = ls_arena_printf(arena, "%s/config.json", to);
  assert_int_equal(ls_file_write(path, text, bytes, &error), LS_OK);
}

/* Logits of about 10, that are stored in fp32. What is merged is no more quantised, and says so. */
static void logits_are_theirs(void **state) {
  (void)state;
  const char *adapters = ls_trace_adapters(arena, TRACE, in_folder("adapters")),
             *merged = in_folder("merged");
  ls_error error = {0};
  assert_true(logits_off(TRACE) > 0.1); /* without them */
  assert_true(logits_off(adapters) < 1e-5);
  merge(adapters, merged);
  assert_true(logits_off(merged) < 1e-5);
  ls_model_config config;
  assert_int_equal(ls_model_config_read(arena, merged, &config, &error), LS_OK);
  assert_int_equal(config.blocks, LS_COMPUTE);
  assert_int_equal(ls_model_config_read(arena, TRACE, &config, &error), LS_OK);
  assert_int_equal(config.blocks, LS_BLOCKS_NF4_DOUBLE);
}

/* Weights that are quantised as they are read are merged as their blocks, as they are generated
 * with; without quantising they are others. */
static void merging_keeps_what_was_trained(void **state) {
  (void)state;
  const char *first = ls_trace_adapters(arena, TRACE, in_folder("first")),
             *whole = in_folder("whole");
  const char *second = ls_trace_adapters(arena, TRACE, in_folder("second")),
             *merged = in_folder("merged");
  const char *path = ls_arena_printf(arena, "%s/adapter_config.json", second);
  ls_error error = {0};
  merge(first, whole);
  json_t *json;
  assert_int_equal(ls_json_read(path, 0, &json, &error), LS_OK);
  json_object_set_new(json, "base_model_name_or_path", json_string(whole));
  json_dump_file(json, path, 0);
  json_decref(json);
  const double plain = logits_off(second);
  copy_config(second); /* says NF4 */
  const double quantised = logits_off(second);
  merge(second, merged);
  assert_true(fabs(plain - quantised) > 1e-3);
  assert_true(fabs(logits_off(merged) - quantised) < 1e-5);
}

static ls_status open_session(const char *words, ls_session **session, ls_error *error) {
  static const char text[] = "data:\n  seq_len: 8\ntrain:\n  batch: 4\n";
  const char *list[4] = {0};
  ls_run_file *run;
  int count = 0;
  char *rest, *copy = ls_arena_strdup(arena, words);
  for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
    list[count++] = word;
  LS_TRY(ls_run_file_parse(arena, "run", text, strlen(text), list, count, &run, error));
  LS_TRY(
      ls_session_create(arena, run, run->mesh.tp > 1 ? (int)run->mesh.tp : 1, 1, session, error));
  return ls_session_check_start(*session, error);
}

/* A run is refused before it starts, in a line that says what to do. */
static void runs_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *words, *said;
  } runs[] = {
      {"model=" TRACE, "give lora.rank"},
      {"model=" TRACE " lora.rank=2 quantize=int8", "quantised again: use quantize=nf4"},
      {"model=" TRACE " lora.rank=2 mesh.tp=2", "no block is cut: use mesh.tp=1"},
      {"model=tests/data/traces/lora-llama lora.rank=2 quantize=nf4", "whole blocks of 64"},
      {"model=tests/data/traces/mixtral quantize=nf4", "a mixture of experts"},
  };
  for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
    ls_session *session;
    ls_error error = {0};
    const ls_status status = open_session(runs[r].words, &session, &error);
    if (status != LS_INPUT || !strstr(error.text, runs[r].said) || strchr(error.text, '\n'))
      fail_msg("%s: %s", runs[r].words, error.text);
  }
}

/* What training all of it would need is asked of a model without blocks; a base may be read as
 * numbers. */
static void a_base_is_measured(void **state) {
  (void)state;
  ls_session *quantised, *plain, *thawed[2];
  ls_error error = {0};
  int stage;
  if (open_session("model=" TRACE " lora.rank=2", &quantised, &error) != LS_OK ||
      open_session("model=" TRACE " lora.rank=2 quantize=none", &plain, &error) != LS_OK ||
      ls_session_thawed(arena, quantised, &thawed[0], &error) != LS_OK ||
      ls_session_thawed(arena, plain, &thawed[1], &error) != LS_OK)
    fail_msg("%s", error.text);
  const int64_t all = ls_session_bytes_needed(thawed[1], &stage);
  assert_true(ls_session_bytes_needed(thawed[0], &stage) == all);
  assert_true(ls_session_bytes_needed(plain, &stage) < all);
  assert_true(ls_session_bytes_needed(quantised, &stage) < ls_session_bytes_needed(plain, &stage));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(codes_are_bitsandbytes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(parts_of_blocks_are_read, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_not_built_is_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(logits_are_theirs, set_up, tear_down),
      cmocka_unit_test_setup_teardown(merging_keeps_what_was_trained, set_up, tear_down),
      cmocka_unit_test_setup_teardown(runs_are_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_base_is_measured, set_up, tear_down),
      cmocka_unit_test(training_is_pefts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
