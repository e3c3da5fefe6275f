/* Units that are gathered as codes of 8 bits (fp8): what POINT makes of their shards, and what the
 * passes then need not do. The weight's largest magnitude is that of the whole tensor, found once a
 * program, so codes and scales are those of one device. */
#include "lower/lower.h"
#include "shard/resolve.h"

bool ls_lower_decodes(const ls_lowering *lowering, const ls_shard_node *node) {
  return node->collective == LS_COLLECTIVE_NONE && node->kind == LS_OP_FP8 &&
         ls_units_coded(lowering->units, lowering->sharded, node->in[0]) >= 0;
}

static ls_dtype number_dtype(const ls_lowering *lowering) {
  return ls_layout_dtype(&lowering->sharded->layout, LS_ACCUMULATE);
}

/* A parameter's largest magnitude, among those of its unit. */
static int largest_of(ls_lowering *lowering, int p, const char *name,
                      const ls_placement *placement) {
  const ls_dtype dtype = number_dtype(lowering);
  const int unit = lowering->units->of_parameter[p];
  return ls_lower_value(lowering, &(ls_value){.name = name,
                                              .dtype = dtype,
                                              .ndim = 1,
                                              .global = {1},
                                              .placement = *placement,
                                              .storage = lowering->memory[unit].largest,
                                              .offset = lowering->units->entry_of[p] *
                                                        (int64_t)ls_dtype_bytes(dtype)});
}

void ls_lower_place_codes(ls_lowering *lowering, int unit) {
  const ls_unit *about = &lowering->units->items[unit];
  ls_unit_memory *memory = &lowering->memory[unit];
  ls_arena *arena = lowering->program->arena;
  memory->codes = ls_lower_storage(
      lowering, ls_arena_printf(arena, "%s codes", about->name), LS_POOL_WORK,
      LS_CATEGORY_PARAMETERS, ls_unit_elements(&lowering->sharded->mesh, about, &about->stored));
  memory->largest =
      ls_lower_storage(lowering, ls_arena_printf(arena, "%s largest magnitudes", about->name),
                       LS_POOL_WORK, LS_CATEGORY_PARAMETERS,
                       about->entries.count * (int64_t)ls_dtype_bytes(number_dtype(lowering)));
}

void ls_lower_find_largest(ls_lowering *lowering) {
  const ls_sharded *sharded = lowering->sharded;
  for (int n = 0; n < sharded->nodes.count; n++) {
    const ls_shard_node *node = &sharded->nodes.items[n];
    if (!ls_lower_decodes(lowering, node)) continue;
    const int p = ls_units_coded(lowering->units, sharded, node->in[0]);
    if (!lowering->present[lowering->units->of_parameter[p]]) continue;
    const ls_tensor_id id = sharded->values.items[node->in[1]].tensor;
    lowering->value_of[node->in[1]] =
        largest_of(lowering, p, ls_graph_tensor(sharded->graph, id)->name, &(ls_placement){0});
  }
}

/* Each rank has the largest of its own elements. */
static ls_placement own_largest(const ls_lowering *lowering, int p) {
  const ls_mesh *mesh = &lowering->program->mesh;
  const int stored = lowering->program->parameters[p].part[LS_PART_STORED];
  const ls_placement *placement = &lowering->program->values.items[stored].placement;
  const ls_axes cut =
      ls_mesh_active(mesh, ls_placement_axes(mesh, placement, LS_SHARDED, -1) |
                               ls_value_flat_axes(mesh, &lowering->program->values.items[stored]));
  ls_placement made = {0};
  for (int a = 0; a < mesh->count; a++)
    if (cut >> a & 1) made.on[a] = (ls_place){.kind = LS_PARTIAL, .reduce = LS_MAX};
  return made;
}

static ls_instruction *add_op(ls_lowering *lowering, ls_op_kind kind, int first, int second,
                              int out) {
  ls_instruction *made = ls_lower_op(lowering, kind);
  made->inputs = second < 0 ? 1 : 2;
  made->in[0] = first;
  made->in[1] = second;
  made->outputs = 1;
  made->out[0] = out;
  return made;
}

/* Those of entries [first, end), which the same axes cut: the largest of all ranks'. */
static void reduce_largest(ls_lowering *lowering, int unit, int first, int end,
                           const ls_placement *own) {
  const ls_program *program = lowering->program;
  const ls_unit *about = &lowering->units->items[unit];
  const char *name = ls_arena_printf(program->arena, "amax of %s", about->name);
  ls_resolve_step steps[LS_MAX_RESOLVE_STEPS];
  const int count = ls_resolve(&program->mesh, own, &(ls_placement){0}, steps);
  LS_ASSERT(count >= 0);
  for (int s = 0; s < count; s++) {
    const int value =
        ls_lower_value(lowering, &(ls_value){.name = name,
                                             .dtype = number_dtype(lowering),
                                             .ndim = 1,
                                             .global = {end - first},
                                             .placement = steps[s].after,
                                             .storage = lowering->memory[unit].largest,
                                             .flat_elements = about->entries.count,
                                             .flat_offset = first});
    ls_lower_collective(lowering, steps[s].collective, steps[s].axes, value, value, end - first,
                        ls_resolve_reason(program->arena, &program->mesh, name, &steps[s]))
        ->reduce = steps[s].from.reduce;
  }
}

void ls_lower_codes(ls_lowering *lowering, int unit) {
  const ls_program *program = lowering->program;
  const ls_mesh *mesh = &program->mesh;
  const ls_unit *about = &lowering->units->items[unit];
  const int count = about->entries.count;
  const ls_unit_entry *entries = about->entries.items;
  for (int e = 0; e < count; e++) {
    const ls_program_parameter *of = &program->parameters[entries[e].parameter];
    const ls_placement own = own_largest(lowering, entries[e].parameter);
    add_op(lowering, LS_OP_RANGE_AMAX, of->part[LS_PART_STORED], -1,
           largest_of(lowering, entries[e].parameter, of->name, &own));
  }
  for (int e = 0, next; e < count; e = next) {
    const ls_placement own = own_largest(lowering, entries[e].parameter);
    for (next = e + 1; next < count; next++) {
      const ls_placement others = own_largest(lowering, entries[next].parameter);
      if (!ls_placement_equal(mesh, &own, &others, ls_mesh_all(mesh))) break;
    }
    reduce_largest(lowering, unit, e, next, &own);
  }
  for (int e = 0; e < count; e++) {
    const int p = entries[e].parameter;
    const ls_program_parameter *of = &program->parameters[p];
    const int largest = largest_of(lowering, p, of->name, &(ls_placement){0});
    const int codes = ls_lower_parameter(lowering, p, LS_PART_USED, of->name,
                                         lowering->memory[unit].codes, &about->stored);
    add_op(lowering, LS_OP_FP8_CODES, of->part[LS_PART_STORED], largest, codes)->attributes.fp8 =
        LS_FP8_E4M3;
  }
}
