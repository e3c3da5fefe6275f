/* Mixtures of experts equal one device in one layout of sixteen: loss, gradient norm, every
 * parameter's gradient of five steps and every parameter after them, in fp64 on the reference
 * kernels; with pipelines, recomputation and frozen parameters too; and the programs are proved.
 * Ranks have few tokens, so that some experts have most of them and others none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "run/state_ranges.h"
#include "session/saved_tensors.h"
#include "store/adapters.h"
#include "store/stored_box.h"
#include "support/counts.h"
#include "support/layouts.h"
#include "support/tally.h"

/* Counts that every run must reach. */
enum { EXPECTED_RUN = 52, EXPECTED_REFUSED = 32, EXPECTED_PIPELINES = 24 };

/* Together they make every tp of the matrix legal. Widths of the experts leave ranks without any
 * column, the third shape has more experts than most ranks have tokens. */
static const ls_test_shape shapes[] = {
    {"mixtral",
     "{\"model_type\": \"mixtral\", \"vocab_size\": 41, \"hidden_size\": 32,"
     " \"intermediate_size\": 21, \"num_hidden_layers\": 2, \"num_attention_heads\": 16,"
     " \"num_key_value_heads\": 4, \"max_position_embeddings\": 16, \"num_local_experts\": 5,"
     " \"num_experts_per_tok\": 2, \"tie_word_embeddings\": false}"},
    {"qwen3_moe",
     "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 43, \"hidden_size\": 24,"
     " \"moe_intermediate_size\": 11, \"num_hidden_layers\": 3, \"num_attention_heads\": 12,"
     " \"num_key_value_heads\": 3, \"head_dim\": 4, \"max_position_embeddings\": 16,"
     " \"num_experts\": 7, \"num_experts_per_tok\": 3, \"tie_word_embeddings\": true}"},
    {"qwen3_moe with many experts",
     "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 37, \"hidden_size\": 16,"
     " \"moe_intermediate_size\": 5, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
     " \"num_key_value_heads\": 2, \"head_dim\": 4, \"max_position_embeddings\": 16,"
     " \"num_experts\": 30, \"num_experts_per_tok\": 1, \"norm_topk_prob\": false}"},
};
enum { MIXTRAL, QWEN, MANY, SHAPES };

/* One layout in so many: the matrix test has all of them, of dense models. */
enum { EACH = 16 };

/* A sequence that two and three ranks can share out, each with two chunks. */
enum { LONGER = 12 };

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .seed = 20261125,
                         .learning_rate = 0.01};
}

static void test_layouts_equal_one_device(void **state) {
  (void)state;
  ls_test_tally counts = {0};
  for (int s = 0; s < SHAPES; s++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[s]);
    const ls_experiment experiment = experiment_of(&config);
    ls_trajectory reference;
    ls_test_one_device(arena, &experiment, shapes[s].name, &reference);
    const ls_test_layouts all = ls_test_layouts_all(arena);
    for (int l = s; l < all.count; l += EACH)
      ls_test_tally_layout(&counts, &experiment, &reference, &all.items[l],
                           ls_test_layout_print(arena, &all.items[l], shapes[s].name));
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts run, %d refused, worst difference %.3g\n", counts.run, counts.refused,
                counts.worst);
  assert_int_equal(counts.failed, 0);
  const ls_test_count wanted[] = {LS_TEST_COUNT(counts.run, EXPECTED_RUN),
                                  LS_TEST_COUNT(counts.refused, EXPECTED_REFUSED)};
  ls_test_expect_counts(wanted, 2);
}

static ls_layout pipeline_layout(int which) {
  static const char *const schedules[] = {"1f1b", "gpipe", "zbh1", "interleaved"};
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.pp = 2;
  layout.schedule = schedules[which % 4];
  layout.microbatches = 4;
  layout.zero = 1 + which % 3;
  layout.dp_shard = 1 + which / 2 % 2;
  layout.tp = 1 + which / 4 % 2;
  layout.sequence_parallel = layout.tp > 1 && which % 2;
  layout.prefetch = which % 2;
  if (which % 3) { /* all of each layer, or what is cheap */
    layout.recompute = which % 3 == 1 ? (ls_op_set)LS_EVERY_OP : ls_op_set_cheap();
    layout.recompute_layers = 1;
  }
  return layout;
}

static void prove(const ls_model_config *config, const ls_layout *layout, int64_t sequence) {
  ls_arena *arena = ls_arena_create();
  ls_program *stages[2];
  ls_error error = {0};
  ls_graph *graph = ls_test_model(arena, config, layout, LS_TEST_SEQUENCES, sequence);
  ls_graph_backward(graph);
  ls_status status = ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, &error);
  if (status == LS_OK)
    status = ls_check(graph, layout, (const ls_program *const *)stages, NULL, &error);
  if (status != LS_OK) fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
  ls_arena_destroy(&arena);
}

static void test_pipelines_and_recomputation(void **state) {
  (void)state;
  ls_test_tally counts = {0};
  for (int which = 0; which < 24; which++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[MANY]);
    const ls_experiment experiment = experiment_of(&config);
    const ls_layout layout = pipeline_layout(which);
    ls_trajectory reference;
    ls_test_one_device(arena, &experiment, shapes[MANY].name, &reference);
    ls_test_tally_layout(&counts, &experiment, &reference, &layout,
                         ls_layout_print(arena, &layout));
    prove(&config, &layout, LS_TEST_SEQUENCE);
    ls_arena_destroy(&arena);
  }
  assert_int_equal(counts.failed, 0);
  const ls_test_count wanted[] = {LS_TEST_COUNT(counts.run, EXPECTED_PIPELINES)};
  ls_test_expect_counts(wanted, 1);
}

static ls_layout context_layout(int which) {
  ls_layout layout = pipeline_layout(which);
  layout.cp = 2 + which % 2;
  layout.pp = 1 + which / 6; /* of these, one stage and two */
  if (layout.pp == 1) layout.schedule = NULL;
  return layout;
}

/* Each rank of the context routes its own tokens, of whatever chunks these are. */
static void test_context(void **state) {
  (void)state;
  ls_test_tally counts = {0};
  for (int which = 0; which < 12; which++) {
    ls_arena *arena = ls_arena_create();
    const ls_test_shape *shape = &shapes[which % 4 < 2 ? MIXTRAL : MANY];
    const ls_model_config config = ls_test_shape_config(arena, shape);
    ls_experiment experiment = experiment_of(&config);
    experiment.sequence = LONGER;
    experiment.documents = which % 3 == 2;
    const ls_layout layout = context_layout(which);
    ls_trajectory reference;
    ls_test_one_device(arena, &experiment, shape->name, &reference);
    ls_test_tally_layout(&counts, &experiment, &reference, &layout,
                         ls_layout_print(arena, &layout));
    prove(&config, &layout, LONGER);
    ls_arena_destroy(&arena);
  }
  print_message("context: worst difference %.3g\n", counts.worst);
  assert_int_equal(counts.run, 12);
  assert_int_equal(counts.failed, 0);
}

/* Without the router's gradient, or those of all experts' gates. */
static void test_frozen_parts(void **state) {
  (void)state;
  static const char *const names[] = {"layers.*.router", "layers.*.experts.gate"};
  ls_layout layout = pipeline_layout(5);
  for (int n = 0; n < 2; n++) {
    ls_test_tally counts = {0};
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[MIXTRAL]);
    ls_experiment experiment = experiment_of(&config);
    experiment.freeze = &names[n];
    experiment.freeze_count = 1;
    ls_trajectory reference;
    ls_test_one_device(arena, &experiment, names[n], &reference);
    ls_test_tally_layout(&counts, &experiment, &reference, &layout, names[n]);
    assert_int_equal(counts.run, 1);
    assert_int_equal(counts.failed, 0);
    ls_arena_destroy(&arena);
  }
}

/* The experts are frozen, and what reaches the adapters comes through them. */
static void test_adapters_of_attention(void **state) {
  (void)state;
  ls_test_tally counts = {0};
  for (int which = 0; which < 6; which++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config config = ls_test_shape_config(arena, &shapes[MIXTRAL]);
    static const char *const targets[] = {"q_proj", "o_proj"};
    const ls_adapters asked = {.rank = 3, .targets = targets, .target_count = 2};
    const ls_layout layout = pipeline_layout(which);
    ls_trajectory reference;
    ls_error error = {0};
    if (ls_adapters_apply(&asked, &config, &error) != LS_OK) fail_msg("%s", error.text);
    const ls_experiment experiment = experiment_of(&config);
    ls_test_one_device(arena, &experiment, "adapters", &reference);
    ls_test_tally_layout(&counts, &experiment, &reference, &layout,
                         ls_layout_print(arena, &layout));
    prove(&config, &layout, LS_TEST_SEQUENCE);
    ls_arena_destroy(&arena);
  }
  assert_int_equal(counts.run, 6);
  assert_int_equal(counts.failed, 0);
}

/* Tensors 0 and 1 of those that have rows of one parameter. */
static void swap_experts(ls_saved_tensors *all) {
  for (int t = 0; t + 1 < all->count; t++) {
    ls_weight_piece *a = all->items[t].pieces.items, *b = all->items[t + 1].pieces.items;
    if (a->parameter != b->parameter || b->first == 0) continue;
    const int64_t first = a->first;
    a->first = b->first;
    b->first = first;
    return;
  }
  fail_msg("no parameter in several tensors");
}

static void leave_out_an_expert(ls_saved_tensors *all) {
  int t = 0;
  while (all->items[t].pieces.items->first == 0) t++;
  memmove(&all->items[t], &all->items[t + 1], sizeof *all->items * (size_t)(all->count - t - 1));
  all->count--;
}

static void shift_an_expert(ls_saved_tensors *all) {
  int t = 0;
  while (all->items[t].pieces.items->first == 0) t++;
  all->items[t].pieces.items->first--;
}

/* A tensor for each expert, each of its rows once; and no other tensors. */
static void test_saved_experts(void **state) {
  (void)state;
  static void (*const faults[])(ls_saved_tensors *) = {NULL, swap_experts, leave_out_an_expert,
                                                       shift_an_expert};
  for (int f = 0; f < 4; f++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[MIXTRAL]);
    ls_layout layout = ls_layout_default();
    layout.dp_shard = layout.tp = 2;
    ls_graph *graph = ls_test_model(arena, &config, &layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
    ls_program *program;
    ls_saved_tensors all;
    ls_saving_report report;
    ls_error error = {0};
    ls_graph_backward(graph);
    if (ls_program_compile(graph, &layout, LS_PROGRAM_STEP, &program, &error) != LS_OK ||
        ls_saved_tensors_list(arena, &config, graph, program, &all, &error) != LS_OK)
      fail_msg("%s", error.text);
    assert_int_equal(all.weights, 3 + 2 * (7 + 3 * 5));
    if (faults[f]) faults[f](&all);
    const ls_program *const stages[] = {program};
    const ls_status status = ls_check_saving(stages, 1, &ls_state_ranges, all.items, all.count,
                                             ls_stored_stretch, &report, &error);
    if (status != (f ? LS_REFUTED : LS_OK)) fail_msg("%d: %s", f, error.text);
    if (f && !strstr(error.text, "its rows are not each in one tensor of a checkpoint"))
      fail_msg("%d: %s", f, error.text);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_equal_one_device),
                                     cmocka_unit_test(test_pipelines_and_recomputation),
                                     cmocka_unit_test(test_context),
                                     cmocka_unit_test(test_frozen_parts),
                                     cmocka_unit_test(test_adapters_of_attention),
                                     cmocka_unit_test(test_saved_experts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
