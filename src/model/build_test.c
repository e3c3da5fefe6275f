/* Graphs of models: parameters, their order and gradients, and what is on the residual stream. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"

static ls_arena *shapes; /* of configurations */

static int make_shapes(void **state) {
  (void)state;
  shapes = ls_arena_create();
  return 0;
}

static int drop_shapes(void **state) {
  (void)state;
  ls_arena_destroy(&shapes);
  return 0;
}

static ls_model_config shape_of(const char *name) {
  ls_model_config config;
  ls_error error = {0};
  if (ls_model_find(shapes, name, &config, &error) != LS_OK) fail_msg("%s", error.text);
  return config;
}

typedef struct count_case {
  const char *preset;
  int64_t parameters;
} count_case;

/* As their publishers, or transformers' num_parameters(), give them. */
static const count_case counts[] = {
    {"gpt2-124m", 124439808},        {"gpt2-355m", 354823168},
    {"gpt2-774m", 774030080},        {"gpt2-1.5b", 1557611200},
    {"smollm2-135m", 134515008},     {"tinyllama-1.1b", 1100048384},
    {"llama2-7b", 6738415616},       {"llama3-8b", 8030261248},
    {"llama3-70b", 70553706496},     {"llama3.1-405b", 405853388800},
    {"mistral-7b-v0.1", 7241732096}, {"qwen3-8b", 8190735360},
    {"mixtral-8x7b", 46702792704},   {"qwen3-30b-a3b", 30532122624},
    {"gpt-oss-20b", 20914757184},    {"gpt-oss-120b", 116829156672},
};

static void counts_are_the_published_ones(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const ls_model_config config = shape_of(counts[i].preset);
    assert_int_equal(ls_model_parameters(&config), counts[i].parameters);
  }
}

/* Half of what the last digit of a number stands for. */
static double rounding(const char *digits) {
  const char *point = strchr(digits, '.');
  return point ? 0.5 * pow(10, -(double)strlen(point + 1)) : 0.5;
}

static void every_preset_has_its_published_count(void **state) {
  (void)state;
  int count, built = 0, others = 0;
  const ls_preset *presets = ls_model_presets(shapes, &count);
  for (int i = 0; i < count; i++) {
    const ls_preset *is = &presets[i];
    if (!is->parameters || !is->source || !is->title || !is->config == !is->not_built)
      fail_msg("%s lacks a title, a count, a source, or what is built", is->name);
    if (!is->config) continue;
    const ls_model_config config = shape_of(is->name);
    const double billions = (double)ls_model_parameters(&config) * 1e-9;
    const char *expected = is->counted ? is->counted : is->parameters;
    if (!(fabs(billions - strtod(expected, NULL)) <= rounding(expected)))
      fail_msg("%s: %.5f billion parameters; expected %s", is->name, billions, expected);
    others += is->counted != NULL;
    built++;
  }
  assert_true(count >= 148 && built >= 100);
  assert_int_equal(others, 2);
}

static void names_of_presets_are_unique(void **state) {
  (void)state;
  int count;
  const ls_preset *presets = ls_model_presets(shapes, &count);
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++) {
      if (i == j) continue;
      if (ls_preset_is_called(&presets[i], presets[j].name))
        fail_msg("%s and %s", presets[i].name, presets[j].name);
      for (const char **also = presets[j].also; *also; also++)
        if (ls_preset_is_called(&presets[i], *also))
          fail_msg("%s and %s of %s", presets[i].name, *also, presets[j].name);
    }
}

static ls_model_config small(const char *preset, bool tied, bool bias) {
  ls_model_config config = shape_of(preset);
  config.vocabulary = 37;
  config.width = 24;
  config.layers = 2;
  config.heads = 6;
  config.kv_heads = config.rope_theta > 0 ? 3 : 6;
  config.head_dim = 4;
  config.mlp_width = 50;
  config.positions = 16;
  config.tied = tied;
  if (config.rope_theta > 0) config.attention_bias = config.mlp_bias = bias;
  return config;
}

static ls_graph *build(ls_arena *arena, const ls_model_config *config, ls_model_mode mode) {
  ls_graph *graph = NULL;
  ls_error error = {0};
  const bool decode = mode == LS_MODEL_DECODE;
  const ls_build_options options = {
      .mode = mode, .tokens = decode ? 3 : 24, .sequence = 8, .cache_rows = 16};
  if (ls_model_build(arena, config, &options, &graph, &error) != LS_OK) fail_msg("%s", error.text);
  return graph;
}

static const ls_parameter *find(const ls_graph *graph, const char *name) {
  for (int i = 0; i < graph->parameters.count; i++)
    if (strcmp(graph->parameters.items[i].about.name, name) == 0)
      return &graph->parameters.items[i].about;
  fail_msg("no parameter %s", name);
  return NULL;
}

static bool has(const ls_graph *graph, const char *name) {
  for (int i = 0; i < graph->parameters.count; i++)
    if (strcmp(graph->parameters.items[i].about.name, name) == 0) return true;
  return false;
}

static void check_gradients(const ls_model_config *config, int parameters) {
  ls_arena *arena = ls_arena_create();
  ls_graph *graph = build(arena, config, LS_MODEL_TRAIN);
  ls_graph_backward(graph);
  assert_int_equal(graph->parameters.count, parameters);
  for (int i = 0; i < graph->parameters.count; i++) {
    const ls_parameter_record *parameter = &graph->parameters.items[i];
    if (parameter->gradient.index < 0) fail_msg("%s has no gradient", parameter->about.name);
    const ls_tensor *gradient = ls_graph_tensor(graph, parameter->gradient);
    assert_int_equal(gradient->role, LS_ROLE_GRADIENT);
    assert_int_equal(gradient->ndim, parameter->about.ndim);
    for (int d = 0; d < gradient->ndim; d++)
      assert_int_equal(gradient->dims[d], parameter->about.dims[d]);
    for (int j = 0; j < i; j++)
      assert_string_not_equal(parameter->about.name, graph->parameters.items[j].about.name);
  }
  ls_arena_destroy(&arena);
}

static void every_parameter_has_a_gradient(void **state) {
  (void)state;
  const ls_model_config gpt2 = small("gpt2-10m", true, true);
  check_gradients(&gpt2, 2 + 2 * 16 + 2);
  const ls_model_config gpt2_free = small("gpt2-10m", false, true);
  check_gradients(&gpt2_free, 2 + 2 * 16 + 3);
  const ls_model_config llama = small("llama-3m", false, false);
  check_gradients(&llama, 1 + 2 * 9 + 2);
  const ls_model_config llama_tied = small("llama-3m", true, false);
  check_gradients(&llama_tied, 1 + 2 * 9 + 1);
  const ls_model_config llama_bias = small("llama-3m", true, true);
  check_gradients(&llama_bias, 1 + 2 * 16 + 1);
}

typedef struct cut_case {
  const char *name;
  ls_tp_sharding sharding;
  int64_t rows, columns;
} cut_case;

static void check_cuts(const ls_graph *graph, const cut_case *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const ls_parameter *parameter = find(graph, cases[i].name);
    assert_int_equal(parameter->sharding, cases[i].sharding);
    assert_int_equal(parameter->ndim, cases[i].columns ? 2 : 1);
    assert_int_equal(parameter->dims[0], cases[i].rows);
    if (cases[i].columns) assert_int_equal(parameter->dims[1], cases[i].columns);
  }
}

static void cuts_and_shapes_of_llama(void **state) {
  (void)state;
  static const cut_case cases[] = {
      {"embedding.token", LS_TP_VOCABULARY, 37, 24},
      {"layers.1.attention.query.weight", LS_TP_QUERY, 24, 24},
      {"layers.1.attention.query.bias", LS_TP_QUERY, 24, 0},
      {"layers.1.attention.key.weight", LS_TP_KEY_VALUE, 12, 24},
      {"layers.1.attention.value.bias", LS_TP_KEY_VALUE, 12, 0},
      {"layers.1.attention.output.weight", LS_TP_HEADS_IN, 24, 24},
      {"layers.1.attention.output.bias", LS_TP_REPLICATED, 24, 0},
      {"layers.1.mlp.gate.weight", LS_TP_COLUMN, 50, 24},
      {"layers.1.mlp.up.bias", LS_TP_COLUMN, 50, 0},
      {"layers.1.mlp.down.weight", LS_TP_ROW, 24, 50},
      {"layers.1.mlp.down.bias", LS_TP_REPLICATED, 24, 0},
      {"layers.1.norm2.weight", LS_TP_REPLICATED, 24, 0},
      {"head.norm.weight", LS_TP_REPLICATED, 24, 0},
      {"head.weight", LS_TP_VOCABULARY, 37, 24},
  };
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = small("llama-3m", false, true);
  const ls_graph *graph = build(arena, &config, LS_MODEL_FORWARD);
  check_cuts(graph, cases, sizeof cases / sizeof *cases);
  ls_arena_destroy(&arena);
}

static void cuts_and_starts_of_gpt2(void **state) {
  (void)state;
  static const cut_case cases[] = {
      {"embedding.token", LS_TP_VOCABULARY, 37, 24},
      {"embedding.position", LS_TP_REPLICATED, 16, 24},
      {"layers.0.norm1.bias", LS_TP_REPLICATED, 24, 0},
      {"layers.0.attention.key.bias", LS_TP_KEY_VALUE, 24, 0},
      {"layers.0.mlp.up.weight", LS_TP_COLUMN, 50, 24},
      {"head.norm.bias", LS_TP_REPLICATED, 24, 0},
  };
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = small("gpt2-10m", true, true);
  const ls_graph *graph = build(arena, &config, LS_MODEL_FORWARD);
  check_cuts(graph, cases, sizeof cases / sizeof *cases);
  assert_false(has(graph, "head.weight"));
  assert_true(fabs(find(graph, "layers.0.mlp.up.weight")->deviation - 0.02) < 1e-15);
  assert_true(fabs(find(graph, "layers.0.mlp.down.weight")->deviation - 0.01) < 1e-15);
  assert_true(fabs(find(graph, "layers.1.attention.output.weight")->deviation - 0.01) < 1e-15);
  assert_int_equal(find(graph, "layers.0.norm1.weight")->init, LS_INIT_ONES);
  assert_int_equal(find(graph, "layers.0.norm1.bias")->init, LS_INIT_ZEROS);
  ls_arena_destroy(&arena);
}

/* Two branches of two tensors in each of two layers, and the embedding. */
static void the_stream_is_marked(void **state) {
  (void)state;
  static const char *const presets[] = {"gpt2-10m", "llama-3m"};
  for (int p = 0; p < 2; p++) {
    ls_arena *arena = ls_arena_create();
    const ls_model_config config = small(presets[p], true, p == 1);
    const ls_graph *graph = build(arena, &config, LS_MODEL_FORWARD);
    int marked = 0;
    for (int t = 0; t < graph->tensors.count; t++) {
      const ls_tensor *tensor = &graph->tensors.items[t];
      if (!tensor->stream) continue;
      marked++;
      assert_int_equal(tensor->dims[1], config.width);
      const ls_op_kind kind = graph->nodes.items[tensor->producer].kind;
      assert_true(kind == LS_OP_ADD || kind == LS_OP_BIAS || kind == LS_OP_EMBEDDING);
    }
    assert_int_equal(marked, 1 + 2 * 4);
    ls_arena_destroy(&arena);
  }
}

static void decoding_has_caches_and_no_loss(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = small("llama-3m", true, false);
  const ls_graph *graph = build(arena, &config, LS_MODEL_DECODE);
  int caches = 0;
  for (int t = 0; t < graph->tensors.count; t++) {
    const ls_tensor *tensor = &graph->tensors.items[t];
    if (tensor->role != LS_ROLE_STATE) continue;
    caches++;
    assert_int_equal(tensor->dims[0], 16);
    assert_int_equal(tensor->dims[1], 12);
  }
  assert_int_equal(caches, 4);
  assert_int_equal(graph->loss.index, -1);
  assert_int_equal(graph->labels.index, -1);
  assert_int_equal(ls_graph_tensor(graph, graph->logits)->dims[0], 3);
  assert_int_equal(ls_graph_tensor(graph, graph->logits)->dims[1], 37);
  ls_arena_destroy(&arena);
}

static void segments_are_units(void **state) {
  (void)state;
  static const char *const names[] = {"embedding", "layers.0", "layers.1", "head"};
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = small("gpt2-10m", false, true);
  const ls_graph *graph = build(arena, &config, LS_MODEL_TRAIN);
  assert_int_equal(graph->segments.count, 4);
  for (int s = 0; s < 4; s++) assert_string_equal(graph->segments.items[s].name, names[s]);
  for (int i = 0; i < graph->parameters.count; i++) {
    const ls_parameter_record *parameter = &graph->parameters.items[i];
    const char *segment = names[ls_graph_tensor(graph, parameter->tensor)->segment];
    assert_memory_equal(parameter->about.name, segment, strlen(segment));
  }
  ls_arena_destroy(&arena);
}

/* Layers with a window turn by a base of their own, and a table is made only where a layer reads
 * it: of the first pair of columns but one, base^(-2 / head_dim). */
static void ropes_are_those_of_the_layers(void **state) {
  (void)state;
  static const struct {
    const char *kinds[2];
    int tables;
    double first;
  } cases[] = {{{"full_attention", "full_attention"}, 1, 1e6},
               {{"sliding_attention", "sliding_attention"}, 1, 1e4},
               {{"sliding_attention", "full_attention"}, 2, 1e6}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    ls_arena *arena = ls_arena_create();
    const char *text = ls_arena_printf(
        arena,
        "{\"model_type\": \"gemma3_text\", \"vocab_size\": 8, \"hidden_size\": 8, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 1, \"num_key_value_heads\": 1, "
        "\"intermediate_size\": 8, \"max_position_embeddings\": 8, \"head_dim\": 8, "
        "\"sliding_window\": 4, \"query_pre_attn_scalar\": 8, \"layer_types\": [\"%s\", \"%s\"]}",
        cases[c].kinds[0], cases[c].kinds[1]);
    ls_model_config config;
    ls_error error = {0};
    if (ls_model_config_parse(arena, "gemma3", text, strlen(text), &config, &error) != LS_OK)
      fail_msg("%s", error.text);
    const ls_graph *graph = build(arena, &config, LS_MODEL_TRAIN);
    int tables = 0;
    for (int n = 0; n < graph->nodes.count; n++) {
      const ls_node *node = &graph->nodes.items[n];
      if (node->kind != LS_OP_ROPE_TABLE || tables++) continue;
      const double expected = pow(cases[c].first, -2.0 / 8);
      assert_true(fabs(node->attributes.rope_frequencies[1] - expected) < 1e-12);
    }
    assert_int_equal(tables, cases[c].tables);
    ls_arena_destroy(&arena);
  }
}

static void impossible_lengths_are_refused(void **state) {
  (void)state;
  ls_arena *arena = ls_arena_create();
  const ls_model_config config = small("gpt2-10m", true, true);
  static const ls_build_options cases[] = {
      {.tokens = 24, .sequence = 7},
      {.tokens = 34, .sequence = 17},
      {.tokens = 0, .sequence = 8},
      {.mode = LS_MODEL_DECODE, .tokens = 1, .cache_rows = 17},
      {.mode = LS_MODEL_DECODE, .tokens = 5, .cache_rows = 4},
  };
  static const char *const texts[] = {"not whole sequences of 7", "at most 16", "at least one",
                                      "at most 16", "at least one"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_graph *graph = NULL;
    ls_error error = {0};
    assert_int_equal(ls_model_build(arena, &config, &cases[i], &graph, &error), LS_INPUT);
    if (!strstr(error.text, texts[i])) fail_msg("case %zu: %s", i, error.text);
  }
  ls_arena_destroy(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_are_the_published_ones),
      cmocka_unit_test(every_preset_has_its_published_count),
      cmocka_unit_test(names_of_presets_are_unique),
      cmocka_unit_test(every_parameter_has_a_gradient),
      cmocka_unit_test(cuts_and_shapes_of_llama),
      cmocka_unit_test(cuts_and_starts_of_gpt2),
      cmocka_unit_test(the_stream_is_marked),
      cmocka_unit_test(decoding_has_caches_and_no_loss),
      cmocka_unit_test(segments_are_units),
      cmocka_unit_test(ropes_are_those_of_the_layers),
      cmocka_unit_test(impossible_lengths_are_refused),
  };
  return cmocka_run_group_tests(tests, make_shapes, drop_shapes);
}
