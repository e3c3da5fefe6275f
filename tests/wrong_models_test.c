/* `check` knows which model is meant: programs of a model that is wrong and consistent are proved
 * for that model, and rejected for the right one, each for the reason that is written beside it.
 * And each class of bug that verifiers and differential testers of parallel training report
 * (TrainVerify, GraphGuard, Scalify; TTrace's of Megatron-LM) and that a program here can have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "check/check.h"
#include "lower/compile.h"
#include "support/faults.h"
#include "support/layouts.h"
#include "support/mutate.h"
#include "support/program_faults.h"
#include "support/wrong_models.h"

enum { MOST_STAGES = 4, SEEDS = 3 };

typedef struct compiled {
  ls_graph *graph;
  ls_layout layout;
  ls_program *stages[MOST_STAGES];
} compiled;

static bool compiles(compiled *made, const ls_layout *layout, ls_program_kind kind,
                     ls_error *error) {
  made->layout = *layout;
  if (kind == LS_PROGRAM_STEP) ls_graph_backward(made->graph);
  return ls_program_compile(made->graph, layout, kind, made->stages, error) == LS_OK;
}

static void finish(compiled *made, const ls_layout *layout, ls_program_kind kind) {
  ls_error error = {0};
  if (!compiles(made, layout, kind, &error)) fail_msg("%s", error.text);
}

static ls_status check(const ls_graph *graph, const compiled *made, ls_error *error) {
  const ls_program *programs[MOST_STAGES];
  for (int s = 0; s < made->layout.pp; s++) programs[s] = made->stages[s];
  return ls_check(graph, &made->layout, programs, NULL, error);
}

static void expect_rejected(const ls_graph *right, const compiled *wrong, const char *name,
                            const char *reason) {
  ls_error error = {0};
  if (check(right, wrong, &error) != LS_REFUTED) fail_msg("%s: accepted", name);
  if (getenv("LS_FAULTS_PRINT")) print_message("%s: %s\n", name, error.text);
  if (!strstr(error.text, reason)) fail_msg("%s: \"%s\" lacks \"%s\"", name, error.text, reason);
}

static ls_graph *model_of(ls_arena *arena, const ls_model_config *config, const ls_layout *layout) {
  return ls_test_model(arena, config, layout, LS_TEST_SEQUENCES, LS_TEST_SEQUENCE);
}

/* One device; ZeRO-3; tensor and sequence parallel in slices; pipelines with a tied embedding and
 * everything made again. */
static ls_layout layout_of(int shape, int number) {
  ls_layout layout = ls_layout_default();
  layout.microbatches = 4;
  layout.compute = number % 2 ? LS_BF16 : LS_F32;
  layout.dp_shard = number == 1 ? 2 : 1;
  layout.zero = number == 1 ? 3 : 1;
  layout.tp = number == 2 ? (shape == 2 ? 3 : 2) : 1;
  layout.sequence_parallel = number == 2;
  layout.logits_rows = number == 2 ? 7 : 0;
  layout.pp = number >= 3 ? 2 : 1;
  layout.schedule = number == 4 ? "dualpipev" : "1f1b";
  if (number == 3) layout.recompute = (ls_op_set)LS_EVERY_OP;
  layout.recompute_layers = 1;
  return layout;
}
enum { LAYOUTS = 5 };

/* Whether the shape has a place for it, and the layout can have it. */
static bool try_wrong(const ls_wrong_model *how, int shape, int number, uint64_t seed,
                      ls_program_kind kind) {
  ls_arena *arena = ls_arena_create();
  const ls_layout layout = layout_of(shape, number);
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[shape]);
  compiled wrong = {.graph = model_of(arena, &config, &layout)};
  ls_error error = {0};
  const bool made = how->make(wrong.graph, seed) && compiles(&wrong, &layout, kind, &error);
  if (made) {
    if (!how->unread && check(wrong.graph, &wrong, &error) != LS_OK)
      fail_msg("%s as its own model: %s", how->name, error.text);
    ls_graph *right = model_of(arena, &config, &layout);
    ls_freeze_alike(right, wrong.graph);
    expect_rejected(right, &wrong, how->name, how->reason);
  }
  ls_arena_destroy(&arena);
  return made;
}

static void wrong_models_are_rejected(void **state) {
  (void)state;
  int rejected = 0;
  for (int w = 0; w < ls_wrong_model_count; w++) {
    int made = 0;
    for (int i = 0; i < LS_TEST_SHAPES * LAYOUTS * SEEDS; i++)
      for (int kind = LS_PROGRAM_STEP; kind <= LS_PROGRAM_FORWARD; kind++) {
        const int number = i / LS_TEST_SHAPES % LAYOUTS;
        if (kind == LS_PROGRAM_FORWARD && number > 2) continue;
        made += try_wrong(&ls_wrong_models[w], i % LS_TEST_SHAPES, number, (uint64_t)i,
                          (ls_program_kind)kind);
      }
    if (!made) fail_msg("%s: no shape has a place for it", ls_wrong_models[w].name);
    rejected += made;
  }
  print_message("%d wrong models in %d programs: all rejected\n", ls_wrong_model_count, rejected);
}

/* The same family's model of other numbers: what its configuration says, and what it should say. */
static const struct other {
  const char *name, *from, *to;
  int shape;
  const char *reason;
} others[] = {
    {"an untied head", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", 2,
     "parameters: expected the model's"},
    {"a tied head", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", 1,
     "parameters: expected the model's"},
    {"a bias too many", "\"vocab_size\": 43", "\"vocab_size\": 43, \"attention_bias\": true", 2,
     "parameters: expected the model's"},
    {"a layer too few", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2", 2,
     "parameters: expected the model's"},
    {"another epsilon", "1e-5", "1e-6", 1, "with epsilon 1e-06: expected 1e-05"},
    {"rope scaled", "\"vocab_size\": 41",
     "\"vocab_size\": 41, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}", 1,
     "with rope_frequencies"},
    {"fewer KV heads", "\"num_key_value_heads\": 4", "\"num_key_value_heads\": 2", 1,
     "attention.key.weight of 4 x 32: expected the model's"},
    {"other heads", "\"num_attention_heads\": 16", "\"num_attention_heads\": 8", 1,
     "expected the model's"},
    {"a wider MLP", "\"intermediate_size\": 45", "\"intermediate_size\": 46", 1,
     "of 46 x 32: expected the model's"},
    {"another vocabulary", "\"vocab_size\": 41", "\"vocab_size\": 42", 1,
     "of 42 x 32: expected the model's"},
    {"an exact activation", "\"n_inner\": 43", "\"n_inner\": 43, \"activation_function\": \"gelu\"",
     0, "with activation"},
};
enum { OTHERS = sizeof others / sizeof *others };

static const char *replace(ls_arena *arena, const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  assert_non_null(at);
  return ls_arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void other_configurations_are_rejected(void **state) {
  (void)state;
  for (int i = 0; i < OTHERS * 3; i++) {
    const struct other *about = &others[i / 3];
    ls_arena *arena = ls_arena_create();
    const ls_layout layout = layout_of(about->shape, i % 3);
    ls_test_shape shape = ls_test_shapes[about->shape];
    const ls_model_config right = ls_test_shape_config(arena, &shape);
    shape.config = replace(arena, shape.config, about->from, about->to);
    const ls_model_config config = ls_test_shape_config(arena, &shape);
    compiled wrong = {.graph = model_of(arena, &config, &layout)};
    finish(&wrong, &layout, LS_PROGRAM_STEP);
    expect_rejected(model_of(arena, &right, &layout), &wrong, about->name, about->reason);
    ls_arena_destroy(&arena);
  }
}

/* A step of half the tokens, or of the same in longer sequences. */
static void other_batches_are_rejected(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_layout layout = layout_of(1, 0);
  const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
  compiled half = {.graph = ls_test_model(arena, &config, &layout, 24, LS_TEST_SEQUENCE)};
  compiled longer = {.graph = ls_test_model(arena, &config, &layout, 24, 2 * LS_TEST_SEQUENCE)};
  finish(&half, &layout, LS_PROGRAM_STEP);
  finish(&longer, &layout, LS_PROGRAM_STEP);
  const ls_graph *right = model_of(arena, &config, &layout);
  expect_rejected(right, &half, "half the tokens",
                  "is filled with 24 tokens in sequences of 4: expected 48 of 4");
  expect_rejected(right, &longer, "longer sequences",
                  "is filled with 48 tokens in sequences of 8: expected 48 of 4");
  ls_arena_destroy(&arena);
}

static void other_optimizer(ls_layout *layout) {
  layout->optimizer.kind = LS_OPTIMIZER_SGD;
}
static void other_momentum(ls_layout *layout) {
  layout->optimizer.beta2 = 0.99;
}
static void other_decay(ls_layout *layout) {
  layout->optimizer.weight_decay = 0;
}
static void other_clip(ls_layout *layout) {
  layout->optimizer.clip = 2;
}
static void fewer_microbatches(ls_layout *layout) {
  layout->microbatches = 2;
}
static void other_type(ls_layout *layout) {
  layout->compute = LS_BF16;
}
static void other_gradients(ls_layout *layout) {
  layout->grad_dtype = LS_BF16;
}
static void more_ranks(ls_layout *layout) {
  layout->dp_shard = 2;
}

/* A step as another layout asks for it: its programs are wrong and agree. */
static void other_layouts_are_rejected(void **state) {
  (void)state;
  static const struct {
    const char *name;
    void (*change)(ls_layout *);
    const char *reason;
  } changes[] = {
      {"another optimizer", other_optimizer, "is not the layout's optimizer"},
      {"another momentum", other_momentum, "has other settings than the layout"},
      {"another decay", other_decay, "has other settings than the layout"},
      {"another clip", other_clip, "clips at 2: expected 1"},
      {"fewer microbatches", fewer_microbatches, "lacks microbatches"},
      {"another type", other_type, "used form is not where its cut says"},
      {"gradients of another type", other_gradients,
       "gradient of a microbatch is not where its cut says"},
      {"more ranks", more_ranks, "of 2 ranks together: expected 1 of 1"},
  };
  for (int c = 0; c < (int)(sizeof changes / sizeof *changes); c++) {
    ls_arena *arena = ls_arena_create();
    ls_layout layout = layout_of(1, 0);
    const ls_layout right = layout;
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
    compiled wrong = {.graph = model_of(arena, &config, &layout)};
    changes[c].change(&layout);
    finish(&wrong, &layout, LS_PROGRAM_STEP);
    wrong.layout = right;
    expect_rejected(wrong.graph, &wrong, changes[c].name, changes[c].reason);
    ls_arena_destroy(&arena);
  }
}

/* Bugs as they are reported, the fault of support/faults that is one, and why it is rejected. */
static const struct reported {
  const char *bug, *fault, *reason;
} reported[] = {
    {"mask of a cut embedding under tp", "start of the vocabulary's part not subtracted from ids",
     "is declared as R: expected S(0) on tp_kv"},
    {"labels of a cut cross-entropy not masked",
     "start of the vocabulary's part not subtracted from labels",
     "is declared as R: expected S(1) on tp_kv"},
    {"recomputation from another input", "made again from another microbatch",
     "belongs to another microbatch"},
    {"recomputation after it is needed", "made again after backward",
     "reads layers.1.39.gelu, which nothing has written"},
    {"loss scaled by a rank's own count", "valid tokens not summed",
     "count of valid tokens is still partial over dp_replicate"},
    {"loss scaled before the count is whole", "loss scaled before the valid tokens are summed",
     "count of valid tokens is still partial over dp_replicate"},
    {"loss counted by several ranks", "loss summed over tp as well",
     "all-reduce over tp_kv, where the value is the same on all ranks"},
    {"loss counted by several stages", "loss counted on two stages",
     "sums over stages what several of them have"},
    {"tied embedding's gradient not added over stages",
     "gradient of the tied embedding not added over its stages", "reads a gradient of 1 uses"},
    {"tied embedding's copies drift apart", "tied embedding updated apart on its stages",
     "has other settings than the layout"},
    {"a second use of a weight overwrites", "second use of a tied embedding overwrites",
     "reads a gradient of 1 uses"},
    {"gradients of norms under sequence parallelism",
     "gradients of norms not summed under sequence parallelism",
     "the gradient is still partial over tp_kv"},
    {"gradients of replicated weights", "gradients of replicated KV heads not summed",
     "the gradient is still partial over tp_group"},
    {"gradients reduced over another group",
     "gradients of replicated KV heads summed over all of tp",
     "all-reduce over tp_kv, where the value is cut"},
    {"gradients scattered over another group", "gradients reduce-scattered over dp_replicate",
     "over other axes"},
    {"gradients reduced twice", "gradients of data-parallel ranks summed twice",
     "all-reduce over dp_replicate, where the value is the same on all ranks"},
    {"gradients not reduced", "gradients of data-parallel ranks not summed",
     "the gradient is still partial over dp_replicate"},
    {"gradients reduced before they are whole", "gradients reduced before their weight half",
     "reads gradient of layers.0, which nothing has written"},
    {"a microbatch's gradients overwritten", "gradients of a later microbatch overwrite",
     "reads a gradient that lacks microbatches, or rows of one"},
    {"last step's gradients not cleared",
     "gradients of the first microbatch added to the last step's",
     "reads gradient of layers.1.mlp.down.bias, which nothing has written"},
    {"input gradient of a row-cut product not reduced",
     "partial product of backward taken as whole", "is declared as R: expected P(sum) on tp_kv"},
    {"a partial output not reduced", "partial product taken as whole",
     "is declared as R: expected P(sum) on tp_kv"},
    {"a partial output reduced twice", "partial product summed twice",
     "all-reduce over tp_kv, where the value is the same on all ranks"},
    {"bias added by every rank", "bias added before the sum over tp",
     "is declared as R: expected P(sum) on tp_kv"},
    {"the stream not gathered", "all-gather of the stream dropped",
     "reads layers.0.4.layernorm, which nothing has written"},
    {"the stream's gradient not scattered", "reduce-scatter of the stream's gradient dropped",
     "is declared as S(0) on tp_kv: expected P(sum) on tp_kv"},
    {"norm counts replicated weights by rank", "norm counts replicas once per rank",
     "adds to a sum in another placement"},
    {"norm of one rank's shards", "norm not summed over dp_shard",
     "the squared norm is still partial over dp_shard"},
    {"norm of one stage", "norm not summed over stages", "reads a squared norm of 10 parameters"},
    {"a unit left out of the update", "last unit not updated",
     "ends without the updated weights of head.norm.weight"},
    {"updated shards not gathered", "updated weights not published",
     "leaves the weights of embedding.token in other shards than it found them"},
    {"master weights not cast", "bf16 weights not cast from the master",
     "ends without the updated weights of embedding.token"},
    {"optimizer at another offset", "piece of a gradient one element late",
     "its gradient is not where its cut says"},
    {"shard at another offset", "gathered weight read one element late",
     "its used form is not where its cut says"},
    {"optimizer state of another shard", "both moments in one place",
     "updates embedding.token elsewhere"},
    {"stale weights after gathering", "weights not gathered again in backward",
     "reads embedding.token, which nothing has written"},
    {"offloaded state of another unit", "optimizer state of another unit",
     "updates layers.0.norm1.weight a second time or from something else"},
    {"stale activations come back", "stale copy of activations comes back",
     "reads embedding.3.dropout, which nothing has written"},
    {"microbatches swapped between stages",
     "messages of two microbatches received in each other's place", "takes microbatch 0"},
    {"sent before it is made", "message taken before it is made",
     "reads layers.0.23.add, which nothing has written"},
    {"a microbatch's backward left out", "weight half of a microbatch's backward left out",
     "reads a gradient that lacks microbatches, or rows of one"},
    {"activations of microbatches in one place", "microbatches under way keep in one place",
     "shares bytes with live interval"},
    {"decay of what should decay left out", "embeddings do not decay",
     "has other settings than the layout"},
    {"gradients not clipped", "gradients not clipped", "clips at 0"},
    {"scale of fp16 not undone", "scale of the loss not undone",
     "input 3 is not the cell it should be"},
    {"every microbatch of the same data", "all microbatches read the same tokens",
     "shares bytes with live interval"},
};
enum { REPORTED = sizeof reported / sizeof *reported };

static const ls_fault *find_fault(const char *name) {
  const ls_fault *const lists[] = {ls_faults, ls_pipeline_faults, ls_offload_faults,
                                   ls_replay_boundary_faults, ls_slice_faults};
  const int counts[] = {ls_fault_count, ls_pipeline_fault_count, ls_offload_fault_count,
                        ls_replay_boundary_fault_count, ls_slice_fault_count};
  for (int l = 0; l < 5; l++)
    for (int f = 0; f < counts[l]; f++)
      if (strcmp(lists[l][f].name, name) == 0) return &lists[l][f];
  fail_msg("no fault is called \"%s\"", name);
  return NULL;
}

/* What else would give a fault away is mended, so that it is seen by what it does: collectives over
 * no axis go, and every instruction waits for all that is before it on the other queue. */
static void mend(ls_program *program) {
  char what[160];
  for (int i = program->instructions.count - 1; i >= 0; i--) {
    const ls_instruction *each = &program->instructions.items[i];
    if (each->collective >= LS_ALL_REDUCE && each->collective <= LS_ALL_GATHER && !each->axes)
      ls_drop_instruction(program, i, what);
  }
  for (int b = 0; b < program->bodies.count; b++) {
    int last[LS_QUEUE_COUNT] = {-1, -1, -1};
    const ls_body *body = &program->bodies.items[b];
    for (int i = body->first; i < body->first + body->count; i++) {
      ls_instruction *each = &program->instructions.items[i];
      each->wait = last[each->queue == LS_QUEUE_COMPUTE ? LS_QUEUE_COMMUNICATE : LS_QUEUE_COMPUTE];
      last[each->queue] = i;
    }
  }
  ls_refresh_lives(program);
}

static void reported_bugs_are_rejected(void **state) {
  (void)state;
  for (int r = 0; r < REPORTED; r++) {
    ls_arena *arena = ls_arena_create();
    const ls_fault *fault = find_fault(reported[r].fault);
    const ls_layout layout = ls_fault_layout(fault);
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[fault->shape]);
    compiled made = {.graph = model_of(arena, &config, &layout)};
    finish(&made, &layout, LS_PROGRAM_STEP);
    int places = 0;
    for (int s = 0; s < layout.pp; s++) {
      places += fault->inject(made.stages[s]);
      mend(made.stages[s]);
    }
    assert_true(places > 0);
    expect_rejected(made.graph, &made, reported[r].bug, reported[r].reason);
    ls_arena_destroy(&arena);
  }
  print_message("%d reported bugs rejected\n", REPORTED);
}

static void trade_labels(ls_program *program) {
  const int labels = program->labels;
  program->labels = program->ids;
  program->ids = labels;
}

static void scale_without_count(ls_program *program) {
  ls_test_need(program, LS_OP_XENT_GRAD, 0)->in[4] = program->cell[LS_CELL_SCALE];
}

/* Which is not seen by sizes: what is written and read is half of what there is room for. */
static void statistics_in_16_bits(ls_program *program) {
  program->values.items[ls_test_need(program, LS_OP_RMSNORM, 0)->out[1]].dtype = LS_BF16;
}

static void other_sizes(ls_program *program) {
  ls_value *rotations = &program->values.items[ls_test_need(program, LS_OP_ROPE_TABLE, 0)->out[0]];
  rotations->global[0] /= 2;
}

static void other_parameter(ls_program *program) {
  const char *name = program->parameters[1].name;
  program->parameters[1].name = program->parameters[2].name;
  program->parameters[2].name = name;
}

static void owned_by_none(ls_program *program) {
  program->parameters[3].owner = false;
}

static void without_positions(ls_program *program) {
  program->values.items[program->positions].dtype = LS_F32;
}

static const struct edit {
  const char *name;
  void (*make)(ls_program *);
  const char *reason;
} edits[] = {
    {"tokens counted as labels", trade_labels,
     "makes count_valid(ids): expected the model's count_valid(labels)"},
    {"gradient of the loss not divided by its tokens", scale_without_count,
     "input 4 is no gradient: expected a gradient, or the loss scale as the loss's"},
    {"statistics of a norm kept in 16 bits", statistics_in_16_bits, "in bf16: expected fp32"},
    {"a table of rotations for half the tokens", other_sizes, "elements in dimension 0: expected"},
    {"weights under each other's name", other_parameter, "expected the model's layers.0.norm1"},
    {"a parameter that no stage owns", owned_by_none,
     "has 0 owners among the stages: expected one"},
    {"positions of another type", without_positions, "as 48 fp32: expected the model's 48 int32"},
};
enum { EDITS = sizeof edits / sizeof *edits };

static void edited_programs_are_rejected(void **state) {
  (void)state;
  for (int e = 0; e < EDITS; e++) {
    ls_arena *arena = ls_arena_create();
    const ls_layout layout = layout_of(1, 1);
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
    compiled made = {.graph = model_of(arena, &config, &layout)};
    finish(&made, &layout, LS_PROGRAM_STEP);
    edits[e].make(made.stages[0]);
    expect_rejected(made.graph, &made, edits[e].name, edits[e].reason);
    ls_arena_destroy(&arena);
  }
}

/* The value of that name, which a decoding program keeps. */
static const char **name_of(ls_program *program, const char *name) {
  for (int v = 0; v < program->values.count; v++)
    if (strcmp(program->values.items[v].name, name) == 0) return &program->values.items[v].name;
  fail_msg("no %s", name);
  return NULL;
}

/* Caches are the graph's, found as they were and each written once. */
static void decoding_of_another_model_is_rejected(void **state) {
  (void)state;
  static const struct {
    const char *name, *first, *second; /* the caches that trade places */
  } wrong[] = {
      {"keys cached as values", "layers.0.cache.key", "layers.0.cache.value"},
      {"another layer's cache", "layers.0.cache.key", "layers.1.cache.key"},
      {"one cache of two layers", "layers.0.cache.value", NULL},
  };
  for (int w = 0; w < 3; w++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = ls_test_shape_config(arena, &ls_test_shapes[1]);
    const ls_layout layout = ls_layout_default();
    const ls_build_options options = {.mode = LS_MODEL_DECODE, .tokens = 2, .cache_rows = 4};
    compiled made;
    ls_error error = {0};
    assert_int_equal(ls_model_build(arena, &config, &options, &made.graph, &error), LS_OK);
    finish(&made, &layout, LS_PROGRAM_FORWARD);
    if (check(made.graph, &made, &error) != LS_OK) fail_msg("%s", error.text);
    const char **first = name_of(made.stages[0], wrong[w].first);
    const char *name = *first;
    if (wrong[w].second) {
      const char **second = name_of(made.stages[0], wrong[w].second);
      *first = *second;
      *second = name;
    } else {
      *name_of(made.stages[0], "layers.1.cache.value") = name;
    }
    expect_rejected(made.graph, &made, wrong[w].name, "expected the model's cached_attention(");
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_models_are_rejected),
      cmocka_unit_test(other_configurations_are_rejected),
      cmocka_unit_test(other_batches_are_rejected),
      cmocka_unit_test(other_layouts_are_rejected),
      cmocka_unit_test(reported_bugs_are_rejected),
      cmocka_unit_test(edited_programs_are_rejected),
      cmocka_unit_test(decoding_of_another_model_is_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
