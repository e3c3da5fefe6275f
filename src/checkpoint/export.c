#include "checkpoint/export.h"
#include "checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/blocks.h"
#include "base/file.h"
#include "base/stop.h"
#include "checkpoint/adapter_merge.h"
#include "store/adapters.h"
#include "store/weights.h"
#include "store/weights_folder.h"
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

typedef struct exporter {
  const ls_export_options *options;
  ls_export_report *report;
  ls_arena *arena;
  const char *folder, *names; /* names NULL: as they are stored */
  const char *aside;
  ls_model_config config;
  ls_weight_plan plan;
  ls_safetensors *stored, *model; /* model: of `names` */
  ls_safetensors *adapters;       /* that are merged into what is stored, or NULL */
  const ls_graph *graph;
  LS_LIST(ls_tensor_spec) specs;
  LS_LIST(const ls_stored_tensor *) sources; /* by spec */
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

static ls_status read_model(exporter *self, ls_error *error) {
  LS_TRY(ls_checkpoint_find(self->arena, self->options->from, self->options->trust, &self->folder,
                            error));
  LS_TRY(ls_adapters_read(self->arena, self->folder, &self->config, error));
  if (self->options->merge && self->config.lora_rank == 0)
    return ls_fail(error, LS_INPUT, "--merge: %s has no adapters: leave it out", self->folder);
  if (self->options->names && self->config.lora_rank)
    return ls_fail(error, LS_INPUT,
                   "--names: found it with adapters, whose names are PEFT's, or "
                   "with --merge those of what they are beside: leave it out");
  ls_graph *graph;
  LS_TRY(ls_model_build(self->arena, &self->config,
                        &(ls_build_options){.mode = LS_MODEL_FORWARD, .tokens = 1, .sequence = 1},
                        &graph, error));
  self->graph = graph;
  LS_TRY(ls_weights_plan(self->arena, &self->config, graph, &self->plan, error));
  LS_TRY(check_tensors(self, graph, error));
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
  *LS_APPEND(self->arena, &self->specs) =
      (ls_tensor_spec){.name = like->name,
                       .dtype = asked == LS_DTYPE_COUNT ? kept : asked,
                       .ndim = source->ndim,
                       .dims = source->dims};
  *LS_APPEND(self->arena, &self->sources) = source;
  self->report->bytes +=
      source->count * (int64_t)ls_dtype_bytes(self->specs.items[self->specs.count - 1].dtype);
  return LS_OK;
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

static const ls_stored_layout *layout_of(const exporter *self, const ls_stored_tensor *tensor) {
  for (int t = 0; t < self->plan.count; t++)
    if (strcmp(self->plan.tensors[t].name, tensor->name) == 0 ||
        strcmp(self->plan.tensors[t].plain, tensor->name) == 0)
      return &self->plan.tensors[t];
  return NULL;
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
  self->specs.count = self->sources.count = 0;
  self->report->bytes = 0;
  for (int i = 0; i < ls_safetensors_count(self->stored); i++) {
    const ls_stored_tensor *each = ls_safetensors_at(self->stored, i);
    if (is_written(self, each)) LS_TRY(add_tensor(self, each, each, error));
  }
  return self->adapters ? list_modules(self, error) : LS_OK;
}

/* Adapters are merged into what they were trained beside: of weights that the run has quantised,
 * what their blocks stand for. */
static ls_status read_base(const exporter *self, int i, int64_t first, int64_t count,
                           ls_dtype dtype, void *target, ls_error *error) {
  const ls_stored_tensor *source = self->sources.items[i];
  const ls_stored_layout *layout = self->adapters ? layout_of(self, source) : NULL;
  const int parameter = layout ? layout->pieces.items[0].parameter : -1;
  const ls_precision precision =
      layout ? self->graph->parameters.items[parameter].about.precision : LS_COMPUTE;
  if (!ls_precision_is_blocks(precision) || source->quantised)
    return ls_stored_tensor_read(source, first, count, dtype, target, error);
  const ls_dtype blocks = precision == LS_BLOCKS_NF4 ? LS_NF4 : LS_INT8;
  char *to = target;
  for (int64_t done = 0; done < count; done += LS_BLOCK_WEIGHTS) {
    float weights[LS_BLOCK_WEIGHTS];
    ls_int8_block block; /* the larger one */
    LS_TRY(ls_stored_tensor_read(source, first + done, LS_BLOCK_WEIGHTS, LS_F32, weights, error));
    ls_blocks_quantise(blocks, weights, 1, &block);
    ls_blocks_restore(blocks, &block, 1, weights);
    ls_convert(to, dtype, weights, LS_F32, LS_BLOCK_WEIGHTS);
    to += LS_BLOCK_WEIGHTS * ls_dtype_bytes(dtype);
  }
  return LS_OK;
}

/* A weight with its adapters, summed in fp64 and rounded once. */
static ls_status write_merged(exporter *self, ls_arena *scratch, int i,
                              const ls_adapter_product *product, void *piece, ls_error *error) {
  const ls_stored_tensor *source = self->sources.items[i];
  const ls_dtype dtype = self->specs.items[i].dtype;
  double *sums = LS_NEW_ARRAY(scratch, double, PIECE_ELEMENTS);
  for (int64_t first = 0; first < source->count; first += PIECE_ELEMENTS) {
    const int64_t left = source->count - first;
    const int64_t count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
    LS_TRY(read_base(self, i, first, count, LS_F64, sums, error));
    ls_adapter_product_add(product, first, count, sums);
    ls_convert(piece, dtype, sums, LS_F64, count);
    LS_TRY(
        ls_safetensors_append(self->writer, piece, (size_t)count * ls_dtype_bytes(dtype), error));
  }
  return LS_OK;
}

static ls_status write_tensor(exporter *self, int i, void *piece, ls_error *error) {
  const ls_stored_tensor *source = self->sources.items[i];
  const ls_stored_layout *layout = self->adapters ? layout_of(self, source) : NULL;
  if (layout) {
    ls_adapter_product product;
    ls_arena *scratch = ls_arena_create();
    ls_status status =
        ls_adapter_product_read(scratch, &self->config, self->adapters, layout, &product, error);
    if (status == LS_OK && product.rank)
      status = write_merged(self, scratch, i, &product, piece, error);
    ls_arena_destroy(&scratch);
    if (status != LS_OK || product.rank) return status;
  }
  const ls_dtype dtype = self->specs.items[i].dtype;
  for (int64_t first = 0; first < source->count; first += PIECE_ELEMENTS) {
    const int64_t left = source->count - first;
    const int64_t count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
    LS_TRY(read_base(self, i, first, count, dtype, piece, error));
    LS_TRY(
        ls_safetensors_append(self->writer, piece, (size_t)count * ls_dtype_bytes(dtype), error));
  }
  return LS_OK;
}

static ls_status write_tensors(exporter *self, ls_error *error) {
  const ls_export_options *options = self->options;
  LS_TRY(ls_safetensors_create_shards(self->aside,
                                      keeps_adapters(self) ? LS_ADAPTERS_STEM : "model",
                                      (size_t)options->max_shard_bytes, self->specs.items,
                                      self->specs.count, NULL, 0, &self->writer, error));
  void *piece = ls_arena_alloc(self->arena, PIECE_ELEMENTS * sizeof(double));
  int64_t done = 0;
  for (int i = 0; i < self->specs.count; i++) {
    LS_TRY(write_tensor(self, i, piece, error));
    done += self->sources.items[i]->count * (int64_t)ls_dtype_bytes(self->specs.items[i].dtype);
    LS_TRY(ls_stop_check("exporting; nothing is left of it", error));
    if (options->progress) options->progress(options->context, done, self->report->bytes);
  }
  self->report->tensors = self->specs.count;
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

static ls_status write_text(exporter *self, const char *name, const char *text, ls_error *error) {
  self->report->files++;
  return ls_file_write(path_in(self, self->aside, name), text, strlen(text), error);
}

static ls_status write_companions(exporter *self, ls_error *error) {
  const ls_dtype dtype = self->specs.count ? self->specs.items[0].dtype : LS_F32;
  ls_model_config config = self->config;
  config.blocks = LS_COMPUTE; /* what is written beside it are numbers */
  /* What classes are called stands nowhere else. */
  if (!keeps_adapters(self) || config.classes)
    LS_TRY(
        write_text(self, "config.json", ls_model_config_text(self->arena, &config, dtype), error));
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
