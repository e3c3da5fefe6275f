#include "run/rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An instruction with its operands' places worked out for this rank. */
typedef struct loaded {
  const ls_instruction *instruction;
  ls_kernel_args args;
  int64_t in_slot_bytes[LS_MAX_INPUTS];
  ls_group *group;
  bool skipped; /* another rank of first_only does it */
} loaded;

typedef struct loaded_program {
  const ls_program *program;
  loaded *instructions;
  int64_t pool_base[LS_POOL_COUNT];
} loaded_program;

struct ls_rank {
  ls_comm *comm;
  int number;
  char *base;
  int64_t bytes;
  ls_kernel_table kernels;
  loaded_program programs[LS_MAX_PROGRAMS];
  int program_count;
  ls_group *groups[LS_AXES_ALL + 1]; /* by set of axes; made on demand, in program order */
  ls_group *world;
  void *workspace;
};

static int64_t largest(const ls_program *const *programs, int count, ls_pool pool) {
  int64_t most = 0;
  for (int p = 0; p < count; p++)
    if (programs[p]->pool_bytes[pool] > most) most = programs[p]->pool_bytes[pool];
  return most;
}

static int64_t volatile_bytes(const ls_program *program) {
  return program->pool_bytes[LS_POOL_INPUT] + program->pool_bytes[LS_POOL_STEP] +
         program->pool_bytes[LS_POOL_WORK];
}

int64_t ls_rank_bytes_needed(const ls_program *const *programs, int count) {
  int64_t work = 0;
  for (int p = 0; p < count; p++)
    if (volatile_bytes(programs[p]) > work) work = volatile_bytes(programs[p]);
  return largest(programs, count, LS_POOL_STATE) + largest(programs, count, LS_POOL_CELL) + work;
}

/* [state][cells][inputs, step and work of whichever program runs] */
static void place_pools(ls_rank *rank, const ls_program *const *programs, int count) {
  const int64_t cells = largest(programs, count, LS_POOL_STATE);
  const int64_t shared = cells + largest(programs, count, LS_POOL_CELL);
  for (int p = 0; p < count; p++) {
    int64_t *base = rank->programs[p].pool_base;
    base[LS_POOL_STATE] = 0;
    base[LS_POOL_CELL] = cells;
    base[LS_POOL_INPUT] = shared;
    base[LS_POOL_STEP] = shared + programs[p]->pool_bytes[LS_POOL_INPUT];
    base[LS_POOL_WORK] = base[LS_POOL_STEP] + programs[p]->pool_bytes[LS_POOL_STEP];
  }
}

ls_view ls_rank_view(const ls_rank *rank, int program, int index, int slot) {
  const loaded_program *from = &rank->programs[program];
  const ls_value *value = &from->program->values.items[index];
  const ls_local local = ls_program_local(from->program, rank->number, index);
  const ls_pool pool = from->program->storages.items[value->storage].pool;
  ls_view view = {
      .data = rank->base + from->pool_base[pool] + local.offset + slot * value->slot_bytes,
      .dtype = value->dtype,
      .ndim = value->ndim};
  memcpy(view.dims, local.dims, sizeof view.dims);
  memcpy(view.valid, local.valid, sizeof view.valid);
  memcpy(view.start, local.start, sizeof view.start);
  return view;
}

static ls_status find_group(ls_rank *rank, const ls_mesh *mesh, ls_axes axes, ls_group **group,
                            ls_error *error) {
  if (!rank->groups[axes]) {
    const int size = ls_mesh_size(mesh, axes);
    int *members = calloc((size_t)size, sizeof *members);
    if (!members) return ls_fail(error, LS_FAILED, "out of memory for a group of %d ranks", size);
    ls_mesh_group(mesh, rank->number, axes, members);
    const ls_status status = ls_comm_group(rank->comm, members, size, &rank->groups[axes], error);
    free(members);
    LS_TRY(status);
  }
  *group = rank->groups[axes];
  return LS_OK;
}

static ls_status load_instruction(ls_rank *rank, int p, const ls_instruction *instruction,
                                  int threads, loaded *made, ls_error *error) {
  const ls_program *program = rank->programs[p].program;
  made->instruction = instruction;
  made->args = (ls_kernel_args){.attributes = &instruction->attributes,
                                .inputs = instruction->inputs,
                                .outputs = instruction->outputs,
                                .threads = threads};
  for (int i = 0; i < instruction->inputs; i++) {
    made->args.in[i] = ls_rank_view(rank, p, instruction->in[i], 0);
    made->in_slot_bytes[i] = program->values.items[instruction->in[i]].slot_bytes;
  }
  for (int o = 0; o < instruction->outputs; o++)
    made->args.out[o] = ls_rank_view(rank, p, instruction->out[o], 0);
  made->skipped = instruction->first_only &&
                  ls_mesh_index(&program->mesh, rank->number, instruction->first_only) != 0;
  if (instruction->collective == LS_COLLECTIVE_NONE) return LS_OK;
  return find_group(rank, &program->mesh, instruction->axes, &made->group, error);
}

static ls_status load_program(ls_rank *rank, int p, int threads, size_t *workspace,
                              ls_error *error) {
  loaded_program *into = &rank->programs[p];
  const int count = into->program->instructions.count;
  into->instructions = calloc((size_t)count + 1, sizeof *into->instructions);
  if (!into->instructions)
    return ls_fail(error, LS_FAILED, "out of memory for a program of %d instructions", count);
  for (int i = 0; i < count; i++) {
    const ls_instruction *instruction = &into->program->instructions.items[i];
    loaded *made = &into->instructions[i];
    LS_TRY(load_instruction(rank, p, instruction, threads, made, error));
    if (instruction->collective != LS_COLLECTIVE_NONE || !rank->kernels.workspace_bytes) continue;
    const size_t bytes = rank->kernels.workspace_bytes(instruction->kind, &made->args);
    if (bytes > *workspace) *workspace = bytes;
  }
  return LS_OK;
}

static ls_status allocate_workspace(ls_rank *rank, size_t bytes, ls_error *error) {
  if (!bytes) return LS_OK;
  rank->workspace = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!rank->workspace)
    return ls_fail(error, LS_FAILED, "out of memory for %zu bytes of workspace", bytes);
  for (int p = 0; p < rank->program_count; p++)
    for (int i = 0; i < rank->programs[p].program->instructions.count; i++) {
      rank->programs[p].instructions[i].args.workspace = rank->workspace;
      rank->programs[p].instructions[i].args.workspace_bytes = bytes;
    }
  return LS_OK;
}

static ls_status fill_rank(ls_rank *rank, const ls_rank_options *options, ls_error *error) {
  const ls_mesh *mesh = &options->programs[0]->mesh;
  const int ranks = ls_mesh_size(mesh, LS_AXES_ALL);
  if (ranks != ls_comm_size(rank->comm))
    return ls_fail(error, LS_INPUT, "the mesh has %d ranks and the world %d", ranks,
                   ls_comm_size(rank->comm));
  rank->bytes = ls_rank_bytes_needed(options->programs, options->program_count);
  void *base;
  LS_TRY(ls_comm_arena(rank->comm, (size_t)rank->bytes, &base, error));
  rank->base = base;
  rank->program_count = options->program_count;
  place_pools(rank, options->programs, options->program_count);
  LS_TRY(find_group(rank, mesh, LS_AXES_ALL, &rank->world, error));
  size_t workspace = 0;
  for (int p = 0; p < options->program_count; p++) {
    rank->programs[p].program = options->programs[p];
    LS_TRY(load_program(rank, p, options->threads, &workspace, error));
  }
  return allocate_workspace(rank, workspace, error);
}

ls_status ls_rank_create(ls_comm *comm, const ls_rank_options *options, ls_rank **rank,
                         ls_error *error) {
  LS_ASSERT(options->program_count > 0 && options->program_count <= LS_MAX_PROGRAMS);
  ls_rank *made = calloc(1, sizeof *made);
  if (!made) return ls_fail(error, LS_FAILED, "out of memory for a rank");
  made->comm = comm;
  made->number = ls_comm_rank(comm);
  made->kernels = *options->kernels;
  const ls_status status = fill_rank(made, options, error);
  if (status != LS_OK) ls_rank_destroy(&made);
  *rank = made;
  return status;
}

void ls_rank_destroy(ls_rank **rank) {
  if (!*rank) return;
  for (int p = 0; p < (*rank)->program_count; p++) free((*rank)->programs[p].instructions);
  free((*rank)->workspace);
  free(*rank);
  *rank = NULL;
}

static ls_status run_collective(const loaded *each, bool accumulate, ls_error *error) {
  const ls_instruction *instruction = each->instruction;
  void *source = each->args.in[0].data, *target = each->args.out[0].data;
  const ls_dtype dtype = each->args.in[0].dtype;
  switch (instruction->collective) {
    case LS_ALL_REDUCE:
      if (target != source)
        memcpy(target, source, (size_t)instruction->count * ls_dtype_bytes(dtype));
      return ls_all_reduce(each->group, target, instruction->count, dtype, instruction->reduce,
                           error);
    case LS_REDUCE_SCATTER:
      return ls_reduce_scatter(each->group, target, source, instruction->count, dtype, accumulate,
                               error);
    case LS_ALL_GATHER:
      return ls_all_gather(each->group, target, source, instruction->count, dtype, error);
    case LS_COLLECTIVE_NONE: break;
  }
  return ls_fail(error, LS_INTERNAL, "not a collective");
}

static ls_status run_skipped(const loaded *each) {
  for (int o = 0; o < each->args.outputs; o++) {
    const ls_view *view = &each->args.out[o];
    int64_t elements = 1;
    for (int d = 0; d < view->ndim; d++) elements *= view->dims[d];
    if (each->instruction->write[o] == LS_WRITE)
      memset(view->data, 0, (size_t)elements * ls_dtype_bytes(view->dtype));
  }
  return LS_OK;
}

static ls_status run_instruction(ls_rank *rank, const loaded *each, int microbatch,
                                 ls_error *error) {
  const ls_instruction *instruction = each->instruction;
  if (each->skipped) return run_skipped(each);
  bool accumulate[LS_MAX_OUTPUTS];
  for (int o = 0; o < instruction->outputs; o++)
    accumulate[o] = instruction->write[o] == LS_ADD ||
                    (instruction->write[o] == LS_ADD_AFTER_FIRST && microbatch > 0);
  if (instruction->collective != LS_COLLECTIVE_NONE)
    return run_collective(each, accumulate[0], error);
  ls_kernel_args args = each->args;
  memcpy(args.accumulate, accumulate, sizeof args.accumulate);
  for (int i = 0; i < instruction->inputs && microbatch > 0; i++)
    args.in[i].data = (char *)args.in[i].data + microbatch * each->in_slot_bytes[i];
  return rank->kernels.kernel[instruction->kind](&args, error);
}

static ls_status fail_instruction(ls_rank *rank, const ls_program *program,
                                  const ls_instruction *instruction, ls_error *error) {
  const char *what = instruction->collective == LS_COLLECTIVE_NONE
                         ? ls_op_name(instruction->kind)
                         : ls_collective_name(instruction->collective);
  ls_error_prefix(error, "%s of %s", what, program->values.items[instruction->out[0]].name);
  ls_comm_abort(rank->comm, error->text);
  ls_error_prefix(error, "rank %d", rank->number);
  return LS_FAILED;
}

static bool view_is_finite(const ls_view *view) {
  if (view->dtype != LS_F32 && view->dtype != LS_F64 && view->dtype != LS_BF16) return true;
  const int64_t columns = view->ndim > 1 ? view->valid[1] : 1;
  const int64_t stride = view->ndim > 1 ? view->dims[1] : 1;
  for (int64_t i = 0; i < view->valid[0]; i++)
    for (int64_t j = 0; j < columns; j++) {
      double value;
      const char *at =
          (const char *)view->data + (size_t)(i * stride + j) * ls_dtype_bytes(view->dtype);
      ls_convert(&value, LS_F64, at, view->dtype, 1);
      if (!isfinite(value)) return false;
    }
  return true;
}

static ls_status check_outputs(const ls_rank *rank, const ls_program *program, const loaded *each,
                               ls_error *error) {
  for (int o = 0; o < each->args.outputs; o++) {
    if (view_is_finite(&each->args.out[o])) continue;
    const ls_instruction *instruction = each->instruction;
    return ls_fail(error, LS_FAILED, "rank %d: %s made a NaN or an infinity in %s", rank->number,
                   instruction->collective == LS_COLLECTIVE_NONE
                       ? ls_op_name(instruction->kind)
                       : ls_collective_name(instruction->collective),
                   program->values.items[instruction->out[o]].name);
  }
  return LS_OK;
}

/* Actions [first, last). With `found`, the first non-finite output is put there and the run goes
 * on, since peers wait in collectives. */
static ls_status run_actions(ls_rank *rank, int p, int first, int last, ls_error *found,
                             ls_error *error) {
  const loaded_program *from = &rank->programs[p];
  for (int a = first; a < last; a++) {
    const ls_program_action *action = &from->program->actions.items[a];
    const ls_body *body = &from->program->bodies.items[action->body];
    for (int i = body->first; i < body->first + body->count; i++) {
      const loaded *each = &from->instructions[i];
      if (run_instruction(rank, each, action->action.microbatch, error) != LS_OK)
        return fail_instruction(rank, from->program, each->instruction, error);
      if (found && found->status == LS_OK &&
          check_outputs(rank, from->program, each, found) != LS_OK)
        continue;
    }
  }
  return LS_OK;
}

static int first_update(const ls_program *program) {
  int action = 0;
  while (action < program->actions.count &&
         program->actions.items[action].action.kind != LS_ACTION_UPDATE)
    action++;
  return action;
}

ls_status ls_rank_run(ls_rank *rank, int program, ls_error *error) {
  return run_actions(rank, program, 0, rank->programs[program].program->actions.count, NULL, error);
}

ls_status ls_rank_run_gradients(ls_rank *rank, int program, ls_error *error) {
  return run_actions(rank, program, 0, first_update(rank->programs[program].program), NULL, error);
}

ls_status ls_rank_run_update(ls_rank *rank, int program, ls_error *error) {
  const ls_program *from = rank->programs[program].program;
  return run_actions(rank, program, first_update(from), from->actions.count, NULL, error);
}

ls_status ls_rank_find_nonfinite(ls_rank *rank, int program, ls_error *error) {
  ls_error found = {0};
  LS_TRY(
      run_actions(rank, program, 0, first_update(rank->programs[program].program), &found, error));
  if (found.status != LS_OK && error) *error = found;
  return found.status;
}

double *ls_rank_cell(const ls_rank *rank, ls_cell cell) {
  return ls_rank_view(rank, 0, rank->programs[0].program->cell[cell], 0).data;
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
int64_t ls_rank_arena_bytes(const ls_rank *rank) {
  return rank->bytes;
}
