/* Every op of the table on random shapes: products, norms, attention, the pointwise ones and the
 * rest: fp32 against fp64, padding, accumulation. Gradients: gradients_test.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blocks.h"
#include "device/kernel.h"
#include "graph/labels.h"
#include "support/placed_ops.h"
#include "support/test_seed.h"

/* What holds for every reference kernel alike, over random shapes: operands are made from the
 * labels of the op's row. LS_SEED=N repeats a run. */

enum { ROUNDS = 25, MAX_BUFFERS = 64 };
static const double untouched = 777;

static uint64_t run_seed;

/* Buffers of the running test; the checked allocator sees writes past their ends. */
static void *buffers[MAX_BUFFERS];
static int buffer_count;

static void *buffer(int64_t bytes) {
  assert_true(buffer_count < MAX_BUFFERS);
  return buffers[buffer_count++] = test_calloc(1, (size_t)(bytes > 0 ? bytes : 1));
}

static void free_buffers(void) {
  while (buffer_count) test_free(buffers[--buffer_count]);
}

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t bits(uint64_t seed, int operand, int64_t i, int64_t j) {
  return mix(mix(mix(seed + (uint64_t)operand) + (uint64_t)i) + (uint64_t)j);
}

/* In [-1, 1), exact in fp32. */
static double noise(uint64_t seed, int operand, int64_t i, int64_t j) {
  return (double)(bits(seed, operand, i, j) >> 41) * 0x1p-22 - 1;
}

static double get(const ls_view *view, int64_t i, int64_t j) {
  const int64_t at = i * (view->ndim > 1 ? view->dims[1] : 1) + j;
  switch (view->dtype) {
    case LS_F32: return (double)((const float *)view->data)[at];
    case LS_F64: return ((const double *)view->data)[at];
    default: return (double)((const int32_t *)view->data)[at];
  }
}

static void set(const ls_view *view, int64_t i, int64_t j, double value) {
  const int64_t at = i * (view->ndim > 1 ? view->dims[1] : 1) + j;
  switch (view->dtype) {
    case LS_F32: ((float *)view->data)[at] = (float)value; break;
    case LS_F64: ((double *)view->data)[at] = value; break;
    default: ((int32_t *)view->data)[at] = (int32_t)value; break;
  }
}

static int64_t stored_columns(const ls_view *view) {
  return view->ndim > 1 ? view->dims[1] : 1;
}
static int64_t valid_columns(const ls_view *view) {
  return view->ndim > 1 ? view->valid[1] : 1;
}

typedef struct kernel_case {
  ls_op_kind kind;
  uint64_t seed;
  bool padded;
  ls_dtype dtype;
  ls_attributes attributes;
  ls_op_labels labels;
  ls_kernel_args args;
} kernel_case;

static int64_t draw(uint64_t seed, char what, int64_t low, int64_t high) {
  return low + (int64_t)(bits(seed, what, 0, 0) % (uint64_t)(high - low + 1));
}

/* Of a head that heads_up makes. */
static int64_t up_columns(uint64_t seed) {
  const int64_t head_dim = 2 * draw(seed, 'd', 1, 5);
  return draw(seed, 'y', 1, head_dim) + head_dim - draw(seed, 'z', 1, head_dim);
}

static int64_t label_size(uint64_t seed, char label) {
  const int64_t head_dim = 2 * draw(seed, 'd', 1, 5);
  const int64_t tokens = draw(seed, 'T', 1, 7) * draw(seed, 'B', 1, 3);
  switch (label) {
    case '1': return 1;
    case 'n': return tokens;
    case 'b': return draw(seed, 'B', 1, 3);
    case 't':
    case 's': return draw(seed, 'T', 1, 7);
    case 'd': return head_dim;
    case 'g': return draw(seed, 'g', 1, 3) * head_dim;
    case 'r': return draw(seed, 'r', 1, 3);
    case 'h': return draw(seed, 'h', 1, 4) * head_dim;
    case 'i': return draw(seed, 'g', 1, 3) * draw(seed, 'r', 1, 3);
    case 'w': return draw(seed, 'h', 1, 4) * draw(seed, 'c', 4, 90);
    case 'p': return draw(seed, 'p', 1, 12);
    case 'y': return draw(seed, 'y', 1, head_dim);
    case 'z': return draw(seed, 'h', 1, 4) * draw(seed, 'z', 1, head_dim);
    case 'a': return draw(seed, 'h', 1, 4) * up_columns(seed);
    case 'l': return tokens + draw(seed, 't', 0, 4);
    case 'v': return draw(seed, 'v', 2, 30);
    case 'f': return LS_DISTILL_SUMS;
    case 'x': return draw(seed, 'x', 3, 6);
    case 'j': return draw(seed, 'j', 1, 3);
    case 'o': return tokens * draw(seed, 'j', 1, 3);
    case 'q': return LS_BLOCK_WEIGHTS * draw(seed, 'q', 1, 3);
    default: return draw(seed, label, 4, 90);
  }
}

/* Columns are a gate and its up in turns, and their padding would be too. */
static bool is_paired(ls_op_kind kind) {
  return kind == LS_OP_PAIRED_GLU || kind == LS_OP_PAIRED_GLU_BWD;
}

/* Rows of any kind are padded, columns where the row lets them be cut; heads are always whole. */
static int64_t label_padding(const kernel_case *test, const char *label) {
  if (is_paired(test->kind) && label[0] == 'c') return 0;
  if (!test->padded || (label[1] && label[0] != 'b') || strchr("1grhdwaz", label[0])) return 0;
  const char *shardable = ls_op_row(test->kind)->shardable;
  if (!strchr("nble", label[0]) && !(shardable && strchr(shardable, label[0]))) return 0;
  return draw(test->seed, (char)(label[0] + 1), 1, 9);
}

/* Cells have one element, and are fp64. */
static ls_dtype dtype_of(const kernel_case *test, const ls_operand_labels *labels, bool index,
                         bool twice) {
  if (index) return LS_I32;
  if (twice || test->kind == LS_OP_ZERO) return LS_F64;
  if (test->kind == LS_OP_AMAX || test->kind == LS_OP_FP8) return test->dtype;
  return strcmp(labels->dim[0], "1") == 0 ? LS_F64 : test->dtype;
}

/* Of pairs the sums are fp64 for each token too, and weights are. */
static bool is_double(ls_op_kind kind, int operand, bool input) {
  if (!input) return ls_op_row(kind)->precision[operand] == LS_DOUBLE;
  return (kind == LS_OP_PAIR_LOSS && operand == 5) ||
         (kind == LS_OP_PAIR_LOSS_BWD && operand == 0) ||
         (kind == LS_OP_PAIR_REWARDS && operand == 0) ||
         (kind == LS_OP_XENT_LOSS_EACH && operand == 4) ||
         (kind == LS_OP_XENT_LOSS_EACH_BWD && operand == 1) ||
         (kind == LS_OP_BCE_SUM && operand == 3) || (kind == LS_OP_BCE_GRAD && operand == 4) ||
         (kind == LS_OP_COUNT_WEIGHTS && operand == 1);
}

static ls_view make_view(const kernel_case *test, const ls_operand_labels *labels, bool index,
                         bool twice) {
  ls_view view = {.dtype = dtype_of(test, labels, index, twice), .ndim = labels->ndim};
  int64_t elements = 1;
  for (int d = 0; d < view.ndim; d++) {
    view.valid[d] = 1;
    for (const char *l = labels->dim[d]; *l; l++) view.valid[d] *= label_size(test->seed, *l);
    if (is_paired(test->kind) && labels->dim[d][0] == 'c') view.valid[d] *= 2;
    view.valid[d] /= ls_operand_divisor(labels, d, &test->attributes);
    view.dims[d] = view.valid[d] + label_padding(test, labels->dim[d]);
    elements *= view.dims[d];
  }
  view.data = buffer(elements * (int64_t)ls_dtype_bytes(view.dtype));
  return view;
}

static void as_blocks(ls_view *view) {
  view->dtype = LS_NF4;
  view->data = buffer(view->dims[0] * view->dims[1] * (int64_t)ls_dtype_bytes(LS_NF4));
}

static bool counts_steps(ls_op_kind kind) {
  return kind == LS_OP_ADAMW || kind == LS_OP_ADAMW_SPECULATE || kind == LS_OP_SCHEDULEFREE;
}

/* Of routed rows, each once; of experts, some without rows. */
static double routed_value(const kernel_case *test, int input, int64_t i, int64_t j) {
  const ls_view *view = &test->args.in[input];
  if (view->ndim == 2)
    return (double)(view->valid[0] * view->valid[1] - 1 - i * view->valid[1] - j);
  return (double)(i * label_size(test->seed, 'x') / view->valid[0] / 2 * 2);
}

static bool is_of_top(ls_op_kind kind) {
  return kind == LS_OP_DISTILL_TOP_SUM || kind == LS_OP_DISTILL_TOP_GRAD;
}

static bool is_routed(const kernel_case *test, int input) {
  return test->args.in[input].ndim == 2 || ls_op_row(test->kind)->product ||
         test->kind == LS_OP_ROUTE_BWD || test->kind == LS_OP_GROUPED_BIAS ||
         test->kind == LS_OP_GROUPED_BIAS_DB || test->kind == LS_OP_GROUPED_WEIGH ||
         test->kind == LS_OP_GROUPED_WEIGH_BWD;
}

/* Which row each token is. */
static bool has_rows_of_tokens(ls_op_kind kind, int input) {
  return (kind == LS_OP_PAIR_LOSS && input == 6) || (kind == LS_OP_PAIR_LOSS_BWD && input == 4) ||
         (kind == LS_OP_PAIR_REWARDS && input == 3) || (kind == LS_OP_PAIR_SHARES && input == 2);
}

static double input_value(const kernel_case *test, int input, int64_t i, int64_t j) {
  const int64_t vocabulary = label_size(test->seed, 'v');
  const bool index = test->args.in[input].dtype == LS_I32;
  if (strcmp(test->labels.in[input].dim[0], "1") == 0)
    return counts_steps(test->kind) && input == 2 ? 3 : 1.5;
  if (index && test->kind == LS_OP_CACHED_ATTENTION) return (double)i;
  const bool forward = test->kind == LS_OP_ATTENTION || test->kind == LS_OP_RING_ATTENTION;
  const bool back = test->kind == LS_OP_ATTENTION_BWD || test->kind == LS_OP_RING_BWD;
  const bool sinks = test->kind == LS_OP_SINK_ATTENTION && input == 5;
  const bool places = (forward && input == 4) || (back && input == 7) || sinks;
  if (places || has_rows_of_tokens(test->kind, input))
    return (double)(test->args.in[input].valid[0] - 1 - i);
  if (index && is_of_top(test->kind) && input == 2) /* ascending, now and then none first */
    return (double)((int64_t)(bits(test->seed, input, i, 0) % 2) - 1 + j * (vocabulary / 4 + 1));
  const bool several = test->kind == LS_OP_BCE_SUM || test->kind == LS_OP_BCE_GRAD;
  if (index && several && input == 2)
    return (double)(int32_t)(uint32_t)bits(test->seed, input, i, j);
  if (index && is_routed(test, input)) return routed_value(test, input, i, j);
  if (index) return (double)(bits(test->seed, input, i, j) % (uint64_t)(vocabulary + 2)) - 1;
  const double value = noise(test->seed, input, i, j);
  /* A momentum that outweighs its gradient: rounding does not turn the sign of their mean. */
  if (test->kind == LS_OP_LION_SPECULATE && input == 5) return value + (value > 0 ? 1 : -1);
  /* Sums of exponentials and of squares are positive. */
  if ((test->kind == LS_OP_ADAMW_SPECULATE && input == 6) ||
      (test->kind == LS_OP_RING_ATTENTION && input == 7) ||
      (test->kind == LS_OP_RING_END && input == 2) ||
      (test->kind == LS_OP_RING_END_BWD && input == 3) ||
      (test->kind == LS_OP_XENT_LOSS && input == 1) ||
      (test->kind == LS_OP_XENT_LOSS_EACH && input == 1) ||
      (test->kind == LS_OP_XENT_GRAD && input == 2) ||
      (test->kind == LS_OP_XENT_GRAD_EACH && input == 2) ||
      (test->kind == LS_OP_DISTILL_LOSS && input == 1) ||
      (test->kind == LS_OP_DISTILL_GRAD && input == 4) ||
      (test->kind == LS_OP_DISTILL_TOP_GRAD && input == 4) ||
      (test->kind == LS_OP_PAIR_LOSS && input == 1) ||
      (test->kind == LS_OP_ROUTER_LOSS_EACH && input == 2) ||
      (test->kind == LS_OP_ROUTER_LOSS_EACH_BWD && input == 2) ||
      (test->kind == LS_OP_ROW_SCALE && input == 2) ||
      (test->kind == LS_OP_ROW_SCALE_BWD && input == 3))
    return value + 2;
  /* Scores that are not large, and more than the own one's. */
  if ((test->kind == LS_OP_TEXT_MATCH || test->kind == LS_OP_TEXT_MATCH_BWD) &&
      (input == 0 || input == 2))
    return value / 8;
  if (test->kind == LS_OP_TEXT_LOSS && input == 0) return value + 3;
  /* Sums of do . o that cancel are rounding. */
  if ((test->kind == LS_OP_SINK_BWD || test->kind == LS_OP_RING_END_BWD) && input < 2)
    return value + 2;
  return value;
}

/* Those that are no weights' are not numbers. */
static void fill_blocks(const kernel_case *test, int input) {
  const ls_view *view = &test->args.in[input];
  for (int64_t i = 0; i < view->dims[0]; i++)
    for (int64_t j = 0; j < view->dims[1]; j++) {
      float weights[LS_BLOCK_WEIGHTS];
      ls_four_bit_block *block = (ls_four_bit_block *)view->data + i * view->dims[1] + j;
      for (int w = 0; w < LS_BLOCK_WEIGHTS; w++)
        weights[w] = (float)noise(test->seed, input, i, j * LS_BLOCK_WEIGHTS + w);
      ls_blocks_quantise(LS_NF4, weights, 1, block);
      if (i >= view->valid[0] || j >= view->valid[1]) block->scale = NAN;
    }
}

/* Rows beyond the valid ones must not be read, nor the logits' columns; others are zero there. */
static void fill_input(const kernel_case *test, int input) {
  const ls_view *view = &test->args.in[input];
  if (view->dtype == LS_NF4) {
    fill_blocks(test, input);
    return;
  }
  const bool logits =
      input == 0 && (test->kind == LS_OP_XENT_MAX || test->kind == LS_OP_XENT_SUM ||
                     test->kind == LS_OP_XENT_SUM_EACH || test->kind == LS_OP_XENT_GRAD ||
                     test->kind == LS_OP_XENT_GRAD_EACH || test->kind == LS_OP_BCE_SUM ||
                     test->kind == LS_OP_BCE_GRAD);
  const bool distilled = ((input == 0 || input == 2) &&
                          (test->kind == LS_OP_DISTILL_SUM || test->kind == LS_OP_DISTILL_GRAD)) ||
                         (input == 0 && is_of_top(test->kind));
  for (int64_t i = 0; i < view->dims[0]; i++)
    for (int64_t j = 0; j < stored_columns(view); j++) {
      double value = input_value(test, input, i, j);
      if (i >= view->valid[0])
        value = view->dtype == LS_I32 ? 1e9 : (double)NAN;
      else if (j >= valid_columns(view))
        value = logits || distilled ? (double)NAN : 0;
      set(view, i, j, value);
    }
}

/* What an output starts with. */
static double filled(const kernel_case *test, int output, int64_t i, int64_t j) {
  const double value = 1.25 + noise(test->seed, 100 + output, i, j);
  return test->args.out[output].dtype == LS_I32 ? (double)(int32_t)value : value;
}

/* Outputs start with positive numbers (moments are) where they are valid. */
static void fill_output(const kernel_case *test, int output) {
  const ls_view *view = &test->args.out[output];
  for (int64_t i = 0; i < view->dims[0]; i++)
    for (int64_t j = 0; j < stored_columns(view); j++)
      set(view, i, j,
          i >= view->valid[0] || j >= valid_columns(view)
              ? untouched
              : 1.25 + noise(test->seed, 100 + output, i, j));
}

/* Windows, caps and slopes of attention, each in some cases; heads of which only a part is turned;
 * a table of frequencies. */
static void add_options(kernel_case *test) {
  ls_attributes *attributes = &test->attributes;
  const uint64_t seed = test->seed;
  const bool softcap = test->kind == LS_OP_SOFTCAP || test->kind == LS_OP_SOFTCAP_BWD;
  if (softcap || seed / 2 % 3 == 0) attributes->softcap = 1.5;
  if (seed / 6 % 3 == 0) attributes->window = draw(seed, 'w', 1, 6);
  if (seed / 18 % 3 == 0) {
    attributes->alibi = 0.5;
    attributes->heads = 12;
  }
  if (test->kind == LS_OP_HEADS_UP) attributes->columns = up_columns(seed);
  if (test->kind == LS_OP_ROPE_TABLE) {
    double *frequencies = buffer(attributes->head_dim / 2 * (int64_t)sizeof(double));
    attributes->rope_pairs = attributes->head_dim / 2;
    for (int64_t i = 0; i < attributes->rope_pairs; i++)
      frequencies[i] = pow(100, -(double)i / (double)attributes->rope_pairs);
    attributes->rope_frequencies = frequencies;
    attributes->rope_scale = seed % 2 ? 1.25 : 0;
  }
  /* One wide head of which the first columns are turned. */
  if ((test->kind == LS_OP_ROPE || test->kind == LS_OP_ROPE_BWD) && seed % 2) {
    const int64_t turned = label_size(seed, 'd'), head_dim = label_size(seed, 'h');
    attributes->head_dim = head_dim;
    attributes->rope_neighbours = seed / 2 % 2;
    attributes->rope_first = draw(seed, 'f', 0, head_dim - turned);
  }
}

static void make_case(kernel_case *test, ls_op_kind kind, ls_dtype dtype, uint64_t seed,
                      bool padded) {
  const bool gelu = kind == LS_OP_GELU || kind == LS_OP_GELU_BWD;
  const ls_activation activation = gelu ? (ls_activation)(1 + seed % (LS_ACTIVATION_COUNT - 1))
                                        : (ls_activation)(seed % LS_ACTIVATION_COUNT);
  *test = (kernel_case){.kind = kind, .seed = seed, .padded = padded, .dtype = dtype};
  test->labels = ls_op_labels_read(kind);
  test->attributes = (ls_attributes){.sequence = draw(seed, 'T', 1, 7),
                                     .head_dim = 2 * draw(seed, 'd', 1, 5),
                                     .epsilon = 1e-5,
                                     .weight_offset = seed % 3 == 0,
                                     .dropout = 0.3,
                                     .site = 1 + (int64_t)(seed % 5),
                                     .turns = 1,
                                     .softmax_scale = 0.7,
                                     .gate_limit = 0.6,
                                     .gate_slope = 1.7,
                                     .scale = seed % 2 ? 1.75 : 0,
                                     .columns = draw(seed, 'c', 4, 90),
                                     .experts = draw(seed, 'x', 3, 6),
                                     .renormalise = seed % 2,
                                     .sigmoid = seed / 3 % 2,
                                     .groups = seed / 5 % 2 ? label_size(seed, 'x') : 0,
                                     .top_groups = 3,
                                     .chosen = label_size(seed, 'j'),
                                     .z_scale = 0.3,
                                     .activation = activation,
                                     .rate = 0.5,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .weight_decay = 0.1,
                                     .clip = 1,
                                     .dpo_beta = 0.5,
                                     .pairs = draw(seed, 'P', 1, 9),
                                     .texts = draw(seed, 'W', 2, 4),
                                     .answers = seed % 2,
                                     .weight = 0.5};
  add_options(test);
  test->args.attributes = &test->attributes;
  /* What a node may be without, half of the cases are without; others of some. */
  const bool without = draw(seed, '?', 0, 1) == 0;
  const bool attention =
      kind == LS_OP_ATTENTION || kind == LS_OP_SINK_ATTENTION || kind == LS_OP_ATTENTION_BWD;
  const int64_t some = attention ? draw(seed, '!', 0, test->labels.optional) : 0;
  test->args.inputs = test->labels.inputs - (without ? test->labels.optional : (int)some);
  test->args.outputs = test->labels.outputs - (without ? test->labels.optional_outputs : 0);
  for (int i = 0; i < test->args.inputs; i++) {
    const bool index = ls_op_reads_indices(ls_op_row(kind), i);
    test->args.in[i] = make_view(test, &test->labels.in[i], index, is_double(kind, i, true));
    if (ls_op_reads_blocks(ls_op_row(kind), i)) as_blocks(&test->args.in[i]);
    fill_input(test, i);
  }
  for (int o = 0; o < test->args.outputs; o++) {
    test->args.out[o] =
        make_view(test, &test->labels.out[o], ls_op_row(kind)->precision[o] == LS_INDEX,
                  is_double(kind, o, false));
    fill_output(test, o);
  }
}

static ls_status call(const ls_kernel_args *args, ls_op_kind kind, ls_dtype dtype) {
  ls_kernel_table table;
  ls_reference_kernels(&table, dtype);
  assert_non_null(table.kernel[kind]);
  ls_error error = {0};
  return table.kernel[kind](args, &error);
}

static void run_case(const kernel_case *test) {
  assert_int_equal(call(&test->args, test->kind, test->dtype), LS_OK);
}

/* Norm of the difference of the valid parts over the norm of `b`. */
static double distance(const ls_view *a, const ls_view *b) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < b->valid[0]; i++)
    for (int64_t j = 0; j < valid_columns(b); j++) {
      const double x = get(a, i, j), y = get(b, i, j);
      difference += (x - y) * (x - y);
      norm += y * y;
    }
  return sqrt(difference) / (sqrt(norm) + 1e-4);
}

static void expect_near(const ls_view *a, const ls_view *b, double tolerance, ls_op_kind kind,
                        int output, uint64_t seed) {
  const double far = distance(a, b);
  if (!(far <= tolerance))
    fail_msg("%s output %d differs by %g (seed %llu, case %llu)", ls_op_name(kind), output, far,
             (unsigned long long)run_seed, (unsigned long long)seed);
}

static void precisions_agree(void **state) {
  (void)state;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++)
    for (uint64_t round = 0; round < ROUNDS && !ls_test_is_placed(kind); round++) {
      const uint64_t seed = mix(run_seed + round);
      kernel_case narrow, wide;
      make_case(&narrow, kind, LS_F32, seed, round % 2);
      make_case(&wide, kind, LS_F64, seed, round % 2);
      run_case(&narrow);
      run_case(&wide);
      for (int o = 0; o < wide.args.outputs; o++)
        expect_near(&narrow.args.out[o], &wide.args.out[o], 1e-6, kind, o, seed);
      free_buffers();
    }
}

static void padding_changes_nothing(void **state) {
  (void)state;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++)
    for (uint64_t round = 0; round < ROUNDS && !ls_test_is_placed(kind); round++) {
      const uint64_t seed = mix(run_seed + round);
      kernel_case plain, padded;
      make_case(&plain, kind, LS_F64, seed, false);
      make_case(&padded, kind, LS_F64, seed, true);
      run_case(&plain);
      run_case(&padded);
      for (int o = 0; o < plain.args.outputs; o++) {
        const ls_view *out = &padded.args.out[o];
        expect_near(out, &plain.args.out[o], 0, kind, o, seed);
        for (int64_t i = 0; i < out->dims[0]; i++)
          for (int64_t j = 0; j < stored_columns(out); j++) {
            if (i >= out->valid[0])
              assert_true(get(out, i, j) == (kind == LS_OP_EMBEDDING_DW ? 0 : untouched));
            else if (j >= valid_columns(out))
              assert_true(get(out, i, j) == 0);
          }
      }
      free_buffers();
    }
}

static const bool never_added_to[LS_OP_COUNT] = {[LS_OP_DEQUANTIZE] = true,
                                                 [LS_OP_RING_ATTENTION] = true,
                                                 [LS_OP_RING_END] = true,
                                                 [LS_OP_RING_END_BWD] = true,
                                                 [LS_OP_XENT_MAX] = true,
                                                 [LS_OP_AMAX] = true,
                                                 [LS_OP_ROW_AMAX] = true,
                                                 [LS_OP_PAIR_LOSS] = true,
                                                 [LS_OP_CLIP_FACTOR] = true,
                                                 [LS_OP_ADAMW] = true,
                                                 [LS_OP_SGD] = true,
                                                 [LS_OP_ADAMW_SPECULATE] = true,
                                                 [LS_OP_SGD_SPECULATE] = true,
                                                 [LS_OP_LION] = true,
                                                 [LS_OP_LION_SPECULATE] = true,
                                                 [LS_OP_SCHEDULEFREE] = true,
                                                 [LS_OP_SCHEDULEFREE_POINT] = true,
                                                 [LS_OP_ROUTE] = true,
                                                 [LS_OP_ROUTER_LOADS] = true,
                                                 [LS_OP_ROUTER_TOTAL] = true,
                                                 [LS_OP_ROUTER_LOADS_EACH] = true};

static void accumulation_adds(void **state) {
  (void)state;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++)
    for (uint64_t round = 0; round < ROUNDS && !ls_test_is_placed(kind); round++) {
      const uint64_t seed = mix(run_seed + round);
      kernel_case plain, added;
      make_case(&plain, kind, LS_F64, seed, false);
      make_case(&added, kind, LS_F64, seed, false);
      for (int o = 0; o < added.args.outputs; o++) added.args.accumulate[o] = true;
      if (never_added_to[kind]) {
        assert_int_equal(call(&added.args, kind, LS_F64), LS_INTERNAL);
        free_buffers();
        continue;
      }
      run_case(&plain);
      run_case(&added);
      for (int o = 0; o < plain.args.outputs; o++) {
        const ls_view *out = &plain.args.out[o];
        for (int64_t i = 0; i < out->dims[0]; i++)
          for (int64_t j = 0; j < stored_columns(out); j++)
            set(out, i, j, get(out, i, j) + 1.25 + noise(seed, 100 + o, i, j));
        expect_near(&added.args.out[o], out, 1e-13, kind, o, seed);
      }
      free_buffers();
    }
}

static void no_rows_give_zero_gradients(void **state) {
  (void)state;
  int zeroed = 0;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++) {
    kernel_case test;
    uint64_t seed = mix(run_seed + kind);
    if (ls_test_is_placed(kind)) continue;
    if (kind == LS_OP_DEQUANTIZE || kind == LS_OP_AMAX || kind == LS_OP_FP8)
      continue;                                          /* of a weight's rows, not of tokens' */
    while (draw(seed, '?', 0, 1) == 0) seed = mix(seed); /* a case with all operands */
    make_case(&test, kind, LS_F64, seed, false);
    for (int i = 0; i < test.args.inputs; i++)
      if (strchr("nbeo", test.labels.in[i].dim[0][0])) test.args.in[i].valid[0] = 0;
    for (int o = 0; o < test.args.outputs; o++)
      if (strchr("nbeo", test.labels.out[o].dim[0][0])) test.args.out[o].valid[0] = 0;
    run_case(&test);
    for (int o = 0; o < test.args.outputs; o++) {
      const ls_view *out = &test.args.out[o];
      if (kind == LS_OP_CLIP_FACTOR || kind == LS_OP_RECIPROCAL || kind == LS_OP_ZERO ||
          kind == LS_OP_ROUTER_TOTAL)
        continue;
      const bool rowless = out->valid[0] == 0;
      for (int64_t i = 0; i < out->dims[0]; i++)
        for (int64_t j = 0; j < stored_columns(out); j++)
          assert_true(get(out, i, j) == (rowless ? filled(&test, o, i, j) : 0));
      zeroed += !rowless;
    }
    free_buffers();
  }
  /* embedding, linear, bias: 1 each; norms: 2, 1, 1 and 1; grouped products: 2, their biases: 2;
   * sinks: 1, and of a ring 1; loss, count and norm: 1 each; of pairs the loss 1,
   * rewards 3; of routers the losses 1 each, loads 2 and 1; of distillation 3; of weighted
   * labels the loss and the count, and of several the loss; of texts sums, answers, the loss and
   * what is found. */
  assert_int_equal(zeroed, 36);
}

static void in_place_equals_apart(void **state) {
  (void)state;
  int checked = 0;
  for (ls_op_kind kind = 0; kind < LS_OP_COUNT; kind++) {
    const int input = ls_op_row(kind)->in_place - 1;
    if (input < 0) continue;
    for (uint64_t round = 0; round < ROUNDS; round++) {
      const uint64_t seed = mix(run_seed + round);
      kernel_case apart, shared;
      make_case(&apart, kind, LS_F64, seed, round % 2);
      make_case(&shared, kind, LS_F64, seed, round % 2);
      if (input >= shared.args.inputs) {
        free_buffers();
        continue;
      }
      shared.args.out[0].data = shared.args.in[input].data;
      run_case(&apart);
      run_case(&shared);
      expect_near(&shared.args.out[0], &apart.args.out[0], 0, kind, 0, seed);
      free_buffers();
    }
    checked++;
  }
  assert_true(checked > 0);
}

int main(void) {
  run_seed = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(precisions_agree),      cmocka_unit_test(padding_changes_nothing),
      cmocka_unit_test(accumulation_adds),     cmocka_unit_test(no_rows_give_zero_gradients),
      cmocka_unit_test(in_place_equals_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
