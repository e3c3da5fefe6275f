#include "checkpoint/export.h"
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/blocks.h"
#include "base/file.h"
#include "base/scales.h"
#include "base/stop.h"
#include "checkpoint/adapter_merge.h"
#include "checkpoint/sentence_folder.h"
#include "model/quantised_text.h"
#include "store/adapters.h"
#include "store/quantised.h"
#include "store/stored_box.h"
#include "store/weights.h"
#include "store/weights_folder.h"
#include "text/number.h"
#include "text/run_file.h"

enum { PIECE_ELEMENTS = 1 << 20 };

/* What stands beside the weights, as transformers and its tokenizers name it. */
static const char *const tokenizer_files[] = {"tokenizer.json",
                                              "tokenizer_config.json",
                                              "special_tokens_map.json",
                                              "added_tokens.json",
                                              "vocab.json",
                                              "merges.txt",
                                              "tokenizer.model",
                                              "chat_template.jinja"};
static const char *const other_files[] = {"generation_config.json"};

/* A tensor of the model, and what it is written as. */
typedef struct exported {
  ls_tensor_spec spec;
  const ls_stored_tensor *source;
  const ls_stored_layout *layout; /* NULL: of no parameter */
  ls_dtype blocks;                /* LS_DTYPE_COUNT: numbers */
} exported;

typedef LS_LIST(ls_tensor_spec) spec_list;

/* Adapters that are merged, and how often they count besides their own scale. */
typedef struct merged {
  const char *folder;
  ls_model_config config;
  ls_safetensors *opened;
  double times;
} merged;

typedef struct exporter {
  const ls_export_options *options;
  ls_export_report *report;
  ls_arena *arena;
  const char *folder, *names; /* names NULL: as they are stored */
  const char *aside;
  ls_model_config config, written; /* as it is stored, and as it will be */
  ls_weight_plan plan;
  ls_safetensors *stored, *model; /* model: of `names` */
  ls_safetensors *adapters;       /* that are merged into what is stored, or NULL */
  const ls_graph *graph;          /* of the model as it is stored */
  const ls_graph *target;         /* as it is written */
  LS_LIST(merged) also;           /* adapters beside `adapters` that are merged, too */
  LS_LIST(exported) tensors;
  ls_safetensors_writer *writer;
} exporter;

static const char *path_in(const exporter *self, const char *folder, const char *name) {
  return ls_arena_printf(self->arena, "%s/%s", folder, name);
}

static bool keeps_adapters(const exporter *self) {
  return self->config.lora_rank > 0 && !self->options->merge;
}

/* The folder that the run began with, where it had weights. */
static ls_status find_names(exporter *self, ls_error *error) {
  self->names = self->options->names;
  const char *run_file = path_in(self, self->folder, "run.yaml");
  if (self->names || !ls_file_exists(run_file)) return LS_OK;
  ls_run_file *run;
  LS_TRY(ls_run_file_read(self->arena, run_file, NULL, 0, &run, error));
  if (ls_directory_exists(run->model) && ls_weights_folder_has(self->arena, run->model))
    self->names = run->model;
  return LS_OK;
}

/* That they are the model of config.json: what is left out here, no reader of the export finds. */
static ls_status check_tensors(const exporter *self, const ls_graph *graph, ls_error *error) {
  const bool adapters = self->config.lora_rank > 0;
  const ls_weights_source sources[] = {{.path = self->folder,
                                        .stem = adapters ? LS_ADAPTERS_STEM : NULL,
                                        .kind = adapters ? LS_WEIGHTS_ADAPTERS : LS_WEIGHTS_ALL},
                                       {.path = self->config.base, .kind = LS_WEIGHTS_BASE}};
  for (int s = 0; s < 1 + self->options->merge; s++) {
    ls_weights *weights;
    LS_TRY(ls_weights_open(self->arena, &self->config, graph, &sources[s], &weights, error));
    ls_weights_close(&weights);
  }
  return LS_OK;
}

/* What is kept of adapters alone, or the weights that they are merged into, each of which must be
 * found under its name. */
static ls_status open_adapters(exporter *self, ls_error *error) {
  if (!self->options->merge)
    return ls_safetensors_open(self->folder, LS_ADAPTERS_STEM, &self->stored, error);
  LS_TRY(ls_safetensors_open(self->config.base, NULL, &self->stored, error));
  LS_TRY(ls_safetensors_open(self->folder, LS_ADAPTERS_STEM, &self->adapters, error));
  for (int t = 0; t < self->plan.count; t++) {
    const ls_stored_layout *layout = &self->plan.tensors[t];
    if (layout->adapter || ls_safetensors_find(self->stored, layout->name) ||
        ls_safetensors_find(self->stored, layout->plain))
      continue;
    return ls_fail(error, LS_INPUT,
                   "%s: has no %s, but a tensor of several products: adapters are merged into one; "
                   "expected weights as transformers saves them",
                   self->config.base, layout->name);
  }
  return LS_OK;
}

/* They have to be of the same products, of the same weights. */
static ls_status check_base(const exporter *self, const merged *of, ls_error *error) {
  char *own = realpath(self->config.base, NULL), *theirs = realpath(of->config.base, NULL);
  const bool same = own && theirs && strcmp(own, theirs) == 0;
  free(own);
  free(theirs);
  if (!same)
    return ls_fail(error, LS_INPUT, "--also: %s is beside the weights in %s; expected %s, as %s is",
                   of->folder, of->config.base, self->config.base, self->folder);
  if (of->config.lora_modules)
    return ls_fail(error, LS_INPUT,
                   "--also: %s has a head over classes of its own; expected adapters alone: name "
                   "it first",
                   of->folder);
  return LS_OK;
}

static ls_status open_also(exporter *self, const char *folder, double times, ls_error *error) {
  const ls_build_options one = {.mode = LS_MODEL_FORWARD, .tokens = 1, .sequence = 1};
  merged made = {.times = times};
  ls_graph *graph;
  ls_weights *weights;
  LS_TRY(ls_checkpoint_find(self->arena, folder, self->options->trust, &made.folder, error));
  LS_TRY(ls_adapters_read(self->arena, made.folder, &made.config, error));
  if (made.config.lora_rank == 0)
    return ls_fail(error, LS_INPUT, "--also: %s has no adapters", folder);
  LS_TRY(check_base(self, &made, error));
  LS_TRY(ls_model_build(self->arena, &made.config, &one, &graph, error));
  const ls_weights_source source = {
      .path = made.folder, .stem = LS_ADAPTERS_STEM, .kind = LS_WEIGHTS_ADAPTERS};
  LS_TRY(ls_weights_open(self->arena, &made.config, graph, &source, &weights, error));
  ls_weights_close(&weights);
  LS_TRY(ls_safetensors_open(made.folder, LS_ADAPTERS_STEM, &made.opened, error));
  *LS_APPEND(self->arena, &self->also) = made;
  return LS_OK;
}

/* "b,c=0.5" */
static ls_status open_all_also(exporter *self, ls_error *error) {
  for (const char *at = self->options->also; at;) {
    const size_t length = strcspn(at, ",");
    if (length == 0)
      return ls_fail(error, LS_INPUT, "--also: found no folder in \"%s\"; expected B or B,C=0.5",
                     self->options->also);
    char *folder = ls_arena_printf(self->arena, "%.*s", (int)length, at);
    char *is = strrchr(folder, '=');
    double times = 1;
    if (is && !ls_number_read(is + 1, &times))
      return ls_fail(error, LS_INPUT, "--also: %s: expected FOLDER or FOLDER=TIMES, a number",
                     folder);
    if (is) *is = 0;
    LS_TRY(open_also(self, folder, times, error));
    at = at[length] ? at + length + 1 : NULL;
  }
  return LS_OK;
}

static ls_status quantise_config(exporter *self, ls_error *error) {
  const ls_export_options *options = self->options;
  if (keeps_adapters(self))
    return ls_fail(error, LS_INPUT,
                   "--quantize: %s has adapters alone, which are not quantised: add --merge",
                   self->folder);
  if (options->dtype == LS_F64)
    return ls_fail(error, LS_INPUT,
                   "--quantize: found --dtype fp64; expected fp32, bf16 or fp16 beside it");
  const ls_status status = ls_model_quantize(&self->written, options->quantize, error);
  return status == LS_OK ? LS_OK : ls_error_prefix(error, "--quantize");
}

static ls_status read_model(exporter *self, ls_error *error) {
  LS_TRY(ls_checkpoint_find(self->arena, self->options->from, self->options->trust, &self->folder,
                            error));
  LS_TRY(ls_adapters_read(self->arena, self->folder, &self->config, error));
  self->written = self->config;
  self->written.blocks = LS_COMPUTE;
  if (self->options->merge && self->config.lora_rank == 0)
    return ls_fail(error, LS_INPUT, "--merge: %s has no adapters: leave it out", self->folder);
  if (self->options->also && !self->options->merge)
    return ls_fail(error, LS_INPUT, "--also: found it without --merge; expected that too");
  if (self->options->names && self->config.lora_rank)
    return ls_fail(error, LS_INPUT,
                   "--names: found it with adapters, whose names are PEFT's, or "
                   "with --merge those of what they are beside: leave it out");
  ls_graph *graph;
  const ls_build_options one = {.mode = LS_MODEL_FORWARD, .tokens = 1, .sequence = 1};
  LS_TRY(ls_model_build(self->arena, &self->config, &one, &graph, error));
  self->graph = self->target = graph;
  if (self->options->quantize) {
    LS_TRY(quantise_config(self, error));
    LS_TRY(ls_model_build(self->arena, &self->written, &one, &graph, error));
    self->target = graph;
  }
  LS_TRY(ls_weights_plan(self->arena, &self->config, self->graph, &self->plan, error));
  LS_TRY(check_tensors(self, self->graph, error));
  LS_TRY(open_all_also(self, error));
  if (self->config.lora_rank) return open_adapters(self, error);
  LS_TRY(ls_safetensors_open(self->folder, NULL, &self->stored, error));
  LS_TRY(find_names(self, error));
  return self->names ? ls_safetensors_open(self->names, NULL, &self->model, error) : LS_OK;
}

/* The stored tensor that has what `name` stands for; NULL: none. */
static const ls_stored_tensor *find_source(const exporter *self, const char *name) {
  const ls_stored_tensor *found = ls_safetensors_find(self->stored, name);
  for (int t = 0; t < self->plan.count && !found; t++) {
    const ls_stored_layout *layout = &self->plan.tensors[t];
    const bool plain = strcmp(layout->plain, name) == 0 || strcmp(layout->name, name) == 0;
    if (!plain) continue;
    found = ls_safetensors_find(self->stored, layout->name);
    if (!found) found = ls_safetensors_find(self->stored, layout->plain);
  }
  if (found || !self->plan.tied_head || strcmp(name, self->plan.tied_head) != 0) return found;
  for (int t = 0; t < self->plan.count && !found; t++) /* the token embedding comes first */
    found = ls_safetensors_find(self->stored, self->plan.tensors[t].name);
  return found;
}

static const ls_stored_layout *layout_of(const exporter *self, const ls_stored_tensor *tensor) {
  for (int t = 0; t < self->plan.count; t++)
    if (strcmp(self->plan.tensors[t].name, tensor->name) == 0 ||
        strcmp(self->plan.tensors[t].plain, tensor->name) == 0)
      return &self->plan.tensors[t];
  return NULL;
}

/* What the parameters of a tensor are as `graph` has them; LS_DTYPE_COUNT: numbers. */
static ls_dtype blocks_in(const exporter *self, const ls_graph *graph,
                          const ls_stored_layout *layout) {
  if (!layout) return LS_DTYPE_COUNT;
  int p = layout->pieces.items[0].parameter;
  const char *name = self->graph->parameters.items[p].about.name;
  /* One of the graphs may have parameters beside weights in blocks, the other none. */
  if (graph != self->graph)
    for (p = 0; strcmp(graph->parameters.items[p].about.name, name) != 0;)
      LS_ASSERT(++p < graph->parameters.count);
  return ls_precision_blocks(graph->parameters.items[p].about.precision);
}

/* Whether numbers of the tensor are stored transposed, [in, out]; blocks are of rows of [out, in].
 */
static bool has_columns(const exported *tensor) {
  return tensor->layout && tensor->layout->transposed && !tensor->layout->stack;
}

static ls_status check_blocks(const exporter *self, const exported *tensor, ls_error *error) {
  const ls_stored_tensor *source = tensor->source;
  if (has_columns(tensor) && tensor->blocks == LS_INT8)
    return ls_fail(error, LS_INPUT,
                   "--quantize int8: %s: %s is stored transposed, as [in, out], of which "
                   "compressed-tensors has no groups: expected nf4 or fp4",
                   source->file, source->name);
  if (tensor->spec.dtype == LS_F64)
    return ls_fail(error, LS_INPUT,
                   "--quantize: %s is fp64; expected fp32, bf16 or fp16: give one as --dtype",
                   source->name);
  if (!source->quantised || source->quantised->blocks == tensor->blocks || self->adapters)
    return LS_OK;
  return ls_fail(error, LS_INPUT,
                 "--quantize: %s: %s is quantised as %s, and would be quantised again: expected "
                 "%s, or leave it out",
                 source->file, source->name, source->format, source->format);
}

static const int64_t *written_dims(exporter *self, const exported *tensor) {
  const ls_stored_tensor *source = tensor->source;
  const bool blocks = tensor->blocks != LS_DTYPE_COUNT, from_blocks = source->quantised != NULL;
  if (!has_columns(tensor) || blocks == from_blocks) return source->dims;
  int64_t *dims = LS_NEW_ARRAY(self->arena, int64_t, 2);
  dims[0] = source->dims[1];
  dims[1] = source->dims[0];
  return dims;
}

static ls_status add_tensor(exporter *self, const ls_stored_tensor *like,
                            const ls_stored_tensor *source, ls_error *error) {
  const ls_dtype kept = like->dtype, asked = self->options->dtype;
  const bool same_shape = like->ndim == source->ndim && like->count == source->count;
  if (kept == LS_DTYPE_COUNT && asked == LS_DTYPE_COUNT)
    return ls_fail(error, LS_INPUT, "%s: %s is %s; expected a type that can be written: give one",
                   like->file, like->name, like->format);
  if (!same_shape)
    return ls_fail(error, LS_INPUT, "%s: %s has %lld elements; expected %lld, as %s has",
                   like->file, like->name, (long long)like->count, (long long)source->count,
                   source->file);
  exported *made = LS_APPEND(self->arena, &self->tensors);
  *made = (exported){.spec = {.name = like->name,
                              .dtype = asked == LS_DTYPE_COUNT ? kept : asked,
                              .ndim = source->ndim},
                     .source = source,
                     .layout = layout_of(self, source),
                     .blocks = LS_DTYPE_COUNT};
  if (self->options->quantize) made->blocks = blocks_in(self, self->target, made->layout);
  made->spec.dims = written_dims(self, made);
  return made->blocks == LS_DTYPE_COUNT ? LS_OK : check_blocks(self, made, error);
}

/* Every tensor of the folder that gives the names; false where some stored one is none of them, so
 * that the names are of another form. */
static ls_status list_by_names(exporter *self, bool *complete, ls_error *error) {
  int parameters = 0;
  for (int i = 0; i < ls_safetensors_count(self->model); i++) {
    const ls_stored_tensor *like = ls_safetensors_at(self->model, i);
    const ls_stored_tensor *source = find_source(self, like->name);
    const bool head = self->plan.tied_head && strcmp(like->name, self->plan.tied_head) == 0;
    if (source) LS_TRY(add_tensor(self, like, source, error));
    parameters += source && !head;
  }
  *complete = parameters == self->plan.count;
  return LS_OK;
}

/* Files of some families have several products as one tensor. */
static ls_status check_quantised(const exporter *self, ls_error *error) {
  for (int t = 0; t < self->plan.count && self->options->quantize; t++) {
    const ls_stored_layout *layout = &self->plan.tensors[t];
    bool found = blocks_in(self, self->target, layout) == LS_DTYPE_COUNT;
    for (int i = 0; i < self->tensors.count && !found; i++)
      found = self->tensors.items[i].layout == layout;
    if (!found)
      return ls_fail(error, LS_INPUT,
                     "--quantize: %s has no %s; expected weights as transformers saves them",
                     self->folder, layout->name);
  }
  return LS_OK;
}

static bool is_module(const ls_stored_layout *layout) {
  return layout->module && layout->adapter;
}

/* Not what no model has, nor where adapters are merged a head that they came with another for. */
static bool is_written(const exporter *self, const ls_stored_tensor *tensor) {
  const ls_stored_layout *layout = layout_of(self, tensor);
  if (!self->adapters) return layout || !ls_weight_ignored(&self->plan, tensor->name);
  if (self->config.classes) return layout && !layout->adapter;
  return !ls_weight_ignored(&self->plan, tensor->name);
}

/* Modules that were trained beside adapters, under the names that they have without these. */
static ls_status list_modules(exporter *self, ls_error *error) {
  for (int t = 0; t < self->plan.count; t++) {
    const ls_stored_layout *layout = &self->plan.tensors[t];
    if (!is_module(layout)) continue;
    const ls_stored_tensor *found = ls_safetensors_find(self->adapters, layout->name);
    LS_ASSERT(found);
    ls_stored_tensor *like = LS_NEW(self->arena, ls_stored_tensor);
    *like = *found;
    like->name = layout->name + strlen(LS_ADAPTERS_PREFIX);
    LS_TRY(add_tensor(self, like, found, error));
  }
  return LS_OK;
}

static ls_status list_tensors(exporter *self, ls_error *error) {
  bool complete = false;
  if (self->model) LS_TRY(list_by_names(self, &complete, error));
  if (complete) return LS_OK;
  if (self->options->names)
    return ls_fail(error, LS_INPUT,
                   "%s: does not name all of %s's tensors; expected the same model", self->names,
                   self->folder);
  self->names = NULL;
  self->tensors.count = 0;
  for (int i = 0; i < ls_safetensors_count(self->stored); i++) {
    const ls_stored_tensor *each = ls_safetensors_at(self->stored, i);
    if (is_written(self, each)) LS_TRY(add_tensor(self, each, each, error));
  }
  return self->adapters ? list_modules(self, error) : LS_OK;
}

/* What the run has the weights of a tensor as, where the file has them as numbers; LS_DTYPE_COUNT:
 * likewise. */
static ls_dtype blocks_beside(const exporter *self, const exported *tensor) {
  if (!self->adapters || tensor->source->quantised) return LS_DTYPE_COUNT;
  return blocks_in(self, self->graph, tensor->layout);
}

/* A block of weights number `b`, and back. */
static void round_block(ls_dtype blocks, const float *nested, int64_t b, float *weights) {
  ls_int8_block block; /* the larger one */
  ls_four_bit_block single;
  ls_double_block twice;
  if (!nested) {
    ls_blocks_quantise(blocks, weights, 1, &block);
    ls_blocks_restore(blocks, &block, 1, weights);
    return;
  }
  ls_blocks_quantise(ls_blocks_single(blocks), weights, 1, &single);
  ls_blocks_nest(&single, nested, b, 1, &twice);
  ls_blocks_unnest(&twice, nested, b, 1, &single);
  ls_blocks_restore(ls_blocks_single(blocks), &single, 1, weights);
}

/* Adapters are merged into what they were trained beside: of weights that the run has quantised,
 * what their blocks stand for. */
static ls_status read_base(const exporter *self, const exported *tensor, const float *nested,
                           int64_t first, int64_t count, ls_dtype dtype, void *target,
                           ls_error *error) {
  const ls_stored_tensor *source = tensor->source;
  const ls_dtype blocks = blocks_beside(self, tensor);
  if (blocks == LS_DTYPE_COUNT)
    return ls_stored_tensor_read(source, first, count, dtype, target, error);
  char *to = target;
  for (int64_t done = 0; done < count; done += LS_BLOCK_WEIGHTS) {
    float weights[LS_BLOCK_WEIGHTS];
    LS_TRY(ls_stored_tensor_read(source, first + done, LS_BLOCK_WEIGHTS, LS_F32, weights, error));
    round_block(blocks, nested, (first + done) / LS_BLOCK_WEIGHTS, weights);
    ls_convert(to, dtype, weights, LS_F32, LS_BLOCK_WEIGHTS);
    to += LS_BLOCK_WEIGHTS * ls_dtype_bytes(dtype);
  }
  return LS_OK;
}

/* A tensor on its way, in pieces. */
typedef struct passing {
  const exported *tensor;
  LS_LIST(ls_adapter_product) products;
  ls_quantised_saving saving;
  ls_arena *scratch;
  float *nested; /* what the run's scales of 8 bits stand for; NULL: it has none */
  double *sums;  /* NULL: nothing is added */
  float *blocks; /* NULL: none are made */
  void *piece;
  char *turned; /* what is written transposed, once all is read; NULL: it is written in pieces */
} passing;

/* With adapters summed in fp64 and rounded once. */
static ls_status read_piece(const exporter *self, const passing *of, int64_t first, int64_t count,
                            ls_dtype dtype, ls_error *error) {
  if (!of->sums)
    return read_base(self, of->tensor, of->nested, first, count, dtype, of->piece, error);
  LS_TRY(read_base(self, of->tensor, of->nested, first, count, LS_F64, of->sums, error));
  for (int p = 0; p < of->products.count; p++)
    ls_adapter_product_add(&of->products.items[p], first, count, of->sums);
  ls_convert(of->piece, dtype, of->sums, LS_F64, count);
  return LS_OK;
}

/* Weights that the file has in blocks of the same kind keep these. */
static ls_status write_blocks(exporter *self, passing *of, int64_t first, int64_t count,
                              ls_error *error) {
  const exported *tensor = of->tensor;
  const ls_quantised *stored = tensor->source->quantised;
  if (stored && stored->blocks == tensor->blocks && !of->sums) {
    LS_TRY(ls_stored_tensor_read(tensor->source, first, count, tensor->blocks, of->blocks, error));
  } else {
    LS_TRY(read_piece(self, of, first, count, LS_F32, error));
    const float *weights = of->piece;
    for (int64_t i = 0; i < count; i++)
      if (!isfinite(weights[i]))
        return ls_fail(error, LS_INPUT, "%s: %s has a weight of %g; blocks hold finite ones",
                       tensor->source->file, tensor->source->name, (double)weights[i]);
    ls_blocks_quantise(tensor->blocks, weights, count / LS_BLOCK_WEIGHTS, of->blocks);
  }
  return ls_quantised_append(of->scratch, &of->saving, self->writer, of->blocks,
                             count / LS_BLOCK_WEIGHTS, error);
}

/* The run's scales of 8 bits, of the whole weight. */
static ls_status measure_scales(const exporter *self, passing *of, ls_error *error) {
  const ls_dtype blocks = blocks_beside(self, of->tensor);
  if (blocks == ls_blocks_single(blocks)) return LS_OK;
  const ls_stored_tensor *source = of->tensor->source;
  const int64_t all = source->count / LS_BLOCK_WEIGHTS, some = PIECE_ELEMENTS / LS_BLOCK_WEIGHTS;
  float *scales = LS_NEW_ARRAY(of->scratch, float, all), *piece = of->piece;
  of->nested = LS_NEW_ARRAY(of->scratch, float, ls_scales_nested(all));
  for (int64_t b = 0; b < all; b += some) {
    const int64_t count = all - b < some ? all - b : some;
    LS_TRY(ls_stored_tensor_read(source, b * LS_BLOCK_WEIGHTS, count * LS_BLOCK_WEIGHTS, LS_F32,
                                 piece, error));
    ls_blocks_scales(piece, count, scales + b);
  }
  ls_scales_measure(scales, all, of->nested);
  return LS_OK;
}

static ls_status add_product(const exporter *self, passing *of, const ls_model_config *config,
                             const ls_safetensors *adapters, double times, ls_error *error) {
  const ls_stored_layout *layout = of->tensor->layout;
  const int parameter = layout->pieces.items[0].parameter;
  int64_t layer;
  const int linear =
      ls_model_linear_find(self->graph->parameters.items[parameter].about.name, &layer);
  if (linear < 0) return LS_OK;
  const double scale =
      times * ls_model_lora_scale(config, ls_model_lora_size(config, layer, linear));
  ls_adapter_product product;
  LS_TRY(ls_adapter_product_read(of->scratch, adapters, layout, scale, &product, error));
  if (product.rank) *LS_APPEND(of->scratch, &of->products) = product;
  return LS_OK;
}

/* What is added to a tensor. */
static ls_status read_products(const exporter *self, passing *of, ls_error *error) {
  if (!self->adapters || !of->tensor->layout) return LS_OK;
  LS_TRY(add_product(self, of, &self->config, self->adapters, 1, error));
  for (int a = 0; a < self->also.count; a++) {
    const merged *each = &self->also.items[a];
    LS_TRY(add_product(self, of, &each->config, each->opened, each->times, error));
  }
  return LS_OK;
}

static ls_status begin_tensor(const exporter *self, passing *of, ls_error *error) {
  const exported *tensor = of->tensor;
  LS_TRY(read_products(self, of, error));
  LS_TRY(measure_scales(self, of, error));
  if (of->products.count) of->sums = LS_NEW_ARRAY(of->scratch, double, PIECE_ELEMENTS);
  if (tensor->blocks == LS_DTYPE_COUNT) return LS_OK;
  of->saving =
      ls_quantised_save(of->scratch, tensor->blocks, self->options->scales_again, &tensor->spec);
  if (tensor->source->quantised && !of->sums)
    ls_quantised_take_scales(&of->saving, tensor->source->quantised);
  of->blocks = LS_NEW_ARRAY(of->scratch, float, PIECE_ELEMENTS);
  return LS_OK;
}

static ls_status write_pieces(exporter *self, passing *of, ls_error *error) {
  const ls_dtype dtype = of->tensor->spec.dtype;
  const int64_t all = of->tensor->source->count;
  LS_TRY(begin_tensor(self, of, error));
  for (int64_t first = 0; first < all; first += PIECE_ELEMENTS) {
    const int64_t count = all - first < PIECE_ELEMENTS ? all - first : PIECE_ELEMENTS;
    if (of->blocks) {
      LS_TRY(write_blocks(self, of, first, count, error));
      continue;
    }
    const size_t bytes = (size_t)count * ls_dtype_bytes(dtype);
    LS_TRY(read_piece(self, of, first, count, dtype, error));
    if (of->turned)
      memcpy(of->turned + (size_t)first * ls_dtype_bytes(dtype), of->piece, bytes);
    else
      LS_TRY(ls_safetensors_append(self->writer, of->piece, bytes, error));
  }
  return LS_OK;
}

/* [rows, columns] as the other way round. */
static void *turn(ls_arena *arena, const void *from, int64_t rows, int64_t columns,
                  ls_dtype dtype) {
  void *made = ls_arena_alloc(arena, (size_t)(rows * columns) * ls_dtype_bytes(dtype));
  ls_stored_turn(from, rows, columns, dtype, made);
  return made;
}

/* A tensor that is stored transposed, and is, was or will be in blocks, which are of rows: these
 * are gone through in order, from memory where the file has columns. */
static ls_status write_by_rows(exporter *self, passing *of, ls_error *error) {
  const exported *tensor = of->tensor;
  const ls_stored_layout *layout = tensor->layout;
  const int64_t in = layout->dims[0], out = layout->dims[1];
  const ls_dtype dtype = tensor->spec.dtype;
  ls_stored_layout by_rows = *layout;
  ls_stored_tensor source = *tensor->source;
  exported rows = *tensor;
  by_rows.transposed = false;
  by_rows.dims[0] = out, by_rows.dims[1] = in;
  if (!source.quantised) {
    LS_TRY(ls_stored_tensor_read(&source, 0, 0, LS_F32, NULL, error)); /* it has numbers */
    const size_t bytes = (size_t)source.count * ls_dtype_bytes(source.dtype);
    void *stored = ls_arena_alloc(of->scratch, bytes);
    LS_TRY(ls_stored_tensor_read(&source, 0, source.count, source.dtype, stored, error));
    source.data = turn(of->scratch, stored, in, out, source.dtype);
    source.dims = by_rows.dims;
  }
  rows.layout = &by_rows;
  rows.source = &source;
  of->tensor = &rows;
  if (tensor->blocks == LS_DTYPE_COUNT)
    of->turned = ls_arena_alloc(of->scratch, (size_t)source.count * ls_dtype_bytes(dtype));
  LS_TRY(write_pieces(self, of, error));
  if (!of->turned) return LS_OK;
  return ls_safetensors_append(self->writer, turn(of->scratch, of->turned, out, in, dtype),
                               (size_t)source.count * ls_dtype_bytes(dtype), error);
}

static ls_status write_tensor(exporter *self, const exported *tensor, void *piece,
                              ls_error *error) {
  passing of = {.tensor = tensor, .piece = piece, .scratch = ls_arena_create()};
  const bool blocks = tensor->blocks != LS_DTYPE_COUNT || tensor->source->quantised ||
                      blocks_beside(self, tensor) != LS_DTYPE_COUNT;
  const ls_status status =
      (blocks && has_columns(tensor) ? write_by_rows : write_pieces)(self, &of, error);
  ls_arena_destroy(&of.scratch);
  return status;
}

/* The tensors of the files, in the order in which they are appended; returns their bytes. */
static int64_t list_specs(exporter *self, spec_list *specs) {
  int64_t bytes = 0;
  for (int t = 0; t < self->tensors.count; t++) {
    const exported *each = &self->tensors.items[t];
    ls_quantised_saving saving = {.specs = 1, .spec = {each->spec}};
    if (each->blocks != LS_DTYPE_COUNT)
      saving =
          ls_quantised_save(self->arena, each->blocks, self->options->scales_again, &each->spec);
    for (int s = 0; s < saving.specs; s++) {
      int64_t own = (int64_t)ls_dtype_bytes(saving.spec[s].dtype);
      for (int d = 0; d < saving.spec[s].ndim; d++) own *= saving.spec[s].dims[d];
      bytes += own;
      *LS_APPEND(self->arena, specs) = saving.spec[s];
    }
  }
  return bytes;
}

static ls_status write_tensors(exporter *self, ls_error *error) {
  const ls_export_options *options = self->options;
  spec_list specs = {0};
  const int64_t all = list_specs(self, &specs);
  LS_TRY(ls_safetensors_create_shards(
      self->aside, keeps_adapters(self) ? LS_ADAPTERS_STEM : "model",
      (size_t)options->max_shard_bytes, specs.items, specs.count, NULL, 0, &self->writer, error));
  void *piece = ls_arena_alloc(self->arena, PIECE_ELEMENTS * sizeof(double));
  int64_t weights = 0, done = 0;
  for (int t = 0; t < self->tensors.count; t++) weights += self->tensors.items[t].source->count;
  for (int t = 0; t < self->tensors.count; t++) {
    LS_TRY(write_tensor(self, &self->tensors.items[t], piece, error));
    done += self->tensors.items[t].source->count;
    LS_TRY(ls_stop_check("exporting; nothing is left of it", error));
    if (options->progress)
      options->progress(options->context, (int64_t)((double)all * (double)done / (double)weights),
                        all);
  }
  self->report->tensors = self->tensors.count;
  self->report->bytes = all;
  return ls_safetensors_finish(&self->writer, error);
}

static ls_status copy_file(exporter *self, const char *folder, const char *name, ls_error *error) {
  char *data;
  size_t bytes;
  LS_TRY(ls_file_read(self->arena, path_in(self, folder, name), &data, &bytes, error));
  self->report->files++;
  return ls_file_write(path_in(self, self->aside, name), data, bytes, error);
}

/* All from one folder, or files of two tokenizers would lie side by side: the first that has any,
 * which is the run's own. */
static ls_status copy_files(exporter *self, const char *const *files, int count, ls_error *error) {
  const char *const folders[] = {self->folder, self->adapters ? self->config.base : self->names};
  for (int f = 0, found = 0; f < 2 && folders[f] && !found; f++)
    for (int i = 0; i < count; i++) {
      if (!ls_file_exists(path_in(self, folders[f], files[i]))) continue;
      LS_TRY(copy_file(self, folders[f], files[i], error));
      found++;
    }
  return LS_OK;
}

/* A weight's name without its end: that of the module. */
static const char *module_of(const exporter *self, const char *name) {
  static const char end[] = ".weight";
  const size_t length = strlen(name), own = sizeof end - 1;
  const bool ends = length > own && strcmp(name + length - own, end) == 0;
  return ends ? ls_arena_printf(self->arena, "%.*s", (int)(length - own), name) : name;
}

static const char *config_text(exporter *self) {
  const ls_dtype dtype = self->tensors.count ? self->tensors.items[0].spec.dtype : LS_F32;
  if (!self->options->quantize) return ls_model_config_text(self->arena, &self->written, dtype);
  const char **others = LS_NEW_ARRAY(self->arena, const char *, self->tensors.count + 1);
  int count = 0;
  for (int t = 0; t < self->tensors.count; t++) {
    const exported *each = &self->tensors.items[t];
    if (each->blocks == LS_DTYPE_COUNT && each->spec.ndim == 2)
      others[count++] = module_of(self, each->spec.name);
  }
  if (self->plan.tied_head) others[count++] = module_of(self, self->plan.tied_head);
  const char *text = ls_model_config_quantised(self->arena, &self->written, dtype, others, count);
  return self->options->scales_again ? ls_config_scales_again(self->arena, text) : text;
}

static ls_status write_text(exporter *self, const char *name, const char *text, ls_error *error) {
  self->report->files++;
  return ls_file_write(path_in(self, self->aside, name), text, strlen(text), error);
}

static ls_status write_companions(exporter *self, ls_error *error) {
  /* What classes are called stands nowhere else, nor what vectors are made of. */
  if (!keeps_adapters(self) || self->config.classes || self->config.vectors)
    LS_TRY(write_text(self, "config.json", config_text(self), error));
  if (!keeps_adapters(self))
    LS_TRY(ls_sentence_folder_write(self->arena, &self->config, self->aside, &self->report->files,
                                    error));
  if (keeps_adapters(self)) {
    const char *text;
    LS_TRY(ls_adapters_text(self->arena, &self->config, &text, error));
    LS_TRY(write_text(self, "adapter_config.json", text, error));
  }
  LS_TRY(
      copy_files(self, tokenizer_files, sizeof tokenizer_files / sizeof *tokenizer_files, error));
  return copy_files(self, other_files, sizeof other_files / sizeof *other_files, error);
}

static ls_status write_all(exporter *self, ls_error *error) {
  LS_TRY(ls_directory_check_new(self->options->to, error));
  LS_TRY(read_model(self, error));
  LS_TRY(list_tensors(self, error));
  LS_TRY(check_quantised(self, error));
  LS_TRY(ls_directory_make(self->aside, error));
  LS_TRY(write_companions(self, error));
  LS_TRY(write_tensors(self, error));
  snprintf(self->report->from, sizeof self->report->from, "%s", self->folder);
  snprintf(self->report->names, sizeof self->report->names, "%s", self->names ? self->names : "");
  (void)rmdir(self->options->to); /* an empty one */
  return ls_directory_publish(self->aside, self->options->to, error);
}

ls_status ls_export(const ls_export_options *options, ls_export_report *report, ls_error *error) {
  *report = (ls_export_report){0};
  exporter self = {.options = options, .report = report, .arena = ls_arena_create()};
  self.aside = ls_arena_printf(self.arena, "%s.tmp-%ld", options->to, (long)getpid());
  const ls_status status = write_all(&self, error);
  ls_safetensors_abandon(&self.writer);
  if (status != LS_OK) (void)!ls_directory_remove(self.aside, NULL);
  if (self.stored) ls_safetensors_close(&self.stored);
  if (self.model) ls_safetensors_close(&self.model);
  if (self.adapters) ls_safetensors_close(&self.adapters);
  for (int a = 0; a < self.also.count; a++) ls_safetensors_close(&self.also.items[a].opened);
  ls_arena_destroy(&self.arena);
  return status;
}

ls_status ls_export_companions(ls_arena *arena, const char *from, const char *to, ls_error *error) {
  ls_export_report report = {0};
  exporter self = {.arena = arena, .folder = from, .aside = to, .report = &report};
  LS_TRY(
      copy_files(&self, tokenizer_files, sizeof tokenizer_files / sizeof *tokenizer_files, error));
  return copy_files(&self, other_files, sizeof other_files / sizeof *other_files, error);
}
