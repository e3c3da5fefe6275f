/* The end of a step: cells made of finished sums, and the optimizer. */
#include "check/proof.h"

static ls_status read_input(ls_stage *stage, int i, ls_operand *operand, const ls_content **content,
                            ls_error *error) {
  const int value = ls_proof_instruction(stage)->in[i];
  LS_TRY(ls_operand_find(stage, value, operand, error));
  return ls_memory_read(stage, operand, content, error);
}

static ls_status write_output(ls_stage *stage, int o, const ls_content *content, ls_error *error) {
  ls_operand operand;
  LS_TRY(ls_operand_find(stage, ls_proof_instruction(stage)->out[o], &operand, error));
  return ls_memory_put(stage, o, &operand, content, error);
}

static ls_status expect_operands(const ls_stage *stage, int inputs, int outputs, ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  if (instruction->inputs == inputs && instruction->outputs == outputs) return LS_OK;
  return ls_proof_fail(stage, error, "has %d inputs and %d outputs: expected %d and %d",
                       instruction->inputs, instruction->outputs, inputs, outputs);
}

/* speculation: made of sums that are not finished. */
static ls_content cell_content(ls_stage *stage, ls_cell cell, bool speculation) {
  return (ls_content){.expression = ls_expression_leaf(&stage->proof->expressions, LS_LEAF_CELL,
                                                       (int)cell, speculation),
                      .microbatch = -1};
}

/* Which cell a value is, or -1; loads of experts count on from these. */
static int cell_of(const ls_stage *stage, int value) {
  const ls_program *program = stage->program;
  for (int l = 0; l < program->loads.count; l++)
    if (ls_value_same_place(&program->values.items[value],
                            &program->values.items[program->loads.items[l]]))
      return LS_CELL_COUNT + l;
  for (int c = 0; c < LS_CELL_COUNT; c++)
    if (program->cell[c] >= 0 && ls_value_same_place(&program->values.items[value],
                                                     &program->values.items[program->cell[c]]))
      return c;
  return -1;
}

static ls_status expect_cell(const ls_stage *stage, int value, ls_cell cell, ls_error *error) {
  if (cell_of(stage, value) == (int)cell) return LS_OK;
  return ls_proof_fail(stage, error, "writes %s: expected another cell",
                       stage->program->values.items[value].name);
}

static ls_status expect_cell_made(ls_stage *stage, int i, ls_cell cell, bool speculation,
                                  ls_error *error) {
  ls_operand operand;
  const ls_content *content;
  LS_TRY(read_input(stage, i, &operand, &content, error));
  const ls_content wanted = cell_content(stage, cell, speculation);
  if (content->kind == LS_CONTENT_VALUE && content->expression == wanted.expression) return LS_OK;
  return ls_proof_fail(stage, error, "input %d is not the cell it should be: expected %s", i,
                       stage->program->values.items[stage->program->cell[cell]].name);
}

static ls_status expect_cell_read(ls_stage *stage, int i, ls_cell cell, ls_error *error) {
  return expect_cell_made(stage, i, cell, false, error);
}

ls_status ls_finished_sum(ls_stage *stage, const ls_content *content, int cell, const char *what,
                          ls_error *error) {
  const int last =
      stage->program->kind == LS_PROGRAM_STEP ? stage->proof->layout->microbatches - 1 : 0;
  const int sums = cell == LS_CELL_LOSS_SUM ? stage->proof->losses.count : 1;
  if (content->kind != LS_CONTENT_SUM || content->expression != cell)
    return ls_proof_fail(stage, error, "reads something else: expected the %s", what);
  if (ls_terms_uses(content->terms, 0, last) != sums)
    return ls_proof_fail(stage, error,
                         "reads a %s that lacks microbatches: expected each of %d "
                         "once",
                         what, last + 1);
  return ls_check_whole(stage, content, what, error);
}

static ls_status run_zero(ls_stage *stage, ls_error *error) {
  LS_TRY(expect_operands(stage, 1, 1, error));
  const int cell = cell_of(stage, ls_proof_instruction(stage)->out[0]);
  if (cell < 0) return ls_proof_fail(stage, error, "writes no cell: expected one");
  return write_output(
      stage, 0, &(ls_content){.kind = LS_CONTENT_SUM, .expression = cell, .microbatch = -1}, error);
}

static ls_status run_reciprocal(ls_stage *stage, ls_error *error) {
  LS_TRY(expect_operands(stage, 2, 1, error));
  LS_TRY(expect_cell_read(stage, 1, LS_CELL_SCALE, error));
  ls_operand operand;
  const ls_content *count;
  LS_TRY(read_input(stage, 0, &operand, &count, error));
  LS_TRY(ls_finished_sum(stage, count, LS_CELL_VALID_TOKENS, "count of valid tokens", error));
  LS_TRY(expect_cell(stage, ls_proof_instruction(stage)->out[0], LS_CELL_LOSS_SCALE, error));
  const ls_content made = cell_content(stage, LS_CELL_LOSS_SCALE, false);
  return write_output(stage, 0, &made, error);
}

/* Every parameter once, over all stages. */
static ls_status check_norm(ls_stage *stage, const ls_content *norm, ls_error *error) {
  if (norm->kind != LS_CONTENT_SUM || norm->expression != (int)LS_CELL_SQUARED_NORM)
    return ls_proof_fail(stage, error, "reads something else: expected the squared gradient norm");
  int trained = 0;
  for (int p = 0; p < stage->program->parameter_count; p++)
    trained += ls_expected_trains(stage->proof, p);
  if (norm->terms.count != trained)
    return ls_proof_fail(stage, error, "reads a squared norm of %d parameters: expected all %d",
                         norm->terms.count, trained);
  return ls_check_whole(stage, norm, "the squared norm", error);
}

/* What the sums must be that the factor is made of. A speculation is made of a stage's own: a part
 * of the norm, which clips nothing unless the whole does. */
static ls_status check_sums(ls_stage *stage, const ls_content *const *in, bool speculation,
                            ls_error *error) {
  if (speculation) {
    if (in[0]->kind == LS_CONTENT_SUM && in[0]->expression == (int)LS_CELL_SQUARED_NORM)
      return LS_OK;
    return ls_proof_fail(stage, error, "speculates by something else: expected the squared norm");
  }
  if (stage->program->kind == LS_PROGRAM_STEP) LS_TRY(check_norm(stage, in[0], error));
  LS_TRY(ls_finished_sum(stage, in[1], LS_CELL_LOSS_SUM, "loss", error));
  return ls_finished_sum(stage, in[2], LS_CELL_VALID_TOKENS, "count of valid tokens", error);
}

/* A cell that a node of the update reads, as it is at the step's end. */
static ls_status read_cell(ls_stage *stage, int i, ls_cell cell, bool speculation,
                           ls_error *error) {
  ls_operand operand;
  const ls_content *content;
  if (cell != LS_CELL_LOSS_SUM && cell != LS_CELL_VALID_TOKENS && cell != LS_CELL_SQUARED_NORM)
    return expect_cell_made(stage, i, cell, speculation && cell == LS_CELL_CLIP_FACTOR, error);
  LS_TRY(read_input(stage, i, &operand, &content, error));
  return cell == LS_CELL_SQUARED_NORM
             ? check_norm(stage, content, error)
             : ls_finished_sum(stage, content, cell, "finished sum of a cell", error);
}

static ls_status run_clip_factor(ls_stage *stage, ls_error *error) {
  LS_TRY(expect_operands(stage, 4, 3, error));
  LS_TRY(expect_cell_read(stage, 3, LS_CELL_SCALE, error));
  const ls_instruction *instruction = ls_proof_instruction(stage);
  ls_operand operand;
  const ls_content *in[3];
  for (int i = 0; i < 3; i++) LS_TRY(read_input(stage, i, &operand, &in[i], error));
  const bool speculation = stage->program->replay_boundary >= 0 && stage->action == stage->norm;
  LS_TRY(check_sums(stage, in, speculation, error));
  if (instruction->attributes.clip != stage->proof->layout->optimizer.clip)
    return ls_proof_fail(stage, error, "clips at %g: expected %g", instruction->attributes.clip,
                         stage->proof->layout->optimizer.clip);
  static const ls_cell cells[3] = {LS_CELL_NORM, LS_CELL_CLIP_FACTOR, LS_CELL_MEAN_LOSS};
  for (int o = 0; o < 3; o++) {
    LS_TRY(expect_cell(stage, instruction->out[o], cells[o], error));
    const ls_content made = cell_content(stage, cells[o], speculation);
    LS_TRY(write_output(stage, o, &made, error));
  }
  return LS_OK;
}

/* Its own place; of a part that waits in a file, the same range of what was moved out of it. */
static bool lies_as(const ls_stage *stage, const ls_value *value, const ls_value *expected) {
  const ls_program *program = stage->program;
  const int buffer_group = program->storages.items[expected->storage].buffer_group;
  ls_value moved = *expected;
  const ls_pool pool = program->buffer_groups.items[buffer_group].pool;
  if (pool == LS_POOL_FILE_STATE || pool == LS_POOL_FILE_WORK) moved.storage = value->storage;
  return ls_value_same_place(value, &moved);
}

/* The reduced gradient of a parameter of this stage. */
static ls_status read_gradient(ls_stage *stage, int i, const ls_content **gradient, int *parameter,
                               ls_error *error) {
  ls_operand operand;
  LS_TRY(read_input(stage, i, &operand, gradient, error));
  const ls_node_record *of =
      ls_expression_record(&stage->proof->expressions, (*gradient)->expression);
  if ((*gradient)->kind != LS_CONTENT_GRADIENT || of->kind != (int)LS_LEAF_PARAMETER)
    return ls_proof_fail(stage, error, "reads no gradient of a parameter: expected one");
  *parameter = of->in[0];
  const ls_program *program = stage->program;
  const int own = program->parameters[*parameter].part[LS_PART_GRADIENT];
  if (own < 0 ||
      !lies_as(stage, &program->values.items[operand.value], &program->values.items[own]))
    return ls_proof_fail(stage, error, "reads the gradient of %s elsewhere: expected its own place",
                         program->parameters[*parameter].name);
  LS_TRY(ls_gradient_complete(stage, *gradient, error));
  return ls_check_whole(stage, *gradient, "the gradient", error);
}

/* Where a gradient lies when it is finished: as its parameter, and in shards where it is kept so.
 */
static ls_status check_gradient_placement(ls_stage *stage, const ls_content *gradient, int p,
                                          ls_error *error) {
  const ls_program *program = stage->program;
  const ls_program_parameter *parameter = &program->parameters[p];
  const ls_placement wanted =
      ls_part_placement(stage, &program->values.items[parameter->part[LS_PART_USED]].placement,
                        parameter->part[LS_PART_GRADIENT]);
  if (ls_places_equal(stage->proof, &gradient->placement, &wanted)) return LS_OK;
  return ls_proof_fail(stage, error,
                       "reads a gradient that is cut otherwise than its parameter: "
                       "expected the same");
}

static ls_status run_squared_norm(ls_stage *stage, ls_error *error) {
  LS_TRY(expect_operands(stage, 1, 1, error));
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_content *gradient;
  int p;
  LS_TRY(read_gradient(stage, 0, &gradient, &p, error));
  LS_TRY(check_gradient_placement(stage, gradient, p, error));
  if (instruction->attributes.weight != 1)
    return ls_proof_fail(stage, error, "counts a gradient %g times: expected once",
                         instruction->attributes.weight);
  ls_content made = {.kind = LS_CONTENT_SUM,
                     .expression = LS_CELL_SQUARED_NORM,
                     .microbatch = -1,
                     .terms = ls_term_one(stage->proof->arena, gradient->expression, -1, 0, 0)};
  for (int axis = 0; axis < stage->proof->mesh.count; axis++) {
    const ls_place place = gradient->placement.on[axis];
    const bool once = instruction->first_only >> axis & 1;
    if (!(stage->proof->active >> axis & 1)) continue;
    const bool cut = place.kind == LS_SHARDED || place.kind == LS_SHARDED_FLAT;
    if (once && cut)
      return ls_proof_fail(stage, error, "leaves out shards over %s: expected every rank's counted",
                           stage->proof->mesh.axes[axis].name);
    if (once || cut) made.placement.on[axis] = (ls_place){.kind = LS_PARTIAL};
  }
  return write_output(stage, 0, &made, error);
}

/* A node of the optimizer's update, as the next instruction does it to a parameter. */
typedef struct node_at {
  const ls_update_node *node;
  bool speculation;
  int parameter;
  const ls_content *from; /* the gradient, or what an earlier node made: where it lies */
  ls_placement placement; /* of what it makes: of that, or of the parameter where that is whole */
} node_at;

static const ls_optimizer *optimizer_of(const ls_stage *stage) {
  return &stage->proof->layout->optimizer;
}

/* By the node, bit for bit. */
static bool settings_fit(const ls_stage *stage, const node_at *of) {
  const ls_attributes wanted = ls_optimizer_attributes(
      optimizer_of(stage), of->node, &stage->proof->graph->parameters.items[of->parameter]);
  return ls_attributes_equal(&ls_proof_instruction(stage)->attributes, &wanted);
}

/* A part of the parameter before its node updates it, or after. Of weights that are their own
 * master, that of weights. */
static int part_leaf(ls_stage *stage, int p, ls_state_part part, int version) {
  const ls_program *program = stage->program;
  const int *value = program->parameters[p].part;
  const bool own =
      part == LS_PART_MASTER && program->values.items[value[part]].storage ==
                                    program->values.items[value[LS_PART_STORED]].storage;
  return ls_expression_leaf(&stage->proof->expressions,
                            own ? LS_LEAF_PARAMETER : LS_LEAF_PART + (ls_leaf)part, p, version);
}

static int temporary_leaf(ls_stage *stage, int p, ls_update_operand of) {
  return ls_expression_leaf(&stage->proof->expressions, LS_LEAF_TEMPORARY, p,
                            (int)of.from * LS_MOST_TEMPORARIES + of.index);
}

static bool is_temporary(ls_update_operand of) {
  return of.from != LS_FROM_PART && of.from != LS_FROM_CELL;
}

static bool is_whole(ls_update_operand of) {
  return of.from >= LS_FROM_MATRIX;
}

/* What no other node reads. */
static bool is_room(ls_update_operand of) {
  return of.from == LS_FROM_MATRIX || of.from == LS_FROM_SQUARES;
}

/* How the optimizer updates the parameter. */
static const ls_optimizer_row *row_for(const ls_stage *stage, int parameter) {
  const ls_optimizer *optimizer = optimizer_of(stage);
  return ls_optimizer_update(optimizer,
                             ls_optimizer_update_of(optimizer, stage->proof->graph, parameter));
}

/* Whether a node before this one updates the part. */
static bool is_updated_before(const ls_stage *stage, const node_at *of, int part) {
  const ls_update_node *first = row_for(stage, of->parameter)->node;
  for (const ls_update_node *node = first; !of->speculation && node < of->node; node++)
    for (int o = 0; o < node->outputs; o++)
      if (node->out[o].from == LS_FROM_PART && node->out[o].index == part) return true;
  return false;
}

/* A part of the state, where it lies. */
static ls_status read_part(ls_stage *stage, const node_at *of, int i, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_state_part part = (ls_state_part)of->node->in[i].index;
  ls_operand operand;
  const ls_content *content;
  const int expected = program->parameters[of->parameter].part[part];
  const int version = is_updated_before(stage, of, (int)part);
  LS_TRY(read_input(stage, i, &operand, &content, error));
  if (expected >= 0 && content->kind == LS_CONTENT_VALUE &&
      lies_as(stage, &program->values.items[operand.value], &program->values.items[expected]) &&
      content->expression == part_leaf(stage, of->parameter, part, version))
    return LS_OK;
  return ls_proof_fail(stage, error, "reads %s: expected the %s of %s as %s",
                       program->values.items[operand.value].name, ls_state_row_of(part)->name,
                       program->parameters[of->parameter].name,
                       version ? "updated before" : "the step found it");
}

static ls_status read_temporary(ls_stage *stage, const node_at *of, int i, ls_error *error) {
  ls_operand operand;
  const ls_content *content;
  LS_TRY(read_input(stage, i, &operand, &content, error));
  if (content->kind != LS_CONTENT_VALUE ||
      content->expression != temporary_leaf(stage, of->parameter, of->node->in[i]))
    return ls_proof_fail(stage, error,
                         "reads %s: expected what an earlier node made of the same parameter",
                         stage->program->values.items[operand.value].name);
  return ls_check_whole(stage, content, "what an earlier node made", error);
}

static ls_status read_node_input(ls_stage *stage, const node_at *of, int i, ls_error *error) {
  const ls_update_operand from = of->node->in[i];
  const ls_content *gradient;
  int p;
  if (from.from == LS_FROM_CELL)
    return read_cell(stage, i, (ls_cell)from.index, of->speculation, error);
  if (is_temporary(from)) return read_temporary(stage, of, i, error);
  if (from.index != (int)LS_PART_GRADIENT) return read_part(stage, of, i, error);
  LS_TRY(read_gradient(stage, i, &gradient, &p, error));
  return check_gradient_placement(stage, gradient, p, error);
}

/* The rank's shard of an output is that of what the node reads. */
static ls_status check_shard(ls_stage *stage, const node_at *of, int o, ls_error *error) {
  const ls_placement shard =
      ls_part_placement(stage, &of->placement, ls_proof_instruction(stage)->out[o]);
  if (ls_places_equal(stage->proof, &of->placement, &shard)) return LS_OK;
  return ls_proof_fail(stage, error,
                       "makes other shards than it has the gradient of: expected the same");
}

/* One part of the state goes from its old version to its new one, where it lies. */
static ls_status update_part(ls_stage *stage, const node_at *of, int o, ls_content *made,
                             ls_error *error) {
  const ls_program *program = stage->program;
  const ls_value *value = &program->values.items[ls_proof_instruction(stage)->out[o]];
  const ls_state_part part = (ls_state_part)of->node->out[o].index;
  const int expected = program->parameters[of->parameter].part[part];
  if (expected < 0 || !lies_as(stage, value, &program->values.items[expected]))
    return ls_proof_fail(stage, error, "updates %s elsewhere: expected its own place", value->name);
  LS_TRY(check_shard(stage, of, o, error));
  ls_operand operand;
  const ls_content *old;
  LS_TRY(ls_operand_find(stage, ls_proof_instruction(stage)->out[o], &operand, error));
  LS_TRY(ls_memory_read(stage, &operand, &old, error));
  if (old->kind != LS_CONTENT_VALUE || old->expression != part_leaf(stage, of->parameter, part, 0))
    return ls_proof_fail(stage, error,
                         "updates %s a second time or from something else: expected "
                         "what the step began with",
                         value->name);
  made->expression = part_leaf(stage, of->parameter, part, 1);
  stage->proof->report.gradients += part == LS_PART_MASTER;
  return LS_OK;
}

/* The rank's shard of the weights as they are stored, in this version of them. */
static ls_status make_weights(ls_stage *stage, const node_at *of, int o, int version,
                              ls_content *made, ls_error *error) {
  const ls_program *program = stage->program;
  const int out = ls_proof_instruction(stage)->out[o];
  const ls_value *weights = &program->values.items[out];
  const ls_program_parameter *parameter = &program->parameters[of->parameter];
  const ls_value *stored = &program->values.items[parameter->part[LS_PART_STORED]];
  if (!weights->flat_elements || weights->storage != stored->storage ||
      weights->flat_elements != stored->flat_elements ||
      weights->flat_offset != stored->flat_offset || weights->global[0] != stored->global[0] ||
      weights->dtype != stored->dtype || weights->offset != stored->offset ||
      (stage->extents[parameter->part[LS_PART_STORED]].flat_axes & ~stage->extents[out].flat_axes))
    return ls_proof_fail(stage, error, "makes the weights of %s elsewhere: expected their place",
                         parameter->name);
  LS_TRY(check_shard(stage, of, o, error));
  made->expression =
      ls_expression_leaf(&stage->proof->expressions, LS_LEAF_PARAMETER, of->parameter, version);
  return LS_OK;
}

static ls_status speculate_weights(ls_stage *stage, const node_at *of, int o, ls_content *made,
                                   ls_error *error) {
  return make_weights(stage, of, o, 2, made, error);
}

/* The weights that a step's gradients are taken at, made of the state as the step found it. */
static ls_status run_point(ls_stage *stage, ls_error *error) {
  const ls_update_node *node = &ls_optimizer_row_of(optimizer_of(stage))->point;
  node_at of = {.node = node, .speculation = true};
  LS_TRY(expect_operands(stage, node->inputs, node->outputs, error));
  ls_operand operand;
  LS_TRY(read_input(stage, 0, &operand, &of.from, error));
  const ls_node_record *record =
      ls_expression_record(&stage->proof->expressions, of.from->expression);
  if (stage->program->kind != LS_PROGRAM_STEP || of.from->kind != LS_CONTENT_VALUE ||
      record->kind != (int)LS_LEAF_PART + node->in[0].index)
    return ls_proof_fail(stage, error,
                         "makes weights of something else: expected a training step's state");
  of.parameter = record->in[0];
  of.placement = of.from->placement;
  for (int i = 0; i < node->inputs; i++) LS_TRY(read_part(stage, &of, i, error));
  if (!settings_fit(stage, &of) || ls_proof_instruction(stage)->write[0] != LS_WRITE)
    return ls_proof_fail(stage, error, "has other settings than the layout: expected the same");
  ls_content made = {.microbatch = -1, .placement = of.placement};
  LS_TRY(make_weights(stage, &of, 0, 0, &made, error));
  LS_TRY(ls_operand_find(stage, ls_proof_instruction(stage)->out[0], &operand, error));
  return ls_memory_write(stage, &operand, &made, error);
}

/* Of shards each rank has its part of it. */
static ls_status make_partial(ls_stage *stage, ls_reduce reduce, ls_content *made,
                              ls_error *error) {
  if (ls_proof_instruction(stage)->first_only)
    return ls_proof_fail(stage, error, "counts some ranks alone: expected each shard's");
  for (int axis = 0; axis < stage->proof->mesh.count; axis++) {
    ls_place *place = &made->placement.on[axis];
    const bool shards = place->kind == LS_SHARDED || place->kind == LS_SHARDED_FLAT;
    *place = shards ? (ls_place){.kind = LS_PARTIAL, .reduce = reduce} : (ls_place){0};
  }
  return LS_OK;
}

/* What every rank has all of, or its part of. */
static ls_status make_whole(ls_stage *stage, const node_at *of, int o, ls_content *made,
                            ls_error *error) {
  const ls_program *program = stage->program;
  const ls_update_operand out = of->node->out[o];
  const ls_program_parameter *about = &program->parameters[of->parameter];
  const int at = ls_proof_instruction(stage)->out[o];
  const ls_value *value = &program->values.items[at];
  ls_value wanted = {.dtype = program->values.items[about->part[LS_PART_MASTER]].dtype,
                     .storage = value->storage,
                     .placement = value->placement};
  wanted.ndim = ls_update_dims(out.from, about->ndim, about->dims, wanted.global);
  if (!ls_value_same_place(value, &wanted))
    return ls_proof_fail(stage, error, "makes %s in another form: expected the whole of it",
                         value->name);
  made->expression = temporary_leaf(stage, of->parameter, out);
  made->placement = (ls_placement){0};
  if (is_room(out)) return ls_check_declared(stage, at, &made->placement, error);
  made->placement = of->from->placement;
  LS_TRY(make_partial(stage, out.from == LS_FROM_BLOCKS ? LS_MAX : LS_SUM, made, error));
  return ls_check_declared(stage, at, &made->placement, error);
}

/* In place, where some rank has all of them. */
static ls_status make_owned(ls_stage *stage, const node_at *of, int o, ls_content *made,
                            ls_error *error) {
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_value *values = stage->program->values.items;
  if (!ls_value_same_place(&values[instruction->in[0]], &values[instruction->out[o]]))
    return ls_proof_fail(stage, error, "makes a matrix elsewhere: expected it in its place");
  made->placement = of->from->placement;
  made->expression = temporary_leaf(stage, of->parameter, of->node->out[o]);
  return ls_check_owned(stage, of->parameter, instruction->in[0], of->from, error);
}

/* Elements as master weights have them, wherever; or a number that is no cell of the step's. */
static ls_status make_temporary(ls_stage *stage, const node_at *of, int o, ls_content *made,
                                ls_error *error) {
  const ls_program *program = stage->program;
  const int out = ls_proof_instruction(stage)->out[o];
  const ls_value *value = &program->values.items[out];
  const bool number = of->node->out[o].from == LS_FROM_NUMBER;
  const ls_value *master =
      &program->values.items[program->parameters[of->parameter].part[LS_PART_MASTER]];
  ls_value wanted = {.dtype = LS_F64, .ndim = 1, .global = {1}, .offset = value->offset};
  if (is_whole(of->node->out[o])) return make_whole(stage, of, o, made, error);
  if (of->node->owners) return make_owned(stage, of, o, made, error);
  if (!number) wanted = *master;
  wanted.storage = value->storage;
  if (!ls_value_same_place(value, &wanted) || cell_of(stage, out) >= 0 ||
      (number && ls_program_buffer_group(program, out)->pool != LS_POOL_CELL))
    return ls_proof_fail(
        stage, error, "makes %s in another form: expected %s", value->name,
        number ? "a number that is no cell of the step's" : "elements as the master weights are");
  made->expression = temporary_leaf(stage, of->parameter, of->node->out[o]);
  if (!number) return check_shard(stage, of, o, error);
  return make_partial(stage, LS_SUM, made, error);
}

static ls_status write_node_output(ls_stage *stage, const node_at *of, int o, ls_error *error) {
  ls_content made = {.microbatch = -1, .placement = of->placement};
  const int out = ls_proof_instruction(stage)->out[o];
  if (is_temporary(of->node->out[o]))
    LS_TRY(make_temporary(stage, of, o, &made, error));
  else
    LS_TRY((of->speculation ? speculate_weights : update_part)(stage, of, o, &made, error));
  if (ls_proof_instruction(stage)->write[o] != LS_WRITE)
    return ls_proof_fail(stage, error, "adds to %s: expected to write it",
                         stage->program->values.items[out].name);
  ls_operand operand;
  LS_TRY(ls_operand_find(stage, out, &operand, error));
  if (of->node->out[o].from == LS_FROM_ELEMENTS)
    ls_note_region(stage, of->parameter, stage->program->values.items[out].storage, operand.begin,
                   operand.end);
  return ls_memory_write(stage, &operand, &made, error);
}

/* Whose gradient the instruction reads, or what was made of it: elements rather than numbers. */
static ls_status find_parameter(ls_stage *stage, node_at *of, ls_error *error) {
  const ls_program *program = stage->program;
  for (int i = 0; i < ls_proof_instruction(stage)->inputs; i++) {
    ls_operand operand;
    const ls_content *content;
    LS_TRY(read_input(stage, i, &operand, &content, error));
    const ls_node_record *record =
        ls_expression_record(&stage->proof->expressions, content->expression);
    const bool gradient =
        content->kind == LS_CONTENT_GRADIENT && record->kind == (int)LS_LEAF_PARAMETER;
    if (!gradient && (content->kind != LS_CONTENT_VALUE || record->kind != (int)LS_LEAF_TEMPORARY))
      continue;
    of->parameter = record->in[0];
    of->from = content;
    if (program->values.items[operand.value].flat_elements) break;
  }
  if (!of->from)
    return ls_proof_fail(stage, error, "reads no gradient of a parameter: expected one");
  of->placement = of->from->placement;
  return LS_OK;
}

static bool is_node_of(const ls_optimizer_row *row, const ls_update_node *node) {
  return node >= row->node && node < row->node + row->nodes;
}

/* The instruction has the node's operands and settings. */
static ls_status fit_node(ls_stage *stage, node_at *of, ls_error *error) {
  LS_TRY(expect_operands(stage, of->node->inputs, of->node->outputs, error));
  LS_TRY(find_parameter(stage, of, error));
  if (!of->speculation && !is_node_of(row_for(stage, of->parameter), of->node))
    return ls_proof_fail(stage, error, "updates %s as others are: expected its own update",
                         stage->program->parameters[of->parameter].name);
  for (int i = 0; i < of->node->inputs; i++) LS_TRY(read_node_input(stage, of, i, error));
  if (settings_fit(stage, of)) return LS_OK;
  return ls_proof_fail(stage, error, "has other settings than the layout: expected the same");
}

/* The first node of the update that the instruction may be, else why it is not the last of these.
 */
static ls_status run_optimizer(ls_stage *stage, ls_error *error) {
  const ls_optimizer_row *row = ls_optimizer_row_of(optimizer_of(stage));
  const ls_op_kind kind = ls_proof_instruction(stage)->kind;
  const bool speculation = row->speculative && kind == row->speculative;
  const ls_update_node speculated = ls_optimizer_speculation(optimizer_of(stage));
  ls_status status = LS_REFUTED;
  bool any = false;
  for (int update = 0; update < LS_UPDATE_COUNT; update++) {
    const ls_optimizer_row *its = ls_optimizer_update(optimizer_of(stage), update);
    if (update > 0 && its == row) break;
    const ls_update_node *nodes = speculation ? &speculated : its->node;
    for (int n = 0; n < (speculation ? 1 : its->nodes) && status != LS_OK; n++) {
      node_at of = {.node = &nodes[n], .speculation = speculation};
      if (of.node->op != kind) continue;
      any = true;
      status = fit_node(stage, &of, error);
      for (int o = 0; status == LS_OK && o < of.node->outputs; o++)
        LS_TRY(write_node_output(stage, &of, o, error));
    }
  }
  if (any) return status;
  return ls_proof_fail(stage, error, "is not the layout's optimizer: expected it");
}

/* Whether an instruction is part of the update: a node's op that makes no cell of the step's. */
static bool is_of_update(const ls_stage *stage) {
  const ls_optimizer_row *row = ls_optimizer_row_of(optimizer_of(stage));
  const ls_instruction *instruction = ls_proof_instruction(stage);
  bool found = ls_op_row(instruction->kind)->updates ||
               (row->speculative && instruction->kind == row->speculative);
  for (int update = 0; update < LS_UPDATE_COUNT; update++) {
    const ls_optimizer_row *its = ls_optimizer_update(optimizer_of(stage), update);
    for (int n = 0; n < its->nodes; n++) found |= its->node[n].op == instruction->kind;
  }
  return found && (instruction->outputs == 0 || cell_of(stage, instruction->out[0]) < 0);
}

/* Master weights to weights: each parameter that lies in the range. */
static ls_status run_cast(ls_stage *stage, ls_error *error) {
  LS_TRY(expect_operands(stage, 1, 1, error));
  if (stage->program->kind == LS_PROGRAM_STEP &&
      ls_optimizer_row_of(optimizer_of(stage))->point.outputs)
    return ls_proof_fail(stage, error,
                         "rounds master weights: expected the point that gradients are taken at");
  const ls_instruction *instruction = ls_proof_instruction(stage);
  const ls_program *program = stage->program;
  const ls_value *from = &program->values.items[instruction->in[0]];
  const ls_value *to = &program->values.items[instruction->out[0]];
  ls_expressions *all = &stage->proof->expressions;
  ls_operand in, out;
  LS_TRY(ls_operand_find(stage, instruction->in[0], &in, error));
  LS_TRY(ls_operand_find(stage, instruction->out[0], &out, error));
  if (!from->flat_elements || from->flat_elements != to->flat_elements ||
      from->flat_offset != to->flat_offset || from->global[0] != to->global[0] ||
      stage->extents[in.value].flat_axes != stage->extents[out.value].flat_axes ||
      instruction->write[0] != LS_WRITE)
    return ls_proof_fail(stage, error, "goes from one range to another: expected the same of both");
  const ls_regions *regions = &stage->regions[from->storage];
  const int64_t wide = (int64_t)ls_dtype_bytes(from->dtype);
  const int64_t narrow = (int64_t)ls_dtype_bytes(to->dtype);
  for (int r = 0; r < regions->items.count; r++) {
    const ls_region *region = &regions->items.items[r];
    if (region->end <= in.begin || region->begin >= in.end) continue;
    ls_operand source = in, target = out;
    source.begin = region->begin;
    source.end = source.reach = region->end;
    target.begin = out.begin + (region->begin - in.begin) / wide * narrow;
    target.end = target.reach = out.begin + (region->end - in.begin) / wide * narrow;
    const ls_content *master;
    LS_TRY(ls_memory_read(stage, &source, &master, error));
    const ls_node_record node = *ls_expression_record(all, master->expression);
    if (master->kind != LS_CONTENT_VALUE || node.kind != (int)LS_LEAF_PART + (int)LS_PART_MASTER)
      return ls_proof_fail(stage, error, "rounds something else: expected master weights");
    ls_content made = *master;
    made.expression = ls_expression_leaf(all, LS_LEAF_PARAMETER, node.in[0], node.in[1]);
    ls_note_region(stage, region->parameter, to->storage, target.begin, target.end);
    LS_TRY(ls_memory_write(stage, &target, &made, error));
  }
  return LS_OK;
}

ls_status ls_run_update(ls_stage *stage, bool *done, ls_error *error) {
  const ls_update_node *point = &ls_optimizer_row_of(optimizer_of(stage))->point;
  *done = true;
  if (point->outputs && ls_proof_instruction(stage)->kind == point->op)
    return run_point(stage, error);
  if (is_of_update(stage)) return run_optimizer(stage, error);
  switch (ls_op_row(ls_proof_instruction(stage)->kind)->duty) {
    case LS_DUTY_ZERO: return run_zero(stage, error);
    case LS_DUTY_SCALE: return run_reciprocal(stage, error);
    case LS_DUTY_CLIP: return run_clip_factor(stage, error);
    case LS_DUTY_NORM: return run_squared_norm(stage, error);
    case LS_DUTY_ROUND: return run_cast(stage, error);
    default: *done = false; return LS_OK;
  }
}
