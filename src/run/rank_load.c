/* Programs loaded into a rank: operands with their places, kernels, groups and workspace. */
#include <stdlib.h>

#include "run/rank_loaded.h"

ls_view ls_loaded_view(int rank, const ls_program *program, int index, int64_t *offset) {
  *offset = ls_program_local(program, rank, index).offset;
  return ls_program_view(program, rank, index);
}

static int buffer_group_in_body(const ls_program *program, const ls_body *body, int value) {
  const int buffer_group =
      program->storages.items[program->values.items[value].storage].buffer_group;
  int at = 0;
  while (body->buffer_groups.items[at] != buffer_group) at++;
  return at;
}

static ls_pool pool_of(const ls_program *program, int value) {
  return ls_program_buffer_group(program, value)->pool;
}

/* The tier whose kernels compute an instruction: the host where one of its operands lies there. */
static ls_tier tier_of(const ls_program *program, const ls_instruction *instruction) {
  for (int i = 0; i < instruction->inputs; i++)
    if (ls_pool_tier(pool_of(program, instruction->in[i])) == LS_TIER_HOST) return LS_TIER_HOST;
  for (int o = 0; o < instruction->outputs; o++)
    if (ls_pool_tier(pool_of(program, instruction->out[o])) == LS_TIER_HOST) return LS_TIER_HOST;
  return LS_TIER_DEVICE;
}

/* Beside what lies at the host its kernels have cells, of which they are given a copy. */
static ls_status mark_cells(const ls_program *program, const ls_instruction *instruction,
                            ls_loaded *made, ls_error *error) {
  if (made->tier != LS_TIER_HOST || instruction->collective != LS_COLLECTIVE_NONE) return LS_OK;
  bool reached = true;
  for (int i = 0; i < instruction->inputs; i++) {
    const ls_pool pool = pool_of(program, instruction->in[i]);
    if (pool == LS_POOL_CELL) made->in_cells |= 1u << i;
    reached = reached && (pool == LS_POOL_CELL || ls_pool_tier(pool) == LS_TIER_HOST);
  }
  for (int o = 0; o < instruction->outputs; o++) {
    const ls_pool pool = pool_of(program, instruction->out[o]);
    if (pool == LS_POOL_CELL) made->out_cells |= 1u << o;
    reached = reached && (pool == LS_POOL_CELL || ls_pool_tier(pool) == LS_TIER_HOST);
  }
  if (reached) return LS_OK;
  return ls_fail(error, LS_INTERNAL, "%s has operands at the host and on the device",
                 ls_op_name(instruction->kind));
}

/* Those of the pieces that a member has or gets. */
typedef struct own_pieces {
  ls_deal_piece *items; /* NULL: they are counted */
  int member, count;
} own_pieces;

static void take_piece(void *context, const ls_deal_piece *piece) {
  own_pieces *own = context;
  if (piece->from != own->member && piece->to != own->member) return;
  if (own->items) own->items[own->count] = *piece;
  own->count++;
}

static ls_status load_pieces(const ls_rank *rank, const ls_program *program,
                             const ls_instruction *instruction, ls_loaded *made, ls_error *error) {
  const ls_axis_order group = ls_instruction_group(program, instruction);
  own_pieces own = {.member = ls_mesh_index(&program->mesh, rank->number, group)};
  ls_deal_pieces(program, instruction, take_piece, &own);
  made->pieces = own.items = calloc((size_t)own.count + 1, sizeof *own.items);
  if (!own.items) return ls_fail(error, LS_FAILED, "out of memory for %d pieces", own.count);
  made->piece_count = own.count;
  own.count = 0;
  ls_deal_pieces(program, instruction, take_piece, &own);
  return LS_OK;
}

static ls_status load_instruction(ls_rank *rank, const ls_program *program, const ls_body *body,
                                  const ls_instruction *instruction, ls_loaded *made,
                                  ls_error *error) {
  made->instruction = instruction;
  made->tier = tier_of(program, instruction);
  LS_TRY(mark_cells(program, instruction, made, error));
  made->args = (ls_kernel_args){.queue = &rank->queues[made->tier],
                                .attributes = &instruction->attributes,
                                .inputs = instruction->inputs,
                                .outputs = instruction->outputs};
  made->kernel = rank->device->kernels[made->tier].kernel[instruction->kind];
  for (int i = 0; i < instruction->inputs; i++) {
    made->args.in[i] =
        ls_loaded_view(rank->number, program, instruction->in[i], &made->in_offset[i]);
    made->in_buffer_group[i] = buffer_group_in_body(program, body, instruction->in[i]);
  }
  for (int o = 0; o < instruction->outputs; o++) {
    made->args.out[o] =
        ls_loaded_view(rank->number, program, instruction->out[o], &made->out_offset[o]);
    made->out_buffer_group[o] = buffer_group_in_body(program, body, instruction->out[o]);
  }
  made->skipped =
      instruction->first_only &&
      ls_mesh_index(&program->mesh, rank->number, ls_mesh_order(instruction->first_only)) != 0;
  if (instruction->collective == LS_ALL_TO_ALL || instruction->collective == LS_PERMUTE)
    ls_instruction_places(program, instruction, &made->from, &made->to);
  if (ls_collective_deals(instruction->collective))
    LS_TRY(load_pieces(rank, program, instruction, made, error));
  if (ls_collective_communicates(instruction->collective))
    made->group = instruction->peer >= 0
                      ? rank->pairs[instruction->peer]
                      : ls_rank_group_of(rank, ls_instruction_group(program, instruction));
  return LS_OK;
}

static bool takes_bias(ls_op_kind kind) {
  return kind == LS_OP_LINEAR || kind == LS_OP_LINEAR_BLOCKS;
}

/* Gives a product the bias that the next instruction adds to what it made, in its place. */
static void join_bias(const ls_rank *rank, ls_loaded *product, ls_loaded *bias) {
  const ls_instruction *a = product->instruction, *b = bias->instruction;
  const ls_view *vector = &bias->args.in[1], *made = &product->args.out[0];
  if (!rank->device->kernels[LS_TIER_DEVICE].joins_bias || a->collective != LS_COLLECTIVE_NONE ||
      b->collective != LS_COLLECTIVE_NONE || !takes_bias(a->kind) || b->kind != LS_OP_BIAS ||
      product->tier != LS_TIER_DEVICE || bias->tier != LS_TIER_DEVICE || product->skipped ||
      bias->skipped)
    return;
  if (b->in[0] != a->out[0] || a->write[0] != LS_WRITE || b->write[0] != LS_WRITE ||
      bias->out_offset[0] != product->out_offset[0] ||
      bias->out_buffer_group[0] != product->out_buffer_group[0] ||
      bias->args.out[0].dims[1] != made->dims[1] || vector->dtype != made->dtype ||
      vector->valid[0] != made->valid[1] || bias->in_offset[1] % 16 != 0)
    return;
  product->args.in[product->args.inputs] = *vector;
  product->in_offset[product->args.inputs] = bias->in_offset[1];
  product->in_buffer_group[product->args.inputs++] = bias->in_buffer_group[1];
  bias->joined = true;
}

ls_status ls_rank_load(ls_rank *rank, int p, ls_error *error) {
  ls_loaded_program *into = &rank->programs[p];
  const ls_program *program = into->program;
  int buffer_groups = 1;
  for (int b = 0; b < program->bodies.count; b++)
    if (program->bodies.items[b].buffer_groups.count > buffer_groups)
      buffer_groups = program->bodies.items[b].buffer_groups.count;
  const int count = program->instructions.count;
  into->instructions = calloc((size_t)count + 1, sizeof *into->instructions);
  into->buffer_groups = calloc((size_t)buffer_groups, sizeof *into->buffer_groups);
  if (!into->instructions || !into->buffer_groups)
    return ls_fail(error, LS_FAILED, "out of memory for a program of %d instructions", count);
  for (int b = 0; b < program->bodies.count; b++) {
    const ls_body *body = &program->bodies.items[b];
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *instruction = &program->instructions.items[i];
      LS_TRY(load_instruction(rank, program, body, instruction, &into->instructions[i], error));
      if (i > body->first) join_bias(rank, &into->instructions[i - 1], &into->instructions[i]);
    }
  }
  return LS_OK;
}

void ls_rank_unload(ls_loaded_program *from) {
  for (int i = 0; from->instructions && i < from->program->instructions.count; i++)
    free(from->instructions[i].pieces);
  free(from->instructions);
}

const char *ls_loaded_name(const ls_program *program, const ls_instruction *instruction) {
  const int about = instruction->outputs ? instruction->out[0] : instruction->in[0];
  return program->values.items[about].name;
}

/* Gives an instruction the workspace, of which no library behind its kernel may want more. */
static ls_status give_workspace(ls_rank *rank, const ls_program *program, ls_loaded *each,
                                ls_error *error) {
  const ls_instruction *instruction = each->instruction;
  if (!instruction) return LS_OK; /* no action runs it */
  if (each->tier == LS_TIER_HOST && !rank->device->memory->addressable) return LS_OK;
  const ls_kernel_table *table = &rank->device->kernels[each->tier];
  each->args.workspace = rank->workspace;
  each->args.workspace_bytes = rank->workspace_bytes;
  if (instruction->collective != LS_COLLECTIVE_NONE) return LS_OK;
  for (int o = 0; o < instruction->outputs; o++)
    each->args.accumulate[o] = instruction->write[o] != LS_WRITE;
  if (table->prepare && !each->skipped && !each->joined)
    LS_TRY(table->prepare(instruction->kind, &each->args, error));
  const size_t wanted = table->wants ? table->wants(instruction->kind, &each->args) : 0;
  if (wanted <= rank->workspace_bytes) return LS_OK;
  return ls_fail(error, LS_FAILED,
                 "%s of %s: the library behind it wants %zu bytes of workspace, and the recipe of "
                 "%s (%s) has %zu: give another dtype, and report this",
                 ls_op_name(instruction->kind), ls_loaded_name(program, instruction), wanted,
                 rank->device->facts.name, rank->device->facts.set, rank->workspace_bytes);
}

ls_status ls_rank_give_workspace(ls_rank *rank, ls_error *error) {
  size_t bytes = 0;
  for (int p = 0; p < rank->program_count; p++) {
    const size_t wanted =
        (size_t)ls_program_workspace(&rank->device->facts, rank->programs[p].program, rank->number);
    if (wanted > bytes) bytes = wanted;
  }
  if (!bytes) return LS_OK;
  int none;
  rank->workspace = rank->device->memory->reserve(bytes, false, &none);
  rank->workspace_bytes = bytes;
  if (!rank->workspace)
    return ls_fail(error, LS_FAILED, "out of memory for %zu bytes of workspace", bytes);
  for (int p = 0; p < rank->program_count; p++)
    for (int i = 0; i < rank->programs[p].program->instructions.count; i++)
      LS_TRY(give_workspace(rank, rank->programs[p].program, &rank->programs[p].instructions[i],
                            error));
  return LS_OK;
}
