#include "schedule/units.h"

#include <limits.h>

#include "ir/state.h"
#include "shard/resolve.h"

static int64_t align(int64_t elements, int64_t to) {
  return (elements + to - 1) / to * to;
}

/* The unit of each segment: layers of one chunk are grouped, everything else stands alone. */
static int assign_segments(const ls_sharded *sharded, const ls_chunks *chunks,
                           int *unit_of_segment) {
  const ls_graph *graph = sharded->graph;
  int units = 0, layers_in_unit = 0;
  bool open = false;
  for (int s = 0; s < graph->segments.count; s++) {
    const bool layer = graph->segments.items[s].layer >= 0;
    const int limit = sharded->layout.layers_per_unit;
    const bool other = s > 0 && chunks->chunk_of[s] != chunks->chunk_of[s - 1];
    if (!layer || !open || other || (limit && layers_in_unit == limit)) {
      units++;
      layers_in_unit = 0;
    }
    open = layer;
    layers_in_unit++;
    unit_of_segment[s] = units - 1;
  }
  return units;
}

static ls_axes gradient_partial(const ls_sharded *sharded, int parameter) {
  const int gradient = sharded->gradient_value[parameter];
  if (gradient < 0) return 0;
  return ls_mesh_axes(&sharded->mesh, LS_MESH_TENSOR) &
         ls_placement_axes(&sharded->mesh, &sharded->values.items[gradient].placement, LS_PARTIAL,
                           -1);
}

static ls_axes replicated_axes(const ls_sharded *sharded, int parameter) {
  const ls_placement *used = &sharded->values.items[sharded->parameter_value[parameter]].placement;
  return ls_mesh_active(&sharded->mesh, ls_mesh_axes(&sharded->mesh, LS_MESH_TENSOR)) &
         ~ls_placement_axes(&sharded->mesh, used, LS_SHARDED, -1);
}

/* Data axes over which ranks have other parts of the parameter: experts. */
static ls_axes held_axes(const ls_sharded *sharded, int parameter) {
  const ls_placement *used = &sharded->values.items[sharded->parameter_value[parameter]].placement;
  return ls_mesh_data(&sharded->mesh) & ls_placement_axes(&sharded->mesh, used, LS_SHARDED, -1);
}

static void add_entry(const ls_sharded *sharded, ls_unit *unit, int parameter, ls_axes replicated) {
  const ls_graph *graph = sharded->graph;
  const ls_placement *used = &sharded->values.items[sharded->parameter_value[parameter]].placement;
  const int64_t elements = ls_placement_elements(
      &sharded->mesh, used, ls_graph_tensor(graph, graph->parameters.items[parameter].tensor));
  *LS_APPEND(sharded->arena, &unit->entries) =
      (ls_unit_entry){.parameter = parameter,
                      .offset = unit->elements,
                      .elements = elements,
                      .partial = gradient_partial(sharded, parameter),
                      .replicated = replicated};
  unit->elements = align(unit->elements + elements, unit->granule);
}

/* The first and the last stage that use a parameter. */
typedef struct users {
  int first, last;
} users;

static bool is_shared(const users *of) {
  return of->first < of->last;
}

static users *find_users(const ls_sharded *sharded, const ls_chunks *chunks) {
  const ls_graph *graph = sharded->graph;
  users *found = LS_NEW_ARRAY(sharded->arena, users, graph->parameters.count + 1);
  for (int p = 0; p < graph->parameters.count; p++) found[p] = (users){INT_MAX, -1};
  for (int n = 0; n < graph->nodes.count; n++) {
    const ls_node *node = &graph->nodes.items[n];
    const int stage = ls_chunks_stage(chunks, node->segment);
    for (int i = 0; i < node->inputs; i++) {
      const ls_tensor *tensor = ls_graph_tensor(graph, node->in[i]);
      if (tensor->role != LS_ROLE_PARAMETER) continue;
      users *of = &found[tensor->parameter];
      if (stage < of->first) of->first = stage;
      if (stage > of->last) of->last = stage;
    }
  }
  return found;
}

int64_t ls_unit_elements(const ls_mesh *mesh, const ls_unit *unit, const ls_placement *placement) {
  return unit->elements /
         ls_mesh_size(mesh, ls_placement_axes(mesh, placement, LS_SHARDED_FLAT, -1));
}

static ls_place place_on(const ls_axis *axis, ls_place_kind kind) {
  return kind == LS_SHARDED_FLAT ? ls_place_flat(axis) : (ls_place){.kind = kind};
}

static void place_unit(const ls_sharded *sharded, ls_unit *unit) {
  const ls_layout *layout = &sharded->layout;
  const ls_data_strategy *row = ls_data_strategy_row(layout->zero);
  const ls_place sum = {.kind = LS_PARTIAL};
  const ls_mesh *mesh = &sharded->mesh;
  ls_axes partial = ls_mesh_data(mesh) & ~unit->held;
  if (unit->stages[0] >= 0) partial |= ls_mesh_axes(mesh, LS_MESH_STAGE);
  /* Of a weight's blocks the scales are few numbers, which every rank has. */
  unit->flat = unit->precision == LS_SCALES ? 0 : ls_mesh_axes(mesh, LS_MESH_SHARD) & ~unit->held;
  for (int a = 0; a < mesh->count; a++) {
    if (partial >> a & 1) unit->raw.on[a] = unit->gradient.on[a] = sum;
    if (!(unit->flat >> a & 1)) continue;
    unit->stored.on[a] = place_on(&mesh->axes[a], unit->codes ? LS_SHARDED_FLAT : row->parameters);
    unit->state.on[a] = place_on(&mesh->axes[a], row->state);
    if (!ls_layout_once_a_step(layout, layout->reduce))
      unit->gradient.on[a] = place_on(&mesh->axes[a], row->gradients);
  }
  unit->gather_per_step = ls_layout_once_a_step(layout, layout->gather) ||
                          (unit->codes && row->parameters == LS_REPLICATED);
}

/* Places it, and pads it to shards of one length. */
static void close_unit(const ls_sharded *sharded, ls_unit *unit) {
  place_unit(sharded, unit);
  unit->elements = align(unit->elements, unit->granule * ls_mesh_size(&sharded->mesh, unit->flat));
}

/* Makes a unit of its own for each parameter that two stages use, and finds that of all others. */
static void assign_parameters(const ls_sharded *sharded, ls_units *units,
                              const int *unit_of_segment, const users *used) {
  const ls_graph *graph = sharded->graph;
  for (int u = 0; u < units->count; u++) units->items[u].stages[0] = units->items[u].stages[1] = -1;
  for (int p = 0; p < graph->parameters.count; p++) {
    const ls_tensor *tensor = ls_graph_tensor(graph, graph->parameters.items[p].tensor);
    units->of_parameter[p] = unit_of_segment[tensor->segment];
    if (!is_shared(&used[p])) continue;
    units->of_parameter[p] = units->count;
    units->items[units->count++] = (ls_unit){.name = graph->parameters.items[p].about.name,
                                             .stages = {used[p].first, used[p].last}};
  }
}

/* By parameter: whether it goes from rank to rank as codes, which all that reads it rounds it to:
 * where it is gathered, or would be published once it has been updated. */
static const bool *find_codes(const ls_sharded *sharded) {
  const ls_graph *graph = sharded->graph;
  const ls_layout *layout = &sharded->layout;
  const ls_data_strategy *row = ls_data_strategy_row(layout->zero);
  const ls_axes shards = ls_mesh_axes(&sharded->mesh, LS_MESH_SHARD);
  const bool *rounded = ls_graph_rounded(graph);
  bool *codes = LS_NEW_ARRAY(sharded->arena, bool, graph->parameters.count + 1);
  if (ls_mesh_size(&sharded->mesh, shards) == 1 || layout->offload.parameters != LS_TIER_DEVICE)
    return codes;
  for (int p = 0; p < graph->parameters.count; p++)
    codes[p] =
        rounded[p] && (row->parameters == LS_SHARDED_FLAT ||
                       (row->state == LS_SHARDED_FLAT && graph->parameters.items[p].trainable));
  return codes;
}

/* Of which a unit has one: what is trainable, by its update, in either form that it may be gathered
 * in, and what is frozen by how it is stored; and the same of experts that are sharded over data
 * axes. */
typedef enum unit_kind {
  TRAINABLE = 0,
  OTHERWISE,
  CODES,
  OTHERS_CODES,
  FROZEN,
  BLOCKS,
  PRECISE,
  FROZEN_CODES,
  SCALES,
  HELD,
  UNIT_KINDS = 2 * HELD
} unit_kind;
_Static_assert((int)CODES == (int)LS_UPDATE_COUNT && (int)FROZEN == 2 * (int)LS_UPDATE_COUNT,
               "a kind for each update");

static int kind_of(const ls_sharded *sharded, const bool *codes, int parameter) {
  const ls_parameter_record *record = &sharded->graph->parameters.items[parameter];
  const int held = held_axes(sharded, parameter) ? HELD : 0;
  if (ls_precision_is_blocks(record->about.precision)) return held + BLOCKS;
  if (record->about.precision == LS_ACCUMULATE) return held + PRECISE;
  if (record->about.precision == LS_SCALES) return held + SCALES;
  if (!record->trainable) return held + (int)(codes[parameter] ? FROZEN_CODES : FROZEN);
  return held + ls_optimizer_update_of(&sharded->layout.optimizer, sharded->graph, parameter) +
         (codes[parameter] ? (int)CODES : 0);
}

/* A unit that has several kinds of parameters keeps the first. */
static void part_kinds(const ls_sharded *sharded, ls_units *units) {
  static const char *const names[UNIT_KINDS] = {"",
                                                "others",
                                                "fp8",
                                                "others' fp8",
                                                "frozen",
                                                "quantised",
                                                "precise",
                                                "frozen fp8",
                                                "scales",
                                                "experts",
                                                "others' experts",
                                                "fp8 experts",
                                                "others' fp8 experts",
                                                "frozen experts",
                                                "quantised experts",
                                                "precise experts",
                                                "frozen fp8 experts",
                                                "experts' scales"};
  typedef int by_kind[UNIT_KINDS];
  const ls_graph *graph = sharded->graph;
  const bool *codes = find_codes(sharded);
  const int together = units->count;
  by_kind *unit_of = LS_NEW_ARRAY(sharded->arena, by_kind, together + 1); /* and 1; 0: none */
  for (int p = 0; p < graph->parameters.count; p++)
    unit_of[units->of_parameter[p]][kind_of(sharded, codes, p)] = -1;
  for (int u = 0; u < together; u++)
    for (int k = 0, first = true; k < UNIT_KINDS; k++) {
      if (!unit_of[u][k]) continue;
      unit_of[u][k] = 1 + (first ? u : units->count);
      if (!first)
        units->items[units->count++] = (ls_unit){
            .name = ls_arena_printf(sharded->arena, "%s (%s)", units->items[u].name, names[k]),
            .stages = {-1, -1}};
      units->items[unit_of[u][k] - 1].frozen = k % HELD >= FROZEN;
      units->items[unit_of[u][k] - 1].update = k % HELD == OTHERWISE || k % HELD == OTHERS_CODES;
      first = false;
    }
  for (int p = 0; p < graph->parameters.count; p++) {
    int *unit = &units->of_parameter[p];
    *unit = unit_of[*unit][kind_of(sharded, codes, p)] - 1;
    units->items[*unit].codes = codes[p];
    units->items[*unit].precision = graph->parameters.items[p].about.precision;
    units->items[*unit].held |= held_axes(sharded, p);
  }
}

int ls_units_coded(const ls_units *units, const ls_sharded *sharded, int value) {
  const ls_tensor_id id = sharded->values.items[value].tensor;
  const ls_tensor *tensor = ls_graph_tensor(sharded->graph, id);
  if (tensor->role != LS_ROLE_PARAMETER) return -1;
  return units->items[units->of_parameter[tensor->parameter]].codes ? tensor->parameter : -1;
}

/* What POINT finds of a weight's shards passes do not look for in the whole. */
static const bool *find_left_out(const ls_sharded *sharded, const ls_units *units) {
  bool *left_out = LS_NEW_ARRAY(sharded->arena, bool, sharded->nodes.count + 1);
  bool *largest = LS_NEW_ARRAY(sharded->arena, bool, sharded->values.count + 1); /* by value */
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    const bool reduces = node->collective != LS_COLLECTIVE_NONE && largest[node->in[0]];
    const bool finds = node->collective == LS_COLLECTIVE_NONE && node->kind == LS_OP_AMAX &&
                       ls_units_coded(units, sharded, node->in[0]) >= 0;
    left_out[n] = reduces || finds;
    for (int o = 0; o < node->outputs && left_out[n]; o++) largest[node->out[o]] = true;
  }
  return left_out;
}

static void list_parameters(const ls_sharded *sharded, ls_units *units) {
  const int count = sharded->graph->parameters.count;
  units->parameters = LS_NEW_ARRAY(sharded->arena, int, count + 1);
  units->first = LS_NEW_ARRAY(sharded->arena, int, units->count + 2);
  for (int p = 0; p < count; p++) units->first[units->of_parameter[p] + 2]++;
  for (int u = 0; u < units->count; u++) units->first[u + 2] += units->first[u + 1];
  for (int p = 0; p < count; p++) units->parameters[units->first[units->of_parameter[p] + 1]++] = p;
}

/* The order must not depend on gradients: programs without any share the step's parameters. */
static void fill_unit(const ls_sharded *sharded, ls_units *units, int u) {
  ls_unit *unit = &units->items[u];
  ls_axes replicated = 0, next;
  unit->granule = unit->codes ? 2 * LS_UNIT_ALIGNMENT : LS_UNIT_ALIGNMENT;
  do {
    next = ~0u;
    for (int i = units->first[u]; i < units->first[u + 1]; i++) {
      const int p = units->parameters[i];
      const ls_axes axes = replicated_axes(sharded, p);
      if (axes > replicated && axes < next) next = axes;
      if (axes != replicated) continue;
      units->entry_of[p] = unit->entries.count;
      add_entry(sharded, unit, p, replicated);
    }
    replicated = next;
  } while (next != ~0u);
  close_unit(sharded, unit);
}

ls_units *ls_units_make(const ls_sharded *sharded, const ls_chunks *chunks) {
  ls_arena *arena = sharded->arena;
  const ls_graph *graph = sharded->graph;
  ls_units *units = LS_NEW(arena, ls_units);
  int *unit_of_segment = LS_NEW_ARRAY(arena, int, graph->segments.count);
  units->count = assign_segments(sharded, chunks, unit_of_segment);
  units->items = LS_NEW_ARRAY(arena, ls_unit, units->count + 2 * graph->parameters.count);
  units->of_parameter = LS_NEW_ARRAY(arena, int, graph->parameters.count);
  units->entry_of = LS_NEW_ARRAY(arena, int, graph->parameters.count);
  for (int s = graph->segments.count - 1; s >= 0; s--)
    units->items[unit_of_segment[s]].name = graph->segments.items[s].name;
  assign_parameters(sharded, units, unit_of_segment, find_users(sharded, chunks));
  part_kinds(sharded, units);
  units->left_out = find_left_out(sharded, units);
  list_parameters(sharded, units);
  for (int u = 0; u < units->count; u++) fill_unit(sharded, units, u);
  units->uses = ls_unit_uses_make(sharded, units->of_parameter);
  return units;
}
