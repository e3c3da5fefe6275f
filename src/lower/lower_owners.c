#include "ir/owners.h"
#include "lower/lower.h"

/* Updates of whole matrices: who owns which, and how they come there and back. */

typedef struct matrix {
  int parameter;
  int64_t elements; /* with what aligns the next one */
  double cost;
} matrix;

typedef struct owner {
  double cost;
  int64_t elements;
} owner;

static matrix matrix_of(const ls_program *program, int parameter, ls_op_kind made_by) {
  const int64_t *dims = program->parameters[parameter].dims;
  const int64_t range[LS_MAX_DIMS] = {dims[0] * dims[1], dims[1]}; /* as owners have it */
  return (matrix){parameter,
                  (range[0] + LS_UNIT_ALIGNMENT - 1) / LS_UNIT_ALIGNMENT * LS_UNIT_ALIGNMENT,
                  ls_op_flops(made_by, &(ls_attributes){0}, range, NULL)};
}

/* Costliest first; of equals as the unit has them. */
static void sort(matrix *matrices, int count) {
  for (int i = 1; i < count; i++) {
    const matrix each = matrices[i];
    int at = i;
    for (; at > 0 && matrices[at - 1].cost < each.cost; at--) matrices[at] = matrices[at - 1];
    matrices[at] = each;
  }
}

static int least_of(const owner *owners, int ranks) {
  int least = 0;
  for (int o = 1; o < ranks; o++)
    if (owners[o].cost < owners[least].cost) least = o;
  return least;
}

/* Gives each matrix to the owner that has least so far (Graham's rule: never more than 4/3 of the
 * best). The one with most to do is the first rank, by which costs of a stage are told. */
static void deal_matrices(ls_lowering *lowering, int unit, ls_op_kind made_by) {
  ls_program *program = lowering->program;
  const ls_unit *about = &lowering->units->items[unit];
  const int ranks = ls_mesh_stage_ranks(&program->mesh), count = about->entries.count;
  matrix *matrices = LS_NEW_ARRAY(program->arena, matrix, count + 1);
  owner *owners = LS_NEW_ARRAY(program->arena, owner, ranks);
  int *owner_of = LS_NEW_ARRAY(program->arena, int, count + 1);
  for (int e = 0; e < count; e++)
    matrices[e] = matrix_of(program, about->entries.items[e].parameter, made_by);
  sort(matrices, count);
  int busiest = 0;
  int64_t most = 0;
  for (int m = 0; m < count; m++) {
    owner *to = &owners[owner_of[m] = least_of(owners, ranks)];
    program->parameters[matrices[m].parameter].owned = to->elements;
    to->cost += matrices[m].cost;
    to->elements += matrices[m].elements;
    if (to->elements > most) most = to->elements;
    if (to->cost > owners[busiest].cost) busiest = owner_of[m];
  }
  for (int m = 0; m < count; m++) {
    const int named = owner_of[m] == busiest ? 0 : owner_of[m] == 0 ? busiest : owner_of[m];
    program->parameters[matrices[m].parameter].owned += named * most;
  }
  lowering->memory[unit].most_owned = most;
}

/* Elements [offset, offset + elements) of what owners have. */
static ls_value owned_range(const ls_lowering *lowering, int unit, int64_t offset,
                            int64_t elements) {
  const ls_mesh *mesh = &lowering->program->mesh;
  const ls_unit_memory *memory = &lowering->memory[unit];
  return (ls_value){.name = lowering->units->items[unit].name,
                    .dtype = ls_lower_dtype(lowering, unit, LS_PART_MASTER),
                    .ndim = 1,
                    .global = {elements},
                    .placement = ls_owner_placement(mesh),
                    .storage = memory->owned,
                    .flat_elements = memory->most_owned * ls_mesh_stage_ranks(mesh),
                    .flat_offset = offset};
}

static int all_owned(ls_lowering *lowering, int unit) {
  ls_value made = owned_range(lowering, unit, 0, 0);
  made.global[0] = made.flat_elements;
  return ls_lower_value(lowering, &made);
}

int ls_lower_owned(ls_lowering *lowering, int parameter) {
  const ls_program_parameter *about = &lowering->program->parameters[parameter];
  ls_value made = owned_range(lowering, about->unit, about->owned, about->dims[0] * about->dims[1]);
  made.name = about->name;
  made.flat_rows = about->dims[0];
  made.flat_row_elements = about->dims[1];
  return ls_lower_value(lowering, &made);
}

static void place_owned(ls_lowering *lowering, int unit, ls_op_kind made_by) {
  const ls_unit *about = &lowering->units->items[unit];
  ls_unit_memory *memory = &lowering->memory[unit];
  deal_matrices(lowering, unit, made_by);
  memory->owned = ls_lower_storage(
      lowering, ls_arena_printf(lowering->program->arena, "%s owned matrices", about->name),
      LS_POOL_WORK, LS_CATEGORY_TEMPORARIES,
      memory->most_owned * (int64_t)ls_dtype_bytes(ls_lower_dtype(lowering, unit, LS_PART_MASTER)));
}

/* The shards of an operand's elements: in `storage`. */
static int shards_of(ls_lowering *lowering, int unit, int storage, const char *name) {
  const ls_unit *about = &lowering->units->items[unit];
  return ls_lower_range(lowering, name, storage, ls_lower_dtype(lowering, unit, LS_PART_MASTER),
                        unit, 0, about->elements, &about->state);
}

static void lower_dealing(ls_lowering *lowering, int unit, const ls_update_node *of, bool back) {
  const ls_program *program = lowering->program;
  const ls_unit *about = &lowering->units->items[unit];
  const ls_unit_memory *memory = &lowering->memory[unit];
  const bool away = lowering->offload_plan->state[unit];
  const int own = memory->temporary[LS_FROM_ELEMENTS][(back ? of->out : of->in)[0].index];
  const int storage = away ? ls_lower_meeting(lowering, unit, LS_FROM_ELEMENTS) : own;
  const char *what = ls_arena_printf(program->arena, "update of %s", about->name);
  const char *reason =
      ls_arena_printf(program->arena, back ? "%s, owners -> shards" : "%s, shards -> owners", what);
  const int64_t shard = ls_lower_unit_elements(lowering, unit, LS_PART_MASTER, &about->state);
  const int shards = shards_of(lowering, unit, storage, what);
  const int there = away ? shards_of(lowering, unit, own, what) : shards;
  const int owned = all_owned(lowering, unit);
  if (away && !back) ls_lower_move_now(lowering, there, shards, shard, what);
  ls_instruction *made =
      ls_lower_collective(lowering, back ? LS_HAND_BACK : LS_DEAL, ls_owner_axes(&program->mesh),
                          back ? owned : shards, back ? shards : owned, 0, reason);
  made->unit = unit;
  made->count = ls_deal_most(program, made);
  if (away && back) ls_lower_move_now(lowering, shards, there, shard, what);
}

static bool has_owners(const ls_lowering *lowering, int unit) {
  return ls_owner_axes(&lowering->program->mesh) && lowering->units->items[unit].entries.count;
}

void ls_lower_deal(ls_lowering *lowering, int unit, const ls_update_node *of) {
  if (!has_owners(lowering, unit)) return;
  place_owned(lowering, unit, of->op);
  lower_dealing(lowering, unit, of, false);
}

void ls_lower_hand_back(ls_lowering *lowering, int unit, const ls_update_node *of) {
  if (has_owners(lowering, unit)) lower_dealing(lowering, unit, of, true);
}
