/* Faults in what moves between tiers. A move is two actions, its beginning and its end: both change
 * together where the outcome is not to be a matter of time. */
#include <string.h>

#include "support/faults.h"

enum { GPT2 = 0, LLAMA_FREE, LLAMA_TIED };

static ls_program_action *action(const ls_program *program, int a) {
  return &program->actions.items[a];
}

static const ls_body *body_of(const ls_program *program, int a) {
  return &program->bodies.items[action(program, a)->body];
}

/* The next action of a kind from `from` on; `unit` and `microbatch` -1: of any. -1: none. */
static int find(const ls_program *program, int from, int kind, int unit, int microbatch) {
  for (int a = from; a >= 0 && a < program->actions.count; a++) {
    const ls_action *about = &action(program, a)->action;
    if (ls_action_sort(about) == kind && (unit < 0 || about->unit == unit) &&
        (microbatch < 0 || about->microbatch == microbatch))
      return a;
  }
  return -1;
}

static void move(const ls_program *program, int from, int to) {
  ls_program_action *items = program->actions.items;
  const ls_program_action moved = items[from];
  for (int a = from; a < to; a++) items[a] = items[a + 1];
  for (int a = from; a > to; a--) items[a] = items[a - 1];
  items[to] = moved;
}

static void remove_action(ls_program *program, int a) {
  move(program, a, program->actions.count - 1);
  program->actions.count--;
}

/* The end of the move that action `a` begins. */
static int end_of(const ls_program *program, int a) {
  const ls_action *begun = &action(program, a)->action;
  for (int b = a + 1; b < program->actions.count; b++) {
    const ls_action *about = &action(program, b)->action;
    if (ls_action_sort(about) == ls_action_sort(begun) + 1 && about->segment == begun->segment &&
        about->unit == begun->unit && about->microbatch == begun->microbatch)
      return b;
  }
  ls_panic("action %d has no end", a);
}

/* Both halves of the first move of a kind. */
static int leave_out(ls_program *program, int kind) {
  const int begun = find(program, 0, kind, -1, -1);
  if (begun < 0) return 0;
  remove_action(program, end_of(program, begun));
  remove_action(program, begun);
  return 1;
}

static int move_before(const ls_program *program, int begun, int before) {
  if (begun < 0 || before < 0 || begun < before) return 0;
  move(program, end_of(program, begun), before);
  move(program, begun + 1, before);
  return 1;
}

/* Activations. */
static int offloaded_before_made(ls_program *program) {
  const int begun = find(program, 0, LS_BEGIN_OF(RETURN, ACTIVATIONS), -1, -1);
  if (begun < 0) return 0;
  const ls_action *about = &action(program, begun)->action;
  int made = find(program, 0, LS_ACTION_FORWARD, -1, about->microbatch);
  while (action(program, made)->action.segment != about->segment)
    made = find(program, made + 1, LS_ACTION_FORWARD, -1, about->microbatch);
  return move_before(program, begun, made);
}

static int stale_copy_comes_back(ls_program *program) {
  return leave_out(program, LS_BEGIN_OF(RETURN, ACTIVATIONS));
}

static int not_fetched_back(ls_program *program) {
  return leave_out(program, LS_BEGIN_OF(FETCH, ACTIVATIONS));
}

/* The second microbatch gets back what the first one left outside. */
static int another_microbatch_comes_back(ls_program *program) {
  const int first = find(program, 0, LS_BEGIN_OF(FETCH, ACTIVATIONS), -1, 0);
  if (first < 0) return 0;
  int second = find(program, 0, LS_BEGIN_OF(FETCH, ACTIVATIONS), -1, 1);
  while (second >= 0 && action(program, second)->body != action(program, first)->body)
    second = find(program, second + 1, LS_BEGIN_OF(FETCH, ACTIVATIONS), -1, 1);
  if (second < 0) return 0;
  const ls_body *body = body_of(program, second);
  const int halves[][2] = {{first, second}, {end_of(program, first), end_of(program, second)}};
  int hits = 0;
  for (int h = 0; h < 2; h++)
    for (int f = 0; f < body->buffer_groups.count; f++) {
      if (program->buffer_groups.items[body->buffer_groups.items[f]].pool == LS_POOL_WORK) continue;
      ls_program_action *wrong = action(program, halves[h][1]);
      wrong->live_intervals[f] = action(program, halves[h][0])->live_intervals[f];
      hits++;
    }
  return hits;
}

/* Units. Lets every action of a body touch one more buffer group, which lasts. */
static void add_buffer_group(ls_program *program, int body, int value) {
  const int buffer_group =
      program->storages.items[program->values.items[value].storage].buffer_group;
  ls_body *about = &program->bodies.items[body];
  *LS_APPEND(program->arena, &about->buffer_groups) = buffer_group;
  for (int a = 0; a < program->actions.count; a++) {
    ls_program_action *each = action(program, a);
    if (each->body != body) continue;
    int *live_intervals = LS_NEW_ARRAY(program->arena, int, about->buffer_groups.count);
    memcpy(live_intervals, each->live_intervals,
           (size_t)(about->buffer_groups.count - 1) * sizeof *live_intervals);
    live_intervals[about->buffer_groups.count - 1] =
        program->buffer_groups.items[buffer_group].live_interval;
    each->live_intervals = live_intervals;
  }
}

/* The first unit with a like one gets what is that one's. */
static int of_another_unit(ls_program *program, int kind) {
  for (int a = find(program, 0, kind, -1, -1); a >= 0; a = find(program, a + 1, kind, -1, -1))
    for (int b = find(program, a + 1, kind, -1, -1); b >= 0;
         b = find(program, b + 1, kind, -1, -1)) {
      const ls_instruction *other = &program->instructions.items[body_of(program, b)->first];
      const int halves[] = {a, end_of(program, a)};
      const ls_instruction *own = &program->instructions.items[body_of(program, a)->first];
      if (action(program, a)->body == action(program, b)->body || own->count != other->count)
        continue;
      for (int h = 0; h < 2; h++) {
        program->instructions.items[body_of(program, halves[h])->first].in[0] = other->in[0];
        add_buffer_group(program, action(program, halves[h])->body, other->in[0]);
      }
      return 1;
    }
  return 0;
}

static int state_of_another_unit(ls_program *program) {
  return of_another_unit(program, LS_BEGIN_OF(FETCH, STATE));
}

static int parameters_of_another_unit(ls_program *program) {
  return of_another_unit(program, LS_BEGIN_OF(FETCH, PARAMETERS));
}

static int state_not_stored(ls_program *program) {
  return leave_out(program, LS_BEGIN_OF(RETURN, STATE));
}

static int parameters_not_returned(ls_program *program) {
  return leave_out(program, LS_BEGIN_OF(RETURN, PARAMETERS));
}

static int gradient_given_before_reduced(ls_program *program) {
  const int begun = find(program, 0, LS_BEGIN_OF(RETURN, GRADIENTS), -1, -1);
  if (begun < 0) return 0;
  return move_before(
      program, begun,
      find(program, 0, LS_BEGIN_OF(FINISH, GRADIENTS), action(program, begun)->action.unit, -1));
}

static int state_not_awaited(ls_program *program) {
  int hits = 0;
  for (int a = find(program, 0, LS_WAIT_OF(FETCH, STATE), -1, -1); a >= 0;
       a = find(program, a, LS_WAIT_OF(FETCH, STATE), -1, -1)) {
    remove_action(program, a);
    hits++;
  }
  return hits;
}

static const ls_fault_room host_activations = {.schedule = "gpipe",
                                               .offload = {.activations = LS_TIER_HOST}};
static const ls_fault_room nvme_activations = {.schedule = "gpipe",
                                               .offload = {.activations = LS_TIER_NVME}};
static const ls_fault_room host_activations_of_stages = {
    .pp = 2, .schedule = "gpipe", .offload = {.activations = LS_TIER_HOST}};
static const ls_fault_room nvme_optimizer = {
    .offload = {.optimizer = LS_TIER_NVME, .optimizer_fraction = 1}};
static const ls_fault_room host_optimizer = {
    .offload = {.optimizer = LS_TIER_HOST, .optimizer_fraction = 1}};
static const ls_fault_room host_parameters = {.offload = {.parameters = LS_TIER_HOST}};

/* name, change, model, dp_replicate, dp_shard, tp, zero, sequence parallel, microbatches, dtype,
 * the rest */
const ls_fault ls_offload_faults[] = {
    {"activations offloaded before they are made", offloaded_before_made, GPT2, 1, 1, 1, 1, false,
     2, LS_F64, &host_activations},
    {"stale copy of activations comes back", stale_copy_comes_back, GPT2, 1, 1, 1, 1, false, 2,
     LS_F64, &host_activations},
    {"offloaded activations do not come back", not_fetched_back, GPT2, 1, 1, 1, 1, false, 2, LS_F64,
     &nvme_activations},
    {"activations of another microbatch come back", another_microbatch_comes_back, GPT2, 1, 1, 1, 1,
     false, 4, LS_F64, &host_activations_of_stages},
    {"optimizer state of another unit", state_of_another_unit, GPT2, 1, 1, 1, 1, false, 1, LS_F64,
     &nvme_optimizer},
    {"optimizer state not stored", state_not_stored, GPT2, 1, 1, 1, 1, false, 1, LS_F64,
     &nvme_optimizer},
    {"optimizer state not awaited", state_not_awaited, GPT2, 1, 1, 1, 1, false, 1, LS_F64,
     &nvme_optimizer},
    {"updated parameters not returned", parameters_not_returned, GPT2, 1, 1, 1, 1, false, 1, LS_F64,
     &host_optimizer},
    {"gradient given to the host before it is reduced", gradient_given_before_reduced, GPT2, 1, 2,
     1, 1, false, 1, LS_F64, &host_optimizer},
    {"parameters of another unit fetched", parameters_of_another_unit, GPT2, 1, 1, 1, 1, false, 1,
     LS_F64, &host_parameters},
};

const int ls_offload_fault_count = (int)(sizeof ls_offload_faults / sizeof *ls_offload_faults);
