/* What keeps experts in balance is the same training on many devices as on one, in fp64 on the
 * reference kernels: the loss by loads of all layers together, of each layer and of each sequence,
 * the z-loss of routers, and correction biases that follow the loads of a step; in families with
 * shared experts, layers without experts and groups of experts too. Loads of the whole and of parts
 * of a step are those of one device with as many microbatches. Every program is proved, every other
 * one saved and read back; and programs that lack a part of loads or losses are refuted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "verify/equality.h"

enum { SEQUENCES = 24, SEQUENCE = 12, STEPS = 3, MOST_STAGES = 4 };

static const double tolerance = 1e-10;

static const ls_test_shape shapes[] = {
    {"mixtral",
     "{\"model_type\": \"mixtral\", \"vocab_size\": 41, \"hidden_size\": 16,"
     " \"intermediate_size\": 13, \"num_hidden_layers\": 4, \"num_attention_heads\": 8,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"num_local_experts\": 6,"
     " \"num_experts_per_tok\": 2, \"tie_word_embeddings\": false}"},
    {"qwen2_moe",
     "{\"model_type\": \"qwen2_moe\", \"vocab_size\": 43, \"hidden_size\": 12,"
     " \"moe_intermediate_size\": 7, \"shared_expert_intermediate_size\": 9,"
     " \"intermediate_size\": 10, \"num_hidden_layers\": 4, \"num_attention_heads\": 6,"
     " \"num_key_value_heads\": 3, \"max_position_embeddings\": 16, \"num_experts\": 12,"
     " \"num_experts_per_tok\": 3, \"mlp_only_layers\": [1], \"tie_word_embeddings\": false}"},
    {"olmoe",
     "{\"model_type\": \"olmoe\", \"vocab_size\": 37, \"hidden_size\": 16,"
     " \"intermediate_size\": 5, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"num_experts\": 12,"
     " \"num_experts_per_tok\": 4, \"tie_word_embeddings\": false}"},
};
/* DeepSeek-V3's router, in Qwen2's layers. */
enum { MIXTRAL, QWEN, OLMOE, SHAPES, GROUPS = SHAPES };

#define MESH(replicate, shard, context, tensor, experts) \
  .dp_replicate = (replicate), .dp_shard = (shard), .cp = (context), .tp = (tensor), .ep = (experts)
#define PIPE(stages, kind) .pp = (stages), .schedule = (kind)
#define EVERY .recompute = LS_EVERY_OP, .recompute_layers = 1
#define BY(which, share, more) \
  .balance = {.form = LS_BALANCE_##which, .aux = (share), .z = (more), .loads = true}

typedef struct balance_case {
  int shape;
  ls_layout layout;
  ls_balance balance;
  bool documents;
  const char *freeze;
} balance_case;

static const balance_case cases[] = {
    {MIXTRAL, {MESH(1, 4, 1, 1, 1), .zero = 3}, BY(MODEL, 0.5, 0)},
    {MIXTRAL, {MESH(2, 2, 1, 2, 1), .zero = 1, .sequence_parallel = true}, BY(MODEL, 0.5, 0.1)},
    {QWEN, {MESH(1, 2, 2, 1, 4), .zero = 2, .microbatches = 3}, BY(MODEL, 0.5, 0), true},
    {OLMOE, {MESH(1, 2, 2, 2, 2), .zero = 3, EVERY}, BY(MODEL, 0.5, 0.1)},
    {QWEN, {MESH(1, 4, 1, 3, 2), .zero = 3, .sequence_parallel = true}, BY(LAYER, 0.5, 0)},
    {MIXTRAL,
     {MESH(1, 2, 1, 1, 1), PIPE(2, "1f1b"), .zero = 1, .microbatches = 4},
     BY(LAYER, 1, 0)},
    {QWEN,
     {MESH(1, 2, 1, 1, 2), PIPE(4, "zbh1"), .zero = 2, .microbatches = 6, EVERY},
     BY(LAYER, 0.5, 0.1)},
    {OLMOE, {MESH(1, 2, 3, 1, 1), PIPE(2, "gpipe"), .zero = 0, .microbatches = 3}, BY(LAYER, 1, 0)},
    {MIXTRAL, {MESH(1, 4, 1, 1, 2), .zero = 3, .microbatches = 2}, BY(SEQUENCE, 0.5, 0)},
    {QWEN, {MESH(2, 2, 2, 1, 4), .zero = 1, .context = LS_CONTEXT_RING}, BY(SEQUENCE, 0.5, 0.1)},
    {OLMOE,
     {MESH(1, 2, 1, 2, 2), PIPE(2, "zbv"), .zero = 3, .microbatches = 4, .prefetch = 1,
      .sequence_parallel = true},
     BY(SEQUENCE, 0.5, 0)},
    {MIXTRAL,
     {MESH(1, 2, 1, 1, 2), PIPE(2, "interleaved"), .zero = 3, .microbatches = 2, EVERY},
     BY(SEQUENCE, 0.5, 0.1)},
    {MIXTRAL,
     {MESH(1, 2, 1, 1, 1), PIPE(2, "dualpipev"), .zero = 2, .microbatches = 4},
     BY(SEQUENCE, 1, 0)},
    {MIXTRAL, {MESH(1, 3, 1, 1, 3), .zero = 1, .microbatches = 2}, BY(SEQUENCE, 0, 0.3)},
    {QWEN,
     {MESH(1, 2, 1, 1, 1), PIPE(2, "1f1b"), .zero = 1, .microbatches = 4},
     .balance = {.form = LS_BALANCE_SEQUENCE, .aux = 0.5},
     .freeze = "layers.*.router"},
    {GROUPS, {MESH(1, 4, 1, 1, 2), .zero = 3}, BY(SEQUENCE, 0.1, 0)},
    {GROUPS, {MESH(2, 2, 1, 3, 1), .zero = 1, .microbatches = 2}, BY(SEQUENCE, 0, 0)},
    {GROUPS,
     {MESH(1, 2, 2, 1, 4), PIPE(2, "1f1b"), .zero = 2, .microbatches = 4, EVERY},
     BY(LAYER, 0.1, 0.1)},
    {GROUPS,
     {MESH(1, 2, 1, 1, 1), PIPE(2, "zbh2"), .zero = 3, .microbatches = 6},
     BY(SEQUENCE, 0, 0)},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct made {
  const char *name;
  ls_model_config config;
  ls_layout layout;
  ls_experiment experiment;
  const char *freeze[1];
  ls_graph *graph;
  ls_program *stages[MOST_STAGES];
} made;

static void open_case(ls_arena *arena, int which, made *of) {
  const balance_case *c = &cases[which];
  const ls_layout usual = ls_layout_default();
  *of = (made){.layout = c->layout, .freeze = {c->freeze}};
  ls_layout *layout = &of->layout;
  if (!layout->pp) layout->pp = 1;
  if (!layout->microbatches) layout->microbatches = 1;
  layout->layers_per_unit = 1;
  layout->compute = LS_F64;
  layout->grad_dtype = usual.grad_dtype;
  layout->optimizer = usual.optimizer;
  layout->offload = usual.offload;
  of->config = ls_test_shape_config(arena, &shapes[c->shape == GROUPS ? QWEN : c->shape]);
  of->config.balance = c->balance;
  if (c->shape == GROUPS) {
    of->config.sigmoid_router = of->config.router_bias = of->config.renormalise = true;
    of->config.expert_groups = 4;
    of->config.top_groups = 2;
    of->config.route_scale = 2.5;
    of->config.balance.bias_rate = 0.05;
  }
  of->name = ls_arena_printf(arena, "%d %s, %s", which,
                             c->shape == GROUPS ? "groups" : shapes[c->shape].name,
                             ls_layout_print(arena, layout));
  of->experiment = (ls_experiment){.sequences = SEQUENCES,
                                   .sequence = SEQUENCE,
                                   .seed = 20261127,
                                   .documents = c->documents,
                                   .steps = STEPS,
                                   .freeze_count = c->freeze != NULL,
                                   .saved = which % 2 == 1,
                                   .learning_rate = 0.01};
}

/* What the address of is kept in the experiment. */
static void point(made *of) {
  of->experiment.config = &of->config;
  of->experiment.freeze = of->freeze;
}

static double difference_from_one(ls_arena *arena, const made *of, const char **where) {
  ls_experiment one_of = of->experiment;
  ls_layout one = ls_layout_default();
  ls_trajectory reference, result;
  ls_error error = {0};
  one.compute = LS_F64;
  const bool parts = of->config.balance.form != LS_BALANCE_SEQUENCE && of->config.balance.aux > 0;
  one.microbatches = parts ? of->layout.microbatches : 1;
  one_of.alter = NULL;
  one_of.saved = false;
  if (ls_trajectory_run(arena, &one_of, &one, &reference, &error) != LS_OK)
    fail_msg("%s: one device: %s", of->name, error.text);
  const ls_status status = ls_trajectory_run(arena, &of->experiment, &of->layout, &result, &error);
  *where = "replicas that differ";
  if (status == LS_FAILED && result.unlike) return 1;
  if (status != LS_OK) fail_msg("%s: %s", of->name, error.text);
  return ls_trajectory_difference(&result, &reference, where);
}

static void compile(ls_arena *arena, made *of) {
  ls_error error = {0};
  of->graph = ls_test_model(arena, &of->config, &of->layout, SEQUENCES, SEQUENCE);
  for (int p = 0; p < of->graph->parameters.count && of->experiment.freeze_count; p++)
    if (strstr(of->graph->parameters.items[p].about.name, ".router"))
      of->graph->parameters.items[p].trainable = false;
  ls_graph_backward(of->graph);
  if (ls_program_compile(of->graph, &of->layout, LS_PROGRAM_STEP, of->stages, &error) != LS_OK)
    fail_msg("%s: %s", of->name, error.text);
}

static ls_status check(const made *of, ls_error *error) {
  return ls_check(of->graph, &of->layout, (const ls_program *const *)of->stages, NULL, error);
}

static void test_layouts_equal_one_device_and_are_proved(void **state) {
  (void)state;
  const char *asked = getenv("LS_CASE");
  double worst = 0;
  int failed = 0;
  for (int which = 0; which < CASES; which++) {
    ls_arena *arena = ls_arena_create();
    made of;
    ls_error error = {0};
    const char *where;
    open_case(arena, which, &of);
    point(&of);
    if (!asked || strstr(of.name, asked)) {
      compile(arena, &of);
      const ls_status status = check(&of, &error);
      if (status != LS_OK) print_message("%s: %s\n", of.name, error.text);
      const double difference = difference_from_one(arena, &of, &where);
      if (!(difference < tolerance)) print_message("%s: %.3g in %s\n", of.name, difference, where);
      failed += status != LS_OK || !(difference < tolerance);
      if (difference > worst) worst = difference;
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts, worst difference %.3g\n", CASES, worst);
  assert_int_equal(failed, 0);
}

/* What a step without the losses, or with biases that stay, comes to is not the same. */
static void test_each_part_counts(void **state) {
  (void)state;
  for (int part = 0; part < 4; part++) {
    ls_arena *arena = ls_arena_create();
    made of;
    open_case(arena, part == 3 ? CASES - 1 : 3, &of);
    point(&of);
    of.layout = ls_layout_default();
    of.layout.compute = LS_F64;
    ls_trajectory with, without;
    ls_error error = {0};
    const char *where;
    if (ls_trajectory_run(arena, &of.experiment, &of.layout, &with, &error) != LS_OK)
      fail_msg("%s", error.text);
    if (part == 0) of.config.balance.aux = 0;
    if (part == 1) of.config.balance.z = 0;
    if (part == 2) of.config.balance.form = LS_BALANCE_SEQUENCE;
    if (part == 3) of.config.balance.bias_rate = 0;
    if (ls_trajectory_run(arena, &of.experiment, &of.layout, &without, &error) != LS_OK)
      fail_msg("%s", error.text);
    if (!(ls_trajectory_difference(&without, &with, &where) > 1e-6))
      fail_msg("part %d counts nothing", part);
    ls_arena_destroy(&arena);
  }
}

typedef bool fault(ls_program *program);

static bool is_of(const ls_program *program, int value, const char *what) {
  return strstr(program->values.items[value].name, what) != NULL;
}

/* An all-reduce of loads becomes a copy to where they are. */
static bool loads_of_own_sequences(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *of = &program->instructions.items[i];
    if (of->collective != LS_ALL_REDUCE || !is_of(program, of->in[0], "router_loads") ||
        of->in[0] == of->out[0])
      continue;
    of->axes = 0;
    of->collective = LS_COLLECTIVE_NONE;
    any = true;
  }
  return any;
}

static bool told_loads_of_one_rank(ls_program *program) {
  int kept = 0, before = program->instructions.count;
  for (int i = 0; i < before; i++) {
    const ls_instruction *of = &program->instructions.items[i];
    if (of->collective == LS_ALL_REDUCE && program->loads.count &&
        of->in[0] == program->loads.items[0]) {
      for (int a = 0; a < program->bodies.count; a++) {
        ls_body *body = &program->bodies.items[a];
        if (i >= body->first && i < body->first + body->count)
          body->count--;
        else if (body->first > i)
          body->first--;
      }
      memmove(&program->instructions.items[i], &program->instructions.items[i + 1],
              sizeof *of * (size_t)(before - i - 1));
      program->instructions.count--;
      return true;
    }
    kept++;
  }
  return kept < before;
}

/* Of several layers that pay the last alone is paid. */
static bool losses_of_others_lost(ls_program *program) {
  for (int i = program->instructions.count - 1; i >= 0; i--) {
    ls_instruction *of = &program->instructions.items[i];
    if (of->kind != LS_OP_ROUTER_LOSS && of->kind != LS_OP_ROUTER_LOSS_EACH) continue;
    of->write[0] = LS_WRITE;
    return true;
  }
  return false;
}

/* The slope is that of other loads. */
static bool slopes_by_another_scale(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *of = &program->instructions.items[i];
    if (of->kind != LS_OP_ROUTER_LOSS_BWD && of->kind != LS_OP_ROUTER_LOSS_EACH_BWD) continue;
    of->attributes.scale *= 2;
    return true;
  }
  return false;
}

static bool loads_of_another_layer(ls_program *program) {
  if (program->loads.count < 2) return false;
  const int first = program->loads.items[0];
  program->loads.items[0] = program->loads.items[1];
  program->loads.items[1] = first;
  return true;
}

static void test_faults_are_refuted(void **state) {
  (void)state;
  static const struct {
    const char *name;
    fault *change;
    int of; /* case */
  } faults[] = {
      {"loads of own sequences", loads_of_own_sequences, 4},
      {"told loads of one rank", told_loads_of_one_rank, 0},
      {"losses of others lost", losses_of_others_lost, 8},
      {"slopes by another scale", slopes_by_another_scale, 0},
      {"loads of another layer", loads_of_another_layer, 0},
  };
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_arena *arena = ls_arena_create();
    made wrong;
    ls_error error = {0};
    open_case(arena, faults[f].of, &wrong);
    point(&wrong);
    compile(arena, &wrong);
    if (!faults[f].change(wrong.stages[0])) fail_msg("%s: nothing to change", faults[f].name);
    if (check(&wrong, &error) != LS_REFUTED) fail_msg("%s: accepted", faults[f].name);
    print_message("%s: %s\n", faults[f].name, error.text);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_equal_one_device_and_are_proved),
                                     cmocka_unit_test(test_each_part_counts),
                                     cmocka_unit_test(test_faults_are_refuted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
