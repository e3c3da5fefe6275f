/* Ops: what they read must be whole and fit, what they make follows. */
#include <string.h>

#include "check/proof.h"

typedef struct operands {
  ls_operand in[LS_MAX_INPUTS], out[LS_MAX_OUTPUTS];
  const ls_content *read[LS_MAX_INPUTS];
} operands;

static ls_status find_operands(ls_stage *stage, operands *all, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  for (int i = 0; i < instruction->inputs; i++) {
    LS_TRY(ls_operand_find(stage, instruction->in[i], &all->in[i], error));
    LS_TRY(ls_memory_read(stage, &all->in[i], &all->read[i], error));
  }
  for (int o = 0; o < instruction->outputs; o++)
    LS_TRY(ls_operand_find(stage, instruction->out[o], &all->out[o], error));
  return LS_OK;
}

/* An output may take an input's place only where the row says so. */
static ls_status check_places(const ls_stage *stage, const operands *all, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const int in_place = ls_op_row(instruction->kind)->in_place - 1;
  for (int o = 0; o < instruction->outputs; o++) {
    for (int i = 0; i < instruction->inputs; i++) {
      if (!ls_operands_overlap(&all->in[i], &all->out[o])) continue;
      if (o == 0 && i == in_place && ls_operands_same(&all->in[i], &all->out[o])) continue;
      return ls_proof_fail(stage, error,
                           "writes output %d over its input %d: expected a place of "
                           "its own",
                           o, i);
    }
    for (int p = 0; p < o; p++)
      if (ls_operands_overlap(&all->out[p], &all->out[o]))
        return ls_proof_fail(stage, error, "writes two outputs to one place: expected two");
  }
  return LS_OK;
}

static ls_status note_length(const ls_stage *stage, int64_t lengths[2][128],
                             const ls_operand_labels *labels, int value, ls_error *error) {
  const ls_value *about = &stage->program->values.items[value];
  if (about->flat_elements || about->ndim != labels->ndim)
    return ls_proof_fail(stage, error, "%s has %d dimensions: expected %d", about->name,
                         about->ndim, labels->ndim);
  for (int d = 0; d < labels->ndim; d++) {
    const char *label = labels->dim[d];
    const int64_t length =
        about->global[d] * ls_operand_divisor(labels, d, &ls_proof_instruction(stage)->attributes);
    /* A product's labels have no lengths of their own here: it has one, by its last. */
    int64_t *of = &lengths[label[1] != 0][(int)label[strlen(label) - 1]];
    const int64_t expected = *label == '1' ? 1 : *of;
    if (expected && expected != length)
      return ls_proof_fail(stage, error, "%s has %lld elements in dimension %d: expected %lld",
                           about->name, (long long)length, d, (long long)expected);
    *of = length;
  }
  return LS_OK;
}

/* Operands have the dimensions that the labels say, the same label one length. */
static ls_status check_shapes(const ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_op_labels *labels = &stage->proof->labels[instruction->kind];
  int64_t lengths[2][128] = {{0}};
  if (!ls_op_labels_allow(labels, instruction->inputs, instruction->outputs))
    return ls_proof_fail(stage, error, "has %d inputs and %d outputs: expected %d and %d",
                         instruction->inputs, instruction->outputs, labels->inputs,
                         labels->outputs);
  for (int i = 0; i < instruction->inputs; i++)
    LS_TRY(note_length(stage, lengths, &labels->in[i], instruction->in[i], error));
  for (int o = 0; o < instruction->outputs; o++)
    LS_TRY(note_length(stage, lengths, &labels->out[o], instruction->out[o], error));
  return LS_OK;
}

static ls_status common_microbatch(const ls_stage *stage, const operands *all, int *microbatch,
                                   ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  *microbatch = -1;
  for (int i = 0; i < instruction->inputs; i++) {
    const int m = all->read[i]->microbatch;
    if (m < 0) continue;
    if (*microbatch >= 0 && m != *microbatch)
      return ls_proof_fail(stage, error, "reads microbatches %d and %d: expected one", *microbatch,
                           m);
    *microbatch = m;
  }
  const int own = ls_proof_action(stage)->action.microbatch;
  if (*microbatch >= 0 && own >= 0 && *microbatch != own)
    return ls_proof_fail(stage, error, "reads microbatch %d: expected %d, its action's",
                         *microbatch, own);
  return LS_OK;
}

/* An op of the forward pass, or one made again: its results are expressions of its inputs, which
 * the model must have. */
static ls_status forward_op(ls_stage *stage, const operands *all, int microbatch, ls_content *out,
                            ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  int in[LS_MAX_INPUTS];
  for (int i = 0; i < instruction->inputs; i++) {
    if (all->read[i]->kind != LS_CONTENT_VALUE)
      return ls_proof_fail(stage, error,
                           "reads %s, codes, a gradient or an unfinished sum, as a value: "
                           "expected a value",
                           stage->program->values.items[instruction->in[i]].name);
    in[i] = all->read[i]->expression;
  }
  int node;
  LS_TRY(ls_expected_find(stage, in, &node, error));
  const ls_duty duty = ls_op_row(instruction->kind)->duty;
  for (int o = 0; o < instruction->outputs; o++)
    out[o] = (ls_content){.expression = node * LS_EXPRESSION_OUTPUTS + o, .microbatch = microbatch};
  const bool loads = duty == LS_DUTY_LOADS || duty == LS_DUTY_DROPPED;
  if (duty != LS_DUTY_LOSS && duty != LS_DUTY_COUNT && duty != LS_DUTY_REWARDS && !loads)
    return LS_OK;
  if (microbatch < 0)
    return ls_proof_fail(stage, error, "sums what is of no microbatch: expected one of them");
  static const ls_cell cells[] = {[LS_DUTY_LOSS] = LS_CELL_LOSS_SUM,
                                  [LS_DUTY_REWARDS] = LS_CELL_REWARD_CHOSEN,
                                  [LS_DUTY_COUNT] = LS_CELL_VALID_TOKENS,
                                  [LS_DUTY_LOADS] = LS_CELL_COUNT,
                                  [LS_DUTY_DROPPED] = LS_CELL_COUNT};
  int layer = 0;
  while (loads && layer + 1 < stage->proof->loads.count && stage->proof->loads.items[layer] != node)
    layer++;
  /* What is no sum of all tokens is told of none; with a loss others are told behind it. */
  const ls_op_labels *labels = &stage->proof->labels[instruction->kind];
  const int told = (int)LS_CELL_REWARD_CHOSEN - (duty == LS_DUTY_LOSS);
  for (int o = 0; o < instruction->outputs; o++) {
    if (o > 0 && (loads || strcmp(labels->out[o].dim[0], "1") != 0)) continue;
    out[o] =
        (ls_content){.kind = LS_CONTENT_SUM,
                     .expression = o > 0 ? told + o : (int)cells[duty] + layer,
                     .microbatch = -1,
                     .terms = ls_term_one(stage->proof->arena, node, -1, microbatch, microbatch)};
  }
  return LS_OK;
}

/* A tensor of any dimensions. */
static ls_status check_copied(const ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_value *in = &stage->program->values.items[instruction->in[0]];
  const ls_value *out = &stage->program->values.items[instruction->out[0]];
  bool same = !in->flat_elements && !out->flat_elements && in->ndim == out->ndim;
  for (int d = 0; d < in->ndim && same; d++) same = in->global[d] == out->global[d];
  if (same) return LS_OK;
  return ls_proof_fail(stage, error, "copies %s to other sizes: expected the same", in->name);
}

/* A local slice, or a copy: rows of what every rank has. */
static ls_status copy_op(ls_stage *stage, const operands *all, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  ls_content made = *all->read[0];
  const ls_value *out = &stage->program->values.items[instruction->out[0]];
  LS_TRY(ls_check_declared(stage, instruction->in[0], &made.placement, error));
  LS_TRY(check_copied(stage, error));
  if (made.rows.count) return ls_proof_fail(stage, error, "copies some rows: expected all");
  for (int axis = 0; axis < stage->proof->mesh.count; axis++) {
    const ls_place wanted = out->placement.on[axis];
    ls_place *now = &made.placement.on[axis];
    if ((stage->proof->active >> axis & 1) && now->kind == LS_REPLICATED &&
        wanted.kind == LS_SHARDED && wanted.dim == 0 && !wanted.shift)
      *now = wanted;
  }
  LS_TRY(ls_check_declared(stage, instruction->out[0], &made.placement, error));
  LS_TRY(ls_expected_check_form(stage, instruction->out[0], &made, error));
  return ls_memory_put(stage, 0, &all->out[0], &made, error);
}

static bool is_gradient(const operands *all, int count) {
  bool any = false;
  for (int i = 0; i < count; i++) any |= all->read[i]->kind == LS_CONTENT_GRADIENT;
  return any;
}

/* Whether it adds its two inputs: linear in both, and each has the gradient of the sum. */
static bool is_sum(const ls_instruction *instruction) {
  const ls_op *row = ls_op_row(instruction->kind);
  return row->linear && row->passes && strcmp(row->linear, "01") == 0 &&
         strcmp(row->passes, "01") == 0;
}

static ls_status compute(ls_stage *stage, const operands *all, int microbatch, ls_content *out,
                         ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (stage->proof->backward[instruction->kind].rule)
    return ls_gradient_op(stage, all->read, out, error);
  const ls_duty duty = ls_op_row(instruction->kind)->duty;
  if (duty == LS_DUTY_AMAX && is_gradient(all, 1)) {
    *out = ls_gradient_amax(all->read[0]);
    return LS_OK;
  }
  if (duty == LS_DUTY_FP8 && is_gradient(all, 1))
    return ls_gradient_fp8(stage, all->read, out, error);
  if (duty == LS_DUTY_DECODE) return ls_decoded(stage, all->read, out, error);
  const bool sum = is_sum(instruction) && is_gradient(all, instruction->inputs);
  if (sum && is_gradient(all, 1) && all->read[1]->kind == LS_CONTENT_GRADIENT)
    return ls_gradient_add(stage, all->read, out, error);
  return forward_op(stage, all, microbatch, out, error);
}

/* State that the op writes to has its changes now, which the op had to find without them. */
static ls_status write_state(ls_stage *stage, const operands *all, ls_error *error) {
  const char *writes = ls_op_row(ls_proof_instruction(stage)->kind)->writes;
  for (; writes && *writes; writes++) {
    const int i = *writes - '0';
    ls_content made = *all->read[i];
    const int tensor = ls_expression_record(&stage->proof->expressions, made.expression)->in[0];
    made.expression = ls_expected_source(stage->proof, tensor, 1);
    LS_TRY(ls_memory_write(stage, &all->in[i], &made, error));
  }
  return LS_OK;
}

static bool reads_cells(const ls_stage *stage, const ls_instruction *instruction) {
  bool any = false;
  for (int i = 0; i < instruction->inputs; i++)
    any |= ls_program_buffer_group(stage->program, instruction->in[i])->pool == LS_POOL_CELL;
  return any;
}

/* Where outputs lie follows from where inputs do, and these lie as they are declared: the next time
 * an instruction runs it is `known`. Of cells nothing is declared. */
static ls_status place_outputs(ls_stage *stage, const operands *all, const ls_placement **known,
                               ls_placement *out, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const size_t count = (size_t)instruction->outputs;
  if (*known) {
    memcpy(out, *known, sizeof *out * count);
    return LS_OK;
  }
  LS_TRY(ls_derive_placements(stage, all->read, out, error));
  for (int o = 0; o < instruction->outputs; o++)
    LS_TRY(ls_check_declared(stage, instruction->out[o], &out[o], error));
  if (reads_cells(stage, instruction)) return LS_OK;
  ls_placement *made = LS_NEW_ARRAY(stage->proof->arena, ls_placement, count);
  memcpy(made, out, sizeof *out * count);
  *known = made;
  return LS_OK;
}

static ls_status general_op(ls_stage *stage, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_placement **known = &stage->made[instruction - stage->program->instructions.items];
  operands all;
  if (!*known) LS_TRY(check_shapes(stage, error));
  LS_TRY(find_operands(stage, &all, error));
  LS_TRY(check_places(stage, &all, error));
  int microbatch;
  LS_TRY(common_microbatch(stage, &all, &microbatch, error));
  for (int i = 0; i < instruction->inputs; i++)
    LS_TRY(ls_check_declared(stage, instruction->in[i], &all.read[i]->placement, error));
  ls_rows rows;
  LS_TRY(ls_rows_of_op(stage, all.read, &rows, error));
  ls_content out[LS_MAX_OUTPUTS];
  LS_TRY(compute(stage, &all, microbatch, out, error));
  ls_placement placements[LS_MAX_OUTPUTS];
  LS_TRY(place_outputs(stage, &all, known, placements, error));
  for (int o = 0; o < instruction->outputs; o++) {
    out[o].placement = placements[o];
    LS_TRY(ls_rows_of_output(stage, o, rows, &out[o], error));
    LS_TRY(ls_expected_check_form(stage, instruction->out[o], &out[o], error));
    LS_TRY(ls_memory_put(stage, o, &all.out[o], &out[o], error));
  }
  return write_state(stage, &all, error);
}

ls_status ls_run_op(ls_stage *stage, ls_error *error) {
  bool done = false;
  LS_TRY(ls_run_update(stage, &done, error));
  if (done) return LS_OK;
  const ls_duty duty = ls_op_row(ls_proof_instruction(stage)->kind)->duty;
  if (duty == LS_DUTY_LARGEST) return ls_run_largest(stage, error);
  if (duty == LS_DUTY_CODES) return ls_run_codes(stage, error);
  if (duty != LS_DUTY_COPY) return general_op(stage, error);
  operands all;
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->inputs != 1 || instruction->outputs != 1)
    return ls_proof_fail(stage, error, "has other operands: expected one input and one output");
  LS_TRY(find_operands(stage, &all, error));
  LS_TRY(check_places(stage, &all, error));
  return copy_op(stage, &all, error);
}
