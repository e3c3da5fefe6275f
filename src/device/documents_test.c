/* Attention inside documents is, bit for bit, attention on each document by itself: of the
 * reference in both precisions and of the CPU device in its types, forward and backward. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/random.h"
#include "device/cpu/cpu.h"
#include "support/test_seed.h"

static uint64_t seed, drawn;

static int64_t below(int64_t limit) {
  return (int64_t)(ls_random_bits(seed, 1, drawn++) % (uint64_t)limit);
}

/* What one case is about. */
typedef struct attention_case {
  ls_arena *arena;
  ls_kernel_table table;
  ls_dtype dtype, sums; /* of tensors, and of what is accumulated */
  ls_attributes attributes;
  int64_t tokens, q_columns, k_columns, heads;
  int32_t *positions;
  int threads;
  bool accumulate;
} attention_case;

static ls_view matrix(const attention_case *c, ls_dtype dtype, int64_t columns) {
  const int64_t count = c->tokens * columns;
  double *values = LS_NEW_ARRAY(c->arena, double, count);
  for (int64_t i = 0; i < count; i++) values[i] = ls_random_normal(seed, 2, drawn++);
  void *data = ls_arena_alloc(c->arena, (size_t)count * ls_dtype_bytes(dtype));
  ls_convert(data, dtype, values, LS_F64, count);
  return (ls_view){.data = data,
                   .dtype = dtype,
                   .ndim = 2,
                   .dims = {c->tokens, columns},
                   .valid = {c->tokens, columns}};
}

static size_t bytes_of(const ls_view *view) {
  return (size_t)(view->dims[0] * view->dims[1]) * ls_dtype_bytes(view->dtype);
}

static ls_view copy_of(const attention_case *c, const ls_view *view) {
  ls_view copy = *view;
  copy.data = ls_arena_alloc(c->arena, bytes_of(view));
  memcpy(copy.data, view->data, bytes_of(view));
  return copy;
}

/* Rows [first, first + count). */
static ls_view rows_of(const ls_view *view, int64_t first, int64_t count) {
  ls_view rows = *view;
  rows.data = (char *)view->data + (size_t)(first * view->dims[1]) * ls_dtype_bytes(view->dtype);
  rows.dims[0] = rows.valid[0] = count;
  return rows;
}

static void call(const attention_case *c, ls_op_kind kind, ls_kernel_args *args) {
  ls_error error = {0};
  args->workspace_bytes = ls_device_workspace(args->queue->facts, kind, args);
  args->workspace = ls_arena_alloc(c->arena, args->workspace_bytes + 64);
  args->workspace = (char *)args->workspace + (-(uintptr_t)args->workspace & 63);
  if (c->table.kernel[kind](args, &error) != LS_OK) fail_msg("%s", error.text);
}

/* `whole` has the positions as its last input; the same again without them, document by document,
 * must make the same bits. */
static void compare(const attention_case *c, ls_op_kind kind, ls_kernel_args *whole) {
  ls_view alone[LS_MAX_OUTPUTS];
  for (int o = 0; o < whole->outputs; o++) {
    alone[o] = copy_of(c, &whole->out[o]);
    whole->accumulate[o] = c->accumulate;
  }
  whole->attributes = &c->attributes;
  ls_device_facts facts = *ls_device_facts_here();
  facts.threads = c->threads;
  const ls_device_queue queue = {.facts = &facts};
  whole->queue = &queue;
  call(c, kind, whole);
  for (int64_t first = 0, next; first < c->tokens; first = next) {
    for (next = first + 1; next < c->tokens; next++)
      if (next % c->attributes.sequence == 0 || c->positions[next] == 0) break;
    ls_attributes attributes = c->attributes;
    attributes.sequence = next - first;
    ls_kernel_args part = *whole;
    part.attributes = &attributes;
    part.inputs--;
    for (int i = 0; i < part.inputs; i++) part.in[i] = rows_of(&whole->in[i], first, next - first);
    for (int o = 0; o < part.outputs; o++) part.out[o] = rows_of(&alone[o], first, next - first);
    call(c, kind, &part);
  }
  for (int o = 0; o < whole->outputs; o++)
    if (memcmp(alone[o].data, whole->out[o].data, bytes_of(&alone[o])) != 0)
      fail_msg("%s of %s: output %d differs: %lld tokens in sequences of %lld, %lld heads of %lld",
               ls_op_name(kind), c->table.name, o, (long long)c->tokens,
               (long long)c->attributes.sequence, (long long)c->heads,
               (long long)c->attributes.head_dim);
}

static void run_case(attention_case *c) {
  const int64_t head_dim = c->attributes.head_dim;
  const ls_view positions = {
      .data = c->positions, .dtype = LS_I32, .ndim = 1, .dims = {c->tokens}, .valid = {c->tokens}};
  ls_kernel_args forward = {.inputs = 4, .outputs = 2};
  forward.in[0] = matrix(c, c->dtype, c->heads * head_dim);
  forward.in[1] = matrix(c, c->dtype, c->k_columns);
  forward.in[2] = matrix(c, c->dtype, c->k_columns);
  forward.in[3] = positions;
  forward.out[0] = matrix(c, c->dtype, c->heads * head_dim);
  forward.out[1] = matrix(c, c->sums, c->heads);
  ls_kernel_args backward = {.inputs = 7, .outputs = 3};
  backward.in[0] = matrix(c, c->dtype, c->heads * head_dim);
  compare(c, LS_OP_ATTENTION, &forward);
  c->accumulate = false; /* whatever was added to: backward wants what the forward pass makes */
  compare(c, LS_OP_ATTENTION, &forward);
  for (int i = 0; i < 3; i++) backward.in[1 + i] = forward.in[i];
  backward.in[4] = forward.out[0], backward.in[5] = forward.out[1], backward.in[6] = positions;
  backward.out[0] = matrix(c, c->dtype, c->heads * head_dim);
  backward.out[1] = matrix(c, c->dtype, c->k_columns);
  backward.out[2] = matrix(c, c->dtype, c->k_columns);
  c->accumulate = below(2);
  compare(c, LS_OP_ATTENTION_BWD, &backward);
}

/* Documents of chance, one of all lengths; sequences begin one, whatever their position says. */
static void draw_case(attention_case *c, int64_t longest) {
  static const int64_t head_dims[] = {2, 8, 24, 64};
  const int64_t sequence = 1 + below(longest), kv_heads = 1 + below(2);
  c->tokens = sequence * (1 + below(3));
  c->heads = kv_heads * (1 + below(3));
  c->attributes =
      (ls_attributes){.sequence = sequence, .head_dim = head_dims[below(4)], .kv_heads = kv_heads};
  c->attributes.softmax_scale = 0.3;
  c->attributes.two_way = below(2);
  c->k_columns = kv_heads * c->attributes.head_dim;
  c->threads = below(2) ? 3 : 1;
  c->accumulate = below(2);
  c->positions = LS_NEW_ARRAY(c->arena, int32_t, c->tokens);
  const int64_t mean = 1 + below(2 * sequence);
  for (int64_t n = 0; n < c->tokens; n++) {
    const bool begins = below(mean) == 0 || (n % sequence == 0 && below(4));
    c->positions[n] = begins || n == 0 ? 0 : c->positions[n - 1] + 1;
  }
}

static void run_cases(const ls_kernel_table *table, ls_dtype dtype, ls_dtype sums, int count,
                      int64_t longest) {
  for (int i = 0; i < count; i++) {
    attention_case c = {.arena = ls_arena_create(), .table = *table, .dtype = dtype, .sums = sums};
    draw_case(&c, longest);
    run_case(&c);
    ls_arena_destroy(&c.arena);
  }
}

static void test_reference(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_reference_kernels(&table, LS_F32);
  run_cases(&table, LS_F32, LS_F32, 30, 40);
  ls_reference_kernels(&table, LS_F64);
  run_cases(&table, LS_F64, LS_F64, 30, 40);
}

static void test_cpu(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16};
  for (int d = 0; d < 3; d++) {
    ls_kernel_table table;
    ls_error error = {0};
    assert_int_equal(ls_cpu_kernels(&table, dtypes[d], &error), LS_OK);
    run_cases(&table, dtypes[d], LS_F32, 60, 200);
  }
}

int main(void) {
  seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_cpu)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
