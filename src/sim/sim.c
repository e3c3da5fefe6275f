#include "sim/sim.h"

#include <math.h>
#include <string.h>

#include "sim/world.h"

/* The cause of a wait or a transfer on an actor; `late`: the other actor that has not begun it. */
static ls_sim_cause *cause_of(ls_sim_world *w, const ls_sim_transfer *t, int late) {
  ls_sim_stage *at = &w->made->stage[t->actor];
  const ls_collective kind = t->instruction->collective;
  const ls_axes axes = ls_collective_is_of_group(kind) ? t->instruction->axes : 0;
  const bool of_unit = w->actors[t->actor].program->actions.items[t->action].action.unit >= 0;
  for (int c = 0; c < at->causes.count; c++) {
    ls_sim_cause *each = &at->causes.items[c];
    if (each->collective == kind && each->axes == axes && each->of_unit == of_unit &&
        each->late == late)
      return each;
  }
  ls_sim_cause *made = LS_APPEND(w->arena, &at->causes);
  *made = (ls_sim_cause){.collective = kind, .axes = axes, .of_unit = of_unit, .late = late};
  return made;
}

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

static void end_transfer(ls_sim_world *w, int at) {
  ls_sim_transfer *head = w->running.items[at];
  w->running.items[at] = w->running.items[--w->running.count];
  w->moved = true;
  for (ls_sim_transfer *t = head; t; t = t->with) {
    t->state = LS_DONE;
    t->end = w->now;
    ls_sim_queue_end(w, t);
    cause_of(w, t, -1)->seconds += t->end - t->start;
    keep(w, t->actor, t->action, t->index, blocks(w, t->instruction) ? t->begun : t->start, t->end);
  }
  for (const ls_sim_transfer *t = head; t; t = t->with) ls_sim_queue_go_on(w, t);
}

/* It moves between tiers and no drive has part in it. */
static bool is_copy(const ls_sim_transfer *t) {
  return ls_collective_moves(t->instruction->collective) && t->time.link != LS_LINK_DRIVE;
}

/* How many threads want a core, over how many there are; 0: nobody counts them. On a CPU what moves
 * between tiers is copied by a thread, too. */
static double cores_wanted(const ls_sim_world *w) {
  const ls_performance *on = w->performance;
  double threads = 0;
  if (!on->cores) return 0;
  for (int a = 0; a < w->classes.count; a++)
    if (w->actors[a].remaining > 0) threads += (double)w->classes.ranks[a] * on->threads;
  for (int r = 0; r < w->running.count; r++)
    if (ls_collective_moves(w->running.items[r]->instruction->collective))
      threads += w->classes.ranks[w->running.items[r]->actor];
  return threads / on->cores;
}

/* How much later than by an even share of cores the last of an actor's ranks comes to a collective:
 * cores are handed out by slices of time, so of what is shorter three threads on two cores take two
 * turns, not one and a half. What is longer ends as much later as a slice would. */
static double late_by_slices(const ls_sim_world *w, ls_sim_actor *at, int ranks) {
  const ls_performance *on = w->performance;
  const double computed = at->unsynced;
  at->unsynced = 0;
  if (!on->cores) return 0;
  const double wanted = (double)ranks * on->threads / on->cores + cores_wanted(w);
  return wanted > 1 ? fmin(computed, on->slice_s) * (ceil(wanted - 1e-9) - wanted) : 0;
}

static ls_sim_transfer *begin(ls_sim_world *w, int a, const ls_sim_item *item) {
  ls_sim_actor *at = &w->actors[a];
  ls_sim_transfer *t = LS_NEW(w->arena, ls_sim_transfer);
  *t = (ls_sim_transfer){.instruction = item->instruction,
                         .time = item->time,
                         .actor = a,
                         .action = at->action,
                         .index = item->index,
                         .begun = w->now,
                         .wanted = item->instruction->phase == LS_WHOLE};
  if (w->options->seconds_of) t->time = (ls_transfer_time){.link = t->time.link};
  if (ls_collective_is_of_group(t->instruction->collective))
    t->time.latency_s += late_by_slices(w, at, w->classes.ranks[a]);
  cause_of(w, t, -1)->bytes +=
      ls_instruction_work(at->program, at->rank, t->instruction, true).sent;
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
    return t;
  }
  return NULL;
}

static const ls_sim_body *body_of(ls_sim_world *w, ls_sim_actor *at,
                                  const ls_program_action *action) {
  ls_sim_body *body = &at->bodies[2 * action->body + action->first];
  if (!body->made)
    ls_sim_body_make(w->arena, w->performance, at->program, at->rank, action->body, action->first,
                     body);
  return body;
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
    at->remaining = seconds_of(w, at, body, item);
    at->unsynced += at->remaining;
    return;
  }
  ls_sim_transfer *t =
      item->kind == LS_SIM_BEGIN ? begin(w, a, item) : take_begun(at, item->instruction);
  const bool waits = item->kind == LS_SIM_WAIT || blocks(w, item->instruction);
  const ls_action *action = &at->program->actions.items[at->action].action;
  const bool goes_on = w->options->publishes_late && action->kind == LS_ACTION_WAIT &&
                       action->transfer == LS_TRANSFER_PUBLISH;
  if (!waits || !t || goes_on) return;
  t->wanted = true;
  ls_sim_queue_start(w, a, t->queue);
  at->waits = t->state != LS_DONE ? t : NULL;
}

/* Goes on with an actor as far as it comes without time passing. */
static void go_on(ls_sim_world *w, int a) {
  ls_sim_actor *at = &w->actors[a];
  while (!(at->remaining > 0) && !at->waits && at->action < at->program->actions.count) {
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

/* What transfers of these kinds take of the kernels beside which they run. */
static double taken_by(const ls_sim_world *w, unsigned kinds) {
  double taken = 0;
  for (int k = 0; k < LS_LINK_KINDS; k++)
    if (kinds >> k & 1) taken += w->performance->interference[k];
  return fmin(taken, 0.9);
}

/* What is taken of each actor's kernels. */
static void find_taken(ls_sim_world *w) {
  memset(w->beside, 0, sizeof *w->beside * (size_t)w->classes.count);
  for (int r = 0; r < w->running.count; r++) {
    const ls_sim_transfer *head = w->running.items[r];
    for (const ls_sim_transfer *t = head; t && !(head->latency > 0); t = t->with)
      w->beside[t->actor] |= 1u << t->time.link;
  }
  for (int a = 0; a < w->classes.count; a++)
    w->actors[a].taken = w->beside[a] ? taken_by(w, w->beside[a]) : 0;
}

/* How fast each actor computes: where cores are fewer than those that compute, its part of them. */
static void share_cores(ls_sim_world *w) {
  const double wanted = cores_wanted(w), part = wanted > 1 ? 1 / wanted : 1;
  if (w->moved) find_taken(w);
  for (int a = 0; a < w->classes.count; a++)
    if (w->actors[a].remaining > 0)
      w->actors[a].rate = w->actors[a].speed * part * (1 - w->actors[a].taken);
}

/* The rates of copies between tiers on a CPU, whose cores all that compute want, too, and which go
 * over one memory. */
static void share_memory(ls_sim_world *w) {
  const double wanted = cores_wanted(w);
  double copies = 0;
  if (!w->performance->cores) return;
  for (int r = 0; r < w->running.count; r++)
    if (is_copy(w->running.items[r])) copies += w->classes.ranks[w->running.items[r]->actor];
  double part = wanted > 1 ? 1 / wanted : 1;
  if (w->performance->copies > 0 && copies > w->performance->copies)
    part = fmin(part, w->performance->copies / copies);
  for (int r = 0; r < w->running.count; r++)
    if (is_copy(w->running.items[r])) w->running.items[r]->rate *= part;
}

/* The rates of all that is under way. Those of transfers stay until one begins to go over its links
 * or ends, unless those that compute take cores from copies. */
static void share(ls_sim_world *w) {
  share_cores(w);
  if (w->moved || w->performance->cores) {
    ls_sim_links_share(w);
    share_memory(w);
  }
  w->moved = false;
}

/* Seconds until something ends; infinite: nothing is under way. */
static double next_end(const ls_sim_world *w) {
  double step = INFINITY;
  for (int a = 0; a < w->classes.count; a++) {
    if (!(w->actors[a].remaining > 0)) continue;
    const double end = w->actors[a].remaining / w->actors[a].rate;
    if (end < step) step = end;
  }
  for (int r = 0; r < w->running.count; r++) {
    const ls_sim_transfer *t = w->running.items[r];
    const double end = t->latency > 0 ? t->latency : t->remaining > 0 ? t->remaining / t->rate : 0;
    if (end < step) step = end;
  }
  return step;
}

/* What is left of something after a step; 0 where rounding left next to nothing. */
static double less(double remaining, double step, double whole) {
  const double left = remaining - step;
  return left > whole * 1e-12 ? left : 0;
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

/* The actor that keeps another's transfer from starting: who has not begun its side, or whom that
 * one waits for; -1: nobody. */
static int blocker_of(const ls_sim_world *w, int a) {
  int found = w->missing[a];
  for (int step = 0; found >= 0 && w->missing[found] >= 0 && step < w->classes.count; step++)
    found = w->missing[found];
  return found;
}

/* Time that actors wait: for a transfer, or for others that have not begun it. */
static void account_waits(ls_sim_world *w, double step) {
  for (int a = 0; a < w->classes.count; a++) {
    const ls_sim_transfer *t = w->actors[a].waits;
    w->missing[a] = t ? ls_sim_queue_missing(w, t) : -1;
  }
  for (int a = 0; a < w->classes.count; a++) {
    ls_sim_actor *at = &w->actors[a];
    if (!at->waits) continue;
    const int late = blocker_of(w, a);
    if (at->accused != at->waits || at->late != late) {
      at->cause = (int)(cause_of(w, at->waits, late) - w->made->stage[a].causes.items);
      at->accused = at->waits;
      at->late = late;
    }
    w->made->stage[a].causes.items[at->cause].exposed += step;
  }
}

/* Lets a step pass, and ends what then is done. */
static void pass(ls_sim_world *w, double step) {
  account_waits(w, step);
  w->now += step;
  w->made->events++;
  for (int a = 0; a < w->classes.count; a++) {
    ls_sim_actor *at = &w->actors[a];
    if (!(at->remaining > 0)) continue;
    at->remaining = less(at->remaining, step * at->rate, w->now);
    if (!(at->remaining > 0)) account(w, a);
  }
  for (int r = 0; r < w->running.count; r++) {
    ls_sim_transfer *t = w->running.items[r];
    if (t->latency > 0) {
      t->latency = less(t->latency, step, w->now);
      w->moved |= !(t->latency > 0);
    } else {
      t->remaining = less(t->remaining, step * t->rate, w->now);
    }
  }
  for (int r = w->running.count - 1; r >= 0; r--) {
    const ls_sim_transfer *t = w->running.items[r];
    if (!(t->latency > 0) && !(t->remaining > 0)) end_transfer(w, r);
  }
  for (int a = 0; a < w->classes.count; a++)
    if (w->actors[a].waits && w->actors[a].waits->state == LS_DONE) w->actors[a].waits = NULL;
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
  for (int s = 0; s < w->stages; s++)
    at->peers[s] = w->classes.of_rank[rank % stage_ranks + s * stage_ranks];
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
  w->beside = LS_NEW_ARRAY(w->arena, unsigned, w->classes.count);
  w->missing = LS_NEW_ARRAY(w->arena, int, w->classes.count);
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
  open_world(&w, programs);
  for (;;) {
    for (int a = 0; a < w.classes.count; a++) go_on(&w, a);
    share(&w);
    const double step = next_end(&w);
    if (isinf(step)) break;
    pass(&w, step);
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
