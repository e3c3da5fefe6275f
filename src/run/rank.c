#include "run/rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/rank_loaded.h"
#include "run/rank_memory.h"

static int64_t largest(const ls_program *const *programs, int count, ls_pool pool) {
  int64_t most = 0;
  for (int p = 0; p < count; p++)
    if (programs[p]->pool_bytes[pool] > most) most = programs[p]->pool_bytes[pool];
  return most;
}

static int64_t volatile_bytes(const ls_program *program) {
  return program->pool_bytes[LS_POOL_INPUT] + program->pool_bytes[LS_POOL_WORK];
}

int64_t ls_rank_bytes_needed(const ls_program *const *programs, int count, ls_tier tier) {
  if (tier == LS_TIER_HOST)
    return largest(programs, count, LS_POOL_HOST_STATE) +
           largest(programs, count, LS_POOL_HOST_WORK);
  if (tier == LS_TIER_NVME)
    return largest(programs, count, LS_POOL_FILE_STATE) +
           largest(programs, count, LS_POOL_FILE_WORK);
  int64_t work = 0;
  for (int p = 0; p < count; p++)
    if (volatile_bytes(programs[p]) > work) work = volatile_bytes(programs[p]);
  return largest(programs, count, LS_POOL_STATE) + largest(programs, count, LS_POOL_CELL) + work;
}

/* Of each tier: [state][cells][inputs and work of whichever program runs] */
static void place_pools(ls_rank *rank, const ls_program *const *programs, int count) {
  char *cells = rank->base + largest(programs, count, LS_POOL_STATE);
  char *shared = cells + largest(programs, count, LS_POOL_CELL);
  for (int p = 0; p < count; p++) {
    char **base = rank->programs[p].pool_base;
    base[LS_POOL_STATE] = rank->base;
    base[LS_POOL_CELL] = cells;
    base[LS_POOL_INPUT] = shared;
    base[LS_POOL_WORK] = shared + programs[p]->pool_bytes[LS_POOL_INPUT];
    if (!rank->tiers) continue;
    base[LS_POOL_HOST_STATE] = ls_tiers_base(rank->tiers, LS_TIER_HOST);
    base[LS_POOL_HOST_WORK] =
        base[LS_POOL_HOST_STATE] + largest(programs, count, LS_POOL_HOST_STATE);
    base[LS_POOL_FILE_STATE] = ls_tiers_base(rank->tiers, LS_TIER_NVME);
    base[LS_POOL_FILE_WORK] =
        base[LS_POOL_FILE_STATE] + largest(programs, count, LS_POOL_FILE_STATE);
  }
}

/* Most moves that a program has under way at once. */
static int most_moves(const ls_program *program) {
  int most = 0, now = 0;
  for (int a = 0; a < program->actions.count; a++) {
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      if (each->collective != LS_MOVE) continue;
      const bool begins = each->phase != LS_END;
      if (now + begins > most) most = now + begins;
      if (each->phase != LS_WHOLE) now += begins ? 1 : -1;
    }
  }
  return most;
}

static ls_status create_tiers(ls_rank *rank, const ls_rank_options *options, ls_error *error) {
  ls_tiers_options made = {
      .host_bytes = ls_rank_bytes_needed(options->programs, options->program_count, LS_TIER_HOST),
      .file_bytes = ls_rank_bytes_needed(options->programs, options->program_count, LS_TIER_NVME),
      .path = options->offload_path,
      .memory = options->device->memory};
  if (!made.host_bytes && !made.file_bytes) return LS_OK;
  for (int p = 0; p < options->program_count; p++)
    if (most_moves(options->programs[p]) > made.moves)
      made.moves = most_moves(options->programs[p]);
  if (made.file_bytes && !made.path)
    return ls_fail(error, LS_INPUT, "offload.path: none given; expected a folder for the file");
  return ls_tiers_create(&made, &rank->tiers, error);
}

static char *live_interval_base(const ls_loaded_program *from, int live_interval) {
  const ls_live_interval *about = &from->program->live_intervals.items[live_interval];
  const ls_pool pool = from->program->buffer_groups.items[about->buffer_group].pool;
  return from->pool_base[pool] + about->offset;
}

char *ls_rank_group_address(const ls_rank *rank, int program, int index) {
  const ls_loaded_program *from = &rank->programs[program];
  return live_interval_base(from, ls_program_buffer_group(from->program, index)->live_interval);
}

ls_view ls_rank_view(const ls_rank *rank, int program, int index, int microbatch) {
  const ls_loaded_program *from = &rank->programs[program];
  const ls_buffer_group *buffer_group = ls_program_buffer_group(from->program, index);
  int64_t offset;
  ls_view view = ls_loaded_view(rank->number, from->program, index, &offset);
  view.data = live_interval_base(from, buffer_group->live_interval + microbatch) + offset;
  return view;
}

static ls_status make_group(ls_rank *rank, const ls_mesh *mesh, int group, ls_error *error) {
  int *members = calloc((size_t)ls_mesh_ranks(mesh), sizeof *members);
  if (!members) return ls_fail(error, LS_FAILED, "out of memory for a group of ranks");
  const int size = ls_mesh_group(mesh, rank->number, rank->axes[group], members);
  const ls_status status = ls_comm_group(rank->comm, members, size, &rank->groups[group], error);
  free(members);
  return status;
}

ls_group *ls_rank_group_of(const ls_rank *rank, ls_axis_order axes) {
  int group = 0;
  while (rank->axes[group].axes != axes.axes) group++;
  return rank->groups[group];
}

/* This rank and the one at its place on another stage. */
static ls_status make_pair(ls_rank *rank, const ls_mesh *mesh, int stage, int peer,
                           ls_error *error) {
  const int apart = ls_mesh_stage_ranks(mesh) * (peer - stage);
  const int other = rank->number + apart;
  const int members[2] = {apart > 0 ? rank->number : other, apart > 0 ? other : rank->number};
  return ls_comm_group(rank->comm, members, 2, &rank->pairs[peer], error);
}

/* Makes the groups of all programs by axes, then by stage: so ranks of different stages, whose
 * programs differ, make those they have in common in the same order. */
static ls_status make_groups(ls_rank *rank, const ls_rank_options *options, ls_error *error) {
  const ls_mesh *mesh = &options->programs[0]->mesh;
  rank->stages = ls_mesh_stages(mesh);
  rank->pairs = calloc((size_t)rank->stages, sizeof *rank->pairs);
  bool *by_stage = calloc((size_t)rank->stages, sizeof *by_stage);
  ls_status status = LS_OK;
  int groups = 0;
  if (!rank->pairs || !by_stage)
    status = ls_fail(error, LS_FAILED, "out of memory for %d stages", rank->stages);
  else
    groups =
        ls_programs_mark_groups(options->programs, options->program_count, rank->axes, by_stage);
  for (int g = 0; g < groups && status == LS_OK; g++) status = make_group(rank, mesh, g, error);
  for (int peer = 0; peer < rank->stages && status == LS_OK; peer++)
    if (by_stage[peer]) status = make_pair(rank, mesh, options->programs[0]->stage, peer, error);
  free(by_stage);
  if (status == LS_OK) rank->world = ls_rank_group_of(rank, ls_mesh_order(ls_mesh_all(mesh)));
  return status;
}

static ls_status create_staging(ls_rank *rank, ls_error *error) {
  int64_t most = 0, told = 0;
  for (int p = 0; p < rank->program_count; p++) {
    const ls_program *program = rank->programs[p].program;
    const int64_t rows = ls_rank_shape(rank, p, program->ids).valid[0];
    const int64_t shared = ls_mesh_size(&program->mesh, ls_mesh_context(&program->mesh));
    const int64_t count = (6 + 5 * shared) * rows;
    const int64_t top =
        program->top_ids < 0 ? 0 : program->values.items[program->top_ids].global[1];
    if (count > most) most = count;
    if (program->weights >= 0 && program->values.items[program->weights].global[0] > most)
      most = program->values.items[program->weights].global[0];
    const int64_t words = program->sets < 0 ? 0 : program->values.items[program->sets].global[1];
    if ((16 + 8 * shared) * rows * top > told) told = (16 + 8 * shared) * rows * top;
    if (4 * (1 + shared) * rows * words > told) told = 4 * (1 + shared) * rows * words;
  }
  rank->staging = calloc((size_t)most + 1, sizeof *rank->staging);
  rank->staging_reference = calloc((size_t)most + 1, sizeof *rank->staging_reference);
  rank->staging_top = calloc((size_t)told + 1, 1);
  if (rank->staging && rank->staging_reference && rank->staging_top) return LS_OK;
  return ls_fail(error, LS_FAILED, "out of memory for %lld tokens and labels", (long long)most);
}

static ls_status fill_rank(ls_rank *rank, const ls_rank_options *options, ls_error *error) {
  const ls_device_place place = ls_comm_place(rank->comm);
  LS_TRY(rank->device->enter(rank->device, &place, rank->queues, error));
  rank->entered = true;
  for (int p = 0; p < options->program_count; p++)
    LS_TRY(ls_program_check_alignment(&rank->device->facts, options->programs[p], error));
  const ls_mesh *mesh = &options->programs[0]->mesh;
  const int ranks = ls_mesh_ranks(mesh);
  if (ranks != ls_comm_size(rank->comm))
    return ls_fail(error, LS_INPUT, "the mesh has %d ranks and the world %d", ranks,
                   ls_comm_size(rank->comm));
  rank->bytes = ls_rank_bytes_needed(options->programs, options->program_count, LS_TIER_DEVICE);
  void *base;
  LS_TRY(ls_comm_arena(rank->comm, rank->device->memory, (size_t)rank->bytes, &base, error));
  rank->base = base;
  rank->program_count = options->program_count;
  LS_TRY(create_tiers(rank, options, error));
  place_pools(rank, options->programs, options->program_count);
  LS_TRY(make_groups(rank, options, error));
  for (int p = 0; p < options->program_count; p++) {
    rank->programs[p].program = options->programs[p];
    LS_TRY(ls_rank_load(rank, p, error));
    LS_TRY(ls_rank_load_graphs(rank, p, error));
  }
  LS_TRY(create_staging(rank, error));
  LS_TRY(ls_rank_open_carrier(rank, error));
  LS_TRY(ls_rank_give_workspace(rank, error));
  return ls_rank_tune(rank, options, error);
}

ls_status ls_rank_create(ls_comm *comm, const ls_rank_options *options, ls_rank **rank,
                         ls_error *error) {
  LS_ASSERT(options->program_count > 0 && options->program_count <= LS_MAX_PROGRAMS);
  ls_rank *made = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for a rank");
  made->comm = comm;
  made->number = ls_comm_rank(comm);
  made->device = options->device;
  made->most_graphs = options->most_graphs;
  const ls_status status = fill_rank(made, options, error);
  if (status == LS_OK)
    ls_rank_set_cell(made, LS_CELL_SCALE, 1);
  else
    ls_rank_destroy(&made);
  *rank = made;
  return status;
}

void ls_rank_destroy(ls_rank **rank) {
  if (!*rank) return;
  ls_rank_drop_graphs(*rank);
  for (int p = 0; p < (*rank)->program_count; p++) {
    ls_rank_unload(&(*rank)->programs[p]);
    free((*rank)->programs[p].buffer_groups);
  }
  free((*rank)->records);
  free((*rank)->staging);
  free((*rank)->staging_reference);
  free((*rank)->staging_top);
  ls_tiers_destroy(&(*rank)->tiers);
  if ((*rank)->carrier) (*rank)->engine->close(&(*rank)->carrier);
  free((*rank)->pairs);
  if ((*rank)->entered) (*rank)->device->leave((*rank)->queues);
  (*rank)->device->memory->release((*rank)->workspace, (*rank)->workspace_bytes);
  free(*rank);
  *rank = NULL;
}

void ls_loaded_bind(ls_loaded *each, char *const *buffer_groups, bool first) {
  const ls_instruction *instruction = each->instruction;
  for (int i = 0; i < each->args.inputs; i++)
    each->args.in[i].data = buffer_groups[each->in_buffer_group[i]] + each->in_offset[i];
  for (int o = 0; o < instruction->outputs; o++) {
    each->args.out[o].data = buffer_groups[each->out_buffer_group[o]] + each->out_offset[o];
    each->args.accumulate[o] =
        instruction->write[o] == LS_ADD || (instruction->write[o] == LS_ADD_AFTER_FIRST && !first);
  }
}

/* What the host does finds the work of kernels before it done. */
static ls_status wait_for_kernels(const ls_rank *rank, ls_error *error) {
  LS_TRY(rank->device->wait(&rank->queues[LS_TIER_DEVICE], error));
  return ls_rank_check_transfers(rank, error);
}

static ls_status run_skipped(const ls_rank *rank, const ls_loaded *each, ls_error *error) {
  const ls_kernel_args *args = &each->args;
  const bool later = rank->device->calls && each->tier == LS_TIER_DEVICE;
  if (!later) LS_TRY(wait_for_kernels(rank, error));
  for (int o = 0; o < args->outputs; o++) {
    const ls_view *view = &args->out[o];
    int64_t elements = 1;
    for (int d = 0; d < view->ndim; d++) elements *= view->dims[d];
    const size_t bytes = (size_t)elements * ls_dtype_bytes(view->dtype);
    if (args->accumulate[o]) continue;
    if (later)
      LS_TRY(rank->device->calls->clear(args->queue, view->data, bytes, error));
    else
      LS_TRY(ls_rank_memory_of(rank, view->data)->clear(view->data, bytes, error));
  }
  return LS_OK;
}

/* A kernel of the host, with copies of the cells that it reads and adds to or writes. */
static ls_status run_on_host(const ls_rank *rank, const ls_loaded *each, ls_error *error) {
  const ls_memory_calls *memory = rank->device->memory;
  ls_kernel_args args = each->args;
  double in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  LS_TRY(wait_for_kernels(rank, error));
  for (int i = 0; i < args.inputs; i++)
    if (each->in_cells >> i & 1) {
      LS_TRY(memory->read(&in[i], args.in[i].data, sizeof in[i], error));
      args.in[i].data = &in[i];
    }
  for (int o = 0; o < args.outputs; o++)
    if (each->out_cells >> o & 1) {
      LS_TRY(memory->read(&out[o], args.out[o].data, sizeof out[o], error));
      args.out[o].data = &out[o];
    }
  LS_TRY(each->kernel(&args, error));
  for (int o = 0; o < args.outputs; o++)
    if (each->out_cells >> o & 1)
      LS_TRY(memory->write(each->args.out[o].data, &out[o], sizeof out[o], error));
  return LS_OK;
}

ls_status ls_rank_run_instruction(ls_rank *rank, const ls_loaded *each, ls_error *error) {
  if (each->joined) return LS_OK;
  if (!each->skipped && each->instruction->collective == LS_COLLECTIVE_NONE)
    return each->tier == LS_TIER_HOST ? run_on_host(rank, each, error)
                                      : each->kernel(&each->args, error);
  return each->skipped ? run_skipped(rank, each, error) : ls_rank_transfer(rank, each, error);
}

ls_status ls_rank_fail_instruction(ls_rank *rank, const ls_program *program,
                                   const ls_instruction *instruction, ls_error *error) {
  const char *what = instruction->collective == LS_COLLECTIVE_NONE
                         ? ls_op_name(instruction->kind)
                         : ls_collective_name(instruction->collective);
  ls_error unread = {LS_FAILED, "failed"};
  if (!error) error = &unread;
  ls_error_prefix(error, "%s of %s", what, ls_loaded_name(program, instruction));
  ls_comm_abort(rank->comm, error->text);
  ls_error_prefix(error, "rank %d", rank->number);
  return LS_FAILED;
}

/* The first `count` elements at `at`. */
static ls_status find_finite(const ls_memory_calls *memory, const char *at, ls_dtype dtype,
                             int64_t count, bool *finite, ls_error *error) {
  enum { PIECE = 256 };
  double stored[PIECE], values[PIECE];
  const size_t width = ls_dtype_bytes(dtype);
  for (int64_t begin = 0; begin < count && *finite; begin += PIECE) {
    const int64_t piece = count - begin < PIECE ? count - begin : PIECE;
    LS_TRY(memory->read(stored, at + (size_t)begin * width, (size_t)piece * width, error));
    ls_convert(values, LS_F64, stored, dtype, piece);
    for (int64_t i = 0; i < piece; i++) *finite = *finite && isfinite(values[i]);
  }
  return LS_OK;
}

static ls_status view_is_finite(const ls_rank *rank, const ls_view *view, bool *finite,
                                ls_error *error) {
  *finite = true;
  if (view->dtype == LS_I32 || view->dtype == LS_I64) return LS_OK;
  const bool matrix = view->ndim > 1; /* a vector is one row */
  const int64_t rows = matrix ? view->valid[0] : 1, columns = view->valid[matrix];
  const size_t stride = (size_t)view->dims[matrix] * ls_dtype_bytes(view->dtype);
  for (int64_t i = 0; i < rows && *finite; i++)
    LS_TRY(find_finite(ls_rank_memory_of(rank, view->data),
                       (const char *)view->data + (size_t)i * stride, view->dtype, columns, finite,
                       error));
  return LS_OK;
}

static ls_status check_outputs(const ls_rank *rank, const ls_program *program,
                               const ls_loaded *each, ls_error *error) {
  const ls_instruction *instruction = each->instruction;
  LS_TRY(wait_for_kernels(rank, error));
  for (int o = 0; o < each->args.outputs; o++) {
    bool finite = true;
    if (instruction->phase != LS_BEGIN && !ls_collective_moves(instruction->collective))
      LS_TRY(view_is_finite(rank, &each->args.out[o], &finite, error));
    if (finite) continue;
    const bool received = instruction->collective == LS_RECEIVE;
    return ls_fail(error, received ? LS_REFUTED : LS_FAILED,
                   "rank %d: %s made a NaN or an infinity in %s", rank->number,
                   instruction->collective == LS_COLLECTIVE_NONE
                       ? ls_op_name(instruction->kind)
                       : ls_collective_name(instruction->collective),
                   program->values.items[instruction->out[o]].name);
  }
  return LS_OK;
}

/* The end of a move is recorded as all of it. */
static void record(ls_rank *rank, const ls_instruction *of, int action, int instruction,
                   int64_t begin_ns) {
  const bool moved = of->collective == LS_MOVE && of->phase == LS_END;
  rank->records[rank->recorded++ % rank->record_room] =
      (ls_record){moved ? rank->moved.begin_ns : begin_ns, moved ? rank->moved.end_ns : ls_now_ns(),
                  action, instruction};
}

/* NULL: the program has no such cell. */
static double *cell_at(const ls_rank *rank, int cell) {
  const int value = rank->programs[0].program->cell[cell];
  return value < 0 ? NULL : ls_rank_view(rank, 0, value, 0).data;
}

static ls_status write_cells(ls_rank *rank, ls_error *error) {
  const ls_queue_calls *calls = rank->device->calls;
  for (int c = 0; c < LS_CELL_COUNT; c++) {
    double *at = cell_at(rank, c);
    if (at && rank->set[c] && rank->ahead)
      LS_TRY(calls->put(&rank->queues[LS_TIER_DEVICE], at, &rank->cells[c], sizeof *at, error));
    else if (at && rank->set[c])
      LS_TRY(rank->device->memory->write(at, &rank->cells[c], sizeof *at, error));
    rank->set[c] = false;
  }
  return LS_OK;
}

static ls_status read_cells(ls_rank *rank, ls_error *error) {
  for (int c = 0; c < LS_CELL_COUNT; c++) {
    const double *at = cell_at(rank, c);
    if (at) LS_TRY(rank->device->memory->read(&rank->cells[c], at, sizeof *at, error));
  }
  return LS_OK;
}

ls_status ls_rank_read_loads(const ls_rank *rank, int program, int layer, double *loads,
                             ls_error *error) {
  const int value = rank->programs[program].program->loads.items[layer];
  const ls_view view = ls_rank_view(rank, program, value, 0);
  return rank->device->memory->read(loads, view.data, sizeof *loads * (size_t)view.dims[1], error);
}

/* The range of a rank's memory that its cells lie in. */
static const char *cell_range(const ls_rank *rank, size_t *bytes) {
  const char *first = NULL, *last = NULL;
  for (int c = 0; c < LS_CELL_COUNT; c++) {
    const char *at = (const char *)cell_at(rank, c);
    if (!at) continue;
    if (!first || at < first) first = at;
    if (!last || at > last) last = at;
  }
  *bytes = first ? (size_t)(last - first) + sizeof(double) : 0;
  return first;
}

ls_status ls_rank_cells_begin(ls_rank *rank, int slot, ls_error *error) {
  size_t bytes;
  const char *first = cell_range(rank, &bytes);
  LS_ASSERT(rank->ahead && bytes <= LS_QUEUE_READ_BYTES);
  return rank->device->calls->read_begin(&rank->queues[LS_TIER_DEVICE], slot, first, bytes, error);
}

ls_status ls_rank_cells_end(ls_rank *rank, int slot, ls_error *error) {
  char found[LS_QUEUE_READ_BYTES];
  size_t bytes;
  const char *first = cell_range(rank, &bytes);
  LS_TRY(rank->device->calls->read_end(&rank->queues[LS_TIER_DEVICE], slot, found, bytes, error));
  LS_TRY(ls_rank_check_transfers(rank, error));
  for (int c = 0; c < LS_CELL_COUNT; c++) {
    const char *at = (const char *)cell_at(rank, c);
    if (at) memcpy(&rank->cells[c], found + (at - first), sizeof(double));
  }
  return LS_OK;
}

ls_status ls_rank_run_ahead(ls_rank *rank, bool on, ls_error *error) {
  const bool was = rank->ahead;
  rank->ahead = on && rank->device->calls;
  if (!was || rank->ahead) return LS_OK;
  LS_TRY(wait_for_kernels(rank, error));
  return read_cells(rank, error);
}

bool ls_rank_runs_ahead(const ls_rank *rank) {
  return rank->device->calls != NULL;
}

/* One instruction of an action. With `found`, the first non-finite output is put there. */
static ls_status run_alone(ls_rank *rank, int p, int a, int i, ls_error *found, ls_error *error) {
  const ls_loaded_program *from = &rank->programs[p];
  ls_loaded *each = &from->instructions[i];
  ls_loaded_bind(each, from->buffer_groups, from->program->actions.items[a].first);
  const int64_t begin_ns = rank->recording ? ls_now_ns() : 0;
  if (each->instruction->collective != LS_COLLECTIVE_NONE)
    ls_comm_about(rank->comm, ls_loaded_name(from->program, each->instruction));
  ls_status status = ls_rank_run_instruction(rank, each, error);
  if (status == LS_OK && rank->recording) status = wait_for_kernels(rank, error);
  if (status != LS_OK)
    return ls_rank_fail_instruction(rank, from->program, each->instruction, error);
  if (rank->recording) record(rank, each->instruction, a, i, begin_ns);
  if (found && found->status == LS_OK) (void)check_outputs(rank, from->program, each, found);
  return LS_OK;
}

/* Actions [first, last). With `found`, the first non-finite output is put there and the run goes
 * on, since peers wait in collectives. */
static ls_status run_actions(ls_rank *rank, int p, int first, int last, ls_error *found,
                             ls_error *error) {
  const ls_loaded_program *from = &rank->programs[p];
  const bool each_alone = found || rank->recording || !from->graphs;
  LS_TRY(write_cells(rank, error));
  for (int a = first; a < last; a++) {
    const ls_program_action *action = &from->program->actions.items[a];
    const ls_body *body = &from->program->bodies.items[action->body];
    for (int i = 0; i < body->buffer_groups.count; i++)
      from->buffer_groups[i] = live_interval_base(from, action->live_intervals[i]);
    int next, graph = 0;
    for (int i = body->first; i < body->first + body->count; i = next) {
      next = each_alone ? i + 1 : ls_rank_together(from, body, i);
      if (next > i + 1)
        LS_TRY(ls_rank_run_together(rank, p, a, graph++, i, next, error));
      else
        LS_TRY(run_alone(rank, p, a, i, found, error));
    }
  }
  ls_comm_about(rank->comm, NULL);
  if (rank->ahead) return LS_OK;
  LS_TRY(wait_for_kernels(rank, error));
  return read_cells(rank, error);
}

ls_status ls_rank_run(ls_rank *rank, int program, ls_error *error) {
  return run_actions(rank, program, 0, rank->programs[program].program->actions.count, NULL, error);
}

ls_status ls_rank_run_part(ls_rank *rank, int program, ls_program_part part, ls_error *error) {
  const ls_program *from = rank->programs[program].program;
  return run_actions(rank, program, ls_program_first_of(from, part),
                     ls_program_first_of(from, part + 1), NULL, error);
}

ls_status ls_rank_run_gradients(ls_rank *rank, int program, ls_error *error) {
  LS_TRY(ls_rank_run_part(rank, program, LS_PROGRAM_PROLOGUE, error));
  LS_TRY(ls_rank_run_part(rank, program, LS_PROGRAM_PASSES, error));
  return ls_rank_run_part(rank, program, LS_PROGRAM_VALIDATE, error);
}

ls_status ls_rank_find_nonfinite(ls_rank *rank, int program, ls_error *error) {
  ls_error found = {0};
  const ls_program *from = rank->programs[program].program;
  LS_TRY(run_actions(rank, program, 0, ls_program_first_of(from, LS_PROGRAM_SPECULATE), &found,
                     error));
  LS_TRY(ls_rank_run_part(rank, program, LS_PROGRAM_VALIDATE, error));
  if (found.status != LS_OK && error) *error = found;
  return found.status;
}

ls_status ls_rank_record_room(ls_rank *rank, int program, ls_error *error) {
  const ls_program *from = rank->programs[program].program;
  const int64_t room = ls_program_executed(from) + 1;
  ls_record *records = calloc((size_t)room, sizeof *records);
  if (!records)
    return ls_fail(error, LS_FAILED, "out of memory for the times of %lld instructions",
                   (long long)room);
  free(rank->records);
  rank->records = records;
  rank->record_room = room;
  rank->recorded = 0;
  return LS_OK;
}

void ls_rank_record(ls_rank *rank, bool on) {
  LS_ASSERT(!on || rank->records);
  rank->recording = on;
  if (on) rank->recorded = 0;
}

int64_t ls_rank_record_count(const ls_rank *rank) {
  return rank->recorded < rank->record_room ? rank->recorded : rank->record_room;
}

ls_record ls_rank_record_at(const ls_rank *rank, int64_t index) {
  const int64_t oldest = rank->recorded - ls_rank_record_count(rank);
  return rank->records[(oldest + index) % rank->record_room];
}

double ls_rank_cell(const ls_rank *rank, ls_cell cell) {
  return rank->cells[cell];
}

void ls_rank_set_cell(ls_rank *rank, ls_cell cell, double value) {
  rank->cells[cell] = value;
  rank->set[cell] = true;
}

ls_view ls_rank_shape(const ls_rank *rank, int program, int value) {
  return ls_program_view(rank->programs[program].program, rank->number, value);
}

static bool in_file(const ls_rank *rank, const void *address) {
  return rank->tiers && ls_tiers_of(rank->tiers, address) == LS_TIER_NVME;
}

ls_status ls_rank_write_at(const ls_rank *rank, void *to, const void *from, int64_t bytes,
                           ls_error *error) {
  if (in_file(rank, to)) return ls_tiers_write(rank->tiers, to, from, bytes, error);
  return ls_rank_memory_of(rank, to)->write(to, from, (size_t)bytes, error);
}

ls_status ls_rank_read_at(const ls_rank *rank, void *to, const void *from, int64_t bytes,
                          ls_error *error) {
  if (in_file(rank, from)) return ls_tiers_read(rank->tiers, to, from, bytes, error);
  return ls_rank_memory_of(rank, from)->read(to, from, (size_t)bytes, error);
}

ls_status ls_rank_put(ls_rank *rank, int program, int value, int microbatch, const void *from,
                      int64_t count, ls_error *error) {
  const ls_view to = ls_rank_view(rank, program, value, microbatch);
  const int64_t bytes = count * (int64_t)ls_dtype_bytes(to.dtype);
  if (rank->ahead && (!rank->tiers || ls_tiers_of(rank->tiers, to.data) == LS_TIER_DEVICE))
    return rank->device->calls->put(&rank->queues[LS_TIER_DEVICE], to.data, from, (size_t)bytes,
                                    error);
  return ls_rank_write_at(rank, to.data, from, bytes, error);
}

ls_status ls_rank_get(const ls_rank *rank, int program, int value, int microbatch, void *to,
                      int64_t count, ls_error *error) {
  const ls_view from = ls_rank_view(rank, program, value, microbatch);
  return ls_rank_read_at(rank, to, from.data, count * (int64_t)ls_dtype_bytes(from.dtype), error);
}

int32_t *ls_rank_staging(const ls_rank *rank) {
  return rank->staging;
}

double *ls_rank_staging_reference(const ls_rank *rank) {
  return rank->staging_reference;
}

void *ls_rank_staging_top(const ls_rank *rank) {
  return rank->staging_top;
}

ls_status ls_rank_poison(ls_rank *rank, int program, ls_error *error) {
  const ls_loaded_program *from = &rank->programs[program];
  static const ls_pool pools[] = {LS_POOL_WORK, LS_POOL_HOST_WORK};
  char nans[4096];
  memset(nans, 0xff, sizeof nans);
  for (int c = LS_CELL_STEP + 1; c < LS_CELL_COUNT; c++)
    if (c != LS_CELL_SCALE) ls_rank_set_cell(rank, (ls_cell)c, NAN);
  for (size_t p = 0; p < sizeof pools / sizeof *pools; p++) {
    const int64_t bytes = from->program->pool_bytes[pools[p]];
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof nans) {
      const int64_t left = bytes - at, most = (int64_t)sizeof nans;
      char *to = from->pool_base[pools[p]] + at;
      LS_TRY(
          ls_rank_memory_of(rank, to)->write(to, nans, (size_t)(left < most ? left : most), error));
    }
  }
  return LS_OK;
}

const ls_program *ls_rank_program(const ls_rank *rank, int program) {
  return rank->programs[program].program;
}

int ls_rank_number(const ls_rank *rank) {
  return rank->number;
}
ls_comm *ls_rank_comm(const ls_rank *rank) {
  return rank->comm;
}
ls_group *ls_rank_world_group(const ls_rank *rank) {
  return rank->world;
}
ls_tiers *ls_rank_tiers(const ls_rank *rank) {
  return rank->tiers;
}
