/* Latent attention equals one device in one layout of eight: loss, gradient norm, every parameter's
 * gradient of five steps and every parameter after them, in fp64 on the reference kernels; with
 * pipelines, recomputation, ranks that share each sequence (by all three ways), frozen parts,
 * adapters and quantised weights too; and the programs are proved. What turns other columns or
 * other pairs, norms or scales otherwise, and a gradient of the shared key that is not summed over
 * the ranks that have other heads, are rejected. */
#include <string.h>

#include "check/check.h"
#include "run/state_ranges.h"
#include "session/saved_tensors.h"
#include "store/adapters.h"
#include "store/stored_box.h"
#include "support/layouts.h"
#include "support/program_faults.h"

/* Counts that every run must reach. */
enum { RUN = 78, REFUSED = 34, PIPELINES = 16, CONTEXTS = 18, FROZEN = 4, ADAPTERS = 8 };

#define DENSE "\"first_k_dense_replace\": 8, "

/* Values narrower than keys, with a latent of queries; wider, without; and quantised: whole blocks
 * of 64. */
static const ls_test_shape shapes[] = {
    {"deepseek_v3",
     "{\"model_type\": \"deepseek_v3\", " DENSE
     "\"vocab_size\": 41, \"hidden_size\": 26, \"intermediate_size\": 21,"
     " \"num_hidden_layers\": 2, \"num_attention_heads\": 12, \"q_lora_rank\": 10,"
     " \"kv_lora_rank\": 7, \"qk_nope_head_dim\": 3, \"qk_rope_head_dim\": 4, \"v_head_dim\": 5,"
     " \"max_position_embeddings\": 16, \"attention_bias\": true, \"rope_scaling\": {\"type\":"
     " \"yarn\", \"factor\": 4, \"mscale\": 0.7, \"mscale_all_dim\": 0.9,"
     " \"original_max_position_embeddings\": 4}}"},
    {"deepseek_v2",
     "{\"model_type\": \"deepseek_v2\", " DENSE
     "\"vocab_size\": 43, \"hidden_size\": 20, \"intermediate_size\": 23,"
     " \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"q_lora_rank\": null,"
     " \"kv_lora_rank\": 6, \"qk_nope_head_dim\": 2, \"qk_rope_head_dim\": 2, \"v_head_dim\": 7,"
     " \"max_position_embeddings\": 16, \"tie_word_embeddings\": true}"},
    {"deepseek_v3 in blocks",
     "{\"model_type\": \"deepseek_v3\", " DENSE
     "\"vocab_size\": 41, \"hidden_size\": 64, \"intermediate_size\": 128,"
     " \"num_hidden_layers\": 1, \"num_attention_heads\": 8, \"q_lora_rank\": 64,"
     " \"kv_lora_rank\": 64, \"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 2, \"v_head_dim\": 16,"
     " \"max_position_embeddings\": 16, \"rope_interleave\": false}"},
};
enum { V3, V2, BLOCKS, SHAPES };

/* One layout in so many: the matrix test has all of them, of other models. */
enum { EACH = 8 };

/* A sequence that two and three ranks can share out, each with two chunks. */
enum { LONGER = 12 };

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .seed = 20261126,
                         .learning_rate = 0.01};
}

static void test_layouts_equal_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int s = 0; s < BLOCKS; s++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[s]);
    const ls_experiment experiment = experiment_of(&config);
    const ls_test_layouts some = ls_test_layouts_some(arena, s, EACH);
    ls_test_equal_layouts(&tally, &experiment, some.items, some.count, shapes[s].name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUN, REFUSED);
}

static void test_pipelines_and_recomputation(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[V2]);
  const ls_experiment experiment = experiment_of(&config);
  ls_layout layouts[PIPELINES];
  for (int which = 0; which < PIPELINES; which++) layouts[which] = ls_test_pipeline_layout(which);
  ls_test_equal_layouts(&tally, &experiment, layouts, PIPELINES, shapes[V2].name);
  LS_TEST_EXPECT(&tally, PIPELINES, 0);
  ls_arena_destroy(&arena);
}

/* Keys that are gathered, go round, or are changed for heads; on one stage and two. */
static ls_layout context_layout(int which) {
  ls_layout layout = ls_test_pipeline_layout(which);
  layout.context = (ls_context)(which % 3);
  layout.cp = 2 + (which / 3 % 2 && layout.context != LS_CONTEXT_ULYSSES);
  layout.pp = 1 + which / 9;
  if (layout.pp == 1) layout.schedule = NULL;
  return layout;
}

static void test_context(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  ls_arena *arena = ls_arena_create();
  for (int which = 0; which < CONTEXTS; which++) {
    const ls_model_config config = ls_test_shape_config(arena, &shapes[which / 3 % 2 ? V2 : V3]);
    ls_experiment experiment = experiment_of(&config);
    experiment.sequence = LONGER;
    experiment.documents = which % 4 == 2;
    const ls_layout layout = context_layout(which);
    ls_test_equal_layout(&tally, &experiment, &layout, "context");
  }
  LS_TEST_EXPECT(&tally, CONTEXTS, 0);
  ls_arena_destroy(&arena);
}

static void test_frozen_parts(void **state) {
  (void)state;
  static const char *const names[FROZEN] = {"layers.*.attention.shared_key",
                                            "layers.*.attention.key", "layers.*.attention.latent",
                                            "embedding"};
  ls_layout layout = ls_test_pipeline_layout(5);
  ls_test_tally tally = {0};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[V3]);
  layout.pp = 1;
  layout.schedule = NULL;
  for (int n = 0; n < FROZEN; n++) {
    ls_experiment experiment = experiment_of(&config);
    experiment.freeze = &names[n];
    experiment.freeze_count = 1;
    ls_test_equal_layout(&tally, &experiment, &layout, names[n]);
  }
  LS_TEST_EXPECT(&tally, FROZEN, 0);
  ls_arena_destroy(&arena);
}

/* Beside weights, and beside blocks of them. */
static void test_adapters(void **state) {
  (void)state;
  static const char *const targets[] = {"q_b_proj", "o_proj", "up_proj"};
  static const char *const fused[] = {"kv_b_proj"};
  const ls_adapters asked = {.rank = 3, .targets = targets, .target_count = 3};
  const ls_adapters whole = {.rank = 3, .targets = fused, .target_count = 1};
  ls_test_tally tally = {0};
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  for (int which = 0; which < ADAPTERS; which++) {
    ls_model_config config = ls_test_shape_config(arena, &shapes[BLOCKS]);
    ls_layout layout = ls_test_pipeline_layout(which);
    layout.pp = 1;
    layout.schedule = NULL;
    assert_int_equal(ls_adapters_apply(arena, &whole, &config, &error), LS_INPUT);
    assert_non_null(strstr(error.text, "found kv_b_proj, which files of deepseek_v3 keep as one"));
    if ((which % 2 &&
         ls_model_quantize(&config, which % 4 == 1 ? LS_BLOCKS_NF4 : LS_BLOCKS_INT8, &error)) ||
        ls_adapters_apply(arena, &asked, &config, &error) != LS_OK)
      fail_msg("%s", error.text);
    const ls_experiment experiment = experiment_of(&config);
    ls_test_equal_layout(&tally, &experiment, &layout, "adapters");
  }
  LS_TEST_EXPECT(&tally, ADAPTERS, 0);
  ls_arena_destroy(&arena);
}

static void turn_first_columns(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_ROPE, 0)->attributes.rope_first = 0;
}

static void turn_halves(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_ROPE, 1)->attributes.rope_neighbours = 0;
}

static void norm_with_the_block_epsilon(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_RMSNORM, 1)->attributes.epsilon = 1e-5;
}

static void scale_without_yarn(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_ATTENTION, 0)->attributes.softmax_scale = 0.25;
}

static void test_wrong_models_are_rejected(void **state) {
  (void)state;
  static const ls_test_wrong_model wrong[] = {{turn_first_columns, "rope"},
                                              {turn_halves, "rope"},
                                              {norm_with_the_block_epsilon, "rmsnorm"},
                                              {scale_without_yarn, "attention"}};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[V3]);
  const ls_experiment experiment = experiment_of(&config);
  ls_layout layout = ls_test_layout_default();
  for (layout.tp = 1; layout.tp <= 3; layout.tp++)
    ls_test_refute_models(&experiment, &layout, wrong, sizeof wrong / sizeof *wrong);
  ls_arena_destroy(&arena);
}

/* Each rank of tp has the sum over its own heads: said to be the whole, it is rejected. */
static bool shared_key_unsummed(ls_program *program) {
  bool any = false;
  for (int i = 0; i < program->instructions.count; i++) {
    const ls_instruction *each = &program->instructions.items[i];
    if (!ls_test_is_op(each, LS_OP_HEADS_SHARED_BWD)) continue;
    ls_placement *placement = &program->values.items[each->out[0]].placement;
    for (int a = 0; a < program->mesh.count; a++)
      if (placement->on[a].kind == LS_PARTIAL && program->mesh.axes[a].size > 1) {
        placement->on[a] = (ls_place){0};
        any = true;
      }
  }
  return any;
}

static void test_unsummed_gradients_are_rejected(void **state) {
  (void)state;
  static const ls_test_fault fault = {"shared key unsummed", shared_key_unsummed, NULL, false};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[V3]);
  const ls_experiment experiment = experiment_of(&config);
  ls_layout layout = ls_test_layout_default();
  layout.tp = 2;
  ls_test_refute(&experiment, &layout, &fault, 1);
  ls_arena_destroy(&arena);
}

/* Rows of one parameter among those of another: none is lost, and one that moves is seen. */
static void test_saved_tensors(void **state) {
  (void)state;
  for (int fault = 0; fault < 2; fault++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[V3]);
    ls_layout layout = ls_test_layout_default();
    ls_saved_tensors all;
    ls_saving_report report;
    ls_error error = {0};
    layout.dp_shard = layout.tp = 2;
    const ls_experiment experiment = experiment_of(&config);
    const ls_test_step made = ls_test_compile(arena, &experiment, &layout);
    if (ls_saved_tensors_list(arena, &config, made.graph, made.stages[0], &all, &error) != LS_OK)
      fail_msg("%s", error.text);
    for (int t = 0; t < all.count && fault; t++)
      if (strstr(all.items[t].name, "kv_b_proj")) all.items[t].pieces.items[1].offset--;
    const ls_program *const stages[] = {made.stages[0]};
    const ls_status status = ls_check_saving(stages, 1, &ls_state_ranges, all.items, all.count,
                                             ls_stored_stretch, &report, &error);
    if (status != (fault ? LS_REFUTED : LS_OK)) fail_msg("%d: %s", fault, error.text);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_equal_one_device),
                                     cmocka_unit_test(test_pipelines_and_recomputation),
                                     cmocka_unit_test(test_context),
                                     cmocka_unit_test(test_frozen_parts),
                                     cmocka_unit_test(test_adapters),
                                     cmocka_unit_test(test_wrong_models_are_rejected),
                                     cmocka_unit_test(test_unsummed_gradients_are_rejected),
                                     cmocka_unit_test(test_saved_tensors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
