/* Collectives over axes inside a stage: what they do to placements, over just the axes where the
 * value is as they expect. Every rank of the stage runs the same list, so they meet. */
#include "check/proof.h"

/* Whether the collective takes what lies there on an axis. */
static bool takes(const ls_instruction *instruction, ls_place place, ls_place cut) {
  switch (instruction->collective) {
    case LS_ALL_GATHER: return place.kind == cut.kind && place.dim == cut.dim && !place.shift;
    case LS_ALL_TO_ALL: return place.kind == LS_SHARDED && !place.shift;
    case LS_PERMUTE: return place.kind == LS_SHARDED;
    default: return place.kind == LS_PARTIAL && place.reduce == instruction->reduce;
  }
}

/* Whether it makes what is declared of its target out of that. */
static bool makes(ls_collective collective, ls_place from, ls_place to, ls_place cut) {
  switch (collective) {
    case LS_REDUCE_SCATTER: return to.kind == cut.kind && to.dim == cut.dim && !to.shift;
    case LS_ALL_TO_ALL: return to.kind == LS_SHARDED && to.dim != from.dim && !to.shift;
    case LS_PERMUTE: return to.kind == LS_SHARDED && to.dim == from.dim && to.order == from.order;
    default: return true; /* the same on all */
  }
}

/* What the collective does to one value. */
static ls_status change_axis(ls_stage *stage, int axis, ls_place *place, ls_place cut,
                             ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_collective collective = instruction->collective;
  const ls_place to = stage->program->values.items[instruction->out[0]].placement.on[axis];
  const bool reduces = collective == LS_ALL_REDUCE || collective == LS_REDUCE_SCATTER;
  if (!takes(instruction, *place, cut))
    return ls_proof_fail(stage, error, "%s over %s, where the value is %s: expected %s",
                         ls_collective_name(collective), stage->proof->mesh.axes[axis].name,
                         place->kind == LS_REPLICATED ? "the same on all ranks"
                         : place->kind == LS_PARTIAL  ? "partial"
                                                      : "cut",
                         !reduces                        ? "it cut there"
                         : instruction->reduce == LS_MAX ? "a partial maximum"
                                                         : "a partial sum");
  if (!makes(collective, *place, to, cut))
    return ls_proof_fail(stage, error, "%s over %s into what it does not make: expected %s",
                         ls_collective_name(collective), stage->proof->mesh.axes[axis].name,
                         collective == LS_PERMUTE      ? "the same shards, moved on"
                         : collective == LS_ALL_TO_ALL ? "shards of another dimension"
                                                       : "shards");
  const bool shards = collective != LS_ALL_REDUCE && collective != LS_ALL_GATHER;
  *place = shards ? to : (ls_place){0};
  return LS_OK;
}

/* cut: what is gathered or scattered into. */
static ls_status change(ls_stage *stage, const ls_content *content, ls_place cut, ls_content *made,
                        ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  *made = *content;
  if (content->kind == LS_CONTENT_SUM && content->terms.count == 0) return LS_OK; /* zero */
  if (content->kind == LS_CONTENT_SUM && instruction->collective != LS_ALL_REDUCE)
    return ls_proof_fail(stage, error, "moves a cell in shards: expected an all-reduce");
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    if ((instruction->axes & stage->proof->active) >> axis & 1)
      LS_TRY(change_axis(stage, axis, &made->placement.on[axis], cut, error));
  stage->proof->report.reductions +=
      instruction->collective == LS_ALL_REDUCE || instruction->collective == LS_REDUCE_SCATTER;
  return LS_OK;
}

static ls_status expect_count(const ls_stage *stage, int64_t expected, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->count == expected) return LS_OK;
  return ls_proof_fail(stage, error, "moves %lld elements: expected %lld",
                       (long long)instruction->count, (long long)expected);
}

/* Shards are moved in order only if no axis cuts the dimension inside of those that take part; and
 * uneven ones are padded over all tensor axes together, of which all take part then or none. Data
 * axes cut evenly, inside of these or outside. */
static ls_status check_cut(const ls_stage *stage, const ls_placement *cut, int dim,
                           ls_error *error) {
  const ls_proof *proof = stage->proof;
  const ls_axes moved = ls_proof_instruction(stage)->axes & proof->active;
  const ls_axes tensor = proof->active & ls_mesh_axes(&proof->mesh, LS_MESH_TENSOR);
  ls_axes axes = 0;
  for (int axis = 0; axis < proof->mesh.count; axis++)
    if (tensor >> axis & 1 && cut->on[axis].kind == LS_SHARDED && cut->on[axis].dim == dim)
      axes |= 1u << axis;
  const bool whole = (moved & tensor) == axes || !(moved & tensor);
  if (whole && ls_axes_innermost(proof, cut, dim, moved)) return LS_OK;
  return ls_proof_fail(stage, error,
                       "moves rows over some of the axes that cut them: expected all of these and "
                       "no other");
}

/* All axes change alike and in one order, so that the k-th rank's shard before it is the k-th
 * after.
 */
static ls_status check_exchange(const ls_stage *stage, const ls_placement *from,
                                const ls_placement *to, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_axes axes = instruction->axes & stage->proof->active;
  int first = 0;
  while (!(axes >> first & 1)) first++;
  for (int axis = first; axis < stage->proof->mesh.count; axis++) {
    if (!(axes >> axis & 1)) continue;
    const bool alike = from->on[axis].dim == from->on[first].dim &&
                       to->on[axis].dim == to->on[first].dim &&
                       from->on[axis].order == to->on[axis].order;
    if ((axis != first && !alike) || (axis != first && instruction->collective == LS_PERMUTE))
      return ls_proof_fail(stage, error,
                           "changes its axes in several ways: expected one dimension and order");
  }
  if (instruction->collective == LS_PERMUTE) return LS_OK;
  LS_TRY(check_cut(stage, from, from->on[first].dim, error));
  return check_cut(stage, to, to->on[first].dim, error);
}

/* Behind a tensor of uneven rows the last shards' padding must have room. */
static ls_status pad(const ls_stage *stage, ls_operand *whole, ls_error *error) {
  const ls_value *value = &stage->program->values.items[whole->value];
  const ls_storage *storage = &stage->program->storages.items[value->storage];
  const int64_t bytes = ls_proof_instruction(stage)->count * (int64_t)ls_dtype_bytes(value->dtype);
  if (bytes > whole->reach - whole->begin) whole->reach = whole->begin + bytes;
  if (whole->reach > storage->offset + storage->bytes)
    return ls_proof_fail(stage, error,
                         "moves more than the storage of %s holds: expected room for "
                         "the padding",
                         value->name);
  return LS_OK;
}

static ls_status run_tensor(ls_stage *stage, ls_operand *in, ls_operand *out, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_value *source = &stage->program->values.items[in->value];
  const ls_value *target = &stage->program->values.items[out->value];
  const ls_content *content;
  ls_content made;
  for (int d = 0; d < source->ndim; d++)
    if (source->ndim != target->ndim || source->global[d] != target->global[d])
      return ls_proof_fail(stage, error, "goes from one size to another: expected the same");
  LS_TRY(ls_memory_read(stage, in, &content, error));
  LS_TRY(ls_check_declared(stage, in->value, &content->placement, error));
  LS_TRY(change(stage, content, (ls_place){.kind = LS_SHARDED}, &made, error));
  if (content->rows.count && instruction->collective != LS_ALL_REDUCE)
    return ls_proof_fail(stage, error,
                         "moves some of the rows that it gathers or scatters: "
                         "expected all");
  const int64_t ranks = ls_proof_group(stage->proof, instruction->axes & stage->proof->active);
  const int64_t before = stage->extents[in->value].elements;
  switch (instruction->collective) {
    case LS_ALL_GATHER:
      LS_TRY(check_cut(stage, &content->placement, 0, error));
      LS_TRY(expect_count(stage, ranks * before, error));
      LS_TRY(pad(stage, out, error));
      break;
    case LS_REDUCE_SCATTER:
      LS_TRY(check_cut(stage, &made.placement, 0, error));
      LS_TRY(expect_count(stage, ranks * stage->extents[out->value].elements, error));
      LS_TRY(pad(stage, in, error));
      break;
    case LS_ALL_TO_ALL:
    case LS_PERMUTE:
      LS_TRY(check_exchange(stage, &content->placement, &made.placement, error));
      LS_TRY(expect_count(stage, instruction->collective == LS_PERMUTE ? before : ranks * before,
                          error));
      break;
    default: LS_TRY(expect_count(stage, before, error));
  }
  const bool in_place = instruction->collective == LS_ALL_REDUCE && ls_operands_same(in, out);
  if (ls_operands_overlap(in, out) && !in_place)
    return ls_proof_fail(stage, error, "writes over what it reads: expected a place of its own");
  LS_TRY(ls_check_declared(stage, out->value, &made.placement, error));
  return ls_memory_put(stage, 0, out, &made, error);
}

/* Flat buffers: whether shards and whole fit together. */
static ls_status check_flat(const ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_value *source = &stage->program->values.items[instruction->in[0]];
  const ls_value *target = &stage->program->values.items[instruction->out[0]];
  const ls_extent *from = &stage->extents[instruction->in[0]];
  const ls_extent *to = &stage->extents[instruction->out[0]];
  const ls_axes axes = instruction->axes & stage->proof->active;
  const bool all = source->flat_offset == 0 && source->global[0] == source->flat_elements;
  if (source->flat_offset != target->flat_offset || source->global[0] != target->global[0] ||
      source->flat_elements != target->flat_elements)
    return ls_proof_fail(stage, error, "goes from one range to another: expected the same of both");
  if (instruction->collective == LS_ALL_REDUCE) {
    if (!ls_value_same_place(source, target))
      return ls_proof_fail(stage, error, "reduces into another place: expected its own");
    if (from->flat_axes && !all)
      return ls_proof_fail(stage, error, "reduces a part of a shard: expected all of it");
    return expect_count(stage, from->flat_axes ? from->shard : source->global[0], error);
  }
  if (instruction->collective != LS_ALL_GATHER && instruction->collective != LS_REDUCE_SCATTER)
    return ls_proof_fail(stage, error,
                         "moves shards of a unit: expected them gathered or scattered");
  const ls_extent *shard = instruction->collective == LS_ALL_GATHER ? from : to;
  const ls_extent *whole = shard == from ? to : from;
  if (whole->flat_axes || !shard->flat_axes || !all)
    return ls_proof_fail(stage, error, "its operands are not a unit and its shards: expected both");
  if (axes != shard->flat_axes)
    return ls_proof_fail(stage, error, "moves shards over other axes: expected those that cut it");
  return expect_count(stage, source->global[0], error);
}

ls_status ls_check_own_shard(ls_stage *stage, int value, const ls_content *content,
                             ls_error *error) {
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    if (stage->extents[value].flat_axes >> axis & 1 &&
        content->placement.on[axis].kind != LS_SHARDED_FLAT)
      return ls_proof_fail(stage, error,
                           "changes the own shard of what is needed whole: expected it reduced "
                           "into shards first");
  return LS_OK;
}

static ls_status move_region(ls_stage *stage, const ls_region *region, const ls_operand *in,
                             const ls_operand *out, ls_error *error) {
  ls_operand source = *in, target = *out;
  source.begin = region->begin;
  source.end = source.reach = region->end;
  target.begin = out->begin + (region->begin - in->begin);
  target.end = target.reach = out->begin + (region->end - in->begin);
  const ls_content *content;
  ls_content made;
  LS_TRY(ls_memory_read(stage, &source, &content, error));
  if (ls_proof_instruction(stage)->collective == LS_ALL_REDUCE)
    LS_TRY(ls_check_own_shard(stage, in->value, content, error));
  LS_TRY(change(stage, content, (ls_place){.kind = LS_SHARDED_FLAT}, &made, error));
  ls_note_region(stage, region->parameter, stage->program->values.items[out->value].storage,
                 target.begin, target.end);
  return ls_memory_put(stage, 0, &target, &made, error);
}

static ls_status run_flat(ls_stage *stage, const ls_operand *in, const ls_operand *out,
                          ls_error *error) {
  LS_TRY(check_flat(stage, error));
  const ls_value *source = &stage->program->values.items[in->value];
  const ls_regions *regions = &stage->regions[source->storage];
  for (int r = 0; r < regions->items.count; r++) {
    const ls_region region = regions->items.items[r];
    if (region.end <= in->begin || region.begin >= in->end) continue;
    if (region.begin < in->begin || region.end > in->end)
      return ls_proof_fail(stage, error, "moves a part of %s: expected all of it or none",
                           stage->program->parameters[region.parameter].name);
    LS_TRY(move_region(stage, &region, in, out, error));
  }
  return LS_OK;
}

ls_status ls_run_collective(ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_program *program = stage->program;
  if (instruction->inputs != 1 || instruction->outputs != 1)
    return ls_proof_fail(stage, error, "has other operands: expected one input and one output");
  if (!(instruction->axes & stage->proof->active))
    return ls_proof_fail(stage, error, "is over no axis with several ranks: expected one");
  if (instruction->collective != LS_REDUCE_SCATTER && instruction->write[0] != LS_WRITE)
    return ls_proof_fail(stage, error, "adds to its target: expected to write it");
  if (instruction->collective != LS_ALL_REDUCE && instruction->reduce != LS_SUM)
    return ls_proof_fail(stage, error, "takes the maximum: expected sums");
  ls_operand in, out;
  LS_TRY(ls_operand_find(stage, instruction->in[0], &in, error));
  LS_TRY(ls_operand_find(stage, instruction->out[0], &out, error));
  const ls_value *source = &program->values.items[in.value];
  const ls_value *target = &program->values.items[out.value];
  if (!source->flat_elements != !target->flat_elements || source->dtype != target->dtype)
    return ls_proof_fail(stage, error, "its operands are of two kinds or types: expected one");
  stage->proof->report.collectives++;
  if (ls_collective_deals(instruction->collective))
    LS_TRY(ls_run_dealing(stage, &in, &out, error));
  else
    LS_TRY(source->flat_elements ? run_flat(stage, &in, &out, error)
                                 : run_tensor(stage, &in, &out, error));
  return instruction->phase == LS_BEGIN ? ls_begin_transfer(stage, error) : LS_OK;
}
