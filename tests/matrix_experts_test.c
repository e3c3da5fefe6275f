/* Mixtures of experts equal one device: loss, gradient norm, every parameter's gradient of five
 * steps and every parameter after them, in fp64 on the reference kernels; with pipelines,
 * recomputation and frozen parameters too; and the programs are proved. Every mesh of up to 16
 * ranks, and every pair of options; LS_LAYOUTS=all: every layout. Ranks have few tokens, so that
 * some experts have most of them and others none. */
#include <string.h>

#include "check/check.h"
#include "run/state_ranges.h"
#include "session/saved_tensors.h"
#include "store/adapters.h"
#include "store/stored_box.h"
#include "support/layout_samples.h"

/* Golden. */
enum { LEGAL = 740, REFUSED = 598, SAMPLE = 86, PAIRS = 489 };
enum { PIPELINES = 24, CONTEXTS = 12, ADAPTERS = 6, FROZEN = 2 };

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
  ls_test_sample sample = {.arena = ls_arena_create()};
  ls_test_tally tally = {0};
  ls_test_sample_meshes(&sample, shapes, SHAPES);
  for (int s = 0; s < SHAPES; s++) {
    const ls_model_config config = ls_test_shape_config(sample.arena, &shapes[s]);
    const ls_experiment experiment = experiment_of(&config);
    ls_test_sample_run(&sample, s, &experiment, shapes[s].name, &tally);
  }
  LS_TEST_EXPECT_SAMPLE(&sample, &tally, LEGAL, REFUSED, SAMPLE, PAIRS);
  ls_arena_destroy(&sample.arena);
}

static void test_pipelines_and_recomputation(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[MANY]);
  const ls_experiment experiment = experiment_of(&config);
  ls_layout layouts[PIPELINES];
  for (int which = 0; which < PIPELINES; which++) layouts[which] = ls_test_pipeline_layout(which);
  ls_test_equal_layouts(&tally, &experiment, layouts, PIPELINES, shapes[MANY].name);
  LS_TEST_EXPECT(&tally, PIPELINES, 0);
  ls_arena_destroy(&arena);
}

static ls_layout context_layout(int which) {
  ls_layout layout = ls_test_pipeline_layout(which);
  layout.cp = 2 + which % 2;
  layout.pp = 1 + which / 6; /* of these, one stage and two */
  if (layout.pp == 1) layout.schedule = NULL;
  return layout;
}

/* Each rank of the context routes its own tokens, of whatever chunks these are. */
static void test_context(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  ls_arena *arena = ls_arena_create();
  for (int which = 0; which < CONTEXTS; which++) {
    const ls_test_shape *shape = &shapes[which % 4 < 2 ? MIXTRAL : MANY];
    const ls_model_config config = ls_test_shape_config(arena, shape);
    ls_experiment experiment = experiment_of(&config);
    experiment.sequence = LONGER;
    experiment.documents = which % 3 == 2;
    const ls_layout layout = context_layout(which);
    ls_test_equal_layout(&tally, &experiment, &layout, shape->name);
  }
  LS_TEST_EXPECT(&tally, CONTEXTS, 0);
  ls_arena_destroy(&arena);
}

/* Without the router's gradient, or those of all experts' gates. */
static void test_frozen_parts(void **state) {
  (void)state;
  static const char *const names[FROZEN] = {"layers.*.router", "layers.*.experts.gate"};
  const ls_layout layout = ls_test_pipeline_layout(5);
  ls_test_tally tally = {0};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[MIXTRAL]);
  for (int n = 0; n < FROZEN; n++) {
    ls_experiment experiment = experiment_of(&config);
    experiment.freeze = &names[n];
    experiment.freeze_count = 1;
    ls_test_equal_layout(&tally, &experiment, &layout, names[n]);
  }
  LS_TEST_EXPECT(&tally, FROZEN, 0);
  ls_arena_destroy(&arena);
}

/* The experts are frozen, and what reaches the adapters comes through them. */
static void test_adapters_of_attention(void **state) {
  (void)state;
  static const char *const targets[] = {"q_proj", "o_proj"};
  const ls_adapters asked = {.rank = 3, .targets = targets, .target_count = 2};
  ls_test_tally tally = {0};
  ls_arena *arena = ls_arena_create();
  ls_model_config config = ls_test_shape_config(arena, &shapes[MIXTRAL]);
  ls_layout layouts[ADAPTERS];
  ls_error error = {0};
  if (ls_adapters_apply(arena, &asked, &config, &error) != LS_OK) fail_msg("%s", error.text);
  const ls_experiment experiment = experiment_of(&config);
  for (int which = 0; which < ADAPTERS; which++) layouts[which] = ls_test_pipeline_layout(which);
  ls_test_equal_layouts(&tally, &experiment, layouts, ADAPTERS, "adapters");
  LS_TEST_EXPECT(&tally, ADAPTERS, 0);
  ls_arena_destroy(&arena);
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
    ls_layout layout = ls_test_layout_default();
    layout.dp_shard = layout.tp = 2;
    const ls_experiment experiment = experiment_of(&config);
    const ls_test_step step = ls_test_compile(arena, &experiment, &layout);
    const ls_program *const stages[] = {step.stages[0]};
    ls_saved_tensors all;
    ls_saving_report report;
    ls_error error = {0};
    if (ls_saved_tensors_list(arena, &config, step.graph, stages[0], &all, &error) != LS_OK)
      fail_msg("%s", error.text);
    assert_int_equal(all.weights, 3 + 2 * (7 + 3 * 5));
    if (faults[f]) faults[f](&all);
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
