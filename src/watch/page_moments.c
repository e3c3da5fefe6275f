/* The events of a page: what one stage does between two collectives, or a collective. */
#include <stdlib.h>

#include "cost/cost.h"
#include "watch/page.h"

/* An event; of compute, all instructions of an action up to the next collective. */
typedef struct event {
  int action, instruction; /* the first one; instruction -1: an action without any */
  int count;
  bool last; /* of its action */
} event;

typedef LS_LIST(event) event_list;

/* All stages on their way through their events, passes taking unit times. */
typedef struct simulation {
  const ls_page_layout *layout;
  const int *row_of_unit;
  ls_arena *arena;
  event_list *events; /* [stage] */
  int *next;          /* [stage] */
  double *now;        /* [stage] */
  int microbatches;
  json_t *reasons, *places;             /* texts, and the place of each */
  json_t *events_told, *told;           /* what events are, each once, and the place of each */
  double *forward_sent, *backward_sent; /* [boundary][microbatch]: when; < 0: not yet */
} simulation;

/* Counts of all microbatches in a row are one event. */
static bool is_count(const ls_program *program, int action) {
  return program->actions.items[action].action.kind == LS_ACTION_COUNT;
}

/* What of a transfer takes no time: done where it begins or, of what is received, where it ends. */
static bool is_idle(const ls_instruction *instruction) {
  return ls_collective_is_of_group(instruction->collective)
             ? instruction->phase == LS_END
             : instruction->collective == LS_RECEIVE && instruction->phase == LS_BEGIN;
}

static void find_events(simulation *of, int stage) {
  const ls_program *program = of->layout->stages[stage];
  event_list *events = &of->events[stage];
  for (int a = 0; a < program->actions.count; a++) {
    const ls_body *body = &program->bodies.items[program->actions.items[a].body];
    event *before = events->count ? &events->items[events->count - 1] : NULL;
    if (before && is_count(program, a) && is_count(program, before->action)) {
      before->count++;
      continue;
    }
    event *open = NULL;
    const int had = events->count;
    for (int i = body->first; i < body->first + body->count; i++) {
      const ls_instruction *each = &program->instructions.items[i];
      if (is_idle(each)) continue;
      const bool collective = each->collective != LS_COLLECTIVE_NONE;
      if (!open || collective) {
        open = LS_APPEND(of->arena, events);
        *open = (event){.action = a, .instruction = i};
      }
      open->count++;
      if (collective) open = NULL;
    }
    if (events->count == had)
      *LS_APPEND(of->arena, events) = (event){.action = a, .instruction = -1};
    events->items[events->count - 1].last = true;
  }
}

static const ls_instruction *instruction_of(const ls_program *program, const event *each) {
  return each->instruction < 0 ? NULL : &program->instructions.items[each->instruction];
}

static double *message_of(const simulation *of, const ls_action *action) {
  const bool back = action->payload == LS_PAYLOAD_GRADIENTS;
  return &(back ? of->backward_sent
                : of->forward_sent)[action->segment * of->microbatches + action->microbatch];
}

static const event *next_event(const simulation *of, int stage) {
  return of->next[stage] < of->events[stage].count ? &of->events[stage].items[of->next[stage]]
                                                   : NULL;
}

static bool takes_part(const simulation *of, const ls_instruction *collective, int own, int other) {
  const ls_axes stages = ls_mesh_axes(&of->layout->stages[0]->mesh, LS_MESH_STAGE);
  return collective->peer == other || (collective->peer < 0 && collective->axes & stages) ||
         own == other;
}

/* A collective of several stages begins when all of them have come to it; -1: not yet. */
static double meet(const simulation *of, int stage, const ls_instruction *collective) {
  double start = 0;
  for (int s = 0; s < ls_mesh_stages(&of->layout->stages[0]->mesh); s++) {
    if (!takes_part(of, collective, stage, s)) continue;
    const event *each = next_event(of, s);
    const ls_instruction *other = each ? instruction_of(of->layout->stages[s], each) : NULL;
    if (!other || other->collective != collective->collective ||
        other->count != collective->count || !takes_part(of, other, s, stage))
      return -1;
    if (of->now[s] > start) start = of->now[s];
  }
  return start;
}

/* When a stage's next event can begin; -1: it waits for another stage, or there is none. */
static double ready(const simulation *of, int stage) {
  const event *each = next_event(of, stage);
  if (!each) return -1;
  const ls_program *program = of->layout->stages[stage];
  const ls_instruction *instruction = instruction_of(program, each);
  const ls_action *action = &program->actions.items[each->action].action;
  if (instruction && ls_collective_is_of_group(instruction->collective) &&
      instruction->phase != LS_END)
    return meet(of, stage, instruction);
  const bool receives = ls_action_is_message(action) && action->transfer == LS_TRANSFER_RECEIVE;
  if (!receives || action->kind != LS_ACTION_WAIT) return of->now[stage];
  const double sent = *message_of(of, action);
  if (sent < 0) return -1;
  return sent > of->now[stage] ? sent : of->now[stage];
}

/* The row of what an action is about. */
static int row_of(const simulation *of, const ls_action *action) {
  const ls_program *program = of->layout->stages[0];
  if (action->unit >= 0) return of->row_of_unit[action->unit];
  if (action->segment < 0) return -1;
  const int unit = program->segments.items[ls_program_segment_of(program, action)].unit;
  return unit < 0 ? -1 : of->row_of_unit[unit];
}

static json_t *reason_json(const simulation *of, const char *reason) {
  json_t *place = json_object_get(of->places, reason);
  if (place) return json_incref(place);
  place = json_integer((json_int_t)json_array_size(of->reasons));
  json_array_append_new(of->reasons, json_string(reason));
  json_object_set(of->places, reason, place);
  return place;
}

/* What an event is, whatever its microbatch and its place in the list of actions. */
static json_t *describe(const simulation *of, int stage, const event *each) {
  const ls_program *program = of->layout->stages[stage];
  const ls_program_segment *segments = program->segments.items;
  const ls_action *action = &program->actions.items[each->action].action;
  const ls_instruction *instruction = instruction_of(program, each);
  json_t *made = json_pack("{s:i, s:s, s:i}", "stage", stage, "kind", ls_action_name(action), "row",
                           row_of(of, action));
  if (each->last) json_object_set_new(made, "last", json_true());
  if (action->segment >= 0 && action->unit < 0)
    json_object_set_new(made, "segment",
                        json_string(segments[ls_program_segment_of(program, action)].name));
  if (!instruction || instruction->collective == LS_COLLECTIVE_NONE) {
    json_object_set_new(made, "ops", json_integer(each->count));
    return made;
  }
  json_object_set_new(made, "collective", json_string(ls_collective_name(instruction->collective)));
  json_object_set_new(made, "phase", json_string(ls_phase_name(instruction->phase)));
  json_object_set_new(made, "axes", json_integer(instruction->axes));
  if (instruction->peer >= 0) json_object_set_new(made, "peer", json_integer(instruction->peer));
  json_object_set_new(made, "bytes",
                      json_real(ls_instruction_work(program, 0, instruction, false).sent));
  if (instruction->reason) json_object_set_new(made, "why", reason_json(of, instruction->reason));
  return made;
}

/* [which of what events are, microbatch, action]: a step repeats few of them often. */
static json_t *event_json(const simulation *of, int stage, const event *each) {
  const ls_program *program = of->layout->stages[stage];
  json_t *told = describe(of, stage, each);
  char *text = json_dumps(told, JSON_COMPACT | JSON_PRESERVE_ORDER);
  LS_ASSERT(text);
  json_t *place = json_object_get(of->told, text);
  if (!place) {
    place = json_integer((json_int_t)json_array_size(of->events_told));
    json_array_append(of->events_told, told);
    json_object_set_new(of->told, text, place);
  }
  free(text);
  json_decref(told);
  return json_pack(
      "[O, i, i]", place,
      is_count(program, each->action) ? -1 : program->actions.items[each->action].action.microbatch,
      each->action);
}

static void advance(simulation *of, int stage, double start) {
  const ls_program *program = of->layout->stages[stage];
  const event *each = &of->events[stage].items[of->next[stage]++];
  const ls_action *action = &program->actions.items[each->action].action;
  const ls_instruction *instruction = instruction_of(program, each);
  const bool collective = instruction && instruction->collective != LS_COLLECTIVE_NONE;
  of->now[stage] =
      start + (collective ? ls_action_units(LS_ACTION_BEGIN) : ls_action_units(action->kind));
  const bool sends = ls_action_is_message(action) && action->transfer == LS_TRANSFER_SEND;
  if (each->last && sends && action->kind == LS_ACTION_BEGIN)
    *message_of(of, action) = of->now[stage];
}

/* All events that can begin at the earliest time are one moment. */
static json_t *next_moment(simulation *of) {
  const int stages = ls_mesh_stages(&of->layout->stages[0]->mesh);
  double *starts = LS_NEW_ARRAY(of->arena, double, stages);
  double first = -1;
  for (int s = 0; s < stages; s++) {
    starts[s] = ready(of, s);
    if (starts[s] >= 0 && (first < 0 || starts[s] < first)) first = starts[s];
  }
  if (first < 0) return NULL;
  json_t *moment = json_array();
  for (int s = 0; s < stages; s++) {
    if (starts[s] < 0 || starts[s] > first + 1e-9) continue;
    json_array_append_new(moment, event_json(of, s, &of->events[s].items[of->next[s]]));
    advance(of, s, starts[s]);
  }
  return moment;
}

json_t *ls_page_moments(const ls_page_layout *layout, const int *row_of_unit, json_t *reasons,
                        json_t *events) {
  const int stages = ls_mesh_stages(&layout->stages[0]->mesh);
  ls_arena *arena = ls_arena_create();
  simulation of = {.layout = layout,
                   .row_of_unit = row_of_unit,
                   .arena = arena,
                   .reasons = reasons,
                   .places = json_object(),
                   .events_told = events,
                   .told = json_object(),
                   .microbatches = layout->stages[0]->layout.microbatches};
  const int messages = stages * layout->stages[0]->chunks * of.microbatches;
  of.events = LS_NEW_ARRAY(arena, event_list, stages);
  of.next = LS_NEW_ARRAY(arena, int, stages);
  of.now = LS_NEW_ARRAY(arena, double, stages);
  of.forward_sent = LS_NEW_ARRAY(arena, double, messages);
  of.backward_sent = LS_NEW_ARRAY(arena, double, messages);
  for (int m = 0; m < messages; m++) of.forward_sent[m] = of.backward_sent[m] = -1;
  for (int s = 0; s < stages; s++) find_events(&of, s);
  json_t *moments = json_array(), *moment;
  while ((moment = next_moment(&of))) json_array_append_new(moments, moment);
  for (int s = 0; s < stages; s++) LS_ASSERT(of.next[s] == of.events[s].count);
  json_decref(of.places);
  json_decref(of.told);
  ls_arena_destroy(&arena);
  return moments;
}
