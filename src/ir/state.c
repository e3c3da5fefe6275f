#include "ir/state.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "ir/program.h"

const char *ls_category_name(ls_category category) {
  static const char *const names[] = {
#define LS_CATEGORY_NAME(suffix, name) name,
      LS_CATEGORIES(LS_CATEGORY_NAME)
#undef LS_CATEGORY_NAME
  };
  return names[category];
}

enum { LS_ALL = 0, LS_TRAINED = 1, LS_KEPT = 2 };
enum { LS_TENSOR = 0, LS_RANGE, LS_BLOCKWISE, LS_LINEWISE };

static const ls_state_row parts[LS_PART_COUNT] = {
#define LS_PART_ROW(suffix, name, type, shape, category, has, saved) \
  {name,                                                             \
   LS_TYPE_##type,                                                   \
   LS_##shape == LS_RANGE,                                           \
   LS_##shape == LS_BLOCKWISE || LS_##shape == LS_LINEWISE,          \
   LS_CATEGORY_##category,                                           \
   ((LS_##has) & LS_TRAINED) != 0,                                   \
   ((LS_##has) & LS_KEPT) != 0,                                      \
   saved},
    LS_STATE_PARTS(LS_PART_ROW)
#undef LS_PART_ROW
};

const ls_state_row *ls_state_row_of(ls_state_part part) {
  return &parts[part];
}

ls_dtype ls_state_dtype(const ls_layout *layout, ls_state_part part, ls_precision precision) {
  const ls_state_type type = parts[part].type;
  if (type == LS_TYPE_COMPUTE) return ls_layout_dtype(layout, precision);
  if (type == LS_TYPE_CODE) return LS_U8;
  if (layout->compute == LS_F64) return LS_F64;
  return type == LS_TYPE_GRADIENT ? layout->grad_dtype : LS_F32;
}

static int64_t elements_of(int ndim, const int64_t *dims) {
  int64_t elements = 1;
  for (int d = 0; d < ndim; d++) elements *= dims[d];
  return elements;
}

/* Of both moments. */
static int64_t blocks_of(int ndim, const int64_t *dims) {
  return 2 * ((elements_of(ndim, dims) + LS_STATE_BLOCK - 1) / LS_STATE_BLOCK);
}

/* Of rows and columns. */
static int64_t lines_of(int ndim, const int64_t *dims) {
  return dims[0] + (ndim > 1 ? dims[1] : 1);
}

ls_state_size ls_state_size_of(ls_state_part part, int ndim, const int64_t *dims) {
  if (part == LS_PART_LINES) return (ls_state_size){lines_of(ndim, dims), 1};
  if (parts[part].whole) return (ls_state_size){blocks_of(ndim, dims), 1};
  return (ls_state_size){dims[0], ndim > 1 ? dims[1] : 1};
}

int ls_update_dims(ls_update_source from, int ndim, const int64_t *dims,
                   int64_t made[LS_MAX_DIMS]) {
  memset(made, 0, sizeof *made * LS_MAX_DIMS);
  if (from == LS_FROM_BLOCKS || from == LS_FROM_LINES) {
    made[0] = from == LS_FROM_BLOCKS ? blocks_of(ndim, dims) : lines_of(ndim, dims);
    return 1;
  }
  memcpy(made, dims, sizeof *dims * (size_t)ndim);
  if (from == LS_FROM_MATRIX) return ndim;
  made[1] = ndim > 1 && dims[1] < dims[0] ? dims[1] : dims[0];
  made[0] = 2 * made[1];
  return 2;
}

/* The same of what is factored and what is not. */
#define ADAFACTOR_UPDATE                                             \
  {                                                                  \
    .op = LS_OP_ADAFACTOR, .inputs = 5,                              \
    .in = {{LS_FROM_ELEMENTS, 0},                                    \
           {LS_FROM_NUMBER, 0},                                      \
           {LS_FROM_NUMBER, 1},                                      \
           CELL(LEARNING_RATE),                                      \
           CELL(CLIP_FACTOR)},                                       \
    .outputs = 1, .out = {PART(MASTER)}, .settings = 2, .setting = { \
      SETTING(weight_decay, weight_decay, "optimizer.weight_decay"), \
      SETTING(parameter_scale, scale, "optimizer.scale_parameter")   \
    }                                                                \
  }
#define SETTING(from, to, key) \
  { offsetof(ls_optimizer, from), offsetof(ls_attributes, to), key }
#define PART(part) \
  { LS_FROM_PART, LS_PART_##part }
#define CELL(cell) \
  { LS_FROM_CELL, LS_CELL_##cell }

static const ls_optimizer_row optimizers[LS_OPTIMIZER_COUNT] = {
    [LS_OPTIMIZER_ADAMW] =
        {.name = "adamw",
         .nodes = 1,
         .node = {{.op = LS_OP_ADAMW,
                   .inputs = 4,
                   .in = {PART(GRADIENT), CELL(LEARNING_RATE), CELL(STEP), CELL(CLIP_FACTOR)},
                   .outputs = 3,
                   .out = {PART(MASTER), PART(MOMENT1), PART(MOMENT2)},
                   .settings = 4,
                   .setting = {SETTING(weight_decay, weight_decay, "optimizer.weight_decay"),
                               SETTING(beta1, beta1, "optimizer.betas"),
                               SETTING(beta2, beta2, "optimizer.betas"),
                               SETTING(epsilon, epsilon, "optimizer.eps")}}},
         .speculative = LS_OP_ADAMW_SPECULATE},
    [LS_OPTIMIZER_SGD] =
        {.name = "sgd",
         .nodes = 1,
         .node = {{.op = LS_OP_SGD,
                   .inputs = 4,
                   .in = {PART(GRADIENT), CELL(LEARNING_RATE), CELL(STEP), CELL(CLIP_FACTOR)},
                   .outputs = 2,
                   .out = {PART(MASTER), PART(MOMENT1)},
                   .settings = 2,
                   .setting = {SETTING(weight_decay, weight_decay, "optimizer.weight_decay"),
                               SETTING(momentum, beta1, "optimizer.momentum")}}},
         .speculative = LS_OP_SGD_SPECULATE},
    [LS_OPTIMIZER_LION] =
        {.name = "lion",
         .signs = true,
         .nodes = 1,
         .node = {{.op = LS_OP_LION,
                   .inputs = 4,
                   .in = {PART(GRADIENT), CELL(LEARNING_RATE), CELL(STEP), CELL(CLIP_FACTOR)},
                   .outputs = 2,
                   .out = {PART(MASTER), PART(MOMENT1)},
                   .settings = 3,
                   .setting = {SETTING(weight_decay, weight_decay, "optimizer.weight_decay"),
                               SETTING(beta1, beta1, "optimizer.betas"),
                               SETTING(beta2, beta2, "optimizer.betas")}}},
         .speculative = LS_OP_LION_SPECULATE},
    [LS_OPTIMIZER_ADAMW8BIT] = {.name = "adamw8bit",
                                .rule = LS_UPDATES_LARGE,
                                .rest = LS_OPTIMIZER_ADAMW,
                                .nodes = 3,
                                .node = {{.op = LS_OP_ADAMW8_LARGEST,
                                          .inputs = 5,
                                          .in = {PART(GRADIENT), CELL(CLIP_FACTOR), PART(CODES1),
                                                 PART(CODES2), PART(LARGEST)},
                                          .outputs = 1,
                                          .out = {{LS_FROM_BLOCKS, 0}},
                                          .columns = true,
                                          .settings = 2,
                                          .setting = {SETTING(beta1, beta1, "optimizer.betas"),
                                                      SETTING(beta2, beta2, "optimizer.betas")}},
                                         {.op = LS_OP_ADAMW8,
                                          .inputs = 6,
                                          .in = {PART(GRADIENT),
                                                 CELL(LEARNING_RATE),
                                                 CELL(STEP),
                                                 CELL(CLIP_FACTOR),
                                                 PART(LARGEST),
                                                 {LS_FROM_BLOCKS, 0}},
                                          .outputs = 3,
                                          .out = {PART(MASTER), PART(CODES1), PART(CODES2)},
                                          .columns = true,
                                          .settings = 4,
                                          .setting = {SETTING(weight_decay, weight_decay,
                                                              "optimizer.weight_decay"),
                                                      SETTING(beta1, beta1, "optimizer.betas"),
                                                      SETTING(beta2, beta2, "optimizer.betas"),
                                                      SETTING(epsilon, epsilon, "optimizer.eps")}},
                                         {.op = LS_OP_ADAMW8_KEEP,
                                          .inputs = 2,
                                          .in = {{LS_FROM_BLOCKS, 0}, CELL(CLIP_FACTOR)},
                                          .outputs = 1,
                                          .out = {PART(LARGEST)}}}},
    [LS_OPTIMIZER_MUON] =
        {.name = "muon",
         .rule = LS_UPDATES_MATRICES,
         .rest = LS_OPTIMIZER_ADAMW,
         .nodes = 3,
         .node = {{.op = LS_OP_MUON_MOMENTUM,
                   .inputs = 2,
                   .in = {PART(GRADIENT), CELL(CLIP_FACTOR)},
                   .outputs = 2,
                   .out = {PART(MOMENT1), {LS_FROM_ELEMENTS, 0}},
                   .settings = 1,
                   .setting = {SETTING(momentum, beta1, "optimizer.momentum")}},
                  {.op = LS_OP_ORTHOGONALISE,
                   .inputs = 1,
                   .in = {{LS_FROM_ELEMENTS, 0}},
                   .outputs = 3,
                   .out = {{LS_FROM_ELEMENTS, 1}, {LS_FROM_MATRIX, 0}, {LS_FROM_SQUARES, 0}},
                   .owners = true},
                  {.op = LS_OP_MUON,
                   .inputs = 3,
                   .in = {{LS_FROM_ELEMENTS, 1}, CELL(LEARNING_RATE), CELL(CLIP_FACTOR)},
                   .outputs = 1,
                   .out = {PART(MASTER)},
                   .shaped = true,
                   .settings = 2,
                   .setting = {SETTING(weight_decay, weight_decay, "optimizer.weight_decay"),
                               SETTING(matrix_scale, scale, "optimizer.adjust_lr")}}}},
    /* First moments are how far the fast weights are from their mean. */
    [LS_OPTIMIZER_SCHEDULEFREE] =
        {.name = "schedulefree",
         .nodes = 1,
         .node = {{.op = LS_OP_SCHEDULEFREE,
                   .inputs = 4,
                   .in = {PART(GRADIENT), CELL(LEARNING_RATE), CELL(STEP), CELL(CLIP_FACTOR)},
                   .outputs = 3,
                   .out = {PART(MASTER), PART(MOMENT1), PART(MOMENT2)},
                   .settings = 5,
                   .setting = {SETTING(weight_decay, weight_decay, "optimizer.weight_decay"),
                               SETTING(beta1, beta1, "optimizer.betas"),
                               SETTING(beta2, beta2, "optimizer.betas"),
                               SETTING(epsilon, epsilon, "optimizer.eps"),
                               SETTING(warmup, warmup, "train.warmup")}}},
         .point = {.op = LS_OP_SCHEDULEFREE_POINT,
                   .inputs = 2,
                   .in = {PART(MASTER), PART(MOMENT1)},
                   .outputs = 1,
                   .out = {PART(STORED)},
                   .settings = 1,
                   .setting = {SETTING(beta1, beta1, "optimizer.betas")}}},
    [LS_OPTIMIZER_ADAFACTOR] =
        {.name = "adafactor",
         .signs = true,
         .rule = LS_UPDATES_FACTORED,
         .rest = LS_OPTIMIZER_ADAFACTOR_WHOLE,
         .nodes = 4,
         .node = {{.op = LS_OP_ADAFACTOR_SUMS,
                   .inputs = 2,
                   .in = {PART(GRADIENT), CELL(CLIP_FACTOR)},
                   .outputs = 1,
                   .out = {{LS_FROM_LINES, 0}},
                   .columns = true},
                  {.op = LS_OP_ADAFACTOR_KEEP,
                   .inputs = 3,
                   .in = {{LS_FROM_LINES, 0}, CELL(STEP), CELL(CLIP_FACTOR)},
                   .outputs = 1,
                   .out = {PART(LINES)},
                   .columns = true},
                  {.op = LS_OP_ADAFACTOR_DIRECTION,
                   .inputs = 4,
                   .in = {PART(GRADIENT), CELL(CLIP_FACTOR), PART(LINES), PART(MASTER)},
                   .outputs = 3,
                   .out = {{LS_FROM_ELEMENTS, 0}, {LS_FROM_NUMBER, 0}, {LS_FROM_NUMBER, 1}},
                   .columns = true,
                   .means = true},
                  ADAFACTOR_UPDATE}},
    [LS_OPTIMIZER_ADAFACTOR_WHOLE] =
        {.name = "adafactor, not factored,",
         .nodes = 3,
         .node = {{.op = LS_OP_ADAFACTOR_SECOND,
                   .inputs = 3,
                   .in = {PART(GRADIENT), CELL(STEP), CELL(CLIP_FACTOR)},
                   .outputs = 1,
                   .out = {PART(MOMENT2)}},
                  {.op = LS_OP_ADAFACTOR_DIVIDE,
                   .inputs = 4,
                   .in = {PART(GRADIENT), CELL(CLIP_FACTOR), PART(MOMENT2), PART(MASTER)},
                   .outputs = 3,
                   .out = {{LS_FROM_ELEMENTS, 0}, {LS_FROM_NUMBER, 0}, {LS_FROM_NUMBER, 1}},
                   .means = true},
                  ADAFACTOR_UPDATE}},
};

const ls_optimizer_row *ls_optimizer_row_of(const ls_optimizer *optimizer) {
  return optimizer->row ? optimizer->row : &optimizers[optimizer->kind];
}

int ls_optimizer_update_of(const ls_optimizer *optimizer, const ls_graph *graph, int parameter) {
  const ls_parameter_record *record = &graph->parameters.items[parameter];
  const ls_parameter *about = &record->about;
  const int segment = graph->tensors.items[record->tensor.index].segment;
  switch (ls_optimizer_row_of(optimizer)->rule) {
    case LS_UPDATES_LARGE: return elements_of(about->ndim, about->dims) < LS_LEAST_BLOCKWISE;
    case LS_UPDATES_FACTORED: return about->ndim != 2 || ls_tp_is_of_experts(about->sharding);
    case LS_UPDATES_MATRICES:
      return about->ndim != 2 || ls_tp_is_of_experts(about->sharding) ||
             graph->segments.items[segment].layer < 0;
    default: return 0;
  }
}

const ls_optimizer_row *ls_optimizer_update(const ls_optimizer *optimizer, int update) {
  const ls_optimizer_row *row = ls_optimizer_row_of(optimizer);
  return update && row->rule != LS_UPDATES_ALL ? &optimizers[row->rest] : row;
}

ls_update_node ls_optimizer_speculation(const ls_optimizer *optimizer) {
  const ls_optimizer_row *row = ls_optimizer_row_of(optimizer);
  ls_update_node node = row->node[0];
  node.op = row->speculative;
  for (int o = 0; o < node.outputs; o++) node.in[node.inputs++] = node.out[o];
  node.out[0] = (ls_update_operand)PART(STORED);
  node.outputs = 1;
  return node;
}

bool ls_optimizer_keeps(const ls_optimizer *optimizer, int update, ls_state_part part) {
  const ls_optimizer_row *row = ls_optimizer_update(optimizer, update);
  bool keeps = part == LS_PART_MASTER;
  for (int n = 0; n < row->nodes; n++)
    for (int o = 0; o < row->node[n].outputs; o++)
      keeps |= row->node[n].out[o].from == LS_FROM_PART && row->node[n].out[o].index == (int)part;
  return keeps;
}

int ls_optimizer_temporaries(const ls_optimizer *optimizer, int update, ls_update_source kind) {
  const ls_optimizer_row *row = ls_optimizer_update(optimizer, update);
  int count = 0;
  for (int n = 0; n < row->nodes; n++)
    for (int o = 0; o < row->node[n].outputs; o++)
      if (row->node[n].out[o].from == kind && row->node[n].out[o].index >= count)
        count = row->node[n].out[o].index + 1;
  return count;
}

double ls_optimizer_weight_decay(const ls_optimizer *optimizer,
                                 const ls_parameter_record *parameter) {
  if (parameter->settings.weight_decay >= 0) return parameter->settings.weight_decay;
  return parameter->about.ndim >= 2 ? optimizer->weight_decay : 0;
}

static bool reads_rate(const ls_update_node *node) {
  for (int i = 0; i < node->inputs; i++)
    if (node->in[i].from == LS_FROM_CELL && node->in[i].index == LS_CELL_LEARNING_RATE) return true;
  return false;
}

/* How much of the rate a matrix gets: torch's adjust_lr_fn "original", or with a scale Moonshot's,
 * by which updates are as large as AdamW's (arXiv 2502.16982). */
static double share_of(double scale, const int64_t *dims) {
  const double rows = (double)dims[0], columns = (double)dims[1];
  return scale > 0 ? scale * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
}

ls_attributes ls_optimizer_attributes(const ls_optimizer *optimizer, const ls_update_node *node,
                                      const ls_parameter_record *parameter) {
  ls_attributes made = node->attributes;
  ls_optimizer own = *optimizer;
  own.weight_decay = ls_optimizer_weight_decay(optimizer, parameter);
  for (int s = 0; s < node->settings; s++)
    memcpy((char *)&made + node->setting[s].to, (const char *)&own + node->setting[s].from,
           sizeof(double));
  if (reads_rate(node)) made.rate = parameter->settings.rate;
  if (node->means)
    made.weight = 1.0 / (double)elements_of(parameter->about.ndim, parameter->about.dims);
  if (node->shaped) made.scale = share_of(made.scale, parameter->about.dims);
  if (node->columns) made.columns = parameter->about.ndim > 1 ? parameter->about.dims[1] : 1;
  return made;
}

bool ls_optimizer_takes(const ls_optimizer *optimizer, const char *key) {
  for (int update = 0; update < LS_UPDATE_COUNT; update++) {
    const ls_optimizer_row *row = ls_optimizer_update(optimizer, update);
    for (int n = 0; n < row->nodes; n++)
      for (int s = 0; s < row->node[n].settings; s++)
        if (strcmp(row->node[n].setting[s].key, key) == 0) return true;
  }
  return false;
}
