/* What a candidate takes before it is compiled: layers and the rest by class, then what pipeline
 * and data axes add. It only says which candidates are worth compiling. */
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "pipeline/pipeline.h"
#include "plan/plan.h"
#include "sim/sim.h"

/* What one layer and all else of a microbatch take on a rank, where nothing but tp cuts them. */
typedef struct class_cost {
  int tp;
  ls_op_set recompute;
  bool sequence_parallel, splits; /* splits: every pass back is in two halves */
  int64_t micro_batch;
  bool cannot;
  double layer_s, rest_s;
  double layer_bytes, rest_bytes; /* kept and made; without state */
  double beside;                  /* workspace of kernels */
} class_cost;

typedef struct estimate {
  ls_arena *arena;
  const ls_plan_problem *problem;
  LS_LIST(class_cost) classes;
  double layer_parameters, rest_parameters;
} estimate;

/* Of a unit: squares of its gradient, their sum, the update itself and its copy for use. */
#define UPDATE_KERNELS 4

/* A layout whose estimate is below this part of a device needs nothing on the host. */
#define SURELY_FITS 0.6

static ls_model_config shortened(const ls_model_config *model, int64_t layers) {
  ls_model_config made = *model;
  made.layers = layers;
  return made;
}

/* State of so many parameters that a rank has: weights and gradients, master weights, moments. */
typedef struct state_bytes {
  double weights, gradients, optimizer;
} state_bytes;

static state_bytes state_of(const ls_layout *layout) {
  const double weights = (double)ls_dtype_bytes(layout->compute);
  const bool points = ls_optimizer_row_of(&layout->optimizer)->point.outputs > 0;
  double moments = 0;
  for (int part = 0; part < LS_PART_COUNT; part++)
    if (ls_optimizer_keeps(&layout->optimizer, 0, (ls_state_part)part) &&
        !ls_state_row_of((ls_state_part)part)->blocks && /* next to nothing */
        ls_state_row_of((ls_state_part)part)->category == LS_CATEGORY_MOMENTS)
      moments += (double)ls_dtype_bytes(ls_state_dtype(layout, (ls_state_part)part, LS_COMPUTE));
  return (state_bytes){weights, (double)ls_dtype_bytes(layout->grad_dtype),
                       (weights < 4 || points ? 4 : 0) + moments};
}

/* The most that one microbatch keeps and makes. It need not be alive where all memory is most: of
 * wide layers that is their gradients, after what they kept is gone. */
static double kept_and_made(ls_arena *arena, const ls_program *program) {
  const ls_alive *alive = ls_program_alive(arena, program, LS_TIER_DEVICE);
  int64_t most = 0;
  for (int a = 0; a < program->actions.count; a++) {
    const int64_t *by = alive[a].by_category;
    const int64_t each =
        by[LS_CATEGORY_ACTIVATIONS] + by[LS_CATEGORY_TEMPORARIES] + by[LS_CATEGORY_INPUTS];
    if (each > most) most = each;
  }
  return (double)most;
}

/* Seconds of passes and of what they wait for, and bytes, of a model of so many layers. */
static bool cost_layers(const estimate *of, const ls_layout *layout, int64_t micro_batch,
                        int64_t layers, double *seconds, double *bytes, double *beside) {
  const ls_plan_problem *problem = of->problem;
  const ls_model_config model = shortened(problem->training->model, layers);
  ls_training training = *problem->training;
  training.model = &model;
  training.batch = micro_batch;
  training.budget = 0;
  training.prepare = NULL;
  ls_arena *arena = ls_arena_create();
  ls_compiled compiled;
  ls_simulation *made;
  const bool can = ls_compile(arena, &training, layout, problem->facts, &compiled, NULL) == LS_OK &&
                   ls_simulate(arena, compiled.stages[LS_COMPILED_STEP], problem->performance, NULL,
                               &made, NULL) == LS_OK;
  if (can) {
    const double *by_kind = made->stage[0].by_kind;
    *seconds = made->seconds - by_kind[LS_ACTION_UPDATE] - by_kind[LS_ACTION_NORM] -
               by_kind[LS_ACTION_SUM];
    *bytes = kept_and_made(arena, compiled.stages[LS_COMPILED_STEP][0]);
    *beside = (double)compiled.workspace[0];
  }
  ls_arena_destroy(&arena);
  return can;
}

static bool splits(const ls_layout *layout) {
  const ls_pipeline_kind *kind;
  return layout->pp > 1 && ls_pipeline_kind_find(layout->schedule, &kind, NULL) == LS_OK &&
         kind->backward == LS_BACKWARD_SPLIT;
}

static const class_cost *class_of(estimate *of, const ls_plan_candidate *candidate) {
  const ls_layout *layout = &candidate->layout;
  for (int c = 0; c < of->classes.count; c++) {
    const class_cost *each = &of->classes.items[c];
    if (each->tp == layout->tp && each->micro_batch == candidate->micro_batch &&
        each->sequence_parallel == layout->sequence_parallel && each->splits == splits(layout) &&
        ls_op_set_equal(&each->recompute, &layout->recompute))
      return each;
  }
  class_cost *made = LS_APPEND(of->arena, &of->classes);
  *made = (class_cost){.tp = layout->tp,
                       .recompute = layout->recompute,
                       .sequence_parallel = layout->sequence_parallel,
                       .splits = splits(layout),
                       .micro_batch = candidate->micro_batch};
  ls_layout alone = *layout;
  alone.pp = alone.microbatches = alone.chunks = 1;
  alone.schedule = made->splits ? "zbh1" : "1f1b";
  alone.zero = 0;
  alone.offload = (ls_offload){0};
  ls_layout_set_data_ranks(&alone, 1, 1);
  double one_s, two_s, one, two;
  made->cannot = !cost_layers(of, &alone, made->micro_batch, 1, &one_s, &one, &made->beside) ||
                 !cost_layers(of, &alone, made->micro_batch, 2, &two_s, &two, &made->beside);
  if (made->cannot) return made;
  made->layer_s = two_s - one_s;
  made->rest_s = fmax(one_s - made->layer_s, 0);
  made->layer_bytes = two - one;
  made->rest_bytes = fmax(one - made->layer_bytes, 0);
  return made;
}

static int replicas_of(const ls_layout *layout) {
  return ls_layout_data_ranks(layout) / ls_layout_shards(layout);
}

/* A collective over the data axes of a rank, those that shard or that replicate, of so many units
 * one after another. */
static double over(const ls_plan_problem *problem, const ls_layout *layout, bool replicas,
                   ls_collective collective, double bytes, double units) {
  const int ranks = replicas ? replicas_of(layout) : ls_layout_shards(layout);
  if (ranks < 2) return 0;
  const int apart = layout->tp * (replicas ? ls_layout_shards(layout) : 1);
  int near = problem->performance->per_host / apart;
  near = near < 1 ? 1 : near > ranks ? ranks : near;
  const ls_group_shape group = {ranks, near};
  const ls_transfer_time time = ls_collective_time(problem->performance, collective, bytes, &group);
  return units * time.latency_s + time.seconds;
}

/* Seconds of a step that data parallelism adds: what passes do not hide. */
static double data_seconds(const ls_plan_problem *problem, const ls_layout *layout,
                           double parameters, double units, double microbatch_s) {
  const state_bytes state = state_of(layout);
  const double weights = state.weights * parameters, gradients = state.gradients * parameters;
  const double share = layout->zero ? ls_layout_shards(layout) : 1;
  const double reduce = over(problem, layout, false, LS_REDUCE_SCATTER, gradients, units);
  const double gather = over(problem, layout, false, LS_ALL_GATHER, weights, units);
  const double across = over(problem, layout, true, LS_ALL_REDUCE, gradients / share, units);
  const double hidden = problem->performance->waits ? 0 : 0.8 * microbatch_s;
  /* What the first unit needs and the last one leaves is never hidden. */
  const double ends = (gather + reduce + across) / units;
  if (layout->zero < 3) {
    const double often = layout->zero == 2 ? layout->microbatches : 1;
    return often * fmax(reduce + across - 0.6 * hidden, ends) + gather;
  }
  const double each = 2 * gather + reduce;
  return layout->microbatches * fmax(each - hidden, ends) + across;
}

/* Seconds that a microbatch is on its way from a chunk to the next. */
static double message_seconds(const ls_plan_problem *problem, const ls_plan_candidate *candidate) {
  const ls_performance *performance = problem->performance;
  const ls_layout *layout = &candidate->layout;
  const bool near = problem->devices <= performance->per_host;
  const double rate = near ? performance->peer_per_s : performance->network_per_s;
  const double bytes = (double)candidate->micro_batch * (double)problem->training->sequence *
                       (double)problem->training->model->width *
                       (double)ls_dtype_bytes(layout->compute) /
                       (layout->sequence_parallel ? layout->tp : 1);
  return performance->launch_s +
         (near ? performance->peer_latency_s : performance->network_latency_s) +
         (rate > 0 ? bytes / rate : 0);
}

static double bubble_of(const ls_layout *layout) {
  const ls_pipeline_kind *kind;
  if (layout->pp == 1 || ls_pipeline_kind_find(layout->schedule, &kind, NULL) != LS_OK) return 0;
  const int chunks = layout->chunks > 0 ? layout->chunks : kind->usual_chunks;
  const double known = kind->bubble(layout->pp, chunks, layout->microbatches);
  const double filled = (layout->pp - 1) / (double)chunks;
  return known >= 0 && known < 1 ? known : filled / (layout->microbatches + filled);
}

/* Chunks' activations that the fullest stage holds at once, in microbatches of a stage. */
static double held_of(const ls_layout *layout) {
  const ls_pipeline_kind *kind;
  if (layout->pp == 1 || ls_pipeline_kind_find(layout->schedule, &kind, NULL) != LS_OK) return 1;
  const int chunks = layout->chunks > 0 ? layout->chunks : kind->usual_chunks;
  const double known = kind->activations(layout->pp, chunks, layout->microbatches);
  const double most = (double)layout->microbatches * chunks;
  return fmin(known >= 0 ? known : layout->pp * (chunks + 1.0), most) / chunks;
}

/* What a device has taken before: of each group that a rank may communicate in. */
static double overhead_of(const ls_plan_problem *problem, const ls_layout *layout) {
  const int groups = (layout->tp > 1) + (ls_layout_shards(layout) > 1) + (replicas_of(layout) > 1) +
                     2 * (layout->pp > 1) + 1;
  return (double)ls_device_overhead(problem->facts, problem->devices > 1 ? groups : 0);
}

/* Whether what is done to a unit is done once a step, not for each microbatch. */
static bool is_once(const ls_layout *layout, ls_when when) {
  return when == LS_WHEN_STEP || (when == LS_WHEN_AUTO && layout->pp > 1);
}

static double state_memory(const ls_layout *layout, double layers, const estimate *of) {
  const state_bytes state = state_of(layout);
  const double shards = layout->zero ? ls_layout_shards(layout) : 1;
  const double parameters = (of->layer_parameters * layers + of->rest_parameters) / layout->tp;
  const double unit = fmax(of->layer_parameters, of->rest_parameters) / layout->tp;
  const double stored = parameters / (layout->zero == 3 ? shards : 1);
  double bytes = layout->offload.optimizer ? 0 : state.optimizer / shards * parameters;
  bytes += layout->offload.parameters ? 0 : state.weights * stored;
  if (layout->zero == 3 || layout->offload.parameters)
    bytes += state.weights * (is_once(layout, layout->gather) ? parameters : 2 * unit);
  if (layout->zero < 2 || is_once(layout, layout->reduce))
    return bytes + state.gradients * parameters;
  return bytes + state.gradients * (parameters / shards + 2 * unit);
}

/* Layers of the fullest stage, where the last of all chunks also has the rest, in layers: the
 * largest chunk is as small as can be, and the stage's others are like those of all stages. */
static double fullest_stage(double layers, double rest, int pp, int chunks) {
  const double others = (double)pp * chunks - 1;
  double least = INFINITY;
  for (double each = ceil(layers / (others + 1));; each++) {
    const double largest = fmax(each, fmax(layers - others * each, 0) + rest);
    const double stage = largest + (chunks - 1) * (layers + rest - largest) / others;
    if (stage >= least) return least;
    least = stage;
  }
}

static void estimate_one(estimate *of, ls_plan_candidate *candidate) {
  const ls_plan_problem *problem = of->problem;
  const ls_layout *layout = &candidate->layout;
  const class_cost *class = class_of(of, candidate);
  if (class->cannot) {
    candidate->seconds = INFINITY;
    return;
  }
  const int chunks = layout->pp > 1 && layout->chunks > 0 ? layout->chunks : 1;
  const double layers = (double)problem->training->model->layers, parts = layout->pp * chunks;
  const double stage_s =
      layout->pp > 1 ? class->layer_s *
                           fullest_stage(layers, class->rest_s / class->layer_s, layout->pp, chunks)
                     : class->layer_s * layers + class->rest_s;
  const double parameters =
      (of->layer_parameters * layers + of->rest_parameters) / (layout->tp * layout->pp);
  const double update = state_of(layout).optimizer * 2.5 * parameters /
                        (layout->zero ? ls_layout_shards(layout) : 1) /
                        (layout->offload.optimizer ? problem->performance->host_bytes_per_s
                                                   : problem->performance->bytes_per_s);
  const double kept = ceil(layers / parts) * chunks, units = kept + 1;
  const double messages = layout->pp > 1 ? message_seconds(problem, candidate) : 0;
  candidate->seconds = layout->microbatches * stage_s / (1 - bubble_of(layout)) + update +
                       2 * (layout->pp * chunks - 1) * messages +
                       units * UPDATE_KERNELS * problem->performance->kernel_s +
                       data_seconds(problem, layout, parameters, units, stage_s);
  if (layout->offload.parameters)
    candidate->seconds += 2 * (is_once(layout, layout->gather) ? 1 : layout->microbatches) *
                          state_of(layout).weights * parameters / problem->performance->host_per_s;
  candidate->bytes =
      (int64_t)(state_memory(layout, kept, of) + class->layer_bytes * kept * held_of(layout) +
                class->rest_bytes + class->beside + overhead_of(problem, layout));
}

/* Seconds of a layer of the same layout with sequence parallelism. */
static double layer_beside(estimate *of, const ls_plan_candidate *candidate) {
  ls_plan_candidate other = *candidate;
  other.layout.sequence_parallel = true;
  const class_cost *class = class_of(of, &other);
  return class->cannot ? INFINITY : class->layer_s;
}

/* Whether another candidate is as good in all that counts: activations whole on each rank of tp
 * take more memory, so they must be faster; what waits on the host takes longer, so there must be
 * need of memory. */
static bool is_bettered(estimate *of, const ls_plan_candidate *candidate, int64_t bytes_at_home) {
  const ls_plan_problem *problem = of->problem;
  const ls_layout *layout = &candidate->layout;
  if (problem->all) return false;
  if (layout->tp > 1 && !layout->sequence_parallel && !problem->held.sequence_parallel &&
      class_of(of, candidate)->layer_s >= layer_beside(of, candidate))
    return true;
  return layout->offload.optimizer && !problem->held.offload &&
         problem->objective != LS_PLAN_MEMORY &&
         (!problem->limit || (double)bytes_at_home < SURELY_FITS * (double)problem->limit);
}

/* Bytes of the same layout with everything on the device. */
static int64_t bytes_at_home(estimate *of, const ls_plan_candidate *candidate) {
  ls_plan_candidate home = *candidate;
  home.layout.offload = (ls_offload){0};
  estimate_one(of, &home);
  return home.bytes;
}

int ls_plan_estimate(ls_arena *arena, const ls_plan_problem *problem,
                     ls_plan_candidates *candidates) {
  estimate of = {.arena = arena, .problem = problem};
  const ls_model_config one = shortened(problem->training->model, 1),
                        two = shortened(problem->training->model, 2);
  of.layer_parameters = (double)(ls_model_parameters(&two) - ls_model_parameters(&one));
  of.rest_parameters = (double)ls_model_parameters(&one) - of.layer_parameters;
  int kept = 0;
  for (int c = 0; c < candidates->list.count; c++) {
    ls_plan_candidate *each = &candidates->list.items[c];
    estimate_one(&of, each);
    const int64_t home = each->layout.offload.optimizer ? bytes_at_home(&of, each) : each->bytes;
    if (isinf(each->seconds) || is_bettered(&of, each, home)) continue;
    candidates->list.items[kept++] = *each;
  }
  candidates->list.count = kept;
  return of.classes.count;
}
