/* Timelines from a planned schedule: passes, and the transfers that are begun beside them. */
#include <string.h>

#include "watch/markup.h"
#include "watch/timeline.h"

static void add_plan(ls_arena *arena, ls_timeline *timeline, const ls_pipeline *pipeline,
                     const ls_pipeline_times *times, int stage) {
  static const char *const names[LS_PASS_KINDS] = {"forward", "backward", "backward: inputs",
                                                   "backward: weights"};
  for (int i = 0; i < pipeline->lists[stage].count; i++) {
    const ls_pipeline_pass *pass = &pipeline->lists[stage].items[i];
    const ls_pipeline_span *when = &times->spans[stage][i];
    *LS_APPEND(arena, &timeline->spans) = (ls_timeline_span){
        .process = stage,
        .queue = LS_QUEUE_COMPUTE,
        .kind = (ls_span_kind)pass->kind,
        .microbatch = pass->microbatch,
        .chunk = pass->chunk,
        .start = when->start,
        .end = when->end,
        .name = names[pass->kind],
        .label = ls_arena_printf(arena, "%c%d", ls_pass_letter(pass->kind), pass->microbatch)};
  }
}

/* A transfer under way. */
typedef struct begun {
  const ls_action *action;
  double at;
} begun;

/* A walk over a stage's actions, each pass cut into equal times for its segments. */
typedef struct walk {
  ls_arena *arena;
  ls_timeline *made;
  const ls_program *program;
  int process;
  int first; /* of the stage's transfers among the spans */
  int place; /* in the stage's list, of the pass at hand */
  double now;
  LS_LIST(begun) open;
} walk;

static bool is_step(const ls_action *action) {
  return action->kind == LS_ACTION_FORWARD || action->kind == LS_ACTION_RECOMPUTE ||
         action->kind == LS_ACTION_BACKWARD || action->kind == LS_ACTION_INPUT ||
         action->kind == LS_ACTION_WEIGHT;
}

/* Whether the action, over a segment, is part of the pass. */
static bool is_of(const ls_program *program, const ls_action *action,
                  const ls_pipeline_pass *pass) {
  if (action->microbatch != pass->microbatch ||
      program->segments.items[action->segment].chunk != pass->chunk)
    return false;
  switch (action->kind) {
    case LS_ACTION_FORWARD: return pass->kind == LS_PASS_FORWARD;
    case LS_ACTION_INPUT:
    case LS_ACTION_RECOMPUTE: return pass->kind == LS_PASS_INPUT || pass->kind == LS_PASS_BACKWARD;
    case LS_ACTION_WEIGHT: return pass->kind == LS_PASS_WEIGHT || pass->kind == LS_PASS_BACKWARD;
    default: return pass->kind == LS_PASS_BACKWARD;
  }
}

/* How many steps of the pass there are from action `a` on. */
static int count_steps(const walk *of, int a, const ls_pipeline_pass *pass) {
  int count = 0;
  for (; a < of->program->actions.count; a++) {
    const ls_action *action = &of->program->actions.items[a].action;
    if (!is_step(action)) continue;
    if (!is_of(of->program, action, pass)) break;
    count++;
  }
  return count;
}

static void add_span(walk *of, const begun *from) {
  const ls_action *action = from->action;
  const ls_program *program = of->program;
  const char *about = action->unit >= 0
                          ? program->units.items[action->unit]
                          : program->segments.items[ls_program_segment_of(program, action)].name;
  static const char *const labels[LS_TRANSFER_COUNT] = {"AG", "AG", "RS", "AR", "S", "R", "M", "M"};
  const bool message = ls_action_is_message(action);
  const bool moves =
      action->transfer == LS_TRANSFER_FETCH || action->transfer == LS_TRANSFER_RETURN;
  const ls_queue queue = moves ? LS_QUEUE_MOVE : LS_QUEUE_COMMUNICATE;
  const ls_span_kind kind = message ? LS_SPAN_TRANSFER : moves ? LS_SPAN_MOVE : LS_SPAN_COLLECTIVE;
  if ((int)queue >= of->made->queues) of->made->queues = (int)queue + 1;
  LS_APPEND(of->arena, &of->made->spans);
  int at = of->made->spans.count - 1; /* in order of their beginnings */
  ls_timeline_span *spans = of->made->spans.items;
  for (; at > of->first && spans[at - 1].start > from->at; at--) spans[at] = spans[at - 1];
  spans[at] =
      (ls_timeline_span){.process = of->process,
                         .queue = queue,
                         .kind = kind,
                         .microbatch = action->microbatch,
                         .chunk = -1,
                         .start = from->at,
                         .end = of->now,
                         .name = ls_arena_printf(of->arena, "%s of %s",
                                                 ls_action_name(action) + strlen("begin "), about),
                         .label = labels[action->transfer]};
}

/* What takes no time, since nothing lies between its beginning and its end, is not drawn. */
static void add_transfer(walk *of, const ls_action *action) {
  if (action->kind == LS_ACTION_BEGIN) {
    *LS_APPEND(of->arena, &of->open) = (begun){action, of->now};
    return;
  }
  ls_action beginning = *action;
  beginning.kind = LS_ACTION_BEGIN;
  for (int i = 0; i < of->open.count; i++) {
    const begun from = of->open.items[i];
    if (ls_action_sort(from.action) != ls_action_sort(&beginning) ||
        from.action->unit != action->unit || from.action->segment != action->segment ||
        from.action->microbatch != action->microbatch)
      continue;
    for (int j = i + 1; j < of->open.count; j++) of->open.items[j - 1] = of->open.items[j];
    of->open.count--;
    if (of->now > from.at) add_span(of, &from);
    return;
  }
}

static void add_transfers(walk *of, const ls_pipeline_list *list, const ls_pipeline_span *spans) {
  double share = 0;
  for (int a = 0; a < of->program->actions.count; a++) {
    const ls_action *action = &of->program->actions.items[a].action;
    if (ls_action_transfers(action)) add_transfer(of, action);
    if (!is_step(action)) continue;
    if (of->place < 0 || !is_of(of->program, action, &list->items[of->place])) {
      if (++of->place == list->count) return;
      const int steps = count_steps(of, a, &list->items[of->place]);
      if (!steps) return;
      of->now = spans[of->place].start;
      share = (spans[of->place].end - of->now) / steps;
    }
    of->now += share;
  }
}

ls_timeline *ls_timeline_plan(ls_arena *arena, const ls_pipeline *pipeline,
                              const ls_pipeline_times *times, const ls_program *const *stages,
                              const char *title) {
  ls_timeline *made = LS_NEW(arena, ls_timeline);
  *made = (ls_timeline){
      .title = ls_markup_clean(arena, title),
      .subtitle = ls_arena_printf(
          arena,
          "planned: %d stage%s, %d microbatch%s, %d chunk%s each: %.4g units of time (F = I = W = "
          "1, transfers free), bubble %.1f %%",
          pipeline->stages, pipeline->stages == 1 ? "" : "s", pipeline->microbatches,
          pipeline->microbatches == 1 ? "" : "es", pipeline->chunks,
          pipeline->chunks == 1 ? "" : "s", times->makespan, 100 * times->bubble),
      .unit = "units of time",
      .microseconds = 1000,
      .processes = pipeline->stages,
      .queues = 1,
      .chunks = pipeline->chunks,
      .end = times->makespan};
  made->process_names = LS_NEW_ARRAY(arena, const char *, made->processes);
  for (int s = 0; s < made->processes; s++) {
    made->process_names[s] = ls_arena_printf(arena, "stage %d", s);
    add_plan(arena, made, pipeline, times, s);
    if (!stages) continue;
    walk at = {.arena = arena,
               .made = made,
               .program = stages[s],
               .process = s,
               .first = made->spans.count,
               .place = -1};
    add_transfers(&at, &pipeline->lists[s], times->spans[s]);
  }
  return made;
}
