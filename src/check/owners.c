/* Whole matrices at their owners: what a deal takes there, and where some rank has all of one. */
#include "ir/owners.h"
#include "check/proof.h"

/* One of LS_DEAL and LS_HAND_BACK: the buffer of a unit, and that of owners. */
typedef struct dealing {
  const ls_operand *shards, *owned;
  bool back;
} dealing;

static int64_t bytes_of(const ls_stage *stage, const ls_operand *operand) {
  return (int64_t)ls_dtype_bytes(stage->program->values.items[operand->value].dtype);
}

/* The buffers whole, and ranks that all have a shard of the owners'. */
static ls_status check_buffers(const ls_stage *stage, const dealing *of, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_axes axes = instruction->axes & stage->proof->active;
  const ls_axes inside = ls_mesh_inside(&stage->proof->mesh) & stage->proof->active;
  const int values[2] = {of->shards->value, of->owned->value};
  for (int v = 0; v < 2; v++) {
    const ls_value *value = &stage->program->values.items[values[v]];
    if (!value->flat_elements || value->flat_offset || value->global[0] != value->flat_elements)
      return ls_proof_fail(stage, error, "deals a part of a unit: expected all of it");
  }
  if (axes != inside || stage->extents[of->owned->value].flat_axes != axes)
    return ls_proof_fail(stage, error,
                         "deals over some axes only, or not to all ranks: expected all of the "
                         "stage's");
  if (ls_operands_overlap(of->shards, of->owned))
    return ls_proof_fail(stage, error, "writes over what it reads: expected a place of its own");
  return LS_OK;
}

/* Where the unit's buffer and the owners' have the parameter. */
static ls_status find_places(const ls_stage *stage, const dealing *of, int p, ls_operand *shards,
                             ls_operand *owned, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_program_parameter *about = &program->parameters[p];
  const ls_extent *all = &stage->extents[of->owned->value];
  const int master = about->part[LS_PART_MASTER];
  const ls_value *unit = &program->values.items[of->shards->value];
  const int64_t elements = about->ndim == 2 ? about->dims[0] * about->dims[1] : 0;
  const ls_value *part = master < 0 ? NULL : &program->values.items[master];
  if (!part || !elements || part->flat_elements != unit->flat_elements ||
      part->dtype != unit->dtype ||
      stage->extents[master].flat_axes != stage->extents[of->shards->value].flat_axes)
    return ls_proof_fail(stage, error, "deals %s, which is no matrix of this buffer: expected one",
                         about->name);
  if (about->owned + elements > program->values.items[of->owned->value].flat_elements ||
      about->owned / all->shard != (about->owned + elements - 1) / all->shard)
    return ls_proof_fail(stage, error, "deals %s to several owners: expected one", about->name);
  *shards = *of->shards;
  shards->begin += part->flat_offset * bytes_of(stage, of->shards);
  shards->end = shards->reach = shards->begin + part->global[0] * bytes_of(stage, of->shards);
  *owned = *of->owned;
  owned->begin += about->owned * bytes_of(stage, of->owned);
  owned->end = owned->reach = owned->begin + elements * bytes_of(stage, of->owned);
  return LS_OK;
}

/* How the parameter's elements lie in the unit's buffer. */
static ls_placement places_of(const ls_stage *stage, int p) {
  const int *part = stage->program->parameters[p].part;
  return ls_part_placement(stage, &stage->program->values.items[part[LS_PART_USED]].placement,
                           part[LS_PART_MASTER]);
}

static ls_status deal_one(ls_stage *stage, const dealing *of, int p, ls_error *error) {
  const ls_program *program = stage->program;
  ls_operand shards, owned;
  LS_TRY(find_places(stage, of, p, &shards, &owned, error));
  const ls_operand *from = of->back ? &owned : &shards, *to = of->back ? &shards : &owned;
  const ls_placement cut = places_of(stage, p);
  const ls_axes axes = ls_proof_instruction(stage)->axes & stage->proof->active;
  const ls_content *content;
  LS_TRY(ls_memory_read(stage, from, &content, error));
  LS_TRY(ls_check_whole(stage, content, program->parameters[p].name, error));
  const ls_node_record *of_what =
      ls_expression_record(&stage->proof->expressions, content->expression);
  if (content->kind != LS_CONTENT_VALUE || of_what->kind != (int)LS_LEAF_TEMPORARY ||
      of_what->in[0] != p)
    return ls_proof_fail(stage, error, "deals something else: expected what was made of %s",
                         program->parameters[p].name);
  ls_content made = *content;
  for (int axis = 0; axis < stage->proof->mesh.count; axis++) {
    const ls_place owners = program->values.items[of->owned->value].placement.on[axis];
    const ls_place here = of->back ? owners : cut.on[axis];
    if (!(axes >> axis & 1)) continue;
    if (!ls_place_equal(content->placement.on[axis], here))
      return ls_proof_fail(stage, error, "deals %s, which is cut otherwise over %s: expected %s",
                           program->parameters[p].name, stage->proof->mesh.axes[axis].name,
                           ls_place_print(stage->proof->arena, here));
    made.placement.on[axis] = of->back ? cut.on[axis] : owners;
  }
  ls_note_region(stage, p, program->values.items[to->value].storage, to->begin, to->end);
  return ls_memory_write(stage, to, &made, error);
}

ls_status ls_run_dealing(ls_stage *stage, const ls_operand *in, const ls_operand *out,
                         ls_error *error) {
  const ls_program *program = stage->program;
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const bool back = instruction->collective == LS_HAND_BACK;
  const dealing of = {back ? out : in, back ? in : out, back};
  int matrices = 0;
  LS_TRY(check_buffers(stage, &of, error));
  for (int p = 0; p < program->parameter_count; p++) {
    if (program->parameters[p].unit != instruction->unit || program->parameters[p].owned < 0)
      continue;
    LS_TRY(deal_one(stage, &of, p, error));
    matrices++;
  }
  if (!matrices) return ls_proof_fail(stage, error, "deals no matrix: expected some of a unit");
  if (instruction->count == ls_deal_most(program, instruction)) return LS_OK;
  return ls_proof_fail(stage, error, "says that a rank sends %lld elements: expected %lld",
                       (long long)instruction->count,
                       (long long)ls_deal_most(program, instruction));
}

ls_status ls_check_owned(const ls_stage *stage, int parameter, int index, const ls_content *content,
                         ls_error *error) {
  const ls_program_parameter *about = &stage->program->parameters[parameter];
  const ls_value *value = &stage->program->values.items[index];
  const ls_extent *extent = &stage->extents[index];
  const int64_t elements = about->ndim == 2 ? about->dims[0] * about->dims[1] : 0;
  bool whole = elements > 0 && value->flat_elements && value->global[0] == elements &&
               value->flat_rows == about->dims[0] && value->flat_row_elements == about->dims[1];
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    whole = whole && (!(stage->proof->active >> axis & 1) ||
                      content->placement.on[axis].kind == LS_REPLICATED ||
                      content->placement.on[axis].kind == LS_SHARDED_FLAT);
  if (whole && extent->flat_axes)
    whole =
        value->flat_offset / extent->shard == (value->flat_offset + elements - 1) / extent->shard;
  if (whole) return LS_OK;
  return ls_proof_fail(stage, error,
                       "makes a part of the matrix of %s orthogonal: expected all of it at its "
                       "owner",
                       about->name);
}
