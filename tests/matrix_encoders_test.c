/* Encoders equal one device: loss, gradient norm, every parameter's gradient of five steps and
 * every parameter after them, in fp64 on the reference kernels, in one layout of 64, with
 * pipelines, recomputation, documents and ranks that share each sequence; and the programs are
 * proved. Rings and decoding are refused. What looks back alone, or at another table's rows, is
 * rejected. */
#include <string.h>

#include "support/layouts.h"
#include "support/program_faults.h"

/* Counts that every run must reach. */
enum { RUN = 9, REFUSED = 5, PIPELINES = 4, CONTEXTS = 6 };

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
  ls_test_tally tally = {0};
  for (int s = 0; s < SHAPES; s += MODERN) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[s]);
    const ls_experiment experiment = experiment_of(&config);
    const ls_test_layouts some = ls_test_layouts_some(arena, s, EACH);
    ls_test_equal_layouts(&tally, &experiment, some.items, some.count, shapes[s].name);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, RUN, REFUSED);
}

static ls_layout layout_of(int which) {
  static const char *const schedules[] = {"1f1b", "zbh1", "gpipe"};
  ls_layout layout = ls_test_layout_default();
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
  ls_test_tally tally = {0};
  for (int which = 0; which < PIPELINES; which++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &shapes[which % 2]);
    ls_experiment experiment = experiment_of(&config);
    ls_layout layout = layout_of(which);
    experiment.sequences = 8;
    experiment.documents = which % 4 > 1;
    ls_test_equal_layout(&tally, &experiment, &layout, config.family);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, PIPELINES, 0);
}

/* Ranks that share each sequence gather its keys, or change tokens for heads. */
static void test_context(void **state) {
  (void)state;
  ls_test_tally tally = {0};
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
    ls_test_equal_layout(&tally, &experiment, &layout, config.family);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, CONTEXTS, 0);
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

static void look_back_alone(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_ATTENTION, 1)->attributes.two_way = 0;
}

static void skip_no_rows(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_EMBEDDING, 1)->attributes.skipped = 0;
}

static void types_for_positions(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_EMBEDDING, 1)->in[1] = graph->types;
}

/* The last: how many tokens follow is another number than where a token is. */
static void positions_for_what_follows(ls_graph *graph) {
  ls_test_find_node(graph, LS_OP_ATTENTION, 0)->in[5] = graph->positions;
}

static void test_wrong_models_are_rejected(void **state) {
  (void)state;
  static const ls_test_wrong_model wrong[] = {{look_back_alone, NULL},
                                              {skip_no_rows, NULL},
                                              {types_for_positions, NULL},
                                              {positions_for_what_follows, NULL}};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = ls_test_shape_config(arena, &shapes[ROBERTA]);
  ls_experiment experiment = experiment_of(&config);
  ls_layout layout = ls_test_layout_default();
  layout.cp = layout.tp = 2;
  experiment.documents = true;
  ls_test_refute_models(&experiment, &layout, wrong, sizeof wrong / sizeof *wrong);
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts_equal_one_device), cmocka_unit_test(test_pipelines),
      cmocka_unit_test(test_context), cmocka_unit_test(test_what_cannot_be_is_refused),
      cmocka_unit_test(test_wrong_models_are_rejected)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
