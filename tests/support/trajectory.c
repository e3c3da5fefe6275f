#include "support/trajectory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/random.h"
#include "run/cpu/cpu.h"
#include "run/crew.h"
#include "run/parameters.h"

typedef struct job {
  const ls_experiment *experiment;
  ls_program **stages;
  const ls_graph *graph;
  ls_kernel_table kernels;
  ls_trajectory *result;
} job;

static ls_dtype accumulate_dtype(const job *work) {
  return work->stages[0]->layout.compute == LS_F64 ? LS_F64 : LS_F32;
}

static double initial(const ls_parameter_record *parameter, uint64_t seed, int64_t i) {
  /* Nothing is trivial: norms near one, biases near zero, and every weight large enough to matter
   */
  const double noise = ls_random_normal(seed, ls_random_stream(parameter->about.name), (uint64_t)i);
  if (parameter->about.init == LS_INIT_ONES) return 1 + 0.1 * noise;
  return (parameter->about.init == LS_INIT_ZEROS ? 0.1 : 0.2) * noise;
}

static ls_status write_parameters(ls_rank *rank, const job *work, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 0);
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = work->result->elements[p];
    for (int64_t i = 0; i < count; i++) {
      const double value = initial(&work->graph->parameters.items[p], work->experiment->seed, i);
      LS_TRY(
          ls_rank_write_parameter(rank, program, p, LS_PART_MASTER, i, 1, &value, LS_F64, error));
    }
  }
  return LS_OK;
}

/* Token t of step s: an id, and a label that one time in eight is missing. */
static void fill_inputs(ls_rank *rank, const job *work, int step) {
  const ls_program *program = ls_rank_program(rank, 0);
  const int64_t sequence = program->sequence;
  for (int m = 0; m < program->layout.microbatches; m++) {
    const ls_view ids = ls_rank_view(rank, 0, program->ids, m);
    const ls_view labels = ls_rank_view(rank, 0, program->labels, m);
    const ls_view positions = ls_rank_view(rank, 0, program->positions, m);
    for (int64_t i = 0; i < ids.valid[0]; i++) {
      const uint64_t at = (uint64_t)((step * program->layout.microbatches + m) * program->tokens +
                                     ids.start[0] + i);
      const uint64_t vocabulary = (uint64_t)work->experiment->config->vocabulary;
      const uint64_t bits = ls_random_bits(work->experiment->seed, 77, at);
      ((int32_t *)ids.data)[i] = (int32_t)(bits % vocabulary);
      const bool missing = (bits >> 40) % 8 == 0;
      ((int32_t *)labels.data)[i] = missing ? -1 : (int32_t)((bits >> 20) % vocabulary);
      ((int32_t *)positions.data)[i] = (int32_t)((ids.start[0] + i) % sequence);
    }
  }
}

static ls_status read_all(ls_rank *rank, const job *work, ls_part_of_parameter part,
                          double **target, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 0);
  const double scale = part == LS_PART_GRADIENT ? *ls_rank_cell(rank, LS_CELL_SCALE) : 1;
  for (int p = 0; p < program->parameter_count; p++) {
    const int64_t count = work->result->elements[p];
    ls_arena *scratch = ls_arena_create();
    double *data = LS_NEW_ARRAY(scratch, double, count);
    const ls_dtype dtype = accumulate_dtype(work);
    const ls_status status =
        ls_rank_read_parameter(rank, program, p, part, 0, count, data, dtype, error);
    if (status == LS_OK && ls_rank_number(rank) == 0) {
      ls_convert(target[p], LS_F64, data, dtype, count);
      for (int64_t i = 0; i < count; i++) target[p][i] /= scale;
    }
    ls_arena_destroy(&scratch);
    LS_TRY(status);
  }
  return LS_OK;
}

/* The axes along which ranks hold the same elements of a stored parameter. */
static ls_axes held_alike(const ls_program *program, const ls_program_parameter *parameter) {
  ls_axes axes = 1u << LS_AXIS_DP_REPLICATE;
  if (!program->values.items[parameter->stored].flat_chunk) axes |= 1u << LS_AXIS_DP_SHARD;
  return axes |
         (LS_AXES_TENSOR & ~ls_placement_axes(&program->mesh,
                                              &program->values.items[parameter->used].placement,
                                              LS_SHARDED, -1));
}

/* Reading a parameter takes each element from one rank only; here all that hold it must agree. */
static ls_status check_replicas(ls_rank *rank, ls_error *error) {
  const ls_program *program = ls_rank_program(rank, 0);
  ls_group *groups[LS_AXES_ALL + 1] = {0};
  ls_arena *scratch = ls_arena_create();
  ls_status status = LS_OK;
  for (int p = 0; p < program->parameter_count && status == LS_OK; p++) {
    if (!program->parameters[p].here) continue;
    const ls_axes axes = held_alike(program, &program->parameters[p]);
    const int size = ls_mesh_size(&program->mesh, axes);
    int *members = LS_NEW_ARRAY(scratch, int, size);
    ls_mesh_group(&program->mesh, ls_rank_number(rank), axes, members);
    if (!groups[axes])
      status = ls_comm_group(ls_rank_comm(rank), members, size, &groups[axes], error);
    if (status != LS_OK) break;
    const ls_view own = ls_rank_view(rank, 0, program->parameters[p].stored, 0);
    double *mine = LS_NEW_ARRAY(scratch, double, own.valid[0] + 1);
    double *largest = LS_NEW_ARRAY(scratch, double, own.valid[0] + 1);
    ls_convert(mine, LS_F64, own.data, own.dtype, own.valid[0]);
    memcpy(largest, mine, (size_t)own.valid[0] * sizeof *mine);
    status = ls_all_reduce(groups[axes], largest, own.valid[0], LS_F64, LS_MAX, error);
    for (int64_t i = 0; i < own.valid[0] && status == LS_OK; i++)
      if (!(mine[i] == largest[i]))
        status = ls_fail(error, LS_FAILED, "rank %d holds another %s than its replicas",
                         ls_rank_number(rank), program->parameters[p].name);
  }
  ls_arena_destroy(&scratch);
  return status;
}

/* Before a step its work region holds nothing, and no cell but those that are given: what reads
 * them before it writes them is to be seen. */
static void poison(ls_rank *rank) {
  const ls_program *program = ls_rank_program(rank, 0);
  for (int c = LS_CELL_STEP + 1; c < LS_CELL_COUNT; c++)
    if (program->cell[c] >= 0 && c != LS_CELL_SCALE) *ls_rank_cell(rank, (ls_cell)c) = NAN;
  for (int v = 0; v < program->values.count; v++) {
    const ls_frame *frame = ls_program_frame(program, v);
    if (frame->pool != LS_POOL_WORK || frame->instance < 0) continue;
    const ls_view view = ls_rank_view(rank, 0, v, 0);
    const int64_t offset = ls_program_local(program, ls_rank_number(rank), v).offset;
    char *pool = (char *)view.data - offset - program->instances.items[frame->instance].offset;
    memset(pool, 0xff, (size_t)program->pool_bytes[LS_POOL_WORK]); /* NaN, as a number */
    return;
  }
}

static ls_status train(ls_rank *rank, const job *work, ls_error *error) {
  LS_TRY(write_parameters(rank, work, error));
  for (int step = 0; step < LS_TRAJECTORY_STEPS; step++) {
    poison(rank);
    fill_inputs(rank, work, step);
    *ls_rank_cell(rank, LS_CELL_LEARNING_RATE) = work->experiment->learning_rate;
    *ls_rank_cell(rank, LS_CELL_STEP) = step + 1;
    if (work->experiment->loss_scale > 0)
      *ls_rank_cell(rank, LS_CELL_SCALE) = work->experiment->loss_scale;
    LS_TRY(ls_rank_run_gradients(rank, 0, error));
    LS_TRY(read_all(rank, work, LS_PART_GRADIENT,
                    work->result->gradient + step * work->result->parameters, error));
    if (ls_rank_number(rank) == 0) {
      work->result->loss[step] = *ls_rank_cell(rank, LS_CELL_MEAN_LOSS);
      work->result->norm[step] = *ls_rank_cell(rank, LS_CELL_NORM);
    }
    LS_TRY(ls_rank_run_update(rank, 0, error));
  }
  LS_TRY(check_replicas(rank, error));
  return read_all(rank, work, LS_PART_MASTER, work->result->final, error);
}

static ls_status rank_body(ls_comm *comm, void *context, ls_error *error) {
  const job *work = context;
#ifdef _OPENMP
  omp_set_num_threads(1);
#endif
  ls_rank *rank;
  const ls_mesh *mesh = &work->stages[0]->mesh;
  const int stage = ls_mesh_coordinate(mesh, ls_comm_rank(comm), LS_AXIS_PP);
  const ls_program *const program = work->stages[stage];
  LS_TRY(ls_rank_create(
      comm,
      &(ls_rank_options){
          .programs = &program, .program_count = 1, .kernels = &work->kernels, .threads = 1},
      &rank, error));
  const ls_status status = train(rank, work, error);
  ls_rank_destroy(&rank);
  return status;
}

static void make_room(ls_arena *arena, const ls_program *program, ls_trajectory *result) {
  const int count = result->parameters = program->parameter_count;
  result->name = LS_NEW_ARRAY(arena, const char *, count);
  result->elements = LS_NEW_ARRAY(arena, int64_t, count);
  result->gradient = LS_NEW_ARRAY(arena, double *, count *LS_TRAJECTORY_STEPS);
  result->final = LS_NEW_ARRAY(arena, double *, count);
  for (int p = 0; p < count; p++) {
    result->name[p] = ls_arena_strdup(arena, program->parameters[p].name);
    result->elements[p] = ls_program_parameter_elements(&program->parameters[p]);
    result->final[p] = LS_NEW_ARRAY(arena, double, result->elements[p]);
    for (int s = 0; s < LS_TRAJECTORY_STEPS; s++)
      result->gradient[s * count + p] = LS_NEW_ARRAY(arena, double, result->elements[p]);
  }
}

static ls_status run_in(ls_arena *compiler, ls_arena *arena, const ls_experiment *experiment,
                        const ls_layout *layout, ls_trajectory *result, ls_error *error) {
  ls_graph *graph;
  LS_TRY(ls_model_build(compiler, experiment->config,
                        &(ls_build_options){.tokens = experiment->sequences / layout->microbatches *
                                                      experiment->sequence,
                                            .sequence = experiment->sequence},
                        &graph, error));
  ls_graph_backward(graph);
  ls_program **stages = LS_NEW_ARRAY(compiler, ls_program *, layout->pp);
  LS_TRY(ls_program_compile(graph, layout, LS_PROGRAM_STEP, stages, error));
  int altered = 0;
  for (int s = 0; s < layout->pp && experiment->alter; s++)
    altered += experiment->alter(stages[s], experiment->alter_context);
  if (experiment->alter && !altered) return LS_NO;
  make_room(arena, stages[0], result);
  job work = {experiment, stages, graph, .result = result};
  if (experiment->fast_kernels)
    LS_TRY(ls_cpu_kernels(&work.kernels, layout->compute, error));
  else
    ls_reference_kernels(&work.kernels, layout->compute);
  ls_world *world;
  LS_TRY(ls_world_create_threads(ls_mesh_size(&stages[0]->mesh, LS_AXES_ALL), &world, error));
  if (experiment->deadline_s > 0) ls_world_set_deadline(world, experiment->deadline_s);
  const ls_status status = ls_crew_run(world, rank_body, &work, error);
  ls_world_destroy(&world);
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

typedef struct worst {
  double difference;
  const char *where;
} worst;

static void compare(worst *so_far, double difference, double scale, const char *where) {
  if (isnan(so_far->difference)) return;
  const double relative = difference == 0 ? 0 : difference / scale;
  if (!(relative <= so_far->difference)) *so_far = (worst){relative, where};
}

/* Each tensor against its reference, on the scale of itself or of all of them together. */
static void compare_tensors(worst *so_far, double *const *a, double *const *reference,
                            const ls_trajectory *about) {
  double squares = 0;
  for (int p = 0; p < about->parameters; p++) {
    const double norm = norm_of(reference[p], about->elements[p]);
    squares += norm * norm;
  }
  for (int p = 0; p < about->parameters; p++) {
    double difference = 0;
    for (int64_t i = 0; i < about->elements[p]; i++) {
      const double d = a[p][i] - reference[p][i];
      difference += d * d;
    }
    const double scale = fmax(norm_of(reference[p], about->elements[p]), 1e-3 * sqrt(squares));
    compare(so_far, sqrt(difference), scale, about->name[p]);
  }
}

static void compare_loss(worst *so_far, const ls_trajectory *a, const ls_trajectory *reference,
                         int s) {
  compare(so_far, fabs(a->loss[s] - reference->loss[s]), fabs(reference->loss[s]), "loss");
}

static worst compare_steps(const ls_trajectory *a, const ls_trajectory *reference, int steps) {
  worst so_far = {0, "nothing"};
  for (int s = 0; s < steps; s++) {
    compare_loss(&so_far, a, reference, s);
    compare(&so_far, fabs(a->norm[s] - reference->norm[s]), fabs(reference->norm[s]), "norm");
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
  compare_tensors(&found, a->final, reference->final, a);
  *where = found.where;
  return found.difference;
}

double ls_trajectory_loss_difference(const ls_trajectory *a, const ls_trajectory *reference,
                                     const char **where) {
  worst found = {0, "nothing"};
  for (int s = 0; s < LS_TRAJECTORY_STEPS; s++) compare_loss(&found, a, reference, s);
  *where = found.where;
  return found.difference;
}
