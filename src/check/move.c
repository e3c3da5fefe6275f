/* Moves between tiers: until its end neither is what it takes written nor what it fills touched,
 * and then that holds what this held. */
#include "check/proof.h"

static ls_tier tier_of(const ls_stage *stage, int value) {
  return ls_pool_tier(ls_program_buffer_group(stage->program, value)->pool);
}

ls_status ls_check_tiers(ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->queue == LS_QUEUE_MOVE)
    return ls_proof_fail(stage, error, "is on the queue of moves: expected another");
  int first = -1;
  for (int i = 0; i < instruction->inputs + instruction->outputs; i++) {
    const int value =
        i < instruction->inputs ? instruction->in[i] : instruction->out[i - instruction->inputs];
    if (ls_program_buffer_group(stage->program, value)->pool == LS_POOL_CELL) continue;
    if (tier_of(stage, value) == LS_TIER_NVME)
      return ls_proof_fail(stage, error, "touches %s, which lies in a file: expected a move",
                           stage->program->values.items[value].name);
    if (first >= 0 && tier_of(stage, value) != tier_of(stage, first))
      return ls_proof_fail(stage, error, "has operands in two memories: expected one");
    first = value;
  }
  return LS_OK;
}

typedef struct movement {
  ls_operand from, to;
} movement;

/* Drives read and write whole blocks: places, and what lies behind them up to the next, must do. */
static ls_status check_block(const ls_stage *stage, const ls_operand *operand, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_operand bytes = ls_operand_bytes(stage, operand);
  const ls_live_interval *live_interval = &program->live_intervals.items[operand->live_interval];
  const int64_t end = (bytes.end + LS_FILE_ALIGNMENT - 1) / LS_FILE_ALIGNMENT * LS_FILE_ALIGNMENT;
  const ls_value *value = &program->values.items[operand->value];
  const ls_extent *extent = &stage->extents[operand->value];
  const int64_t shard = extent->shard * (int64_t)ls_dtype_bytes(value->dtype);
  bool fits = (live_interval->offset + bytes.begin) % LS_FILE_ALIGNMENT == 0 &&
              (!extent->flat_axes || extent->of_unit ||
               shard % LS_FILE_ALIGNMENT == 0) && /* each rank's own begins */
              end <= program->buffer_groups.items[live_interval->buffer_group].bytes;
  for (int p = 0; p < LS_POOL_COUNT; p++)
    fits = fits && program->pool_bytes[p] % LS_FILE_ALIGNMENT == 0;
  if (fits) return LS_OK;
  return ls_proof_fail(stage, error,
                       "moves %s, which does not lie in whole blocks of %d bytes: "
                       "expected it to, as a file wants",
                       program->values.items[operand->value].name, LS_FILE_ALIGNMENT);
}

static ls_status check_operands(const ls_stage *stage, const movement *move, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_value *from = &stage->program->values.items[move->from.value];
  const ls_value *to = &stage->program->values.items[move->to.value];
  bool same = from->flat_elements == to->flat_elements && from->dtype == to->dtype &&
              from->ndim == to->ndim && from->flat_offset == to->flat_offset &&
              ls_places_equal(stage->proof, &from->placement, &to->placement);
  for (int d = 0; d < from->ndim && same; d++) same = from->global[d] == to->global[d];
  if (!same) return ls_proof_fail(stage, error, "goes from one size to another: expected the same");
  if (tier_of(stage, move->from.value) == tier_of(stage, move->to.value))
    return ls_proof_fail(stage, error, "stays in one memory: expected another");
  if (instruction->write[0] != LS_WRITE)
    return ls_proof_fail(stage, error, "adds to its target: expected to write it");
  if (tier_of(stage, move->from.value) == LS_TIER_NVME ||
      tier_of(stage, move->to.value) == LS_TIER_NVME) {
    LS_TRY(check_block(stage, &move->from, error));
    LS_TRY(check_block(stage, &move->to, error));
  }
  int64_t elements = stage->extents[move->from.value].elements;
  if (stage->extents[move->from.value].flat_axes) {
    if (from->flat_offset != 0 || from->global[0] != from->flat_elements)
      return ls_proof_fail(stage, error, "moves a part of a shard: expected all of it");
    elements = stage->extents[move->from.value].shard;
  }
  if (instruction->count != elements)
    return ls_proof_fail(stage, error, "moves %lld elements: expected %lld",
                         (long long)instruction->count, (long long)elements);
  return LS_OK;
}

/* What comes with one tensor, or with one parameter of a unit. */
static ls_status copy_part(ls_stage *stage, const ls_operand *from, const ls_operand *to,
                           bool writes, ls_error *error) {
  const ls_content *content;
  LS_TRY(ls_memory_read(stage, from, &content, error));
  if (!writes) return LS_OK;
  ls_content made = *content;
  const ls_program *program = stage->program;
  const ls_node_record *node = ls_expression_record(&stage->proof->expressions, made.expression);
  const bool master =
      made.kind == LS_CONTENT_VALUE && node->kind == (int)LS_LEAF_PART + (int)LS_PART_MASTER;
  const int storage = program->values.items[to->value].storage;
  /* Without rounding, weights are made from their masters by moving these. */
  if (master &&
      program->values.items[program->parameters[node->in[0]].part[LS_PART_STORED]].storage ==
          storage)
    made.expression =
        ls_expression_leaf(&stage->proof->expressions, LS_LEAF_PARAMETER, node->in[0], node->in[1]);
  return ls_memory_write(stage, to, &made, error);
}

static ls_status copy(ls_stage *stage, const movement *move, bool writes, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_value *from = &program->values.items[move->from.value];
  if (!from->flat_elements) {
    LS_TRY(copy_part(stage, &move->from, &move->to, writes, error));
    return ls_check_declared(stage, move->to.value, &from->placement, error);
  }
  const ls_regions *regions = &stage->regions[from->storage];
  int parts = 0;
  for (int r = 0; r < regions->items.count; r++) {
    const ls_region region = regions->items.items[r];
    if (region.end <= move->from.begin || region.begin >= move->from.end) continue;
    ls_operand source = move->from, target = move->to;
    source.begin = region.begin;
    source.end = source.reach = region.end;
    target.begin = move->to.begin + (region.begin - move->from.begin);
    target.end = target.reach = move->to.begin + (region.end - move->from.begin);
    ls_note_region(stage, region.parameter, program->values.items[target.value].storage,
                   target.begin, target.end);
    LS_TRY(copy_part(stage, &source, &target, writes, error));
    parts++;
  }
  if (!parts) return ls_proof_fail(stage, error, "moves nothing that is known: expected a unit");
  return LS_OK;
}

static ls_status begin_move(ls_stage *stage, const movement *move, ls_error *error) {
  LS_TRY(copy(stage, move, false, error));
  const ls_operand target = ls_operand_bytes(stage, &move->to);
  LS_TRY(ls_memory_forget(stage, &target, error));
  return ls_begin_transfer(stage, error);
}

static ls_status end_move(ls_stage *stage, const movement *move, ls_error *error) {
  LS_TRY(ls_end_transfer(stage, error));
  stage->proof->report.moves++;
  return copy(stage, move, true, error);
}

static ls_status move_once(ls_stage *stage, const movement *move, ls_error *error) {
  LS_TRY(copy(stage, move, false, error));
  const ls_operand target = ls_operand_bytes(stage, &move->to);
  LS_TRY(ls_memory_forget(stage, &target, error));
  stage->proof->report.moves++;
  return copy(stage, move, true, error);
}

ls_status ls_run_move(ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->inputs != 1 || instruction->outputs != 1)
    return ls_proof_fail(stage, error, "has other operands: expected one input and one output");
  const bool once = instruction->phase == LS_WHOLE;
  if ((instruction->queue == LS_QUEUE_MOVE) == once)
    return ls_proof_fail(stage, error,
                         "moves %s: expected moves that begin and end on the queue of "
                         "moves, and those at once in the order of kernels",
                         once ? "at once" : "among kernels");
  if (instruction->queue == LS_QUEUE_COMMUNICATE || instruction->axes || instruction->peer >= 0 ||
      instruction->reduce != LS_SUM)
    return ls_proof_fail(stage, error,
                         "has a group, a peer or another queue: expected a move of one rank's own");
  movement move;
  LS_TRY(ls_operand_find(stage, instruction->in[0], &move.from, error));
  LS_TRY(ls_operand_find(stage, instruction->out[0], &move.to, error));
  LS_TRY(check_operands(stage, &move, error));
  if (once) return move_once(stage, &move, error);
  return instruction->phase == LS_BEGIN ? begin_move(stage, &move, error)
                                        : end_move(stage, &move, error);
}
