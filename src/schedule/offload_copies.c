#include "schedule/offload_copies.h"

typedef struct updater {
  ls_arena *arena;
  const ls_offload_plan *offload_plan;
  ls_schedule *schedule;
  const bool *trained;
  int units;
} updater;

static void add(const updater *u, ls_action_kind kind, int unit) {
  *LS_APPEND(u->arena, u->schedule) =
      (ls_action){.kind = kind, .segment = -1, .unit = unit, .microbatch = -1};
}

/* Begins or ends a transfer of the unit. */
static void transfer(const updater *u, ls_action_kind kind, ls_transfer_kind way,
                     ls_payload payload, int unit) {
  *LS_APPEND(u->arena, u->schedule) = (ls_action){kind, way, payload, -1, unit, -1};
}

/* Of what tier the memory is that an update writes to. */
static ls_tier computes_in(ls_tier state) {
  return state == LS_TIER_DEVICE ? LS_TIER_DEVICE : LS_TIER_HOST;
}

bool ls_offload_returns(const ls_offload_plan *offload_plan, int unit) {
  const ls_tier state = offload_plan->state[unit], parameters = offload_plan->parameters[unit];
  if (state == parameters && offload_plan->one_copy) return false;
  return parameters != computes_in(state);
}

static bool in_file(const updater *u, int unit) {
  return unit >= 0 && u->offload_plan->state[unit] == LS_TIER_NVME;
}

static int next_of(const updater *u, int unit) {
  do unit++;
  while (unit < u->units && !u->trained[unit]);
  return unit < u->units ? unit : -1;
}

static void begin_unit(const updater *u, int unit) {
  if (!in_file(u, unit)) return;
  transfer(u, LS_ACTION_BEGIN, LS_TRANSFER_FETCH, LS_PAYLOAD_STATE, unit);
  transfer(u, LS_ACTION_BEGIN, LS_TRANSFER_FETCH, LS_PAYLOAD_GRADIENTS, unit);
}

static void end_unit(const updater *u, int unit) {
  if (unit < 0) return;
  if (ls_offload_returns(u->offload_plan, unit))
    transfer(u, LS_ACTION_WAIT, LS_TRANSFER_RETURN, LS_PAYLOAD_PARAMETERS, unit);
  if (in_file(u, unit)) transfer(u, LS_ACTION_WAIT, LS_TRANSFER_RETURN, LS_PAYLOAD_STATE, unit);
}

/* Units with a parameter that are `left`, in the order of their first parameters. */
static int order_units(const ls_units *units, bool *left, int *ordered) {
  int count = 0;
  for (int p = 0; p < units->first[units->count]; p++) {
    const int unit = units->of_parameter[p];
    if (left[unit]) ordered[count++] = unit;
    left[unit] = false;
  }
  return count;
}

void ls_offload_norm(ls_arena *arena, const ls_units *units, const bool *trained, int stage,
                     const ls_offload_plan *offload_plan, ls_schedule *schedule) {
  const updater u = {arena, offload_plan, schedule, trained, units->count};
  bool *left = LS_NEW_ARRAY(arena, bool, units->count + 1);
  for (int i = 0; i < units->count; i++) { /* of two stages that share a unit the first counts it */
    const int home = units->items[i].stages[0];
    left[i] = trained[i] && (home < 0 || home == stage);
  }
  int *ordered = LS_NEW_ARRAY(arena, int, units->count + 1);
  const int count = order_units(units, left, ordered);
  if (count && in_file(&u, ordered[0]))
    transfer(&u, LS_ACTION_BEGIN, LS_TRANSFER_FETCH, LS_PAYLOAD_GRADIENTS, ordered[0]);
  for (int i = 0; i < count; i++) {
    const int next = i + 1 < count ? ordered[i + 1] : -1;
    if (in_file(&u, ordered[i]))
      transfer(&u, LS_ACTION_WAIT, LS_TRANSFER_FETCH, LS_PAYLOAD_GRADIENTS, ordered[i]);
    if (in_file(&u, next))
      transfer(&u, LS_ACTION_BEGIN, LS_TRANSFER_FETCH, LS_PAYLOAD_GRADIENTS, next);
    add(&u, LS_ACTION_SUM, ordered[i]);
  }
}

void ls_offload_update(ls_arena *arena, const ls_units *units, const bool *trained,
                       const ls_offload_plan *offload_plan, ls_schedule *schedule) {
  const updater u = {arena, offload_plan, schedule, trained, units->count};
  int last = -1;
  const int first = next_of(&u, -1);
  begin_unit(&u, first);
  for (int unit = first; unit >= 0; unit = next_of(&u, unit)) {
    const int next = next_of(&u, unit);
    if (in_file(&u, unit)) {
      transfer(&u, LS_ACTION_WAIT, LS_TRANSFER_FETCH, LS_PAYLOAD_STATE, unit);
      transfer(&u, LS_ACTION_WAIT, LS_TRANSFER_FETCH, LS_PAYLOAD_GRADIENTS, unit);
    }
    begin_unit(&u, next);
    add(&u, LS_ACTION_UPDATE, unit);
    end_unit(&u, last);
    if (ls_offload_returns(offload_plan, unit))
      transfer(&u, LS_ACTION_BEGIN, LS_TRANSFER_RETURN, LS_PAYLOAD_PARAMETERS, unit);
    if (in_file(&u, unit))
      transfer(&u, LS_ACTION_BEGIN, LS_TRANSFER_RETURN, LS_PAYLOAD_STATE, unit);
    last = unit;
  }
  end_unit(&u, last);
}
