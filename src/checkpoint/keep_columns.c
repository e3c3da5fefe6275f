#include "checkpoint/keep_columns.h"

#include <stdlib.h>
#include <string.h>

/* What a dimension of a parameter counts. */
typedef enum axis { OTHER = 0, STREAM, QUERIES, KEYS, MLP, AXES } axis;

/* The numbers that are kept, ascending, of each layer, or for the stream of all. */
typedef struct choice {
  int64_t count;
  int64_t *items;
} choice;

struct ls_kept_columns {
  const ls_model_config *config;
  choice stream;
  choice *layers[AXES]; /* [layers] each */
};

/* How large the weights are that each number of an axis has. */
typedef struct sums {
  double *stream;
  double **heads, **mlp; /* by layer; heads: by group of those that share a key */
} sums;

static int64_t groups_of(const ls_model_config *config) {
  return config->kv_heads > 1 ? config->kv_heads : config->heads;
}

static axis axis_of(const ls_model_config *config, const ls_parameter *about, int dim) {
  static const char table[] = "embedding."; /* of positions, of kinds of sentences */
  const bool reads = about->ndim == 2 && dim == 1;
  switch (about->sharding) {
    case LS_TP_COLUMN: return reads ? STREAM : MLP;
    case LS_TP_QUERY: return reads ? STREAM : QUERIES;
    case LS_TP_KEY_VALUE: return reads ? STREAM : KEYS;
    case LS_TP_ROW: return reads ? MLP : STREAM;
    case LS_TP_HEADS_IN: return reads ? QUERIES : STREAM;
    case LS_TP_VOCABULARY: return reads ? STREAM : OTHER;
    default: break;
  }
  if (!reads && about->ndim == 2 && strncmp(about->name, table, sizeof table - 1) == 0)
    return OTHER;
  return about->dims[dim] == config->width ? STREAM : OTHER;
}

/* The group of heads of a column of queries or keys. */
static int64_t group_at(const ls_model_config *config, axis of, int64_t column) {
  const int64_t head = column / config->head_dim;
  if (of == QUERIES) return head / (config->heads / groups_of(config));
  return config->kv_heads > 1 ? head : 0;
}

static void add(const ls_model_config *config, sums *all, axis of, int64_t layer, int64_t column,
                double square) {
  if (of == STREAM) all->stream[column] += square;
  if (of == MLP && layer >= 0) all->mlp[layer][column] += square;
  /* One key that all heads share says nothing of any. */
  if ((of == QUERIES || (of == KEYS && config->kv_heads > 1)) && layer >= 0)
    all->heads[layer][group_at(config, of, column)] += square;
}

static int64_t layer_of(const char *parameter) {
  static const char layers[] = "layers.";
  if (strncmp(parameter, layers, sizeof layers - 1) != 0) return -1;
  return strtoll(parameter + sizeof layers - 1, NULL, 10);
}

static ls_status measure(ls_arena *scratch, const ls_model_config *config,
                         const ls_parameter *about, const ls_stored_layout *layout,
                         const ls_stored_tensor *tensor, sums *all, ls_error *error) {
  if (layout->pieces.count != 1 || layout->stack || tensor->quantised ||
      tensor->dtype == LS_DTYPE_COUNT)
    return ls_fail(error, LS_INPUT,
                   "%s: %.100s cannot be made narrower: expected plain weights, a product each",
                   tensor->file, tensor->name);
  if (about->ndim != 2) return LS_OK;
  const int64_t layer = layer_of(about->name);
  const int64_t rows = about->dims[layout->transposed], columns = about->dims[!layout->transposed];
  const axis down = axis_of(config, about, layout->transposed);
  const axis across = axis_of(config, about, !layout->transposed);
  double *row = LS_NEW_ARRAY(scratch, double, columns);
  for (int64_t r = 0; r < rows; r++) {
    LS_TRY(ls_stored_tensor_read(tensor, r * columns, columns, LS_F64, row, error));
    for (int64_t c = 0; c < columns; c++) {
      add(config, all, down, layer, r, row[c] * row[c]);
      add(config, all, across, layer, c, row[c] * row[c]);
    }
  }
  return LS_OK;
}

typedef struct ranked {
  double sum;
  int64_t number;
} ranked;

static int by_sum(const void *a, const void *b) {
  const ranked *left = a, *right = b;
  if (left->sum > right->sum) return -1;
  if (left->sum < right->sum) return 1;
  return left->number < right->number ? -1 : 1;
}

static int ascending(const void *a, const void *b) {
  const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return left < right ? -1 : left > right;
}

/* The numbers of the `few` largest sums, each as `each` columns side by side. */
static choice largest(ls_arena *arena, const double *of, int64_t count, int64_t few, int64_t each) {
  ls_arena *scratch = ls_arena_create();
  ranked *order = LS_NEW_ARRAY(scratch, ranked, count);
  int64_t *first = LS_NEW_ARRAY(scratch, int64_t, few);
  choice made = {few * each, LS_NEW_ARRAY(arena, int64_t, few * each)};
  for (int64_t i = 0; i < count; i++) order[i] = (ranked){of[i], i};
  qsort(order, (size_t)count, sizeof *order, by_sum);
  for (int64_t i = 0; i < few; i++) first[i] = order[i].number;
  qsort(first, (size_t)few, sizeof *first, ascending);
  for (int64_t i = 0; i < few * each; i++) made.items[i] = first[i / each] * each + i % each;
  ls_arena_destroy(&scratch);
  return made;
}

static void choose(ls_arena *arena, const ls_model_config *config, const ls_model_config *small,
                   const sums *all, ls_kept_columns *made) {
  const int64_t groups = groups_of(config), few = groups * small->heads / config->heads;
  const int64_t queries = config->heads / groups * config->head_dim;
  made->stream = largest(arena, all->stream, config->width, small->width, 1);
  for (int a = QUERIES; a < AXES; a++)
    made->layers[a] = LS_NEW_ARRAY(arena, choice, config->layers);
  for (int64_t l = 0; l < config->layers; l++) {
    made->layers[QUERIES][l] = largest(arena, all->heads[l], groups, few, queries);
    if (config->kv_heads > 1)
      made->layers[KEYS][l] = largest(arena, all->heads[l], groups, few, config->head_dim);
    made->layers[MLP][l] = largest(arena, all->mlp[l], config->mlp_width, small->mlp_width, 1);
  }
}

ls_status ls_kept_columns_choose(ls_arena *arena, const ls_model_config *config,
                                 const ls_graph *graph, const ls_weights *weights,
                                 const ls_model_config *small, const ls_kept_columns **columns,
                                 ls_error *error) {
  if (config->experts || config->latent)
    return ls_fail(error, LS_INPUT,
                   "%s: experts and latents have columns of their own: expected a dense model, or "
                   "width=W from scratch",
                   config->source);
  const ls_weight_plan *plan = ls_weights_layout(weights);
  ls_arena *scratch = ls_arena_create();
  sums all = {.stream = LS_NEW_ARRAY(scratch, double, config->width),
              .heads = LS_NEW_ARRAY(scratch, double *, config->layers),
              .mlp = LS_NEW_ARRAY(scratch, double *, config->layers)};
  for (int64_t l = 0; l < config->layers; l++) {
    all.heads[l] = LS_NEW_ARRAY(scratch, double, groups_of(config));
    all.mlp[l] = LS_NEW_ARRAY(scratch, double, config->mlp_width);
  }
  ls_status status = LS_OK;
  for (int t = 0; status == LS_OK && t < plan->count; t++) {
    const int parameter = plan->tensors[t].pieces.items[0].parameter;
    status = measure(scratch, config, &graph->parameters.items[parameter].about, &plan->tensors[t],
                     ls_weights_tensor(weights, t), &all, error);
  }
  if (status == LS_OK) {
    ls_kept_columns *made = LS_NEW(arena, ls_kept_columns);
    made->config = config;
    choose(arena, config, small, &all, made);
    *columns = made;
  }
  ls_arena_destroy(&scratch);
  return status;
}

const int64_t *ls_kept_columns_of(const ls_kept_columns *columns, const ls_parameter *about,
                                  int64_t layer, int dim, int64_t *count) {
  const axis of = axis_of(columns->config, about, dim);
  const choice *found = of == STREAM               ? &columns->stream
                        : of == OTHER || layer < 0 ? NULL
                                                   : &columns->layers[of][layer];
  *count = found && found->items ? found->count : about->dims[dim];
  return found ? found->items : NULL;
}
