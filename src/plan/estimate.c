/* What a candidate takes before it is compiled: layers and the rest by class, then what pipeline
 * and data axes add. It only says which candidates are worth compiling. */
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "pipeline/pipeline.h"
#include "plan/ahead.h"
#include "sim/sim.h"

/* What one layer and all else of a microbatch take on a rank, where only tp, cp and ep cut
 * them. */
typedef struct class_cost {
  int tp, cp, ep;
  bool whole_experts;
  int turns, head_ranks; /* of cp: how keys come (ir/layout.h) */
  ls_op_set recompute;
  bool sequence_parallel, splits; /* splits: every pass back is in two halves */
  int64_t micro_batch;
  ls_layout alone; /* on its own ranks, as one stage */
  bool costed, cannot;
  double layer_s, rest_s;
  double layer_bytes, rest_bytes; /* kept and made; without state */
  double beside;                  /* workspace of kernels */
} class_cost;

enum { CLASSES_AT_HAND = 1021 };

typedef struct ls_plan_estimates {
  ls_arena *arena;
  const ls_plan_problem *problem;
  LS_LIST(class_cost) classes;
  int at_hand[CLASSES_AT_HAND]; /* 1 + the last class of these numbers; 0: none yet */
  ls_plan_sizes layer, rest;    /* of one layer, and of all that is in none */
} estimate;

/* Of a unit: squares of its gradient, their sum, the update itself and its copy for use. */
#define UPDATE_KERNELS 4

/* A layout whose estimate is below this part of a device needs nothing on the host. */
#define SURELY_FITS 0.6

/* State of a parameter that is trained: weights and gradients, master weights, moments. */
typedef struct state_bytes {
  double weights, gradients, optimizer;
} state_bytes;

static state_bytes state_of(const ls_layout *layout) {
  const double weights = (double)ls_dtype_bytes(layout->compute);
  const bool points = ls_optimizer_row_of(&layout->optimizer)->point.outputs > 0;
  double moments = 0;
  for (int part = 0; part < LS_PART_COUNT; part++)
    if (ls_optimizer_keeps(&layout->optimizer, 0, (ls_state_part)part) &&
        !ls_state_row_of((ls_state_part)part)->whole && /* next to nothing */
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

/* Seconds of a step in which a rank waits for weights or gradients of others. */
static double waits_for_units(const ls_sim_stage *stage) {
  double seconds = 0;
  for (int c = 0; c < stage->causes.count; c++)
    if (stage->causes.items[c].of_unit) seconds += stage->causes.items[c].exposed;
  return seconds;
}

/* Seconds of passes and of what they wait for, and bytes, of a model of so many layers. */
static bool cost_layers(const estimate *of, const ls_layout *layout, int64_t micro_batch,
                        int64_t layers, double *seconds, double *bytes, double *beside) {
  const ls_plan_problem *problem = of->problem;
  const ls_model_config model = ls_plan_shortened(problem->training->model, layers);
  ls_training training = *problem->training;
  training.model = &model;
  training.batch = micro_batch * ls_layout_data_ranks(layout);
  training.budget = 0;
  training.prepare = NULL;
  ls_arena *arena = ls_arena_create();
  ls_compiled compiled;
  ls_simulation *made;
  const bool can =
      ls_compile_step(arena, &training, layout, problem->facts, &compiled, NULL) == LS_OK &&
      ls_simulate(arena, compiled.stages[LS_COMPILED_STEP], problem->performance, NULL, &made,
                  NULL) == LS_OK;
  if (can) {
    const double *by_kind = made->stage[0].by_kind;
    *seconds = made->seconds - by_kind[LS_ACTION_UPDATE] - by_kind[LS_ACTION_NORM] -
               by_kind[LS_ACTION_SUM] - waits_for_units(&made->stage[0]);
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

static bool is_of_class(const class_cost *class, const ls_plan_candidate *candidate) {
  const ls_layout *layout = &candidate->layout;
  return class->tp == layout->tp && class->cp == layout->cp && class->ep == layout->ep &&
         class->whole_experts == layout->whole_experts && class->turns == ls_layout_turns(layout) &&
         class->head_ranks == ls_layout_head_ranks(layout) &&
         class->micro_batch == candidate->micro_batch &&
         class->sequence_parallel == layout->sequence_parallel && class->splits == splits(layout) &&
         ls_op_set_equal(&class->recompute, &layout->recompute);
}

/* Where the class of a candidate is at hand, unless another with this number was since. */
static int *hand_of(estimate *of, const ls_plan_candidate *candidate) {
  const ls_layout *layout = &candidate->layout;
  unsigned again = 0;
  for (int k = 0; k < LS_OP_COUNT; k++) again += layout->recompute.has[k];
  const unsigned numbers[] = {(unsigned)layout->tp,      (unsigned)layout->cp,
                              (unsigned)layout->ep,      (unsigned)candidate->micro_batch,
                              layout->sequence_parallel, again};
  unsigned hash = 2u * splits(layout) + layout->whole_experts;
  for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) hash = hash * 31 + numbers[n];
  return &of->at_hand[hash * 0x9e3779b1u % CLASSES_AT_HAND];
}

/* The number of a candidate's class, which is costed later. */
static int find_class(estimate *of, const ls_plan_candidate *candidate) {
  int *hand = hand_of(of, candidate);
  const ls_layout *layout = &candidate->layout;
  if (*hand && is_of_class(&of->classes.items[*hand - 1], candidate)) return *hand - 1;
  for (int c = of->classes.count - 1; c >= 0; c--) /* like ones come together */
    if (is_of_class(&of->classes.items[c], candidate)) {
      *hand = c + 1;
      return c;
    }
  *hand = of->classes.count + 1;
  class_cost *made = LS_APPEND(of->arena, &of->classes);
  *made = (class_cost){.tp = layout->tp,
                       .cp = layout->cp,
                       .ep = layout->ep,
                       .whole_experts = layout->whole_experts,
                       .turns = ls_layout_turns(layout),
                       .head_ranks = ls_layout_head_ranks(layout),
                       .recompute = layout->recompute,
                       .sequence_parallel = layout->sequence_parallel,
                       .splits = splits(layout),
                       .micro_batch = candidate->micro_batch,
                       .alone = *layout};
  ls_layout *alone = &made->alone;
  alone->pp = alone->microbatches = alone->chunks = 1;
  alone->schedule = made->splits ? "zbh1" : "1f1b";
  alone->zero = 0;
  alone->offload = (ls_offload){0};
  alone->prefetch = 0; /* gradients are reduced behind all passes, where no pass waits for them */
  ls_layout_set_data_ranks(alone, 1,
                           alone->ep > 1 ? alone->ep / ls_layout_expert_ranks_inside(alone) : 1);
  return of->classes.count - 1;
}

static void cost_class(const estimate *of, class_cost *made) {
  double one_s, two_s, one, two;
  const ls_layout *alone = &made->alone;
  made->cannot = !cost_layers(of, alone, made->micro_batch, 1, &one_s, &one, &made->beside) ||
                 !cost_layers(of, alone, made->micro_batch, 2, &two_s, &two, &made->beside);
  made->costed = true;
  if (made->cannot) return;
  made->layer_s = two_s - one_s;
  made->rest_s = fmax(one_s - made->layer_s, 0);
  made->layer_bytes = two - one;
  made->rest_bytes = fmax(one - made->layer_bytes, 0);
}

static void cost_turn(void *work, int at) {
  const estimate *of = work;
  cost_class(of, &of->classes.items[at]);
}

static int replicas_of(const ls_layout *layout) {
  return ls_layout_data_ranks(layout) / ls_layout_shards(layout);
}

/* Of some layers and of a part of the rest, what a rank of tp uses: of experts only its own. */
static ls_plan_sizes used_of(const estimate *of, const ls_layout *layout, double layers,
                             double rest) {
  const double tp = layout->tp, cuts = ls_layout_expert_cuts(layout);
  const double elsewhere = layers * (1 - 1 / cuts);
  const ls_plan_sizes *layer = &of->layer;
  return (ls_plan_sizes){
      (layer->bytes * layers + of->rest.bytes * rest - layer->expert_bytes * elsewhere) / tp,
      (layer->trained * layers + of->rest.trained * rest - layer->experts_trained * elsewhere) / tp,
      layer->expert_bytes * layers / cuts / tp,
      layer->experts_trained * layers / cuts / tp,
      (layer->rounded * layers + of->rest.rounded * rest) / tp,
      (layer->rounded_trained * layers + of->rest.rounded_trained * rest) / tp};
}

/* Weights that go from rank to rank as codes of a byte: those that are gathered, or updated in
 * shards. */
static double codes_of(const ls_layout *layout, const ls_plan_sizes *of) {
  if (!layout->zero || ls_layout_state_ranks(layout) == 1 || layout->offload.parameters) return 0;
  return layout->zero == 3 ? of->rounded : of->rounded_trained;
}

/* Bytes that codes of these spare beside weights as they are stored. */
static double spared_bytes(const ls_layout *layout, const ls_plan_sizes *of) {
  return codes_of(layout, of) * ((double)ls_dtype_bytes(layout->compute) - 1);
}

/* Bytes of weights as they are gathered. */
static double gathered_bytes(const ls_layout *layout, const ls_plan_sizes *of) {
  return of->bytes - spared_bytes(layout, of);
}

/* Of the same, what the ranks of a data axis have together. */
static ls_plan_sizes all_of(const estimate *of, const ls_layout *layout, double layers,
                            double rest) {
  ls_layout alone = *layout;
  alone.ep = 1;
  alone.whole_experts = false;
  return used_of(of, &alone, layers, rest);
}

/* A collective over so many ranks, `apart` from each other, of so many units one after another. */
static double over(const ls_plan_problem *problem, int ranks, int apart, ls_collective collective,
                   double bytes, double units) {
  if (ranks < 2) return 0;
  int near = problem->performance->per_host / apart;
  near = near < 1 ? 1 : near > ranks ? ranks : near;
  const ls_group_shape group = {ranks, near};
  const ls_transfer_time time = ls_collective_time(problem->performance, collective, bytes, &group);
  return units * time.latency_s + time.seconds;
}

/* The same over the ranks that share state, of which those of ep have other experts: so many bytes
 * of all, and of these of experts. */
static double over_shards(const ls_plan_problem *problem, const ls_layout *layout,
                          ls_collective collective, double bytes, double of_experts, double units) {
  const int ranks = ls_layout_state_ranks(layout), tp = layout->tp;
  const int cuts = ls_layout_expert_cuts(layout);
  if (cuts == 1) return over(problem, ranks, tp, collective, bytes, units);
  return over(problem, ranks, tp, collective, bytes - of_experts, units) +
         over(problem, ranks / cuts, tp * cuts, collective, of_experts, units);
}

/* Seconds of a step that data parallelism adds: what passes do not hide. */
static double data_seconds(const ls_plan_problem *problem, const ls_layout *layout,
                           const ls_plan_sizes *of, double units, double microbatch_s) {
  const state_bytes state = state_of(layout);
  const double share = layout->zero ? ls_layout_state_ranks(layout) : 1;
  const double all = of->trained + of->experts_trained * (ls_layout_expert_cuts(layout) - 1);
  const bool stored = layout->zero == 3;
  const double reduce =
      over_shards(problem, layout, LS_REDUCE_SCATTER, state.gradients * of->trained,
                  state.gradients * of->experts_trained, units);
  const double gather = over_shards(
      problem, layout, LS_ALL_GATHER,
      stored ? gathered_bytes(layout, of) : state.weights * of->trained - spared_bytes(layout, of),
      stored ? of->expert_bytes : state.weights * of->experts_trained, units);
  const double across =
      over(problem, replicas_of(layout), layout->tp * ls_layout_state_ranks(layout), LS_ALL_REDUCE,
           state.gradients * all / share, units);
  const double hidden = problem->performance->waits ? 0 : 0.8 * microbatch_s;
  /* What the first unit needs and the last one leaves is never hidden. */
  const double ends = (gather + reduce + across) / units;
  const bool gathers = stored && !ls_layout_once_a_step(layout, layout->gather);
  const bool reduces = layout->zero >= 2 && !ls_layout_once_a_step(layout, layout->reduce);
  if (stored && (gathers || reduces)) {
    const double each = (gathers ? 2 * gather : 0) + (reduces ? reduce : 0);
    return layout->microbatches * fmax(each - hidden, ends) + across + (gathers ? 0 : gather) +
           (reduces ? 0 : reduce);
  }
  const double often = reduces ? layout->microbatches : 1;
  const double last = often * fmax(reduce + across - 0.6 * hidden, ends);
  const bool early = stored || codes_of(layout, of) > 0;
  return last + (early ? fmax(gather - 0.6 * hidden, gather / units) : gather);
}

/* Seconds that a microbatch is on its way from a chunk to the next. */
static double message_seconds(const ls_plan_problem *problem, const ls_plan_candidate *candidate) {
  const ls_performance *performance = problem->performance;
  const ls_layout *layout = &candidate->layout;
  const bool near = problem->devices <= performance->per_host;
  const double rate = near ? performance->peer_per_s : performance->network_per_s;
  const double bytes = (double)candidate->micro_batch * (double)problem->training->sequence *
                       (double)problem->training->model->width *
                       (double)ls_dtype_bytes(layout->compute) / layout->cp /
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
  const int groups = (layout->tp > 1) + (ls_layout_shards(layout) > 1) + (layout->cp > 1) +
                     2 * (layout->ep > 1) + (replicas_of(layout) > 1) + 2 * (layout->pp > 1) + 1;
  return (double)ls_device_overhead(problem->facts, problem->devices > 1 ? groups : 0);
}

static double state_memory(const ls_layout *layout, double layers, const estimate *of) {
  const state_bytes state = state_of(layout);
  const double shards = layout->zero ? ls_layout_state_ranks(layout) : 1;
  const ls_plan_sizes own = used_of(of, layout, layers, 1), layer = used_of(of, layout, 1, 0);
  const ls_plan_sizes all = all_of(of, layout, layers, 1), rest = used_of(of, layout, 0, 1);
  double bytes = layout->offload.optimizer ? 0 : state.optimizer / shards * all.trained;
  bytes += layout->offload.parameters ? 0 : layout->zero == 3 ? all.bytes / shards : own.bytes;
  if (layout->zero == 3 || layout->offload.parameters)
    bytes += ls_layout_once_a_step(layout, layout->gather)
                 ? gathered_bytes(layout, &own)
                 : 2 * fmax(gathered_bytes(layout, &layer), gathered_bytes(layout, &rest));
  bytes += codes_of(layout, &all) / shards;
  if (layout->zero < 3) /* what goes as codes is stored in shards */
    bytes += (double)ls_dtype_bytes(layout->compute) * codes_of(layout, &all) / shards -
             spared_bytes(layout, &own);
  if (layout->zero < 2 || ls_layout_once_a_step(layout, layout->reduce))
    return bytes + state.gradients * own.trained;
  return bytes + state.gradients * (all.trained / shards + 2 * fmax(layer.trained, rest.trained));
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

static void estimate_one(const estimate *of, const class_cost *class,
                         ls_plan_candidate *candidate) {
  const ls_plan_problem *problem = of->problem;
  const ls_layout *layout = &candidate->layout;
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
  const ls_plan_sizes own = used_of(of, layout, layers / layout->pp, 1.0 / layout->pp);
  const double update = state_of(layout).optimizer * 2.5 *
                        (own.trained + own.experts_trained * (ls_layout_expert_cuts(layout) - 1)) /
                        (layout->zero ? ls_layout_state_ranks(layout) : 1) /
                        (layout->offload.optimizer ? problem->performance->host_bytes_per_s
                                                   : problem->performance->bytes_per_s);
  const double kept = ceil(layers / parts) * chunks, units = kept + 1;
  const double messages = layout->pp > 1 ? message_seconds(problem, candidate) : 0;
  candidate->seconds = layout->microbatches * stage_s / (1 - bubble_of(layout)) + update +
                       2 * (layout->pp * chunks - 1) * messages +
                       units * UPDATE_KERNELS * problem->performance->kernel_s +
                       data_seconds(problem, layout, &own, units, stage_s);
  if (layout->offload.parameters)
    candidate->seconds +=
        2 * (ls_layout_once_a_step(layout, layout->gather) ? 1 : layout->microbatches) * own.bytes /
        problem->performance->host_per_s;
  candidate->bytes =
      (int64_t)(state_memory(layout, kept, of) + class->layer_bytes * kept * held_of(layout) +
                class->rest_bytes + class->beside + overhead_of(problem, layout));
}

/* The same layout with sequence parallelism. */
static ls_plan_candidate beside_of(const ls_plan_candidate *candidate) {
  ls_plan_candidate other = *candidate;
  other.layout.sequence_parallel = true;
  return other;
}

/* Whether it is held beside that: activations whole on each rank of tp take more memory, so they
 * must be faster. */
static bool is_compared(const ls_plan_problem *problem, const ls_plan_candidate *candidate) {
  return !problem->all && candidate->layout.tp > 1 && !candidate->layout.sequence_parallel &&
         !problem->held.sequence_parallel;
}

/* Classes of a candidate, by number. */
typedef struct classes_of {
  int own, beside; /* beside -1: it is held beside none */
} classes_of;

/* Whether another candidate is as good in all that counts: what waits on the host takes longer, so
 * there must be need of memory. */
static bool is_bettered(const estimate *of, const ls_plan_candidate *candidate,
                        const classes_of *classes, int64_t bytes_at_home) {
  const ls_plan_problem *problem = of->problem;
  const class_cost *all = of->classes.items;
  if (problem->all) return false;
  if (classes->beside >= 0 && !all[classes->beside].cannot &&
      all[classes->own].layer_s >= all[classes->beside].layer_s)
    return true;
  return candidate->layout.offload.optimizer && !problem->held.offload &&
         problem->objective != LS_PLAN_MEMORY &&
         (!problem->limit || (double)bytes_at_home < SURELY_FITS * (double)problem->limit);
}

/* Bytes of the same layout with everything on the device. */
static int64_t bytes_at_home(const estimate *of, const class_cost *class,
                             const ls_plan_candidate *candidate) {
  ls_plan_candidate home = *candidate;
  home.layout.offload = (ls_offload){0};
  estimate_one(of, class, &home);
  return home.bytes;
}

/* So many candidates are estimated at a time. */
enum { TAKEN_TOGETHER = 1024 };

typedef struct estimating {
  const estimate *of;
  ls_plan_candidates *candidates;
  const classes_of *classes; /* by candidate */
  bool *keeps;               /* likewise */
} estimating;

static void estimate_turn(void *work, int at) {
  const estimating *self = work;
  const int count = self->candidates->list.count, first = at * TAKEN_TOGETHER;
  for (int c = first; c < count && c < first + TAKEN_TOGETHER; c++) {
    ls_plan_candidate *each = &self->candidates->list.items[c];
    const class_cost *class = &self->of->classes.items[self->classes[c].own];
    estimate_one(self->of, class, each);
    const int64_t home =
        each->layout.offload.optimizer ? bytes_at_home(self->of, class, each) : each->bytes;
    self->keeps[c] = !isinf(each->seconds) && !is_bettered(self->of, each, &self->classes[c], home);
  }
}

static const classes_of *find_classes(estimate *of, const ls_plan_candidates *candidates) {
  classes_of *made = LS_NEW_ARRAY(of->arena, classes_of, candidates->list.count + 1);
  for (int c = 0; c < candidates->list.count; c++) {
    const ls_plan_candidate *each = &candidates->list.items[c];
    made[c] = (classes_of){find_class(of, each), -1};
    if (!is_compared(of->problem, each)) continue;
    const ls_plan_candidate other = beside_of(each);
    made[c].beside = find_class(of, &other);
  }
  return made;
}

/* What parameters of a layer and of the rest come to. */
static void find_sizes(estimate *of) {
  ls_plan_sizes two;
  if (ls_plan_sizes_of(of->problem, 1, &of->rest, NULL) != LS_OK ||
      ls_plan_sizes_of(of->problem, 2, &two, NULL) != LS_OK)
    LS_ASSERT(!"a model that was built");
  of->layer = (ls_plan_sizes){two.bytes - of->rest.bytes,
                              two.trained - of->rest.trained,
                              two.expert_bytes - of->rest.expert_bytes,
                              two.experts_trained - of->rest.experts_trained,
                              two.rounded - of->rest.rounded,
                              two.rounded_trained - of->rest.rounded_trained};
  of->rest =
      (ls_plan_sizes){.bytes = of->rest.bytes - of->layer.bytes,
                      .trained = of->rest.trained - of->layer.trained,
                      .rounded = of->rest.rounded - of->layer.rounded,
                      .rounded_trained = of->rest.rounded_trained - of->layer.rounded_trained};
}

ls_plan_estimates *ls_plan_estimate(ls_arena *arena, const ls_plan_problem *problem,
                                    ls_plan_candidates *candidates) {
  estimate *of = LS_NEW(arena, estimate);
  const int count = candidates->list.count;
  *of = (estimate){.arena = arena, .problem = problem};
  find_sizes(of);
  estimating work = {of, candidates, find_classes(of, candidates),
                     LS_NEW_ARRAY(arena, bool, count + 1)};
  ls_plan_share(of->classes.count, cost_turn, of);
  for (int c = 0; c < of->classes.count; c++) /* those that memory lacked for */
    if (!of->classes.items[c].costed) cost_class(of, &of->classes.items[c]);
  ls_plan_share((count + TAKEN_TOGETHER - 1) / TAKEN_TOGETHER, estimate_turn, &work);
  int kept = 0;
  for (int c = 0; c < count; c++)
    if (work.keeps[c]) candidates->list.items[kept++] = candidates->list.items[c];
  candidates->list.count = kept;
  return of;
}

int ls_plan_classes(const ls_plan_estimates *estimates) {
  return estimates->classes.count;
}

bool ls_plan_estimate_like(const ls_plan_estimates *estimates, ls_plan_candidate *candidate) {
  for (int c = 0; c < estimates->classes.count; c++) {
    const class_cost *class = &estimates->classes.items[c];
    if (!is_of_class(class, candidate)) continue;
    estimate_one(estimates, class, candidate);
    return !class->cannot;
  }
  return false;
}
