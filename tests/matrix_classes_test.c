/* A head over classes of texts: under every strategy the training equals that of one device, in
 * fp64, with texts side by side in masked sequences; a program whose
 * loss reads other labels is not proved. What the loss is, is held to PyTorch's in
 * classes_trace_slow_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "store/adapters.h"
#include "support/layouts.h"
#include "support/tally.h"
#include "verify/equality.h"

enum { SEQUENCE = 8, SEQUENCES = 12, MOST_STAGES = 2 };

static ls_model_config config_of(ls_arena *arena, int shape) {
  static const char *const names[] = {"no", "perhaps", "yes"};
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  ls_model_set_classes(arena, &config, names, 3 - shape % 2);
  return config;
}

/* The same with adapters, of two products, beside which the head is trained. */
static ls_model_config adapted(ls_arena *arena, int shape) {
  ls_model_config config = config_of(arena, shape);
  ls_error error = {0};
  config.lora_rank = 3;
  config.lora_alpha = 5;
  config.lora_targets = 1 | 32; /* query, up */
  if (ls_adapters_keep_head(&config, &error) != LS_OK) fail_msg("%s", error.text);
  assert_int_equal(config.lora_modules, LS_HEAD_CLASSES);
  return config;
}

/* Told by the mean of their tokens. */
static ls_model_config meant(ls_arena *arena, int shape) {
  ls_model_config config = config_of(arena, shape);
  ls_model_set_pooling(arena, &config, LS_POOLING_MEAN);
  return config;
}

/* Heads with a product before theirs: with dropout before both, after a mean, and of ReLU. */
static ls_model_config encoder(ls_arena *arena, int shape) {
#define ENCODER(type, width, more)                                                 \
  {                                                                                \
    type, "{\"model_type\": \"" type                                               \
          "\", \"vocab_size\": 37, \"max_position_embeddings\": 16, " width        \
          ": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 6, " more      \
          "\"architectures\": [\"ForSequenceClassification\"], \"num_labels\": 3}" \
  }
  static const ls_test_shape encoders[] = {
      ENCODER("roberta", "\"hidden_size\"",
              "\"intermediate_size\": 23, \"type_vocab_size\": 1, \"hidden_dropout_prob\": 0, "
              "\"attention_probs_dropout_prob\": 0, \"classifier_dropout\": 0.2, "),
      ENCODER(
          "modernbert", "\"hidden_size\"",
          "\"intermediate_size\": 23, \"local_attention\": 4, \"classifier_pooling\": \"mean\", "),
      ENCODER("distilbert", "\"dim\"",
              "\"hidden_dim\": 23, \"dropout\": 0, \"attention_dropout\": 0, "
              "\"seq_classif_dropout\": 0.1, ")};
  return ls_test_shape_config(arena, &encoders[shape]);
}

static ls_model_config (*const forms[])(ls_arena *arena, int shape) = {config_of, adapted, meant,
                                                                       encoder};

static const struct layout_case {
  int shape, pp, dp_replicate, dp_shard, cp, tp, zero, microbatches;
  bool sp;
  const char *schedule;
  bool recompute, post_validation;
} cases[] = {
    {0, 1, 3, 1, 1, 1, 0, 1, false, NULL, false, false},
    {1, 1, 1, 2, 1, 1, 1, 2, false, NULL, false, false},
    {2, 1, 1, 3, 1, 1, 2, 2, false, NULL, false, false},
    {0, 1, 2, 2, 1, 1, 3, 3, false, NULL, false, false},
    {1, 1, 1, 1, 1, 2, 0, 2, true, NULL, true, false},
    {2, 1, 1, 2, 1, 3, 3, 1, true, NULL, false, false},
    {1, 1, 1, 1, 2, 1, 0, 1, false, NULL, false, false},
    {1, 1, 1, 2, 2, 2, 3, 1, true, NULL, true, false},
    {0, 2, 1, 2, 1, 1, 3, 2, false, "1f1b", true, false},
    {1, 2, 1, 2, 1, 1, 1, 3, false, "zbh1", false, true},
    {1, 2, 1, 1, 2, 2, 0, 4, true, "zbh2", false, false},
};
enum { CASES = sizeof cases / sizeof *cases, FORMS = sizeof forms / sizeof *forms };

static ls_layout layout_of(const struct layout_case *from) {
  ls_layout layout = ls_layout_default();
  layout.compute = LS_F64;
  layout.pp = from->pp;
  layout.dp_replicate = from->dp_replicate;
  layout.dp_shard = from->dp_shard;
  layout.cp = from->cp;
  layout.tp = from->tp;
  layout.zero = from->zero;
  layout.microbatches = from->microbatches;
  layout.sequence_parallel = from->sp;
  layout.post_validation = from->post_validation;
  if (from->schedule) layout.schedule = from->schedule;
  if (from->recompute) {
    layout.recompute = (ls_op_set)LS_EVERY_OP;
    layout.recompute_layers = 1;
  }
  return layout;
}

static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int each = 0; each < FORMS * LS_TEST_SHAPES; each++) {
    const int shape = each % LS_TEST_SHAPES, form = each / LS_TEST_SHAPES;
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = forms[form](arena, shape);
    const ls_experiment experiment = {.config = &config,
                                      .sequences = SEQUENCES,
                                      .sequence = SEQUENCE,
                                      .documents = true,
                                      .learning_rate = 1e-2,
                                      .seed = 7,
                                      .saved = true,
                                      .deadline_s = 60,
                                      .steps = 2};
    ls_trajectory reference;
    ls_test_one_device(arena, &experiment, config.family, &reference);
    for (int c = 0; c < CASES; c++) {
      if (cases[c].shape != shape) continue;
      ls_layout layout = layout_of(&cases[c]);
      if (config.pooling == LS_POOLING_MEAN && layout.cp > 1) layout.sequence_parallel = false;
      ls_test_tally_layout(&tally, &experiment, &reference, &layout,
                           ls_layout_print(arena, &layout));
    }
    ls_arena_destroy(&arena);
  }
  print_message("%d layouts run, %d refused\n", tally.run, tally.refused);
  assert_int_equal(tally.failed, 0);
  assert_int_equal(tally.run, FORMS * CASES);
}

/* The program is proved as it is, and not where the loss reads another input as its labels. */
static void the_proof_sees_other_labels(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = config_of(arena, 1);
  const ls_layout layout = layout_of(&cases[4]);
  const ls_build_options options = {.tokens = SEQUENCES / layout.microbatches * SEQUENCE,
                                    .sequence = SEQUENCE,
                                    .documents = true};
  ls_graph *graph;
  ls_program *stages[MOST_STAGES];
  ls_error error = {0};
  assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
  ls_graph_backward(graph);
  assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_OK);
  if (ls_check(graph, &layout, (const ls_program *const *)stages, NULL, &error) != LS_OK)
    fail_msg("%s", error.text);
  int changed = 0;
  for (int i = 0; i < stages[0]->instructions.count; i++) {
    ls_instruction *each = &stages[0]->instructions.items[i];
    const bool loss = each->collective == LS_COLLECTIVE_NONE && each->kind == LS_OP_XENT_LOSS;
    if (loss) each->in[3] = stages[0]->positions; /* classes of another input */
    changed += loss;
  }
  assert_true(changed > 0);
  assert_int_equal(ls_check(graph, &layout, (const ls_program *const *)stages, NULL, &error),
                   LS_REFUTED);
  ls_arena_destroy(&arena);
}

/* Nor where what stands before the logits is another function, or a mean of the tokens before. */
static void the_proof_sees_another_head(void **state) {
  (void)state;
  const ls_layout layout = layout_of(&cases[4]);
  for (int shape = 0; shape < 2; shape++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = encoder(arena, shape);
    const ls_build_options options = {.tokens = SEQUENCES / layout.microbatches * SEQUENCE,
                                      .sequence = SEQUENCE,
                                      .documents = true};
    const ls_op_kind kind = shape ? LS_OP_ATTENTION : LS_OP_SOFTCAP;
    ls_graph *graph;
    ls_program *stages[MOST_STAGES];
    ls_error error = {0};
    assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
    ls_graph_backward(graph);
    assert_int_equal(ls_program_compile(graph, &layout, LS_PROGRAM_STEP, stages, &error), LS_OK);
    if (ls_check(graph, &layout, (const ls_program *const *)stages, NULL, &error) != LS_OK)
      fail_msg("%s", error.text);
    int changed = 0;
    for (int i = 0; i < stages[0]->instructions.count; i++) {
      ls_instruction *each = &stages[0]->instructions.items[i];
      if (each->collective != LS_COLLECTIVE_NONE || each->kind != kind) continue;
      if (shape && each->attributes.softmax_scale != 0) continue; /* a layer's own */
      if (shape)
        each->attributes.two_way = 0;
      else
        each->attributes.softcap = 2;
      changed++;
    }
    assert_true(changed > 0);
    assert_int_equal(ls_check(graph, &layout, (const ls_program *const *)stages, NULL, &error),
                     LS_REFUTED);
    ls_arena_destroy(&arena);
  }
}

/* Of a model with adapters these and the head alone, of an encoder's head each module by its bit.
 */
static void the_head_is_trained_beside_adapters(void **state) {
  (void)state;
  static const int64_t kept[] = {LS_HEAD_ALL, LS_HEAD_CLASSES, 0};
  for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
    ls_arena *arena = ls_arena_create();
    ls_model_config config = encoder(arena, 1);
    ls_error error = {0};
    const ls_build_options options = {.tokens = SEQUENCE, .sequence = SEQUENCE};
    ls_graph *graph;
    config.lora_rank = 2;
    config.lora_targets = 1;
    assert_int_equal(ls_adapters_keep_head(&config, &error), LS_OK);
    assert_int_equal(config.lora_modules, LS_HEAD_ALL);
    config.lora_modules = kept[k];
    assert_int_equal(ls_model_build(arena, &config, &options, &graph, &error), LS_OK);
    int modules = 0;
    for (int p = 0; p < graph->parameters.count; p++) {
      const ls_parameter *about = &graph->parameters.items[p].about;
      modules |= about->module;
      assert_int_equal(graph->parameters.items[p].trainable,
                       about->adapter || (about->module & kept[k]) != 0);
    }
    assert_int_equal(modules, LS_HEAD_ALL);
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_proof_sees_other_labels),
      cmocka_unit_test(the_proof_sees_another_head),
      cmocka_unit_test(the_head_is_trained_beside_adapters),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
