#include "schedule/offload_copies.h"

#include "ir/state.h"

typedef struct updater {
  const ls_sharded *sharded;
  const ls_units *units;
  const ls_offload_plan *offload_plan;
  ls_schedule *schedule;
  const bool *trained;
  LS_LIST(int) publishing; /* units whose updated shards are under way */
} updater;

static void add(const updater *u, ls_action_kind kind, int unit) {
  *LS_APPEND(u->sharded->arena, u->schedule) =
      (ls_action){.kind = kind, .segment = -1, .unit = unit, .microbatch = -1};
}

/* Begins or ends a transfer of the unit. */
static void transfer(const updater *u, ls_action_kind end, ls_transfer_kind kind,
                     ls_payload payload, int unit) {
  *LS_APPEND(u->sharded->arena, u->schedule) = (ls_action){end, kind, payload, -1, unit, -1};
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
  while (unit < u->units->count && !u->trained[unit]);
  return unit < u->units->count ? unit : -1;
}

/* The unit's updated shards begin to go to ranks that store its weights otherwise, beside the units
 * that follow. */
static void publish(updater *u, int unit) {
  const ls_mesh *mesh = &u->sharded->mesh;
  const ls_unit *about = &u->units->items[unit];
  if (ls_placement_equal(mesh, &about->state, &about->stored, ls_mesh_all(mesh))) return;
  transfer(u, LS_ACTION_BEGIN, LS_TRANSFER_PUBLISH, LS_PAYLOAD_PARAMETERS, unit);
  if (u->sharded->layout.prefetch)
    *LS_APPEND(u->sharded->arena, &u->publishing) = unit;
  else
    transfer(u, LS_ACTION_WAIT, LS_TRANSFER_PUBLISH, LS_PAYLOAD_PARAMETERS, unit);
}

static void end_publishing(const updater *u) {
  for (int i = 0; i < u->publishing.count; i++)
    transfer(u, LS_ACTION_WAIT, LS_TRANSFER_PUBLISH, LS_PAYLOAD_PARAMETERS, u->publishing.items[i]);
}

static void begin_unit(const updater *u, int unit) {
  if (!in_file(u, unit)) return;
  transfer(u, LS_ACTION_BEGIN, LS_TRANSFER_FETCH, LS_PAYLOAD_STATE, unit);
  transfer(u, LS_ACTION_BEGIN, LS_TRANSFER_FETCH, LS_PAYLOAD_GRADIENTS, unit);
}

static void end_unit(updater *u, int unit) {
  if (unit < 0) return;
  if (ls_offload_returns(u->offload_plan, unit)) {
    transfer(u, LS_ACTION_WAIT, LS_TRANSFER_RETURN, LS_PAYLOAD_PARAMETERS, unit);
    publish(u, unit);
  }
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

void ls_offload_norm(const ls_sharded *sharded, const ls_units *units, const bool *trained,
                     int stage, const ls_offload_plan *offload_plan, ls_schedule *schedule) {
  const updater u = {sharded, units, offload_plan, schedule, trained, {0}};
  ls_arena *arena = sharded->arena;
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

/* Whether stored weights are made as a program begins, and not as a step ends. */
static bool points(const ls_sharded *sharded) {
  return ls_optimizer_row_of(&sharded->layout.optimizer)->point.outputs > 0;
}

void ls_schedule_point(const ls_sharded *sharded, const ls_units *units, const bool *present,
                       const bool *trained, const ls_offload_plan *offload_plan,
                       ls_schedule *schedule) {
  updater u = {sharded, units, offload_plan, schedule, trained, {0}};
  for (int unit = 0; unit < units->count; unit++) {
    const bool made = trained[unit] && points(sharded);
    if (made || (present[unit] && units->items[unit].codes)) add(&u, LS_ACTION_POINT, unit);
    if (made) publish(&u, unit);
  }
  end_publishing(&u);
}

void ls_schedule_speculate(const ls_sharded *sharded, const ls_units *units, const bool *trained,
                           const ls_offload_plan *offload_plan, ls_schedule *schedule) {
  updater u = {sharded, units, offload_plan, schedule, trained, {0}};
  for (int unit = next_of(&u, -1); unit >= 0; unit = next_of(&u, unit)) {
    add(&u, LS_ACTION_SPECULATE, unit);
    publish(&u, unit);
  }
  end_publishing(&u);
}

void ls_offload_update(const ls_sharded *sharded, const ls_units *units, const bool *trained,
                       const ls_offload_plan *offload_plan, ls_schedule *schedule) {
  updater u = {sharded, units, offload_plan, schedule, trained, {0}};
  int last = -1;
  const int first = next_of(&u, -1);
  begin_unit(&u, first);
  for (int unit = first; unit >= 0; unit = next_of(&u, unit)) {
    const int next = next_of(&u, unit);
    const bool returns = ls_offload_returns(offload_plan, unit);
    if (in_file(&u, unit)) {
      transfer(&u, LS_ACTION_WAIT, LS_TRANSFER_FETCH, LS_PAYLOAD_STATE, unit);
      transfer(&u, LS_ACTION_WAIT, LS_TRANSFER_FETCH, LS_PAYLOAD_GRADIENTS, unit);
    }
    begin_unit(&u, next);
    add(&u, LS_ACTION_UPDATE, unit);
    end_unit(&u, last);
    if (returns)
      transfer(&u, LS_ACTION_BEGIN, LS_TRANSFER_RETURN, LS_PAYLOAD_PARAMETERS, unit);
    else if (!points(sharded))
      publish(&u, unit);
    if (in_file(&u, unit))
      transfer(&u, LS_ACTION_BEGIN, LS_TRANSFER_RETURN, LS_PAYLOAD_STATE, unit);
    last = unit;
  }
  end_unit(&u, last);
  end_publishing(&u);
}
