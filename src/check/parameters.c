/* Parameters: whether their parts lie where the cut says, what memory holds before the program and
 * what it must hold after it. */
#include "check/proof.h"

/* How tensor parallelism cuts a parameter, on axes of KV heads and on those of the query heads of
 * one: dimension, or -1 for whole. */
static const signed char cuts[LS_TP_COUNT][2] = {
    [LS_TP_REPLICATED] = {-1, -1}, [LS_TP_COLUMN] = {0, 0},     [LS_TP_ROW] = {1, 1},
    [LS_TP_QUERY] = {0, 0},        [LS_TP_KEY_VALUE] = {0, -1}, [LS_TP_HEADS_IN] = {1, 1},
    [LS_TP_VOCABULARY] = {0, 0},   [LS_TP_EXPERTS] = {1, 1},    [LS_TP_EXPERT_ROWS] = {-1, -1},
};

/* The order of axes that cut one dimension is the program's choice. */
static ls_placement used_placement(const ls_stage *stage, const ls_program_parameter *parameter) {
  const ls_mesh *mesh = &stage->proof->mesh;
  const ls_value *used = &stage->program->values.items[parameter->part[LS_PART_USED]];
  ls_placement placement = {0};
  for (int axis = 0; axis < mesh->count; axis++) {
    const ls_shares shares = mesh->axes[axis].shares;
    const int dim = cuts[parameter->sharding][(shares & LS_SHARES_QUERY_HEADS) != 0];
    const bool whole = shares & LS_SHARES_TOKENS;
    if (shares & LS_SHARES_ANY_EXPERTS && ls_tp_is_of_experts(parameter->sharding))
      placement.on[axis] = (ls_place){.kind = LS_SHARDED, .order = used->placement.on[axis].order};
    else if (mesh->axes[axis].role == LS_MESH_TENSOR && dim >= 0 && !whole)
      placement.on[axis] = (ls_place){
          .kind = LS_SHARDED, .dim = (short)dim, .order = used->placement.on[axis].order};
  }
  return placement;
}

static ls_status fail_parameter(const ls_stage *stage, const ls_program_parameter *parameter,
                                ls_error *error, const char *what) {
  return ls_fail(error, LS_REFUTED,
                 "stage %d parameter %s: its %s not where its cut says: expected one "
                 "place in its unit for all its parts",
                 stage->number, parameter->name, what);
}

/* A 1-D part: the same range of the unit for all, rows of padding left out alike. */
static bool range_fits(const ls_stage *stage, const ls_program_parameter *parameter, int part,
                       ls_dtype dtype) {
  const ls_program *program = stage->program;
  const ls_value *value = &program->values.items[part];
  const ls_value *used = &program->values.items[parameter->part[LS_PART_USED]];
  const ls_value *stored = &program->values.items[parameter->part[LS_PART_STORED]];
  const int64_t elements = stage->extents[parameter->part[LS_PART_USED]].elements;
  const ls_placement cut = used_placement(stage, parameter);
  ls_axes across = 0; /* that cut a row */
  for (int axis = 0; axis < stage->proof->mesh.count; axis++)
    if (cut.on[axis].kind == LS_SHARDED && cut.on[axis].dim == 1) across |= 1u << axis;
  const int64_t columns = ls_proof_group(stage->proof, across);
  const int64_t row = parameter->ndim > 1 ? (parameter->dims[1] + columns - 1) / columns : 1;
  const ls_placement wanted = ls_part_placement(stage, &used->placement, part);
  return value->flat_elements && value->dtype == dtype && value->global[0] == elements &&
         value->flat_elements == stored->flat_elements &&
         value->flat_offset == stored->flat_offset && value->flat_rows == parameter->dims[0] &&
         value->flat_row_elements == row &&
         ls_places_equal(stage->proof, &value->placement, &wanted);
}

/* Numbers of blocks: all of them, the same on every rank, in a buffer of their own. */
static bool blocks_fit(const ls_stage *stage, const ls_program_parameter *parameter, int part,
                       ls_state_part which, ls_dtype dtype) {
  const ls_value *value = &stage->program->values.items[part];
  return value->flat_elements && !value->flat_rows && value->dtype == dtype &&
         value->global[0] == ls_state_size_of(which, parameter->ndim, parameter->dims).rows &&
         ls_places_equal(stage->proof, &value->placement, &(ls_placement){0});
}

static bool whole_fits(const ls_stage *stage, const ls_program_parameter *parameter, int part) {
  const ls_program *program = stage->program;
  const ls_value *value = &program->values.items[part];
  const int64_t bytes = (int64_t)ls_dtype_bytes(value->dtype);
  if (value->flat_elements || value->ndim != parameter->ndim ||
      value->offset != program->values.items[parameter->part[LS_PART_STORED]].flat_offset * bytes)
    return false;
  for (int d = 0; d < value->ndim; d++)
    if (value->global[d] != parameter->dims[d]) return false;
  return true;
}

static ls_status fail_having(const ls_stage *stage, const ls_program_parameter *parameter,
                             ls_state_part part, ls_error *error) {
  return ls_fail(error, LS_REFUTED, "stage %d parameter %s: is frozen, but has %s: expected none",
                 stage->number, parameter->name, ls_state_row_of(part)->name);
}

/* A part's type and place; every parameter has a stored and a used form. */
static ls_status check_part(const ls_stage *stage, const ls_program_parameter *parameter,
                            ls_state_part part, ls_error *error) {
  const ls_program *program = stage->program;
  const ls_state_row *row = ls_state_row_of(part);
  const ls_dtype compute = stage->proof->layout->compute;
  const ls_tensor_id whole =
      stage->proof->graph->parameters.items[parameter - program->parameters].tensor;
  const ls_dtype types[] = {
      [LS_TYPE_COMPUTE] = ls_layout_dtype(stage->proof->layout,
                                          ls_graph_tensor(stage->proof->graph, whole)->precision),
      [LS_TYPE_UPDATE] = compute == LS_F64 ? LS_F64 : LS_F32,
      [LS_TYPE_GRADIENT] = compute == LS_F64 ? LS_F64 : stage->proof->layout->grad_dtype,
      [LS_TYPE_CODE] = LS_U8};
  const int value = parameter->part[part];
  if (value < 0) return LS_OK;
  if (row->trained && !parameter->trainable) return fail_having(stage, parameter, part, error);
  const ls_dtype found = program->values.items[value].dtype;
  const bool codes = part == LS_PART_USED && found == LS_U8; /* who reads them is proved */
  bool fits = found == types[row->type] || codes;
  if (row->whole)
    fits = blocks_fit(stage, parameter, value, part, types[row->type]);
  else if (row->range)
    fits = range_fits(stage, parameter, value, types[row->type]);
  else
    fits = fits && whole_fits(stage, parameter, value);
  return fits ? LS_OK
              : fail_parameter(stage, parameter, error,
                               ls_arena_printf(stage->proof->arena, "%s is", row->name));
}

static ls_status check_parts(const ls_stage *stage, const ls_program_parameter *parameter,
                             ls_error *error) {
  for (int i = 0; i < LS_PART_COUNT; i++)
    if (parameter->part[i] >= stage->program->values.count ||
        (parameter->part[i] < 0 && !ls_state_row_of((ls_state_part)i)->trained))
      return fail_parameter(stage, parameter, error, "parts are");
  const int p = (int)(parameter - stage->program->parameters);
  const int update =
      ls_optimizer_update_of(&stage->proof->layout->optimizer, stage->proof->graph, p);
  if (parameter->trainable && parameter->update != update)
    return fail_parameter(stage, parameter, error, "update is another's, and its state");
  const ls_placement placement = used_placement(stage, parameter);
  const int used = parameter->part[LS_PART_USED];
  if (!ls_places_equal(stage->proof, &stage->program->values.items[used].placement, &placement))
    return fail_parameter(stage, parameter, error, "used form is");
  for (int i = 0; i < LS_PART_COUNT; i++)
    LS_TRY(check_part(stage, parameter, (ls_state_part)i, error));
  return LS_OK;
}

/* The first region that begins at the address or behind it. */
static int find_region(const ls_regions *regions, int64_t begin) {
  int low = 0, high = regions->items.count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (regions->items.items[middle].begin < begin)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Notes the region; regions of one storage stay ordered and must be apart. */
static ls_status note_region(ls_stage *stage, int p, int value, ls_error *error) {
  if (value < 0) return LS_OK;
  const ls_extent *extent = &stage->extents[value];
  ls_regions *regions = &stage->regions[stage->program->values.items[value].storage];
  const int at = find_region(regions, extent->begin);
  const ls_region *here = &regions->items.items[at];
  if (at < regions->items.count && here->parameter == p && here->begin == extent->begin &&
      here->end == extent->end)
    return LS_OK;
  if ((at > 0 && here[-1].end > extent->begin) ||
      (at < regions->items.count && here->begin < extent->end))
    return fail_parameter(stage, &stage->program->parameters[p], error,
                          "elements are also another parameter's,");
  LS_APPEND(stage->proof->arena, &regions->items);
  for (int i = regions->items.count - 1; i > at; i--)
    regions->items.items[i] = regions->items.items[i - 1];
  regions->items.items[at] = (ls_region){p, extent->begin, extent->end};
  return LS_OK;
}

void ls_note_region(ls_stage *stage, int p, int storage, int64_t begin, int64_t end) {
  ls_regions *regions = &stage->regions[storage];
  const int at = find_region(regions, begin);
  if (at < regions->items.count && regions->items.items[at].begin == begin) return;
  LS_APPEND(stage->proof->arena, &regions->items);
  for (int i = regions->items.count - 1; i > at; i--)
    regions->items.items[i] = regions->items.items[i - 1];
  regions->items.items[at] = (ls_region){p, begin, end};
}

static void note_gradients(ls_stage *stage) {
  const ls_program *program = stage->program;
  stage->gradient_of = LS_NEW_ARRAY(stage->proof->arena, int, program->values.count + 1);
  for (int v = 0; v < program->values.count; v++) stage->gradient_of[v] = -1;
  for (int p = 0; p < program->parameter_count; p++) {
    const int value = program->parameters[p].part[LS_PART_RAW_GRADIENT];
    if (value < 0 || value >= program->values.count) continue;
    stage->gradient_of[value] = stage->gradient_of[value] == -1 ? p : LS_SEVERAL;
  }
}

ls_status ls_proof_parameters(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  stage->regions = LS_NEW_ARRAY(stage->proof->arena, ls_regions, program->storages.count + 1);
  LS_TRY(ls_expected_check_sources(stage, error));
  for (int p = 0; p < program->parameter_count; p++) {
    const ls_program_parameter *parameter = &program->parameters[p];
    if (!parameter->present) continue;
    if ((int)parameter->sharding < 0 || parameter->sharding >= LS_TP_COUNT)
      return fail_parameter(stage, parameter, error, "cut is of no known kind: its parts are");
    LS_TRY(check_parts(stage, parameter, error));
    for (int i = 0; i < LS_PART_COUNT; i++)
      LS_TRY(note_region(stage, p, parameter->part[i], error));
  }
  note_gradients(stage);
  return LS_OK;
}

/* Puts down what memory outside the work region holds. */
static void lay(ls_stage *stage, int value, int live_interval, int expression, int microbatch,
                const ls_placement *placement) {
  const ls_extent *extent = &stage->extents[value];
  const ls_operand operand = {value, live_interval, extent->begin, extent->end, extent->end};
  const ls_content content = {
      .expression = expression, .microbatch = microbatch, .placement = *placement};
  LS_ASSERT(ls_memory_write(stage, &operand, &content, NULL) == LS_OK);
}

/* As a part lies between programs. */
static ls_placement kept_placement(const ls_stage *stage, const ls_placement *used, int value,
                                   int part) {
  if (ls_state_row_of((ls_state_part)part)->whole) return (ls_placement){0};
  return ls_part_placement(stage, used, value);
}

static int lasting_live_interval(const ls_program *program, int value) {
  return ls_program_buffer_group(program, value)->live_interval;
}

/* Whether the part is kept between programs by itself: without rounding, and in one tier, a
 * parameter is its own master. Weights that each program makes of the state are not. */
static bool is_kept(const ls_stage *stage, int p, int part) {
  const ls_program *program = stage->program;
  const ls_program_parameter *parameter = &program->parameters[p];
  const int value = parameter->part[part], stored = parameter->part[LS_PART_STORED];
  const ls_optimizer_row *row = ls_optimizer_row_of(&stage->proof->layout->optimizer);
  if (part == LS_PART_STORED && parameter->trainable && row->point.outputs) return false;
  return value >= 0 && ls_state_row_of((ls_state_part)part)->kept &&
         (part == LS_PART_STORED ||
          program->values.items[value].storage != program->values.items[stored].storage);
}

static void begin_inputs(ls_stage *stage) {
  const ls_program *program = stage->program;
  int inputs[LS_INPUT_COUNT];
  ls_program_inputs(program, inputs);
  for (int i = 0; i < LS_INPUT_COUNT; i++) {
    if (inputs[i] < 0) continue;
    const int first = lasting_live_interval(program, inputs[i]);
    const int buffer_group = program->live_intervals.items[first].buffer_group;
    const int expression = ls_expression_leaf(&stage->proof->expressions, LS_LEAF_INPUT, i, 0);
    for (int j = first; j < program->live_intervals.count; j++)
      if (program->live_intervals.items[j].buffer_group == buffer_group)
        lay(stage, inputs[i], j, expression, j - first,
            &program->values.items[inputs[i]].placement);
  }
}

/* Learning rate, step and scale come from outside; an evaluation finds the step's cells as they
 * were. */
static void begin_cells(ls_stage *stage) {
  const ls_program *program = stage->program;
  for (int c = 0; c < LS_CELL_COUNT; c++) {
    if (program->cell[c] < 0) continue;
    const bool outside = c == LS_CELL_LEARNING_RATE || c == LS_CELL_STEP || c == LS_CELL_SCALE;
    if (!outside && program->kind == LS_PROGRAM_STEP) continue;
    const int expression =
        ls_expression_leaf(&stage->proof->expressions, LS_LEAF_CELL, c, outside ? 0 : -1);
    lay(stage, program->cell[c], lasting_live_interval(program, program->cell[c]), expression, -1,
        &(ls_placement){0});
  }
}

/* Each rank's own wish to stop, where the sum over stages is not waited for. */
static void begin_wish(ls_stage *stage) {
  const int value = stage->program->cell[LS_CELL_STOP];
  if (stage->program->replay_boundary < 0 || value < 0) return;
  const ls_extent *extent = &stage->extents[value];
  const ls_operand operand = {value, lasting_live_interval(stage->program, value), extent->begin,
                              extent->end, extent->end};
  ls_content content = {.kind = LS_CONTENT_SUM,
                        .expression = LS_CELL_STOP,
                        .microbatch = -1,
                        .terms = ls_term_one(stage->proof->arena, stage->number, -1, 0, 0)};
  const ls_mesh *mesh = &stage->proof->mesh;
  for (int axis = 0; axis < mesh->count; axis++)
    if (mesh->axes[axis].role != LS_MESH_STAGE && (stage->proof->active >> axis & 1))
      content.placement.on[axis] = (ls_place){.kind = LS_PARTIAL};
  LS_ASSERT(ls_memory_write(stage, &operand, &content, NULL) == LS_OK);
}

/* The graph's tensor that a value keeps between programs: a cache of decoding; -1: none. */
static int kept_tensor(const ls_stage *stage, int v) {
  const ls_program *program = stage->program;
  const ls_value *value = &program->values.items[v];
  const ls_buffer_group *buffer_group = ls_program_buffer_group(program, v);
  if (buffer_group->pool != LS_POOL_STATE || buffer_group->category != LS_CATEGORY_CACHES ||
      value->flat_elements)
    return -1;
  return ls_expected_find_state(stage->proof, value->name);
}

static void begin_caches(ls_stage *stage) {
  for (int v = 0; v < stage->program->values.count; v++) {
    const int tensor = kept_tensor(stage, v);
    if (tensor >= 0)
      lay(stage, v, lasting_live_interval(stage->program, v),
          ls_expected_source(stage->proof, tensor, 0), -1,
          &stage->program->values.items[v].placement);
  }
}

void ls_proof_begin(ls_stage *stage) {
  const ls_program *program = stage->program;
  stage->contents =
      LS_NEW_ARRAY(stage->proof->arena, ls_contents, program->live_intervals.count + 1);
  stage->in_one_memory = LS_NEW_ARRAY(stage->proof->arena, bool, program->instructions.count + 1);
  stage->made =
      LS_NEW_ARRAY(stage->proof->arena, const ls_placement *, program->instructions.count + 1);
  stage->bindings = LS_NEW_ARRAY(stage->proof->arena, ls_binding, program->buffer_groups.count + 1);
  for (int f = 0; f <= program->buffer_groups.count; f++) stage->bindings[f].action = -1;
  begin_inputs(stage);
  begin_cells(stage);
  begin_wish(stage);
  begin_caches(stage);
  for (int p = 0; p < program->parameter_count; p++) {
    if (!program->parameters[p].present) continue;
    const int *part = program->parameters[p].part;
    const ls_placement *used = &program->values.items[part[LS_PART_USED]].placement;
    for (int i = 0; i < LS_PART_COUNT; i++) {
      if (!is_kept(stage, p, i)) continue;
      const ls_placement placement = kept_placement(stage, used, part[i], i);
      lay(stage, part[i], lasting_live_interval(program, part[i]),
          ls_expression_leaf(&stage->proof->expressions, LS_LEAF_PART + (ls_leaf)i, p, 0), -1,
          &placement);
    }
  }
}

static ls_status check_kept(ls_stage *stage, int p, int part, ls_error *error) {
  const ls_program *program = stage->program;
  const int version = program->kind == LS_PROGRAM_STEP && ls_expected_trains(stage->proof, p);
  const ls_program_parameter *parameter = &program->parameters[p];
  const int value = parameter->part[part];
  const char *name = ls_state_row_of((ls_state_part)part)->name;
  const ls_extent *extent = &stage->extents[value];
  const ls_content *found =
      ls_memory_look(stage, lasting_live_interval(program, value),
                     program->values.items[value].storage, extent->begin, extent->end);
  const ls_placement wanted = kept_placement(
      stage, &program->values.items[parameter->part[LS_PART_USED]].placement, value, part);
  const int expression =
      ls_expression_leaf(&stage->proof->expressions, LS_LEAF_PART + (ls_leaf)part, p, version);
  if (!found || found->expression != expression || found->kind != LS_CONTENT_VALUE)
    return ls_fail(error, LS_REFUTED, "stage %d: ends without the %s%s of %s: expected %s",
                   stage->number, version ? "updated " : "", name, parameter->name,
                   version ? "one update" : "them unchanged");
  if (ls_places_equal(stage->proof, &found->placement, &wanted)) return LS_OK;
  return ls_fail(error, LS_REFUTED,
                 "stage %d: leaves the %s of %s in other shards than it found them: expected them "
                 "as they are stored",
                 stage->number, name, parameter->name);
}

ls_status ls_proof_speculated(ls_stage *stage, int p, ls_error *error) {
  const ls_program *program = stage->program;
  const int stored = program->parameters[p].part[LS_PART_STORED];
  const ls_extent *extent = &stage->extents[stored];
  const ls_content *found =
      ls_memory_look(stage, lasting_live_interval(program, stored),
                     program->values.items[stored].storage, extent->begin, extent->end);
  const ls_placement wanted = ls_part_placement(
      stage, &program->values.items[program->parameters[p].part[LS_PART_USED]].placement, stored);
  if (found && found->kind == LS_CONTENT_VALUE &&
      found->expression ==
          ls_expression_leaf(&stage->proof->expressions, LS_LEAF_PARAMETER, p, 2) &&
      ls_places_equal(stage->proof, &found->placement, &wanted))
    return LS_OK;
  return ls_proof_fail(stage, error, "comes before the weights of %s are speculated: expected all",
                       program->parameters[p].name);
}

/* Every stage's wish, on all ranks. */
static ls_status check_wish(ls_stage *stage, ls_error *error) {
  const int value = stage->program->cell[LS_CELL_STOP];
  if (stage->program->replay_boundary < 0) return LS_OK;
  const ls_extent *extent = &stage->extents[value];
  const ls_content *found =
      ls_memory_look(stage, lasting_live_interval(stage->program, value),
                     stage->program->values.items[value].storage, extent->begin, extent->end);
  if (found && found->kind == LS_CONTENT_SUM && found->terms.count == stage->proof->count)
    return ls_check_whole(stage, found, "the wish to stop", error);
  return ls_fail(error, LS_REFUTED,
                 "stage %d: ends without the wishes to stop of all stages: expected "
                 "their sum",
                 stage->number);
}

static ls_status check_cell(ls_stage *stage, ls_cell cell, ls_error *error) {
  const ls_program *program = stage->program;
  const int value = program->cell[cell];
  const ls_extent *extent = value < 0 ? NULL : &stage->extents[value];
  const ls_content *found =
      value < 0 ? NULL
                : ls_memory_look(stage, lasting_live_interval(program, value),
                                 program->values.items[value].storage, extent->begin, extent->end);
  if (found && found->kind == LS_CONTENT_VALUE &&
      found->expression ==
          ls_expression_leaf(&stage->proof->expressions, LS_LEAF_CELL, (int)cell, 0))
    return LS_OK;
  return ls_fail(error, LS_REFUTED, "stage %d: ends without %s: expected it made of finished sums",
                 stage->number, cell == LS_CELL_NORM ? "the gradient norm" : "the mean loss");
}

/* What is told with a loss, of pairs and of a teacher, is summed as it is. */
static ls_status check_rewards(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  for (int c = LS_CELL_REWARD_CHOSEN; c < LS_CELL_COUNT; c++) {
    const int value = program->cell[c];
    const bool wanted = stage->proof->graph->rewards[c - LS_CELL_REWARD_CHOSEN].index >= 0;
    if ((value >= 0) != wanted)
      return ls_fail(error, LS_REFUTED, "stage %d: has %s sums told with the loss: expected %s",
                     stage->number, wanted ? "no" : "cells for", wanted ? "them" : "none");
    if (!wanted) continue;
    const ls_extent *extent = &stage->extents[value];
    const ls_content *found =
        ls_memory_look(stage, lasting_live_interval(program, value),
                       program->values.items[value].storage, extent->begin, extent->end);
    if (!found)
      return ls_fail(error, LS_REFUTED, "stage %d: ends without %s: expected its sum",
                     stage->number, program->values.items[value].name);
    LS_TRY(ls_finished_sum(stage, found, (ls_cell)c, program->values.items[value].name, error));
  }
  return LS_OK;
}

/* Of experts too, in each layer that has them. */
static ls_status check_loads(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  if (program->loads.count != stage->proof->loads.count)
    return ls_fail(error, LS_REFUTED, "stage %d: has loads of %d layers: expected the model's %d",
                   stage->number, program->loads.count, stage->proof->loads.count);
  for (int l = 0; l < program->loads.count; l++) {
    const int value = program->loads.items[l];
    const ls_extent *extent = &stage->extents[value];
    const ls_content *found =
        ls_memory_look(stage, lasting_live_interval(program, value),
                       program->values.items[value].storage, extent->begin, extent->end);
    if (!found)
      return ls_fail(error, LS_REFUTED, "stage %d: ends without %s: expected its sum",
                     stage->number, program->values.items[value].name);
    LS_TRY(
        ls_finished_sum(stage, found, LS_CELL_COUNT + l, program->values.items[value].name, error));
  }
  return LS_OK;
}

/* Each cache has this program's rows. */
static ls_status check_caches(ls_stage *stage, ls_error *error) {
  for (int v = 0; v < stage->program->values.count; v++) {
    const int tensor = kept_tensor(stage, v);
    if (tensor < 0) continue;
    const ls_extent *extent = &stage->extents[v];
    const ls_value *value = &stage->program->values.items[v];
    const ls_content *found = ls_memory_look(stage, lasting_live_interval(stage->program, v),
                                             value->storage, extent->begin, extent->end);
    if (!found || found->kind != LS_CONTENT_VALUE ||
        found->expression != ls_expected_source(stage->proof, tensor, 1))
      return ls_fail(error, LS_REFUTED,
                     "stage %d: ends without the new rows of %s: expected them written once",
                     stage->number, value->name);
  }
  return LS_OK;
}

ls_status ls_proof_end(ls_stage *stage, ls_error *error) {
  const ls_program *program = stage->program;
  LS_TRY(check_caches(stage, error));
  for (int p = 0; p < program->parameter_count; p++)
    for (int part = 0; part < LS_PART_COUNT && program->parameters[p].present; part++)
      if (is_kept(stage, p, part)) LS_TRY(check_kept(stage, p, part, error));
  const bool loss = program->labels >= 0;
  if (loss) LS_TRY(check_cell(stage, LS_CELL_MEAN_LOSS, error));
  if (program->kind == LS_PROGRAM_STEP) LS_TRY(check_cell(stage, LS_CELL_NORM, error));
  LS_TRY(check_wish(stage, error));
  if (loss) LS_TRY(check_rewards(stage, error));
  if (loss) LS_TRY(check_loads(stage, error));
  if (program->kind != LS_PROGRAM_FORWARD || program->logits < 0) return LS_OK;
  const int value = program->logits, live_interval = lasting_live_interval(program, value);
  const ls_extent *extent = &stage->extents[value];
  const ls_content *logits =
      live_interval < 0 ? NULL
                        : ls_memory_look(stage, live_interval, program->values.items[value].storage,
                                         extent->begin, extent->end);
  if (!logits || logits->kind != LS_CONTENT_VALUE || logits->expression != stage->proof->logits)
    return ls_fail(error, LS_REFUTED,
                   "stage %d: ends without %s, which is read after the program: "
                   "expected the model's logits kept",
                   stage->number, program->values.items[value].name);
  return LS_OK;
}
