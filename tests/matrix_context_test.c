/* Context parallelism: ranks that share each sequence are the same training as one device, in fp64
 * on the reference kernels and the real collectives. Over 2, 3 and 4 ranks of the context with
 * tensor and sequence parallelism, data strategies, pipelines, recomputation, offload, several
 * sequences, packed documents, windows, soft caps and ALiBi; by keys that are gathered or go round
 * in a ring, and by tokens that are changed for heads; each program is proved, every other one
 * saved and read back; a sample runs on the CPU's own kernels in fp32. Keys that are not gathered,
 * their gradients that stay partial, places of other tokens, stages that fill tokens in different
 * orders, and blocks, keys or heads that change hands wrongly are rejected, and change the
 * training. */
#include <string.h>

#include "graph/ring.h"
#include "session/token_order.h"
#include "support/layouts.h"
#include "support/program_faults.h"

enum { SEQUENCES = 12, SEQUENCE = 24, STEPS = 3 };

/* Grouped heads; learned positions; a window in each other layer and soft caps; the same with one
 * so narrow that some blocks of a ring are needed by none; ALiBi; a window in each other layer and
 * sinks, with experts that have biases. */
static const ls_test_shape shapes[] = {
    {"llama",
     "{\"model_type\": \"llama\", \"vocab_size\": 41, \"hidden_size\": 32,"
     " \"intermediate_size\": 45, \"num_hidden_layers\": 4, \"num_attention_heads\": 8,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5,"
     " \"tie_word_embeddings\": false}"},
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 32, \"n_embd\": 24,"
     " \"n_layer\": 4, \"n_head\": 12, \"n_inner\": 43, \"resid_pdrop\": 0.1,"
     " \"embd_pdrop\": 0.2, \"attn_pdrop\": 0.3}"},
    {"gemma2",
     "{\"model_type\": \"gemma2\", \"vocab_size\": 43, \"hidden_size\": 24,"
     " \"intermediate_size\": 31, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"head_dim\": 6, \"query_pre_attn_scalar\": 6,"
     " \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5, \"sliding_window\": 7,"
     " \"attn_logit_softcapping\": 2.0, \"final_logit_softcapping\": 3.0}"},
    {"narrow",
     "{\"model_type\": \"gemma2\", \"vocab_size\": 43, \"hidden_size\": 24,"
     " \"intermediate_size\": 31, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"head_dim\": 6, \"query_pre_attn_scalar\": 6,"
     " \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5, \"sliding_window\": 3,"
     " \"attn_logit_softcapping\": 2.0, \"final_logit_softcapping\": 3.0}"},
    {"bloom",
     "{\"model_type\": \"bloom\", \"vocab_size\": 43, \"hidden_size\": 24, \"n_layer\": 4,"
     " \"n_head\": 6, \"layer_norm_epsilon\": 1e-5, \"hidden_dropout\": 0,"
     " \"attention_dropout\": 0}"},
    {"gpt-oss",
     "{\"model_type\": \"gpt_oss\", \"vocab_size\": 43, \"hidden_size\": 24,"
     " \"intermediate_size\": 12, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"head_dim\": 6, \"num_local_experts\": 4,"
     " \"num_experts_per_tok\": 2, \"max_position_embeddings\": 32, \"sliding_window\": 7,"
     " \"initializer_range\": 0.3, \"swiglu_limit\": 0.5,"
     " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 100.0}}"},
};
enum { LLAMA, GPT2, GEMMA, NARROW, BLOOM, OSS };

#define AGAIN \
  .recompute.has = {[LS_OP_ATTENTION] = true, [LS_OP_RMSNORM] = true, [LS_OP_LINEAR] = true}
#define HEADS .context = LS_CONTEXT_ULYSSES
#define PAIRS_ROUND .context = LS_CONTEXT_HYBRID, .ulysses = 2
#define ELSEWHERE \
  .offload = {.optimizer = LS_TIER_HOST, .parameters = LS_TIER_HOST, .activations = LS_TIER_HOST}

typedef struct context_case {
  int shape;
  enum { WHOLE, PACKED } documents;
  ls_layout layout;
} context_case;

static const context_case cases[] = {
    {LLAMA, WHOLE, {.cp = 2}},
    {LLAMA, PACKED, {.cp = 3, .zero = 1}},
    {LLAMA, WHOLE, {.cp = 4, .zero = 3, .microbatches = 3, AGAIN}},
    {LLAMA, PACKED, {.cp = 2, .dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 2, SP}},
    {LLAMA, WHOLE, {.cp = 2, .dp_replicate = 2, .tp = 4, .zero = 2, SP, EVERY}},
    {LLAMA, PACKED, {.cp = 3, .dp_shard = 2, .tp = 2, .zero = 1}},
    {LLAMA, PACKED, {.cp = 2, PIPE(2, "1f1b"), .zero = 3, .microbatches = 4}},
    {LLAMA,
     WHOLE,
     {.cp = 2, PIPE(2, "zbv"), .dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 3, SP}},
    {LLAMA, PACKED, {.cp = 4, PIPE(4, "gpipe"), .zero = 2, .microbatches = 4, AGAIN}},
    {LLAMA, PACKED, {.cp = 2, PIPE(2, "zbh1"), .tp = 2, .zero = 1, .microbatches = 4, SP}},
    {LLAMA, PACKED, {.cp = 2, .dp_shard = 2, .zero = 3, ELSEWHERE}},
    {LLAMA,
     WHOLE,
     {.cp = 3, .tp = 2, .zero = 1, .microbatches = 2, SP, .offload = {.optimizer = LS_TIER_HOST}}},
    {GPT2, PACKED, {.cp = 2, .zero = 3}},
    {GPT2, WHOLE, {.cp = 3, .dp_replicate = 2, .dp_shard = 2, .tp = 3, .zero = 3, SP}},
    {GPT2, PACKED, {.cp = 4, PIPE(2, "interleaved"), .tp = 2, .microbatches = 3, SP}},
    {GEMMA, WHOLE, {.cp = 2, .zero = 2}},
    {GEMMA, PACKED, {.cp = 3, .dp_shard = 2, .tp = 2, .zero = 3, SP, EVERY}},
    {GEMMA, PACKED, {.cp = 4, PIPE(2, "1f1b"), .zero = 1, .microbatches = 2}},
    {NARROW, PACKED, {.cp = 4, .tp = 2, .zero = 3, SP}},
    {BLOOM, WHOLE, {.cp = 2, .dp_shard = 2, .zero = 3}},
    {BLOOM, PACKED, {.cp = 3, .tp = 2, .zero = 1, .microbatches = 2, SP}},
    {BLOOM, WHOLE, {.cp = 4, PIPE(2, "1f1b"), .tp = 2, .zero = 3, .microbatches = 3, SP, AGAIN}},
    {OSS, WHOLE, {.cp = 2, .zero = 2, .microbatches = 2, AGAIN}},
    {OSS, PACKED, {.cp = 3, .dp_shard = 2, .tp = 2, .zero = 3, SP}},
    {OSS, PACKED, {.cp = 4, PIPE(2, "1f1b"), .tp = 4, .zero = 1, .microbatches = 2}},
    /* By KV heads, and by query heads where a rank of tp has one KV head. */
    {LLAMA, WHOLE, {.cp = 2, HEADS}},
    {LLAMA, PACKED, {.cp = 2, .dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 2, SP, HEADS}},
    {LLAMA, PACKED, {.cp = 4, .tp = 2, .zero = 1, EVERY, HEADS}},
    {LLAMA,
     WHOLE,
     {.cp = 2, PIPE(2, "1f1b"), .tp = 4, .zero = 2, .microbatches = 2, SP, AGAIN, HEADS}},
    {LLAMA,
     PACKED,
     {.cp = 2, PIPE(2, "zbv"), .dp_replicate = 2, .zero = 3, .microbatches = 3, HEADS}},
    {GPT2, PACKED, {.cp = 3, .dp_shard = 2, .zero = 3, HEADS}},
    {GPT2, PACKED, {.cp = 4, .tp = 3, .zero = 1, .microbatches = 3, SP, AGAIN, HEADS}},
    {GPT2, WHOLE, {.cp = 3, PIPE(2, "zbh1"), .tp = 2, .microbatches = 2, SP, HEADS}},
    {GEMMA, PACKED, {.cp = 2, .dp_shard = 2, .zero = 3, ELSEWHERE, HEADS}},
    {GEMMA,
     PACKED,
     {.cp = 2, PIPE(2, "interleaved"), .tp = 2, .zero = 2, .microbatches = 3, SP, HEADS}},
    {OSS, PACKED, {.cp = 2, .dp_shard = 2, .zero = 3, HEADS}},
    {OSS, WHOLE, {.cp = 2, PIPE(2, "zbv"), .tp = 2, .zero = 1, .microbatches = 3, SP, HEADS}},
    {BLOOM, PACKED, {.cp = 3, .tp = 2, .zero = 1, .microbatches = 2, SP, HEADS}},
    {BLOOM, WHOLE, {.cp = 2, PIPE(2, "gpipe"), .tp = 3, .zero = 3, .microbatches = 3, HEADS}},
    /* Pairs of ranks change tokens for heads, and two or three pairs pass keys round. */
    {LLAMA, WHOLE, {.cp = 4, PAIRS_ROUND}},
    {LLAMA,
     PACKED,
     {.cp = 4, .dp_shard = 2, .tp = 2, .zero = 3, .microbatches = 2, SP, PAIRS_ROUND}},
    {LLAMA, PACKED, {.cp = 6, .tp = 2, .zero = 1, EVERY, PAIRS_ROUND}},
    {GPT2, PACKED, {.cp = 6, .dp_shard = 2, .zero = 3, AGAIN, PAIRS_ROUND}},
    {GPT2,
     WHOLE,
     {.cp = 4, PIPE(2, "zbh1"), .tp = 2, .zero = 2, .microbatches = 3, SP, PAIRS_ROUND}},
    {GEMMA, PACKED, {.cp = 4, PIPE(2, "1f1b"), .zero = 3, .microbatches = 2, PAIRS_ROUND}},
    {NARROW, PACKED, {.cp = 4, .dp_replicate = 2, .tp = 2, .zero = 3, SP, PAIRS_ROUND}},
    {OSS, PACKED, {.cp = 4, .tp = 2, .zero = 3, EVERY, PAIRS_ROUND}},
    {BLOOM,
     PACKED,
     {.cp = 4, .zero = 1, .microbatches = 2, .offload = {.optimizer = LS_TIER_HOST}, PAIRS_ROUND}},
};
enum { CASES = sizeof cases / sizeof *cases, RUNS = 73, IN_FP32 = 53 };

/* The cases, and those by gathered keys in a ring too; returns how many. */
static int list_runs(context_case runs[2 * CASES]) {
  int count = CASES;
  memcpy(runs, cases, sizeof cases);
  for (int c = 0; c < CASES; c++) {
    if (cases[c].layout.context != LS_CONTEXT_GATHER) continue;
    runs[count] = cases[c];
    runs[count++].layout.context = LS_CONTEXT_RING;
  }
  return count;
}

/* A case, in memory that its experiment points to. */
typedef struct context_run {
  const char *name;
  ls_model_config config;
  ls_layout layout;
  ls_experiment experiment;
} context_run;

static context_run *open_case(ls_arena *arena, const context_case *of) {
  context_run *into = LS_NEW(arena, context_run);
  into->name = ls_arena_printf(arena, "%s%s", shapes[of->shape].name,
                               of->documents == PACKED ? ", packed" : "");
  into->config = ls_test_shape_config(arena, &shapes[of->shape]);
  into->layout = ls_test_layout_of(&of->layout);
  into->experiment = (ls_experiment){.config = &into->config,
                                     .sequences = SEQUENCES,
                                     .sequence = SEQUENCE,
                                     .seed = 20261125,
                                     .documents = of->documents == PACKED,
                                     .learning_rate = 0.01,
                                     .steps = STEPS};
  if (ls_layout_turns(&into->layout) > 0)
    into->config.dropout.attention = 0; /* whose blocks have no masks */
  return into;
}

static void every_layout_trains_as_one_device(void **state) {
  (void)state;
  context_case runs[2 * CASES];
  const int count = list_runs(runs);
  ls_test_tally tally = {0};
  for (int c = 0; c < count; c++) {
    ls_arena *arena = ls_arena_create();
    context_run *of = open_case(arena, &runs[c]);
    of->experiment.saved = c % 2;
    ls_test_equal_layout(&tally, &of->experiment, &of->layout, of->name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUNS, 0);
}

/* The CPU's kernels, forward and backward, in fp32, on models without biases of keys, whose
 * gradients are nothing but rounding; AdamW makes much of small gradients. */
static void the_cpus_kernels_take_places(void **state) {
  (void)state;
  context_case runs[2 * CASES];
  const int count = list_runs(runs);
  ls_test_tally tally = {.tolerance = 1e-3};
  for (int c = 0; c < count; c++) {
    if (runs[c].shape == GPT2 || runs[c].shape == BLOOM) continue;
    ls_arena *arena = ls_arena_create();
    context_run *of = open_case(arena, &runs[c]);
    of->layout.compute = LS_F32;
    of->experiment.device.kind = "cpu";
    ls_test_equal_layout(&tally, &of->experiment, &of->layout, of->name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, IN_FP32, 0);
}

static bool is_over_context(const ls_program *program, const ls_instruction *each) {
  return each->axes == ls_mesh_context(&program->mesh);
}

/* What attention reads as its input `input` is the rank's own again, under the gathered's name. */
static bool keys_not_gathered(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_ATTENTION)) continue;
    for (int g = i - 1; g >= 0; g--) {
      ls_instruction *gather = &program->instructions.items[g];
      if (gather->collective != LS_ALL_GATHER || !is_over_context(program, gather) ||
          gather->out[0] != each->in[1])
        continue;
      gather->in[0] = gather->out[0];
      return true;
    }
  }
  return false;
}

/* Positions in place of places: of documents, and of sequences behind the first, other tokens. */
static bool places_of_other_tokens(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->collective != LS_ALL_GATHER || each->in[0] != program->places) continue;
    each->in[0] = program->positions;
    any = true;
  }
  return any;
}

/* The gradient of keys is taken as it is of one rank's queries. */
static bool keys_gradient_stays_partial(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->collective != LS_REDUCE_SCATTER || !is_over_context(program, each) ||
        program->values.items[each->in[0]].flat_elements)
      continue;
    each->collective = LS_ALL_GATHER; /* of the first shard, which lies in front */
    each->in[0] = each->out[0];
    return true;
  }
  return false;
}

/* The last stage is filled in the order of the sequence, two of which it takes to be one. */
static bool stages_in_other_orders(ls_program *program) {
  if (program->stage == 0) return false;
  program->sequence *= 2;
  return true;
}

/* The host is told that two sequences are one: in what it fills a rank has a part of each as it
 * lies, which the ring takes for zigzag. */
static bool contiguous_order(ls_program *program) {
  program->sequence *= 2;
  return true;
}

static bool goes_round(const ls_program *program, const ls_instruction *each) {
  return each->collective == LS_PERMUTE && is_over_context(program, each);
}

static bool is_turn(const ls_instruction *each, ls_op_kind kind, int64_t turn) {
  return ls_test_is_op(each, kind) && each->attributes.turn == turn;
}

/* The first block comes from the rank after the next. */
static bool shift_too_far(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    if (!goes_round(program, each)) continue;
    ls_placement *to = &program->values.items[each->out[0]].placement;
    for (int a = 0; a < program->mesh.count; a++)
      if (each->axes >> a & 1)
        to->on[a].shift = (short)((to->on[a].shift + 1) % program->mesh.axes[a].size);
    return true;
  }
  return false;
}

/* At the second turn keys and values are those of the first again. */
static bool block_used_twice(ls_program *program) {
  const ls_instruction *first = NULL;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (is_turn(each, LS_OP_RING_ATTENTION, 0)) first = each;
    if (!first || !is_turn(each, LS_OP_RING_ATTENTION, 1)) continue;
    each->in[1] = first->in[1];
    each->in[2] = first->in[2];
    return true;
  }
  return false;
}

/* What the last block has come to is left out: the end is of the sums and maxima before it. */
static bool block_missed(ls_program *program) {
  const ls_instruction *before = NULL, *last = NULL;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->collective != LS_COLLECTIVE_NONE) continue;
    if (each->kind == LS_OP_RING_ATTENTION) {
      before = last;
      last = each;
    }
    if (each->kind != LS_OP_RING_END) continue;
    memcpy(each->in, before->out, sizeof *each->in * 3);
    return true;
  }
  return false;
}

/* Gradients of keys are added to what has not come to their rank. */
static bool gradient_home_too_early(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *shift = &program->instructions.items[i];
    if (!goes_round(program, shift)) continue;
    for (int n = i + 1; n < program->instructions.count; n++) {
      ls_instruction *each = &program->instructions.items[n];
      if (!ls_test_is_op(each, LS_OP_ADD) || each->in[0] != shift->out[0]) continue;
      each->in[0] = shift->in[0];
      any = true;
    }
  }
  return any;
}

/* At the last turn but one, going back, keys are those at home. */
static bool gradient_of_another_block(ls_program *program) {
  ls_instruction *other = NULL;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (is_turn(each, LS_OP_RING_BWD, 1)) other = each;
    if (!other || !is_turn(each, LS_OP_RING_BWD, 0)) continue;
    other->in[2] = each->in[2];
    return true;
  }
  return false;
}

static ls_instruction *exchange_of(ls_program *program, int target) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->collective == LS_ALL_TO_ALL && each->out[0] == target) return each;
  }
  return NULL;
}

/* The first attention's values come by the keys' all-to-all. */
static bool keys_exchanged_as_values(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_ATTENTION)) continue;
    ls_instruction *keys = exchange_of(program, each->in[1]);
    ls_instruction *values = exchange_of(program, each->in[2]);
    if (keys && values) values->in[0] = keys->in[0];
    return keys && values;
  }
  return false;
}

/* What the first attention makes is taken as tokens as it lies, by heads. */
static bool heads_not_exchanged_back(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *attention = &program->instructions.items[i];
    if (!ls_test_is_op(attention, LS_OP_ATTENTION)) continue;
    for (int x = i + 1; x < program->instructions.count; x++) {
      ls_instruction *each = &program->instructions.items[x];
      if (each->collective != LS_ALL_TO_ALL || each->in[0] != attention->out[0]) continue;
      each->in[0] = each->out[0];
      return true;
    }
  }
  return false;
}

static bool ends_with_sinks(const ls_instruction *each) {
  return ls_test_is_op(each, LS_OP_RING_END) && each->inputs > 3;
}

/* A ring ends without its sinks: no rank counts them. */
static bool sinks_left_out(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ends_with_sinks(each)) continue;
    each->inputs = 3;
    any = true;
  }
  return any;
}

/* A layer's queries have the sinks of the layer before, which are then counted twice. */
static bool sinks_counted_twice(ls_program *program) {
  const ls_instruction *before = NULL;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    const bool whole = ls_test_is_op(each, LS_OP_SINK_ATTENTION);
    if (!whole && !ends_with_sinks(each)) continue;
    if (before) {
      each->in[3] = before->in[3];
      return true;
    }
    before = each;
  }
  return false;
}

/* Two layers' queries both make the gradient of one layer's sinks. */
static bool gradient_of_sinks_counted_twice(ls_program *program) {
  const ls_instruction *before = NULL;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    const bool ring = ls_test_is_op(each, LS_OP_RING_END_BWD) && each->outputs > 2;
    if (!ring && !ls_test_is_op(each, LS_OP_SINK_BWD)) continue;
    if (before) {
      each->out[each->outputs - 1] = before->out[before->outputs - 1];
      return true;
    }
    before = each;
  }
  return false;
}

/* What does not run would read what nobody wrote. */
static const struct {
  int shape;
  ls_context context;
  ls_test_fault fault;
} faults[] = {
    {LLAMA, LS_CONTEXT_GATHER, {"keys not gathered", keys_not_gathered, NULL, false}},
    {LLAMA, LS_CONTEXT_GATHER, {"places of other tokens", places_of_other_tokens, NULL, true}},
    {LLAMA,
     LS_CONTEXT_GATHER,
     {"gradient of keys stays partial", keys_gradient_stays_partial, NULL, false}},
    {LLAMA, LS_CONTEXT_GATHER, {"stages in other orders", stages_in_other_orders, NULL, true}},
    {LLAMA, LS_CONTEXT_RING, {"a shift too far", shift_too_far, NULL, true}},
    {LLAMA, LS_CONTEXT_RING, {"contiguous order as zigzag", contiguous_order, NULL, false}},
    {LLAMA, LS_CONTEXT_RING, {"a block used twice", block_used_twice, NULL, true}},
    {LLAMA, LS_CONTEXT_RING, {"a block missed", block_missed, NULL, true}},
    {LLAMA, LS_CONTEXT_RING, {"gradients home too early", gradient_home_too_early, NULL, true}},
    {LLAMA, LS_CONTEXT_RING, {"gradients of another block", gradient_of_another_block, NULL, true}},
    {LLAMA, LS_CONTEXT_RING, {"places of other tokens, ring", places_of_other_tokens, NULL, true}},
    {LLAMA, LS_CONTEXT_ULYSSES, {"keys exchanged as values", keys_exchanged_as_values, NULL, true}},
    {LLAMA,
     LS_CONTEXT_ULYSSES,
     {"heads not exchanged back", heads_not_exchanged_back, NULL, false}},
    {LLAMA,
     LS_CONTEXT_ULYSSES,
     {"places of other tokens, heads", places_of_other_tokens, NULL, true}},
    {OSS, LS_CONTEXT_RING, {"sinks left out", sinks_left_out, NULL, true}},
    {OSS, LS_CONTEXT_RING, {"sinks counted twice", sinks_counted_twice, NULL, false}},
    {OSS,
     LS_CONTEXT_RING,
     {"their gradient counted twice", gradient_of_sinks_counted_twice, NULL, false}},
    {OSS, LS_CONTEXT_ULYSSES, {"sinks counted twice, heads", sinks_counted_twice, NULL, false}},
};

/* In several sequences, with documents, on two stages. */
static void faults_are_rejected_and_change_the_training(void **state) {
  (void)state;
  context_case of = {
      LLAMA, PACKED, {.cp = 3, .pp = 2, .zero = 1, .microbatches = 3, .schedule = "1f1b"}};
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_arena *arena = ls_arena_create();
    of.layout.context = faults[f].context;
    of.shape = faults[f].shape;
    if (of.layout.context == LS_CONTEXT_ULYSSES) of.layout.cp = 2; /* as many as KV heads */
    const context_run *wrong = open_case(arena, &of);
    ls_test_refute(&wrong->experiment, &wrong->layout, &faults[f].fault, 1);
    ls_arena_destroy(&arena);
  }
}

static int count_turns(const ls_program *program, const char *layer) {
  int turns = 0;
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    turns += ls_test_is_op(each, LS_OP_RING_ATTENTION) &&
             strncmp(program->values.items[each->out[0]].name, layer, strlen(layer)) == 0;
  }
  return turns;
}

/* Which turns any token needs, token by token in the order in which the host fills. */
static void check_needed(const ls_attributes *of) {
  const int64_t rows = of->sequence / of->turns;
  int needed = 0;
  for (int64_t turn = 0; turn < of->turns; turn++) {
    bool any = false;
    for (int64_t i = 0; i < of->sequence; i++) {
      const int rank = (int)(i / rows), ranks = (int)of->turns;
      const int64_t query = ls_token_order(i % rows, of->sequence, ranks, rank);
      for (int64_t row = 0; row < rows && !any; row++) {
        const int64_t key = ls_token_order(row, of->sequence, ranks, (rank + (int)turn) % ranks);
        any = key <= query && (of->window == 0 || key > query - of->window);
      }
    }
    assert_int_equal(ls_ring_needs(of, turn), any);
    needed += any;
  }
  assert_int_equal(ls_ring_needed(of), needed);
}

/* A token sees two before it: its chunk, and of those beside it the last of the one before, which
 * the next rank or the one before has. */
static void turns_that_no_rank_needs_are_left_out(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const context_case of = {NARROW, WHOLE, {.cp = 4, .zero = 3, .context = LS_CONTEXT_RING}};
  const context_run *ring = open_case(arena, &of);
  const ls_test_step step = ls_test_compile(arena, &ring->experiment, &ring->layout);
  assert_int_equal(count_turns(step.stages[0], "layers.0."), 3);
  assert_int_equal(count_turns(step.stages[0], "layers.1."), 4);
  for (int64_t turns = 1; turns <= 9; turns++)
    for (int64_t window = 0; window <= 6 * turns + 1; window++)
      check_needed(&(ls_attributes){.sequence = 6 * turns, .window = window, .turns = turns});
  ls_arena_destroy(&arena);
}

/* The gradient of what queries come to is that of each of its turns. */
static void a_ring_of_many_ranks_is_proved(void **state) {
  (void)state;
  enum { RANKS = 300 };
  ls_arena *arena = ls_arena_create();
  const context_case of = {LLAMA, WHOLE, {.cp = RANKS, .zero = 3, .context = LS_CONTEXT_RING}};
  context_run *ring = open_case(arena, &of);
  ls_error error = {0};
  ring->config.positions = 2 * RANKS;
  ring->experiment.sequences = 1;
  ring->experiment.sequence = 2 * RANKS;
  const ls_test_step step = ls_test_compile(arena, &ring->experiment, &ring->layout);
  if (ls_test_check(&step, &error) != LS_OK) fail_msg("%s", error.text);
  ls_arena_destroy(&arena);
}

static void what_does_not_divide_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[0]);
  ls_layout layout = ls_test_layout_default();
  layout.cp = 5;
  const ls_build_options options = {.tokens = SEQUENCE, .sequence = SEQUENCE, .places = true};
  ls_graph *graph;
  ls_mesh mesh;
  ls_error error = {0};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  assert_int_equal(ls_layout_mesh(&layout, graph, &mesh, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "sequences of 24 tokens over mesh.cp=5, of which each rank has two chunks: "
                      "use data.seq_len=20 or 30, a multiple of 10");
  layout.cp = 4;
  assert_int_equal(ls_layout_mesh(&layout, graph, &mesh, &error), LS_OK);
  assert_int_equal(ls_mesh_size(&mesh, ls_mesh_context(&mesh)), 4);
  layout.context = LS_CONTEXT_ULYSSES;
  assert_int_equal(ls_layout_mesh(&layout, graph, &mesh, &error), LS_INPUT);
  assert_string_equal(error.text,
                      "mesh.cp=4 with context=ulysses, and 2 KV heads of 4 query heads each on a "
                      "rank of mesh.tp=1: use mesh.cp=2, or context=gather");
  layout.tp = 2;
  assert_int_equal(ls_layout_mesh(&layout, graph, &mesh, &error), LS_OK);
  assert_int_equal(mesh.axes[LS_AXIS_CP].shares, LS_SHARES_TOKENS | LS_SHARES_QUERY_HEADS);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_layout_trains_as_one_device),
                                     cmocka_unit_test(the_cpus_kernels_take_places),
                                     cmocka_unit_test(faults_are_rejected_and_change_the_training),
                                     cmocka_unit_test(turns_that_no_rank_needs_are_left_out),
                                     cmocka_unit_test(a_ring_of_many_ranks_is_proved),
                                     cmocka_unit_test(what_does_not_divide_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
