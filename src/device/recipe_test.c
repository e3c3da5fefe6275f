/* The CPU never needs more workspace than its recipe says: 200 random shapes of every op that it
 * has a kernel for, in fp32 and bf16, by one to three threads. A kernel that does not find its
 * scratch in the workspace takes it from elsewhere, which is counted. Recipes of devices that are
 * not here are data: of those the test asks what the documents they are from say.
 *
 *   recipe_test [SEED]
 */
#include <inttypes.h>
#include <stdio.h>

#include "device/device.h"
#include "support/cpu_makers.h"
#include "support/placed_ops.h"
#include "support/test_seed.h"
#include "support/thinned.h"

enum { SHAPES = LS_TEST_THINNED ? 50 : 200 };

/* Products as large as models have them: by our kernel, by oneDNN whole and in parts, and copied.
 */
static void make_large_linear(op_case *c) {
  static const int64_t sizes[] = {1, 7, 9, 64, 200, 512, 1000, 2049, 5000};
  make_linear(c);
  int64_t n, m, k;
  do {
    n = pick(sizes, 9), m = pick(sizes, 9), k = pick(sizes, 9);
  } while (n * m * k > INT64_C(1) << 26);
  const operand nk = matrix_of(n, k, 1, 0), nm = matrix_of(n, m, 0, 3), mk = matrix_of(m, k, 1, 0);
  const operand_kind sums = c->out[0].kind;
  c->in[0] = c->kind == LS_OP_LINEAR ? nk : nm;
  c->in[1] = c->kind == LS_OP_LINEAR_DW ? nk : mk;
  c->out[0] = c->kind == LS_OP_LINEAR ? nm : (c->kind == LS_OP_LINEAR_DX ? nk : mk);
  c->out[0].kind = sums;
}

/* A rank's queries and a block of keys from `turn` ranks on. */
static void make_ring(op_case *c) {
  static const int64_t head_dims[] = {3, 16, 64, 72, 128};
  static const int64_t shares[] = {2, 6, 34, 64, 130};
  static const ls_op_kind kinds[] = {LS_OP_RING_ATTENTION, LS_OP_RING_END, LS_OP_RING_BWD,
                                     LS_OP_RING_END_BWD};
  const int64_t share = pick(shares, 5), turns = 2 + random_below(3), rank = random_below(turns);
  attention_operands(c, LS_OP_ATTENTION, share, 1 + random_below(2), pick(head_dims, 5),
                     1 + random_below(2), 1 + random_below(3));
  c->kind = kinds[random_below(4)];
  c->no_add = c->kind != LS_OP_RING_BWD;
  c->attributes.sequence = share * turns;
  c->attributes.turns = turns;
  c->attributes.turn = random_below(turns);
  operand q = c->in[0], kv = c->in[1], values = q, sums = c->out[1];
  const int64_t rows = q.valid[0];
  q.start[0] = rank * rows;
  kv.start[0] = (rank + c->attributes.turn) % turns * rows;
  values.kind = SUMS;
  const operand positions = vector_of(INDEX, rows), places = vector_of(INDEX, turns * rows);
  switch (c->kind) {
    case LS_OP_RING_ATTENTION:
      c->inputs = random_below(2) ? 8 : 5, c->outputs = 3;
      c->in[0] = q, c->in[1] = c->in[2] = kv, c->in[3] = positions, c->in[4] = places;
      c->in[5] = c->out[0] = values, c->in[6] = c->in[7] = c->out[1] = c->out[2] = sums;
      break;
    case LS_OP_RING_END:
      c->inputs = 3, c->outputs = 1;
      c->in[0] = values, c->in[1] = c->in[2] = sums, c->out[0] = q;
      break;
    case LS_OP_RING_BWD:
      c->inputs = 8, c->outputs = 3;
      c->in[0] = c->in[1] = c->out[0] = q, c->in[2] = c->in[3] = c->out[1] = c->out[2] = kv;
      c->in[4] = c->in[5] = sums, c->in[6] = positions, c->in[7] = places;
      break;
    default:
      c->inputs = 4, c->outputs = 2;
      c->in[0] = c->in[1] = q, c->in[2] = c->in[3] = sums;
      c->out[0] = c->out[1] = sums;
  }
}

/* A rank has a chunk from the front of each sequence and one from the back. */
static void ring_prepare(const op_case *c, const ls_kernel_args *args) {
  const int positions = c->kind == LS_OP_RING_ATTENTION ? 3 : 6;
  const int64_t rows = c->in[0].valid[0], sequence = c->attributes.sequence;
  const int64_t share = sequence / c->attributes.turns, chunk = share / 2;
  int32_t *places = args->in[positions + 1].data, *own = args->in[positions].data;
  for (int64_t row = 0; row < rows * c->attributes.turns; row++) {
    const int64_t rank = row / rows, first = row % rows / share * sequence, at = row % share;
    places[row] =
        (int32_t)(first + (at < chunk ? rank * chunk + at : sequence - (rank + 2) * chunk + at));
  }
  for (int64_t row = 0; row < rows; row++)
    own[row] = (int32_t)(places[c->in[0].start[0] + row] % sequence);
}

static const case_maker makers[] = {
    make_linear,         make_large_linear,  make_linear_blocks, make_elementwise,
    make_norm,           make_headnorm,      make_row,           make_embedding,
    make_bias_db,        make_rope,          make_cross_entropy, make_several,
    make_optimizer,      make_move,          make_attention,     make_cached_attention,
    make_sink_attention, make_grouped,       make_route,         make_routed,
    make_ring,           make_heads_product, make_rope_columns,  make_heads,
    make_router,         make_loads,         make_distillation,  make_schedulefree,
    make_sink_bwd,       make_paired,        make_grouped_bias,  make_fp8,
    make_texts};

enum { MAKERS = sizeof makers / sizeof *makers };

static ls_view zeros_of(const operand *o, ls_dtype compute) {
  const ls_dtype dtype = dtype_of(o, compute);
  void *data = calloc((size_t)stored_count(o) + 1, ls_dtype_bytes(dtype));
  assert_non_null(data);
  return view_of(o, dtype, data);
}

static void describe_shape(const op_case *c, const variant *v, int64_t misses, size_t bytes) {
  describe(c, v, 0);
  fail_msg("%" PRId64 " times scratch was not in the %zu bytes of its recipe", misses, bytes);
}

static void run_shape(const op_case *c, const variant *v) {
  ls_kernel_table table;
  ls_error error = {0};
  assert_int_equal(ls_cpu_kernels(&table, v->dtype, &error), LS_OK);
  const ls_device_facts facts = facts_with(v->threads, v->exact);
  const ls_device_queue queue = {.facts = &facts};
  ls_kernel_args args = {
      .queue = &queue, .attributes = &c->attributes, .inputs = c->inputs, .outputs = c->outputs};
  for (int i = 0; i < c->inputs; i++) args.in[i] = zeros_of(&c->in[i], v->dtype);
  for (int o = 0; o < c->outputs; o++) args.out[o] = zeros_of(&c->out[o], v->dtype);
  for (int o = 0; o < c->outputs; o++) args.accumulate[o] = v->accumulate && !c->no_add;
  if (c->kind == LS_OP_CACHED_ATTENTION) cached_prepare(c, &args, &args);
  if (c->kind == LS_OP_RING_ATTENTION || c->kind == LS_OP_RING_BWD) ring_prepare(c, &args);
  args.workspace_bytes = recipe_of(c, &args);
  args.workspace = bytes_of(args.workspace_bytes);
  const size_t wanted = table.wants ? table.wants(c->kind, &args) : 0;
  const int64_t before = ls_cpu_scratch_misses();
  if (table.kernel[c->kind](&args, &error) != LS_OK) fail_msg("%s", error.text);
  const int64_t misses = ls_cpu_scratch_misses() - before;
  if (misses || wanted > args.workspace_bytes) describe_shape(c, v, misses, args.workspace_bytes);
  free(args.workspace);
  args_free(&args, false);
}

/* Weights of blocks need no workspace, and have a test of their own: cpu_blocks_test.c; so have
 * updates that know where their elements lie: updates_test.c. */
static bool is_counted(int kind, const ls_kernel_table *table, const ls_kernel_table *reference) {
  return table->kernel[kind] != reference->kernel[kind] && kind != LS_OP_DEQUANTIZE &&
         !ls_test_is_placed((ls_op_kind)kind);
}

static bool all_have(const int *shapes, const ls_kernel_table *table,
                     const ls_kernel_table *reference) {
  for (int k = 0; k < LS_OP_COUNT; k++)
    if (is_counted(k, table, reference) && shapes[k] < SHAPES) return false;
  return true;
}

static void test_the_cpu_keeps_to_its_recipe(void **state) {
  (void)state;
  ls_kernel_table table, reference;
  ls_error error = {0};
  int shapes[LS_OP_COUNT] = {0};
  assert_int_equal(ls_cpu_kernels(&table, LS_F32, &error), LS_OK);
  ls_reference_kernels(&reference, LS_F32);
  for (int round = 0; !all_have(shapes, &table, &reference); round++) {
    for (int k = 0; k < LS_OP_COUNT && round == 20 * SHAPES * MAKERS; k++)
      if (is_counted(k, &table, &reference) && shapes[k] < SHAPES)
        fail_msg("%d shapes of %s: no maker makes more", shapes[k], ls_op_name((ls_op_kind)k));
    op_case c = {0};
    makers[round % MAKERS](&c);
    if (shapes[c.kind] == SHAPES) continue;
    shapes[c.kind]++;
    for (int i = 0; i < 2; i++)
      run_shape(&c, &(variant){.dtype = i ? LS_BF16 : LS_F32,
                               .threads = 1 + (int)random_below(MOST_THREADS + 1),
                               .accumulate = random_below(2),
                               .exact = random_below(4) == 0});
  }
}

/* A smaller set's recipe holds more where it has to copy, and none asks this machine. */
static void test_sets_are_data(void **state) {
  (void)state;
  static const char *const sets[] = {"plain", "avx2", "avx512", "avx512_bf16", "avx512_amx"};
  const ls_attributes attributes = {0};
  ls_kernel_args args = {.attributes = &attributes, .inputs = 2, .outputs = 1};
  const operand matrix = matrix_of(1000, 1000, 0, 0);
  args.in[0] = args.in[1] = args.out[0] = view_of(&matrix, LS_BF16, NULL);
  for (int s = 0; s < 5; s++) {
    assert_non_null(ls_device_facts_cpu(sets[s]));
    ls_device_facts facts = *ls_device_facts_cpu(sets[s]);
    facts.threads = 2;
    const size_t bytes = ls_device_workspace(&facts, LS_OP_LINEAR, &args);
    const bool native = ls_device_multiplies(&facts, LS_BF16);
    assert_int_equal(native, s >= 3);
    assert_true(native ? bytes <= (8 << 20) + 64 : bytes > 8 << 20);
  }
  assert_null(ls_device_facts_cpu("sse"));
}

/* What cuDNN's planner says of 4 sequences of 4,096 tokens, 32 heads of 128 that share 8 heads of
 * keys (256 MiB, and on all but Hopper 256 MiB more), beside the fp32 sums of dQ (256 MiB) and a
 * number for each row of a head. */
static void test_cuda_recipes(void **state) {
  (void)state;
  static const struct {
    const char *id;
    size_t product;
    ls_fp8_products fp8;
  } devices[] = {{"a100-sxm-80", 4, LS_FP8_EMULATED},
                 {"l40s", 4, LS_FP8_BY_PASS},
                 {"h100-sxm-80", 32, LS_FP8_IN_PRODUCT},
                 {"b200-sxm-180", 32, LS_FP8_BY_PASS},
                 {"rtx5090", 32, LS_FP8_BY_PASS}};
  const ls_attributes rounded = {.fp8 = LS_FP8_E4M3};
  const ls_attributes attributes = {.head_dim = 128, .sequence = 4096};
  const operand q = matrix_of(16384, 4096, 0, 0), kv = matrix_of(16384, 1024, 0, 0);
  ls_kernel_args args = {.attributes = &attributes, .inputs = 6, .outputs = 3};
  for (int i = 0; i < 6; i++) args.in[i] = view_of(i == 2 || i == 3 ? &kv : &q, LS_BF16, NULL);
  for (int o = 0; o < 3; o++) args.out[o] = view_of(o ? &kv : &q, LS_BF16, NULL);
  ls_arena *arena = ls_arena_create();
  ls_catalog *catalog;
  assert_int_equal(ls_catalog_read(arena, NULL, &catalog, NULL), LS_OK);
  for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
    ls_device_facts facts = {0};
    const ls_accelerator *found;
    assert_int_equal(ls_catalog_find(catalog, devices[d].id, &found, NULL), LS_OK);
    assert_true(ls_device_facts_of(found, &facts));
    assert_true(ls_device_multiplies(&facts, LS_BF16));
    assert_int_equal(ls_device_workspace(&facts, LS_OP_LINEAR, &args), devices[d].product << 20);
    assert_int_equal(facts.fp8, devices[d].fp8);
    ls_kernel_args codes = args; /* a byte for each number, and a scale for each row */
    codes.attributes = &rounded;
    codes.inputs = 2;
    const size_t bytes = ls_device_workspace(&facts, LS_OP_LINEAR, &codes);
    const size_t of_codes = (16384 + 4096) * (4096 + sizeof(float));
    assert_int_equal(bytes, (devices[d].product << 20) + (facts.fp8 ? of_codes : 0));
    const size_t backward = ls_device_workspace(&facts, LS_OP_ATTENTION_BWD, &args);
    const size_t planned =
        ((size_t)(facts.architecture == 90 ? 512 : 768) << 20) + (size_t)16384 * 32 * sizeof(float);
    assert_true(backward >= planned && backward <= planned + (1 << 16));
  }
  ls_device_facts none;
  for (int row = 0; row < catalog->accelerators.count; row++)
    assert_int_equal(ls_device_facts_of(catalog->accelerators.items[row], &none),
                     catalog->accelerators.items[row]->architecture >= 80);
  ls_arena_destroy(&arena);
}

int main(void) {
  random_state = test_seed(20261128);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_cpu_keeps_to_its_recipe),
                                     cmocka_unit_test(test_sets_are_data),
                                     cmocka_unit_test(test_cuda_recipes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
