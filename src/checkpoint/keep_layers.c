#include "checkpoint/keep_layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/export.h"
#include "checkpoint/keep_columns.h"
#include "store/weights.h"

/* Elements that are written at once. */
enum { PIECE = 1 << 20 };

static const size_t shard_bytes = 5000000000;

/* A tensor, and which of its rows and columns are kept; NULL: all. */
typedef struct source {
  const ls_stored_tensor *tensor;
  const int64_t *kept[2];
  int64_t count[2];
} source;

typedef struct keeper {
  ls_arena *arena;
  const int64_t *kept;
  int64_t few;
  LS_LIST(ls_tensor_spec) specs;
  LS_LIST(source) sources;        /* by spec */
  const ls_kept_columns *columns; /* NULL: all */
  ls_safetensors_writer *writer;
} keeper;

/* The layer of "layers.3.norm1.weight"; -1: it is of none. */
static int64_t layer_of(const char *parameter) {
  static const char layers[] = "layers.";
  if (strncmp(parameter, layers, sizeof layers - 1) != 0) return -1;
  return strtoll(parameter + sizeof layers - 1, NULL, 10);
}

/* The stored name with the layer's number replaced. */
static const char *renumber(ls_arena *arena, const char *name, int64_t from, int64_t to) {
  const char *number = ls_arena_printf(arena, ".%lld.", (long long)from);
  const char *at = strstr(name, number);
  if (!at) return NULL;
  return ls_arena_printf(arena, "%.*s.%lld.%s", (int)(at - name), name, (long long)to,
                         at + strlen(number));
}

/* What is kept of a tensor's rows and columns, as it is stored. */
static source narrow(const keeper *self, const ls_stored_tensor *tensor,
                     const ls_stored_layout *layout, const ls_parameter *about, int64_t layer) {
  source made = {.tensor = tensor};
  for (int d = 0; self->columns && d < about->ndim; d++) {
    const int stored = about->ndim == 2 && layout->transposed ? !d : d;
    made.kept[stored] = ls_kept_columns_of(self->columns, about, layer, d, &made.count[stored]);
  }
  return made;
}

static ls_status keep_tensor(keeper *self, const ls_stored_tensor *tensor,
                             const ls_stored_layout *layout, const ls_parameter *about,
                             ls_error *error) {
  const int64_t layer = layer_of(about->name);
  int64_t place = 0;
  while (layer >= 0 && place < self->few && self->kept[place] != layer) place++;
  if (layer >= 0 && place == self->few) return LS_OK;
  const char *name = layer < 0 ? tensor->name : renumber(self->arena, tensor->name, layer, place);
  if (!name || tensor->quantised || tensor->dtype == LS_DTYPE_COUNT)
    return ls_fail(error, LS_INPUT,
                   "%s: %.100s cannot be kept: expected plain weights, a layer each", tensor->file,
                   tensor->name);
  const source from = narrow(self, tensor, layout, about, layer);
  int64_t *dims = LS_NEW_ARRAY(self->arena, int64_t, tensor->ndim + 1);
  for (int d = 0; d < tensor->ndim; d++) dims[d] = self->columns ? from.count[d] : tensor->dims[d];
  *LS_APPEND(self->arena, &self->specs) =
      (ls_tensor_spec){.name = name, .dtype = tensor->dtype, .ndim = tensor->ndim, .dims = dims};
  *LS_APPEND(self->arena, &self->sources) = from;
  return LS_OK;
}

static ls_status list(keeper *self, const ls_weights *weights, const ls_graph *graph,
                      ls_error *error) {
  const ls_weight_plan *plan = ls_weights_layout(weights);
  for (int t = 0; t < plan->count; t++) {
    const ls_stored_tensor *tensor = ls_weights_tensor(weights, t);
    const int parameter = plan->tensors[t].pieces.items[0].parameter;
    LS_TRY(keep_tensor(self, tensor, &plan->tensors[t], &graph->parameters.items[parameter].about,
                       error));
  }
  return LS_OK;
}

/* The rows that are kept, and of each the columns. */
static ls_status write_narrow(const keeper *self, const source *of, ls_error *error) {
  const ls_stored_tensor *from = of->tensor;
  const size_t bytes = (size_t)ls_dtype_bytes(from->dtype);
  const int64_t wide = from->ndim == 2 ? from->dims[1] : from->dims[0];
  const int across = from->ndim == 2, rows = from->ndim == 2;
  ls_arena *scratch = ls_arena_create();
  char *row = ls_arena_alloc(scratch, (size_t)wide * bytes);
  ls_status status = LS_OK;
  for (int64_t r = 0; status == LS_OK && r < (rows ? of->count[0] : 1); r++) {
    const int64_t place = rows && of->kept[0] ? of->kept[0][r] : r;
    status = ls_stored_tensor_read(from, place * wide, wide, from->dtype, row, error);
    for (int64_t c = 0; of->kept[across] && c < of->count[across]; c++)
      memmove(row + (size_t)c * bytes, row + (size_t)of->kept[across][c] * bytes, bytes);
    if (status == LS_OK)
      status = ls_safetensors_append(self->writer, row, (size_t)of->count[across] * bytes, error);
  }
  ls_arena_destroy(&scratch);
  return status;
}

static ls_status write_tensors(keeper *self, const char *folder, ls_error *error) {
  double *piece = LS_NEW_ARRAY(self->arena, double, PIECE);
  LS_TRY(ls_safetensors_create_shards(folder, "model", shard_bytes, self->specs.items,
                                      self->specs.count, NULL, 0, &self->writer, error));
  for (int t = 0; t < self->specs.count; t++) {
    const ls_stored_tensor *from = self->sources.items[t].tensor;
    if (self->columns) {
      LS_TRY(write_narrow(self, &self->sources.items[t], error));
      continue;
    }
    for (int64_t at = 0; at < from->count; at += PIECE) {
      const int64_t count = from->count - at < PIECE ? from->count - at : PIECE;
      LS_TRY(ls_stored_tensor_read(from, at, count, from->dtype, piece, error));
      LS_TRY(ls_safetensors_append(self->writer, piece,
                                   (size_t)count * (size_t)ls_dtype_bytes(from->dtype), error));
    }
  }
  return ls_safetensors_finish(&self->writer, error);
}

static ls_status write_all(keeper *self, const char *folder, const ls_model_config *config,
                           const ls_model_config *small, const char *aside, ls_error *error) {
  const ls_build_options one = {.mode = LS_MODEL_FORWARD, .tokens = 1, .sequence = 1};
  ls_graph *graph;
  ls_weights *weights;
  LS_TRY(ls_model_build(self->arena, config, &one, &graph, error));
  LS_TRY(ls_weights_open(self->arena, config, graph, &(ls_weights_source){.path = folder}, &weights,
                         error));
  ls_status status = LS_OK;
  if (small->width < config->width)
    status =
        ls_kept_columns_choose(self->arena, config, graph, weights, small, &self->columns, error);
  if (status == LS_OK) status = list(self, weights, graph, error);
  if (status == LS_OK) status = ls_directory_make(aside, error);
  if (status == LS_OK) status = write_tensors(self, aside, error);
  if (status == LS_OK) {
    const char *text = ls_model_config_text(self->arena, small, self->specs.items[0].dtype);
    status = ls_file_write(ls_arena_printf(self->arena, "%s/config.json", aside), text,
                           strlen(text), error);
  }
  ls_weights_close(&weights);
  return status == LS_OK ? ls_export_companions(self->arena, folder, aside, error) : status;
}

ls_status ls_keep_layers(ls_arena *arena, const char *folder, const ls_model_config *config,
                         const int64_t *kept, const ls_model_config *small, const char *to,
                         ls_error *error) {
  keeper self = {.arena = arena, .kept = kept, .few = small->layers};
  const char *aside = ls_arena_printf(arena, "%s.tmp-%ld", to, (long)getpid());
  LS_TRY(ls_directory_check_new(to, error));
  ls_status status = write_all(&self, folder, config, small, aside, error);
  ls_safetensors_abandon(&self.writer);
  if (status == LS_OK) {
    (void)rmdir(to); /* an empty one */
    status = ls_directory_publish(aside, to, error);
  }
  if (status != LS_OK) (void)!ls_directory_remove(aside, NULL);
  return status;
}
