/* The CUDA kernels of attention, forward, backward and over a cache, against the reference, which
 * adds in double: run by the shim (cuda/shim_run.h) in three orders of threads that must give the
 * same bits. Heads of 3 to 256 columns, windows, soft caps, ALiBi, packed documents, shared keys,
 * sinks, both directions, lengths about those of blocks. */
#include <stdio.h>

#include "support/cuda_case.h"
#include "support/test_seed.h"
#include "support/thinned.h"

static void add_documents(op_case *c) {
  c->in[c->inputs++] = vector_of(INDEX, c->in[0].valid[0]);
}

/* Sinks behind the values, of more heads than the rank's. */
static void give_sinks(op_case *c) {
  c->kind = LS_OP_SINK_ATTENTION;
  add_sinks(c, c->inputs++);
}

static void run_attention(ls_op_kind kind, int64_t length, int64_t sequences, int64_t head_dim,
                          ls_dtype dtype) {
  op_case c = {0};
  attention_operands(&c, kind, length, sequences, head_dim, 1 + random_below(2),
                     1 + random_below(2));
  if (random_below(3) == 0) c.attributes.two_way = 1, c.attributes.alibi = 0;
  if (kind == LS_OP_ATTENTION && random_below(2)) give_sinks(&c);
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
        if (!ls_test_left_out(6 * i + 2 * d + back, 5))
          run_attention(back ? LS_OP_ATTENTION_BWD : LS_OP_ATTENTION,
                        lengths[(i + 3 * d + back) % LENGTHS], 1 + (i + d) % 2, head_dims[i],
                        dtypes[d]);
}

/* A rank's share of all tokens, or all of them, with probabilities dropped or not. */
static void run_placed(ls_op_kind kind, int64_t share, int64_t sequences, int64_t head_dim,
                       ls_dtype dtype) {
  op_case c = {0};
  const bool back = kind == LS_OP_ATTENTION_BWD;
  attention_operands(&c, kind, share, sequences, head_dim, 1 + random_below(2),
                     1 + random_below(2));
  const int q = back ? 1 : 0;
  const int64_t turns = share % 2 ? 1 : 1 + random_below(3), rows = c.in[q].valid[0];
  c.attributes.turns = turns;
  c.attributes.sequence = share * turns;
  operand *const keys[] = {&c.in[q + 1], &c.in[q + 2], &c.out[1], &c.out[2]};
  for (int i = 0; i < (back ? 4 : 2); i++) keys[i]->dims[0] *= turns, keys[i]->valid[0] *= turns;
  c.in[q].start[0] = random_below(turns) * rows;
  if (random_below(3) == 0) c.attributes.two_way = 1, c.attributes.alibi = 0;
  if (!back && random_below(2)) give_sinks(&c);
  c.in[c.inputs++] = vector_of(INDEX, rows);
  c.in[c.inputs++] = vector_of(INDEX, rows * turns);
  if (c.attributes.two_way) c.in[c.inputs++] = vector_of(INDEX, rows);
  if (random_below(2)) {
    c.in[c.inputs] = vector_of(INDEX, rows);
    c.in[c.inputs++].range = 1 << 30;
    c.attributes.dropout = 0.3;
    c.attributes.site = 3;
  }
  cuda_run_case(&c, &(variant){.dtype = dtype, .accumulate = random_below(3) == 0});
}

/* Queries and a block of keys that is `turn` ranks on. */
static void run_ring(ls_op_kind kind, int64_t share, int64_t sequences, int64_t head_dim,
                     ls_dtype dtype) {
  op_case c = {0};
  attention_operands(&c, LS_OP_ATTENTION, share, sequences, head_dim, 1 + random_below(2),
                     1 + random_below(2));
  const int64_t turns = 2 + random_below(3), rows = c.in[0].valid[0], rank = random_below(turns);
  c.kind = kind;
  c.attributes.turns = turns;
  c.attributes.turn = random_below(turns);
  c.attributes.sequence = share * turns;
  operand q = c.in[0], kv = c.in[1], values = q, sums = c.out[1], positive;
  q.start[0] = rank * rows;
  kv.start[0] = (rank + c.attributes.turn) % turns * rows;
  values.kind = SUMS;
  positive = sums, positive.kind = POSITIVE;
  const operand positions = vector_of(INDEX, rows), places = vector_of(INDEX, turns * rows);
  c.no_add = kind != LS_OP_RING_BWD;
  c.floor = 0;
  if (kind == LS_OP_RING_ATTENTION) {
    c.inputs = random_below(2) ? 8 : 5, c.outputs = 3;
    c.in[0] = q, c.in[1] = c.in[2] = kv, c.in[3] = positions, c.in[4] = places;
    c.in[5] = c.out[0] = values, c.in[6] = sums, c.in[7] = positive;
    c.out[1] = c.out[2] = sums;
  } else if (kind == LS_OP_RING_BWD) {
    c.inputs = 8, c.outputs = 3;
    c.in[0] = c.in[1] = c.out[0] = q, c.in[2] = c.in[3] = c.out[1] = c.out[2] = kv;
    c.in[4] = positive, c.in[5] = sums, c.in[6] = positions, c.in[7] = places;
  } else if (kind == LS_OP_RING_END) {
    c.inputs = 3, c.outputs = 1;
    c.in[0] = values, c.in[1] = sums, c.in[2] = positive, c.out[0] = q;
    c.out[0].kind = COMPUTE;
    if (random_below(2)) add_sinks(&c, c.inputs++);
  } else {
    c.inputs = 4, c.outputs = 2;
    c.in[0] = c.in[1] = q, c.in[2] = sums, c.in[3] = positive, c.out[0] = c.out[1] = sums;
    if (random_below(2)) {
      add_sinks(&c, c.inputs++);
      c.outputs = 3;
      c.out[2] = c.in[4], c.out[2].kind = any_sums();
    }
  }
  cuda_run_case(&c, &(variant){.dtype = dtype, .accumulate = !c.no_add && random_below(2)});
}

static void test_places_and_rings(void **state) {
  (void)state;
  enum { HEADS = 8, SHARES = 7 };
  static const int64_t head_dims[HEADS] = {64, 128, 3, 256, 80, 96, 192, 72};
  static const int64_t shares[SHARES] = {2, 17, 34, 64, 66, 130, 65};
  static const ls_dtype dtypes[] = {LS_BF16, LS_F16, LS_F32};
  static const ls_op_kind rings[] = {LS_OP_RING_ATTENTION, LS_OP_RING_BWD, LS_OP_RING_END,
                                     LS_OP_RING_END_BWD};
  for (int i = 0; i < HEADS; i++)
    for (int d = 0; d < 3; d++) {
      if (ls_test_left_out(3 * i + d, 5)) continue;
      for (int back = 0; back < 2; back++)
        run_placed(back ? LS_OP_ATTENTION_BWD : LS_OP_ATTENTION, shares[(i + d + back) % SHARES],
                   1 + (i + d) % 2, head_dims[i], dtypes[d]);
      const int64_t share = shares[(i + 2 * d) % SHARES];
      run_ring(rings[(i + d) % 4], share + share % 2, 1 + (i + d) % 2, head_dims[i], dtypes[d]);
    }
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
    if (i % 4 == 3)
      make_cached_sinks(&c);
    else
      make_cached_attention(&c);
    cuda_run_case(&c, &(variant){.dtype = dtypes[i % 3], .accumulate = random_below(2)});
  }
}

/* Heads as latent attention has them over what all of them share. */
static void test_wide_caches(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_BF16, LS_F16, LS_F32};
  for (int i = 0; i < 3; i++) {
    op_case c = {0};
    const int64_t tokens = 1 + random_below(5), heads = 1 + random_below(3), d = 570 + i * 6;
    c.kind = LS_OP_CACHED_ATTENTION;
    c.attributes = (ls_attributes){.head_dim = d, .softmax_scale = 0.05};
    c.inputs = 6, c.outputs = 1;
    c.in[0] = c.out[0] = matrix_of(tokens, heads * d, 1, 0);
    c.in[1] = c.in[2] = matrix_of(tokens, d, 1, 0);
    c.in[3] = c.in[4] = matrix_of(tokens + random_below(90), d, 2, 0);
    c.in[5] = vector_of(INDEX, tokens);
    cuda_run_case(&c, &(variant){.dtype = dtypes[i]});
  }
}

static void test_dealt_caches(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_BF16, LS_F16, LS_F32};
  for (int i = 0; i < 12; i++) {
    op_case c = {0};
    make_dealt(&c);
    cuda_run_case(&c, &(variant){.dtype = dtypes[i % 3]});
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
  random_state = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention),      cmocka_unit_test(test_places_and_rings),
      cmocka_unit_test(test_no_tokens),      cmocka_unit_test(test_cached_attention),
      cmocka_unit_test(test_dealt_caches),   cmocka_unit_test(test_wide_caches),
      cmocka_unit_test(test_what_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
