#include "verify/equality.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/blocks.h"
#include "base/random.h"
#include "base/sets.h"
#include "comm/engine.h"
#include "ir/saved.h"
#include "lower/compile.h"
#include "lower/training.h"
#include "run/rank_parameters.h"
#include "run/rank_threads.h"
#include "session/classes.h"
#include "session/step.h"
#include "session/vectors.h"
#include "store/freeze.h"

typedef struct job {
  const ls_experiment *experiment;
  ls_program **stages, **again; /* again: of steps whose rows find no slot; NULL: none */
  const ls_graph *graph;
  ls_device device;
  ls_trajectory *result;
  _Atomic(const char *) unlike;
} job;

static ls_dtype accumulate_dtype(const job *work) {
  return work->stages[0]->layout.compute == LS_F64 ? LS_F64 : LS_F32;
}

static bool is_zeroed(const ls_experiment *of, const char *name) {
  const size_t length = strlen(name), end = of->zeroed ? strlen(of->zeroed) : length + 1;
  return length >= end && strcmp(name + length - end, of->zeroed) == 0;
}

/* Nothing is trivial: norms near one, biases near zero, and every weight large enough to matter. */
static double initial(ls_init init, double noise) {
  if (init == LS_INIT_ONES) return 1 + 0.1 * noise;
  return (init == LS_INIT_ZEROS ? 0.1 : 0.2) * noise;
}

/* A parameter whose numbers are drawn. */
typedef struct drawn {
  const job *work;
  int parameter;
} drawn;

static void draw_numbers(void *context, int64_t first, int64_t count, double *numbers) {
  const drawn *self = context;
  const ls_parameter_record *of = &self->work->graph->parameters.items[self->parameter];
  ls_random_normals(self->work->experiment->seed, ls_random_stream(of->about.name), (uint64_t)first,
                    count, numbers);
  for (int64_t i = 0; i < count; i++) numbers[i] = initial(of->about.init, numbers[i]);
}

/* Many at once: for each write a rank looks up which elements it keeps. */
static ls_status write_numbers(ls_rank *rank, const job *work, int parameter, ls_error *error) {
  enum { AT_ONCE = 16 * LS_BLOCK_WEIGHTS };
  const ls_program *program = ls_rank_program(rank, 0);
  const int64_t each = ls_precision_numbers(program->parameters[parameter].precision);
  const int64_t count = work->result->elements[parameter] / each, most = AT_ONCE / each;
  const bool zeroed = is_zeroed(work->experiment, program->parameters[parameter].name);
  drawn of = {work, parameter};
  for (int64_t first = 0; first < count; first += most) {
    const int64_t some = most < count - first ? most : count - first;
    double values[AT_ONCE] = {0};
    if (!ls_rank_keeps_parameter(rank, program, parameter, first, some)) continue;
    if (!zeroed) draw_numbers(&of, first * each, some * each, values);
    LS_TRY(ls_rank_write_parameter(rank, program, parameter, LS_PART_MASTER, first, some, values,
                                   LS_F64, error));
  }
  return LS_OK;
}

static ls_status write_parameters(ls_rank *rank, const job *work, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 0);
  for (int p = 0; p < program->parameter_count; p++) {
    drawn of = {work, p};
    if (program->parameters[p].precision == LS_SCALES) continue;
    if (ls_precision_is_double(program->parameters[p].precision))
      LS_TRY(ls_rank_write_scales(rank, program, p, draw_numbers, &of, error));
    LS_TRY(write_numbers(rank, work, p, error));
  }
  return LS_OK;
}

/* Of a teacher, some ids of the vocabulary, ascending, and now and then none in the first places.
 */
static void tell_of_chance(const ls_experiment *of, uint64_t place, int64_t i,
                           const ls_batch *batch) {
  const int64_t top = of->teacher.top, vocabulary = of->config->vocabulary;
  for (int64_t j = 0; j < top; j++) {
    const uint64_t bits = ls_random_bits(of->seed, 78, place * (uint64_t)top + (uint64_t)j);
    const int64_t low = j * vocabulary / top, high = (j + 1) * vocabulary / top;
    const bool none = j == 0 && top > 1 && bits % 3 == 0;
    batch->top_ids[i * top + j] = none ? -1 : (int32_t)(low + (int64_t)(bits >> 20) % (high - low));
    batch->top_below[i * top + j] = -2e-3f * (float)(bits >> 40 & 2047);
  }
}

/* Token t of step s: an id, and a label that one time in eight is missing, of a classifier three in
 * four (a step's first never is: the mean over no tokens is no number). */
static ls_status take_tokens(void *context, int64_t step, int64_t first, int64_t count,
                             const ls_batch *batch, ls_error *error) {
  (void)error;
  const job *work = context;
  const ls_experiment *of = work->experiment;
  const uint64_t vocabulary = (uint64_t)of->config->vocabulary;
  const uint64_t classes = (uint64_t)of->config->classes, labels = classes ? classes : vocabulary;
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = first + i;
    const uint64_t place = (uint64_t)(step * of->sequences * of->sequence + at);
    const uint64_t bits = ls_random_bits(of->seed, 77, place);
    batch->ids[i] = (int32_t)(bits % vocabulary);
    const bool missing = at > 0 && (classes ? (bits >> 40) % 4 > 0 : (bits >> 40) % 8 == 0);
    batch->labels[i] = missing ? -1 : (int32_t)((bits >> 20) % labels);
    const bool second = of->pairs.beta > 0 && at % of->sequence == of->sequence / 2;
    const bool begins = (of->documents || of->pairs.beta > 0) && (bits >> 50) % 5 == 0;
    const bool follows = at % of->sequence != 0 && !begins && !second;
    batch->positions[i] = follows ? batch->positions[i - 1] + 1 : 0;
    if (batch->types && of->config->types > 0)
      batch->types[i] = (int32_t)((bits >> 60) % (uint64_t)of->config->types);
    if (of->texts.pairs > 0) {
      const int64_t each = ls_vectors_tokens_of_chance(&of->texts, of->sequence);
      batch->labels[i] = ls_vectors_label_of_chance(&of->texts, of->sequence, of->seed, step, at);
      batch->positions[i] = (int32_t)(at % of->sequence % each);
    }
    if (batch->top_ids) tell_of_chance(of, place, i, batch);
    if (batch->sets)
      ls_set_of_chance(of->seed, place, of->config->classes,
                       batch->sets + i * ls_set_words(of->config->classes));
    if (batch->reference) batch->reference[i] = -1e-3 * (double)(bits >> 30 & 4095);
  }
  return LS_OK;
}

static double rate_at(const void *context, int64_t step) {
  (void)step;
  const job *work = context;
  return work->experiment->learning_rate;
}

/* All parameters at once: ranks meet once, rather than once for each. */
static ls_status read_all(ls_rank *rank, int of, const job *work, ls_state_part part,
                          double **target, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, of);
  const double scale = part == LS_PART_GRADIENT ? ls_rank_cell(rank, LS_CELL_SCALE) : 1;
  const ls_dtype dtype = accumulate_dtype(work);
  const size_t bytes = ls_dtype_bytes(dtype);
  ls_arena *scratch = ls_arena_create();
  int64_t all = 0, done = 0;
  for (int p = 0; p < program->parameter_count; p++) all += work->result->elements[p];
  char *data = ls_arena_alloc(scratch, (size_t)all * bytes + 1);
  ls_status status = LS_OK;
  memset(data, 0, (size_t)all * bytes);
  for (int p = 0; p < program->parameter_count && status == LS_OK; p++) {
    if (part != LS_PART_GRADIENT || program->parameters[p].trainable)
      status = ls_rank_read_share(rank, program, p, part, 0,
                                  ls_program_parameter_elements(&program->parameters[p]),
                                  data + (size_t)done * bytes, dtype, error);
    done += work->result->elements[p];
  }
  if (status == LS_OK)
    status = ls_all_reduce(ls_rank_world_group(rank), data, all, dtype, LS_SUM, error);
  done = 0;
  for (int p = 0; p < program->parameter_count && status == LS_OK; p++) {
    const bool read = part != LS_PART_GRADIENT || program->parameters[p].trainable;
    const int64_t count = work->result->elements[p];
    if (read && ls_rank_number(rank) == 0) {
      ls_convert(target[p], LS_F64, data + (size_t)done * bytes, dtype, count);
      for (int64_t i = 0; i < count; i++) target[p][i] /= scale;
    }
    done += count;
  }
  ls_arena_destroy(&scratch);
  return status;
}

static void widen(ls_arena *scratch, double *target, const void *source, ls_dtype dtype,
                  int64_t elements) {
  if (ls_dtype_numbers(dtype) == 1) {
    ls_convert(target, LS_F64, source, dtype, elements);
    return;
  }
  const int64_t count = elements * ls_dtype_numbers(dtype);
  if (ls_blocks_single(dtype) != dtype) { /* whose scales are of other numbers: its bytes */
    const size_t bytes = ls_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++) {
      const size_t at = (size_t)(i % LS_BLOCK_WEIGHTS);
      const uint8_t *block = (const uint8_t *)source + (size_t)(i / LS_BLOCK_WEIGHTS) * bytes;
      target[i] = at < bytes ? block[at] : 0;
    }
    return;
  }
  float *weights = LS_NEW_ARRAY(scratch, float, count + 1);
  ls_blocks_restore(dtype, source, elements, weights);
  ls_convert(target, LS_F64, weights, LS_F32, count);
}

/* Reading a parameter takes each element from one rank only; here all that hold it must agree. */
static ls_status check_replicas(ls_rank *rank, job *work, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 0);
  ls_group *groups[1 << LS_MAX_AXES] = {0};
  ls_arena *scratch = ls_arena_create();
  ls_status status = LS_OK;
  for (int p = 0; p < program->parameter_count && status == LS_OK; p++) {
    if (!program->parameters[p].present) continue;
    const ls_value *stored = &program->values.items[program->parameters[p].part[LS_PART_STORED]];
    const ls_axes axes = ls_value_replicas(&program->mesh, stored);
    const int size = ls_mesh_size(&program->mesh, axes);
    int *members = LS_NEW_ARRAY(scratch, int, size);
    ls_mesh_group(&program->mesh, ls_rank_number(rank), ls_mesh_order(axes), members);
    if (!groups[axes])
      status = ls_comm_group(ls_rank_comm(rank), members, size, &groups[axes], error);
    if (status != LS_OK) break;
    const int value = program->parameters[p].part[LS_PART_STORED];
    const ls_view own = ls_rank_shape(rank, 0, value);
    const int64_t count = own.valid[0] * ls_dtype_numbers(own.dtype);
    double *mine = LS_NEW_ARRAY(scratch, double, count + 1);
    double *largest = LS_NEW_ARRAY(scratch, double, count + 1);
    void *copy = ls_arena_alloc(scratch, (size_t)own.valid[0] * ls_dtype_bytes(own.dtype) + 1);
    status = ls_rank_get(rank, 0, value, 0, copy, own.valid[0], error);
    if (status != LS_OK) break;
    widen(scratch, mine, copy, own.dtype, own.valid[0]);
    memcpy(largest, mine, (size_t)count * sizeof *mine);
    status = ls_all_reduce(groups[axes], largest, count, LS_F64, LS_MAX, error);
    for (int64_t i = 0; i < count && status == LS_OK; i++) {
      if (mine[i] == largest[i]) continue;
      atomic_store(&work->unlike, program->parameters[p].name);
      status = ls_fail(error, LS_FAILED, "rank %d holds another %s than its replicas",
                       ls_rank_number(rank), program->parameters[p].name);
    }
  }
  ls_arena_destroy(&scratch);
  return status;
}

/* The end of a step: its norm, and the update. */
static ls_status settle(ls_steps *steps, job *work, ls_error *error) {
  ls_rank *rank = steps->rank;
  const int64_t step = steps->step;
  LS_TRY(ls_steps_gradients(steps, error));
  LS_TRY(read_all(rank, steps->running, work, LS_PART_GRADIENT,
                  work->result->gradient + step * work->result->parameters, error));
  if (ls_rank_number(rank) == 0) {
    work->result->loss[step] = ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
    work->result->norm[step] = ls_rank_cell(rank, LS_CELL_NORM);
  }
  LS_TRY(ls_steps_update(steps, error));
  return step == 0 ? read_all(rank, 0, work, LS_PART_MASTER, work->result->first, error) : LS_OK;
}

/* With post-validation every norm is speculated, so that some speculations are wrong. */
static ls_status train_step(ls_steps *steps, job *work, ls_error *error) {
  if (!steps->open) LS_TRY(ls_rank_poison(steps->rank, 0, error));
  LS_TRY(ls_steps_begin(steps, error));
  if (steps->open) LS_TRY(settle(steps, work, error));
  LS_TRY(ls_steps_passes(steps, false, error));
  return ls_steps_validates(steps) ? ls_steps_speculate(steps, error) : settle(steps, work, error);
}

static ls_status train_steps(ls_steps *steps, job *work, int count, ls_error *error) {
  ls_arena *arena = ls_arena_create();
  ls_status status =
      ls_loads_open(arena, steps->rank, work->graph, work->experiment->config->balance.bias_rate,
                    &steps->loads, error);
  while (status == LS_OK && steps->step + steps->open < count)
    status = train_step(steps, work, error);
  if (status == LS_OK && steps->open) status = settle(steps, work, error);
  ls_arena_destroy(&arena);
  return status;
}

static ls_status train(ls_rank *rank, job *work, ls_error *error) {
  const ls_experiment *experiment = work->experiment;
  const int count = experiment->steps ? experiment->steps : LS_TRAJECTORY_STEPS;
  const ls_inputs inputs = {.take = take_tokens, .context = work, .weights = experiment->weights};
  LS_TRY(write_parameters(rank, work, error));
  ls_steps steps = ls_steps_of(rank, &inputs, rate_at, work);
  steps.speculates_always = true;
  steps.again = work->again ? 1 : 0;
  steps.scale.scale = experiment->loss_scale > 0 ? experiment->loss_scale : 1;
  LS_TRY(train_steps(&steps, work, count, error));
  if (ls_rank_number(rank) == 0) work->result->repeated = steps.repeated;
  LS_TRY(read_all(rank, 0, work, LS_PART_MASTER, work->result->final, error));
  LS_TRY(ls_barrier(ls_rank_world_group(rank), error)); /* a failure below stops all ranks */
  return check_replicas(rank, work, error);
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  job *work = context;
  ls_rank *rank;
  const ls_mesh *mesh = &work->stages[0]->mesh;
  const int stage = ls_mesh_stage(mesh, ls_comm_rank(comm));
  const ls_program *const programs[] = {work->stages[stage],
                                        work->again ? work->again[stage] : NULL};
  LS_TRY(ls_rank_create(comm,
                        &(ls_rank_options){.programs = programs,
                                           .program_count = work->again ? 2 : 1,
                                           .device = &work->device,
                                           .offload_path = work->experiment->offload_path},
                        &rank, error));
  const ls_status status = train(rank, work, error);
  ls_rank_destroy(&rank);
  return status;
}

static void make_room(ls_arena *arena, const ls_program *program, ls_trajectory *result) {
  *result = (ls_trajectory){.parameters = program->parameter_count};
  const int count = result->parameters;
  result->name = LS_NEW_ARRAY(arena, const char *, count);
  result->elements = LS_NEW_ARRAY(arena, int64_t, count);
  result->gradient = LS_NEW_ARRAY(arena, double *, count *LS_TRAJECTORY_STEPS);
  result->first = LS_NEW_ARRAY(arena, double *, count);
  result->final = LS_NEW_ARRAY(arena, double *, count);
  for (int p = 0; p < count; p++) {
    result->name[p] = ls_arena_strdup(arena, program->parameters[p].name);
    result->elements[p] = ls_program_parameter_numbers(&program->parameters[p]);
    result->first[p] = LS_NEW_ARRAY(arena, double, result->elements[p]);
    result->final[p] = LS_NEW_ARRAY(arena, double, result->elements[p]);
    for (int s = 0; s < LS_TRAJECTORY_STEPS; s++)
      result->gradient[s * count + p] = LS_NEW_ARRAY(arena, double, result->elements[p]);
  }
}

ls_status ls_experiment_graph(ls_arena *arena, const ls_experiment *experiment,
                              const ls_layout *layout, ls_program_kind kind, ls_graph **graph,
                              ls_error *error) {
  ls_build_options options = {
      .mode = kind == LS_PROGRAM_STEP ? LS_MODEL_TRAIN : LS_MODEL_FORWARD,
      .tokens = experiment->sequences / layout->microbatches * experiment->sequence,
      .sequence = experiment->sequence,
      .documents = experiment->documents || experiment->pairs.beta > 0,
      .pairs = experiment->pairs,
      .texts = experiment->texts,
      .weighted = experiment->weights,
      .teacher = experiment->teacher};
  ls_build_options_lay(&options, layout);
  LS_TRY(ls_model_build(arena, experiment->config, &options, graph, error));
  const ls_parameter_settings *settings = experiment->settings;
  for (int p = 0; p < (*graph)->parameters.count && settings; p++)
    if (!(*graph)->parameters.items[p].about.teacher)
      (*graph)->parameters.items[p].settings = *settings++;
  return ls_freeze(experiment->config, *graph, experiment->freeze, experiment->freeze_count, error);
}

ls_status ls_experiment_compile(ls_arena *arena, const ls_experiment *experiment,
                                const ls_layout *layout, ls_program_kind kind, ls_graph **graph,
                                ls_program **stages, ls_error *error) {
  LS_TRY(ls_experiment_graph(arena, experiment, layout, kind, graph, error));
  if (kind == LS_PROGRAM_STEP) ls_graph_backward(*graph);
  LS_TRY(ls_program_compile(*graph, layout, kind, stages, error));
  for (int s = 0; s < layout->pp && experiment->saved; s++) {
    const char *text = ls_program_text(arena, stages[s]);
    LS_TRY(ls_program_parse(arena, "compiled program", text, strlen(text), &stages[s], error));
  }
  return LS_OK;
}

static ls_status run_in(ls_arena *compiler, ls_arena *arena, const ls_experiment *experiment,
                        const ls_layout *layout, ls_trajectory *result, ls_error *error) {
  ls_graph *graph;
  ls_program **stages = LS_NEW_ARRAY(compiler, ls_program *, layout->pp);
  LS_TRY(
      ls_experiment_compile(compiler, experiment, layout, LS_PROGRAM_STEP, &graph, stages, error));
  ls_program **again = NULL;
  if (ls_layout_senders(layout) && layout->expert_bound > 0) {
    ls_layout more = *layout;
    ls_graph *of_more;
    more.expert_bound = layout->expert_again;
    again = LS_NEW_ARRAY(compiler, ls_program *, layout->pp);
    LS_TRY(ls_experiment_compile(compiler, experiment, &more, LS_PROGRAM_STEP, &of_more, again,
                                 error));
  }
  int altered = 0;
  for (int s = 0; s < layout->pp && experiment->alter; s++)
    altered += experiment->alter(stages[s], experiment->alter_context);
  if (experiment->alter && !altered) return LS_REFUTED;
  *result = (ls_trajectory){0};
  make_room(arena, stages[0], result);
  job work = {experiment, stages, again, graph, .result = result};
  ls_device_options device = experiment->device;
  if (!device.kind) device.kind = "reference";
  device.compute = layout->compute;
  LS_TRY(ls_device_open(&device, &work.device, error));
  ls_world *world;
  const ls_world_options all = {.ranks = ls_mesh_ranks(&stages[0]->mesh),
                                .deadline_s = experiment->deadline_s};
  LS_TRY(ls_world_start(&work.device.facts, &all, &world, error));
  const ls_status status = ls_rank_threads_run(world, rank_body, &work, error);
  ls_world_destroy(&world);
  const char *unlike = atomic_load(&work.unlike);
  if (unlike) result->unlike = ls_arena_strdup(arena, unlike);
  return status;
}

ls_status ls_trajectory_run(ls_arena *arena, const ls_experiment *experiment,
                            const ls_layout *layout, ls_trajectory *result, ls_error *error) {
  ls_arena *compiler = ls_arena_create();
  const ls_status status = run_in(compiler, arena, experiment, layout, result, error);
  ls_arena_destroy(&compiler);
  return status;
}

static double norm_of(const double *values, int64_t count) {
  double squares = 0;
  for (int64_t i = 0; i < count; i++) squares += values[i] * values[i];
  return sqrt(squares);
}

static double norm_of_all(double *const *tensors, const ls_trajectory *about) {
  double squares = 0;
  for (int p = 0; p < about->parameters; p++) {
    const double norm = norm_of(tensors[p], about->elements[p]);
    squares += norm * norm;
  }
  return sqrt(squares);
}

static double relative_to(double difference, double scale) {
  return difference == 0 ? 0 : difference / scale;
}

/* A tensor against its reference, on the scale of itself or of all of them together. */
static double tensor_gap(const double *a, const double *reference, int64_t count, double all) {
  double squares = 0;
  for (int64_t i = 0; i < count; i++) squares += (a[i] - reference[i]) * (a[i] - reference[i]);
  return relative_to(sqrt(squares), fmax(norm_of(reference, count), 1e-3 * all));
}

/* The gaps of one kind, in the order in which they come about; in the arena. */
typedef struct gap_list {
  int count;
  double *relative;
  int *parameter; /* -1: a number */
  double *const *tensors, *const *exact;
  const double *numbers, *right;
} gap_list;

static double *const *tensors_of(const ls_trajectory *of, ls_equality_kind kind) {
  if (kind == LS_EQUALITY_GRADIENTS) return of->gradient;
  return kind == LS_EQUALITY_FIRST ? of->first : of->final;
}

static double number_gap(const double *a, const double *reference, int step) {
  return relative_to(fabs(a[step] - reference[step]), fabs(reference[step]));
}

/* A step's norm is held against the reference's, then against that of its own gradients. */
static void list_norms(ls_arena *arena, const ls_trajectory *a, const ls_trajectory *reference,
                       gap_list *list) {
  list->count = 2 * LS_TRAJECTORY_STEPS;
  double *numbers = LS_NEW_ARRAY(arena, double, list->count);
  double *right = LS_NEW_ARRAY(arena, double, list->count);
  for (int s = 0; s < LS_TRAJECTORY_STEPS; s++) {
    numbers[2 * s] = numbers[2 * s + 1] = a->norm[s];
    right[2 * s] = reference->norm[s];
    right[2 * s + 1] = norm_of_all(a->gradient + s * a->parameters, a);
  }
  list->numbers = numbers;
  list->right = right;
}

static gap_list list_gaps(ls_arena *arena, const ls_trajectory *a, const ls_trajectory *reference,
                          ls_equality_kind kind) {
  gap_list list = {.count = a->parameters};
  if (kind == LS_EQUALITY_LOSS)
    list = (gap_list){LS_TRAJECTORY_STEPS, .numbers = a->loss, .right = reference->loss};
  if (kind == LS_EQUALITY_NORM) list_norms(arena, a, reference, &list);
  list.relative = LS_NEW_ARRAY(arena, double, list.count);
  list.parameter = LS_NEW_ARRAY(arena, int, list.count);
  if (!list.numbers) {
    list.tensors = tensors_of(a, kind);
    list.exact = tensors_of(reference, kind);
  }
  const double all = list.numbers ? 0 : norm_of_all(list.exact, reference);
  for (int i = 0; i < list.count; i++) {
    const int p = kind == LS_EQUALITY_GRADIENTS ? a->parameters - 1 - i : i;
    list.parameter[i] = list.numbers ? -1 : p;
    list.relative[i] = list.numbers
                           ? number_gap(list.numbers, list.right, i)
                           : tensor_gap(list.tensors[p], list.exact[p], a->elements[p], all);
  }
  return list;
}

static int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(ls_arena *arena, const double *values, int count) {
  double *sorted = LS_NEW_ARRAY(arena, double, count);
  memcpy(sorted, values, sizeof *values * (size_t)count);
  qsort(sorted, (size_t)count, sizeof *sorted, compare_doubles);
  return sorted[count / 2];
}

static double gradients_gap(const ls_trajectory *a, const ls_trajectory *reference, int step) {
  double *const *own = a->gradient + step * a->parameters;
  double *const *exact = reference->gradient + step * a->parameters;
  double squares = 0;
  for (int p = 0; p < a->parameters; p++)
    for (int64_t i = 0; i < a->elements[p]; i++)
      squares += (own[p][i] - exact[p][i]) * (own[p][i] - exact[p][i]);
  return relative_to(sqrt(squares), norm_of_all(exact, a));
}

/* By gap of the list: what rounding did in one training. */
static double *list_noise(ls_arena *arena, const ls_trajectory *rounded,
                          const ls_trajectory *reference, ls_equality_kind kind) {
  const gap_list list = list_gaps(arena, rounded, reference, kind);
  double least = list.numbers ? 0 : median_of(arena, list.relative, list.count);
  for (int i = 0; i < list.count; i++) {
    if (kind == LS_EQUALITY_NORM) list.relative[i] = gradients_gap(rounded, reference, i / 2);
    list.relative[i] = fmax(list.relative[i], least);
    if (list.numbers) least = list.relative[i];
  }
  return list.relative;
}

/* Whether an update comes before gap i of the list. */
static bool is_later(ls_equality_kind kind, int i) {
  return kind == LS_EQUALITY_FINAL || (kind == LS_EQUALITY_NORM && i > 1) ||
         (kind == LS_EQUALITY_LOSS && i > 0);
}

/* By gap of the list: what is allowed. */
static double *list_allowed(ls_arena *arena, const gap_list *list, const ls_trajectory *reference,
                            ls_equality_kind kind, const ls_equality_tolerances *tolerances) {
  double *allowed = LS_NEW_ARRAY(arena, double, list->count);
  const double *noise = NULL;
  if (tolerances->rounded) noise = list_noise(arena, tolerances->rounded, reference, kind);
  for (int i = 0; i < list->count; i++) {
    const bool later = is_later(kind, i);
    const double multiple =
        later || kind == LS_EQUALITY_LOSS ? tolerances->later : tolerances->multiple;
    allowed[i] = later ? tolerances->least_later : tolerances->least;
    if (noise) allowed[i] = fmax(allowed[i], multiple * noise[i]);
    if (kind == LS_EQUALITY_NORM && i % 2 == 1) allowed[i] = LS_EQUALITY_OWN_NORM;
  }
  return allowed;
}

static ls_equality_gap describe(const gap_list *list, int i, double allowed, ls_equality_kind kind,
                                const ls_trajectory *about) {
  const int p = list->parameter[i];
  ls_equality_gap gap = {.relative = list->relative[i], .allowed = allowed, .parameter = p};
  if (p < 0) {
    gap.step = kind == LS_EQUALITY_NORM ? i / 2 : i;
    gap.found = list->numbers[i];
    gap.expected = list->right[i];
    return gap;
  }
  double most = -1;
  for (int64_t e = 0; e < about->elements[p] && !isnan(most); e++) {
    const double difference = fabs(list->tensors[p][e] - list->exact[p][e]);
    if (difference <= most) continue;
    most = difference;
    gap.element = e;
  }
  gap.step = kind == LS_EQUALITY_FINAL ? LS_TRAJECTORY_STEPS - 1 : 0;
  gap.found = list->tensors[p][gap.element];
  gap.expected = list->exact[p][gap.element];
  return gap;
}

/* Goes through a kind's gaps in order, up to the first that is not allowed where only that counts;
 * *found is the largest for what is allowed. Whether any is not. */
static bool scan(const ls_trajectory *a, const ls_trajectory *reference, ls_equality_kind kind,
                 const ls_equality_tolerances *tolerances, bool first, ls_equality_gap *found) {
  ls_arena *scratch = ls_arena_create();
  const gap_list list = list_gaps(scratch, a, reference, kind);
  const double *allowed = list_allowed(scratch, &list, reference, kind, tolerances);
  bool beyond = false;
  int worst = 0;
  for (int i = 0; i < list.count && !(first && beyond); i++) {
    const double share = list.relative[i] / allowed[i];
    beyond = beyond || !(share <= 1);
    if (isnan(list.relative[worst] / allowed[worst])) continue;
    if (!(share <= list.relative[worst] / allowed[worst])) worst = i;
  }
  *found = describe(&list, worst, allowed[worst], kind, a);
  ls_arena_destroy(&scratch);
  return beyond;
}

ls_equality_gap ls_equality_worst(const ls_trajectory *a, const ls_trajectory *reference,
                                  ls_equality_kind kind, const ls_equality_tolerances *tolerances) {
  ls_equality_gap worst;
  scan(a, reference, kind, tolerances, false, &worst);
  return worst;
}

bool ls_equality_first(const ls_trajectory *a, const ls_trajectory *reference,
                       ls_equality_kind kind, const ls_equality_tolerances *tolerances,
                       ls_equality_gap *gap) {
  return scan(a, reference, kind, tolerances, true, gap);
}

double ls_equality_median(const ls_trajectory *a, const ls_trajectory *reference,
                          ls_equality_kind kind) {
  ls_arena *scratch = ls_arena_create();
  const gap_list list = list_gaps(scratch, a, reference, kind);
  const double median = median_of(scratch, list.relative, list.count);
  ls_arena_destroy(&scratch);
  return median;
}

typedef struct worst {
  double difference;
  const char *where;
} worst;

static void compare(worst *so_far, double relative, const char *where) {
  if (isnan(so_far->difference)) return;
  if (!(relative <= so_far->difference)) *so_far = (worst){relative, where};
}

static void compare_tensors(worst *so_far, double *const *a, double *const *reference,
                            const ls_trajectory *about) {
  const double all = norm_of_all(reference, about);
  for (int p = 0; p < about->parameters; p++)
    compare(so_far, tensor_gap(a[p], reference[p], about->elements[p], all), about->name[p]);
}

static worst compare_steps(const ls_trajectory *a, const ls_trajectory *reference, int steps) {
  worst so_far = {0, "nothing"};
  for (int s = 0; s < steps; s++) {
    compare(&so_far, number_gap(a->loss, reference->loss, s), "loss");
    compare(&so_far, number_gap(a->norm, reference->norm, s), "norm");
    compare_tensors(&so_far, a->gradient + s * a->parameters,
                    reference->gradient + s * a->parameters, a);
  }
  return so_far;
}

double ls_trajectory_difference_of_steps(const ls_trajectory *a, const ls_trajectory *reference,
                                         int steps, const char **where) {
  const worst found = compare_steps(a, reference, steps);
  *where = found.where;
  return found.difference;
}

double ls_trajectory_difference(const ls_trajectory *a, const ls_trajectory *reference,
                                const char **where) {
  worst found = compare_steps(a, reference, LS_TRAJECTORY_STEPS);
  compare_tensors(&found, a->first, reference->first, a);
  compare_tensors(&found, a->final, reference->final, a);
  *where = found.where;
  return found.difference;
}

double ls_trajectory_loss_difference(const ls_trajectory *a, const ls_trajectory *reference,
                                     const char **where) {
  worst found = {0, "nothing"};
  for (int s = 0; s < LS_TRAJECTORY_STEPS; s++)
    compare(&found, number_gap(a->loss, reference->loss, s), "loss");
  *where = found.where;
  return found.difference;
}
