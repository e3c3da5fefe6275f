/* The CUDA kernels of attention, forward, backward and over a cache, against the reference, which
 * adds in double: run by the shim (cuda/shim_run.h) in three orders of threads that must give the
 * same bits. Heads of 3 to 256 columns, windows, soft caps, ALiBi, packed documents, shared keys,
 * lengths about those of blocks. */
#include <stdio.h>
#include <time.h>

#include "support/cuda_case.h"

static void add_documents(op_case *c) {
  c->in[c->inputs++] = vector_of(INDEX, c->in[0].valid[0]);
}

static void run_attention(ls_op_kind kind, int64_t length, int64_t sequences, int64_t head_dim,
                          ls_dtype dtype) {
  op_case c = {0};
  attention_operands(&c, kind, length, sequences, head_dim, 1 + random_below(2),
                     1 + random_below(2));
  if (random_below(2)) add_documents(&c);
  if (kind == LS_OP_ATTENTION && random_below(2)) c.attributes.softmax_scale *= 8;
  cuda_run_case(&c, &(variant){.dtype = dtype, .accumulate = random_below(3) == 0});
}

/* Every head size and length at least once each way, in a type in turn. */
static void test_attention(void **state) {
  (void)state;
  enum { HEADS = 8, LENGTHS = 8 };
  static const int64_t head_dims[HEADS] = {64, 128, 3, 256, 80, 96, 192, 72};
  static const int64_t lengths[LENGTHS] = {1, 17, 64, 65, 31, 130, 63, 97};
  static const ls_dtype dtypes[] = {LS_BF16, LS_F16, LS_F32};
  for (int i = 0; i < HEADS; i++)
    for (int d = 0; d < 3; d++)
      for (int back = 0; back < 2; back++)
        run_attention(back ? LS_OP_ATTENTION_BWD : LS_OP_ATTENTION,
                      lengths[(i + 3 * d + back) % LENGTHS], 1 + (i + d) % 2, head_dims[i],
                      dtypes[d]);
}

static void test_no_tokens(void **state) {
  (void)state;
  run_attention(LS_OP_ATTENTION, 17, 0, 64, LS_BF16);
  run_attention(LS_OP_ATTENTION_BWD, 17, 0, 64, LS_F32);
}

static void test_cached_attention(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_BF16, LS_F16, LS_F32};
  for (int i = 0; i < 12; i++) {
    op_case c = {0};
    make_cached_attention(&c);
    cuda_run_case(&c, &(variant){.dtype = dtypes[i % 3], .accumulate = random_below(2)});
  }
}

static void test_what_is_refused(void **state) {
  (void)state;
  const ls_device_facts facts = cuda_facts();
  const ls_device_queue queue = {.facts = &facts};
  const operand matrix = matrix_of(6, 512, 0, 0);
  uint16_t memory[1];
  ls_attributes attributes = {.head_dim = 512, .sequence = 3};
  ls_kernel_args args = {.queue = &queue, .attributes = &attributes, .inputs = 3, .outputs = 2};
  for (int i = 0; i < 3; i++) args.in[i] = view_of(&matrix, LS_BF16, memory);
  args.out[0] = view_of(&matrix, LS_BF16, memory);
  args.out[1] = view_of(&matrix, LS_F32, memory);
  ls_cuda_launches launches;
  ls_error error = {0};
  assert_int_equal(ls_cuda_choose(LS_OP_ATTENTION, &args, &launches, &error), LS_INTERNAL);
  assert_non_null(strstr(error.text, "at most 256"));
  attributes = (ls_attributes){.head_dim = 64, .sequence = 4};
  assert_int_equal(ls_cuda_choose(LS_OP_ATTENTION, &args, &launches, &error), LS_INTERNAL);
  assert_non_null(strstr(error.text, "whole sequences"));
  attributes.sequence = 3;
  assert_int_equal(ls_cuda_choose(LS_OP_ATTENTION, &args, &launches, &error), LS_OK);
}

int main(void) {
  const char *given = getenv("LS_TEST_SEED");
  random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
  print_message("seed %llu (LS_TEST_SEED)\n", (unsigned long long)random_state);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention), cmocka_unit_test(test_no_tokens),
      cmocka_unit_test(test_cached_attention), cmocka_unit_test(test_what_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
