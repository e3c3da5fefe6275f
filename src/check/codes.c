/* Weights that are gathered as codes of 8 bits: of a rank's shard the largest magnitude, which is
 * partial until all ranks' have met, and codes by the whole weight's. What codes stand for is what
 * the model rounds that weight to. */
#include "check/proof.h"

static ls_status expect_operands(const ls_stage *stage, int inputs, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->inputs != inputs || instruction->outputs != 1)
    return ls_proof_fail(stage, error, "has %d inputs and %d outputs: expected %d and 1",
                         instruction->inputs, instruction->outputs, inputs);
  if (instruction->first_only || instruction->write[0] != LS_WRITE)
    return ls_proof_fail(stage, error, "adds, or counts some ranks alone: expected each shard's");
  return LS_OK;
}

/* What a rank has of a stored weight. */
static ls_status read_shard(ls_stage *stage, ls_operand *operand, const ls_content **weight,
                            ls_error *error) {
  const int value = ls_proof_instruction(stage)->in[0];
  LS_TRY(ls_operand_find(stage, value, operand, error));
  LS_TRY(ls_memory_read(stage, operand, weight, error));
  const ls_expressions *all = &stage->proof->expressions;
  if (stage->program->values.items[value].flat_elements && (*weight)->kind == LS_CONTENT_VALUE &&
      ls_expression_record(all, (*weight)->expression)->kind == (int)LS_LEAF_PARAMETER)
    return LS_OK;
  return ls_proof_fail(stage, error, "reads %s: expected a rank's elements of a weight",
                       stage->program->values.items[value].name);
}

/* The model's node of that kind over these. */
static ls_status find_node(ls_stage *stage, ls_op_kind kind, int inputs, const int *in, int *node,
                           ls_error *error) {
  ls_node_record made = {
      .kind = (int)kind, .inputs = inputs, .attributes = &ls_proof_instruction(stage)->attributes};
  for (int i = 0; i < inputs; i++) made.in[i] = in[i];
  *node = ls_expression_find(&stage->proof->expressions, &made);
  stage->proof->report.model_ops += *node >= 0;
  if (*node >= 0) return LS_OK;
  const int p = ls_expression_record(&stage->proof->expressions, in[0])->in[0];
  return ls_proof_fail(stage, error,
                       "stands for %s of %s by other numbers than the model has it: "
                       "expected the model's",
                       ls_op_name(kind), stage->program->parameters[p].name);
}

ls_status ls_run_largest(ls_stage *stage, ls_error *error) {
  const int out = ls_proof_instruction(stage)->out[0];
  ls_operand operand;
  const ls_content *weight;
  int node;
  LS_TRY(expect_operands(stage, 1, error));
  LS_TRY(read_shard(stage, &operand, &weight, error));
  LS_TRY(find_node(stage, LS_OP_AMAX, 1, &weight->expression, &node, error));
  ls_content made = {.expression = node * LS_EXPRESSION_OUTPUTS, .microbatch = -1};
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    if ((stage->proof->active >> axis & 1) && weight->placement.on[axis].kind != LS_REPLICATED)
      made.placement.on[axis] = (ls_place){.kind = LS_PARTIAL, .reduce = LS_MAX};
  if (stage->program->values.items[out].flat_elements)
    return ls_proof_fail(stage, error, "makes elements of a unit: expected one number");
  LS_TRY(ls_check_declared(stage, out, &made.placement, error));
  LS_TRY(ls_expected_check_form(stage, out, &made, error));
  LS_TRY(ls_operand_find(stage, out, &operand, error));
  ls_note_region(stage, ls_expression_record(&stage->proof->expressions, weight->expression)->in[0],
                 stage->program->values.items[out].storage, operand.begin, operand.end);
  return ls_memory_write(stage, &operand, &made, error);
}

/* The range that the codes are of. */
static ls_status check_range(const ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_value *from = &stage->program->values.items[instruction->in[0]];
  const ls_value *to = &stage->program->values.items[instruction->out[0]];
  if (to->dtype == LS_U8 && from->flat_elements == to->flat_elements &&
      from->flat_offset == to->flat_offset && from->global[0] == to->global[0] &&
      from->flat_rows == to->flat_rows && from->flat_row_elements == to->flat_row_elements &&
      stage->extents[instruction->in[0]].flat_axes == stage->extents[instruction->out[0]].flat_axes)
    return LS_OK;
  return ls_proof_fail(stage, error,
                       "makes codes of one range in another: expected the same of both");
}

ls_status ls_run_codes(ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  ls_operand operand;
  const ls_content *weight, *largest;
  int node;
  LS_TRY(expect_operands(stage, 2, error));
  LS_TRY(read_shard(stage, &operand, &weight, error));
  LS_TRY(ls_operand_find(stage, instruction->in[1], &operand, error));
  LS_TRY(ls_memory_read(stage, &operand, &largest, error));
  LS_TRY(ls_check_whole(stage, largest, "the largest magnitude", error));
  LS_TRY(ls_check_declared(stage, instruction->in[1], &largest->placement, error));
  if (largest->kind != LS_CONTENT_VALUE)
    return ls_proof_fail(stage, error, "rounds by no number of the model: expected one");
  LS_TRY(find_node(stage, LS_OP_FP8, 2, (int[]){weight->expression, largest->expression}, &node,
                   error));
  LS_TRY(check_range(stage, error));
  const ls_content made = {.kind = LS_CONTENT_CODES,
                           .expression = node * LS_EXPRESSION_OUTPUTS,
                           .microbatch = -1,
                           .placement = weight->placement};
  LS_TRY(ls_operand_find(stage, instruction->out[0], &operand, error));
  ls_note_region(stage, ls_expression_record(&stage->proof->expressions, weight->expression)->in[0],
                 stage->program->values.items[instruction->out[0]].storage, operand.begin,
                 operand.end);
  return ls_memory_write(stage, &operand, &made, error);
}

ls_status ls_decoded(const ls_stage *stage, const ls_content *const *in, ls_content *out,
                     ls_error *error) {
  const ls_expressions *all = &stage->proof->expressions;
  if (in[0]->kind != LS_CONTENT_CODES)
    return ls_proof_fail(stage, error, "reads no codes: expected those of a weight");
  const ls_node_record *of = ls_expression_record(all, in[0]->expression);
  if (in[1]->kind != LS_CONTENT_VALUE || of->in[1] != in[1]->expression ||
      !ls_attributes_equal(of->attributes, &ls_proof_instruction(stage)->attributes))
    return ls_proof_fail(stage, error,
                         "decodes %s by another scale or format than it was rounded by: "
                         "expected its own",
                         stage->program->values.items[ls_proof_instruction(stage)->in[0]].name);
  *out = (ls_content){.expression = in[0]->expression, .microbatch = -1};
  return LS_OK;
}
