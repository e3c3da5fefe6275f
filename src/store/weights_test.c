/* Names and layouts of Hugging Face files: real checkpoints load, what is loaded and laid out again
 * is bit-equal to the file, and files of other models are refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "store/weights.h"
#include "support/read_weights.h"

#define SHARED "../shared/data/"
#define TRACES "tests/data/traces/"

static ls_arena *arena;
static char folder[] = "/tmp/lockstep-weights-XXXXXX";

static int set_up(void **state) {
  (void)state;
  arena = ls_arena_create();
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  ls_arena_destroy(&arena);
  return ls_directory_remove(folder, NULL) == LS_OK ? 0 : -1;
}

static ls_graph *build(const ls_model_config *config) {
  ls_graph *graph = NULL;
  ls_error error = {0};
  const ls_build_options options = {.tokens = 4, .sequence = 4};
  if (ls_model_build(arena, config, &options, &graph, &error) != LS_OK) fail_msg("%s", error.text);
  return graph;
}

static ls_model_config read_config(const char *path) {
  ls_model_config config;
  ls_error error = {0};
  if (ls_model_config_read(arena, path, &config, &error) != LS_OK) fail_msg("%s", error.text);
  return config;
}

static int64_t elements(const ls_graph *graph, int parameter) {
  return ls_tensor_elements(ls_graph_tensor(graph, graph->parameters.items[parameter].tensor));
}

/* All parameters, each read in two parts of uneven size. */
static void **read_all(const ls_weights *weights, const ls_graph *graph, ls_dtype dtype) {
  ls_error error = {0};
  const size_t element = ls_dtype_bytes(dtype);
  void **all = LS_NEW_ARRAY(arena, void *, graph->parameters.count);
  for (int i = 0; i < graph->parameters.count; i++) {
    const int64_t rows = graph->parameters.items[i].about.dims[0];
    const int64_t columns = elements(graph, i) / rows, half = rows / 3;
    all[i] = ls_arena_alloc(arena, (size_t)(rows * columns) * element);
    char *second = (char *)all[i] + (size_t)(half * columns) * element;
    if (ls_test_read_weights(weights, i, 0, half, all[i], dtype, &error) != LS_OK ||
        ls_test_read_weights(weights, i, half, rows - half, second, dtype, &error) != LS_OK)
      fail_msg("%s", error.text);
  }
  return all;
}

/* Lays a tensor of the plan out of our parameters. */
static void *assemble(const ls_stored_layout *layout, void *const *all, ls_dtype dtype,
                      int64_t *count) {
  *count = ls_stored_elements(layout);
  char *target = ls_arena_alloc(arena, (size_t)*count * ls_dtype_bytes(dtype));
  for (int p = 0; p < layout->pieces.count; p++) {
    const ls_weight_place place = {layout, &layout->pieces.items[p], NULL};
    const int64_t width = layout->ndim == 2 ? layout->dims[!layout->transposed] : 1;
    const size_t begin = (size_t)(place.piece->first * width) * ls_dtype_bytes(dtype);
    ls_stored_lay(&place, dtype, (const char *)all[place.piece->parameter] + begin, target);
  }
  return target;
}

/* Loads `path`, lays it out again as a checkpoint would and compares bits. */
static void check_round_trip(const char *config_path, const ls_weights_source *source) {
  const ls_model_config config = read_config(config_path);
  const ls_graph *graph = build(&config);
  ls_weights *weights = NULL;
  ls_error error = {0};
  if (ls_weights_open(arena, &config, graph, source, &weights, &error) != LS_OK)
    fail_msg("%s", error.text);
  const ls_weight_plan *plan = ls_weights_layout(weights);
  const ls_dtype dtype = ls_weights_tensor(weights, 0)->dtype;
  void **all = read_all(weights, graph, dtype);
  int64_t total = 0;
  for (int i = 0; i < plan->count; i++) {
    int64_t count;
    const void *made = assemble(&plan->tensors[i], all, dtype, &count);
    const ls_stored_tensor *stored = ls_weights_tensor(weights, i);
    assert_int_equal(stored->bytes, (size_t)count * ls_dtype_bytes(dtype));
    assert_memory_equal(made, stored->data, stored->bytes);
    total += count;
  }
  assert_int_equal(total, ls_model_parameters(&config));
  ls_weights_close(&weights);
  assert_null(weights);
}

static void shared_checkpoints_load(void **state) {
  (void)state;
  if (!ls_directory_exists(SHARED)) skip();
  static const char *const paths[] = {
      SHARED "checkpoints/stories260K", SHARED "checkpoints/stories260K-bf16-sharded",
      SHARED "traces/gpt2-tiny-pretrain", SHARED "traces/llama3-rope-tiny"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    check_round_trip(paths[i], &(ls_weights_source){.path = paths[i]});
}

static void shared_gradients_load(void **state) {
  (void)state;
  if (!ls_directory_exists(SHARED)) skip();
  static const char *const names[] = {"gpt2-tiny-pretrain", "llama3-rope-tiny",
                                      "llama-stories260K-finetune"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = ls_arena_printf(arena, SHARED "traces/%s", names[i]);
    check_round_trip(i == 2 ? SHARED "checkpoints/stories260K" : path,
                     &(ls_weights_source){.path = path, .stem = "step0", .prefix = "grad."});
  }
}

static void our_traces_load(void **state) {
  (void)state;
  static const char *const names[] = {"gpt-oss", "gpt2-tied", "llama-gqa-free", "llama-gqa-tied"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = ls_arena_printf(arena, TRACES "%s", names[i]);
    check_round_trip(path, &(ls_weights_source){.path = path});
    check_round_trip(path, &(ls_weights_source){.path = path, .stem = "step0", .prefix = "grad."});
  }
}

/* The bf16 twin is the fp32 checkpoint rounded; its head is the embedding written out. */
static void the_twins_agree(void **state) {
  (void)state;
  if (!ls_directory_exists(SHARED)) skip();
  static const char *const paths[] = {SHARED "checkpoints/stories260K",
                                      SHARED "checkpoints/stories260K-bf16-sharded"};
  float **all[2];
  const ls_graph *graphs[2];
  for (int i = 0; i < 2; i++) {
    const ls_model_config config = read_config(paths[i]);
    graphs[i] = build(&config);
    ls_weights *weights = NULL;
    ls_error error = {0};
    if (ls_weights_open(arena, &config, graphs[i], &(ls_weights_source){.path = paths[i]}, &weights,
                        &error) != LS_OK)
      fail_msg("%s", error.text);
    all[i] = (float **)read_all(weights, graphs[i], LS_F32);
    ls_weights_close(&weights);
  }
  assert_int_equal(graphs[1]->parameters.count, graphs[0]->parameters.count + 1);
  for (int i = 0; i < graphs[1]->parameters.count; i++) {
    const bool head = i == graphs[0]->parameters.count;
    const float *exact = all[0][head ? 0 : i], *rounded = all[1][i];
    for (int64_t e = 0; e < elements(graphs[1], i); e++)
      assert_true(rounded[e] == ls_bf16_to_f32(ls_f32_to_bf16(exact[e])));
  }
}

/* A small model of either family with random weights of `dtype`, to be written in many ways. */
typedef struct made {
  ls_model_config config;
  const ls_graph *graph;
  ls_weight_plan plan;
  void **all;
} made;

static made make(const char *preset, bool tied, bool bias) {
  made model;
  ls_error error = {0};
  assert_int_equal(ls_model_find(arena, preset, &model.config, &error), LS_OK);
  ls_model_config *config = &model.config;
  config->vocabulary = 11;
  config->width = 12;
  config->layers = 12; /* numbers of two digits */
  config->heads = 3;
  config->kv_heads = config->rope_theta > 0 ? 1 : 3;
  config->head_dim = 4;
  config->mlp_width = 71; /* more than one strip */
  config->positions = 8;
  if (config->experts) config->experts = 11; /* a number of two digits */
  config->tied = tied;
  config->attention_bias = config->mlp_bias = bias;
  model.graph = build(config);
  if (ls_weights_plan(arena, config, model.graph, &model.plan, &error) != LS_OK)
    fail_msg("%s", error.text);
  model.all = LS_NEW_ARRAY(arena, void *, model.graph->parameters.count);
  for (int i = 0; i < model.graph->parameters.count; i++) {
    const int64_t count = elements(model.graph, i);
    float *values = LS_NEW_ARRAY(arena, float, count);
    for (int64_t e = 0; e < count; e++)
      values[e] = (float)ls_random_normal(1, (uint64_t)i, (uint64_t)e);
    model.all[i] = values;
  }
  return model;
}

/* A tensor to be written beside the model's, or (data NULL) instead of nothing: left out. */
typedef struct extra {
  const char *name;
  ls_dtype dtype;
  int ndim;
  int64_t dims[2];
  const void *data;
} extra;

typedef struct writing {
  bool plain;          /* names without the prefix */
  const char *without; /* a tensor left out */
  const extra *with;   /* a tensor added */
} writing;

static const char *write_model(const made *model, const writing *how) {
  ls_safetensors_writer *writer = NULL;
  ls_error error = {0};
  const char *path = ls_arena_printf(arena, "%s/model.safetensors", folder);
  ls_tensor_spec *specs = LS_NEW_ARRAY(arena, ls_tensor_spec, model->plan.count + 1);
  int count = 0;
  for (int i = 0; i < model->plan.count; i++) {
    const ls_stored_layout *layout = &model->plan.tensors[i];
    if (how->without && strcmp(how->without, layout->name) == 0) continue;
    int64_t *dims = LS_NEW_ARRAY(arena, int64_t, 3);
    specs[count++] = (ls_tensor_spec){.name = how->plain ? layout->plain : layout->name,
                                      .dtype = LS_F32,
                                      .ndim = ls_stored_shape(layout, dims),
                                      .dims = dims};
  }
  if (how->with)
    specs[count++] = (ls_tensor_spec){.name = how->with->name,
                                      .dtype = how->with->dtype,
                                      .ndim = how->with->ndim,
                                      .dims = how->with->dims};
  ls_status status = ls_safetensors_create(path, specs, count, NULL, 0, &writer, &error);
  for (int i = 0; status == LS_OK && i < model->plan.count; i++) {
    const ls_stored_layout *layout = &model->plan.tensors[i];
    if (how->without && strcmp(how->without, layout->name) == 0) continue;
    int64_t elements_made;
    const void *data = assemble(layout, model->all, LS_F32, &elements_made);
    status = ls_safetensors_append(writer, data, (size_t)elements_made * sizeof(float), &error);
  }
  if (status == LS_OK && how->with) {
    const size_t rows = (size_t)how->with->dims[0];
    const size_t columns = how->with->ndim == 2 ? (size_t)how->with->dims[1] : 1;
    status = ls_safetensors_append(writer, how->with->data,
                                   rows * columns * ls_dtype_bytes(how->with->dtype), &error);
  }
  if (status == LS_OK) status = ls_safetensors_finish(&writer, &error);
  if (status != LS_OK) fail_msg("%s", error.text);
  return path;
}

static ls_status open_made(const made *model, const writing *how, ls_weights **weights,
                           ls_error *error) {
  const ls_weights_source source = {.path = write_model(model, how)};
  *error = (ls_error){0};
  return ls_weights_open(arena, &model->config, model->graph, &source, weights, error);
}

static void written_models_read_back(void **state) {
  (void)state;
  static const char *const mixtures[] = {"mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"};
  for (int variant = 0; variant < 14; variant++) {
    const char *preset = variant & 1 ? "gpt2-10m" : "llama-3m";
    const made model = variant < 8 ? make(preset, variant & 2, (variant & 1) || (variant & 4))
                                   : make(mixtures[(variant - 8) / 2], variant & 1, false);
    ls_weights *weights = NULL;
    ls_error error;
    if (open_made(&model, &(writing){.plain = variant & 4}, &weights, &error) != LS_OK)
      fail_msg("variant %d: %s", variant, error.text);
    void **all = read_all(weights, model.graph, LS_F32);
    void **wide = read_all(weights, model.graph, LS_F64);
    for (int i = 0; i < model.graph->parameters.count; i++) {
      const int64_t count = elements(model.graph, i);
      assert_memory_equal(all[i], model.all[i], (size_t)count * sizeof(float));
      for (int64_t e = 0; e < count; e++)
        assert_true(((double *)wide[i])[e] == ((float *)model.all[i])[e]);
    }
    ls_weights_close(&weights);
  }
}

/* Rows of one of our matrices are tensors of their own there, some of them turned. */
static void experts_are_as_in_transformers(void **state) {
  (void)state;
  const made model = make("mixtral-8x7b", false, false);
  int found = 0;
  for (int i = 0; i < model.plan.count; i++) {
    const ls_stored_layout *layout = &model.plan.tensors[i];
    const bool gate =
        strcmp(layout->name, "model.layers.2.block_sparse_moe.experts.10.w1.weight") == 0;
    if (!gate && strcmp(layout->name, "model.layers.2.block_sparse_moe.experts.10.w2.weight") != 0)
      continue;
    const ls_weight_piece *piece = layout->pieces.items;
    assert_string_equal(model.graph->parameters.items[piece->parameter].about.name,
                        gate ? "layers.2.experts.gate.weight" : "layers.2.experts.down.weight");
    assert_int_equal(layout->dims[0], gate ? 71 : 12);
    assert_int_equal(layout->dims[1], gate ? 12 : 71);
    int64_t count;
    const float *stored = assemble(layout, model.all, LS_F32, &count);
    const float *ours = model.all[piece->parameter];
    for (int row = 0; row < 12; row++)
      for (int column = 0; column < 71; column++)
        assert_true(stored[gate ? column * 12 + row : row * 71 + column] ==
                    ours[(10 * 12 + row) * 71 + column]);
    found++;
  }
  assert_int_equal(found, 2);
}

/* GPT-OSS as it is published: experts' matrices are blocks of MXFP4 of rows of [out, in], so that
 * of gates and ups each column here is a row there. */
enum { MX_EXPERTS = 3, MX_WIDTH = 32, MX_COLUMNS = 64 };

static uint8_t mx_code(uint64_t tensor, int64_t i) {
  return (uint8_t)(ls_random_bits(81, tensor, (uint64_t)i) % 16);
}

/* All tensors of the plan, those of other types as zeros. */
static const char *write_mxfp4(const ls_weight_plan *plan) {
  const char *path = ls_arena_printf(arena, "%s/model.safetensors", folder);
  ls_tensor_spec *specs = LS_NEW_ARRAY(arena, ls_tensor_spec, 2 * plan->count);
  ls_safetensors_writer *writer;
  ls_error error = {0};
  int count = 0;
  for (int t = 0; t < plan->count; t++) {
    int64_t *dims = LS_NEW_ARRAY(arena, int64_t, 4);
    ls_tensor_spec *spec = &specs[count++];
    *spec = (ls_tensor_spec){.name = plan->tensors[t].name, .dtype = LS_BF16, .dims = dims};
    spec->ndim = ls_stored_shape(&plan->tensors[t], dims);
    const char *blocks = strstr(spec->name, "_blocks");
    if (!blocks) continue;
    spec->dtype = LS_U8;
    spec->ndim = 4;
    dims[2] /= 32;
    dims[3] = 16;
    specs[count++] = (ls_tensor_spec){
        .name = ls_arena_printf(arena, "%.*s_scales", (int)(blocks - spec->name), spec->name),
        .dtype = LS_U8,
        .ndim = 3,
        .dims = dims};
  }
  assert_int_equal(ls_safetensors_create(path, specs, count, NULL, 0, &writer, &error), LS_OK);
  for (int s = 0; s < count; s++) {
    int64_t bytes = specs[s].dtype == LS_U8 ? 1 : 2;
    for (int d = 0; d < specs[s].ndim; d++) bytes *= specs[s].dims[d];
    uint8_t *data = LS_NEW_ARRAY(arena, uint8_t, bytes);
    const bool down = strstr(specs[s].name, "down_proj");
    for (int64_t i = 0; i < bytes && specs[s].dtype == LS_U8; i++) {
      const int codes = mx_code(down, 2 * i) | mx_code(down, 2 * i + 1) << 4;
      data[i] = (uint8_t)(specs[s].ndim == 3 ? 120 + (int)(i % 11) : codes);
    }
    assert_int_equal(ls_safetensors_append(writer, data, (size_t)bytes, &error), LS_OK);
  }
  assert_int_equal(ls_safetensors_finish(&writer, &error), LS_OK);
  return path;
}

static float mx_value(uint64_t tensor, int64_t i) {
  static const float values[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  const uint8_t code = mx_code(tensor, i);
  return (code & 8 ? -1 : 1) * ldexpf(values[code & 7], (int)(120 + i / 32 % 11 - 127));
}

static void published_experts_are_numbers(void **state) {
  (void)state;
  ls_model_config config;
  ls_error error = {0};
  ls_weight_plan plan;
  ls_weights *weights = NULL;
  assert_int_equal(ls_model_find(arena, "gpt-oss-20b", &config, &error), LS_OK);
  config.vocabulary = 11;
  config.width = MX_WIDTH;
  config.layers = 2;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.mlp_width = MX_COLUMNS;
  config.experts = MX_EXPERTS;
  config.experts_per_token = 2;
  const ls_graph *graph = build(&config);
  assert_int_equal(ls_weights_plan_form(arena, &config, graph, true, &plan, &error), LS_OK);
  const ls_weights_source source = {.path = write_mxfp4(&plan)};
  if (ls_weights_open(arena, &config, graph, &source, &weights, &error) != LS_OK)
    fail_msg("%s", error.text);
  float **all = (float **)read_all(weights, graph, LS_F32);
  int found = 0;
  for (int p = 0; p < graph->parameters.count; p++) {
    const char *name = graph->parameters.items[p].about.name;
    const bool down = strstr(name, "experts.down.weight");
    if (!down && !strstr(name, "experts.gate_up.weight")) continue;
    const int64_t rows = MX_WIDTH, columns = down ? MX_COLUMNS : 2 * MX_COLUMNS;
    for (int64_t e = 0; e < MX_EXPERTS; e++)
      for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < columns; c++) {
          const int64_t there =
              down ? (e * rows + row) * columns + c : (e * columns + c) * rows + row;
          assert_true(all[p][(e * rows + row) * columns + c] == mx_value(down, there));
        }
    found++;
  }
  assert_int_equal(found, 4);
  ls_weights_close(&weights);
}

/* GPT-2's c_attn is [in, 3 out], query, key and value side by side. */
static void fused_attention_is_as_in_transformers(void **state) {
  (void)state;
  const made model = make("gpt2-10m", true, true);
  const ls_stored_layout *layout = NULL;
  for (int i = 0; i < model.plan.count; i++)
    if (strcmp(model.plan.tensors[i].name, "transformer.h.10.attn.c_attn.weight") == 0)
      layout = &model.plan.tensors[i];
  assert_non_null(layout);
  assert_int_equal(layout->dims[0], 12);
  assert_int_equal(layout->dims[1], 36);
  assert_int_equal(layout->pieces.count, 3);
  int64_t count;
  const float *stored = assemble(layout, model.all, LS_F32, &count);
  static const char *const names[] = {"layers.10.attention.query.weight",
                                      "layers.10.attention.key.weight",
                                      "layers.10.attention.value.weight"};
  for (int p = 0; p < 3; p++) {
    const int parameter = layout->pieces.items[p].parameter;
    const float *ours = model.all[parameter];
    assert_string_equal(model.graph->parameters.items[parameter].about.name, names[p]);
    for (int64_t in = 0; in < 12; in++)
      for (int64_t out = 0; out < 12; out++)
        assert_true(stored[in * 36 + p * 12 + out] == ours[out * 12 + in]);
  }
}

/* A model read from one of our traces, its parameters filled with noise. */
static made make_family(const char *trace) {
  made model = {.config = read_config(ls_arena_printf(arena, TRACES "%s", trace))};
  ls_error error = {0};
  model.graph = build(&model.config);
  if (ls_weights_plan(arena, &model.config, model.graph, &model.plan, &error) != LS_OK)
    fail_msg("%s", error.text);
  model.all = LS_NEW_ARRAY(arena, void *, model.graph->parameters.count);
  for (int i = 0; i < model.graph->parameters.count; i++) {
    const int64_t count = elements(model.graph, i);
    float *values = LS_NEW_ARRAY(arena, float, count);
    for (int64_t e = 0; e < count; e++)
      values[e] = (float)ls_random_normal(2, (uint64_t)i, (uint64_t)e);
    model.all[i] = values;
  }
  return model;
}

static void expect_read_back(const made *model, const writing *how, const char *what) {
  ls_weights *weights = NULL;
  ls_error error;
  if (open_made(model, how, &weights, &error) != LS_OK) fail_msg("%s: %s", what, error.text);
  void **all = read_all(weights, model->graph, LS_F32);
  for (int i = 0; i < model->graph->parameters.count; i++)
    assert_memory_equal(all[i], model->all[i], (size_t)elements(model->graph, i) * sizeof(float));
  ls_weights_close(&weights);
}

/* With the prefix and without, fused and apart, with a head where it is tied: all are one model. */
static void every_form_of_a_family_loads(void **state) {
  (void)state;
  static const char *const traces[] = {"bloom",
                                       "deepseek-v2-lite",
                                       "deepseek-v3",
                                       "deepseek-v3-halves",
                                       "falcon-grouped",
                                       "falcon-sequential",
                                       "falcon-single",
                                       "gemma",
                                       "gemma2",
                                       "gemma3",
                                       "gpt-neox",
                                       "llama-gqa-tied",
                                       "mistral",
                                       "olmo2",
                                       "phi",
                                       "phi3",
                                       "qwen2",
                                       "qwen3",
                                       "smollm3",
                                       "starcoder2"};
  int others = 0;
  for (size_t t = 0; t < sizeof traces / sizeof *traces; t++) {
    made model = make_family(traces[t]);
    ls_error error = {0};
    for (int form = 0; form < 2; form++) {
      if (form && !ls_weights_other_form(&model.config)) break;
      others += form;
      assert_int_equal(
          ls_weights_plan_form(arena, &model.config, model.graph, form, &model.plan, &error),
          LS_OK);
      expect_read_back(&model, &(writing){0}, traces[t]);
      expect_read_back(&model, &(writing){.plain = true}, traces[t]);
      if (!model.config.tied) continue;
      const extra head = {model.plan.tied_head,
                          LS_F32,
                          2,
                          {model.config.vocabulary, model.config.width},
                          model.all[0]};
      expect_read_back(&model, &(writing){.with = &head}, traces[t]);
    }
  }
  assert_int_equal(others, 11);
}

/* BLOOM, Falcon and GPT-NeoX: for each KV head its queries, its key and its value. */
static void heads_in_turns_are_as_in_transformers(void **state) {
  (void)state;
  const made model = make_family("falcon-grouped"); /* 4 heads of 4 columns, 2 KV heads */
  const ls_stored_layout *layout = NULL;
  for (int i = 0; i < model.plan.count; i++)
    if (strcmp(model.plan.tensors[i].name,
               "transformer.h.1.self_attention.query_key_value.weight") == 0)
      layout = &model.plan.tensors[i];
  assert_non_null(layout);
  assert_int_equal(layout->dims[0], 32);
  int64_t count;
  const float *stored = assemble(layout, model.all, LS_F32, &count);
  /* Rows of a KV head: two queries of 4, the key, the value. */
  const int64_t width = model.config.width;
  for (int64_t group = 0; group < 2; group++)
    for (int64_t row = 0; row < 16; row++) {
      const int piece = row < 8 ? 0 : row < 12 ? 1 : 2;
      const int64_t ours = row < 8 ? group * 8 + row : group * 4 + row % 4;
      const float *from = model.all[layout->pieces.items[piece].parameter];
      assert_memory_equal(stored + (group * 16 + row) * width, from + ours * width,
                          (size_t)width * sizeof(float));
    }
}

static void known_buffers_and_equal_heads_are_fine(void **state) {
  (void)state;
  static const float zeros[64];
  const made gpt2 = make("gpt2-10m", true, true), llama = make("llama-3m", true, false);
  const made neox = make_family("gpt-neox");
  const struct {
    const made *model;
    extra with;
  } cases[] = {
      {&gpt2, {"transformer.h.3.attn.bias", LS_U8, 2, {8, 8}, zeros}},
      {&gpt2, {"h.11.attn.masked_bias", LS_F32, 1, {1}, zeros}},
      {&gpt2, {"lm_head.weight", LS_F32, 2, {11, 12}, gpt2.all[0]}},
      {&llama, {"model.layers.0.self_attn.rotary_emb.inv_freq", LS_F32, 1, {2}, zeros}},
      {&llama, {"lm_head.weight", LS_F32, 2, {11, 12}, llama.all[0]}},
      {&neox, {"gpt_neox.layers.1.attention.bias", LS_U8, 2, {8, 8}, zeros}},
      {&neox, {"gpt_neox.layers.0.attention.masked_bias", LS_F32, 1, {1}, zeros}},
      {&neox, {"gpt_neox.layers.0.attention.rotary_emb.inv_freq", LS_F32, 1, {2}, zeros}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_weights *weights = NULL;
    ls_error error;
    if (open_made(cases[i].model, &(writing){.with = &cases[i].with}, &weights, &error) != LS_OK)
      fail_msg("case %zu: %s", i, error.text);
    ls_weights_close(&weights);
  }
}

/* DeepSeek-V3's and GLM-4.5's files have layers that predict further tokens. */
static void layers_for_further_tokens_are_left_out(void **state) {
  (void)state;
  static const float zeros[64];
  made model = make_family("deepseek-v3");
  ls_weights *weights = NULL;
  ls_error error;
  char names[2][64];
  for (int l = 0; l < 2; l++)
    snprintf(names[l], sizeof names[l], "model.layers.%d.eh_proj.weight",
             (int)model.config.layers + l);
  const extra first = {names[0], LS_F32, 1, {8}, zeros}, second = {names[1], LS_F32, 1, {8}, zeros};
  model.config.next_layers = 1;
  assert_int_equal(open_made(&model, &(writing){.with = &first}, &weights, &error), LS_OK);
  ls_weights_close(&weights);
  assert_int_equal(open_made(&model, &(writing){.with = &second}, &weights, &error), LS_INPUT);
  assert_non_null(strstr(error.text, "eh_proj.weight is no tensor"));
  model.config.next_layers = 0;
  assert_int_equal(open_made(&model, &(writing){.with = &first}, &weights, &error), LS_INPUT);
}

static void other_files_are_refused(void **state) {
  (void)state;
  static const float zeros[512];
  const made model = make("llama-3m", true, false);
  const char *const down = "model.layers.11.mlp.down_proj.weight";
  const struct {
    writing how;
    const char *text;
  } cases[] = {
      {{.without = down}, "no tensor model.layers.11.mlp.down_proj.weight"},
      {{.with = &(extra){"model.layers.12.mlp.up_proj.weight", LS_F32, 1, {3}, zeros}},
       "model.layers.12.mlp.up_proj.weight is no tensor"},
      {{.with = &(extra){"score.weight", LS_F32, 1, {3}, zeros}}, "score.weight is no tensor"},
      {{.with = &(extra){"norm.weight", LS_F32, 1, {12}, zeros}}, "norm.weight is no tensor"},
      {{.with = &(extra){"lm_head.weight", LS_F32, 2, {11, 12}, zeros}}, "lm_head.weight differs"},
      {{.without = down, .with = &(extra){down, LS_F32, 2, {6, 71}, zeros}},
       "model.layers.11.mlp.down_proj.weight has shape [6, 71]; expected [12, 71]"},
      {{.without = "model.norm.weight",
        .with = &(extra){"model.norm.weight", LS_I32, 1, {12}, zeros}},
       "elements of type I32"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ls_weights *weights = NULL;
    ls_error error;
    const ls_status status = open_made(&model, &cases[i].how, &weights, &error);
    if (status != LS_INPUT || !strstr(error.text, cases[i].text) || !strstr(error.text, folder))
      fail_msg("case %zu: status %d, \"%s\"; expected \"%s\"", i, status, error.text,
               cases[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shared_checkpoints_load),
      cmocka_unit_test(shared_gradients_load),
      cmocka_unit_test(our_traces_load),
      cmocka_unit_test(the_twins_agree),
      cmocka_unit_test(written_models_read_back),
      cmocka_unit_test(experts_are_as_in_transformers),
      cmocka_unit_test(published_experts_are_numbers),
      cmocka_unit_test(fused_attention_is_as_in_transformers),
      cmocka_unit_test(every_form_of_a_family_loads),
      cmocka_unit_test(heads_in_turns_are_as_in_transformers),
      cmocka_unit_test(known_buffers_and_equal_heads_are_fine),
      cmocka_unit_test(layers_for_further_tokens_are_left_out),
      cmocka_unit_test(other_files_are_refused),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
