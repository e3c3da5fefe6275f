/* Attention by cuDNN's graphs against the reference, without a GPU: the stand-ins compute what the
 * graphs say, in bf16 and fp16, with windows, shared keys and packed
 * documents, forward and backward. Plans are kept
 * in the user's cache; a damaged one is said and made again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "device/cuda/cuda_kept.h"
#include "device/device.h"
#include "support/cpu_makers.h"
#include "support/test_folder.h"
#include "support/test_seed.h"

enum { ALIGNMENT = 256, BYTES = 64 << 20, CASES = 24 };

static ls_device device;
static ls_device_queue queues[LS_DEVICE_QUEUES];
static int warnings;

static void count_warnings(void *context, const char *text) {
  (void)context;
  warnings++;
  print_message("%s\n", text);
}

static void *placed(char **at, const void *data, size_t bytes) {
  ls_error error = {0};
  void *here = *at;
  if (device.memory->write(here, data, bytes, &error) != LS_OK) fail_msg("%s", error.text);
  *at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return here;
}

static size_t bytes_in(const operand *o, ls_dtype dtype) {
  return (size_t)stored_count(o) * ls_dtype_bytes(dtype);
}

/* Runs it where the operands of `given` are copied to; that it is cuDNN's is what `wants` says. */
static void run_on_device(const op_case *c, const variant *v, const ls_kernel_args *given,
                          char *memory, ls_kernel_args *call) {
  const ls_kernel_table *table = &device.kernels[LS_TIER_DEVICE];
  ls_error error = {0};
  *call = *given;
  call->queue = &queues[LS_TIER_DEVICE];
  for (int i = 0; i < c->inputs; i++)
    call->in[i].data = placed(&memory, given->in[i].data, bytes_in(&c->in[i], given->in[i].dtype));
  for (int i = 0; i < c->outputs; i++)
    call->out[i].data =
        placed(&memory, given->out[i].data, bytes_in(&c->out[i], given->out[i].dtype));
  call->workspace = memory;
  call->workspace_bytes = ls_device_workspace(&device.facts, c->kind, call);
  const size_t wanted = table->wants(c->kind, call);
  if (!wanted || wanted > call->workspace_bytes) {
    describe(c, v, 0);
    fail_msg("cuDNN wants %zu bytes of %zu", wanted, call->workspace_bytes);
  }
  if (table->kernel[c->kind](call, &error) != LS_OK || device.wait(call->queue, &error) != LS_OK) {
    describe(c, v, 0);
    fail_msg("%s", error.text);
  }
}

static double tolerance(const op_case *c, const variant *v, int output) {
  const double unit = v->dtype == LS_BF16 ? 0x1p-8 : 0x1p-10;
  if (c->kind == LS_OP_ATTENTION_BWD) return 2 * unit;
  return output ? 1e-5 : unit;
}

static void run_case(const op_case *c, const variant *v, char *memory) {
  ls_kernel_table table;
  ls_error error = {0};
  ls_reference_kernels(&table, LS_F32);
  ls_kernel_args given = {.attributes = &c->attributes, .inputs = c->inputs, .outputs = c->outputs};
  ls_kernel_args reference = given, call;
  for (int i = 0; i < c->inputs; i++) {
    const ls_dtype dtype = dtype_of(&c->in[i], v->dtype);
    given.in[i] = view_of(&c->in[i], dtype, operand_make(&c->in[i], dtype, false));
    reference.in[i] = view_of(&c->in[i], reference_dtype(dtype),
                              reference_copy(&c->in[i], dtype, given.in[i].data));
  }
  if (c->in[c->inputs - 1].kind == INDEX) documents_prepare(c, &given, &reference);
  if (c->kind == LS_OP_ATTENTION_BWD) attention_prepare(c, &given, &reference);
  for (int i = 0; i < c->outputs; i++) {
    const ls_dtype dtype = dtype_of(&c->out[i], v->dtype);
    given.out[i] = view_of(&c->out[i], dtype, operand_make(&c->out[i], dtype, true));
    reference.out[i] = view_of(&c->out[i], reference_dtype(dtype),
                               reference_copy(&c->out[i], dtype, given.out[i].data));
  }
  assert_int_equal(table.kernel[c->kind](&reference, &error), LS_OK);
  run_on_device(c, v, &given, memory, &call);
  for (int i = 0; i < c->outputs; i++) {
    const size_t bytes = bytes_in(&c->out[i], given.out[i].dtype);
    assert_int_equal(device.memory->read(given.out[i].data, call.out[i].data, bytes, &error),
                     LS_OK);
    output_compare_within(c, v, i, &given.out[i], &reference.out[i], tolerance(c, v, i));
  }
  args_free(&given, false);
  args_free(&reference, false);
}

/* One that the recipe gives to cuDNN. */
static op_case attention_case(ls_op_kind kind) {
  static const int64_t head_dims[] = {8, 16, 64, 72, 128}, lengths[] = {2, 17, 64, 65, 130};
  op_case c = {0};
  attention_operands(&c, kind, pick(lengths, 5), 1 + random_below(3), pick(head_dims, 5),
                     1 + random_below(2), 1 + random_below(3));
  c.attributes.softcap = c.attributes.alibi = 0;
  for (int i = 0; i < c.inputs; i++) /* rows of whole heads, as the library has them */
    if (c.in[i].kind != SUMS) c.in[i].dims[1] = c.in[i].valid[1];
  for (int o = 0; o < c.outputs; o++)
    if (kind == LS_OP_ATTENTION_BWD || o == 0)
      c.out[o] = kind == LS_OP_ATTENTION ? c.in[0] : c.in[1 + o];
  if (random_below(2)) c.in[c.inputs++] = vector_of(INDEX, c.in[0].valid[0]);
  return c;
}

static void graphs_are_the_references(void **state) {
  (void)state;
  int none;
  char *memory = device.memory->reserve(BYTES, false, &none);
  assert_non_null(memory);
  for (int n = 0; n < CASES; n++) {
    const op_case c = attention_case(n % 2 ? LS_OP_ATTENTION_BWD : LS_OP_ATTENTION);
    run_case(&c, &(variant){.dtype = n / 2 % 2 ? LS_F16 : LS_BF16, .threads = 1}, memory);
  }
  device.memory->release(memory, BYTES);
  assert_int_equal(warnings, 0);
}

static void what_is_kept_is_whole(void **state) {
  (void)state;
  ls_error error;
  char *data, **paths;
  size_t bytes;
  int count;
  warnings = 0;
  assert_false(ls_cuda_kept_read(arena, "a key", &data, &bytes));
  ls_cuda_kept_write(arena, "a key", "seven\0.", 7);
  assert_true(ls_cuda_kept_read(arena, "a key", &data, &bytes));
  assert_int_equal(bytes, 7);
  assert_memory_equal(data, "seven\0.", 7);
  assert_false(ls_cuda_kept_read(arena, "another key", &data, &bytes));
  assert_int_equal(warnings, 0);
  const char *pattern = ls_arena_printf(arena, "%s/lockstep/gpu-*.kept", folder);
  assert_int_equal(ls_file_glob(arena, pattern, &paths, &count, &error), LS_OK);
  assert_true(count > 1); /* plans of the test before are there too */
  for (int f = 0; f < count; f++) {
    assert_int_equal(ls_file_read(arena, paths[f], &data, &bytes, &error), LS_OK);
    if (!memmem(data, bytes, "\na key\n", 7)) continue;
    for (size_t cut = 0; cut < bytes; cut += 9) {
      assert_int_equal(ls_file_write(paths[f], data, cut, &error), LS_OK);
      char *found;
      size_t found_bytes;
      warnings = 0;
      assert_false(ls_cuda_kept_read(arena, "a key", &found, &found_bytes));
      assert_int_equal(warnings, 1);
    }
  }
}

int main(void) {
  random_state = test_seed(20261128);
  ls_error error = {0};
  if (set_up_cache(NULL)) return 1;
  ls_warnings_to(count_warnings, NULL);
  const ls_device_options options = {.kind = "cuda", .compute = LS_BF16};
  if (ls_device_open(&options, &device, &error) != LS_OK ||
      device.enter(&device, &(ls_device_place){0, 0}, queues, &error) != LS_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(graphs_are_the_references),
                                     cmocka_unit_test(what_is_kept_is_whole)};
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  device.leave(queues);
  return tear_down(NULL) || failed;
}
