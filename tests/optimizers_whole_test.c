/* Optimizers whose update is of whole parameters: Muon, AdamW with moments of 8 bits, whose blocks
 * cross every cut, and Adafactor, whose means of rows and columns do. In every kind of layout the
 * same training as on one device; what each keeps; and what is not their update is disproved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/check.h"
#include "cost/cost.h"
#include "lower/compile.h"
#include "support/layouts.h"
#include "support/program_faults.h"
#include "support/thinned.h"
#include "verify/equality.h"

enum { MOST_STAGES = 2, STEPS = 4 };
static const double tolerance = 1e-10;

/* Matrices of 4,096 elements and more, that neither blocks nor axes divide, and of fewer; tied, and
 * of experts. */
static const ls_test_shape shapes[] = {
    {"llama",
     "{\"model_type\": \"llama\", \"vocab_size\": 131, \"hidden_size\": 48,"
     " \"intermediate_size\": 100, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"max_position_embeddings\": 32}"},
    {"gpt2",
     "{\"model_type\": \"gpt2\", \"vocab_size\": 131, \"n_positions\": 8, \"n_embd\": 40,"
     " \"n_layer\": 2, \"n_head\": 4, \"n_inner\": 103}"},
    {"mixtral",
     "{\"model_type\": \"mixtral\", \"vocab_size\": 131, \"hidden_size\": 48,"
     " \"intermediate_size\": 36, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"num_local_experts\": 4, \"num_experts_per_tok\": 2,"
     " \"max_position_embeddings\": 32}"},
};
enum { LLAMA, GPT2, MIXTRAL };

static const ls_optimizer_kind kinds[] = {LS_OPTIMIZER_ADAMW8BIT, LS_OPTIMIZER_MUON,
                                          LS_OPTIMIZER_ADAFACTOR};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct {
  int shape;
  ls_layout layout;
} cases[] = {
    {LLAMA, {.dp_shard = 2, .zero = 1, .microbatches = 1}},
    {LLAMA, {.dp_shard = 3, .zero = 2, .microbatches = 2}},
    {LLAMA, {.dp_shard = 4, .zero = 3, .microbatches = 1, .layers_per_unit = 2}},
    {LLAMA, {.dp_replicate = 2, .dp_shard = 2, .zero = 3, .microbatches = 2}},
    {LLAMA, {.tp = 2, .sequence_parallel = true, .microbatches = 1}},
    {LLAMA, {.tp = 4, .dp_shard = 2, .zero = 3, .microbatches = 1}},
    {LLAMA, {.pp = 2, .dp_shard = 2, .zero = 1, .microbatches = 4}},
    {LLAMA, {.pp = 2, .tp = 2, .dp_shard = 2, .zero = 3, .microbatches = 2}},
    {LLAMA, {.cp = 2, .dp_shard = 2, .zero = 3, .microbatches = 1}},
    {LLAMA, {.microbatches = 1, .offload = {.optimizer = LS_TIER_HOST}}},
    {LLAMA,
     {.tp = 2,
      .dp_shard = 2,
      .zero = 3,
      .microbatches = 1,
      .offload = {.optimizer = LS_TIER_HOST, .parameters = LS_TIER_HOST}}},
    {LLAMA, {.dp_shard = 3, .zero = 2, .microbatches = 1, .offload = {.optimizer = LS_TIER_NVME}}},
    {GPT2, {.tp = 2, .dp_shard = 2, .zero = 2, .microbatches = 1}},
    {GPT2, {.pp = 2, .dp_shard = 2, .zero = 3, .microbatches = 2}},
    {MIXTRAL, {.dp_shard = 2, .ep = 2, .zero = 3, .microbatches = 1}},
    {MIXTRAL, {.dp_shard = 2, .tp = 2, .ep = 2, .zero = 2, .microbatches = 1}},
    /* Ranks in odd numbers, more of them than a layer has matrices, and that all have all. */
    {LLAMA, {.dp_replicate = 3, .microbatches = 1, .layers_per_unit = 1}},
    {LLAMA, {.dp_replicate = 2, .dp_shard = 3, .zero = 1, .microbatches = 1}},
    {LLAMA, {.dp_shard = 12, .zero = 3, .microbatches = 1, .layers_per_unit = 1}},
    {LLAMA, {.pp = 2, .cp = 2, .tp = 2, .dp_shard = 3, .zero = 2, .microbatches = 2}},
    {GPT2, {.tp = 4, .dp_replicate = 3, .microbatches = 1}},
    {GPT2, {.dp_shard = 3, .zero = 3, .microbatches = 1, .offload = {.optimizer = LS_TIER_HOST}}},
};
enum { CASES = sizeof cases / sizeof *cases };

static ls_optimizer optimizer_of(ls_optimizer_kind kind) {
  return (ls_optimizer){.kind = kind,
                        .beta1 = 0.9,
                        .beta2 = 0.97,
                        .epsilon = 1e-6,
                        .weight_decay = 0.2,
                        .momentum = 0.8,
                        .parameter_scale = kind == LS_OPTIMIZER_ADAFACTOR,
                        .clip = 0.15};
}

static ls_layout layout_of(int number, ls_optimizer_kind kind) {
  ls_layout made = cases[number].layout;
  for (int a = 0; a < LS_LAYOUT_AXES; a++)
    if (ls_layout_size(&made, a) == 0) ls_layout_set_size(&made, a, 1);
  if (made.ep == 0) made.ep = 1;
  made.compute = LS_F64;
  made.optimizer = optimizer_of(kind);
  if (made.offload.optimizer) made.offload.optimizer_fraction = 1;
  return made;
}

typedef struct compiled {
  ls_graph *graph;
  ls_layout layout;
  ls_program *stages[MOST_STAGES];
} compiled;

static compiled compile(ls_arena *arena, const ls_model_config *config, const ls_layout *layout) {
  compiled made = {.layout = *layout};
  ls_error error = {0};
  made.graph = ls_test_model(arena, config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
  ls_graph_backward(made.graph);
  if (ls_program_compile(made.graph, layout, LS_PROGRAM_STEP, made.stages, &error) != LS_OK)
    fail_msg("%s", error.text);
  return made;
}

static void expect_proof(const compiled *of, const char *refuted) {
  const ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  for (int s = 0; s < of->layout.pp; s++) stages[s] = of->stages[s];
  const ls_status status = ls_check(of->graph, &of->layout, stages, NULL, &error);
  if (!refuted && status != LS_OK) fail_msg("%s", error.text);
  if (refuted && (status != LS_REFUTED || !strstr(error.text, refuted)))
    fail_msg("%s expected: %s", refuted, error.text);
}

static void run(ls_arena *arena, const ls_model_config *config, const char *folder,
                const ls_layout *layout, ls_trajectory *made) {
  const ls_experiment experiment = {.config = config,
                                    .sequences = LS_TEST_SEQUENCES,
                                    .sequence = LS_TEST_SEQUENCE,
                                    .saved = true,
                                    .learning_rate = 3e-3,
                                    .offload_path = folder,
                                    .steps = STEPS,
                                    .seed = 20261126};
  ls_error error = {0};
  if (ls_trajectory_run(arena, &experiment, layout, made, &error) != LS_OK)
    fail_msg("%s: %s", ls_test_layout_print(arena, layout, ""), error.text);
}

static void every_layout_is_the_same_training(void **state) {
  (void)state;
  char folder[] = "/tmp/lockstep-optimizers-XXXXXX";
  assert_non_null(mkdtemp(folder));
  for (int k = 0; k < KINDS; k++)
    for (int shape = LLAMA; shape <= MIXTRAL; shape++) {
      /* A bias of keys has no gradient but rounding. */
      if (kinds[k] == LS_OPTIMIZER_ADAFACTOR && shape == GPT2) continue;
      ls_arena *arena = ls_arena_create();
      const ls_model_config config = ls_test_shape_config(arena, &shapes[shape]);
      ls_layout single = ls_layout_default();
      single.compute = LS_F64;
      single.optimizer = optimizer_of(kinds[k]);
      ls_trajectory one, many;
      run(arena, &config, folder, &single, &one);
      for (int c = 0; c < CASES; c++) {
        if (cases[c].shape != shape || ls_test_left_out(c + k, 3)) continue;
        const ls_layout layout = layout_of(c, kinds[k]);
        const compiled made = compile(arena, &config, &layout);
        expect_proof(&made, NULL);
        run(arena, &config, folder, &layout, &many);
        const char *where, *name = ls_test_layout_print(arena, &layout, shapes[shape].name);
        const double difference = ls_trajectory_difference(&many, &one, &where);
        if (!(difference <= tolerance))
          fail_msg("%s, %s: %.3g in %s", ls_optimizer_row_of(&layout.optimizer)->name, name,
                   difference, where);
      }
      ls_arena_destroy(&arena);
    }
  rmdir(folder);
}

/* Bytes of moments of one device in fp32, without the room between parameters. */
static int64_t moments_of(ls_arena *arena, const ls_model_config *config, ls_optimizer_kind kind) {
  ls_layout layout = ls_layout_default();
  layout.optimizer = optimizer_of(kind);
  const compiled made = compile(arena, config, &layout);
  int64_t bytes = 0;
  for (int p = 0; p < made.stages[0]->parameter_count; p++)
    for (int part = LS_PART_MOMENT1; part <= LS_PART_LINES; part++) {
      const int value = made.stages[0]->parameters[p].part[part];
      if (value < 0) continue;
      const ls_value *about = &made.stages[0]->values.items[value];
      bytes += about->global[0] * (int64_t)ls_dtype_bytes(about->dtype);
    }
  return bytes;
}

/* Elements of parameters by whether they are large, and whether matrices of layers. */
static void what_is_kept(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[LLAMA]);
  const int64_t vocabulary = 131 * 48, mlp = 100 * 48, attention = 2 * 48 * 48 + 2 * 24 * 48;
  const int64_t norms = 5 * 48, large = 2 * vocabulary + 6 * mlp;
  const int64_t all = large + 2 * attention + norms;
  assert_int_equal(moments_of(arena, &config, LS_OPTIMIZER_ADAMW), 8 * all);
  assert_int_equal(moments_of(arena, &config, LS_OPTIMIZER_ADAMW8BIT),
                   2 * large + 8 * (all - large) + 8 * (2 * 25 + 6 * 19));
  assert_int_equal(moments_of(arena, &config, LS_OPTIMIZER_MUON),
                   4 * (6 * mlp + 2 * attention) + 8 * (2 * vocabulary + norms));
  const int64_t lines = 2 * (131 + 48) + 6 * (100 + 48) + 2 * (2 * (48 + 48) + 2 * (24 + 48));
  assert_int_equal(moments_of(arena, &config, LS_OPTIMIZER_ADAFACTOR), 4 * (lines + norms));
  ls_arena_destroy(&arena);
}

/* The instruction behind it, which adds up what ranks made. */
static ls_instruction *behind(ls_instruction *made) {
  assert_int_equal(made[1].collective, LS_ALL_REDUCE);
  return made + 1;
}

static void refuted_with(const compiled *made, int *changed, int to, const char *refuted) {
  const int was = *changed;
  *changed = to;
  expect_proof(made, refuted);
  *changed = was;
  expect_proof(made, NULL);
}

static void another_update_is_disproved(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[LLAMA]);
  const ls_layout blocks = layout_of(0, LS_OPTIMIZER_ADAMW8BIT);
  const ls_layout muon = layout_of(0, LS_OPTIMIZER_MUON);
  const compiled of_blocks = compile(arena, &config, &blocks);
  const compiled of_muon = compile(arena, &config, &muon);
  expect_proof(&of_blocks, NULL);
  expect_proof(&of_muon, NULL);
  ls_instruction *largest = ls_test_need(of_blocks.stages[0], LS_OP_ADAMW8_LARGEST, 1);
  ls_instruction *step = ls_test_need(of_blocks.stages[0], LS_OP_ADAMW8, 1);
  ls_instruction *next = ls_test_need(of_blocks.stages[0], LS_OP_ADAMW8, 2);
  /* A sum of what are maxima; another's blocks; codes changed over; the whole's columns. */
  assert_int_equal(behind(largest)->reduce, LS_MAX);
  int reduce = (int)behind(largest)->reduce;
  behind(largest)->reduce = LS_SUM;
  expect_proof(&of_blocks, "");
  behind(largest)->reduce = (ls_reduce)reduce;
  refuted_with(&of_blocks, &step->in[4], next->in[4], "expected the largest of blocks of");
  refuted_with(&of_blocks, &step->out[1], step->out[2], "elsewhere: expected its own place");
  step->attributes.columns++;
  expect_proof(&of_blocks, "has other settings than the layout");
  step->attributes.columns--;
  /* Matrices that are not dealt; one that was not made orthogonal; another's. */
  ls_instruction *orthogonal = ls_test_need(of_muon.stages[0], LS_OP_ORTHOGONALISE, 0);
  ls_instruction *made = ls_test_need(of_muon.stages[0], LS_OP_MUON, 0);
  refuted_with(&of_muon, &orthogonal->in[0], made->in[0],
               "makes a matrix elsewhere: expected it in its place");
  refuted_with(&of_muon, &made->in[0],
               ls_test_need(of_muon.stages[0], LS_OP_MUON_MOMENTUM, 1)->out[1],
               "elsewhere: expected its own place");
  refuted_with(&of_muon, &made->out[0], ls_test_need(of_muon.stages[0], LS_OP_MUON, 1)->out[0],
               "elsewhere: expected its own place");
  made->attributes.scale += 0.2;
  expect_proof(&of_muon, "has other settings than the layout");
  made->attributes.scale -= 0.2;
  /* State of another update. */
  int p = 0;
  while (!of_muon.stages[0]->parameters[p].trainable) p++;
  refuted_with(&of_muon, &of_muon.stages[0]->parameters[p].update,
               !of_muon.stages[0]->parameters[p].update, "update is another's");
  ls_arena_destroy(&arena);
}

static ls_instruction *need_collective(ls_program *program, ls_collective collective, int which) {
  for (int i = 0; i < program->instructions.count; i++)
    if (program->instructions.items[i].collective == collective && which-- == 0)
      return &program->instructions.items[i];
  fail_msg("no %s", ls_collective_name(collective));
  return NULL;
}

/* Some matrix is cut where it lies between steps: there nobody can make it. */
static void make_where_it_lies(const compiled *of) {
  ls_program *program = of->stages[0];
  int cut = 0;
  for (int which = 0; which < 7; which++) {
    ls_instruction *orthogonal = ls_test_need(program, LS_OP_ORTHOGONALISE, which);
    const int was = orthogonal->in[0];
    orthogonal->in[0] = orthogonal->out[0] = ls_test_need(program, LS_OP_MUON, which)->in[0];
    const ls_program *stages[MOST_STAGES] = {program};
    ls_error error = {0};
    assert_int_equal(ls_check(of->graph, &of->layout, stages, NULL, &error), LS_REFUTED);
    cut += strstr(error.text, "a part of the matrix of") != NULL;
    orthogonal->in[0] = orthogonal->out[0] = was;
  }
  assert_true(cut > 0);
}

/* Dealt over some axes, to two owners, to where another's lies, back before it is made, or not. */
static void another_deal_is_disproved(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[LLAMA]);
  ls_layout layout = layout_of(5, LS_OPTIMIZER_MUON);
  layout.layers_per_unit = 1;
  const compiled of = compile(arena, &config, &layout);
  expect_proof(&of, NULL);
  make_where_it_lies(&of);
  ls_program *program = of.stages[0];
  ls_instruction *deal = need_collective(program, LS_DEAL, 0);
  ls_instruction *back = need_collective(program, LS_HAND_BACK, 0);
  const ls_axes all = deal->axes;
  deal->axes = ls_mesh_axes(&program->mesh, LS_MESH_SHARD);
  expect_proof(&of, "deals over some axes only");
  deal->axes = 0;
  expect_proof(&of, "is over no axis with several ranks");
  deal->axes = all;
  deal->count++;
  expect_proof(&of, "says that a rank sends");
  deal->count--;
  refuted_with(&of, &deal->unit, need_collective(program, LS_DEAL, 1)->unit, "");
  refuted_with(&of, &back->in[0], back->out[0], "");
  ls_program_parameter *first = NULL, *second = NULL;
  for (int p = 0; p < program->parameter_count; p++) {
    ls_program_parameter *each = &program->parameters[p];
    if (each->unit != deal->unit || each->owned < 0) continue;
    if (!first)
      first = each;
    else if (!second)
      second = each;
  }
  assert_true(first && second);
  const int64_t was = first->owned;
  first->owned = second->owned;
  expect_proof(&of, "");
  first->owned = ls_value_shard(&program->mesh, &program->values.items[deal->out[0]]) - 1;
  expect_proof(&of, "to several owners");
  first->owned = was;
  expect_proof(&of, NULL);
  /* The matrices as they were dealt. */
  ls_instruction *orthogonal = ls_test_need(program, LS_OP_ORTHOGONALISE, 0);
  *orthogonal = (ls_instruction){.kind = LS_OP_ZERO,
                                 .peer = -1,
                                 .wait = -1,
                                 .inputs = 1,
                                 .outputs = 1,
                                 .in = {program->cell[LS_CELL_STOP]},
                                 .out = {program->cell[LS_CELL_STOP]}};
  expect_proof(&of, "");
  ls_arena_destroy(&arena);
}

/* Flops of matrices of a step on the rank with most, and of all ranks. */
static double most_of(const compiled *of, double *all) {
  const ls_program *program = of->stages[0];
  double most = 0;
  *all = 0;
  for (int rank = 0; rank < ls_mesh_ranks(&program->mesh); rank++) {
    double own = 0;
    for (int i = 0; i < program->instructions.count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      if (ls_test_is_op(each, LS_OP_ORTHOGONALISE))
        own += ls_instruction_work(program, rank, each, true).flops;
    }
    if (rank == 0) most = own;
    assert_true(own <= most); /* the first is told by */
    *all += own;
  }
  return most;
}

/* Together ranks do what one would alone, and each its share, as far as matrices are so many. */
static void ranks_share_the_matrices(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[LLAMA]);
  ls_layout layout = ls_layout_default();
  layout.optimizer = optimizer_of(LS_OPTIMIZER_MUON);
  double alone, all;
  const compiled one = compile(arena, &config, &layout);
  assert_true(most_of(&one, &alone) == alone);
  static const struct {
    int replicate, shard, tp, zero;
    double share;
  } rows[] = {{2, 1, 1, 0, 0.55}, {1, 2, 1, 1, 0.55}, {1, 2, 1, 3, 0.55}, {1, 1, 2, 0, 0.55},
              {1, 4, 1, 3, 0.3},  {1, 2, 2, 2, 0.3},  {1, 12, 1, 3, 0.3}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    layout.dp_replicate = rows[r].replicate;
    layout.dp_shard = rows[r].shard;
    layout.tp = rows[r].tp;
    layout.zero = rows[r].zero;
    const compiled many = compile(arena, &config, &layout);
    assert_true(most_of(&many, &all) <= rows[r].share * alone);
    assert_true(all > alone * (1 - 1e-12) && all < alone * (1 + 1e-12));
  }
  ls_arena_destroy(&arena);
}

/* Sums of other lines; means before they are kept; numbers of other elements; another's means. */
static void another_adafactor_is_disproved(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[LLAMA]);
  const ls_layout layout = layout_of(0, LS_OPTIMIZER_ADAFACTOR);
  const compiled of = compile(arena, &config, &layout);
  expect_proof(&of, NULL);
  ls_instruction *sums = ls_test_need(of.stages[0], LS_OP_ADAFACTOR_SUMS, 1);
  ls_instruction *keep = ls_test_need(of.stages[0], LS_OP_ADAFACTOR_KEEP, 1);
  ls_instruction *next = ls_test_need(of.stages[0], LS_OP_ADAFACTOR_KEEP, 2);
  ls_instruction *direction = ls_test_need(of.stages[0], LS_OP_ADAFACTOR_DIRECTION, 1);
  assert_int_equal(behind(sums)->reduce, LS_SUM);
  behind(sums)->reduce = LS_MAX;
  expect_proof(&of, "");
  behind(sums)->reduce = LS_SUM;
  refuted_with(&of, &keep->out[0], next->out[0], "elsewhere: expected its own place");
  refuted_with(&of, &direction->in[2], next->out[0], "expected the means of rows and columns of");
  direction->attributes.weight *= 2;
  expect_proof(&of, "has other settings than the layout");
  direction->attributes.weight /= 2;
  behind(direction)->axes = 0;
  expect_proof(&of, "is over no axis with several ranks");
  ls_arena_destroy(&arena);
}

/* What has no form that speculates waits for the norm. */
static void post_validation_is_refused(void **state) {
  (void)state;
  static const char *const names[KINDS] = {"optimizer.name=adamw8bit", "optimizer.name=muon",
                                           "optimizer.name=adafactor"};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[LLAMA]);
  for (int k = 0; k < KINDS; k++) {
    ls_layout layout = layout_of(0, kinds[k]);
    layout.pp = 2;
    layout.microbatches = 4;
    layout.schedule = "zbh1";
    layout.post_validation = true;
    ls_graph *graph = ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
    ls_program *stages[MOST_STAGES];
    ls_error error = {0};
    ls_graph_backward(graph);
    assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_INPUT);
    assert_non_null(strstr(error.text, names[k]));
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_is_the_same_training),
      cmocka_unit_test(what_is_kept),
      cmocka_unit_test(another_update_is_disproved),
      cmocka_unit_test(another_deal_is_disproved),
      cmocka_unit_test(ranks_share_the_matrices),
      cmocka_unit_test(another_adafactor_is_disproved),
      cmocka_unit_test(post_validation_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
