/* Every CUDA kernel but attention against the reference, without a GPU: compiled as C++ and run by
 * the shim (cuda/shim_run.h), on random shapes that are multiples of nothing, padded, at unaligned
 * places too, in fp32, bf16 and fp16, in three orders of threads and of blocks that must give the
 * same bits. */
#include <stdio.h>

#include "base/scales.h"
#include "device/cuda/kernels/cuda_modules.h"
#include "support/cuda_case.h"
#include "support/stand_in/numbers.h"
#include "support/test_seed.h"

enum { CASES = 3 }; /* of every op */

static const double frequencies[600] = {1, 0.5, 0.3, 0.2, 0.1, 1e-3};

static void make_rope_table(op_case *c) {
  static const int64_t pairs[] = {1, 3, 32, 64, 300, 600};
  const int64_t rows = any_rows(), half = pick(pairs, 6);
  c->kind = LS_OP_ROPE_TABLE;
  c->inputs = c->outputs = 1;
  c->attributes.rope_pairs = half;
  c->attributes.rope_frequencies = frequencies;
  c->attributes.rope_scale = random_below(2) ? 1.25 : 0;
  c->in[0] = vector_of(INDEX, rows);
  c->in[0].range = 100000;
  c->out[0] = matrix_of(rows, 2 * half, 1, 0);
  c->out[0].kind = SUMS;
}

/* Sums over tokens with a label, each once or by its weight; and what each counts going back. */
static void make_tokens(op_case *c) {
  static const ls_op_kind kinds[] = {
      LS_OP_COUNT_VALID, LS_OP_XENT_LOSS,     LS_OP_XENT_LOSS_EACH, LS_OP_XENT_LOSS_EACH_BWD,
      LS_OP_BCE_LOSS,    LS_OP_COUNT_WEIGHTS, LS_OP_DISTILL_LOSS};
  static const int labels_at[] = {0, 3, 3, 0, 1, 0, 2}, inputs[] = {1, 4, 5, 3, 2, 2, 3};
  const int64_t rows = any_rows(), which = random_below(7);
  c->kind = kinds[which];
  c->inputs = inputs[which], c->outputs = 1;
  c->out[0] = cell_of(2.5);
  for (int i = 0; i < c->inputs; i++) c->in[i] = vector_of(i == 1 ? POSITIVE : SUMS, rows);
  c->in[labels_at[which]] = vector_of(INDEX, rows);
  c->in[labels_at[which]].range = 3;
  const bool weighed = c->kind == LS_OP_XENT_LOSS_EACH || c->kind == LS_OP_XENT_LOSS_EACH_BWD;
  if (weighed || c->kind == LS_OP_COUNT_WEIGHTS)
    c->in[labels_at[which] + 1] = vector_of(DOUBLES, rows);
  if (c->kind == LS_OP_XENT_LOSS_EACH_BWD)
    c->in[2] = cell_of(0.25), c->out[0] = vector_of(SUMS, rows);
  if (c->kind != LS_OP_DISTILL_LOSS) return;
  c->attributes.softmax_scale = 0.5, c->attributes.scale = 0.3;
  c->outputs = 3;
  c->in[1] = matrix_of(rows, LS_DISTILL_SUMS, 0, 0);
  c->in[1].kind = POSITIVE;
  c->out[1] = cell_of(-1), c->out[2] = cell_of(3);
}

static void make_cells(op_case *c) {
  static const double norms[] = {0.25, 16, INFINITY};
  static const ls_op_kind kinds[] = {LS_OP_ZERO, LS_OP_RECIPROCAL, LS_OP_CLIP_FACTOR};
  c->kind = kinds[random_below(3)];
  c->inputs = c->kind == LS_OP_ZERO ? 1 : c->kind == LS_OP_RECIPROCAL ? 2 : 4;
  c->outputs = c->kind == LS_OP_CLIP_FACTOR ? 3 : 1;
  c->no_add = c->kind == LS_OP_CLIP_FACTOR;
  c->attributes.clip = random_below(2) ? 1.5 : 0;
  c->in[0] =
      cell_of(c->kind == LS_OP_CLIP_FACTOR ? norms[random_below(3)] : (double)random_below(3));
  for (int i = 1; i < c->inputs; i++) c->in[i] = cell_of(0.5 + (double)random_below(4));
  for (int i = 0; i < c->outputs; i++) c->out[i] = cell_of(7);
}

/* Of several experts; a token may have one twice, which the reference takes once. */
static void make_route_bwd(op_case *c) {
  make_route(c);
  const operand logits = c->in[c->kind == LS_OP_ROUTE_BWD];
  const int64_t experts = logits.valid[1], tokens = logits.valid[0];
  const int64_t chosen = 1 + random_below(experts < 40 ? experts : 40);
  c->kind = LS_OP_ROUTE_BWD;
  c->attributes.sigmoid = random_below(2);
  c->inputs = 4, c->outputs = 1, c->no_add = false;
  c->in[0] = vector_of(SUMS, tokens * chosen), c->in[1] = c->out[0] = logits;
  c->in[2] = matrix_of(tokens, chosen, 0, 0), c->in[3] = vector_of(EXPERTS, tokens * chosen);
  c->in[2].kind = ROUTED;
  c->in[3].range = experts;
  c->floor = 1e-6; /* of one expert alone: 0 */
}

/* Scores that are not logits alone: sigmoids, numbers added, the best groups. */
static void make_scores(op_case *c) {
  static const int64_t counts[] = {3, 16, 128, 516};
  const int64_t tokens = any_rows(), experts = pick(counts, 4), chosen = 1 + random_below(3);
  c->kind = LS_OP_ROUTE;
  c->attributes = (ls_attributes){.sigmoid = random_below(2), .renormalise = random_below(2)};
  if (experts % 4 == 0 && random_below(2)) c->attributes.groups = 4, c->attributes.top_groups = 2;
  if (random_below(2)) c->attributes.scale = 2.5;
  c->inputs = 1 + (int)random_below(2), c->outputs = 3, c->no_add = true;
  c->in[0] = matrix_of(tokens, experts, 2, random_below(3));
  c->in[1] = vector_of(SUMS, experts);
  c->out[0] = matrix_of(tokens, chosen, 0, 0), c->out[1] = vector_of(EXPERTS, tokens * chosen);
  c->out[0].kind = ROUTED, c->out[1].range = experts;
  c->out[2] = vector_of(SUMS, tokens * chosen);
}

/* What routers pay; and loads, by sigmoids and by numbers added too. */
static void make_router_of(op_case *c) {
  if (random_below(2)) {
    make_router(c);
    return;
  }
  make_loads(c);
  if (c->kind != LS_OP_ROUTER_LOADS && c->kind != LS_OP_ROUTER_LOADS_EACH) return;
  c->attributes.sigmoid = random_below(2);
  if (random_below(2)) return;
  c->inputs = 3;
  c->in[2] = vector_of(SUMS, c->in[0].valid[1]);
}

/* Documents two and two, in sequences of which the last may be cut short. */
static void make_pairs(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_PAIR_LOSS, LS_OP_PAIR_LOSS_BWD, LS_OP_PAIR_REWARDS,
                                     LS_OP_PAIR_SHARES};
  static const int64_t lengths[] = {1, 5, 64, 200};
  const int64_t sequence = pick(lengths, 4), tokens = sequence * (1 + random_below(5));
  const operand sums = vector_of(SUMS, tokens), answers = vector_of(DOUBLES, tokens);
  operand labels = vector_of(INDEX, tokens);
  labels.range = random_below(2) ? 1 : 100;
  c->kind = kinds[random_below(4)];
  c->attributes.sequence = sequence;
  c->attributes.dpo_beta = 0.3;
  c->attributes.scale = random_below(3) ? 0 : 0.7;
  c->attributes.smoothing = c->attributes.scale == 0 && random_below(2) ? 0.1 : 0;
  const int at = cuda_pair_labels(c->kind);
  c->in[at] = labels, c->in[at + 1] = vector_of(INDEX, tokens);
  c->inputs = at + 2, c->outputs = 1;
  c->out[0] = cell_of(2.5);
  switch (c->kind) {
    case LS_OP_PAIR_LOSS:
      c->inputs = 6, c->outputs = 2, c->no_add = true;
      c->in[0] = sums, c->in[1] = vector_of(POSITIVE, tokens), c->in[2] = sums;
      c->in[5] = c->out[1] = answers;
      break;
    case LS_OP_PAIR_LOSS_BWD:
      c->inputs = 4;
      c->in[0] = answers, c->in[3] = cell_of(0.25), c->out[0] = sums;
      break;
    case LS_OP_PAIR_SHARES: c->out[0] = sums; break;
    case LS_OP_PAIR_REWARDS:
      c->outputs = 3;
      c->in[0] = answers, c->out[1] = cell_of(-1), c->out[2] = cell_of(3);
      break;
    default: break;
  }
  c->in[cuda_pair_rows(c->kind)] = vector_of(INDEX, tokens);
  c->inputs += (int)random_below(2);
}

static void make_token_rows(op_case *c) {
  c->kind = LS_OP_TOKEN_ROWS;
  c->inputs = c->outputs = 1, c->no_add = true;
  c->in[0] = c->out[0] = vector_of(INDEX, any_rows());
  c->in[0].start[0] = c->out[0].start[0] = random_below(2) * 48;
}

/* Vectors of a length of 1, or nearly; and sums over those that are there. */
static void make_text_rows(op_case *c) {
  static const ls_op_kind kinds[] = {LS_OP_UNIT_ROWS, LS_OP_UNIT_ROWS_BWD, LS_OP_TEXT_LOSS,
                                     LS_OP_TEXT_FOUND};
  static const int inputs[] = {1, 3, 3, 1};
  const int64_t rows = any_rows(), which = random_below(4);
  operand vectors = matrix_of(rows, any_size(), 2, random_below(4));
  const operand each = vector_of(POSITIVE, rows);
  vectors.kind = SUMS;
  c->kind = kinds[which];
  c->inputs = inputs[which], c->outputs = c->kind == LS_OP_UNIT_ROWS ? 2 : 1;
  for (int i = 0; i < c->inputs; i++) c->in[i] = which < 2 && i < 2 ? vectors : each;
  c->out[0] = which < 2 ? vectors : cell_of(2.5), c->out[1] = vector_of(SUMS, rows);
}

/* Of a weight of more rows and columns of blocks. */
static void make_scales(op_case *c) {
  const int64_t rows = any_rows(), blocks = 1 + random_below(40), more = random_below(3);
  c->kind = LS_OP_RESTORE_SCALES;
  c->inputs = 2, c->outputs = 1, c->no_add = true;
  c->in[0] = matrix_of(rows, blocks, 1, random_below(2));
  c->in[0].start[0] = 20 * more, c->in[0].start[1] = 7 * more;
  c->attributes.columns = blocks + 9 * more;
  c->in[1] = vector_of(SUMS, ls_scales_nested((c->in[0].start[0] + rows) * c->attributes.columns));
  c->out[0] = matrix_of(rows, blocks, 1, random_below(2));
  const int which = (int)random_below(2);
  c->in[0].kind = which ? FP4_DOUBLE_BLOCKS : NF4_DOUBLE_BLOCKS;
  c->out[0].kind = which ? FP4_BLOCKS : NF4_BLOCKS;
}

static void make_blocks(op_case *c) {
  if (random_below(2)) {
    make_scales(c);
    return;
  }
  const int64_t rows = any_rows(), blocks = 1 + random_below(6), pad = random_below(3);
  c->kind = LS_OP_DEQUANTIZE;
  c->inputs = c->outputs = 1, c->no_add = true;
  c->in[0] = matrix_of(rows, blocks, 1, random_below(2));
  c->in[0].kind = (operand_kind)(NF4_BLOCKS + random_below(3));
  c->out[0] = matrix_of(rows, blocks * LS_BLOCK_WEIGHTS, 1, 5 * pad);
}

/* More columns than a warp's, than a block's registers and, going back, than shared memory takes.
 */
static void make_wide_norm(op_case *c) {
  static const int64_t widths[] = {1500, 4097, 13001, 25001};
  make_norm_of(c, 1 + random_below(4), pick(widths, 4));
}

/* What encoders have: no bias of a layer norm, rows of a table before that of id 0. */
static void make_encoder(op_case *c) {
  if (random_below(2)) {
    make_embedding(c);
    c->attributes.skipped = random_below(3);
    return;
  }
  do {
    *c = (op_case){0};
    make_norm(c);
  } while (c->kind != LS_OP_LAYERNORM);
  c->inputs = 2;
}

static const case_maker makers[] = {
    make_codes,         make_muon,         make_schedulefree,  make_kept,      make_slots,
    make_sent,          make_grouped_bias, make_paired,        make_sink_bwd,  make_heads,
    make_heads_product, make_several,      make_distillation,  make_encoder,   make_rope_columns,
    make_elementwise,   make_norm,         make_headnorm,      make_row,       make_embedding,
    make_bias_db,       make_rope,         make_cross_entropy, make_optimizer, make_move,
    make_rope_table,    make_tokens,       make_cells,         make_blocks,    make_pairs,
    make_route,         make_route_bwd,    make_routed,        make_grouped,   make_scores,
    make_router_of,     make_adafactor,    make_texts,         make_text_rows, make_fp8,
    make_weight_codes,  make_token_rows};

enum { MAKERS = sizeof makers / sizeof *makers };

static bool is_attention(ls_op_kind kind) {
  return kind == LS_OP_ATTENTION || kind == LS_OP_ATTENTION_BWD || kind == LS_OP_CACHED_ATTENTION ||
         kind == LS_OP_SINK_ATTENTION || kind == LS_OP_CACHED_PART || kind == LS_OP_CACHED_END ||
         kind == LS_OP_RING_ATTENTION || kind == LS_OP_RING_BWD || kind == LS_OP_RING_END ||
         kind == LS_OP_RING_END_BWD;
}

static void test_every_op(void **state) {
  (void)state;
  int cases[LS_OP_COUNT] = {0};
  for (int k = 0; k < LS_OP_COUNT; k++)
    if (!ls_cuda_serves((ls_op_kind)k) || is_attention((ls_op_kind)k)) cases[k] = CASES;
  for (int round = 0, left = 1; left; round++) {
    if (round == 1000 * MAKERS) fail_msg("an op with CUDA kernels is made by no maker");
    op_case c = {0};
    makers[round % MAKERS](&c);
    if (cases[c.kind] < CASES) {
      cases[c.kind]++;
      cuda_run_all(&c);
    }
    left = 0;
    for (int k = 0; k < LS_OP_COUNT; k++) left += cases[k] < CASES;
  }
}

static void test_wide_norms(void **state) {
  (void)state;
  for (int i = 0; i < 6; i++) {
    op_case c = {0};
    make_wide_norm(&c);
    cuda_run_case(&c, &(variant){.dtype = i % 2 ? LS_BF16 : LS_F32, .accumulate = i % 3 == 0});
  }
}

/* Norms whose rows a warp holds in registers: of whole packs, not padded. The columns of all
 * operands that have `from` of them become `to`. */
static void test_held_norms(void **state) {
  (void)state;
  static const int64_t widths[] = {520, 768, 2048, 2056, 4096};
  bool made[LS_OP_COUNT] = {false};
  for (int i = 0, left = 6; i < 20 || left; i++) {
    op_case c = {0};
    const int64_t to = pick(widths, 5);
    if (i % 2)
      make_row(&c);
    else
      make_norm_of(&c, 1 + random_below(20), 30);
    const int64_t from = c.in[1].ndim == 1 ? c.in[1].valid[0] : c.in[2].valid[0];
    if (c.kind == LS_OP_ROW_SQUARES || c.kind == LS_OP_ROW_SQUARES_BWD) continue;
    if (from == c.in[0].valid[0]) continue; /* rows are not told from columns */
    left -= !made[c.kind];
    made[c.kind] = true;
    for (int o = 0; o < c.inputs + c.outputs; o++) {
      operand *of = o < c.inputs ? &c.in[o] : &c.out[o - c.inputs];
      if (of->valid[of->ndim - 1] == from) of->valid[of->ndim - 1] = of->dims[of->ndim - 1] = to;
    }
    c.attributes.columns = 2 * to;
    if (c.kind == LS_OP_LAYERNORM) c.inputs -= (int)random_below(2); /* without a bias */
    cuda_run_case(&c, &(variant){.dtype = i % 4 < 2 ? LS_BF16 : LS_F16, .accumulate = i % 3 == 0});
  }
}

/* Matrices of which a rank has some columns, and texts of many tokens. */
static void test_cut_lines_and_long_texts(void **state) {
  (void)state;
  int lines = 0, texts = 0;
  while (lines < 6 || texts < 6) {
    op_case c = {0};
    make_adafactor(&c);
    if (c.kind == LS_OP_ADAFACTOR_SUMS && c.in[0].start[2] > 0 && c.in[1].value > 0 && ++lines)
      cuda_run_case(&c, &(variant){.dtype = LS_F32});
    c = (op_case){0};
    make_texts(&c);
    if (c.kind != LS_OP_TEXT_SUMS || c.in[0].valid[0] < 64 || !++texts) continue;
    c.in[1].range = 3;
    c.out[0].start[0] = 0;
    cuda_run_case(&c, &(variant){.dtype = LS_BF16, .accumulate = texts % 2});
  }
}

/* A matrix of numbers of a format, each row times a power of two of its own or all times one; some
 * with a NaN, or with an infinity, beside which scales are 1. */
static void make_coded(uint16_t *numbers, int64_t rows, int64_t stride, int64_t columns,
                       ls_fp8 format, bool one) {
  const stand_in_type type = format == LS_FP8_E4M3 ? STAND_IN_E4M3 : STAND_IN_E5M2;
  const bool odd = random_below(4) == 0;
  int power = 0;
  for (int64_t r = 0; r < rows; r++) {
    if (r == 0 || !one) power = odd && format == LS_FP8_E5M2 ? 0 : (int)random_below(40) - 20;
    for (int64_t c = 0; c < stride; c++) {
      float value = number_of_code((unsigned)random_below(256), type);
      if (!odd && !isfinite(value)) value = 1;
      numbers[r * stride + c] = ls_f32_to_bf16(c < columns ? ldexpf(value, power) : 0);
    }
  }
}

/* What codes and scales stand for is what they were made of, to the bit, and the largest of a scale
 * has no room for twice of it; zeros are behind. */
static void compare_codes(const ls_cuda_coding *coding) {
  const stand_in_type type = coding->format == LS_FP8_E4M3 ? STAND_IN_E4M3 : STAND_IN_E5M2;
  const float most = coding->format == LS_FP8_E4M3 ? 448 : 57344;
  const int64_t across = coding->turned ? coding->columns : coding->rows;
  const int64_t along = coding->turned ? coding->rows : coding->columns;
  float all = 0;
  for (int64_t r = 0; r < coding->stored; r++) {
    float largest = 0;
    for (int64_t c = 0; c < coding->stride; c++) {
      const uint8_t code = coding->codes[r * coding->stride + c];
      const bool exists = r < across && c < along;
      const int64_t row = coding->turned ? c : r, column = coding->turned ? r : c;
      const float from =
          exists ? ls_bf16_to_f32(
                       ((const uint16_t *)coding->from->data)[row * coding->from->dims[1] + column])
                 : 0;
      const float is = number_of_code(code, type), made = is * coding->scales[r];
      if (!exists ? code != 0 : isnan(from) ? !isnan(made) : made != from)
        fail_msg("%g has code %d with scale %g", from, code, coding->scales[r]);
      if (isfinite(is)) largest = fmaxf(largest, fabsf(is));
    }
    all = fmaxf(all, largest);
    const bool free = largest == 0 || coding->turned; /* of infinity, scales are 1 */
    if (!free && largest * 2 <= most && coding->scales[r] != 1)
      fail_msg("row %lld could have twice the scale", (long long)r);
  }
  if (coding->turned && all > 0 && all * 2 <= most && coding->scales[0] != 1)
    fail_msg("all could have twice the scale");
}

static void test_codes_of_8_bits(void **state) {
  (void)state;
  const ls_device_facts facts = cuda_facts();
  for (int n = 0; n < 24; n++) {
    const bool turned = n % 2, shifted = n % 5 == 0;
    const int64_t rows = turned ? any_size() : any_rows();
    const int64_t columns = random_below(4) ? any_size() : 2100;
    const operand o = matrix_of(rows, columns, 1, n % 3 ? (8 - columns % 8) % 8 : 0);
    char *numbers = bytes_of((size_t)stored_count(&o) * 2 + 2), *last = NULL;
    const ls_view view = view_of(&o, LS_BF16, numbers + (shifted ? 2 : 0));
    ls_cuda_coding coding = {.from = &view,
                             .format = n % 4 < 2 ? LS_FP8_E4M3 : LS_FP8_E5M2,
                             .turned = turned,
                             .rows = rows,
                             .columns = columns,
                             .stored = (turned ? columns : rows) + random_below(20),
                             .stride = ((turned ? rows : columns) + 15) / 16 * 16};
    make_coded(view.data, rows, o.dims[1], columns, coding.format, turned);
    const size_t bytes = (size_t)(coding.stored * coding.stride);
    coding.codes = (uint8_t *)bytes_of(bytes);
    coding.scales = (float *)(void *)bytes_of((size_t)coding.stored * sizeof(float));
    coding.parts = (float *)(void *)bytes_of((size_t)ls_cuda_coding_parts(&facts) * sizeof(float));
    for (int order = 0; order < CUDA_ORDERS; order++) {
      ls_cuda_launches launches;
      ls_error error = {0};
      memset(coding.codes, 0xee, bytes);
      assert_int_equal(ls_cuda_choose_coding(&facts, &coding, &launches, &error), LS_OK);
      const char *wrong = cuda_launch_all(&launches, order ? random_bits() | 1 : 0);
      if (wrong) fail_msg("%s", wrong);
      compare_codes(&coding);
      if (last && memcmp(last, coding.codes, bytes) != 0) fail_msg("another order, other codes");
      if (!last) memcpy(last = bytes_of(bytes), coding.codes, bytes);
    }
    free(last), free(numbers), free(coding.codes), free(coding.scales), free(coding.parts);
  }
}

/* Products are the library's. All other ops have kernels of their own. */
static void test_ops_without_kernels(void **state) {
  (void)state;
  static const ls_op_kind without[] = {LS_OP_LINEAR, LS_OP_LINEAR_DX, LS_OP_LINEAR_DW,
                                       LS_OP_LINEAR_BLOCKS, LS_OP_LINEAR_BLOCKS_DX};
  for (int k = 0; k < LS_OP_COUNT; k++) {
    bool expected = true;
    for (size_t w = 0; w < sizeof without / sizeof *without; w++)
      expected &= without[w] != (ls_op_kind)k;
    if (ls_cuda_serves((ls_op_kind)k) != expected)
      fail_msg("%s has %s", ls_op_name((ls_op_kind)k), expected ? "no kernel" : "a kernel");
  }
  ls_cuda_launches launches;
  ls_error error = {0};
  assert_int_equal(ls_cuda_choose(LS_OP_LINEAR, NULL, &launches, &error), LS_INTERNAL);
}

/* Types that no kernel takes, and a workspace that is smaller than the recipe's. */
static void test_what_is_refused(void **state) {
  (void)state;
  const ls_device_facts facts = cuda_facts();
  const ls_device_queue queue = {.facts = &facts};
  const ls_attributes attributes = {0};
  const operand matrix = matrix_of(5, 7, 0, 0), vector = vector_of(SUMS, 7);
  double memory[35] = {0};
  ls_kernel_args args = {.queue = &queue, .attributes = &attributes, .inputs = 2, .outputs = 1};
  args.in[0] = args.in[1] = args.out[0] = view_of(&matrix, LS_F64, memory);
  ls_cuda_launches launches;
  ls_error error = {0};
  assert_int_equal(ls_cuda_choose(LS_OP_ADD, &args, &launches, &error), LS_INTERNAL);
  args.in[0] = view_of(&matrix, LS_F32, memory);
  args.out[0] = view_of(&vector, LS_F32, memory);
  args.inputs = 1;
  assert_int_equal(ls_cuda_choose(LS_OP_BIAS_DB, &args, &launches, &error), LS_INTERNAL);
  assert_non_null(strstr(error.text, "workspace"));
}

/* Buffers of ranks, against sums in double: in rank order in fp32 (fp64 in itself), rounded once.
 */
static void sum_of_ranks(ls_dtype dtype, int ranks, int64_t count, bool largest, bool accumulate) {
  const ls_device_facts facts = cuda_facts();
  operand o = vector_of(SUMS, count);
  const size_t bytes = (size_t)count * ls_dtype_bytes(dtype);
  void *sources[LS_CUDA_MOST_RANKS];
  double *wanted = bytes_of((size_t)count * sizeof *wanted);
  for (int64_t i = 0; i < count; i++) wanted[i] = largest ? -INFINITY : 0;
  for (int r = 0; r <= ranks; r++) { /* the last is the target */
    sources[r] = bytes_of(bytes);
    for (int64_t i = 0; i < count; i++) {
      const float value = random_normal();
      ls_convert((char *)sources[r] + (size_t)i * ls_dtype_bytes(dtype), dtype, &value, LS_F32, 1);
    }
    const ls_view view = view_of(&o, dtype, sources[r]);
    for (int64_t i = 0; i < count && (r < ranks || accumulate); i++) {
      const double value = at(&view, i), sum = r == 0 ? value : wanted[i] + value;
      wanted[i] = largest ? fmax(wanted[i], value) : dtype == LS_F64 ? sum : (double)(float)sum;
    }
  }
  const ls_cuda_reduction reduction = {.target = sources[ranks],
                                       .sources = (const void *const *)sources,
                                       .ranks = ranks,
                                       .count = count,
                                       .dtype = dtype,
                                       .largest = largest,
                                       .accumulate = accumulate};
  ls_cuda_launches launches;
  ls_error error = {0};
  assert_int_equal(ls_cuda_choose_reduction(&facts, &reduction, &launches, &error), LS_OK);
  const char *wrong = cuda_launch_all(&launches, random_bits() | 1);
  if (wrong) fail_msg("%s", wrong);
  const ls_view got = view_of(&o, dtype, sources[ranks]);
  for (int64_t i = 0; i < count; i++) {
    double rounded = wanted[i];
    uint16_t half;
    if (dtype != LS_F64 && dtype != LS_F32) {
      ls_convert(&half, dtype, &wanted[i], LS_F64, 1);
      ls_convert(&rounded, LS_F64, &half, dtype, 1);
    }
    if (at(&got, i) != rounded)
      fail_msg("%s, %d ranks: element %lld is %g, not %g", ls_dtype_name(dtype), ranks,
               (long long)i, at(&got, i), rounded);
  }
  for (int r = 0; r <= ranks; r++) free(sources[r]);
  free(wanted);
}

static void test_sums_of_ranks(void **state) {
  (void)state;
  static const ls_dtype dtypes[] = {LS_F32, LS_BF16, LS_F16, LS_F64};
  for (int i = 0; i < 4; i++) {
    sum_of_ranks(dtypes[i], 1, 9, false, true);
    sum_of_ranks(dtypes[i], 3, 5003, false, false);
    sum_of_ranks(dtypes[i], 5, 17, true, false);
    sum_of_ranks(dtypes[i], LS_CUDA_MOST_RANKS - 1, 40, false, true);
  }
}

/* What is built in for the driver begins as fat binaries do, at a multiple of 16 bytes. */
static void test_modules(void **state) {
  (void)state;
  static const unsigned char magic[] = {0x50, 0xed, 0x55, 0xba};
  int count = 0;
  for (const ls_cuda_module *module = ls_cuda_modules; module->name; module++, count++) {
    assert_true(*module->bytes > 1000);
    assert_memory_equal(module->image, magic, sizeof magic);
    assert_int_equal((uintptr_t)module->image % 16, 0);
  }
  if (count == 0) print_message("this build has no CUDA kernels (cmake/cuda.cmake)\n");
}

int main(void) {
  random_state = test_seed(20261128);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_op),        cmocka_unit_test(test_wide_norms),
      cmocka_unit_test(test_held_norms),      cmocka_unit_test(test_cut_lines_and_long_texts),
      cmocka_unit_test(test_codes_of_8_bits), cmocka_unit_test(test_ops_without_kernels),
      cmocka_unit_test(test_what_is_refused), cmocka_unit_test(test_sums_of_ranks),
      cmocka_unit_test(test_modules)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
