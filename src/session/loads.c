#include "session/loads.h"

#include <math.h>

#include "run/rank_parameters.h"

struct ls_loads {
  ls_rank *rank;
  int layers;
  int64_t experts;
  double rate;
  const int *layer;  /* of the model, by list of loads */
  const int *bias;   /* parameters likewise; -1: its router has none */
  const bool *drops; /* likewise: what it counts is dropped */
  double **biases;   /* as they are stored */
  double *room;      /* for the loads of one layer */
};

static const ls_node *counting(const ls_graph *graph, ls_tensor_id loads) {
  return &graph->nodes.items[ls_graph_tensor(graph, loads)->producer];
}

/* What is added to the scores that loads are counted by; -1: nothing is. */
static int bias_of(const ls_graph *graph, ls_tensor_id loads) {
  const ls_node *node = counting(graph, loads);
  return node->inputs > 2 ? ls_graph_tensor(graph, node->in[2])->parameter : -1;
}

static ls_status read_bias(const ls_loads *self, int l, ls_error *error) {
  const ls_program *program = ls_rank_program(self->rank, 0);
  const ls_dtype dtype = ls_layout_dtype(&program->layout, LS_ACCUMULATE);
  LS_TRY(ls_rank_read_parameter(self->rank, program, self->bias[l], LS_PART_MASTER, 0,
                                self->experts, self->room, dtype, error));
  for (int64_t e = 0; e < self->experts; e++)
    self->biases[l][e] =
        dtype == LS_F64 ? self->room[e] : (double)((const float *)(const void *)self->room)[e];
  return LS_OK;
}

ls_status ls_loads_open(ls_arena *arena, ls_rank *rank, const ls_graph *graph, double rate,
                        ls_loads **loads, ls_error *error) {
  const int layers = graph->loads.count;
  *loads = NULL;
  if (layers == 0) return LS_OK;
  ls_loads *self = LS_NEW(arena, ls_loads);
  int *layer = LS_NEW_ARRAY(arena, int, layers), *bias = LS_NEW_ARRAY(arena, int, layers);
  bool *drops = LS_NEW_ARRAY(arena, bool, layers);
  *self = (ls_loads){.rank = rank,
                     .layers = layers,
                     .experts = graph->experts,
                     .rate = rate,
                     .layer = layer,
                     .bias = bias,
                     .drops = drops,
                     .biases = LS_NEW_ARRAY(arena, double *, layers),
                     .room = LS_NEW_ARRAY(arena, double, graph->experts)};
  for (int l = 0; l < layers; l++) {
    const ls_tensor_id id = graph->loads.items[l];
    layer[l] = graph->segments.items[ls_graph_tensor(graph, id)->segment].layer;
    drops[l] = ls_op_row(counting(graph, id)->kind)->duty == LS_DUTY_DROPPED;
    bias[l] = rate > 0 && !drops[l] ? bias_of(graph, id) : -1;
    self->biases[l] = LS_NEW_ARRAY(arena, double, graph->experts);
    if (bias[l] >= 0) LS_TRY(read_bias(self, l, error));
  }
  *loads = self;
  return LS_OK;
}

/* The loads of a layer, in `room`; *mean of its experts. */
static ls_status read_layer(const ls_loads *self, int l, double *mean, ls_error *error) {
  LS_TRY(ls_rank_read_loads(self->rank, 0, l, self->room, error));
  *mean = 0;
  for (int64_t e = 0; e < self->experts; e++) *mean += self->room[e];
  *mean /= (double)self->experts;
  return LS_OK;
}

ls_status ls_loads_read(const ls_loads *loads, ls_loads_told *told, ls_error *error) {
  int64_t idle = 0, all = 0;
  *told = (ls_loads_told){0};
  if (!loads) return LS_OK;
  for (int l = 0; l < loads->layers; l++) {
    double mean;
    LS_TRY(read_layer(loads, l, &mean, error));
    if (loads->drops[l]) {
      told->drops = true;
      told->dropped += llround(mean * (double)loads->experts);
      continue;
    }
    all += loads->experts;
    for (int64_t e = 0; e < loads->experts; e++) {
      idle += loads->room[e] <= 0;
      if (!(mean > 0 && loads->room[e] / mean > told->fullest)) continue;
      told->fullest = loads->room[e] / mean;
      told->layer = loads->layer[l];
    }
  }
  told->idle = all ? (double)idle / (double)all : 0;
  return LS_OK;
}

static ls_status move_bias(ls_loads *self, int l, ls_error *error) {
  const ls_program *program = ls_rank_program(self->rank, 0);
  const bool wide = ls_layout_dtype(&program->layout, LS_ACCUMULATE) == LS_F64;
  double mean, *bias = self->biases[l];
  LS_TRY(read_layer(self, l, &mean, error));
  for (int64_t e = 0; e < self->experts; e++) {
    if (self->room[e] < mean) bias[e] += self->rate;
    if (self->room[e] > mean) bias[e] -= self->rate;
    if (!wide) bias[e] = (double)(float)bias[e]; /* as it is found when a run goes on */
  }
  return ls_rank_write_parameter(self->rank, program, self->bias[l], LS_PART_MASTER, 0,
                                 self->experts, bias, LS_F64, error);
}

ls_status ls_loads_move_biases(ls_loads *loads, ls_error *error) {
  for (int l = 0; loads && l < loads->layers; l++)
    if (loads->bias[l] >= 0) LS_TRY(move_bias(loads, l, error));
  return LS_OK;
}
