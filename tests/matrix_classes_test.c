/* A head over classes of texts: under every strategy the training equals that of one device, in
 * fp64, with texts side by side in masked sequences, beside adapters, told by a mean, and with the
 * heads of encoders; a program whose loss reads other labels, or whose head is another function, is
 * not proved. What the loss is, is held to PyTorch's in classes_trace_slow_test.c. */
#include <string.h>

#include "store/adapters.h"
#include "support/layouts.h"
#include "support/program_faults.h"

enum { SEQUENCE = 8, SEQUENCES = 12 };

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

/* Classes of their tokens: without a pooler, but with what ModernBERT has there. */
static ls_model_config of_tokens(ls_arena *arena, int shape) {
  ls_model_config config = encoder(arena, shape);
  ls_model_set_pooling(arena, &config, LS_POOLING_EACH);
  return config;
}

/* The same of decoders, whose head has a bias and drops. */
static ls_model_config of_their_tokens(ls_arena *arena, int shape) {
  ls_model_config config = config_of(arena, shape);
  ls_model_set_pooling(arena, &config, LS_POOLING_EACH);
  assert_true(config.dropout.head == 0.1);
  return config;
}

static const double weights[] = {0.25, 1.5, 3};

/* Texts with any of the classes. */
static ls_model_config several(ls_arena *arena, int shape) {
  ls_model_config config = shape == 1 ? encoder(arena, shape) : config_of(arena, shape);
  ls_model_set_several(arena, &config);
  return config;
}

/* Of more classes than a word has bits, which weigh. */
enum { MANY = 67 };
static double many_weights[MANY];
static ls_model_config many(ls_arena *arena, int shape) {
  ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  const char **names = LS_NEW_ARRAY(arena, const char *, MANY);
  for (int c = 0; c < MANY; c++) {
    names[c] = ls_arena_printf(arena, "class %d", c);
    many_weights[c] = 0.25 + c % 7;
  }
  ls_model_set_classes(arena, &config, names, MANY);
  ls_model_set_several(arena, &config);
  return config;
}

/* Some weigh their classes. */
static const struct {
  ls_model_config (*config)(ls_arena *arena, int shape);
  const double *weights;
} forms[] = {{config_of, NULL},    {adapted, weights},     {meant, NULL},
             {encoder, NULL},      {of_tokens, weights},   {several, NULL},
             {many, many_weights}, {of_their_tokens, NULL}};

/* By shape. */
enum { MOST_ROWS = 6, ROWS = 11, FORMS = sizeof forms / sizeof *forms };
static const struct {
  int count;
  ls_layout rows[MOST_ROWS];
} layouts[LS_TEST_SHAPES] = {
    {3,
     {{.dp_replicate = 3},
      {.dp_replicate = 2, .dp_shard = 2, .zero = 3, .microbatches = 3},
      {PIPE(2, "1f1b"), .dp_shard = 2, .zero = 3, .microbatches = 2, EVERY}}},
    {6,
     {{.dp_shard = 2, .zero = 1, .microbatches = 2},
      {.tp = 2, .microbatches = 2, SP, EVERY},
      {.cp = 2},
      {.dp_shard = 2, .cp = 2, .tp = 2, .zero = 3, SP, EVERY},
      {PIPE(2, "zbh1"), .dp_shard = 2, .zero = 1, .microbatches = 3, .post_validation = true},
      {PIPE(2, "zbh2"), .cp = 2, .tp = 2, .microbatches = 4, SP}}},
    {2, {{.dp_shard = 3, .zero = 2, .microbatches = 2}, {.dp_shard = 2, .tp = 3, .zero = 3, SP}}},
};

static ls_experiment experiment_of(const ls_model_config *config) {
  return (ls_experiment){.config = config,
                         .sequences = SEQUENCES,
                         .sequence = SEQUENCE,
                         .documents = true,
                         .learning_rate = 1e-2,
                         .seed = 7,
                         .saved = true,
                         .deadline_s = 60,
                         .steps = 2};
}

/* A mean is of tokens that a rank of cp has alone: with sequence parallelism it is refused. */
static void every_layout_equals_one_device(void **state) {
  (void)state;
  ls_test_tally tally = {0};
  for (int each = 0; each < FORMS * LS_TEST_SHAPES; each++) {
    const int shape = each % LS_TEST_SHAPES, form = each / LS_TEST_SHAPES;
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = forms[form].config(arena, shape);
    ls_experiment experiment = experiment_of(&config);
    experiment.weights = forms[form].weights;
    ls_layout rows[MOST_ROWS];
    memcpy(rows, layouts[shape].rows, sizeof rows);
    for (int r = 0; r < layouts[shape].count; r++)
      rows[r].sequence_parallel &= config.pooling != LS_POOLING_MEAN || rows[r].cp < 2;
    ls_test_equal_layouts(&tally, &experiment, rows, layouts[shape].count, config.family);
    ls_arena_destroy(&arena);
  }
  LS_TEST_EXPECT(&tally, FORMS * ROWS, 0);
}

static bool classes_of_another_input(ls_program *program) {
  ls_instruction *loss = ls_test_find(program, LS_OP_XENT_LOSS, 0);
  if (loss) loss->in[3] = program->positions;
  return loss;
}

static bool weights_of_first_microbatch(ls_program *program) {
  return program->weights >= 0 && ls_test_of_first_microbatch(program, program->weights);
}

static bool a_mean_over_labels(ls_program *program) {
  ls_instruction *count = ls_test_find(program, LS_OP_COUNT_WEIGHTS, 0);
  if (!count) return false;
  count->kind = LS_OP_COUNT_VALID;
  count->inputs = 1;
  return true;
}

static bool sets_of_first_microbatch(ls_program *program) {
  return program->sets >= 0 && ls_test_of_first_microbatch(program, program->sets);
}

static bool classes_that_do_not_weigh(ls_program *program) {
  ls_instruction *sum = ls_test_find(program, LS_OP_BCE_SUM, 0);
  if (sum) sum->inputs = 3;
  return sum;
}

static bool a_mean_over_less(ls_program *program) {
  ls_instruction *gradient = ls_test_find(program, LS_OP_BCE_GRAD, 0);
  if (gradient) gradient->attributes.scale = 0.5;
  return gradient;
}

static bool another_function(ls_program *program) {
  ls_instruction *tanh = ls_test_find(program, LS_OP_SOFTCAP, 0);
  if (tanh) tanh->attributes.softcap = 2;
  return tanh;
}

/* Of attention that has no scores, which is the mean. */
static bool mean_of_tokens_before(ls_program *program) {
  bool changed = false;
  for (int which = 0;; which++) {
    ls_instruction *each = ls_test_find(program, LS_OP_ATTENTION, which);
    if (!each) return changed;
    if (each->attributes.softmax_scale != 0) continue;
    each->attributes.two_way = 0;
    changed = true;
  }
}

static void the_proof_sees_faults(void **state) {
  (void)state;
  static const struct {
    ls_model_config (*form)(ls_arena *arena, int shape);
    int shape;
    ls_test_fault fault;
    const double *weights;
  } cases[] = {
      {config_of, 1, {"classes of another input", classes_of_another_input, NULL, false}, NULL},
      {encoder, 0, {"another function", another_function, NULL, false}, NULL},
      {encoder, 1, {"a mean of the tokens before", mean_of_tokens_before, NULL, false}, NULL},
      {config_of, 1, {"weights of microbatch 0", weights_of_first_microbatch, NULL, true}, weights},
      {config_of, 1, {"a mean over labels", a_mean_over_labels, NULL, true}, weights},
      {several, 1, {"a mean over less", a_mean_over_less, NULL, true}, NULL},
      {many, 1, {"sets of microbatch 0", sets_of_first_microbatch, NULL, true}, many_weights},
      {many, 1, {"no weights", classes_that_do_not_weigh, NULL, true}, many_weights},
  };
  const ls_layout layout = ls_test_layout_of(&layouts[1].rows[1]);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = cases[c].form(arena, cases[c].shape);
    ls_experiment experiment = experiment_of(&config);
    experiment.weights = cases[c].weights;
    ls_test_refute(&experiment, &layout, &cases[c].fault, 1);
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
      cmocka_unit_test(the_proof_sees_faults),
      cmocka_unit_test(the_head_is_trained_beside_adapters),
      cmocka_unit_test(every_layout_equals_one_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
