/* Experts held to a capacity (experts.drop) drop the same rows on many devices as on one, in fp64
 * on the reference kernels: over ranks that share out sequences, their tokens, experts and columns,
 * with rows gathered and sent, pipelines, recomputation and frozen parts; every program is proved,
 * every other one saved and read back, a sample runs on the CPU's own kernels. With room for all
 * rows the training is that without a capacity, bit for bit. Programs that count otherwise, drop
 * what another layer drops or keep what is dropped are refuted, and change the training. */
#include <string.h>

#include "support/layouts.h"
#include "support/program_faults.h"

enum { SEQUENCES = 24, SEQUENCE = 12, STEPS = 2 };

static const ls_test_shape shapes[] = {
    {"mixtral",
     "{\"model_type\": \"mixtral\", \"vocab_size\": 41, \"hidden_size\": 16,"
     " \"intermediate_size\": 13, \"num_hidden_layers\": 2, \"num_attention_heads\": 8,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 16, \"num_local_experts\": 6,"
     " \"num_experts_per_tok\": 2, \"tie_word_embeddings\": false}"},
    {"qwen3_moe",
     "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 43, \"hidden_size\": 12,"
     " \"moe_intermediate_size\": 7, \"num_hidden_layers\": 4, \"num_attention_heads\": 6,"
     " \"num_key_value_heads\": 3, \"head_dim\": 4, \"max_position_embeddings\": 16,"
     " \"num_experts\": 12, \"num_experts_per_tok\": 3, \"tie_word_embeddings\": true,"
     " \"norm_topk_prob\": true}"},
    {"gpt_oss",
     "{\"model_type\": \"gpt_oss\", \"vocab_size\": 37, \"hidden_size\": 16,"
     " \"intermediate_size\": 5, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"head_dim\": 4, \"max_position_embeddings\": 16,"
     " \"sliding_window\": 4, \"num_local_experts\": 6, \"num_experts_per_tok\": 2,"
     " \"tie_word_embeddings\": false}"},
};
enum { MIXTRAL, QWEN, OSS, SHAPES };

#define MESH(replicate, shard, context, tensor, experts) \
  .dp_replicate = (replicate), .dp_shard = (shard), .cp = (context), .tp = (tensor), .ep = (experts)
#define SENT .exchange = LS_EXCHANGE_ALL_TO_ALL
#define OVER_TP .whole_experts = true, SP

typedef struct capacity_case {
  int shape;
  ls_layout layout;
  double drop;
  bool documents;
  const char *freeze;
} capacity_case;

static const capacity_case cases[] = {
    {.shape = MIXTRAL, .layout = {MESH(1, 2, 1, 1, 1), .zero = 3, .microbatches = 3}, .drop = 1},
    {.shape = QWEN, .layout = {MESH(2, 2, 1, 3, 1), .zero = 1, SP}, .drop = 1.25},
    {.shape = MIXTRAL, .layout = {MESH(1, 1, 2, 1, 1), .zero = 0}, .drop = 1},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 3, 1, 1), .zero = 2, .microbatches = 2, EVERY},
     .drop = 0.5,
     .documents = true},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 2, 2, 1), .zero = 3, SP, .context = LS_CONTEXT_RING},
     .drop = 0.75},
    {.shape = MIXTRAL, .layout = {MESH(1, 4, 1, 1, 2), .zero = 3, .prefetch = 1}, .drop = 1},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 2, 1, 4), .zero = 1, .microbatches = 2},
     .drop = 1,
     .documents = true},
    {.shape = QWEN, .layout = {MESH(1, 3, 1, 3, 3), .zero = 0, SP}, .drop = 1.25},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 1, 1, 2), PIPE(2, "zbv"), .zero = 3, .microbatches = 4},
     .drop = 1},
    {.shape = MIXTRAL, .layout = {MESH(1, 4, 1, 1, 2), SENT, .zero = 2}, .drop = 1},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 2, 1, 4), SENT, .zero = 1, .microbatches = 2},
     .drop = 1,
     .documents = true},
    {.shape = QWEN,
     .layout = {MESH(1, 4, 3, 1, 6), SENT, .zero = 3, .context = LS_CONTEXT_RING},
     .drop = 0.75},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 3, 1, 2, 3), SENT, .expert_bound = 50, .zero = 3, SP, EVERY},
     .drop = 1},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 2, 1, 2), SENT, PIPE(2, "1f1b"), .zero = 1, .microbatches = 4,
                .context = LS_CONTEXT_ULYSSES},
     .drop = 1},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 2, 1, 1, 2), .zero = 1},
     .drop = 1,
     .freeze = "layers.*.router"},
    {.shape = OSS, .layout = {MESH(1, 2, 2, 1, 2), .zero = 3}, .drop = 1},
    {.shape = OSS, .layout = {MESH(1, 3, 1, 1, 3), SENT, .zero = 2}, .drop = 1},
    /* experts over tp too, whose ranks have parts of sequences */
    {.shape = MIXTRAL, .layout = {MESH(1, 3, 1, 2, 6), OVER_TP, .zero = 1}, .drop = 1},
    {.shape = QWEN,
     .layout = {MESH(1, 2, 1, 3, 6), SENT, OVER_TP, .zero = 3, .microbatches = 12},
     .drop = 0.75},
    {.shape = MIXTRAL,
     .layout = {MESH(1, 1, 3, 2, 6), SENT, OVER_TP, .zero = 2, .microbatches = 8},
     .drop = 1,
     .documents = true},
    {.shape = QWEN,
     .layout = {MESH(1, 1, 1, 6, 6), SENT, OVER_TP, .zero = 0, .microbatches = 24},
     .drop = 0.5},
    {.shape = OSS,
     .layout = {MESH(1, 2, 1, 2, 2), SENT, OVER_TP, .expert_bound = 50, .zero = 3, EVERY},
     .drop = 1},
};
enum { CASES = sizeof cases / sizeof *cases, EACH = 5, SOME = 5 };

/* A case, in memory that its experiment points to. */
typedef struct capacity_run {
  const char *name;
  ls_model_config config;
  ls_layout layout;
  const char *freeze[1];
  ls_experiment experiment;
} capacity_run;

static capacity_run *open_case(ls_arena *arena, int which) {
  const capacity_case *c = &cases[which];
  capacity_run *of = LS_NEW(arena, capacity_run);
  of->name = ls_arena_printf(arena, "%d %s", which, shapes[c->shape].name);
  of->layout = ls_test_layout_of(&c->layout);
  of->freeze[0] = c->freeze;
  of->config = ls_test_shape_config(arena, &shapes[c->shape]);
  of->config.balance = (ls_balance){.form = LS_BALANCE_SEQUENCE, .aux = 0.1, .drop = c->drop};
  of->experiment = (ls_experiment){.config = &of->config,
                                   .sequences = SEQUENCES,
                                   .sequence = SEQUENCE,
                                   .seed = 20261126,
                                   .documents = c->documents,
                                   .steps = STEPS,
                                   .freeze = of->freeze,
                                   .freeze_count = c->freeze != NULL,
                                   .saved = which % 2 == 1,
                                   .learning_rate = 0.01};
  return of;
}

static void test_layouts_equal_one_device_and_are_proved(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int which = 0; which < CASES; which++) {
    ls_arena *arena = ls_arena_create();
    const capacity_run *of = open_case(arena, which);
    ls_test_equal_layout(&tally, &of->experiment, &of->layout, of->name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, CASES, 0);
}

/* A router of zeros finds all experts alike: all tokens choose the first ones. */
static void test_forced_routing(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int which = 1; which < CASES; which += EACH) {
    ls_arena *arena = ls_arena_create();
    capacity_run *of = open_case(arena, which);
    of->experiment.zeroed = "router.weight";
    ls_test_equal_layout(&tally, &of->experiment, &of->layout, of->name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, SOME, 0);
}

static void test_the_cpus_kernels(void **state) {
  (void)state;
  ls_test_tally tally = {.tolerance = 1e-3};
  for (int which = 1; which < CASES; which += EACH) {
    ls_arena *arena = ls_arena_create();
    capacity_run *of = open_case(arena, which);
    of->layout.compute = LS_F32;
    of->experiment.device.kind = "cpu";
    ls_test_equal_layout(&tally, &of->experiment, &of->layout, of->name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, SOME, 0);
}

static void train(ls_arena *arena, capacity_run *of, double drop, ls_trajectory *result) {
  ls_error error = {0};
  of->config.balance.drop = drop;
  if (ls_trajectory_run(arena, &of->experiment, &of->layout, result, &error) != LS_OK)
    fail_msg("%s: %s", of->name, error.text);
}

/* Room for all tokens of a sequence; and none, for one. */
static void test_room_for_all_rows_is_no_capacity(void **state) {
  (void)state;
  for (int which = 0; which < CASES; which += EACH) {
    ls_arena *arena = ls_arena_create();
    capacity_run *of = open_case(arena, which);
    ls_trajectory without, with, less;
    const char *where;
    const double all = (double)of->config.experts / (double)of->config.experts_per_token;
    train(arena, of, 0, &without);
    train(arena, of, all, &with);
    train(arena, of, cases[which].drop, &less);
    assert_true(ls_trajectory_difference(&with, &without, &where) == 0);
    if (!(ls_trajectory_difference(&less, &without, &where) > 1e-6))
      fail_msg("%s drops nothing", of->name);
    ls_arena_destroy(&arena);
  }
}

/* More room than there is. */
static bool room_for_more(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_CAPACITY)) continue;
    each->attributes.slots++;
    any = true;
  }
  return any;
}

/* An operand is what a collective, or a slice, in front of it was to bring. */
static bool leave_out_move(ls_program *program, ls_op_kind kind, int input) {
  for (int n = 0; n < program->instructions.count; n++) {
    ls_instruction *each = &program->instructions.items[n];
    if (!ls_test_is_op(each, kind)) continue;
    for (int i = 0; i < n; i++) {
      const ls_instruction *move = &program->instructions.items[i];
      if (move->out[0] != each->in[input] || ls_test_is_op(move, LS_OP_CAPACITY)) continue;
      if (move->collective != LS_ALL_GATHER && !ls_test_is_op(move, LS_OP_COPY)) continue;
      each->in[input] = move->in[0];
      return true;
    }
  }
  return false;
}

static bool counts_of_own_tokens(ls_program *program) {
  return leave_out_move(program, LS_OP_CAPACITY, 0);
}

static bool rows_in_their_own_order(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_CAPACITY) || each->inputs < 3) continue;
    each->inputs--;
    any = true;
  }
  return any;
}

/* An operand is that of the first op of its kind, of another layer. */
static bool take_of_another_layer(ls_program *program, ls_op_kind kind, int input) {
  const ls_instruction *first = NULL;
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, kind)) continue;
    if (!first) first = each;
    if (each->in[input] == first->in[input]) continue;
    each->in[input] = first->in[input];
    return true;
  }
  return false;
}

static bool drops_of_another_layer(ls_program *program) {
  return take_of_another_layer(program, LS_OP_KEEP, 2);
}

static bool gradients_by_rows_before(ls_program *program) {
  ls_instruction *back = ls_test_need(program, LS_OP_KEEP_BWD, 0);
  back->in[2] = back->in[1];
  return true;
}

/* Of several microbatches the last one's alone are told. */
static bool told_of_one_microbatch(ls_program *program) {
  for (int i = 0; i < program->instructions.count; i++) {
    ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_CAPACITY) || each->write[0] != LS_ADD_AFTER_FIRST) continue;
    each->write[0] = LS_WRITE;
    return true;
  }
  return false;
}

static bool loads_for_drops(ls_program *program) {
  const int first = program->loads.items[0];
  program->loads.items[0] = program->loads.items[1];
  program->loads.items[1] = first;
  return true;
}

static void test_faults_are_refuted_and_change_the_training(void **state) {
  (void)state;
  enum { WHOLE = 0, PARTS = 2 };
  static const struct {
    int of; /* case */
    ls_test_fault fault;
  } faults[] = {
      {WHOLE, {"room for more", room_for_more, NULL, true}},
      {PARTS, {"counts of own tokens", counts_of_own_tokens, NULL, false}},
      {PARTS, {"rows in their own order", rows_in_their_own_order, NULL, true}},
      {WHOLE, {"drops of another layer", drops_of_another_layer, NULL, false}},
      {WHOLE, {"gradients by rows before", gradients_by_rows_before, NULL, true}},
      {WHOLE, {"told of one microbatch", told_of_one_microbatch, NULL, false}},
      {WHOLE, {"loads for drops", loads_for_drops, NULL, false}},
  };
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_arena *arena = ls_arena_create();
    const capacity_run *of = open_case(arena, faults[f].of);
    ls_test_refute(&of->experiment, &of->layout, &faults[f].fault, 1);
    ls_arena_destroy(&arena);
  }
}

static void keep_what_is_dropped(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_KEEP, 0)->in[2] =
      ls_test_find_node(graph, LS_OP_CHOICES, 0)->out[0];
}

static void give_one_layer_more_room(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_CAPACITY, 1)->attributes.slots++;
}

static void count_all_sequences_as_one(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_CAPACITY, 0)->attributes.sequence *= 2;
}

static void test_wrong_models_are_told(void **state) {
  (void)state;
  static const ls_test_wrong_model wrong[] = {
      {keep_what_is_dropped, NULL},
      {give_one_layer_more_room, "slots"},
      {count_all_sequences_as_one, "sequence"},
  };
  ls_arena *arena = ls_arena_create();
  const capacity_run *of = open_case(arena, 0);
  ls_test_refute_models(&of->experiment, &of->layout, wrong, sizeof wrong / sizeof *wrong);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts_equal_one_device_and_are_proved),
      cmocka_unit_test(test_forced_routing),
      cmocka_unit_test(test_the_cpus_kernels),
      cmocka_unit_test(test_room_for_all_rows_is_no_capacity),
      cmocka_unit_test(test_faults_are_refuted_and_change_the_training),
      cmocka_unit_test(test_wrong_models_are_told)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
