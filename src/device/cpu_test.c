/* Every kernel of the CPU device against the plain reference: random shapes that are multiples of
 * nothing, fp32, bf16 and fp16, one and two threads, written and added, with padding that would
 * show if it were read or written. tests/cpu_isa_test.sh repeats it under smaller instruction sets.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "device/cpu/onednn.h"
#include "device/cpu/vector_table.h"
#include "support/cpu_makers.h"
#include "support/test_seed.h"
#include "support/thinned.h"

static void test_linear(void **state) {
  (void)state;
  run_made(make_linear, 16);
}

static void test_linear_blocks(void **state) {
  (void)state;
  run_made(make_linear_blocks, 32);
}

/* The three products of a weight [m, k] and n rows: in 16 bits and in fp32, by one thread and by
 * several, and in exact parts. */
static void products_of(int64_t n, int64_t m, int64_t k) {
  static const ls_op_kind kinds[] = {LS_OP_LINEAR, LS_OP_LINEAR_DX, LS_OP_LINEAR_DW};
  const operand nk = matrix_of(n, k, 0, 0), nm = matrix_of(n, m, 0, 2), mk = matrix_of(m, k, 1, 0);
  for (int i = 0; i < 3; i++) {
    op_case c = {.kind = kinds[i], .inputs = 2, .outputs = 1};
    c.in[0] = i == 0 ? nk : nm;
    c.in[1] = i == 2 ? nk : mk;
    c.out[0] = i == 0 ? nm : (i == 1 ? nk : mk);
    if (i == 2) c.out[0].kind = any_sums();
    case_run(&c, &(variant){.dtype = LS_F32, .threads = MOST_THREADS, .exact = true});
    case_run(&c, &(variant){.dtype = LS_F32, .threads = MOST_THREADS, .accumulate = true});
    case_run(&c, &(variant){.dtype = LS_F32, .threads = 1});
    for (int half = 0; half < 2; half++) {
      const ls_dtype dtype = half ? LS_F16 : LS_BF16;
      case_run(&c, &(variant){.dtype = dtype, .threads = MOST_THREADS, .exact = half});
      case_run(&c, &(variant){.dtype = dtype, .threads = 1, .accumulate = true, .exact = !half});
    }
  }
}

/* What is not multiplied as it is stored is widened in several ranges of m, and chunks of n. */
static void test_linear_ranges(void **state) {
  (void)state;
  products_of(9, 70001, 3);
  products_of(1061, 41, 700);
}

/* Targets that are divided across, down and both ways, with more of a turned operand than is copied
 * at once. */
static void test_linear_divided(void **state) {
  (void)state;
  products_of(67, 1030, 300);
  products_of(270, 1100, 17);
  products_of(260, 530, 130);
}

/* As few rows as have a kernel of their own, and one more. */
static void test_linear_few_rows(void **state) {
  (void)state;
  products_of(1, 517, 1029);
  products_of(3, 61, 5);
  products_of(7, 67, 300); /* four rows together, two, and one */
  products_of(8, 130, 200);
  products_of(9, 130, 200);
}

/* Gradients with as few rows or columns as have a kernel of their own, and one more; of one token,
 * of none beside another, and of more than are packed at once. */
static void test_linear_few_sums(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{130, 16, 577}, {131, 600, 16}, {64, 1, 70},  {1, 32, 33},
                                     {2, 100, 17},   {258, 33, 40},  {8194, 5, 18}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    const int64_t n = sizes[s][0], m = sizes[s][1], k = sizes[s][2];
    op_case c = {.kind = LS_OP_LINEAR_DW, .inputs = 2, .outputs = 1};
    c.in[0] = matrix_of(n, m, 1, 2), c.in[1] = matrix_of(n, k, 1, 3);
    c.out[0] = matrix_of(m, k, 1, 1), c.out[0].kind = SUMS;
    for (int i = 0; i < 4; i++)
      case_run(&c, &(variant){.dtype = LS_BF16,
                              .threads = i % 2 ? MOST_THREADS : 1,
                              .accumulate = i / 2,
                              .exact = i == 3});
  }
}

/* Products of as many terms as have a kernel of their own, and of others. */
static void test_linear_shallow(void **state) {
  (void)state;
  static const int64_t depths[] = {8, 16, 32, 12, 24};
  for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
    for (int i = 0; i < 8; i++) {
      const int64_t n = i % 2 ? 131 : 17, wide = i / 2 % 2 ? 577 : 48, deep = depths[d];
      const bool forward = i / 4;
      op_case c = {.kind = forward ? LS_OP_LINEAR : LS_OP_LINEAR_DX, .inputs = 2, .outputs = 1};
      c.in[0] = matrix_of(n, deep, 1, i % 3), c.out[0] = matrix_of(n, wide, 1, 3);
      c.in[1] = forward ? matrix_of(wide, deep, 1, 1) : matrix_of(deep, wide, 1, 2);
      case_run(&c, &(variant){.dtype = LS_BF16, .threads = 1});
      case_run(&c,
               &(variant){
                   .dtype = LS_BF16, .threads = MOST_THREADS, .accumulate = true, .exact = i % 2});
    }
}

static void test_elementwise(void **state) {
  (void)state;
  run_made(make_elementwise, 26);
}

static void test_norm(void **state) {
  (void)state;
  run_made(make_norm, 20);
}

static void test_headnorm(void **state) {
  (void)state;
  run_made(make_headnorm, 12);
}

static void test_row(void **state) {
  (void)state;
  run_made(make_row, 16);
}

static void test_fp8(void **state) {
  (void)state;
  run_made(make_fp8, 24);
  run_made(make_weight_codes, 24);
}

static void test_experts(void **state) {
  (void)state;
  run_made(make_grouped, 30);
  run_made(make_route, 16);
  run_made(make_routed, 24);
  run_made(make_paired, 16);
  run_made(make_grouped_bias, 24);
  run_made(make_router, 24);
  run_made(make_loads, 24);
}

/* Rows of an expert that lie before those of a lower one. */
static void test_unsorted_rows_are_refused(void **state) {
  (void)state;
  ls_kernel_table table = {0};
  ls_error error = {0};
  ls_cpu_grouped_kernels(&table);
  float rows[2 * 3] = {0}, weights[2 * 3 * 3] = {0}, made[2 * 3] = {0};
  int32_t experts[2] = {1, 0};
  const ls_attributes attributes = {.experts = 2};
  const ls_device_queue queue = {.facts = ls_cpu_facts()};
  const operand matrix = matrix_of(2, 3, 0, 0), stacked = matrix_of(6, 3, 0, 0);
  const operand of_rows = vector_of(INDEX, 2);
  ls_kernel_args args = {.queue = &queue, .attributes = &attributes, .inputs = 3, .outputs = 1};
  args.in[0] = view_of(&matrix, LS_F32, rows);
  args.in[1] = view_of(&stacked, LS_F32, weights);
  args.in[2] = view_of(&of_rows, LS_I32, experts);
  args.out[0] = view_of(&matrix, LS_F32, made);
  assert_int_equal(table.kernel[LS_OP_GROUPED_UP](&args, &error), LS_INTERNAL);
  assert_non_null(strstr(error.text, "row 1 is of expert 0; expected rows sorted by 2"));
}

static void test_embedding(void **state) {
  (void)state;
  run_made(make_embedding, 14);
}

static void test_bias_db(void **state) {
  (void)state;
  run_made(make_bias_db, 8);
}

static void test_rope(void **state) {
  (void)state;
  run_made(make_rope, 10);
  run_made(make_rope_columns, 10);
  run_made(make_heads, 30);
  run_made(make_heads_product, 12);
}

static void test_cross_entropy(void **state) {
  (void)state;
  run_made(make_cross_entropy, 18);
  run_made(make_distillation, 24);
  run_made(make_several, 8);
}

static void test_texts(void **state) {
  (void)state;
  run_made(make_texts, 24);
}

static void test_optimizer(void **state) {
  (void)state;
  run_made(make_optimizer, 24);
  run_made(make_schedulefree, 12);
}

static void test_move(void **state) {
  (void)state;
  run_made(make_move, 16);
}

static void test_attention(void **state) {
  (void)state;
  run_made(make_attention, 20);
  run_made(make_sink_attention, 12);
  run_made(make_sink_bwd, 12);
}

/* Runs cases of bf16 with each set that multiplies pairs of it, by dot products or by tiles, also
 * where another is faster; where there is none, with the set in effect. */
static void run_pairs(void (*cases)(void)) {
  case_set = NULL;
#if defined(__x86_64__)
  const ls_onednn_isa isa = ls_onednn_effective_isa();
  if (isa.amx) {
    case_set = &ls_vector_set_avx512_amx;
    cases();
  }
  if (isa.bf16) case_set = &ls_vector_set_avx512_bf16;
#endif
  cases();
  case_set = NULL;
}

/* Pairs that end within a column, a query or a key, and lengths about those of blocks and strips,
 * in bf16. */
static void cases_of_attention_pairs(void) {
  enum { HEAD_DIMS = 8, LENGTHS = 8 };
  static const int64_t head_dims[HEAD_DIMS] = {1, 3, 16, 33, 64, 72, 80, 128};
  static const int64_t lengths[LENGTHS] = {1, 2, 15, 63, 64, 65, 130, 195};
  for (int i = 0; i < 2 * HEAD_DIMS * LENGTHS; i++) {
    if (ls_test_left_out(i, 3)) continue;
    op_case c = {0};
    const ls_op_kind kind = i % 2 ? LS_OP_ATTENTION : LS_OP_ATTENTION_BWD;
    attention_operands(&c, kind, lengths[i / 2 % LENGTHS], 2, head_dims[i / 2 / LENGTHS],
                       1 + random_below(2), 1 + random_below(3));
    /* Maxima that rise by so much that what was summed before is next to nothing. */
    if (kind == LS_OP_ATTENTION && random_below(2)) c.attributes.softmax_scale *= 8;
    if (kind == LS_OP_ATTENTION_BWD)
      for (int o = 0; o < 3; o++) c.out[o].kind = random_below(2) ? COMPUTE : SUMS;
    case_run(&c, &(variant){.dtype = LS_BF16,
                            .threads = 1 + (int)random_below(MOST_THREADS),
                            .accumulate = random_below(2),
                            .given_workspace = random_below(2)});
  }
}

static void test_attention_pairs(void **state) {
  (void)state;
  run_pairs(cases_of_attention_pairs);
}

/* Sequences whose queries come in ranges going back, of 256 where heads are as wide; windows that
 * end within a range, at its end and behind it. */
static void cases_of_attention_ranges(void) {
  static const int64_t lengths[] = {256, 300, 513}, windows[] = {0, 5, 193, 300};
  for (int i = 0; i < 12; i++) {
    if (ls_test_left_out(i, 3)) continue;
    op_case c = {0};
    attention_operands(&c, LS_OP_ATTENTION_BWD, lengths[i % 3], 1, 512, 1, 1 + i % 2);
    c.attributes.window = windows[i / 3];
    c.attributes.two_way = !(c.attributes.alibi > 0) && random_below(2);
    case_run(&c, &(variant){.dtype = i % 2 ? LS_F32 : LS_BF16,
                            .threads = 1 + i % MOST_THREADS,
                            .accumulate = i / 2 % 2});
  }
}

static void test_attention_ranges(void **state) {
  (void)state;
  run_pairs(cases_of_attention_ranges);
}

static void test_cached_attention(void **state) {
  (void)state;
  run_made(make_cached_attention, 20);
  run_made(make_cached_sinks, 12);
}

/* As many queries as go by pairs, at and about the ends of blocks of them and of keys. */
static void cases_of_cached_attention_pairs(void) {
  for (int i = 0; i < ls_test_fewer(60, 3); i++) {
    op_case c = {0};
    make_cached_attention(&c);
    if (random_below(2)) c.attributes.softmax_scale *= 8; /* see test_attention_pairs */
    case_run(&c, &(variant){.dtype = LS_BF16,
                            .threads = 1 + (int)random_below(MOST_THREADS),
                            .accumulate = random_below(2),
                            .given_workspace = random_below(2)});
  }
}

static void test_cached_attention_pairs(void **state) {
  (void)state;
  run_pairs(cases_of_cached_attention_pairs);
}

static void test_cached_attention_refuses(void **state) {
  (void)state;
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_F16, &error), LS_OK);
  uint16_t rows[2 * 4] = {0}, cache[3 * 4] = {0}, narrow[3 * 3] = {0};
  int32_t positions[2] = {2, 3};
  const ls_attributes attributes = {.head_dim = 4, .softmax_scale = 0.5};
  const ls_device_queue queue = {.facts = ls_cpu_facts()};
  const operand tokens = matrix_of(2, 4, 0, 0), kept = matrix_of(3, 4, 0, 0);
  const operand thin = matrix_of(3, 3, 0, 0), at_rows = vector_of(INDEX, 2);
  ls_kernel_args args = {.queue = &queue, .attributes = &attributes, .inputs = 6, .outputs = 1};
  for (int i = 0; i < 3; i++) args.in[i] = view_of(&tokens, LS_F16, rows);
  for (int i = 3; i < 5; i++) args.in[i] = view_of(&kept, LS_F16, cache);
  args.in[5] = view_of(&at_rows, LS_I32, positions);
  args.out[0] = view_of(&tokens, LS_F16, rows);
  const ls_kernel kernel = table.kernel[LS_OP_CACHED_ATTENTION];
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  assert_string_equal(error.text, "position 3 lies outside a cache of 3 rows");
  positions[1] = -1;
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  positions[1] = 1;
  assert_int_equal(kernel(&args, &error), LS_OK);
  args.in[4] = view_of(&thin, LS_F16, narrow);
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  args.in[4] = view_of(&kept, LS_BF16, cache);
  assert_int_equal(kernel(&args, &error), LS_INTERNAL);
  assert_string_equal(error.text, "a cache of 4 columns of bf16 for rows of 4 of fp16");
}

/* Products of a 16-bit type as oneDNN makes them itself, also where fp32 would be faster. */
static void half_products(ls_dtype half) {
  for (int i = 0; i < 20; i++) {
    const int64_t rows = any_size(), columns = any_size(), depth = any_size();
    const operand left = matrix_of(rows, depth, 0, 3), right = matrix_of(columns, depth, 0, 3);
    const int64_t padding = columns == 1 ? 0 : 3, stride = columns + padding;
    operand target = matrix_of(rows, columns, 0, padding);
    if (i & 1) target.kind = SUMS;
    const ls_dtype dtype = dtype_of(&target, half);
    void *a = operand_make(&left, half, false), *b = operand_make(&right, half, false);
    void *c = operand_make(&target, dtype, false);
    float *wide_a = reference_copy(&left, half, a), *wide_b = reference_copy(&right, half, b);
    float *wanted = reference_copy(&target, dtype, c);
    for (int64_t j = 0; j < rows * columns; j++) {
      const int64_t row = j / columns, column = j % columns;
      double sum = 0;
      for (int64_t k = 0; k < depth; k++) {
        sum += (double)wide_a[row * (depth + 3) + k] * (double)wide_b[column * (depth + 3) + k];
      }
      wanted[row * stride + column] += (float)sum;
    }
    const ls_matrix to = {c, dtype, stride, 1}, from = {a, half, depth + 3, 1};
    const ls_matrix turned = {b, half, 1, depth + 3};
    const ls_device_facts facts = facts_with(1 + i % MOST_THREADS, false);
    const ls_device_queue queue = {.facts = &facts};
    const ls_kernel_args args = {.queue = &queue};
    ls_error error = {0};
    assert_int_equal(
        ls_onednn_multiply(&to, &from, &turned, rows, columns, depth, true, &args, &error), LS_OK);
    const op_case named = {.kind = LS_OP_LINEAR, .out = {target}};
    const ls_view got = view_of(&target, dtype, c), reference = view_of(&target, LS_F32, wanted);
    output_compare(&named, &(variant){.dtype = half}, 0, &got, &reference);
    free(a), free(b), free(c), free(wide_a), free(wide_b), free(wanted);
  }
}

static void test_bf16_products(void **state) {
  (void)state;
  if (!ls_onednn_effective_isa().bf16) skip();
  half_products(LS_BF16);
}

static void test_fp16_products(void **state) {
  (void)state;
  if (!ls_onednn_effective_isa().fp16) skip();
  half_products(LS_F16);
}

int main(void) {
  random_state = test_seed(20261128);
  print_message("%s, kernels for %s\n", ls_cpu_facts()->effective, ls_cpu_facts()->set);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),
      cmocka_unit_test(test_linear_blocks),
      cmocka_unit_test(test_linear_ranges),
      cmocka_unit_test(test_linear_divided),
      cmocka_unit_test(test_linear_few_rows),
      cmocka_unit_test(test_linear_few_sums),
      cmocka_unit_test(test_linear_shallow),
      cmocka_unit_test(test_elementwise),
      cmocka_unit_test(test_norm),
      cmocka_unit_test(test_headnorm),
      cmocka_unit_test(test_row),
      cmocka_unit_test(test_fp8),
      cmocka_unit_test(test_experts),
      cmocka_unit_test(test_unsorted_rows_are_refused),
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_bias_db),
      cmocka_unit_test(test_rope),
      cmocka_unit_test(test_cross_entropy),
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_optimizer),
      cmocka_unit_test(test_move),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_attention_pairs),
      cmocka_unit_test(test_attention_ranges),
      cmocka_unit_test(test_cached_attention),
      cmocka_unit_test(test_cached_attention_pairs),
      cmocka_unit_test(test_cached_attention_refuses),
      cmocka_unit_test(test_bf16_products),
      cmocka_unit_test(test_fp16_products),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
