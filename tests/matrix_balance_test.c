/* What keeps experts in balance is the same training on many devices as on one, in fp64 on the
 * reference kernels: the loss by loads of all layers together, of each layer and of each sequence,
 * the z-loss of routers, and correction biases that follow the loads of a step; in families with
 * shared experts, layers without experts and groups of experts too. Loads of the whole and of parts
 * of a step are those of one device with as many microbatches. Every program is proved, every other
 * one saved and read back; and programs that lack a part of loads or losses are refuted. */
#include <math.h>
#include <string.h>

#include "support/layouts.h"
#include "support/program_faults.h"

enum { SEQUENCES = 24, SEQUENCE = 12, STEPS = 3 };

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
#define SENT .exchange = LS_EXCHANGE_ALL_TO_ALL
#define OVER_TP .whole_experts = true, SP
#define BY(which, share, more) \
  .balance = {.form = LS_BALANCE_##which, .aux = (share), .z = (more), .loads = true}

typedef struct balance_case {
  int shape;
  ls_layout layout;
  ls_balance balance;
  bool documents;
  const char *freeze;
  ls_model_pairs pairs;
} balance_case;

static const balance_case cases[] = {
    {MIXTRAL, {MESH(1, 4, 1, 1, 1), .zero = 3}, BY(MODEL, 0.5, 0)},
    {MIXTRAL, {MESH(2, 2, 1, 2, 1), .zero = 1, SP}, BY(MODEL, 0.5, 0.1)},
    {QWEN, {MESH(1, 2, 2, 1, 4), .zero = 2, .microbatches = 3}, BY(MODEL, 0.5, 0), true},
    {OLMOE, {MESH(1, 2, 2, 2, 2), .zero = 3, EVERY}, BY(MODEL, 0.5, 0.1)},
    {QWEN, {MESH(1, 4, 1, 3, 2), .zero = 3, SP}, BY(LAYER, 0.5, 0)},
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
     {MESH(1, 2, 1, 2, 2), PIPE(2, "zbv"), .zero = 3, .microbatches = 4, .prefetch = 1, SP},
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
    /* of pairs of answers */
    {MIXTRAL,
     {MESH(1, 2, 1, 2, 2), .zero = 3, SP, .microbatches = 3},
     BY(SEQUENCE, 0.5, 0.1),
     .pairs = {.beta = 0.1}},
    {QWEN,
     {MESH(2, 2, 1, 1, 2), PIPE(2, "1f1b"), .zero = 1, .microbatches = 3, EVERY},
     BY(SEQUENCE, 0.5, 0),
     .pairs = {.beta = 0.2, .odds = true}},
    {OLMOE, {MESH(1, 3, 1, 1, 1), .zero = 2}, BY(SEQUENCE, 0, 0.3), .pairs = {.beta = 0.1}},
    {GROUPS, {MESH(1, 4, 1, 1, 2), .zero = 3}, BY(SEQUENCE, 0.1, 0)},
    {GROUPS, {MESH(2, 2, 1, 3, 1), .zero = 1, .microbatches = 2}, BY(SEQUENCE, 0, 0)},
    {GROUPS,
     {MESH(1, 2, 2, 1, 4), PIPE(2, "1f1b"), .zero = 2, .microbatches = 4, EVERY},
     BY(LAYER, 0.1, 0.1)},
    {GROUPS,
     {MESH(1, 2, 1, 1, 1), PIPE(2, "zbh2"), .zero = 3, .microbatches = 6},
     BY(SEQUENCE, 0, 0)},
    /* experts over tp too, whose ranks count tokens of their own */
    {MIXTRAL, {MESH(1, 2, 1, 2, 2), OVER_TP, .zero = 3}, BY(MODEL, 0.5, 0.1)},
    {MIXTRAL, {MESH(1, 3, 1, 2, 6), SENT, OVER_TP, .zero = 1}, BY(MODEL, 0.5, 0)},
    {QWEN, {MESH(1, 2, 1, 3, 6), SENT, OVER_TP, .zero = 2, .microbatches = 2}, BY(LAYER, 0.5, 0.1)},
    {QWEN,
     {MESH(2, 1, 1, 3, 3), OVER_TP, PIPE(2, "1f1b"), .zero = 3, .microbatches = 4},
     BY(SEQUENCE, 0.5, 0.1),
     true},
    {OLMOE,
     {MESH(1, 2, 2, 2, 4), SENT, OVER_TP, .zero = 3, .context = LS_CONTEXT_RING},
     BY(SEQUENCE, 0.5, 0.1)},
    {MIXTRAL,
     {MESH(1, 2, 1, 2, 2), SENT, OVER_TP, .zero = 3, .microbatches = 3},
     BY(SEQUENCE, 0.5, 0.1),
     .pairs = {.beta = 0.1}},
    {GROUPS, {MESH(1, 2, 1, 3, 6), SENT, OVER_TP, .zero = 3}, BY(SEQUENCE, 0.1, 0)},
    {GROUPS,
     {MESH(1, 1, 1, 3, 3), OVER_TP, PIPE(2, "1f1b"), .zero = 2, .microbatches = 4, EVERY},
     BY(LAYER, 0.1, 0.1)},
};
enum { CASES = sizeof cases / sizeof *cases };

/* A case, in memory that its experiment points to. */
typedef struct balance_run {
  const char *name;
  ls_model_config config;
  ls_layout layout;
  const char *freeze[1];
  ls_experiment experiment;
} balance_run;

static balance_run *open_case(ls_arena *arena, int which) {
  const balance_case *c = &cases[which];
  balance_run *of = LS_NEW(arena, balance_run);
  of->layout = ls_test_layout_of(&c->layout);
  of->freeze[0] = c->freeze;
  of->config = ls_test_shape_config(arena, &shapes[c->shape == GROUPS ? QWEN : c->shape]);
  of->config.balance = c->balance;
  if (c->shape == GROUPS) {
    of->config.sigmoid_router = of->config.router_bias = of->config.renormalise = true;
    of->config.expert_groups = 4;
    of->config.top_groups = 2;
    of->config.route_scale = 2.5;
    of->config.balance.bias_rate = 0.05;
  }
  of->name =
      ls_arena_printf(arena, "%d %s", which, c->shape == GROUPS ? "groups" : shapes[c->shape].name);
  of->experiment = (ls_experiment){.config = &of->config,
                                   .sequences = SEQUENCES,
                                   .sequence = SEQUENCE,
                                   .seed = 20261127,
                                   .documents = c->documents,
                                   .pairs = c->pairs,
                                   .steps = STEPS,
                                   .freeze = of->freeze,
                                   .freeze_count = c->freeze != NULL,
                                   .saved = which % 2 == 1,
                                   .learning_rate = 0.01};
  return of;
}

/* Loads of parts of a step are those of one device with as many microbatches. */
static void train_one_device(ls_arena *arena, const balance_run *of, ls_trajectory *reference) {
  const ls_balance *balance = &of->config.balance;
  ls_layout one = ls_test_layout_default();
  ls_error error = {0};
  one.compute = LS_F64;
  if (balance->form != LS_BALANCE_SEQUENCE && balance->aux > 0)
    one.microbatches = of->layout.microbatches;
  if (ls_trajectory_run(arena, &of->experiment, &one, reference, &error) != LS_OK)
    fail_msg("%s: one device: %s", of->name, error.text);
}

static void test_layouts_equal_one_device_and_are_proved(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int which = 0; which < CASES; which++) {
    ls_arena *arena = ls_arena_create();
    const balance_run *of = open_case(arena, which);
    ls_trajectory reference;
    train_one_device(arena, of, &reference);
    ls_test_tally_layout(&tally, &of->experiment, &reference, &of->layout,
                         ls_test_layout_print(arena, &of->layout, of->name));
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, CASES, 0);
}

/* What a step without the losses, or with biases that stay, comes to is not the same. */
static void test_each_part_counts(void **state) {
  (void)state;
  for (int part = 0; part < 4; part++) {
    ls_arena *arena = ls_arena_create();
    balance_run *of = open_case(arena, part == 3 ? CASES - 1 : 3);
    ls_layout one = ls_test_layout_default();
    one.compute = LS_F64;
    ls_trajectory with, without;
    ls_error error = {0};
    const char *where;
    if (ls_trajectory_run(arena, &of->experiment, &one, &with, &error) != LS_OK)
      fail_msg("%s", error.text);
    if (part == 0) of->config.balance.aux = 0;
    if (part == 1) of->config.balance.z = 0;
    if (part == 2) of->config.balance.form = LS_BALANCE_SEQUENCE;
    if (part == 3) of->config.balance.bias_rate = 0;
    if (ls_trajectory_run(arena, &of->experiment, &one, &without, &error) != LS_OK)
      fail_msg("%s", error.text);
    if (!(ls_trajectory_difference(&without, &with, &where) > 1e-6))
      fail_msg("part %d counts nothing", part);
    ls_arena_destroy(&arena);
  }
}

/* How far a bias has moved from where it stays without a rate, in rates. */
static double moved(const balance_run *of, const double *bias, const double *still, int64_t e) {
  return (bias[e] - still[e]) / of->config.balance.bias_rate;
}

/* A layer's biases after the first and the last step: each has moved by one rate or not at all,
 * some up and some down; and by as many as there were steps at most. */
static void check_moves(const balance_run *of, const ls_trajectory *with,
                        const ls_trajectory *still, int p) {
  int up = 0, down = 0;
  for (int64_t e = 0; e < with->elements[p]; e++) {
    const double first = moved(of, with->first[p], still->first[p], e);
    const double final = moved(of, with->final[p], still->final[p], e);
    assert_true(fabs(first - round(first)) < 1e-9 && fabs(first) < 1.5);
    assert_true(fabs(final - round(final)) < 1e-9 && fabs(final) < STEPS + 0.5);
    up += first > 0.5;
    down += first < -0.5;
  }
  assert_true(up > 0 && down > 0);
}

/* On one device, over ranks that each count some tokens, and where a step was made again. */
static void test_biases_move_once_a_step(void **state) {
  (void)state;
  static const ls_layout layouts[] = {
      {MESH(1, 1, 1, 1, 1)},
      {MESH(2, 2, 1, 1, 2), .zero = 1, .microbatches = 2},
      {MESH(1, 4, 1, 1, 2), .zero = 3, SENT, .expert_bound = 100},
  };
  for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
    ls_arena *arena = ls_arena_create();
    balance_run *of = open_case(arena, CASES - 1);
    const ls_layout layout = ls_test_layout_of(&layouts[l]);
    ls_trajectory with, still;
    ls_error error = {0};
    int found = 0;
    const double rate = of->config.balance.bias_rate;
    if (ls_trajectory_run(arena, &of->experiment, &layout, &with, &error) != LS_OK)
      fail_msg("%s", error.text);
    of->config.balance.bias_rate = 0;
    if (ls_trajectory_run(arena, &of->experiment, &layout, &still, &error) != LS_OK)
      fail_msg("%s", error.text);
    of->config.balance.bias_rate = rate;
    if (layout.expert_bound) assert_true(with.repeated > 0);
    for (int p = 0; p < with.parameters; p++) {
      if (!strstr(with.name[p], "router") || !strstr(with.name[p], "bias")) continue;
      check_moves(of, &with, &still, p);
      found++;
    }
    assert_int_equal(found, 3); /* one layer is dense */
    ls_arena_destroy(&arena);
  }
}

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
    int of; /* case */
    ls_test_fault fault;
  } faults[] = {
      {4, {"loads of own sequences", loads_of_own_sequences, NULL, false}},
      {0, {"told loads of one rank", told_loads_of_one_rank, NULL, false}},
      {8, {"losses of others lost", losses_of_others_lost, NULL, false}},
      {0, {"slopes by another scale", slopes_by_another_scale, NULL, false}},
      {0, {"loads of another layer", loads_of_another_layer, NULL, false}},
  };
  for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
    ls_arena *arena = ls_arena_create();
    const balance_run *of = open_case(arena, faults[f].of);
    ls_test_refute(&of->experiment, &of->layout, &faults[f].fault, 1);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_equal_one_device_and_are_proved),
                                     cmocka_unit_test(test_each_part_counts),
                                     cmocka_unit_test(test_biases_move_once_a_step),
                                     cmocka_unit_test(test_faults_are_refuted)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
