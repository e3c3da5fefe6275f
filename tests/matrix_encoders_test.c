/* Encoders equal one device: loss, gradient norm, every parameter's gradient of five steps and
 * every parameter after them, in fp64 on the reference kernels, in one layout of 64, with
 * pipelines, recomputation, documents and ranks that share each sequence; and the programs are
 * proved. Rings and decoding are refused. What looks back alone, or at another table's rows, is
 * rejected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/counts.h"
#include "support/layouts.h"
#include "support/tally.h"

/* Counts that every run must reach. */
enum { EXPECTED_RUN = 9, EXPECTED_REFUSED = 5, PIPELINES = 4, CONTEXTS = 6 };

/* With dropout everywhere; with rows of positions that are skipped; and with a window, two bases
 * and norms without biases. */
static const ls_test_shape shapes[] = {
    {"bert",
     "{\"model_type\": \"bert\", \"vocab_size\": 37, \"max_position_embeddings\": 16,"
     " \"hidden_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 12,"
     " \"intermediate_size\": 31, \"hidden_dropout_prob\": 0.1,"
     " \"attention_probs_dropout_prob\": 0.2}"},
    {"roberta",
     "{\"model_type\": \"roberta\", \"vocab_size\": 41, \"max_position_embeddings\": 18,"
     " \"hidden_size\": 20, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
     " \"intermediate_size\": 23, \"type_vocab_size\": 1, \"hidden_dropout_prob\": 0,"
     " \"attention_probs_dropout_prob\": 0}"},
    {"modernbert",
     "{\"model_type\": \"modernbert\", \"vocab_size\": 43, \"max_position_embeddings\": 16,"
     " \"hidden_size\": 24, \"num_hidden_layers\": 3, \"num_attention_heads\": 6,"
     " \"intermediate_size\": 19, \"global_attn_every_n_layers\": 2, \"local_attention\": 4}"},
};
enum { BERT, ROBERTA, MODERN, SHAPES };

enum { EACH = 64, LONGER = 12 };

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = LS_TEST_SEQUENCES,
                         .sequence = LS_TEST_SEQUENCE,
                         .seed = 20261126,
                         .learning_rate = 0.01};
}

static void test_layouts_equal_one_device(void **state) {
  (void)state;
  ls_test_tally counts = {0};
  for (int s = 0; s < SHAPES; s += MODERN) {
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

static void build(ls_arena *arena, const ls_model_config *config, const ls_experiment *experiment,
                  const ls_layout *layout, void (*change)(ls_graph *), ls_graph **graph) {
  ls_error error = {0};
  const ls_build_options options = {
      .tokens = experiment->sequences / layout->microbatches * experiment->sequence,
      .sequence = experiment->sequence,
      .documents = experiment->documents,
      .places = layout->cp > 1};
  if (ls_model_build(arena, config, &options, graph, &error) != LS_OK) fail_msg("%s", error.text);
  if (change) change(*graph);
  ls_graph_backward(*graph);
}

static void prove(const ls_experiment *experiment, const ls_layout *layout) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  ls_graph *graph;
  ls_program *stages[2];
  build(arena, experiment->config, experiment, layout, NULL, &graph);
  if (ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, &error) != LS_OK ||
      ls_check(graph, layout, (const ls_program *const *)stages, NULL, &error) != LS_OK)
    fail_msg("%s: %s", ls_layout_print(arena, layout), error.text);
  ls_arena_destroy(&arena);
}

/* Trains under the layout and proves its program. */
static void run(const ls_experiment *experiment, const ls_layout *layout, ls_test_tally *counts) {
  ls_arena *arena = ls_arena_create();
  ls_trajectory reference;
  const char *name = ls_layout_print(arena, layout);
  ls_test_one_device(arena, experiment, name, &reference);
  ls_test_tally_layout(counts, experiment, &reference, layout, name);
  prove(experiment, layout);
  ls_arena_destroy(&arena);
}

static ls_layout layout_of(int which) {
  static const char *const schedules[] = {"1f1b", "zbh1", "gpipe"};
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.pp = 2;
  layout.schedule = schedules[which % 3];
  layout.microbatches = 4;
  layout.zero = 1 + which % 3;
  layout.dp_shard = 1 + which / 2 % 2;
  layout.tp = 1 + which / 3 % 2;
  layout.sequence_parallel = layout.tp > 1;
  if (which % 2) {
    layout.recompute = (ls_op_set)LS_EVERY_OP;
    layout.recompute_layers = 1;
  }
  return layout;
}

static void test_pipelines(void **state) {
  (void)state;
  ls_test_tally counts = {0};
  for (int which = 0; which < PIPELINES; which++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[which % 2]);
    ls_experiment experiment = experiment_of(&config);
    ls_layout layout = layout_of(which);
    experiment.sequences = 8;
    experiment.documents = which % 4 > 1;
    run(&experiment, &layout, &counts);
    ls_arena_destroy(&arena);
  }
  assert_int_equal(counts.failed, 0);
  assert_int_equal(counts.run, PIPELINES);
}

/* Ranks that share each sequence gather its keys, or change tokens for heads. */
static void test_context(void **state) {
  (void)state;
  ls_test_tally counts = {0};
  for (int which = 0; which < CONTEXTS; which++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[which % SHAPES]);
    ls_experiment experiment = experiment_of(&config);
    ls_layout layout = layout_of(which);
    experiment.sequences = 8;
    experiment.sequence = LONGER;
    experiment.documents = which % 2;
    layout.pp = 1;
    layout.schedule = NULL;
    layout.cp = 2;
    layout.context = which / 2 % 2 ? LS_CONTEXT_ULYSSES : LS_CONTEXT_GATHER;
    run(&experiment, &layout, &counts);
    ls_arena_destroy(&arena);
  }
  print_message("context: worst difference %.3g\n", counts.worst);
  assert_int_equal(counts.failed, 0);
  assert_int_equal(counts.run, CONTEXTS);
}

static void test_what_cannot_be_is_refused(void **state) {
  (void)state;
  static const struct {
    ls_build_options options;
    const char *reason;
  } cases[] = {
      {{.tokens = 8, .sequence = 8, .places = true, .turns = 2}, "use context=gather or ulysses"},
      {{.mode = LS_MODEL_DECODE, .tokens = 1, .cache_rows = 8}, "continues no text"},
      {{.tokens = 32, .sequence = 32}, "use seq_len 16 or less"},
  };
  ls_arena *arena = ls_arena_create();
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int s = 0; s < SHAPES; s++) {
      const ls_model_config config = ls_test_shape_config(arena, &shapes[s]);
      ls_graph *graph;
      ls_error error = {0};
      assert_true(ls_model_is_encoder(&config));
      assert_int_equal(ls_model_build(arena, &config, &cases[c].options, &graph, &error), LS_INPUT);
      if (!strstr(error.text, cases[c].reason)) fail_msg("%s", error.text);
    }
  ls_arena_destroy(&arena);
}

static ls_node *find(ls_graph *graph, ls_op_kind kind, int number) {
  for (int n = 0; n < graph->nodes.count; n++)
    if (graph->nodes.items[n].kind == kind && number-- == 0) return &graph->nodes.items[n];
  fail_msg("no %s", ls_op_name(kind));
  return NULL;
}

static void look_back_alone(ls_graph *graph) {
  find(graph, LS_OP_ATTENTION, 1)->attributes.two_way = 0;
}

static void skip_no_rows(ls_graph *graph) {
  find(graph, LS_OP_EMBEDDING, 1)->attributes.skipped = 0;
}

static void types_for_positions(ls_graph *graph) {
  find(graph, LS_OP_EMBEDDING, 1)->in[1] = graph->types;
}

/* The last: how many tokens follow is another number than where a token is. */
static void positions_for_what_follows(ls_graph *graph) {
  find(graph, LS_OP_ATTENTION, 0)->in[5] = graph->positions;
}

static void test_wrong_models_are_rejected(void **state) {
  (void)state;
  static void (*const changes[])(ls_graph *) = {look_back_alone, skip_no_rows, types_for_positions,
                                                positions_for_what_follows};
  for (int c = 0; c < 4; c++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[ROBERTA]);
    ls_experiment experiment = experiment_of(&config);
    ls_layout layout = ls_layout_default();
    ls_error error = {0};
    ls_graph *right, *wrong;
    ls_program *made[1];
    layout.cp = layout.tp = 2;
    experiment.documents = true;
    build(arena, &config, &experiment, &layout, NULL, &right);
    build(arena, &config, &experiment, &layout, changes[c], &wrong);
    if (ls_program_compile(wrong, &layout, LS_PROGRAM_STEP, made, &error) != LS_OK)
      fail_msg("%s", error.text);
    const ls_program *const programs[] = {made[0]};
    if (ls_check(wrong, &layout, programs, NULL, &error) != LS_OK) fail_msg("%s", error.text);
    if (ls_check(right, &layout, programs, NULL, &error) != LS_REFUTED)
      fail_msg("change %d is taken for the model", c);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts_equal_one_device), cmocka_unit_test(test_pipelines),
      cmocka_unit_test(test_context), cmocka_unit_test(test_what_cannot_be_is_refused),
      cmocka_unit_test(test_wrong_models_are_rejected)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
