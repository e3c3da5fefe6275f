/* Collectives over axes inside a stage: what they do to placements, over just the axes where the
 * value is as they expect. Every rank of the stage runs the same list, so they meet. */
#include "check/proof.h"

/* What the collective does to one value. */
static ls_status change_axis(ls_stage *stage, const ls_instruction *instruction, int axis,
                             ls_place *place, ls_place cut, ls_error *error) {
  const bool gathers = instruction->collective == LS_ALL_GATHER;
  if (gathers ? place->kind != cut.kind || place->dim != cut.dim
              : place->kind != LS_PARTIAL || place->reduce != instruction->reduce)
    return ls_proof_fail(stage, error, "%s over %s, where the value is %s: expected %s",
                         ls_collective_name(instruction->collective),
                         stage->proof->mesh.axes[axis].name,
                         place->kind == LS_REPLICATED ? "the same on all ranks"
                         : place->kind == LS_PARTIAL  ? "partial"
                                                      : "cut",
                         gathers                         ? "it cut there"
                         : instruction->reduce == LS_MAX ? "a partial maximum"
                                                         : "a partial sum");
  if (instruction->collective == LS_REDUCE_SCATTER)
    *place = cut;
  else
    *place = (ls_place){0};
  return LS_OK;
}

/* cut: what is gathered or scattered into. */
static ls_status change(ls_stage *stage, const ls_content *content, ls_place cut, ls_content *made,
                        ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  *made = *content;
  if (content->kind == LS_CONTENT_SUM && content->terms.count == 0) return LS_OK; /* zero */
  if (content->kind == LS_CONTENT_SUM && instruction->collective != LS_ALL_REDUCE)
    return ls_proof_fail(stage, error, "moves a cell in pieces: expected an all-reduce");
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    if ((instruction->axes & stage->proof->active) >> axis & 1)
      LS_TRY(change_axis(stage, instruction, axis, &made->placement.on[axis], cut, error));
  stage->proof->report.reductions += instruction->collective != LS_ALL_GATHER;
  return LS_OK;
}

static ls_status expect_count(const ls_stage *stage, int64_t expected, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->count == expected) return LS_OK;
  return ls_proof_fail(stage, error, "moves %lld elements: expected %lld",
                       (long long)instruction->count, (long long)expected);
}

/* The tensor axes that cut rows: moving rows keeps them in order only if all of these take part. */
static ls_axes row_axes(const ls_stage *stage, const ls_placement *placement) {
  ls_axes axes = 0;
  const ls_axes tensor = stage->proof->active & ls_mesh_axes(&stage->proof->mesh, LS_MESH_TENSOR);
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    if (tensor >> axis & 1 && placement->on[axis].kind == LS_SHARDED &&
        placement->on[axis].dim == 0)
      axes |= 1u << axis;
  return axes;
}

static ls_status check_rows(const ls_stage *stage, const ls_placement *cut, int64_t piece,
                            ls_error *error) {
  const ls_axes axes = ls_proof_instruction(stage)->axes & stage->proof->active;
  if (axes != row_axes(stage, cut))
    return ls_proof_fail(stage, error,
                         "moves rows over some of the axes that cut them: expected "
                         "all of these and no other");
  return expect_count(stage, ls_proof_group(stage->proof, axes) * piece, error);
}

/* Behind a tensor of uneven rows the last pieces' padding must have room. */
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
  LS_TRY(change(stage, content, (ls_place){LS_SHARDED, 0, LS_SUM}, &made, error));
  if (content->rows.count && instruction->collective != LS_ALL_REDUCE)
    return ls_proof_fail(stage, error,
                         "moves some of the rows that it gathers or scatters: "
                         "expected all");
  if (instruction->collective == LS_ALL_REDUCE) {
    LS_TRY(expect_count(stage, stage->extents[in->value].elements, error));
  } else if (instruction->collective == LS_ALL_GATHER) {
    LS_TRY(check_rows(stage, &content->placement, stage->extents[in->value].elements, error));
    LS_TRY(pad(stage, out, error));
  } else {
    LS_TRY(check_rows(stage, &made.placement, stage->extents[out->value].elements, error));
    LS_TRY(pad(stage, in, error));
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
    if (from->cut && !all)
      return ls_proof_fail(stage, error, "reduces a part of a piece: expected all of it");
    return expect_count(stage, from->cut ? from->shard : source->global[0], error);
  }
  const ls_extent *shard = instruction->collective == LS_ALL_GATHER ? from : to;
  const ls_extent *whole = shard == from ? to : from;
  if (whole->cut || !shard->cut || !all)
    return ls_proof_fail(stage, error, "its operands are not a unit and its pieces: expected both");
  if (axes != shard->cut)
    return ls_proof_fail(stage, error, "moves shards over other axes: expected those that cut it");
  return expect_count(stage, source->global[0], error);
}

ls_status ls_check_own_piece(ls_stage *stage, int value, const ls_content *content,
                             ls_error *error) {
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    if (stage->extents[value].cut >> axis & 1 &&
        content->placement.on[axis].kind != LS_SHARDED_FLAT)
      return ls_proof_fail(stage, error,
                           "changes the own piece of what is needed whole: expected it reduced "
                           "into pieces first");
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
    LS_TRY(ls_check_own_piece(stage, in->value, content, error));
  LS_TRY(change(stage, content, (ls_place){LS_SHARDED_FLAT, 0, LS_SUM}, &made, error));
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
  LS_TRY(source->flat_elements ? run_flat(stage, &in, &out, error)
                               : run_tensor(stage, &in, &out, error));
  return instruction->phase == LS_BEGIN ? ls_begin_transfer(stage, error) : LS_OK;
}
