#include "lower/lower.h"

/* Moves between tiers: of units, and of what forward passes keep. */

static void begin_move(ls_lowering *lowering, int source, int target, int64_t count,
                       const char *what) {
  if (!count) return; /* a unit without parameters */
  const ls_program *program = lowering->program;
  const int from = program->values.items[source].storage,
            to = program->values.items[target].storage;
  const char *reason = ls_arena_printf(program->arena, "%s: %s -> %s", what,
                                       ls_tier_name(ls_pool_tier(lowering->plans.items[from].pool)),
                                       ls_tier_name(ls_pool_tier(lowering->plans.items[to].pool)));
  ls_lower_collective(lowering, LS_MOVE, 0, source, target, count, reason)->queue = LS_QUEUE_MOVE;
}

void ls_lower_move_now(ls_lowering *lowering, int source, int target, int64_t count,
                       const char *what) {
  const int first = lowering->program->instructions.count;
  begin_move(lowering, source, target, count, what);
  for (int i = first; i < lowering->program->instructions.count; i++)
    lowering->program->instructions.items[i].queue = LS_QUEUE_COMPUTE;
}

/* A unit's whole buffer, or this rank's shard of it, from one storage to another. */
static void move_unit(ls_lowering *lowering, int unit, ls_state_part part, int source, int target,
                      const ls_placement *placement, const char *what) {
  const ls_unit *about = &lowering->units->items[unit];
  const char *name = ls_arena_printf(lowering->program->arena, "%s of %s", what, about->name);
  const int from = ls_lower_unit_part(lowering, name, source, unit, part, placement);
  const int to = ls_lower_unit_part(lowering, name, target, unit, part, placement);
  begin_move(lowering, from, to, ls_lower_unit_elements(lowering, unit, part, placement), name);
}

static void move_state(ls_lowering *lowering, int unit, bool back) {
  const ls_unit_memory *memory = &lowering->memory[unit];
  const int update = lowering->units->items[unit].update;
  for (int i = 0; i < LS_PART_COUNT; i++) {
    const ls_state_part part = (ls_state_part)i;
    if (ls_optimizer_keeps(&lowering->sharded->layout.optimizer, update, part))
      move_unit(lowering, unit, part, back ? memory->at[i] : memory->part[i],
                back ? memory->part[i] : memory->at[i], ls_lower_placement(lowering, unit, part),
                ls_state_row_of(part)->name);
  }
}

static void move_activations(ls_lowering *lowering, int segment, bool back) {
  ls_program *program = lowering->program;
  const ls_tier tier = lowering->offload_plan->activations;
  const ls_moved *moved = &lowering->offload_plan->moved_of[segment];
  for (int i = 0; i < moved->count; i++) {
    const int v = moved->items[i];
    const int here = lowering->value_of[v];
    if (lowering->away[v] < 0) {
      ls_value value = program->values.items[here];
      value.offset = 0;
      value.storage =
          ls_lower_storage(lowering, value.name, ls_lower_work_pool(tier), LS_CATEGORY_ACTIVATIONS,
                           program->storages.items[value.storage].bytes);
      lowering->away[v] = ls_lower_value(lowering, &value);
    }
    const int away = lowering->away[v];
    begin_move(lowering, back ? away : here, back ? here : away,
               ls_lower_elements(lowering->sharded, v), program->values.items[here].name);
  }
}

void ls_lower_move(ls_lowering *lowering, const ls_action *action) {
  const int unit = action->unit;
  const ls_unit_memory *memory = unit >= 0 ? &lowering->memory[unit] : NULL;
  const ls_unit *about = unit >= 0 ? &lowering->units->items[unit] : NULL;
  switch (ls_action_sort(action)) {
    case LS_BEGIN_OF(FETCH, PARAMETERS):
      move_unit(lowering, unit, LS_PART_STORED, memory->part[LS_PART_STORED], memory->source,
                &about->stored, "parameters");
      break;
    case LS_BEGIN_OF(RETURN, GRADIENTS):
      move_unit(lowering, unit, LS_PART_GRADIENT, memory->reduced, memory->part[LS_PART_GRADIENT],
                &about->state, "gradient");
      break;
    case LS_BEGIN_OF(FETCH, GRADIENTS):
      move_unit(lowering, unit, LS_PART_GRADIENT, memory->part[LS_PART_GRADIENT],
                memory->at[LS_PART_GRADIENT], &about->state, "gradient");
      break;
    case LS_BEGIN_OF(FETCH, STATE): move_state(lowering, unit, false); break;
    case LS_BEGIN_OF(RETURN, STATE): move_state(lowering, unit, true); break;
    case LS_BEGIN_OF(RETURN, PARAMETERS):
      move_unit(lowering, unit, LS_PART_STORED, memory->at[LS_PART_STORED],
                memory->part[LS_PART_STORED], &about->state, "parameters");
      break;
    case LS_BEGIN_OF(RETURN, ACTIVATIONS):
      move_activations(lowering, action->segment, false);
      break;
    case LS_BEGIN_OF(FETCH, ACTIVATIONS): move_activations(lowering, action->segment, true); break;
    default: ls_panic("action \"%s\" moves nothing between tiers", ls_action_name(action));
  }
}
