/* Context parallelism: ranks that share each sequence are the same training as one device, in fp64
 * on the reference kernels and the real collectives. Over 2, 3 and 4 ranks of the context with
 * tensor and sequence parallelism, data strategies, pipelines, recomputation, offload, several
 * sequences, packed documents, windows, soft caps and ALiBi; by keys that are gathered or go round
 * in a ring, and by tokens that are changed for heads; each program is proved, every other one
 * saved and read back; a sample runs on the CPU's own kernels in fp32. Keys that are not gathered,
 * their gradients that stay partial, places of other tokens, stages that fill tokens in different
 * orders, and blocks, keys or heads that change hands wrongly are rejected, and change the
 * training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "graph/ring.h"
#include "lower/compile.h"
#include "session/token_order.h"
#include "support/layouts.h"
#include "verify/equality.h"

enum { SEQUENCES = 12, SEQUENCE = 24, STEPS = 3, MOST_STAGES = 4 };

static const double tolerance = 1e-10;

/* Grouped heads; learned positions; a window in each other layer and soft caps; the same with one
 * so narrow that some blocks of a ring are needed by none; ALiBi. */
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
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct context_case {
  int shape, cp, pp, dp_replicate, dp_shard, tp, zero, microbatches;
  bool sequence_parallel, documents;
  const char *schedule;
  ls_op_set recompute;
  ls_offload offload;
  ls_context context;
} context_case;

#define GATHERED LS_CONTEXT_GATHER
#define ROUND LS_CONTEXT_RING
#define EXCHANGED LS_CONTEXT_ULYSSES
#define BOTH LS_CONTEXT_HYBRID
#define NOTHING \
  {             \
    { 0 }       \
  }
#define AGAIN                                                                          \
  {                                                                                    \
    .has = { [LS_OP_ATTENTION] = true, [LS_OP_RMSNORM] = true, [LS_OP_LINEAR] = true } \
  }

static const context_case cases[] = {
    {0, 2, 1, 1, 1, 1, 0, 1, false, false, NULL, NOTHING, {0}, GATHERED},
    {0, 3, 1, 1, 1, 1, 1, 1, false, true, NULL, NOTHING, {0}, GATHERED},
    {0, 4, 1, 1, 1, 1, 3, 3, false, false, NULL, AGAIN, {0}, GATHERED},
    {0, 2, 1, 1, 2, 2, 3, 2, true, true, NULL, NOTHING, {0}, GATHERED},
    {0, 2, 1, 2, 1, 4, 2, 1, true, false, NULL, LS_EVERY_OP, {0}, GATHERED},
    {0, 3, 1, 1, 2, 2, 1, 1, false, true, NULL, NOTHING, {0}, GATHERED},
    {0, 2, 2, 1, 1, 1, 3, 4, false, true, "1f1b", NOTHING, {0}, GATHERED},
    {0, 2, 2, 1, 2, 2, 3, 3, true, false, "zbv", NOTHING, {0}, GATHERED},
    {0, 4, 4, 1, 1, 1, 2, 4, false, true, "gpipe", AGAIN, {0}, GATHERED},
    {0, 2, 2, 1, 1, 2, 1, 4, true, true, "zbh1", NOTHING, {0}, GATHERED},
    {0,
     2,
     1,
     1,
     2,
     1,
     3,
     1,
     false,
     true,
     NULL,
     NOTHING,
     {.optimizer = LS_TIER_HOST, .parameters = LS_TIER_HOST, .activations = LS_TIER_HOST},
     GATHERED},
    {0, 3, 1, 1, 1, 2, 1, 2, true, false, NULL, NOTHING, {.optimizer = LS_TIER_HOST}, GATHERED},
    {1, 2, 1, 1, 1, 1, 3, 1, false, true, NULL, NOTHING, {0}, GATHERED},
    {1, 3, 1, 2, 2, 3, 3, 1, true, false, NULL, NOTHING, {0}, GATHERED},
    {1, 4, 2, 1, 1, 2, 0, 3, true, true, "interleaved", NOTHING, {0}, GATHERED},
    {2, 2, 1, 1, 1, 1, 2, 1, false, false, NULL, NOTHING, {0}, GATHERED},
    {2, 3, 1, 1, 2, 2, 3, 1, true, true, NULL, LS_EVERY_OP, {0}, GATHERED},
    {2, 4, 2, 1, 1, 1, 1, 2, false, true, "1f1b", NOTHING, {0}, GATHERED},
    {3, 4, 1, 1, 1, 2, 3, 1, true, true, NULL, NOTHING, {0}, GATHERED},
    {4, 2, 1, 1, 2, 1, 3, 1, false, false, NULL, NOTHING, {0}, GATHERED},
    {4, 3, 1, 1, 1, 2, 1, 2, true, true, NULL, NOTHING, {0}, GATHERED},
    {4, 4, 2, 1, 1, 2, 3, 3, true, false, "1f1b", AGAIN, {0}, GATHERED},
    /* By KV heads, and by query heads where a rank of tp has one KV head. */
    {0, 2, 1, 1, 1, 1, 0, 1, false, false, NULL, NOTHING, {0}, EXCHANGED},
    {0, 2, 1, 1, 2, 2, 3, 2, true, true, NULL, NOTHING, {0}, EXCHANGED},
    {0, 4, 1, 1, 1, 2, 1, 1, false, true, NULL, LS_EVERY_OP, {0}, EXCHANGED},
    {0, 2, 2, 1, 1, 4, 2, 2, true, false, "1f1b", AGAIN, {0}, EXCHANGED},
    {0, 2, 2, 2, 1, 1, 3, 3, false, true, "zbv", NOTHING, {0}, EXCHANGED},
    {1, 3, 1, 1, 2, 1, 3, 1, false, true, NULL, NOTHING, {0}, EXCHANGED},
    {1, 4, 1, 1, 1, 3, 1, 3, true, true, NULL, AGAIN, {0}, EXCHANGED},
    {1, 3, 2, 1, 1, 2, 0, 2, true, false, "zbh1", NOTHING, {0}, EXCHANGED},
    {2,
     2,
     1,
     1,
     2,
     1,
     3,
     1,
     false,
     true,
     NULL,
     NOTHING,
     {.optimizer = LS_TIER_HOST, .parameters = LS_TIER_HOST, .activations = LS_TIER_HOST},
     EXCHANGED},
    {2, 2, 2, 1, 1, 2, 2, 3, true, true, "interleaved", NOTHING, {0}, EXCHANGED},
    {4, 3, 1, 1, 1, 2, 1, 2, true, true, NULL, NOTHING, {0}, EXCHANGED},
    {4, 2, 2, 1, 1, 3, 3, 3, false, false, "gpipe", NOTHING, {0}, EXCHANGED},
    /* Pairs of ranks change tokens for heads, and two or three pairs pass keys round. */
    {0, 4, 1, 1, 1, 1, 0, 1, false, false, NULL, NOTHING, {0}, BOTH},
    {0, 4, 1, 1, 2, 2, 3, 2, true, true, NULL, NOTHING, {0}, BOTH},
    {0, 6, 1, 1, 1, 2, 1, 1, false, true, NULL, LS_EVERY_OP, {0}, BOTH},
    {1, 6, 1, 1, 2, 1, 3, 1, false, true, NULL, AGAIN, {0}, BOTH},
    {1, 4, 2, 1, 1, 2, 2, 3, true, false, "zbh1", NOTHING, {0}, BOTH},
    {2, 4, 2, 1, 1, 1, 3, 2, false, true, "1f1b", NOTHING, {0}, BOTH},
    {3, 4, 1, 2, 1, 2, 3, 1, true, true, NULL, NOTHING, {0}, BOTH},
    {4, 4, 1, 1, 1, 1, 1, 2, false, true, NULL, NOTHING, {.optimizer = LS_TIER_HOST}, BOTH},
};
enum { CASES = sizeof cases / sizeof *cases };

/* The cases, and those by gathered keys in a ring too; returns how many. */
static int list_runs(context_case runs[2 * CASES]) {
  int count = CASES;
  memcpy(runs, cases, sizeof cases);
  for (int c = 0; c < CASES; c++) {
    if (cases[c].context != GATHERED) continue;
    runs[count] = cases[c];
    runs[count++].context = ROUND;
  }
  return count;
}

typedef struct made {
  ls_model_config config;
  ls_layout layout;
  ls_experiment experiment;
  const char *name;
  const ls_graph *graph;
  ls_program *stages[MOST_STAGES];
} made;

static ls_layout layout_of(const context_case *of) {
  ls_layout layout = ls_layout_default();
  layout.cp = of->cp;
  layout.pp = of->pp;
  layout.dp_replicate = of->dp_replicate;
  layout.dp_shard = of->dp_shard;
  layout.tp = of->tp;
  layout.zero = of->zero;
  layout.microbatches = of->microbatches;
  layout.sequence_parallel = of->sequence_parallel;
  layout.schedule = of->schedule;
  layout.recompute = of->recompute;
  layout.offload = of->offload;
  layout.offload.optimizer_fraction = 1;
  layout.context = of->context;
  layout.ulysses = of->context == BOTH ? 2 : 1;
  layout.compute = LS_F64;
  return layout;
}

static void compile(ls_arena *arena, const context_case *of, made *into) {
  *into = (made){.config = ls_test_shape_config(arena, &shapes[of->shape]),
                 .layout = layout_of(of),
                 .experiment = {.sequences = SEQUENCES,
                                .sequence = SEQUENCE,
                                .seed = 20261125,
                                .documents = of->documents,
                                .learning_rate = 0.01,
                                .steps = STEPS}};
  if (of->context == ROUND || of->context == BOTH)
    into->config.dropout.attention = 0; /* whose blocks have no masks */
  into->experiment.config = &into->config;
  into->name = ls_arena_printf(
      arena, "%s, %s%s%s", shapes[of->shape].name, ls_layout_print(arena, &into->layout),
      of->sequence_parallel ? ", sp" : "", of->documents ? ", documents" : "");
  const ls_build_options options = {.tokens = SEQUENCES / of->microbatches * SEQUENCE,
                                    .sequence = SEQUENCE,
                                    .documents = of->documents,
                                    .places = of->cp > 1,
                                    .turns = ls_layout_turns(&into->layout)};
  ls_graph *graph;
  ls_error error = {0};
  if (ls_model_build(arena, &into->config, &options, &graph, &error) != LS_OK)
    fail_msg("%s: %s", into->name, error.text);
  ls_graph_backward(graph);
  into->graph = graph;
  if (ls_program_compile(graph, &into->layout, LS_PROGRAM_STEP, into->stages, &error) != LS_OK)
    fail_msg("%s: %s", into->name, error.text);
}

static ls_status check(const made *of, ls_error *error) {
  return ls_check(of->graph, &of->layout, (const ls_program *const *)of->stages, NULL, error);
}

/* How far the layout's training is from that of one device, whose program has no places. */
static double train(ls_arena *arena, const made *of, const ls_experiment *experiment,
                    const char **where) {
  ls_experiment plain = *experiment;
  plain.alter = NULL;
  plain.saved = false;
  plain.fast_kernels = false;
  ls_layout one = ls_layout_default();
  one.compute = LS_F64;
  ls_trajectory reference, found;
  ls_error error = {0};
  if (ls_trajectory_run(arena, &plain, &one, &reference, &error) != LS_OK ||
      ls_trajectory_run(arena, experiment, &of->layout, &found, &error) != LS_OK)
    fail_msg("%s: %s", of->name, error.text);
  return ls_trajectory_difference(&found, &reference, where);
}

static void every_layout_trains_as_one_device(void **state) {
  (void)state;
  context_case runs[2 * CASES];
  const int count = list_runs(runs);
  double worst = 0;
  for (int c = 0; c < count; c++) {
    ls_arena *arena = ls_arena_create();
    made of;
    ls_error error = {0};
    compile(arena, &runs[c], &of);
    if (check(&of, &error) != LS_OK) fail_msg("%s: %s", of.name, error.text);
    of.experiment.saved = c % 2;
    const char *where;
    const double difference = train(arena, &of, &of.experiment, &where);
    print_message("%s: %.2g\n", of.name, difference);
    if (!(difference <= tolerance)) fail_msg("%s: %.3g in %s", of.name, difference, where);
    if (difference > worst) worst = difference;
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts, worst difference %.3g\n", count, worst);
}

/* The CPU's kernels, forward and backward, in fp32, on models without biases of keys, whose
 * gradients are nothing but rounding; AdamW makes much of small gradients. */
static void the_cpus_kernels_take_places(void **state) {
  (void)state;
  context_case runs[2 * CASES];
  const int count = list_runs(runs);
  for (int c = 0; c < count; c++) {
    if (runs[c].shape == 1 || runs[c].shape == 4) continue;
    ls_arena *arena = ls_arena_create();
    made of;
    compile(arena, &runs[c], &of);
    of.layout.compute = LS_F32;
    of.experiment.fast_kernels = true;
    const char *where;
    const double difference = train(arena, &of, &of.experiment, &where);
    print_message("%s, fp32: %.2g\n", of.name, difference);
    if (!(difference <= 1e-3)) fail_msg("%s: %.3g in %s", of.name, difference, where);
    ls_arena_destroy(&arena);
  }
}

/* A wrong program of the first case of several sequences, documents and stages. */
typedef bool fault(ls_program *program);

static bool is_over_context(const ls_program *program, const ls_instruction *each) {
  return each->axes == ls_mesh_context(&program->mesh);
}

/* What attention reads as its input `input` is the rank's own again, under the gathered's name. */
static bool keys_not_gathered(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (each->kind != LS_OP_ATTENTION || each->collective != LS_COLLECTIVE_NONE) continue;
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

static bool goes_round(const ls_program *program, const ls_instruction *each) {
  return each->collective == LS_PERMUTE && is_over_context(program, each);
}

static bool is_turn(const ls_instruction *each, ls_op_kind kind, int64_t turn) {
  return each->collective == LS_COLLECTIVE_NONE && each->kind == kind &&
         each->attributes.turn == turn;
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
      if (each->collective != LS_COLLECTIVE_NONE || each->kind != LS_OP_ADD ||
          each->in[0] != shift->out[0])
        continue;
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
    if (each->kind != LS_OP_ATTENTION || each->collective != LS_COLLECTIVE_NONE) continue;
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
    if (attention->kind != LS_OP_ATTENTION || attention->collective != LS_COLLECTIVE_NONE) continue;
    for (int x = i + 1; x < program->instructions.count; x++) {
      ls_instruction *each = &program->instructions.items[x];
      if (each->collective != LS_ALL_TO_ALL || each->in[0] != attention->out[0]) continue;
      each->in[0] = each->out[0];
      return true;
    }
  }
  return false;
}

static const struct {
  const char *name;
  fault *change;
  bool runs; /* else a rank would read what nobody wrote */
  ls_context context;
} faults[] = {
    {"keys not gathered", keys_not_gathered, false, GATHERED},
    {"places of other tokens", places_of_other_tokens, true, GATHERED},
    {"gradient of keys stays partial", keys_gradient_stays_partial, false, GATHERED},
    {"stages in other orders", stages_in_other_orders, true, GATHERED},
    {"a shift too far", shift_too_far, true, ROUND},
    {"a block used twice", block_used_twice, true, ROUND},
    {"a block missed", block_missed, true, ROUND},
    {"gradients home too early", gradient_home_too_early, true, ROUND},
    {"gradients of another block", gradient_of_another_block, true, ROUND},
    {"places of other tokens, ring", places_of_other_tokens, true, ROUND},
    {"keys exchanged as values", keys_exchanged_as_values, true, EXCHANGED},
    {"heads not exchanged back", heads_not_exchanged_back, false, EXCHANGED},
    {"places of other tokens, heads", places_of_other_tokens, true, EXCHANGED},
};

static bool alter(ls_program *program, void *context) {
  return (*(fault *const *)context)(program);
}

static void faults_are_rejected_and_change_the_training(void **state) {
  (void)state;
  context_case of = {0, 3, 2, 1, 1, 1, 1, 3, false, true, "1f1b", NOTHING, {0}, GATHERED};
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_arena *arena = ls_arena_create();
    made wrong;
    ls_error error = {0};
    of.context = faults[f].context;
    if (of.context == EXCHANGED) of.cp = 2; /* as many as KV heads */
    compile(arena, &of, &wrong);
    bool any = false;
    for (int s = 0; s < of.pp; s++) any |= faults[f].change(wrong.stages[s]);
    if (!any) fail_msg("%s: there is nothing to alter", faults[f].name);
    if (check(&wrong, &error) != LS_REFUTED) fail_msg("%s: accepted", faults[f].name);
    print_message("%s: %s\n", faults[f].name, error.text);
    if (faults[f].runs) {
      fault *change = faults[f].change;
      wrong.experiment.alter = alter;
      wrong.experiment.alter_context = (void *)&change;
      const char *where;
      const double difference = train(arena, &wrong, &wrong.experiment, &where);
      if (!(difference > 1e-6)) fail_msg("%s: trains to %.3g", faults[f].name, difference);
    }
    ls_arena_destroy(&arena);
  }
}

static int count_turns(const ls_program *program, const char *layer) {
  int turns = 0;
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    turns += each->collective == LS_COLLECTIVE_NONE && each->kind == LS_OP_RING_ATTENTION &&
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
  const context_case of = {3, 4, 1, 1, 1, 1, 3, 1, false, false, NULL, NOTHING, {0}, ROUND};
  made ring;
  compile(arena, &of, &ring);
  assert_int_equal(count_turns(ring.stages[0], "layers.0."), 3);
  assert_int_equal(count_turns(ring.stages[0], "layers.1."), 4);
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
  const context_case of = {0, RANKS, 1, 1, 1, 1, 3, 1, false, false, NULL, NOTHING, {0}, ROUND};
  const ls_layout layout = layout_of(&of);
  ls_model_config config = ls_test_shape_config(arena, &shapes[0]);
  config.positions = 2 * RANKS;
  const ls_build_options options = {.tokens = 2 * RANKS,
                                    .sequence = 2 * RANKS,
                                    .places = true,
                                    .turns = ls_layout_turns(&layout)};
  ls_graph *graph;
  ls_program *stages[1];
  ls_error error = {0};
  if (ls_model_build(arena, &config, &options, &graph, &error) != LS_OK) fail_msg("%s", error.text);
  ls_graph_backward(graph);
  if (ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error) != LS_OK ||
      ls_check(graph, &layout, (const ls_program *const *)stages, NULL, &error) != LS_OK)
    fail_msg("%s", error.text);
  ls_arena_destroy(&arena);
}

static void what_does_not_divide_is_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[0]);
  ls_layout layout = ls_layout_default();
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
