/* Products in fp8: under every strategy the training equals that of one device, in fp64 with the
 * same roundings; these are there and are not too much; programs are proved, and damaged ones are
 * not.
 *
 * A rounding goes another way where its operand is within 1e-15 of the middle between two numbers:
 * once in some 1e12 numbers. So one layout is one device to 1e-10, or it rounds something else. */
#include <math.h>
#include <string.h>

#include "support/layouts.h"
#include "support/mutate.h"
#include "support/program_faults.h"

static const ls_test_shape qwen2 = {
    "qwen2",
    "{\"model_type\": \"qwen2\", \"vocab_size\": 43, \"hidden_size\": 24,"
    " \"intermediate_size\": 36, \"num_hidden_layers\": 2, \"num_attention_heads\": 12,"
    " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5,"
    " \"tie_word_embeddings\": true}"};

static ls_model_config rounded(ls_arena *arena, const ls_test_shape *shape) {
  ls_model_config config = ls_test_shape_config(arena, shape);
  ls_error error = {0};
  if (ls_model_set_fp8(&config, &error) != LS_OK) fail_msg("%s", error.text);
  return config;
}

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = 12,
                         .sequence = LS_TEST_SEQUENCE,
                         .learning_rate = 1e-2,
                         .seed = 8,
                         .deadline_s = 60};
}

static const ls_layout rows[] = {
    {.dp_replicate = 3},
    {.dp_shard = 2, .zero = 1, .microbatches = 2},
    {.dp_shard = 3, .zero = 2, .microbatches = 2},
    {.dp_shard = 4, .zero = 3, .prefetch = 1},
    {.dp_replicate = 2, .dp_shard = 2, .zero = 3, .microbatches = 3},
    {.microbatches = 4, .recompute = {{[LS_OP_ROW_FP8] = true}}, .recompute_layers = 1},
    {.tp = 2},
    {.tp = 2, .microbatches = 2, SP},
    {.tp = 3, SP},
    {.tp = 4, EVERY},
    {.tp = 6, SP},
    {.dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 2, SP, .prefetch = 1},
    {.dp_shard = 2, .tp = 3, .zero = 3, EVERY},
    {.dp_shard = 2, .tp = 4, .zero = 1, SP, EVERY},
    {.cp = 2, .zero = 3},
    {.cp = 2, .context = LS_CONTEXT_RING},
    {.cp = 2, .context = LS_CONTEXT_ULYSSES, .microbatches = 2},
    {.dp_shard = 2, .cp = 2, .tp = 2, .zero = 3, SP},
    {PIPE(2, "1f1b"), .microbatches = 4},
    {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, .microbatches = 3, EVERY},
    {PIPE(2, "zbh1"), .tp = 2, .microbatches = 4, SP},
    {PIPE(2, "zbh2"), .dp_shard = 2, .zero = 1, .microbatches = 2},
    {PIPE(2, "zbv"), .tp = 2, .microbatches = 4, EVERY},
    {.dp_shard = 2,
     .zero = 3,
     EVERY,
     .offload = {.optimizer = LS_TIER_HOST,
                 .parameters = LS_TIER_HOST,
                 .activations = LS_TIER_HOST}},
    {.microbatches = 2, .offload = {.activations = LS_TIER_HOST}},
    /* Weights that are gathered as codes. */
    {.dp_shard = 2, .zero = 3, .microbatches = 2, .offload = {.activations = LS_TIER_HOST}},
    {.dp_shard = 3, .zero = 3, .offload = {.optimizer = LS_TIER_HOST}},
    {.dp_shard = 2, .zero = 3, .microbatches = 2, .gather = LS_WHEN_STEP},
    {.dp_shard = 2, .zero = 3, .layers_per_unit = 2, .prefetch = 1},
    {PIPE(2, "zbh1"), .dp_shard = 2, .zero = 3, .microbatches = 3, .post_validation = true},
    {PIPE(2, "zbh1"), .dp_shard = 2, .zero = 2, .microbatches = 3, .post_validation = true},
    {.dp_shard = 2, .cp = 2, .tp = 2, .zero = 2, .microbatches = 2, SP, .prefetch = 1},
    {.dp_shard = 3, .zero = 2, .offload = {.optimizer = LS_TIER_HOST}},
};
enum { ROWS = sizeof rows / sizeof *rows, RUN = 114, REFUSED = 18 };

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int shape = 0; shape <= LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_test_shape *of = shape < LS_TEST_SHAPES ? &ls_test_shapes[shape] : &qwen2;
    const ls_model_config config = rounded(arena, of);
    const ls_experiment experiment = experiment_of(&config);
    ls_test_equal_layouts(&tally, &experiment, rows, ROWS, of->name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUN, REFUSED);
}

/* Bytes that gathers of parameters move in a step, by how wide their elements are: of each [0] a
 * byte, [1] more. */
static void count_gathered(const ls_program *program, int64_t elements[2]) {
  elements[0] = elements[1] = 0;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_action *action = &program->actions.items[a].action;
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    if (action->kind != LS_ACTION_BEGIN || action->transfer != LS_TRANSFER_GATHER) continue;
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      const ls_dtype dtype = program->values.items[each->in[0]].dtype;
      elements[ls_dtype_bytes(dtype) > 1] += each->count;
    }
  }
}

/* Beside a frozen base adapters are trained, whose own products are not rounded. */
static void adapters_are_trained_beside(void **state) {
  (void)state;
  static const ls_layout layouts[] = {
      {.tp = 2, SP}, {.dp_shard = 2, .zero = 3, EVERY}, {.dp_shard = 2, .zero = 1}};
  enum { ALL = sizeof layouts / sizeof *layouts, NONE = 0 };
  ls_arena *arena = ls_arena_create();
  ls_model_config config = rounded(arena, &ls_test_shapes[1]);
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_targets = (1 << LS_MODEL_LINEARS) - 1;
  const ls_experiment experiment = experiment_of(&config);
  ls_test_tally tally = {0};
  ls_test_equal_layouts(&tally, &experiment, layouts, ALL, "adapters");
  LS_TEST_EXPECT(&tally, ALL, NONE);
  /* Frozen weights that are stored whole are not gathered. */
  int64_t elements[2];
  const ls_layout whole = ls_test_layout_of(&layouts[ALL - 1]);
  count_gathered(ls_test_compile(arena, &experiment, &whole).stages[0], elements);
  assert_int_equal(elements[0] + elements[1], 0);
  ls_arena_destroy(&arena);
}

/* Losses and gradients are others than without rounding, and near to them. */
static void rounding_is_seen_and_small(void **state) {
  (void)state;
  for (int shape = 0; shape < LS_TEST_SHAPES; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config configs[] = {ls_test_shape_config(arena, &ls_test_shapes[shape]),
                                       rounded(arena, &ls_test_shapes[shape])};
    ls_trajectory made[2];
    for (int c = 0; c < 2; c++) {
      const ls_experiment experiment = experiment_of(&configs[c]);
      ls_test_one_device(arena, &experiment, configs[c].family, &made[c]);
    }
    const double loss = fabs(made[1].loss[0] / made[0].loss[0] - 1);
    const double norm = fabs(made[1].norm[0] / made[0].norm[0] - 1);
    print_message("%s: loss %.2g, norm %.2g\n", ls_test_shapes[shape].name, loss, norm);
    assert_true(loss > 1e-7 && loss < 1e-2 && norm > 1e-6 && norm < 0.05);
    ls_arena_destroy(&arena);
  }
}

/* Number `which` of those whose first operand is a gradient, or of the others. */
static ls_instruction *find_rounding(ls_program *program, ls_fp8 format, int which) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (ls_test_is_op(each, LS_OP_ROW_FP8) && each->attributes.fp8 == format && which-- == 0)
      return each;
  }
  return NULL;
}

static bool another_format(ls_program *program) {
  ls_instruction *rounding = find_rounding(program, LS_FP8_E4M3, 0);
  if (rounding) rounding->attributes.fp8 = LS_FP8_E5M2;
  return rounding;
}

static bool another_format_of_a_gradient(ls_program *program) {
  ls_instruction *rounding = find_rounding(program, LS_FP8_E5M2, 0);
  if (rounding) rounding->attributes.fp8 = LS_FP8_E4M3;
  return rounding;
}

static bool another_format_of_a_weight(ls_program *program) {
  ls_instruction *rounding = ls_test_find(program, LS_OP_FP8, 1);
  if (rounding) rounding->attributes.fp8 = LS_FP8_E5M2;
  return rounding;
}

static bool another_weights_scale(ls_program *program) {
  ls_instruction *one = ls_test_find(program, LS_OP_FP8, 3);
  const ls_instruction *other = ls_test_find(program, LS_OP_FP8, 0);
  if (one && other) one->in[1] = other->in[1];
  return one && other;
}

/* The up's gradient is rounded by what is largest in the gate's. */
static bool a_gradient_by_anothers_scale(ls_program *program) {
  const ls_instruction *up = find_rounding(program, LS_FP8_E5M2, 1);
  const ls_instruction *gate = find_rounding(program, LS_FP8_E5M2, 2);
  for (int i = 0; gate && up && i < program->instructions.count; i++) {
    ls_instruction *amax = &program->instructions.items[i];
    if (!ls_test_is_op(amax, LS_OP_ROW_AMAX) || amax->out[0] != up->in[1]) continue;
    amax->in[0] = gate->in[0];
    return true;
  }
  return false;
}

static bool a_gradient_that_is_not_rounded(ls_program *program) {
  ls_instruction *product = ls_test_find(program, LS_OP_LINEAR_DW, 1);
  const ls_instruction *rounding = find_rounding(program, LS_FP8_E5M2, 0);
  if (product && rounding) product->in[0] = rounding->in[0];
  return product && rounding;
}

static bool a_norm_of_a_rounded_gradient(ls_program *program) {
  ls_instruction *back = ls_test_find(program, LS_OP_SWIGLU_BWD, 0);
  const ls_instruction *rounding = find_rounding(program, LS_FP8_E5M2, 0);
  if (back && rounding) back->in[0] = rounding->out[0];
  return back && rounding;
}

static bool rows_that_are_not_rounded(ls_program *program) {
  ls_instruction *product = ls_test_find(program, LS_OP_LINEAR, 0);
  const ls_instruction *rounding = find_rounding(program, LS_FP8_E4M3, 0);
  if (product && rounding) product->in[0] = rounding->in[0];
  return product && rounding;
}

static bool a_weight_that_is_not_rounded(ls_program *program) {
  ls_instruction *product = ls_test_find(program, LS_OP_LINEAR, 0);
  const ls_instruction *rounding = ls_test_find(program, LS_OP_FP8, 0);
  if (product && rounding) product->in[1] = rounding->in[0];
  return product && rounding;
}

/* What a weight's gradient is made of is kept by microbatch: that of the first for all. */
static bool rows_of_another_microbatch(ls_program *program) {
  const ls_instruction *product = ls_test_find(program, LS_OP_LINEAR_DW, 2);
  if (!product) return false;
  const int storage = program->values.items[product->in[1]].storage;
  const int group = program->storages.items[storage].buffer_group;
  const int at = (int)(product - program->instructions.items);
  const ls_program_action *first = NULL;
  bool any = false;
  for (int a = 0; a < program->actions.count; a++) {
    ls_program_action *action = &program->actions.items[a];
    const ls_body *body = &program->bodies.items[action->body];
    if (at < body->first || at >= body->first + body->count) continue;
    if (!first) first = action;
    for (int g = 0; g < body->buffer_groups.count; g++) {
      if (body->buffer_groups.items[g] != group || action == first) continue;
      action->live_intervals[g] = first->live_intervals[g];
      any = true;
    }
  }
  return any;
}

static const ls_test_fault faults[] = {
    {"another format", another_format, "fp8 2: expected 1", true},
    {"another format of a gradient", another_format_of_a_gradient, "expected E5M2", true},
    {"another format of a weight", another_format_of_a_weight, "fp8 2: expected 1", true},
    {"another weight's scale", another_weights_scale, NULL, false},
    {"a gradient by another's scale", a_gradient_by_anothers_scale,
     "what are not its largest magnitudes", false},
    {"a gradient that is not rounded", a_gradient_that_is_not_rounded, "expected one", false},
    {"a rounded gradient where none is read", a_norm_of_a_rounded_gradient, NULL, false},
    {"rows that are not rounded", rows_that_are_not_rounded, NULL, false},
    {"a weight that is not rounded", a_weight_that_is_not_rounded, "expected the model's", true},
};

static void damaged_programs_are_refuted(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = rounded(arena, &ls_test_shapes[1]);
  const ls_experiment experiment = experiment_of(&config);
  const ls_layout layout = ls_test_layout_of(&(ls_layout){.microbatches = 2});
  ls_test_refute(&experiment, &layout, faults, sizeof faults / sizeof *faults);
  ls_arena_destroy(&arena);
}

static void rows_of_another_microbatch_are_refuted(void **state) {
  (void)state;
  static const ls_test_fault fault = {"rows of another microbatch", rows_of_another_microbatch,
                                      "microbatch", true};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = rounded(arena, &ls_test_shapes[1]);
  const ls_experiment experiment = experiment_of(&config);
  const ls_layout layout = ls_test_layout_of(&(ls_layout){PIPE(2, "1f1b"), .microbatches = 3});
  ls_test_refute(&experiment, &layout, &fault, 1);
  ls_arena_destroy(&arena);
}

/* What a scale that is too small or too large does is in numbers near zero alone, so these train
 * to nearly the same.
 *
 * All-reductions of largest magnitudes: of operands whose columns are cut, and of weights. */
static int find_maximum(const ls_program *program, int which) {
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    const bool largest = each->collective == LS_ALL_REDUCE && each->reduce == LS_MAX;
    if (largest && strstr(program->values.items[each->in[0]].name, "amax") && which-- == 0)
      return i;
  }
  return -1;
}

/* Readers take a rank's own maximum. */
static bool without_maximum(ls_program *program, int which) {
  const int at = find_maximum(program, which);
  if (at < 0) return false;
  const int own = program->instructions.items[at].in[0],
            all = program->instructions.items[at].out[0];
  for (int i = 0; i < program->instructions.count; i++)
    for (int o = 0; o < program->instructions.items[i].inputs; o++)
      if (program->instructions.items[i].in[o] == all) program->instructions.items[i].in[o] = own;
  ls_drop_instruction(program, at, (char[160]){0});
  return true;
}

static bool weight_without_maximum(ls_program *program) {
  return without_maximum(program, 0);
}

static bool rows_without_maximum(ls_program *program) {
  for (int which = 0; find_maximum(program, which) >= 0; which++) {
    const int at = find_maximum(program, which);
    const ls_value *value = &program->values.items[program->instructions.items[at].in[0]];
    if (value->global[0] > 1) return without_maximum(program, which);
  }
  return false;
}

static bool sum_in_place_of_maximum(ls_program *program) {
  const int at = find_maximum(program, 0);
  if (at >= 0) program->instructions.items[at].reduce = LS_SUM;
  return at >= 0;
}

static const ls_test_fault of_tensor_axes[] = {
    {"a weight's own maximum", weight_without_maximum, "partial", false},
    {"rows' own maximum", rows_without_maximum, "partial", false},
    {"a sum of maxima", sum_in_place_of_maximum, "partial sum", false},
};

static void a_maximum_of_each_rank_is_refuted(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = rounded(arena, &ls_test_shapes[1]);
  const ls_experiment experiment = experiment_of(&config);
  const ls_layout layout = ls_test_layout_of(&(ls_layout){.tp = 2});
  ls_test_refute(&experiment, &layout, of_tensor_axes,
                 sizeof of_tensor_axes / sizeof *of_tensor_axes);
  ls_arena_destroy(&arena);
}

/* A weight that is gathered as codes: each rank makes these of its shard, by the largest magnitude
 * of all shards. */
static bool a_shards_own_maximum(ls_program *program) {
  const int at = find_maximum(program, 0);
  if (at >= 0) ls_drop_instruction(program, at, (char[160]){0});
  return at >= 0;
}

static bool codes_by_another_weights_scale(ls_program *program) {
  ls_instruction *codes = ls_test_find(program, LS_OP_FP8_CODES, 1);
  if (codes) codes->in[1] = ls_test_need(program, LS_OP_FP8_CODES, 0)->in[1];
  return codes;
}

static bool codes_of_another_weight(ls_program *program) {
  ls_instruction *codes = ls_test_find(program, LS_OP_FP8_CODES, 1);
  if (codes) codes->in[0] = ls_test_need(program, LS_OP_FP8_CODES, 0)->in[0];
  return codes;
}

static bool codes_in_anothers_place(ls_program *program) {
  ls_instruction *codes = ls_test_find(program, LS_OP_FP8_CODES, 1);
  if (codes) codes->out[0] = ls_test_need(program, LS_OP_FP8_CODES, 0)->out[0];
  return codes;
}

static bool codes_of_another_format(ls_program *program) {
  ls_instruction *codes = ls_test_find(program, LS_OP_FP8_CODES, 0);
  if (codes) codes->attributes.fp8 = LS_FP8_E5M2;
  return codes;
}

static bool decoded_by_another_scale(ls_program *program) {
  ls_instruction *decode = ls_test_find(program, LS_OP_FP8_DECODE, 1);
  if (decode) decode->in[1] = ls_test_need(program, LS_OP_FP8_DECODE, 0)->in[1];
  return decode;
}

static bool a_product_of_codes(ls_program *program) {
  ls_instruction *product = ls_test_find(program, LS_OP_LINEAR, 0);
  if (product) product->in[1] = ls_test_need(program, LS_OP_FP8_DECODE, 0)->in[0];
  return product;
}

static bool the_largest_of_another_weight(ls_program *program) {
  ls_instruction *largest = ls_test_find(program, LS_OP_RANGE_AMAX, 1);
  if (largest) largest->in[0] = ls_test_need(program, LS_OP_RANGE_AMAX, 0)->in[0];
  return largest;
}

static const ls_test_fault of_codes[] = {
    {"a shard's own maximum", a_shards_own_maximum, "partial over dp_shard", false},
    {"a sum of maxima", sum_in_place_of_maximum, "partial sum", false},
    {"codes by another weight's scale", codes_by_another_weights_scale, "expected the model's",
     false},
    {"codes of another weight", codes_of_another_weight, "expected the model's", false},
    {"codes in another's place", codes_in_anothers_place, "expected the same of both", false},
    {"codes of another format", codes_of_another_format, "expected the model's", false},
    {"decoded by another scale", decoded_by_another_scale, "expected its own", false},
    {"a product of codes", a_product_of_codes, "as a value", false},
    {"the largest of another weight", the_largest_of_another_weight, NULL, false},
};

static void damaged_codes_are_refuted(void **state) {
  (void)state;
  static const ls_layout layouts[] = {{.dp_shard = 2, .zero = 3, .microbatches = 2},
                                      {.dp_shard = 2, .tp = 2, .zero = 3, SP, EVERY},
                                      {.dp_shard = 2, .zero = 2, .microbatches = 2}};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = rounded(arena, &ls_test_shapes[1]);
  const ls_experiment experiment = experiment_of(&config);
  for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
    const ls_layout layout = ls_test_layout_of(&layouts[l]);
    ls_test_refute(&experiment, &layout, of_codes, sizeof of_codes / sizeof *of_codes);
  }
  ls_arena_destroy(&arena);
}

/* Of a layer all but norms and biases go over the wires in a byte each, and lie so when they have
 * come. */
static void weights_are_gathered_in_a_byte(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_test_shape *shape = &ls_test_shapes[1];
  const ls_model_config configs[] = {ls_test_shape_config(arena, shape), rounded(arena, shape)};
  static const ls_layout rows_of[] = {{.dp_shard = 3, .zero = 3, .microbatches = 2},
                                      {.dp_shard = 3, .zero = 1, .microbatches = 2},
                                      {.dp_shard = 3, .zero = 2, .microbatches = 2}};
  int64_t elements[2][2];
  for (int c = 0; c < 2; c++) {
    const ls_experiment experiment = experiment_of(&configs[c]);
    ls_layout layout = ls_test_layout_of(&rows_of[0]);
    layout.compute = LS_BF16;
    count_gathered(ls_test_compile(arena, &experiment, &layout).stages[0], elements[c]);
  }
  int64_t weights = 0;
  const ls_experiment experiment = experiment_of(&configs[1]);
  const ls_layout layout = ls_test_layout_of(&rows_of[0]);
  const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
  const ls_program *program = step.stages[0];
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *about = &program->parameters[p];
    if (program->values.items[about->part[LS_PART_USED]].dtype != LS_U8) continue;
    weights += about->dims[0] * about->dims[1];
    assert_true(about->ndim == 2 && strstr(about->name, "layers."));
  }
  print_message("%lld weights; elements gathered: %lld, and %lld + %lld in a byte\n",
                (long long)weights, (long long)elements[0][1], (long long)elements[1][1],
                (long long)elements[1][0]);
  /* Each is gathered four times, for the passes of two microbatches; shards are padded. */
  assert_int_equal(elements[0][0], 0);
  assert_true(weights > 0 && elements[1][0] >= 4 * weights && elements[1][0] < 5 * weights);
  assert_true(elements[1][1] <= elements[0][1] - 4 * weights + weights / 2);
  /* Where others are stored whole, each once, in place of what the update would publish. */
  for (int l = 1; l < 3; l++) {
    const ls_layout whole = ls_test_layout_of(&rows_of[l]);
    count_gathered(ls_test_compile(arena, &experiment, &whole).stages[0], elements[l - 1]);
    assert_true(elements[l - 1][0] >= weights && elements[l - 1][0] < weights + weights / 4);
    assert_int_equal(elements[l - 1][1], 0);
  }
  ls_arena_destroy(&arena);
}

typedef struct mutant {
  int kind;
  uint64_t seed;
  char what[160];
} mutant;

static bool mutate(ls_program *program, void *context) {
  mutant *of = context;
  return ls_mutate(program, of->kind, of->seed, of->what);
}

/* Damage by chance, as mutants_test.c has it: rejected, or the same training. */
static void damage_by_chance_is_refuted_or_harmless(void **state) {
  (void)state;
  enum { MUTANTS = 240, LEAST = 150 };
  static const ls_layout layouts[] = {{.tp = 2, .microbatches = 2, SP},
                                      {.dp_shard = 2, .tp = 2, .zero = 3, EVERY}};
  int rejected = 0, harmless = 0;
  for (int i = 0; i < MUTANTS; i++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = rounded(arena, &ls_test_shapes[1]);
    ls_experiment experiment = experiment_of(&config);
    const ls_layout layout = ls_test_layout_of(&layouts[i / 2 % 2]);
    mutant of = {.kind = i % ls_mutation_count, .seed = (uint64_t)i};
    const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
    ls_error error = {0};
    const bool any = mutate(step.stages[0], &of);
    const bool proved = any && ls_test_check(&step, &error) == LS_OK;
    rejected += any && !proved;
    if (proved) {
      ls_trajectory reference, found;
      ls_test_one_device(arena, &experiment, "mutant", &reference);
      experiment.alter = mutate;
      experiment.alter_context = &of;
      const char *where = "";
      const ls_status status = ls_trajectory_run(arena, &experiment, &layout, &found, &error);
      if (status != LS_OK) fail_msg("%s: %s", of.what, error.text);
      const double difference = ls_trajectory_difference(&found, &reference, &where);
      if (!(difference < 1e-10))
        fail_msg("%s: proved, and %.3g away in %s", of.what, difference, where);
      harmless++;
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d of %d rejected, %d harmless\n", rejected, MUTANTS, harmless);
  assert_true(rejected > LEAST);
}

static void plain_products(ls_graph *graph) {
  for (int n = 0; n < graph->nodes.count; n++)
    if (graph->nodes.items[n].kind == LS_OP_LINEAR) graph->nodes.items[n].attributes.fp8 = 0;
}

static void another_format_in_the_model(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_ROW_FP8, 0)->attributes.fp8 = LS_FP8_E5M2;
}

static void another_format_of_a_weight_in_the_model(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_FP8, 0)->attributes.fp8 = LS_FP8_E5M2;
}

static const ls_test_wrong_model wrong_models[] = {
    {plain_products, NULL},
    {another_format_in_the_model, "fp8 2: expected 1"},
    {another_format_of_a_weight_in_the_model, "fp8 2: expected 1"}};

static void wrong_models_are_refuted(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = rounded(arena, &ls_test_shapes[1]);
  const ls_experiment experiment = experiment_of(&config);
  const ls_layout layout = ls_test_layout_of(&(ls_layout){.dp_shard = 2, .zero = 3});
  ls_test_refute_models(&experiment, &layout, wrong_models,
                        sizeof wrong_models / sizeof *wrong_models);
  ls_arena_destroy(&arena);
}

static void what_is_not_built_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  ls_error error = {0};
  config.blocks = LS_BLOCKS_NF4;
  assert_int_equal(ls_model_set_fp8(&config, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "use dtype=bf16, or quantize=none"));
  config.blocks = LS_COMPUTE;
  config.experts = 4;
  assert_int_equal(ls_model_set_fp8(&config, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "a mixture of experts"));
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rounding_is_seen_and_small),
      cmocka_unit_test(damaged_programs_are_refuted),
      cmocka_unit_test(rows_of_another_microbatch_are_refuted),
      cmocka_unit_test(a_maximum_of_each_rank_is_refuted),
      cmocka_unit_test(damaged_codes_are_refuted),
      cmocka_unit_test(weights_are_gathered_in_a_byte),
      cmocka_unit_test(damage_by_chance_is_refuted_or_harmless),
      cmocka_unit_test(wrong_models_are_refuted),
      cmocka_unit_test(what_is_not_built_is_refused),
      cmocka_unit_test(adapters_are_trained_beside),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
