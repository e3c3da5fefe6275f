/* The graphs of our models against PyTorch's: step 0 of each trace, loss, logits, gradient norm and
 * every gradient, by a plain interpreter of the global graph over the fp64 reference kernels; no
 * layout, program or device has a part in it. And decoding with caches against the whole sequence
 * at once. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/random.h"
#include "device/kernel.h"
#include "store/weights.h"
#include "support/read_weights.h"
#include "text/json.h"

#define SHARED "../shared/data/"
#define OURS "tests/data/traces/"

/* cmocka's own compares floats. */
static void assert_near(double found, double expected, double tolerance) {
  if (!(fabs(found - expected) <= tolerance))
    fail_msg("found %.17g; expected %.17g within %g", found, expected, tolerance);
}

/* A graph with a place for every tensor. */
typedef struct interpreter {
  ls_arena *arena;
  const ls_graph *graph;
  ls_kernel_table table;
  ls_view *views; /* by tensor */
  bool *written;  /* a gradient of a parameter is added to from its second maker on */
} interpreter;

static ls_dtype stored_as(const ls_tensor *tensor) {
  return tensor->precision == LS_INDEX ? LS_I32 : LS_F64;
}

static interpreter make_machine(ls_arena *arena, const ls_graph *graph) {
  interpreter made = {.arena = arena, .graph = graph};
  ls_reference_kernels(&made.table, LS_F64);
  made.views = LS_NEW_ARRAY(arena, ls_view, graph->tensors.count);
  made.written = LS_NEW_ARRAY(arena, bool, graph->tensors.count);
  for (int t = 0; t < graph->tensors.count; t++) {
    const ls_tensor *tensor = &graph->tensors.items[t];
    ls_view *view = &made.views[t];
    *view = (ls_view){.dtype = stored_as(tensor), .ndim = tensor->ndim};
    memcpy(view->dims, tensor->dims, sizeof view->dims);
    memcpy(view->valid, tensor->dims, sizeof view->valid);
    view->data =
        ls_arena_alloc(arena, (size_t)ls_tensor_elements(tensor) * ls_dtype_bytes(view->dtype));
  }
  return made;
}

static void *data_of(const interpreter *machine, ls_tensor_id tensor) {
  return machine->views[tensor.index].data;
}

static void run(interpreter *machine) {
  ls_error error = {0};
  memset(machine->written, 0, sizeof(bool) * (size_t)machine->graph->tensors.count);
  for (int n = 0; n < machine->graph->nodes.count; n++) {
    const ls_node *node = &machine->graph->nodes.items[n];
    ls_kernel_args args = {
        .attributes = &node->attributes, .inputs = node->inputs, .outputs = node->outputs};
    for (int i = 0; i < node->inputs; i++) args.in[i] = machine->views[node->in[i].index];
    for (int o = 0; o < node->outputs; o++) {
      const int tensor = node->out[o].index;
      args.out[o] = machine->views[tensor];
      args.accumulate[o] = machine->written[tensor];
      machine->written[tensor] = true;
    }
    if (machine->table.kernel[node->kind](&args, &error) != LS_OK)
      fail_msg("%s: %s", ls_op_name(node->kind), error.text);
  }
}

typedef struct first_step {
  const char *path, *model; /* folders */
  int64_t sequences, sequence, microbatches;
  double loss, norm, logits_noise, gradients_noise;
} first_step;

static void must(ls_status status, const ls_error *error) {
  if (status != LS_OK) fail_msg("%s", error->text);
}

static first_step read_trace(ls_arena *arena, const char *path, const char *model) {
  first_step read = {.path = path, .model = model};
  ls_error error = {0};
  json_t *root;
  ls_json_object json, hyper, noise, step;
  const char *name = ls_arena_printf(arena, "%s/trace.json", path);
  must(ls_json_read(name, 0, &root, &error), &error);
  must(ls_json_root(name, root, &json, &error), &error);
  must(ls_json_child(arena, &json, "hyper", &hyper, &error), &error);
  must(ls_json_count(&hyper, "B", &read.sequences, &error), &error);
  must(ls_json_count(&hyper, "T", &read.sequence, &error), &error);
  must(ls_json_count(&hyper, "micro_batches", &read.microbatches, &error), &error);
  must(ls_json_child(arena, &json, "reference_noise_f32_vs_f64", &noise, &error), &error);
  must(ls_json_number(&noise, "logits_max_abs", &read.logits_noise, &error), &error);
  must(ls_json_number(&noise, "grads_max_abs", &read.gradients_noise, &error), &error);
  const json_t *first = json_array_get(json_object_get(root, "steps"), 0);
  must(ls_json_root("step 0", first, &step, &error), &error);
  must(ls_json_number(&step, "loss_f64", &read.loss, &error), &error);
  must(ls_json_number(&step, "grad_norm_f64", &read.norm, &error), &error);
  json_decref(root);
  return read;
}

static void load_start(interpreter *machine, const ls_model_config *config, const char *path) {
  ls_error error = {0};
  ls_weights *weights = NULL;
  const ls_graph *graph = machine->graph;
  must(ls_weights_open(machine->arena, config, graph, &(ls_weights_source){.path = path}, &weights,
                       &error),
       &error);
  for (int i = 0; i < graph->parameters.count; i++) {
    const ls_parameter_record *parameter = &graph->parameters.items[i];
    must(ls_test_read_weights(weights, i, 0, parameter->about.dims[0],
                              data_of(machine, parameter->tensor), LS_F64, &error),
         &error);
  }
  ls_weights_close(&weights);
}

static void fill_batch(const interpreter *machine, const first_step *trace, const uint8_t *tokens,
                       int64_t microbatch) {
  const ls_graph *graph = machine->graph;
  int32_t *ids = data_of(machine, graph->ids), *labels = data_of(machine, graph->labels);
  int32_t *positions = data_of(machine, graph->positions);
  const uint8_t *at = tokens + 2 * microbatch * graph->tokens;
  for (int64_t i = 0; i < graph->tokens; i++, at += 2) {
    ids[i] = at[0] | at[1] << 8;
    labels[i] = at[2] | at[3] << 8;
    positions[i] = (int32_t)(i % trace->sequence);
  }
  *(double *)data_of(machine, graph->loss_scale) =
      1.0 / (double)(graph->tokens * trace->microbatches);
}

/* The largest difference of `count` numbers; NaN counts as infinite. */
static double largest_difference(const double *ours, const float *theirs, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const double difference = fabs(ours[i] - (double)theirs[i]);
    if (!(difference <= largest)) largest = isnan(difference) ? (double)INFINITY : difference;
  }
  return largest;
}

static void check_logits(const interpreter *machine, const first_step *trace) {
  ls_error error = {0};
  ls_safetensors *file = NULL;
  must(ls_safetensors_open(trace->path, "step0", &file, &error), &error);
  const ls_stored_tensor *logits = ls_safetensors_find(file, "logits.row0");
  assert_non_null(logits);
  assert_int_equal(logits->count, trace->sequence * machine->graph->vocabulary);
  float *theirs = LS_NEW_ARRAY(machine->arena, float, logits->count);
  must(ls_stored_tensor_read(logits, 0, logits->count, LS_F32, theirs, &error), &error);
  const double worst =
      largest_difference(data_of(machine, machine->graph->logits), theirs, logits->count);
  print_message("  logits: largest difference %.2e\n", worst);
  assert_true(worst <= 8 * trace->logits_noise);
  ls_safetensors_close(&file);
}

/* Gradients are summed over microbatches. */
static void check_gradients(const interpreter *machine, const ls_model_config *config,
                            const first_step *trace, double *const *sums, double tolerance) {
  ls_error error = {0};
  ls_weights *theirs = NULL;
  const ls_graph *graph = machine->graph;
  const ls_weights_source source = {.path = trace->path, .stem = "step0", .prefix = "grad."};
  must(ls_weights_open(machine->arena, config, graph, &source, &theirs, &error), &error);
  double squares = 0, worst = 0;
  for (int i = 0; i < graph->parameters.count; i++) {
    const ls_parameter_record *parameter = &graph->parameters.items[i];
    const int64_t count = ls_tensor_elements(ls_graph_tensor(graph, parameter->tensor));
    float *expected = LS_NEW_ARRAY(machine->arena, float, count);
    must(ls_test_read_weights(theirs, i, 0, parameter->about.dims[0], expected, LS_F32, &error),
         &error);
    const double difference = largest_difference(sums[i], expected, count);
    if (difference > 8 * trace->gradients_noise)
      fail_msg("gradient of %s: differs by %g", parameter->about.name, difference);
    if (difference > worst) worst = difference;
    for (int64_t e = 0; e < count; e++) squares += sums[i][e] * sums[i][e];
  }
  print_message("  gradients: largest difference %.2e; norm %.12g, expected %.12g\n", worst,
                sqrt(squares), trace->norm);
  assert_near(sqrt(squares), trace->norm, tolerance * trace->norm);
  ls_weights_close(&theirs);
}

/* `tolerance` is relative, of loss and norm: 1e-11 where the reference is double throughout. */
static void check_trace(const char *path, const char *model, double tolerance) {
  ls_arena *arena = ls_arena_create();
  ls_error error = {0};
  const first_step trace = read_trace(arena, path, model);
  print_message("  %s\n", path);
  ls_model_config config;
  ls_graph *graph = NULL;
  must(ls_model_config_read(arena, model, &config, &error), &error);
  const ls_build_options options = {.tokens = trace.sequences * trace.sequence,
                                    .sequence = trace.sequence};
  must(ls_model_build(arena, &config, &options, &graph, &error), &error);
  ls_graph_backward(graph);
  interpreter machine = make_machine(arena, graph);
  load_start(&machine, &config, model);
  char *tokens;
  size_t bytes;
  must(
      ls_file_read(arena, ls_arena_printf(arena, "%s/tokens.u16le", path), &tokens, &bytes, &error),
      &error);
  assert_true(bytes >= 2 * (size_t)(options.tokens * trace.microbatches + 1));
  double **sums = LS_NEW_ARRAY(arena, double *, graph->parameters.count);
  double loss = 0;
  for (int64_t m = 0; m < trace.microbatches; m++) {
    fill_batch(&machine, &trace, (const uint8_t *)tokens, m);
    run(&machine);
    loss +=
        *(double *)data_of(&machine, graph->loss) * *(double *)data_of(&machine, graph->loss_scale);
    if (m == 0) check_logits(&machine, &trace);
    for (int i = 0; i < graph->parameters.count; i++) {
      const ls_parameter_record *parameter = &graph->parameters.items[i];
      const int64_t count = ls_tensor_elements(ls_graph_tensor(graph, parameter->tensor));
      const double *made = data_of(&machine, parameter->gradient);
      if (m == 0) sums[i] = LS_NEW_ARRAY(arena, double, count);
      for (int64_t e = 0; e < count; e++) sums[i][e] += made[e];
    }
  }
  print_message("  loss %.12f, expected %.12f\n", loss, trace.loss);
  assert_near(loss, trace.loss, tolerance * trace.loss);
  check_gradients(&machine, &config, &trace, sums, tolerance);
  ls_arena_destroy(&arena);
}

static void gpt2_tied(void **state) {
  (void)state;
  check_trace(OURS "gpt2-tied", OURS "gpt2-tied", 1e-11);
}

static void llama_free(void **state) {
  (void)state;
  check_trace(OURS "llama-gqa-free", OURS "llama-gqa-free", 1e-11);
}

static void llama_tied_with_biases(void **state) {
  (void)state;
  check_trace(OURS "llama-gqa-tied", OURS "llama-gqa-tied", 1e-11);
}

/* Every other family. BLOOM's reference has constants of eight digits in its GELU. */
static void families(void **state) {
  (void)state;
  static const char *const names[] = {"deepseek-v2-lite",
                                      "deepseek-v3",
                                      "deepseek-v3-halves",
                                      "falcon-grouped",
                                      "falcon-sequential",
                                      "falcon-single",
                                      "gemma",
                                      "gemma2",
                                      "gemma3",
                                      "gpt-neox",
                                      "gpt-neox-sequential",
                                      "llama-dynamic",
                                      "llama-yarn",
                                      "mistral",
                                      "olmo2",
                                      "phi",
                                      "phi3",
                                      "qwen2",
                                      "qwen3",
                                      "smollm3",
                                      "starcoder2",
                                      "bloom"};
  const size_t count = sizeof names / sizeof *names;
  for (size_t i = 0; i < count; i++) {
    char path[96];
    snprintf(path, sizeof path, OURS "%s", names[i]);
    check_trace(path, path, i + 1 < count ? 1e-11 : 1e-9);
  }
}

static void shared_traces(void **state) {
  (void)state;
  if (!ls_directory_exists(SHARED)) skip();
  check_trace(SHARED "traces/gpt2-tiny-pretrain", SHARED "traces/gpt2-tiny-pretrain", 1e-11);
  /* Their rotary tables are float32. */
  check_trace(SHARED "traces/llama3-rope-tiny", SHARED "traces/llama3-rope-tiny", 2e-8);
  check_trace(SHARED "traces/llama-stories260K-finetune", SHARED "checkpoints/stories260K", 2e-8);
  static const char *const others[] = {"gemma2-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny"};
  for (int i = 0; i < 4; i++) {
    char path[96];
    snprintf(path, sizeof path, SHARED "traces/%s", others[i]);
    check_trace(path, path, 2e-8);
  }
}

/* Copies parameters by name and runs `count` tokens from `first` on through the decoding graph. */
static const double *decode(interpreter *machine, const int32_t *ids, int64_t first) {
  const ls_graph *graph = machine->graph;
  int32_t *at = data_of(machine, graph->ids), *positions = data_of(machine, graph->positions);
  for (int64_t i = 0; i < graph->tokens; i++) {
    at[i] = ids[first + i];
    positions[i] = (int32_t)(first + i);
  }
  run(machine);
  return data_of(machine, graph->logits);
}

static interpreter decoder(ls_arena *arena, const ls_model_config *config, const char *path,
                           int64_t tokens, const interpreter *before) {
  ls_graph *graph = NULL;
  ls_error error = {0};
  const ls_build_options options = {.mode = LS_MODEL_DECODE, .tokens = tokens, .cache_rows = 16};
  must(ls_model_build(arena, config, &options, &graph, &error), &error);
  interpreter made = make_machine(arena, graph);
  load_start(&made, config, path);
  for (int t = 0, from = 0; before && t < graph->tensors.count; t++, from++) {
    if (graph->tensors.items[t].role != LS_ROLE_STATE) continue;
    assert_string_equal(graph->tensors.items[t].name, before->graph->tensors.items[from].name);
    made.views[t].data = before->views[from].data;
  }
  return made;
}

/* A prompt of 5 tokens at once and then 7, one by one, give the logits of all 12 at once. */
static void decoding_is_the_forward_pass(void **state) {
  (void)state;
  static const char *const paths[] = {
      OURS "gpt2-tied", OURS "llama-gqa-free", OURS "llama-gqa-tied", OURS "bloom", OURS "gemma2",
      OURS "gemma3",    OURS "falcon-single",  OURS "mistral",        OURS "olmo2", OURS "phi",
      OURS "qwen3",     OURS "smollm3"};
  enum { PROMPT = 5, ALL = 12 };
  for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
    ls_arena *arena = ls_arena_create();
    ls_error error = {0};
    ls_model_config config;
    ls_graph *graph = NULL;
    must(ls_model_config_read(arena, paths[p], &config, &error), &error);
    const ls_build_options options = {.mode = LS_MODEL_FORWARD, .tokens = ALL, .sequence = ALL};
    must(ls_model_build(arena, &config, &options, &graph, &error), &error);
    interpreter whole = make_machine(arena, graph);
    load_start(&whole, &config, paths[p]);
    int32_t *ids = data_of(&whole, graph->ids), *positions = data_of(&whole, graph->positions);
    for (int32_t i = 0; i < ALL; i++) {
      ids[i] = (int32_t)(ls_random_bits(7, 0, (uint64_t)i) % (uint64_t)config.vocabulary);
      positions[i] = i;
    }
    run(&whole);
    const double *expected = data_of(&whole, graph->logits);
    interpreter prompt = decoder(arena, &config, paths[p], PROMPT, NULL);
    interpreter one = decoder(arena, &config, paths[p], 1, &prompt);
    for (int64_t first = 0; first < ALL; first += first ? 1 : PROMPT) {
      const int64_t rows = first ? 1 : PROMPT;
      const double *made = decode(first ? &one : &prompt, ids, first);
      for (int64_t i = 0; i < rows * config.vocabulary; i++)
        assert_near(made[i], expected[first * config.vocabulary + i], 1e-12);
    }
    ls_arena_destroy(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2_tied),
      cmocka_unit_test(llama_free),
      cmocka_unit_test(llama_tied_with_biases),
      cmocka_unit_test(families),
      cmocka_unit_test(shared_traces),
      cmocka_unit_test(decoding_is_the_forward_pass),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
