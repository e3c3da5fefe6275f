#include "sim/sim.h"

#include <math.h>
#include <string.h>

#include "sim/world.h"

static void keep(ls_sim_world *w, int a, int action, int instruction, double begin, double end) {
  if (w->options->records)
    *LS_APPEND(w->arena, &w->made->stage[a].records) = (ls_record){.action = action,
                                                                   .instruction = instruction,
                                                                   .begin_ns = llround(begin * 1e9),
                                                                   .end_ns = llround(end * 1e9)};
}

/* Whether it ends where it begins, and so takes its rank's time from then on. */
static bool blocks(const ls_sim_world *w, const ls_instruction *instruction) {
  return w->performance->waits && ls_collective_is_of_group(instruction->collective);
}

/* Nothing points at it any more. */
static void spare(ls_sim_world *w, ls_sim_transfer *transfer) {
  if (!transfer->taken || transfer->state != LS_DONE) return;
  transfer->with = w->spare;
  w->spare = transfer;
}

static void end_transfer(ls_sim_world *w, int r) {
  ls_sim_transfer *head = w->running.items[r].head;
  w->running.items[r] = w->running.items[--w->running.count];
  ls_sim_rates_stop(w, head);
  for (ls_sim_transfer *t = head; t; t = t->with) {
    t->state = LS_DONE;
    t->end = w->now;
    ls_sim_queue_end(w, t);
    w->made->stage[t->actor].causes.items[t->cause].seconds += t->end - t->start;
    keep(w, t->actor, t->action, t->index, blocks(w, t->instruction) ? t->begun : t->start, t->end);
    if (w->waits[t->actor] != t) continue;
    ls_sim_waits_end(w, t->actor);
    w->ready[t->actor] = true;
  }
  for (const ls_sim_transfer *t = head; t; t = t->with) ls_sim_queue_go_on(w, t);
  for (ls_sim_transfer *t = head, *next; t; t = next) {
    next = t->with;
    spare(w, t);
  }
}

/* How much later than by an even share of cores the last of an actor's ranks comes to a collective:
 * cores are handed out by slices of time, so of what is shorter three threads on two cores take two
 * turns, not one and a half. What is longer ends as much later as a slice would. */
static double late_by_slices(const ls_sim_world *w, ls_sim_actor *at, int ranks) {
  const ls_performance *on = w->performance;
  const double computed = at->unsynced;
  at->unsynced = 0;
  if (!on->cores) return 0;
  const double wanted = (double)ranks * on->threads / on->cores + ls_sim_rates_cores(w);
  return wanted > 1 ? fmin(computed, on->slice_s) * (ceil(wanted - 1e-9) - wanted) : 0;
}

static ls_sim_transfer *new_transfer(ls_sim_world *w) {
  ls_sim_transfer *made = w->spare;
  if (!made) return LS_NEW(w->arena, ls_sim_transfer);
  w->spare = made->with;
  return made;
}

static ls_sim_transfer *begin(ls_sim_world *w, int a, const ls_sim_item *item) {
  ls_sim_actor *at = &w->actors[a];
  ls_sim_transfer *t = new_transfer(w);
  *t = (ls_sim_transfer){.instruction = item->instruction,
                         .needed_by = {t->needed_by.items, 0, t->needed_by.capacity},
                         .time = item->time,
                         .actor = a,
                         .action = at->action,
                         .index = item->index,
                         .begun = w->now,
                         .wanted = item->instruction->phase == LS_WHOLE};
  if (w->options->seconds_of) t->time = (ls_transfer_time){.link = t->time.link};
  if (ls_collective_is_of_group(t->instruction->collective))
    t->time.latency_s += late_by_slices(w, at, w->classes.ranks[a]);
  t->cause = ls_sim_cause_of(w, t, -1);
  w->made->stage[a].causes.items[t->cause].bytes += item->sent;
  ls_sim_queue_add(w, t);
  ls_sim_queue_start(w, a, t->queue);
  return t;
}

/* The oldest transfer of these operands that is begun and not waited for. */
static ls_sim_transfer *take_begun(ls_sim_actor *at, const ls_instruction *end) {
  for (int b = 0; b < at->begun.count; b++) {
    ls_sim_transfer *t = at->begun.items[b];
    const ls_instruction *i = t->instruction;
    if (i->collective != end->collective || i->peer != end->peer ||
        memcmp(i->in, end->in, sizeof(int) * (size_t)end->inputs) != 0 ||
        memcmp(i->out, end->out, sizeof(int) * (size_t)end->outputs) != 0)
      continue;
    memmove(&at->begun.items[b], &at->begun.items[b + 1],
            sizeof(ls_sim_transfer *) * (size_t)(at->begun.count - b - 1));
    at->begun.count--;
    t->taken = true;
    return t;
  }
  return NULL;
}

static const ls_sim_body *body_of(ls_sim_world *w, ls_sim_actor *at,
                                  const ls_program_action *action) {
  ls_sim_body *body = &at->bodies[2 * action->body + action->first];
  if (!body->made)
    ls_sim_body_make(w->arena, w->performance, at->program, at->rank, action->body, action->first,
                     at->known[action->first], body);
  return body;
}

/* The last count stands for those of microbatches that are put in. */
static double times_of(const ls_sim_world *w, const ls_sim_actor *at) {
  const ls_action *action = &at->program->actions.items[at->action].action;
  if (action->kind != LS_ACTION_COUNT || action->microbatch + 1 < at->program->layout.microbatches)
    return 1;
  return 1 + (double)w->options->repeat.times * w->options->repeat.period;
}

/* What an item computes for: of an action whose seconds are given, its first item all of them. */
static double seconds_of(const ls_sim_world *w, const ls_sim_actor *at, const ls_sim_body *body,
                         const ls_sim_item *item) {
  if (!w->options->seconds_of) return item->seconds;
  for (const ls_sim_item *before = body->items.items; before < item; before++)
    if (before->kind == LS_SIM_COMPUTE) return 0;
  return w->options->seconds_of(w->options->context, at->program,
                                &at->program->actions.items[at->action]);
}

static void take_item(ls_sim_world *w, int a, const ls_sim_body *body, const ls_sim_item *item) {
  ls_sim_actor *at = &w->actors[a];
  at->since = w->now;
  if (item->kind == LS_SIM_COMPUTE) {
    at->computes = item;
    ls_sim_rates_compute(w, a, times_of(w, at) * seconds_of(w, at, body, item));
    at->unsynced += at->remaining;
    return;
  }
  ls_sim_transfer *t =
      item->kind == LS_SIM_BEGIN ? begin(w, a, item) : take_begun(at, item->instruction);
  const bool waits = item->kind == LS_SIM_WAIT || blocks(w, item->instruction);
  const ls_action *action = &at->program->actions.items[at->action].action;
  const bool goes_on = w->options->publishes_late && action->kind == LS_ACTION_WAIT &&
                       action->transfer == LS_TRANSFER_PUBLISH;
  if (!waits || !t) return;
  if (!goes_on) {
    t->wanted = true;
    w->touched[a] = w->turn;
    ls_sim_queue_start(w, a, t->queue);
    w->waits[a] = t->state != LS_DONE ? t : NULL;
  }
  spare(w, t);
}

/* Goes on with an actor as far as it comes without time passing. */
static void go_on(ls_sim_world *w, int a) {
  ls_sim_actor *at = &w->actors[a];
  w->ready[a] = false;
  while (isinf(w->computed[a]) && !w->waits[a] && at->action < at->program->actions.count) {
    const ls_program_action *action = &at->program->actions.items[at->action];
    const ls_sim_body *body = body_of(w, at, action);
    if (at->item < body->items.count) {
      take_item(w, a, body, &body->items.items[at->item++]);
      continue;
    }
    at->action++;
    at->item = 0;
    w->made->stage[a].end = w->now;
  }
}

/* When the next of all that is under way ends; infinite: nothing is. */
static double next_end(const ls_sim_world *w) {
  double end = INFINITY;
  for (int a = 0; a < w->classes.count; a++)
    if (w->computed[a] < end) end = w->computed[a];
  for (int r = 0; r < w->running.count; r++)
    if (w->running.items[r].end < end) end = w->running.items[r].end;
  return end;
}

/* What an actor has computed since `since`: each instruction its part of it. */
static void account(ls_sim_world *w, int a) {
  ls_sim_actor *at = &w->actors[a];
  const ls_sim_item *item = at->computes;
  const ls_action_kind kind = at->program->actions.items[at->action].action.kind;
  const double spent = w->now - at->since;
  w->made->stage[a].compute += spent;
  w->made->stage[a].by_kind[kind] += spent;
  double begin = at->since;
  for (int i = 0; w->options->records && i < item->count; i++) {
    const double end = begin + spent * item->each[i] / item->sum;
    keep(w, a, at->action, item->index + i, begin, end);
    begin = end;
  }
}

/* Lets time pass, and ends what then is done, or is but for rounding. */
static void pass(ls_sim_world *w, double now) {
  const double done = now * (1 + 1e-12);
  w->now = now;
  w->turn++;
  w->made->events++;
  for (int a = 0; a < w->classes.count; a++) {
    if (w->computed[a] > done) continue;
    w->computed[a] = INFINITY;
    w->ready[a] = true;
    account(w, a);
  }
  for (int r = w->running.count - 1; r >= 0; r--) {
    ls_sim_running *each = &w->running.items[r];
    if (each->end > done || !(each->head->latency > 0)) continue;
    each->head->latency = 0;
    if (each->head->remaining > 0) ls_sim_rates_go(w, each);
  }
  for (int r = w->running.count - 1; r >= 0; r--)
    if (w->running.items[r].end <= done) end_transfer(w, r);
}

static void open_actor(ls_sim_world *w, int a, const ls_program *const *programs) {
  const int rank = w->classes.first[a], stage = ls_mesh_stage(w->mesh, rank);
  const int stage_ranks = ls_mesh_stage_ranks(w->mesh);
  const ls_program *program = programs[stage];
  const double *speeds = w->options->speed_of, *rank_speeds = w->options->rank_speed;
  ls_sim_actor *at = &w->actors[a];
  *at =
      (ls_sim_actor){.program = program,
                     .rank = rank,
                     .stage = stage,
                     .peers = LS_NEW_ARRAY(w->arena, int, w->stages),
                     .bodies = LS_NEW_ARRAY(w->arena, ls_sim_body, 2 * program->bodies.count),
                     .queues = LS_NEW_ARRAY(w->arena, ls_sim_queue, ls_sim_queue_count(w)),
                     .speed = (speeds ? speeds[stage] : 1) * (rank_speeds ? rank_speeds[rank] : 1)};
  for (int first = 0; first < 2; first++) {
    at->known[first] = LS_NEW_ARRAY(w->arena, double, program->instructions.count + 1);
    for (int i = 0; i < program->instructions.count; i++) at->known[first][i] = -1;
  }
  for (int s = 0; s < w->stages; s++)
    at->peers[s] = w->classes.of_rank[rank % stage_ranks + s * stage_ranks];
  w->computed[a] = INFINITY;
  w->ready[a] = true;
  w->missing[a] = -1;
  w->made->stage[a].stage = stage;
  w->made->stage[a].rank = rank;
  w->made->stage[a].ranks = w->classes.ranks[a];
}

/* What an actor is stuck at, as an error says it. */
static ls_status fail_stuck(const ls_sim_world *w, ls_error *error) {
  for (int a = 0; a < w->classes.count; a++) {
    const ls_sim_actor *at = &w->actors[a];
    if (at->action < at->program->actions.count)
      return ls_fail(error, LS_FAILED,
                     "stage %d waits for ever in its %s (action %d of %d); lockstep check proves "
                     "the program",
                     at->stage, ls_action_name(&at->program->actions.items[at->action].action),
                     at->action, at->program->actions.count);
  }
  return LS_OK;
}

static void open_world(ls_sim_world *w, const ls_program *const *programs) {
  w->mesh = &programs[0]->mesh;
  w->stages = ls_mesh_stages(w->mesh);
  w->classes =
      ls_sim_classes_make(w->arena, w->mesh, w->performance->per_host, w->options->rank_speed);
  w->actors = LS_NEW_ARRAY(w->arena, ls_sim_actor, w->classes.count);
  w->computed = LS_NEW_ARRAY(w->arena, double, w->classes.count);
  w->ready = LS_NEW_ARRAY(w->arena, bool, w->classes.count);
  w->waits = LS_NEW_ARRAY(w->arena, const ls_sim_transfer *, w->classes.count);
  w->missing = LS_NEW_ARRAY(w->arena, int, w->classes.count);
  w->touched = LS_NEW_ARRAY(w->arena, int64_t, w->classes.count);
  w->made->stages = w->classes.count;
  w->made->stage = LS_NEW_ARRAY(w->arena, ls_sim_stage, w->classes.count);
  w->made->of_rank = w->classes.of_rank;
  for (int a = 0; a < w->classes.count; a++) open_actor(w, a, programs);
  ls_sim_links_open(w);
}

/* The part of the step in which a rank waits for other stages, the mean of all ranks. */
static double bubble_of(const ls_sim_world *w) {
  double idle = 0;
  for (int a = 0; a < w->classes.count; a++) {
    const ls_sim_stage *at = &w->made->stage[a];
    double seconds = w->now - at->end;
    for (int c = 0; c < at->causes.count; c++) {
      const ls_sim_cause *each = &at->causes.items[c];
      if (each->late >= 0 && w->actors[each->late].stage != at->stage) seconds += each->exposed;
    }
    idle += seconds * w->classes.ranks[a];
  }
  return w->now > 0 ? idle / (w->now * ls_mesh_ranks(w->mesh)) : 0;
}

ls_status ls_simulate(ls_arena *arena, const ls_program *const *programs,
                      const ls_performance *performance, const ls_sim_options *options,
                      ls_simulation **simulation, ls_error *error) {
  static const ls_sim_options none;
  ls_sim_world w = {.arena = arena,
                    .performance = performance,
                    .options = options ? options : &none,
                    .made = LS_NEW(arena, ls_simulation)};
  LS_ASSERT(!w.options->records || !w.options->repeat.times);
  open_world(&w, programs);
  if (w.options->repeat.times) w.rhythms = ls_sim_repeat_find(&w);
  for (;;) {
    for (int a = 0; a < w.classes.count; a++)
      if (w.ready[a]) go_on(&w, a);
    ls_sim_rates_share(&w);
    if (w.rhythms) ls_sim_repeat_look(&w);
    const double next = next_end(&w);
    if (isinf(next)) break;
    ls_sim_waits_account(&w);
    pass(&w, next);
  }
  w.made->seconds = w.options->publishes_late ? 0 : w.now;
  for (int a = 0; a < w.classes.count; a++)
    w.made->seconds = fmax(w.made->seconds, w.made->stage[a].end);
  w.made->bubble = bubble_of(&w);
  *simulation = w.made;
  return fail_stuck(&w, error);
}

ls_recording *ls_simulation_recording(ls_arena *arena, const ls_simulation *simulation,
                                      const ls_mesh *mesh) {
  ls_recording *made = LS_NEW(arena, ls_recording);
  made->ranks = ls_mesh_ranks(mesh);
  made->by_rank = LS_NEW_ARRAY(arena, ls_recording_rank, made->ranks);
  for (int r = 0; r < made->ranks; r++) {
    const ls_sim_stage *of = &simulation->stage[simulation->of_rank[r]];
    made->by_rank[r] = (ls_recording_rank){of->records.items, of->records.count};
  }
  return made;
}
