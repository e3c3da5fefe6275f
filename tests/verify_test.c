/* Trainings done by PyTorch, repeated on one device and on meshes; that a wrong number in a trace
 * is found and named; and what is said of traces that cannot be repeated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "store/safetensors.h"
#include "support/trace_case.h"
#include "text/json.h"

#define TRACES "tests/data/traces/"

static const char *const gpt2_tied[] = {
    "mesh.dp_shard=1",
    "mesh.dp_replicate=2 zero=0 train.microbatches=2",
    "mesh.dp_shard=2 zero=1 train.microbatches=2",
    "mesh.dp_shard=4 zero=2 train.microbatches=2",
    "mesh.dp_shard=8 zero=3",
    "mesh.dp_replicate=2 mesh.dp_shard=2 zero=3 train.microbatches=2",
    "mesh.tp=2 sequence_parallel=false",
    "mesh.tp=4 train.microbatches=4",
    "mesh.dp_replicate=2 mesh.dp_shard=2 mesh.tp=2 zero=2",
    NULL,
};

static const char *const llama_gqa_free[] = {
    "mesh.dp_shard=1",
    "mesh.dp_shard=3 zero=1 train.microbatches=2",
    "mesh.dp_shard=2 zero=2 train.microbatches=3",
    "mesh.dp_shard=6 zero=3",
    "mesh.dp_replicate=3 mesh.dp_shard=2 zero=3",
    "mesh.tp=3 sequence_parallel=false train.microbatches=3",
    "mesh.tp=6",
    "mesh.dp_replicate=2 mesh.tp=3 zero=1",
    "mesh.dp_shard=2 mesh.tp=6 zero=3 wrap=2",
    NULL,
};

static const char *const llama_gqa_tied[] = {
    "mesh.dp_shard=1",
    "mesh.dp_shard=3 zero=1 train.microbatches=2",
    "mesh.dp_shard=2 zero=2 train.microbatches=3",
    "mesh.dp_shard=4 zero=3 gather=step reduce=microbatch train.microbatches=3",
    "mesh.dp_replicate=2 mesh.dp_shard=2 zero=3",
    "mesh.tp=2 sequence_parallel=false",
    "mesh.tp=4 train.microbatches=3",
    "mesh.dp_replicate=2 mesh.dp_shard=3 mesh.tp=2 zero=3",
    NULL,
};

static const char *const llama_frozen[] = {
    "mesh.dp_shard=1",
    "mesh.dp_shard=2 zero=1 train.microbatches=2",
    "mesh.dp_shard=4 zero=2",
    "mesh.dp_shard=4 zero=3",
    "mesh.dp_replicate=2 mesh.dp_shard=2 zero=3",
    "mesh.tp=2 sequence_parallel=false train.microbatches=4",
    "mesh.tp=4",
    "mesh.pp=3 train.microbatches=4",
    "mesh.pp=2 mesh.dp_shard=2 zero=3 train.microbatches=2 schedule=zbh1",
    "mesh.dp_shard=2 mesh.tp=2 zero=3 recompute=full",
    NULL,
};

static void run_all(const char *trace, const char *const *layouts) {
  int failed = !ls_trace_case_holds(trace, "bf16", layouts[1]);
  failed += !ls_trace_case_holds(trace, "fp16", layouts[1]);
  for (; *layouts; layouts++) {
    failed += !ls_trace_case_holds(trace, "fp64", *layouts);
    failed += !ls_trace_case_holds(trace, "fp32", *layouts);
  }
  assert_int_equal(failed, 0);
}

static void test_gpt2_tied(void **state) {
  (void)state;
  run_all(TRACES "gpt2-tied", gpt2_tied);
}

static void test_llama_gqa_free(void **state) {
  (void)state;
  run_all(TRACES "llama-gqa-free", llama_gqa_free);
}

static void test_llama_gqa_tied(void **state) {
  (void)state;
  run_all(TRACES "llama-gqa-tied", llama_gqa_tied);
}

/* What PyTorch left alone stays, to the bit of its summary, and has no gradient. */
static void test_llama_frozen(void **state) {
  (void)state;
  run_all(TRACES "llama-frozen", llama_frozen);
}

/* A copy of a trace in a folder of its own, to be spoilt. */
typedef struct copy {
  ls_arena *arena;
  const char *folder;
} copy;

static const char *path_in(const copy *of, const char *name) {
  return ls_arena_printf(of->arena, "%s/%s", of->folder, name);
}

static void must(ls_status status, const ls_error *error) {
  if (status != LS_OK) fail_msg("%s", error->text);
}

static void copy_file(const copy *of, const char *source, const char *name) {
  ls_error error = {0};
  char *data;
  size_t bytes;
  must(ls_file_read(of->arena, ls_arena_printf(of->arena, "%s/%s", source, name), &data, &bytes,
                    &error),
       &error);
  must(ls_file_write(path_in(of, name), data, bytes, &error), &error);
}

static copy make_copy(void) {
  static const char *const names[] = {"trace.json", "tokens.u16le", "step0.safetensors",
                                      "model.safetensors", "config.json"};
  copy made = {.arena = ls_arena_create()};
  const char *temporary = getenv("TMPDIR");
  char *folder = ls_arena_printf(made.arena, "%s/verify-XXXXXX", temporary ? temporary : "/tmp");
  made.folder = mkdtemp(folder);
  assert_non_null(made.folder);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    copy_file(&made, TRACES "gpt2-tied", names[i]);
  return made;
}

static void end_copy(copy *of) {
  ls_error error = {0};
  must(ls_directory_remove(of->folder, &error), &error);
  ls_arena_destroy(&of->arena);
}

static json_t *read_trace(const copy *of) {
  ls_error error = {0};
  json_t *root;
  must(ls_json_read(path_in(of, "trace.json"), 0, &root, &error), &error);
  return root;
}

static void write_trace(const copy *of, json_t *root) {
  ls_error error = {0};
  char *text = json_dumps(root, JSON_REAL_PRECISION(17));
  assert_non_null(text);
  must(ls_file_write(path_in(of, "trace.json"), text, strlen(text), &error), &error);
  free(text);
  json_decref(root);
}

/* Adds to one number of trace.json, found by keys ("final_params_f64", NAME, "l2") and an index of
 * an array (-1: none). */
static void add_to(const copy *of, const char *const keys[3], int index, double change) {
  json_t *root = read_trace(of), *at = root;
  for (int k = 0; k < 3 && keys[k]; k++) {
    if (json_is_array(at)) at = json_array_get(at, (size_t)index);
    at = json_object_get(at, keys[k]);
  }
  if (json_is_array(at)) at = json_array_get(at, (size_t)index);
  assert_int_equal(json_real_set(at, json_real_value(at) + change), 0);
  write_trace(of, root);
}

/* To a step's number in both columns, whose difference is what a run in fp32 may be off by. */
static void add_to_step(const copy *of, const char *number, int step, double change) {
  const char *columns[] = {ls_arena_printf(of->arena, "%s_f64", number),
                           ls_arena_printf(of->arena, "%s_f32", number)};
  for (int c = 0; c < 2; c++)
    add_to(of, (const char *const[]){"steps", columns[c], NULL}, step, change);
}

/* Adds to element `index` of a tensor of step0.safetensors. */
static void add_to_tensor(const copy *of, const char *name, int64_t index, float change) {
  ls_error error = {0};
  char *data;
  size_t bytes;
  ls_safetensors *file;
  const char *path = path_in(of, "step0.safetensors");
  must(ls_file_read(of->arena, path, &data, &bytes, &error), &error);
  must(ls_safetensors_parse(path, data, bytes, &file, &error), &error);
  const ls_stored_tensor *tensor = ls_safetensors_find(file, name);
  assert_non_null(tensor);
  assert_true(index < tensor->count);
  char *place = data + ((const char *)tensor->data - data) + index * 4;
  float value;
  memcpy(&value, place, sizeof value);
  value += change;
  memcpy(place, &value, sizeof value);
  ls_safetensors_close(&file);
  must(ls_file_write(path, data, bytes, &error), &error);
}

static void expect(const copy *of, const char *words, ls_status status, const char *const *said) {
  ls_error error = {0};
  ls_verification *found;
  const ls_status got = ls_trace_case_run(of->arena, of->folder, words, &found, &error);
  print_message("  %s\n", error.text);
  assert_int_equal(got, status);
  assert_null(strchr(error.text, '\n'));
  for (; *said; said++)
    if (!strstr(error.text, *said)) fail_msg("expected in it: %s", *said);
}

#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_wrong_numbers_are_found(void **state) {
  (void)state;
  copy of = make_copy();
  expect(&of, "mesh.dp_shard=2", LS_OK, SAYS(""));
  add_to_step(&of, "loss", 5, 1e-4);
  expect(&of, "mesh.dp_shard=2", LS_REFUTED, SAYS("loss", "step 5"));
  end_copy(&of);

  of = make_copy();
  add_to_step(&of, "grad_norm", 3, -1e-4);
  expect(&of, "mesh.tp=2", LS_REFUTED, SAYS("gradient norm", "step 3"));
  end_copy(&of);

  of = make_copy(); /* a rate that was not the reference's: all is off from the next step on */
  add_to(&of, (const char *const[]){"steps", "lr", NULL}, 6, 1e-4);
  expect(&of, "mesh.dp_shard=2", LS_REFUTED, SAYS("loss", "step 7"));
  end_copy(&of);
}

static void test_wrong_tensors_are_found(void **state) {
  (void)state;
  copy of = make_copy();
  add_to_tensor(&of, "logits.row0", 203 * 31 + 202, 1e-4f); /* of the last rank's vocabulary */
  expect(&of, "mesh.tp=4", LS_REFUTED, SAYS("logits of step 0", "token 31, id 202"));
  end_copy(&of);

  of = make_copy();
  add_to_tensor(&of, "grad.transformer.h.1.attn.c_attn.weight", 95, 1e-5f);
  expect(&of, "mesh.dp_shard=2 mesh.tp=2", LS_REFUTED,
         SAYS("gradients of step 0", "transformer.h.1.attn.c_attn.weight", "element 95"));
  end_copy(&of);

  of = make_copy();
  add_to(&of, (const char *const[]){"final_params_f64", "transformer.wte.weight", "last4"}, 3,
         1e-4);
  expect(&of, "mesh.dp_replicate=2 mesh.dp_shard=2", LS_REFUTED,
         SAYS("final parameters", "transformer.wte.weight", "element 6495"));
  end_copy(&of);

  of = make_copy();
  add_to(&of, (const char *const[]){"final_params_f64", "transformer.h.0.ln_1.bias", "l2"}, -1,
         1e-3);
  expect(&of, "mesh.dp_shard=2", LS_REFUTED,
         SAYS("final parameters", "transformer.h.0.ln_1.bias, l2"));
  end_copy(&of);
}

/* What no loss sees, in types in which single parameters may be anywhere: a last update of another
 * size. */
static void test_16_bits_see_a_wrong_update(void **state) {
  (void)state;
  static const char *const dtypes[] = {"dtype=bf16", "dtype=fp16"};
  for (int d = 0; d < 2; d++) {
    copy of = make_copy();
    expect(&of, dtypes[d], LS_OK, SAYS(""));
    add_to(&of, (const char *const[]){"steps", "lr", NULL}, 7, 6e-3);
    expect(&of, dtypes[d], LS_REFUTED, SAYS("final parameters", "root mean square"));
    end_copy(&of);
  }
}

/* fp64 sees what fp32 cannot. */
static void test_double_is_closer(void **state) {
  (void)state;
  copy of = make_copy();
  add_to_step(&of, "loss", 2, 1e-10);
  expect(&of, "mesh.dp_shard=2", LS_OK, SAYS(""));
  expect(&of, "mesh.dp_shard=2 dtype=fp64", LS_REFUTED, SAYS("loss", "step 2"));
  end_copy(&of);
}

static void test_words(void **state) {
  (void)state;
  copy of = make_copy();
  expect(&of, "mesh.dp_shrad=2", LS_INPUT, SAYS("mesh.dp_shrad", "mesh.dp_shard"));
  expect(&of, "dtype=fp8", LS_INPUT, SAYS("dtype", "fp8"));
  expect(&of, "train.batch=4", LS_INPUT, SAYS("train.batch", "the trace says it"));
  expect(&of, "train.steps=2", LS_INPUT, SAYS("train.steps", "the trace says it"));
  expect(&of, "optimizer.eps=1e-5", LS_INPUT, SAYS("optimizer.eps", "the trace says it"));
  expect(&of, "mesh.dp_shard=3", LS_INPUT, SAYS("3 data-parallel ranks", "8 rows", "such as 2"));
  expect(&of, "mesh.dp_shard=2 train.microbatches=3", LS_INPUT, SAYS("train.microbatches"));
  expect(&of, "mesh.tp=3", LS_INPUT, SAYS("tp"));
  end_copy(&of);
}

static void test_missing_files(void **state) {
  (void)state;
  static const char *const names[] = {"trace.json", "tokens.u16le", "step0.safetensors",
                                      "model.safetensors", "config.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    copy of = make_copy();
    assert_int_equal(remove(path_in(&of, names[i])), 0);
    expect(&of, "", LS_INPUT, SAYS(names[i]));
    end_copy(&of);
  }
  copy of = make_copy();
  of.folder = path_in(&of, "nothing");
  expect(&of, "", LS_INPUT, SAYS("nothing", "no such folder"));
  of.folder =
      ls_arena_printf(of.arena, "%.*s", (int)(strlen(of.folder) - strlen("/nothing")), of.folder);
  end_copy(&of);
}

static void spoil_tokens(const copy *of, int64_t place, int value, size_t bytes_left_out) {
  ls_error error = {0};
  char *data;
  size_t bytes;
  must(ls_file_read(of->arena, path_in(of, "tokens.u16le"), &data, &bytes, &error), &error);
  data[2 * place] = (char)(value & 255);
  data[2 * place + 1] = (char)(value >> 8);
  must(ls_file_write(path_in(of, "tokens.u16le"), data, bytes - bytes_left_out, &error), &error);
}

static void test_wrong_files(void **state) {
  (void)state;
  copy of = make_copy();
  spoil_tokens(&of, 0, 1, 2);
  expect(&of, "", LS_INPUT, SAYS("tokens.u16le", "found 4096 bytes", "expected 4098"));
  end_copy(&of);

  of = make_copy();
  spoil_tokens(&of, 700, 203, 0);
  expect(&of, "", LS_INPUT, SAYS("tokens.u16le", "203 at place 700"));
  end_copy(&of);

  of = make_copy();
  json_t *root = read_trace(&of);
  json_array_remove(json_object_get(root, "steps"), 7);
  write_trace(&of, root);
  expect(&of, "", LS_INPUT, SAYS("trace.json", "\"steps\" has 7 entries", "8"));
  end_copy(&of);

  of = make_copy();
  root = read_trace(&of);
  json_object_del(json_object_get(root, "final_params_f64"), "transformer.wpe.weight");
  write_trace(&of, root);
  expect(&of, "", LS_INPUT, SAYS("trace.json", "no transformer.wpe.weight"));
  end_copy(&of);

  of = make_copy();
  root = read_trace(&of);
  json_object_del(json_object_get(root, "hyper"), "eps");
  write_trace(&of, root);
  expect(&of, "", LS_INPUT, SAYS("trace.json", "eps"));
  end_copy(&of);

  of = make_copy(); /* another model's gradients */
  copy_file(&of, TRACES "llama-gqa-free", "step0.safetensors");
  expect(&of, "", LS_INPUT, SAYS("no tensor grad.transformer.wte.weight"));
  end_copy(&of);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gpt2_tied),
      cmocka_unit_test(test_llama_gqa_free),
      cmocka_unit_test(test_llama_gqa_tied),
      cmocka_unit_test(test_llama_frozen),
      cmocka_unit_test(test_wrong_numbers_are_found),
      cmocka_unit_test(test_wrong_tensors_are_found),
      cmocka_unit_test(test_16_bits_see_a_wrong_update),
      cmocka_unit_test(test_double_is_closer),
      cmocka_unit_test(test_words),
      cmocka_unit_test(test_missing_files),
      cmocka_unit_test(test_wrong_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
